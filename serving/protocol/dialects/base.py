"""What a dialect is: everything that differs between the ways a model can write a call, and nothing else.

Invariant: the parser, the rollout and the context know a dialect only through this class, so a new one is one file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from callwright.serving.protocol.blocks import Block
from callwright.serving.protocol.rendering import MAX_CHARS, Rendered
from callwright.serving.protocol.values import Rejection, Tool, ToolCall


class Dialect(ABC):
    """One text dialect. Instances hold no state, so one of each serves every conversation."""

    name: str
    default_tools: tuple[Tool, ...]
    result_open: str  # stands before a result; encoded apart from its text, which is encoded with specials off
    result_close: str  # stands after a result
    call_blocks_per_turn: int | None  # the turn ends with so many call blocks, valid or not; None: with its text

    @abstractmethod
    def blocks(self, tools: Sequence[Tool]) -> tuple[Block, ...]:
        """The blocks of this dialect for these tools. Raises ``ValueError`` for tools that it cannot name."""

    @abstractmethod
    def read_calls(self, block: Block, body: str, tools: Sequence[Tool]) -> Sequence[ToolCall] | Rejection:
        """The calls of one closed call block, or why none of it is run."""

    @abstractmethod
    def system_prompt(self, tools: Sequence[Tool]) -> str:
        """What a model must know to write this dialect with these tools."""

    @abstractmethod
    def render_result(self, record: bytes, tool: str | None = None, max_chars: int = MAX_CHARS) -> Rendered:
        """The text of an executor's record, as the reward queue carries it. ``tool`` names it if it does not."""

    @abstractmethod
    def render_rejection(self, rejection: Rejection, tools: Sequence[Tool], max_chars: int = MAX_CHARS) -> Rendered:
        """The text of a refused call."""

    def markers(self, tools: Sequence[Tool]) -> tuple[str, ...]:
        """Every marker of the dialect once, in a stable order: what a tokenizer of its own makes single tokens."""
        return tuple(marker for block in self.blocks(tools) for marker in (block.opener, block.closer))

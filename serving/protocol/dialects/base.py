"""What a dialect is: everything that differs between the ways a model can write a call, and nothing else.

Invariant: the parser, the rollout and the context know a dialect only through this class, so a new one is one file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from callwright.serving.protocol.blocks import Block, Role
from callwright.serving.protocol.grammar import FREE, Form
from callwright.serving.protocol.rendering import (
    MAX_CHARS,
    Rendered,
    read_record,
    rejection_fields,
    require_room,
)
from callwright.serving.protocol.values import Rejection, Tool, ToolCall


class Piece(NamedTuple):
    """Plain text between two markers. They are encoded apart, so that no text can become a marker."""

    opener: str
    text: str
    closer: str


class Dialect(ABC):
    """One text dialect. Instances hold no state, so one of each serves every conversation."""

    name: str
    default_tools: tuple[Tool, ...] | None  # where none are declared; None: any name and any object of arguments
    calls_per_turn: int | None = None  # None: any number
    call_blocks_per_turn: int | None  # the turn ends with so many call blocks; None: with its text, or a refused call
    answer_open: str = ""  # what stands before a final answer; empty: the text of a turn without a call is the answer
    answer_close: str = ""
    result_role: str | None = None  # who speaks the results in the chat template; None: they continue the turn
    result_open: str
    result_close: str

    @abstractmethod
    def blocks(self, tools: Sequence[Tool] | None) -> tuple[Block, ...]:
        """The blocks of this dialect for these tools. Raises ``ValueError`` for tools that it cannot name."""

    @abstractmethod
    def read_calls(self, block: Block, body: str, tools: Sequence[Tool] | None) -> Sequence[ToolCall] | Rejection:
        """The calls of one closed call block, or why none of it is run."""

    @abstractmethod
    def call_schema(self, tool: str | None, tools: Sequence[Tool] | None) -> Mapping[str, Any] | None:
        """The JSON Schema of what a call block should have held, for a refused call; None where nothing is known."""

    @abstractmethod
    def system_prompt(self, tools: Sequence[Tool]) -> str:
        """What a model must know to write this dialect with these tools."""

    @abstractmethod
    def grammar(self, tools: Sequence[Tool] | None, form: Form = FREE) -> str:
        """EBNF of the turns of this form that break no rule, for constrained decoding; its start is ``root``.

        Raises ValueError where there are none.
        """

    @abstractmethod
    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """The canonical text of a turn's calls. Raises ``ValueError`` for calls that the dialect cannot write."""

    @abstractmethod
    def render_fields(self, tool: str | None, error: bool, fields: Mapping[str, Any], max_chars: int) -> str:
        """The text of one result, without a literal ``<`` and of at most so many characters."""

    def render_result(self, record: bytes, tool: str | None = None, max_chars: int = MAX_CHARS) -> Rendered:
        """The text of an executor's record, as the reward queue carries it. ``tool`` names it if it does not.

        Raises ValueError for a bound that has no room for its own notice.
        """
        require_room(max_chars)
        name, error, fields = read_record(record, tool)
        return Rendered(self.render_fields(name, error, fields, max_chars), error)

    def render_rejection(
        self, rejection: Rejection, tools: Sequence[Tool] | None, max_chars: int = MAX_CHARS
    ) -> Rendered:
        """The text of a refused call."""
        require_room(max_chars)
        fields = rejection_fields(rejection, self.call_schema(rejection.tool, tools))
        return Rendered(self.render_fields(rejection.tool, True, fields, max_chars), True)

    def render_call(self, call: ToolCall) -> str:
        """The canonical text of one call."""
        return self.render_calls([call])

    def render_solution(self, answer: str) -> str:
        """The text of a final answer."""
        return f"{self.answer_open}{answer}{self.answer_close}"

    def frame_results(self, texts: Sequence[str]) -> list[Piece]:
        """The results of one turn, in call order, between the markers that only the system writes."""
        return [Piece(self.result_open, text, self.result_close) for text in texts]

    @property
    def answers_in_text(self) -> bool:
        """Whether the plain text of a turn without a call is the final answer."""
        return not self.answer_open

    def markers(self, tools: Sequence[Tool] | None) -> tuple[str, ...]:
        """Every marker of the dialect once, in a stable order: what a tokenizer of its own makes single tokens."""
        return tuple(marker for block in self.blocks(tools) for marker in (block.opener, block.closer))

    def stop_strings(self, tools: Sequence[Tool] | None) -> tuple[str, ...]:
        """What ends a turn, for an engine that can stop only at text; ours asks the parser, which knows strings."""
        ends = {Role.ANSWER, Role.CALL} if self.call_blocks_per_turn == 1 else {Role.ANSWER}
        return tuple(block.closer for block in self.blocks(tools) if block.role in ends)

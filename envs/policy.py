"""A policy: what turns a context into a turn. Everything that a rollout must know of the model is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from callwright.serving.engines.codec import Codec
from callwright.serving.engines.engine import Engine, Sampling, require_constraint
from callwright.serving.protocol import Tool
from callwright.serving.protocol.dialects import get_dialect
from callwright.serving.protocol.grammar import Form


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that turns a context into a turn: the engine, the tokenizer, the dialect and the declared tools.

    ``constrained``: each turn is held to the dialect's grammar for these tools. Raises UserError where the engine
    cannot.
    """

    engine: Engine
    codec: Codec
    tools: tuple[Tool, ...]
    dialect: str = "tags"
    sampling: Sampling = field(default_factory=Sampling)
    system_prompt: bool = True
    constrained: bool = False

    def __post_init__(self) -> None:
        if self.constrained:
            require_constraint(type(self.engine))

    def grammar(self, prefill: str = "") -> str | None:
        """What a turn behind ``prefill``, nothing or the answer's opener, is held to; None where it is free."""
        if not self.constrained:
            return None
        dialect = get_dialect(self.dialect)
        if prefill not in ("", dialect.answer_open):
            raise ValueError(f"no grammar goes on from {prefill!r}")
        return dialect.grammar(self.tools, Form(opened=bool(prefill)))

    def prompt_ids(self, question: str) -> list[int]:
        """The prompt of one question: the dialect's system prompt (if on), the question, and where the answer
        starts."""
        messages: list[Mapping[str, str | Sequence[int]]] = [{"role": "user", "content": question}]
        if self.system_prompt:
            dialect = get_dialect(self.dialect)
            system = self.codec.protocol(dialect.system_prompt(self.tools), dialect.markers(self.tools))
            messages.insert(0, {"role": "system", "content": system})
        return self.codec.prompt(messages)

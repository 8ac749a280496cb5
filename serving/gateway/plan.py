"""From what is asked to what is sampled: which ids are known, which are new, and how much room there is.

Invariants: a conversation that goes on from a served turn keeps that turn's ids, and only the new messages are
rendered; anything else is rendered whole; what cannot be sampled is refused here, before a token is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from callwright.serving.engines.codec import Codec
from callwright.serving.engines.engine import Engine, require_constraint
from callwright.serving.errors import UserError
from callwright.serving.gateway.errors import ApiError, Problem
from callwright.serving.gateway.history import Given, History, Segment, Turn
from callwright.serving.gateway.intake import Ask
from callwright.serving.gateway.promise import promised
from callwright.serving.gateway.prompt import Prompter
from callwright.serving.gateway.reading import ClientParser
from callwright.serving.protocol.conversation import MessageRole
from callwright.serving.protocol.dialects import get_dialect
from callwright.serving.wires.base import WireFormat


@dataclass(frozen=True, slots=True)
class Served:
    """What stands behind the gateway. ``explain``: whether the system prompt tells of the dialect and its tools;
    ``constrained``: whether every reply is held to the dialect's grammar, and not those alone that must be."""

    engine: Engine
    codec: Codec
    name: str
    context: int
    dialect: str = "tags"
    explain: bool = True
    constrained: bool = False


@dataclass(slots=True, eq=False)
class Plan:
    """One reply, ready to be sampled. ``left`` says that the client did not wait for it."""

    ask: Ask
    before: Turn | None
    covered: int  # messages that ``before`` answers for
    given: Given
    grammar: str | None  # what the turn is held to
    room: int
    left: bool = False

    @property
    def segments(self) -> tuple[Segment, ...]:
        return (*(self.before.segments if self.before else ()), self.given)

    @property
    def ids(self) -> list[int]:
        return [*(self.before.ids if self.before else ()), *self.given]

    @property
    def how(self) -> str:
        """How the context came about: for the count of histories that had to be rendered again."""
        if self.before is not None:
            return "spliced"
        return "rendered" if any(m.role is MessageRole.ASSISTANT for m in self.ask.messages) else "new"


class Planner:
    """Plans for one served model, with what it remembers. Only reads, so threads may share it."""

    def __init__(self, served: Served, history: History) -> None:
        self._served, self._history = served, history
        self._dialect = get_dialect(served.dialect)
        self._prompter = Prompter(served.codec, served.dialect, explain=served.explain)

    def plan(self, ask: Ask) -> Plan:
        """Everything that can be refused is refused here. Raises ApiError."""
        before, covered = self._history.find(ask.tools, ask.messages)
        if before is None:
            given = self._prompter.whole(ask.messages, ask.tools)
        else:
            said, rest = ask.messages[covered - 1], ask.messages[covered:]
            ended = before.ids[-1] in self._served.codec.eos
            given = self._prompter.following(said, rest, ended=ended)
        plan = Plan(ask, before, covered, tuple(given), self._grammar(ask), 0)
        plan.room = self._served.context - len(plan.ids)
        if plan.room <= 0:
            raise _too_long(ask.fmt, len(plan.ids), self._served.context)
        if ask.max_tokens is not None:
            plan.room = min(plan.room, ask.max_tokens)
        return plan

    def _grammar(self, ask: Ask) -> str | None:
        try:
            ClientParser(self._served.dialect, ask.tools)
        except ValueError as error:  # names that the dialect cannot write
            raise ApiError(Problem.INVALID, f"tools: {error}", "tools") from None
        grammar = promised(ask, self._dialect, always=self._served.constrained)
        if grammar is not None:
            try:
                require_constraint(type(self._served.engine))
            except UserError:
                message = "This server cannot promise strict tools, a forced call or a JSON answer."
                raise ApiError(Problem.INVALID, message, code="unsupported_parameter") from None
        return grammar


def _too_long(fmt: WireFormat, tokens: int, context: int) -> ApiError:
    if fmt is WireFormat.ANTHROPIC:
        message = f"prompt is too long: {tokens} tokens > {context} maximum"
    elif fmt is WireFormat.GEMINI:
        message = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({context})."
    else:
        message = (
            f"This model's maximum context length is {context} tokens. However, your messages resulted in {tokens} "
            "tokens. Please reduce the length of the messages."
        )
    return ApiError(Problem.TOO_LONG, message, "input" if fmt is WireFormat.RESPONSES else "messages")

"""The stream parser: one turn of a model's text in, events and typed verdicts out.

Invariants: the events, with neighbours of one type joined, do not depend on how the text was cut; nothing is run but
a call that the validator accepted, outside every other block, within the dialect's number of call blocks; a refused
call gives exactly one failure result and ends the turn; what follows the end of a turn is discarded, counted and, where
it breaks the protocol, reported. The system's own results never pass through here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callwright.serving.protocol.blocks import Block, Role
from callwright.serving.protocol.byte_offsets import ByteRuler, byte_offset
from callwright.serving.protocol.dialects import get_dialect
from callwright.serving.protocol.events import Event, EventType
from callwright.serving.protocol.rendering import rejection_fields
from callwright.serving.protocol.scanner import BLOCK_LIMIT, Scanner, Token, TokenKind
from callwright.serving.protocol.validation import RAW_LIMIT
from callwright.serving.protocol.values import Rejection, RejectionCode, ResultStatus, Tool, ToolCall, compact_json

_SHOWN_AS: Mapping[Role, tuple[EventType, Mapping[str, Any]]] = {
    Role.THINK: (EventType.THINK, {}),
    Role.ANSWER: (EventType.RESPOND, {"channel": "solution"}),
}


class Parser:
    """Parses one turn, fed in any chunks; the next turn takes a new parser.

    Beside the events it keeps the turn's verdicts, so that nobody reads their JSON again:

    - ``calls`` to run, and ``rejections`` to answer (their offsets count bytes from the start of the call's body);
    - ``violations``: second calls, calls in a forbidden place, forged results (bytes from the turn's start);
    - ``solution``: verbatim, once its block is closed; where text is the answer, once ``close`` found a turn of text
      without a call, a violation or an open block; stripped, and None where nothing is left;
    - ``incomplete``, the name of the block that ``close`` found open; ``call_blocks``, how many of calls there were;
    - ``turn_over`` once the text itself ended the turn: what is fed later is discarded.
    """

    def __init__(self, dialect: str = "tags", tools: Sequence[Tool] | None = None, limit: int = BLOCK_LIMIT) -> None:
        self._dialect = get_dialect(dialect)
        self._tools = tuple(tools) if tools is not None else self._dialect.default_tools
        self._limit = limit
        self._answers_in_text = self._dialect.answers_in_text
        self._blocks = self._dialect.blocks(self._tools)
        self._scanner = Scanner(self._blocks, limit)
        self.calls: list[ToolCall] = []
        self.rejections: list[Rejection] = []
        self.violations: list[Rejection] = []
        self.solution: str | None = None
        self.incomplete: str | None = None
        self.call_blocks = 0
        self.turn_over = False
        self._events: list[Event] = []
        self._bytes = ByteRuler()
        self._fed = 0
        self._end = 0  # of the turn, once it is over
        self._closed = False
        self._opened = 0  # the byte at which the open block starts
        self._nested: dict[str, tuple[int, int]] = {}  # calls in the open block: name to first byte and count
        self._pieces: list[str] = []  # of the open answer
        self._dropped = 0  # characters of the open forged result
        self._answer: list[str] = []  # the text outside blocks, where that may be the answer
        self._blank: list[str] = []  # the blank start of a run of text: shown only if more follows
        self._shown = False  # whether this run of text has given an event

    @property
    def consumed(self) -> int:
        """Characters up to and including the one that ended the turn; all that were fed while it is not over."""
        return self._end if self.turn_over else self._fed

    @property
    def discarded(self) -> int:
        """Characters fed after the one that ended the turn."""
        return self._fed - self.consumed

    def feed(self, text: str) -> list[Event]:
        """The events that are certain with this piece of text."""
        if self._closed:
            raise ValueError("this parser is closed: a turn takes a new one")
        if not text.isascii():
            self._bytes.feed(text, self._fed)
        self._fed += len(text)
        for token in self._scanner.feed(text):
            self._take(token)
        return self._flush() if self._events else []

    def close(self) -> list[Event]:
        """The last events: the turn's text has ended. A block that is still open is never run."""
        if self._closed:
            return []
        self._closed = True
        for token in self._scanner.finish():
            self._take(token)
        if not self.turn_over:
            self._execute()
            if self._answers_in_text and not (self.call_blocks or self.violations or self.incomplete):
                self.solution = "".join(self._answer).strip() or None
        return self._flush()

    @property
    def refusals(self) -> list[Rejection]:
        """What a closed turn must be told: its rejected calls or, where it has neither a call nor an answer, why not:
        the first violation, or a block that was left open."""
        if self.rejections or self.call_blocks or self.solution is not None:
            return self.rejections
        if self.incomplete is not None and not self.violations:
            closer = next(block.closer for block in self._blocks if block.name == self.incomplete)
            return [Rejection(RejectionCode.TRUNCATED, f"the turn ended before {closer}", self._bytes(self._fed))]
        return self.violations[:1]

    def _flush(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _take(self, token: Token) -> None:
        kind, block, text, offset = token
        if kind is TokenKind.TEXT:
            self._text(block, text)
        elif block is None:
            raise AssertionError("only text stands outside a block")
        elif kind is TokenKind.OPEN:
            self._open(block, self._bytes(offset))
        elif kind is TokenKind.NESTED:
            first, count = self._nested.get(block.name, (self._bytes(offset), 0))
            self._nested[block.name] = (first, count + 1)
        elif block.role is Role.CALL:
            if not self.turn_over:  # otherwise it was reported when it opened
                self._call(token, block)
            self._new_run()
        else:
            self._leave(block, complete=kind is TokenKind.CLOSE, offset=offset)
            self._new_run()

    def _new_run(self) -> None:
        """Another run of text starts: plain text, or the text of one block."""
        self._shown = False
        self._blank, self._pieces, self._dropped = [], [], 0
        self._nested = {}

    def _text(self, block: Block | None, text: str) -> None:
        if block is not None and block.role is Role.RESULT:
            self._dropped += len(text)
            return
        if self.turn_over:
            return
        if block is not None and block.role is Role.ANSWER:
            self._pieces.append(text)
        if not self._shown:
            self._blank.append(text)
            if text.isspace():
                return
            text, self._blank, self._shown = "".join(self._blank), [], True
        if block is None and self._answers_in_text:
            self._answer.append(text)
        event, payload = (EventType.RESPOND, None) if block is None else _SHOWN_AS[block.role]
        self._emit(event, text, payload)

    def _open(self, block: Block, offset: int) -> None:
        self._new_run()
        self._opened = offset
        if block.role is not Role.CALL or not self.turn_over:
            return
        if self._dialect.call_blocks_per_turn is None:
            self._violate(RejectionCode.SECOND_CALL, "a call after a refused one is not run", offset, block.tool)
        elif self.call_blocks:
            self._violate(RejectionCode.SECOND_CALL, "a second call in one turn is not run", offset, block.tool)
        else:
            self._violate(RejectionCode.FORBIDDEN_PLACE, "a call after the end is not run", offset, block.tool)

    def _call(self, token: Token, block: Block) -> None:
        """A call block ended: by its closer, by the end of the text or by its size."""
        self.call_blocks += 1
        raw, end = token.text[:RAW_LIMIT], byte_offset(token.text, len(token.text))
        verdict: Sequence[ToolCall] | Rejection
        if token.kind is TokenKind.OVERFLOW:
            message = f"the call is longer than {self._limit} characters"
            verdict = Rejection(RejectionCode.TOO_LARGE, message, end, block.tool, raw)
        else:
            verdict = self._dialect.read_calls(block, token.text, self._tools)
        if token.kind is TokenKind.UNCLOSED:
            self.incomplete = block.name
            # The cause is often earlier than the end: a quote that was not escaped keeps the closer inside a string.
            cause, at = (verdict.message, verdict.offset) if isinstance(verdict, Rejection) else ("", end)
            message = f"the turn ended before {block.closer}" + (f": {cause}" if cause else "")
            verdict = Rejection(RejectionCode.TRUNCATED, message, at, block.tool, raw)
        if isinstance(verdict, Rejection):
            self.rejections.append(verdict)
            self._events.append(self.failure(verdict))
        else:
            self.calls.extend(verdict)
            for call in verdict:
                self._emit(EventType.CALL, compact_json({"name": call.name, "args": call.arguments}))
        over = isinstance(verdict, Rejection) or self.call_blocks == self._dialect.call_blocks_per_turn
        if over and token.kind is not TokenKind.UNCLOSED:
            self._end_turn(token.offset)

    def failure(self, rejection: Rejection) -> Event:
        """The one failure result of what was refused."""
        schema = self._dialect.call_schema(rejection.tool, self._tools)
        content = compact_json(rejection_fields(rejection, schema))
        result = {"tool": rejection.tool, "status": ResultStatus.FAILURE, "content": content}
        counts = {"tools_executed": 0, "success_count": 0, "failure_count": 1}
        return Event(EventType.RESULT, compact_json([result]), {**counts, "rejection": _summary(rejection)})

    def _leave(self, block: Block, complete: bool, offset: int) -> None:
        """A text block ended, by its closer or by the end of the text."""
        for name, (first, count) in self._nested.items():
            times = "" if count == 1 else f" ({count} times)"
            message = f"a call inside {block.opener} is not run{times}"
            tool = next(inner.tool for inner in self._blocks if inner.name == name)
            self._violate(RejectionCode.FORBIDDEN_PLACE, message, first, tool)
        if block.role is Role.RESULT:
            message = f"a result written by the model is dropped ({self._dropped} characters)"
            self._violate(RejectionCode.FORGED_RESULT, message, self._opened, None)
        if self.turn_over:
            return
        if not complete:
            self.incomplete = block.name
            if block.role in _SHOWN_AS:
                event, payload = _SHOWN_AS[block.role]
                self._emit(event, "", {**payload, "incomplete": True})
        elif block.role is Role.ANSWER:
            self.solution = "".join(self._pieces)
            self._end_turn(offset)
            self._emit(EventType.END)

    def _end_turn(self, offset: int) -> None:
        self._execute()
        self.turn_over = True
        self._end = offset

    def _execute(self) -> None:
        if self.calls or (self.call_blocks and not self.rejections):  # a block may hold no call, and yet wants results
            self._emit(EventType.EXECUTE)

    def _violate(self, code: RejectionCode, message: str, offset: int, tool: str | None) -> None:
        violation = Rejection(code, message, offset, tool)
        self.violations.append(violation)
        self._emit(EventType.ERROR, message, _summary(violation))

    def _emit(self, event: EventType, content: str = "", payload: Mapping[str, Any] | None = None) -> None:
        self._events.append(Event(event, content, payload or None))


def _summary(rejection: Rejection) -> dict[str, Any]:
    """A rejection as an event carries it."""
    fields = {"message": rejection.message, "offset": rejection.offset, "tool": rejection.tool}
    return {"code": str(rejection.code), **fields}


def parse(text: str, dialect: str = "tags", tools: Sequence[Tool] | None = None) -> list[Event]:
    """The events of one whole turn; the same as those of any chunking, with neighbours of one type joined."""
    parser = Parser(dialect, tools)
    return parser.feed(text) + parser.close()

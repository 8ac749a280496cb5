"""The one way from a request to a reply: prompt ids, one turn of the engine, what the client gets of it.

Invariants: whatever happens, the conversation's events say how it ended, and its place in the engine is free again; an
engine's failure is told to the log, not to the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from callwright.serving.engines.engine import EngineError, FinishReason
from callwright.serving.gateway import log
from callwright.serving.gateway.errors import ApiError, Problem
from callwright.serving.gateway.feed import Feed, joined
from callwright.serving.gateway.history import History, Turn
from callwright.serving.gateway.meters import Meters
from callwright.serving.gateway.plan import Plan, Planner, Served
from callwright.serving.gateway.reading import ClientParser, Piece, Pieces, Think
from callwright.serving.gateway.recorder import Record, Recorder
from callwright.serving.gateway.settings import GatewaySettings
from callwright.serving.progress import log as say
from callwright.serving.protocol import Event
from callwright.serving.protocol.conversation import Message, MessageRole, Text
from callwright.serving.protocol.events import Spent, metric
from callwright.serving.protocol.values import Rejection, ToolCall
from callwright.serving.turn import Turn as Taken
from callwright.serving.turn import turn as take_turn
from callwright.serving.wires.server import Finish, Usage

Emit = Callable[[list[Piece]], Awaitable[None]]
_KEY_BITS = 63
CHUNKS_PER_S = 400  # of all streams together


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply, whole."""

    message: Message
    thinking: str
    finish: Finish
    usage: Usage
    stopped_by: str | None


class Gateway:
    """One served model: its conversations, and the replies in the making."""

    def __init__(self, served: Served, settings: GatewaySettings, meters: Meters, recorder: Recorder | None) -> None:
        self.served, self.settings, self.meters = served, settings, meters
        self._recorder = recorder
        self._history = History(settings.conversations, served.engine.release)
        self.plan = Planner(served, self._history).plan
        self._in_flight = 0

    async def idle(self, within: float) -> None:
        """Returns once no reply is in the making, or after so many seconds."""
        deadline = time.monotonic() + within
        while self._in_flight and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    async def run(self, plan: Plan, emit: Emit | None = None) -> Answer:
        """Sample the reply; with ``emit`` its pieces leave as they come. Raises ApiError."""
        if self._in_flight >= self.settings.at_once:
            raise ApiError(Problem.BUSY, "server busy, please try again. maximum pending requests exceeded")
        self._in_flight += 1
        conversation, number = self._history.begin(plan.before)
        events = log.asked(plan.ask.messages[plan.covered :])
        done: Turn | None = None
        outcome: str | None = "infra_fault"
        cause = ""
        try:
            with self.meters.reply(plan.ask.fmt, how=plan.how) as meter:
                answer, done = await self._sample(plan, emit, events, conversation, number)
                outcome = None  # nobody grades a conversation
                meter.usage(answer.usage)
                return answer
        except asyncio.CancelledError:
            outcome, cause = "cancelled", "the client left" if plan.left else "the server stopped"
            events += log.cancelled(interrupted=not plan.left)
            raise
        except EngineError as error:
            cause = str(error)
            events.append(log.failed(cause))
            say(f"gateway: {cause}")
            raise ApiError(Problem.INTERNAL, "The model failed to answer this request.") from error
        finally:
            self._in_flight -= 1
            self._history.end(conversation, done, plan.ask.tools, plan.ask.messages)
            if self._recorder is not None:
                segments = done.segments if done else plan.segments
                self._recorder.write(Record(conversation, number, segments, events, outcome, cause, plan.ask.model))

    async def _sample(
        self, plan: Plan, emit: Emit | None, events: list[Event], conversation: str, number: int
    ) -> tuple[Answer, Turn]:
        started = time.monotonic()
        ask, served = plan.ask, self.served
        parser = ClientParser(served.dialect, ask.tools, ask.stop, ask.one_call)
        reader = Pieces(parser, served.dialect, ask.tools)
        feed = Feed() if emit is not None else None
        watched = feed.put if feed is not None else _ignore if ask.stop else None
        work = asyncio.ensure_future(
            take_turn(
                served.engine,
                served.codec,
                parser,
                plan.ids,
                max_new_tokens=plan.room,
                sampling=ask.sampling,
                key=(secrets.randbits(_KEY_BITS) if ask.seed is None else ask.seed % (1 << _KEY_BITS)),
                session=conversation,
                on_event=watched,
                grammar=plan.grammar,
            )
        )
        pieces: list[Piece] = []
        heard: list[Event] = []
        try:
            if emit is not None and feed is not None:
                await self._stream(work, feed, heard, reader, pieces, emit)
            taken = await work
        except BaseException:
            events += log.sampled(heard, ended=False)  # what the client saw of it
            raise
        finally:
            if not work.done():
                work.cancel()
                with contextlib.suppress(asyncio.CancelledError, EngineError):
                    await work
        if emit is None:
            pieces = joined([piece for event in taken.events for piece in reader.of(event)])
        answer = self._answer(plan, taken, parser, pieces)
        step = Spent(answer.usage.input, answer.usage.output, time.monotonic() - started)
        total = step + plan.before.spent if plan.before else step
        turn = Turn(conversation, number, (*plan.segments, taken.completion), answer.message, total)
        events += log.sampled(taken.events, ended=answer.finish is not Finish.CALLS)
        events.append(metric(step, total))
        return answer, turn

    async def _stream(
        self,
        work: asyncio.Future[Taken],
        feed: Feed,
        heard: list[Event],
        reader: Pieces,
        pieces: list[Piece],
        emit: Emit,
    ) -> None:
        """Hand out what comes until the turn is over; what comes within one pause leaves together."""
        work.add_done_callback(lambda _: feed.wake())
        while True:
            over = work.done()  # asked before the batch is taken: then nothing can follow it
            events = await feed.batch()
            heard += events
            batch = joined([piece for event in events for piece in reader.of(event)])
            if batch:
                pieces += batch
                await emit(batch)
            if over:
                return
            if work.done():
                feed.wake()
            else:
                await asyncio.wait({work}, timeout=self._pause)

    @property
    def _pause(self) -> float:
        """Seconds between two chunks of a stream. Each takes time from the engine's thread, so that the streams share a
        number of chunks a second."""
        return max(self.settings.flush_ms / 1000, self._in_flight / CHUNKS_PER_S)

    def _answer(self, plan: Plan, taken: Taken, parser: ClientParser, pieces: Sequence[Piece]) -> Answer:
        spoken: list[Text | ToolCall | Rejection] = []
        for piece in joined(list(pieces)):
            if not isinstance(piece, Think):
                spoken.append(Text(piece) if isinstance(piece, str) else piece)
        thinking = "".join(piece.text for piece in pieces if isinstance(piece, Think))
        sampled = len(taken.completion.ids)
        reasoning = min(sampled, len(self.served.codec.encode(thinking))) if thinking else 0
        cut = taken.completion.reason is FinishReason.LENGTH and not parser.turn_over
        called = any(not isinstance(part, Text) for part in spoken)
        finish = Finish.LENGTH if cut else Finish.CALLS if called else Finish.STOP
        message = Message(MessageRole.ASSISTANT, tuple(spoken), truncated=cut)
        return Answer(message, thinking, finish, Usage(len(plan.ids), sampled, reasoning), parser.stopped_by)


def _ignore(event: Event) -> None:
    """Who waits for the whole still wants a stop sequence to be seen with its token."""

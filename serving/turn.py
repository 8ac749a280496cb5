"""One turn of generation: prompt ids in; sampled ids, events and the reason it ended out.

Invariant: the ids of a turn are what the policy sampled, up to and including the token that completed the turn's closer
or its end token; nothing is appended to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from callwright.serving.engines.codec import Codec, Decoder
from callwright.serving.engines.engine import Completion, Engine, FinishReason, Request, Sampling
from callwright.serving.protocol import Event, Parser

OnEvent = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn gave: the sampled ids, and the parser that read them, already closed."""

    completion: Completion
    events: tuple[Event, ...]
    parser: Parser

    @property
    def over_budget(self) -> bool:
        """Whether the policy was cut off before it ended the turn itself."""
        return self.completion.reason is FinishReason.LENGTH


class _Reader:
    """Feeds sampled text to the parser and says when the turn is over. Used by one thread at a time."""

    def __init__(self, codec: Codec, parser: Parser, on_event: OnEvent | None) -> None:
        self._decoder = Decoder(codec)
        self._parser = parser
        self._on_event = on_event
        self.events: list[Event] = []

    def __call__(self, ids: Sequence[int]) -> bool:
        self._feed(self._decoder.push(ids))
        return self._parser.turn_over

    def finish(self, ids: Sequence[int]) -> None:
        self._feed(self._decoder.push(ids, final=True))
        self._emit(self._parser.close())

    def _feed(self, text: str) -> None:
        if text:
            self._emit(self._parser.feed(text))

    def _emit(self, events: list[Event]) -> None:
        self.events += events
        if self._on_event is not None:
            for event in events:
                self._on_event(event)


async def turn(
    engine: Engine,
    codec: Codec,
    parser: Parser,
    ids: Sequence[int],
    *,
    max_new_tokens: int,
    sampling: Sampling,
    key: int,
    session: str,
    on_event: OnEvent | None = None,
    grammar: str | None = None,
) -> Turn:
    """Generate until the parser says the turn is over, an end token is sampled, or ``max_new_tokens`` are spent.

    ``ids`` is the whole context; ``parser`` a fresh one. With ``on_event`` every event leaves as soon as it is known,
    from the engine's thread. ``grammar`` holds the sampled text to it; see ``Request``. Raises EngineError.
    """
    reader = _Reader(codec, parser, on_event)
    request = Request(
        ids=ids,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        key=key,
        session=session,
        eos=codec.eos,
        watch=codec.every if on_event is not None else codec.closers,
        stop=reader,
        grammar=grammar,
    )
    completion = await engine.generate(request)
    text_ids = completion.ids[:-1] if completion.reason is FinishReason.EOS else completion.ids
    reader.finish(text_ids)
    return Turn(completion, tuple(reader.events), parser)

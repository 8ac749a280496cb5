"""The transformers engine: what it samples is what a plain forward pass says, whoever else is in the batch."""

from __future__ import annotations

import asyncio
import copy
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from callwright.serving.engines import by_length
from callwright.serving.engines.engine import Completion, EngineError, EngineStats, FinishReason, Request, Sampling
from callwright.serving.engines.sampler import address
from callwright.serving.engines.transformers_engine import TransformersEngine
from callwright.serving.models import Loaded

pytestmark = pytest.mark.integration

Make = Callable[..., TransformersEngine]
WAIT_S = 200.0  # far beyond what anything here takes: a hang fails, a slow machine does not


@pytest.fixture
def model(tiny: Loaded) -> Any:
    """A copy: some tests change its weights."""
    return copy.deepcopy(tiny.model)


@pytest.fixture
def make(model: Any) -> Iterator[Make]:
    made: list[TransformersEngine] = []

    def build(**options: Any) -> TransformersEngine:
        made.append(TransformersEngine(model, **{"rows": 4, "context": 256, **options}))
        return made[-1]

    yield build
    for engine in made:
        engine.close()


def turn_of(session: str, ids: Sequence[int], *, tokens: int = 12, temperature: float = 1.0, **more: Any) -> Request:
    sampling = Sampling(temperature=temperature)
    return Request(ids, tokens, sampling, key=address(session), session=session, **more)


def some_ids(rng: random.Random, count: int, vocabulary: int) -> list[int]:
    return [rng.randrange(vocabulary) for _ in range(count)]


async def ask(engine: TransformersEngine, request: Request) -> Completion:
    async with asyncio.timeout(WAIT_S):
        return await engine.generate(request)


def recomputed(model: Any, context: Sequence[int], sampled: Sequence[int], temperature: float) -> list[float]:
    """The logprobs of ``sampled`` after ``context``, by one plain forward pass."""
    ids = torch.tensor([[*context, *sampled]])
    with torch.no_grad():
        logprobs = (model(input_ids=ids).logits[0, :-1].float() / temperature).log_softmax(-1)
    return [float(logprobs[len(context) - 1 + at, token]) for at, token in enumerate(sampled)]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize(("shared", "waste"), [(0, by_length.WASTE), (40, by_length.WASTE), (40, 1)])
async def test_logprobs_are_those_of_a_plain_forward_pass(
    make: Make, model: Any, monkeypatch: pytest.MonkeyPatch, temperature: float, shared: int, waste: int
) -> None:
    """More sessions than rows, several turns, prompts that begin alike, new weights half way; in one pass a step, and
    in as many as there are bands of length."""
    monkeypatch.setattr(by_length, "WASTE", waste)
    engine = make(rows=3, context=256)
    vocabulary = model.config.vocab_size
    rng = random.Random(f"{temperature}|{shared}")
    prefix = some_ids(rng, shared, vocabulary)
    contexts = {f"s{i}": prefix + some_ids(rng, rng.randrange(1, 20), vocabulary) for i in range(7)}

    async def play(session: str, turns: int, seed: str) -> None:
        own = random.Random(seed + session)
        for _ in range(turns):
            context = contexts[session]
            request = turn_of(session, tuple(context), tokens=own.randrange(1, 15), temperature=temperature)
            done = await ask(engine, request)
            assert len(done.ids) == len(done.logprobs) > 0
            assert done.version == engine.version
            want = recomputed(model, context, done.ids, temperature)
            assert done.logprobs == pytest.approx(want, abs=1e-4)
            for _ in range(own.randrange(3)):
                await asyncio.sleep(0)
            contexts[session] = [*context, *done.ids, *some_ids(own, own.randrange(20), vocabulary)]

    await asyncio.gather(*(play(session, 3, "first") for session in contexts))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.05)
    engine.set_version(7)
    await asyncio.gather(*(play(session, 2, "second") for session in contexts))
    assert engine.version == 7
    if shared:
        assert engine.stats.reused_tokens >= shared


async def test_new_weights_make_every_cached_key_and_value_void(make: Make, model: Any) -> None:
    engine = make()
    context = list(range(20, 60))
    first = await ask(engine, turn_of("s", context))
    with torch.no_grad():
        model.model.layers[0].self_attn.k_proj.weight.mul_(-1.0)
    engine.set_version(1)
    context = [*context, *first.ids]
    second = await ask(engine, turn_of("s", context))
    assert second.logprobs == pytest.approx(recomputed(model, context, second.ids, 1.0), abs=1e-4)


async def test_the_draw_does_not_depend_on_the_batch(make: Make, model: Any) -> None:
    rng = random.Random(3)
    requests = [turn_of(f"s{i}", some_ids(rng, 5 + 3 * i, model.config.vocab_size), tokens=20) for i in range(6)]
    together = await asyncio.gather(*(ask(make(rows=6), request) for request in requests))
    engine = make(rows=2)
    backwards = await asyncio.gather(*(ask(engine, request) for request in reversed(requests)))
    alone = [await ask(make(rows=1), request) for request in requests]
    one_batch = make(rows=6)
    shuffled = await asyncio.gather(*(ask(one_batch, request) for request in sorted(requests, key=lambda r: r.key)))
    by_session = dict(zip((r.session for r in sorted(requests, key=lambda r: r.key)), shuffled, strict=True))
    for at, request in enumerate(requests):
        ids = together[at].ids
        assert ids == backwards[len(requests) - 1 - at].ids == alone[at].ids == by_session[request.session].ids
    assert len({done.ids for done in together}) > 1
    other_key = await ask(make(), Request(requests[0].ids, 20, Sampling(), key=1, session="x"))
    assert other_key.ids != together[0].ids


async def test_greedy_and_sampled_turns_share_a_batch(make: Make, model: Any) -> None:
    engine = make()
    context = list(range(30, 50))
    greedy, sampled = await asyncio.gather(
        ask(engine, turn_of("a", context, temperature=0.0)), ask(engine, turn_of("b", context, temperature=1.3))
    )
    ids = list(context)
    for token in greedy.ids:
        with torch.no_grad():
            assert token == int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
        ids.append(token)
    assert greedy.logprobs == pytest.approx(recomputed(model, context, greedy.ids, 1.0), abs=1e-4)
    assert sampled.logprobs == pytest.approx(recomputed(model, context, sampled.ids, 1.3), abs=1e-4)


async def test_why_a_turn_ends(make: Make, model: Any) -> None:
    engine = make()
    vocabulary = model.config.vocab_size
    context = list(range(40, 52))
    free = await ask(engine, turn_of("free", context, tokens=10))
    assert (free.reason, len(free.ids)) == (FinishReason.LENGTH, 10)
    at = next(i for i in range(3, 10) if free.ids[i] not in free.ids[:i])

    async def same_draws(**more: Any) -> Completion:
        return await ask(engine, Request(context, 10, Sampling(), key=address("free"), session="other", **more))

    eos = await same_draws(eos=frozenset({free.ids[at]}))
    assert (eos.reason, eos.ids) == (FinishReason.EOS, free.ids[: at + 1])
    seen: list[tuple[int, ...]] = []

    def stop(ids: Sequence[int]) -> bool:
        seen.append(tuple(ids))
        return True

    watch = np.zeros(vocabulary, dtype=np.bool_)
    watch[free.ids[at]] = True
    stopped = await same_draws(stop=stop, watch=watch)
    assert (stopped.reason, stopped.ids) == (FinishReason.STOP, free.ids[: at + 1])
    assert seen == [free.ids[: at + 1]]
    unwatched = await same_draws(stop=stop, watch=np.zeros(vocabulary, dtype=np.bool_))
    assert unwatched.ids == free.ids
    streamed: list[int] = []
    assert (await same_draws(on_token=streamed.append)).ids == tuple(streamed)


async def test_the_context_is_a_limit(make: Make) -> None:
    engine = make(context=64)
    full = await ask(engine, turn_of("a", [5] * 61, tokens=10))
    assert (full.reason, len(full.ids)) == (FinishReason.LENGTH, 3)
    for request in (turn_of("b", [5] * 64), turn_of("c", [5] * 80), turn_of("d", [5], tokens=0)):
        assert await ask(engine, request) == Completion((), (), FinishReason.LENGTH)
    with pytest.raises(ValueError, match="at least one token"):
        await ask(engine, turn_of("e", []))
    again = await ask(engine, turn_of("a", [5] * 61, tokens=10))
    assert again.ids == full.ids


async def until_it_samples(engine: TransformersEngine, request: Request) -> asyncio.Task[Completion]:
    """A task that generates, once its first token is there."""
    loop, sampled = asyncio.get_running_loop(), asyncio.Event()

    def tell(token: int) -> None:
        loop.call_soon_threadsafe(sampled.set)

    task = asyncio.create_task(engine.generate(replace(request, on_token=tell)))
    async with asyncio.timeout(WAIT_S):
        await sampled.wait()
    return task


class Gate:
    """An ``on_token`` that holds the engine's thread at the N-th token until it is opened."""

    def __init__(self, at: int) -> None:
        self._left = at
        self._loop, self._reached, self._opened = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def __call__(self, token: int) -> None:
        self._left -= 1
        if self._left == 0:
            self._loop.call_soon_threadsafe(self._reached.set)
            assert self._opened.wait(WAIT_S)

    async def reached(self) -> None:
        async with asyncio.timeout(WAIT_S):
            await self._reached.wait()

    def open(self) -> None:
        self._opened.set()


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_turn_frees_its_row(make: Make) -> None:
    engine = make(rows=1, context=8192)
    want = await ask(engine, turn_of("b", [7, 8, 9]))
    task = await until_it_samples(engine, turn_of("a", [5] * 4, tokens=8000))
    waiting = asyncio.create_task(ask(engine, turn_of("b", [7, 8, 9])))
    queued = asyncio.create_task(ask(engine, turn_of("c", [7, 8])))
    await asyncio.sleep(0)
    await cancel(queued)
    await cancel(task)
    engine.release("a")
    assert (await waiting).ids == want.ids
    engine.set_version(1)
    assert engine.stats.sampled_tokens < 8000


async def test_a_session_goes_on_at_once_after_a_cancelled_turn(make: Make) -> None:
    """The cancelled turn still stands in the batch under the same name when the new one is placed."""
    want = await ask(make(), turn_of("a", [5, 6, 7, 8]))
    for at in range(1, 6):  # among these is the token after which the engine admits
        engine = make(rows=3)
        gate = Gate(at)
        task = asyncio.create_task(engine.generate(turn_of("a", [5, 6, 7], tokens=200, on_token=gate)))
        await gate.reached()
        again = asyncio.create_task(ask(engine, turn_of("a", [5, 6, 7, 8])))
        await asyncio.sleep(0)
        await cancel(task)
        gate.open()
        assert (await again).ids == want.ids


async def test_new_weights_are_refused_only_while_a_turn_that_counts_is_in_flight(make: Make) -> None:
    engine = make(context=8192)
    task = await until_it_samples(engine, turn_of("a", [5, 6, 7], tokens=8000))
    with pytest.raises(EngineError, match="in flight"):
        engine.set_version(1)
    assert engine.version == 0
    await cancel(task)
    engine.set_version(1)
    assert engine.version == 1


async def test_a_cancelled_turn_is_forgotten_behind_the_barrier(make: Make) -> None:
    engine = make(barrier=True)
    engine.open(["a", "b"])
    task = asyncio.create_task(engine.generate(turn_of("a", [5, 6])))
    await asyncio.sleep(0)
    await cancel(task)
    engine.release("a")
    assert len((await ask(engine, turn_of("b", [5, 6]))).ids) == 12
    engine.release("b")
    engine.set_version(1)


async def test_a_failure_reaches_every_waiting_turn_and_the_engine_lives_on(make: Make, model: Any) -> None:
    engine = make(rows=2)
    want = [await ask(engine, turn_of(f"s{i}", [5 + i] * 9)) for i in range(5)]
    broken = threading.Event()

    def fail(module: Any, inputs: Any) -> None:
        if broken.is_set():
            raise RuntimeError("no memory left")

    handle = model.register_forward_pre_hook(fail)
    try:
        broken.set()
        turns = [ask(engine, turn_of(f"s{i}", [5 + i] * 9)) for i in range(5)]
        outcomes = await asyncio.gather(*turns, return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == ["RuntimeError: no memory left"] * 5
        assert {type(outcome) for outcome in outcomes} == {EngineError}
        broken.clear()
        again = await asyncio.gather(*(ask(engine, turn_of(f"s{i}", [5 + i] * 9)) for i in range(5)))
        assert [done.ids for done in again] == [done.ids for done in want]
    finally:
        handle.remove()


async def test_weights_that_went_to_nan_are_the_engines_failure(make: Make, model: Any) -> None:
    engine = make()
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(EngineError, match="not finite"):
        await ask(engine, turn_of("a", [5, 6, 7]))


async def test_a_failing_callback_ends_its_own_turn_only(make: Make) -> None:
    engine = make()

    def fail(token: int) -> None:
        raise BrokenPipeError("nobody reads")

    want = await ask(engine, turn_of("b", [7, 8, 9], tokens=30))
    bad, good = await asyncio.gather(
        ask(engine, turn_of("a", [5, 6], on_token=fail)),
        ask(engine, turn_of("b", [7, 8, 9], tokens=30)),
        return_exceptions=True,
    )
    assert isinstance(bad, EngineError)
    assert "BrokenPipeError" in str(bad)
    assert isinstance(good, Completion)
    assert good.ids == want.ids


async def test_a_closed_engine_answers_every_turn(make: Make) -> None:
    engine = make(rows=1, context=8192)
    running = await until_it_samples(engine, turn_of("a", [5, 6, 7], tokens=8000))
    waiting = asyncio.create_task(ask(engine, turn_of("b", [5, 6])))
    await asyncio.sleep(0)
    await asyncio.to_thread(engine.close)
    for task in (running, waiting, asyncio.create_task(ask(engine, turn_of("c", [5, 6])))):
        with pytest.raises(EngineError, match="closed"):
            await task
    engine.close()


async def test_a_session_that_waits_leaves_the_batch_and_keeps_its_row(make: Make) -> None:
    engine = make(rows=2)
    context = list(range(10, 40))
    first = await ask(engine, turn_of("a", context, tokens=6))
    before = copy.copy(engine.stats)
    await ask(engine, turn_of("b", [5, 6, 7], tokens=25))  # "a" waits for its tool
    assert engine.stats.decode_steps - before.decode_steps == 25
    assert engine.stats.sampled_tokens - before.sampled_tokens == 25
    before = copy.copy(engine.stats)
    result = [50, 51, 52, 53]
    await ask(engine, turn_of("a", [*context, *first.ids, *result], tokens=1))
    # What it lacks: its own last token and the result, but for the last one, which the first step feeds.
    assert engine.stats.prefill_tokens - before.prefill_tokens == len(result)


async def test_others_go_on_while_a_session_waits(make: Make) -> None:
    """One session makes five short turns while another's single long one runs."""
    engine = make(rows=2, context=8192)
    long = await until_it_samples(engine, turn_of("long", [5, 6, 7], tokens=8000))
    context = [9, 9, 9]
    for _ in range(5):
        done = await ask(engine, turn_of("short", context, tokens=3))
        context = [*context, *done.ids, 11]
        assert not long.done()
    await cancel(long)


async def group(engine: TransformersEngine, names: Sequence[str], order: int, prefix: list[int]) -> dict[str, Any]:
    """A group of sessions with several turns each, arriving in an order of its own; what each of them got."""
    rng = random.Random(order)
    engine.open(names)
    got: dict[str, list[Completion]] = {name: [] for name in names}

    async def play(name: str) -> None:
        own = random.Random(name)
        context = prefix + some_ids(own, own.randrange(1, 30), 60)
        for _ in range(own.randrange(1, 4)):
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            done = await ask(engine, turn_of(name, tuple(context), tokens=own.randrange(2, 12)))
            got[name].append(done)
            context = [*context, *done.ids, *some_ids(own, own.randrange(12), 60)]
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        engine.release(name)

    shuffled = list(names)
    rng.shuffle(shuffled)
    await asyncio.gather(*(play(name) for name in shuffled))
    # The work itself is part of it: another row given way would be other keys and values computed anew.
    work = (engine.stats.prefill_tokens, engine.stats.reused_tokens, engine.stats.decode_steps)
    return {**{name: [(done.ids, done.logprobs) for done in got[name]] for name in names}, "work": work}


async def test_the_barrier_is_bit_equal_whatever_the_order_of_arrival(make: Make) -> None:
    prefix = list(range(20, 45))
    names = [f"s{i}" for i in range(9)]
    runs = [await group(make(rows=4, barrier=True), names, order, prefix) for order in range(6)]
    assert all(run == runs[0] for run in runs)
    assert len({str(turns) for turns in runs[0].values()}) > 1
    # A resumed run starts with a fresh engine where the first one had a past.
    used = make(rows=4, barrier=True)
    await group(used, ["x", "y", "z", "u", "v"], 9, prefix)
    used.set_version(1)
    used.stats = EngineStats()
    assert await group(used, names, 9, prefix) == runs[0]


async def test_when_a_session_is_released_within_a_wave_changes_nothing(make: Make) -> None:
    """Behind the barrier: three rows, four sessions; the fourth takes the row of one of two that have just finished."""

    async def prefilled(early: bool) -> int:
        engine = make(rows=3, barrier=True)
        engine.open(["a", "b", "c", "d"])
        gate = Gate(4)  # one step after "a" and "b" are done, and just before "d" is admitted

        def begin(key: int, name: str, tokens: int, **more: Any) -> asyncio.Task[Completion]:
            request = Request([10 * key + i for i in range(10)], tokens, Sampling(), key=key, session=name, **more)
            return asyncio.create_task(ask(engine, request))

        a, b = begin(1, "a", 3), begin(2, "b", 3)
        c, d = begin(3, "c", 12, on_token=gate), begin(4, "d", 2)
        await gate.reached()
        await a
        first = await b
        if early:
            engine.release("a")
        gate.open()
        await asyncio.gather(c, d)
        if not early:
            engine.release("a")
        for name in ("c", "d"):
            engine.release(name)
        before = engine.stats.prefill_tokens
        context = [*range(20, 30), *first.ids, 5, 6]
        await ask(engine, Request(context, 2, Sampling(), key=2, session="b"))
        return engine.stats.prefill_tokens - before

    assert await prefilled(early=True) == await prefilled(early=False)

"""What the vLLM engine makes of a server that fails, on one that fails when it is told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from vllm_servers import Answer, Body, Stub, counting, piece, stub

from callwright.serving.engines.engine import Completion, EngineError, FinishReason, Request, Sampling
from callwright.serving.engines.vllm import client, pool
from callwright.serving.engines.vllm.engine import VllmEngine

pytestmark = pytest.mark.integration


@contextmanager
def engine(*servers: Stub, in_flight: int = 8) -> Iterator[VllmEngine]:
    with ExitStack() as stack:
        stack.enter_context(stub(*servers))
        made = VllmEngine([server.url for server in servers], in_flight=in_flight)
        stack.callback(made.close)
        yield made


def request(tokens: int = 4, key: int = 0, **fields: object) -> Request:
    return Request([7, 8], tokens, Sampling(1.0), key, f"s{key}", **fields)  # type: ignore[arg-type]


def run(made: VllmEngine, *requests: Request) -> list[Completion | BaseException]:
    async def all_of_them() -> list[Completion | BaseException]:
        turns = (made.generate(one) for one in requests or (request(),))
        return await asyncio.wait_for(asyncio.gather(*turns, return_exceptions=True), timeout=60)

    return asyncio.run(all_of_them())


def only(made: VllmEngine, one: Request | None = None) -> Completion:
    (completion,) = run(made, one or request())
    assert isinstance(completion, Completion), completion
    return completion


def everywhere(made: VllmEngine, version: int) -> None:
    """Say that every server has the weights of this version."""
    for url in made.urls:
        made.holds(version, url)


def test_what_a_server_is_asked() -> None:
    server = Stub()
    with engine(server) as made:
        everywhere(made, 3)
        completion = only(made, request(3, key=9, eos=frozenset({60}), grammar='root ::= "x"'))
    assert completion == Completion((2, 3, 4), (-0.5,) * 3, FinishReason.LENGTH, 3)
    (body,) = server.bodies
    assert body["prompt"] == [7, 8]
    assert body["stop_token_ids"] == [60]
    assert body["structured_outputs"] == {"grammar": 'root ::= "x"'}
    assert (body["max_tokens"], body["temperature"], body["top_p"], body["top_k"]) == (3, 1.0, 1.0, 0)
    assert body["cache_salt"] == "weights-3"  # no keys and values of other weights


def test_a_draw_is_addressed_by_key_and_place() -> None:
    server = Stub()
    with engine(server) as made:
        run(made, request(key=1), request(key=1), request(key=2), Request([7, 8, 9], 4, Sampling(1.0), 1, "x"))
    seeds = [body["seed"] for body in sorted(server.bodies, key=lambda body: len(body["prompt"]))]
    assert len(set(seeds)) == 3


async def at_once(body: Body) -> AsyncIterator[str]:
    yield piece(range(2, 2 + body["max_tokens"]), finish="length")


@pytest.mark.parametrize("answer", [counting, at_once])
@pytest.mark.parametrize(
    ("fields", "kept", "reason"),
    [
        ({"eos": frozenset({4})}, 3, FinishReason.EOS),
        ({"stop": lambda ids: ids[-1] == 3, "watch": np.ones(64, dtype=np.bool_)}, 2, FinishReason.STOP),
        ({"stop": lambda ids: True, "watch": np.arange(64) == 5}, 4, FinishReason.STOP),
        ({"stop": lambda ids: True}, 6, FinishReason.LENGTH),
    ],
)
def test_ids_end_with_the_one_that_ends_the_turn(
    answer: Answer, fields: dict[str, object], kept: int, reason: FinishReason
) -> None:
    with engine(Stub(answer)) as made:
        completion = only(made, request(6, **fields))
        assert (completion.ids, completion.reason) == (tuple(range(2, 2 + kept)), reason)
        assert len(completion.logprobs) == kept
        if answer is at_once:
            assert made.stats.extra["dropped_tokens"] == 6 - kept
        assert made.stats.sampled_tokens == kept


def test_the_context_is_the_servers() -> None:
    with engine(Stub()) as made:
        assert made.context == 64
        assert len(only(made, request(500)).ids) == 62
        full = only(made, Request([2] * 64, 5, Sampling(1.0), 0, "full"))
        assert (full.ids, full.reason) == ((), FinishReason.LENGTH)


def test_a_version_that_changes_within_a_turn_is_in_the_completion() -> None:
    seen, updated = threading.Event(), threading.Event()

    async def answer(body: Body) -> AsyncIterator[str]:
        yield piece([2, 3])
        while not updated.is_set():
            await asyncio.sleep(0.01)
        yield piece([4, 5], finish="length")

    def watch(token: int) -> None:
        if token == 3:
            seen.set()

    with engine(Stub(answer)) as made:

        async def turn() -> Completion:
            task = asyncio.create_task(made.generate(request(4, on_token=watch)))
            await asyncio.to_thread(seen.wait, 60)
            everywhere(made, 7)
            updated.set()
            return await task

        completion = asyncio.run(turn())
    assert list(completion.spans()) == [((2, 3), (-0.5, -0.5), 0), ((4, 5), (-0.5, -0.5), 7)]


async def raw_error(body: Body) -> AsyncIterator[str]:
    yield piece([2])
    yield 'data: {"error": {"message": "EngineCore died"}}\n\n'


async def no_logprob(body: Body) -> AsyncIterator[str]:
    yield piece([2], [None])


async def minus_infinity(body: Body) -> AsyncIterator[str]:
    yield piece([2], [-9999.0])


async def too_few(body: Body) -> AsyncIterator[str]:
    yield piece([2, 3], [-0.5])


async def by_itself(body: Body) -> AsyncIterator[str]:
    yield piece([2], finish="stop")


async def not_json(body: Body) -> AsyncIterator[str]:
    yield "data: {oops\n\n"


async def breaks_off(body: Body) -> AsyncIterator[str]:
    yield piece([2])
    raise RuntimeError("the connection breaks off")


async def breaks_off_first(body: Body) -> AsyncIterator[str]:
    raise RuntimeError("the connection breaks off")
    yield ""


async def ends_early(body: Body) -> AsyncIterator[str]:
    yield piece([2])


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (raw_error, "EngineCore died"),
        (no_logprob, "1 tokens came with the logprobs"),
        (minus_infinity, "1 tokens came with the logprobs"),
        (too_few, "2 tokens came with the logprobs"),
        (by_itself, "ended the turn by itself (stop behind token 2)"),
        (not_json, "a piece that is not vLLM's"),
        (breaks_off, "http://127.0.0.1"),
        (breaks_off_first, "http://127.0.0.1"),
        (ends_early, "the stream ended within the turn"),
    ],
)
def test_a_turn_that_was_taken_and_went_wrong_is_an_engine_error(answer: Answer, says: str) -> None:
    server = Stub(answer)
    with engine(server) as made:
        (error,) = run(made)
    assert isinstance(error, EngineError)
    assert says in str(error)
    assert len(server.bodies) == 1  # what a server may have died of is not sent to the next


def test_what_a_server_did_not_take_another_is_asked() -> None:
    busy, good = Stub(status=503), Stub()
    with engine(busy, good) as made:
        assert len(only(made).ids) == 4
        assert made.stats.extra["requests_sent_again"] == 1
    assert (len(busy.bodies), len(good.bodies)) == (1, 1)


def test_a_server_that_is_gone_is_not_missed() -> None:
    gone, good = Stub(), Stub()
    with stub(good):
        with stub(gone):
            made = VllmEngine([gone.url, good.url], in_flight=2)
        try:
            results = run(made, *(request(key=key) for key in range(6)))
        finally:
            made.close()
    assert all(isinstance(result, Completion) for result in results)
    assert (len(gone.bodies), len(good.bodies)) == (0, 6)


def test_a_refused_request_is_not_sent_again() -> None:
    first, second = Stub(status=400), Stub(status=400)
    with engine(first, second) as made:
        (error,) = run(made)
        assert len(first.bodies) + len(second.bodies) == 1
        assert "400 not now" in str(error)
        first.status = second.status = 200
        assert len(only(made).ids) == 4  # and the server is none the worse for it


def test_silence_has_a_deadline_and_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(body: Body) -> AsyncIterator[str]:
        await asyncio.sleep(30)
        yield ""

    monkeypatch.setattr(client, "SILENCE_S", 0.3)
    server = Stub(silent)
    with engine(server) as made:
        (error,) = run(made)
    assert "no token within 0.3 s" in str(error)
    assert len(server.bodies) == 1


def test_a_server_comes_back_when_it_is_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PROBE_S", 0.02)
    server = Stub(status=503)
    server.healthy = False
    with engine(server) as made:

        async def turn() -> Completion:
            task = asyncio.create_task(made.generate(request()))
            while not server.bodies:
                await asyncio.sleep(0.01)
            server.status, server.healthy = 200, True
            return await asyncio.wait_for(task, timeout=30)

        assert len(asyncio.run(turn()).ids) == 4


def test_a_server_that_failed_waits_for_the_current_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PROBE_S", 0.02)
    monkeypatch.setattr(pool, "DOWN_S", 0.5)
    server, other = Stub(breaks_off), Stub()
    with engine(server, other, in_flight=1) as made:
        everywhere(made, 2)
        results = run(made, request(), request())
        assert [isinstance(result, Completion) for result in results].count(True) == 1
        server.answer = counting
        for _ in range(3):
            assert only(made).version == 2
        assert (len(server.bodies), len(other.bodies)) == (1, 4)
        other.status = 503
        other.healthy = False
        (error,) = run(made)
        assert "it has the weights of version 0, not 2" in str(error)
        everywhere(made, 3)
        assert only(made).version == 3
        assert len(server.bodies) == 2


def test_without_any_server_a_request_ends_with_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PROBE_S", 0.02)
    monkeypatch.setattr(pool, "DOWN_S", 0.3)
    server = Stub(status=503)
    server.healthy = False
    with engine(server) as made:
        errors = run(made, *(request(key=key) for key in range(20)))
    assert all("no vLLM server can be asked" in str(error) and "503 not now" in str(error) for error in errors)


def test_the_least_loaded_server_is_asked_and_none_beyond_its_limit() -> None:
    servers = [Stub(), Stub(), Stub()]
    with engine(*servers, in_flight=2) as made:
        results = run(made, *(request(key=key) for key in range(24)))
    assert all(isinstance(result, Completion) for result in results)
    assert all(0 < server.most_open <= 2 for server in servers)
    assert max(len(server.bodies) for server in servers) < 20


def test_leaving_a_turn_closes_its_stream_and_frees_its_place() -> None:
    async def endless(body: Body) -> AsyncIterator[str]:
        while True:
            yield piece([2])
            await asyncio.sleep(0.01)

    server = Stub(endless)
    with engine(server, in_flight=1) as made:

        async def leave() -> None:
            task = asyncio.create_task(made.generate(request(60)))
            while not server.open:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while server.open:  # the server sees that nobody reads any more
                await asyncio.sleep(0.01)
            server.answer = counting
            assert len((await made.generate(request())).ids) == 4

        asyncio.run(asyncio.wait_for(leave(), timeout=60))


def test_closing_ends_what_waits() -> None:
    async def silent(body: Body) -> AsyncIterator[str]:
        yield piece([2])
        await asyncio.sleep(30)

    started = threading.Event()
    with engine(Stub(silent)) as made:

        async def close() -> None:
            task = asyncio.create_task(made.generate(request(on_token=lambda token: started.set())))
            await asyncio.to_thread(started.wait, 60)
            await asyncio.to_thread(made.close)
            with pytest.raises(EngineError, match="closed"):
                await task
            with pytest.raises(EngineError, match="closed"):
                await made.generate(request())

        asyncio.run(asyncio.wait_for(close(), timeout=60))


def test_what_cannot_be_joined() -> None:
    with pytest.raises(EngineError, match=r"http://127\.0\.0\.1:9: "):
        VllmEngine(["http://127.0.0.1:9"], in_flight=1)
    told = Stub(probe=-0.7)
    with stub(told), pytest.raises(EngineError, match="--logprobs-mode processed_logprobs"):
        VllmEngine([told.url], in_flight=1)


def test_a_failing_callback_fails_its_own_turn() -> None:
    with engine(Stub()) as made:
        results = run(made, request(), request(on_token=lambda token: 1 // 0))
    assert isinstance(results[0], Completion)
    assert "a callback of the turn failed: ZeroDivisionError" in str(results[1])

"""The real vLLM server with the small model that quickstart begins from."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from vllm_servers import CONTEXT, INSTALLED, real

from callwright.envs.traces import read_traces
from callwright.scripts import cli
from callwright.serving.engines.engine import Completion, Engine, EngineError, FinishReason, Request, Sampling
from callwright.serving.engines.vllm.engine import VllmEngine
from callwright.serving.engines.vllm.server import ServerProcess
from callwright.serving.models import Loaded, load
from callwright.serving.protocol import DEFAULT_TOOLS, Parser
from callwright.serving.turn import Turn, turn
from callwright.training.chat import chat
from callwright.training.checkpoints import WARM_STARTS
from callwright.training.config import load_config

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not INSTALLED, reason="needs: make vllm"),
]

MODEL = str(WARM_STARTS / "quickstart")
TOLERANCE = 1e-4  # of a logprob in nats: float32 on both sides, sums in another order
QUESTION = "what is the code of BCDF?"
LONG = 400  # tokens of a turn that is still on its way when something happens to it


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load(MODEL, device="cpu")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with real(MODEL) as process:
        yield process


@pytest.fixture
def engine(server: ServerProcess) -> Iterator[VllmEngine]:
    made = VllmEngine([server.url], in_flight=16)
    yield made
    made.close()


def prompt(loaded: Loaded, question: str = QUESTION) -> list[int]:
    return loaded.codec.prompt([{"role": "user", "content": question}])


def expected(loaded: Loaded, context: list[int], completion: Completion, sampling: Sampling) -> torch.Tensor:
    """Logprobs [n] of the completion's ids by a plain forward pass, under the distribution that was asked for."""
    ids = torch.tensor(completion.ids)
    with torch.no_grad():
        logits = loaded.model(torch.tensor([[*context, *completion.ids]])).logits[0, len(context) - 1 : -1]
    logprobs = (logits / (sampling.temperature or 1.0)).log_softmax(-1)
    if sampling.temperature and sampling.top_k:
        lowest = logprobs.topk(sampling.top_k).values[:, -1:]
        logprobs = logprobs.masked_fill(logprobs < lowest, float("-inf")).log_softmax(-1)
    if sampling.temperature and sampling.top_p < 1:
        ordered, order = logprobs.sort(descending=True)
        mass = ordered.exp().cumsum(-1)
        outside = mass - ordered.exp() >= sampling.top_p
        logprobs = logprobs.masked_fill(outside.gather(-1, order.argsort(-1)), float("-inf")).log_softmax(-1)
    return logprobs.gather(-1, ids[:, None])[:, 0]


SAMPLINGS = [
    *(Sampling(0.0), Sampling(1.0), Sampling(0.6), Sampling(1.4)),
    *(Sampling(1.0, top_k=3), Sampling(1.0, top_p=0.8), Sampling(0.8, top_p=0.9, top_k=8)),
]


def test_logprobs_are_those_of_a_plain_forward_pass(engine: VllmEngine, loaded: Loaded) -> None:
    context = prompt(loaded)
    asked = [
        Request(context, 40, sampling, key, f"s{key}", eos=loaded.codec.eos)
        for key in range(3)
        for sampling in SAMPLINGS
    ]

    async def together() -> list[Completion]:
        return list(await asyncio.gather(*map(engine.generate, asked)))

    completions = asyncio.run(together())
    for one, completion in zip(asked, completions, strict=True):
        assert 0 < len(completion.ids) == len(completion.logprobs) <= 40
        assert completion.reason is (FinishReason.EOS if completion.ids[-1] in one.eos else FinishReason.LENGTH)
        assert not loaded.codec.eos & set(completion.ids[:-1])
        off = expected(loaded, context, completion, one.sampling) - torch.tensor(completion.logprobs)
        assert off.abs().max() < TOLERANCE, one.sampling
    assert engine.context == CONTEXT
    assert engine.stats.sampled_tokens == sum(len(completion.ids) for completion in completions)


def test_greedy_is_the_likeliest_and_a_key_is_a_seed(engine: VllmEngine, loaded: Loaded) -> None:
    context = prompt(loaded)

    def once(temperature: float, key: int) -> tuple[int, ...]:
        return asyncio.run(engine.generate(Request(context, 30, Sampling(temperature), key, "s"))).ids

    greedy = once(0.0, 1)
    with torch.no_grad():
        logits = loaded.model(torch.tensor([[*context, *greedy]])).logits[0, len(context) - 1 : -1]
    assert logits.argmax(-1).tolist() == list(greedy)
    assert once(1.0, 1) == once(1.0, 1)
    assert len({once(1.0, key) for key in range(6)}) > 1


def take(engine: Engine, loaded: Loaded, key: int, temperature: float = 1.0) -> Turn:
    return asyncio.run(
        turn(
            engine,
            loaded.codec,
            Parser(dialect="tags", tools=DEFAULT_TOOLS),
            prompt(loaded),
            max_new_tokens=80,
            sampling=Sampling(temperature),
            key=key,
            session=f"s{key}",
        )
    )


def test_a_turn_ends_with_the_token_that_completes_its_closer(engine: VllmEngine, loaded: Loaded) -> None:
    turns = [take(engine, loaded, key) for key in range(12)]
    stopped = [one for one in turns if one.completion.reason is FinishReason.STOP]
    assert len(stopped) > 6
    for one in stopped:
        text = loaded.codec.decode(one.completion.ids)
        assert text.endswith(("</solution>", "</web>", "</code>", "</azure>"))
        free = Request(prompt(loaded), 80, Sampling(1.0), turns.index(one), "free", eos=loaded.codec.eos)
        longer = asyncio.run(engine.generate(free))
        assert longer.ids[: len(one.completion.ids)] == one.completion.ids  # the stop changed nothing before it


def running(server: ServerProcess) -> float:
    """How many requests the server has, running and waiting."""
    told = httpx.get(f"{server.url}/metrics", timeout=60).text.splitlines()
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting{")
    return sum(float(line.rsplit(" ", 1)[1]) for line in told if line.startswith(names))


async def idle(server: ServerProcess) -> None:
    async with asyncio.timeout(120):
        while await asyncio.to_thread(running, server):
            await asyncio.sleep(0.2)


def test_cancelling_a_turn_frees_the_servers_slot(server: ServerProcess, loaded: Loaded) -> None:
    engine = VllmEngine([server.url], in_flight=1)
    began = threading.Event()
    context = prompt(loaded)

    async def leave() -> Completion:
        await idle(server)
        endless = Request(context, CONTEXT, Sampling(1.0), 0, "long", on_token=lambda token: began.set())
        task = asyncio.create_task(engine.generate(endless))
        assert await asyncio.to_thread(began.wait, 120)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        completion = await engine.generate(Request(context, 4, Sampling(1.0), 1, "next"))
        await idle(server)
        return completion

    try:
        assert len(asyncio.run(leave()).ids) == 4
        assert engine.stats.sampled_tokens < CONTEXT - len(context)  # it did not run to its end
    finally:
        engine.close()


def test_many_turns_at_once_and_many_that_leave(engine: VllmEngine, server: ServerProcess, loaded: Loaded) -> None:
    context, some = prompt(loaded), np.random.default_rng(0)

    async def crowd() -> list[Completion | BaseException]:
        tasks = [
            asyncio.create_task(
                engine.generate(Request(context, 20, Sampling(1.0), key, f"s{key}", eos=loaded.codec.eos))
            )
            for key in range(80)
        ]
        await asyncio.sleep(0.5)
        for index in some.choice(80, 30, replace=False):
            tasks[index].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await idle(server)
        return results

    results = asyncio.run(crowd())
    whole = [result for result in results if isinstance(result, Completion)]
    assert len(whole) >= 50
    assert all(isinstance(result, Completion | asyncio.CancelledError) for result in results)
    for completion in whole[:10]:
        off = expected(loaded, context, completion, Sampling(1.0)) - torch.tensor(completion.logprobs)
        assert off.abs().max() < TOLERANCE


def test_one_of_two_servers_is_killed_and_comes_back(server: ServerProcess, loaded: Loaded) -> None:
    context = prompt(loaded)
    with real(MODEL) as second:
        engine = VllmEngine([server.url, second.url], in_flight=4)
        began = threading.Event()

        async def crowd(count: int, tokens: int) -> list[Completion | BaseException]:
            asked = [Request(context, tokens, Sampling(1.0), key, f"s{key}") for key in range(count)]
            asked[1] = replace(asked[1], on_token=lambda token: began.set())  # the first goes to one, this to the other
            return list(await asyncio.gather(*map(engine.generate, asked), return_exceptions=True))

        async def killed() -> list[Completion | BaseException]:
            turns = asyncio.create_task(crowd(12, LONG))
            assert await asyncio.to_thread(began.wait, 120)
            os.killpg(second.pid, signal.SIGKILL)
            return await turns

        try:
            results = asyncio.run(killed())
            faults = [result for result in results if isinstance(result, BaseException)]
            assert all(isinstance(fault, EngineError) and second.url in str(fault) for fault in faults)
            assert 0 < len(faults) <= 4  # those that had begun there; nobody got less than a whole turn
            assert all(len(result.ids) == LONG for result in results if isinstance(result, Completion))
            assert all(isinstance(result, Completion) for result in asyncio.run(crowd(8, 4)))
            with real(MODEL, port=int(second.url.rsplit(":", 1)[1])) as again:
                before = served(again)
                deadline = 60
                while served(again) == before and deadline:
                    assert all(isinstance(result, Completion) for result in asyncio.run(crowd(8, 4)))
                    deadline -= 1
                assert served(again) > before
        finally:
            engine.close()


def served(server: ServerProcess) -> float:
    """How many tokens the server has sampled."""
    told = httpx.get(f"{server.url}/metrics", timeout=60).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in told if line.startswith("vllm:generation_tokens_total"))


def test_a_server_of_ours_that_dies_is_an_engine_error_with_its_log(loaded: Loaded) -> None:
    context = prompt(loaded)
    with real(MODEL) as own:
        engine = VllmEngine([own.url], in_flight=2, process=own)
        began = threading.Event()

        async def die() -> list[Completion | BaseException]:
            turns = [
                asyncio.create_task(
                    engine.generate(
                        Request(context, 400, Sampling(1.0), key, f"s{key}", on_token=lambda token: began.set())
                    )
                )
                for key in range(6)
            ]
            assert await asyncio.to_thread(began.wait, 120)
            os.killpg(own.pid, signal.SIGKILL)
            return list(await asyncio.wait_for(asyncio.gather(*turns, return_exceptions=True), timeout=120))

        try:
            errors = asyncio.run(die())
            assert all(isinstance(error, EngineError) for error in errors)
            assert any("vllm serve ended (-9)" in str(error) and str(own.log) in str(error) for error in errors)
        finally:
            engine.close()


FEW = ("eval.modes=[greedy]", "eval.n=48", "eval.n_slices=0")


def test_greedy_rollouts_are_those_of_the_transformers_engine(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kinds = {
        "there": ("engine.kind=vllm", f"engine.vllm.urls=[{server.url}]", "engine.max_batch=16"),
        "here": (),
    }
    sampled: dict[str, dict[str, list[list[int]]]] = {}
    for name, words in kinds.items():
        assert cli.run(["eval", "quickstart", *FEW, *words, f"name={name}"]) == 0
        sampled[name] = {
            trace["key"]: [part["ids"] for part in trace["segments"] if part["kind"] == "sampled"]
            for trace in read_traces(Path("runs") / f"{name}-eval")
        }
    assert len(sampled["here"]) == 48
    same = sum(ids == sampled["there"][key] for key, ids in sampled["here"].items())
    assert same >= 47  # two tokens may be as likely to the last bit


def test_chat_starts_a_server_and_stops_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    words = ["model.path=quickstart", "engine.kind=vllm", "engine.vllm.arguments={enforce-eager: true}"]
    chat(load_config("quickstart", words), [f"{QUESTION}\n"], out)
    assert "respond: " in out.getvalue()


def test_serve_puts_a_server_behind_the_gateway(server: ServerProcess, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "callwright", "serve", "quickstart", "serve.port=0", "engine.kind=vllm"]
    process = subprocess.Popen(
        [*command, f"engine.vllm.urls=[{server.url}]"], stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if line.startswith("serving "))
        url = line.rsplit(" at ", 1)[1].strip()
        body = {"model": "m", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "stream": False}
        told = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120).json()
        assert told["usage"]["completion_tokens"] > 0
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["eval", "quickstart", "engine.vllm.arguments={no-such-flag: 1}"], 1, "no-such-flag"),
        (["eval", "quickstart", "engine.vllm.start_s=0.5"], 1, "engine.vllm.start_s"),
    ],
)
def test_a_server_that_does_not_start_is_one_line(
    words: list[str], code: int, says: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.run([*words, "engine.kind=vllm"]) == code
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("callwright: ")]
    assert says in line
    assert "callwright-vllm-" in line  # where its log is


def test_a_server_ends_with_its_engine_and_with_us(tmp_path: Path) -> None:
    started = (
        f"from vllm_servers import *; import os, signal; process = start_server({MODEL!r}, FLAGS, deadline_s=280); "
    )
    told = subprocess.run(
        [sys.executable, "-c", started + "print(process.url, flush=True); os.kill(os.getpid(), signal.SIGKILL)"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])},
        stdout=subprocess.PIPE,
        text=True,
        timeout=400,
    )
    assert told.returncode == -signal.SIGKILL
    with pytest.raises(httpx.HTTPError):
        until_it_is_gone(f"{told.stdout.strip()}/health")


def until_it_is_gone(url: str) -> None:
    for _ in range(600):
        httpx.get(url, timeout=60)
        threading.Event().wait(0.1)

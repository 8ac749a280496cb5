"""A real checkpoint behind the gateway: the command, and the transformers engine under many streams."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from gateways import gateway

from callwright.envs.traces import read_traces
from callwright.serving.engines.engine import Sampling
from callwright.serving.engines.transformers_engine import TransformersEngine
from callwright.serving.models import Loaded, load
from callwright.serving.protocol import DEFAULT_TOOLS, Parser
from callwright.serving.turn import turn
from callwright.serving.wires import tools_to
from callwright.training.checkpoints import WARM_STARTS

pytestmark = pytest.mark.integration

KEY = "pl4nted-s3cret"
QUESTION = "what is the code of BCDF?"


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "callwright", "serve", *words]


@pytest.mark.slow
def test_the_command_serves_records_and_stops(tmp_path: Path) -> None:
    environment = {**os.environ, "CALLWRIGHT_API_KEY": KEY}
    record = tmp_path / "record"
    process = subprocess.Popen(
        command("quickstart", "serve.port=0", f"serve.record={record}"),
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if line.startswith("serving "))
        url = line.split(" at ")[1].strip()
        assert url.startswith("http://127.0.0.1:")
        assert httpx.get(f"{url}/v1/models").status_code == 401
        client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)
        tools: Any = tools_to("openai", DEFAULT_TOOLS[:1]).payload["tools"]
        messages: Any = [{"role": "user", "content": QUESTION}]
        fields: Any = {
            "model": "any",
            "tools": tools,
            "temperature": 0,
            "tool_choice": {"type": "function", "function": {"name": "web"}},
        }
        first = client.chat.completions.create(messages=messages, **fields)
        assert first.model == "quickstart"
        (call,) = first.choices[0].message.tool_calls or ()
        assert call.type == "function"
        assert set(json.loads(call.function.arguments)) == {"q", "k"}
        messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": '{"results":[]}'}]
        fields.pop("tool_choice")
        assert client.chat.completions.create(messages=messages, **fields).usage is not None
    finally:
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=30)[1]
    assert (process.returncode, rest) == (130, "callwright: interrupted\n")
    (trace,) = read_traces(record)
    assert [part["kind"] for part in trace["segments"]] == ["given", "sampled", "given", "sampled"]
    assert trace["segments"][0]["text"] == f"<|user|>{QUESTION}<|assistant|>"
    assert trace["segments"][1]["text"].endswith("</web>")
    assert all(value <= 0 for value in trace["segments"][1]["logprobs"])
    files = [file for file in record.rglob("*") if file.is_file()]
    assert len(files) == 2
    assert not any(KEY.encode() in file.read_bytes() for file in files)
    shown = subprocess.run(
        [sys.executable, "-m", "callwright", "trace", str(record)], capture_output=True, text=True, check=True
    )
    assert "1 of 1 matching rollouts  ungraded 1" in shown.stdout
    store = str(record / "events.sqlite")
    told = subprocess.run(
        [sys.executable, "-m", "callwright", "trace", store], capture_output=True, text=True, check=True
    ).stdout
    assert QUESTION in told
    assert "1 of 1 conversations" in told


@pytest.mark.slow
def test_a_taken_port_and_a_missing_checkpoint_are_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for words, says in (
            (("quickstart", f"serve.port={port}"), f"port {port}"),
            (("no/such/thing",), "no checkpoint"),
            (("quickstart", "serve.prt=1"), "did you mean serve.port?"),
            (("quickstart", "serve.port=0", f"serve.record={__file__}/x"), "serve.record="),
        ):
            done = subprocess.run(
                command(*words), capture_output=True, text=True, cwd=tmp_path, check=False, timeout=60
            )
            assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
            assert says in done.stderr


@pytest.fixture(scope="module")
def quickstart() -> Iterator[tuple[Loaded, TransformersEngine]]:
    loaded = load(str(WARM_STARTS / "quickstart"), device="cpu")
    engine = TransformersEngine(loaded.model, rows=64, context=256)
    yield loaded, engine
    engine.close()


async def test_64_streams_of_a_model_are_those_of_the_bare_engine(
    quickstart: tuple[Loaded, TransformersEngine],
) -> None:
    loaded, engine = quickstart
    questions = [f"what is the code of {chr(66 + n % 20)}{chr(66 + n // 20)}C?" for n in range(64)]

    async def bare(number: int) -> str:
        taken = await turn(
            engine,
            loaded.codec,
            Parser("tags", ()),
            loaded.codec.prompt([{"role": "user", "content": questions[number]}]),
            max_new_tokens=24,
            sampling=Sampling(),
            key=number,
            session=f"bare-{number}",
        )
        return "".join(event.content for event in taken.events)

    expected = await asyncio.gather(*map(bare, range(64)))
    with gateway(engine, loaded.codec, "tags", context=256, explain=False) as url:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)

        async def one(number: int) -> str:
            stream: Any = await client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": questions[number]}],
                stream=True,
                seed=number,
                max_tokens=24,
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        found = await asyncio.gather(*map(one, range(64)))
        await client.close()
    assert found == expected
    assert len(set(found)) > 32

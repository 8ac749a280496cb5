"""Secrets planted in the environment of everything that a run is: no file and no line of output shows one.

Servers that are asked with a key answer with everything they were told, in results and in errors.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from buses import amqp_broker
from lives import Life, living
from run_checks import metrics
from small_run import WORDS
from web_servers import Got, echoes, serving

from callwright.serving.gateway.app import KEY_VARIABLE

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1500)]

SECRETS = {
    "SECRET_BUS": "cGxhbnRlZC1idXMta2V5LTkzMTc=",
    "BRAVE_API_KEY": "planted-brave-5521",
    "WANDB_API_KEY": "plantedwandb" + "7" * 28,
    "MODEL_KEY": "planted-model-8046",
    KEY_VARIABLE: "planted-gateway-2290",
}


def environment(port: int) -> dict[str, str]:
    bus = f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=test;SharedAccessKey={SECRETS['SECRET_BUS']}"
    return {**SECRETS, "SECRET_BUS": f"{bus};UseDevelopmentEmulator=true;", "WANDB_MODE": "offline"}


def words(search: str) -> tuple[str, ...]:
    """A run of two steps over every place that takes a secret."""
    web = f"{{backend: brave, url: '{search}', cache: read-write, cache_file: runs/web.sqlite}}"
    return (
        *WORDS[1:],
        *("grpo.steps=2", "grpo.max_infra_share=1.0", "executors.queue_s=5", "tracking.wandb=auto"),
        *("executors.broker=servicebus", "executors.servicebus_env=SECRET_BUS", "executors.external=[web]"),
        *(f"executors.web={web}", "executors.health_port=0"),
    )


class Fickle:
    """Echoes what it was told, as results and, every third time, as an error."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, got: Got, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        await echoes(500 if self.asked % 3 == 0 else 200)(got, writer)


@contextmanager
def gateway(folder: Path, told: dict[str, str]) -> Iterator[str]:
    with living(
        folder, "serve", "quickstart", "serve.port=0", "serve.record=said", name="serve", environment=told
    ) as life:
        life.until(lambda: "serving" in life.text, "its address")
        found = re.search(r"http://\S+", life.text)
        assert found
        yield found[0]
        life.stop(signal.SIGTERM)


def post(url: str, key: str, body: bytes) -> int:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def shown(folder: Path) -> list[str]:
    """Which secret is in which file."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [
        f"{name} in {file.relative_to(folder)}"
        for file in files
        for name, secret in SECRETS.items()
        if secret.rstrip("=").encode() in file.read_bytes()
    ]


async def ended(life: Life) -> int:
    return await asyncio.to_thread(life.ended)


async def test_a_planted_secret_is_in_no_file_and_no_output_of_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "life"
    folder.mkdir()
    run = folder / "runs" / "quickstart"
    async with serving(Fickle()) as search, serving(echoes(401)) as vendor:
        asked = words(search.url)
        with amqp_broker() as (_, port):
            told = environment(port)
            with living(folder, "worker", "web", *asked, name="worker", environment=told) as worker:
                await asyncio.to_thread(worker.until, lambda: "takes from" in worker.text, "its start")
                with living(folder, "train", *asked, environment=told) as train:
                    assert await ended(train) == 0, train.text[-2000:]
                with living(folder, "queues", *asked, "--json", "queues.json", name="queues", environment=told) as life:
                    assert await ended(life) == 0, life.text[-2000:]
                found = re.search(r"http://\S+(?=/healthz)", worker.text)
                assert found
                for page in ("healthz", "metrics"):
                    fetched = await asyncio.to_thread(urllib.request.urlopen, f"{found[0]}/{page}", None, 30)
                    (folder / f"{page}.txt").write_bytes(fetched.read())
        remote = ("engine.kind=remote", f"engine.remote.url={vendor.url}", "engine.remote.key_variable=MODEL_KEY")
        failing = {
            "bus-away": ("queues", *asked),
            "vendor": ("eval", "a-model", *remote, "eval.n=2", "eval.modes=[greedy]"),
            "misplaced": ("train", "quickstart", f"executors.servicebus_env='{told['SECRET_BUS']}'"),
        }
        for name, command in failing.items():
            with living(folder, *command, name=name, environment=told) as life:
                assert await ended(life) in (1, 2), life.text[-2000:]
                assert life.text.splitlines()[-1].startswith("callwright: ")
        for name, command in {
            "trace": ("trace", str(run), "--limit", "50"),
            "view": ("view", str(run), "--html", "run.html"),
        }.items():
            with living(folder, *command, name=name, environment=told) as life:
                assert await ended(life) == 0, life.text[-2000:]
    await asyncio.to_thread(serve, folder, told)
    assert len(metrics(run)) == 2
    assert any(SECRETS["BRAVE_API_KEY"] in value for value in search.requests[0].headers.values())
    assert any(SECRETS["MODEL_KEY"] in value for value in vendor.requests[0].headers.values())
    assert list(run.glob("wandb/offline-run-*/*.wandb"))
    assert shown(tmp_path) == []


def serve(folder: Path, told: dict[str, str]) -> None:
    with gateway(folder, told) as url:
        chat = json.dumps({"model": "quickstart", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]})
        key = SECRETS[KEY_VARIABLE]
        asked = ((key, chat), (key, "{"), (key[:-1], chat))
        codes = [post(f"{url}/v1/chat/completions", key, body.encode()) for key, body in asked]
    assert codes == [200, 400, 401]

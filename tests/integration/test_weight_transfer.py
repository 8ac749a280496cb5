"""Weights sent to a real vLLM server: it samples from them, and every link that is broken on purpose is noticed."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from vllm_servers import INSTALLED, real

from callwright.serving.engines.engine import Completion, Request, Sampling
from callwright.serving.engines.vllm.admin import EXTENSION, Admin
from callwright.serving.engines.vllm.engine import VllmEngine
from callwright.serving.errors import RunError
from callwright.serving.models import load
from callwright.training.checkpoints import WARM_STARTS
from callwright.training.weights.disk import DiskTransfer
from callwright.training.weights.frozen import FrozenWatch
from callwright.training.weights.lora import ADAPTER, LoraTransfer
from callwright.training.weights.servers import Servers
from callwright.training.weights.verify import own_logprobs

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(not INSTALLED, reason="vLLM is not installed: make vllm"),
]

MODEL = str(WARM_STARTS / "quickstart")
PROMPT = list(range(20, 44))
VARIABLES = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
FLAGS = {"worker-extension-cls": EXTENSION, "enable-lora": True, "max-loras": 1, "max-lora-rank": 8}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with real(MODEL, VARIABLES, **FLAGS) as process:
        yield process.url


@pytest.fixture
def engine(url: str) -> Iterator[VllmEngine]:
    engine = VllmEngine([url], in_flight=8)
    yield engine
    engine.close()


@pytest.fixture
def transfer(engine: VllmEngine, tmp_path: Path) -> Iterator[DiskTransfer]:
    transfer = DiskTransfer(Servers([Admin(engine.urls[0])], engine.holds), tmp_path)
    yield transfer
    transfer.close()


@pytest.fixture(scope="module")
def policy() -> Any:
    return load(MODEL, device="cpu").model


def moved(model: Any, seed: int, size: float = 0.03) -> Any:
    """A copy with other weights."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * size)
    return other


def with_adapter(model: Any) -> Any:
    """The model under an adapter that changes what it says."""
    lora = LoraConfig(r=8, lora_alpha=24, target_modules=["q_proj", "v_proj", "o_proj", "up_proj"])
    return moved(get_peft_model(copy.deepcopy(model), lora), 5, 0.05).eval()


def sampled(engine: VllmEngine, tokens: int = 24) -> Completion:
    request = Request(PROMPT, tokens, Sampling(1.0), key=7, session="s")
    return asyncio.run(engine.generate(request))


def explains(model: Any, done: Completion) -> bool:
    """Whether the logprobs of a completion are those of this model."""
    plain = own_logprobs(model, [*PROMPT, *done.ids])[len(PROMPT) - 1 :]
    return bool(done.logprobs == pytest.approx(plain, abs=1e-3))


def test_the_server_samples_from_what_was_sent(engine: VllmEngine, transfer: DiskTransfer, policy: Any) -> None:
    """The model's output layer is its embedding: vLLM keeps a copy of that which a reload alone leaves as it was."""
    one, two = moved(policy, 1), moved(policy, 2)
    first = transfer.send(1, one)
    done = sampled(engine)
    assert (done.version, done.changes) == (1, ())
    assert explains(one, done)
    second = transfer.send(2, two)
    again = sampled(engine)
    assert again.version == 2
    assert explains(two, again)
    assert not explains(one, again)
    assert first.checksum != second.checksum
    assert Admin(engine.urls[0]).version() == 2


def test_the_newest_folder_alone_is_kept(transfer: DiskTransfer, policy: Any, tmp_path: Path) -> None:
    for version in (3, 4):
        transfer.send(version, policy)
    assert [path.name for path in tmp_path.iterdir()] == ["version-4"]


def test_a_turn_goes_on_from_the_new_weights(engine: VllmEngine, transfer: DiskTransfer, policy: Any) -> None:
    """Its keys and values stay, and every token says which weights it is from."""
    transfer.send(5, policy)
    models = [moved(policy, seed) for seed in (3, 4)]
    done: list[Completion] = []

    async def turns(name: str, over: asyncio.Event) -> None:
        while not over.is_set():
            done.append(await engine.generate(Request(PROMPT, 400, Sampling(1.0), len(done), name)))

    async def meanwhile() -> None:
        over = asyncio.Event()
        running = [asyncio.create_task(turns(name, over)) for name in ("a", "b", "c")]
        # A pause may come just between two turns; where it does not, it comes within one.
        for version in range(6, 18):
            await asyncio.to_thread(transfer.send, version, models[version % 2])
            if any(turn.changes for turn in done):
                break
        over.set()
        async with asyncio.timeout(240):
            await asyncio.gather(*running)

    asyncio.run(meanwhile())
    assert all(len(turn.ids) == 400 for turn in done)
    versions = [[turn.version, *(version for _, version in turn.changes)] for turn in done]
    assert any(len(held) > 1 for held in versions)
    assert all(held == list(range(held[0], held[-1] + 1)) for held in versions)


def test_the_wrong_folder_is_refused(
    transfer: DiskTransfer, policy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Admin.ask_workers

    def elsewhere(self: Admin, method: str, **arguments: str) -> list[Any]:
        return ask(self, method, **({"folder": MODEL} if arguments else {}))

    monkeypatch.setattr(Admin, "ask_workers", elsewhere)
    with pytest.raises(RunError, match=r"did not get version 7: .* of .* tensors differ"):
        transfer.send(7, moved(policy, 4))
    Admin(transfer._servers.admins[0].url).resume()


def test_a_server_that_only_says_so_is_refused(
    transfer: DiskTransfer, policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers with the digests of the files and keeps the weights that it had."""
    transfer.send(8, policy)
    ask = Admin.ask_workers
    monkeypatch.setattr(Admin, "ask_workers", lambda self, method, **given: ask(self, method) if not given else [])
    with pytest.raises(RunError, match="read version 9 but does not hold it"):
        transfer.send(9, moved(policy, 4))
    Admin(transfer._servers.admins[0].url).resume()


def test_half_a_write_is_refused(transfer: DiskTransfer, policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Admin.ask_workers

    def truncated(self: Admin, method: str, **arguments: str) -> list[Any]:
        for file in Path(arguments.get("folder", "/nowhere")).glob("*.safetensors"):
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        return ask(self, method, **arguments)

    monkeypatch.setattr(Admin, "ask_workers", truncated)
    with pytest.raises(RunError, match="version 10 did not reach"):
        transfer.send(10, moved(policy, 4))
    monkeypatch.undo()
    Admin(transfer._servers.admins[0].url).resume()
    transfer.send(11, policy)  # the server lives, and takes whole ones


def test_the_base_is_sent_while_an_adapter_is_trained(transfer: DiskTransfer, policy: Any) -> None:
    model, watch = with_adapter(policy), FrozenWatch()
    base = copy.deepcopy(policy)
    for version in (12, 13):
        watch.look(transfer.send(version, base), model)
        model = moved(model, version)
    with pytest.raises(RunError, match="not the trained policy's"):
        watch.look(transfer.send(14, base), model)


def test_an_adapter_can_be_sent_within_the_whole_model(engine: VllmEngine, transfer: DiskTransfer, policy: Any) -> None:
    model = with_adapter(policy)
    transfer.send(15, model)
    done = sampled(engine)
    assert explains(model, done)
    assert not explains(policy, done)


def test_an_adapter_can_be_sent_alone(engine: VllmEngine, transfer: DiskTransfer, policy: Any, tmp_path: Path) -> None:
    transfer.send(16, policy)  # the base that the adapter stands on
    alone = LoraTransfer(
        Servers([Admin(engine.urls[0])], lambda version, url: engine.holds(version, url, ADAPTER), ADAPTER), tmp_path
    )
    model = with_adapter(policy)
    for version in (17, 18):
        model = moved(model, version)
        receipt = alone.send(version, model)
        done = sampled(engine)
        assert done.version == version
        assert explains(model, done)
    assert receipt.bytes < 200_000
    assert not explains(policy, done)
    alone.close()

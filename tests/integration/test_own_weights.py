"""An engine with weights of its own: each id goes with the version that sampled it, and a broken link is refused."""

from __future__ import annotations

import asyncio
import copy
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from test_trainer import build, move
from transformers import DynamicCache

from callwright.serving.engines.digest import checksum, tensor_digest
from callwright.serving.engines.engine import Completion, EngineError, Request, Sampling
from callwright.serving.engines.sampler import address
from callwright.serving.engines.transformers_engine import TransformersEngine
from callwright.serving.errors import RunError
from callwright.serving.models import Loaded
from callwright.training.update.support import install_where_exact
from callwright.training.weights.local import LocalTransfer, own_copy

pytestmark = pytest.mark.integration

WAIT_S = 200.0
PROMPT = list(range(20, 44))


def moved(model: Any, seed: int) -> Any:
    """A copy with other weights."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return other


@pytest.fixture
def policy(tiny: Loaded) -> Any:
    return copy.deepcopy(tiny.model)


@pytest.fixture
def served(policy: Any) -> Any:
    return own_copy(policy)


@pytest.fixture
def engine(served: Any) -> Iterator[TransformersEngine]:
    engine = TransformersEngine(served, rows=4, context=256)
    yield engine
    engine.close()


def test_a_copy_of_a_model_that_packs_its_updates_runs_its_own_weights(policy: Any) -> None:
    assert install_where_exact([policy], 1.0)
    ids = torch.tensor([PROMPT])
    with torch.no_grad():
        before = policy(input_ids=ids).logits
        copied = own_copy(policy)
        for parameter in policy.parameters():
            parameter.mul_(1.1)
        assert torch.equal(copied(input_ids=ids).logits, before)
        assert not torch.allclose(policy(input_ids=ids).logits, before)


def turn_of(session: str, ids: list[int], tokens: int, on_token: Callable[[int], None] | None = None) -> Request:
    return Request(ids, tokens, Sampling(), key=address(session), session=session, on_token=on_token)


async def ask(engine: TransformersEngine, request: Request) -> Completion:
    async with asyncio.timeout(WAIT_S):
        return await engine.generate(request)


def at_token(engine: TransformersEngine, sends: dict[int, Callable[[], object]]) -> Callable[[int], None]:
    """A callback that, after so many tokens, begins a change of weights elsewhere and holds the turn until it waits."""
    count = 0

    def on_token(token: int) -> None:
        nonlocal count
        count += 1
        if (send := sends.get(count)) is not None:
            threading.Thread(target=send).start()
            until = time.monotonic() + WAIT_S
            while engine._update is None and time.monotonic() < until:
                time.sleep(0.001)

    return on_token


def step_by_step(models: dict[int, Any], prompt: list[int], done: Completion) -> list[float]:
    """The logprob of each id by the weights of its own version, over keys and values as they were computed then."""
    cache, previous, known = DynamicCache(), prompt[-1], []
    with torch.no_grad():
        models[done.version](input_ids=torch.tensor([prompt[:-1]]), past_key_values=cache, use_cache=True)
        for ids, _, version in done.spans():
            for token in ids:
                step = torch.tensor([[previous]])
                logits = models[version](input_ids=step, past_key_values=cache, use_cache=True).logits[0, -1]
                known.append(float(logits.float().log_softmax(-1)[token]))
                previous = token
    return known


def plain(model: Any, prompt: list[int], done: Completion) -> list[float]:
    """The logprob of each id by one forward pass."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *done.ids]])).logits[0, len(prompt) - 1 : -1]
    return logits.float().log_softmax(-1).gather(-1, torch.tensor(done.ids)[:, None])[:, 0].tolist()


async def test_each_id_of_a_turn_has_the_logprob_of_the_weights_that_sampled_it(
    engine: TransformersEngine, policy: Any
) -> None:
    """Two updates within one turn; another session with the same prompt begins after them."""
    transfer = LocalTransfer(engine, engine._rows._model)
    models = {0: policy, 1: moved(policy, 1), 2: moved(policy, 2)}
    sends = {7: lambda: transfer.send(1, models[1]), 15: lambda: transfer.send(2, models[2])}
    done = await ask(engine, turn_of("s", PROMPT, 40, at_token(engine, sends)))
    assert (done.version, done.changes) == (0, ((7, 1), (15, 2)))
    assert [len(ids) for ids, _, _ in done.spans()] == [7, 8, 25]
    assert done.logprobs == pytest.approx(step_by_step(models, PROMPT, done), abs=1e-4)
    for other in (0, 2):  # the weights matter: those of one version alone explain nothing
        assert done.logprobs != pytest.approx(plain(models[other], PROMPT, done), abs=1e-2)

    # A later turn of the session, and a session that begins alike, see nothing of the older keys and values.
    context = [*PROMPT, *done.ids, 30, 31]
    for request in (turn_of("s", context, 10), turn_of("other", [*PROMPT, 50], 10)):
        later = await ask(engine, request)
        assert (later.version, later.changes) == (2, ())
        assert later.logprobs == pytest.approx(plain(models[2], list(request.ids), later), abs=1e-4)


async def test_a_turn_in_flight_shares_no_older_keys_and_values(engine: TransformersEngine, policy: Any) -> None:
    after = moved(policy, 1)
    transfer, sent = LocalTransfer(engine, engine._rows._model), threading.Event()
    hold = at_token(engine, {3: lambda: (transfer.send(1, after), sent.set())})

    async def second() -> Completion:
        assert await asyncio.to_thread(sent.wait, WAIT_S)
        return await ask(engine, turn_of("second", [*PROMPT, 50], 4))

    first, later = await asyncio.gather(ask(engine, turn_of("first", PROMPT, 200, hold)), second())
    assert first.changes == ((3, 1),)
    assert later.logprobs == pytest.approx(plain(after, [*PROMPT, 50], later), abs=1e-4)


async def test_a_receipt_is_what_the_engine_holds(engine: TransformersEngine, served: Any, policy: Any) -> None:
    transfer = LocalTransfer(engine, served)
    first = transfer.send(4, policy)
    assert (first.version, engine.version) == (4, 4)
    assert first.checksum == checksum({name: tensor_digest(tensor) for name, tensor in policy.state_dict().items()})
    assert first.bytes == sum(tensor.nbytes for tensor in policy.state_dict().values())
    with torch.no_grad():
        policy.model.norm.weight.mul_(1.5)
    second = transfer.send(5, policy)
    assert second.checksum != first.checksum
    assert second.bytes == policy.model.norm.weight.nbytes, "only what changed is shipped"
    assert torch.equal(served.model.norm.weight, policy.model.norm.weight)
    done = await ask(engine, turn_of("s", PROMPT, 10))
    assert done.version == 5
    assert done.logprobs == pytest.approx(plain(policy, PROMPT, done), abs=1e-4)


class Forgets(LocalTransfer):
    """Leaves a tensor out."""

    def _write(self, held: dict[str, torch.Tensor], changed: dict[str, torch.Tensor]) -> None:
        super()._write(held, {name: tensor for name, tensor in changed.items() if name != "model.norm.weight"})


class Rounds(LocalTransfer):
    """Writes all, a little wrong."""

    def _write(self, held: dict[str, torch.Tensor], changed: dict[str, torch.Tensor]) -> None:
        super()._write(held, {name: tensor.bfloat16() for name, tensor in changed.items()})


class Breaks(LocalTransfer):
    """Stops half way."""

    def _write(self, held: dict[str, torch.Tensor], changed: dict[str, torch.Tensor]) -> None:
        super()._write(held, dict(list(changed.items())[:3]))
        raise RunError("the cable was cut")


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (Forgets, r"does not hold the weights of version 1: .* 1 of \d+ tensors differ, such as model\.norm\.weight"),
        (Rounds, "does not hold the weights of version 1"),
        (Breaks, "the cable was cut"),
    ],
)
async def test_weights_that_did_not_arrive_sample_nothing(
    engine: TransformersEngine, served: Any, policy: Any, broken: type[LocalTransfer], says: str
) -> None:
    errors: list[RunError] = []

    def send() -> None:
        try:
            broken(engine, served).send(1, moved(policy, 1))
        except RunError as error:
            errors.append(error)

    with pytest.raises(EngineError, match="in doubt"):
        await ask(engine, turn_of("in flight", PROMPT, 230, at_token(engine, {5: send})))
    deadline = time.monotonic() + WAIT_S
    while not errors and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert re.search(says, str(errors[0]))
    assert engine.version == 0
    with pytest.raises(EngineError, match="closed"):
        await ask(engine, turn_of("next", PROMPT, 5))
    with pytest.raises(RunError, match="closed"):
        broken(engine, served).send(2, policy)


async def test_another_version_than_the_one_that_was_sent_is_refused(served: Any, policy: Any) -> None:
    class Lags(TransformersEngine):
        def update(self, version: int, apply: Callable[[], None]) -> None:
            super().update(version - 1, apply)

    engine = Lags(served, rows=2, context=64)
    try:
        with pytest.raises(RunError, match="version 2 after it was sent 3"):
            LocalTransfer(engine, served).send(3, policy)
    finally:
        engine.close()


@pytest.mark.parametrize("lora", [False, True])
def test_the_copy_computes_with_its_own_weights_whatever_a_trainer_put_into_the_model(
    saved: Path, tmp_path: Path, lora: bool
) -> None:
    """TRL gives the model a forward of its own, which a plain copy would share."""
    model = build(saved, tmp_path, beta=0.0).model
    assert any("forward" in vars(module) for module in model.modules())
    if lora:
        model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    model.train()
    served, ids = own_copy(model), torch.tensor([PROMPT])
    assert not any(module.training for module in served.modules())

    def logits(of: Any) -> torch.Tensor:
        with torch.no_grad():
            result: torch.Tensor = of(input_ids=ids).logits
        return result

    before = logits(served)
    assert torch.allclose(before, logits(model), atol=1e-5)
    move(model)
    assert not torch.allclose(before, logits(model), atol=1e-2)
    assert torch.equal(before, logits(served)), "what is trained must not be what is served"
    move(served)
    assert torch.allclose(logits(served), logits(model), atol=1e-5)

"""TRL's trainer with our two additions: masked rows move nothing for any loss, and the first ratio is 1."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from callwright.serving.errors import RunError
from callwright.serving.models import load
from callwright.training.checkpoints import complete
from callwright.training.config import load_config
from callwright.training.groups import advantages
from callwright.training.grpo import _Steps
from callwright.training.interrupt import Interrupt
from callwright.training.trainer import ToolGRPOTrainer

pytestmark = pytest.mark.integration

LOSSES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo")
GROUP = 4
TOLERANCE = 1e-5
# Of 16 rows: one group whole, one with two masked rows, one with a single survivor, one masked altogether.
REWARDS: list[float | None] = [
    *(1.1, 0.0, 0.1, 1.0),
    *(None, 1.1, 0.0, None),
    *(None, None, 1.1, None),
    *(None, None, None, None),
]


@dataclass
class Script:
    """A rollout function with fixed rows; ``logprobs`` come from a forward pass of the model as it stands."""

    model: Any
    rewards: Sequence[float | None] = tuple(REWARDS)
    temperature: float = 1.0
    noise: float = 0.0
    rows: list[tuple[list[int], list[int], list[int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = random.Random(7)
        for index in range(len(self.rewards)):
            if index % GROUP == 0:
                prompt = [rng.randrange(20, 300) for _ in range(rng.randrange(3, 9))]
            mask = [1] * rng.randrange(2, 8) + [0] * rng.randrange(4) + [1] * rng.randrange(1, 6)
            self.rows.append((prompt, [rng.randrange(20, 300) for _ in mask], mask))

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {key: [] for key in ("prompt_ids", "completion_ids", "logprobs", "env_mask")}
        rng = random.Random(11)
        for (prompt, ids, mask), reward in zip(self.rows, self.rewards, strict=True):
            with torch.no_grad():
                logits = self.model(input_ids=torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
            known = (logits / self.temperature).log_softmax(-1).gather(-1, torch.tensor(ids)[:, None])[:, 0].tolist()
            columns["prompt_ids"].append(prompt)
            columns["completion_ids"].append(ids)
            columns["logprobs"].append(
                [p + rng.uniform(-1, 1) * self.noise if kept else 0.0 for p, kept in zip(known, mask, strict=True)]
            )
            columns["env_mask"].append([0] * len(mask) if reward is None else mask)
        return {**columns, "reward": list(self.rewards)}


def reward_column(reward: Sequence[float | None], **_: Any) -> list[float | None]:
    return list(reward)


def build(saved: Path, folder: Path, script_options: dict[str, Any] | None = None, **config: Any) -> ToolGRPOTrainer:
    loaded = load(str(saved), device="cpu")
    rewards = (script_options or {}).get("rewards", REWARDS)
    script = Script(loaded.model, **{**(script_options or {}), "rewards": rewards})
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": len(rewards),
        "num_generations": GROUP,
        "max_completion_length": 32,
        "num_iterations": 2,
        "bf16": False,
        "use_cpu": True,
        "gradient_checkpointing": False,
        "report_to": [],
        "disable_tqdm": True,
        "shuffle_dataset": False,
        "scale_rewards": "none",
        **config,
    }
    trainer = ToolGRPOTrainer(
        model=loaded.model,
        args=GRPOConfig(**settings),
        processing_class=loaded.tokenizer,
        reward_funcs=reward_column,
        train_dataset=Dataset.from_dict({"prompt": [""] * 64}),
        rollout_func=script,
        checkpoints=folder / "checkpoints",
    )
    trainer.current_gradient_accumulation_steps = settings.get("gradient_accumulation_steps", 1)
    trainer.model.train()
    return trainer


@pytest.fixture(scope="module")
def reused(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> ToolGRPOTrainer:
    """One trainer with a reference policy, moved away from it, and with old logprobs that are off by some noise."""
    trainer = build(saved, tmp_path_factory.mktemp("run"), {"noise": 0.3}, beta=0.1)
    move(trainer.model)
    return trainer


def move(model: Any) -> None:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.02)


def batch(trainer: ToolGRPOTrainer) -> dict[str, Any]:
    return trainer._generate_and_score_completions([{"prompt": ""} for _ in trainer.rollout_func.rewards])


def survivors_of(inputs: dict[str, Any]) -> dict[str, Any]:
    """The same batch as if the masked rows had never been there."""
    alive = (inputs["tool_mask"] * inputs["completion_mask"]).sum(1) > 0
    return {
        key: value[alive] if isinstance(value, torch.Tensor) and value.ndim else value
        for key, value in inputs.items()
        if key != "loss_scale"
    }


def joined(batches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One batch of all rows; prompts are padded on the left, completions on the right."""

    def join(key: str) -> torch.Tensor:
        parts: list[torch.Tensor] = [inputs[key] for inputs in batches]
        if parts[0].ndim < 2:
            return torch.cat(parts) if parts[0].ndim else parts[0]
        width = max(part.shape[1] for part in parts)
        room = [width - part.shape[1] for part in parts]
        left = key.startswith("prompt_")
        padded = [
            torch.nn.functional.pad(part, (extra, 0) if left else (0, extra))
            for part, extra in zip(parts, room, strict=True)
        ]
        return torch.cat(padded)

    return {key: join(key) for key in batches[0]}


def loss_and_gradient(trainer: ToolGRPOTrainer, compute: Any, *batches: dict[str, Any]) -> tuple[float, torch.Tensor]:
    """Summed over micro-batches, as the optimizer sees them."""
    trainer.model.zero_grad()
    total = 0.0
    for inputs in batches:
        loss = compute(trainer.model, inputs)
        loss.backward()
        total += float(loss.detach())
    gradient = torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])
    return total, gradient.clone()


def plain_trl(trainer: ToolGRPOTrainer) -> Any:
    return lambda model, inputs: GRPOTrainer._compute_loss(trainer, model, inputs)


def assert_same(got: tuple[float, torch.Tensor], want: tuple[float, torch.Tensor]) -> None:
    assert got[0] == pytest.approx(want[0], rel=TOLERANCE, abs=TOLERANCE)
    assert want[1].abs().max() > 1e-3, "a gradient that is nothing proves nothing"
    scale = float(want[1].abs().max())
    assert float((got[1] - want[1]).abs().max()) <= TOLERANCE * max(scale, 1.0)


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize(("loss", "level"), [*((loss, "token") for loss in LOSSES), ("grpo", "sequence")])
def test_masked_rows_leave_loss_and_gradient_alone(reused: ToolGRPOTrainer, loss: str, level: str, beta: float) -> None:
    reused.loss_type, reused.beta, reused.importance_sampling_level = loss, beta, level
    inputs = batch(reused)
    rest = survivors_of(inputs)
    assert len(rest["advantages"]) == sum(reward is not None for reward in REWARDS) < len(inputs["advantages"])
    got = loss_and_gradient(reused, reused._compute_loss, inputs)
    want = loss_and_gradient(reused, plain_trl(reused), rest)
    assert_same(got, want)
    assert reused.beta == beta
    # What the masked rows hold is of no account.
    dead = (inputs["tool_mask"] * inputs["completion_mask"]).sum(1) == 0
    other = {**inputs, "completion_ids": inputs["completion_ids"].clone()}
    other["completion_ids"][dead] = 33
    assert_same(loss_and_gradient(reused, reused._compute_loss, other), want)


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("loss", LOSSES)
def test_micro_batches_add_up_to_the_batch_of_survivors(saved: Path, tmp_path: Path, loss: str, beta: float) -> None:
    """TRL shuffles rows into micro-batches, so some of those hold few survivors or none."""
    trainer = build(
        saved,
        tmp_path,
        {"noise": 0.3},
        beta=beta,
        loss_type=loss,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        importance_sampling_level="token",
    )
    move(trainer.model)
    torch.manual_seed(5)
    generation = [{"prompt": ""} for _ in REWARDS]
    micro: list[dict[str, Any]] = []
    for _ in range(8):
        micro.append(trainer._prepare_inputs(generation))
        trainer._step += 1
    alive = [survivors_of(inputs) for inputs in micro]
    counts = [len(inputs["advantages"]) for inputs in alive]
    assert sum(counts) == 7
    assert 0 in counts
    assert 2 in counts
    got = loss_and_gradient(trainer, trainer._compute_loss, *micro)
    if loss == "bnpo":  # by definition an average over micro-batches: those that hold a survivor
        kept = [inputs for inputs in alive if len(inputs["advantages"])]
        trainer.current_gradient_accumulation_steps = len(kept)
        want = loss_and_gradient(trainer, plain_trl(trainer), *kept)
    else:
        whole = joined(alive)
        trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation = 1
        want = loss_and_gradient(trainer, plain_trl(trainer), whole)
    assert_same(got, want)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_masked_group_is_a_smaller_batch(saved: Path, tmp_path: Path, loss: str) -> None:
    """End to end on both sides: the second batch never had the group."""
    values = [1.1, 0.0, 0.1, 1.0, 0.0, 1.1, 0.0, 0.0]
    results = []
    for rewards in ([*values, None, None, None, None], values):
        trainer = build(saved, tmp_path, {"rewards": rewards, "noise": 0.2}, loss_type=loss)
        results.append(loss_and_gradient(trainer, trainer._compute_loss, batch(trainer)))
    assert_same(*results)


@pytest.mark.parametrize("scale", ["none", "group", "batch"])
def test_advantages_are_those_of_the_group_arithmetic(reused: ToolGRPOTrainer, scale: str) -> None:
    reused.scale_rewards = scale
    try:
        got = batch(reused)["advantages"].tolist()
    finally:
        reused.scale_rewards = "none"
    assert got == pytest.approx(advantages(REWARDS, GROUP, scale=scale).tolist(), abs=1e-5)


def test_a_batch_without_survivors_moves_nothing(saved: Path, tmp_path: Path) -> None:
    for loss in LOSSES:
        trainer = build(saved, tmp_path, {"rewards": [None] * 8}, loss_type=loss, beta=0.0)
        loss_value, gradient = loss_and_gradient(trainer, trainer._compute_loss, batch(trainer))
        assert loss_value == 0.0
        assert not gradient.any()


@pytest.mark.parametrize("iterations", [1, 2])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_the_first_ratio_is_one(saved: Path, tmp_path: Path, beta: float, temperature: float, iterations: int) -> None:
    trainer = build(
        saved,
        tmp_path,
        {"temperature": temperature},
        temperature=temperature,
        num_iterations=iterations,
        beta=beta,
        loss_type="dapo",
    )
    inputs = batch(trainer)
    trainer._compute_loss(trainer.model, inputs)
    errors = trainer._metrics["train"]["sampling/ratio_error_max"]
    assert len(errors) == 1
    assert errors[0] < 1e-4
    assert torch.equal(inputs["old_per_token_logps"], inputs["sampling_per_token_logps"])
    move(trainer.model)  # without an update in between, the old policy is still the one that sampled
    trainer._compute_loss(trainer.model, inputs)
    assert errors[1] > 1e-2
    trainer.state.global_step = 1
    trainer._compute_loss(trainer.model, inputs)
    assert len(errors) == (3 if iterations == 1 else 2), "only before the first update on a batch"


def test_no_forward_pass_is_spent_on_logprobs_that_the_sampler_gave(saved: Path, tmp_path: Path) -> None:
    trainer = build(saved, tmp_path, beta=0.0)
    forwards: list[int] = []
    trainer.rollout_func.model = copy.deepcopy(trainer.model)
    handle = trainer.model.register_forward_pre_hook(lambda module, inputs: forwards.append(1))
    batch(trainer)
    handle.remove()
    assert forwards == []


def test_which_generation_batch_is_next(saved: Path, tmp_path: Path) -> None:
    geometry: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 4,
    }
    trainer = build(saved, tmp_path, num_iterations=3, **geometry)
    indices = []
    for step in (0, 5, 6, 11, 12):  # 4 micro-batches three times, 2 a step: 6 steps a generation
        trainer.state.global_step = step
        indices.append(trainer.rollout_index)
    assert indices == [0, 0, 1, 1, 2]


def test_train_updates_the_model_and_publishes_whole_checkpoints(saved: Path, tmp_path: Path) -> None:
    seen: list[int] = []

    class Watched(Script):
        def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
            seen.append(trainer.rollout_index)
            assert len(prompts) == len(self.rewards)
            return super().__call__(prompts, trainer)

    trainer = build(
        saved,
        tmp_path,
        {},
        max_steps=4,
        save_steps=2,
        logging_steps=1,
        learning_rate=1e-3,
        loss_type="grpo",
        beta=0.0,
    )
    trainer.rollout_func = Watched(trainer.model)

    before = copy.deepcopy(trainer.model.state_dict())
    trainer.train()
    assert seen == [0, 1]
    assert any(not torch.equal(before[name], value) for name, value in trainer.model.state_dict().items())
    assert [step for step, _ in complete(tmp_path / "checkpoints")] == [1, 2]
    newest = tmp_path / "checkpoints" / "step-2"
    reread = load(str(newest), device="cpu").model.state_dict()
    assert all(torch.equal(reread[name], value) for name, value in trainer.model.state_dict().items())
    assert {"optimizer.pt", "scheduler.pt", "trainer_state.json"} <= {path.name for path in newest.iterdir()}
    assert not list((tmp_path / "checkpoints").glob(".*"))
    ratios = [
        entry["sampling/ratio_error_max"] for entry in trainer.state.log_history if "sampling/ratio_error_max" in entry
    ]
    assert len(ratios) == 2
    assert max(ratios) < 1e-4


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_the_run_before_its_step_is_recorded(loss: float, tmp_path: Path) -> None:
    recorded: list[int] = []
    steps = _Steps(
        load_config("quickstart"), cast(Any, None), lambda step, row: recorded.append(step), tmp_path, Interrupt()
    )
    with pytest.raises(RunError, match="the loss of step 3 is not a number"):
        steps.on_log(SimpleNamespace(num_iterations=2), SimpleNamespace(global_step=6), None, {"loss": loss})
    assert not recorded

"""Rollouts that were really lost, in every loss of TRL: the gradient is that of a batch which never held them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from run_checks import check_group
from test_trainer import LOSSES, assert_same, loss_and_gradient, plain_trl, survivors_of

from callwright.envs.traces import Trace, read_traces
from callwright.serving.models import Loaded, load
from callwright.training.checkpoints import resolve_checkpoint
from callwright.training.config import Config, load_config
from callwright.training.grpo import build_trainer
from callwright.training.interrupt import Interrupt
from callwright.training.run_custom_grpo import BatchRecord, GrpoRollouts
from callwright.training.served import ServedPolicy
from callwright.training.session import Session, open_session
from callwright.training.synchronous import SynchronousRollouts
from callwright.training.trainer import ToolGRPOTrainer

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1500)]

PROMPTS, GENERATIONS = 12, 4
WORDS = (
    "deterministic=true",
    f"grpo.prompts_per_step={PROMPTS}",
    f"grpo.num_generations={GENERATIONS}",
    "grpo.faults={drop: 0.25}",
    "grpo.max_infra_share=1.0",
    "executors.queue_s=1",
    "executors.web.timeout_s=2",
    f"engine.max_batch={PROMPTS * GENERATIONS}",
)


@dataclass(frozen=True)
class Lossy:
    """One batch of real rollouts, some of whose replies were dropped: the columns that TRL gets, and the traces."""

    columns: dict[str, list[Any]]
    traces: list[Trace]


def config_of(loss: str) -> Config:
    return load_config("quickstart", [*WORDS, f"grpo.trl.loss_type={loss}"])


def model() -> Loaded:
    return load(resolve_checkpoint("quickstart"), device="cpu", dtype="float32")


def trainer_of(loss: str, folder: Path, rollouts: Any) -> ToolGRPOTrainer:
    loaded = model()
    trainer = build_trainer(
        config_of(loss), folder, loaded.model, loaded.tokenizer, rollouts, lambda *_: None, Interrupt()
    )
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with open_session(config_of("dapo")) as opened:
        yield opened


@pytest.fixture(scope="module")
def lossy(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Lossy:
    folder = tmp_path_factory.mktemp("run")
    with closing(ServedPolicy(session, folder)) as served:
        rollouts = GrpoRollouts(SynchronousRollouts(session, served, folder), BatchRecord(session, folder))
        trainer = trainer_of("dapo", folder, rollouts)
        loaded = model()
        served.train(loaded, loaded.model)
        columns = trainer.rollout_func([""] * (PROMPTS * GENERATIONS), trainer)
    return Lossy(columns, list(read_traces(folder)))


def test_lost_rollouts_are_in_no_baseline(lossy: Lossy) -> None:
    lost = [trace for trace in lossy.traces if trace["outcome"] == "infra_fault"]
    assert 3 <= len(lost) < len(lossy.traces)
    groups = [lossy.traces[at : at + GENERATIONS] for at in range(0, len(lossy.traces), GENERATIONS)]
    for group in groups:
        check_group(group)
    torn = [group for group in groups if any(trace["counted"] is None for trace in group)]
    taught = [abs(trace["advantage"]) for group in torn for trace in group]
    assert max(taught) > 0.1, "no group that lost a rollout has anything to learn from the others"
    for trace, reward, mask in zip(lossy.traces, lossy.columns["reward"], lossy.columns["env_mask"], strict=True):
        assert (reward is None) == (trace["outcome"] == "infra_fault")
        assert any(mask) == (reward is not None)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_is_that_of_a_batch_without_them(loss: str, lossy: Lossy, tmp_path: Path) -> None:
    """With the shipped config's own settings, its entropy bonus among them."""
    trainer = trainer_of(loss, tmp_path, lambda prompts, trainer: lossy.columns)
    inputs = trainer._generate_and_score_completions([{"prompt": ""} for _ in lossy.traces])
    expected = [trace["advantage"] for trace in lossy.traces]
    assert inputs["advantages"].tolist() == pytest.approx(expected, abs=1e-6)
    survivors = survivors_of(inputs)
    assert len(survivors["advantages"]) == sum(reward is not None for reward in lossy.columns["reward"])
    got = loss_and_gradient(trainer, trainer._compute_loss, inputs)
    want = loss_and_gradient(trainer, plain_trl(trainer), survivors)
    assert_same(got, want)

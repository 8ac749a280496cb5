"""What TRL's asynchronous trainer is given: its protocols, and rows that its own loader packs. Its step needs a GPU."""

from __future__ import annotations

import inspect
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trl.experimental.async_grpo.async_grpo_trainer import (
    DataCollatorForRollout,
    FixedCountBatcher,
    RolloutQueueDataset,
    RolloutWorkerProtocol,
    WeightTransferProtocol,
)

from callwright.envs.traces import read_traces
from callwright.serving.errors import RunError, UserError
from callwright.serving.models import load
from callwright.training.checkpoints import resolve_checkpoint
from callwright.training.config import load_config
from callwright.training.run_custom_grpo import BatchRecord
from callwright.training.session import Session, open_session
from callwright.training.trl_async import RolloutWorker, TransferToEngine
from callwright.training.weights.local import LocalTransfer, own_copy

pytestmark = pytest.mark.integration

WORDS = [
    "grpo.steps=3",
    "grpo.prompts_per_step=2",
    "grpo.num_generations=2",
    "grpo.asynchronous.max_staleness=1",
    "tools=[web]",
    "engine.max_batch=8",
]
ROWS = 4


@pytest.mark.parametrize(
    ("ours", "protocol"), [(RolloutWorker, RolloutWorkerProtocol), (TransferToEngine, WeightTransferProtocol)]
)
def test_the_protocols_are_met(ours: type, protocol: type) -> None:
    methods = [name for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"]
    assert len(methods) >= 4
    for name in methods:
        want = inspect.signature(getattr(protocol, name)).parameters
        assert list(inspect.signature(getattr(ours, name)).parameters) == list(want)
    attributes = vars(protocol).get("__annotations__", {})
    assert set(attributes) <= {"rollout_buffer", "metrics_queue"}


@pytest.fixture
def session() -> Iterator[Session]:
    with open_session(load_config("quickstart", WORDS)) as session:
        yield session


def worker_of(session: Session, folder: Path) -> RolloutWorker:
    assert session.config.grpo.asynchronous is not None
    return RolloutWorker(session, BatchRecord(session, folder), session.config.grpo.asynchronous)


def test_three_steps_as_trl_takes_them(session: Session, tmp_path: Path) -> None:
    """The calls of TRL's callbacks in their order, and its own dataset, batcher and collator; only the step is none."""
    loaded = load(resolve_checkpoint("quickstart"), device="cpu")
    served = own_copy(loaded.model)
    engine = session.adopt(loaded, served)
    transfer, worker = TransferToEngine(LocalTransfer(engine, served)), worker_of(session, tmp_path)
    transfer.attach(loaded.model)
    version, metrics = 0, defaultdict[str, list[Any]](list)

    def sync() -> None:
        nonlocal version
        transfer.pause()
        transfer.send_weights(iter(loaded.model.named_parameters()))
        transfer.resume()
        version += 1
        worker.update_model_version(version)

    sync()
    worker.start()
    rows = RolloutQueueDataset(
        worker.rollout_buffer, lambda: version, worker.check_health, 120.0, metrics, max_staleness=1, poll_interval_s=1
    )
    batches = iter(FixedCountBatcher(rows, 1, ROWS))
    collate = DataCollatorForRollout(loaded.tokenizer.pad_token_id, 1, metrics=metrics)
    for step in range(3):
        packed = collate.torch_call([next(batches)])
        taught = float(packed["global_n_tokens"][0])
        assert packed["advantages"].shape == packed["old_log_probs"].shape == (1, int(taught))
        traces = list(read_traces(tmp_path, f"step-{step:06d}"))
        sampled = sum(
            len(segment["ids"]) for trace in traces for segment in trace["segments"] if segment["kind"] == "sampled"
        )
        assert taught == sampled, "each sampled token is one term of the loss, and no other token is"
        with torch.no_grad():
            for parameter in loaded.model.parameters():
                parameter.mul_(1.01)
        sync()
    worker.stop()
    transfer.destroy()
    assert "sample/dropped_stale_total" not in metrics
    assert max(metrics["sample/staleness_max"]) <= 1
    assert engine.version == 3
    assert worker.metrics_queue.qsize() == 3


def test_a_row_that_must_not_teach_has_one_token_and_no_advantage(session: Session, tmp_path: Path) -> None:
    """Every search fails: its rollouts are infra faults, which stay in the batch so that steps keep their size."""
    loaded = load(resolve_checkpoint("quickstart"), device="cpu")
    session.adopt(loaded)
    config = session.config.model_copy(
        update={
            "grpo": session.config.grpo.model_copy(update={"max_infra_share": 1.0}),
            "budgets": session.config.budgets.model_copy(update={"wall_s": 0.001}),
        }
    )
    session.config = config
    worker = worker_of(session, tmp_path)
    worker.update_model_version(1)
    worker.start()
    samples = [worker.rollout_buffer.get(timeout=100) for _ in range(ROWS)]
    worker.stop()
    for sample in samples:
        assert sample.advantage == 0.0
        assert sample.completion_mask.sum() == 1
        assert np.isnan(sample.metrics["reward"])
        assert len(sample.input_ids) == len(sample.completion_mask) == len(sample.old_log_probs)
    assert [sample.group_id for sample in samples] == [0, 0, 1, 1]


def test_what_ended_the_rollouts_is_raised_where_trl_asks(session: Session, tmp_path: Path) -> None:
    loaded = load(resolve_checkpoint("quickstart"), device="cpu")
    session.adopt(loaded)
    session.config = session.config.model_copy(
        update={"budgets": session.config.budgets.model_copy(update={"wall_s": 0.001})}
    )
    worker = worker_of(session, tmp_path)
    worker.update_model_version(1)
    worker.start()
    deadline = time.monotonic() + 100
    with pytest.raises(RunError, match="4 of 4 rollouts failed through no fault of the policy"):  # noqa: PT012
        while time.monotonic() < deadline:
            worker.check_health(100.0)
            time.sleep(0.05)
    with pytest.raises(RunError, match="no batch of rollouts came for"):
        RolloutWorker.check_health(worker_of(session, tmp_path), -1.0)
    worker.stop()


def test_adapters_are_left_to_trl(tiny: Any) -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(own_copy(tiny.model), LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    with pytest.raises(UserError, match=r"model\.lora=null"):
        TransferToEngine(None).attach(model)  # type: ignore[arg-type]

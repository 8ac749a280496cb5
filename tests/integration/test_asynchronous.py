"""Asynchronous training with the real parts: batches in order and within the bound, learning, and going on after a
kill."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from test_resume import finish, start

from callwright.envs.traces import read_traces
from callwright.envs.trajectory import Sampled
from callwright.serving.models import load
from callwright.training.asynchronous.rollouts import AsynchronousRollouts
from callwright.training.checkpoints import complete, resolve_checkpoint
from callwright.training.config import load_config
from callwright.training.run import train
from callwright.training.served import ServedPolicy
from callwright.training.session import open_session

pytestmark = pytest.mark.integration

STEPS, PROMPTS, SAMPLES, STALENESS = 4, 4, 4, 2
WORDS = [
    f"grpo.steps={STEPS}",
    f"grpo.prompts_per_step={PROMPTS}",
    f"grpo.num_generations={SAMPLES}",
    f"grpo.asynchronous.max_staleness={STALENESS}",
    "eval.n=8",
    "eval.n_slices=0",
    "checkpoint.every=1",
]


def logprob_error(model: Any, ids: list[int], start: int, segment: Sampled) -> float:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids[: start + len(segment.ids)]])).logits[0, start - 1 : -1]
    known = logits.log_softmax(-1).gather(-1, torch.tensor(segment.ids)[:, None])[:, 0]
    return float((known - torch.tensor(segment.logprobs)).abs().max())


def test_batches_come_in_order_from_weights_within_the_bound(tmp_path: Path) -> None:
    """Without a trainer: the model is moved by hand. A segment's logprobs are those of its version's weights."""
    words = ["grpo.steps=5", "grpo.prompts_per_step=2", "grpo.num_generations=2", "tools=[web]"]
    config = load_config("quickstart", [*words, "grpo.asynchronous.max_staleness=1", "engine.max_batch=8"])
    assert config.grpo.asynchronous is not None
    loaded = load(resolve_checkpoint("quickstart"), device="cpu")
    weights: list[dict[str, torch.Tensor]] = []
    ages, stale = set(), 0
    with (
        open_session(config) as session,
        closing(ServedPolicy(session, tmp_path)) as served,
        closing(AsynchronousRollouts(session, served, config.grpo.asynchronous)) as source,
    ):
        served.train(loaded, loaded.model)
        for step in range(5):
            weights.append({name: value.clone() for name, value in loaded.model.state_dict().items()})
            batch = source.take(step, loaded.model)
            asked = session.tasks.sample("train", 2, "grpo", 2 * step)
            assert [row.task.key for row in batch.rows] == [task.key for task in asked for _ in range(2)]
            for row in batch.rows:
                segments, at = row.trajectory.segments, 0
                first = next(s.version for s in segments if isinstance(s, Sampled))
                for segment in segments:
                    if isinstance(segment, Sampled):
                        ages.add(step - segment.version)
                        if segment.version == first:  # a later part of a mixed turn read older keys and values
                            loaded.model.load_state_dict(weights[segment.version])
                            assert logprob_error(loaded.model, row.trajectory.ids, at, segment) < 1e-4
                            stale += segment.version < step
                    at += len(segment.ids)
            loaded.model.load_state_dict(weights[step])
            with torch.no_grad():
                for parameter in loaded.model.parameters():
                    parameter.mul_(1.01)
    assert ages <= {0, 1}
    assert stale > 0
    assert session.engine is not None
    assert session.engine.version == 4


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_an_asynchronous_run_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["grpo.steps=8", "grpo.prompts_per_step=16", "eval.n=112", "eval.n_slices=0", "checkpoint.every=0"]
    run = train(load_config("quickstart", [*words, "grpo.asynchronous.max_staleness=2"]))
    summary = json.loads((run / "summary.json").read_text())
    before, after = summary["before"]["sampled"], summary["after"]["sampled"]
    assert after["success"] >= before["success"] + 0.1
    assert after["valid_call_rate"] >= 0.95
    assert summary["outcomes"]["infra_fault"] == summary["outcomes"]["late"] == 0
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 9))
    assert max(row["staleness/max"] for row in rows) == 2
    for row in rows:
        assert row["sampling/mismatch_kl"] >= 0
        assert 0 < row["sampling/effective_sample_size"] <= 1
        assert row["clip_ratio/region_mean"] >= 0
        assert row["weights/paused_seconds"] <= row["weights/send_seconds"]
    assert rows[0]["staleness/max"] == 0
    assert rows[0]["sampling/ratio_error_max"] < 1e-3


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_and_resumed_trains_on_every_batch_once(tmp_path: Path) -> None:
    process = start(tmp_path, "quickstart", *WORDS)
    run = tmp_path / "runs" / "quickstart"
    deadline = time.monotonic() + 400
    while not complete(run / "checkpoints") and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    time.sleep(random.Random().uniform(0.0, 1.0))  # any moment: during a wait, an update, a save
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    reached = [step for step, _ in complete(run / "checkpoints")]
    assert reached, "it was killed before the first checkpoint"
    finish(start(tmp_path, "runs/quickstart", "--resume"))

    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert json.loads((run / "summary.json").read_text())["updates"] == 2 * STEPS
    config = load_config(run)
    with open_session(config) as session:
        asked = [task.key for task in session.tasks.sample("train", STEPS * PROMPTS, "grpo", 0)]
    trained: list[str] = []
    for step in range(STEPS):
        traces = list(read_traces(run, f"step-{step:06d}"))
        assert [trace["sample"] for trace in traces] == list(range(SAMPLES)) * PROMPTS
        trained += [trace["key"] for trace in traces[::SAMPLES]]
        versions = {segment["version"] for trace in traces for segment in trace["segments"] if "version" in segment}
        # A batch of the resumed run is rolled out again, in weights no older than the checkpoint's.
        assert all(max(0, step - STALENESS) <= version <= step for version in versions)
    assert trained == asked


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_interrupt_saves_the_step_with_rollouts_in_flight(tmp_path: Path) -> None:
    process = start(tmp_path, "quickstart", *WORDS, "checkpoint.every=0", "grpo.steps=60")
    run = tmp_path / "runs" / "quickstart"
    metrics = run / "metrics.jsonl"
    deadline = time.monotonic() + 400
    while not (metrics.exists() and metrics.read_text()) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors.decode()[-2000:]
    assert "--resume" in errors.decode()
    assert "Traceback" not in errors.decode()
    (saved, _), *_ = complete(run / "checkpoints")
    assert [json.loads(line)["step"] for line in metrics.read_text().splitlines()][-1] == saved

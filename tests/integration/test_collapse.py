"""A real run that is trained into a collapse: the alarm is said, noted in its metrics, and ends it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from callwright.serving.errors import RunError
from callwright.training.config import load_config
from callwright.training.run import train
from callwright.training.viewer.curves import curves

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SMALL = (
    *("grpo.prompts_per_step=8", "grpo.num_generations=4", "grpo.steps=12", "eval.n=8", "eval.n_slices=0"),
    *("checkpoint.every=1", "checkpoint.keep=1", "alarms.window=2"),
)


def test_an_absurd_learning_rate_ends_in_an_alarm_that_names_the_best_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*SMALL, "grpo.trl.learning_rate=0.004", "alarms.stop=[valid_call_rate,tool_rate]"]
    with pytest.raises(RunError, match=r"the alarm \w+ ended the run at step \d+: .*step-\d+ \(success ") as caught:
        train(load_config("quickstart", words))

    run = tmp_path / "runs" / "quickstart"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    marks = {key: value for key, value in rows[-1].items() if key.startswith("alarm/")}
    (stop,) = [key.removeprefix("stop/") for key in rows[-1] if key.startswith("stop/")]
    assert f"alarm/{stop}" in marks
    assert len(rows) < 12
    assert f"alarm {stop} at step {len(rows)}: " in capsys.readouterr().err
    assert (len(rows), "stop", f"the alarm {stop} ended the run") in [
        (event["step"], event["kind"], event["text"]) for event in curves(run)["events"]
    ]
    # The checkpoint that it names sampled the best batch of all that had one, and is there to be used.
    best = max(range(1, len(rows)), key=lambda step: rows[step]["success"])
    kept = sorted(path.name for path in (run / "checkpoints").glob("step-*"))
    assert f"the best checkpoint is {Path('runs/quickstart/checkpoints') / f'step-{best}'}" in str(caught.value)
    assert f"step-{best}" in kept
    assert f"step-{len(rows)}" not in kept, "the collapsed weights were saved"
    assert len(kept) <= 2
    assert not (run / "summary.json").exists()

"""An executor that always fails stops the run, with its name and the cause, before any update used its rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from callwright.envs.traces import read_traces
from callwright.serving.errors import RunError
from callwright.serving.protocol import ToolCall
from callwright.training.config import load_config
from callwright.training.run import train

pytestmark = pytest.mark.integration


class Broken:
    """Finds nothing while the run evaluates its start; from then on every call is an exception."""

    name = "broken-search"

    def __init__(self, run: Path) -> None:
        self._run = run

    async def start(self) -> None: ...

    async def run(self, call: ToolCall) -> dict[str, Any]:
        if (self._run / "before.json").exists():
            raise ConnectionError("the index is gone")
        return {"type": "web", "status": "ok", "results": []}

    async def close(self) -> None: ...


def test_a_broken_executor_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    updates = 0
    step = torch.optim.AdamW.step

    def counted(self: torch.optim.AdamW, *args: Any, **kwargs: Any) -> Any:
        nonlocal updates
        updates += 1
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", counted)
    words = ["grpo.steps=3", "grpo.prompts_per_step=8", "grpo.num_generations=4", "eval.n=4", "eval.n_slices=0"]
    # Only look-ups, so that many rollouts meet the broken tool.
    config = load_config("quickstart", [*words, "grpo.max_infra_share=0.05"])
    config = config.model_copy(
        update={"tasks": config.tasks.model_copy(update={"families": {"lookup": config.tasks.families["lookup"]}})}
    )
    run = tmp_path / "runs" / "quickstart"

    with pytest.raises(RunError, match=r"web: .*the index is gone") as caught:
        train(config, executors={"web": Broken(run)})

    assert "broken-search" in str(caught.value)
    assert updates == 0
    assert not (run / "checkpoints").exists()
    assert (run / "metrics.jsonl").read_text() == ""
    faults = [trace for trace in read_traces(run, "step-000000") if trace["outcome"] == "infra_fault"]
    assert faults
    assert all(trace["reward"] is None for trace in faults)

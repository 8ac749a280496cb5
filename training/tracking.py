"""Weights & Biases beside the run's own files: offline unless a key is there, and never a prompt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

from callwright.training.config import Config


class Tracker(Protocol):
    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Record one step."""
        ...

    def close(self) -> None:
        """Finish."""
        ...


class NoTracker:
    """Tracks nothing."""

    def log(self, step: int, metrics: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class WandbTracker:
    """One wandb run in the run's folder. ``WANDB_MODE`` decides where it is set; else it is synced where
    ``WANDB_API_KEY`` is set and kept offline elsewhere."""

    def __init__(self, config: Config, folder: Path) -> None:
        import wandb

        self._run = wandb.init(
            project=config.tracking.project,
            name=config.name,
            dir=str(folder),
            config=config.model_dump(mode="json"),
            mode=_mode(),
            settings=wandb.Settings(console="off", silent=True),
        )

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self._run.log(metrics, step=step)

    def close(self) -> None:
        self._run.finish()


def _mode() -> Any:
    return os.environ.get("WANDB_MODE") or ("online" if os.environ.get("WANDB_API_KEY") else "offline")


def open_tracker(config: Config, folder: Path) -> Tracker:
    """The tracker that the config asks for."""
    return WandbTracker(config, folder) if config.tracking.wandb == "auto" else NoTracker()

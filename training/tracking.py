"""Weights & Biases beside the run's own files: the same numbers, and a table of rollouts; offline unless a key is
there, and never a prompt."""

from __future__ import annotations

import netrc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from callwright.envs.traces import Trace, read_traces, step_name
from callwright.serving.errors import UserError
from callwright.training import processes
from callwright.training.config import Config

TABLE_EVERY = 10  # steps between two tables of rollouts
COLUMNS = ("step", "key", "outcome", "reward", "advantage", "calls", "question", "solution", "cause", "text")


class Tracker(Protocol):
    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Record one step, whose traces are written."""
        ...


class NoTracker:
    """Tracks nothing."""

    def log(self, step: int, metrics: dict[str, float]) -> None: ...


class WandbTracker:
    """One wandb run in the run's folder. ``WANDB_MODE`` decides where it is set; else it is synced where
    ``WANDB_API_KEY`` is set and kept offline elsewhere. Raises UserError where it would have to ask for a key."""

    def __init__(self, config: Config, folder: Path) -> None:
        import wandb

        if _mode() == "online" and not _key_is_known():  # it would ask for one where its input is a terminal
            raise UserError(
                "tracking.wandb: WANDB_MODE=online needs WANDB_API_KEY; set it, or WANDB_MODE=offline, or "
                "tracking.wandb=off"
            )
        self._wandb = wandb
        self._folder = folder
        self._rollouts, self._group = config.tracking.rollouts, config.grpo.num_generations
        self._run = wandb.init(
            project=config.tracking.project,
            name=config.name,
            dir=str(folder),
            config=config.model_dump(mode="json"),
            mode=_mode(),
            settings=wandb.Settings(console="off", silent=True),
        )

    def log(self, step: int, metrics: dict[str, float]) -> None:
        values: dict[str, Any] = dict(metrics)
        if self._rollouts and step % TABLE_EVERY == 1:
            values["rollouts"] = self._wandb.Table(columns=list(COLUMNS), data=self._sampled(step))
        self._run.log(values, step=step)

    def close(self, exit_code: int) -> None:
        """Finish, as well (0) or failed."""
        self._run.finish(exit_code=exit_code)

    def _sampled(self, step: int) -> list[list[Any]]:
        """The first rollout of the first groups of the step's batch; its trace file counts from 0."""
        traces = read_traces(self._folder, step_name(step - 1))
        return [_row(trace, step) for trace in islice(traces, 0, self._rollouts * self._group, self._group)]


def _row(trace: Trace, step: int) -> list[Any]:
    values = {
        **trace,
        "step": step,
        "reward": trace.get("counted"),
        "calls": len(trace.get("calls", ())),
        "text": "".join(part["text"] for part in trace.get("segments", ())),
    }
    return [values.get(column) for column in COLUMNS]


def _mode() -> Any:
    return os.environ.get("WANDB_MODE") or ("online" if os.environ.get("WANDB_API_KEY") else "offline")


def _key_is_known() -> bool:
    """Whether the environment or ~/.netrc, where ``wandb login`` leaves it, has a key for the server."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


@contextmanager
def open_tracker(config: Config, folder: Path) -> Iterator[Tracker]:
    """The tracker that the config asks for; what it recorded is marked as failed where the run failed."""
    if config.tracking.wandb == "off" or not processes.is_first():
        yield NoTracker()
        return
    tracker = WandbTracker(config, folder)
    try:
        yield tracker
    except BaseException:
        tracker.close(1)
        raise
    tracker.close(0)

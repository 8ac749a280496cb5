"""What a run does about its alarms: it says them, notes them in its metrics, and ends where the config wants that.

Invariant: where alarms may end the run, the checkpoint whose own rollouts succeeded most often is marked, and a marked
checkpoint is never pruned; the state that set the alarm off is not saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from callwright.serving.errors import RunError
from callwright.serving.progress import log
from callwright.training.alarms import MARK, STOP, Alarm, Alarms
from callwright.training.checkpoints import best, complete, mark_best
from callwright.training.config import Config


class Watch:
    """``row = watch.marked(step, row)``; then, with the row written, ``watch.stop(step)``."""

    def __init__(self, config: Config, folder: Path, rows: Iterable[Mapping[str, float]]) -> None:
        self._stops = config.alarms.stop
        self._alarms = Alarms(config, rows)
        self._checkpoints = folder / "checkpoints"
        self._fatal: Alarm | None = None

    def marked(self, step: int, row: Mapping[str, float]) -> dict[str, float]:
        """The row with the alarms that begin in it, each of them said."""
        began = self._alarms.look(row)
        for alarm in began:
            log(f"alarm {alarm.name} at step {step}: {alarm.text}")
        self._fatal = next((alarm for alarm in began if alarm.name in self._stops), None)
        if self._stops:
            self._measure(step - 1, row["success"])
        marks = {f"{MARK}{alarm.name}": alarm.value for alarm in began}
        return {**row, **marks, **({f"{STOP}{self._fatal.name}": self._fatal.value} if self._fatal else {})}

    def stop(self, step: int) -> None:
        """End the run where an alarm has to. Raises RunError, which names the best checkpoint."""
        if self._fatal is None:
            return
        found = best(self._checkpoints)
        where = "no checkpoint was whole before" if found is None else f"the best checkpoint is {found[0]}"
        score = "" if found is None else f" (success {found[1]:.3f} in the batch that it sampled)"
        raise RunError(f"the alarm {self._fatal.name} ended the run at step {step}: {self._fatal.text}; {where}{score}")

    def _measure(self, step: int, success: float) -> None:
        """A batch is sampled with the weights that the step before it left."""
        known = best(self._checkpoints)
        path = next((path for number, path in complete(self._checkpoints) if number == step), None)
        if path is not None and (known is None or success > known[1]):
            mark_best(path, success)

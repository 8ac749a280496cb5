"""Runs the cells of an experiment, each by itself, each once.

Invariant: a cell is done when its ``result.json`` is there, which is written whole and last; whatever else lies in the
folder of a cell that is not done is torn, and the cell is run again from its start.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from callwright.serving.children import with_parent
from callwright.serving.errors import RunError, UserError
from callwright.serving.progress import Progress
from callwright.training.config import dump_config
from callwright.training.experiments.rescore import rescore
from callwright.training.experiments.spec import Cell, Experiment
from callwright.training.reward_queue_log import read_reward_queue
from callwright.training.run_folder import write_json, write_text

RESULT = "result.json"
STOP_S = 20.0  # what a training process gets to end in, before it is killed


def run_cells(experiment: Experiment, cells: Sequence[Cell], folder: Path) -> dict[str, dict[str, Any]]:
    """The result of every cell; those that are done already are read. An interrupt stops the running ones.

    Raises RunError, after all others have run, where a cell failed.
    """
    missing = [cell for cell in cells if not (folder / cell.name / RESULT).is_file()]
    for cell in missing:
        shutil.rmtree(folder / cell.name, ignore_errors=True)
        (folder / cell.name).mkdir(parents=True)
    work = _rescored(experiment) if experiment.rescore is not None else None
    failures: dict[str, str] = {}
    with Progress("cells", total=len(cells)) as bar:
        bar.step(len(cells) - len(missing))
        runner = _Trainer(max(1, (os.cpu_count() or 1) // experiment.at_once))
        run = work or runner
        with ThreadPoolExecutor(1 if work else experiment.at_once) as pool:
            futures = {pool.submit(run, cell, folder / cell.name): cell for cell in missing}
            try:
                for future, cell in futures.items():
                    _finish(future, cell, failures)
                    bar.step()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                runner.stop()
                raise
    if failures:
        name, why = next(iter(failures.items()))
        raise RunError(f"{len(failures)} of {len(cells)} cells failed, {name} with: {why}; their logs are in {folder}")
    return {cell.name: json.loads((folder / cell.name / RESULT).read_text(encoding="utf-8")) for cell in cells}


def _finish(future: Future[None], cell: Cell, failures: dict[str, str]) -> None:
    try:
        future.result()
    except RunError as error:
        failures[cell.name] = str(error)


def _rescored(experiment: Experiment) -> Callable[[Cell, Path], None]:
    source = Path(str(experiment.rescore))
    if not (source / "traces").is_dir():
        raise UserError(f"rescore: {source} has no traces")

    def run(cell: Cell, folder: Path) -> None:
        write_json(folder / RESULT, {"metrics": rescore(cell.config, source), "traces": str(source.resolve())})

    return run


class _Trainer:
    """Trains a cell by ``callwright train`` in a process of its own."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def __call__(self, cell: Cell, folder: Path) -> None:
        write_text(folder / "cell.yaml", dump_config(cell.config))
        command = [*with_parent(), sys.executable, "-m", "callwright", "train", "cell.yaml"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(self._threads)}
        with (folder / "train.log").open("wb") as log:
            with self._lock:
                if self._stopped:
                    return
                # Its own session: Ctrl-C reaches the experiment alone, which then ends its cells.
                process = subprocess.Popen(
                    command, cwd=folder, stdout=log, stderr=log, env=environment, start_new_session=True
                )
                self._running.add(process)
            code = process.wait()
        self._running.discard(process)
        if code:
            lines = (folder / "train.log").read_text(errors="replace").strip().splitlines()
            raise RunError(lines[-1] if lines else f"exit code {code}")
        run = folder / "runs" / cell.config.name
        metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        rows = cell.config.grpo.prompts_per_step * cell.config.grpo.num_generations
        result = {
            "metrics": [{**row, "rows": rows} for row in metrics],
            "traces": str(run.resolve()),
            "summary": json.loads((run / "summary.json").read_text()),
            "reward_queue": _counted(run),
        }
        write_json(folder / RESULT, result)

    def stop(self) -> None:
        """End every training that runs, and start no more."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _counted(run: Path) -> dict[str, int]:
    """What became of the records on the reward queue."""
    counts = dict.fromkeys(("records", "dropped", "duplicated", "overtaken", "paired", "crossed"), 0)
    for entry in read_reward_queue(run):
        counts["records"] += 1
        for name in ("dropped", "duplicated", "overtaken"):
            counts[name] += entry["fate"][name]
        counts["paired"] += entry["settled"] == "paired"
        counts["crossed"] += entry["crossed"]
    return counts

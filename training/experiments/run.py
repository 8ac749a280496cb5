"""The verb experiment: run what is missing of a grid, then write its report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from callwright.serving.errors import UserError
from callwright.serving.progress import log
from callwright.training.config import dump_config
from callwright.training.experiments.cells import run_cells
from callwright.training.experiments.report import write_report
from callwright.training.experiments.spec import Cell, Experiment
from callwright.training.experiments.summary import summarise
from callwright.training.interrupt import terminated_as_interrupted
from callwright.training.run_folder import write_text
from callwright.training.yaml_values import dump_yaml

RUNS = Path("runs")


def run_experiment(experiment: Experiment, cells: Sequence[Cell]) -> dict[str, Any]:
    """Run it in runs/NAME and return its report. Run again it goes on: cells that are done are not run again.

    Raises UserError where the folder holds another experiment, RunError where a cell failed.
    """
    folder = RUNS / experiment.name
    made_from = dump_yaml(experiment.model_dump()) + "".join(f"---\n{dump_config(cell.config)}" for cell in cells)
    record = folder / "experiment.yaml"
    if folder.exists() and (not record.is_file() or record.read_text(encoding="utf-8") != made_from):
        raise UserError(f"{folder} holds something else: give this experiment another name=...")
    folder.mkdir(parents=True, exist_ok=True)
    write_text(record, made_from)
    try:
        with terminated_as_interrupted():
            results = run_cells(experiment, cells, folder / "cells")
    except KeyboardInterrupt:
        log("stopped; the same command goes on with the cells that are missing")
        raise
    summary = summarise(experiment, cells, results)
    print(write_report(summary, folder))
    return summary

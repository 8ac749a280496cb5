"""``callwright experiment``: a grid of rewards, queue faults and late policies, trained or re-scored, in one report."""

from __future__ import annotations

from typing import Annotated

import typer

from callwright.scripts.common import JsonFile, Overrides, write_json

Source = Annotated[str, typer.Argument(metavar="EXPERIMENT", help="An experiment's file, or a shipped name.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the cells, run none.")]


def experiment(
    source: Source, overrides: Overrides = None, dry_run: DryRun = False, json_file: JsonFile = None
) -> None:
    """Run an experiment into runs/NAME. Interrupted, the same command goes on: finished cells are not run again."""
    from callwright.training.experiments.run import run_experiment
    from callwright.training.experiments.spec import cells_of, load_experiment

    loaded, path = load_experiment(source, overrides or [])
    cells = cells_of(loaded, path)
    if dry_run:
        for cell in cells:
            print(cell.name)
        write_json(json_file, {"cells": [cell.name for cell in cells]})
        return
    write_json(json_file, run_experiment(loaded, cells))

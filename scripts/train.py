"""``callwright train``: warm start, GRPO, evaluation before and after, all into runs/NAME."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from callwright.scripts.common import JsonFile, config_from_words, train_extra, write_json

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CONFIG] [key=value ...]", help="A file, a run folder or a shipped name; then its changes."
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the run's last complete checkpoint.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, print the resolved config, train nothing.")]


def train(words: Words = None, resume: Resume = False, dry_run: DryRun = False, json_file: JsonFile = None) -> None:
    """Train a model to use tools by GRPO on real tool executions. CONFIG is quickstart unless given."""
    config = config_from_words(words or [], default="quickstart")
    with train_extra():
        from callwright.training.run import train as run_training

        folder = run_training(config, resume=resume, dry_run=dry_run)
    summary = folder / "summary.json"
    if summary.is_file() and not dry_run:
        write_json(json_file, json.loads(summary.read_text(encoding="utf-8")))

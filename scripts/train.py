"""``callwright train``: warm start, GRPO, evaluation before and after, all into runs/NAME."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callwright.scripts.common import JsonFile, config_from_words, train_extra, write_json

if TYPE_CHECKING:
    from callwright.training.config import Config

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CONFIG] [key=value ...]", help="A file, a run folder or a shipped name; then its changes."
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the run's last complete checkpoint.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, print config and layout, train nothing.")]


def train(words: Words = None, resume: Resume = False, dry_run: DryRun = False, json_file: JsonFile = None) -> None:
    """Train a model to use tools by GRPO on real tool executions. CONFIG is quickstart unless given."""
    config = config_from_words(words or [], default="quickstart")
    with train_extra():
        from callwright.training.run import check
        from callwright.training.run import train as run_training

        if dry_run:
            check(config)
            _print_layout(config, words or [], json_file)
            return
        folder = run_training(config, resume=resume)
    summary = folder / "summary.json"
    if summary.is_file():
        write_json(json_file, json.loads(summary.read_text(encoding="utf-8")))


def _print_layout(config: Config, words: Sequence[str], json_file: Path | None) -> None:
    """The config, and the layout behind it as comments: together still a config."""
    from callwright.training.config import dump_config
    from callwright.training.layout import layout_of

    layout = layout_of(config, shlex.join(words) or "quickstart")
    print(dump_config(config), end="")
    for line in layout.lines():
        print(f"# {line}")
    write_json(json_file, asdict(layout))

"""``callwright eval``: how often a checkpoint succeeds on tasks it was not trained on."""

from __future__ import annotations

from typing import Annotated

import typer

from callwright.scripts.common import JsonFile, Overrides, config_of_checkpoint, train_extra, write_json

CheckpointArgument = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="A checkpoint folder, a hub id, or a vendor's model.")
]
ConfigOption = Annotated[
    str | None, typer.Option("--config", metavar="CONFIG", help="Tasks and budgets; the checkpoint's own by default.")
]


def evaluate(
    checkpoint: CheckpointArgument,
    overrides: Overrides = None,
    config: ConfigOption = None,
    json_file: JsonFile = None,
) -> None:
    """Evaluate a checkpoint, greedy and sampled, on held-out tasks or on a benchmark (tasks.path=FILE).

    A vendor's model: eval MODEL engine.kind=remote engine.remote.url=URL engine.remote.wire=anthropic ...
    """
    resolved = config_of_checkpoint(checkpoint, overrides or [], config)
    with train_extra():
        from callwright.training.run import evaluate as run_evaluation

        result = run_evaluation(resolved)
    write_json(json_file, result)

"""``callwright eval``: how often a checkpoint succeeds on tasks it was not trained on, or on benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callwright.scripts.common import JsonFile, Overrides, config_of_checkpoint, train_extra, write_json
from callwright.serving.errors import UserError

if TYPE_CHECKING:
    from callwright.training.config import Config

_CHECKPOINT = typer.Argument(
    metavar="CHECKPOINT", help="A checkpoint folder, a hub id, or a vendor's model.", show_default=False
)
CheckpointArgument = Annotated[str, _CHECKPOINT]
ConfigOption = Annotated[
    str | None, typer.Option("--config", metavar="CONFIG", help="Tasks and budgets; the checkpoint's own by default.")
]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Run no model: score every row's gold answer, and an empty one.")
]
_SHORT = ("benchmark", "limit", "samples", "rows", "documents")  # of the section eval


def evaluate(
    checkpoint: Annotated[str | None, _CHECKPOINT] = None,
    overrides: Overrides = None,
    config: ConfigOption = None,
    check: CheckOption = False,
    json_file: JsonFile = None,
) -> None:
    """Evaluate a checkpoint, greedy and sampled, on held-out tasks, or on benchmarks.

    eval CHECKPOINT benchmark=gsm8k,math500 limit=100 samples=4 [rows=FOLDER] [documents=FILE]

    A vendor's model: eval MODEL engine.kind=remote engine.remote.url=URL engine.remote.wire=anthropic ...
    """
    words = [_spelt_out(word) for word in overrides or []]
    if check:
        given = [] if checkpoint is None else [_spelt_out(checkpoint)]
        failures = _check(config, [*given, *words])
        write_json(json_file, failures)
        if any(failures.values()):
            raise typer.Exit(1)
        return
    if checkpoint is None or checkpoint.partition("=")[0] in _SHORT:
        raise UserError("eval: name a CHECKPOINT: a folder, a hub id, or a vendor's model (see callwright eval --help)")
    resolved = config_of_checkpoint(checkpoint, words, config)
    with train_extra():
        write_json(json_file, _evaluate(resolved))


def _evaluate(config: Config) -> dict[str, Any]:
    if not config.eval.benchmark:
        from callwright.training.run import evaluate as run_evaluation

        return run_evaluation(config)
    from callwright.training.benchmark_run import run_benchmarks
    from callwright.training.run import RUNS

    return run_benchmarks(config, RUNS)


def _check(config: str | None, words: Sequence[str]) -> dict[str, list[str]]:
    from callwright.training.benchmark_check import check_benchmarks
    from callwright.training.config import load_config

    return check_benchmarks(load_config(config or "quickstart", words))


def _spelt_out(word: str) -> str:
    """A short key as the config has it: ``benchmark=a,b`` is ``eval.benchmark=[a,b]``."""
    key, equals, value = word.partition("=")
    if not equals or key not in _SHORT:
        return word
    return f"eval.{key}=[{value.strip('[]')}]" if key == "benchmark" else f"eval.{key}={value}"

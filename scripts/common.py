"""What the verbs share: reading CONFIG and key=value words, the config of a checkpoint, writing --json files."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callwright.serving.errors import UserError

if TYPE_CHECKING:  # the config models load pydantic's machinery, which --help can do without
    from callwright.envs.executors.settings import ExecutorSettings
    from callwright.training.config import Config


def _place_for_json(file: Path | None) -> Path | None:
    """A result that took hours is not lost to a mistyped folder: that is said before the verb begins."""
    if file is not None and not file.parent.is_dir():
        raise UserError(f"--json {file}: No such file or directory; make the folder {file.parent} first")
    if file is not None and file.is_dir():
        raise UserError(f"--json {file}: it is a folder; name a file")
    return file


_JSON = typer.Option("--json", metavar="FILE", help="Write the result as JSON; - is stdout.", callback=_place_for_json)
JsonFile = Annotated[Path | None, _JSON]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[key=value ...]", help="Config values, YAML syntax.")]

_HUB_ID = re.compile(r"^[\w.-]+/[\w.-]+$")
_EXTRAS = {
    *("torch", "transformers", "trl", "peft", "accelerate", "datasets", "wandb", "matplotlib", "gguf"),
    *("starlette", "uvicorn", "httpx"),
}


def config_from_words(words: Sequence[str], default: str) -> Config:
    """``[CONFIG] [key=value ...]``: the first word is the config unless it is an override."""
    from callwright.training.config import is_override, load_config

    words = list(words)
    source = default if not words or is_override(words[0]) else words.pop(0)
    return load_config(source, words)


def shared_settings(config: Config, tools: Sequence[str]) -> ExecutorSettings:
    """The executors' settings, for another process than the run's own. Raises UserError where the broker lets in
    none."""
    from callwright.training.executor_settings import executor_settings

    broker = config.executors.broker_of_worker
    if broker == "memory":
        raise UserError("executors.broker=memory lives inside the run itself: set executors.broker=sqlite")
    return executor_settings(config, tools).model_copy(update={"broker": broker})


def config_of_checkpoint(
    checkpoint: str, overrides: Sequence[str], config: str | None, foreign: Sequence[str] = ("quickstart",)
) -> Config:
    """The config that a checkpoint was trained with, or the one asked for; ``model.path`` is the checkpoint.

    ``foreign``: a config and its changes, for a checkpoint of nobody's run. A vendor's model (``engine.kind=remote``)
    has a name alone, and the config ``remote`` unless another is asked for.
    """
    from callwright.training.config import load_config

    path = Path(checkpoint)
    if config is None and "engine.kind=remote" in overrides:
        config = "remote"
    if config is None and path.exists():
        folder = path.resolve()
        config = next((str(up) for up in (folder, *folder.parents) if (up / "config.yaml").is_file()), None)
    own = config or ("quickstart" if checkpoint == "quickstart" else None)
    source, *changes = foreign if own is None else [own]
    resolved = load_config(source, [f"model.path={json.dumps(checkpoint)}", *changes, *overrides])
    is_name = checkpoint in ("quickstart", "smollm2") or (_HUB_ID.match(checkpoint) and not path.parent.is_dir())
    if not path.exists() and not is_name and resolved.engine.kind != "remote":
        raise UserError(f"no checkpoint {checkpoint}: name a folder such as runs/NAME/checkpoints/step-N, or a hub id")
    return resolved


def find_run(run: Path) -> Path:
    """A run's folder: as it was named, or by its name under ``runs/``."""
    return run if run.is_dir() else Path("runs") / run


@contextmanager
def train_extra(extra: str = "train") -> Iterator[None]:
    """Turn a missing library of that extra into the one line that mends it, and set what must be set before torch
    loads."""
    # Threads that spin while they wait make a shared machine an order of magnitude slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # That rollout_func may change is our concern, not the user's: the version of TRL is pinned.
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in _EXTRAS:
            raise UserError(f"this needs {error.name}: pip install 'callwright[{extra}]', or make quickstart") from None
        raise


def write_json(file: Path | None, value: Any) -> None:
    """Write to ``--json FILE`` where it was given; ``-`` is standard output."""
    if file is None:
        return
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    if str(file) == "-":
        sys.stdout.write(text)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--json {file}: {error.strerror}") from None

"""What an experiment is: a base config, axes of named variants, seeds. Every combination is one cell."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError

from callwright import configs
from callwright.serving.errors import UserError
from callwright.serving.queues.faults import FaultSettings
from callwright.training.config import Config, config_from, load_config
from callwright.training.sections.base import Positive, Section
from callwright.training.yaml_values import parse_yaml

Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
# What re-scoring can change: the rest made the trajectories, which are there already.
RESCORED = ("reward", "grpo.late", "grpo.faults", "grpo.deadline_s", "grpo.num_generations")


class Experiment(Section):
    """An experiment's file."""

    name: Label
    """The folder is runs/NAME."""
    rescore: str | None = None
    """A run folder whose traces are scored again; null trains a model in every cell."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The config that every cell starts from, as a config file holds it."""
    grid: dict[Label, dict[Label, dict[str, Any]]] = Field(default_factory=dict)
    """Axis -> variant -> config keys and their values. Cells are all combinations."""
    seeds: Annotated[tuple[int, ...], Field(strict=False, min_length=1)] = (0,)
    """Each cell is run once a seed."""
    at_once: Positive = 2
    """Cells that train at once; the cores are shared out."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run. ``arm`` is its combination of variants; its seeds are compared under that name."""

    arm: str
    seed: int
    config: Config

    @property
    def name(self) -> str:
        return f"{self.arm}.seed-{self.seed}"


def load_experiment(path_or_name: str, overrides: Iterable[str] = ()) -> tuple[Experiment, Path]:
    """The experiment in a file, or shipped under that name, and its file. Raises UserError with one line."""
    shipped = Path(str(configs.__file__)).parent / "experiments"
    path = next((p for p in (Path(path_or_name), shipped / f"{path_or_name}.yaml") if p.is_file()), None)
    if path is None:
        names = ", ".join(sorted(file.stem for file in shipped.glob("*.yaml")))
        raise UserError(f"no experiment {path_or_name}: no such file, and the shipped ones are {names}")
    try:
        data = parse_yaml(path.read_text(encoding="utf-8")) or {}
        for override in overrides:
            key, _, text = override.partition("=")
            data[key] = parse_yaml(text)
        return Experiment.model_validate(data), path
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (ValueError, TypeError, OSError) as error:
        raise UserError(f"{path}: {error}") from None


def cells_of(experiment: Experiment, path: Path) -> list[Cell]:
    """Every cell, its config resolved. Raises UserError for a variant that no config takes."""
    axes = [list(variants.items()) for variants in experiment.grid.values()]
    cells = []
    for chosen in itertools.product(*axes):
        arm = ".".join(label for label, _ in chosen) or "base"
        changes = {key: value for _, variant in chosen for key, value in variant.items()}
        if experiment.rescore is not None:
            _only_rescored(changes)
        words = [f"{key}={_flow(value)}" for key, value in changes.items()]
        for seed in experiment.seeds:
            overrides = [*words, f"seed={seed}"]
            if experiment.rescore is None:
                config = _logged(config_from(experiment.config, path, [*overrides, "name=run"]))
            else:
                config = load_config(experiment.rescore, overrides)
            cells.append(Cell(arm, seed, config))
    return cells


def _logged(config: Config) -> Config:
    """The config with a log of its reward queue, where one can be kept: what puts faults in writes it, also where there
    are none to put in."""
    if config.grpo.faults is not None or config.grpo.asynchronous is not None or config.executors.external:
        return config
    return config.model_copy(update={"grpo": config.grpo.model_copy(update={"faults": FaultSettings()})})


def _only_rescored(changes: dict[str, Any]) -> None:
    for key in changes:
        if not any(key == known or key.startswith(f"{known}.") for known in RESCORED):
            raise UserError(f"{key} cannot change when traces are re-scored; what can: {', '.join(RESCORED)}")


def _flow(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("...").strip()

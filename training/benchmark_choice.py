"""Which rows a config asks for. Imports without torch, for the check that runs no model."""

from __future__ import annotations

from pathlib import Path

from callwright.envs.tasks.benchmarks.rows import Choice
from callwright.training.config import Config


def choice_of(config: Config) -> Choice:
    """The rows of ``eval.benchmark``, wherever they come from."""
    asked = config.eval
    return Choice(
        path=Path(asked.rows) if asked.rows else None,
        limit=asked.limit,
        documents=Path(asked.documents) if asked.documents else None,
        local_search=config.executors.web.backend == "corpus",
        world=config.tasks.world,
        families=config.tasks.families,
        seed=config.seed,
    )

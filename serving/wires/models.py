"""The dated table of what single models take: data in ``models.json``, read once, never patterns in code.

Invariant: a model that no row names has no gates, and callers then use what its wire accepts in general.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelTable:
    """``rows`` in order of precedence: each has ``match`` (shell patterns of model names) and its gates."""

    dated: str
    rows: tuple[Mapping[str, Any], ...]

    def gates(self, model: str) -> Mapping[str, Any]:
        """What is known of a model, by the first row that names it; empty for an unknown one."""
        name = model.rsplit("/", 1)[-1].lower()
        for row in self.rows:
            if any(fnmatchcase(name, pattern) for pattern in row["match"]):
                return row
        return {}


@cache
def model_table() -> ModelTable:
    text = files("callwright.serving.wires").joinpath("models.json").read_text(encoding="utf-8")
    data = json.loads(text)
    return ModelTable(data["dated"], tuple(data["models"]))

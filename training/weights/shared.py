"""Weights that need not travel: the engine samples from the very tensors that are trained."""

from __future__ import annotations

from typing import Any

from callwright.serving.engines.transformers_engine import TransformersEngine
from callwright.training.weights.transfer import Receipt


class SharedWeights:
    """Tells ``engine`` that its model has become another version."""

    def __init__(self, engine: TransformersEngine) -> None:
        self._engine = engine

    def send(self, version: int, model: Any) -> Receipt:
        self._engine.set_version(version)
        return Receipt(version, "", 0, 0.0, 0.0)

    def close(self) -> None:
        """Nothing is held."""

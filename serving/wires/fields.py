"""Request fields of several translations put together: what the caller wrote wins, key by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callwright.serving.wires.base import Json


def merged(*layers: Mapping[str, Any]) -> Json:
    """Later layers over earlier ones; objects are merged inside, anything else is replaced."""
    result: Json = {}
    for layer in layers:
        for key, value in layer.items():
            below = result.get(key)
            both = isinstance(below, Mapping) and isinstance(value, Mapping)
            result[key] = merged(below, value) if both else value  # type: ignore[arg-type]
    return result

"""A model's shape and size, as far as files on this machine tell: config.json and the heads of its safetensors.

Invariants: no weight is read and nothing is fetched; what is not known is None and never guessed.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HEAD = struct.Struct("<Q")  # a safetensors file begins with the length of its head, which is JSON


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder's sizes: hidden (h), intermediate (i), head_dim (d) are widths; heads and kv_heads are counts."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """The linear maps of one layer by their usual names: (in, out)."""
        heads, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "q_proj": (self.hidden, heads),
            "k_proj": (self.hidden, kv),
            "v_proj": (self.hidden, kv),
            "o_proj": (heads, self.hidden),
            "gate_proj": (self.hidden, self.intermediate),
            "up_proj": (self.hidden, self.intermediate),
            "down_proj": (self.intermediate, self.hidden),
        }

    @property
    def parameters(self) -> int:
        """Embeddings, the layers' matrices and norms, the last norm: a dense decoder without biases."""
        layer = sum(into * out for into, out in self.matrices.values()) + 2 * self.hidden
        return (1 if self.tied else 2) * self.vocabulary * self.hidden + self.layers * layer + self.hidden


def read_shape(folder: Path) -> Shape | None:
    """The shape in ``folder/config.json``; None where there is none, or it is no dense decoder's."""
    try:
        config: Mapping[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    config = config.get("text_config", config)
    if any("experts" in key and value for key, value in config.items()):
        return None
    try:
        heads = config["num_attention_heads"]
        return Shape(
            layers=config["num_hidden_layers"],
            hidden=config["hidden_size"],
            intermediate=config["intermediate_size"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            vocabulary=config["vocab_size"],
            tied=bool(config.get("tie_word_embeddings", False)),
        )
    except KeyError:
        return None


def count_parameters(folder: Path) -> int | None:
    """How many numbers the safetensors files of a folder hold, by their heads; None where there are none."""
    files = sorted(folder.glob("*.safetensors"))
    try:
        return sum(map(_count, files)) if files else None
    except (OSError, ValueError, KeyError, struct.error):  # cut short, or not safetensors at all
        return None


def _count(path: Path) -> int:
    with path.open("rb") as file:
        (length,) = _HEAD.unpack(file.read(_HEAD.size))
        if length > path.stat().st_size:
            raise ValueError(f"{path}: no safetensors file")
        tensors = json.loads(file.read(length))
    return sum(math.prod(tensor["shape"]) for name, tensor in tensors.items() if name != "__metadata__")


def local_folder(path: str) -> Path | None:
    """Where a model's files are on this machine: a folder, the converted SmolLM2, or the hub's cache."""
    from callwright.serving.models.smollm2 import converted_folder

    if Path(path).is_dir():
        return Path(path)
    if path == "smollm2":
        return converted_folder()
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ModuleNotFoundError:
        return None
    try:
        found = try_to_load_from_cache(path, "config.json")
    except HFValidationError:  # no hub id
        return None
    return Path(found).parent if isinstance(found, str) else None

"""Weights for an engine in this process that holds a copy of its own: copied in place between two decode steps.

Invariant: the engine's thread copies the tensors, digests what it then holds and compares; only on equality does the
version change and the next token get sampled. After a difference the engine samples nothing any more.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import Any

import torch

from callwright.serving.engines.digest import checksum, tensor_digest
from callwright.serving.engines.engine import EngineError
from callwright.serving.engines.transformers_engine import TransformersEngine
from callwright.serving.errors import RunError
from callwright.training.weights.transfer import Receipt


def own_copy(model: Any) -> Any:
    """The model once more, for an engine to serve while the first is trained.

    A trainer may have put a ``forward`` of its own into a module, which holds on to the first model: a copy of it would
    compute with the weights that are being trained. The copy computes as its classes say.
    """
    served = copy.deepcopy(model).eval().requires_grad_(False)
    for module in served.modules():
        vars(module).pop("forward", None)
    return served


class LocalTransfer:
    """From a trainer's model to ``served``, the copy that ``engine`` samples from."""

    def __init__(self, engine: TransformersEngine, served: Any) -> None:
        self._engine = engine
        self._served = served
        self._held: dict[str, int] = {}

    def send(self, version: int, model: Any) -> Receipt:
        started = time.monotonic()
        source: dict[str, torch.Tensor] = model.state_dict()
        sent = _digests(source)
        changed = {name: source[name] for name, digest in sent.items() if self._held.get(name) != digest}
        paused = 0.0

        def apply() -> None:
            nonlocal paused
            standing = time.monotonic()
            held: dict[str, torch.Tensor] = self._served.state_dict()
            self._write(held, changed)
            self._held = _digests(held)
            _require_equal(version, sent, self._held)
            paused = time.monotonic() - standing

        try:
            self._engine.update(version, apply)
        except EngineError as error:
            raise RunError(f"sending the weights of version {version}: {error}") from error
        if self._engine.version != version:
            raise RunError(f"the engine samples from version {self._engine.version} after it was sent {version}")
        size = sum(tensor.nbytes for tensor in changed.values())
        return Receipt(version, checksum(self._held), size, time.monotonic() - started, paused)

    def _write(self, held: dict[str, torch.Tensor], changed: dict[str, torch.Tensor]) -> None:
        for name, tensor in changed.items():
            if name in held:
                held[name].copy_(tensor)

    def close(self) -> None:
        self._held = {}


def _digests(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    return {name: tensor_digest(tensor) for name, tensor in tensors.items()}


def _require_equal(version: int, sent: dict[str, int], held: dict[str, int]) -> None:
    """Raises RunError, with both sides' checksums and a tensor that differs, unless the engine holds what was sent."""
    if sent == held:
        return
    wrong = sorted(name for name in sent.keys() | held.keys() if sent.get(name) != held.get(name))
    raise RunError(
        f"the engine does not hold the weights of version {version}: checksum {checksum(sent)} was sent and "
        f"{checksum(held)} is there; {len(wrong)} of {len(sent)} tensors differ, such as {wrong[0]}"
    )

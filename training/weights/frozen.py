"""A watch for training that reaches nobody: the optimizer moves, and what is sent stays the same.

It happens when an adapter is trained and its base is sent, when a wrapper hands out a copy, or when a folder is read
that nobody writes any more; rollouts go on, rewards stay flat, and no checksum is wrong.
"""

from __future__ import annotations

from typing import Any

from callwright.serving.engines.digest import checksum, tensor_digest
from callwright.serving.errors import RunError
from callwright.training import processes
from callwright.training.weights.tensors import trainable_tensors
from callwright.training.weights.transfer import Receipt


class FrozenWatch:
    """Looks at every receipt. ``patience``: how many in a row may bring nothing new although the optimizer moved."""

    def __init__(self, patience: int = 2) -> None:
        self._patience = patience
        self._trained = ""
        self._sent = ""
        self._frozen = 0

    def look(self, receipt: Receipt, model: Any) -> None:
        """Raises RunError when the optimizer moved, and no sent tensor did, ``patience`` times in a row."""
        trained = checksum({name: tensor_digest(tensor) for name, tensor in trainable_tensors(model)})
        # Of a sharded model each process sees its own shard alone.
        moved, changed = processes.any_of(trained != self._trained), receipt.checksum != self._sent
        first = not self._trained
        self._trained, self._sent = trained, receipt.checksum
        if first or changed or not moved:
            self._frozen = 0 if first or changed else self._frozen
            return
        self._frozen += 1
        if self._frozen >= self._patience:
            raise RunError(
                f"the optimizer moved the weights {self._frozen} times (trained tensors: checksum {trained}) and what "
                f"is sent to the engine stayed the same (checksum {receipt.checksum}, version {receipt.version}): the "
                "rollouts are not the trained policy's"
            )

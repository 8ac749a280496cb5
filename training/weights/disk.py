"""Weights through a folder that trainer and servers both see: on any machine, and on any number with a shared disk.

Invariant: a server is only ever told of a folder that is whole: written aside, synced, renamed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from callwright.serving.engines.digest import checksum, tensor_digest
from callwright.serving.engines.vllm.admin import Admin
from callwright.training import processes
from callwright.training.checkpoints import whole_folder
from callwright.training.weights.servers import Servers, numbers
from callwright.training.weights.tensors import policy_tensors, take_part
from callwright.training.weights.transfer import Receipt
from callwright.training.weights.verify import refuse_other_memory, refuse_other_weights

SHARD_BYTES = 2 << 30  # held in memory at once beside the model


class DiskTransfer:
    """Sends whole models. ``folder`` keeps the newest version alone; it must mean the same on every server."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self._servers = servers
        self._folder = folder.absolute()

    def send(self, version: int, model: Any) -> Receipt:
        started = time.monotonic()
        target = self._folder / f"version-{version}"
        tensors = policy_tensors(model, self._servers.dtype)
        sent: dict[str, int] = {}
        size = 0
        if processes.is_first():
            sent, size = write_shards(target, tensors)
        else:
            take_part(tensors)

        def load(server: Admin) -> None:
            for worker in server.ask_workers("callwright_load", folder=str(target)):
                refuse_other_weights(server.url, version, sent, numbers(worker))
            refuse_other_memory(server.url, version, sent, server.ask_workers("callwright_held"))

        paused = self._servers.bring(version, model, load)
        if processes.is_first():
            for older in self._folder.glob("version-*"):
                if older != target:
                    shutil.rmtree(older)
        return processes.told_by_first(
            lambda: Receipt(version, checksum(sent), size, time.monotonic() - started, paused)
        )

    def close(self) -> None:
        self._servers.close()


def write_shards(target: Path, tensors: Iterable[tuple[str, torch.Tensor]]) -> tuple[dict[str, int], int]:
    """Write safetensors into a new folder ``target``, whole or not at all; each tensor's digest, and the bytes."""
    from safetensors.torch import save_file

    digests: dict[str, int] = {}
    shard: dict[str, torch.Tensor] = {}
    total = held = 0
    shutil.rmtree(target, ignore_errors=True)  # of a run before this one
    with whole_folder(target) as staging:

        def flush() -> None:
            save_file(shard, staging / f"model-{len(list(staging.iterdir())):05d}.safetensors")
            shard.clear()

        for name, tensor in tensors:
            size = tensor.numel() * tensor.element_size()
            if shard and held + size > SHARD_BYTES:
                flush()
                held = 0
            shard[name] = tensor.contiguous().cpu()
            digests[name] = tensor_digest(tensor)
            held, total = held + size, total + size
        flush()
    return digests, total

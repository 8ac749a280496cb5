"""Weights from GPU to GPU, through vLLM's own trainer engine for NCCL; nothing touches a disk.

The servers must have been started with ``--weight-transfer-config '{"backend": "nccl"}'``, and vLLM must be importable
here too: its engine speaks both sides of the protocol. What arrived is proved as for every back end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from callwright.serving.engines.digest import checksum, tensor_digest
from callwright.serving.engines.vllm.admin import Admin
from callwright.serving.errors import UserError
from callwright.training.weights.servers import Servers
from callwright.training.weights.tensors import policy_tensors
from callwright.training.weights.transfer import Receipt
from callwright.training.weights.verify import refuse_other_memory


class NcclTransfer:
    """Sends whole models to one server of ``workers`` GPUs. ``address`` and ``port`` are where the workers find the
    trainer; ``rank`` is this trainer process's: all of them iterate a sharded model, the first sends."""

    def __init__(self, servers: Servers, *, workers: int, address: str, port: int, rank: int = 0) -> None:
        (self._server,) = servers.admins
        self._servers = servers
        self._group = (workers + 1, address, port, rank)
        self._engine: Any = None

    def send(self, version: int, model: Any) -> Receipt:
        started = time.monotonic()
        if self._engine is None:
            self._engine = self._opened(model)
        sent: dict[str, int] = {}
        size = 0
        for name, tensor in policy_tensors(model):
            sent[name] = tensor_digest(tensor)
            size += tensor.numel() * tensor.element_size()

        def load(server: Admin) -> None:
            self._engine.send_weights()
            refuse_other_memory(server.url, version, sent, server.ask_workers("callwright_held"))

        paused = self._servers.bring(version, model, load)
        return Receipt(version, checksum(sent), size, time.monotonic() - started, paused)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.shutdown()
        self._servers.close()

    def _opened(self, model: Any) -> Any:
        try:
            from vllm.distributed.weight_transfer import HTTPVLLMWeightSyncClient
            from vllm.distributed.weight_transfer.nccl_engine import (
                NCCLTrainerInitInfo,
                NCCLTrainerWeightTransferEngine,
            )
        except ImportError as error:
            raise UserError(f"weights.backend=nccl needs vLLM in the trainer's environment too: {error}") from error
        world, address, port, rank = self._group
        return NCCLTrainerWeightTransferEngine.trainer_init(
            NCCLTrainerInitInfo(address, port, world, rank=rank),
            client=HTTPVLLMWeightSyncClient(self._server.url),
            source=_source(model),
        )


def _source(model: Any) -> Any:
    """vLLM's view of a trainer's weights: what is sent is what ``policy_tensors`` gives."""
    from vllm.distributed.weight_transfer import ParamMeta, WeightSource

    class PolicySource(WeightSource):  # type: ignore[misc]
        def metadata(self) -> list[Any]:
            return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in policy_tensors(model)]

        def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
            return policy_tensors(model)

    return PolicySource()

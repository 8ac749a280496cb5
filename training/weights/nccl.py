"""Weights from GPU to GPU, through vLLM's own trainer engine for NCCL; nothing touches a disk.

The servers must have been started with ``--weight-transfer-config '{"backend": "nccl"}'``, and vLLM must be importable
here too: its engine speaks both sides of the protocol. What arrived is proved as for every back end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from callwright.serving.engines.digest import checksum, tensor_digest
from callwright.serving.engines.vllm.admin import Admin
from callwright.serving.errors import UserError
from callwright.training import processes
from callwright.training.weights.servers import Servers
from callwright.training.weights.tensors import policy_tensors, take_part
from callwright.training.weights.transfer import Receipt
from callwright.training.weights.verify import refuse_other_memory


class NcclTransfer:
    """Sends whole models to one server of ``workers`` GPUs. ``address`` and ``port`` are where the workers find the
    trainer. Of several trainer processes the first sends, from a copy of the whole model that all put together."""

    def __init__(self, servers: Servers, *, workers: int, address: str, port: int) -> None:
        (self._server,) = servers.admins
        self._servers = servers
        self._group = (workers + 1, address, port)
        self._engine: Any = None
        self._tensors: Callable[[], Iterator[tuple[str, torch.Tensor]]] = lambda: iter(())

    def send(self, version: int, model: Any) -> Receipt:
        started = time.monotonic()
        self._tensors = self._source(model)
        processes.told_by_first(self._open)
        sent: dict[str, int] = {}
        size = 0
        if processes.is_first():
            for name, tensor in self._tensors():
                sent[name] = tensor_digest(tensor)
                size += tensor.numel() * tensor.element_size()

        def load(server: Admin) -> None:
            self._engine.send_weights()
            refuse_other_memory(server.url, version, sent, server.ask_workers("callwright_held"))

        paused = self._servers.bring(version, model, load)
        return processes.told_by_first(
            lambda: Receipt(version, checksum(sent), size, time.monotonic() - started, paused)
        )

    def close(self) -> None:
        if self._engine is not None:
            self._engine.shutdown()
        self._servers.close()

    def _source(self, model: Any) -> Callable[[], Iterator[tuple[str, torch.Tensor]]]:
        """What gives the model's tensors, any number of times, in the first process without the others."""
        dtype = self._servers.dtype
        if processes.count() == 1:
            return lambda: policy_tensors(model, dtype)
        if not processes.is_first():
            take_part(policy_tensors(model, dtype))
            return lambda: iter(())
        whole = list(policy_tensors(model, dtype))
        return lambda: iter(whole)

    def _open(self) -> None:
        if self._engine is not None:
            return
        try:
            from vllm.distributed.weight_transfer import HTTPVLLMWeightSyncClient
            from vllm.distributed.weight_transfer.nccl_engine import (
                NCCLTrainerInitInfo,
                NCCLTrainerWeightTransferEngine,
            )
        except ImportError as error:
            raise UserError(f"weights.backend=nccl needs vLLM in the trainer's environment too: {error}") from error
        world, address, port = self._group
        self._engine = NCCLTrainerWeightTransferEngine.trainer_init(
            NCCLTrainerInitInfo(address, port, world, rank=0),
            client=HTTPVLLMWeightSyncClient(self._server.url),
            source=_weight_source(lambda: self._tensors()),
        )


def _weight_source(tensors: Callable[[], Iterator[tuple[str, torch.Tensor]]]) -> Any:
    """vLLM's view of a trainer's weights: what is sent is what ``tensors`` gives at that time."""
    from vllm.distributed.weight_transfer import ParamMeta, WeightSource

    class PolicySource(WeightSource):  # type: ignore[misc]
        def metadata(self) -> list[Any]:
            return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors()]

        def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
            return tensors()

    return PolicySource()

"""What a vLLM server must be started with so that weights can be sent to it, and the transfer for each way."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path
from typing import Any

import torch

from callwright.serving.engines.vllm.admin import EXTENSION, Admin
from callwright.serving.engines.vllm.engine import VllmEngine
from callwright.training.config import Config
from callwright.training.weights.disk import DiskTransfer
from callwright.training.weights.lora import ADAPTER, LoraTransfer
from callwright.training.weights.nccl import NcclTransfer
from callwright.training.weights.servers import Servers
from callwright.training.weights.transfer import WeightTransfer

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what --max-lora-rank takes


def server_arguments(config: Config) -> dict[str, Any]:
    """Arguments of ``vllm serve``, for ``engine.vllm.sync``."""
    arguments: dict[str, Any] = {"worker-extension-cls": EXTENSION}
    if config.engine.vllm.sync == "nccl":
        arguments["weight-transfer-config"] = {"backend": "nccl"}
    elif config.engine.vllm.sync == "lora":
        assert config.model.lora is not None
        rank = next(rank for rank in _RANKS if rank >= config.model.lora.r)
        arguments |= {"enable-lora": True, "max-loras": 1, "max-lora-rank": rank}
    return arguments


def server_variables(config: Config) -> dict[str, str]:
    """Variables of its environment. They open the routes that change weights: keep such a server on loopback."""
    variables = {"VLLM_SERVER_DEV_MODE": "1"}
    if config.engine.vllm.sync == "lora":
        variables["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    return variables


def transfer_to(config: Config, engine: VllmEngine, folder: Path) -> WeightTransfer:
    """The transfer for ``engine.vllm.sync``; ``folder`` is where weights may lie on their way."""
    admins, dtype = [Admin(url) for url in engine.urls], getattr(torch, config.engine.dtype)
    if config.engine.vllm.sync == "lora":
        return LoraTransfer(Servers(admins, partial(engine.holds, model=ADAPTER), ADAPTER, dtype), folder)
    servers = Servers(admins, engine.holds, dtype=dtype)
    if config.engine.vllm.sync == "nccl":
        with socket.socket() as free:
            free.bind(("", 0))
            port = int(free.getsockname()[1])
        workers = admins[0].world_size()
        return NcclTransfer(servers, workers=workers, address=socket.gethostname(), port=port)
    return DiskTransfer(servers, folder)

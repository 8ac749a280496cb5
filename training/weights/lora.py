"""A LoRA adapter alone: a few megabytes where the model has gigabytes; the server keeps the base that it started with.

The server must have been started with ``--enable-lora``, ``--max-lora-rank`` of at least the adapter's, and
``VLLM_ALLOW_RUNTIME_LORA_UPDATING=1``; the policy is then the model named ``ADAPTER`` there.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from callwright.serving.engines.digest import checksum, tensor_digest
from callwright.serving.engines.vllm.admin import Admin
from callwright.training import processes
from callwright.training.checkpoints import whole_folder
from callwright.training.weights.servers import Servers
from callwright.training.weights.tensors import adapter_tensors
from callwright.training.weights.transfer import Receipt
from callwright.training.weights.verify import refuse_other_memory

ADAPTER = "adapter"


class LoraTransfer:
    """Sends the active adapter of a PEFT model. ``folder`` keeps the newest version alone."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self._servers = servers
        self._folder = folder.absolute()

    def send(self, version: int, model: Any) -> Receipt:
        started = time.monotonic()
        target = self._folder / f"adapter-{version}"
        tensors = adapter_tensors(model, self._servers.dtype)
        if processes.is_first():
            shutil.rmtree(target, ignore_errors=True)  # of a run before this one
            with whole_folder(target) as staging:
                _save(staging, model, tensors)
        scale = _scale(model)
        sent = {_place(name): tensor_digest(_scaled(name, tensor, scale)) for name, tensor in tensors.items()}

        def load(server: Admin) -> None:
            server.load_adapter(ADAPTER, str(target))
            refuse_other_memory(server.url, version, sent, server.ask_workers("callwright_held_adapter"))

        paused = self._servers.bring(version, model, load)
        if processes.is_first():
            for older in self._folder.glob("adapter-*"):
                if older != target:
                    shutil.rmtree(older)
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        return processes.told_by_first(
            lambda: Receipt(version, checksum(sent), size, time.monotonic() - started, paused)
        )

    def close(self) -> None:
        self._servers.close()


def _save(folder: Path, model: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    """An adapter's folder as PEFT writes it, from tensors that are whole where the model's are shards."""
    from safetensors.torch import save_file

    save_file(
        {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, folder / "adapter_model.safetensors"
    )
    model.peft_config[model.active_adapter].save_pretrained(folder)


def _scale(model: Any) -> float:
    """What PEFT multiplies the adapter's product by: alpha over rank (Hu et al., 2021, arXiv 2106.09685)."""
    lora = model.peft_config[model.active_adapter]
    return float(lora.lora_alpha / (lora.r**0.5 if lora.use_rslora else lora.r))


def _scaled(name: str, tensor: torch.Tensor, scale: float) -> torch.Tensor:
    return tensor * scale if ".lora_B." in name else tensor  # a server folds the scale into B when it loads


def _place(name: str) -> str:
    """PEFT's name of a matrix -> the server's."""
    return (
        name.removeprefix("base_model.model.")
        .removesuffix(".weight")
        .replace("lora_A", "lora_a")
        .replace("lora_B", "lora_b")
    )

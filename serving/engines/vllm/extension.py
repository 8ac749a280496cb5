"""What a vLLM worker learns from us (``--worker-extension-cls``): to load weights, and to say which ones it has.

Runs inside the server's process, called through ``/collective_rpc``; the results travel as JSON. Invariant: a digest is
of what this process read or holds, never of what it was told.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from callwright.serving.engines.digest import tensor_digest


class WeightExtension:
    """Mixed into vLLM's worker, which has the ``model_runner``."""

    model_runner: Any

    def callwright_load(self, folder: str) -> dict[str, str]:
        """Load the safetensors of a folder in the place of the present weights; the digest of each as it was read."""
        digests: dict[str, str] = {}

        def read() -> Iterator[tuple[str, torch.Tensor]]:
            for name, tensor in _tensors(Path(folder)):
                digests[name] = f"{tensor_digest(tensor):x}"
                yield name, tensor

        self.model_runner.reload_weights(weights_iterator=read())
        _repack(self.model_runner.get_model())
        return digests

    def callwright_held(self) -> dict[str, Any]:
        """The digest of every parameter that the model holds as a plain tensor, by the server's name for it.

        Some CPU kernels keep a copy of their own and leave an empty tensor behind: those are left out. ``packed`` says
        which of the checkpoint's modules the server fuses.
        """
        model = self.model_runner.get_model()
        held = {
            name.replace(".base_layer.", "."): f"{tensor_digest(parameter):x}"
            for name, parameter in model.named_parameters()
            if parameter.numel()
        }
        return {"held": held, "packed": dict(getattr(model, "packed_modules_mapping", {}))}

    def callwright_held_adapter(self) -> dict[str, Any]:
        """The same of the one LoRA adapter that is served: the matrices of each module, ``lora_b`` scaled already."""
        manager = self.model_runner.lora_manager._adapter_manager
        (adapter,) = manager.list_adapters().values()
        held: dict[str, str] = {}
        for module, weights in adapter.loras.items():
            for which in ("lora_a", "lora_b"):
                matrices = getattr(weights, which)
                parts = matrices if isinstance(matrices, list) else [matrices]  # of a fused module, None without one
                total = sum(tensor_digest(part) for part in parts if part is not None)
                held[f"{module}.{which}"] = f"{total % 2**64:x}"
        return {"held": held, "packed": dict(manager.packed_modules_mapping)}


def _repack(model: torch.nn.Module) -> None:
    """Make the CPU kernels' copies anew. vLLM 0.31 does so for the layers that it loads into, but not for an output
    layer that is tied to the embedding: it would go on with the old weights."""
    packed: list[Any] = [module for module in model.modules() if hasattr(module, "cpu_linear")]
    kept = [module for module in packed if module.weight.numel()]
    if kept:
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        for module in kept:
            dispatch_cpu_unquantized_gemm(module, remove_weight=False)


def _tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and tensor, file after file. Raises FileNotFoundError for a folder without weights."""
    from safetensors import safe_open

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no safetensors in {folder}")
    for file in files:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - it cannot be iterated
                yield name, opened.get_tensor(name)

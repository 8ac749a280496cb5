"""The tensors that make up the policy, under the names of a plain checkpoint, whatever wraps them in training.

Invariant: what comes out computes what the trainer's model computes: an adapter is added to its base weight in a new
tensor, never in place, so that the base stays as it was to the bit; a sharded tensor comes out whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from callwright.serving.errors import RunError


def policy_tensors(model: Any, dtype: torch.dtype | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of every parameter, tied ones once; one at a time, so that a copy need not hold them all.

    ``dtype``: what those of floating point are rounded to. Every process of a trainer must iterate, because a sharded
    tensor is put together by all (``take_part``). Raises RunError for a PEFT method that adds no plain delta.
    """
    base, adapters = _unwrapped(model)
    with torch.no_grad():
        for name, parameter in base.named_parameters():
            if any(name.startswith(f"{module}.lora_") for module in adapters):
                continue
            module, _, leaf = name.removesuffix(".weight").rpartition(".")
            tensor = _whole(parameter)
            if leaf == "base_layer" and name.endswith(".weight"):
                layer = adapters[module]
                for adapter in layer.active_adapters:
                    tensor = tensor + layer.get_delta_weight(adapter).to(tensor.dtype)
            rounded = tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor
            yield name.replace(".base_layer.", "."), rounded.detach()


def take_part(tensors: Iterator[tuple[str, torch.Tensor]]) -> None:
    """Put the tensors together with the other processes, and keep none."""
    for _ in tensors:
        pass


def adapter_tensors(model: Any, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """The adapter alone, under the names that PEFT saves it with, rounded to ``dtype``. Every process must call."""
    from peft import get_peft_model_state_dict

    with torch.no_grad():
        return {name: _whole(tensor).detach().to(dtype) for name, tensor in get_peft_model_state_dict(model).items()}


def trainable_tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, local shard) of what the optimizer moves."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            local = getattr(parameter, "to_local", None)
            yield name, parameter.detach() if local is None else local().detach()


def _unwrapped(model: Any) -> tuple[Any, dict[str, Any]]:
    """The model under PEFT, and its layers with adapters by their name there."""
    if not hasattr(model, "get_base_model"):
        return model, {}
    from peft.tuners.tuners_utils import BaseTunerLayer

    base = model.get_base_model()
    layers = {name: module for name, module in base.named_modules() if isinstance(module, BaseTunerLayer)}
    strange = [name for name, layer in layers.items() if not hasattr(layer, "get_delta_weight")]
    if strange:
        raise RunError(f"the adapter at {strange[0]} adds no plain delta to a weight; only LoRA's weights can be sent")
    return base, layers


def _whole(parameter: torch.Tensor) -> torch.Tensor:
    full = getattr(parameter, "full_tensor", None)
    return parameter if full is None else full()

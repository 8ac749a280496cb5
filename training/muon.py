"""Muon in float32 for the hidden matrices, AdamW for the rest.

torch.optim.Muon runs its iteration in bfloat16, which a CPU without bf16 arithmetic does an order of magnitude slower
than float32; this is the same update in float32. Source: Jordan et al., 2024, "Muon: an optimizer for hidden layers in
neural networks" (quintic Newton-Schulz coefficients and the 0.2 * sqrt(max(rows, columns)) scale of Liu et al., 2025).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class MuonAdamW(torch.optim.Optimizer):
    """One optimizer over two kinds of groups: ``muon: True`` groups hold matrices, the others follow AdamW (no
    decay)."""

    def __init__(self, model: torch.nn.Module, *, muon_lr: float, lr: float, momentum: float = 0.95) -> None:
        hidden: list[torch.nn.Parameter] = []
        rest: list[torch.nn.Parameter] = []
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                (hidden if parameter.ndim == 2 and "embed" not in name and "head" not in name else rest).append(
                    parameter
                )
        groups = [
            {"params": hidden, "lr": muon_lr, "muon": True},
            {"params": rest, "lr": lr, "muon": False},
        ]
        super().__init__(groups, {"momentum": momentum, "betas": (0.9, 0.95), "eps": 1e-8})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update from the gradients that are there."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    (self._muon if group["muon"] else self._adamw)(parameter, group)
        return loss

    def _muon(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        assert parameter.grad is not None
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
        update = _orthogonal(parameter.grad.lerp(state["momentum"], group["momentum"]))
        parameter.add_(update, alpha=-group["lr"] * 0.2 * max(parameter.shape) ** 0.5)

    def _adamw(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        assert parameter.grad is not None
        state = self.state[parameter]
        if "step" not in state:
            state.update(step=0, mean=torch.zeros_like(parameter), square=torch.zeros_like(parameter))
        state["step"] += 1
        first, second = group["betas"]
        state["mean"].lerp_(parameter.grad, 1 - first)
        state["square"].lerp_(parameter.grad.square(), 1 - second)
        mean = state["mean"] / (1 - first ** state["step"])
        square = state["square"] / (1 - second ** state["step"])
        parameter.addcdiv_(mean, square.sqrt() + group["eps"], value=-group["lr"])


def _orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Five Newton-Schulz steps towards the nearest orthogonal matrix; shape [rows, columns] in and out."""
    a, b, c = _COEFFICIENTS
    x: torch.Tensor = matrix / (matrix.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x

"""What the loss does about tokens that another policy sampled: a stale one, or the same one in another numerics.

Invariants: the sampler's logprob of a token is that of the very distribution it was drawn from, so a turn that several
versions sampled is corrected token by token; weights carry no gradient; rows and tokens outside the mask keep weight 1.

Of a batch the first pass measures, before any update on it, the policy that trains, pi, against the one that sampled,
mu. With TRL's ``vllm_importance_sampling_correction`` its logprobs become the old policy's of TRL's loss (decoupled
PPO: Hilton et al., 2022, "Batch size-invariance for policy optimization", eq. 3), and pi / mu, bounded, weighs each
token. Without, mu is the old policy, and the clip of the loss is the only bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from callwright.training.mismatch import Bounds

Inputs = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Corrections:
    """TRL's keys without their prefix: ``correction`` on or off; ``mode`` token or sequence, truncate or mask; ``low``
    and ``high`` bound the ratio. ``dppo_threshold`` is the config's."""

    correction: bool = False
    mode: str = "token_truncate"
    low: float | None = None
    high: float | None = None
    dppo_threshold: float | None = None

    @classmethod
    def of(cls, arguments: Any, dppo_threshold: float | None) -> Corrections:
        """From TRL's GRPOConfig."""
        return cls(
            correction=arguments.vllm_importance_sampling_correction,
            mode=arguments.vllm_importance_sampling_mode,
            low=arguments.vllm_importance_sampling_clip_min,
            high=arguments.vllm_importance_sampling_clip_max,
            dppo_threshold=dppo_threshold,
        )

    @property
    def bounds(self) -> Bounds | None:
        """What limits the ratios, where they are used."""
        if not self.correction:
            return None
        return Bounds(self.low, self.high, of_rows=self.mode.startswith("sequence"))

    def apply(self, inputs: Inputs, kept: Inputs, logps: torch.Tensor, mask: torch.Tensor, loss_type: str) -> None:
        """Correct ``inputs``, the loss's own copy, between its forward pass and the rest of it.

        ``kept`` lives as long as the micro-batch does and remembers its first pass; ``logps`` [rows, tokens] are the
        model's now, without gradient; ``mask`` the tokens that count.
        """
        if self.correction:
            self._decouple(inputs, kept, logps, mask, loss_type)
        if self.dppo_threshold is not None:
            advantages = _columns(inputs["advantages"])
            inside = dppo_mask(logps, inputs["sampling_per_token_logps"], advantages, self.dppo_threshold)
            inputs["advantages"] = advantages * inside

    def _decouple(self, inputs: Inputs, kept: Inputs, logps: torch.Tensor, mask: torch.Tensor, loss_type: str) -> None:
        if "importance_weights" not in kept:
            kept["old_per_token_logps"] = logps
            kept["importance_weights"] = importance_weights(
                logps, inputs["sampling_per_token_logps"], mask, mode=self.mode, low=self.low, high=self.high
            )
        inputs["old_per_token_logps"] = kept["old_per_token_logps"]
        if loss_type == "vespo":  # it takes them into its own weight of the whole sequence
            inputs["importance_sampling_ratio"] = kept["importance_weights"]
        else:
            inputs["advantages"] = _columns(inputs["advantages"]) * kept["importance_weights"]


def importance_weights(
    logps: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor, *, mode: str, low: float | None, high: float | None
) -> torch.Tensor:
    """pi / mu from logprobs [rows, tokens] in nats, bounded: [rows, tokens], or [rows, 1] for a whole sequence.

    ``*_truncate`` clamps a ratio to [low, high] (Espeholt et al., 2018, IMPALA, section 4.1), ``*_mask`` makes it 0
    outside; as TRL's ``vllm_importance_sampling_mode`` does.
    """
    difference = (logps - sampled) * mask
    if mode.startswith("sequence"):
        difference = difference.sum(-1, keepdim=True)
    ratio = difference.exp()
    if mode.endswith("truncate"):
        return ratio.clamp(min=low, max=high)
    return ratio.masked_fill(Bounds(low, high).outside(ratio), 0.0)


def dppo_mask(logps: torch.Tensor, sampled: torch.Tensor, advantages: torch.Tensor, threshold: float) -> torch.Tensor:
    """False for a token whose probability moved from mu by more than ``threshold`` in the direction of its advantage:
    the binary total variation |pi - mu| of DPPO (Qi et al., 2026, "Rethinking the trust region in LLM reinforcement
    learning"). Logprobs [rows, tokens]; advantages broadcast to them."""
    moved = logps.exp() - sampled.exp()
    return ~((moved.abs() > threshold) & (moved.sign() == advantages.sign()))


def _columns(advantages: torch.Tensor) -> torch.Tensor:
    """[rows] as [rows, 1]; what has a value a token stays."""
    return advantages[:, None] if advantages.ndim == 1 else advantages

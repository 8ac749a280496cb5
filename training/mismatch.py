"""How far the policy that trains is from the one that sampled: figures of one batch, before any update on it.

Invariant: a figure is that of the whole batch, whatever micro-batches it came in; tokens outside the mask are not in
it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

LARGEST = 20.0  # a log-ratio beyond this is a broken sampler: bounded, so that one token cannot make a figure infinite


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range of ratios that are used as they are: of tokens, or with ``of_rows`` of whole rows."""

    low: float | None
    high: float | None
    of_rows: bool = False

    def outside(self, ratio: torch.Tensor) -> torch.Tensor:
        """Which ratios lie outside, as a boolean tensor of the same shape."""
        below = torch.zeros_like(ratio, dtype=torch.bool) if self.low is None else ratio < self.low
        return below if self.high is None else below | (ratio > self.high)


class Mismatch:
    """Adds micro-batches up. pi trains, mu sampled; logprobs in nats."""

    def __init__(self) -> None:
        self.parts = 0
        self._tokens: list[torch.Tensor] = []
        self._rows: list[torch.Tensor] = []

    def add(self, logps: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> None:
        """Logprobs [rows, tokens] under pi and mu, and which tokens count."""
        difference = (logps - sampled).clamp(-LARGEST, LARGEST) * mask
        self.parts += 1
        self._tokens.append(difference[mask])
        self._rows.append(difference.sum(1)[mask.any(1)])

    def figures(self, bounds: Bounds | None) -> dict[str, float]:
        """Of the batch; empty without a token.

        ``ratio_error_max``: |pi / mu - 1| of the worst token.
        ``mismatch_kl``: KL(mu | pi) a token, by the estimator k3 = r - 1 - log r with r = pi / mu (Schulman, 2020,
        "Approximating KL divergence").
        ``effective_sample_size``: (sum w)^2 / (n sum w^2) of the rows' ratios w, as a share of n rows (Kish, 1965).
        ``bounded_share``: ratios outside ``bounds``, where there are any.
        """
        tokens, rows = torch.cat(self._tokens), torch.cat(self._rows)
        if not tokens.numel():
            return {}
        ratio = tokens.exp()
        weights = (rows - rows.max()).double().exp()
        figures = {
            "ratio_error_max": float((ratio - 1).abs().max()),
            "mismatch_kl": float((ratio - 1 - tokens).mean()),
            "effective_sample_size": float(weights.sum() ** 2 / (weights**2).sum() / weights.numel()),
        }
        if bounds is not None:
            figures["bounded_share"] = float(bounds.outside(rows.exp() if bounds.of_rows else ratio).float().mean())
        return figures

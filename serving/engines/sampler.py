"""Drawing tokens with addressed random numbers.

Invariant: the draw at (key, position) is a pure function of the two, so any batch, order or restart gives the same
uniform number. The hash is SplitMix64 (Steele, Lea and Flood, 2014, "Fast splittable pseudorandom number generators").
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def address(*parts: object) -> int:
    """A 63-bit key for a tuple of parts, stable across processes and Python versions."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def uniforms(keys: NDArray[np.uint64], positions: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1), one per (key, position) pair; both arrays of shape [n]."""
    with np.errstate(over="ignore"):
        z = keys + (positions + np.uint64(1)) * _GAMMA
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
        z = z ^ (z >> np.uint64(31))
    drawn: NDArray[np.float64] = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return drawn


def sample(
    logits: torch.Tensor, draws: torch.Tensor, temperature: torch.Tensor, top_p: torch.Tensor, top_k: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample one token a row by inverting the distribution's cumulative sum.

    ``logits`` [n, vocab]; ``draws``, ``temperature``, ``top_p``, ``top_k`` [n] (temperature 0: greedy; top_p 1 and
    top_k 0: off). Returns (tokens [n] int64, logprobs [n] float32 in nats, under the distribution that was sampled
    from).
    """
    logits = logits.float()
    greedy = temperature <= 0
    if bool(greedy.all()):
        logprobs = logits.log_softmax(-1)
        chosen = logits.argmax(-1)
        return chosen, logprobs.gather(-1, chosen[:, None])[:, 0]
    scale = torch.where(greedy, torch.ones_like(temperature), temperature)
    logprobs = (logits / scale[:, None]).log_softmax(-1)
    truncated = ~greedy & ((top_k > 0) | (top_p < 1))
    if bool(truncated.any()):  # a row's neighbours must not change its numbers: the others keep theirs as they are
        logprobs = torch.where(truncated[:, None], _truncate(logprobs, top_p, top_k), logprobs)
    cumulative = logprobs.double().exp().cumsum(-1)
    # The total is not exactly 1; scaling the draw by it keeps the last token reachable and the rest in proportion.
    targets = draws.to(cumulative)[:, None] * cumulative[:, -1:]
    chosen = torch.searchsorted(cumulative, targets, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    chosen = torch.where(greedy, logits.argmax(-1), chosen)
    return chosen, logprobs.gather(-1, chosen[:, None])[:, 0]


def _truncate(logprobs: torch.Tensor, top_p: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """Keep the top_k most likely tokens; of those, renormalised, the smallest set whose mass reaches top_p;
    renormalise."""
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logprobs.shape[-1], device=logprobs.device)
    limit = torch.where(top_k > 0, top_k, torch.full_like(top_k, logprobs.shape[-1]))
    ordered = ordered.masked_fill(rank[None, :] >= limit[:, None], float("-inf")).log_softmax(-1)
    mass = ordered.double().exp()
    drop = (mass.cumsum(-1) - mass >= top_p[:, None]) & (top_p < 1)[:, None]
    drop[:, 0] = False
    ordered = ordered.masked_fill(drop, float("-inf")).log_softmax(-1)
    return torch.empty_like(ordered).scatter_(-1, order, ordered)

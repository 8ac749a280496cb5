"""Digests of weights that both ends of a transfer can compute, however each lays them out.

Invariant: the digest of a tensor is a sum over its elements' bits, modulo 2**64, to which zeros add nothing. So it does
not change when a server transposes a tensor, pads it with zeros or cuts it into shards, and that of a fused tensor is
the sum of its parts' digests; one element that differs in one bit changes it. It tells what went wrong by accident, not
what somebody forged. Each element is mixed as SplitMix64 mixes (Steele, Lea and Flood, 2014).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch

_CHUNK = 1 << 22  # elements at a time: eight bytes each while they are mixed
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MASK = (1 << 64) - 1


def tensor_digest(tensor: torch.Tensor) -> int:
    """The digest of a tensor of any shape and dtype, on its own device; 0 for one without elements."""
    bits = tensor.detach().contiguous().view(-1).view(_WORDS[tensor.element_size()])
    total = 0
    for part in torch.split(bits, _CHUNK):
        total += int(_mixed(part.to(torch.int64)).sum())
    return total & _MASK


def checksum(digests: Mapping[str, int]) -> str:
    """One short text for named digests, whatever their order."""
    lines = (f"{name}={digests[name]:016x}" for name in sorted(digests))
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


def fused(digests: Mapping[str, int], name: str, packed: Mapping[str, list[str]]) -> int | None:
    """The digest that a server's tensor ``name`` must have; None where it is made of none of these.

    ``packed``: a server's module -> the modules that it fuses, such as ``qkv_proj -> q_proj, k_proj, v_proj``.
    """
    if name in digests:
        return digests[name]
    path = name.split(".")
    for module in set(path) & set(packed):
        parts = [".".join(part if step == module else step for step in path) for part in packed[module]]
        if any(part in digests for part in parts):  # an adapter need not have all of them
            return sum(digests.get(part, 0) for part in parts) & _MASK
    return None


def _mixed(x: torch.Tensor) -> torch.Tensor:
    # int64 wraps as uint64 does; the masks make its arithmetic shifts logical. 0 stays 0.
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return x ^ ((x >> 31) & 0x1FFFFFFFF)

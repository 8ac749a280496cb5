"""A digest of named tensors, so that two processes can show each other that they hold the same weights.

Invariant: equal names, dtypes, shapes and bytes give the same checksum, whatever the order, device or memory layout;
any difference gives another one (SHA-256). The steps are separate, so that a side that sees one tensor at a time can
use them too.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import torch


def tensor_digest(tensor: torch.Tensor) -> str:
    """The digest of one tensor's dtype, shape and bytes (row-major, in this machine's byte order), in hex."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    head = f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}\n"
    digest = hashlib.sha256(head.encode())
    digest.update(flat.numpy().data)
    return digest.hexdigest()


def tensor_digests(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """The digest of each tensor. Hashing holds no lock of Python's, so tensors are spread over the cores."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(tensors, pool.map(tensor_digest, tensors.values()), strict=True))


def checksum(digests: Mapping[str, str]) -> str:
    """The checksum of a whole model from its tensors' names and digests, in hex."""
    lines = (f"{name} {digests[name]}\n" for name in sorted(digests))
    return hashlib.sha256("".join(lines).encode()).hexdigest()

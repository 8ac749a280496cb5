"""Attention over a packed batch: each row over its prompt and itself, causally, so that no mask is needed.

An implementation for transformers' attention interface. Invariants: without a layout it is the plain one; what a layer
keeps for the backward pass is the packed queries, keys and values alone, the padded copies are made again.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from callwright.training.update.layout import Layout

NAME = "callwright_packed"


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    layout: Layout | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """``query``, ``key``, ``value`` [1, heads, N, width] of a layout's tokens; returns [1, N, heads, width]."""
    if layout is None:
        plain: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return plain
    packed = partial(_packed, module, layout, kwargs)
    if not torch.is_grad_enabled():
        return packed(query, key, value), None
    return checkpoint(packed, query, key, value, use_reentrant=False), None


def _packed(
    module: Any, layout: Layout, kwargs: dict[str, Any], query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    flat = [states[0].transpose(0, 1) for states in (query, key, value)]
    outputs = []
    for rows in layout.rows:
        padded = [pick(states, rows).transpose(1, 2) for states in flat]
        output, _ = sdpa_attention_forward(module, *padded, None, **{**kwargs, "is_causal": True})
        outputs.append(output.flatten(0, 1))
    return pick(torch.cat(outputs), layout.back)[None]


def pick(states: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """``states[index]`` along the first dimension, as an embedding: plain indexing is slow backwards on a CPU."""
    return torch.nn.functional.embedding(index, states.flatten(1)).view(*index.shape, *states.shape[1:])


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)

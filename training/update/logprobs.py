"""Logprobs and entropies of counted tokens, from one packed forward pass and a head that never holds their logits.

Invariants: the pass goes through the model as the trainer wrapped it (accelerate, PEFT), so that gradients are reduced
as ever; a call without a layout is the model's own.
"""

from __future__ import annotations

from functools import wraps
from types import MethodType
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from trl.kernels import ChunkedLogProbFunction
from trl.trainer.utils import maybe_gather_lm_head_ctx

from callwright.training.update.attention import NAME, pick
from callwright.training.update.layout import Layout, lay_out

CPU_TILE = 2**22
"""Logits held at once on a CPU: what its caches gain from. TRL's own size, 2**27, elsewhere."""
TILE = 2**27
NARROWEST = 256
"""Columns of the vocabulary at once, at least."""


def install(model: Any, temperature: float) -> None:
    """Let ``model`` (a causal LM, not wrapped) take ``layout=`` and return (logprobs [M], entropies [M]) for it."""
    plain = model.forward.__func__  # not bound to this model: a copy of it has weights of its own
    model.set_attn_implementation(NAME)

    @wraps(type(model).forward)  # ``generate`` reads the signature
    def forward(self: Any, *args: Any, layout: Layout | None = None, **kwargs: Any) -> Any:
        if layout is None:
            return plain(self, *args, **kwargs)
        return _packed(self, layout, temperature)

    model.forward = MethodType(forward, model)


def _packed(model: Any, layout: Layout, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    hidden = model.base_model(
        input_ids=layout.ids[None],
        position_ids=layout.positions[None],
        # A mask of four dimensions is passed on as it is; the attention takes the layout's.
        attention_mask=torch.ones(1, 1, 1, 1, dtype=torch.bool, device=layout.ids.device),
        use_cache=False,
        layout=layout,
    ).last_hidden_state[0]
    head = model.get_output_embeddings()
    weight, bias = (part.full_tensor() if isinstance(part, DTensor) else part for part in (head.weight, head.bias))
    tile = CPU_TILE if hidden.device.type == "cpu" else TILE
    vocabulary = max(NARROWEST, tile // max(1, len(layout.sources)))
    with maybe_gather_lm_head_ctx(weight, bias):
        logprobs, entropies, *_ = ChunkedLogProbFunction.apply(
            pick(hidden, layout.sources), weight, bias, layout.labels, temperature, vocabulary, None, 1.0, ("entropy",)
        )
    return logprobs, entropies


def packed_logprobs(
    model: Any, ids: torch.Tensor, mask: torch.Tensor, counted: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logprobs and entropies [rows, completion], 0 where a token is not counted; see ``lay_out`` for the arguments.

    ``model`` went through ``install``, below whatever wraps it now.
    """
    logprobs, entropies = model(layout=lay_out(ids, mask, counted))
    empty = torch.zeros(counted.shape, dtype=logprobs.dtype, device=counted.device)
    return empty.masked_scatter(counted, logprobs), empty.masked_scatter(counted, entropies)

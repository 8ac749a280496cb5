"""The key/value memory of the transformers engine: one row a resident session.

Invariants: rows ``[0, active)`` are decoding and stand together, so that a batch is a view and no step gathers; a row's
first ``length`` positions hold keys and values of exactly its ``ids``; what lies behind them is never attended to.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from callwright.serving.errors import UserError


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's window on the shared memory; ``update`` writes the new positions and returns the batch's view."""

    is_sliding = False

    def __init__(self, slots: Slots, index: int) -> None:
        super().__init__()
        self._slots = slots
        self._index = index
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """The memory is allocated by ``Slots``; nothing is left to do here."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._slots.write(self._index, key_states, value_states)

    def get_seq_length(self) -> int:
        return self._slots.span

    def get_max_length(self) -> int:
        return self._slots.context

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._slots.span, 0


class Slots:
    """Key/value rows of shape [layers, 2, rows, heads, context, head_dim], and the ``Cache`` that a model's forward
    takes."""

    def __init__(self, config: Any, rows: int, context: int, device: torch.device, dtype: torch.dtype) -> None:
        text = config.get_text_config()
        kinds = set(getattr(text, "layer_types", None) or ("full_attention",)) - {"full_attention"}
        if kinds:
            raise UserError(
                f"the transformers engine serves full attention only; this model has {', '.join(kinds)} layers"
            )
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        shape = (text.num_hidden_layers, 2, rows, heads, context, head_dim)
        self.memory = torch.zeros(shape, device=device, dtype=dtype)
        self.rows, self.context, self.span = rows, context, 0
        self.cache = Cache(layers=[_Layer(self, index) for index in range(text.num_hidden_layers)])
        self._batch = slice(0, 0)
        self._positions = torch.zeros(0, 0, dtype=torch.long)
        self._row_index = torch.arange(rows, device=device)

    def aim(self, start: int, positions: torch.Tensor, span: int) -> torch.Tensor:
        """Point the next forward at rows ``start...`` and positions [n, t]; returns the mask [n, 1, t, span] (True:
        attend)."""
        self._batch = slice(start, start + positions.shape[0])
        self._positions = positions
        self.span = span
        columns = torch.arange(span, device=positions.device)
        return columns[None, None, None, :] <= positions[:, None, :, None]

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Store keys and values [n, heads, t, head_dim] at the aimed positions; returns views of the aimed rows and
        span."""
        k, v = self.memory[layer, 0], self.memory[layer, 1]
        rows = self._row_index[self._batch][:, None]
        k[rows, :, self._positions] = keys.transpose(1, 2)
        v[rows, :, self._positions] = values.transpose(1, 2)
        return k[self._batch, :, : self.span], v[self._batch, :, : self.span]

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` positions of a row."""
        self.memory[:, :, target, :, :length] = self.memory[:, :, source, :, :length]

    def swap(self, a: int, b: int, length: int) -> None:
        """Exchange the first ``length`` positions of two rows."""
        if a == b:
            return
        held = self.memory[:, :, a, :, :length].clone()
        self.memory[:, :, a, :, :length] = self.memory[:, :, b, :, :length]
        self.memory[:, :, b, :, :length] = held

"""Cut a padded batch into micro-batches of like lengths, each only as wide as its longest row.

Rollouts with tools differ in length by an order of magnitude, and TRL pads a generation batch to its longest row.

Invariants: the rows and their values are the same as before; only columns that are padding in every row of a
micro-batch are dropped; the number of rows a micro-batch holds does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Batch = dict[str, Any]


def repack(batches: Sequence[Batch], *, sort: bool) -> list[Batch]:
    """The micro-batches again, trimmed, and with ``sort`` made of rows of like length.

    ``prompt_*`` tensors [rows, prompt] are padded on the left, the other two-dimensional ones [rows, completion] on the
    right; one-dimensional tensors [rows] go with their rows; scalars stay with their micro-batch.
    """
    sizes = [int(batch["completion_ids"].shape[0]) for batch in batches]
    if not sort:
        return [_trimmed(batch) for batch in batches]
    whole = {
        key: torch.cat([batch[key] for batch in batches])
        for key, value in batches[0].items()
        if isinstance(value, torch.Tensor) and value.ndim
    }
    lengths = whole["prompt_mask"].sum(1) + whole["completion_mask"].sum(1)
    parts = torch.split(torch.argsort(lengths, stable=True), sizes)
    return [
        _trimmed({**batch, **{key: value[rows] for key, value in whole.items()}})
        for batch, rows in zip(batches, parts, strict=True)
    ]


def _trimmed(batch: Batch) -> Batch:
    prompt = int(batch["prompt_mask"].sum(1).max())
    completion = int(batch["completion_mask"].sum(1).max())
    return {key: _cut(key, value, prompt, completion) for key, value in batch.items()}


def _cut(key: str, value: Any, prompt: int, completion: int) -> Any:
    if not isinstance(value, torch.Tensor) or value.ndim < 2:
        return value
    return value[:, value.shape[1] - prompt :] if key.startswith("prompt_") else value[:, :completion]

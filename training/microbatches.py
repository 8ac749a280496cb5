"""Cut a padded batch into micro-batches of rows that cost less together, each only as wide as its longest row.

Rollouts with tools differ in length by an order of magnitude, and TRL pads a generation batch to its longest row. Rows
of one prompt share its computation where a batch is packed; where it is not, rows of like length share their padding.

Invariants: the rows and their values are the same as before; only columns that are padding in every row of a
micro-batch are dropped; the number of rows a micro-batch holds does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Batch = dict[str, Any]
Order = Callable[[Batch], torch.Tensor]
"""The key [rows] by which rows are sorted before they are cut into micro-batches."""


def by_length(batch: Batch) -> torch.Tensor:
    """Rows of like length together."""
    lengths: torch.Tensor = batch["prompt_mask"].sum(1) + batch["completion_mask"].sum(1)
    return lengths


def by_prompt(batch: Batch) -> torch.Tensor:
    """Rows of one prompt together."""
    marked = torch.where(batch["prompt_mask"].bool(), batch["prompt_ids"], -1)
    prompts: torch.Tensor = torch.unique(marked, dim=0, return_inverse=True)[1]
    return prompts


def repack(batches: Sequence[Batch], order: Order | None) -> list[Batch]:
    """The micro-batches again, trimmed, and with an ``order`` made of rows that follow one another in it.

    ``prompt_*`` tensors [rows, prompt] are padded on the left, the other two-dimensional ones [rows, completion] on the
    right; one-dimensional tensors [rows] go with their rows; scalars stay with their micro-batch.
    """
    sizes = [int(batch["completion_ids"].shape[0]) for batch in batches]
    if order is None:
        return [_trimmed(batch) for batch in batches]
    whole = {
        key: torch.cat([batch[key] for batch in batches])
        for key, value in batches[0].items()
        if isinstance(value, torch.Tensor) and value.ndim
    }
    parts = torch.split(torch.argsort(order(whole), stable=True), sizes)
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

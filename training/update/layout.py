"""Where each token of a batch stands when its rows are packed into one sequence with every prompt in it once.

Invariants: a token that no counted token is predicted from is not there; every other is there once, with the position
it has in its row; the counted tokens keep the order in which the batch lists them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

SHORTEST = 0.8
"""Of the longest row of a bucket: rows that are shorter stand in another, so that at most a fifth is padding."""


@dataclass(frozen=True, slots=True)
class Layout:
    """N packed tokens: the prompts one after another, then the completions of the rows. M tokens are counted."""

    ids: torch.Tensor
    """[N]"""
    positions: torch.Tensor
    """[N], from 0 in each row."""
    rows: tuple[torch.Tensor, ...]
    """A bucket each [rows, tokens]: the tokens of rows of like length, prompt and completion, then any (padding)."""
    back: torch.Tensor
    """[N]: a place of each token in ``rows``, these flattened and laid end to end."""
    sources: torch.Tensor
    """[M]: the token that predicts each counted one."""
    labels: torch.Tensor
    """[M]: the ids of the counted tokens."""


def lay_out(ids: torch.Tensor, mask: torch.Tensor, counted: torch.Tensor) -> Layout:
    """The layout of a padded batch.

    ``ids``, ``mask`` [rows, prompt + completion], ``counted`` [rows, completion] bool. Prompts are padded on the left,
    completions on the right.
    """
    split = ids.shape[1] - counted.shape[1]
    kept = counted.any(1)
    kept[0] |= ~kept.any()  # a batch in which nothing counts still has a gradient, of zeros
    ids, mask, counted = ids[kept], mask[kept].bool(), counted[kept]
    # Each counted token is predicted by the one before it: the last one of a row is not needed itself.
    needed = (counted * torch.arange(counted.shape[1], device=ids.device)).amax(1)
    prompts, owner = torch.unique(torch.where(mask, ids, -1)[:, :split], dim=0, return_inverse=True)
    prompt_lengths = (prompts >= 0).sum(1)
    begin = prompt_lengths[owner]
    table, taken = _table(prompt_lengths, owner, needed)
    at = torch.arange(table.shape[1], device=ids.device)
    columns = begin[:, None] - 1 + torch.arange(counted.shape[1], device=ids.device)
    completion_ids = ids[:, split:]
    used = torch.arange(counted.shape[1], device=ids.device) < needed[:, None]
    packed = torch.cat([prompts[prompts >= 0], completion_ids[used]])
    rows, places = _buckets(table, begin + needed)
    return Layout(
        ids=packed,
        positions=torch.zeros_like(packed).scatter(0, table[taken], at.expand_as(table)[taken]),
        rows=rows,
        back=torch.full_like(packed, table.numel()).scatter_reduce(0, table[taken], places[taken], "amin"),
        sources=table.gather(1, columns.clamp(max=table.shape[1] - 1))[counted],
        labels=completion_ids[counted],
    )


def _table(
    prompt_lengths: torch.Tensor, owner: torch.Tensor, needed: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The packed index of each row's tokens [rows, longest], and which of these places are taken."""
    begin = prompt_lengths[owner][:, None]
    prompt_start = (prompt_lengths.cumsum(0) - prompt_lengths)[owner][:, None]
    completion_start = (prompt_lengths.sum() + needed.cumsum(0) - needed)[:, None]
    at = torch.arange(int((begin[:, 0] + needed).max()), device=owner.device)
    table = torch.where(at < begin, prompt_start + at, completion_start + at - begin)
    taken = at < begin + needed[:, None]
    return torch.where(taken, table, 0), taken


def _buckets(table: torch.Tensor, lengths: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """The rows of ``table`` in buckets of like length, and the place of each of its entries in these, laid end to
    end."""
    order = torch.argsort(lengths, descending=True, stable=True)
    buckets, places, start = [], torch.zeros_like(table), 0
    for first, last, longest in _cuts(lengths[order].tolist()):
        chosen = order[first:last]
        bucket = table[chosen, :longest]
        places[chosen, :longest] = start + torch.arange(bucket.numel(), device=table.device).view_as(bucket)
        buckets.append(bucket)
        start += bucket.numel()
    return tuple(buckets), places


def _cuts(lengths: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(first, last, longest) of each bucket of rows that are sorted by falling length."""
    first = 0
    for index in range(1, len(lengths) + 1):
        if index == len(lengths) or lengths[index] < SHORTEST * lengths[first]:
            yield first, index, lengths[first]
            first = index

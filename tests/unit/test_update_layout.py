"""Packing loses nothing that a counted token depends on, and computes nothing else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from callwright.training.update.layout import Layout, lay_out

pytestmark = pytest.mark.unit

PROMPTS = ([5, 6, 7], [5, 6], [8], [9, 9, 9, 9])
Row = tuple[int, list[bool]]
Rows = st.lists(st.tuples(st.integers(0, 3), st.lists(st.booleans(), min_size=1, max_size=9)), min_size=1, max_size=9)


def padded(rows: list[Row]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Completions of unique ids, whose counted tokens are those that are true."""
    width = max(len(counted) for _, counted in rows)
    ids = torch.zeros(len(rows), 4 + width, dtype=torch.long)
    mask, counted = torch.zeros_like(ids), torch.zeros(len(rows), width, dtype=torch.bool)
    for index, (prompt, chosen) in enumerate(rows):
        tokens = PROMPTS[prompt]
        ids[index, 4 - len(tokens) : 4] = torch.tensor(tokens)
        ids[index, 4 : 4 + len(chosen)] = torch.arange(len(chosen)) + 100 * (index + 1)
        mask[index, 4 - len(tokens) : 4 + len(chosen)] = 1
        counted[index, : len(chosen)] = torch.tensor(chosen)
    return ids, mask, counted


def needed(row: Row) -> list[int]:
    """Where in its completion a row has tokens that a counted one is predicted from."""
    last = max((place for place, counted in enumerate(row[1]) if counted), default=0)
    return list(range(last))


@settings(deadline=None, max_examples=40)
@given(Rows)
def test_every_needed_token_is_there_once(rows: list[Row]) -> None:
    ids, mask, counted = padded(rows)
    layout = lay_out(ids, mask, counted)
    alive = [(index, row) for index, row in enumerate(rows) if any(row[1])] or [(0, rows[0])]
    want = [100 * (index + 1) + place for index, row in alive for place in needed(row)]
    packed = layout.ids.tolist()
    prompts = {row[0] for _, row in alive}
    assert sorted(packed) == sorted(want + [token for prompt in prompts for token in PROMPTS[prompt]])

    contexts = {context(layout, row): row for bucket in layout.rows for row in bucket}
    for index, row in alive:
        expected = (*PROMPTS[row[0]], *(100 * (index + 1) + place for place in needed(row)))
        found = next(row for known, row in contexts.items() if known[: len(expected)] == expected)
        assert layout.positions[found[: len(expected)]].tolist() == list(range(len(expected)))


@settings(deadline=None, max_examples=40)
@given(Rows)
def test_counted_tokens_are_predicted_by_the_token_before_them(rows: list[Row]) -> None:
    ids, mask, counted = padded(rows)
    layout = lay_out(ids, mask, counted)
    assert layout.labels.tolist() == ids[:, 4:][counted].tolist()
    assert layout.ids[layout.sources].tolist() == ids[:, 3:-1][counted].tolist()


@settings(deadline=None, max_examples=40)
@given(Rows)
def test_every_token_has_a_place_and_little_is_padding(rows: list[Row]) -> None:
    layout = lay_out(*padded(rows))
    places = torch.cat([bucket.flatten() for bucket in layout.rows])
    assert places[layout.back].tolist() == list(range(len(layout.ids)))
    lengths = [len(PROMPTS[row[0]]) + len(needed(row)) for row in rows if any(row[1])]
    assert len(places) <= max(sum(lengths) / 0.8, len(PROMPTS[rows[0][0]]))


def context(layout: Layout, row: torch.Tensor) -> tuple[int, ...]:
    """The ids of a bucket's row."""
    return tuple(layout.ids[row].tolist())

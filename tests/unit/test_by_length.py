"""Bands of like length: whatever enters and leaves, they stand together and in order, and nothing is lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callwright.serving.engines.by_length import WASTE, ByLength, band_of

pytestmark = pytest.mark.unit

CONTEXT = 1024


@given(st.integers(0, 2**32))
def test_bands_stand_together_whatever_comes_and_goes(seed: int) -> None:
    rng = random.Random(seed)
    order = ByLength(CONTEXT)
    rows: list[int] = []  # the length of each row; a row's identity does not matter beyond it
    inside: list[int] = []
    for _ in range(60):
        if rows and rng.random() < 0.4:
            at = rng.randrange(len(rows))
            inside.remove(rows[at])
            swaps, moved = list(order.leave(at)), rows[at]
            for a, b in swaps:
                rows[a], rows[b] = rows[b], rows[a]
            assert rows.pop() == moved
        else:
            rows.append(rng.randint(1, CONTEXT))
            inside.append(rows[-1])
            swaps = list(order.enter(rows[-1]))
            for a, b in swaps:
                rows[a], rows[b] = rows[b], rows[a]
        assert len(swaps) <= band_of(CONTEXT) + 1
        assert order.settled == len(rows)
        assert sorted(rows) == sorted(inside)
        bands = [band_of(length) for length in rows]
        assert bands == sorted(bands)


@given(st.lists(st.integers(1, CONTEXT), min_size=1, max_size=300))
def test_passes_cover_every_row_once_and_waste_little(lengths: list[int]) -> None:
    order = ByLength(CONTEXT)
    rows: list[int] = []
    for length in lengths:
        rows.append(length)
        for a, b in order.enter(length):
            rows[a], rows[b] = rows[b], rows[a]
    passes = order.passes(rows)
    assert [row for first, count in passes for row in range(first, first + count)] == list(range(len(rows)))
    read = sum(count * max(rows[first : first + count]) for first, count in passes)
    # Within a band the longest row is at most twice the shortest; joining bands wastes less than WASTE each.
    assert read <= sum(max(64, 2 * length) for length in rows) + band_of(CONTEXT) * WASTE


def test_few_rows_are_one_pass() -> None:
    order = ByLength(CONTEXT)
    rows = [20, 300, 900]
    for length in rows:
        list(order.enter(length))
    assert order.passes(rows) == [(0, 3)]

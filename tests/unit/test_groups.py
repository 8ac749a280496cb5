"""Baselines, advantages and loss scales, with masked rows left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callwright.training.groups import (
    ROW_AVERAGED_LOSSES,
    GroupStats,
    advantages,
    group_stats,
    has_zero_variance,
    loss_scale,
)

pytestmark = pytest.mark.unit

SCALES = ("none", "group", "batch")
rewards = st.none() | st.sampled_from([0.0, 0.1, 1.0, 1.1]) | st.floats(-3, 3)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[float | None], int]:
    size, groups = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    return draw(st.lists(rewards, min_size=size * groups, max_size=size * groups)), size


def test_advantages_by_hand() -> None:
    values: list[float | None] = [1.0, 0.0, None, 0.0, 1.0, 1.0, None, None]
    assert advantages(values, 4).tolist() == pytest.approx([2 / 3, -1 / 3, 0, -1 / 3, 0, 0, 0, 0])
    spread = (1 / 3) ** 0.5  # of 1, 0, 0 with Bessel's correction
    scaled = advantages(values, 4, scale="group")
    assert scaled.tolist() == pytest.approx([x / (spread + 1e-4) for x in (2 / 3, -1 / 3, 0, -1 / 3)] + [0] * 4)
    whole = np.std([1, 0, 0, 1, 1], ddof=1)
    batch = advantages(values, 4, scale="batch")
    assert batch.tolist() == pytest.approx([x / (whole + 1e-4) for x in (2 / 3, -1 / 3, 0, -1 / 3)] + [0] * 4)


@given(batch=batches(), scale=st.sampled_from(SCALES))
def test_survivors_sum_to_zero_and_masked_rows_are_zero(batch: tuple[list[float | None], int], scale: str) -> None:
    values, size = batch
    got = advantages(values, size, scale=scale)
    assert got.shape == (len(values),)
    assert np.isfinite(got).all()
    assert all(got[at] == 0 for at, value in enumerate(values) if value is None)
    assert got.reshape(-1, size).sum(1) == pytest.approx(0, abs=1e-6)


@given(batch=batches(), scale=st.sampled_from(["none", "group"]))
def test_a_group_with_masked_rows_is_the_group_without_them(batch: tuple[list[float | None], int], scale: str) -> None:
    values, size = batch
    got = advantages(values, size, scale=scale).reshape(-1, size)
    for at, row in enumerate(got):
        group = values[at * size : (at + 1) * size]
        alive = [value for value in group if value is not None]
        if alive:
            kept = [float(x) for x, value in zip(row, group, strict=True) if value is not None]
            assert kept == pytest.approx(advantages(alive, len(alive), scale=scale).tolist(), abs=1e-9)


@given(batch=batches())
def test_statistics_count_what_is_there(batch: tuple[list[float | None], int]) -> None:
    values, size = batch
    stats = group_stats(values, size)
    assert (stats.groups, stats.rows) == (len(values) // size, len(values))
    assert stats.survivors == sum(value is not None for value in values)
    quiet = np.abs(advantages(values, size)).reshape(-1, size).max(1) < 1e-12
    assert stats.zero_variance <= int(quiet.sum())


def test_a_group_that_teaches_nothing() -> None:
    assert has_zero_variance([1.0, 1.0, None])
    assert has_zero_variance([None, None])
    assert has_zero_variance([0.5, None])
    assert not has_zero_variance([1.0, 0.0, None])
    assert group_stats([1.0, None, 1.0, 0.0, None, None], 2) == GroupStats(3, 2, 3, 6)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="whole groups"):
        advantages([1.0, 0.0, 1.0], 2)
    with pytest.raises(ValueError, match="unknown scale"):
        advantages([1.0, 0.0], 2, scale="sometimes")


def test_the_loss_scale_counts_rows_only_where_the_loss_does() -> None:
    for loss in ("grpo", "dr_grpo", "sapo", "luspo"):
        assert loss in ROW_AVERAGED_LOSSES
        assert loss_scale(loss, 6, 8) == pytest.approx(8 / 6)
        assert loss_scale(loss, 0, 8) == 1.0
    for loss in ("dapo", "bnpo", "cispo", "vespo"):
        assert loss_scale(loss, 6, 8) == 1.0

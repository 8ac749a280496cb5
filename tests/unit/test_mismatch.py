"""Figures of how far the trained policy is from the one that sampled, and the weights that correct for it, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from callwright.training.corrections import dppo_mask, importance_weights
from callwright.training.mismatch import Bounds, Mismatch

pytestmark = pytest.mark.unit

# Ratios of two rows; the last token of the second row does not count.
RATIOS = [[2.0, 0.5, 4.0], [1.0, 0.25, 9.0]]
MASK = torch.tensor([[True, True, True], [True, True, False]])
SAMPLED = torch.tensor([[-1.0, -2.0, -3.0], [-0.5, -1.5, -2.5]])
LOGPS = SAMPLED + torch.tensor(RATIOS).log()


def measured(*parts: slice, bounds: Bounds | None = None) -> dict[str, float]:
    mismatch = Mismatch()
    for rows in parts:
        mismatch.add(LOGPS[rows], SAMPLED[rows], MASK[rows])
    assert mismatch.parts == len(parts)
    return mismatch.figures(bounds)


def test_figures_are_those_of_the_whole_batch() -> None:
    tokens = [2.0, 0.5, 4.0, 1.0, 0.25]
    want = {
        "ratio_error_max": 3.0,
        "mismatch_kl": sum(r - 1 - math.log(r) for r in tokens) / 5,
        "effective_sample_size": (4.0 + 0.25) ** 2 / (4.0**2 + 0.25**2) / 2,
    }
    assert measured(slice(0, 2)) == pytest.approx(want, rel=1e-6)
    assert measured(slice(0, 1), slice(1, 2)) == pytest.approx(want, rel=1e-6)
    assert measured(slice(0, 2), bounds=Bounds(0.3, 3.0))["bounded_share"] == pytest.approx(2 / 5)
    assert measured(slice(0, 2), bounds=Bounds(None, 3.0, of_rows=True))["bounded_share"] == pytest.approx(1 / 2)


def test_a_batch_without_a_token_has_no_figures_and_a_broken_sampler_finite_ones() -> None:
    mismatch = Mismatch()
    mismatch.add(LOGPS, SAMPLED, torch.zeros_like(MASK))
    assert mismatch.figures(None) == {}
    mismatch.add(LOGPS, SAMPLED - 1e4, MASK)
    assert all(map(math.isfinite, mismatch.figures(None).values()))


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        ("token_truncate", [[2.0, 0.5, 3.0], [1.0, 0.3, 1.0]]),
        ("token_mask", [[2.0, 0.5, 0.0], [1.0, 0.0, 1.0]]),
        ("sequence_truncate", [[3.0], [0.3]]),
        ("sequence_mask", [[0.0], [0.0]]),
    ],
)
def test_weights_are_bounded_ratios(mode: str, want: list[list[float]]) -> None:
    weights = importance_weights(LOGPS, SAMPLED, MASK, mode=mode, low=0.3, high=3.0)
    assert torch.allclose(weights, torch.tensor(want), rtol=1e-5)
    free = importance_weights(LOGPS, SAMPLED, MASK, mode=mode, low=None, high=1e9)
    assert torch.allclose(free.flatten()[:1], torch.tensor([2.0 if mode.startswith("token") else 4.0]), rtol=1e-5)


def test_dppo_leaves_out_what_moved_far_in_its_advantages_direction() -> None:
    sampled = torch.tensor([0.5, 0.5, 0.5, 0.5, 0.01]).log()[None]
    now = torch.tensor([0.8, 0.8, 0.2, 0.2, 0.1]).log()[None]
    advantages = torch.tensor([[1.0, -1.0, 1.0, -1.0, 1.0]])
    # The last one's ratio is 10, but little probability has moved.
    assert dppo_mask(now, sampled, advantages, 0.2).tolist() == [[False, True, True, False, True]]
    assert dppo_mask(now, sampled, torch.tensor([[1.0]]), 0.2).tolist() == [[False, False, True, True, True]]

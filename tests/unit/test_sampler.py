"""Addressed uniform numbers, and sampling from them: against softmax and a truncation written the plain way."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from callwright.serving.engines.sampler import address, sample, uniforms

pytestmark = pytest.mark.unit

N = 40_000
# A chi-square of many degrees of freedom f has mean f and standard deviation sqrt(2 f). Seeds are fixed: no flicker.
SIGMAS = 4.0


def draws(n: int, key: int = 5, start: int = 0) -> np.ndarray:
    return uniforms(np.full(n, key, dtype=np.uint64), np.arange(start, start + n, dtype=np.uint64))


def chi_square(observed: np.ndarray, expected: np.ndarray) -> float:
    """How many standard deviations the statistic lies from its mean."""
    kept = expected > 5
    statistic = float(((observed - expected)[kept] ** 2 / expected[kept]).sum())
    freedom = int(kept.sum()) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


def run(
    logits: torch.Tensor,
    u: np.ndarray,
    temperature: float | list[float] = 1.0,
    top_p: float | list[float] = 1.0,
    top_k: int | list[int] = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    def column(value: float | Sequence[float]) -> torch.Tensor:
        return torch.tensor(value if isinstance(value, Sequence) else [value] * len(logits))

    return sample(logits, torch.from_numpy(u), column(temperature).float(), column(top_p).float(), column(top_k))


def test_an_address_is_stable_and_separates_its_parts() -> None:
    assert address("run", 3, "task", 0) == address("run", 3, "task", 0) == address("run", "3", "task", "0")
    assert len({address(*parts) for parts in (("a", "b"), ("ab",), ("a", "b", ""), ("b", "a"))}) == 4
    assert all(0 <= address(i) < 2**63 for i in range(200))
    assert (
        address("run", 7) == 8_239_621_290_261_430_777
    )  # of any process, of any version: traces are drawn again by it


def test_uniforms_are_uniform_along_positions_and_along_keys() -> None:
    keys = np.array([address("task", i) for i in range(N)], dtype=np.uint64)
    for u in (draws(N), uniforms(keys, np.zeros(N, dtype=np.uint64)), uniforms(keys, np.full(N, 300, dtype=np.uint64))):
        assert u.min() >= 0.0
        assert u.max() < 1.0
        counts, _ = np.histogram(u, bins=100, range=(0, 1))
        assert abs(chi_square(counts.astype(float), np.full(100, N / 100))) < SIGMAS
        pairs, _, _ = np.histogram2d(u[:-1], u[1:], bins=20, range=[[0, 1], [0, 1]])
        assert abs(chi_square(pairs.ravel(), np.full(400, (N - 1) / 400))) < SIGMAS
        assert len(np.unique(u)) == N
    small = uniforms(np.arange(N, dtype=np.uint64), np.zeros(N, dtype=np.uint64))  # neighbouring keys, too
    assert not np.intersect1d(draws(N, key=5), draws(N, key=6)).size  # and their numbers are not each other's, shifted
    counts, _ = np.histogram(small, bins=100, range=(0, 1))
    assert abs(chi_square(counts.astype(float), np.full(100, N / 100))) < SIGMAS


@given(key=st.integers(0, 2**63 - 1), position=st.integers(0, 2**31), others=st.integers(0, 5))
def test_a_draw_depends_on_its_address_alone(key: int, position: int, others: int) -> None:
    alone = uniforms(np.array([key], dtype=np.uint64), np.array([position], dtype=np.uint64))[0]
    keys = np.array([*range(others), key], dtype=np.uint64)
    positions = np.array([*range(others), position], dtype=np.uint64)
    assert uniforms(keys, positions)[-1] == alone
    assert 0.0 <= alone < 1.0


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_tokens_come_as_often_as_softmax_says(temperature: float) -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(2)) * 1.5
    tokens, logprobs = run(logits.expand(N, -1), draws(N, key=11), temperature)
    expected = (logits / temperature).softmax(-1)
    counts = torch.bincount(tokens, minlength=50).double().numpy()
    assert abs(chi_square(counts, expected.double().numpy() * N)) < SIGMAS
    assert torch.allclose(logprobs, expected.log()[tokens], atol=1e-5)


def test_the_inverse_of_the_cumulative_sum() -> None:
    logits = torch.log(torch.tensor([[0.25, 0.0, 0.5, 0.25, 0.0]])).expand(5, -1)
    tokens, logprobs = run(logits, np.array([0.0, 0.2499, 0.2501, 0.7501, 1 - 2**-53]))
    assert tokens.tolist() == [0, 0, 2, 3, 3]
    assert logprobs.exp().tolist() == pytest.approx([0.25, 0.25, 0.5, 0.25, 0.25])
    impossible_first = torch.log(torch.tensor([[0.0, 0.5, 0.5]]))
    assert run(impossible_first, np.array([0.0]))[0].tolist() == [1]


def reference(logits: list[float], temperature: float, top_p: float, top_k: int) -> dict[int, float]:
    """Token to probability after truncation, one step at a time."""
    weights = {token: math.exp((logit - max(logits)) / temperature) for token, logit in enumerate(logits)}
    ranked = sorted(weights, key=lambda token: -weights[token])
    if top_k:
        ranked = ranked[:top_k]
    total = sum(weights[token] for token in ranked)
    kept: list[int] = []
    mass = 0.0
    for token in ranked:
        if top_p < 1 and kept and mass >= top_p:
            break
        kept.append(token)
        mass += weights[token] / total
    total = sum(weights[token] for token in kept)
    return {token: weights[token] / total for token in kept}


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    temperature=st.sampled_from([0.5, 1.0, 1.5]),
    top_p=st.sampled_from([0.05, 0.31, 0.7, 0.93, 1.0]),
    top_k=st.sampled_from([0, 1, 2, 7, 100]),
)
def test_truncation_is_that_of_a_plain_reference(seed: int, temperature: float, top_p: float, top_k: int) -> None:
    logits = torch.randn(20, generator=torch.Generator().manual_seed(seed)) * 2
    want = reference(logits.double().tolist(), temperature, top_p, top_k)
    tokens, logprobs = run(logits.expand(400, -1), (np.arange(400) + 0.5) / 400, temperature, top_p, top_k)
    assert set(tokens.tolist()) <= set(want)
    assert {token for token, mass in want.items() if mass > 1 / 300} <= set(tokens.tolist())
    for token, logprob in zip(tokens.tolist(), logprobs.tolist(), strict=True):
        assert logprob == pytest.approx(math.log(want[token]), abs=1e-4)


def test_greedy_takes_the_most_likely_and_tells_its_plain_logprob() -> None:
    logits = torch.randn(30, 40, generator=torch.Generator().manual_seed(1))
    u = draws(30)
    for top_p, top_k in ((1.0, 0), (0.1, 3)):
        tokens, logprobs = run(logits, u, 0.0, top_p, top_k)
        assert tokens.tolist() == logits.argmax(-1).tolist()
        want = logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
        assert torch.equal(logprobs, want)


def test_a_row_gives_the_same_bits_beside_any_neighbour() -> None:
    """Greedy, plain and truncated rows take different ways through the code."""
    logits = torch.randn(4, 200, generator=torch.Generator().manual_seed(4)) * 3
    u = draws(4, key=3)
    temperature, top_p, top_k = [0.0, 1.0, 0.8, 1.0], [0.5, 1.0, 0.9, 1.0], [2, 0, 0, 5]
    together = run(logits, u, temperature, top_p, top_k)
    for row in range(4):
        alone = run(logits[[row]], u[[row]], temperature[row], top_p[row], top_k[row])
        assert torch.equal(together[0][row], alone[0][0])
        assert torch.equal(together[1][row], alone[1][0])

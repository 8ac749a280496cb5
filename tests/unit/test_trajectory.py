"""The token-exact record: its three columns agree by construction, and its end is final."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callwright.envs.trajectory import Given, Outcome, Sampled, Segment, Trajectory, completion
from callwright.serving.engines.engine import Completion, FinishReason

pytestmark = pytest.mark.unit

tokens = st.lists(st.integers(0, 500), max_size=6).map(tuple)


@st.composite
def sampled(draw: st.DrawFn) -> Sampled:
    ids = draw(tokens)
    logprobs = draw(st.lists(st.floats(-9, 0), min_size=len(ids), max_size=len(ids)))
    return Sampled(ids, tuple(logprobs), draw(st.integers(0, 3)))


segments = st.lists(tokens.map(Given) | sampled(), max_size=8)


def built(parts: list[Segment]) -> Trajectory:
    trajectory = Trajectory()
    for part in parts:
        trajectory.append(part)
    return trajectory


@given(parts=segments)
def test_ids_mask_and_logprobs_are_one_length_and_mask_is_what_was_sampled(parts: list[Segment]) -> None:
    trajectory = built(parts)
    assert len(trajectory.ids) == len(trajectory.mask) == len(trajectory.logprobs)
    want = [
        (i, 1, p) for part in parts if isinstance(part, Sampled) for i, p in zip(part.ids, part.logprobs, strict=True)
    ]
    columns = list(zip(trajectory.ids, trajectory.mask, trajectory.logprobs, strict=True))
    assert [row for row in columns if row[1] == 1] == want
    assert all(logprob == 0.0 for _, kept, logprob in columns if kept == 0)
    assert trajectory.ids == [i for part in parts for i in part.ids]
    assert trajectory.sampled_tokens == sum(trajectory.mask) == len(want)


@given(prompt=tokens.filter(len), parts=segments)
def test_the_completion_is_all_but_the_prompt(prompt: tuple[int, ...], parts: list[Segment]) -> None:
    trajectory = built([Given(prompt), *parts])
    ids, mask, logprobs = completion(trajectory)
    assert trajectory.prompt_ids == list(prompt)
    assert len(ids) == len(mask) == len(logprobs)
    assert [*prompt, *ids] == trajectory.ids
    assert sum(mask) == trajectory.sampled_tokens


@given(ids=tokens, extra=st.integers(1, 3))
def test_a_sampled_segment_has_one_logprob_an_id(ids: tuple[int, ...], extra: int) -> None:
    with pytest.raises(ValueError, match="logprobs"):
        Sampled(ids, (0.0,) * (len(ids) + extra))


@given(parts=segments, first=st.sampled_from(Outcome), second=st.sampled_from(Outcome))
def test_an_outcome_is_final(parts: list[Segment], first: Outcome, second: Outcome) -> None:
    trajectory = built(parts)
    assert trajectory.outcome is None
    trajectory.finish(first, "why")
    ids = trajectory.ids
    with pytest.raises(RuntimeError, match="already ended"):
        trajectory.finish(second)
    with pytest.raises(RuntimeError, match="already ended"):
        trajectory.append(Given((1,)))
    assert (trajectory.outcome, trajectory.cause, trajectory.ids) == (first, "why", ids)


def test_which_outcomes_count_in_the_baseline() -> None:
    assert [outcome for outcome in Outcome if outcome.in_baseline] == [Outcome.SCORED, Outcome.POLICY_FAULT]


@given(ids=tokens.filter(bool), data=st.data())
def test_a_completion_falls_apart_where_the_weights_changed(ids: tuple[int, ...], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(ids)), max_size=3)))
    versions = [3, *range(4, 4 + len(cuts))]
    logprobs = tuple(-float(index) for index in range(len(ids)))
    done = Completion(ids, logprobs, FinishReason.STOP, 3, tuple(zip(cuts, versions[1:], strict=True)))
    spans = list(done.spans())
    assert [version for *_, version in spans] == versions
    assert sum((part for part, _, _ in spans), ()) == ids
    assert sum((part for _, part, _ in spans), ()) == logprobs
    assert [len(part) for part, _, _ in spans] == [b - a for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]


@given(parts=segments)
def test_the_context_is_never_copied(parts: list[Segment]) -> None:
    """A turn reads all of it, so a copy a turn would make a rollout quadratic in its turns; ``ids`` is one, to keep."""
    trajectory = built(parts)
    context, ids = trajectory.context, trajectory.ids
    trajectory.append(Given((7, 8)))
    assert trajectory.context is context
    assert list(context) == [*ids, 7, 8] == Trajectory(trajectory.segments).ids

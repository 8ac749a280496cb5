"""Numbers of a batch that tell a policy which degenerates. Without torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from callwright.envs.budgets import Budgets
from callwright.envs.rollout_record import Rollout
from callwright.envs.trajectory import Sampled

NGRAM = 4


def signs(rows: Sequence[Rollout], rewards: Sequence[float | None], budgets: Budgets) -> dict[str, float]:
    """Of a batch's rows [n] and what their groups saw of them [n], None being left out of its group.

    ``answered_share`` of the rows that count; ``reward_without_answer``, the share of all positive reward that rows
    without an answer got; ``budget_spent``, the mean share of its token budget that a row needed; ``repeated_ngrams``
    of what was sampled. Each lies in 0-1, and is 0 where there is nothing.
    """
    counted = [(row.evidence.finished, reward) for row, reward in zip(rows, rewards, strict=True) if reward is not None]
    earned = [(finished, reward) for finished, reward in counted if reward > 0]
    turns = (part.ids for row in rows for part in row.trajectory.segments if isinstance(part, Sampled))
    return {
        "answered_share": _share(sum(finished for finished, _ in counted), len(counted)),
        "reward_without_answer": _share(
            sum(reward for finished, reward in earned if not finished), sum(reward for _, reward in earned)
        ),
        "budget_spent": _share(sum(_spent(row, budgets) for row in rows), len(rows)),
        "repeated_ngrams": repeated_ngrams(turns),
    }


def _spent(row: Rollout, budgets: Budgets) -> float:
    """The share of a turn's tokens that the longest one took, or of all tokens that all took: the larger one."""
    turns = [len(part.ids) for part in row.trajectory.segments if isinstance(part, Sampled)]
    return max(max(turns, default=0) / budgets.turn_tokens, sum(turns) / budgets.policy_tokens)


def repeated_ngrams(turns: Iterable[Sequence[int]], n: int = NGRAM) -> float:
    """1 - distinct / all n-grams, counted turn by turn (seq-rep-n of Welleck et al., 2020, Neural text generation with
    unlikelihood training): a call that a later turn makes again is no repetition."""
    all_, distinct = 0, 0
    for ids in turns:
        ngrams = [tuple(ids[at : at + n]) for at in range(len(ids) - n + 1)]
        all_ += len(ngrams)
        distinct += len(set(ngrams))
    return 1 - distinct / all_ if all_ else 0.0


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0

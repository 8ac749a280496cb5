"""Rollouts in the synchronous order: the trainer waits while a batch is rolled out in its own weights.

Invariant: every token of batch ``step`` is sampled from version ``step``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from callwright.envs.rollout_record import Rollout
from callwright.training.batch_plan import close_after_s, group_attempts, own_groups, teaches_nothing
from callwright.training.in_flight import waves
from callwright.training.reward_queue_log import logged_reward_queue
from callwright.training.run_custom_grpo import Batch
from callwright.training.served import ServedPolicy
from callwright.training.session import Session


class SynchronousRollouts:
    """A batch when it is asked for, from the weights that the model then has."""

    def __init__(self, session: Session, served: ServedPolicy, folder: Path) -> None:
        self._session = session
        self._served = served
        self._folder = folder

    def take(self, step: int, model: Any) -> Batch:
        session, training = self._session, model.training
        model.eval()
        try:
            receipt = self._served.renew(step, model)
            with logged_reward_queue(session.reward_queue, self._folder, step):
                groups = self._run(step, own_groups(session.config))
                if session.config.grpo.resample_zero_variance:
                    dull = [index for index, group in groups.items() if teaches_nothing(group)]
                    groups |= self._run(step, dull, fresh=True)
        finally:
            model.train(training)
        return Batch([row for group in groups.values() for row in group], receipt.metrics())

    def _run(self, step: int, indices: Iterable[int], *, fresh: bool = False) -> dict[int, list[Rollout]]:
        config = self._session.config
        planned = {index: group_attempts(config, self._session.tasks, step, index, fresh=fresh) for index in indices}
        attempts = [attempt for group in planned.values() for attempt in group]
        if not attempts:
            return {}
        rows = self._session.run(
            attempts,
            temperature=config.grpo.temperature,
            deadline_s=close_after_s(config, waves(config, len(attempts))),
        )
        size = config.grpo.num_generations
        return {index: rows[at * size : (at + 1) * size] for at, index in enumerate(planned)}

    def close(self) -> None:
        """Nothing is kept between two batches."""

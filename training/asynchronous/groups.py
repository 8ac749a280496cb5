"""How one group of a stream is rolled out, and how long that may take.

Invariant: what a group asks and draws is its place's alone, whenever it runs.
"""

from __future__ import annotations

import asyncio
import math

from callwright.envs.batch import Early, run_batch
from callwright.envs.rollout_record import Rollout
from callwright.training.asynchronous.admission import Admission, Place
from callwright.training.batch_plan import close_after_s, group_attempts, own_groups, teaches_nothing
from callwright.training.config_schema import Config
from callwright.training.in_flight import in_flight, waves
from callwright.training.sections.grpo import Asynchronous
from callwright.training.session import Session

SLACK_S = 60.0  # for grading and cancellations, beyond the deadlines of the groups themselves


class GroupRunner:
    """Rolls groups out from the model that the session serves when this is made."""

    def __init__(self, session: Session, settings: Asynchronous) -> None:
        self._session = session
        self._close_at = settings.close_at
        self._arena = session.arena(session.config.grpo.temperature)

    async def run(self, place: Place, wanted: asyncio.Event) -> list[Rollout]:
        """One group, closed early if that is configured once ``wanted`` is set."""
        rows = await self._run(place, wanted)
        if self._session.config.grpo.resample_zero_variance and teaches_nothing(rows):
            rows = await self._run(place, wanted, fresh=True)
        return rows

    async def _run(self, place: Place, wanted: asyncio.Event, *, fresh: bool = False) -> list[Rollout]:
        config = self._session.config
        index = own_groups(config)[place.group]
        attempts = group_attempts(config, self._session.tasks, place.batch, index, fresh=fresh)
        return await run_batch(
            attempts,
            self._arena,
            deadline_s=close_after_s(config, waves(config, len(attempts))),
            early=None if self._close_at is None else Early(wanted, self._close_at),
        )


def admission(config: Config, settings: Asynchronous, version: int) -> Admission:
    """For a run that goes on from this version to its last step."""
    return Admission(
        groups=len(own_groups(config)),
        batches=config.grpo.steps,
        max_staleness=settings.max_staleness,
        at_once=groups_at_once(config),
        version=version,
    )


def groups_at_once(config: Config) -> int:
    """How many groups run at once; one that is larger than the room goes in waves."""
    return max(1, in_flight(config) // config.grpo.num_generations)


def longest_wait_s(config: Config, settings: Asynchronous) -> float:
    """How long one waits for a batch at most: for all that may be ahead of it, each to its own deadline."""
    ahead = (settings.max_staleness + 1) * len(own_groups(config))
    rounds = math.ceil(ahead / groups_at_once(config)) * (2 if config.grpo.resample_zero_variance else 1)
    return rounds * close_after_s(config, waves(config, config.grpo.num_generations)) + SLACK_S

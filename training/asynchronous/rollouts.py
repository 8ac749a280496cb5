"""Batches for the trainer from a stream that runs ahead of it, sampled from an engine with weights of its own.

Invariant: before batch ``step`` is waited for, the engine serves version ``step`` and said so itself; so every group
that the stream starts is at most ``max_staleness`` versions old when it is trained.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

from callwright.envs.batch import Arena, Early, run_batch
from callwright.envs.rollout import Rollout
from callwright.training.asynchronous.admission import Admission, Place
from callwright.training.asynchronous.stream import Stream
from callwright.training.batch_plan import close_after_s, group_attempts, own_groups, teaches_nothing
from callwright.training.config_schema import Config
from callwright.training.in_flight import in_flight, waves
from callwright.training.run_custom_grpo import Batch
from callwright.training.sections.grpo import Asynchronous
from callwright.training.served import ServedPolicy
from callwright.training.session import Session

SLACK_S = 60.0  # for grading and cancellations, beyond the deadlines of the groups themselves


class AsynchronousRollouts:
    """The rollouts that the trainer takes while others go on."""

    def __init__(self, session: Session, served: ServedPolicy, settings: Asynchronous) -> None:
        self._session = session
        self._served = served
        self._settings = settings
        self._arena: Arena | None = None
        self._stream: Stream | None = None

    def take(self, step: int, model: Any) -> Batch:
        receipt = self._served.renew(step, model)
        groups = self._session.loop.run(self._taken(step))
        return Batch([row for group in groups for row in group], receipt.metrics())

    def close(self) -> None:
        if self._stream is not None:
            self._session.loop.run(self._stream.close())

    async def _taken(self, step: int) -> list[list[Rollout]]:
        if self._stream is None:
            self._arena = self._session.arena(self._session.config.grpo.temperature)
            self._stream = Stream(self._admission(step), self._group)
        self._stream.serve(step)
        return await self._stream.take(step, longest_wait_s(self._session.config, self._settings))

    def _admission(self, step: int) -> Admission:
        config = self._session.config
        return Admission(
            groups=len(own_groups(config)),
            batches=config.grpo.steps,
            max_staleness=self._settings.max_staleness,
            at_once=groups_at_once(config),
            version=step,
        )

    async def _group(self, place: Place, wanted: asyncio.Event) -> list[Rollout]:
        rows = await self._run(place, wanted)
        if self._session.config.grpo.resample_zero_variance and teaches_nothing(rows):
            rows = await self._run(place, wanted, fresh=True)
        return rows

    async def _run(self, place: Place, wanted: asyncio.Event, *, fresh: bool = False) -> list[Rollout]:
        session = self._session
        assert self._arena is not None, "a group runs only after a version was sent"
        index = own_groups(session.config)[place.group]
        attempts = group_attempts(session.config, session.tasks, place.batch, index, fresh=fresh)
        close_at = self._settings.close_at
        return await run_batch(
            attempts,
            self._arena,
            deadline_s=close_after_s(session.config, waves(session.config, len(attempts))),
            early=None if close_at is None else Early(wanted, close_at),
        )


def groups_at_once(config: Config) -> int:
    """How many groups run at once; one that is larger than the room goes in waves."""
    return max(1, in_flight(config) // config.grpo.num_generations)


def longest_wait_s(config: Config, settings: Asynchronous) -> float:
    """How long the trainer waits for a batch at most: for all that may be ahead of it, each to its own deadline."""
    ahead = (settings.max_staleness + 1) * len(own_groups(config))
    rounds = math.ceil(ahead / groups_at_once(config)) * (2 if config.grpo.resample_zero_variance else 1)
    return rounds * close_after_s(config, waves(config, config.grpo.num_generations)) + SLACK_S

"""Batches for the trainer from a stream that runs ahead of it, sampled from an engine with weights of its own.

Invariant: before batch ``step`` is waited for, the engine serves version ``step`` and said so itself; so every group
that the stream starts is at most ``max_staleness`` versions old when it is trained.
"""

from __future__ import annotations

from typing import Any

from callwright.envs.rollout_record import Rollout
from callwright.training.asynchronous.groups import GroupRunner, admission, longest_wait_s
from callwright.training.asynchronous.stream import Stream
from callwright.training.run_custom_grpo import Batch
from callwright.training.sections.grpo import Asynchronous
from callwright.training.served import ServedPolicy
from callwright.training.session import Session


class AsynchronousRollouts:
    """The rollouts that the trainer takes while others go on."""

    def __init__(self, session: Session, served: ServedPolicy, settings: Asynchronous) -> None:
        self._session = session
        self._served = served
        self._settings = settings
        self._stream: Stream | None = None

    def take(self, step: int, model: Any) -> Batch:
        receipt = self._served.renew(step, model)
        groups = self._session.loop.run(self._taken(step))
        return Batch([row for group in groups for row in group], receipt.metrics())

    def close(self) -> None:
        if self._stream is not None:
            self._session.loop.run(self._stream.close())

    async def _taken(self, step: int) -> list[list[Rollout]]:
        config = self._session.config
        if self._stream is None:
            runner = GroupRunner(self._session, self._settings)
            self._stream = Stream(admission(config, self._settings, step), runner.run)
        self._stream.serve(step)
        return await self._stream.take(step, longest_wait_s(config, self._settings))

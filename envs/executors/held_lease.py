"""The lease of a command for as long as its call runs.

Invariant: ``Hold.ran_out`` is False only while the broker is sure to give the command to nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from callwright.serving.queues.broker import Broker, BrokerError, Lease, LeaseLost


@dataclass(slots=True)
class Hold:
    """``until``: when, by the monotonic clock, the lease ends unless it is renewed."""

    until: float

    @property
    def ran_out(self) -> bool:
        return time.monotonic() >= self.until


@contextlib.asynccontextmanager
async def held(
    broker: Broker, lease: Lease, lease_s: float, failed: Callable[[BrokerError | OSError], None]
) -> AsyncIterator[Hold]:
    """Renew the lease while the block runs. ``failed`` is told of a broker that did not; it is asked again."""
    hold = Hold(time.monotonic() + lease_s)
    renewing = _renew(broker, lease, lease_s, hold, failed)
    task = asyncio.get_running_loop().create_task(renewing, name=f"lease of {lease.queue}")
    try:
        yield hold
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _renew(
    broker: Broker, lease: Lease, lease_s: float, hold: Hold, failed: Callable[[BrokerError | OSError], None]
) -> None:
    while True:
        await asyncio.sleep(lease_s / 3)
        asked = time.monotonic()
        try:
            await broker.renew(lease, lease_s)
            hold.until = asked + lease_s
        except LeaseLost:
            hold.until = asked
            return
        except (BrokerError, OSError) as error:
            failed(error)

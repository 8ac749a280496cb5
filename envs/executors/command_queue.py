"""The worker loop: leases a tool's commands, runs them, publishes what came of each.

Invariants:
- Every command that is taken is answered, in its own lane, whatever happens to it: a result, an error, a rejection or
  an infra fault. A lane that got no answer would shift every later one.
- A body is validated again here. A malformed one, or one of another tool's type, goes to the dead letters.
- The lease is renewed for as long as the call runs, and the call runs no longer than ``deadline_s``.
- A stateful tool's command that comes a second time is not run a second time: nobody knows how far the first got.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator

from callwright.envs.executors.executor import Executor, Record, StatefulExecutor
from callwright.serving.protocol.values import Rejection, Tool, ToolCall
from callwright.serving.queues.broker import (
    Broker,
    BrokerClosed,
    BrokerError,
    Lease,
    LeaseLost,
    Message,
    command_queue,
)
from callwright.serving.queues.reply import CallStatus, make_record
from callwright.serving.queues.reward_queue import RewardQueue
from callwright.serving.validation import validate

log = logging.getLogger(__name__)

_RETRY_S = 1.0  # after a broker error


class CommandWorker:
    """Runs up to ``concurrency`` commands of one tool at once."""

    def __init__(
        self,
        broker: Broker,
        executor: Executor,
        tool: Tool,
        *,
        concurrency: int = 4,
        lease_s: float = 30.0,
        deadline_s: float = 120.0,
        poll_s: float = 1.0,
        rewards: RewardQueue | None = None,
    ) -> None:
        self.tool = tool
        self.executor = executor
        self.queue = command_queue(tool.name)
        self._broker = broker
        self._rewards = rewards or RewardQueue(broker)
        self._lease_s = lease_s
        self._deadline_s = deadline_s
        self._poll_s = poll_s  # how soon a draining worker notices that it may end
        self._places = asyncio.Semaphore(concurrency)
        self._running: set[asyncio.Task[None]] = set()
        self._draining = False

    async def run(self) -> None:
        """Until drained, or until the broker is closed. Cancelling it gives unfinished commands back to the queue."""
        try:
            while not self._draining:
                await self._places.acquire()
                lease = None
                try:
                    lease = await self._broker.receive(self.queue, timeout_s=self._poll_s, lease_s=self._lease_s)
                except BrokerClosed:
                    return
                except (BrokerError, OSError) as error:
                    log.warning("worker of %s: broker failed, trying again: %s", self.queue, error)
                    await asyncio.sleep(_RETRY_S)
                finally:
                    if lease is None:
                        self._places.release()
                if lease is not None:
                    self._begin(lease)
            await asyncio.gather(*self._running)
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    def drain(self) -> None:
        """Take no more commands; ``run`` returns when the ones in hand are answered."""
        self._draining = True

    @property
    def in_flight(self) -> int:
        return len(self._running)

    def _begin(self, lease: Lease) -> None:
        task = asyncio.get_running_loop().create_task(self._handle(lease), name=f"command of {self.queue}")
        self._running.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._places.release()

    async def _handle(self, lease: Lease) -> None:
        message = lease.message
        try:
            verdict = validate(message.body, tools=(self.tool,), expected=self.tool.name)
            if isinstance(verdict, Rejection):
                await self._reject(lease, verdict)
                return
            log.info("request accepted by %s", self.tool.name)
            async with self._renewed(lease):
                record = await self._record(verdict, message)
            await self._rewards.publish(record, lane=message.lane, message_id=message.message_id)
            await self._broker.complete(lease)
        except asyncio.CancelledError:
            with contextlib.suppress(BrokerError):
                await self._broker.abandon(lease)
            raise
        except (BrokerError, OSError) as error:
            log.warning("worker of %s: a command was not settled: %s", self.queue, error)

    async def _reject(self, lease: Lease, verdict: Rejection) -> None:
        log.info("request rejected by %s: %s: %s", self.tool.name, verdict.code, verdict.message)
        fields = {"code": str(verdict.code), "message": verdict.message, "executor": self.executor.name}
        record = make_record(self.tool.name, CallStatus.REJECTED, **fields)
        await self._rewards.publish(record, lane=lease.message.lane, message_id=lease.message.message_id)
        await self._broker.dead_letter(lease, code=str(verdict.code), reason=verdict.message)

    async def _record(self, call: ToolCall, message: Message) -> bytes:
        """The record to publish. Whatever the executor raises becomes an infra fault that names it."""
        times = message.delivery_count
        if self.tool.stateful and times > 1:
            return self._fault(f"delivery {times} of a stateful call, which may have run: not run again")
        try:
            async with asyncio.timeout(self._deadline_s):
                said = await self._run(call, message.lane)
            return json.dumps(said, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except TimeoutError:
            return self._fault(f"no answer within {self._deadline_s:g} s")
        except Exception as error:  # the boundary: an executor's defect must not stop the worker
            log.warning("executor %s failed", self.executor.name, exc_info=error)
            return self._fault(f"{type(error).__name__}: {error}")

    async def _run(self, call: ToolCall, lane: str) -> Record:
        if isinstance(self.executor, StatefulExecutor):
            return await self.executor.run_in(lane, call)
        return await self.executor.run(call)

    def _fault(self, why: str) -> bytes:
        message = f"executor {self.executor.name}: {why}"[:1000]
        return make_record(self.tool.name, CallStatus.INFRA_FAULT, executor=self.executor.name, message=message)

    @contextlib.asynccontextmanager
    async def _renewed(self, lease: Lease) -> AsyncIterator[None]:
        task = asyncio.get_running_loop().create_task(self._renew(lease), name=f"lease of {self.queue}")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _renew(self, lease: Lease) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                await self._broker.renew(lease, self._lease_s)
            except LeaseLost as error:
                log.warning("worker of %s: %s while its call ran", self.queue, error)
                return
            except (BrokerError, OSError) as error:
                log.warning("worker of %s: could not renew a lease: %s", self.queue, error)

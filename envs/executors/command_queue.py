"""The worker loop: leases a tool's commands, runs them, publishes what came of each.

Invariants:
- Every command that is taken is answered, in its own lane, whatever happens to it: a result, an error, a rejection or
  an infra fault. A lane that got no answer would shift every later one.
- A body is validated again here. A malformed one, or one of another tool's type, goes to the dead letters.
- The lease is renewed for as long as the call runs, and the call runs no longer than ``deadline_s``. A worker whose
  lease ran out all the same publishes nothing: the command is someone else's by then.
- A result is in the journal before it is published. A command that comes a second time is answered from there; where
  there is no result, a stateful tool's command is not run a second time: nobody knows how far the first got.
- A call that two workers died of is not run a third time: it is charged to the policy, as a fault that recurs is, or a
  program that kills its worker would leave its group's baseline.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from dataclasses import dataclass, field

from callwright.envs.executors.executor import Executor, Record, StatefulExecutor
from callwright.envs.executors.held_lease import held
from callwright.envs.executors.journal import Journal
from callwright.serving.protocol.values import Rejection, Tool, ToolCall
from callwright.serving.queues.broker import Broker, BrokerClosed, BrokerError, Lease, Message, command_queue
from callwright.serving.queues.reply import CallStatus, make_record
from callwright.serving.queues.reward_queue import RewardQueue
from callwright.serving.validation import validate

log = logging.getLogger(__name__)

_RETRY_S = 1.0  # after a broker error
_WAIT_S = 30.0  # one wait for a command; then the next
_FATAL = 2  # workers that died while they ran a call; then the call is to blame


@dataclass(slots=True)
class WorkerCounts:
    """What one worker has done so far."""

    statuses: Counter[CallStatus] = field(default_factory=lambda: Counter(dict.fromkeys(CallStatus, 0)))
    seconds: float = 0.0  # in the executor, all calls together
    redelivered: int = 0
    from_journal: int = 0
    leases_lost: int = 0
    broker_errors: int = 0


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
        rewards: RewardQueue | None = None,
        journal: Journal | None = None,
    ) -> None:
        """``journal`` None is for a broker that ends with this process, and its commands with it."""
        self.tool = tool
        self.executor = executor
        self.queue = command_queue(tool.name)
        self._broker = broker
        self._rewards = rewards or RewardQueue(broker)
        self._journal = journal
        self._lease_s = lease_s
        self._deadline_s = deadline_s
        self._patience: asyncio.Timeout | None = None  # around the wait for a command; a drain ends it
        self._places = asyncio.Semaphore(concurrency)
        self._running: set[asyncio.Task[None]] = set()
        self.draining = False
        self.counts = WorkerCounts()

    async def run(self) -> None:
        """Until drained, or until the broker is closed. Cancelling it gives unfinished commands back to the queue."""
        try:
            while not self.draining:
                await self._places.acquire()
                if self.draining:
                    break
                lease = None
                try:
                    lease = await self._receive()
                except BrokerClosed:
                    return
                except (BrokerError, OSError) as error:
                    self.counts.broker_errors += 1
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
        """Take no more commands; ``run`` returns when the ones in hand are answered. Safe to call twice."""
        if not self.draining and self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())
        self.draining = True

    @property
    def in_flight(self) -> int:
        return len(self._running)

    async def _receive(self) -> Lease | None:
        """The next command; None when there was none for a while, or when a drain ended the wait."""
        try:
            async with asyncio.timeout(None) as self._patience:
                return await self._broker.receive(self.queue, timeout_s=_WAIT_S, lease_s=self._lease_s)
        except TimeoutError:
            if not self.draining:
                raise
            return None
        finally:
            self._patience = None

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
            async with held(self._broker, lease, self._lease_s, self._not_renewed) as hold:
                record = await self._record(verdict, message)
            if hold.ran_out:
                self.counts.leases_lost += 1
                log.warning("worker of %s: a lease ran out while its call ran: someone else answers it", self.queue)
                return
            await self._rewards.publish(record, lane=message.lane, message_id=message.message_id)
            await self._broker.complete(lease)
            if self._journal is not None:
                await self._journal.forget(self.queue, message)
        except asyncio.CancelledError:
            with contextlib.suppress(BrokerError):
                await self._broker.abandon(lease)
            raise
        except (BrokerError, OSError) as error:
            self.counts.broker_errors += 1
            log.warning("worker of %s: a command was not settled: %s", self.queue, error)

    async def _reject(self, lease: Lease, verdict: Rejection) -> None:
        log.info("request rejected by %s: %s: %s", self.tool.name, verdict.code, verdict.message)
        fields = {"code": str(verdict.code), "message": verdict.message, "executor": self.executor.name}
        record = make_record(self.tool.name, CallStatus.REJECTED, **fields)
        self.counts.statuses[CallStatus.REJECTED] += 1
        await self._rewards.publish(record, lane=lease.message.lane, message_id=lease.message.message_id)
        await self._broker.dead_letter(lease, code=str(verdict.code), reason=verdict.message)

    async def _record(self, call: ToolCall, command: Message) -> bytes:
        """The record to publish: of the journal where the command came before, else of a run."""
        if command.delivery_count > 1:
            self.counts.redelivered += 1
            kept = None if self._journal is None else await self._journal.read(self.queue, command)
            if kept is not None:
                self.counts.from_journal += 1
                log.info("delivery %d of a call of %s: answered from the journal", command.delivery_count, self.queue)
                return kept
            if self.tool.stateful:
                times = f"delivery {command.delivery_count} of a stateful call"
                return self._fault(f"{times}, which may have run and has no result: not run again")
        if self._journal is None:
            return await self._run(call, command.lane)
        if await self._journal.begin(self.queue, command) >= _FATAL:
            log.warning("worker of %s: a call brought down %d workers and is not run again", self.queue, _FATAL)
            self.counts.statuses[CallStatus.LIMIT] += 1
            message = f"killed: the call brought down {_FATAL} workers"
            return make_record(self.tool.name, CallStatus.LIMIT, executor=self.executor.name, message=message)
        try:
            record = await self._run(call, command.lane)
        except asyncio.CancelledError:
            await self._journal.take_back(self.queue, command)
            raise
        await self._journal.write(self.queue, command, record)
        return record

    async def _run(self, call: ToolCall, lane: str) -> bytes:
        """Run the call. Whatever the executor raises becomes an infra fault that names it."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._deadline_s):
                said = await self._said(call, lane)
            record = json.dumps(said, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
            self.counts.statuses[_status(said)] += 1
            return record
        except TimeoutError:
            return self._fault(f"no answer within {self._deadline_s:g} s")
        except Exception as error:  # the boundary: an executor's defect must not stop the worker
            log.warning("executor %s failed", self.executor.name, exc_info=error)
            return self._fault(f"{type(error).__name__}: {error}")
        finally:
            self.counts.seconds += time.monotonic() - started

    async def _said(self, call: ToolCall, lane: str) -> Record:
        if isinstance(self.executor, StatefulExecutor):
            return await self.executor.run_in(lane, call)
        return await self.executor.run(call)

    def _fault(self, why: str) -> bytes:
        self.counts.statuses[CallStatus.INFRA_FAULT] += 1
        message = f"executor {self.executor.name}: {why}"[:1000]
        return make_record(self.tool.name, CallStatus.INFRA_FAULT, executor=self.executor.name, message=message)

    def _not_renewed(self, error: BrokerError | OSError) -> None:
        self.counts.broker_errors += 1
        log.warning("worker of %s: could not renew a lease: %s", self.queue, error)


def _status(said: Record) -> CallStatus:
    """How a record says that its call ended; one that does not is what its reader will take it for."""
    try:
        return CallStatus(said["status"])
    except (KeyError, ValueError):
        return CallStatus.INFRA_FAULT

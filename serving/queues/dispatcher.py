"""A rollout's end of the queues: one call out, one reply back.

Invariants:
- A lane is a session id with an epoch, and has at most one unanswered call. The next reply in the lane is the reply to
  that call: pairing is by order alone. The echoed id only verifies; where it differs, the call ends as an infra fault.
- A second copy of a reply that was accepted (its worker was killed before it could settle the command) is dropped and
  counted, and the call in the lane goes on waiting: a result reaches the rollout once.
- An epoch that ends in doubt (time-out, skew, cancellation, broker error) is retired: no later call uses its session,
  so a late reply cannot meet one. The late reply goes to the dead letters.
- Calls are made in an episode, which is one rollout's; what it keeps for itself is in ``episode``.
- ``call`` never raises and never hangs: each wait has the call's deadline and a name. Only cancellation passes through.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence

from callwright.serving.protocol.values import Rejection, Tool, ToolCall
from callwright.serving.queues.broker import Broker, BrokerError, Lease
from callwright.serving.queues.command_sender import CommandSender
from callwright.serving.queues.episode import OwnLane, StateLost
from callwright.serving.queues.lanes import Lane, LanePool
from callwright.serving.queues.reply import CallStatus, Reply, fault_reply, make_record, read_reply
from callwright.serving.queues.reward_queue import RewardQueue
from callwright.serving.queues.waits import WaitBoard

__all__ = ["CallStatus", "Dispatcher", "Episode", "Reply"]

log = logging.getLogger(__name__)

EXPLAIN_S = 2.0  # of asking why nobody answered
LATE_REPLY_S = 300.0  # how long a retired epoch is watched for its late reply


class _InDoubt(Exception):
    """The lane's order can no longer be trusted."""


class Dispatcher:
    """Calls tools through the queues. ``lanes`` is how many calls of one tool may be unanswered at once.

    ``explain`` is asked, after a time-out, why a tool did not answer: a line, or '' where there is nothing to say.
    """

    def __init__(
        self,
        broker: Broker,
        tools: Sequence[Tool],
        *,
        lanes: int = 16,
        rewards: RewardQueue | None = None,
        explain: Callable[[str], Awaitable[str]] | None = None,
        late_reply_s: float = LATE_REPLY_S,
    ) -> None:
        session = uuid.uuid4().hex[:12]  # two dispatchers on one broker share no lane
        self._broker = broker
        self._rewards = rewards or RewardQueue(broker)
        self._explain = explain
        self._late_reply_s = late_reply_s
        self._senders = {tool.name: CommandSender(broker, tool) for tool in tools}
        self._lanes = {tool.name: LanePool(f"{session}-{tool.name}", lanes) for tool in tools}
        self._watchers: set[asyncio.Task[None]] = set()
        self.waits = WaitBoard()
        self.counts: dict[str, Counter[CallStatus]] = {
            tool.name: Counter(dict.fromkeys(CallStatus, 0)) for tool in tools
        }
        self.retired = 0
        self.duplicates = 0

    @contextlib.contextmanager
    def episode(self) -> Iterator[Episode]:
        """The calls of one rollout, made while the block runs."""
        episode = Episode(self)
        try:
            yield episode
        finally:
            episode.close()

    async def call(self, call: ToolCall, *, timeout_s: float) -> Reply:
        """An episode of one call."""
        with self.episode() as episode:
            return await episode.call(call, timeout_s=timeout_s)

    def own_lane(self, tool: str) -> OwnLane | None:
        """A new episode's place at a tool; None where the tool is stateless (or unknown), and any lane will do."""
        sender = self._senders.get(tool)
        return OwnLane(self._lanes[tool]) if sender is not None and sender.tool.stateful else None

    async def call_in(self, own: OwnLane | None, call: ToolCall, *, timeout_s: float) -> Reply:
        """Send one call and wait for its reply, ``timeout_s`` in all. Every failure is a reply."""
        started = time.monotonic()
        sender = self._senders.get(call.name)
        if sender is None:
            cause = f"there is no tool {call.name}"
            record = make_record(call.name, CallStatus.REJECTED, code="unknown_tool", message=cause)
            return Reply(record, CallStatus.REJECTED, cause, 0.0, call.name)
        waiting_for = f"waiting for a lane of queue {call.name}"
        try:
            async with asyncio.timeout(timeout_s), own.turn if own else contextlib.nullcontext():
                with self.waits.on(waiting_for):
                    lane = await (own or self._lanes[call.name]).take()
                waiting_for = f"waiting for the reply in lane {lane.session} of queue {call.name}"
                with self.waits.on(waiting_for):
                    reply = await self._in_lane(lane, own, sender, call, timeout_s, started)
        except TimeoutError:
            cause = f"{call.name}: " + await self._why(call.name, f"{timeout_s:g} s passed while {waiting_for}")
            reply = fault_reply(call.name, cause, time.monotonic() - started, call.name)
        except (_InDoubt, StateLost) as error:
            reply = fault_reply(call.name, f"{call.name}: {error}", time.monotonic() - started, call.name)
        except (BrokerError, OSError) as error:
            cause = f"{call.name}: broker failed: {error}"
            reply = fault_reply(call.name, cause, time.monotonic() - started, call.name)
        self.counts[call.name][reply.status] += 1
        return reply

    async def _why(self, tool: str, known: str) -> str:
        """The cause of a time-out: what ``explain`` says, or that it failed, else what is ``known``."""
        if self._explain is None:
            return known
        try:
            async with asyncio.timeout(EXPLAIN_S):
                return await self._explain(tool) or known
        except TimeoutError:
            return f"{known}; the broker did not answer within {EXPLAIN_S:g} s when it was asked why"
        except (BrokerError, OSError) as error:
            return f"broker failed: {error}"

    async def _in_lane(
        self, lane: Lane, own: OwnLane | None, sender: CommandSender, call: ToolCall, timeout_s: float, started: float
    ) -> Reply:
        message_id, trusted = lane.message_id(call.id), False
        try:
            verdict = await sender.send(call.body(), lane=lane.session, message_id=message_id)
            if isinstance(verdict, Rejection):
                trusted = True
                fields = {"code": str(verdict.code), "message": verdict.message}
                record = make_record(call.name, CallStatus.REJECTED, **fields)
                return Reply(record, CallStatus.REJECTED, f"{verdict.code}: {verdict.message}", 0.0, call.name)
            lease = await self._next_reply(lane, timeout_s)
            if lease.message.message_id != message_id:
                reason = f"skew in lane {lane.session}: expected {message_id}, got {lease.message.message_id}"
                await self._rewards.refuse(lease, code="skew", reason=reason)
                raise _InDoubt(reason)
            await self._rewards.accept(lease)
            trusted = True
            return read_reply(lease.message.body, call.name, time.monotonic() - started)
        finally:
            if not trusted:
                self._retire(call.name, lane)
                if own is not None:
                    own.lose()
            else:
                (own or self._lanes[call.name]).give_back(lane)

    async def _next_reply(self, lane: Lane, timeout_s: float) -> Lease:
        """The next reply of the lane that is no second copy. Waits for ever: the call's deadline is around this."""
        while True:
            lease = await self._rewards.read(lane=lane.session, timeout_s=timeout_s)
            if lease is None:  # the broker's own wait may end early
                continue
            if not lane.was_answered(lease.message.message_id):
                return lease
            await self._rewards.accept(lease)
            self.duplicates += 1
            log.warning("dropped a second copy of the reply to %s", lease.message.message_id)

    def _retire(self, tool: str, lane: Lane) -> None:
        """End the lane's epoch: its place goes on under a new session id, the old one is watched for late replies."""
        self.retired += 1
        self._lanes[tool].retire(lane)
        task = asyncio.get_running_loop().create_task(self._watch(tool, lane), name=f"late replies of {lane.session}")
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)

    async def _watch(self, tool: str, lane: Lane) -> None:
        reason = f"the epoch of lane {lane.session} was retired before this came"
        try:
            # A command that no worker has taken yet need not run at all, and then has no reply.
            queue = self._senders[tool].queue
            unclaimed = await self._broker.receive(queue, lane=lane.session, timeout_s=0.001)
            if unclaimed is not None:
                await self._broker.dead_letter(unclaimed, code="caller_gone", reason=reason)
                return
            async with asyncio.timeout(self._late_reply_s):
                while True:
                    lease = await self._rewards.read(lane=lane.session, timeout_s=self._late_reply_s)
                    if lease is not None:
                        await self._rewards.refuse(lease, code="late_reply", reason=reason)
        except TimeoutError:
            return
        except (BrokerError, OSError) as error:
            log.info("lane %s: no watch for late replies: %s", lane.session, error)

    async def close(self) -> None:
        """Stop watching for late replies. Safe to call twice."""
        watchers = list(self._watchers)
        for task in watchers:
            task.cancel()
        for task in watchers:
            with contextlib.suppress(asyncio.CancelledError):
                await task


class Episode:
    """One rollout's way to the tools. Made by ``Dispatcher.episode``."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._own: dict[str, OwnLane | None] = {}

    async def call(self, call: ToolCall, *, timeout_s: float) -> Reply:
        """Make one call. Calls of a stateful tool wait for each other; others run side by side."""
        if call.name not in self._own:
            self._own[call.name] = self._dispatcher.own_lane(call.name)
        return await self._dispatcher.call_in(self._own[call.name], call, timeout_s=timeout_s)

    def close(self) -> None:
        """End the epochs of its own lanes."""
        for own in self._own.values():
            if own is not None:
                own.close()

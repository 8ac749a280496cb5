"""Memory and sqlite against a model of the contract: whatever is done in whatever order, both do what the model does.

Leases do not run out here; the suite in test_brokers.py has the clock.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from callwright.serving.queues.broker import Broker, Lease, LeaseLost, dead_letters
from callwright.serving.queues.memory import MemoryBroker
from callwright.serving.queues.sqlite import SqliteBroker

pytestmark = pytest.mark.integration

Q = "q"
LIMIT = 3
lanes = st.sampled_from(["", "a", "b"])


class BrokerMachine(RuleBasedStateMachine):
    """Lists of [body, deliveries] a lane, the lanes that are leased, and the dead."""

    kind = "memory"
    leases: Bundle[Lease] = Bundle("leases")
    spent: Bundle[Lease] = Bundle("spent")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "queues.db"
        self.broker: Broker = (
            MemoryBroker(max_deliveries=LIMIT) if self.kind == "memory" else SqliteBroker(path, max_deliveries=LIMIT)
        )
        self.lanes: dict[str, list[list[Any]]] = {}
        self.leased: set[str] = set()
        self.dead: Counter[tuple[str, bytes, str]] = Counter()
        self.count = 0

    @rule(lane=lanes)
    def send(self, lane: str) -> None:
        self.count += 1
        body = b"%d" % self.count
        self.runner.run(self.broker.send(Q, body, lane=lane))
        self.lanes.setdefault(lane, []).append([body, 0])

    @rule(lane=st.none() | lanes, target=leases)
    def receive(self, lane: str | None) -> Any:
        free = {name for name, waiting in self.lanes.items() if waiting and name not in self.leased}
        lease = self.runner.run(self.broker.receive(Q, timeout_s=0, lane=lane, lease_s=3600))
        if lease is None:
            assert not free & (free if lane is None else {lane})
            return multiple()
        found = lease.message.lane
        assert found in free
        assert lane in (None, found)
        head = self.lanes[found][0]
        head[1] += 1
        assert [lease.message.body, lease.message.delivery_count] == head
        self.leased.add(found)
        return lease

    @rule(lease=leases)
    def renew(self, lease: Lease) -> None:
        self.runner.run(self.broker.renew(lease, 3600))

    @rule(lease=consumes(leases), target=spent)
    def complete(self, lease: Lease) -> Lease:
        self.runner.run(self.broker.complete(lease))
        self._remove(lease)
        return lease

    @rule(lease=consumes(leases), target=spent)
    def abandon(self, lease: Lease) -> Lease:
        self.runner.run(self.broker.abandon(lease))
        if lease.message.delivery_count >= LIMIT:
            self._remove(lease)
            self.dead[lease.message.lane, lease.message.body, "max_deliveries"] += 1
        self.leased.discard(lease.message.lane)
        return lease

    @rule(lease=consumes(leases), target=spent)
    def dead_letter(self, lease: Lease) -> Lease:
        self.runner.run(self.broker.dead_letter(lease, code="x", reason="y"))
        self._remove(lease)
        self.dead[lease.message.lane, lease.message.body, "x"] += 1
        return lease

    @rule(lease=spent)
    def settle_again(self, lease: Lease) -> None:
        with pytest.raises(LeaseLost):
            self.runner.run(self.broker.complete(lease))

    @invariant()
    def nothing_is_lost_or_made_up(self) -> None:
        found: dict[str, list[bytes]] = {}
        for message in self.runner.run(self.broker.peek(Q, 1000)):
            found.setdefault(message.lane, []).append(message.body)
        assert found == {lane: [body for body, _ in waiting] for lane, waiting in self.lanes.items() if waiting}
        dead = self.runner.run(self.broker.peek(dead_letters(Q), 1000))
        assert Counter((message.lane, message.body, message.code) for message in dead) == self.dead

    def teardown(self) -> None:
        self.runner.run(self.broker.close())
        self.runner.close()
        self.folder.cleanup()

    def _remove(self, lease: Lease) -> None:
        del self.lanes[lease.message.lane][0]
        self.leased.discard(lease.message.lane)


class SqliteMachine(BrokerMachine):
    kind = "sqlite"


@pytest.mark.parametrize("machine", [BrokerMachine, SqliteMachine])
def test_a_broker_does_what_the_model_does(machine: type[BrokerMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=30, stateful_step_count=40, deadline=None))

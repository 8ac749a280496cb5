"""A small Service Bus on loopback: AMQP 1.0 by Qpid Proton, for the unmodified azure-servicebus SDK to talk to.

    python amqp_broker.py PORT LOCK_S    # port 0 takes a free one; prints the port, and runs until its input ends

Queues are made when they are named: sessions on, locks of LOCK_S seconds, ``MAX_DELIVERIES``; a name that begins with
``absent`` is refused, one that begins with ``plain`` has no sessions. Of the service it has put-token, send, sessions
by name and next available, peek-lock, settling, dead letters, lock renewal, peek, the list of sessions. Not of it:
batches (Proton hides the message format), deferral, scheduling, topics.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from proton import Condition, Delivery, Endpoint, Handler, Link, Message, symbol, timestamp, ulong
from proton.reactor import Container

MAX_DELIVERIES = 3
TICK_S = 0.05
DEAD = "/$deadletterqueue"
SESSION_FILTER = symbol("com.microsoft:session-filter")


@dataclass(eq=False)
class Reading:
    """A receiver's link. ``session`` None reads a queue without sessions."""

    link: Link
    queue: Queue
    session: str | None = None
    until: float = 0.0  # the session's lock


@dataclass(eq=False)
class Stored:
    """One message; ``reading`` holds it."""

    number: int
    message: Message
    session: str
    failed: int = 0
    reading: Reading | None = None
    until: float = 0.0  # the message's own lock, where there are no sessions
    token: uuid.UUID = field(default_factory=uuid.uuid4)
    sent: float = field(default_factory=time.time)


@dataclass(eq=False)
class Queue:
    name: str
    sessions: bool
    stored: list[Stored] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)

    def free_session(self) -> str | None:
        held = {reading.session for reading in self.readings}
        return next((stored.session for stored in self.stored if stored.session not in held), None)

    def next_for(self, reading: Reading) -> Stored | None:
        return next(
            (s for s in self.stored if s.reading is None and reading.session in (None, s.session)),
            None,
        )


class Bus(Handler):
    """The one handler of all events; single-threaded."""

    def __init__(self, port: int, lock_s: float) -> None:
        self.port = port
        self.lock_s = lock_s
        self.queues: dict[str, Queue] = {}
        self.accepting: list[tuple[Link, Queue, float]] = []  # links that wait for any session, until when
        self.replies: dict[tuple[Any, str], Link] = {}  # where the answers of a connection's $cbs or $management go
        self.numbers = iter(range(1, 2**40))

    def on_reactor_init(self, event: Any) -> None:
        acceptor = event.reactor.acceptor("127.0.0.1", self.port)
        self.port = acceptor._selectable._delegate.getsockname()[1]
        print(self.port, flush=True)
        threading.Thread(target=self._stop_at_end_of_input, daemon=True).start()
        event.reactor.schedule(TICK_S, self)

    def _stop_at_end_of_input(self) -> None:
        sys.stdin.read()
        os._exit(0)

    def on_connection_remote_open(self, event: Any) -> None:
        event.connection.open()

    def on_session_remote_open(self, event: Any) -> None:
        event.session.open()

    def on_session_remote_close(self, event: Any) -> None:
        event.session.close()

    def on_connection_remote_close(self, event: Any) -> None:
        self._forget_connection(event.connection)
        event.connection.close()

    def on_transport_closed(self, event: Any) -> None:
        self._forget_connection(event.connection)

    def on_link_remote_close(self, event: Any) -> None:
        self._forget(event.link)
        event.link.close()

    def on_link_remote_detach(self, event: Any) -> None:
        self._forget(event.link)
        event.link.detach()

    def on_link_remote_open(self, event: Any) -> None:
        link = event.link
        if not link.state & Endpoint.LOCAL_UNINIT:
            return
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        address = path_of((link.remote_source if link.is_sender else link.remote_target).address)
        if address.endswith(("$cbs", "$management")):
            if link.is_sender:
                self.replies[link.connection, address] = link
            link.open()
            if link.is_receiver:
                link.flow(100)
            return
        queue = self._queue(address)
        if queue is None:
            refuse(link, "amqp:not-found", f"The messaging entity {address!r} could not be found.")
        elif link.is_receiver:
            link.open()
            link.flow(1000)
        else:
            self._open_reading(link, queue)

    def _open_reading(self, link: Link, queue: Queue) -> None:
        filters = link.remote_source.filter
        filters.rewind()
        asked = filters.get_object() if filters.next() else {}
        if (SESSION_FILTER in asked) != queue.sessions:
            refuse(link, "amqp:not-allowed", "A receiver has a session where, and only where, its queue has sessions.")
        elif not queue.sessions:
            self._begin(Reading(link, queue))
        elif asked[SESSION_FILTER] is not None:
            session = str(asked[SESSION_FILTER])
            if any(reading.session == session for reading in queue.readings):
                refuse(link, "com.microsoft:session-cannot-be-locked", "The session is locked.")
            else:
                self._begin(Reading(link, queue, session))
        else:
            properties = link.remote_properties or {}
            wait_ms = next((int(value) for name, value in properties.items() if name == "com.microsoft:timeout"), 60000)
            self.accepting.append((link, queue, time.time() + wait_ms / 1000))
            self._accept()

    def _begin(self, reading: Reading) -> None:
        link, session = reading.link, reading.session
        if session is not None:
            reading.until = time.time() + self.lock_s
            link.source.filter.clear()
            link.source.filter.put_dict({SESSION_FILTER: session})
            link.properties = {"com.microsoft:locked-until-utc": ticks(reading.until)}
        link.reading = reading
        reading.queue.readings.append(reading)
        link.open()
        self._pump(reading.queue)

    def _accept(self) -> None:
        """Give free sessions to the links that wait for one; end the waits that are over."""
        for waiting in list(self.accepting):
            link, queue, until = waiting
            session = queue.free_session()
            if session is not None:
                self.accepting.remove(waiting)
                self._begin(Reading(link, queue, session))
            elif time.time() > until:
                self.accepting.remove(waiting)
                refuse(link, "com.microsoft:timeout", "There is no session with messages.")

    def _queue(self, address: str) -> Queue | None:
        if address.startswith("absent"):
            return None
        dead = address.lower().endswith(DEAD)
        name = address.lower() if dead else address
        plain = dead or name.startswith("plain")
        return self.queues.setdefault(name, Queue(name, sessions=not plain))

    def on_link_flow(self, event: Any) -> None:
        reading = getattr(event.link, "reading", None)
        if reading is not None:
            self._pump(reading.queue)
        if event.link.is_sender and event.link.drain_mode:
            event.link.drained()

    def _pump(self, queue: Queue) -> None:
        """Send what is free to the links that have credit."""
        for reading in queue.readings:
            while reading.link.credit > 0 and (stored := queue.next_for(reading)) is not None:
                stored.reading, stored.token = reading, uuid.uuid4()
                stored.until = time.time() + self.lock_s
                delivery = reading.link.delivery(stored.token.bytes_le)
                delivery.stored = stored
                reading.link.send(wire(stored))
                reading.link.advance()

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if event.link.state & Endpoint.LOCAL_CLOSED:
            return  # it was refused
        if event.link.is_receiver:
            if delivery.readable and not delivery.partial:
                self._arrived(event.link, delivery)
        elif delivery.updated:
            self._settled(delivery)

    def _arrived(self, link: Link, delivery: Delivery) -> None:
        message = Message()
        message.decode(link.recv(delivery.pending))
        link.advance()
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        link.flow(1)
        address = path_of(link.remote_target.address)
        if address.endswith(("$cbs", "$management")):
            self._answer(self.replies[link.connection, address], address, message)
            return
        queue = self._queue(address)
        assert queue is not None
        message.inferred = True  # what came in a data section goes out in one
        self._store(queue, message, message.group_id or "")

    def _store(self, queue: Queue, message: Message, session: str, failed: int = 0) -> None:
        queue.stored.append(Stored(next(self.numbers), message, session, failed))
        self._accept()
        self._pump(queue)

    def _settled(self, delivery: Delivery) -> None:
        stored: Stored | None = getattr(delivery, "stored", None)
        state = delivery.remote_state
        if stored is None or not state:
            return
        reading = stored.reading
        if reading is None or reading.link != delivery.link:
            delivery.local.condition = Condition("com.microsoft:message-lock-lost", "The lock on the message was lost.")
            delivery.update(Delivery.REJECTED)
            delivery.settle()
            return
        queue = reading.queue
        if state == Delivery.ACCEPTED:
            queue.stored.remove(stored)
        elif state == Delivery.REJECTED:
            info = delivery.remote.condition.info if delivery.remote.condition else {}
            self._bury(queue, stored, info.get("DeadLetterReason"), info.get("DeadLetterErrorDescription"))
        else:
            self._give_back(queue, stored, counts=state == Delivery.MODIFIED)
        delivery.update(state)
        delivery.settle()
        self._pump(queue)

    def _give_back(self, queue: Queue, stored: Stored, *, counts: bool) -> None:
        stored.reading = None
        stored.failed += counts
        if counts and stored.failed >= MAX_DELIVERIES and not queue.name.endswith(DEAD):
            self._bury(queue, stored, "MaxDeliveryCountExceeded", "Message could not be consumed after 3 attempts.")

    def _bury(self, queue: Queue, stored: Stored, reason: str | None, description: str | None) -> None:
        queue.stored.remove(stored)
        said = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
        stored.message.properties = {**(stored.message.properties or {}), **said}
        grave = self._queue(queue.name + DEAD)
        assert grave is not None
        self._store(grave, stored.message, stored.session, stored.failed)

    def on_timer_task(self, event: Any) -> None:
        now = time.time()
        for queue in list(self.queues.values()):
            for reading in list(queue.readings):
                if reading.session is not None and reading.until < now:
                    self._forget(reading.link, counts=True)
                    reading.link.condition = Condition(
                        "com.microsoft:session-lock-lost", "The session lock has expired."
                    )
                    reading.link.close()
            if not queue.sessions:
                for stored in list(queue.stored):
                    if stored.reading is not None and stored.until < now:
                        self._give_back(queue, stored, counts=True)
                self._pump(queue)
        self._accept()
        event.reactor.schedule(TICK_S, self)

    def _forget_connection(self, connection: Any) -> None:
        for link in [reading.link for queue in self.queues.values() for reading in queue.readings]:
            if link.connection == connection:
                self._forget(link)
        self.accepting = [waiting for waiting in self.accepting if waiting[0].connection != connection]
        self.replies = {key: link for key, link in self.replies.items() if key[0] != connection}

    def _forget(self, link: Link, counts: bool = False) -> None:
        """The link reads no longer: its session is free, and what it holds comes again."""
        self.accepting = [waiting for waiting in self.accepting if waiting[0] != link]
        reading: Reading | None = getattr(link, "reading", None)
        if reading is None or reading not in reading.queue.readings:
            return
        reading.queue.readings.remove(reading)
        for stored in [stored for stored in reading.queue.stored if stored.reading is reading]:
            self._give_back(reading.queue, stored, counts=counts)
        self._accept()
        self._pump(reading.queue)

    def _answer(self, link: Link, address: str, request: Message) -> None:
        reply = Message(correlation_id=request.id, address=request.reply_to)
        if address.endswith("$cbs"):
            reply.properties = {"status-code": 202, "status-description": "Accepted"}
        else:
            queue = self._queue(address.removesuffix("/$management"))
            assert queue is not None
            code, body = self._manage(queue, str(request.properties["operation"]), request)
            said = {200: "OK", 204: "No Content"}.get(code, "com.microsoft:session-lock-lost")
            reply.properties = {"statusCode": code, "statusDescription": said}
            if code >= 400:
                reply.properties["errorCondition"] = symbol(said)
            reply.body = body
        link.send(reply)

    def _manage(self, queue: Queue, operation: str, request: Message) -> tuple[int, Any]:
        body = {str(name): value for name, value in (request.body or {}).items()}
        until = time.time() + self.lock_s
        if operation == "com.microsoft:renew-session-lock":
            for reading in queue.readings:
                if reading.session == body["session-id"]:
                    reading.until = until
                    return 200, {"expiration": timestamp(int(until * 1000))}
        elif operation == "com.microsoft:renew-lock":
            for stored in queue.stored:
                if stored.reading is not None and stored.token in body["lock-tokens"].elements:
                    stored.until = until
                    return 200, {"expirations": [timestamp(int(until * 1000))]}
        elif operation == "com.microsoft:peek-message":
            found = list(self._peeked(queue, body))
            return (200, {"messages": [{"message": wire(stored)} for stored in found]}) if found else (204, None)
        elif operation == "com.microsoft:get-message-sessions":
            sessions = list(dict.fromkeys(stored.session for stored in queue.stored))
            page = sessions[body["skip"] : body["skip"] + body["top"]]
            return (200, {"skip": body["skip"], "sessions-ids": page}) if page else (204, None)
        return 410, None

    def _peeked(self, queue: Queue, body: dict[str, Any]) -> Iterator[Stored]:
        left = body["message-count"]
        for stored in queue.stored:
            if (
                left
                and stored.number >= body["from-sequence-number"]
                and body.get("session-id") in (None, stored.session)
            ):
                left -= 1
                yield stored


def wire(stored: Stored) -> bytes:
    """The message as it goes out."""
    stored.message.delivery_count = stored.failed
    stored.message.annotations = {
        symbol("x-opt-sequence-number"): stored.number,
        symbol("x-opt-enqueued-time"): timestamp(int(stored.sent * 1000)),
        symbol("x-opt-locked-until"): timestamp(int(stored.until * 1000)),
        symbol("x-opt-enqueue-sequence-number"): ulong(0),
    }
    encoded: bytes = stored.message.encode()
    return encoded


def ticks(seconds: float) -> int:
    """A Unix time as .NET counts: in 100 ns since the year 1."""
    return 621355968000000000 + int(seconds * 1e7)


def path_of(address: str | None) -> str:
    """The queue's name in ``amqps://host/queue``, or the bare name."""
    return urlsplit(address or "").path.lstrip("/")


def refuse(link: Link, name: str, description: str) -> None:
    """As AMQP does it: open, then close with the error. The SDK reads a session and a property of every open."""
    if link.is_sender:
        link.source.filter.clear()
        link.source.filter.put_dict({SESSION_FILTER: ""})
        link.properties = {"com.microsoft:locked-until-utc": ticks(time.time() + 60)}
    link.open()
    link.condition = Condition(name, description)
    link.close()


if __name__ == "__main__":
    Container(Bus(int(sys.argv[1]), float(sys.argv[2]))).run()

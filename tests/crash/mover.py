"""A client that moves messages from one queue to another in transactions, on the bare engine and a blocking socket.

Five are taken, posted and accepted in each. When the broker is gone in the middle, all of it is done again by the next
transaction; when it goes between a commit and its answer, the broker is asked what became of that, as soon as it is
back. What the answers said is remembered, so that a test can hold the queues against it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from acquit.protocol._definitions import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from acquit.protocol.connection import Connection
from acquit.protocol.delivery import Delivery, DeliveryState
from acquit.protocol.events import ConnectionEnded, DeliveriesReceived, LinkDetached, LinkDrained, StatesReceived
from acquit.protocol.link import Link, ReceivingLink, SendingLink
from acquit.protocol.message import Message
from acquit.protocol.options import ConnectionOptions
from tests.support.transacting import control_message

FROM = "from"
TO = "to"
TOGETHER = 5
TIMEOUT_S = 30.0


class Lost(Exception):
    """The connection is gone."""


class Wire:
    """One connection, and what was heard on it."""

    def __init__(self, url: str, container: str = "mover") -> None:
        host, port = url.removeprefix("amqp://").split(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.engine = Connection(
            ConnectionOptions(container_id=container), server=False, sasl=None, now=time.monotonic()
        )
        self.received: dict[Link, list[Delivery]] = {}
        self.answers: dict[Delivery, DeliveryState | None] = {}
        self.drained: set[Link] = set()
        self._tags = 0
        try:
            self.engine.open()
            self.until(lambda: self.engine.writable)
            self.session = self.engine.begin()
            self.until(lambda: self.session.mapped)
        except BaseException:
            self.socket.close()
            raise

    def until(self, what: Callable[[], bool]) -> None:
        """Carry bytes until this is so. Raises Lost."""
        end = time.monotonic() + TIMEOUT_S
        while True:
            output = self.engine.data_to_send()
            if output:
                self.socket.sendall(output)
            if what():
                return
            assert time.monotonic() < end, "the broker says nothing"
            data = self.socket.recv(65_536)
            if not data:
                raise Lost
            for event in self.engine.receive_data(data, time.monotonic()):
                match event:
                    case DeliveriesReceived(link=link, deliveries=deliveries):
                        self.received.setdefault(link, []).extend(deliveries)
                    case StatesReceived(deliveries=deliveries, state=state):
                        self.answers.update(dict.fromkeys(deliveries, state))
                    case LinkDrained(link=link):
                        self.drained.add(link)
                    case LinkDetached(error=error):
                        raise AssertionError(f"a link ended: {error}")
                    case ConnectionEnded():
                        raise Lost
                    case _:
                        pass

    def send(self, link: SendingLink, payload: bytes, state: DeliveryState | None = None) -> Delivery:
        self.until(lambda: link.sendable)
        self._tags += 1
        return link.send(self._tags.to_bytes(4, "big"), payload, state=state)

    def answer(self, sent: Delivery) -> DeliveryState | None:
        self.until(lambda: sent in self.answers)
        return self.answers[sent]


def ask_fate(wire: Wire, txn_id: bytes) -> str:
    """What the broker says became of a transaction."""
    name = f"fate-{txn_id.hex()}"
    answers = wire.session.attach_receiver(f"answers-{name}", source=Source("$management"), target=Target(name))
    answers.grant(1)
    requests = wire.session.attach_sender(f"requests-{name}", source=Source(), target=Target("$management"))
    properties = {"operation": "READ", "type": "acquit:transaction", "name": txn_id.hex()}
    request = Message(None, message_id="1", reply_to=name, application_properties=properties)
    assert not isinstance(wire.answer(wire.send(requests, request.encode())), Rejected)
    wire.until(lambda: bool(wire.received.get(answers)))
    body = Message.decode(wire.received[answers][0].payload).body
    assert isinstance(body, dict)
    return str(body["fate"])


class Mover(threading.Thread):
    """See above."""

    def __init__(self, count: int) -> None:
        super().__init__(name="mover", daemon=True)
        self._url: str | None = None
        self._count = count
        self.changed = threading.Condition()
        self.moved: set[str] = set()
        """Bodies that the broker has told us are in the other queue."""
        self.doubtful: tuple[bytes, list[str]] | None = None
        """A commit whose answer did not come: its transaction, and what is in it."""
        self.resolved: list[str] = []
        """What the broker said of such."""
        self.losses = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while len(self.moved) < self._count:
                try:
                    self._work(Wire(self._broker()))
                except (Lost, OSError):
                    self.losses += 1
        except BaseException as why:
            self.failure = why
        with self.changed:
            self.changed.notify_all()

    def broker_is(self, url: str | None) -> None:
        """Where it is now; None: nowhere."""
        with self.changed:
            self._url = url
            self.changed.notify_all()

    def _broker(self) -> str:
        with self.changed:
            assert self.changed.wait_for(lambda: self._url is not None, TIMEOUT_S), "the broker does not come back"
            assert self._url is not None
            return self._url

    def wait_for(self, moved: int) -> None:
        """Until so many have been moved."""
        with self.changed:
            held = self.changed.wait_for(lambda: self.failure is not None or len(self.moved) >= moved, 60)
        if self.failure is not None:
            raise self.failure
        assert held, "the mover makes no progress"

    def _work(self, wire: Wire) -> None:
        with wire.socket:
            session = wire.session
            if self.doubtful is not None:
                self._ask(wire)
            control = session.attach_sender("control", source=Source(), target=Coordinator())
            sender = session.attach_sender("sender", source=Source(), target=Target(TO))
            receiver = session.attach_receiver("receiver", source=Source(FROM), target=Target())
            while len(self.moved) < self._count:
                self._move(wire, control, sender, receiver)
            wire.engine.close()
            with suppress(Lost):
                wire.until(lambda: wire.engine.closed)

    def _move(self, wire: Wire, control: SendingLink, sender: SendingLink, receiver: ReceivingLink) -> None:
        declared = wire.answer(wire.send(control, control_message(Declare())))
        assert isinstance(declared, Declared), declared
        together = min(TOGETHER, self._count - len(self.moved))
        wire.received[receiver] = []
        receiver.grant(together)
        wire.until(lambda: len(wire.received[receiver]) == together)
        bodies = []
        for number, delivery in enumerate(wire.received[receiver]):
            message = Message.decode(delivery.payload)
            bodies.append(str(message.body))
            copy = Message(message.body, durable=True, message_id=message.message_id)
            wire.send(sender, copy.encode(), TransactionalState(declared.txn_id))
            state = TransactionalState(declared.txn_id, Accepted())
            if number % 2:
                delivery.settle(state)
            else:
                delivery.update(state)
        self.doubtful = declared.txn_id, bodies
        discharge = wire.send(control, control_message(Discharge(declared.txn_id, False)))
        assert wire.answer(discharge) == Accepted(), wire.answers[discharge]
        self._committed()

    def _committed(self) -> None:
        assert self.doubtful is not None
        with self.changed:
            self.moved.update(self.doubtful[1])
            self.doubtful = None
            self.changed.notify_all()

    def _ask(self, wire: Wire) -> None:
        """What became of the commit whose answer did not come?"""
        assert self.doubtful is not None
        fate = ask_fate(wire, self.doubtful[0])
        self.resolved.append(fate)
        if fate == "committed":
            self._committed()
        else:
            self.doubtful = None  # rolled back, or never heard of: not committed, in so short a time


__all__ = ["FROM", "TO", "Lost", "Mover", "Wire", "ask_fate"]

"""What tests of foreign brokers look at: where a message is, and what is left.

No broker has to tell how long a queue is. All of them answer *drain*: what a link did not get by then, it does not get.
Only what Artemis has accepted a moment ago may still be on its way into the queue then: where that is asked for, it is
waited for (`everything`).
An outcome that nobody answers is followed by a message to another queue on the same session, whose acceptance says that
what was said before it has been read.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import acquit
from acquit import AckMode
from tests.interop.foreign import ForeignBroker

PATIENCE_S = 20.0
GONE_S = 1.0
"""What is in none of the queues so long is nowhere: a broker can have it between two."""


def take(receiver: acquit.Receiver) -> acquit.ReceivedMessage:
    """The next message, which must come."""
    message = receiver.receive(timeout=PATIENCE_S)
    assert message is not None, f"nothing came from {receiver.address}"
    return message


def rest(receiver: acquit.Receiver) -> Iterator[acquit.ReceivedMessage]:
    """What is there for this receiver, until the broker says that it has no more."""
    while True:
        assert receiver.drain(PATIENCE_S), f"{receiver.address} was not drained"
        messages = receiver.receive_many(1000, timeout=0)
        if not messages:
            return
        yield from messages


def everything(receiver: acquit.Receiver, bodies: Collection[object]) -> list[acquit.ReceivedMessage]:
    """Take messages until each of these bodies was among them, and then what else is there."""
    found: list[acquit.ReceivedMessage] = []
    while not {message.body for message in found}.issuperset(bodies):
        found.append(take(receiver))
    return [*found, *rest(receiver)]


@dataclass
class Bench:
    """One queue of a broker, and what a test wants to know about it."""

    broker: ForeignBroker
    connection: acquit.Connection
    queue: str
    graves: str | None
    """Where it buries what failed; None: wherever the broker does by itself."""
    marker: str

    def fill(self, *bodies: str) -> None:
        with self.connection.session() as session, session.sender(self.queue) as sender:
            for body in bodies:
                sender.send(acquit.Message(body=body, message_id=f"id of {body}", durable=True))

    def said(self, session: acquit.Session) -> None:
        """The broker has read what the session said so far."""
        with session.sender(self.marker) as sender:
            sender.send("read", timeout=PATIENCE_S)

    def left(self, count: int, queue: str | None = None) -> list[tuple[object, int]]:
        """Take what the queue has, which must be so many messages: bodies, with their delivery counts. Some brokers put
        a message back later than they say."""
        with self.connection.session(AckMode.AUTO) as session, session.receiver(queue or self.queue) as receiver:
            messages = [take(receiver) for _ in range(count)]
            assert list(rest(receiver)) == []
        return [(message.body, message.delivery_count) for message in messages]

    def left_there(self, queue: str) -> list[tuple[object, int]]:
        """Take what a queue has just now."""
        with self.connection.session(AckMode.AUTO) as session, session.receiver(queue) as receiver:
            return [(message.body, message.delivery_count) for message in rest(receiver)]

    def becomes(self, body: str) -> tuple[str, acquit.Message | None]:
        """Where a message is found, and taken: "again" in the queue, "dead letter", or "gone"."""
        places = {"again": self.queue} | ({"dead letter": self.graves} if self.graves else {})
        with self.connection.session(AckMode.AUTO) as session:
            receivers = {place: session.receiver(queue) for place, queue in places.items()}
            end = time.monotonic() + GONE_S
            while time.monotonic() < end:
                for place, receiver in receivers.items():
                    for message in rest(receiver):
                        if message.body == body:
                            return place, message
        return "gone", None

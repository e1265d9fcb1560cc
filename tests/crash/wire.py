"""A client on the bare engine and a blocking socket, which notices when its broker is gone and asks for fates."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from acquit.protocol.connection import Connection
from acquit.protocol.definitions import Rejected, Source, Target
from acquit.protocol.delivery import Delivery, DeliveryState
from acquit.protocol.events import ConnectionEnded, DeliveriesReceived, LinkDetached, LinkDrained, StatesReceived
from acquit.protocol.link import Link, SendingLink
from acquit.protocol.message import Message
from acquit.protocol.options import ConnectionOptions

TIMEOUT_S = 30.0


class Lost(Exception):
    """The connection is gone."""


class Wire:
    """One connection, and what was heard on it."""

    def __init__(self, url: str, container: str) -> None:
        host, port = url.removeprefix("amqp://").split(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.engine = Connection(
            ConnectionOptions(container_id=container), server=False, sasl=None, now=time.monotonic()
        )
        self.received: dict[Link, list[Delivery]] = {}
        self.answers: dict[Delivery, DeliveryState | None] = {}
        self.drained: set[Link] = set()
        self.bytes_sent = 0
        self.bytes_heard = 0
        self.condition: str | None = None
        """Why the broker ended the connection, if it said so."""
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
                self.bytes_sent += len(output)
            if what():
                return
            assert time.monotonic() < end, "the broker says nothing"
            data = self.socket.recv(65_536)
            if not data:
                raise Lost
            self.bytes_heard += len(data)
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
                    case ConnectionEnded(error=error):
                        self.condition = error.condition if error is not None else None
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


__all__ = ["Lost", "Wire", "ask_fate"]

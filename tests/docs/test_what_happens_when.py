"""The tables "What happens when" of the pages about acknowledgement modes, row by row, against our broker.

Four messages are in the queue, the prefetch is 2, and the first message is handed out; then something happens. What
the next consumer gets, and how often it was counted, is what the pages say.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from enum import Enum

import pytest

import acquit
from acquit import AckMode
from acquit.testing import Proxy
from tests.support.outages import until

BODIES = ["m1", "m2", "m3", "m4"]

GONE, BACK, COUNTED = None, 0, 1
"""What became of a message: the next consumer does not get it, gets it with a count of 0, or of 1."""


class Event(Enum):
    LOST = "the connection is lost"
    CLOSED = "the receiver is closed"
    SESSION_CLOSED = "the session is closed"


@pytest.fixture
def broker() -> Iterator[acquit.Broker]:
    with acquit.Broker() as broker:
        with acquit.connect(broker.url) as connection:
            sender = connection.session().sender("orders")
            for body in BODIES:
                sender.send(body)
        yield broker


def left(broker: acquit.Broker) -> dict[str, int]:
    """What the next consumer gets, and the count of each."""
    until(lambda: broker.inspect().queue("orders").acquired == 0, "nobody holds a message")
    found = {}
    with acquit.connect(broker.url) as connection, connection.session() as session:
        receiver = session.receiver("orders", prefetch=0)
        while (message := receiver.receive(timeout=0.05)) is not None:
            found[message.body] = message.delivery_count
    return found


def fates(broker: acquit.Broker) -> list[int | None]:
    found = left(broker)
    return [found.get(body) for body in BODIES]


# On hand-over the credit of m1 comes back, so that m3 is sent ahead as well; elsewhere it is not.
RECEIVED = [
    (AckMode.AUTO, Event.LOST, [GONE, COUNTED, COUNTED, BACK]),
    (AckMode.AUTO, Event.CLOSED, [GONE, BACK, BACK, BACK]),
    (AckMode.AUTO, Event.SESSION_CLOSED, [GONE, BACK, BACK, BACK]),
    (AckMode.PRE_ACK, Event.LOST, [GONE, COUNTED, COUNTED, BACK]),
    (AckMode.PRE_ACK, Event.CLOSED, [GONE, BACK, BACK, BACK]),
    (AckMode.PRE_ACK, Event.SESSION_CLOSED, [GONE, BACK, BACK, BACK]),
    (AckMode.DUPS_OK, Event.LOST, [COUNTED, COUNTED, COUNTED, BACK]),
    (AckMode.DUPS_OK, Event.CLOSED, [GONE, BACK, BACK, BACK]),
    (AckMode.DUPS_OK, Event.SESSION_CLOSED, [GONE, BACK, BACK, BACK]),
    (AckMode.CLIENT, Event.LOST, [COUNTED, COUNTED, BACK, BACK]),
    (AckMode.CLIENT, Event.CLOSED, [COUNTED, BACK, BACK, BACK]),
    (AckMode.CLIENT, Event.SESSION_CLOSED, [COUNTED, BACK, BACK, BACK]),
    (AckMode.INDIVIDUAL, Event.LOST, [COUNTED, COUNTED, BACK, BACK]),
    (AckMode.INDIVIDUAL, Event.CLOSED, [COUNTED, BACK, BACK, BACK]),
    (AckMode.INDIVIDUAL, Event.SESSION_CLOSED, [COUNTED, BACK, BACK, BACK]),
    (AckMode.TRANSACTED, Event.LOST, [COUNTED, COUNTED, COUNTED, BACK]),
    (AckMode.TRANSACTED, Event.SESSION_CLOSED, [COUNTED, BACK, BACK, BACK]),
    (AckMode.NO_ACK, Event.LOST, [GONE, GONE, GONE, BACK]),
    (AckMode.NO_ACK, Event.CLOSED, [GONE, GONE, GONE, BACK]),
    (AckMode.NO_ACK, Event.SESSION_CLOSED, [GONE, GONE, GONE, BACK]),
]


@pytest.mark.parametrize(
    ("mode", "event", "expected"), RECEIVED, ids=[f"{mode.name}-{event.name}" for mode, event, _ in RECEIVED]
)
def test_received(broker: acquit.Broker, mode: AckMode, event: Event, expected: list[int | None]) -> None:
    options = acquit.ConnectOptions(reconnect=None)
    with Proxy(broker.url) as proxy, acquit.connect(proxy.url, options=options) as connection:
        session = connection.session(mode)
        receiver = session.receiver("orders", prefetch=2)
        proxy.wait_for("transfer", 2, by="broker")
        if mode is AckMode.DUPS_OK and event is Event.LOST:
            # Before the acceptance is said, which is so after 100 ms.
            proxy.before("disposition", by="client").cut(reset=True)
        message = receiver.receive(timeout=10)
        assert message is not None and message.body == "m1"
        if expected[2] != BACK or event is not Event.LOST:
            ahead = 2 if mode in (AckMode.CLIENT, AckMode.INDIVIDUAL) else 3
            until(lambda: len(proxy.passed("transfer", by="broker", where=is_message)) == ahead, "all was sent ahead")
        match event:
            case Event.CLOSED:
                receiver.close()
            case Event.SESSION_CLOSED:
                session.close()
            case Event.LOST:
                if mode in (AckMode.AUTO, AckMode.PRE_ACK):
                    until(lambda: broker.inspect().queue("orders").accepted == 1, "the acceptance was heard")
                if mode is not AckMode.DUPS_OK:
                    proxy.cut(reset=True)
                until(lambda: connection.closed, "the connection is over")
        assert fates(broker) == expected


def is_message(frame: object) -> bool:
    return getattr(frame, "control", None) is None


FAILING = [
    (AckMode.AUTO, [COUNTED, BACK, BACK, BACK]),
    (AckMode.DUPS_OK, [COUNTED, BACK, BACK, BACK]),
    (AckMode.PRE_ACK, [GONE, BACK, BACK, BACK]),
    (AckMode.CLIENT, [COUNTED, BACK, BACK, BACK]),
    (AckMode.INDIVIDUAL, [COUNTED, BACK, BACK, BACK]),
]


@pytest.mark.parametrize(("mode", "expected"), FAILING, ids=[mode.name for mode, _ in FAILING])
def test_a_handler_that_raises(
    broker: acquit.Broker, mode: AckMode, expected: list[int | None], caplog: pytest.LogCaptureFixture
) -> None:
    """In CLIENT and INDIVIDUAL that ends the listening, and the close counts what is still handed out."""
    with acquit.connect(broker.url) as connection, connection.session(mode) as session:
        receiver = session.receiver("orders", prefetch=2)

        def handler(message: acquit.ReceivedMessage) -> None:
            listener.stop(0)
            raise ValueError("as intended")

        started = threading.Event()
        listener = receiver.start_listener(lambda message: (started.wait(10), handler(message)))
        started.set()
        if mode in (AckMode.CLIENT, AckMode.INDIVIDUAL):
            with pytest.raises(ValueError, match="as intended"):
                listener.wait(10)
        else:
            assert listener.wait(10)
        receiver.close()
        assert fates(broker) == expected


@pytest.mark.parametrize("mode", [AckMode.CLIENT, AckMode.INDIVIDUAL])
def test_an_acknowledgement_whose_answer_is_lost_is_unknown(broker: acquit.Broker, mode: AckMode) -> None:
    options = acquit.ConnectOptions(reconnect=None)
    with Proxy(broker.url) as proxy, acquit.connect(proxy.url, options=options) as connection:
        receiver = connection.session(mode).receiver("orders", prefetch=2)
        message = receiver.receive(timeout=10)
        assert message is not None
        proxy.before("disposition", by="broker").cut(reset=True)
        assert message.acknowledge().status is acquit.ReceiptStatus.UNKNOWN
        assert fates(broker)[0] is GONE  # it was applied, this time


@pytest.mark.parametrize("mode", [AckMode.CLIENT, AckMode.INDIVIDUAL])
def test_recover_hands_out_again_what_was_not_acknowledged(broker: acquit.Broker, mode: AckMode) -> None:
    with acquit.connect(broker.url) as connection, connection.session(mode) as session:
        receiver = session.receiver("orders", prefetch=4)
        until(lambda: broker.inspect().queue("orders").acquired == 4, "all was sent ahead")
        assert [receiver.receive(timeout=10).body for _ in range(2)] == ["m1", "m2"]
        assert session.recover() == 2
        again = [receiver.receive(timeout=10) for _ in range(4)]
        assert [(message.body, message.delivery_count) for message in again] == [
            ("m1", 1),
            ("m2", 1),
            ("m3", 0),
            ("m4", 0),
        ]

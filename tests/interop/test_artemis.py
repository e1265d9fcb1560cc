"""Our client on Apache Artemis: what is its alone. What all brokers have in common is in `test_foreign_*`."""

from __future__ import annotations

import time

import pytest

from acquit import AckMode, Message
from tests.interop.foreign import ATTEMPTS_MAX, GRAVES, THRICE, ForeignBroker
from tests.interop.foreign_looks import rest, take

pytestmark = [pytest.mark.interop, pytest.mark.parametrize("foreign", ["artemis"], indirect=True, scope="session")]


def test_a_dead_letter_says_where_it_was(foreign: ForeignBroker, address: str) -> None:
    foreign.queue(GRAVES)
    queue = foreign.queue(f"{address}{THRICE}", max_delivery_attempts=ATTEMPTS_MAX, dead_letter=GRAVES)
    with foreign.connect() as connection, connection.session(AckMode.INDIVIDUAL) as session:
        session.sender(queue).send(Message(body="bad", durable=True))
        take(session.receiver(queue)).reject()
        dead = take(session.receiver(GRAVES))
        assert dead.body == "bad"
        assert dead.annotations["x-opt-ORIG-QUEUE"] == dead.annotations["x-opt-ORIG-ADDRESS"] == queue
        dead.accept()


def test_queues_of_an_address_are_received_from_by_their_full_names(foreign: ForeignBroker, address: str) -> None:
    topic = foreign.topic(address)
    with foreign.connect() as connection, connection.session(AckMode.AUTO) as session:
        one, two = session.receiver(f"{topic}::one"), session.receiver(f"{topic}::two")
        session.sender(topic, topic=True).send("to both")
        assert take(one).body == take(two).body == "to both"


def test_a_message_that_is_delivered_later(foreign: ForeignBroker, address: str) -> None:
    queue = foreign.queue(address)
    with foreign.connect() as connection, connection.session(AckMode.AUTO) as session:
        assert "DELAYED_DELIVERY" in connection.remote_capabilities
        receiver = session.receiver(queue)
        sent_at = time.time()
        due_ms = int(sent_at * 1000) + 400
        sender = session.sender(queue)
        sender.send(Message(body="later", annotations={"x-opt-delivery-time": due_ms}))
        sender.send("now")
        assert [take(receiver).body, take(receiver).body] == ["now", "later"]
        assert time.time() - sent_at >= 0.3


def test_an_expired_message_is_kept_elsewhere(foreign: ForeignBroker, address: str) -> None:
    queue = foreign.queue(address)
    with foreign.connect() as connection, connection.session(AckMode.AUTO) as session:
        session.sender(queue).send(Message(body=address, ttl_ms=1))
        time.sleep(0.01)
        assert list(rest(session.receiver(queue))) == []
        receiver = session.receiver("ExpiryQueue")
        while (expired := take(receiver)).body != address:
            pass
        assert expired.annotations["x-opt-ORIG-QUEUE"] == queue

"""Qpid JMS and queues: messages of every type, priorities, ttl, delays, browsers, large ones."""

from __future__ import annotations

import base64
import hashlib
import time

import pytest

from tests.interop.conftest import Look, Server
from tests.interop.qpid_jms import (
    NON_PERSISTENT,
    PERSISTENT,
    Connection,
    Jms,
    JmsError,
    Received,
    Session,
    texts,
)

pytestmark = pytest.mark.interop

TYPED = {
    "boolean": True,
    "byte": -128,
    "short": 32767,
    "int": -(2**31),
    "long": 2**63 - 1,
    "float": 0.5,
    "double": 1e300,
    "string": "Grüße, 世界",
}


def typed(kind: str, value: object) -> dict[str, object]:
    return {"type": kind, "value": value}


@pytest.fixture
def connection(jms: Jms, server: Server) -> Connection:
    return jms.connect(server.url)


@pytest.fixture
def session(connection: Connection) -> Session:
    return connection.session()


@pytest.fixture
def queue(address: str) -> str:
    return f"queue:{address}"


def there_and_back(session: Session, queue: str, message: dict[str, object]) -> Received:
    session.send(queue, message)
    return session.consumer(queue).take()[0]


# ---- messages


def test_text_message(session: Session, queue: str) -> None:
    assert there_and_back(session, queue, {"text": "Grüße, 世界 \U0001f409"}).text == "Grüße, 世界 \U0001f409"


def test_empty_text_message(session: Session, queue: str) -> None:
    assert there_and_back(session, queue, {"text": ""}).text == ""


def test_bytes_message(session: Session, queue: str) -> None:
    body = base64.b64encode(bytes(range(256))).decode()
    assert there_and_back(session, queue, {"bytes": body})["bytes"] == body


def test_map_message(session: Session, queue: str) -> None:
    entries = {kind: typed(kind, value) for kind, value in TYPED.items()}
    entries["char"] = typed("char", "ß")
    entries["bytes"] = typed("bytes", base64.b64encode(b"\0\xff").decode())
    entries["null"] = typed("null", None)
    assert there_and_back(session, queue, {"map": entries})["map"] == entries


def test_stream_message(session: Session, queue: str) -> None:
    values = [typed(kind, value) for kind, value in TYPED.items()] + [typed("null", None)]
    assert there_and_back(session, queue, {"stream": values})["stream"] == values


def test_object_message(session: Session, queue: str) -> None:
    assert there_and_back(session, queue, {"object": typed("long", 5)})["object"] == typed("long", 5)


def test_message_without_body(session: Session, queue: str) -> None:
    arrived = there_and_back(session, queue, {"properties": {"only": "this"}})
    assert arrived.properties == {"only": "this"}
    assert not {"text", "bytes", "map", "stream", "object"} & set(arrived.fields)


def test_properties_keep_their_types(session: Session, queue: str) -> None:
    properties = {f"a_{kind}": typed(kind, value) for kind, value in TYPED.items()}
    arrived = there_and_back(session, queue, {"text": "", "properties": properties})
    assert {name: value for name, value in arrived["properties"].items() if name.startswith("a_")} == properties


def test_headers_arrive_as_they_were_sent(session: Session, queue: str) -> None:
    message = {"text": "m", "correlation_id": "request-7", "jms_type": "order"}
    [sent] = session.send(queue, message, priority=7, ttl=600_000, reply_to="queue:answers.here")
    [arrived] = session.consumer(queue).take()
    assert {name: arrived[name] for name in sent if name != "delivery_count"} == {
        name: value for name, value in sent.items() if name != "delivery_count"
    }
    assert arrived["correlation_id"] == "request-7"
    assert arrived["jms_type"] == "order"
    assert arrived["priority"] == 7
    assert arrived["delivery_mode"] == PERSISTENT
    assert arrived["destination"] == queue
    assert arrived["reply_to"] == "queue:answers.here"
    assert arrived["expiration"] - arrived["timestamp"] == 600_000
    assert arrived.count == 1


def test_message_groups_arrive_as_properties(session: Session, queue: str) -> None:
    properties = {"JMSXGroupID": "g", "JMSXGroupSeq": 3}
    arrived = there_and_back(session, queue, {"text": "", "properties": properties})
    assert arrived["properties"]["JMSXGroupID"] == typed("string", "g")
    assert arrived["properties"]["JMSXGroupSeq"] == typed("int", 3)


def test_large_text_and_bytes(session: Session, queue: str) -> None:
    body = base64.b64encode(hashlib.shake_256(b"large").digest(3_000_000)).decode()
    session.send(queue, {"bytes": body}, {"text": "ü" * 1_000_000})
    first, second = session.consumer(queue).take(2)
    assert first["bytes"] == body
    assert second.text == "ü" * 1_000_000


def test_message_over_the_limit_is_refused_and_the_connection_lives(session: Session, queue: str, look: Look) -> None:
    with pytest.raises(JmsError, match="size"):
        session.send(queue, {"text": "x" * 5_000_000})
    session.send(queue, "a small one")
    assert texts(session.consumer(queue).take()) == ["a small one"]


def test_a_thousand_messages_keep_their_order(session: Session, queue: str, address: str, look: Look) -> None:
    names = [f"m{number:04}" for number in range(1000)]
    session.send(queue, *names)
    assert texts(session.consumer(queue).take(1000)) == names
    look.until(address, depth=0, accepted=1000)


def test_non_persistent_messages(session: Session, queue: str) -> None:
    session.send(queue, "a", "b", delivery_mode=NON_PERSISTENT)
    arrived = session.consumer(queue).take(2)
    assert texts(arrived) == ["a", "b"]
    assert {message["delivery_mode"] for message in arrived} == {NON_PERSISTENT}


def test_listener_hears_what_arrives_later(session: Session, connection: Connection, queue: str) -> None:
    consumer = session.consumer(queue)
    consumer.listen()
    connection.session().send(queue, "a", "b")
    assert [consumer.heard().text, consumer.heard().text] == ["a", "b"]


def test_without_prefetch_consumers_take_turns(jms: Jms, server: Server, queue: str) -> None:
    session = jms.connect(server.url, options="jms.prefetchPolicy.all=0").session()
    session.send(queue, "a", "b", "c")
    one, two = session.consumer(queue), session.consumer(queue)
    assert [texts(one.take()), texts(two.take()), texts(one.take())] == [["a"], ["b"], ["c"]]
    assert two.rest() == []


def test_short_timeouts_lose_no_message(jms: Jms, server: Server, queue: str) -> None:
    connection = jms.connect(server.url, options="jms.prefetchPolicy.all=0")
    names = [f"m{number:03}" for number in range(200)]
    sending = connection.session().producer(queue).begin_send(*names)
    consumer = connection.session().consumer(queue)
    arrived: list[str] = []
    while len(arrived) < len(names):
        # Each of these ends with a drain that races with what is being sent.
        arrived += [message["text"] for message in consumer.begin_receive(1_000, 0.001).result()]
    sending.result()
    assert arrived == names
    assert consumer.rest() == []


def test_stopped_connection_keeps_what_it_was_sent(connection: Connection, session: Session, queue: str) -> None:
    consumer = session.consumer(queue)
    session.send(queue, "a", "b")
    assert texts(consumer.take()) == ["a"]
    connection.stop()
    assert consumer.rest() == []
    connection.start()
    assert texts(consumer.take()) == ["b"]


def test_asynchronous_sends_complete_in_order(jms: Jms, session: Session, queue: str) -> None:
    producer = session.producer(queue)
    sent = producer.send(*(f"m{number}" for number in range(100)), listen=True)
    completed = [jms.expect("completed", producer=producer.handle)["id"] for _ in range(100)]
    assert completed == [message["id"] for message in sent]


def test_connection_that_is_not_started_receives_nothing(jms: Jms, server: Server, queue: str) -> None:
    connection = jms.connect(server.url, start=False)
    session = connection.session()
    session.send(queue, "a")
    consumer = session.consumer(queue)
    assert consumer.rest() == []
    connection.start()
    assert texts(consumer.take()) == ["a"]


def test_anonymous_producer_sends_to_several_queues(session: Session, queue: str) -> None:
    producer = session.producer()
    for number in range(3):
        producer.send(f"m{number}", to=f"{queue}.{number}")
    for number in range(3):
        assert texts(session.consumer(f"{queue}.{number}").take()) == [f"m{number}"]


def test_producer_to_an_address_that_may_not_be_made(session: Session) -> None:
    with pytest.raises(JmsError, match="^InvalidDestinationException"):
        session.producer("queue:closed.here")


def test_consumer_of_an_address_that_may_not_be_made(session: Session) -> None:
    with pytest.raises(JmsError, match="^InvalidDestinationException"):
        session.consumer("queue:closed.here")


# ---- priorities, ttl, delays


def test_ten_priorities_in_order(session: Session, queue: str) -> None:
    for priority in (4, 0, 9, 1, 8, 2, 7, 3, 6, 5):
        session.send(queue, f"{priority}a", f"{priority}b", priority=priority)
    arrived = session.consumer(queue).take(20)
    assert texts(arrived) == [f"{priority}{letter}" for priority in range(9, -1, -1) for letter in "ab"]
    assert [message["priority"] for message in arrived] == [p for p in range(9, -1, -1) for _ in "ab"]


def test_message_whose_ttl_has_passed_is_not_delivered(session: Session, queue: str, address: str, look: Look) -> None:
    session.send(queue, "short", ttl=50)
    session.send(queue, "long", ttl=600_000)
    look.until(address, expired=1)
    assert texts(session.consumer(queue).rest()) == ["long"]


def test_delivery_delay_holds_a_message_back(session: Session, queue: str) -> None:
    consumer = session.consumer(queue)
    begun = time.monotonic()
    session.send(queue, "later", delivery_delay=400)
    session.send(queue, "now")
    now, later = consumer.take(2)
    assert [now.text, later.text] == ["now", "later"]
    assert time.monotonic() - begun >= 0.4
    assert later["delivery_time"] - later["timestamp"] >= 400


def test_delayed_message_is_seen_by_no_consumer_before_its_time(
    session: Session, queue: str, address: str, look: Look
) -> None:
    session.send(queue, "later", delivery_delay=600_000)
    look.until(address, scheduled=1)
    assert session.consumer(queue).rest() == []


def test_delayed_messages_come_in_order_of_their_times(session: Session, queue: str) -> None:
    for text, delay in (("c", 450), ("a", 150), ("b", 300)):
        session.send(queue, text, delivery_delay=delay)
    assert texts(session.consumer(queue).take(3)) == ["a", "b", "c"]


# ---- browsers


def test_browser_sees_all_and_takes_nothing(session: Session, queue: str, address: str, look: Look) -> None:
    session.send(queue, "a", "b", "c")
    assert texts(session.browse(queue)) == ["a", "b", "c"]
    assert texts(session.browse(queue)) == ["a", "b", "c"]
    look.until(address, depth=3)
    assert texts(session.consumer(queue).take(3)) == ["a", "b", "c"]


def test_browser_of_an_empty_queue(session: Session, queue: str) -> None:
    session.producer(queue)
    assert session.browse(queue) == []


def test_browsing_counts_as_no_attempt(session: Session, queue: str) -> None:
    session.send(queue, "a")
    assert [message.count for message in session.browse(queue)] == [1]
    [arrived] = session.consumer(queue).take()
    assert arrived.count == 1

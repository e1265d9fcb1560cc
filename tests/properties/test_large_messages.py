"""Messages that are not copied: what becomes of them is what becomes of small ones, octet for octet.

Each way that a message can take through the broker is taken by one that is kept as a rope (`protocol.rope`): what
arrives is what was sent, the journal alone says the same, and nobody on the way has made a copy that need not be.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger import recorder
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Modified, Rejected
from acquit.protocol.extensions import ORIGIN, PLACE, POSTED_AT, SENDER_MARK, SEQUENCE
from acquit.protocol.link import ReceivingLink
from acquit.protocol.message import Message
from acquit.protocol.rope import ROPE_MIN, Rope
from acquit.protocol.types import Symbol, Timestamp
from tests.support.broker_world import Client, World
from tests.support.transacting import Controller

BODY = Random(1).randbytes(3 * ROPE_MIN + 5)
OPTIONS = BrokerOptions(address=(AddressRule("grouped", {"message_groups": True}),))
MESSAGES: dict[str, dict[str, Any]] = {
    "plain": {},
    "with an id": {"message_id": "one"},
    "that expires": {"ttl_ms": 3_600_000},
    "with annotations": {"annotations": {"x-opt-mine": "a" * 300}},
    "with delivery annotations": {"delivery_annotations": {"x-opt-mine": 1}},
    "of a group": {"group_id": "g", "group_sequence": 1},
    "with properties": {"application_properties": {"colour": "red"}},
}
each = pytest.mark.parametrize("fields", MESSAGES.values(), ids=MESSAGES)
durable_or_not = pytest.mark.parametrize("durable", [True, False], ids=["durable", "volatile"])


@contextmanager
def summed_as_it_came(monkeypatch: pytest.MonkeyPatch, *, durable: bool = True) -> Iterator[None]:
    """No checksum is made of all of a message: it has that from its frames."""
    taken: list[int] = []

    def crc32(data: bytes) -> int:
        taken.append(len(data))
        return 0

    monkeypatch.setattr(recorder, "crc32", crc32)
    yield
    monkeypatch.undo()
    assert taken == []


def ropes(world: World, queue: str = "q") -> list[Rope]:
    """Bodies of all that waits in a queue, none of which is in one piece."""
    bodies = [message.body for message in world.core.queues.by_name[queue].backlog.objects() if message is not None]
    assert all(isinstance(body, Rope) for body in bodies), bodies
    return bodies  # type: ignore[return-value]


def take(client: Client, address: str = "q", name: str = "receiver", **options: Any) -> ReceivingLink:
    link = client.receiver(address, name, credit=1, **options)
    client.world.settle()
    return link


def arrived(client: Client, link: ReceivingLink, fields: dict[str, Any], *, durable: bool) -> set[str]:
    """The last that arrived is what was sent; names of the annotations that it has besides."""
    found = Message.decode(client.received[link][-1].payload)
    sent = Message(BODY, durable=durable, **fields)
    assert (found.body, found.durable) == (sent.body, sent.durable)
    assert (found.properties, found.application_properties) == (sent.properties, sent.application_properties)
    assert found.delivery_annotations == sent.delivery_annotations
    assert found.annotations.items() >= sent.annotations.items()
    return {str(name) for name in found.annotations} - {str(name) for name in sent.annotations}


@pytest.mark.pure
@durable_or_not
@each
def test_it_goes_through_a_queue_without_a_copy(
    fields: dict[str, Any], durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(OPTIONS)
    client = world.client()
    sender = client.sender("grouped" if "group_id" in fields else "q")
    with summed_as_it_came(monkeypatch):
        for _ in range(2):  # the second by the template that the first has left, if it has
            client.post_all(sender, Message(BODY, durable=durable, **fields))
    address = "grouped" if "group_id" in fields else "q"
    assert len({id(rope.payload) for rope in ropes(world, address)}) == 2
    if durable:
        world.check_journal()
    link = take(client, address)
    for _ in range(2):
        assert arrived(client, link, fields, durable=durable) == {SEQUENCE, POSTED_AT}
        client.received[link][-1].settle(ACCEPTED)
        link.grant(1)
        world.settle()
    world.check_journal()


@each
def test_it_is_read_back(fields: dict[str, Any]) -> None:
    world = World(OPTIONS)
    client = world.client()
    client.post_all(client.sender("q"), Message(BODY, durable=True, **fields))
    world = world.crash()
    client = world.client()
    link = take(client)
    assert arrived(client, link, fields, durable=True) == {SEQUENCE, POSTED_AT}
    (message,) = world.core.life.objects.values()
    assert isinstance(message.body, Rope)


@durable_or_not
@each
def test_it_comes_back_with_what_was_said_of_it(fields: dict[str, Any], durable: bool) -> None:
    world = World(OPTIONS)
    client = world.client()
    client.post_all(client.sender("q"), Message(BODY, durable=durable, **fields))
    (posted,) = ropes(world)
    for number, outcome in enumerate((RELEASED, Modified(message_annotations={Symbol("x-opt-said"): 5}))):
        link = take(client, name=f"first-{number}")
        client.received[link][0].settle(outcome)
        client.detach(link)
        world.settle()
        (rope,) = ropes(world)
        assert rope.payload is posted.payload
    more = arrived(client, take(client), fields, durable=durable)
    assert more > {SEQUENCE, POSTED_AT, "x-opt-said"}
    world.check_journal()


@durable_or_not
def test_it_is_copied_to_subscriptions_that_share_it(durable: bool) -> None:
    world = World(OPTIONS)
    client = world.client()
    links = [client.subscriber("t", f"subscriber-{number}", credit=0) for number in range(3)]
    client.post_all(client.publisher("t"), Message(BODY, durable=durable))
    queues = [queue for queue in world.core.queues.by_name.values() if queue.available]
    assert len({id(rope.payload) for queue in queues for rope in ropes(world, queue.name)}) == 1
    for link in links:
        link.grant(1)
    world.settle()
    for link in links:
        arrived(client, link, {}, durable=durable)


@pytest.mark.parametrize("how", ["commit", "roll back"])
@durable_or_not
def test_it_is_posted_in_a_transaction(how: str, durable: bool) -> None:
    world = World(OPTIONS)
    client = world.client()
    controller = Controller(client)
    transaction = controller.declare()
    controller.post(client.sender("q"), transaction, Message(BODY, durable=durable))
    world.settle()
    if how == "roll back":
        controller.roll_back(transaction)
        assert not world.core.queues.by_name["q"].available
    else:
        assert controller.commit(transaction) is None
        arrived(client, take(client), {}, durable=durable)
    world.check_journal()


@durable_or_not
@each
def test_it_is_a_dead_letter_and_is_moved(fields: dict[str, Any], durable: bool) -> None:
    world = World(OPTIONS)
    client = world.client()
    client.post_all(client.sender("q"), Message(BODY, durable=durable, **fields))
    link = take(client)
    client.received[link][0].settle(Rejected())
    world.settle()
    more = arrived(client, take(client, "DLQ", "late"), {**fields, "ttl_ms": None}, durable=durable)
    assert {SEQUENCE, POSTED_AT, ORIGIN} <= more
    world.check_journal()


@durable_or_not
@each
def test_a_selector_makes_no_copy(fields: dict[str, Any], durable: bool) -> None:
    world = World(OPTIONS)
    client = world.client()
    client.post_all(client.sender("q"), Message(BODY, durable=durable, **fields))
    other = take(client, name="other", selector="colour = 'blue' OR JMSMessageID = 'ID:two' OR \"m.x-opt-mine\" = 'b'")
    said = "colour = 'red' OR JMSMessageID IS NOT NULL OR \"m.x-opt-mine\" IS NOT NULL OR JMSXGroupID = 'g'"
    named = fields.keys() - {"ttl_ms", "delivery_annotations"}
    link = take(client, selector=said if named else "colour IS NULL")
    arrived(client, link, fields, durable=durable)
    client.detach(other)
    client.detach(link)
    world.settle()
    (_,) = ropes(world)


def test_what_a_selector_looks_at_is_copied_once_where_it_is_large() -> None:
    fields = {"application_properties": {"colour": "red", "long": "a" * ROPE_MIN}}
    world = World(OPTIONS)
    client = world.client()
    client.post_all(client.sender("q"), Message(BODY, durable=True, **fields))
    take(client, name="other", selector="colour = 'blue'")
    (message,) = world.core.life.objects.values()
    assert isinstance(message.body, bytes)
    arrived(client, take(client, selector="colour = 'red'"), fields, durable=True)


@durable_or_not
def test_its_dead_letter_does_not_expire(durable: bool) -> None:
    fields = {"absolute_expiry_time": Timestamp(4_102_444_800_000), "message_id": "one"}
    world = World(OPTIONS)
    client = world.client()
    client.post_all(client.sender("q"), Message(BODY, durable=durable, **fields))
    client.received[take(client)][0].settle(Rejected())
    world.settle()
    arrived(client, take(client, "DLQ", "late"), {"message_id": "one"}, durable=durable)
    world.check_journal()


@pytest.mark.parametrize(
    "options",
    [{"presettled": True}, {"browse": True}, {"selector": "colour = 'red'"}, {"second": True}],
    ids=lambda options: next(iter(options)),
)
@durable_or_not
def test_whoever_takes_it(options: dict[str, Any], durable: bool) -> None:
    fields = MESSAGES["with properties"]
    world = World(OPTIONS)
    client = world.client()
    client.post_all(client.sender("q"), Message(BODY, durable=durable, **fields))
    link = take(client, **options)
    assert arrived(client, link, fields, durable=durable) == {SEQUENCE, POSTED_AT}
    world.settle()
    world.check_journal()


def test_a_peer_takes_it_in_one_frame() -> None:
    world = World(OPTIONS)
    client = world.client(max_frame_size=8 * ROPE_MIN)
    client.post_all(client.sender("q"), *[Message(BODY, durable=True)] * 3)
    link = client.receiver("q", credit=3)
    world.settle()
    assert client.bodies(link) == [BODY] * 3


def test_a_mark_takes_something_out_of_it() -> None:
    """So what was summed as it came is not what is recorded."""
    world = World(OPTIONS)
    client = world.client()
    link = client.sender("q", properties={SENDER_MARK: "query:0"})
    place = struct.pack(">QQI", 0, 0, 0)
    client.post_all(link, Message(BODY, durable=True, delivery_annotations={PLACE: place}))
    world.check_journal()
    world = world.crash()
    client = world.client()
    arrived(client, take(client), {}, durable=True)

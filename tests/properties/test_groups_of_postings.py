"""What arrives becomes what it becomes on the careful path: the hot path of postings is equal to it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.broker.intake.posting import Poster
from acquit.broker.links.endpoints import Producer
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger.fold import Fold
from acquit.ledger.records import RecordKind
from acquit.protocol.delivery import Delivery
from acquit.protocol.message import Message
from acquit.protocol.types import Byte, Timestamp
from acquit.store.recovery import open_store
from tests.support.broker_world import DATA, SMALL, START_US, World, after_kill
from tests.support.raw_journal import Gathered
from tests.support.raw_payloads import with_creation_time

OPTIONS = BrokerOptions(
    address=(
        AddressRule("q", {"max_delivery_attempts": 3}),
        AddressRule("small", {"messages_max": 6, "full_policy": "reject"}),
        AddressRule("narrow", {"bytes_max": 700, "full_policy": "reject"}),
        AddressRule("ids", {"duplicate_detection": "message-id", "duplicate_window": 3}),
        AddressRule("careless", {"duplicate_detection": "off", "message_groups": False}),
    )
)
ADDRESSES = ["q", "small", "narrow", "ids", "careless"]
NOW_MS = START_US // 1000
JMS = {"x-opt-jms-msg-type": Byte(3), "x-opt-jms-dest": Byte(0)}
CREATED = [b"\x83" + bytes(8), b"\xa1\x08" + b"A" * 8, b"\xa1\xff" + b"A" * 8, b"\xa1\x02AA\xa1\x01g\x43\x40\x40"]
"""A creation time, and what would be read as something else in its place."""

messages = st.builds(
    Message,
    st.sampled_from([b"x", b"y" * 300, "text"]),
    durable=st.booleans(),
    priority=st.sampled_from([4, 4, 9]),
    ttl_ms=st.sampled_from([None, None, None, None, 5_000]),
    message_id=st.sampled_from([None, "id-1", "id-2", "é", "ab", 5]),
    subject=st.sampled_from([None, None, "s", "t"]),
    group_id=st.sampled_from([None, None, "g", "h" * 100]),
    creation_time=st.sampled_from([None, Timestamp(NOW_MS), Timestamp(1)]),
    annotations=st.sampled_from([{}, {}, JMS, {"x-opt-acquit-sequence": 5}, {"x-opt-delivery-delay": 50}]),
    application_properties=st.sampled_from([{}, {"k": 1}, {"_AMQ_DUPL_ID": "d"}]),
)
payloads = st.one_of(
    messages.map(Message.encode),
    messages.map(Message.encode),
    messages.map(Message.encode),
    st.sampled_from([Message(b"x", message_id="ab").encode().replace(b"ab", b"\xff\xfe")]),
    st.sampled_from(CREATED).map(with_creation_time),
    st.sampled_from([b"", b"\x00\x53\x99\x40", b"\x00\x53\x72\xc1\x04\x01\xa3\x01a\x00\x53\x75\xa0\x00"]),
)


def one_by_one(poster: Poster, producer: Producer, deliveries: Iterable[Delivery]) -> None:
    """`Poster.receive` without its hot path."""
    for delivery in deliveries:
        poster._receive_one(producer, delivery)


def metas_of(world: World) -> list[bytes]:
    """What the records of postings say beside event and payload."""
    gathered, digest = Gathered(), Fold().digest
    open_store(DATA, SMALL, gathered, digest, replayed=lambda report: None, disk=after_kill(world.disk))
    return [record.meta for record in gathered.records if record.kind == RecordKind.POSTING]


def posted(address: str, sent: list[bytes], *, hot: bool, together: bool) -> tuple[object, ...]:
    """What a broker says of these, keeps of them and hands out."""
    world = World(OPTIONS)
    client = world.client()
    sender = client.sender(address)
    with pytest.MonkeyPatch.context() as patch:
        if not hot:
            patch.setattr(Poster, "receive", one_by_one)
        deliveries = client.post(sender, *sent) if together else []
        for payload in () if together else sent:
            deliveries += client.post(sender, payload)
            world.carry()
        world.carry()
    world.settle()
    world.check_journal()
    outcomes = [client.outcome(delivery) for delivery in deliveries]
    queue = world.core.queues.by_name[address]
    accounts = queue.live, queue.bytes, queue.memory_bytes, list(queue.counts), world.core.life.live_bytes
    fold = world.fold()
    recorded = {
        sequence: (kept.fingerprint, kept.expires_at_ms, kept.due_at_ms, kept.priority, kept.flags, kept.notes)
        for sequence, kept in fold.messages.items()
    }
    windows = {name: list(window) for name, window in fold.table.windows.by_address.items()}
    receiver = client.receiver(address, credit=100)
    world.settle()
    return (
        outcomes,
        accounts,
        recorded,
        metas_of(world),
        windows,
        [one.payload for one in client.received.get(receiver, [])],
    )


@given(st.sampled_from(ADDRESSES), st.lists(payloads, min_size=2, max_size=12), st.booleans())
def test_the_hot_path_is_equal_to_the_careful_one(address: str, sent: list[bytes], together: bool) -> None:
    careful = posted(address, sent, hot=False, together=False)
    assert posted(address, sent, hot=True, together=together) == careful

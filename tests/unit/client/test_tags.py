"""Delivery tags: different, of one width, readable."""

from __future__ import annotations

from itertools import islice

from acquit.client.tags import TAG_BYTES, delivery_tags
from acquit.protocol import events as ev
from tests.support.server import Rig


def test_tags() -> None:
    first = list(islice(delivery_tags(), 10_000))
    assert first[:2] == [b"000000", b"000001"]
    assert first[64] == b"000010"
    assert first[64**2] == b"000100"
    assert len(set(first)) == len(first)
    assert first == sorted(first)
    assert {len(tag) for tag in first} == {TAG_BYTES}
    assert all(tag.isascii() and tag.decode().isprintable() for tag in first)


def test_they_are_what_goes_over_the_wire() -> None:
    rig = Rig()
    sender = rig.sender(rig.session())
    for _ in range(3):
        rig.send(sender)
    rig.run()
    assert [delivery.tag for delivery in rig.server.taken] == [b"000000", b"000001", b"000002"]


def test_transactions_have_them_too() -> None:
    rig = Rig()
    session = rig.session("transacted")
    sender = rig.sender(session)
    rig.send(sender)
    rig.run()
    tags = [d.tag for event in rig.server.all(ev.DeliveriesReceived) for d in event.deliveries]
    assert tags == [b"000000", b"000000"]  # the declare and the message, each on its own link

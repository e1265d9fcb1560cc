"""Delivery tags."""

from __future__ import annotations

import pytest

from acquit.broker.dispatching import tags
from acquit.protocol.delivery import Delivery
from acquit.protocol.message import Message
from tests.support.broker_world import World


def test_every_octet_is_text_and_none_comes_twice() -> None:
    tag, seen = 0, set()
    for _ in range(70_000):
        tag = tag + tags.STEP & tags.MASK
        seen.add(tags.encode(tag))
    assert len(seen) == 70_000
    assert all(one.isascii() and len(one) == 4 for one in seen)


@pytest.mark.parametrize("tag", [0, 0x7E, 0x7F, 0x100, 0x7F_7F7E, 0x7F7F_7F00, 0x7F7F_7F7E, 0x7F7F_7F7F])
@pytest.mark.parametrize("how_many", [0, 1, 2, 127, 128, 129, 300])
def test_many_follow_as_one_by_one(tag: int, how_many: int) -> None:
    expected, last = [], tag
    for _ in range(how_many):
        last = last + tags.STEP & tags.MASK
        expected.append(tags.encode(last))
    encoded = tags.following(tag, how_many)
    assert encoded == expected
    if encoded:
        assert tags.number(encoded[-1]) == last


def test_they_begin_anew_after_all_are_used() -> None:
    last = int.from_bytes(b"\x7f\x7f\x7f\x7f", "big")
    assert last + tags.STEP & tags.MASK == 0
    for before, after in ((b"\x00\x00\x00\x7f", b"\x00\x00\x01\x00"), (b"\x00\x7f\x7f\x7f", b"\x01\x00\x00\x00")):
        assert tags.encode(int.from_bytes(before, "big") + tags.STEP & tags.MASK) == after


def texts(deliveries: list[Delivery]) -> set[str]:
    return {delivery.tag.decode("utf-8") for delivery in deliveries}


def test_all_links_have_tags_that_can_be_read_as_text() -> None:
    world = World()
    client = world.client()
    client.post_all(client.sender("q"), *[Message(number) for number in range(400)])
    browser = client.receiver("q", "browser", credit=200, browse=True)
    consumer = client.receiver("q", "consumer", credit=200)
    world.settle()
    presettled = client.receiver("q", "presettled", credit=200, presettled=True)
    world.settle()
    for link in (browser, consumer, presettled):
        assert len(texts(client.received[link])) == 200

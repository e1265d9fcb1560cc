"""A page of marks among everything that the journal keeps by a key."""

from __future__ import annotations

import struct

from acquit.broker.admin import marks_listing
from acquit.broker.inspect import MarkSnapshot
from acquit.ledger.records import Namespace, State
from acquit.protocol.extensions import SENDER_MARK
from tests.support.broker_world import World


def listed(world: World, after: str, limit: int) -> tuple[list[MarkSnapshot], int]:
    """Return a page, and in how many steps it was found."""
    found: list[MarkSnapshot] = []
    listing = marks_listing.MarksListing(world.core._marks, after, limit, found.extend)
    steps = 1
    while not listing.run():
        steps += 1
    return found, steps


def test_pages_in_small_steps() -> None:
    world = World()
    value = struct.pack("<QQIQ", 1, 2, 3, 4)
    for number in range(marks_listing.STEP):
        world.opened.recorder.append(State(7_000, Namespace.SENDER_MARK, b"ada\0%05d" % number, value))
        if number % 100 == 0:
            world.opened.recorder.append(State(7_000, Namespace.PAUSE, b"p%05d" % number, b"\0"))
            world.settle()
    world.settle()
    world.client().sender("q", "link", properties={SENDER_MARK: "new"})
    pages: list[MarkSnapshot] = []
    while True:
        page, steps = listed(world, pages[-1].id if pages else "", 1_000)
        assert steps == 2
        pages += page
        if len(page) < 1_000:
            break
    assert len({one.id for one in pages}) == len(pages) == marks_listing.STEP + 1
    assert [one.id for one in pages] == sorted(one.id for one in pages)
    told = next(one for one in pages if one.name == "00007")
    assert told[1:] == ("00007", "ada", 1, 2, 4, 0, 7)
    new = next(one for one in pages if one.name == "new")
    assert (new.batch, new.index_in_batch, new.links, new.moved_ms) == (None, None, 1, None)

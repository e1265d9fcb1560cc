"""One bit is wrong, anywhere in the folder: the journal is never read as something else than was written.

Opening it either refuses, naming the damage, or gives exactly a state that was recorded: the last one, unless the bit
is in the very last batch of an open segment, which nothing can tell from one that was never synced whole. `ledger
verify` finds every flipped bit of a closed segment.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.errors import StoreCorrupt, StoreVersionUnsupported
from acquit.ledger.verify import verify
from acquit.testing.simulation.disk import FaultyDisk
from tests.properties.test_journal_power_loss import TINY
from tests.support.examples import share
from tests.support.mini_broker import DATA, Clock, History, MiniBroker, check_fold

pytestmark = pytest.mark.promise("missing")


@cache
def written() -> tuple[FaultyDisk, History, int]:
    """A folder with archived, closed and open segments, what it must say, and where its last batch begins."""
    truth, clock, rng = History(), Clock(), random.Random(3)
    disk = FaultyDisk()
    for turns in (60, 40, 30):
        broker = MiniBroker(disk, rng, truth=truth, options=TINY, clock=clock)
        broker.live_on(turns, sync=0.6, chores=0.7)
        broker.chores()
        for _ in range(5):
            broker.post(min(broker.queues), b"in a batch of its own")
            broker.sync()
        last_batch = max(position for position in truth.snapshots if position < broker.journal.synced)
        disk = disk.after_kill()
    names = {path.suffix for path in disk.paths()}
    assert {".seg", ".events", ".json"} <= names
    assert any(path.parent.name == "archive" for path in disk.paths())
    return disk, truth, last_batch


def flipped(path: Path, bit: int) -> FaultyDisk:
    """A copy of that folder with this bit of this file turned over."""
    disk = written()[0].after_kill()
    disk.content(path)[bit // 8] ^= 1 << bit % 8
    return disk


def check(disk: FaultyDisk, described: str) -> None:
    _, truth, last_batch = written()
    try:
        broker = MiniBroker(disk, random.Random(0), truth=History(), options=TINY, clock=Clock())
    except (StoreCorrupt, StoreVersionUnsupported):
        return
    end = broker.journal.segments[-1].base
    assert end >= last_batch, described
    check_fold(broker.opened.fold, truth, end)
    for message in broker.messages.values():
        assert broker.journal.read(message.position).payload == truth.payloads[message.sequence]


def files(*suffixes: str) -> list[Path]:
    return [path for path in written()[0].paths() if path.suffix in suffixes]


@settings(max_examples=share(200))
@given(st.data())
def test_any_bit_of_any_file(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(files(".seg", ".json", ".events", ".zeros", ".stub")))
    bit = data.draw(st.integers(0, len(written()[0].content(path)) * 8 - 1))
    check(flipped(path, bit), f"{path} bit {bit}")


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=path.name) for path in files(".seg") if path.parent.name == "journal"]
)
def test_a_bit_in_every_part_of_a_segment(path: Path) -> None:
    """The first bits of the header, of every record's and batch's head, and of what is between."""
    size = len(written()[0].content(path))
    for byte in [*range(0, 160, 7), *range(160, size, 211)]:
        check(flipped(path, byte * 8 + byte % 8), f"{path} byte {byte}")


@settings(max_examples=share(60))
@given(st.data())
def test_verify_sees_every_bit_of_a_closed_segment(data: st.DataObject) -> None:
    newest = files(".seg")[-1]
    closed = [path for path in files(".seg") if path != newest]
    path = data.draw(st.sampled_from(closed))
    # A closed segment ends with its seal: no byte of it is without meaning.
    bit = data.draw(st.integers(0, len(written()[0].content(path)) * 8 - 1))
    found = verify(DATA, disk=flipped(path, bit))
    assert any(f"segment {int(path.stem)}" in problem for problem in found.problems), f"{path} bit {bit}"


def test_without_a_flipped_bit_all_is_well() -> None:
    disk = written()[0].after_kill()
    assert verify(DATA, disk=disk).problems == ()
    check(disk, "untouched")

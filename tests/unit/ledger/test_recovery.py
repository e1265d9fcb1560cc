"""Opening and closing the journal of a broker."""

from __future__ import annotations

import errno
import gc

import pytest

from acquit.errors import StoreCorrupt, StoreFailed, StoreLocked
from acquit.ledger.events import EventKind
from acquit.ledger.records import Queue, RecordKind, encode_posting_meta
from acquit.ledger.recovery import OpenedJournal, close_journal, open_journal, write_now
from tests.support.disk import FaultyDisk
from tests.support.mini_broker import DATA, SMALL
from tests.support.raw_journal import Raw


def opened(disk: FaultyDisk) -> OpenedJournal:
    return open_journal(DATA, SMALL, disk=disk, software="acquit 9", container_id="me")


def test_a_new_journal_serves_at_once() -> None:
    journal = opened(FaultyDisk())
    assert journal.created
    assert journal.run.clean
    assert journal.run.software == "acquit 9"
    assert journal.identity.container_id == "me"
    assert journal.sequences.take(1) == 1
    assert journal.fold.messages == {}


def test_the_run_and_its_first_block_are_synced() -> None:
    disk = FaultyDisk()
    journal = opened(disk)
    records = Raw(disk.after_power_loss(lambda: False), options=SMALL).replay.records
    assert [record.kind for record in records] == [RecordKind.START, RecordKind.RESERVED]
    assert journal.fold.table.reserved_up_to == 1 << 20


def test_state_and_totals_come_back() -> None:
    disk = FaultyDisk()
    journal = opened(disk)
    recorder = journal.recorder
    recorder.append(Queue(1, 4, "name", "address"))
    position, mark = recorder.posted(1, 4, b"body", encode_posting_meta(b"", b""), 500)
    recorder.transition(EventKind.ACQUIRED, 1, 4, mark, 600, 9)
    write_now(recorder)
    again = opened(disk.after_power_loss(lambda: False))
    assert not again.created
    assert not again.run.clean
    assert again.identity == journal.identity
    assert again.run.run != journal.run.run
    message = again.fold.messages[1]
    assert (message.position, message.actor) == (position, 9)
    assert again.journal.read(position).payload == b"body"
    assert again.fold.table.queues[4].name == "name"
    assert again.fold.totals()[4].counts == {EventKind.POSTED: 1, EventKind.ACQUIRED: 1}


def test_a_clean_stop() -> None:
    disk = FaultyDisk()
    journal = opened(disk)
    journal.recorder.append(Queue(1, 4, "name", "address"))
    close_journal(journal.recorder, 5)
    again = opened(disk)
    assert again.run.clean
    assert again.report.sealed
    assert again.fold.table.queues[4].name == "name"


def test_a_stop_that_fails_still_closes() -> None:
    disk = FaultyDisk()
    journal = opened(disk)
    with pytest.raises(StoreLocked):
        opened(disk)
    disk.errors[disk.steps] = errno.EIO
    with pytest.raises(StoreFailed):
        close_journal(journal.recorder, 5)
    assert not disk.locked
    assert not opened(disk.after_kill()).run.clean


def test_a_first_write_that_fails_gives_the_folder_back() -> None:
    failures = 0
    for step in range(30):
        disk = FaultyDisk(errors={step: errno.EIO})
        try:
            opened(disk)
        except StoreFailed:
            failures += 1
        else:
            break
        assert not disk.locked
    assert failures > 5


def test_a_journal_whose_beginning_is_missing() -> None:
    disk = FaultyDisk()
    for _ in range(3):
        close_journal(opened(disk).recorder, 5)
    disk.delete(DATA / "journal" / f"{1:020}.seg")
    with pytest.raises(StoreCorrupt, match="begins with segment 2|is needed and is not there"):
        opened(disk)
    assert not disk.locked


def test_collection_is_as_before() -> None:
    gc.disable()
    try:
        opened(FaultyDisk())
        assert not gc.isenabled()
    finally:
        gc.enable()
    opened(FaultyDisk())
    assert gc.isenabled()


def test_nothing_pending_writes_nothing() -> None:
    disk = FaultyDisk()
    journal = opened(disk)
    steps = disk.steps
    write_now(journal.recorder)
    assert disk.steps == steps

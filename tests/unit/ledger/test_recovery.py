"""Opening and closing the journal of a broker."""

from __future__ import annotations

import errno
import gc
import random
from unittest.mock import patch

import pytest

from acquit.errors import StoreCorrupt, StoreFailed, StoreLocked, StoreUnbalanced
from acquit.ledger import recovery
from acquit.ledger.balance import balance
from acquit.ledger.events import EventKind
from acquit.ledger.fold import Fold
from acquit.ledger.records import (
    FATES_KNOWN,
    KNOWN_EVER_US,
    Namespace,
    Queue,
    QueueDeleted,
    RecordKind,
    Start,
    State,
    decode_known,
    encode_known,
    encode_posting_meta,
)
from acquit.ledger.recovery import OpenedJournal, close_journal, open_journal, write_now
from acquit.ledger.verify import verify
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.mini_broker import DATA, SMALL, Clock, MiniBroker
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
    assert [record.kind for record in records] == [RecordKind.START, RecordKind.STATE, RecordKind.RESERVED]
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


def after_a_loss(*, deleting: bool = False) -> FaultyDisk:
    """Three messages are live in the first segment of two queues; it left, and nobody took them along. One is live
    elsewhere."""
    broker = MiniBroker(FaultyDisk(), random.Random(1), clock=Clock())
    for queue in (1, 1, 2):
        broker.queues.get(queue) or broker.declare(queue)
        broker.post(queue, b"lost")
    broker.sync()
    while len(broker.journal.segments) < 2:
        broker.retire(broker.post(1, bytes(5_000)), EventKind.ACCEPTED)
        broker.sync()
    for queue in (1, 2):
        broker.recorder.append(broker.recorder.table.queues[queue])
    broker.post(1, b"stays")
    broker.recorder.append(broker.recorder.table.reserved(1))
    broker.journal.leave(1, broker.journal.read_seal(1))
    broker.sync()
    broker.chores()
    if deleting:
        broker.messages = {key: one for key, one in broker.messages.items() if one.queue == 1}
        broker.delete(2)
        broker.sync()
    assert isinstance(broker.disk, FaultyDisk)
    return broker.disk.after_kill()


@pytest.mark.parametrize("sealed", [False, True])
def test_fewer_messages_than_the_accounts_say_are_no_start(sealed: bool) -> None:
    disk = after_a_loss()
    if sealed:
        with patch.object(recovery, "check"):
            close_journal(opened(disk).recorder, 5)
    before = {path: bytes(disk.content(path)) for path in disk.paths() if path.suffix != ".part"}
    with pytest.raises(StoreUnbalanced, match="--accept-loss") as caught:
        opened(disk)
    assert "queue-1: " in str(caught.value)
    assert "which leaves 3; 1 are live" in str(caught.value)
    assert "queue-2: 1 entered and 0 were retired, which leaves 1; 0 are live" in str(caught.value)
    assert {path: bytes(disk.content(path)) for path in disk.paths()} == before
    assert not disk.locked
    _, second = verify(DATA, disk=disk).problems
    assert second == "queue-2: 1 entered and 0 were retired, which leaves 1; 0 are live"


def test_a_loss_that_is_accepted_is_on_record() -> None:
    disk = after_a_loss()
    journal = open_journal(DATA, SMALL, disk=disk, accept_loss=True)
    assert len(journal.losses) == 2
    assert "queue-1" in journal.losses[0]
    disk = disk.after_power_loss(lambda: False)
    journal = opened(disk)
    assert journal.losses == ()
    rows = {row.name: row for row in balance(journal.fold).queues}
    assert {name: (row.lost.count, row.live.total, row.mismatch) for name, row in rows.items()} == {
        "queue-1": (2, 1, ""),
        "queue-2": (1, 0, ""),
    }
    assert verify(DATA, disk=disk).problems == ()
    # What is lost beside it is not accepted.
    deaf = patch.object(Fold, "_postings", lambda fold, run: None)
    with deaf, pytest.raises(StoreUnbalanced, match="0 are live and 2 are known to be lost"):
        opened(disk.after_kill())


def test_an_accepted_loss_goes_where_its_queue_goes() -> None:
    disk = after_a_loss()
    journal = open_journal(DATA, SMALL, disk=disk, accept_loss=True)
    journal.recorder.append(QueueDeleted(7, 2))
    for _ in range(2):
        close_journal(journal.recorder, 8)
        journal = opened(disk)
    rows = {row.queue: row for row in balance(journal.fold).queues}
    assert (rows[0].lost.count, rows[0].mismatch) == (1, "")
    assert 2 not in rows


def test_a_loss_in_a_queue_that_is_deleted_since() -> None:
    disk = after_a_loss(deleting=True)
    journal = open_journal(DATA, SMALL, disk=disk, accept_loss=True)
    close_journal(journal.recorder, 8)
    assert opened(disk).losses == ()


@pytest.mark.promise("missing")
def test_nothing_is_accepted_where_nothing_is_lost() -> None:
    disk = FaultyDisk()
    close_journal(opened(disk).recorder, 5)
    journal = open_journal(DATA, SMALL, disk=disk, accept_loss=True)
    assert journal.losses == ()
    assert journal.fold.table.state.keys() == {(Namespace.FATE, FATES_KNOWN)}


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


def test_what_a_run_says_of_all_fates_is_said_anew_by_the_next() -> None:
    """A run that does not say it, as those of earlier versions, ends it."""
    key = (Namespace.FATE, FATES_KNOWN)
    disk = FaultyDisk()
    journal = opened(disk)
    assert decode_known(journal.fold.table.state[key].value) == KNOWN_EVER_US
    journal.recorder.append(State(1, *key, encode_known(7)))
    write_now(journal.recorder)
    disk = disk.after_kill()
    journal = opened(disk)
    assert decode_known(journal.fold.table.state[key].value) == 7
    journal.recorder.append(Start(1, 2, False, "earlier"))
    write_now(journal.recorder)
    assert key not in opened(disk.after_kill()).fold.table.state

"""The two sides of a queue's account."""

from __future__ import annotations

import random

import pytest

from acquit.ledger.balance import QueueBalance, balance
from acquit.ledger.events import EventKind
from acquit.ledger.fold import Fold
from acquit.ledger.records import Counters
from acquit.store.reading import FolderReader
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.mini_broker import DATA, MiniBroker


@pytest.fixture
def broker() -> MiniBroker:
    broker = MiniBroker(FaultyDisk(), random.Random(4))
    broker.declare(1)
    broker.declare(2)
    return broker


def folded(broker: MiniBroker) -> Fold:
    broker.sync()
    fold = Fold()
    FolderReader(DATA, broker.disk).replay(fold, archive=True)
    return fold


def row(fold: Fold, queue: int) -> QueueBalance:
    return next(row for row in balance(fold).queues if row.queue == queue)


def test_every_message_is_accounted_for(broker: MiniBroker) -> None:
    kept = [broker.post(1, b"body %d" % n) for n in range(8)]
    for message in kept:
        message.due_at_ms = 0
    broker.retire(kept[0], EventKind.ACCEPTED)
    broker.retire(kept[1], EventKind.EXPIRED)
    broker.dead_letter(kept[2], 2)
    broker.transition(kept[3], EventKind.ACQUIRED, actor=3)
    broker.transition(kept[4], EventKind.ACQUIRED, actor=3)
    broker.transition(kept[4], EventKind.SUSPENDED)
    broker.transition(kept[5], EventKind.MODIFIED, attempt=1, origin=99)
    fold = folded(broker)
    for message in fold.messages.values():
        if message.sequence != kept[5].sequence:
            message.due_at_ms = 0
    orders, dead = row(fold, 1), row(fold, 2)
    assert orders.name == "queue-1"
    assert orders.entered == {"POSTED": 8}
    assert orders.retired == {"ACCEPTED": 1, "DEAD_LETTERED": 1, "EXPIRED": 1}
    live = orders.live
    assert (live.available, live.acquired, live.suspended, live.scheduled, live.total) == (2, 1, 1, 1, 5)
    assert live.size_bytes == 5 * 6
    assert orders.mismatch == ""
    assert dead.entered == {"DEAD_LETTERED_IN": 1}
    assert (dead.live.total, dead.mismatch) == (1, "")
    assert balance(fold).balanced


@pytest.mark.promise("missing")
def test_a_message_that_is_missing_is_named_by_its_queue(broker: MiniBroker) -> None:
    message = broker.post(1, b"body")
    fold = folded(broker)
    del fold.messages[message.sequence]
    assert row(fold, 1).mismatch == "1 entered and 0 were retired, which leaves 1; 0 are live"
    assert not balance(fold).balanced


def test_the_wrong_message_shows_where_counts_agree(broker: MiniBroker) -> None:
    message = broker.post(1, b"body")
    fold = folded(broker)
    fold.messages[message.sequence].fingerprint ^= 1
    assert row(fold, 1).mismatch == "the 1 live messages are not those that entered and were not retired"


def test_an_anomaly_is_no_balance(broker: MiniBroker) -> None:
    message = broker.post(1, b"body")
    broker.retire(message, EventKind.ACCEPTED)
    broker.recorder.transition(EventKind.ACCEPTED, message.sequence, 1, message.fingerprint, 1)
    result = balance(folded(broker))
    assert not result.balanced
    assert result.anomaly_count == 1
    assert "which is not live" in result.anomalies[0]
    assert "1 entered and 2 were retired" in result.queues[0].mismatch


def test_what_a_transaction_holds_is_in_no_queue(broker: MiniBroker) -> None:
    from acquit.ledger.records import Transaction

    broker.recorder.append(Transaction(1, 9, bytes(16), "user"))
    broker.post(1, b"held", transaction=9)
    result = balance(folded(broker))
    assert result.held == 1
    assert result.balanced
    assert result.queues[0].live.total == 0


def test_a_deleted_queue_counts_under_no_name(broker: MiniBroker) -> None:
    broker.post(1, b"body")
    broker.delete(1)
    broker.sync()
    broker.close()
    fold = folded(MiniBroker(broker.disk, random.Random(5), truth=broker.truth))
    gone = row(fold, 0)
    assert gone.name == ""
    assert gone.entered == {"POSTED": 1}
    assert gone.retired == {"PURGED": 1}
    assert balance(fold).balanced


def test_volatile_messages(broker: MiniBroker) -> None:
    broker.recorder.append(Counters(1, ((1, EventKind.POSTED, 100), (1, EventKind.CONSUMED, 90))))
    assert row(folded(broker), 1).volatile_unaccounted == 10
    broker.recorder.append(Counters(2, ((1, EventKind.LOST_VOLATILE, 10),)))
    fold = folded(broker)
    assert row(fold, 1).volatile_unaccounted == 0
    assert balance(fold).balanced

"""Everything that is not a message."""

from __future__ import annotations

import pytest

from acquit.ledger.records import (
    Actor,
    Commit,
    Dispatched,
    Entry,
    Queue,
    QueueDeleted,
    Reserved,
    Rollback,
    Start,
    State,
    StateDeleted,
    Stop,
    Transaction,
)
from acquit.ledger.table import StateTable
from acquit.store.interface import Position

QUEUE = Queue(1, 2, "queue", "address")
ACTOR = Actor(1, 5, "container", "link", "user", "address")
STATE = State(1, 2, b"key", b"value")
MARKS = Dispatched(1, 2, 1000, 10)
TRANSACTION = Transaction(1, 4, bytes(16), "user")
ALL: list[Entry] = [QUEUE, ACTOR, STATE, MARKS, TRANSACTION, Reserved(1, 500, 7, 8)]


def filled(*entries: Entry) -> StateTable:
    table = StateTable()
    for number, entry in enumerate(entries):
        table.apply(entry, Position(100 * (number + 1)))
    return table


def again(table: StateTable, before: int) -> list[Entry]:
    """What a checkpoint of everything before that position writes."""
    keys = table.stale(Position(before))
    return [entry for key in keys if (entry := table.renewed(key, Position(before), 99)) is not None]


def test_what_is_set_is_there() -> None:
    table = filled(*ALL)
    assert table.queues == {2: QUEUE}
    assert table.actors == {5: ACTOR}
    assert table.state == {(2, b"key"): STATE}
    assert table.dispatched == {2: MARKS}
    assert table.transactions == {4: TRANSACTION}
    assert (table.reserved_up_to, table.queue_max, table.actor_max) == (500, 7, 8)


def test_a_checkpoint_sets_it_all_again() -> None:
    table = filled(*ALL)
    copy = filled(*again(table, 10_000))
    for name in ("queues", "actors", "state", "dispatched", "transactions", "reserved_up_to", "queue_max", "actor_max"):
        assert getattr(copy, name) == getattr(table, name), name


def test_only_what_was_last_set_before() -> None:
    table = filled(*ALL)
    assert again(table, 100) == []
    assert again(table, 301) == [QUEUE, ACTOR, STATE]
    changed = Queue(2, 2, "queue", "another address")
    table.apply(changed, Position(5000))
    assert again(table, 301) == [ACTOR, STATE]
    assert changed in again(table, 5001)


@pytest.mark.parametrize(
    ("gone", "key"),
    [
        (QueueDeleted(2, 2), QUEUE),
        (StateDeleted(2, 2, b"key"), STATE),
        (Commit(2, 4, b""), TRANSACTION),
        (Rollback(2, 4), TRANSACTION),
    ],
)
def test_what_went_away_since_it_was_found_stale(gone: Entry, key: Entry) -> None:
    table = filled(*ALL)
    keys = table.stale(Position(10_000))
    table.apply(gone, Position(9_000))
    renewed = [table.renewed(key, Position(10_000), 99) for key in keys]
    assert key not in renewed
    assert None in renewed


def test_a_queue_takes_its_marks_with_it() -> None:
    table = filled(*ALL, QueueDeleted(2, 2))
    assert table.dispatched == {}
    assert table.queue_max == 7, "its number stays used"
    table.apply(QueueDeleted(3, 77), Position(1))


def test_an_actor_that_is_forgotten() -> None:
    table = filled(*ALL)
    table.forget_actor(5)
    assert table.actors == {}
    assert table.actor_max == 8
    assert ACTOR not in again(table, 10_000)


def test_a_new_run_has_no_links_and_no_transactions() -> None:
    table = filled(*ALL, Start(2, 1, True, ""))
    assert table.actors == {}
    assert table.transactions == {}
    assert table.queues == {2: QUEUE}
    assert not any(isinstance(entry, Actor | Transaction) for entry in again(table, 10_000))


def test_after_an_unclean_stop_what_may_have_been_acquired_stays_doubtful() -> None:
    table = filled(Dispatched(1, 2, 1000), Start(2, 1, False, ""))
    assert table.certain_from(2) > 1000
    assert table.certain_from(2) <= 1001
    assert table.certain_from(3) <= 1
    # Over further runs, clean ones too, and over a checkpoint.
    table.apply(Start(3, 2, True, ""), Position(1))
    table.apply(Dispatched(3, 2, 5000, 1000), Position(2))
    assert table.certain_from(2) > 1000
    assert table.certain_from(2) <= 1001
    copy = filled(*again(table, 10_000))
    assert copy.certain_from(2) > 1000
    table.apply(Start(4, 3, False, ""), Position(3))
    assert table.certain_from(2) > 5000


def test_after_a_clean_stop_the_records_say_it_all() -> None:
    table = filled(Dispatched(1, 2, 1000), Start(2, 1, True, ""))
    assert table.certain_from(2) <= 1
    table.apply(Start(3, 2, False, ""), Position(1))
    assert table.certain_from(2) <= 1, "that run handed out nothing of this queue"


def test_reservations_never_go_back() -> None:
    table = filled(Reserved(1, 500, 7, 8), Reserved(2, 400, 6, 9))
    assert table.reserved(3) == Reserved(3, 500, 7, 9)


def test_other_records_are_passed_over() -> None:
    table = filled(Stop(1))
    assert table.stale(Position(10_000)) == []

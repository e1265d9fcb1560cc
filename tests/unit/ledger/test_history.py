"""What became of one message."""

from __future__ import annotations

import random

import pytest

from acquit.errors import StoreCorrupt
from acquit.ledger.events import EventFlag, EventKind
from acquit.ledger.history import Life, history
from acquit.ledger.records import Actor
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.mini_broker import DATA, Clock, MiniBroker


@pytest.fixture
def broker() -> MiniBroker:
    broker = MiniBroker(FaultyDisk(), random.Random(4), clock=Clock())
    broker.declare(1)
    broker.declare(2)
    broker.recorder.append(Actor(1, 3, "container", "link", "user", "address"))
    return broker


def kinds(life: Life) -> list[EventKind]:
    return [step.kind for step in life.steps]


def test_a_life_is_told_with_names_and_reasons(broker: MiniBroker) -> None:
    message = broker.post(1, b"body")
    other = broker.post(1, b"other")
    broker.transition(message, EventKind.ACQUIRED, actor=3)
    broker.modify(message)
    broker.retire(message, EventKind.ACCEPTED, actor=3)
    broker.sync()
    (life,) = history(DATA, sequence=message.sequence, disk=broker.disk).lives
    assert kinds(life) == [EventKind.POSTED, EventKind.ACQUIRED, EventKind.MODIFIED, EventKind.ACCEPTED]
    assert (life.message_id, life.address, life.size_bytes, life.end) == (
        f"id-{message.sequence}",
        "address",
        4,
        EventKind.ACCEPTED,
    )
    posted, acquired, modified, _ = life.steps
    assert (posted.queue_name, posted.run, posted.segment) == ("queue-1", 1, 1)
    assert acquired.actor_name == "container link user"
    assert (modified.cause, modified.condition, modified.description) == ("MODIFIED", "app:busy", "try later")
    assert modified.attempt == 1
    (life,) = history(DATA, sequence=other.sequence, disk=broker.disk).lives
    assert life.end is None


def test_by_message_id(broker: MiniBroker) -> None:
    message = broker.post(1, b"body")
    broker.post(1, b"other")
    broker.sync()
    (life,) = history(DATA, message_id=f"id-{message.sequence}", disk=broker.disk).lives
    assert life.sequence == message.sequence
    assert history(DATA, message_id="no such id", disk=broker.disk).lives == ()
    assert history(DATA, sequence=12345, disk=broker.disk).lives == ()
    assert history(DATA, disk=broker.disk).lives == ()


@pytest.mark.parametrize("asked", ["original", "letter", "third"])
def test_dead_letters_are_followed_both_ways(broker: MiniBroker, asked: str) -> None:
    """Over segments and restarts, whichever copy was asked for."""
    original = broker.post(1, b"body")
    broker.sync()
    broker.close()
    broker = MiniBroker(broker.disk, random.Random(5), truth=broker.truth, clock=broker.clock)
    broker.dead_letter(broker.messages[original.sequence], 2)
    letter = max(broker.messages.values(), key=lambda message: message.sequence)
    broker.sync()
    broker.dead_letter(broker.messages[letter.sequence], 1)
    third = max(broker.messages.values(), key=lambda message: message.sequence)
    broker.sync()
    sequences = {"original": original.sequence, "letter": letter.sequence, "third": third.sequence}
    progress: list[tuple[int, int]] = []
    found = history(
        DATA, sequence=sequences[asked], disk=broker.disk, progress=lambda done, total: progress.append((done, total))
    )
    assert [life.sequence for life in found.lives] == [original.sequence, letter.sequence, third.sequence]
    first, second, last = found.lives
    assert (first.came_from, first.became) == (0, letter.sequence)
    assert (second.came_from, second.became) == (original.sequence, third.sequence)
    assert (last.came_from, last.became, last.end) == (letter.sequence, 0, None)
    assert first.steps[-1].description == "line 3: not JSON"
    assert (first.steps[0].run, first.steps[-1].run) == (1, 2)
    assert progress[-1][0] == progress[-1][1]


def test_copies_of_a_topic_posting_belong_together(broker: MiniBroker) -> None:
    message = broker.post(1, b"body")
    broker.copies(message, [1, 2])
    broker.sync()
    for sequence in (message.sequence, message.sequence + 2):
        found = history(DATA, sequence=sequence, disk=broker.disk)
        assert [life.sequence for life in found.lives] == [message.sequence + n for n in range(3)]
        assert found.lives[2].steps[0].flags & EventFlag.COPY
        assert found.lives[0].address
        assert len({(life.message_id, life.address) for life in found.lives}) == 1


def test_what_a_transaction_held(broker: MiniBroker) -> None:
    broker.transact(1, 1, commit=True)
    broker.sync()
    live = max(broker.messages)
    found = history(DATA, sequence=live, disk=broker.disk)
    assert [kinds(life)[0] for life in found.lives] == [EventKind.HELD, EventKind.POSTED]


def test_from_the_archive_too(broker: MiniBroker) -> None:
    message = broker.post(1, b"body")
    broker.sync()
    while broker.journal.left_through < 2:
        broker.live_on(1, sync=1.0, chores=0.9)
        broker.checkpoint(5)
    broker.sync()
    broker.chores()
    assert any(info.archived for info in broker.journal.segments)
    found = history(DATA, sequence=message.sequence, disk=broker.disk)
    assert found.first_segment == 1
    assert found.lives[0].steps[0].kind == EventKind.POSTED


def test_damage_is_told(broker: MiniBroker) -> None:
    message = broker.post(1, b"body")
    broker.close()
    assert isinstance(broker.disk, FaultyDisk)
    MiniBroker(broker.disk, random.Random(5), truth=broker.truth, clock=broker.clock)
    broker.disk.content(DATA / "journal" / f"{1:020}.seg")[4600] ^= 1
    with pytest.raises(StoreCorrupt):
        history(DATA, sequence=message.sequence, disk=broker.disk)


def test_no_more_copies_than_the_bound(broker: MiniBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acquit.ledger.history.COPIES_MAX", 3)
    message = broker.post(1, b"body")
    broker.copies(message, [1, 2, 1, 2, 1])
    broker.sync()
    found = history(DATA, sequence=message.sequence, disk=broker.disk)
    assert found.truncated
    assert len(found.lives) == 3

"""What became of one message."""

from __future__ import annotations

import random
from itertools import count

import pytest

from acquit.errors import StoreCorrupt
from acquit.ledger import history as module
from acquit.ledger.events import EventFlag, EventKind
from acquit.ledger.history import Bounds, KnownNames, Life, history
from acquit.ledger.records import Actor, Queue
from acquit.store.reading import FolderReader
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


# -- long journals -----------------------------------------------------------------------------------------------------


@pytest.fixture
def long(broker: MiniBroker) -> MiniBroker:
    """A dozen segments of 60 messages, each acquired and accepted at once by an actor that the first segment names."""
    while len(FolderReader(DATA, broker.disk).contents().journal) < 12:
        for _ in range(5):
            message = broker.post(1, bytes(1_000))
            broker.transition(message, EventKind.ACQUIRED, actor=3)
            broker.retire(message, EventKind.ACCEPTED, actor=3)
        broker.sync()
    return broker


def bounds(bytes_max: int = 1 << 40, steps_max: int = 1_000) -> Bounds:
    return Bounds(bytes_max, 1e9, steps_max, lambda: 0.0, lambda: False)


def segments(broker: MiniBroker) -> list[int]:
    return list(FolderReader(DATA, broker.disk).contents().journal)


def size(broker: MiniBroker) -> int:
    """Bytes of the whole journal, by a history that reads them once."""
    return history(DATA, message_id="nobody", disk=broker.disk).bytes_read


@pytest.mark.parametrize("bounded", [False, True])
def test_reading_begins_where_a_sequence_was_given(long: MiniBroker, bounded: bool) -> None:
    long.sync()
    whole = size(long)
    for sequence in (1, max(long.truth.sequences) // 2, max(long.truth.sequences)):
        found = history(DATA, sequence=sequence, disk=long.disk, bounds=bounds() if bounded else None)
        (life,) = found.lives
        assert kinds(life) == [EventKind.POSTED, EventKind.ACQUIRED, EventKind.ACCEPTED]
        # Declared in the first segment, wherever the message is.
        assert {(step.queue_name, step.actor_name) for step in life.steps} <= {
            ("queue-1", ""),
            ("queue-1", "container link user"),
        }
        assert [step.actor_name for step in life.steps] == ["", "container link user", "container link user"]
        assert (found.first_segment, found.stopped, found.gone) == (1, "", ())
        if bounded:
            assert found.last_segment == life.steps[-1].segment
        else:
            assert found.last_segment == segments(long)[-1]
    if bounded:
        known = KnownNames({1: Queue(0, 1, "queue-1", "address")}, {3: Actor(1, 3, "c", "l", "u", "a")})
        found = history(DATA, sequence=max(long.truth.sequences) // 2, disk=long.disk, bounds=bounds(), names=known)
        assert found.bytes_read < whole / 3
        assert {step.actor_name for step in found.lives[0].steps} == {"", "c l u"}


def test_an_id_is_looked_for_in_the_newest_segments_first(long: MiniBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    open_ = FolderReader.open
    monkeypatch.setattr(FolderReader, "open", lambda self, number: (opened.append(number), open_(self, number))[1])
    sequence = max(long.truth.sequences)
    found = history(DATA, message_id=f"id-{sequence}", disk=long.disk, bounds=bounds())
    assert [life.sequence for life in found.lives] == [sequence]
    numbers = segments(long)
    assert opened[: len(numbers)] == numbers[::-1]


@pytest.mark.parametrize("bound", ["bytes", "time", "cancelled"])
def test_a_bound_ends_the_reading_and_is_told(long: MiniBroker, bound: str) -> None:
    live = long.post(1, b"lives on")
    long.sync()
    for _ in range(300):
        long.post(1, bytes(1_000))
        long.sync()
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return bound == "cancelled" and asked > 60

    clock = count()
    limits = {
        "bytes": Bounds(200_000, 1e9, 10, lambda: 0.0, cancelled),
        "time": Bounds(1 << 40, 60, 10, lambda: next(clock), cancelled),
        "cancelled": Bounds(1 << 40, 1e9, 10, lambda: 0.0, cancelled),
    }
    found = history(DATA, sequence=live.sequence, disk=long.disk, bounds=limits[bound])
    assert found.stopped == bound
    assert found.stopped_in in segments(long)
    assert found.stopped_in < segments(long)[-1]
    assert [kinds(life) for life in found.lives] == [[EventKind.POSTED]]
    if bound == "bytes":
        assert found.bytes_read < 300_000


def test_an_id_that_is_found_before_the_bound_is_not_lost_with_a_later_pass(long: MiniBroker) -> None:
    """The pass that follows the copy is stopped: what the pass before it found is told."""
    original = long.post(1, b"body")
    long.sync()
    for _ in range(100):
        long.post(1, bytes(1_000))
        long.sync()
    long.dead_letter(long.messages[original.sequence], 2)
    long.sync()
    names = KnownNames({n: Queue(0, n, f"queue-{n}", "address") for n in (1, 2)}, {})
    whole = history(DATA, sequence=original.sequence, disk=long.disk, bounds=bounds(), names=names)
    assert [len(life.steps) for life in whole.lives] == [2, 1]
    limit = whole.bytes_read - 30_000
    part = history(DATA, sequence=original.sequence, disk=long.disk, bounds=bounds(limit), names=names)
    assert part.stopped == "bytes"
    assert kinds(part.lives[0]) == [EventKind.POSTED, EventKind.DEAD_LETTERED]


def test_segments_that_retention_deletes_meanwhile_are_told(long: MiniBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    open_, contents = FolderReader.open, FolderReader.contents
    deleted = set(segments(long)[:2])

    def open_left(self: FolderReader, number: int) -> object:
        if number in deleted:
            left = contents(self)
            monkeypatch.setattr(
                FolderReader, "contents", lambda self: type(left)(left.identity, left.journal[2:], (), left.stubs)
            )
            raise KeyError(number)
        return open_(self, number)

    monkeypatch.setattr(FolderReader, "open", open_left)
    sequence = max(long.truth.sequences)
    found = history(DATA, message_id=f"id-{sequence}", disk=long.disk, bounds=bounds())
    assert [life.sequence for life in found.lives] == [sequence]
    assert (found.gone, found.first_segment) == ((1, 2), 3)


def test_a_segment_that_is_missing_in_the_middle_is_damage(long: MiniBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    open_ = FolderReader.open

    def open_most(self: FolderReader, number: int) -> object:
        if number == 5:
            raise KeyError(number)
        return open_(self, number)

    monkeypatch.setattr(FolderReader, "open", open_most)
    with pytest.raises(StoreCorrupt, match="gone while it was to be read"):
        history(DATA, message_id="id-1", disk=long.disk, bounds=bounds())


def test_events_beyond_the_bound_are_counted_and_the_end_is_told(broker: MiniBroker) -> None:
    message = broker.post(1, b"body")
    for _ in range(10):
        broker.transition(message, EventKind.ACQUIRED, actor=3)
        broker.transition(message, EventKind.RELEASED, actor=3)
    broker.retire(message, EventKind.ACCEPTED, actor=3)
    broker.sync()
    found = history(DATA, sequence=message.sequence, disk=broker.disk, bounds=bounds(steps_max=5))
    (life,) = found.lives
    assert (len(life.steps), found.left_out, life.end) == (6, 16, EventKind.ACCEPTED)


def test_a_segment_that_gives_no_sequence_is_passed_over(long: MiniBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading begins earlier then: it is slower, and finds the same."""
    monkeypatch.setattr(module._Search, "_given", lambda self, number: iter(()))
    found = history(DATA, sequence=max(long.truth.sequences), disk=long.disk, bounds=bounds())
    assert kinds(found.lives[0]) == [EventKind.POSTED, EventKind.ACQUIRED, EventKind.ACCEPTED]

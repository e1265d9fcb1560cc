"""What is done in a turn, and each second: in bounded steps."""

from __future__ import annotations

from itertools import permutations

import pytest

from acquit.broker import agenda
from acquit.broker.links.termini import Termini
from acquit.broker.outcomes.expiry import COPIES_MAX, TURN_MAX, Expiry
from acquit.broker.outcomes.locks import LockKeeper
from acquit.errors import StoreFull
from acquit.ledger.events import EventKind
from acquit.ledger.recorder import Recorder
from acquit.ledger.records import Counters, Entry
from acquit.protocol.message import Message
from acquit.store.interface import Position
from tests.support.broker_world import World

pytestmark = pytest.mark.pure  # the recorder's methods are replaced


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Counters]:
    """Records of counts, as they are made."""
    found: list[Counters] = []
    append = Recorder.append

    def note(self: Recorder, entry: Entry) -> Position:
        if isinstance(entry, Counters):
            found.append(entry)
        return append(self, entry)

    monkeypatch.setattr(Recorder, "append", note)
    return found


def full(record: object) -> None:
    """Have no room for a record."""
    raise StoreFull("no room")


def busy(queues: int) -> World:
    """A broker with so many queues, to each of which a volatile message was posted."""
    world = World()
    client = world.client()
    for number in range(queues):
        client.post(client.sender(f"q{number}", f"sender-{number}"), Message("x"))
        world.settle()
    return world


def test_counts_of_many_queues_are_recorded_over_several_turns(
    monkeypatch: pytest.MonkeyPatch, recorded: list[Counters]
) -> None:
    monkeypatch.setattr(agenda, "COUNTED_AT_ONCE", 10)
    world = busy(25)
    core, nodes = world.core, list(world.core.queues.by_name.values())
    assert not recorded
    core.tick(world.now_us)
    more = [True]
    while more[-1]:
        for queue in nodes:  # whatever happens meanwhile is for the next second
            core.scribe.count_volatile(queue, EventKind.DUPLICATE, 1)
        more.append(core.turn(world.now_us))
    assert [len({queue for queue, *_ in one.counts}) for one in recorded] == [10, 10, 10]
    assert more == [True, True, False]
    posted = [queue for one in recorded for queue, kind, count in one.counts if kind == EventKind.POSTED and count == 1]
    assert sorted(posted) == sorted(queue.number for queue in nodes)
    core.turn(world.now_us)
    assert len(recorded) == 3
    world.settle()
    assert all(one.volatile[EventKind.POSTED] == 1 for one in world.fold().totals().values())


def test_what_takes_many_turns_waits_for_the_one_that_is_due() -> None:
    world = World()
    client = world.client()
    client.post_all(client.sender("q"), *(Message("x", ttl_ms=5_000) for _ in range(3 * TURN_MAX)))
    world.now_us += 6_000_000
    queue, copied = world.core.queues.by_name["q"], [0]

    def turn(*, go_on: bool) -> bool:
        more = world.core.turn(world.now_us, go_on=go_on)
        copied.append(3 * TURN_MAX - queue.live)
        return more

    assert turn(go_on=True)
    assert 0 < copied[-1] <= COPIES_MAX
    for _ in range(5):  # other wake-ups of the same round of the loop
        assert turn(go_on=False)
    assert len(set(copied[1:])) == 1
    assert turn(go_on=True)
    assert copied[-2] < copied[-1] <= 2 * COPIES_MAX
    world.settle()
    assert queue.live == 0


def test_a_queue_that_is_deleted_has_its_own_counts_recorded_and_no_others(recorded: list[Counters]) -> None:
    world = busy(5)
    first = world.core.queues.by_name["q0"]
    world.core.administration.delete("q0", None)
    world.settle()
    assert [queue for one in recorded for queue, *_ in one.counts] == [first.number] * 2, "posted, and purged"
    assert world.core.scribe.uncounted == 4
    world.check_journal()


def test_counts_that_find_no_room_are_kept() -> None:
    world = busy(2)
    scribe = world.core.scribe
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scribe.recorder, "append", full)
        scribe.write_counters()
    assert scribe.exhausted and scribe.uncounted == 2
    scribe.write_counters(1)
    assert scribe.uncounted == 1


@pytest.mark.parametrize(
    "times_ms", [*permutations((5, 7, 9)), *permutations((5, None, 7)), *permutations((5, None, None))]
)
def test_the_next_time_is_the_earliest_that_anything_waits_for(
    times_ms: tuple[int | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, at_ms in zip((Expiry, LockKeeper, Termini), times_ms, strict=True):
        monkeypatch.setattr(owner, "next_ms", property(lambda _, at_ms=at_ms: at_ms))
    assert World().core.next_due_ms == 5

"""Messages that are taken together, where the stories of tests/properties/test_runs.py do not look."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from acquit.broker.intake.shaping import read_posting
from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions
from acquit.ledger.events import EventKind
from acquit.ledger.recorder import Recorder
from acquit.protocol.definitions import Accepted, Rejected, Target
from acquit.protocol.link import SendingLink
from acquit.protocol.message import Message
from acquit.store.interface import Position
from tests.support.broker_world import Client, World, durable, live_of

LEARNT = 3
"""Messages from which the broker learns what those of a sender are like."""
SIZE = len(durable("m0").encode())
"""Bytes of each, as it is posted."""


def sending(world: World, make: Callable[[str], Message] = durable) -> tuple[Client, SendingLink]:
    """A client whose messages will be taken together."""
    client = world.client()
    client.begun.next_delivery_id = 1_000  # wide, so that they are predicted
    link = client.sender("q")
    for count in (1, LEARNT - 1):
        client.post(link, *(make(f"{count}{at}") for at in range(count)))
        world.settle()
    return client, link


def identified(identity: str, *, durable: bool = True) -> Message:
    """A message with an id to detect duplicates by, of two characters."""
    return Message(identity, durable=durable, application_properties={"_AMQ_DUPL_ID": identity})


def duplicates(world: World) -> int:
    return world.core.queues.by_name["q"].counts[EventKind.DUPLICATE]


def cut(monkeypatch: pytest.MonkeyPatch, kept: int) -> list[int]:
    """Let the disk have room for so many of those that come together. Returns how many came, each time."""
    together = Recorder.posted_together
    came = []

    def first_ones(
        recorder: Recorder, sequences: range, queue: int, payloads: list[bytes], metas: list[bytes], *said: int
    ) -> tuple[list[Position], list[int]]:
        came.append(len(payloads))
        return together(recorder, sequences[:kept], queue, payloads[:kept], metas[:kept], *said)

    monkeypatch.setattr(Recorder, "posted_together", first_ones)
    return came


@pytest.mark.pure
@pytest.mark.parametrize("kept", [8, 3, 1])
def test_a_full_disk_cuts_a_run(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    world = World()
    client, link = sending(world)
    came = cut(monkeypatch, kept)
    sent = client.post(link, *(durable(f"m{at}") for at in range(8)))
    world.carry()
    assert came == [8]
    assert [client.outcome(one) for one in sent[:kept]] == [None] * kept, "they are not on the disk"
    assert all(isinstance(client.outcome(one), Rejected) for one in sent[kept:])
    world.check()
    world.settle()
    assert [client.outcome(one) for one in sent[:kept]] == [Accepted()] * kept
    receiver = client.receiver("q", credit=100)
    world.settle()
    assert client.bodies(receiver)[LEARNT:] == [f"m{at}" for at in range(kept)]
    assert live_of(world.crash(), "q") == LEARNT + kept
    world.check_journal()


@pytest.mark.pure
@pytest.mark.parametrize(
    ("policy", "taken"),
    [
        ({"messages_max": LEARNT + 8}, 8),
        ({"messages_max": LEARNT + 7}, 7),
        ({"bytes_max": (LEARNT + 8) * SIZE}, 8),
        ({"bytes_max": (LEARNT + 8) * SIZE - 1}, 7),
    ],
)
def test_what_a_limit_would_cut_is_looked_at_one_by_one(
    monkeypatch: pytest.MonkeyPatch, policy: dict[str, int], taken: int
) -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {**policy, "full_policy": "reject"}),)))
    client, link = sending(world)
    came = cut(monkeypatch, 8)
    sent = client.post(link, *(durable(f"m{at}") for at in range(8)))
    world.settle()
    assert came == ([8] if taken == 8 else [])
    assert [client.outcome(one) == Accepted() for one in sent] == [True] * taken + [False] * (8 - taken)
    assert live_of(world, "q") == LEARNT + taken
    world.check_journal()


@pytest.mark.pure
def test_what_memory_would_cut_is_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client, link = sending(world)
    came = cut(monkeypatch, 8)
    world.core.life.memory.bytes += world.core.life.memory.left - 2_000
    client.post(link, *[durable("x")] * 8)
    world.carry()
    assert came == []


@pytest.mark.pure
def test_what_a_temporary_queue_takes_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client = world.client()
    client.begun.next_delivery_id = 1_000
    link = client.sender(None, target=Target(dynamic=True))
    assert link.target is not None
    came = cut(monkeypatch, 8)
    for count in (1, 2, 8):
        sent = client.post(link, *[durable("x")] * count)
        world.carry()
        assert [client.outcome(one) for one in sent] == [Accepted()] * count, "nothing of it waits for the disk"
    assert came == []
    world.check()


# -- ids to detect duplicates by --------------------------------------------------------------------------------------

POSTED = ["a0", "a0", "a1", "a2", "a2", "a3", "a4", "a4"]
"""Ids of eight messages, of which five are new."""


@pytest.mark.pure
@pytest.mark.parametrize(("kept", "taken", "repeated"), [(5, 8, 3), (3, 5, 2), (1, 2, 1)])
def test_a_full_disk_cuts_a_run_with_duplicates(
    monkeypatch: pytest.MonkeyPatch, kept: int, taken: int, repeated: int
) -> None:
    """What was behind the last for which there was room is refused, also what only repeats one before."""
    world = World()
    client, link = sending(world, identified)
    came = cut(monkeypatch, kept)
    sent = client.post(link, *map(identified, POSTED))
    world.carry()
    assert came == [5]
    assert [client.outcome(one) for one in sent[:taken]] == [None] * taken, "they are not on the disk"
    assert all(isinstance(client.outcome(one), Rejected) for one in sent[taken:])
    world.settle()
    assert [client.outcome(one) for one in sent[:taken]] == [Accepted()] * taken
    assert (live_of(world, "q"), duplicates(world)) == (LEARNT + kept, repeated)
    monkeypatch.undo()
    again = world.crash()
    client, link = sending(again, identified)
    client.post(link, *map(identified, POSTED))
    again.settle()
    assert live_of(again, "q") == LEARNT + 5, "all that was posted before the crash is known"
    assert duplicates(again) - repeated == LEARNT + 3 + kept
    again.check_journal()


@pytest.mark.pure
def test_where_there_is_room_for_none_nothing_is_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client, link = sending(world, identified)
    came = cut(monkeypatch, 0)
    client.post(link, *map(identified, ["20", *POSTED]))
    world.settle()
    assert came == [5]
    assert (live_of(world, "q"), duplicates(world)) == (LEARNT + 5, 4)
    world.check_journal()


@pytest.mark.pure
@pytest.mark.parametrize("durable", [True, False])
def test_ids_that_a_transaction_holds_are_looked_at_one_by_one(durable: bool) -> None:
    world = World()
    make = partial(identified, durable=durable)
    client, link = sending(world, make)
    posting = read_posting(make("a3").encode())
    identity = world.core.duplicates.check(world.core.queues.by_name["q"], posting, 1)
    assert identity is not None
    world.core.duplicates.held(identity, 1, 5_000)
    sent = client.post(link, *map(make, POSTED))
    world.settle()
    assert [client.outcome(one) == Accepted() for one in sent] == [told != "a3" for told in POSTED]
    assert (live_of(world, "q"), duplicates(world)) == (LEARNT + 4, 3)


@pytest.mark.pure
def test_a_volatile_message_that_repeats_a_durable_one_waits_for_the_disk() -> None:
    world = World()
    client, link = sending(world, partial(identified, durable=False))
    client.post(client.sender("q", "other"), identified("a2"))
    sent = client.post(link, *(identified(told, durable=False) for told in POSTED))
    world.carry()
    assert [client.outcome(one) == Accepted() for one in sent] == [told != "a2" for told in POSTED]
    world.settle()
    assert [client.outcome(one) for one in sent] == [Accepted()] * 8
    assert (live_of(world, "q"), duplicates(world)) == (LEARNT + 5, 4)
    world.check_journal()


@pytest.mark.pure
@pytest.mark.parametrize("durable", [True, False])
def test_where_addresses_must_give_way_ids_are_remembered_one_by_one(durable: bool) -> None:
    """So that no more of them do than must."""
    world = World(BrokerOptions(limits=BrokerLimits(duplicate_ids_max=16)))
    make = partial(identified, durable=durable)
    client, link = sending(world, make)
    for address in ("a", "b"):
        client.post(client.sender(address, address), *(make(f"{address}{at}") for at in range(4)))
        world.settle()
    client.post(link, *(make(f"c{at}") for at in range(8)))
    world.settle()
    assert sorted(world.core.duplicates.addresses()) == ["b", "q"], "the oldest one is enough"


@pytest.mark.pure
@pytest.mark.parametrize("durable", [True, False])
def test_detection_that_is_turned_off_forgets_all_ids(durable: bool) -> None:
    world = World()
    client, link = sending(world, partial(identified, durable=durable))
    for detection in ("off", "id"):
        world.core.apply(BrokerOptions(address=(AddressRule("q", {"duplicate_detection": detection}),)))
    client.post(link, identified("10", durable=durable))
    world.settle()
    assert (live_of(world, "q"), duplicates(world)) == (LEARNT + 1, 0)
    world.check_journal()


@pytest.mark.pure
@pytest.mark.parametrize("durable", [True, False])
def test_a_window_that_a_run_begins_keeps_as_many_ids_as_it_is_to(durable: bool) -> None:
    world = World()
    client, link = sending(world, partial(identified, durable=durable))
    for policy in ({"duplicate_detection": "off"}, {"duplicate_window": 4}):
        world.core.apply(BrokerOptions(address=(AddressRule("q", policy),)))
    for letter in "ab":
        client.post(link, *(identified(f"{letter}{at}", durable=durable) for at in range(3)))
        world.settle()
    windows = world.core.duplicates._windows if durable else world.core.duplicates._volatile_ids
    assert len(windows.by_address["q"]) == 4
    world.check_journal()

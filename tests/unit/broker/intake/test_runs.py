"""Durable messages that are taken together, where the stories of tests/properties/test_runs.py do not look."""

from __future__ import annotations

import pytest

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger.recorder import Recorder
from acquit.protocol.definitions import Accepted, Rejected, Target
from acquit.protocol.link import SendingLink
from acquit.store.interface import Position
from tests.support.broker_world import Client, World, durable, live_of

LEARNT = 3
"""Messages from which the broker learns what those of a sender are like."""


def sending(world: World) -> tuple[Client, SendingLink]:
    """A client whose messages will be taken together."""
    client = world.client()
    client.begun.next_delivery_id = 1_000  # wide, so that they are predicted
    link = client.sender("q")
    for count in (1, LEARNT - 1):
        client.post(link, *[durable("x")] * count)
        world.settle()
    return client, link


def cut(monkeypatch: pytest.MonkeyPatch, kept: int) -> list[int]:
    """Let the disk have room for so many of those that come together. Returns how many came, each time."""
    together = Recorder.posted_together
    came = []

    def first_ones(
        recorder: Recorder, sequences: range, queue: int, payloads: list[bytes], metas: list[bytes], *said: int
    ) -> list[tuple[Position, int]]:
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
    world.settle()
    assert [client.outcome(one) for one in sent[:kept]] == [Accepted()] * kept
    receiver = client.receiver("q", credit=100)
    world.settle()
    assert client.bodies(receiver) == ["x"] * LEARNT + [f"m{at}" for at in range(kept)]
    assert live_of(world.crash(), "q") == LEARNT + kept
    world.check_journal()


@pytest.mark.pure
@pytest.mark.parametrize(
    ("policy", "taken"),
    [
        ({"messages_max": LEARNT + 8}, 8),
        ({"messages_max": LEARNT + 7}, 7),
        ({"bytes_max": 1_000}, 8),
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
    assert came == ([8] if policy == {"messages_max": LEARNT + 8} else [])
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

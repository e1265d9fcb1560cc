"""Who waits for a sync is released by the first one that has what was recorded before."""

from __future__ import annotations

import pytest

from acquit.broker.dispatching import choosing
from acquit.protocol.message import Message
from tests.support.broker_world import World, durable


def test_who_begins_to_wait_while_a_batch_is_in_flight() -> None:
    """What is recorded already is in that batch. If nothing more is recorded, there is no batch after it."""
    world = World()
    scribe = world.core.scribe
    client = world.client()
    client.post(client.sender("q"), durable(b"x"))
    world.carry()
    heard: list[str] = []
    scribe.when_synced(heard.append, "before")
    batch = scribe.take_batch()
    assert batch is not None
    scribe.when_synced(heard.append, "during")
    client.post(client.sender("q", "other"), durable(b"y"))
    world.carry()
    scribe.when_synced(heard.append, "of another batch")
    batch.write_and_sync()
    world.core.synced(world.opened.journal.complete(batch), world.now_us)
    assert heard == ["before", "during"]
    world.settle()
    assert heard == ["before", "during", "of another batch"]


def test_a_consumer_goes_on_when_the_mark_that_it_waits_for_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """It matches nothing, so that nothing else is recorded meanwhile. As the server does, a batch is taken after each
    turn in which none is in flight."""
    monkeypatch.setattr(choosing, "LOOKS_MAX", 1_000)
    world = World()
    client = world.client()
    count = 10_000  # more than what one mark covers
    client.post_all(client.sender("q"), *(durable(b"", application_properties={"n": n}) for n in range(count)))
    picky = client.receiver("q", "picky", selector=f"n = {count - 1}")
    picky.grant(1)
    batch = None
    while True:
        busy = world.core.turn(world.now_us)
        busy = world._exchange(client) or busy
        if batch is None:
            batch = world.core.scribe.take_batch()
        if not busy:
            if batch is None:
                break
            batch.write_and_sync()
            world.core.synced(world.opened.journal.complete(batch), world.now_us)
            batch = None
    (delivery,) = client.received[picky]
    assert Message.decode(delivery.payload).application_properties == {"n": count - 1}
    world.settle()
    world.check_journal()


def test_a_batch_is_awaited_if_its_sync_is() -> None:
    """An acquisition is recorded, and nobody waits until it is on the disk, once what is to come is marked."""
    world = World()
    scribe = world.core.scribe
    client = world.client()
    sender, taker = client.sender("q"), client.receiver("q", "taker")
    taker.grant(1)
    client.post(sender, durable(b"x"))
    world.settle()
    client.post(sender, durable(b"y"))
    world.carry()
    assert scribe.pending_bytes == scribe.recorder.pending_bytes > 0
    assert scribe.has_waiters
    world.settle()
    assert not scribe.has_waiters
    taker.grant(1)
    world.carry()
    assert len(client.received[taker]) == 2
    assert scribe.pending_bytes > 0
    assert not scribe.has_waiters
    world.settle()

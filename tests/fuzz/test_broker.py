"""Peers that keep to no promise, in a broker with every policy there is: its accounts are right at every moment.

Nothing raises, each queue has what entered and did not leave, and the journal alone, read at any moment as after a kill
at that moment, says so as well and contradicts itself nowhere.
"""

from __future__ import annotations

import random

import pytest

from acquit.broker.options import BrokerLimits, BrokerOptions, ConnectionLimits, TransactionLimits
from acquit.ledger.balance import balance
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.broker_world import World
from tests.support.raw_peer import RULES, RawPeer

pytestmark = pytest.mark.promise("fairness")

OPTIONS = BrokerOptions(
    address=RULES,
    limits=BrokerLimits(queues_max=60, requests_max=5),
    connection=ConnectionLimits(links_max=60),
    transactions=TransactionLimits(
        per_connection_max=6, postings_max=30, retirements_max=30, idle_timeout_ms=200, fates_max=10
    ),
)


def check_books(world: World) -> None:
    """What is on the disk now makes sense by itself."""
    fold = world.fold()
    assert fold.anomalies == []
    told = balance(fold)
    assert told.balanced, [row.mismatch for row in told.queues]


def calm(world: World) -> None:
    """All that is recorded is on the disk, which has room: it may have had none until now."""
    for _ in range(100):
        world.chores()
        world.settle()
        if not world.core.scribe.pending and not world.opened.journal.full:
            return
        world.advance(5_000)  # a journal without room looks for some now and then
    raise AssertionError("what is recorded is never written")


def play(seed: int, steps: int, *, disk: FaultyDisk | None = None) -> None:
    """Random peers for so many steps. On a `disk`, it is full now and then."""
    chance = random.Random(seed)
    world = World(OPTIONS, disk=disk)
    ids: list[bytes] = []
    peers: list[RawPeer] = []
    for _ in range(steps):
        peers = [peer for peer in peers if not peer.over]
        world.clients = [client for client in world.clients if client in peers]
        if len(peers) < 4:
            peers.append(RawPeer(world, chance.randrange(1 << 40), shared=ids))
        peer = chance.choice(peers)
        for _ in range(chance.choice((1, 1, 3, 10))):
            peer.step()
        if chance.random() < 0.9:
            world.carry()
        if peer.over or chance.random() < 0.01:
            peer.lose()
        if isinstance(world.disk, FaultyDisk) and chance.random() < 0.05:
            full = world.disk.capacity_bytes is None and chance.random() < 0.7
            world.disk.capacity_bytes = world.disk.used_bytes if full else None
        if chance.random() < 0.3:
            world.sync()
        if chance.random() < 0.1:
            world.advance(chance.choice((1, 10, 100, 1_000)))
        world.check()
        full = isinstance(world.disk, FaultyDisk) and world.disk.capacity_bytes is not None
        if chance.random() < 0.02 and not full:
            calm(world)
            world.check_journal()
        if chance.random() < 0.02:
            check_books(world)
        if chance.random() < 0.01:
            if isinstance(world.disk, FaultyDisk):
                world.disk.capacity_bytes = None  # to start takes a little room
            if chance.random() < 0.7:
                world = world.crash()
            else:
                calm(world)
                world = world.stop()
            peers = []
            check_books(world)
    if isinstance(world.disk, FaultyDisk):
        world.disk.capacity_bytes = None
    calm(world)
    world.check_journal()
    for peer in peers:
        peer.lose()
    calm(world)
    world.check_journal()
    core = world.core
    assert not core.transactions.postings.durable and not core.connections.all
    assert not core._attaching._links
    unowned = [
        node
        for node in (*core.queues.by_name.values(), *core.topics.by_address.values())
        if node.producers or (node.temporary is not None and not node.live)
    ]
    assert not unowned, unowned
    for queue in core.queues.by_name.values():
        assert not queue.acquired and not queue.consumers and not queue.browsers and not queue.producers
        assert not queue.held, queue
        assert queue.temporary is None or queue.live, queue


@pytest.mark.parametrize("seed", range(10))
def test_the_books_are_right_whatever_peers_do(seed: int) -> None:
    play(seed, 300)


@pytest.mark.parametrize("seed", range(10))
def test_the_books_are_right_while_the_disk_is_full_now_and_then(seed: int) -> None:
    play(seed, 300, disk=FaultyDisk())

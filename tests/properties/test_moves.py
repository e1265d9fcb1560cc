"""Moves between queues, cut off anywhere: each message is in exactly one of them, with everything that it is; and
while queues are paused and resumed, and dead letters redriven or released, none is lost, what is paused is so until
it is resumed, and what was resumed is delivered."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from acquit.broker.nodes.pausing import PAUSES
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Rejected
from acquit.protocol.message import Message
from tests.support.broker_world import World, durable

pytestmark = pytest.mark.promise("moved-once")

QUEUES = ("a", "b", "c", "DLQ")
LIVING = QUEUES[:3]
OPTIONS = BrokerOptions(
    address=(
        AddressRule("#", {"max_releases": 1}),
        AddressRule("a", {"memory_bytes_max": 65_536}),
        AddressRule("b", {"auto_delete": True}),
    )
)


def bodies(world: World) -> Counter[object]:
    """Of all messages, by queue, looked at."""
    client = world.client("looks")
    found: list[object] = []
    for name in QUEUES:
        if name in world.core.queues.by_name:
            link = client.receiver(name, f"look {name}", browse=True, credit=10_000)
            world.settle()
            found += client.bodies(link)
    client.lose()
    return Counter(map(repr, found))


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_or_doubled(seed: int) -> None:
    rng = Random(seed)
    world = World(OPTIONS)
    client = world.client()
    posted: Counter[object] = Counter()
    paused: dict[str, str] = {}
    for _ in range(rng.randrange(1, 30)):
        name = rng.choice(LIVING)
        body = bytes([rng.randrange(256)]) * rng.choice((1, 100, 9_000))
        extra: dict[str, object] = rng.choice(
            ({}, {"priority": rng.randrange(10)}, {"annotations": {"x-opt-delivery-delay": 40}}, {"ttl_ms": 10_000_000})
        )
        client.post_all(client.sender(name, f"{name} {len(posted)} {rng.random()}"), durable(body, **extra))
        posted[repr(Message.decode(durable(body).encode()).body)] += 1
    for _ in range(rng.randrange(1, 25)):
        step = rng.random()
        source, target = rng.sample(LIVING, 2)
        if step < 0.2 and source in world.core.queues.by_name:
            how = rng.choice(tuple(PAUSES))
            world.core.administration.pause(source, how, "me")
            world.settle()
            paused[source] = how
        elif step < 0.3 and "DLQ" in world.core.queues.by_name:
            limit = rng.choice((None, 1))
            world.core.administration.redrive("DLQ", "me", lambda address: None, messages_max=limit)
        elif step < 0.5 and source in world.core.queues.by_name:
            limit = rng.choice((None, None, 1, 3))
            world.core.administration.move(source, target, "me", messages_max=limit, selector=None)
            if rng.random() < 0.5:
                world.carry()
        elif step < 0.7:
            taken = rng.choice((source, source, "DLQ"))
            link = client.receiver(taken, f"hold {rng.random()}", credit=rng.randrange(1, 4))
            world.carry()
            if rng.random() < 0.7:
                world.settle()
                link.session.settle_all(
                    client.held(link), RELEASED if taken == "DLQ" else rng.choice((RELEASED, Rejected()))
                )
        elif step < 0.8:
            world.settle()
            world.check_journal()
        elif step < 0.9:
            world.advance(50)
        else:
            if rng.random() < 0.3:
                world.sync()
            world = world.crash()
            client = world.client()
        for name, how in paused.items():
            queue = world.core.queues.by_name.get(name)
            assert (queue is None and how == "none") or (queue is not None and queue.paused == how)
    for other in list(world.clients):
        other.lose()
    world.advance(100)
    world.settle()
    world.check_journal()
    assert bodies(world) == posted
    total = sum(queue.entered - queue.retired for queue in world.core.queues.by_name.values())
    assert total == posted.total()
    world = world.crash()
    client = world.client()
    for name in [name for name in QUEUES if name in world.core.queues.by_name]:
        world.core.administration.pause(name, "none", "me")
    for name in QUEUES:
        link = client.receiver(name, f"drain {name}", credit=10_000)
        world.settle()
        link.session.settle_all(client.held(link), ACCEPTED)
        world.settle()
    assert not world.core.life.live
    world.check_journal()

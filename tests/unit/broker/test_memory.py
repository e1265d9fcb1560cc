"""What messages cost in memory, with and without their bodies."""

from __future__ import annotations

from acquit.broker.memory import READ_AHEAD_MESSAGES
from acquit.broker.message import OBJECT_BYTES, PARKED_BYTES
from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions
from acquit.protocol.constants import ACCEPTED
from acquit.store.options import MIB
from tests.support.broker_world import Client, World, durable, live_of


def small_world() -> World:
    return World(BrokerOptions(limits=BrokerLimits(memory_bytes_max=MIB)))


def fill(world: World, client: Client, body: bytes) -> int:
    """Post until there is no credit for more, and none comes by time; how many. They have a time to live, and so are
    not parked."""
    link = client.sender("q")
    for _ in range(200):
        while link.credit:
            client.post(link, *[durable(body, ttl_ms=1 << 30)] * link.credit)
            world.settle()
        world.core.tick(world.now_us)
        world.settle()
        if not link.credit:
            break
    return world.core.queues.by_name["q"].live


def test_a_queue_of_bodies_on_the_disk_fills_memory_by_its_objects_alone() -> None:
    world = small_world()
    live = fill(world, world.client(), bytes(40))
    assert world.core.memory.bytes <= MIB
    assert live > 0.9 * (MIB - READ_AHEAD_MESSAGES * 200) / OBJECT_BYTES, "bodies gave way to them"
    world.check()


def test_room_comes_back_as_they_leave() -> None:
    world = small_world()
    client = world.client()
    fill(world, client, bytes(40))
    before = world.core.memory.bytes
    receiver = client.receiver("q", credit=500)
    world.settle()
    for delivery in client.held(receiver):
        delivery.settle(ACCEPTED)
    world.settle()
    assert world.core.memory.bytes < before - 400 * OBJECT_BYTES
    world.check()


def test_what_a_restart_finds_counts() -> None:
    world = small_world()
    fill(world, world.client(), bytes(40))
    live = world.core.queues.by_name["q"].live
    world = world.stop()
    assert world.core.memory.bytes == world.core.memory.object_bytes == live * OBJECT_BYTES
    world.check()


def test_what_is_parked_costs_little() -> None:
    """Before and after a restart; and what an operator looks at costs what an object does, until it leaves."""
    world = World(BrokerOptions(address=(AddressRule("q", {"memory_bytes_max": 64 * 1024}),)))
    client = world.client()
    link = client.sender("q")
    while (live := live_of(world, "q")) < 3_000:
        client.post_all(link, *[durable(bytes(40))] * min(200, link.credit))
    queue = world.core.queues.by_name["q"]
    assert world.core.memory.object_bytes < 120 * live + queue.memory_bytes
    world.check()
    world = world.stop()
    memory = world.core.memory
    assert memory.bytes == memory.object_bytes == live * PARKED_BYTES
    found: list[object] = []
    world.core.administration.read_message("q", 1_000, 1 << 20).when_finished(found.append)
    world.settle()
    assert found
    assert memory.object_bytes == live * PARKED_BYTES + OBJECT_BYTES - PARKED_BYTES
    world.check()
    client = world.client()
    receiver = client.receiver("q", credit=live)
    world.settle()
    assert len(client.held(receiver)) == live
    for delivery in client.held(receiver):
        delivery.settle(ACCEPTED)
    world.settle()
    assert memory.bytes == memory.object_bytes == 0
    world.check()

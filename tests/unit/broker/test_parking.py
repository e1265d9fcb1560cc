"""Messages that wait deep in a queue are rows, not objects: after a restart, and whoever has looked at them."""

from __future__ import annotations

import pytest

from acquit.broker.message import OBJECT_BYTES, PARKED_BYTES
from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.message import Message
from acquit.store.options import MIB
from tests.support.broker_world import Client, World, durable, live_of

DEPTH = 1_500


def deep(**limits: int) -> World:
    """A broker that has started again, whose queue *q* is deep."""
    world = World(BrokerOptions(limits=BrokerLimits(**limits)))
    post(world, [durable(f"m{number}") for number in range(DEPTH)])
    world = world.stop()
    assert parked(world) == DEPTH
    return world


def post(world: World, messages: list[Message], address: str = "q") -> None:
    client = world.client()
    link = client.sender(address)
    for _ in range(1_000):
        count = min(len(messages), link.credit, 100)
        client.post_all(link, *messages[:count])
        messages = messages[count:]
        if not messages:
            break
        if not count:
            world.now_us += 1_000_000
            world.core.tick(world.now_us)
            world.settle()
    assert not messages
    client.close()
    world.settle()


def parked(world: World) -> int:
    return len(world.core.life.parking.rows)


def pass_time(world: World, seconds: int) -> None:
    for _ in range(seconds):
        world.now_us += 1_000_000
        world.core.tick(world.now_us)
        world.settle()
    world.check()


def take_all(world: World, client: Client) -> list[object]:
    link = client.receiver("q", "taker", credit=10 * DEPTH)
    world.settle()
    bodies = client.bodies(link)
    for delivery in client.held(link):
        delivery.settle(ACCEPTED)
    world.settle()
    assert live_of(world, "q") == 0
    world.check()
    return bodies


@pytest.mark.pure
def test_whose_turn_comes_is_made_an_object_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading bodies ahead makes objects as it goes, and does not try to park them again at once."""
    world = deep()
    made: list[int] = []
    parking = world.core.life.parking
    unpark = world.core.life.memory.unpark

    def count(messages: int) -> None:
        made.append(messages)
        unpark(messages)

    monkeypatch.setattr(world.core.life.memory, "unpark", count)
    monkeypatch.setattr(parking.rows, "take", lambda sequence: pytest.fail("one by one"))
    assert take_all(world, world.client()) == [f"m{number}" for number in range(DEPTH)]
    assert sum(made) == DEPTH


def test_who_browses_leaves_them_parked() -> None:
    world = deep(memory_bytes_max=MIB)
    client = world.client()
    link = client.receiver("q", "browser", browse=True, credit=2 * DEPTH)
    world.settle()
    assert client.bodies(link) == [f"m{number}" for number in range(DEPTH)]
    client.close()
    pass_time(world, 5)
    post(world, [Message(bytes(30_000)) for _ in range(25)], "volatile")  # memory is short, and bodies leave it
    pass_time(world, 5)
    assert parked(world) > DEPTH // 4
    world.core.administration.purge("volatile", None)
    pass_time(world, 1)
    assert take_all(world, world.client()) == [f"m{number}" for number in range(DEPTH)]


def test_a_browser_sees_those_that_were_there_and_those_that_come() -> None:
    """In order, although it gets to them much later; and what others took meanwhile it does not see."""
    world = deep()
    client = world.client()
    browser = client.receiver("q", "browser", browse=True, credit=1)
    world.settle()
    taker = client.receiver("q", "taker", credit=100)
    world.settle()
    for delivery in client.held(taker)[:50]:
        delivery.settle(ACCEPTED)
    taker.detach()
    world.settle()
    post(world, [durable("new")])
    browser.grant(2 * DEPTH)
    world.settle()
    seen = client.bodies(browser)
    assert seen == ["m0", *(f"m{number}" for number in range(50, DEPTH)), "new"]
    world.check()


def test_a_walk_that_finds_nothing_leaves_them_parked() -> None:
    world = deep(memory_bytes_max=MIB)
    world.core.administration.purge("q", None, selector="color = 'red'")
    pass_time(world, 5)
    assert live_of(world, "q") == DEPTH
    assert take_all(world, world.client()) == [f"m{number}" for number in range(DEPTH)]


def test_a_snapshot_makes_no_objects() -> None:
    world = deep()
    world.now_us += 7_000_000
    world.core.tick(world.now_us)
    snapshot = world.core.administration.figures.node("q")
    assert snapshot is not None
    assert snapshot.oldest_age_ms >= 7_000
    assert parked(world) == DEPTH


def test_what_has_a_time_to_live_keeps_its_place_among_the_others() -> None:
    world = World()
    post(world, [durable(f"m{n}", ttl_ms=1 << 30 if n % 2 else None) for n in range(DEPTH)])
    world = world.stop()
    assert parked(world) == DEPTH // 2
    (lane,) = world.core.queues.by_name["q"].backlog._lanes
    assert lane.returned == []
    world.check()
    assert take_all(world, world.client()) == [f"m{number}" for number in range(DEPTH)]


def test_messages_with_other_flags_keep_their_places_among_the_others() -> None:
    """Every third repeats the id of another with another body, and is flagged for it."""
    world = World()
    ids = ["the same" if n % 3 else f"id {n}" for n in range(300)]
    post(world, [durable(f"m{n}", application_properties={"_AMQ_DUPL_ID": one}) for n, one in enumerate(ids)])
    world = world.stop()
    assert len({lot.flags for lot in world.core.life.parking.rows.lots()}) == 2
    assert take_all(world, world.client()) == [f"m{number}" for number in range(300)]


@pytest.mark.parametrize("kind", ["purge", "delete"])
def test_they_leave_as_others_do(kind: str) -> None:
    world = deep()
    if kind == "purge":
        world.core.administration.purge("q", None)
    else:
        world.core.administration.delete("q", None)
    pass_time(world, 10)
    assert live_of(world, "q") == parked(world) == 0
    assert world.core.memory.object_bytes == 0
    world = world.crash()
    assert live_of(world, "q") == 0


def test_a_consumer_that_wants_none_of_them_stops_nobody_from_posting() -> None:
    """What it passes over becomes objects, as far as memory reaches; it goes on when there is more."""
    count = 2 * MIB // OBJECT_BYTES
    world = World(BrokerOptions(limits=BrokerLimits(memory_bytes_max=MIB)))
    assert count * PARKED_BYTES < MIB // 2
    post(world, [durable(f"m{number}") for number in range(count)])
    world = world.stop()
    client = world.client()
    link = client.receiver("q", "wants", credit=10, selector="color = 'red'")
    pass_time(world, 3)
    queue = world.core.queues.by_name["q"]
    assert len(queue.aside) * OBJECT_BYTES > MIB // 2
    assert queue.backlog.count
    post(world, [durable("elsewhere")], "other")
    assert live_of(world, "other") == 1
    taker = client.receiver("q", "taker", credit=count)
    for _ in range(30):
        world.settle()
        for delivery in client.held(taker):
            delivery.settle(ACCEPTED)
        world.settle()
    assert live_of(world, "q") == 0
    post(world, [durable("wanted", application_properties={"color": "red"})])
    pass_time(world, 2)
    assert client.bodies(link) == ["wanted"]


def test_the_policy_of_a_deep_queue_changes() -> None:
    world = deep()
    rule = AddressRule("q", {"last_value": True})
    world.core.apply(BrokerOptions(address=(rule,)))
    world.settle()
    assert parked(world) == DEPTH
    assert take_all(world, world.client()) == [f"m{number}" for number in range(DEPTH)]


def test_who_looks_at_a_few_makes_no_objects_of_the_others() -> None:
    """Also in the native build, where a generator expression is a list."""
    world = deep()
    backlog, objects = world.core.queues.by_name["q"].backlog, world.core.life.objects
    assert len(list(backlog.next_messages(3))) == 3
    walk = backlog.remembered()
    first = next(walk)
    page = next(iter(backlog.lanes_above(first.sequence + 700, 5)))
    assert len(page) == 5
    assert len(objects) <= 3 + 5
    assert len(list(walk)) == DEPTH - 1

"""What queues were like over the last hours."""

from __future__ import annotations

import pytest

from acquit.broker.admin import trends
from acquit.broker.admin.trends import POINTS_MAX, STEP_MS, TrendPoint
from acquit.protocol.constants import ACCEPTED
from tests.support.broker_world import World, durable, posted


def points(world: World, name: str = "q") -> list[TrendPoint]:
    return world.core.administration.trends.points(name)


def test_a_point_a_minute_says_what_went_in_and_out() -> None:
    world, client = posted("q", durable(1))
    world.advance(STEP_MS)
    sender, link = client.sender("q", "more"), client.receiver("q", credit=2)
    world.settle()
    client.post_all(sender, durable(2), durable(3))
    link.session.settle_all(client.held(link)[:1], ACCEPTED)
    world.settle()
    world.advance(STEP_MS)
    first, second = points(world)[-2:]
    assert first[1:] == (1, 0, 0, 0)
    assert second[1:] == (2, 2, 1, 1)
    assert second.time_ms - first.time_ms == STEP_MS
    for _ in range(5):
        world.advance(1_000)
    assert len(points(world)) - points(world).index(second) == 1, "no more than one a minute"


def test_the_oldest_points_go() -> None:
    world, _ = posted("q", durable(1))
    for _ in range(POINTS_MAX + 5):
        world.advance(STEP_MS)
    assert len(points(world)) == POINTS_MAX
    assert points(world)[-1].time_ms == world.now_us // 1000


def test_of_many_queues_the_busiest_have_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trends, "QUEUES_MAX", 2)
    world = World()
    client = world.client()
    senders = {name: client.sender(name, name) for name in ("a", "b", "c")}
    world.settle()
    world.advance(STEP_MS)
    assert [bool(points(world, name)) for name in senders] == [True, True, False]
    client.post_all(senders["b"], durable(1), durable(2), durable(3))
    client.post_all(senders["c"], durable(1))
    world.advance(STEP_MS)
    world.advance(STEP_MS)
    client.post_all(senders["c"], durable(1))
    world.advance(STEP_MS)
    assert [bool(points(world, name)) for name in senders] == [False, True, True]


def test_ticks_share_the_queues_of_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trends, "LOOKED_AT", 1)
    world = World()
    client = world.client()
    names = ("a", "b", "c")
    for name in names:
        client.sender(name, name)
    world.settle()
    world.advance(STEP_MS)
    seen = []
    for _ in names:
        seen.append(sum(len(points(world, name)) for name in names))
        world.advance(1_000)
    assert [count - seen[0] for count in seen] == [0, 1, 2]


def test_a_queue_that_is_gone_is_forgotten() -> None:
    world, _ = posted("q", durable(1))
    world.advance(STEP_MS)
    assert points(world)
    world.core.administration.delete("q", None)
    world.settle()
    world.advance(STEP_MS)
    world.core.administration.create("q", None, topic=False)
    world.settle()
    assert points(world) == []


def test_a_clock_that_is_set_back_ends_nothing() -> None:
    world, _ = posted("q", durable(1))
    world.advance(STEP_MS)
    count = len(points(world))
    world.advance(-100 * STEP_MS)
    assert len(points(world)) == count + 1
    world.advance(STEP_MS)
    assert len(points(world)) == count + 2

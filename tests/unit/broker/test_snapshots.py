"""What snapshots of queues say."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields

from acquit.broker import snapshots
from acquit.broker.inspect import QueueSnapshot
from acquit.protocol.constants import ACCEPTED, RELEASED
from tests.support.broker_world import World, durable, posted


def snapshot(world: World) -> QueueSnapshot:
    found = world.core.administration.figures.node("q")
    assert found is not None
    return found


def test_every_figure_of_a_queue_is_one_that_somebody_sets() -> None:
    """A field that both leave out would be 0 for ever."""
    calls = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(snapshots)))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == QueueSnapshot.__name__
    ]
    assert len(calls) == 2, "of a queue, and of a topic"
    set_by_name = {keyword.arg for call in calls for keyword in call.keywords} - {None}
    counted = {*snapshots.RETIRED_FIGURES, "duplicates"}
    assert set_by_name | counted == {field.name for field in fields(QueueSnapshot)}


def test_the_age_of_the_oldest_message_that_waits() -> None:
    world, client = posted("q", durable(1))
    sender = client.sender("q", "later")
    world.advance(5_000)
    client.post_all(sender, durable(2, priority=9))
    world.advance(2_000)
    world.settle()
    assert snapshot(world).oldest_age_ms == 7_000, "whatever its priority"
    link = client.receiver("q", credit=2)
    world.settle()
    assert snapshot(world).oldest_age_ms == 0, "held messages do not count"
    second, first = client.held(link)
    link.session.settle_all([first], ACCEPTED)
    link.session.settle_all([second], RELEASED)
    link.detach()
    world.settle()
    assert snapshot(world).oldest_age_ms == 2_000
    world = world.crash()
    world.advance(1_000)
    world.settle()
    assert snapshot(world).oldest_age_ms == 3_000, "it is known after a restart"


def test_the_age_of_what_no_consumer_that_waits_may_have() -> None:
    world, client = posted("q", durable(1))
    client.receiver("q", selector="n = 1", credit=5)
    world.advance(4_000)
    world.settle()
    assert len(world.core.queues.by_name["q"].aside) == 1
    assert snapshot(world).oldest_age_ms == 4_000

"""``redelivery_blocks = "queue"``: what stands behind a message that waits for another attempt is not handed out,
whichever way it gets to a consumer."""

from __future__ import annotations

import pytest

from acquit.broker.dispatching.consumers import AHEAD_MAX
from acquit.broker.message import ASIDE
from acquit.broker.options import AddressRule, BrokerOptions, ConnectionLimits
from acquit.protocol.definitions import Modified
from acquit.protocol.link import ReceivingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World

FAILED = Modified(delivery_failed=True)
DELAY_MS = 1_000


def message(name: str, **more: object) -> Message:
    """One of the kind that its first letter says."""
    return Message(name.encode(), application_properties={"kind": name[0]}, **more)  # type: ignore[arg-type]


def names(client: Client, link: ReceivingLink) -> list[str]:
    return [body[:2].decode() for body in client.bodies(link)]  # type: ignore[index]


def aside(world: World) -> list[str]:
    """What is set aside."""
    queue = world.core.queues.by_name["q"]
    held = [one for one in queue.aside.since(0, 1_000) if one.flags & ASIDE]
    return [bytes(one.body or b"")[-2:].decode() for one in held]


@pytest.fixture
def world() -> World:
    rule = AddressRule("#", {"redelivery_delay_ms": DELAY_MS, "redelivery_blocks": "queue", "message_groups": True})
    return World(BrokerOptions(address=(rule,)))


WAYS: dict[str, dict[str, object]] = {
    "to all alike": {},
    "by selector": {"selector": "kind = 'a'"},
    "by size": {"max_message_size": 10_000},
    "not what is its own": {"no_local": True},
    "pre-settled": {"presettled": True},
}


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_from_the_line(world: World, way: str, others: bool) -> None:
    """`others`: another consumer waits that wants something else, so that each message is placed by itself."""
    client, poster = world.client(), world.client("poster")
    first = client.receiver("q", "first", credit=1, selector="kind = 'a'")
    if others:
        client.receiver("q", "another", credit=10, selector="kind = 'z'")
    poster.post_all(poster.sender("q"), message("a1"), message("a2"), message("a3"))
    client.received[first][0].settle(FAILED)
    client.detach(first)
    link = client.receiver("q", "second", credit=10, **WAYS[way])  # type: ignore[arg-type]
    world.settle()
    assert names(client, link) == []
    poster.post_all(poster.sender("q", "again"), message("a4"), message("a0", priority=9))
    assert names(client, link) == ["a0"], "what stands before it is not held up"
    world.advance(DELAY_MS)
    world.settle()
    assert names(client, link) == ["a0", "a1", "a2", "a3", "a4"]


@pytest.mark.parametrize("known", [False, True])
def test_what_was_set_aside_before(world: World, known: bool) -> None:
    """`known`: its consumer was there when it was set aside, and remembers it; otherwise it comes and looks."""
    client, poster = world.client(), world.client("poster")
    first = client.receiver("q", "first", credit=10, selector="kind = 'a'")
    if known:
        other = client.receiver("q", "other", selector="kind = 'b'")
    poster.post_all(poster.sender("q"), message("a1"), message("b1"), message("b2"))
    assert names(client, first) == ["a1"]
    assert aside(world) == ["b1", "b2"]
    client.received[first][0].settle(FAILED)
    world.settle()
    if not known:
        other = client.receiver("q", "other", selector="kind = 'b'")
    other.grant(10)
    world.settle()
    assert names(client, other) == []
    poster.post_all(poster.sender("q", "again"), message("b3"), message("b0", priority=9))
    assert names(client, other) == ["b0"], "what stands before it is not held up"
    world.advance(DELAY_MS)
    world.settle()
    assert names(client, other) == ["b0", "b1", "b2", "b3"]
    assert names(client, first) == ["a1", "a1"]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("where", ["in line", "aside"])
def test_who_drains_is_answered_though_there_is_something_behind(world: World, where: str, known: bool) -> None:
    client, poster = world.client(), world.client("poster")
    first = client.receiver("q", "first", credit=10 if where == "aside" else 1, selector="kind = 'a'")
    if known:
        other = client.receiver("q", "other", selector="kind = 'b'")
    poster.post_all(poster.sender("q"), message("a1"), message("b1"))
    assert bool(aside(world)) is (where == "aside")
    client.received[first][0].settle(FAILED)
    world.settle()
    if not known:
        other = client.receiver("q", "other", selector="kind = 'b'")
    other.grant(5)
    other.drain_credit()
    world.settle()
    assert (other.credit, names(client, other)) == (0, [])
    world.advance(DELAY_MS)
    other.grant(5)
    other.drain_credit()
    world.settle()
    assert (other.credit, names(client, other)) == (0, ["b1"])


def test_what_is_kept_for_the_owner_of_its_group(world: World) -> None:
    client, poster = world.client(), world.client("poster")
    owner = client.receiver("q", "owner", credit=2)
    sender = poster.sender("q")
    poster.post_all(sender, message("x1"), message("g1", group_id="g"))
    assert names(client, owner) == ["x1", "g1"]
    other = client.receiver("q", "other", credit=10, selector="kind <> 'x'")
    poster.post_all(sender, message("g2", group_id="g"))
    assert aside(world) == ["g2"], "kept for the owner, who has no credit"
    client.received[owner][0].settle(FAILED)
    world.settle()
    owner.grant(10)
    world.settle()
    assert names(client, owner) == ["x1", "g1"]
    assert names(client, other) == []
    world.advance(DELAY_MS)
    world.settle()
    assert names(client, owner) == ["x1", "g1", "x1", "g2"]


def test_nobody_is_kept_busy_by_what_is_held_up(world: World) -> None:
    """A turn has nothing more to do, however much there is behind it."""
    client, poster = world.client(), world.client("poster")
    first = client.receiver("q", "first", credit=1, selector="kind = 'a'")
    poster.post_all(poster.sender("q"), *(message(f"a{number}") for number in range(300)))
    client.received[first][0].settle(FAILED)
    first.grant(1_000)
    client.receiver("q", "other", credit=10, selector="kind = 'b'")
    world.settle()
    assert not world.core.turn(world.now_us)
    assert names(client, first) == ["a0"]


def test_who_drains_is_answered_though_there_is_more_behind_it_than_is_remembered(world: World) -> None:
    client, poster = world.client(), world.client("poster")
    first = client.receiver("q", "first", credit=10, selector="kind = 'a'")
    other = client.receiver("q", "other", selector="kind = 'b'")
    poster.post_all(poster.sender("q"), message("a1"), *(message("b1") for _ in range(AHEAD_MAX + 500)))
    client.received[first][0].settle(FAILED)
    world.settle()
    other.grant(5)
    other.drain_credit()
    world.settle()
    assert (other.credit, names(client, other)) == (0, [])


def test_nobody_waits_for_what_is_written_to_be_given_what_is_held_up() -> None:
    """Else the broker would turn without end while a peer reads nothing."""
    rule = AddressRule("q", {"redelivery_delay_ms": DELAY_MS, "redelivery_blocks": "queue"})
    world = World(BrokerOptions(address=(rule,), connection=ConnectionLimits(output_bytes_max=16_384)))
    client, poster = world.client(), world.client("poster")
    first = client.receiver("q", "first", credit=1, selector="kind = 'a'")
    client.receiver("large", "another", credit=10)
    poster.post_all(poster.sender("q"), message("a1"), message("a2"))
    client.received[first][0].settle(FAILED)
    world.settle()
    client.reading = False
    first.grant(10)
    poster.post_all(poster.sender("large", "large"), Message(bytes(50_000)))
    world.core.life.wake(world.core.queues.by_name["q"])
    assert client.peer.engine.output_bytes >= 16_384
    assert not world.core.turn(world.now_us)
    assert not world.core.turn(world.now_us)

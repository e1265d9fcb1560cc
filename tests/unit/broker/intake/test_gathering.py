"""Deliveries that came together, by link."""

from __future__ import annotations

from typing import Any

import pytest

from acquit.broker.intake.gathering import gather
from acquit.broker.intake.posting import Poster
from acquit.broker.links.endpoints import Producer
from acquit.protocol.events import DeliveriesReceived, Event, StatesReceived
from acquit.protocol.link import SendingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World


def producers(*addresses: str | None) -> list[Producer]:
    """The broker's ends of links to these, all of one session."""
    world = World()
    client = world.client()
    for number, address in enumerate(addresses):
        client.sender(address, f"s{number}")
    (peer,) = world.core.connections.all
    found = [context for context in peer.links if isinstance(context, Producer)]
    return sorted(found, key=lambda producer: producer.link_name)


def came(producer: Producer, *marks: Any) -> DeliveriesReceived:
    return DeliveriesReceived(producer.link, list(marks))


def told(events: list[Event]) -> list[tuple[str, list[Any]]]:
    return [(event.link.name, event.deliveries) for event in events if isinstance(event, DeliveriesReceived)]


def test_links_to_different_queues_have_theirs_together() -> None:
    one, other = producers("one", "other")
    events = [came(one, 1, 2), came(other, 3), came(one, 4), came(other, 5, 6), came(one, 7)]
    assert told(gather(events)) == [("s0", [1, 2, 4, 7]), ("s1", [3, 5, 6])]


def test_the_order_of_a_queue_is_kept_where_several_links_send_to_it() -> None:
    one, same, other = producers("one", "one", "other")
    events = [came(one, 1), came(other, 2), came(same, 3), came(other, 4), came(one, 5), came(one, 6)]
    assert told(gather(events)) == [("s0", [1]), ("s2", [2, 4]), ("s1", [3]), ("s0", [5, 6])]


def test_nothing_passes_what_is_no_plain_delivery_to_a_queue() -> None:
    one, other = producers("one", "other")
    between = StatesReceived(one.link, [], None, True)
    events = [came(one, 1), between, came(one, 2), came(other, 3), came(one, 4)]
    gathered = gather(events)
    assert gathered[1] is between
    assert told(gathered) == [("s0", [1]), ("s0", [2, 4]), ("s1", [3])]


@pytest.mark.pure
@pytest.mark.parametrize("what", ["stateful", "marked", "resumable", "anonymous"])
def test_deliveries_that_may_depend_on_others_stay_where_they_are(what: str) -> None:
    one, other = producers("one", None if what == "anonymous" else "other")
    if what == "stateful":
        other.link.stateful = True
    elif what == "marked":
        other.mark = object()  # type: ignore[assignment]
    elif what == "resumable":
        other.resumable = object()  # type: ignore[assignment]
    events = [came(one, 1), came(other, 2), came(one, 3), came(other, 4)]
    assert told(gather(events)) == [("s0", [1]), ("s1", [2]), ("s0", [3]), ("s1", [4])]


@pytest.mark.pure
def test_the_broker_takes_in_together_what_links_sent_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client = world.client()
    links = [client.sender(name, name) for name in ("one", "other")]
    post_in_turns(client, links, 1)
    lots: list[int] = []
    receive = Poster.receive

    def count(self: Poster, producer: Producer, deliveries: list[Any]) -> None:
        lots.append(len(deliveries))
        receive(self, producer, deliveries)

    monkeypatch.setattr(Poster, "receive", count)
    post_in_turns(client, links, 10)
    assert lots == [10, 10]
    for link in links:
        receiver = client.receiver(link.name, f"to-{link.name}", credit=20)
        world.settle()
        assert client.bodies(receiver) == [f"{link.name}-{number}" for number in (0, *range(10))]


def post_in_turns(client: Client, links: list[SendingLink], count: int) -> None:
    """So many on each, one after the other, all at once."""
    for number in range(count):
        for link in links:
            link.send(b"%s-%d" % (link.name.encode(), number), Message(f"{link.name}-{number}").encode())
    client.world.settle()

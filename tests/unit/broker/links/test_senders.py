"""Links of peers that send: one that is refused leaves nothing behind."""

from __future__ import annotations

import pytest

from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions
from acquit.protocol.definitions import AmqpCondition, Target
from acquit.protocol.extensions import SENDER_MARK
from acquit.protocol.link import Link
from tests.support.broker_world import Client, World

ONE_MARK = BrokerLimits(sender_marks_max=1)
MAKES_NONE = (AddressRule("absent.#", {"create": False}),)


def condition(client: Client, link: Link) -> str:
    error = client.detached[link].error
    assert error is not None
    return error.condition


@pytest.mark.parametrize("capabilities", [("queue",), ("topic",)])
def test_a_link_that_is_refused_its_mark_makes_no_node(capabilities: tuple[str, ...]) -> None:
    world = World(BrokerOptions(limits=ONE_MARK))
    client = world.client()
    client.sender(None, "first", properties={SENDER_MARK: "one"})
    before = world.opened.recorder.table.queue_max
    for name, mark, why in (
        ("second", "two", AmqpCondition.RESOURCE_LIMIT_EXCEEDED),
        ("third", 7, AmqpCondition.INVALID_FIELD),
    ):
        target = Target("new", capabilities=capabilities)
        link = client.sender("new", name, target=target, properties={SENDER_MARK: mark})
        assert condition(client, link) == why
    assert "new" not in world.core.queues.by_name and "new" not in world.core.queues.topics
    assert world.opened.recorder.table.queue_max == before, "nor did the journal hear of one"


def test_a_link_that_is_refused_its_node_lets_go_of_its_mark() -> None:
    world = World(BrokerOptions(limits=ONE_MARK, address=MAKES_NONE))
    client = world.client()
    refused = client.sender("absent.q", "first", properties={SENDER_MARK: "one"})
    assert condition(client, refused) == AmqpCondition.NOT_FOUND
    link = client.sender("q", "second", properties={SENDER_MARK: "two"})
    assert link not in client.detached, "there is room for its mark"


def test_links_to_what_is_recorded_take_checksums_as_messages_come() -> None:
    world = World()
    client = world.client()
    client.sender("q", "one")
    client.sender(None, "two", target=Target(dynamic=True))
    queues = world.core.queues.by_name.values()
    found = [(queue.durable, producer.link.takes_crc) for queue in queues for producer in queue.producers]
    assert sorted(found) == [(False, False), (True, True)]

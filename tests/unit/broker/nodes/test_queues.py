"""Which queues are made, and which are not."""

from __future__ import annotations

import pytest

from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions, Security, User
from acquit.ledger.records import Queue, QueueDeleted, RecordKind
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import AmqpCondition, Target
from acquit.protocol.link import Link
from acquit.store.reading import FolderReader
from acquit.store.record import walk
from tests.support.broker_world import DATA, Client, World, durable


def temporary_address(client: Client) -> str:
    """Of a queue that a client had made for itself, and that is gone."""
    link = client.begun.attach_sender("maker", target=Target(dynamic=True))
    client.world.settle()
    address = link.remote_attach.target.address
    client.detach(link)
    client.world.settle()
    assert address not in client.world.core.queues.by_name
    return str(address)


@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_a_temporary_address_is_not_made_again(role: str) -> None:
    world = World()
    client = world.client()
    address = temporary_address(client)
    link: Link = getattr(client, role)(address)
    world.settle()
    error = client.detached[link].error
    assert error is not None
    assert error.condition == AmqpCondition.NOT_FOUND
    assert address not in world.core.queues.by_name


def test_a_queue_is_named_in_the_segment_of_its_end() -> None:
    """Its declaration leaves with an older one, and an audit of what is left would not know its name."""
    world = World(BrokerOptions(address=(AddressRule("#", {"auto_delete": True}),)))
    client = world.client()
    producer, other = client.sender("short", "first"), client.sender("long", "second")
    while len(world.opened.journal.segments) < 3:
        client.post(other, durable(bytes(10_000)))
        world.settle()
    client.post(producer, durable(b"x"))
    receiver = client.receiver("short", credit=1)
    world.settle()
    client.held(receiver)[0].settle(ACCEPTED)
    client.detach(receiver)
    client.detach(producer)
    world.settle()
    found = []
    with FolderReader(DATA, disk=world.disk).open(world.opened.journal.segments[-1].number) as segment:
        for head, data in segment.batches():
            for record in walk(head, data):
                if record.kind == RecordKind.QUEUE:
                    found.append(Queue.decode(record).name)
                elif record.kind == RecordKind.QUEUE_DELETED:
                    found.append(QueueDeleted.decode(record).number)
    assert found == ["short", 1]
    world.check_journal()


def test_one_user_does_not_have_all_queues_made() -> None:
    """Of any kind, while they are there."""

    def refusal(link: Link) -> str | None:
        ended = client.detached.get(link)
        return None if ended is None or ended.error is None else f"{ended.error.condition}: {ended.error.description}"

    security = Security(users={"ada": User(password="x")})
    world = World(BrokerOptions(security=security, limits=BrokerLimits(queues_max=8, queues_per_user_max=3)))
    client, other = world.client("me"), world.client("other")
    other.peer.user = "ada"
    first = client.sender(None, "first", target=Target(dynamic=True))
    for number in (1, 2):
        assert refusal(client.sender(f"q{number}", f"s{number}")) is None
    refused = client.sender(None, "one too many", target=Target(dynamic=True))
    assert refusal(refused) == (
        "amqp:resource-limit-exceeded: those who are anonymous have had 3 queues made, as many as one user may have"
    )
    assert other.sender("of ada") not in other.detached
    client.detach(first)
    world.settle()
    assert refusal(client.sender("q3", "s3")) is None


def test_without_users_one_may_have_all_queues_made() -> None:
    world = World(BrokerOptions(limits=BrokerLimits(queues_max=3, queues_per_user_max=1)))
    client = world.client("me")
    links = [client.sender(f"q{number}", f"s{number}") for number in range(4)]
    assert [link in client.detached for link in links] == [False, False, False, True]

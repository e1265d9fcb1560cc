"""Which queues are made, and which are not."""

from __future__ import annotations

from typing import Final

import pytest

from acquit.broker.links.peers import Actor
from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions, Security, User
from acquit.ledger.records import Queue, QueueDeleted, RecordKind
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import AmqpCondition, LinkCondition, Source, Target
from acquit.protocol.endpoint import LinkState
from acquit.protocol.extensions import SENDER_MARK
from acquit.protocol.link import Link, ReceivingLink
from acquit.protocol.message import Message
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


# -- links that have one made, and wait until it is on the disk --------------------------------------------------------

KINDS: Final = "sender", "receiver", "browser", "publisher", "subscriber"


def attach(client: Client, kind: str, address: str = "made", name: str = "", credit: int = 5) -> Link:
    """Attach a link of a kind; the disk does nothing."""
    name = name or kind
    if kind in ("sender", "publisher"):
        words = ("topic",) if kind == "publisher" else ()
        link: Link = client.begun.attach_sender(name, source=Source("here"), target=Target(address, capabilities=words))
    else:
        words = ("topic",) if kind == "subscriber" else ()
        mode = "copy" if kind == "browser" else None
        source = Source(address, capabilities=words, distribution_mode=mode)
        receiving = link = client.begun.attach_receiver(name, source=source, target=Target("there"))
        receiving.grant(credit)
    client.world.carry()
    return link


def condition(client: Client, link: Link) -> str:
    error = client.detached[link].error
    assert error is not None
    return error.condition


def nodes(world: World) -> set[str]:
    return {*world.core.queues.by_name, *world.core.topics.by_address} - {"DLQ"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_hears_of_the_node_that_it_had_made_when_a_crash_does_not_take_it_back(kind: str) -> None:
    world = World()
    client = world.client()
    link = attach(client, kind)
    assert link.state is LinkState.ATTACH_SENT
    assert "made" not in nodes(world.crash())
    world.settle()
    assert link.state is LinkState.ATTACHED
    assert "made" in nodes(world.crash())
    assert not world.core.queues.unsynced


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_to_what_is_on_the_disk_is_answered_at_once(kind: str) -> None:
    world = World()
    client = world.client()
    attach(client, kind, name="first")
    world.settle()
    world.core.administration.create("other", None, topic=False)  # something else is not on the disk
    link = attach(client, kind, name="second")
    assert link.state is LinkState.ATTACHED
    client.detach(link)
    assert link.state is LinkState.DETACHED


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_that_has_waited_ends_as_others_do(kind: str) -> None:
    """Its end is answered at once, whatever the disk has not got yet."""
    world = World()
    client = world.client()
    link = attach(client, kind)
    world.settle()
    world.core.administration.create("other", None, topic=False)
    client.detach(link)
    assert link.state is LinkState.DETACHED


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_what_ends_with_the_broker_is_not_waited_for(kind: str) -> None:
    world = World()
    client = world.client()
    words = (f"temporary-{kind}",)
    sender = client.begun.attach_sender("s", source=Source("here"), target=Target(dynamic=True, capabilities=words))
    receiver = client.begun.attach_receiver("r", source=Source(dynamic=True, capabilities=words), target=Target())
    world.carry()
    assert (sender.state, receiver.state) == (LinkState.ATTACHED, LinkState.ATTACHED)
    assert isinstance(sender.target, Target) and sender.target.address is not None
    again = attach(client, "publisher" if kind == "topic" else "sender", sender.target.address, "again")
    assert again.state is LinkState.ATTACHED


def test_a_link_waits_for_the_batch_of_its_node_and_no_other() -> None:
    """The batch is being synced when it attaches, and the next one is gathered already."""
    world = World()
    client = world.client()
    attach(client, "sender", name="first")
    batch = world.core.scribe.take_batch()
    assert batch is not None
    world.core.administration.create("other", None, topic=False)
    links = [attach(client, "sender", name="second"), attach(client, "receiver")]
    assert [link.state for link in links] == [LinkState.ATTACH_SENT] * 2
    batch.write_and_sync()
    world.core.synced(world.opened.journal.complete(batch), world.now_us)
    world.carry()
    assert [link.state for link in links] == [LinkState.ATTACHED] * 2
    assert "other" in world.core.queues.by_name and "other" not in nodes(world.crash())


@pytest.mark.parametrize("kind", ["receiver", "browser"])
def test_credit_that_comes_before_the_answer_counts(kind: str) -> None:
    world = World()
    client, poster = world.client(), world.client("poster")
    anonymous = poster.sender(None)
    link = attach(client, kind)
    assert isinstance(link, ReceivingLink)
    poster.post(anonymous, Message("x", to="made"), settled=True)
    world.carry()
    assert not client.received.get(link)
    world.settle()
    assert client.bodies(link) == ["x"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["detach", "detach, not closed", "end", "close", "loss", "one read"])
def test_a_link_that_ends_before_it_is_answered_leaves_nothing(kind: str, end: str) -> None:
    """Its node stays, as that of a link that was answered does, and what waited for it is not asked again."""
    world = World()
    client = world.client()
    if end == "one read":
        with world.in_one_read():
            link = attach(client, kind)
            link.detach()
    else:
        link = attach(client, kind)
        match end:
            case "detach":
                client.detach(link)
            case "detach, not closed":
                client.detach(link, closed=False)
            case "end":
                link.session.end()
            case "close":
                client.engine.close()
            case _:
                client.lose()
        world.carry()
    assert all(not waiting for waiting in world.core.queues.unsynced.values())
    assert not client.peer.links
    world.settle()
    assert link.state is LinkState.DETACHED
    if end == "one read" or end.startswith("detach"):
        again = attach(client, kind)
        assert again.state is LinkState.ATTACHED, "the name and the node are free to be used"
    assert "made" in nodes(world)
    world.check_journal()


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_that_is_deleted_is_deleted_for_who_waits_for_it(kind: str) -> None:
    world = World()
    client = world.client()
    link = attach(client, kind)
    world.core.administration.delete("made", None)
    world.settle()
    assert condition(client, link) == AmqpCondition.RESOURCE_DELETED
    assert "made" not in nodes(world) and "made" not in nodes(world.crash())
    assert not client.peer.links


@pytest.mark.parametrize("kind", KINDS)
def test_who_waits_for_a_node_uses_it(kind: str) -> None:
    """One that is deleted when nobody uses it stays for the second link as the first one leaves."""
    world = World(BrokerOptions(address=(AddressRule("made", {"auto_delete": True}),)))
    client = world.client()
    first, second = attach(client, kind, name="first"), attach(client, kind, name="second")
    client.detach(first)
    assert "made" in nodes(world)
    client.detach(second)
    assert "made" not in nodes(world)
    third, fourth = attach(client, kind, name="third"), attach(client, kind, name="fourth")
    client.detach(third)
    world.settle()
    assert fourth.state is LinkState.ATTACHED
    assert "made" in nodes(world)


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_that_waits_is_taken_over_by_its_name(kind: str) -> None:
    world = World()
    client, again = world.client(), world.client()
    link = attach(client, kind)
    assert attach(again, kind).state is LinkState.ATTACH_SENT
    assert condition(client, link) == LinkCondition.STOLEN
    world.settle()
    (context,) = again.peer.links
    assert isinstance(context, Actor) and context.link_name == kind and not client.peer.links


def test_a_link_that_waits_keeps_its_mark_and_lets_go_of_it() -> None:
    world = World(BrokerOptions(limits=BrokerLimits(sender_marks_max=1)))
    client = world.client()
    attached = {"source": Source("here"), "target": Target("made")}
    first = client.begun.attach_sender("first", properties={SENDER_MARK: "one"}, **attached)
    second = client.begun.attach_sender("second", properties={SENDER_MARK: "two"}, **attached)
    world.carry()
    assert condition(client, second) == AmqpCondition.RESOURCE_LIMIT_EXCEEDED
    client.detach(first)
    third = client.begun.attach_sender("third", properties={SENDER_MARK: "two"}, **attached)
    world.settle()
    assert third.state is LinkState.ATTACHED
    assert third.remote_attach is not None and (third.remote_attach.properties or {}).get(SENDER_MARK) == []
    client.detach(third)
    assert client.sender("made", properties={SENDER_MARK: "one"}) not in client.detached

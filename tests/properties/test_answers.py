"""What the broker has answered, no crash takes back: of every change that is answered after the sync, whoever asks.

Each case asks for one change. Before its batch is written, when that is on the disk and the broker has not heard so,
and after that, the world is looked at: who is answered by then finds it done by a broker that is started on what the
disk has at that moment. The same on a disk that is full for a while. A change that waits for the disk has its row here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from acquit.broker.admin.later import Later
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import (
    Accepted,
    RcvSettleMode,
    Rejected,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from acquit.protocol.delivery import Delivery
from acquit.protocol.endpoint import LinkState
from acquit.protocol.extensions import EXISTING, RESUME
from acquit.protocol.link import Link
from acquit.protocol.message import Message
from acquit.protocol.types import ULong
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.broker_world import Client, World, durable, live_of
from tests.support.transacting import Controller

TOPIC: Final = "news"
NAME: Final = f"{TOPIC}::client/audit"
OPTIONS: Final = BrokerOptions(address=(AddressRule("brief", {"auto_delete": True}),))


@dataclass
class Asked:
    """A change that was asked for: whether its answer is there, and whether a broker knows that it is done."""

    answered: Callable[[], bool]
    done: Callable[[World], bool]


def finished(later: Later[object]) -> Callable[[], bool]:
    results: list[object] = []
    later.when_finished(results.append)
    return lambda: bool(results)


def detached(link: Link) -> Callable[[], bool]:
    return lambda: link.state is LinkState.DETACHED


def attached(link: Link) -> Callable[[], bool]:
    return lambda: link.state is LinkState.ATTACHED


def subscribed(world: World) -> bool:
    return NAME in world.core.queues.by_name


def unsubscribed(world: World) -> bool:
    """Also while it is still being purged: nobody finds it."""
    return not subscribed(world)


def attach_durable(client: Client, name: str = "audit") -> Link:
    """Attach a durable subscriber; the disk does nothing."""
    source = Source(TOPIC, TerminusDurability.UNSETTLED_STATE, TerminusExpiryPolicy.NEVER, capabilities=("topic",))
    link = client.begun.attach_receiver(name, source=source, target=Target())
    link.grant(100)
    client.world.carry()
    return link


def begun(world: World, *, messages: int = 0) -> tuple[Client, Link]:
    """A durable subscriber, with so many messages, and its client."""
    client = world.client()
    link = attach_durable(client)
    world.settle()
    if messages:
        poster = world.client("poster")
        poster.post_all(poster.publisher(TOPIC), *[durable(number) for number in range(messages)])
        world.settle()
    return client, link


# -- nodes that an attach makes ---------------------------------------------------------------------------------------


def made(world: World) -> bool:
    return "made" in world.core.queues.by_name


def made_as_topic(world: World) -> bool:
    return "made" in world.core.topics.by_address


def attach_sender(client: Client, name: str = "sender", *words: str) -> Link:
    """Attach to what is not there; the disk does nothing."""
    link = client.begun.attach_sender(name, source=Source("here"), target=Target("made", capabilities=words))
    client.world.carry()
    return link


def attach_receiver(client: Client, name: str, address: str = "made", **said: Any) -> Link:
    link = client.begun.attach_receiver(name, source=Source(address, **said), target=Target("there"))
    link.grant(1)
    client.world.carry()
    return link


def send_to_a_new_queue(world: World) -> Asked:
    return Asked(attached(attach_sender(world.client())), made)


def receive_from_a_new_queue(world: World) -> Asked:
    return Asked(attached(attach_receiver(world.client(), "receiver")), made)


def receive_from_a_new_queue_by_both_names(world: World) -> Asked:
    return Asked(attached(attach_receiver(world.client(), "receiver", "made::made")), made)


def browse_a_new_queue(world: World) -> Asked:
    return Asked(attached(attach_receiver(world.client(), "browser", distribution_mode="copy")), made)


def receive_from_what_another_link_made(world: World) -> Asked:
    attach_sender(world.client("first"), "first")
    return Asked(attached(attach_receiver(world.client(), "second")), made)


def look_for_what_another_link_made(world: World) -> Asked:
    attach_sender(world.client("first"), "first")
    return Asked(attached(attach_receiver(world.client(), "second", capabilities=(EXISTING,))), made)


def send_to_a_new_topic(world: World) -> Asked:
    return Asked(attached(attach_sender(world.client(), "sender", "topic")), made_as_topic)


def subscribe_to_a_new_topic(world: World) -> Asked:
    return Asked(attached(attach_receiver(world.client(), "receiver", capabilities=("topic",))), made_as_topic)


def share_a_new_topic(world: World) -> Asked:
    """The first of two who share a subscription that is not durable leaves before it is answered."""
    words = "topic", "shared"
    first = world.client()
    gone = attach_receiver(first, "receiver", capabilities=words)
    link = attach_receiver(first, "receiver|2", capabilities=words)
    first.detach(gone)
    return Asked(attached(link), made_as_topic)


def create_what_a_link_made(world: World) -> Asked:
    """Who wants it to be there, and hears that it is, goes on."""
    attach_sender(world.client())
    return Asked(finished(world.core.administration.create("made", None, topic=False)), made)


# -- subscriptions ----------------------------------------------------------------------------------------------------


def subscribe(world: World) -> Asked:
    link = attach_durable(world.client())
    return Asked(attached(link), subscribed)


def close_a_subscriber(world: World) -> Asked:
    client, link = begun(world)
    client.detach(link)
    return Asked(detached(link), unsubscribed)


def close_a_subscriber_that_holds_much(world: World) -> Asked:
    """It gives back what it held over some turns."""
    client, link = begun(world, messages=150)
    client.detach(link)
    return Asked(detached(link), unsubscribed)


def close_a_subscriber_whose_queue_is_long(world: World) -> Asked:
    """It is purged over some turns."""
    client, link = begun(world)
    client.detach(link, closed=False)
    poster = world.client("poster")
    poster.post_all(poster.publisher(TOPIC), *[durable(number) for number in range(2_500)])
    lookup = client.subscriber(None, "audit", credit=0)
    lookup.detach()
    data = client.engine.data_to_send()
    world.core.handle(client.peer, client.server.receive_data(data, world.now_s), world.now_us)
    return Asked(detached(lookup), unsubscribed)


def close_one_that_waits_for_its_attach(world: World) -> Asked:
    """It is begun, and the batch that says so is on the disk; that it ends is in the next."""
    client = world.client()
    link = attach_durable(client)
    batch = world.core.scribe.take_batch()
    assert batch is not None
    batch.write_and_sync()
    client.detach(link)
    world.core.synced(world.opened.journal.complete(batch), world.now_us)
    world.carry()
    return Asked(detached(link), unsubscribed)


def look_up_and_close(world: World) -> Asked:
    client, link = begun(world)
    client.detach(link, closed=False)
    lookup = client.subscriber(None, "audit", credit=0)
    client.detach(lookup)
    return Asked(detached(lookup), unsubscribed)


def look_up_and_close_in_one_read(world: World) -> Asked:
    client, link = begun(world)
    client.detach(link, closed=False)
    with world.in_one_read():
        lookup = client.begun.attach_receiver("audit", source=None, target=Target())
        lookup.detach()
    return Asked(detached(lookup), unsubscribed)


def look_up_what_is_ending(world: World) -> Asked:
    """Its client has lost the connection before it was answered, say, and asks again."""
    client, link = begun(world)
    client.detach(link)
    client.lose()
    again = world.client()
    lookup = again.subscriber(None, "audit", credit=0)
    again.detach(lookup)
    return Asked(detached(lookup), unsubscribed)


def attach_for_another_topic(world: World) -> Asked:
    """The old one goes with what is in it."""
    client, link = begun(world, messages=3)
    client.detach(link, closed=False)
    source = Source("sport", TerminusDurability.UNSETTLED_STATE, TerminusExpiryPolicy.NEVER, capabilities=("topic",))
    new = client.begun.attach_receiver("audit", source=source, target=Target())
    world.carry()
    return Asked(
        attached(new), lambda after: unsubscribed(after) and "sport::client/audit" in after.core.queues.by_name
    )


def delete_a_subscription(world: World) -> Asked:
    begun(world, messages=3)
    later = world.core.administration.delete(NAME, None)
    world.carry()
    return Asked(finished(later), unsubscribed)


# -- termini ----------------------------------------------------------------------------------------------------------


def _resumable(world: World) -> tuple[Client, Link]:
    poster = world.client("poster")
    poster.post_all(poster.sender("q"), durable("x"))
    client = world.client()
    link = client.begun.attach_receiver(
        "receiver",
        source=Source("q", TerminusDurability.UNSETTLED_STATE, timeout=60),
        target=Target("there", TerminusDurability.UNSETTLED_STATE),
        rcv_settle_mode=RcvSettleMode.SECOND,
        desired_capabilities=(RESUME,),
    )
    link.grant(5)
    world.settle()
    assert len(client.held(link)) == 1
    return client, link


def close_a_resumable_receiver(world: World) -> Asked:
    client, link = _resumable(world)
    client.detach(link)
    return Asked(detached(link), lambda after: not after.core.administration.termini())


def close_a_resumable_sender(world: World) -> Asked:
    client = world.client()
    link = client.begun.attach_sender(
        "sender",
        source=Source("here", TerminusDurability.UNSETTLED_STATE),
        target=Target("q", TerminusDurability.UNSETTLED_STATE, timeout=60),
        rcv_settle_mode=RcvSettleMode.SECOND,
        desired_capabilities=(RESUME,),
    )
    world.settle()
    client.detach(link)
    return Asked(detached(link), lambda after: not after.core.administration.termini())


def end_a_terminus(world: World) -> Asked:
    _resumable(world)
    (terminus,) = world.core.administration.termini()
    later = world.core.administration.end_terminus(terminus.identity)
    world.carry()
    return Asked(finished(later), lambda after: not after.core.administration.termini())


# -- messages ---------------------------------------------------------------------------------------------------------


def post(world: World) -> Asked:
    client = world.client()
    (sent,) = client.post(client.sender("q"), durable("x"))
    world.carry()
    return Asked(lambda: client.outcome(sent) == Accepted(), lambda after: live_of(after, "q") == 1)


def _delivered(world: World) -> tuple[Client, Delivery]:
    client = world.client()
    client.post_all(client.sender("q"), durable("x"))
    link = client.receiver("q", credit=1, second=True)
    world.settle()
    (delivery,) = client.held(link)
    return client, delivery


def accept(world: World) -> Asked:
    client, delivery = _delivered(world)
    delivery.update(ACCEPTED)
    world.carry()
    return Asked(lambda: client.outcome(delivery) is not None, lambda after: live_of(after, "q") == 0)


def reject(world: World) -> Asked:
    client, delivery = _delivered(world)
    delivery.update(Rejected())
    world.carry()
    return Asked(
        lambda: client.outcome(delivery) is not None,
        lambda after: (live_of(after, "q"), live_of(after, "DLQ")) == (0, 1),
    )


def post_again(world: World) -> Asked:
    """The first of two with one id is not answered yet: nor is the second."""
    client = world.client()
    link = client.sender("q")
    _, again = client.post(link, *[durable("x", application_properties={"_AMQ_DUPL_ID": "1"}) for _ in range(2)])
    world.carry()
    return Asked(lambda: client.outcome(again) == Accepted(), lambda after: live_of(after, "q") == 1)


def commit(world: World) -> Asked:
    client = world.client()
    control, link = Controller(client), client.sender("q")
    txn_id = control.declare()
    control.post(link, txn_id, durable("x"))
    sent = control.discharge(txn_id)
    return Asked(lambda: client.outcome(sent) == Accepted(), lambda after: live_of(after, "q") == 1)


def take_presettled(world: World) -> Asked:
    """It is seen when no crash brings it back."""
    client = world.client()
    client.post_all(client.sender("q"), durable("x"))
    link = client.receiver("q", credit=1, presettled=True)
    return Asked(lambda: bool(client.received.get(link)), lambda after: live_of(after, "q") == 0)


# -- what operators ask for -------------------------------------------------------------------------------------------


def _filled(world: World) -> None:
    client = world.client("poster")
    client.post_all(client.sender("q"), *[durable(number) for number in range(20)])
    soon = ULong(world.now_us // 1000 + 60_000)
    client.post_all(client.sender("later", "later"), durable(1, annotations={"x-opt-delivery-time": soon}))


def create(world: World) -> Asked:
    later = world.core.administration.create("made", None, topic=False)
    world.carry()
    return Asked(finished(later), lambda after: "made" in after.core.queues.by_name)


def delete(world: World) -> Asked:
    _filled(world)
    later = world.core.administration.delete("q", None)
    world.carry()
    return Asked(finished(later), lambda after: "q" not in after.core.queues.by_name)


def delete_a_topic(world: World) -> Asked:
    begun(world, messages=1)
    later = world.core.administration.delete(TOPIC, None)
    world.carry()
    return Asked(finished(later), lambda after: unsubscribed(after) and TOPIC not in after.core.topics.by_address)


def purge(world: World) -> Asked:
    _filled(world)
    later = world.core.administration.purge("q", None)
    world.carry()
    return Asked(finished(later), lambda after: live_of(after, "q") == 0)


def purge_some(world: World) -> Asked:
    _filled(world)
    later = world.core.administration.purge("q", None, messages_max=5)
    world.carry()
    return Asked(finished(later), lambda after: live_of(after, "q") == 15)


def cancel(world: World) -> Asked:
    _filled(world)
    assert len(world.core.queues.by_name["later"].scheduled) == 1
    later = world.core.administration.cancel("later", None)
    world.carry()
    return Asked(finished(later), lambda after: live_of(after, "later") == 0)


def move(world: World) -> Asked:
    _filled(world)
    later = world.core.administration.move("q", "made", None, messages_max=None, selector=None)
    world.carry()
    return Asked(finished(later), lambda after: live_of(after, "made") == 20)


def move_what_is_volatile(world: World) -> Asked:
    """The messages end with the broker, and the queue that was made for them is there to stay."""
    client = world.client("poster")
    client.post_all(client.sender("q"), Message("x"))
    world.settle()
    later = world.core.administration.move("q", "made", None, messages_max=None, selector=None)
    world.carry()
    return Asked(finished(later), lambda after: "made" in after.core.queues.by_name)


def redrive_what_is_volatile(world: World) -> Asked:
    client = world.client("poster")
    client.post_all(client.sender("q"), Message("x"))
    link = client.receiver("q", credit=1)
    world.settle()
    client.held(link)[0].settle(Rejected())
    world.settle()
    client.close()
    world.core.administration.delete("q", None)
    world.settle()
    later = world.core.administration.redrive("DLQ", None, lambda address: None)
    world.carry()
    return Asked(finished(later), lambda after: "q" in after.core.queues.by_name)


def pause(world: World) -> Asked:
    _filled(world)
    later = world.core.administration.pause("q", "both", None)
    world.carry()
    return Asked(finished(later), lambda after: after.core.queues.by_name["q"].paused == "both")


def give_a_rule(world: World) -> Asked:
    later = world.core.administration.put_rule("q", {"ring_size": 3})
    world.carry()
    return Asked(finished(later), lambda after: after.core.policies.policy_of("q").ring_size == 3)


CHANGES: Final = (
    send_to_a_new_queue,
    receive_from_a_new_queue,
    receive_from_a_new_queue_by_both_names,
    browse_a_new_queue,
    receive_from_what_another_link_made,
    look_for_what_another_link_made,
    send_to_a_new_topic,
    subscribe_to_a_new_topic,
    share_a_new_topic,
    create_what_a_link_made,
    subscribe,
    close_a_subscriber,
    close_a_subscriber_that_holds_much,
    close_a_subscriber_whose_queue_is_long,
    close_one_that_waits_for_its_attach,
    look_up_and_close,
    look_up_and_close_in_one_read,
    look_up_what_is_ending,
    attach_for_another_topic,
    delete_a_subscription,
    close_a_resumable_receiver,
    close_a_resumable_sender,
    end_a_terminus,
    post,
    post_again,
    accept,
    reject,
    commit,
    take_presettled,
    create,
    delete,
    delete_a_topic,
    purge,
    purge_some,
    cancel,
    move,
    move_what_is_volatile,
    redrive_what_is_volatile,
    pause,
    give_a_rule,
)


def holds(asked: Asked, world: World) -> bool:
    """Return whether it is answered; then a crash now changes nothing about it."""
    answered = asked.answered()
    if answered:
        assert asked.done(world.crash()), "it was answered, and is not done after a crash"
    return answered


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_is_answered_outlasts_a_crash(change: Callable[[World], Asked]) -> None:
    world = World(OPTIONS)
    asked = change(world)
    assert not holds(asked, world), "this case asks for nothing that has to be recorded"
    for _ in range(10):
        batch = world.core.scribe.take_batch()
        if batch is None:
            break
        batch.write_and_sync()
        holds(asked, world)  # on the disk, and the broker has not heard
        world.core.synced(world.opened.journal.complete(batch), world.now_us)
        world.carry()
        holds(asked, world)
    assert asked.answered(), "who asked waits for ever"
    assert asked.done(world.crash())
    world.settle()
    world.check_journal()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_is_answered_outlasts_a_crash_on_a_disk_that_is_full_for_a_while(change: Callable[[World], Asked]) -> None:
    disk = FaultyDisk()
    world = World(OPTIONS, disk=disk)
    asked = change(world)
    disk.capacity_bytes = disk.used_bytes
    for _ in range(10):
        world.sync()
        world.carry()
        holds(asked, world)
    disk.capacity_bytes = None
    for _ in range(20):
        world.chores()
        world.sync()
        world.carry()
        holds(asked, world)
    assert asked.answered(), "who asked waits for ever"
    assert asked.done(world.crash())

"""Runs of plain postings to a topic: in each of its queues, or in none, and what is left to the careful path."""

from __future__ import annotations

import pytest

from acquit.broker.intake.fan import Fan
from acquit.broker.intake.posting import Poster
from acquit.broker.links.terminus import TargetTerminus
from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions
from acquit.ledger.events import EventFlag
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
from acquit.protocol.extensions import RESUME
from acquit.protocol.message import Message
from acquit.store.options import MIB
from tests.support.broker_world import TINY, Client, World, durable, live_of

VOLATILE, DURABLE = Message(b"x"), durable(b"x")


def subscribed(world: World, *durable: bool, credit: int = 0) -> list[str]:
    """Subscriptions of the topic "t", each of a client of its own: the names of their queues."""
    before = set(world.core.queues.by_name)
    for number, lasting in enumerate(durable):
        world.client(f"subscriber-{number}").subscriber("t", f"s{number}", durable=lasting, credit=credit)
    return [name for name in world.core.queues.by_name if name not in before]


def outcomes(client: Client, deliveries: list[Delivery]) -> list[object]:
    return [client.outcome(delivery) for delivery in deliveries]


@pytest.mark.pure
@pytest.mark.parametrize("message", [VOLATILE, DURABLE], ids=["volatile", "durable"])
def test_a_run_is_entered_once(message: Message, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the careful path, and not one by one."""
    entered = []
    monkeypatch.setattr(Poster, "_receive_one", lambda *arguments: pytest.fail("a plain message took the careful path"))
    enter = Fan.enter
    monkeypatch.setattr(Fan, "enter", lambda fan: (entered.append(len(fan.deliveries)), enter(fan))[1])
    world = World()
    queues = subscribed(world, True, False, True)
    publisher = world.client("publisher")
    deliveries = publisher.post(publisher.publisher("t"), *[message] * 20)
    world.settle()
    assert outcomes(publisher, deliveries) == [Accepted()] * 20
    assert (entered, [live_of(world, name) for name in queues]) == ([20], [20] * 3)
    world.check_journal()


@pytest.mark.parametrize(
    ("lasting", "message", "answered"),
    [
        ((True,), DURABLE, None),
        ((False, True), DURABLE, None),
        ((True, False), VOLATILE, Accepted()),
        ((False,), DURABLE, Accepted()),
    ],
)
def test_what_is_recorded_is_answered_after_the_sync(
    lasting: tuple[bool, ...], message: Message, answered: object
) -> None:
    world = World()
    subscribed(world, *lasting)
    publisher = world.client("publisher")
    link = publisher.publisher("t")
    world.settle()
    deliveries = publisher.post(link, message, message)
    world.carry()
    assert outcomes(publisher, deliveries) == [answered] * 2
    world.settle()
    assert outcomes(publisher, deliveries) == [Accepted()] * 2


def test_a_run_that_is_not_synced_is_nowhere_after_a_crash() -> None:
    world = World()
    queues = subscribed(world, True, True)
    publisher = world.client("publisher")
    link = publisher.publisher("t")
    world.settle()
    publisher.post(link, *[DURABLE] * 3)
    world.settle()
    publisher.post(link, *[DURABLE] * 5)
    world.carry()
    again = world.crash()
    assert [live_of(again, name) for name in queues] == [3, 3]
    again.check_journal()


def test_the_segments_of_copies_are_known() -> None:
    """`settle` looks whether those that were closed have as many messages as they should."""
    world = World(journal=TINY)
    queues = subscribed(world, True, True)
    publisher = world.client("publisher")
    link = publisher.publisher("t")
    for _ in range(5):
        world.settle()
        publisher.post(link, *[durable(b"x" * 300)] * 10)
    world.settle()
    assert [live_of(world, name) for name in queues] == [50, 50]
    assert any(info.sealed for info in world.opened.journal.segments)


def test_an_id_is_remembered_with_the_copy_that_is_recorded() -> None:
    world = World()
    _, name = subscribed(world, False, True)
    messages = [durable(b"x", application_properties={"_AMQ_DUPL_ID": number}) for number in (1, 2, 2)]
    for number in range(2):
        publisher = world.client("publisher")
        deliveries = publisher.post(publisher.publisher("t"), *messages)
        world.settle()
        assert outcomes(publisher, deliveries) == [Accepted()] * 3
        assert live_of(world, name) == 2, number
        assert len(list(world.opened.recorder.table.windows.by_address["t"])) == 2
        world = world.crash()


def test_an_id_that_comes_with_another_body_is_flagged_where_the_payload_is() -> None:
    world = World()
    subscribed(world, True, True)
    publisher = world.client("publisher")
    messages = [durable(body, application_properties={"_AMQ_DUPL_ID": "d"}) for body in (b"one", b"two")]
    publisher.post(publisher.publisher("t"), *messages)
    world.settle()
    recorded = [message.flags for _, message in sorted(world.fold().messages.items())]
    assert [flags & EventFlag.ID_REUSED for flags in recorded] == [0, 0, EventFlag.ID_REUSED, 0]


def test_another_message_format_is_refused_behind_messages_that_are_alike() -> None:
    world = World()
    (name,) = subscribed(world, True)
    publisher = world.client("publisher")
    link = publisher.publisher("t")
    deliveries = publisher.post(link, VOLATILE, VOLATILE)
    deliveries.append(link.send(b"other", VOLATILE.encode(), message_format=1))
    world.settle()
    assert [isinstance(answer, Rejected) for answer in outcomes(publisher, deliveries)] == [False, False, True]
    assert live_of(world, name) == 2


def test_a_group_of_messages_goes_to_one_receiver_of_a_subscription() -> None:
    world = World()
    client = world.client("subscriber")
    receivers = [client.subscriber("t", f"s|{number}", shared=True, credit=10) for number in range(2)]
    publisher = world.client("publisher")
    publisher.post(publisher.publisher("t"), *[Message(b"x", group_id="g")] * 6)
    world.settle()
    assert sorted(len(client.received.get(link, ())) for link in receivers) == [0, 6]


@pytest.mark.parametrize("message", [VOLATILE, DURABLE], ids=["volatile", "durable"])
def test_all_copies_find_room_in_memory_or_none_enters(message: Message) -> None:
    world = World(BrokerOptions(limits=BrokerLimits(memory_bytes_max=MIB)))
    queues = subscribed(world, False, False, True, False)
    publisher = world.client("publisher")
    link = publisher.publisher("t")
    large = Message(b"x" * 10_000, durable=message.durable)
    deliveries = publisher.post(link, *[large] * min(100, link.credit))
    world.settle()
    answers = outcomes(publisher, deliveries)
    taken = answers.count(Accepted())
    assert 0 < taken < len(answers) and any(isinstance(answer, Rejected) for answer in answers)
    assert [live_of(world, name) for name in queues] == [taken] * 4
    assert world.core.memory.bytes <= MIB


@pytest.mark.parametrize(
    ("policy", "size"),
    [
        ({"messages_max": 7, "full_policy": "reject"}, 10),
        ({"bytes_max": 2_000, "full_policy": "reject"}, 150),
        ({"memory_bytes_max": 65_536}, 10_000),
    ],
    ids=["messages", "bytes", "memory"],
)
@pytest.mark.parametrize("lasting", [False, True], ids=["volatile", "durable"])
def test_the_limit_of_one_queue_holds_for_all(
    policy: dict[str, object], size: int, lasting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on the careful path: here of the subscriptions to one topic, and none of that to a pattern."""

    def taken() -> int:
        world = World(BrokerOptions(address=(AddressRule("t", policy),)))
        world.client("all").subscriber("*", "all", durable=True, credit=0)
        queues = [*world.core.queues.by_name, *subscribed(world, False, True)]
        publisher = world.client("publisher")
        link = publisher.publisher("t")
        assert link.credit > 15
        deliveries = publisher.post(link, *[Message(b"x" * size, durable=lasting)] * 15)
        world.carry()
        taken = live_of(world, queues[0])
        assert [live_of(world, name) for name in queues] == [taken] * 3
        world.settle()
        answers = outcomes(publisher, deliveries)
        assert (answers.count(Accepted()), len(answers)) == (taken, 15)
        return taken

    hot = taken()
    assert 0 < hot < 15
    monkeypatch.setattr(Fan, "add", lambda *arguments: None)
    assert taken() == hot


def test_without_sequence_numbers_none_enters_in_part() -> None:
    """As many as one sync gives: 8,192 here."""
    world = World()
    queues = subscribed(world, *[False] * 10)
    publisher = world.client("publisher")
    link = publisher.publisher("t")
    deliveries = []
    while len(deliveries) < 1_000:
        world.carry()
        deliveries += publisher.post(link, *[VOLATILE] * min(link.credit, 100))
    world.carry()
    taken = outcomes(publisher, deliveries).count(Accepted())
    assert 700 < taken < 820
    assert [live_of(world, name) for name in queues] == [taken] * 10
    world.settle()


def test_without_room_on_the_disk_none_enters(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    queues = subscribed(world, True, False)
    publisher = world.client("publisher")
    link = publisher.publisher("t")
    world.settle()
    monkeypatch.setattr(type(world.opened.journal), "full", property(lambda journal: True))
    deliveries = publisher.post(link, VOLATILE, DURABLE, DURABLE, VOLATILE)
    world.settle()
    assert [isinstance(answer, Rejected) for answer in outcomes(publisher, deliveries)] == [False, True, True, False]
    assert [live_of(world, name) for name in queues] == [2, 2]


def test_a_paused_topic_takes_none() -> None:
    world = World()
    queues = subscribed(world, True, False)
    publisher = world.client("publisher")
    link = publisher.publisher("t")
    world.settle()
    deliveries = publisher.post(link, *[DURABLE] * 3)
    world.core.administration.pause("t", "producers", None)
    world.settle()
    assert all(isinstance(answer, Rejected) for answer in outcomes(publisher, deliveries))
    assert [live_of(world, name) for name in queues] == [0, 0]


def test_who_posts_is_remembered_where_somebody_asks() -> None:
    """A browser of one subscription that wants nothing of its own container's."""
    world = World()
    (name,) = subscribed(world, True)
    publisher = world.client("publisher")
    browser = publisher.receiver(name, "browser", browse=True, no_local=True, credit=10)
    link = publisher.publisher("t")
    publisher.post(link, *[DURABLE] * 3)
    other = world.client("other")
    other.post(other.publisher("t"), durable(b"theirs"), durable(b"theirs"))
    world.settle()
    assert publisher.bodies(browser) == [b"theirs"] * 2


def test_a_resumable_link_remembers_its_run() -> None:
    world = World()
    (name,) = subscribed(world, True)
    client = world.client("publisher")
    target = Target("t", TerminusDurability.UNSETTLED_STATE, TerminusExpiryPolicy.NEVER, capabilities=("topic",))
    link = client.begun.attach_sender(
        "sender",
        source=Source("here"),
        target=target,
        rcv_settle_mode=RcvSettleMode.SECOND,
        unsettled=None,
        desired_capabilities=(RESUME,),
    )
    world.settle()
    deliveries = client.post(link, *[DURABLE] * 3)
    world.carry()
    world.sync()
    (terminus,) = world.core._termini._by_name.values()
    assert isinstance(terminus, TargetTerminus)
    assert list(terminus.answered) == [delivery.tag for delivery in deliveries]
    assert live_of(world, name) == 3

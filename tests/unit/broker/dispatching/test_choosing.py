"""Selectors and no-local on queues: who gets what, and what it costs that others may not have it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import pytest

from acquit.broker.dispatching import choosing, passes
from acquit.broker.dispatching import consumers as interest_module
from acquit.broker.dispatching.choosing import LOOKS_MAX, barrier_of
from acquit.broker.dispatching.consumers import AHEAD_MAX, Interest, Wants
from acquit.broker.dispatching.groups import CLOSING
from acquit.broker.dispatching.passes import SHARE_MAX
from acquit.broker.dispatching.sending import Sending
from acquit.broker.memory import Reads
from acquit.broker.message import Message as QueuedMessage
from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions, ConnectionLimits
from acquit.broker.selector import Fields, compile_selector, fields_of_properties
from acquit.ledger.fold import Fold
from acquit.ledger.records import RecordKind
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Modified
from acquit.protocol.link import ReceivingLink
from acquit.protocol.message import Message
from acquit.protocol.sections import APPLICATION_PROPERTIES, scan_sections
from acquit.store.recovery import open_store
from tests.support.broker_world import DATA, SMALL, Client, World, after_kill, durable
from tests.support.examples import share
from tests.support.raw_journal import Gathered


def numbered(count: int, *, kind: str = "volatile", start: int = 0) -> list[Message]:
    return [
        Message(
            b"%d" % number, durable=kind == "durable", application_properties={"n": number, "colour": colour(number)}
        )
        for number in range(start, start + count)
    ]


def colour(number: int) -> str:
    return ("red", "green", "blue")[number % 3]


def got(client: Client, link: ReceivingLink) -> list[int]:
    return [int(body) for body in client.bodies(link)]  # type: ignore[call-overload]


class Judgements:
    """Counts how often interests are asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        accepts = Interest.accepts

        def counted(interest: Interest, message: QueuedMessage, fields: Fields | None) -> bool:
            self.count += 1
            return accepts(interest, message, fields)

        monkeypatch.setattr(interest_module.Interest, "accepts", counted)


@pytest.mark.parametrize("kind", ["durable", "volatile"])
def test_each_gets_what_it_selects_in_order(kind: str) -> None:
    world = World()
    client = world.client()
    red = client.receiver("q", "red", selector="colour = 'red'", credit=100)
    low = client.receiver("q", "low", selector="n < 10", credit=100)
    client.post_all(client.sender("q"), *numbered(30, kind=kind))
    assert sorted(got(client, red) + got(client, low)) == sorted({*range(0, 30, 3), *range(10)})
    assert got(client, red) == sorted(got(client, red)) and all(n % 3 == 0 for n in got(client, red))
    assert got(client, low) == sorted(got(client, low)) and all(n < 10 for n in got(client, low))
    rest = client.receiver("q", "rest", credit=100)
    world.settle()
    assert got(client, rest) == [n for n in range(10, 30) if n % 3]
    world.check_journal()


def test_what_others_may_not_have_holds_nobody_up() -> None:
    world = World()
    client = world.client()
    blue = client.receiver("q", "blue", selector="colour = 'blue'", credit=1)
    sender = client.sender("q")
    client.post_all(sender, *numbered(30))
    everything = client.receiver("q", "everything", credit=1)
    world.settle()
    assert got(client, blue) == [2]
    assert got(client, everything) == [0], "what is aside comes before what is behind it"
    everything.grant(100)
    world.settle()
    assert got(client, everything) == [n for n in range(30) if n != 2]


def test_the_filters_that_are_applied_are_echoed_and_bad_ones_refused() -> None:
    world = World()
    client = world.client()
    link = client.receiver("q", "good", selector="n = 1", no_local=True)
    assert link.remote_attach is not None and link.remote_attach.source is not None
    assert set(link.remote_attach.source.filter or {}) == {"jms-selector", "no-local"}
    bad = client.receiver("q", "bad", selector="n = = 1")
    world.settle()
    error = client.detached[bad].error
    assert error is not None and error.condition == "amqp:invalid-field"


def test_a_later_consumer_finds_what_is_aside() -> None:
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    client.post_all(client.sender("q"), *numbered(3_000))
    queue = world.core.queues.by_name["q"]
    assert len(queue.aside) == 3_000
    late = client.receiver("q", "late", selector="n >= 2990", credit=100)
    world.settle()
    assert got(client, late) == list(range(2990, 3_000))
    everything = client.receiver("q", "everything", credit=5_000)
    world.settle()
    assert got(client, everything) == list(range(2990))
    assert not queue.aside


@pytest.mark.parametrize("browse", [False, True])
def test_a_drain_is_answered_when_nothing_more_matches(browse: bool) -> None:
    world = World()
    client = world.client()
    client.post_all(client.sender("q"), *numbered(500))
    link = client.receiver("q", selector="n >= 497", browse=browse)
    link.grant(10)
    link.drain_credit()
    world.settle()
    assert got(client, link) == [497, 498, 499]
    assert link.credit == 0
    link.grant(10)
    link.drain_credit()
    world.settle()
    assert link.credit == 0


def test_a_drain_waits_until_all_that_is_aside_was_looked_at() -> None:
    world = World()
    client = world.client()
    nobody = client.receiver("q", "nobody", selector="n < 0", credit=1)
    client.post_all(client.sender("q"), *numbered(3_000))
    world.settle()
    queue = world.core.queues.by_name["q"]
    assert len(queue.aside) == 3_000
    link = client.receiver("q", "late", selector="n >= 2999")
    link.grant(10)
    link.drain_credit()
    world.settle()
    assert got(client, link) == [2_999]
    assert link.credit == 0
    assert not got(client, nobody)


def test_a_drain_is_answered_by_a_consumer_that_may_hold_no_more() -> None:
    """Only the consumer itself can change that, and it waits for the answer."""
    world = World()
    client = world.client()
    link = client.receiver("q")
    client.post_all(client.sender("q"), *numbered(10))
    client.server.sessions[0].unsettled_max = 4
    link.grant(10)
    link.drain_credit()
    world.settle()
    assert got(client, link) == [0, 1, 2, 3]
    assert link.credit == 0


def test_a_consumer_whose_lock_ran_out_is_given_more() -> None:
    policy = {"prefetch_max": 1, "lock_duration_ms": 1_000}
    world = World(BrokerOptions(address=(AddressRule("q", policy),)))
    client = world.client()
    link = client.receiver("q", credit=10)
    client.post_all(client.sender("q"), *numbered(1))
    assert got(client, link) == [0]
    world.advance(2_000)
    world.settle()
    assert got(client, link) == [0, 0]


def test_each_message_is_judged_once_for_each_interest(monkeypatch: pytest.MonkeyPatch) -> None:
    judgements = Judgements(monkeypatch)
    world = World()
    client = world.client()
    for number in range(10):
        client.receiver("q", f"one-{number}", selector=f"n = {number * 200}", credit=10)
        client.receiver("q", f"same-{number}", selector=f"n = {number * 200}", credit=10)
    sender = client.sender("q")
    for start in range(0, 2_000, 100):
        client.post_all(sender, *numbered(100, start=start))
    assert sum(len(deliveries) for deliveries in client.received.values()) == 10
    assert len(world.core.queues.by_name["q"].aside) == 1_990
    assert judgements.count <= 10 * 2_000
    before = judgements.count
    client.receiver("q", "late", selector="n = 77", credit=1)
    world.settle()
    assert judgements.count - before <= 2_000


@pytest.mark.pure
def test_bodies_are_read_back_once_to_be_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that has outgrown its memory, and consumers that match nearly nothing of it."""
    options = BrokerOptions(
        address=(AddressRule("#", {"memory_bytes_max": 65_536}),), limits=BrokerLimits(read_ahead_bytes=8_192)
    )
    world = World(options)
    client = world.client()
    client.post_all(client.sender("q"), *numbered(2_000, kind="durable"))
    queue = world.core.queues.by_name["q"]
    reads: list[int] = []
    take_reads = world.core.memory.take_reads

    def noted() -> list[Reads]:
        taken = take_reads()
        reads.extend(message.sequence for lot in taken for message in lot.messages)
        assert queue.memory_bytes < 3 * 65_536
        return taken

    monkeypatch.setattr(world.core.memory, "take_reads", noted)
    links = [client.receiver("q", f"c{n}", selector=f"n = {n * 200 + 199}", credit=10) for n in range(10)]
    world.settle()
    assert [got(client, link) for link in links] == [[n * 200 + 199] for n in range(10)]
    assert len(reads) <= 2_000 + 10
    del reads[:]
    late = client.receiver("q", "late", selector="n = 1500 OR n = 3", credit=10)
    world.settle()
    assert got(client, late) == [3, 1500]
    assert len(reads) <= 2_000 + 10
    everything = client.receiver("q", "everything", credit=3_000)
    world.settle()
    assert len(got(client, everything)) == 2_000 - 12
    assert got(client, everything) == sorted(got(client, everything))
    world.check_journal()


def test_an_interest_remembers_no_more_than_its_bound() -> None:
    world = World()
    client = world.client()
    slow = client.receiver("q", "slow", selector="n >= 0", credit=1)
    client.receiver("q", "none", selector="n < 0", credit=1)
    count = 3 * AHEAD_MAX
    client.post_all(client.sender("q"), *numbered(count))
    queue = world.core.queues.by_name["q"]
    assert all(len(interest._ahead) <= AHEAD_MAX for interest in queue.interests)
    client.post_all(client.sender("q", "urgent"), Message(b"-1", priority=9, application_properties={"n": 1}))
    for _ in range(count):
        slow.grant(7)
        world.settle()
        if len(client.received[slow]) == count + 1:
            break
    assert got(client, slow) == [0, -1, *range(1, count)]


def test_released_messages_are_found_by_others() -> None:
    world = World()
    client = world.client()
    one = client.receiver("q", "one", selector="colour = 'red'", credit=100)
    client.receiver("q", "none", selector="n < 0", credit=1)
    client.post_all(client.sender("q"), *numbered(9))
    assert got(client, one) == [0, 3, 6]
    other = client.receiver("q", "other", selector="n = 3", credit=5)
    world.settle()
    assert got(client, other) == []
    one.detach()
    world.settle()
    assert got(client, other) == [3]


def test_a_message_that_was_modified_is_judged_again() -> None:
    world = World()
    client = world.client()
    first = client.receiver("q", "first", selector="JMSXDeliveryCount = 1", credit=1)
    second = client.receiver("q", "second", selector="JMSXDeliveryCount > 1", credit=10)
    client.post_all(client.sender("q"), *numbered(2))
    client.received[first][0].settle(Modified(delivery_failed=True))
    first.grant(1)
    world.settle()
    assert (got(client, first), got(client, second)) == ([0, 1], [0])


def test_what_was_aside_and_comes_back_changed_is_judged_anew() -> None:
    """It is set aside again, and those who knew it to be for them learn that it is not."""
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    client.post_all(client.sender("q"), *numbered(2))
    links = [client.receiver("q", name, selector="JMSXDeliveryCount = 1") for name in ("one", "same")]
    also = client.receiver("q", "also", selector="JMSXDeliveryCount < 2")
    for link in (links[0], also):
        link.grant(1)
        world.settle()
    assert (got(client, links[0]), got(client, also)) == ([0], [1])
    for link in (links[0], also):
        client.received[link][0].settle(Modified(delivery_failed=True))
    world.settle()
    for link in (*links, also):
        link.grant(5)
        link.drain_credit()
    world.settle()
    assert [got(client, link) for link in (*links, also)] == [[0], [], [1]]
    assert len(world.core.queues.by_name["q"].aside) == 2


def test_what_was_aside_and_called_undeliverable_does_not_come_again() -> None:
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    client.post_all(client.sender("q"), *numbered(3))
    one = client.receiver("q", "one", credit=1)
    world.settle()
    for number in range(3):
        client.received[one][number].settle(Modified(undeliverable_here=True))
        one.grant(1)
        world.settle()
    assert got(client, one) == [0, 1, 2]
    other = client.receiver("q", "other", credit=5)
    world.settle()
    assert got(client, other) == [0, 1, 2]


SIZES = {
    "one": [10, 1_000, 20, 30],
    "at the head": [1_000, 10, 20, 30],
    "several": [10, 1_000, 1_000, 20, 1_000, 30],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
@pytest.mark.parametrize("credit", [1, 2, 3, 10])
@pytest.mark.parametrize("posted", ["before", "after", "one by one"])
@pytest.mark.parametrize("how", ["plain", "selector", "group", "presettled", "browse", "topic"])
def test_a_receiver_gets_what_it_takes_and_not_what_is_too_large(
    how: str, posted: str, credit: int, sizes: list[int]
) -> None:
    world = World(BrokerOptions(address=(AddressRule("news", {"routing": "multicast"}),)))
    client = world.client()
    group = "g" if how == "group" else None
    messages = [durable(bytes(size), group_id=group) for size in sizes]
    address = "news" if how == "topic" else "q"

    def attach() -> ReceivingLink:
        selector = "JMSPriority = 4" if how == "selector" else None
        return client.receiver(
            address,
            "small",
            credit=credit,
            selector=selector,
            max_message_size=300,
            presettled=how == "presettled",
            browse=how == "browse",
        )

    if posted != "before" or how == "topic":
        small = attach()
        world.settle()
    sender = client.sender(address)
    for batch in [[message] for message in messages] if posted == "one by one" else [messages]:
        client.post_all(sender, *batch)
    if posted == "before" and how != "topic":
        small = attach()
    world.settle()
    fit = [size for size in sizes if size < 300][:credit]
    assert [len(body) for body in client.bodies(small)] == fit  # type: ignore[arg-type]
    small.drain_credit()
    world.settle()
    assert small.credit == 0, "a drain is answered"
    small.grant(10)
    client.post_all(sender, durable(bytes(40), group_id=group))
    rest = [size for size in sizes if size < 300][credit:]
    assert [len(body) for body in client.bodies(small)] == [*fit, *rest, 40]  # type: ignore[arg-type]


def test_what_is_too_large_is_for_others_and_is_listed_while_there_are_none() -> None:
    world = World()
    lines: list[Mapping[str, object]] = []
    world.core.denials.report = lambda text, by, particulars: lines.append({"text": text, **particulars})
    client = world.client()
    small = client.receiver("q", "small", credit=10, max_message_size=300)
    other = client.receiver("q", "other", credit=10, max_message_size=600)
    sender = client.sender("q")
    client.post_all(sender, *(durable(bytes(size)) for size in (1_000, 10, 1_000, 20, 350)))
    taken = [len(body) for link in (small, other) for body in client.bodies(link)]  # type: ignore[arg-type]
    assert sorted(taken) == [10, 20, 350]

    def undeliverable() -> int:
        queue = world.core.snapshot().queue("q")
        assert queue is not None
        return queue.undeliverable

    assert undeliverable() == 2
    assert len(lines) == 2, "one for each receiver, not for each message"
    assert {line["text"] for line in lines} == {"a message is larger than a receiver takes: it stays for others"}
    assert {line["max_message_size"] for line in lines} == {300, 600}
    large = client.receiver("q", "large")
    world.settle()
    assert undeliverable() == 0, "it may take them"
    large.grant(10)
    world.settle()
    assert [len(body) for body in client.bodies(large)] == [1_000, 1_000]  # type: ignore[arg-type]


def test_what_grows_while_it_is_away_is_looked_at_again() -> None:
    """Annotations of *modified* make it larger than its receiver takes."""
    world = World()
    client = world.client()
    small = client.receiver("q", "small", credit=10, max_message_size=400)
    client.post_all(client.sender("q"), durable(bytes(200)), durable(b"x"))
    first, second = client.received[small]
    first.settle(Modified(message_annotations={"x-opt-why": "y" * 200}))
    second.settle(RELEASED)
    world.settle()
    assert [len(body) for body in client.bodies(small)] == [200, 1, 1]  # type: ignore[arg-type]
    large = client.receiver("q", "large", credit=10)
    world.settle()
    assert [len(body) for body in client.bodies(large)] == [200]  # type: ignore[arg-type]


def test_a_message_too_large_for_one_of_several_selectors() -> None:
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    small = client.receiver("q", "small", credit=10, max_message_size=300)
    client.post_all(
        client.sender("q"),
        *(Message(bytes(size), application_properties={"n": 1}) for size in (10, 1_000, 20, 1_000, 30)),
    )
    assert [len(body) for body in client.bodies(small)] == [10, 20, 30]  # type: ignore[arg-type]
    other = client.receiver("q", "other", credit=10)
    world.settle()
    assert [len(body) for body in client.bodies(other)] == [1_000, 1_000]  # type: ignore[arg-type]


def sized(*sizes: int, start: int = 0) -> list[Message]:
    return [
        Message(b"%d" % n + bytes(size), application_properties={"n": n}) for n, size in enumerate(sizes, start=start)
    ]


def numbers(client: Client, *links: ReceivingLink) -> list[list[int]]:
    """What each of these got, of `sized` and the like."""
    return [[int(body.rstrip(b"\0")) for body in client.bodies(link)] for link in links]  # type: ignore[attr-defined]


def test_what_is_too_large_for_one_comes_to_another_before_what_is_behind_it() -> None:
    world = World()
    client = world.client()
    client.receiver("q", "small", selector="n < 0", credit=10, max_message_size=300)
    other = client.receiver("q", "other", credit=10)
    client.post_all(client.sender("q"), *sized(1_000, 10))
    assert numbers(client, other) == [[0, 1]]


@pytest.mark.parametrize("where", ["in the backlog", "aside"])
def test_who_learns_that_a_message_is_too_large_keeps_its_priority(where: str) -> None:
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1, properties={"priority": -9})
    high = client.receiver("q", "high", max_message_size=300, properties={"priority": 1})
    low = client.receiver("q", "low", selector="n >= 0")
    sender = client.sender("q")
    if where == "aside":
        client.post_all(sender, *sized(1_000, 10))
    high.grant(10)
    low.grant(10)
    if where == "in the backlog":
        client.post_all(sender, *sized(1_000, 10))
    world.settle()
    assert numbers(client, high, low) == [[1], [0]]


def test_what_is_too_large_for_one_is_for_others_of_its_priority() -> None:
    world = World()
    client = world.client()
    small = client.receiver("q", "small", credit=10, max_message_size=300, properties={"priority": 1})
    large = client.receiver("q", "large", credit=10, properties={"priority": 1})
    low = client.receiver("q", "low", selector="n >= 0", credit=10)
    client.post_all(client.sender("q"), *sized(1_000, 1_000))
    assert numbers(client, small, large, low) == [[], [0, 1], []]


def test_what_is_too_large_for_the_owner_of_its_group_comes_before_what_is_behind_it() -> None:
    """It was set aside before the group was bound, and before that was known of the owner."""
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    other = client.receiver("q", "other", selector="n > -1")
    owner = client.receiver("q", "owner", selector="n < 5", max_message_size=300)
    sender = client.sender("q")

    def of_group(number: int, size: int, priority: int) -> Message:
        body = b"%d" % number + bytes(size)
        return Message(body, group_id="g", priority=priority, application_properties={"n": number})

    client.post_all(sender, of_group(0, 1_000, 4))
    owner.grant(1)
    client.post_all(sender, of_group(1, 1, 9))
    other.grant(1)
    world.settle()
    assert numbers(client, owner, other) == [[1], [0]]
    client.post_all(sender, of_group(2, 1_000, 9))
    owner.grant(1)
    other.grant(2)
    client.post_all(sender, *sized(1, start=5))
    assert numbers(client, owner, other) == [[1], [0, 2, 5]]


def test_who_has_had_its_share_of_what_is_aside_has_the_next_one_too() -> None:
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    high = client.receiver("q", "high", selector="n >= 0", properties={"priority": 1})
    low = client.receiver("q", "low", selector="n >= 64")
    sender = client.sender("q")
    client.post_all(sender, *sized(*[1] * SHARE_MAX))
    low.grant(1)
    world.settle()
    high.grant(SHARE_MAX + 10)
    client.post_all(sender, *sized(1, start=SHARE_MAX))
    assert numbers(client, high, low) == [[*range(SHARE_MAX + 1)], []]


@pytest.mark.parametrize("posted", [0, 1])
def test_consumers_of_other_selectors_are_asked_for_what_is_aside_by_their_priority(posted: int) -> None:
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1, properties={"priority": -9})
    high = client.receiver("q", "high", selector="n >= 0", properties={"priority": 7})
    middle = client.receiver("q", "middle", selector="n > -1")
    low = client.receiver("q", "low", selector="n >= 0", properties={"priority": -7})
    sender = client.sender("q")
    client.post_all(sender, *sized(1, 1))
    for link in (high, low, middle):
        link.grant(1)
    client.post_all(sender, *sized(*[1] * posted, start=2))
    assert numbers(client, high, middle, low) == [[0], [1], [2] * posted]


def test_each_is_asked_for_what_is_aside_before_what_is_behind_it() -> None:
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1, properties={"priority": -9})
    first = client.receiver("q", "first", selector="n = 0")
    rest = client.receiver("q", "rest", selector="n > 0")
    sender = client.sender("q")
    client.post_all(sender, *sized(1, 1))
    for link in (first, rest):
        link.grant(2)
    client.post_all(sender, *sized(1, start=2))
    assert numbers(client, first, rest) == [[0], [1, 2]]


@pytest.mark.parametrize("between", [1, SHARE_MAX + 10])
def test_the_owner_of_a_group_has_no_priority_for_what_is_of_no_group(between: int) -> None:
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    low = client.receiver("q", "low", selector="n >= 0", properties={"priority": -7}, credit=1)
    high = client.receiver("q", "high", selector="n > -1", properties={"priority": 7})
    messages = sized(*[1] * (between + 2))
    for message in (messages[0], messages[-1]):
        message.group_id = "g"
    client.post_all(client.sender("q"), *messages)
    low.grant(2)
    high.grant(between)
    world.settle()
    assert numbers(client, low, high) == [[0, between + 1], [*range(1, between + 1)]]


@pytest.mark.parametrize("when", ["before its credit", "with its credit"])
def test_the_owner_of_a_group_gets_what_it_has_to_look_for_before_what_is_kept_for_it(when: str) -> None:
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    owner = client.receiver("q", "owner", selector="n >= 0", credit=1)
    sender = client.sender("q")
    count = AHEAD_MAX + 500
    messages = sized(*[1] * count)
    for message in (messages[0], messages[-1]):
        message.group_id = "g"
    client.post_all(sender, *(messages if when == "before its credit" else messages[:-1]))
    owner.grant(count)
    if when == "with its credit":
        client.post_all(sender, messages[-1])
    world.settle()
    assert numbers(client, owner) == [[*range(count)]]


@pytest.mark.parametrize("browse", [False, True])
def test_no_local(browse: bool) -> None:
    world = World()
    mine, theirs = world.client("mine"), world.client("theirs")
    link = mine.receiver("q", no_local=True, credit=10, browse=browse)
    other = theirs.receiver("q", "other")
    mine.post_all(mine.sender("q"), *numbered(2), *numbered(1, start=2, kind="durable"))
    theirs.post_all(theirs.sender("q"), *numbered(2, start=10))
    assert got(mine, link) == [10, 11]
    other.grant(10)
    world.settle()
    assert got(theirs, other) == ([0, 1, 2] if not browse else [0, 1, 2, 10, 11])


def test_priorities_hold_for_what_is_aside() -> None:
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    sender = client.sender("q")
    priorities = [4, 0, 9, 4, 9, 5, 0, 7, 1, 2, 3, 6, 8]
    client.post_all(
        sender,
        *(
            Message(b"%d" % n, priority=priority, application_properties={"n": n})
            for n, priority in enumerate(priorities)
        ),
    )
    link = client.receiver("q", "some", selector="n >= 0")
    for _ in priorities:
        link.grant(1)
        world.settle()
    expected = sorted(range(len(priorities)), key=lambda n: (-priorities[n], n))
    assert got(client, link) == expected


@pytest.mark.pure
def test_a_consumer_with_a_thousand_idle_neighbours_is_found_without_asking_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    client = world.client()
    for number in range(300):
        client.receiver("q", f"idle-{number}")
    ready = [client.receiver("q", f"ready-{number}", credit=10) for number in range(100)]
    sender = client.sender("q")
    world.settle()
    asked = 0
    from acquit.broker.dispatching.consumers import Consumer

    room = Consumer.room.fget
    assert room is not None

    def counted(consumer: Consumer) -> int:
        nonlocal asked
        asked += 1
        return int(room(consumer))

    monkeypatch.setattr(Consumer, "room", property(counted))
    client.post_all(sender, *numbered(1))
    assert asked < 10
    client.post_all(sender, *numbered(99, start=1))
    assert [len(client.received.get(link, [])) for link in ready] == [1] * 100


OUTPUT_BYTES_MAX = 32_768


class Walk:
    """Random operations on one queue, each followed by what must hold then."""

    SELECTORS: tuple[str | None, ...] = (
        None,
        "n < 50",
        "colour = 'red'",
        "colour <> 'red' AND n BETWEEN 10 AND 90",
        "n = 7",
        "p > 4",
    )
    POLICIES: ClassVar[dict[str, dict[str, object]]] = {
        "paged": {"memory_bytes_max": 65_536},
        "bounded": {"prefetch_max": 3},
    }

    def __init__(self, seed: int, kind: str) -> None:
        self.random = random.Random(seed)
        self.kind = kind
        # A quarter of the output that one grant may ask for: whoever is held back must come again by itself.
        connection = ConnectionLimits(output_bytes_max=OUTPUT_BYTES_MAX)
        nowhere: dict[str, object] = {"dead_letter_address": "", "expiry_address": ""}
        rule = AddressRule("#", nowhere | self.POLICIES.get(kind, {}))  # nowhere: sequences are numbers of postings
        self.world = World(BrokerOptions(address=(rule,), connection=connection))
        self.durable = kind != "volatile"
        if kind == "alike":  # nothing but sizes, and what is called undeliverable, tells consumers apart
            self.SELECTORS = (None,)
        # Messages of several frames, and a window that a few of them fill: what was meant for a link goes to others.
        self.client = self.world.client(max_frame_size=512, window=6) if kind == "narrow" else self.world.client()
        self.sender = self.client.sender("q")
        self.queue = self.world.core.queues.by_name["q"]
        self.links: dict[ReceivingLink, str | None] = {}
        self.priorities: dict[ReceivingLink, int] = {}
        self.excluded: dict[ReceivingLink, set[int]] = {}
        self.facts: dict[int, dict[str, object]] = {}
        self.sizes: dict[int, int] = {}
        self.limits: dict[ReceivingLink, int] = {}
        self.posted = 0
        self.names = 0
        self.output = 0
        """Bytes that the links were sent in the last step."""

    def matches(self, selector: str | None, number: int) -> bool:
        """The selectors of this test, in Python."""
        fact = self.facts[number]
        n, p = fact["n"], fact["p"]
        assert isinstance(n, int) and isinstance(p, int)
        return {
            None: True,
            "n < 50": n < 50,
            "colour = 'red'": fact["colour"] == "red",
            "colour <> 'red' AND n BETWEEN 10 AND 90": fact["colour"] != "red" and 10 <= n <= 90,
            "n = 7": n == 7,
            "p > 4": p > 4,
        }[selector]

    def post(self) -> None:
        messages = []
        for _ in range(self.random.choice((1, 3, 40))):
            n, priority = self.random.randrange(100), self.random.choice((4, 4, 4, 0, 9))
            fact: dict[str, object] = {"n": n, "colour": colour(n), "p": priority}
            self.facts[self.posted] = fact
            body = b"%d" % self.posted
            size = self.random.choice((100, 2_000, 2_000))
            self.sizes[self.posted] = size
            ttl_ms = self.random.choice((None, None, 300))
            group, sequence = self.group()
            messages.append(
                Message(
                    body.ljust(size),
                    durable=self.durable,
                    priority=priority,
                    ttl_ms=ttl_ms,
                    group_id=group,
                    group_sequence=sequence,
                    application_properties=fact,
                )
            )
            self.posted += 1
        self.client.post_all(self.sender, *messages)

    def group(self) -> tuple[str | None, int | None]:
        """The group of the next message, and its group-sequence."""
        if self.kind != "grouped":
            return None, None
        return self.random.choice((None, "a", "b", "c")), self.random.choice((None, None, CLOSING))

    def attach(self) -> None:
        if len(self.links) < 8:
            self.names += 1
            selector = self.random.choice(self.SELECTORS)
            priority = self.random.choice((0, 0, 0, 7, -7))
            link = self.client.receiver(
                "q",
                f"c{self.names}",
                selector=selector,
                presettled=self.random.random() < 0.2,
                properties={"priority": priority},
                max_message_size=(limit := self.random.choice((None, None, 1_000))),
            )
            self.limits[link] = limit or 1 << 32
            self.links[link] = selector
            self.priorities[link] = priority
            self.excluded[link] = set()

    def detach(self) -> None:
        if self.links:
            link = self.random.choice(list(self.links))
            del self.links[link]
            link.detach()

    def grant(self) -> None:
        for _ in range(4 if self.kind == "at once" else 1) if self.links else ():
            self.random.choice(list(self.links)).grant(self.random.choice((1, 5, 60)))

    def give_back(self) -> None:
        held = [delivery for link in self.links for delivery in self.client.held(link)]
        for delivery in self.random.sample(held, len(held) // 2):
            outcome = self.random.choice((ACCEPTED, RELEASED, Modified(True, self.random.random() < 0.3)))
            if isinstance(outcome, Modified) and outcome.undeliverable_here:
                assert isinstance(delivery.link, ReceivingLink)
                self.excluded[delivery.link].add(int(Message.decode(delivery.payload).body))  # type: ignore[call-overload]
            delivery.settle(outcome)

    def wait(self) -> None:
        self.world.advance(self.random.choice((10, 400)))

    def purge(self) -> None:
        if self.random.random() < 0.2:
            self.world.purge("q", None)

    def operations(self) -> tuple[Callable[[], None], ...]:
        often = (self.post, self.post, self.grant, self.grant, self.give_back)
        return (*often, self.attach, self.detach, self.wait, self.purge)

    def operate(self) -> Callable[[], None]:
        operation = self.random.choice(self.operations())
        operation()
        self.world.settle()
        return operation

    def step(self) -> None:
        before = {link: len(self.client.received.get(link, [])) for link in self.links}
        operation = self.operate()
        self.output = self.output_since(before)
        waiting = [number_of(message) for message in self.available()]
        for link, selector in self.links.items():
            new = [int(body) for body in self.client.bodies(link)[before.get(link, 0) :]]  # type: ignore[call-overload]
            assert all(self.matches(selector, number) and self.sizes[number] < self.limits[link] for number in new)
            if operation != self.post:  # a sync brings messages in at another time than others
                assert new == sorted(new, key=self.rank)
            # Where it is paged, one that is new has to read first; where it is narrow, higher ones have no window.
            for higher in self.links if self.kind not in ("paged", "narrow") else ():
                busy = self.full(higher) or self.held_back(higher, before.get(higher, 0))
                if self.priorities[higher] > self.priorities[link] and higher.credit and not busy:
                    assert not [one for one in new if self.is_for(higher, one)]
            for number in waiting:
                if self.is_for(link, number):
                    assert link.credit == 0 or self.full(link), (selector, number)
                    if operation != self.post:
                        assert all(self.rank(one) < self.rank(number) for one in new)

    def is_for(self, link: ReceivingLink, number: int) -> bool:
        fits = self.sizes[number] < self.limits[link]
        return fits and self.matches(self.links[link], number) and number not in self.excluded[link]

    def full(self, link: ReceivingLink) -> bool:
        return any(consumer.full for consumer in self.queue.consumers if consumer.link_name == link.name)

    def held_back(self, link: ReceivingLink, before: int) -> bool:
        """True if so much waited for a sync, to be sent to it, that others were given what was next: durable messages
        that a pre-settled link takes, up to the limit on output. Where several have room at once, what others were
        sent counts as well."""
        if self.kind == "at once":
            return self.output >= OUTPUT_BYTES_MAX
        sent = self.client.received.get(link, [])[before:]
        return all(one.settled for one in sent) and sum(len(one.payload) for one in sent) >= OUTPUT_BYTES_MAX

    def output_since(self, before: dict[ReceivingLink, int]) -> int:
        """The bytes that all links were sent since they had so many deliveries."""
        its = self.client.received
        return sum(len(one.payload) for link in self.links for one in its.get(link, [])[before.get(link, 0) :])

    def available(self) -> list[QueuedMessage]:
        assert barrier_of(self.queue)
        return [*self.queue.backlog.next_messages(), *self.queue.aside]

    def rank(self, number: int) -> tuple[int, int]:
        return -int(str(self.facts[number]["p"])), number


def number_of(message: QueuedMessage) -> int:
    """Postings of these tests are numbered from 0 in the order of their sequences."""
    return message.sequence - 1


@pytest.mark.parametrize("kind", ["volatile", "durable", "paged", "bounded", "alike", "narrow", "at once"])
@pytest.mark.parametrize("seed", range(share(8)))
def test_a_random_walk_keeps_to_the_order_and_leaves_nobody_waiting(kind: str, seed: int) -> None:
    walk = Walk(seed, kind)
    for _ in range(120):
        walk.step()
    walk.world.check_journal()


@pytest.mark.parametrize(
    ("kind", "seed", "steps"),
    [
        *(("at once", seed, 12) for seed in (130, 201, 208)),
        *(("volatile", seed, 30) for seed in (160, 195)),
        *(("alike", seed, 50) for seed in (296, 421)),
        *(("bounded", seed, 50) for seed in (190, 346)),
        ("narrow", 160, 30),
        ("alike", 450, 50),  # here a pre-settled link is passed over while much of it waits for a sync
    ],
)
def test_walks_that_few_draws_take(kind: str, seed: int, steps: int) -> None:
    """In most of them a message turns out to be too large for somebody who is asked before others that wait."""
    walk = Walk(seed, kind)
    for _ in range(steps):
        walk.step()


def told(walk: Walk) -> tuple[object, ...]:
    """What each link was sent, and what the broker counts and records."""
    gathered = Gathered()
    open_store(DATA, SMALL, gathered, Fold().digest, replayed=lambda report: None, disk=after_kill(walk.world.disk))
    received = {link.name: [one.payload for one in its] for link, its in walk.client.received.items()}
    tally = walk.queue.tally
    return (
        received,
        {link.name: (link.credit, link.delivery_count) for link in walk.client.received},
        {consumer.link_name: (consumer.held, consumer.tag, consumer.stamp) for consumer in walk.queue.consumers},
        [message.sequence for message in walk.available()],
        (walk.queue.counts, walk.queue.acquired, walk.queue.memory_bytes, tally.redelivered, tally.in_queue.counts),
        [(one.kind, one.meta, one.payload) for one in gathered.records if one.kind != RecordKind.START],
    )


@pytest.mark.parametrize("kind", ["volatile", "durable", "paged", "bounded", "alike", "narrow", "grouped"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_sent_together_is_what_is_sent_one_by_one(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = Walk(seed, kind)
    for _ in range(80):
        together.operate()
    monkeypatch.setattr(passes, "FRAME_HEAD_MAX", 1 << 32)  # each message may need more than a frame
    alone = Walk(seed, kind)
    for _ in range(80):
        alone.operate()
    assert together.posted == alone.posted > 0
    assert told(together) == told(alone)


# -- what a session takes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [2, 3, 4, 5, 7, 9, 10, 11])
@pytest.mark.parametrize(
    "sizes",
    [[10], [370], [400], [700], [1_300], [10, 10, 1_300, 10]],
    ids=["one frame", "just one", "just two", "two", "three", "one or three"],
)
def test_links_of_one_session_share_its_window(window: int, sizes: list[int]) -> None:
    world = World()
    client = world.client(max_frame_size=512, window=window)
    links = [client.receiver("q", f"n{rest}", selector=f"n % 3 = {rest}", credit=100) for rest in range(3)]
    bodies = [b"%d" % number + bytes(sizes[number % len(sizes)]) for number in range(30)]
    other = world.client("other")
    sent = [Message(body, application_properties={"n": number}) for number, body in enumerate(bodies)]
    other.post_all(other.sender("q"), *sent)
    world.settle()
    assert [client.bodies(link) for link in links] == [bodies[rest::3] for rest in range(3)]
    assert other.ended is client.ended is None


@pytest.mark.pure
@pytest.mark.parametrize("selector", [None, "n >= 0"])
def test_a_message_of_several_frames_is_made_when_its_turn_comes(
    selector: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sent of each is a copy: those behind it would be copied once for each of it."""
    made: list[int] = []
    make = Sending._payloads

    def noted(sending: Sending, messages: Sequence[QueuedMessage], bytes_max: int) -> list[bytes]:
        payloads = make(sending, messages, bytes_max)
        made.append(len(payloads))
        return payloads

    monkeypatch.setattr(Sending, "_payloads", noted)
    world = World()
    client = world.client(max_frame_size=16_384)
    sizes = [100, 100, 40_000, 100, 16_384, 40_000, 100]
    client.post_all(
        client.sender("q"),
        *(Message(bytes(size), application_properties={"n": number}) for number, size in enumerate(sizes)),
    )
    link = client.receiver("q", "all", selector=selector, credit=10)
    world.settle()
    assert [len(delivery.payload) > size for delivery, size in zip(client.held(link), sizes, strict=True)] == [True] * 7
    assert sum(made) == len(sizes) and len(made) > 3


def test_what_was_given_counts_as_output_before_another_is_asked() -> None:
    """The peer takes four of these messages: a fifth consumer is not asked before they are written."""
    world = World(BrokerOptions(connection=ConnectionLimits(output_bytes_max=32_768)))
    client = world.client(max_frame_size=16_384)
    client.post_all(
        client.sender("q"),
        *(Message(bytes(10_000), application_properties={"n": number}) for number in range(8)),
    )
    links = [client.receiver("q", f"{number}", selector="n >= 0", credit=0) for number in range(8)]
    world.settle()
    for link in links:
        link.grant(5)
    events = client.server.receive_data(client.engine.data_to_send(), world.now_s)
    world.core.handle(client.peer, events, world.now_us)
    world.core.turn(world.now_us)
    assert [consumer.held for consumer in world.core.queues.by_name["q"].consumers] == [2] * 4 + [0] * 4


@pytest.mark.parametrize(
    ("frame_bytes", "window", "sessions"), [(512, 2_048, 2), (512, 2_048, 1), (65_536, 3, 2), (65_536, 3, 1)]
)
def test_who_takes_less_than_its_share_leaves_others_their_order(frame_bytes: int, window: int, sessions: int) -> None:
    """The frames of a large message are not all written, or the window is closed: what one of the links is given no
    more goes to the others, and not behind what they have."""
    world = World()
    clients = [world.client(f"{n}", max_frame_size=frame_bytes, window=window) for n in range(sessions)]
    poster = world.client("poster")
    poster.post_all(
        poster.sender("q"),
        *(Message(b"%d" % n + bytes(900 * (n % 3 == 0)), application_properties={"n": n}) for n in range(60)),
    )
    selectors = ("n >= 0", "n < 60", "n < 61", "n <> 61")
    links = {
        client.receiver("q", f"{n}", selector=selector): client
        for n, selector in enumerate(selectors)
        for client in [clients[n % sessions]]
    }
    for link in links:
        link.grant(40)
    world.settle()
    numbers = [[int(body.rstrip(b"\0")) for body in client.bodies(link)] for link, client in links.items()]  # type: ignore[attr-defined]
    assert numbers == [sorted(its) for its in numbers]
    assert sorted(number for its in numbers for number in its) == list(range(60))


@pytest.mark.parametrize("plain", [True, False])
def test_links_of_one_session_share_what_may_be_unsettled(plain: bool) -> None:
    world = World()
    client = world.client()
    links = [
        client.receiver("q", f"link {n}", selector=None if plain else f"n % 3 = {n}", credit=100) for n in range(3)
    ]
    client.server.sessions[0].unsettled_max = 5
    other = world.client("other")
    other.post_all(other.sender("q"), *numbered(30))
    world.settle()
    assert sum(len(got(client, link)) for link in links) == 5
    for _ in range(6):
        for delivery in [delivery for link in links for delivery in client.received.get(link, [])]:
            if not delivery.settled:
                delivery.settle(ACCEPTED)
        world.settle()
    assert sorted(number for link in links for number in got(client, link)) == list(range(30))
    assert other.ended is client.ended is None


@pytest.mark.parametrize("where", ["in the backlog", "aside"])
def test_laborious_selectors_have_a_few_messages_a_turn(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern costs some thousand steps for each of these messages: nobody else waits until all were looked at."""
    world = World()
    client = world.client()
    if where == "aside":
        client.receiver("q", "nobody", selector="n < 0", credit=1)
    labour = Message(b"5", application_properties={"text": "a" * 4_000, "n": 1})
    client.post_all(client.sender("q"), *[labour] * 40)
    assert bool(world.core.queues.by_name["q"].aside) is (where == "aside")
    late = client.receiver("q", "late", selector="text LIKE '_%a'", credit=0)
    late.grant(100)
    events = client.server.receive_data(client.engine.data_to_send(), world.now_s)
    world.core.handle(client.peer, events, world.now_us)
    judgements = Judgements(monkeypatch)
    counts = []
    more = True
    while more:
        judgements.count = 0
        more = world.core.turn(world.now_us)
        counts.append(judgements.count)
    assert max(counts) <= 3
    world.settle()
    assert got(client, late) == [5] * 40


@pytest.mark.pure
@pytest.mark.parametrize(
    ("where", "selected", "messages"),
    [("in the backlog", "n % 10 = {0} - 1", LOOKS_MAX), ("in the backlog", "n = -{0}", 10), ("aside", "n = -{0}", 10)],
    ids=["each judged once", "each judged by all", "aside"],
)
def test_a_turn_ends_when_so_much_was_judged(
    where: str, selected: str, messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many messages as are judged by few interests, and few of those that all of them judge."""
    world = World()
    client = world.client()
    if where == "aside":
        client.receiver("q", "nobody", selector="n = -99", credit=1)
    client.post_all(client.sender("q"), *numbered(1_000))
    links = [client.receiver("q", f"{number}", selector=selected.format(number + 1)) for number in range(10)]
    world.settle()
    queue = world.core.queues.by_name["q"]
    assert bool(queue.aside) is (where == "aside")
    for link in links:
        link.grant(1_000)
    events = client.server.receive_data(client.engine.data_to_send(), world.now_s)
    judgements = Judgements(monkeypatch)
    world.core.handle(client.peer, events, world.now_us)
    counts, placed = [], []
    more = True
    while more:
        judgements.count, before = 0, queue.backlog.count
        more = world.core.turn(world.now_us)
        counts.append(judgements.count)
        placed.append(before - queue.backlog.count)
    assert max(counts) <= LOOKS_MAX + 11
    assert sum(counts) >= (1_000 if selected.startswith("n %") else 10_000)
    if where != "aside":
        assert messages // 2 <= max(placed) <= 3 * messages


def test_an_interest_remembers_what_it_said_of_few_sections() -> None:
    selector = compile_selector("n = 1")
    interest = Interest(Wants("n = 1"), selector)
    assert interest.by_properties
    for number in (1, 2, *range(1_000), 1):
        section = application_properties({"n": number})
        assert interest.judge(section, fields_of_properties(section)) is (number == 1)
        assert interest.verdicts[section] is (number == 1)
        assert len(interest.verdicts) <= 64
    long = application_properties({"n": 1, "k": "v" * 200})
    assert interest.judge(long, fields_of_properties(long))
    assert long not in interest.verdicts


@pytest.mark.parametrize(
    ("wants", "alone"),
    [
        (Wants(), True),
        (Wants("n = 1"), True),
        (Wants("JMSPriority = 1"), False),
        (Wants("n = 1", no_local="c"), False),
        (Wants("n = 1", bytes_max=9), False),
        (Wants("n = 1", terminus="t"), False),
    ],
)
def test_interests_that_ask_for_application_properties_alone(wants: Wants, alone: bool) -> None:
    selector = None if wants.selector is None else compile_selector(wants.selector)
    assert Interest(wants, selector).by_properties is alone


def application_properties(properties: dict[str, object]) -> bytes:
    return scan_sections(Message(b"x", application_properties=properties).encode()).section(APPLICATION_PROPERTIES)


def test_many_who_find_one_message_too_large_need_no_pass_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    begin = passes.Pass.__init__

    def counted(self: object, *given: object) -> None:
        begun.append(1)
        begin(self, *given)  # type: ignore[arg-type]

    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1, properties={"priority": -9})
    links = [client.receiver("q", f"c{k}", selector=f"n >= -{k + 1}", max_message_size=300) for k in range(50)]
    client.post_all(client.sender("q"), *sized(1_000))
    for link in links:
        link.grant(1)
    monkeypatch.setattr(passes.Pass, "__init__", counted)
    world.settle()
    assert len(begun) < 6


def test_what_others_got_is_no_reason_to_look_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that one knew to be aside for it, nothing is there any more, and it has not looked at what is behind."""
    monkeypatch.setattr(interest_module, "AHEAD_MAX", 8)
    monkeypatch.setattr(choosing, "READ_AHEAD_MESSAGES", 2)
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    one = client.receiver("q", "one", selector="n >= 0")
    other = client.receiver("q", "other", selector="n > -1")
    sender = client.sender("q")

    def message(number: int, priority: int) -> Message:
        return Message(b"%d" % number, priority=priority, application_properties={"n": number})

    client.post_all(sender, *[message(number, 4) for number in range(20)])
    client.post_all(sender, *[message(number, 9) for number in range(20, 23)])
    other.grant(10)
    world.settle()
    one.grant(5)
    world.settle()
    assert len(client.bodies(one)) == 5

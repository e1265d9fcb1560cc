"""Message groups: all messages of one group go to one consumer, in order, while it lives."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import chain
from typing import Any, ClassVar

import pytest

from acquit.broker.dispatching import choosing, passes
from acquit.broker.dispatching import consumers as consumers_module
from acquit.broker.dispatching import groups as groups_module
from acquit.broker.dispatching.aside import Aside
from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.dispatching.groups import CLOSING, Groups, Retained
from acquit.broker.message import ASIDE
from acquit.broker.message import Message as QueuedMessage
from acquit.broker.message_run import MessageRun
from acquit.broker.nodes.node import Queue
from acquit.broker.options import AddressPolicy, AddressRule, BrokerLimits, BrokerOptions
from acquit.broker.queue import NodeState
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Modified
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World, runs_in
from tests.support.examples import share
from tests.unit.broker.dispatching.test_choosing import Walk, number_of
from tests.unit.broker.links.test_termini import resume_from


def grouped(text: str, *, start: int = 0, durable: bool = False) -> list[Message]:
    """A message for each letter, of the group of that name; "." for none."""
    return [
        Message(
            f"{letter}{number}",
            durable=durable,
            group_id=None if letter == "." else letter,
            application_properties={"letter": letter, "n": number},
        )
        for number, letter in enumerate(text, start)
    ]


def groups_of(client: Client, link: ReceivingLink) -> set[str]:
    return {str(body)[0] for body in client.bodies(link)}


@pytest.mark.parametrize("durable", [False, True])
def test_a_group_goes_to_one_consumer_in_order(durable: bool) -> None:
    world = World()
    client = world.client()
    links = [client.receiver("q", name, credit=100) for name in ("one", "two", "three")]
    client.post_all(client.sender("q"), *grouped("abcabc.aabbcc.abc" * 5, durable=durable))
    seen = [groups_of(client, link) - {"."} for link in links]
    assert sorted(letter for letters in seen for letter in letters) == ["a", "b", "c"]
    for link in links:
        for letter in "abc":
            numbers = [int(str(body)[1:]) for body in client.bodies(link) if str(body)[0] == letter]
            assert numbers == sorted(numbers)
    assert sum(len(client.received[link]) for link in links) == 17 * 5
    world.check_journal()


def test_a_busy_owner_holds_up_its_own_groups_only() -> None:
    world = World()
    client = world.client()
    busy = client.receiver("q", "busy", credit=1)
    sender = client.sender("q")
    client.post_all(sender, *grouped("a"))
    free = client.receiver("q", "free", credit=100)
    client.post_all(sender, *grouped("abaa.b", start=1))
    assert client.bodies(busy) == ["a0"]
    assert client.bodies(free) == ["b2", ".5", "b6"]
    busy.grant(2)
    world.settle()
    assert client.bodies(busy) == ["a0", "a1", "a3"]
    assert busy.credit == 0
    free.drain_credit()
    world.settle()
    assert free.credit == 0, "what is another's does not keep a drain waiting"
    busy.grant(10)
    busy.drain_credit()
    world.settle()
    assert client.bodies(busy) == ["a0", "a1", "a3", "a4"]
    assert busy.credit == 0


@pytest.mark.parametrize("end", ["detach", "close", "lose"])
def test_when_its_consumer_goes_a_group_is_another_ones_in_order(end: str) -> None:
    world = World()
    posting, mortal, other = world.client("posting"), world.client("mortal"), world.client("other")
    first = mortal.receiver("q", "first", credit=2)
    sender = posting.sender("q")
    posting.post_all(sender, *grouped("aaaa"))
    second = other.receiver("q", "second", credit=100)
    posting.post_all(sender, *grouped("aba", start=4))
    assert mortal.bodies(first) == ["a0", "a1"]
    assert other.bodies(second) == ["b5"]
    if end == "detach":
        first.detach()
    elif end == "close":
        mortal.close()
    else:
        mortal.lose()
    world.settle()
    assert other.bodies(second) == ["b5", "a0", "a1", "a2", "a3", "a4", "a6"]


def test_released_messages_come_back_to_their_owner_before_the_rest() -> None:
    world = World()
    client = world.client()
    owner = client.receiver("q", "owner", credit=2)
    client.receiver("q", "other", credit=100)
    sender = client.sender("q")
    client.post_all(sender, *grouped("aaaa"))
    for delivery in list(client.held(owner)):
        delivery.settle(RELEASED)
    world.settle()
    owner.grant(10)
    world.settle()
    assert client.bodies(owner) == ["a0", "a1", "a0", "a1", "a2", "a3"]


def test_what_is_kept_for_its_owner_goes_before_what_comes() -> None:
    """Credit and the next message arrive together, and another consumer's turn it is."""
    world = World()
    client = world.client()
    owner = client.receiver("q", "owner", credit=1)
    sender = client.sender("q")
    client.post_all(sender, *grouped("a"))
    client.receiver("q", "other", credit=100)
    client.post_all(sender, *grouped("aaa", start=1))
    owner.grant(2)
    client.post(sender, *grouped("aa", start=4))
    world.settle()
    assert client.bodies(owner) == ["a0", "a1", "a2"]
    owner.grant(10)
    client.post(sender, *grouped("aa", start=6))
    world.settle()
    assert client.bodies(owner) == [f"a{n}" for n in range(8)]


def test_what_is_kept_for_a_slow_owner_is_not_kept_in_memory() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"memory_bytes_max": 65_536}),)))
    client = world.client()
    owner = client.receiver("q", "owner", credit=1)
    sender = client.sender("q")
    client.post_all(sender, *grouped("a", durable=True))
    other = client.receiver("q", "other", credit=1_000)
    for start in range(1, 1_001, 100):
        text = "ab" * 50
        client.post_all(
            sender,
            *(
                Message(f"{letter}{n}".ljust(500), durable=True, group_id=letter)
                for n, letter in enumerate(text, start)
            ),
        )
    queue = world.core.queues.by_name["q"]
    for delivery in client.held(other):
        delivery.settle(ACCEPTED)
    world.settle()
    assert len(queue.aside) == 500
    assert queue.memory_bytes < 65_536 + 10_000
    owner.grant(1_000)
    world.settle()
    numbers = [int(str(body)[1:]) for body in client.bodies(owner)]
    assert numbers == [0, *range(1, 1_001, 2)]


def test_the_last_of_a_group_closes_it() -> None:
    world = World()
    client = world.client()
    one = client.receiver("q", "one", credit=10)
    two = client.receiver("q", "two")
    sender = client.sender("q")
    client.post_all(sender, *grouped("a"))
    client.post_all(sender, Message("a1", group_id="a", group_sequence=CLOSING))
    assert client.bodies(one) == ["a0", "a1"]
    queue = world.core.queues.by_name["q"]
    assert queue.groups is not None and len(queue.groups) == 0
    two.grant(10)
    one.drain_credit()
    world.settle()
    client.post_all(sender, *grouped("aa", start=2))
    assert client.bodies(two) == ["a2", "a3"]
    one.grant(10)
    client.post_all(sender, *grouped("a", start=4))
    assert client.bodies(two) == ["a2", "a3", "a4"]


def bound(text: str) -> tuple[World, Client, SendingLink, ReceivingLink, ReceivingLink]:
    """Return a world, its client, who sends, who got the first of these messages and has no room for more, and who came
    after that and has room for all."""
    world = World()
    client = world.client()
    owner = client.receiver("q", "owner", credit=1)
    sender = client.sender("q")
    client.post_all(sender, *grouped(text))
    return world, client, sender, owner, client.receiver("q", "other", credit=1_000)


def last(body: str) -> Message:
    """A message that closes its group, a."""
    return Message(body, group_id="a", group_sequence=CLOSING, application_properties={"n": int(body[1:])})


@pytest.mark.parametrize("together", [True, False])
def test_what_is_behind_the_last_of_a_group_is_anybodys_in_order(together: bool) -> None:
    """It was retained for the one that had the group, which still has no room."""
    world, client, sender, owner, other = bound("a")
    client.post_all(sender, last("a1"), *grouped("a", start=2))
    assert (client.bodies(owner), client.bodies(other)) == (["a0"], [])
    owner.grant(1)
    if not together:
        world.settle()
        assert (client.bodies(owner), client.bodies(other)) == (["a0", "a1"], ["a2"])
    client.post_all(sender, *grouped("a", start=3))
    assert (client.bodies(owner), client.bodies(other)) == (["a0", "a1"], ["a2", "a3"])


def test_what_is_behind_the_last_of_a_group_may_be_for_the_same_one() -> None:
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    owner = client.receiver("q", "owner", credit=2)
    sender = client.sender("q")
    client.post_all(sender, *grouped("ac"), last("a2"), *grouped("acac", start=3))
    owner.grant(10)
    world.settle()
    assert client.bodies(owner) == ["a0", "c1", "a2", "a3", "c4", "a5", "c6"]


def test_what_is_behind_the_last_of_a_group_may_stand_before_what_comes() -> None:
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    owner = client.receiver("q", "owner", credit=1)
    sender = client.sender("q")
    first, low, lower = grouped("aaa")
    low.priority = lower.priority = 0
    client.post_all(sender, first, low)
    owner.grant(10)
    client.post_all(sender, last("a3"), lower)
    assert client.bodies(owner) == ["a0", "a3", "a1", "a2"]


@pytest.mark.parametrize("waits", [True, False])
def test_the_last_of_a_group_frees_it_whoever_gets_that_unless_something_before_it_waits(waits: bool) -> None:
    world = World()
    client = world.client()
    owner = client.receiver("q", "owner", selector="n <> 2", credit=1)
    sender = client.sender("q")
    client.post_all(sender, *grouped("aa" if waits else "a"))
    other = client.receiver("q", "other", credit=10)
    client.post_all(sender, last("a2"), *grouped("a", start=3))
    assert (client.bodies(owner), client.bodies(other)) == (["a0"], ["a2"] if waits else ["a2", "a3"])
    owner.grant(10)
    world.settle()
    assert client.bodies(owner) == (["a0", "a1", "a3"] if waits else ["a0"])


def test_the_last_of_a_group_does_not_split_it_where_it_has_a_higher_priority() -> None:
    world, client, sender, owner, other = bound("aaa")
    closing = last("a3")
    closing.priority = 9
    client.post_all(sender, closing)
    owner.grant(1)
    world.settle()
    assert (client.bodies(owner), client.bodies(other)) == (["a0", "a3"], [])
    owner.grant(10)
    world.settle()
    assert client.bodies(owner) == ["a0", "a3", "a1", "a2"]


@pytest.mark.parametrize("behind", [groups_module.HANDED_OVER_MAX - 1, groups_module.HANDED_OVER_MAX])
def test_a_group_stays_bound_where_very_much_is_behind_its_last_message(behind: int) -> None:
    """To place all of it anew would hold up others."""
    world, client, sender, owner, other = bound("a")
    client.post_all(sender, last("a1"), *grouped("a" * behind, start=2))
    owner.grant(1)
    world.settle()
    freed = behind < groups_module.HANDED_OVER_MAX
    assert len(client.bodies(other)) == (behind if freed else 0)
    owner.grant(1_000)
    world.settle()
    assert client.bodies(owner if not freed else other)[-1] == f"a{behind + 1}"


def test_the_last_of_a_group_that_comes_back_ends_no_other_of_its_name() -> None:
    world = World()
    client = world.client()
    first = client.receiver("q", "first", credit=1)
    sender = client.sender("q")
    client.post_all(sender, last("a0"))
    second = client.receiver("q", "second", credit=1)
    client.post_all(sender, *grouped("aa", start=1))
    third = client.receiver("q", "third", credit=10)
    (closing,) = client.held(first)
    closing.settle(RELEASED)
    world.settle()
    second.grant(1)
    world.settle()
    client.post_all(sender, *grouped("a", start=3))
    assert client.bodies(second) == ["a1", "a0"]
    assert client.bodies(third) == []


def test_what_is_looked_at_again_and_again_is_retained_once() -> None:
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    client.receiver("q", "owner", credit=1)
    client.post_all(client.sender("q"), *grouped("a" * 50))
    (owner,) = (one for one in world.core.queues.by_name["q"].consumers if one.link_name == "owner")
    for number in range(5):
        visitor = client.receiver("q", f"visitor {number}", selector=f"n > {number}", credit=1)
        world.settle()
        visitor.detach()
        world.settle()
    assert len(owner.retained) == sum(map(len, owner.retained._groups.values())) == 49


def test_what_is_aside_for_another_waits_for_the_owner_of_its_group() -> None:
    """It was set aside before the group was bound, and is handed over as soon as the other one has room."""
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    other = client.receiver("q", "other", selector="n >= 0")
    owner = client.receiver("q", "owner", selector="n < 100")
    sender = client.sender("q")
    client.post_all(sender, *grouped("aaa"), *grouped(".", start=3))
    owner.grant(1)
    world.settle()
    other.grant(1)
    world.settle()
    assert (client.bodies(owner), client.bodies(other)) == (["a0"], [".3"])
    owner.grant(5)
    world.settle()
    assert client.bodies(owner) == ["a0", "a1", "a2"]


def test_what_is_aside_for_another_and_too_large_for_the_owner_of_its_group_does_not_wait_for_that() -> None:
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    other = client.receiver("q", "other")
    owner = client.receiver("q", "owner", selector="n < 100", max_message_size=300)
    small, large = grouped("aa")
    large.body = "a1" + " " * 1_000
    client.post_all(client.sender("q"), small, large)
    owner.grant(1)
    world.settle()
    other.grant(1)
    world.settle()
    assert (client.bodies(owner), client.bodies(other)) == (["a0"], [large.body])


@pytest.mark.pure
def test_who_knows_only_of_what_is_for_the_owner_of_its_group_looks_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers_module, "AHEAD_MAX", 8)
    monkeypatch.setattr(choosing, "READ_AHEAD_MESSAGES", 2)
    world = World()
    client = world.client()
    client.receiver("q", "none", selector="n < 0", credit=1)
    other = client.receiver("q", "other", selector="n >= 0")
    owner = client.receiver("q", "owner", selector="n < 100")
    sender = client.sender("q")
    client.post_all(sender, *grouped("." + "a" * 30 + "."))
    other.grant(1)
    world.settle()
    owner.grant(1)
    (urgent,) = grouped("a", start=32)
    urgent.priority = 9
    client.post_all(sender, urgent)
    other.grant(1)
    world.settle()
    assert (client.bodies(owner), client.bodies(other)) == (["a32"], [".0", ".31"])


def test_what_the_owner_does_not_select_goes_to_others() -> None:
    world = World()
    client = world.client()
    even = client.receiver("q", "even", selector="n = 0 OR n = 2 OR n = 4", credit=100)
    sender = client.sender("q")
    client.post_all(sender, *grouped("a"))
    rest = client.receiver("q", "rest", credit=100)
    client.post_all(sender, *grouped("aaaaa", start=1))
    assert client.bodies(even) == ["a0", "a2", "a4"]
    assert client.bodies(rest) == ["a1", "a3", "a5"]


def test_groups_are_known_after_a_restart() -> None:
    world = World()
    client = world.client()
    client.post_all(client.sender("q"), *grouped("abab" * 20, durable=True))
    world = world.crash()
    client = world.client()
    links = [client.receiver("q", name, credit=100) for name in ("one", "two")]
    world.settle()
    assert sum(len(client.received[link]) for link in links) == 80
    assert not groups_of(client, links[0]) & groups_of(client, links[1])


def test_an_address_may_have_no_groups() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"message_groups": False}),)))
    client = world.client()
    links = [client.receiver("q", name, credit=2) for name in ("one", "two")]
    client.post_all(client.sender("q"), *grouped("aaaa"))
    assert [len(client.bodies(link)) for link in links] == [2, 2]
    assert world.core.queues.by_name["q"].groups is None


@pytest.mark.pure
def test_the_map_of_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "GROUPS_MAX", 10)
    monkeypatch.setattr(groups_module, "BUCKETS", 4)
    world = World()
    client = world.client()
    links = [client.receiver("q", name, credit=1_000) for name in ("one", "two", "three")]
    names = [f"g{number}" for number in range(100)]
    sender = client.sender("q")
    for turn in range(3):
        client.post_all(sender, *(Message(f"{name} {turn}", group_id=name) for name in names))
    owners: dict[str, set[str]] = {}
    for link in links:
        for body in client.bodies(link):
            owners.setdefault(str(body).split()[0], set()).add(link.name)
    assert all(len(who) == 1 for who in owners.values())
    queue = world.core.queues.by_name["q"]
    assert queue.groups is not None and len(queue.groups) <= 14
    assert all(client.received.get(link) for link in links)


def test_closing_a_group_that_shares_a_bucket_frees_nothing() -> None:
    world = World()
    client = world.client()
    client.receiver("q", "one", credit=1)
    world.settle()
    (consumer,) = world.core.queues.by_name["q"].consumers
    groups = Groups()
    for number in range(groups_module.GROUPS_MAX):
        groups.bind(f"own {number}", consumer)
    groups.bind("a", consumer)
    groups.close("a")
    assert groups.owner("a") is consumer
    groups.close("own 1")
    assert groups.owner("own 1") is None
    groups.leave(consumer)
    assert len(groups) == 0


def set_aside(sequence: int) -> QueuedMessage:
    queue = Queue(1, "q", "q", AddressPolicy(), auto_created=True)
    return QueuedMessage(sequence, queue, NodeState.AVAILABLE, b"", 0, ASIDE, 4, 0, 0, 0)


def test_what_is_retained_is_found_in_order_and_by_group() -> None:
    chance = random.Random(1)
    retained, model = Retained(Aside()), dict[int, QueuedMessage]()
    group_of: dict[int, str] = {}
    for step in range(20_000):
        sequence = step + chance.choice((0, 50_000))  # some come before what is there
        match chance.randrange(5):
            case 0 | 1:
                message = set_aside(sequence)
                model[sequence], group_of[sequence] = message, chance.choice("abcdefgh")
                retained.add(group_of[sequence], message)
            case 2 if model:
                model.pop(chance.choice(list(model))).flags &= ~ASIDE
            case 3 if model:
                first = retained.first()
                assert first is model.pop(min(model))
                retained.skip()
                if chance.random() < 0.3:  # it comes back
                    model[first.sequence] = first
                    retained.add(group_of[first.sequence], first)
                    assert retained.first() is first
            case 4 if chance.random() < 0.3:
                group = chance.choice("abcdefgh")
                there = {one for one in model if group_of[one] == group}
                closing = set_aside(min(there, default=0) + chance.choice((-1, 0, 1)))
                found = retained.take_behind(closing, group)
                taken = set() if found is None else {one.sequence for one in found}
                if found is None:
                    assert closing.sequence > min(there) or len(there) > groups_module.HANDED_OVER_MAX // 2
                else:
                    assert taken == there
                model = {one: message for one, message in model.items() if one not in taken}
            case _:
                assert retained.first() is (model[min(model)] if model else None)
        assert len(retained._firsts) < 200
    assert {one.sequence for one in retained.take_all() if one.flags & ASIDE} == set(model)
    assert retained.first() is None
    for sequence in sorted(model, reverse=True):
        retained.add(group_of[sequence], model[sequence])
        assert retained.first() is model[sequence]


def test_groups_that_come_and_go_leave_nothing_behind() -> None:
    """One message that is never handed out is before all the others."""
    retained = Retained(Aside())
    for sequence in range(10_000):
        message = set_aside(sequence)
        retained.add(f"{sequence}", message)
        if sequence:
            assert retained.take_behind(set_aside(0), f"{sequence}") == [message]
    assert len(retained._firsts) < 100 and len(retained) == 1


def test_of_what_is_gone_behind_one_that_stays_little_is_kept() -> None:
    retained = Retained(Aside())
    for sequence in range(10_000):
        message = set_aside(sequence)
        retained.add("a", message)
        if sequence % 100:
            message.flags &= ~ASIDE
    assert len(retained) < 2_000
    for sequence in range(0, 10_000, 100):
        message = retained.first()
        assert message is not None and message.sequence == sequence
        retained.skip()
    assert retained.first() is None


def test_the_last_of_a_group_that_is_resumed_does_not_free_the_group_again() -> None:
    """The next of that name has begun meanwhile, with another consumer."""
    world = World(BrokerOptions(limits=BrokerLimits(terminus_kept_ms_max=60_000)))
    client, others = world.client("first"), world.client("others")
    sender = others.sender("q")
    link = resume_from(client, {}, credit=1)
    closing = last("a0")
    closing.durable = True
    others.post_all(sender, closing)
    tag = client.received[link][0].tag
    owner = others.receiver("q", "owner", credit=1)
    others.post_all(sender, *grouped("a", start=1))
    assert (client.bodies(link), others.bodies(owner)) == (["a0"], ["a1"])
    client.lose()
    world.settle()
    again = world.client("first")
    resume_from(again, {tag: None}, credit=1)
    world.settle()
    other = others.receiver("q", "other", credit=10)
    others.post_all(sender, *grouped("a", start=2))
    assert others.bodies(other) == [], "the group is bound to the owner"
    owner.grant(1)
    world.settle()
    assert others.bodies(owner) == ["a1", "a2"]


@pytest.mark.parametrize("seed", range(share(10)))
def test_a_random_walk_keeps_each_group_together(seed: int) -> None:
    """At any moment all unsettled messages of a group are with one consumer, and a consumer has got them in order
    since the last one came back."""
    chance = random.Random(seed)
    world = World()
    client = world.client()
    sender = client.sender("q")
    links: list[ReceivingLink] = []
    posted = names = 0
    for _ in range(150):
        match chance.randrange(6):
            case 0:
                text = "".join(chance.choice("abcdefgh.") for _ in range(chance.choice((1, 5, 50))))
                client.post_all(sender, *grouped(text, start=posted, durable=chance.random() < 0.5))
                posted += len(text)
            case 1 if len(links) < 5:
                names += 1
                selector = chance.choice((None, None, "letter <> 'a'"))
                links.append(client.receiver("q", f"c{names}", selector=selector))
            case 2 if links:
                links.pop(chance.randrange(len(links))).detach()
            case 3 | 4 if links:
                chance.choice(links).grant(chance.choice((1, 7, 60)))
            case 5:
                held = [delivery for link in links for delivery in client.held(link)]
                for delivery in chance.sample(held, len(held) // 3):
                    delivery.settle(chance.choice((ACCEPTED, ACCEPTED, RELEASED, Modified(delivery_failed=True))))
        world.settle()
        holders: dict[str, set[ReceivingLink]] = {}
        for link in links:
            for delivery in client.held(link):
                letter = str(Message.decode(delivery.payload).body)[0]
                holders.setdefault(letter, set()).add(link)
        holders.pop(".", None)
        assert all(len(who) == 1 for who in holders.values()), holders
    # Everything arrives in the end, whoever is left.
    for link in links:
        link.detach()
    last = client.receiver("q", "last", credit=100_000)
    world.settle()
    numbers = [(letter, int(rest)) for letter, *digits in map(str, client.bodies(last)) if (rest := "".join(digits))]
    assert all(
        [number for other, number in numbers if other == letter] == sorted(n for o, n in numbers if o == letter)
        for letter in "abcdefgh"
    )
    assert world.core.queues.by_name["q"].available == 0
    world.check_journal()


LITTLE = {"READ_AHEAD_MESSAGES": 2, "LOOKS_MAX": 8, "SHARE_MAX": 4, "_STEP_MIN": 2}


class GroupWalk(Walk):
    """Random operations on one queue of groups. What must hold is looked at whenever a message is given."""

    POLICIES: ClassVar[dict[str, dict[str, object]]] = {
        **Walk.POLICIES,
        "delayed": {"redelivery_blocks": "group", "redelivery_delay_ms": 100},
    }

    def __init__(self, seed: int, kind: str, monkeypatch: pytest.MonkeyPatch, *, small: bool = False) -> None:
        super().__init__(seed, kind)
        self.small = small
        if small:
            monkeypatch.setattr(consumers_module, "AHEAD_MAX", 8)
            for name, bound in LITTLE.items():
                for module in (choosing, passes):
                    if hasattr(module, name):
                        monkeypatch.setattr(module, name, bound)
        if kind == "buckets":
            monkeypatch.setattr(groups_module, "GROUPS_MAX", 2)
            monkeypatch.setattr(groups_module, "BUCKETS", 3)
        self.owners: dict[str, ReceivingLink] = {}
        """The link that each group is bound to."""
        self.groups: dict[int, tuple[str | None, bool]] = {}
        """Each message's group, and whether it closes that."""
        self.names_of_groups = self.random.choice(("a", "ab", "abcdefgh"))
        self.closes = self.random.choice((0.05, 0.3, 0.6))
        self.eligible: dict[int, list[ReceivingLink]] = {}
        """Those for whom a message was when it was given."""
        self.faults: list[str] = []
        self.runs = 0
        """Runs that were given."""
        give = passes.Pass.give

        def noted(pass_: passes.Pass, consumer: Consumer, message: QueuedMessage) -> None:
            self.given(consumer.link_name, number_of(message), came_back=message.came_back)
            give(pass_, consumer, message)

        monkeypatch.setattr(passes.Pass, "give", noted)
        give_run = passes.Pass.give_run

        def noted_run(pass_: passes.Pass, consumer: Consumer, run: MessageRun) -> None:
            self.runs += 1
            for sequence in run.sequences:
                self.given(consumer.link_name, sequence - 1, came_back=False)
            give_run(pass_, consumer, run)

        monkeypatch.setattr(passes.Pass, "give_run", noted_run)

    def group(self) -> tuple[str | None, int | None]:
        group = self.random.choice((None, *self.names_of_groups))
        closes = group is not None and self.random.random() < self.closes
        self.groups[self.posted] = group, closes
        return group, CLOSING if closes else None

    def given(self, name: str, number: int, *, came_back: bool) -> None:
        """A message is given to the link of this name."""
        link = next(link for link in self.links if link.name == name)
        group, closes = self.groups[number]
        if self.kind == "buckets":  # what is new may be bound already, and closing may free nothing
            self.owners = self.bound() | self.owners
        self.eligible[number] = [one for one in self.links if self.is_for(one, number)]
        if link not in self.eligible[number]:
            self.faults.append(f"{number} of {group} is not for {name}")
        for other in self.numbers():
            if self.rank(other) < self.rank(number) and self.is_for(link, other):
                self.faults.append(f"{name} gets {number} before {other}")
        if group is None:
            return
        if not closes:
            self.owners.setdefault(group, link)
        elif self.kind == "buckets" or group not in self.bound():
            self.owners.pop(group, None)
        else:  # it came back, or something waits that was posted before
            older = [one for one in self.numbers() if one < number and self.groups[one][0] == group]
            if not (came_back or older):
                self.faults.append(f"{number} does not free {group}")
        if self.kind == "buckets":
            bound = self.bound()
            assert self.owners.items() <= bound.items()
            self.owners = bound

    def numbers(self) -> list[int]:
        """The messages that are available; those in runs stay there."""
        waiting = runs_in(self.queue.backlog)
        waiting += [run for consumer in self.queue.consumers for run in consumer.retained.runs]
        if not waiting:
            return [number_of(message) for message in self.available()]
        there = [sequence for run in waiting for sequence in run.sequences]
        there += [one.sequence for lane in self.queue.backlog._lanes for one in single_in(lane)]
        there += [one.sequence for block in self.queue.aside._blocks for one in block]
        assert len(there) == self.queue.available
        return [sequence - 1 for sequence in there]

    def bound(self) -> dict[str, ReceivingLink]:
        """The link that each group is bound to, as the queue says."""
        groups, links = self.queue.groups, {link.name: link for link in self.links}
        owners = {} if groups is None else {name: groups.owner(name) for name in self.names_of_groups}
        return {name: links[owner.link_name] for name, owner in owners.items() if owner is not None}

    def is_for(self, link: ReceivingLink, number: int) -> bool:
        group, _ = self.groups[number]
        if not super().is_for(link, number):
            return False
        if group is None:
            return True
        owner = self.owners.get(group)
        if self.kind == "delayed" and any(
            self.groups[number_of(one)][0] == group for one in self.queue.scheduled.values()
        ):
            return False
        return owner is None or owner is link or not super().is_for(owner, number)

    def detach(self) -> None:
        super().detach()
        self.owners = {group: owner for group, owner in self.owners.items() if owner in self.links}

    def drain(self) -> None:
        for link in self.random.sample(list(self.links), min(2, len(self.links))):
            if link.credit:
                link.drain_credit()

    def operations(self) -> tuple[Callable[[], None], ...]:
        return (*super().operations(), self.drain)

    def step(self) -> None:
        before = {link: len(self.client.received.get(link, [])) for link in self.links}
        operation = self.operate()
        self.output = self.output_since(before)
        assert not self.faults, self.faults
        waiting = self.numbers()
        for link in self.links:
            new = [int(body) for body in self.client.bodies(link)[before.get(link, 0) :]]  # type: ignore[call-overload]
            # Where it is paged, one that is new has to read first; where it is narrow, higher ones have no window; with
            # small bounds, others are given something while a higher one still looks.
            for higher in self.links if self.kind not in ("paged", "narrow", "buckets") and not self.small else ():
                busy = self.full(higher) or self.held_back(higher, before.get(higher, 0))
                if self.priorities[higher] > self.priorities[link] and higher.credit and not busy:
                    assert not [number for number in new if higher in self.eligible.get(number, ())]
            assert operation != self.drain or not link.drain or not link.credit
            for number in waiting:
                if self.is_for(link, number):
                    assert link.credit == 0 or self.full(link), (link.name, number)


class AlikeWalk(GroupWalk):
    """What is posted is alike, and comes in runs: nothing but its group tells one from the other."""

    def post(self) -> None:
        messages = []
        grouped, priority = self.random.random() < 0.9, self.random.choice((4, 4, 4, 9, 1))
        for _ in range(self.random.choice((2, 40, 40))):
            group = self.random.choice(self.names_of_groups) if grouped else None
            self.groups[self.posted] = group, False
            self.facts[self.posted] = {"n": 1, "colour": "red", "p": priority}
            self.sizes[self.posted] = 8
            messages.append(Message(b"%08d" % self.posted, durable=False, group_id=group, priority=priority))
            self.posted += 1
        self.client.post_all(self.sender, *messages)

    def matches(self, selector: str | None, number: int) -> bool:
        return True

    def attach(self) -> None:
        self.SELECTORS = (None,)
        super().attach()

    def detach(self) -> None:
        if self.random.random() < 0.3:
            super().detach()

    def operations(self) -> tuple[Callable[[], None], ...]:
        often = [self.post, self.grant_many, self.accept]
        return (*super().operations(), *often * 4, self.attach)

    def grant_many(self) -> None:
        for link in self.random.sample(list(self.links), (len(self.links) + 1) // 2):
            link.grant(self.random.choice((5, 20, 60)))

    def accept(self) -> None:
        for link in self.links:
            link.session.settle_all(self.client.held(link), ACCEPTED)


def single_in(lane: Any) -> list[QueuedMessage]:
    """The messages of a lane that wait and are in no run."""
    lists = [part for part in lane.parts if isinstance(part, list)]
    laid_out = [part.laid_out for part in lane.parts if not isinstance(part, list) and part.laid_out is not None]
    returned = [one for _, one in lane.returned]
    there = chain(lane.line, *lane.blocks, lane.tail, returned, *lists, *laid_out)  # none of them is parked
    return [one for one in there if one.state is NodeState.AVAILABLE]


@pytest.mark.pure
@pytest.mark.parametrize(
    ("kind", "least"),
    [("volatile", 20), ("delayed", 20), ("bounded", 2), ("buckets", 20), ("narrow", 20), ("at once", 10)],
)
@pytest.mark.parametrize("small", [False, True])
def test_a_random_walk_keeps_to_the_order_of_groups_in_runs(
    kind: str, least: int, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = 0
    for seed in range(8):
        with monkeypatch.context() as patch:
            walk = AlikeWalk(seed, kind, patch, small=small)
            for _ in range(80):
                walk.step()
            walk.world.check_journal()
            runs += walk.runs
    assert runs >= least


KINDS = ["volatile", "durable", "delayed", "buckets", "paged", "bounded", "alike", "narrow", "at once"]


@pytest.mark.pure
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_random_walk_keeps_to_the_order_of_groups(
    kind: str, small: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = GroupWalk(seed, kind, monkeypatch, small=small)
    for _ in range(60):
        walk.step()
    walk.world.check_journal()


@pytest.mark.pure
@pytest.mark.parametrize(
    ("kind", "small", "seed", "steps"),
    [
        ("volatile", False, 96, 60),  # a group is closed, and its owner has no room for what is behind
        ("volatile", False, 12, 60),
        ("at once", False, 31, 20),
        ("at once", False, 2124, 65),  # what is aside for another is too large for the owner of its group
        ("narrow", True, 115, 60),  # all that an interest knew to be aside for it is for others
        ("alike", True, 62, 60),  # an owner has something to look for
    ],
)
def test_walks_of_groups_that_few_draws_take(
    kind: str, small: bool, seed: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = GroupWalk(seed, kind, monkeypatch, small=small)
    for _ in range(steps):
        walk.step()

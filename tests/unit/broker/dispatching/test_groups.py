"""Message groups: all messages of one group go to one consumer, in order, while it lives."""

from __future__ import annotations

import random

import pytest

from acquit.broker.dispatching import groups as groups_module
from acquit.broker.dispatching.groups import CLOSING, Groups
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Modified
from acquit.protocol.link import ReceivingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World


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


@pytest.mark.parametrize("seed", range(10))
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

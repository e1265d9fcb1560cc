"""Duplicate detection, as clients meet it."""

from __future__ import annotations

import pytest

from acquit.broker.intake.duplicates import Duplicates, Identity
from acquit.broker.intake.shaping import read_posting
from acquit.broker.message import DURABLE
from acquit.broker.message import Message as Queued
from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions
from acquit.broker.queue import NodeState
from acquit.broker.refusal import Refused
from acquit.ledger.events import EventFlag, EventKind
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Modified
from acquit.protocol.message import Message
from tests.support.broker_world import World, durable, live_of

DUPL = "_AMQ_DUPL_ID"


def with_id(identity: object, body: object = "x", **fields: object) -> Message:
    return durable(body, application_properties={DUPL: identity}, **fields)


def world_with(*rules: AddressRule, **limits: int) -> World:
    return World(BrokerOptions(address=rules, limits=BrokerLimits(**limits)))


def counted(world: World, name: str, kind: EventKind) -> int:
    return world.core.queues.by_name[name].counts[kind]


def test_a_duplicate_is_accepted_and_posts_nothing() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, with_id("a"), with_id("a"), with_id("b"))
    assert [client.outcome(delivery) for delivery in client.answers] == [ACCEPTED] * 3
    assert live_of(world, "q") == 2
    assert counted(world, "q", EventKind.DUPLICATE) == 1
    world.check_journal()


def test_it_is_answered_only_after_the_sync_of_the_first() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    world.settle()
    first, second = client.post(sender, with_id("a"), with_id("a"))
    world.carry()
    assert client.outcome(second) is None
    world.sync()
    world.carry()
    assert (client.outcome(first), client.outcome(second)) == (ACCEPTED, ACCEPTED)
    (third,) = client.post(sender, with_id("a"))
    world.settle()
    assert client.outcome(third) == ACCEPTED


def test_the_id_is_known_although_the_message_has_long_gone() -> None:
    world = World()
    client = world.client()
    client.post_all(client.sender("q"), with_id("a"))
    link = client.receiver("q", credit=10)
    world.settle()
    link.session.settle_all(client.held(link), ACCEPTED)
    world.settle()
    assert live_of(world, "q") == 0
    (delivery,) = client.post(client.sender("q", "again"), with_id("a"))
    world.settle()
    assert client.outcome(delivery) == ACCEPTED
    assert live_of(world, "q") == 0


@pytest.mark.parametrize("end", ["crash", "stop"])
def test_the_id_is_known_after_a_restart(end: str) -> None:
    world = World()
    client = world.client()
    client.post_all(client.sender("q"), with_id("a"))
    world = getattr(world, end)()
    client = world.client()
    client.post_all(client.sender("q"), with_id("a"), with_id("b"))
    assert live_of(world, "q") == 2


def test_what_was_not_synced_is_not_known() -> None:
    world = World()
    client = world.client()
    client.post(client.sender("q"), with_id("a"))
    world.carry()
    world = world.crash()
    client = world.client()
    client.post_all(client.sender("q"), with_id("a"))
    assert live_of(world, "q") == 1
    assert counted(world, "q", EventKind.DUPLICATE) == 0


def test_the_same_id_with_another_body_passes_flagged() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, with_id("a", "one"), with_id("a", "two"), with_id("a", "two"), with_id("a", "one"))
    assert live_of(world, "q") == 2
    flags = [message.flags & EventFlag.ID_REUSED for _, message in sorted(world.fold().messages.items())]
    assert flags == [0, EventFlag.ID_REUSED]
    world = world.crash()
    found = map(world.core.holdings.live, world.core.holdings.sequences())
    assert sum(bool(one.flags & EventFlag.ID_REUSED) for one in found if one is not None) == 1
    world.check_journal()


def test_only_the_body_is_compared() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, with_id("a", message_id="m1"), with_id("a", message_id="m2", priority=7))
    assert live_of(world, "q") == 1


@pytest.mark.parametrize("identity", ["text", b"bytes", 7, "x" * 5_000])
def test_ids_of_many_kinds(identity: object) -> None:
    world = World()
    client = world.client()
    client.post_all(client.sender("q"), with_id(identity), with_id(identity))
    assert live_of(world, "q") == 1
    world = world.crash()
    client = world.client()
    client.post_all(client.sender("q"), with_id(identity))
    assert live_of(world, "q") == 1


def test_message_ids_count_where_the_address_says_so() -> None:
    world = world_with(AddressRule("m", {"duplicate_detection": "message-id"}))
    client = world.client()
    for name in ("m", "n"):
        sender = client.sender(name, name)
        client.post_all(sender, *[durable("x", message_id="one") for _ in range(2)])
    assert (live_of(world, "m"), live_of(world, "n")) == (1, 2)
    world = world.crash()
    client = world.client()
    client.post_all(client.sender("m"), durable("x", message_id="one"), with_id("other", message_id="one"))
    assert live_of(world, "m") == 2


def test_off_means_off() -> None:
    world = world_with(AddressRule("q", {"duplicate_detection": "off"}))
    client = world.client()
    client.post_all(client.sender("q"), with_id("a"), with_id("a"))
    assert live_of(world, "q") == 2
    assert not world.fold().table.windows.by_address


def test_each_address_has_a_window_of_its_own() -> None:
    world = World()
    client = world.client()
    for name in ("q", "r"):
        client.post_all(client.sender(name, name), with_id("a"))
    assert (live_of(world, "q"), live_of(world, "r")) == (1, 1)


def test_a_window_forgets_its_oldest_ids() -> None:
    world = world_with(AddressRule("q", {"duplicate_window": 3}))
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, *[with_id(f"i{number}") for number in range(5)])
    client.post_all(sender, with_id("i2"), with_id("i0"))
    assert live_of(world, "q") == 6
    assert world.fold().table.windows == world.core.scribe.recorder.table.windows


def test_a_window_that_became_smaller_over_a_restart() -> None:
    world = World()
    client = world.client()
    client.post_all(client.sender("q"), *[with_id(f"i{number}") for number in range(5)])
    world.options = BrokerOptions(address=(AddressRule("q", {"duplicate_window": 2}),))
    world = world.crash()
    assert world.core.scribe.recorder.table.windows.ids == 2
    world.settle()
    assert world.fold().table.windows == world.core.scribe.recorder.table.windows
    world.options = BrokerOptions(address=(AddressRule("q", {"duplicate_detection": "off"}),))
    world = world.crash()
    world.settle()
    assert world.fold().table.windows.ids == 0


def test_addresses_that_nobody_posts_to_give_way() -> None:
    world = world_with(duplicate_ids_max=100)
    client = world.client()
    for number in range(30):
        name = f"q{number}"
        client.post_all(client.sender(name, name), *[with_id(f"i{one}") for one in range(10)])
    windows = world.core.scribe.recorder.table.windows
    assert windows.ids <= 100
    assert "q29" in windows.by_address
    assert "q0" not in windows.by_address
    assert world.fold().table.windows == windows


def test_ids_survive_the_checkpoint_of_their_segment() -> None:
    world = World()
    client = world.client()
    client.post_all(client.sender("q"), *[with_id(f"i{number}") for number in range(700)])
    receiver = client.receiver("q", credit=10_000)
    sender = client.sender("fill", "fill")
    link = client.receiver("fill", "drain", credit=10_000)
    for _ in range(90):
        client.post_all(sender, durable(bytes(20_000)))
        link.session.settle_all(client.held(link), ACCEPTED)
        receiver.session.settle_all(client.held(receiver), ACCEPTED)
        world.settle()
    assert world.opened.journal.left_through > 3
    assert live_of(world, "q") == 0
    assert world.fold().table.windows == world.core.scribe.recorder.table.windows
    world = world.crash()
    client = world.client()
    client.post_all(client.sender("q"), *[with_id(f"i{number}") for number in range(0, 700, 7)])
    assert live_of(world, "q") == 0


def test_volatile_ids_are_known_until_the_broker_stops() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    message = Message("x", application_properties={DUPL: "a"})
    client.post_all(sender, message, message)
    assert live_of(world, "q") == 1
    assert counted(world, "q", EventKind.DUPLICATE) == 1
    client.post_all(sender, with_id("a"))
    assert live_of(world, "q") == 2, "a durable posting is no duplicate of a volatile message"
    client.post_all(sender, message)
    assert live_of(world, "q") == 2
    world = world.crash()
    client = world.client()
    client.post_all(client.sender("q"), message)
    assert live_of(world, "q") == 1, "what is durable is known: this posting repeats it"


def test_dead_letters_and_expired_messages_bypass_the_window() -> None:
    world = world_with(AddressRule("#", {"max_delivery_attempts": 1}))
    client = world.client()
    client.post_all(client.sender("DLQ", "dlq"), with_id("a"))
    client.post_all(client.sender("q"), with_id("a"))
    client.post_all(client.sender("ExpiryQueue", "expiry"), with_id("b"))
    client.post_all(client.sender("q", "late"), with_id("b", ttl_ms=5))
    link = client.receiver("q", credit=1)
    world.settle()
    link.session.settle_all(client.held(link), Modified(delivery_failed=True))
    world.settle()
    world.advance(10)
    world.settle()
    assert (live_of(world, "DLQ"), live_of(world, "ExpiryQueue"), live_of(world, "q")) == (2, 2, 0)
    world.check_journal()


# -- transactions, without their protocol -----------------------------------------------------------------------------


class Held:
    """Postings of a transaction, as `transactions` holds them."""

    def __init__(self) -> None:
        self.world = World()
        self.client = self.world.client()
        self.sender = self.client.sender("q")
        self.duplicates: Duplicates = self.world.core.duplicates

    def check(self, identity: str, transaction: object | None, body: str = "x") -> Identity:
        posting = read_posting(with_id(identity, body).encode())
        found = self.duplicates.check(self.world.core.queues.by_name["q"], posting, transaction)
        assert found is not None
        return found

    def hold(self, identity: str, transaction: object, sequence: int, body: str = "x") -> None:
        found = self.check(identity, transaction, body)
        assert not found.first
        self.duplicates.held(found, transaction, sequence)


def test_an_id_that_a_transaction_holds_is_refused_to_others() -> None:
    held = Held()
    held.hold("a", 1, 1_000)
    for transaction in (None, 2):
        with pytest.raises(Refused, match=r"a transaction that has not ended holds"):
            held.check("a", transaction)
    (delivery,) = held.client.post(held.sender, with_id("a"))
    held.world.settle()
    state, settled = held.client.answers[delivery]
    assert settled
    assert "amqp:resource-locked" in repr(state)


def test_within_its_transaction_it_is_a_duplicate() -> None:
    held = Held()
    held.hold("a", 1, 1_000)
    assert held.check("a", 1).first == 1_000
    assert held.check("a", 1, "other").flags == EventFlag.ID_REUSED


def test_a_committed_body_is_a_duplicate_although_another_one_is_held_under_its_id() -> None:
    held = Held()
    held.client.post_all(held.sender, with_id("a"))
    held.hold("a", 1, 1_000, "other")
    for transaction in (None, 1, 2):
        assert 0 < held.check("a", transaction).first < 1_000


def test_a_rollback_frees_the_id() -> None:
    held = Held()
    held.hold("a", 1, 1_000)
    held.duplicates.release(1)
    held.client.post_all(held.sender, with_id("a"))
    assert live_of(held.world, "q") == 1


def test_a_commit_makes_it_final() -> None:
    held = Held()
    for number in range(600):
        held.hold(f"i{number}", 1, 1_000 + number)
    queue = held.world.core.queues.by_name["q"]
    fresh = [Queued(5_000 + n, queue, NodeState.PENDING, None, 0, DURABLE, 4, 0, 0, 0) for n in range(600)]
    held.duplicates.commit(1, {message.sequence - 4_000: message for message in fresh})
    held.world.settle()
    assert held.check("i3", None).first == 5_003
    assert held.check("i3", 2).first == 5_003
    world = held.world.crash()
    assert world.core.scribe.recorder.table.windows.ids == 600
    assert world.core.scribe.recorder.table.windows == held.world.core.scribe.recorder.table.windows

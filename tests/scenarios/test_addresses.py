"""Addresses and queues: one scenario for each thing that an address can be told, by what clients see.

Each scenario is small and plain; the corners are in the tests of the modules. At the end of each, the journal alone
says the same as the broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger.events import EventFlag, EventKind
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Modified, Rejected, Released, Target
from acquit.protocol.delivery import Delivery
from acquit.protocol.link import Link, ReceivingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World, durable, live_of
from tests.support.transacting import Controller

FAILED = Modified(delivery_failed=True)
_names = (f"link {number}" for number in count())

Worlds = list[World]


@pytest.fixture
def worlds() -> Iterator[Worlds]:
    """The worlds of a test, whose journals are held to their brokers at the end."""
    made: Worlds = []
    yield made
    for world in made:
        world.settle()
        world.check_journal()


def world_with(worlds: Worlds, match: str = "#", **settings: object) -> World:
    world = World(BrokerOptions(address=(AddressRule(match, settings),) if settings else ()))
    worlds.append(world)
    return world


def post(client: Client, address: str, *messages: Message) -> list[Delivery]:
    """Post and wait for all answers."""
    link = client.sender(address, next(_names))
    sent = client.post(link, *messages)
    client.world.settle()
    link.detach()
    client.world.settle()
    return sent


def taker(client: Client, address: str, credit: int = 100, **options: object) -> ReceivingLink:
    link = client.receiver(address, next(_names), credit=credit, **options)  # type: ignore[arg-type]
    client.world.settle()
    return link


def decide(client: Client, link: ReceivingLink, outcome: object, number: int = 1_000) -> None:
    link.session.settle_all(client.held(link)[:number], outcome)  # type: ignore[arg-type]
    client.world.settle()


def seen(world: World, address: str) -> list[object]:
    """What a browser sees."""
    client = world.client(next(_names))
    return client.bodies(taker(client, address, 10_000, browse=True))


def condition(client: Client, delivery: Delivery) -> str:
    outcome = client.outcome(delivery)
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    return str(outcome.error.condition)


def why(client: Client, link: Link) -> str:
    error = client.detached[link].error
    assert error is not None
    return str(error.condition)


# -- which node -------------------------------------------------------------------------------------------------------


@pytest.mark.promise("one-holder")
def test_anycast_one_consumer_gets_each_message(worlds: Worlds) -> None:
    world = world_with(worlds)
    client = world.client()
    links = [taker(client, "q", 2) for _ in range(2)]
    post(client, "q", *map(durable, range(4)))
    assert sorted(map(str, client.bodies(links[0]) + client.bodies(links[1]))) == ["0", "1", "2", "3"]


def test_multicast_each_subscription_gets_each_message(worlds: Worlds) -> None:
    world = world_with(worlds)
    client = world.client()
    links = [client.subscriber("t", f"s{number}") for number in range(2)]
    client.post_all(client.publisher("t"), durable("x"))
    assert [client.bodies(link) for link in links] == [["x"], ["x"]]


def test_fully_qualified_one_queue_of_an_address(worlds: Worlds) -> None:
    world = world_with(worlds)
    client = world.client("c")
    client.subscriber("t", "s", durable=True, credit=0)
    client.post_all(client.publisher("t"), durable("x"))
    name = next(name for name in world.core.queues.by_name if name.startswith("t::"))
    assert client.bodies(taker(client, name)) == ["x"]


def test_created_on_first_use_unless_forbidden(worlds: Worlds) -> None:
    world = world_with(worlds, "closed.#", create=False)
    client = world.client()
    assert post(client, "open", durable(1)) and live_of(world, "open") == 1
    link = client.sender("closed.one", "refused")
    world.settle()
    assert why(client, link) == "amqp:not-found"


def test_deleted_again_when_the_policy_says_so(worlds: Worlds) -> None:
    world = world_with(worlds, auto_delete=True)
    client = world.client()
    post(client, "q", durable(1))
    assert "q" in world.core.queues.by_name, "it is not empty"
    link = taker(client, "q")
    decide(client, link, ACCEPTED)
    assert "q" in world.core.queues.by_name, "it is used"
    client.detach(link)
    world.settle()
    assert "q" not in world.core.queues.by_name


@pytest.mark.parametrize(("pattern", "gets"), [("a.*", ["a.b"]), ("a.#", ["a", "a.b", "a.b.c"])])
def test_topic_patterns(worlds: Worlds, pattern: str, gets: list[str]) -> None:
    world = world_with(worlds)
    client = world.client()
    link = client.subscriber(pattern)
    for topic in ("a", "a.b", "a.b.c", "b"):
        client.post_all(client.publisher(topic, topic), durable(topic))
    assert client.bodies(link) == gets


def test_the_most_specific_policy_decides(worlds: Worlds) -> None:
    world = World(
        BrokerOptions(
            address=(
                AddressRule("#", {"ring_size": 1}),
                AddressRule("a.#", {"ring_size": 2}),
                AddressRule("a.*", {"ring_size": 3}),
                AddressRule("a.b", {"ring_size": 4}),
            )
        )
    )
    worlds.append(world)
    client = world.client()
    for size, address in enumerate(("x", "a.b.c", "a.c", "a.b"), start=1):
        post(client, address, *map(durable, range(6)))
        assert live_of(world, address) == size


def test_temporary_nodes_go_with_their_link(worlds: Worlds) -> None:
    world = world_with(worlds)
    client = world.client()
    link = client.sender(None, "temporary", target=Target(dynamic=True, capabilities=("temporary-queue",)))
    world.settle()
    address = link.target.address  # type: ignore[union-attr]
    assert address in world.core.queues.by_name
    client.detach(link)
    world.settle()
    assert address not in world.core.queues.by_name


def test_the_anonymous_terminus_goes_by_the_message(worlds: Worlds) -> None:
    world = world_with(worlds)
    client = world.client()
    link = client.sender(None, "anywhere")
    client.post_all(link, durable(1, to="a"), durable(2, to="b"))
    assert (seen(world, "a"), seen(world, "b")) == ([1], [2])


def test_a_link_attached_twice_is_stolen(worlds: Worlds) -> None:
    world = world_with(worlds)
    first, second = world.client("same"), world.client("same")
    old = first.receiver("q", "link", credit=1)
    second.receiver("q", "link", credit=1)
    world.settle()
    assert why(first, old) == "amqp:link:stolen"


def test_the_default_idle_time_out_is_half_a_minute() -> None:
    assert BrokerOptions().connection.idle_timeout_ms == 30_000


# -- where messages go that nobody takes ------------------------------------------------------------------------------


def test_dead_letter_address(worlds: Worlds) -> None:
    world = world_with(worlds, "q", dead_letter_address="dead")
    client = world.client()
    post(client, "q", durable("x"))
    decide(client, taker(client, "q"), Rejected())
    assert seen(world, "dead") == ["x"]


def test_expiry_address(worlds: Worlds) -> None:
    world = world_with(worlds, "q", expiry_address="late")
    post(world.client(), "q", durable("x", ttl_ms=10))
    world.advance(20)
    world.settle()
    assert seen(world, "late") == ["x"]


@pytest.mark.promise("attempts")
def test_max_delivery_attempts(worlds: Worlds) -> None:
    world = world_with(worlds, "q", max_delivery_attempts=2)
    client = world.client()
    post(client, "q", durable("x"))
    link = taker(client, "q")
    decide(client, link, FAILED)
    assert seen(world, "DLQ") == []
    decide(client, link, FAILED)
    assert seen(world, "DLQ") == ["x"]


@pytest.mark.promise("attempts")
@pytest.mark.parametrize(("setting", "dead"), [("count", []), ("dead-letter", ["x"])])
def test_connection_loss(worlds: Worlds, setting: str, dead: list[object]) -> None:
    world = world_with(worlds, "q", max_delivery_attempts=1, connection_loss=setting)
    client = world.client()
    post(client, "q", durable("x"))
    taker(client, "q")
    client.lose()
    world.settle()
    assert seen(world, "DLQ") == dead


def test_redelivery_delay_multiplier_maximum_and_jitter(worlds: Worlds) -> None:
    world = world_with(worlds, "q", redelivery_delay_ms=100, redelivery_multiplier=2.0, redelivery_delay_ms_max=150)
    client = world.client()
    post(client, "q", durable("x"))
    link = taker(client, "q")
    for delay in (100, 150, 150):
        decide(client, link, FAILED)
        before = len(client.received[link])
        world.advance(delay - 1)
        assert len(client.received[link]) == before
        world.advance(1)
        world.settle()
        assert len(client.received[link]) == before + 1


def test_default_and_maximum_ttl(worlds: Worlds) -> None:
    world = world_with(worlds, "q", default_ttl_ms=50, ttl_ms_max=100, expiry_address="")
    post(world.client(), "q", durable("default"), durable("cut", ttl_ms=10_000))
    world.advance(60)
    world.settle()
    assert seen(world, "q") == ["cut"]
    world.advance(50)
    world.settle()
    assert seen(world, "q") == []


def test_lock_duration(worlds: Worlds) -> None:
    world = world_with(worlds, "q", lock_duration_ms=100)
    client = world.client()
    post(client, "q", durable("x"))
    taker(client, "q", 1)
    other = taker(world.client("other"), "q", 1)
    world.advance(101)
    world.settle()
    assert [len(one.received.get(other, [])) for one in world.clients] == [0, 1]


# -- size limits ------------------------------------------------------------------------------------------------------


def test_full_policy_page(worlds: Worlds) -> None:
    world = world_with(worlds, "q", bytes_max=5_000, full_policy="page")
    client = world.client()
    post(client, "q", *[durable(bytes(1_000)) for _ in range(50)])
    queue = world.core.queues.by_name["q"]
    assert queue.live == 50
    assert queue.memory_bytes < 10_000
    assert len(client.bodies(taker(client, "q"))) == 50


def test_full_policy_block(worlds: Worlds) -> None:
    world = world_with(worlds, "q", messages_max=2, full_policy="block")
    client = world.client()
    link = client.sender("q", "blocked")
    client.post_all(link, durable(1), durable(2))
    assert link.credit == 0
    decide(client, taker(client, "q"), ACCEPTED)
    assert link.credit > 0


def test_full_policy_reject(worlds: Worlds) -> None:
    world = world_with(worlds, "q", messages_max=2, full_policy="reject")
    client = world.client()
    *taken, refused = post(client, "q", durable(1), durable(2), durable(3))
    assert [client.outcome(one) for one in taken] == [ACCEPTED, ACCEPTED]
    assert condition(client, refused) == "amqp:resource-limit-exceeded"


def test_full_policy_drop_oldest(worlds: Worlds) -> None:
    world = world_with(worlds, "q", messages_max=2, full_policy="drop-oldest")
    client = world.client()
    assert [client.outcome(one) for one in post(client, "q", *map(durable, range(3)))] == [ACCEPTED] * 3
    assert seen(world, "q") == [1, 2]
    assert world.core.queues.by_name["q"].counts[EventKind.DISPLACED] == 1


def test_last_value(worlds: Worlds) -> None:
    world = world_with(worlds, "q", last_value=True)
    posted = [
        durable(body, application_properties={"_AMQ_LVQ_NAME": key}) for key, body in (("a", 1), ("b", 2), ("a", 3))
    ]
    post(world.client(), "q", *posted)
    assert seen(world, "q") == [2, 3]


def test_ring(worlds: Worlds) -> None:
    world = world_with(worlds, "q", ring_size=2)
    post(world.client(), "q", *map(durable, range(5)))
    assert seen(world, "q") == [3, 4]


# -- who gets what ----------------------------------------------------------------------------------------------------


def test_non_destructive(worlds: Worlds) -> None:
    world = world_with(worlds, "q", non_destructive=True)
    client = world.client()
    post(client, "q", durable("x"))
    for _ in range(2):
        link = taker(client, "q")
        assert client.bodies(link) == ["x"]
        decide(client, link, ACCEPTED)
    assert live_of(world, "q") == 1


def test_exclusive(worlds: Worlds) -> None:
    world = world_with(worlds, "q", consumers="exclusive")
    client = world.client()
    taker(client, "q", 1)
    other = taker(client, "q", 1)
    assert other in client.detached


def test_single_active(worlds: Worlds) -> None:
    world = world_with(worlds, "q", consumers="single-active")
    client = world.client()
    first, second = taker(client, "q"), taker(client, "q")
    post(client, "q", durable(1), durable(2))
    assert (client.bodies(first), client.bodies(second)) == ([1, 2], [])
    client.detach(first)
    world.settle()
    assert client.bodies(second) == [1, 2]


def test_message_groups(worlds: Worlds) -> None:
    world = world_with(worlds)
    client = world.client()
    links = [taker(client, "q", 100) for _ in range(2)]
    posted = [durable(f"{group}{number}", group_id=group) for number in range(4) for group in "ab"]
    post(client, "q", *posted)
    bodies = [client.bodies(link) for link in links]
    assert sorted(map(len, bodies)) == [4, 4]
    assert all(len({str(body)[0] for body in one}) == 1 for one in bodies), "each group has one consumer"


def test_consumer_priority(worlds: Worlds) -> None:
    world = world_with(worlds)
    client = world.client()
    low = taker(client, "q", 100, properties={"rabbitmq:priority": 1})
    high = taker(client, "q", 100, properties={"rabbitmq:priority": 5})
    post(client, "q", durable(1), durable(2))
    assert (client.bodies(low), client.bodies(high)) == ([], [1, 2])


@pytest.mark.promise("order")
def test_message_priorities(worlds: Worlds) -> None:
    world = world_with(worlds)
    client = world.client()
    post(client, "q", durable("low", priority=1), durable("high", priority=9), durable("middle"))
    assert client.bodies(taker(client, "q")) == ["high", "middle", "low"]


def test_prefetch_cap(worlds: Worlds) -> None:
    world = world_with(worlds, "q", prefetch_max=2)
    client = world.client()
    post(client, "q", *map(durable, range(5)))
    link = taker(client, "q", 100)
    assert len(client.held(link)) == 2
    decide(client, link, ACCEPTED, 1)
    assert len(client.held(link)) == 2


@pytest.mark.parametrize("setting", ["accept", "release"])
def test_unroutable(worlds: Worlds, setting: str) -> None:
    world = world_with(worlds, "t", unroutable=setting)
    client = world.client()
    (delivery,) = client.post(client.publisher("t"), durable("x"))
    world.settle()
    assert isinstance(client.outcome(delivery), Released) == (setting == "release")
    assert world.core.topics.by_address["t"].counts[EventKind.UNROUTED] == (setting == "accept")


# -- duplicate detection ----------------------------------------------------------------------------------------------


def identified(identity: object, body: object = "x") -> Message:
    return durable(body, application_properties={"_AMQ_DUPL_ID": identity})


@pytest.fixture
def told_twice(worlds: Worlds) -> tuple[World, Client]:
    world = world_with(worlds)
    client = world.client()
    post(client, "q", identified("a"))
    return world, client


@pytest.mark.promise("duplicates")
def test_a_duplicate_is_accepted_after_the_first_postings_sync_and_posts_nothing(worlds: Worlds) -> None:
    world = world_with(worlds)
    client = world.client()
    link = client.sender("q", "twice")
    world.settle()
    sent = client.post(link, identified("a"), identified("a"))
    world.carry()
    assert [client.outcome(one) for one in sent] == [None, None]
    world.settle()
    assert [client.outcome(one) for one in sent] == [ACCEPTED, ACCEPTED]
    assert live_of(world, "q") == 1


@pytest.mark.promise("duplicates")
def test_the_window_is_part_of_the_fold(told_twice: tuple[World, Client], worlds: Worlds) -> None:
    world, _ = told_twice
    assert world.fold().table.windows == world.core.scribe.recorder.table.windows
    world = world.crash()
    worlds.append(world)
    post(world.client(), "q", identified("a"))
    assert live_of(world, "q") == 1


@pytest.mark.promise("duplicates")
def test_in_a_transaction_an_id_is_final_at_commit(worlds: Worlds) -> None:
    world = world_with(worlds)
    client = world.client()
    control = Controller(client)
    link = client.sender("q", "transacted")
    txn_id = control.declare()
    control.post(link, txn_id, identified("a"))
    (other,) = client.post(link, identified("a"))
    world.settle()
    assert condition(client, other) == "amqp:resource-locked", "a live transaction holds it"
    assert control.commit(txn_id) is None
    post(client, "q", identified("a"))
    assert live_of(world, "q") == 1
    assert world.fold().table.windows == world.core.scribe.recorder.table.windows
    world = world.crash()
    worlds.append(world)
    post(world.client(), "q", identified("a"))
    assert live_of(world, "q") == 1


@pytest.mark.promise("duplicates")
def test_in_a_transaction_an_id_is_freed_at_rollback(worlds: Worlds) -> None:
    world = world_with(worlds)
    client = world.client()
    control = Controller(client)
    txn_id = control.declare()
    control.post(client.sender("q", "transacted"), txn_id, identified("a"))
    control.roll_back(txn_id)
    post(client, "q", identified("a"))
    assert live_of(world, "q") == 1


def test_a_duplicate_of_a_committed_id_is_provisionally_accepted_and_posts_nothing(
    told_twice: tuple[World, Client],
) -> None:
    world, client = told_twice
    control = Controller(client)
    txn_id = control.declare()
    (sent,) = control.post(client.sender("q", "transacted"), txn_id, identified("a"))
    world.settle()
    assert control.provisional(sent) == ACCEPTED
    assert control.commit(txn_id) is None
    assert live_of(world, "q") == 1


@pytest.mark.promise("duplicates")
def test_of_an_id_that_another_live_transaction_holds_it_is_rejected(worlds: Worlds) -> None:
    world = world_with(worlds)
    client = world.client()
    control = Controller(client)
    link = client.sender("q", "transacted")
    first, second = control.declare(), control.declare()
    control.post(link, first, identified("a"))
    (sent,) = control.post(link, second, identified("a"))
    world.settle()
    assert isinstance(control.provisional(sent), Rejected)
    control.commit(first)
    assert live_of(world, "q") == 1


@pytest.mark.promise("duplicates")
def test_the_same_id_with_a_different_body_passes_flagged(told_twice: tuple[World, Client]) -> None:
    world, client = told_twice
    post(client, "q", identified("a", "another"))
    assert seen(world, "q") == ["x", "another"]
    assert sum(bool(message.flags & EventFlag.ID_REUSED) for message in world.fold().messages.values()) == 1


def test_dead_letters_and_moves_bypass_the_window(told_twice: tuple[World, Client]) -> None:
    world, client = told_twice
    post(client, "DLQ", identified("a"))
    decide(client, taker(client, "q"), Rejected())
    assert live_of(world, "DLQ") == 2
    world.core.administration.move("DLQ", "q", None, messages_max=None, selector=None)
    world.settle()
    assert live_of(world, "q") == 2


def test_topics_have_one_window_an_address(worlds: Worlds) -> None:
    world = world_with(worlds)
    client = world.client("c")
    links = [client.subscriber("t", f"s{number}", durable=True) for number in range(2)]
    client.post_all(client.publisher("t"), identified("a"), identified("a"))
    assert [client.bodies(link) for link in links] == [["x"], ["x"]]
    assert world.core.topics.by_address["t"].counts[EventKind.DUPLICATE] == 1


def test_a_topic_with_volatile_subscriptions_alone_has_a_window_too(worlds: Worlds) -> None:
    world = world_with(worlds)
    client = world.client("c")
    link = client.subscriber("t")
    client.post_all(client.publisher("t"), identified("a"), identified("a"))
    assert client.bodies(link) == ["x"]


def test_the_sequence_is_unique_and_stable_over_redeliveries(worlds: Worlds) -> None:
    world = world_with(worlds)
    client = world.client()
    post(client, "q", durable(1), durable(2))
    link = taker(client, "q")
    decide(client, link, FAILED)
    told = [Message.decode(one.payload).annotations["x-opt-acquit-sequence"] for one in client.received[link]]
    assert told[:2] == told[2:]
    assert len(set(told)) == 2

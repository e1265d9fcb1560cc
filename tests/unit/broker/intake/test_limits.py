"""Size limits, rings and last values, as clients meet them."""

from __future__ import annotations

import pytest

from acquit.broker.intake.limits import STEP, VALUE_BYTES_MAX
from acquit.broker.message import OVERHEAD_BYTES
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger.events import EventKind
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Modified, Rejected
from acquit.protocol.message import Message
from tests.support.broker_world import START_US, Client, World, durable, live_of
from tests.support.transacting import Controller

KEY = "_AMQ_LVQ_NAME"


def world_with(**settings: object) -> World:
    return World(BrokerOptions(address=(AddressRule("q", settings),)))


def bodies(world: World, name: str = "q") -> list[object]:
    """What a browser sees."""
    client = world.client(f"looks-{world.now_us}-{len(world.clients)}")
    link = client.receiver(name, credit=10_000, browse=True)
    world.settle()
    return client.bodies(link)


def displaced(world: World, name: str = "q") -> int:
    return world.core.queues.by_name[name].counts[EventKind.DISPLACED]


def condition(client: Client, delivery: object) -> str:
    outcome = client.outcome(delivery)  # type: ignore[arg-type]
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    return str(outcome.error.condition)


def valued(key: object, body: object, **fields: object) -> Message:
    return durable(body, application_properties={KEY: key}, **fields)


# -- full policies ----------------------------------------------------------------------------------------------------


def test_block_gives_no_credit_at_the_limit_and_some_when_there_is_room() -> None:
    world = world_with(messages_max=10)
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, *[durable(number) for number in range(10)])
    assert sender.credit == 0
    link = client.receiver("q", credit=4)
    world.settle()
    link.session.settle_all(client.held(link), ACCEPTED)
    world.settle()
    assert 0 < sender.credit <= 4


def test_block_refuses_what_overshoots() -> None:
    world = world_with(messages_max=3)
    client = world.client()
    sender = client.sender("q")
    other = client.sender("q", "other")
    client.post_all(sender, durable(1), durable(2))
    posted = client.post(sender, *[durable(3)] * sender.credit) + client.post(other, *[durable(4)] * other.credit)
    world.settle()
    outcomes = [client.outcome(delivery) for delivery in posted]
    assert outcomes.count(ACCEPTED) == 1
    assert len(posted) > 1
    refused = next(delivery for delivery in posted if client.outcome(delivery) != ACCEPTED)
    assert condition(client, refused) == "amqp:resource-limit-exceeded"
    assert live_of(world, "q") == 3


def test_many_senders_to_a_small_queue_still_get_a_turn() -> None:
    world = world_with(bytes_max=20_000)
    client = world.client()
    senders = [client.sender("q", f"s{number}") for number in range(40)]
    world.settle()
    assert all(sender.credit for sender in senders)


@pytest.mark.parametrize("limit", [{"messages_max": 3}, {"bytes_max": 3 * 1_060}])
def test_reject_gives_credit_and_says_no(limit: dict[str, int]) -> None:
    world = world_with(full_policy="reject", **limit)
    client = world.client()
    sender = client.sender("q")
    posted = [client.post(sender, durable(bytes(1_000)))[0] for _ in range(6)]
    world.settle()
    assert sender.credit > 100
    assert [client.outcome(delivery) == ACCEPTED for delivery in posted].count(True) <= 3
    assert condition(client, posted[-1]) == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize(
    ("settings", "is_durable", "most"),
    [
        ({"full_policy": "block", "bytes_max": 9_000}, True, 9_000),
        ({"full_policy": "reject", "bytes_max": 1_000}, False, 1_000),
        ({"full_policy": "drop-oldest", "bytes_max": 1_000}, True, 1_000),
        ({"memory_bytes_max": 65_536}, False, 65_536 - OVERHEAD_BYTES),
    ],
)
@pytest.mark.parametrize("way", ["a group", "alone", "a transaction", "a topic"])
def test_what_an_empty_queue_would_not_take_is_not_told_to_come_again(
    settings: dict[str, object], is_durable: bool, most: int, way: str
) -> None:
    world = world_with(routing="multicast" if way == "a topic" else "anycast", **settings)
    client = world.client()
    client.receiver("q", credit=0)
    sender = client.sender("q")
    world.settle()
    expiry = START_US // 1000 + 60_000 if way == "alone" else None
    besides = len(Message(bytes(300), durable=is_durable, absolute_expiry_time=expiry).encode()) - 300
    too_large, fits = (
        Message(bytes(most - besides + more), durable=is_durable, absolute_expiry_time=expiry) for more in (1, 0)
    )
    answers: list[object]
    if way == "a transaction":
        controller = Controller(client)
        posted = controller.post(sender, controller.declare(), too_large, fits)
        world.settle()
        answers = [controller.provisional(one) for one in posted]
    else:
        posted = client.post(sender, too_large, fits)
        world.settle()
        answers = [client.outcome(one) for one in posted]
    refused, taken = answers
    assert taken == ACCEPTED
    assert isinstance(refused, Rejected)
    assert refused.error is not None
    assert refused.error.condition == "amqp:link:message-size-exceeded"
    assert refused.error.description is not None
    assert refused.error.description.startswith(f"the message has {most + 1:,} bytes: ")
    assert refused.error.description.endswith(f" takes at most {most:,}")


@pytest.mark.parametrize("limit", [{"messages_max": 3}, {"bytes_max": 65_536}, {"memory_bytes_max": 65_536}])
@pytest.mark.parametrize("kinds", ["pps", "ppsp", "ppppsp", "spsppp", "pspspsps", "ssspp"])
@pytest.mark.parametrize("is_durable", [True, False, None], ids=["durable", "volatile", "in turns"])
def test_a_group_of_all_kinds_finds_the_room_that_each_alone_would_find(
    limit: dict[str, int], kinds: str, is_durable: bool | None
) -> None:
    """Messages that say nothing special (p) are counted as a group, others (s) one by one."""
    taken = []
    for together in (True, False):
        world = world_with(full_policy="reject", **limit)
        client = world.client()
        sender = client.sender("q")
        messages = [
            Message(
                bytes(20_000),
                durable=number % 2 == 0 if is_durable is None else is_durable,
                absolute_expiry_time=START_US // 1000 + 60_000 if kind == "s" else None,
            )
            for number, kind in enumerate(kinds)
        ]
        posted = client.post(sender, *messages) if together else [client.post(sender, each)[0] for each in messages]
        world.settle()
        taken.append([client.outcome(delivery) == ACCEPTED for delivery in posted])
    assert taken[0] == taken[1]
    assert len(kinds) <= 3 or not all(taken[0]) or (is_durable is not False and "memory_bytes_max" in limit)


@pytest.mark.parametrize("full_policy", ["block", "reject"])
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("spare", [0, 1])
def test_the_limit_counts_bytes_as_posted(full_policy: str, special: bool, together: bool, spare: int) -> None:
    """Not what they cost in memory. Exactly as many fit, in a transaction or not, looked at by themselves or not."""
    message = durable(bytes(100), absolute_expiry_time=START_US // 1000 + 60_000 if special else None)
    size = len(message.encode())
    world = world_with(full_policy=full_policy, bytes_max=3 * size - spare)
    client = world.client()
    senders = [client.sender("q", f"s{number}") for number in range(4)]
    if together and full_policy == "reject":
        posted = client.post(senders[0], *[message] * 4)
    else:
        posted = [client.post(sender, message)[0] for sender in senders]
    world.settle()
    assert [client.outcome(one) == ACCEPTED for one in posted] == [True, True, not spare, False]
    assert condition(client, posted[-1]) == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize("limit", [{"messages_max": 4}, {"bytes_max": 4 * 1_040}])
def test_page_bounds_memory_alone(limit: dict[str, int]) -> None:
    world = world_with(full_policy="page", **limit)
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, *[durable(b"%04d" % number + bytes(1_000)) for number in range(200)])
    queue = world.core.queues.by_name["q"]
    assert queue.live == 200
    assert queue.memory_bytes < 20 * 1_500
    link = client.receiver("q", credit=1_000)
    world.settle()
    assert [body[:4] for body in map(_data, client.bodies(link))] == [b"%04d" % number for number in range(200)]


def _data(body: object) -> bytes:
    return bytes(body.data) if hasattr(body, "data") else bytes(body)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("limit", [{"messages_max": 3}, {"bytes_max": 80}])
def test_drop_oldest_makes_room(limit: dict[str, int]) -> None:
    world = world_with(full_policy="drop-oldest", **limit)
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, *[durable(f"body {number:08}") for number in range(10)])
    assert bodies(world) == ["body 00000007", "body 00000008", "body 00000009"]
    assert displaced(world) == 7
    world.check_journal()
    world = world.crash()
    assert bodies(world) == ["body 00000007", "body 00000008", "body 00000009"]


def test_drop_oldest_takes_what_is_posted_in_one_turn() -> None:
    world = world_with(full_policy="drop-oldest", messages_max=3)
    client = world.client()
    sender = client.sender("q")
    posted = client.post(sender, *[durable(number) for number in range(50)])
    world.settle()
    assert {repr(client.outcome(delivery)) for delivery in posted} == {repr(ACCEPTED)}
    assert bodies(world) == [47, 48, 49]


@pytest.mark.parametrize("limit", [{"messages_max": 3}, {"bytes_max": 1_200}])
def test_drop_oldest_holds_for_what_waits_for_its_time(limit: dict[str, int]) -> None:
    world = world_with(full_policy="drop-oldest", redelivery_delay_ms=5_000, **limit)
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, durable(bytes(300)))
    link = client.receiver("q", credit=1)
    world.settle()
    later = [durable(bytes([number] * 300), annotations={"x-opt-delivery-delay": 9_000}) for number in range(20)]
    client.post_all(sender, *later)
    assert live_of(world, "q") == 3
    client.held(link)[0].settle(Modified(delivery_failed=True))
    world.settle()
    client.post_all(sender, durable(bytes([20] * 300)))
    world.advance(9_000)
    assert bodies(world) == [bytes([number] * 300) for number in (18, 19, 20)]
    world.check_journal()


def test_of_what_waits_for_its_time_that_which_was_posted_first_goes() -> None:
    world = world_with(full_policy="drop-oldest", redelivery_delay_ms=5_000, messages_max=3)
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, *[durable(number) for number in range(3)])
    link = client.receiver("q", credit=3)
    world.settle()
    for delivery in reversed(client.held(link)):
        delivery.settle(Modified(delivery_failed=True))
        world.settle()
    client.post_all(sender, durable(3, annotations={"x-opt-delivery-delay": 5_000}))
    world.advance(5_000)
    assert bodies(world) == [1, 2, 3]
    world.check_journal()


def test_the_last_that_can_be_had_goes_before_a_newer_one_that_waits_for_its_time() -> None:
    world = world_with(full_policy="drop-oldest", messages_max=1)
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, durable(0))
    client.post_all(sender, durable(1, annotations={"x-opt-delivery-delay": 5_000}))
    assert (live_of(world, "q"), bodies(world)) == (1, [])
    world.advance(5_000)
    assert bodies(world) == [1]


def test_drop_oldest_skips_what_is_acquired_and_keeps_the_newest() -> None:
    world = world_with(full_policy="drop-oldest", messages_max=3)
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, *[durable(number) for number in range(3)])
    link = client.receiver("q", credit=3)
    world.settle()
    client.post_all(sender, durable(3), durable(4))
    assert bodies(world)[-1] == 4
    assert live_of(world, "q") == 4
    link.session.settle_all(client.held(link), RELEASED)
    world.settle()
    assert live_of(world, "q") == 3
    assert bodies(world) == [1, 2, 4], "message 3 was displaced while the others were held"


def test_dead_letters_are_never_refused() -> None:
    world = World(BrokerOptions(address=(AddressRule("DLQ", {"messages_max": 1, "full_policy": "reject"}),)))
    client = world.client()
    client.post_all(client.sender("q"), *[durable(number) for number in range(3)])
    link = client.receiver("q", credit=3)
    world.settle()
    link.session.settle_all(client.held(link), Rejected())
    world.settle()
    assert (live_of(world, "q"), live_of(world, "DLQ")) == (0, 3)


def test_dead_letters_are_displaced_as_the_policy_says() -> None:
    world = World(BrokerOptions(address=(AddressRule("DLQ", {"ring_size": 2}),)))
    client = world.client()
    client.post_all(client.sender("q"), *[durable(number) for number in range(3)])
    link = client.receiver("q", credit=3)
    world.settle()
    link.session.settle_all(client.held(link), Rejected())
    world.settle()
    assert bodies(world, "DLQ") == [1, 2]
    world.check_journal()


# -- ring -------------------------------------------------------------------------------------------------------------


def test_a_ring_keeps_the_newest() -> None:
    world = world_with(ring_size=3)
    client = world.client()
    client.post_all(client.sender("q"), *[durable(number) for number in range(10)])
    assert bodies(world) == [7, 8, 9]
    assert displaced(world) == 7
    world.check_journal()


def test_a_ring_goes_by_age_and_not_by_priority() -> None:
    world = world_with(ring_size=2)
    client = world.client()
    for number, priority in enumerate((9, 4, 1)):
        client.post_all(client.sender("q", f"s{number}"), durable(number, priority=priority))
    assert sorted(map(str, bodies(world))) == ["1", "2"]


def test_what_is_acquired_does_not_count_until_it_comes_back() -> None:
    world = world_with(ring_size=2)
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, durable(0), durable(1))
    link = client.receiver("q", credit=2)
    world.settle()
    client.post_all(sender, durable(2), durable(3))
    assert live_of(world, "q") == 4
    first, second = client.held(link)
    link.session.settle_all([first], Modified(delivery_failed=True))
    world.settle()
    assert live_of(world, "q") == 3, "0 came back to a full ring"
    link.session.settle_all([second], ACCEPTED)
    world.settle()
    assert bodies(world) == [2, 3]
    assert displaced(world) == 1


def test_a_ring_of_volatile_messages() -> None:
    world = world_with(ring_size=2)
    client = world.client()
    client.post_all(client.sender("q"), *[Message(number) for number in range(5)])
    assert bodies(world) == [3, 4]
    assert displaced(world) == 3


def test_what_is_set_aside_is_displaced_too() -> None:
    world = world_with(ring_size=3)
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, durable(0))
    link = client.receiver("q", credit=1)
    world.settle()
    link.session.settle_all(client.held(link), Modified(delivery_failed=True, undeliverable_here=True))
    link.grant(0)
    world.settle()
    client.post_all(sender, *[durable(number) for number in range(1, 5)])
    assert bodies(world) == [2, 3, 4]


# -- last value -------------------------------------------------------------------------------------------------------


def test_the_newest_of_each_value_stays() -> None:
    world = world_with(last_value=True)
    client = world.client()
    client.post_all(
        client.sender("q"), valued("a", 1), valued("b", 2), valued("a", 3), durable("no value"), valued("a", 4)
    )
    assert bodies(world) == [2, "no value", 4]
    assert displaced(world) == 2
    world.check_journal()


def test_another_property_may_be_the_key() -> None:
    world = world_with(last_value=True, last_value_key="symbol")
    client = world.client()
    posted = [durable(number, application_properties={"symbol": "ACME", KEY: number}) for number in range(3)]
    client.post_all(client.sender("q"), *posted)
    assert bodies(world) == [2]


def test_the_old_value_is_there_until_the_new_one_is_on_the_disk() -> None:
    world = world_with(last_value=True)
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, valued("a", 1))
    client.post(sender, valued("a", 2))
    world.carry()
    assert displaced(world) == 0
    crashed = world.crash()
    assert bodies(crashed) == [1]
    world.settle()
    assert bodies(world) == [2]


def test_an_acquired_old_value_is_displaced_as_it_comes_back() -> None:
    world = world_with(last_value=True)
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, valued("a", 1))
    link = client.receiver("q", credit=1)
    world.settle()
    client.post_all(sender, valued("a", 2))
    assert live_of(world, "q") == 2
    link.session.settle_all(client.held(link), RELEASED)
    world.settle()
    assert bodies(world) == [2]
    assert displaced(world) == 1


def test_an_old_value_stays_when_the_new_one_has_been_taken() -> None:
    world = world_with(last_value=True)
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, valued("a", 1))
    old = client.receiver("q", "old", credit=1)
    world.settle()
    client.post_all(sender, valued("a", 2))
    new = client.receiver("q", "new", credit=1)
    world.settle()
    new.session.settle_all(client.held(new), ACCEPTED)
    world.settle()
    old.session.settle_all(client.held(old), RELEASED)
    world.settle()
    assert live_of(world, "q") == 1
    assert displaced(world) == 0


@pytest.mark.parametrize("end", ["crash", "stop"])
def test_values_are_known_after_a_restart(end: str) -> None:
    world = world_with(last_value=True)
    client = world.client()
    client.post_all(client.sender("q"), valued("a", 1), valued("b", 2))
    world = getattr(world, end)()
    client = world.client()
    client.post_all(client.sender("q"), valued("a", 3))
    assert bodies(world) == [2, 3]
    world.check_journal()


def test_what_was_acquired_when_the_broker_ended_is_displaced_too() -> None:
    world = world_with(last_value=True)
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, valued("a", 1), valued("b", 2))
    client.receiver("q", credit=2)
    world.settle()
    client.post_all(sender, valued("a", 3), valued("b", 4))
    assert live_of(world, "q") == 4
    world = world.crash()
    assert bodies(world) == [3, 4]
    assert displaced(world) == 2
    world.check_journal()


@pytest.mark.parametrize(("newer", "change"), [("held", "off and on"), ("delayed", "off and on"), ("delayed", "crash")])
def test_a_newer_value_that_nobody_can_have_now_is_known_all_the_same(newer: str, change: str) -> None:
    world = world_with(last_value=True, redelivery_delay_ms=1_000, redelivery_multiplier=5.0)
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, valued("a", 1))
    link = client.receiver("q", credit=1)
    world.settle()
    client.post_all(sender, valued("a", 2))
    link.grant(1)
    world.settle()
    old = client.held(link)[0]
    for _ in range(2 if newer == "delayed" else 0):
        client.held(link)[1].settle(Modified(delivery_failed=True))
        world.settle()
        world.advance(1_000)
        link.grant(1)
        world.settle()
    if change == "crash":
        world = world.crash()
        world.advance(1_000)
    else:
        for on in (False, True):
            world.core.administration.put_rule("q", {"last_value": on})
            world.settle()
        old.settle(RELEASED)
    world.settle()
    assert (bodies(world), displaced(world)) == ([], 1)
    world.check_journal()


def test_values_survive_the_checkpoint_of_their_segment() -> None:
    world = world_with(last_value=True)
    client = world.client()
    client.post_all(client.sender("q"), valued("a", 1))
    sender = client.sender("fill", "fill")
    link = client.receiver("fill", "drain", credit=10_000)
    for _ in range(90):
        client.post_all(sender, durable(bytes(20_000)))
        link.session.settle_all(client.held(link), ACCEPTED)
        world.settle()
    assert world.opened.journal.left_through > 3
    world.check_journal()
    world = world.crash()
    client = world.client()
    client.post_all(client.sender("q"), valued("a", 2))
    assert bodies(world) == [2]


def test_a_value_that_is_too_long_is_refused() -> None:
    world = world_with(last_value=True)
    client = world.client()
    (delivery,) = client.post(client.sender("q"), valued("x" * (VALUE_BYTES_MAX + 1), 1))
    world.settle()
    assert condition(client, delivery) == "amqp:invalid-field"


def test_many_values_are_displaced_over_several_turns() -> None:
    world = world_with(ring_size=1)
    queue_of = world.core.queues.by_name
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, Message(0))
    queue = queue_of["q"]
    kept = queue.displaces
    queue.displaces = False
    client.post_all(sender, *[Message(number) for number in range(STEP + 10)])
    assert queue.available == STEP + 11
    queue.displaces = kept
    world.core.life.wake(queue)
    assert world.core.turn(world.now_us)
    assert 1 < queue.available <= 11
    world.carry()
    assert queue.available == 1


def test_older_values_that_one_turn_leaves_over_are_displaced_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acquit.broker.intake.limits.STEP", 5)
    world = world_with(last_value_key=KEY, last_value=True)
    client = world.client()
    client.post(client.sender("q"), *(valued("a", number) for number in range(30)))
    world.settle()
    assert bodies(world) == [29]

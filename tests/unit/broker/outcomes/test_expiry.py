"""What time does to messages."""

from __future__ import annotations

import pytest

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.broker.outcomes.expiry import COPIES_MAX, READS_MAX, RETRY_MS
from acquit.errors import StoreFull
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Modified, Target, TransactionalState
from acquit.protocol.message import Message
from acquit.protocol.types import Timestamp
from tests.support.broker_world import World, durable, live_of
from tests.support.transacting import Controller

FAILED = Modified(delivery_failed=True)


def rules(**settings: object) -> BrokerOptions:
    return BrokerOptions(address=(AddressRule("#", settings),))


def test_a_paged_backlog_that_expires_reads_some_at_a_time() -> None:
    world = World(rules(memory_bytes_max=65_536))
    client = world.client()
    client.post_all(client.sender("q"), *(durable(bytes(1_000), ttl_ms=5_000) for _ in range(4 * READS_MAX)))
    queue = world.core.queues.by_name["q"]
    absent = sum(message.body is None for message in queue.backlog.next_messages())
    assert absent > 2 * READS_MAX
    world.now_us += 6_000_000
    most = turns = 0
    while live_of(world, "q"):
        turns += 1
        world.core.turn(world.now_us)
        waiting = len(world.core.memory.wanted)
        most = max(most, waiting)
        if waiting == READS_MAX:
            assert world.core.next_due_ms is None, "the reads themselves bring the next turn"
        world._read_back()
        assert turns < 100
    assert 0 < most <= READS_MAX
    world.settle()
    assert live_of(world, "ExpiryQueue") == 4 * READS_MAX
    world.check_journal()


def test_without_an_expiry_address_nothing_is_read() -> None:
    world = World(rules(memory_bytes_max=65_536, expiry_address=""))
    client = world.client()
    client.post_all(client.sender("q"), *(durable(bytes(1_000), ttl_ms=5_000) for _ in range(200)))
    world.now_us += 6_000_000
    world.core.turn(world.now_us)
    assert not world.core.memory.wanted
    assert live_of(world, "q") == 0


def test_a_message_that_is_purged_while_it_is_read_frees_its_place() -> None:
    world = World(rules(memory_bytes_max=65_536))
    client = world.client()
    client.post_all(client.sender("q"), *(durable(bytes(1_000), ttl_ms=5_000) for _ in range(2 * READS_MAX)))
    world.now_us += 6_000_000
    world.core.turn(world.now_us)
    assert len(world.core.memory.wanted) == READS_MAX
    world.purge("q", None)
    world.settle()
    client.post(client.sender("q", "again"), durable(b"x", ttl_ms=5_000))
    world.settle()
    world.advance(5_000)
    world.settle()
    assert (live_of(world, "q"), world.core.next_due_ms) == (0, None)


@pytest.mark.pure
def test_without_room_for_copies_it_is_tried_again_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client = world.client()
    client.post(client.sender("q"), durable(b"1", ttl_ms=1_000), durable(b"2", ttl_ms=1_000))
    world.settle()

    tried = 0

    def full(*_: object, **__: object) -> int:
        nonlocal tried
        tried += 1
        raise StoreFull("no room")

    monkeypatch.setattr(world.core._letters, "copy", full)
    world.advance(1_000)
    assert live_of(world, "q") == 2
    assert world.core.next_due_ms == world.now_us // 1_000 + RETRY_MS
    before = tried
    client.post(client.sender("q", "more"), durable(b"3", ttl_ms=1))
    world.settle()
    world.advance(2)
    assert tried == before, "one that runs out meanwhile waits with the others"
    monkeypatch.undo()
    world.advance(RETRY_MS - 3)
    assert live_of(world, "q") == 3
    world.advance(1)
    world.settle()
    assert (live_of(world, "q"), live_of(world, "ExpiryQueue")) == (0, 3)
    world.check_journal()


@pytest.mark.pure
def test_a_pause_for_want_of_room_is_no_longer_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    client = world.client()
    client.post(client.sender("q"), durable(b"x", ttl_ms=7_200_000))
    world.settle()

    def full(*_: object, **__: object) -> int:
        raise StoreFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(world.core._letters, "copy", full)
        world.advance(7_200_000)
    assert live_of(world, "q") == 1
    clock_set(world, -3_600_000)
    client.post(client.sender("q", "again"), durable(b"y", ttl_ms=1_000))
    world.settle()
    assert world.core.next_due_ms == world.now_us // 1_000 + 1_000, "not first in an hour"
    world.advance(1_000)
    world.settle()
    assert live_of(world, "ExpiryQueue") == 1


@pytest.mark.parametrize("topic", [False, True])
def test_what_runs_out_before_it_is_on_the_disk_expires_when_it_is(topic: bool) -> None:
    world = World()
    client = world.client()
    if topic:
        for name in ("one", "two"):
            client.subscriber("q", name, durable=True, credit=0)
    sender = client.sender("q", target=Target("q", capabilities=("topic",) if topic else ()))
    client.post(sender, durable(b"x", ttl_ms=20))
    world.carry()
    world.advance(20)  # the disk is slow
    world.settle()
    assert live_of(world, "ExpiryQueue") == (2 if topic else 1)
    world.check_journal()


@pytest.mark.parametrize("said", [True, False])
def test_what_runs_out_while_it_is_held_waits_for_no_other_attempt(said: bool) -> None:
    world = World(rules(redelivery_delay_ms=3_600_000, redelivery_blocks="queue", lock_duration_ms=200))
    client = world.client()
    client.post_all(client.sender("q"), durable("a", ttl_ms=100), durable("b"))
    link = client.receiver("q", credit=1)
    world.settle()
    world.advance(150)
    world.settle()
    assert live_of(world, "ExpiryQueue") == 0, "its outcome wins"
    if said:
        (delivery,) = client.held(link)
        delivery.settle(FAILED)
    else:
        world.advance(100)  # the lock runs out
    world.settle()
    assert live_of(world, "ExpiryQueue") == 1
    link.grant(1)
    world.settle()
    assert client.bodies(link) == ["a", "b"], "nothing waits for what is gone"
    world.check_journal()


def test_what_runs_out_in_a_transaction_waits_for_no_delivery_time() -> None:
    world = World()
    client = world.client()
    link, control = client.sender("q"), Controller(client)
    transaction = control.declare()
    payload = durable("a", ttl_ms=100, annotations={"x-opt-delivery-delay": 3_600_000}).encode()
    link.send(b"1", payload, state=TransactionalState(transaction))
    world.settle()
    world.advance(200)
    control.commit(transaction)
    world.settle()
    assert (live_of(world, "q"), live_of(world, "ExpiryQueue")) == (0, 1)
    world.check_journal()


# -- the clock --------------------------------------------------------------------------------------------------------


def clock_set(world: World, by_ms: int) -> None:
    """Somebody sets the clock, and the server notices."""
    world.now_us += by_ms * 1_000
    world.core.clock_set(by_ms * 1_000)
    world.carry()


@pytest.mark.parametrize("by_ms", [-3_600_000, 3_600_000])
def test_a_delay_before_another_attempt_is_as_long_whatever_the_clock_says(by_ms: int) -> None:
    world = World(rules(redelivery_delay_ms=10_000))
    client = world.client()
    receiver = client.receiver("q", credit=10)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    client.received[receiver][0].settle(FAILED)
    world.settle()
    world.advance(4_000)
    clock_set(world, by_ms)
    world.check_journal()
    world.advance(5_999)
    assert len(client.received[receiver]) == 1
    world.advance(1)
    world.settle()
    assert len(client.received[receiver]) == 2
    world.check_journal()


@pytest.mark.parametrize("times", [1, 15])
def test_a_clock_that_is_set_back_keeps_no_released_message_waiting(times: int) -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=100)
    client.post(client.sender("q"), durable(b"x"))
    world.settle()
    for _ in range(times):
        client.received[receiver][-1].settle(RELEASED)
        world.settle()
        world.advance(1_000)
    clock_set(world, -3_600_000)
    client.received[receiver][-1].settle(RELEASED)
    world.settle()
    world.advance(200)
    assert len(client.received[receiver]) == times + 2


def test_delivery_times_and_lives_are_of_the_clock_as_it_is() -> None:
    world = World()
    client = world.client()
    receiver = client.receiver("q", credit=10)
    at_ms = world.now_us // 1_000 + 60_000
    client.post(client.sender("q"), durable(b"scheduled", annotations={"x-opt-delivery-time": at_ms}))
    client.post(client.sender("p", "p"), durable(b"mortal", ttl_ms=60_000))
    world.settle()
    clock_set(world, -3_600_000)
    world.advance(60_000)
    assert (client.received, live_of(world, "p")) == ({}, 1)
    clock_set(world, 3_600_000)
    world.settle()
    assert client.bodies(receiver) == [b"scheduled"]
    assert (live_of(world, "p"), live_of(world, "ExpiryQueue")) == (0, 1)
    world.check_journal()


@pytest.mark.parametrize("delay_ms", [0, 3_600_000])
def test_what_was_held_when_it_ran_out_expires_also_after_the_clock_goes_back(delay_ms: int) -> None:
    world = World(rules(redelivery_delay_ms=delay_ms))
    client = world.client()
    client.post_all(client.sender("q"), durable("a", ttl_ms=1_000))
    link = client.receiver("q", credit=1)
    world.settle()
    world.advance(2_000)
    world.settle()
    clock_set(world, -1_500)
    client.held(link)[0].settle(FAILED)
    world.settle()
    assert live_of(world, "q") == 1, "it is not its time again"
    world.advance(1_000)
    world.settle()
    assert (live_of(world, "q"), live_of(world, "ExpiryQueue")) == (0, 1)


def test_what_comes_back_often_after_the_clock_went_back_has_one_time_more() -> None:
    world = World(rules(release_delay_ms_max=0))
    client = world.client()
    client.post_all(client.sender("q"), durable("a", ttl_ms=3_600_000))
    link = client.receiver("q", credit=100)
    world.settle()
    clock_set(world, 86_400_000)
    world.settle()
    clock_set(world, -86_400_000)
    for _ in range(50):
        client.held(link)[-1].settle(RELEASED)
        world.settle()
    assert len(world.core.life.timers) < 5


def test_order_is_that_of_sequences_when_the_clock_goes_back() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    for number in range(5):
        client.post(sender, durable(bytes([number])))
        world.settle()
        clock_set(world, -60_000)
    for again in (world, world.crash()):
        client = again.client()
        receiver = client.receiver("q", f"at {id(again)}", credit=10)
        again.settle()
        messages = [Message.decode(delivery.payload) for delivery in client.received[receiver]]
        assert [message.body for message in messages] == [bytes([number]) for number in range(5)]
        times = [message.annotations["x-opt-acquit-posted-at"] for message in messages]
        assert times == sorted(times, reverse=True), "each says what the clock said"  # type: ignore[type-var]
        for delivery in client.received[receiver]:
            delivery.settle(ACCEPTED) if again is not world else delivery.settle()
        again.settle()
        again.check_journal()


@pytest.mark.parametrize("by_ms", [-86_400_000, 86_400_000])
def test_nothing_is_lost_over_a_restart_at_another_time(by_ms: int) -> None:
    world = World(rules(redelivery_delay_ms=10_000))
    client = world.client()
    receiver = client.receiver("q", credit=1)
    client.post(
        client.sender("q"),
        durable(b"delayed"),
        durable(b"scheduled", annotations={"x-opt-delivery-delay": 10_000}),
        durable(b"plain"),
    )
    world.settle()
    client.received[receiver][0].settle(FAILED)
    world.settle()
    world.now_us += by_ms * 1_000
    world = world.crash()
    assert world.recovered == 3
    client = world.client()
    receiver = client.receiver("q", credit=10)
    world.settle()
    world.advance(abs(by_ms) + 20_000)
    world.settle()
    assert sorted(client.bodies(receiver)) == [b"delayed", b"plain", b"scheduled"]  # type: ignore[type-var]
    world.check_journal()


def test_copies_are_made_some_in_a_turn() -> None:
    world = World()
    client = world.client()
    client.post_all(client.sender("q"), *(durable(b"x", ttl_ms=5_000) for _ in range(3 * COPIES_MAX)))
    world.now_us += 6_000_000
    assert world.core.turn(world.now_us), "there is more"
    assert live_of(world, "q") == 2 * COPIES_MAX
    world.settle()
    assert live_of(world, "q") == 0
    world.check_journal()


def test_whoever_comes_to_expired_messages_has_no_more_copied_in_a_turn() -> None:
    world = World()
    client = world.client()
    client.post_all(client.sender("q"), *(durable(b"x", ttl_ms=5_000) for _ in range(2 * COPIES_MAX)))
    world.settle()
    world.now_us += 6_000_000
    world.core.scribe.time_us = world.now_us
    for message in list(world.core.life.objects.values()):  # as dispatch, which may come to one in each of its queues
        world.core._agenda._expiry.expire(message)
    assert live_of(world, "q") == COPIES_MAX
    assert world.core.next_due_ms is not None
    world.settle()
    assert live_of(world, "q") == 0
    assert live_of(world, "ExpiryQueue") == 2 * COPIES_MAX
    world.check_journal()


def test_what_was_read_together_is_copied_some_in_a_turn() -> None:
    world = World(rules(memory_bytes_max=65_536))
    client = world.client()
    client.post_all(client.sender("q"), *(durable(bytes(1_000), ttl_ms=5_000) for _ in range(2 * READS_MAX)))
    world.now_us += 6_000_000
    world.core.turn(world.now_us)
    assert len(world.core.memory.wanted) == READS_MAX
    before = live_of(world, "q")
    world._read_back()
    assert live_of(world, "q") == before
    world.core.turn(world.now_us)
    assert before - live_of(world, "q") == COPIES_MAX
    world.settle()
    assert live_of(world, "ExpiryQueue") == 2 * READS_MAX
    world.check_journal()


def test_delivery_times_of_what_was_purged_do_not_pile_up() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    later = {"x-opt-delivery-time": Timestamp(world.now_us // 1000 + 10**9)}
    for _ in range(15):
        client.post_all(sender, *(Message(number, annotations=later) for number in range(200)))
        assert live_of(world, "q") == 200
        world.purge("q")
        world.settle()
    assert len(world.core.life.timers) < 1_500


@pytest.mark.parametrize("blocks", ["none", "queue"])
def test_a_clock_set_back_while_the_broker_is_down_makes_no_delay_longer(blocks: str) -> None:
    """What waits half a second for another attempt does not wait an hour for it, and nobody behind it does."""
    world = World(rules(redelivery_delay_ms=500, redelivery_blocks=blocks))
    client = world.client()
    client.post_all(client.sender("q"), durable("failed"), durable("behind"))
    receiver = client.receiver("q", credit=1)
    world.settle()
    (held,) = client.held(receiver)
    held.settle(FAILED)
    world.settle()
    world.now_us -= 3_600_000_000
    after = world.crash()
    late = after.client()
    again = late.receiver("q", credit=10)
    after.settle()
    assert late.bodies(again) == ([] if blocks == "queue" else ["behind"])
    for _ in range(2):
        after.advance(300)
        after.settle()
    assert set(map(str, late.bodies(again))) == {"failed", "behind"}

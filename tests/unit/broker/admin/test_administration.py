"""Queues made, deleted, purged and moved out of while somebody uses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.purging import STEP as PURGE_STEP
from acquit.broker.admin.walking import ACTED_ON, STEP
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.broker.refusal import Refused
from acquit.errors import SelectorError
from acquit.ledger.events import EventKind
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Modified
from acquit.protocol.message import Message
from acquit.store.options import JournalOptions
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.broker_world import World, durable, live_of, posted
from tests.support.transacting import Controller


def result(later: Later[int] | Later[str]) -> object:
    results: list[object] = []
    later.when_finished(results.append)
    return results[0] if results else None


def move(
    world: World,
    source: str,
    target: str,
    *,
    messages_max: int | None = None,
    selector: str | None = None,
    sequences: frozenset[int] | None = None,
) -> object:
    later = world.core.administration.move(
        source, target, "ada", messages_max=messages_max, selector=selector, sequences=sequences
    )
    world.settle()
    return result(later)


def counts(world: World, name: str, kind: EventKind) -> int:
    return world.core.queues.by_name[name].counts[kind]


def taken(world: World, name: str) -> list[Message]:
    client = world.client(f"takes-{name}-{len(world.clients)}")
    link = client.receiver(name, credit=10_000)
    world.settle()
    return [Message.decode(delivery.payload) for delivery in client.received.get(link, [])]


# -- moving -----------------------------------------------------------------------------------------------------------


def test_what_waits_is_moved_in_order() -> None:
    world, _ = posted("a", *[durable(number) for number in range(STEP + 50)], Message("volatile"))
    assert move(world, "a", "b") == STEP + 51
    assert (live_of(world, "a"), live_of(world, "b")) == (0, STEP + 51)
    assert counts(world, "a", EventKind.MOVED_OUT) == counts(world, "b", EventKind.MOVED_IN) == STEP + 51
    world.check_journal()
    world = world.crash()
    assert [message.body for message in taken(world, "b")] == list(range(STEP + 50))


def test_no_queue_is_made_beside_a_topic_unasked() -> None:
    """Who posts to the topic, and does not say that it is one, would post to the queue from then on."""
    world, _ = posted("a", durable("x"))
    world.core.administration.create("t", None, topic=True)
    with pytest.raises(Refused, match="'t' is a topic"):
        move(world, "a", "t")
    assert list(world.core.queues.by_name) == ["a"]
    world.core.administration.create("t", None, topic=False)
    assert move(world, "a", "t") == 1, "both are there, as somebody said"


def test_both_name_each_other() -> None:
    world, _ = posted("a", durable("x", message_id="m"))
    (old,) = world.core.life.live
    move(world, "a", "b")
    (new,) = world.core.life.live
    (message,) = taken(world, "b")
    assert message.annotations["x-opt-acquit-origin"] == old
    assert message.annotations["x-opt-acquit-sequence"] == new
    assert message.message_id == "m"


def test_a_message_keeps_what_it_is() -> None:
    world = World()
    client = world.client()
    message = durable(b"x", priority=7, ttl_ms=60_000, subject="s", application_properties={"p": 1})
    client.post_all(client.sender("a"), message)
    link = client.receiver("a", credit=1)
    world.settle()
    link.session.settle_all(client.held(link), Modified(delivery_failed=True))
    link.detach()
    world.settle()
    world.advance(10_000)
    move(world, "a", "b")
    (moved,) = taken(world, "b")
    assert (moved.priority, moved.subject, moved.application_properties) == (7, "s", {"p": 1})
    assert (moved.ttl_ms, moved.delivery_count) == (50_000, 0)


def test_a_delivery_time_that_has_not_come_is_moved_along() -> None:
    world, _ = posted("a", durable("x", annotations={"x-opt-delivery-delay": 60_000}))
    assert move(world, "a", "b") == 1
    assert len(world.core.queues.by_name["b"].scheduled) == 1
    world.advance(60_001)
    world.settle()
    assert [message.body for message in taken(world, "b")] == ["x"]


def test_what_is_acquired_stays() -> None:
    world, client = posted("a", durable(1), durable(2))
    link = client.receiver("a", credit=1)
    world.settle()
    assert move(world, "a", "b") == 1
    link.session.settle_all(client.held(link), RELEASED)
    world.settle()
    assert (live_of(world, "a"), live_of(world, "b")) == (1, 1)


def test_no_more_than_asked_for() -> None:
    world, _ = posted("a", *[durable(number) for number in range(5)])
    assert move(world, "a", "b", messages_max=2) == 2
    assert [message.body for message in taken(world, "b")] == [0, 1]


def test_only_what_a_selector_matches() -> None:
    world = World()
    client = world.client()
    posted = [durable(number, application_properties={"n": number}) for number in range(6)]
    client.post_all(client.sender("a"), *posted)
    assert move(world, "a", "b", selector="n > 3", messages_max=5) == 2
    assert live_of(world, "a") == 4
    with pytest.raises(SelectorError):
        move(world, "a", "b", selector="n >")


def test_only_those_that_are_named_by_sequence() -> None:
    world, _ = posted("a", *[durable(number) for number in range(6)])
    first, *others = [message.sequence for message in world.core.queues.by_name["a"].backlog.next_messages()]
    chosen = frozenset({others[1], others[3], others[3] + 1_000})
    assert move(world, "a", "b", sequences=chosen) == 2
    assert move(world, "a", "b", sequences=chosen) == 0, "each once, however often it is asked for"
    assert move(world, "a", "b", sequences=frozenset()) == 0
    assert [message.body for message in taken(world, "b")] == [2, 4]
    assert live_of(world, "a") == 4
    assert move(world, "a", "b", sequences=frozenset({first})) == 1


def test_bodies_are_read_back_first() -> None:
    options = BrokerOptions(address=(AddressRule("a", {"memory_bytes_max": 65_536}),))
    world, _ = posted("a", *[durable(b"%05d" % number + bytes(3_000)) for number in range(300)], options=options)
    assert world.core.queues.by_name["a"].memory_bytes < 100_000
    assert move(world, "a", "b") == 300
    world.check_journal()
    bodies = [bytes(message.body)[:5] for message in taken(world, "b")]  # type: ignore[call-overload]
    assert bodies == [b"%05d" % number for number in range(300)]


def test_moves_bypass_duplicates_and_limits() -> None:
    world = World(BrokerOptions(address=(AddressRule("b", {"messages_max": 1}),)))
    client = world.client()
    message = durable("x", application_properties={"_AMQ_DUPL_ID": "one"})
    client.post_all(client.sender("b", "b"), message)
    client.post_all(client.sender("a", "a"), message)
    assert move(world, "a", "b") == 1
    assert live_of(world, "b") == 2
    client.post_all(client.sender("a", "again"), message)
    assert live_of(world, "a") == 0, "the window of its address still knows it"


def test_answer_comes_when_the_disk_has_it() -> None:
    world, _ = posted("a", durable(1))
    world.settle()
    later = world.core.administration.move("a", "b", None, messages_max=None, selector=None)
    world.carry()
    assert result(later) is None
    world.settle()
    assert result(later) == 1


def test_a_queue_that_goes_ends_the_move() -> None:
    options = BrokerOptions(address=(AddressRule("a", {"memory_bytes_max": 65_536}),))
    world, _ = posted("a", *[durable(bytes(3_000)) for _ in range(600)], options=options)
    later = world.core.administration.move("a", "b", None, messages_max=None, selector=None)
    world.core.administration.delete("b", None)
    world.settle()
    found = result(later)
    assert isinstance(found, RequestFailure)
    assert found.status == 507
    assert "deleted meanwhile" in str(found)
    world.check_journal()


@pytest.mark.parametrize("choice", [{}, {"messages_max": 300}, {"selector": "TRUE"}], ids=["all", "the most", "chosen"])
@pytest.mark.parametrize("count", [1, ACTED_ON, ACTED_ON + 1, STEP, STEP + 1, 300])
def test_a_queue_that_its_last_message_leaves_may_go(count: int, choice: dict[str, Any]) -> None:
    options = BrokerOptions(address=(AddressRule("a", {"auto_delete": True}),))
    world, client = posted("a", *[durable(number) for number in range(count)], options=options)
    client.close()
    world.settle()
    assert move(world, "a", "b", **choice) == count
    assert live_of(world, "b") == count
    assert "a" not in world.core.queues.by_name
    world.check_journal()


@pytest.mark.parametrize("gone", ["a", "b"])
def test_a_queue_that_goes_when_the_last_message_was_moved_cuts_nothing_off(gone: str) -> None:
    world, _ = posted("a", *[durable(number) for number in range(ACTED_ON + 1)])
    world.client().sender("b", "makes it")
    later = world.core.administration.move("a", "b", None, messages_max=ACTED_ON, selector=None)
    world.core.administration.delete(gone, None)
    world.settle()
    assert result(later) == ACTED_ON


def test_no_target_where_none_is_made() -> None:
    world = World(BrokerOptions(address=(AddressRule("no.#", {"create": False}),)))
    client = world.client()
    client.sender("a")
    with pytest.raises(Refused, match=r"its policy makes none"):
        world.core.administration.move("a", "no.thing", None, messages_max=None, selector=None)


def test_a_move_of_whole_steps_is_answered_although_all_of_it_is_durable_before_its_end() -> None:
    world, _ = posted("a", *[durable(number) for number in range(ACTED_ON)])
    later = world.core.administration.move("a", "b", None, messages_max=None, selector=None)
    while world.sync():  # no turn in between
        pass
    world.carry()
    assert result(later) == ACTED_ON


def test_many_at_once_cost_a_turn_no_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = posted("a", *[durable(number) for number in range(2 * STEP)])
    looked_at = 0

    def matches(fields: object) -> bool:
        nonlocal looked_at
        looked_at += 1
        return False

    monkeypatch.setattr("acquit.broker.admin.walking.compile_selector", lambda text: FakeSelector(matches))
    laters = [world.core.administration.purge("a", None, selector="never") for _ in range(20)]
    most = 0
    while any(result(later) is None for later in laters):
        before, looked_at = looked_at, 0
        most = max(most, before)
        world.core.turn(world.now_us)
    assert most == STEP
    assert [result(later) for later in laters] == [0] * 20


class FakeSelector:
    """A selector that notes what it is asked."""

    needs_body = False

    def __init__(self, matches: Callable[[object], bool]) -> None:
        self.matches = matches


def test_a_turn_moves_no_more_than_a_millisecond_or_two_take() -> None:
    world, _ = posted("a", *[durable(number) for number in range(3 * ACTED_ON + 1)])
    later = world.core.administration.move("a", "b", None, messages_max=None, selector=None)
    moved = []
    while not moved or moved[-1] < 3 * ACTED_ON + 1:
        moved.append(counts(world, "b", EventKind.MOVED_IN))
        world.core.administration.run()
        assert len(moved) < 10
    assert moved == [ACTED_ON, 2 * ACTED_ON, 3 * ACTED_ON, 3 * ACTED_ON + 1]
    assert ACTED_ON <= 10, "each takes about 0.14 ms, and everybody else waits as long as the turn takes"
    world.settle()
    assert result(later) == 3 * ACTED_ON + 1


def test_a_walk_by_sequence_passes_the_others_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acquit.broker.admin.walking.PASSED", 10)
    world, _ = posted("a", *[durable(number) for number in range(35)])
    last = max(world.core.life.live)
    purged = world.core.administration.purge("a", None, sequences=frozenset({last}))
    turns = 0
    while world.core.administration.run():
        turns += 1
    assert turns == 2, "it began with the first portion, and the fourth was the last"
    world.settle()
    assert result(purged) == 1


def test_what_leaves_while_it_is_remembered_is_passed_over() -> None:
    """A queue is copied place by place: what was handed out since is not purged."""
    world, client = posted("a", *[Message(number) for number in range(8 * STEP)])
    later = world.core.administration.purge("a", None, selector="TRUE")
    link = client.receiver("a", credit=10)
    world.settle()
    assert len(client.bodies(link)) == 10
    assert result(later) == 8 * STEP - 10


# -- purging ----------------------------------------------------------------------------------------------------------


def test_a_purge_is_answered_when_the_disk_has_it() -> None:
    world, _ = posted("q", durable(1), Message("volatile"), durable(2))
    later = world.core.administration.purge("q", "ada")
    world.carry()
    assert result(later) is None
    assert live_of(world, "q") == 0
    assert live_of(world.crash(), "q") == 2
    world.settle()
    assert result(later) == 3
    assert live_of(world.crash(), "q") == 0


@pytest.mark.parametrize("count", [PURGE_STEP, PURGE_STEP + 5])
def test_a_purge_of_many_is_answered_after_its_last_step(count: int) -> None:
    world, _ = posted("q", *[durable("")] * count, journal=JournalOptions())
    later = world.core.administration.purge("q", None)
    while world.sync():  # what the first step did is durable before the second
        pass
    assert result(later) is None
    world.settle()
    assert result(later) == count


@pytest.mark.parametrize("messages", [(), (Message("volatile"),)], ids=["nothing", "volatile"])
def test_a_purge_of_what_no_disk_has_waits_for_no_disk(messages: tuple[Message, ...]) -> None:
    world, _ = posted("q", *messages)
    assert result(world.core.administration.purge("q", None)) == len(messages)


def test_a_purge_of_what_is_chosen_takes_nothing_else() -> None:
    options = BrokerOptions(address=(AddressRule("q", {"memory_bytes_max": 65_536}),))
    messages = [durable(number, application_properties={"n": number}) for number in range(STEP + 10)]
    world, _ = posted("q", *messages, options=options)
    first = min(world.core.life.live)
    purge = world.core.administration.purge
    for choice, count in (
        ({"sequences": frozenset({first, first + 1})}, 2),
        ({"selector": "n > 5", "messages_max": 2}, 2),
        ({"selector": "n >= 260"}, STEP + 10 - 260),
    ):
        later = purge("q", "ada", **choice)  # type: ignore[arg-type]
        world.settle()
        assert result(later) == count
    assert counts(world, "q", EventKind.PURGED) == 4 + STEP + 10 - 260
    world.check_journal()
    world = world.crash()
    assert [message.body for message in taken(world, "q")] == [2, 3, 4, 5, *range(8, 260)]


def test_a_purge_of_what_is_chosen_is_answered_when_the_disk_has_it() -> None:
    world, _ = posted("q", durable(1), durable(2))
    later = world.core.administration.purge("q", None, messages_max=1)
    world.carry()
    assert result(later) is None
    world.settle()
    assert result(later) == 1


# -- making and deleting ----------------------------------------------------------------------------------------------


def test_a_queue_that_was_made_stays() -> None:
    world = World(BrokerOptions(address=(AddressRule("#", {"create": False, "auto_delete": True}),)))
    world.core.administration.create("q", "ada", topic=False)
    world.settle()
    world = world.crash()
    client = world.client()
    client.post_all(client.sender("q"), durable(1))
    assert [message.body for message in taken(world, "q")] == [1]
    for other in list(world.clients):
        other.lose()
    world.settle()
    assert "q" in world.core.queues.by_name


@pytest.mark.parametrize("name", ["", "$x", "a::b", "a.*"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(Refused):
        World().core.administration.create(name, None, topic=False)


def test_deleting_a_queue_in_use() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, *[durable(number) for number in range(4)])
    link = client.receiver("q", credit=1)
    world.settle()
    number = world.core.queues.by_name["q"].number
    world.core.administration.delete("q", "ada")
    world.settle()
    assert {str(client.detached[end].error.condition) for end in (sender, link)} == {  # type: ignore[union-attr]
        "amqp:resource-deleted"
    }
    assert "q" not in world.core.queues.by_name
    assert not world.core.life.live
    world.check_journal()
    fold = world.fold()
    assert number not in fold.table.queues
    assert fold.totals()[0].counts[EventKind.PURGED] == 4


def test_a_deleted_address_remembers_no_ids() -> None:
    world = World()
    client = world.client()
    message = durable("x", application_properties={"_AMQ_DUPL_ID": "one"})
    client.post_all(client.sender("q"), message)
    world.core.administration.delete("q", None)
    world.settle()
    client.post_all(client.sender("q", "again"), message)
    assert live_of(world, "q") == 1
    assert world.fold().table.windows == world.core.scribe.recorder.table.windows


@pytest.mark.parametrize("topic", [False, True])
def test_what_is_there_is_not_made_again(topic: bool) -> None:
    """Whoever asks: who may only create does not see that it is there."""
    world = World()
    administration = world.core.administration
    administration.create("q", None, topic=topic)
    world.settle()
    node = world.core.queues.by_name.get("q") or world.core.topics.by_address["q"]
    with pytest.raises(RequestFailure, match=f"there is a {'topic' if topic else 'queue'} 'q' already"):
        administration.create("q", "ada", topic=topic)
    administration.create("q", None, topic=not topic)
    world.settle()
    assert node in (world.core.queues.by_name["q"], world.core.topics.by_address["q"])


def test_a_deleted_queue_can_be_made_again() -> None:
    world, client = posted("q", durable(1))
    world.core.administration.delete("q", None)
    world.settle()
    client.post_all(client.sender("q", "again"), durable(2))
    link = client.receiver("q", credit=5)
    world.settle()
    link.session.settle_all(client.held(link), ACCEPTED)
    world.settle()
    assert client.bodies(link) == [2]
    world.check_journal()


@pytest.mark.parametrize("topic", [False, True])
def test_what_is_made_is_said_to_be_when_it_is_durable(topic: bool) -> None:
    world = World()
    made = world.core.administration.create("q", "ada", topic=topic)
    world.carry()
    assert result(made) is None
    assert world.crash().core.snapshot().queues == ()
    world.settle()
    assert result(made) == "q"
    assert [row.name for row in world.crash().core.snapshot().queues] == ["q"]


def test_what_is_deleted_is_said_to_be_when_it_is_durable() -> None:
    world, _ = posted("q", durable(1))
    deleted = world.core.administration.delete("q", "ada")
    world.carry()
    assert result(deleted) is None
    assert live_of(world.crash(), "q") == 1
    world.settle()
    assert result(deleted) == "q"
    assert world.crash().core.snapshot().queues == ()


def test_a_deletion_of_many_is_answered_after_its_last_step() -> None:
    world, _ = posted("q", *[durable("")] * (PURGE_STEP + 5), journal=JournalOptions())
    deleted = world.core.administration.delete("q", "ada")
    while world.sync():
        pass
    assert result(deleted) is None
    world.settle()
    assert result(deleted) == "q"
    assert not world.core.life.live


def test_a_deletion_waits_for_postings_that_are_on_their_way_to_the_disk() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    world.settle()
    client.post(sender, durable(1))
    world.carry()
    deleted = world.core.administration.delete("q", "ada")
    assert result(deleted) is None
    world.settle()
    assert result(deleted) == "q"
    assert world.crash().core.snapshot().queues == ()


def test_a_deletion_waits_for_no_transaction() -> None:
    world, client = posted("q", durable(1), durable(2))
    link = client.receiver("q", credit=1)
    world.settle()
    controller = Controller(client)
    controller.retire(controller.declare(), *client.held(link), settled=False)
    deleted = world.core.administration.delete("q", "ada")
    world.settle()
    assert result(deleted) == "q"
    assert len(world.core.life.live) == 1, "what the transaction has"
    assert world.crash().core.snapshot().queues == ()


def test_a_topic_is_deleted_when_its_subscriptions_are() -> None:
    world = World()
    client = world.client()
    links = [client.subscriber("t", name, durable=True, credit=0) for name in ("one", "two")]
    client.post_all(client.publisher("t"), durable(1), durable(2))
    deleted = world.core.administration.delete("t", "ada")
    world.carry()
    assert result(deleted) is None
    world.settle()
    assert result(deleted) == "t"
    assert {str(client.detached[link].error.condition) for link in links} == {  # type: ignore[union-attr]
        "amqp:resource-deleted"
    }
    assert world.crash().core.snapshot().queues == ()


@pytest.mark.parametrize("steps", [1, 2])
def test_a_deletion_of_whole_steps_comes_to_an_end(steps: int) -> None:
    """The last step leaves nothing, and the queue is gone before there is another: the loop must not go on for ever."""
    world, _ = posted("q", *[durable("") for _ in range(steps * PURGE_STEP)])
    world.core.administration.delete("q", None)
    world.settle()
    assert not world.core.turn(world.now_us)
    assert "q" not in world.core.queues.by_name


def test_a_topic_of_many_queues_is_deleted_in_bounded_turns() -> None:
    world = World()
    client = world.client()
    subscribers = [client.subscriber("t", f"s{number}", credit=0) for number in range(5)]
    world.settle()
    client.post_all(client.publisher("t"), *[Message("x") for _ in range(PURGE_STEP // 2)])
    queues = list(world.core.topics.by_address["t"].queues)
    assert [queue.live for queue in queues] == [PURGE_STEP // 2] * 5

    def purged() -> int:
        return sum(queue.counts[EventKind.PURGED] for queue in queues)

    deleted = world.core.administration.delete("t", "ada")
    before, most = 0, 0
    while more := purged() - before:
        before, most = purged(), max(most, more)
        world.core.removal.run()
    assert (most, before) == (PURGE_STEP, 5 * PURGE_STEP // 2)
    world.settle()
    assert result(deleted) == "t"
    assert {str(client.detached[link].error.condition) for link in subscribers} == {  # type: ignore[union-attr]
        "amqp:resource-deleted"
    }
    assert list(world.crash().core.queues.by_name) == []


@pytest.mark.parametrize("operation", ["delete", "purge"])
def test_what_the_disk_does_not_take_is_not_said_to_be_done(operation: str) -> None:
    disk = FaultyDisk()
    world = World(disk=disk)
    client = world.client()
    client.post_all(client.sender("q"), *[durable("") for _ in range(3_000)])
    disk.capacity_bytes = disk.used_bytes + 16 * 1024
    later = getattr(world.core.administration, operation)("q", None)
    for _ in range(20):
        world.carry()
        world.sync()
    assert result(later) is None
    assert live_of(world.crash(), "q") > 0
    disk.capacity_bytes = None
    for _ in range(3):
        world.advance(5_000)
        world.chores()
        world.settle()
    assert result(later) in ("q", 3_000)
    assert live_of(world.crash(), "q") == 0

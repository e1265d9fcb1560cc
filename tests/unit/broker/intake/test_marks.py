"""Senders with a mark, as clients meet them: what was posted before is answered and not posted again."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions
from acquit.ledger.events import EventKind
from acquit.ledger.records import Namespace
from acquit.ledger.sequences import Sequences
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import AmqpCondition, Rejected, Released, Target, TransactionalState
from acquit.protocol.extensions import PLACE, SENDER_MARK
from acquit.protocol.link import SendingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World, durable, live_of


def placed(batch: int, index: int, body: object = "x", digest: int = 0, **fields: object) -> Message:
    place = struct.pack(">QQI", batch, index, digest)
    fields.setdefault("durable", True)
    return Message(body, delivery_annotations={PLACE: place}, **fields)  # type: ignore[arg-type]


def marked(client: Client, address: str | None = "q", name: str = "sender", mark: object = "query:0") -> SendingLink:
    return client.sender(address, name, properties={SENDER_MARK: mark})


def told(link: SendingLink) -> list[object]:
    attach = link.remote_attach
    assert attach is not None
    assert attach.properties is not None
    assert SENDER_MARK in attach.offered_capabilities
    return attach.properties[SENDER_MARK]  # type: ignore[return-value]


def condition_of(outcome: object) -> str:
    assert isinstance(outcome, Rejected), outcome
    assert outcome.error is not None
    return outcome.error.condition


def suppressed(world: World, name: str = "q") -> int:
    return world.core.queues.by_name[name].counts[EventKind.DUPLICATE]


def test_the_broker_says_that_it_knows_marks_and_where_this_one_is() -> None:
    world = World()
    client = world.client()
    link = marked(client)
    assert told(link) == []
    client.post_all(link, placed(3, 0), placed(3, 1, digest=77))
    assert told(marked(client, name="other")) == [3, 1, 77]
    assert client.sender("q", "plain").remote_attach.properties is None


def test_what_is_repeated_is_accepted_and_posts_nothing() -> None:
    world = World()
    client = world.client()
    link = marked(client)
    client.post_all(link, *[placed(0, index) for index in range(5)])
    client.post_all(link, *[placed(0, index) for index in range(3, 8)], placed(1, 0))
    assert [client.outcome(delivery) for delivery in client.answers] == [ACCEPTED] * 11
    assert live_of(world, "q") == 9
    assert suppressed(world) == 2
    world.check_journal()


def test_what_is_repeated_octet_for_octet_is_known_as_well() -> None:
    world = World()
    client = world.client()
    link = marked(client)
    for _ in range(4):  # the later ones are predicted, and would be a run
        client.post_all(link, placed(0, 0, durable=False))
    assert live_of(world, "q") == 1
    assert suppressed(world) == 3


def test_the_place_stays_with_the_broker() -> None:
    world = World()
    client = world.client()
    client.post_all(marked(client), placed(0, 0, b"body", message_id="m", annotations={"x-opt-theirs": 1}))
    receiver = client.receiver("q", credit=1)
    world.settle()
    (delivery,) = client.received[receiver]
    message = Message.decode(delivery.payload)
    assert message.delivery_annotations == {}
    assert (message.body, message.message_id, message.annotations["x-opt-theirs"]) == (b"body", "m", 1)


@pytest.mark.parametrize("end", ["crash", "stop"])
def test_the_mark_is_where_it_was_after_a_restart(end: str) -> None:
    world = World()
    client = world.client()
    client.post_all(marked(client), *[placed(7, index, digest=index) for index in range(4)])
    world = getattr(world, end)()
    client = world.client()
    link = marked(client)
    assert told(link) == [7, 3, 3]
    client.post_all(link, placed(7, 3, digest=3), placed(7, 4))
    assert live_of(world, "q") == 5


def test_what_was_not_synced_leaves_no_mark() -> None:
    world = World()
    client = world.client()
    link = marked(client)
    client.post_all(link, placed(0, 0))
    (lost,) = client.post(link, placed(0, 1))
    world.carry()
    assert client.outcome(lost) is None
    world = world.crash()
    client = world.client()
    link = marked(client)
    assert told(link) == [0, 0, 0]
    client.post_all(link, placed(0, 1))
    assert live_of(world, "q") == 2


def test_a_repeated_one_is_answered_only_after_the_sync_of_the_first() -> None:
    world = World()
    client = world.client()
    link, late = marked(client), marked(client, name="late")
    world.settle()
    (first,) = client.post(link, placed(0, 0))
    world.carry()
    (again,) = client.post(late, placed(0, 0))
    world.carry()
    assert client.outcome(again) is None
    world.sync()
    world.carry()
    assert (client.outcome(first), client.outcome(again)) == (ACCEPTED, ACCEPTED)
    assert live_of(world, "q") == 1


def test_a_task_and_its_late_double_post_each_message_once() -> None:
    world = World()
    client, zombie = world.client(), world.client("zombie")
    mine, its = marked(client), marked(zombie)
    for index in range(0, 20, 2):
        client.post_all(mine, placed(0, index), placed(0, index + 1))
        zombie.post_all(its, placed(0, index // 2))
    assert live_of(world, "q") == 20
    bodies = [message.position for message in world.core.life.live.values()]
    assert len(set(bodies)) == 20


def test_one_whose_messages_are_others_does_not_overtake() -> None:
    """Two attempts whose rows come in another order: what both post together would be some twice, and others never."""
    world = World()
    client, other = world.client(), world.client("other")
    mine, its = marked(client), marked(other)
    client.post_all(mine, placed(0, 0, "a", digest=1), placed(0, 1, "b", digest=2))
    world.settle()
    sent = other.post(its, *[placed(0, index, body, digest=7 + index) for index, body in enumerate("cab")])
    world.settle()
    outcomes = [other.outcome(delivery) for delivery in sent]
    assert outcomes[0] == ACCEPTED  # below the mark nothing is known of it
    assert [condition_of(outcome) for outcome in outcomes[1:]] == [
        AmqpCondition.ILLEGAL_STATE,
        AmqpCondition.PRECONDITION_FAILED,
    ]
    client.post_all(mine, placed(0, 2, "c", digest=3))
    assert live_of(world, "q") == 3
    assert told(marked(client, name="again")) == [0, 2, 3]
    world.check_journal()


def test_marks_of_other_names_and_users_are_other_marks() -> None:
    world = World()
    client = world.client()
    client.post_all(marked(client), placed(9, 9))
    other = world.client()
    other.peer.user = "somebody"
    for link in (marked(client, name="b", mark="query:1"), marked(other, name="c")):
        assert told(link) == []


def test_one_mark_for_all_addresses_that_messages_name() -> None:
    world = World()
    client = world.client()
    link = marked(client, None)
    client.post_all(link, placed(0, 0, to="a"), placed(0, 1, to="b"), placed(0, 0, to="a"), placed(0, 1, to="b"))
    assert (live_of(world, "a"), live_of(world, "b")) == (1, 1)
    assert (suppressed(world, "a"), suppressed(world, "b")) == (1, 1)


def test_what_is_repeated_makes_no_queue() -> None:
    world = World(BrokerOptions(address=(AddressRule("a", {"auto_delete": True}),)))
    client = world.client()
    link = marked(client, None)
    client.post_all(link, placed(0, 0, to="a"))
    receiver = client.receiver("a", credit=1)
    world.settle()
    receiver.session.settle_all(client.held(receiver), ACCEPTED)
    client.detach(receiver)
    world.settle()
    assert not world.core.queues.by_name
    client.post_all(link, placed(0, 0, to="a"))
    assert [client.outcome(delivery) for delivery in client.answers] == [ACCEPTED] * 2
    assert not world.core.queues.by_name
    world.check_journal()


def test_to_a_topic() -> None:
    world = World()
    client = world.client()
    client.subscriber("t", "one", credit=0)
    client.subscriber("t", "two", credit=0)
    link = client.sender(None, target=Target("t", capabilities=("topic",)), properties={SENDER_MARK: "m"})
    client.post_all(link, placed(0, 0), placed(0, 0), placed(0, 1))
    assert [queue.live for queue in world.core.topics.by_address["t"].queues] == [2, 2]


# -- nothing passes what was refused -------------------------------------------------------------------------------


def test_nothing_behind_a_refused_message_is_taken_on_this_link() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"messages_max": 2, "full_policy": "reject"}),)))
    client = world.client()
    link = marked(client)
    world.settle()
    sent = client.post(link, *[placed(0, index) for index in range(4)])
    world.settle()
    receiver = client.receiver("q", credit=10)
    world.settle()
    receiver.session.settle_all(client.held(receiver), ACCEPTED)
    world.settle()
    sent += client.post(link, placed(0, 3), placed(0, 2))
    world.settle()
    outcomes = [client.outcome(delivery) for delivery in sent]
    assert outcomes[:2] == [ACCEPTED, ACCEPTED]
    assert condition_of(outcomes[2]) == AmqpCondition.RESOURCE_LIMIT_EXCEEDED
    assert [condition_of(outcome) for outcome in outcomes[3:]] == [AmqpCondition.PRECONDITION_FAILED] * 3
    again = marked(client, name="again")
    assert told(again)[:2] == [0, 1]
    client.post_all(again, placed(0, 2), placed(0, 3))
    assert live_of(world, "q") == 2


@pytest.mark.parametrize("bad", ["no place", "short place", "garbage"])
def test_a_message_that_makes_no_sense_stops_those_behind_it_in_one_group(bad: str) -> None:
    wrong = {
        "no place": durable("x").encode(),
        "short place": Message("x", delivery_annotations={PLACE: b"12"}).encode(),
        "garbage": b"\x00\x53\x70",
    }[bad]
    world = World()
    client = world.client()
    link = marked(client)
    world.settle()
    deliveries = client.post(link, placed(0, 0), wrong, placed(0, 2))
    world.settle()
    assert client.outcome(deliveries[0]) == ACCEPTED
    assert condition_of(client.outcome(deliveries[1])) == AmqpCondition.DECODE_ERROR
    assert condition_of(client.outcome(deliveries[2])) == AmqpCondition.PRECONDITION_FAILED
    assert live_of(world, "q") == 1
    assert told(marked(client, name="again"))[:2] == [0, 0]


def test_a_message_that_is_released_for_want_of_a_subscription_stops_those_behind_it() -> None:
    world = World(BrokerOptions(address=(AddressRule("t", {"unroutable": "release"}),)))
    client = world.client()
    link = client.sender(None, target=Target("t", capabilities=("topic",)), properties={SENDER_MARK: "m"})
    world.settle()
    first, second = client.post(link, placed(0, 0), placed(0, 1))
    world.settle()
    assert client.outcome(first) == Released()
    assert condition_of(client.outcome(second)) == AmqpCondition.PRECONDITION_FAILED


def test_a_presettled_message_that_is_refused_ends_the_link() -> None:
    world = World()
    client = world.client()
    link = marked(client)
    world.settle()
    client.post(link, durable("no place"), settled=True)
    world.settle()
    assert link in client.detached


def test_no_posting_in_a_transaction() -> None:
    world = World()
    client = world.client()
    link = marked(client)
    world.settle()
    delivery = link.send(b"t", placed(0, 0).encode(), state=TransactionalState(b"nothing"))
    world.settle()
    assert condition_of(client.outcome(delivery)) == AmqpCondition.NOT_ALLOWED
    assert told(marked(client, name="again")) == []


@pytest.mark.parametrize("name", ["", "x" * 257, 7, b"bytes"])
def test_a_name_that_is_none_is_refused(name: object) -> None:
    world = World()
    client = world.client()
    link = marked(client, mark=name)
    assert client.detached[link].error.condition == AmqpCondition.INVALID_FIELD


# -- bounds, the journal -------------------------------------------------------------------------------------------


def test_more_marks_than_there_may_be_are_refused_until_old_ones_may_go() -> None:
    limits = BrokerLimits(sender_marks_max=2, sender_marks_kept_ms=1_000)
    world = World(BrokerOptions(limits=limits))
    client = world.client()
    for name in ("a", "b"):
        link = marked(client, name=name, mark=name)
        client.post_all(link, placed(0, 5))
        client.detach(link)
    refused = marked(client, name="c", mark="c")
    assert client.detached[refused].error.condition == AmqpCondition.RESOURCE_LIMIT_EXCEEDED
    assert told(marked(client, name="b", mark="b"))[:2] == [0, 5]  # it is in use from now on
    world.advance(1_000)
    client.post_all(marked(client, name="d", mark="d"), placed(0, 0))
    world = world.crash()
    kept = {key for namespace, key in world.opened.recorder.table.state if namespace == Namespace.SENDER_MARK}
    assert kept == {b"\0b", b"\0d"}


def test_marks_give_way_as_soon_as_a_shorter_time_is_configured_or_one_is_let_go() -> None:
    rule = BrokerOptions(limits=BrokerLimits(sender_marks_max=2, sender_marks_kept_ms=10_000))
    world = World(rule)
    client = world.client()
    held = marked(client, name="a", mark="a")
    client.post_all(held, placed(0, 0))
    world.advance(9_000)
    link = marked(client, name="b", mark="b")
    client.post_all(link, placed(0, 0))
    client.detach(link)
    world.advance(2_000)
    assert marked(client, name="c", mark="c") in client.detached
    client.detach(held)  # it is the oldest, and past its time
    assert told(marked(client, name="d", mark="d")) == []
    assert marked(client, name="e", mark="e") in client.detached
    world.core.apply(replace(rule, limits=replace(rule.limits, sender_marks_kept_ms=1_000)))
    assert told(marked(client, name="f", mark="f")) == []


@pytest.mark.parametrize(("by_days", "gives_way"), [(0, False), (6, False), (8, True)])
def test_a_clock_that_is_set_ahead_lets_marks_give_way_that_much_earlier(by_days: int, gives_way: bool) -> None:
    """Their times are the journal's, which has no other clock. One that nothing else wants the room of stays."""
    world = World(BrokerOptions(limits=BrokerLimits(sender_marks_max=2)))
    client = world.client()
    for name in ("a", "b"):
        link = marked(client, name=name, mark=name)
        client.post_all(link, placed(0, 5))
        client.detach(link)
    world.now_us += by_days * 86_400_000_000
    world.core.clock_set(by_days * 86_400_000_000)
    assert told(marked(client, name="b", mark="b"))[:2] == [0, 5], "there is room for it"
    wanted = marked(client, name="c", mark="c")
    assert (wanted not in client.detached) is gives_way


def test_a_mark_outlives_the_segment_that_its_record_is_in() -> None:
    world = World()
    client = world.client()
    client.post_all(marked(client), placed(4, 2, digest=9))
    noise = client.sender("noise", "noise")
    receiver = client.receiver("noise", credit=1_000)
    for _ in range(60):
        client.post_all(noise, *[durable(bytes(1_000)) for _ in range(10)])
        receiver.session.settle_all(client.held(receiver), ACCEPTED)
        receiver.grant(1_000)
        world.settle()
    assert world.opened.journal.left_through > 0
    world = world.crash()
    assert told(marked(world.client())) == [4, 2, 9]


def test_postings_without_room_leave_the_mark_where_it_was() -> None:
    world = World()
    client = world.client()
    link = marked(client)
    large = bytes(30_000)
    client.post_all(link, *[placed(0, index, large) for index in range(3)])
    assert live_of(world, "q") == told(marked(client, name="again"))[1] + 1  # type: ignore[operator]
    world.check_journal()


@pytest.mark.parametrize("address", ["q", None])
def test_numbers_that_run_out_within_one_sync_leave_no_gap(address: str | None) -> None:
    """The mark passed over those that found no number, and what its sender sent again was taken for repeated."""
    world = World()
    client = world.client()
    link = marked(client, address)
    world.settle()
    scribe = world.core.scribe
    first = scribe.sequences.last + 1
    scribe.sequences = Sequences(scribe.recorder, first, first + 1, block=16)
    rows = [placed(0, index, to="q") for index in range(9)]
    sent = client.post(link, *rows)
    world.settle()
    outcomes = [client.outcome(delivery) for delivery in sent]
    assert outcomes[:2] == [ACCEPTED, ACCEPTED]
    assert [condition_of(outcome) for outcome in outcomes[2:]] == [
        AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
        *[AmqpCondition.PRECONDITION_FAILED] * 6,
    ]
    again = marked(client, address, name="again")
    assert told(again)[:2] == [0, 1]
    client.post_all(again, *rows[1:])
    assert live_of(world, "q") == 9


@pytest.mark.pure
def test_the_ledger_knows_which_posting_the_highest_one_repeats() -> None:
    world = World()
    client = world.client()
    link = marked(client)
    client.post_all(link, placed(0, 0), placed(0, 1))
    seen: list[tuple[int, int]] = []
    transition = world.core.scribe.recorder.transition

    def watch(kind: int, sequence: int, *arguments: int, **named: int) -> None:
        seen.append((kind, sequence))
        transition(kind, sequence, *arguments, **named)

    world.core.scribe.recorder.transition = watch  # type: ignore[method-assign]
    client.post_all(link, placed(0, 0), placed(0, 1))
    highest = max(world.core.life.live)
    assert seen == [(EventKind.DUPLICATE, 0), (EventKind.DUPLICATE, highest)]


def test_where_memory_is_full_durable_ones_pass_and_a_volatile_one_stops_those_behind_it() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"memory_bytes_max": 64 * 1024}),)))
    client = world.client()
    first = client.sender("q", "first")
    while world.core.queues.by_name["q"].memory_bytes < 64 * 1024 - 500:
        client.post_all(first, durable(bytes(100)))
    before = live_of(world, "q")
    link = marked(client)
    client.post_all(link, placed(0, 0))
    sent = client.post(link, placed(0, 1), placed(0, 2, bytes(2_000), durable=False), placed(0, 3))
    world.settle()
    outcomes = [client.outcome(delivery) for delivery in sent]
    assert outcomes[0] == ACCEPTED
    assert condition_of(outcomes[1]) == AmqpCondition.RESOURCE_LIMIT_EXCEEDED
    assert condition_of(outcomes[2]) == AmqpCondition.PRECONDITION_FAILED
    assert live_of(world, "q") == before + 2
    assert told(marked(client, name="again"))[:2] == [0, 1]

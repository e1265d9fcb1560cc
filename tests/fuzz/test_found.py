"""What one peer can say that must not hurt another: the least of what `test_broker` once found."""

from __future__ import annotations

import pytest

from acquit.broker.admin.schedule import Listing, found_by_id
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import RELEASED
from acquit.protocol.definitions import (
    Accepted,
    AmqpCondition,
    Attach,
    Coordinator,
    Declare,
    Detach,
    Disposition,
    Flow,
    LinkCondition,
    Modified,
    Rejected,
    Role,
    Source,
    Target,
    TerminusExpiryPolicy,
    Transfer,
)
from acquit.protocol.message import AmqpValue, Message
from acquit.store.options import JournalOptions
from tests.support.broker_world import World, durable
from tests.support.raw_peer import RawPeer


def asked(world: World, body: object, **options: object) -> tuple[object, object]:
    """A client's links to and from the management node, with a question that is on its way."""
    client = world.client("asker")
    replies = client.begun.attach_receiver("replies", source=Source("$management"), target=Target("replies"), **options)
    replies.grant(10)
    requests = client.sender("$management", "requests")
    world.settle()
    question = Message(
        AmqpValue(body),  # type: ignore[arg-type]
        message_id=1,
        reply_to="replies",
        application_properties={"operation": "QUERY", "type": "acquit:queue"},
    )
    client.post(requests, question)
    world.settle()
    return client, replies


@pytest.mark.parametrize("names", [[[1]], [{}], [None], [[]]])
def test_attribute_names_of_any_type_are_answered(names: list[object]) -> None:
    client, replies = asked(World(), {"attributeNames": names})
    (answer,) = client.received[replies]  # type: ignore[attr-defined]
    assert Message.decode(answer.payload).application_properties["statusCode"] == 400


def test_an_answer_larger_than_the_asker_takes_ends_its_link_alone() -> None:
    world = World()
    client, replies = asked(world, None, max_message_size=40)
    error = client.detached[replies].error  # type: ignore[attr-defined]
    assert error is not None and error.condition == LinkCondition.MESSAGE_SIZE_EXCEEDED
    other = world.client("other")
    other.post_all(other.sender("q"), durable("x"))


CREDIT = Flow(0, 1 << 20, 0, 1 << 20, 0, 0, 10)
"""For the link of handle 0."""


def raw(world: World) -> RawPeer:
    """A peer that says what the test has it say."""
    return RawPeer(world, 1)


def receiving(name: str, handle: int, address: str = "q", **fields: object) -> Attach:
    return Attach(name, handle, Role.RECEIVER, source=Source(address), target=Target("there"), **fields)  # type: ignore[arg-type]


def filled(world: World, *bodies: object, name: str = "q", **fields: object) -> None:
    """Messages in a queue."""
    filler = world.client("filler")
    filler.post_all(filler.sender(name), *(durable(body, **fields) for body in bodies))
    filler.close()
    world.settle()


@pytest.mark.parametrize("state", [Accepted(), Modified(True), None])
def test_what_was_settled_just_before_a_link_is_stolen_counts(state: object) -> None:
    world = World()
    filled(world, "a")
    peer = raw(world)
    peer.say(receiving("r", 0))
    peer.say(CREDIT)
    world.settle()
    peer.say(receiving("r", 1))  # steals
    peer.say(Disposition(Role.RECEIVER, 0, 0, settled=True, state=state))  # type: ignore[arg-type]
    peer.say(Detach(1, closed=True))
    world.settle()
    queue = world.core.queues.by_name["q"]
    assert (queue.acquired, queue.live) == (0, 0 if isinstance(state, Accepted) else 1)
    world.check_journal()


def test_what_a_link_held_comes_back_where_its_detach_comes_with_what_ends_it() -> None:
    world = World()
    filled(world, "a")
    peer = raw(world)
    peer.say(receiving("r", 0))
    peer.say(CREDIT)
    world.settle()
    assert world.core.queues.by_name["q"].acquired == 1
    peer.say(receiving("r", 1))  # steals
    peer.say(Detach(0, closed=True))
    peer.say(Detach(1, closed=True))
    world.settle()
    queue = world.core.queues.by_name["q"]
    assert (queue.acquired, queue.available) == (0, 1)
    world.check_journal()


def test_a_session_that_ends_with_what_ends_its_link_gives_back_what_that_held() -> None:
    world = World()
    filled(world, "a")
    peer = raw(world)
    peer.say(receiving("r", 0))
    peer.say(CREDIT)
    world.settle()
    peer.say(receiving("r", 1))
    peer.end()
    world.settle()
    queue = world.core.queues.by_name["q"]
    assert (queue.acquired, queue.available) == (0, 1)


def test_an_error_that_is_larger_than_the_peers_frames_is_told_in_short() -> None:
    world = World()
    client = world.client("client", max_frame_size=512)
    sender = client.sender(None)
    (sent,) = client.post(sender, durable("x", to="a::" + "z" * 400))
    world.settle()
    outcome = client.outcome(sent)
    assert isinstance(outcome, Rejected) and outcome.error is not None
    assert outcome.error.condition == AmqpCondition.NOT_FOUND


def test_a_link_with_an_incomplete_map_is_refused() -> None:
    world = World()
    filled(world, "a")
    peer = raw(world)
    peer.say(receiving("r", 0, unsettled={}, incomplete_unsettled=True))
    peer.say(CREDIT)
    world.settle()
    assert world.core.queues.by_name["q"].available == 1


@pytest.mark.parametrize("size_max", [1, 32, 33, 60])
@pytest.mark.parametrize("presettled", [False, True])
def test_a_message_of_a_group_that_is_too_large_for_its_owner_goes_to_another(size_max: int, presettled: bool) -> None:
    world = World()
    client = world.client()
    small = client.receiver("q", "small", credit=10, presettled=presettled, max_message_size=160)
    tiny = client.receiver("q", "tiny", credit=10, presettled=presettled, max_message_size=size_max)
    sender = client.sender("q")
    client.post_all(sender, durable("a", group_id="g"))
    client.post_all(sender, durable("b" * 200, group_id="g"), durable("c" * 200))
    world.settle()
    assert client.bodies(small) == ["a"]
    assert client.bodies(tiny) == []
    large = client.receiver("q", "large", credit=10)
    world.settle()
    assert client.bodies(large) == ["b" * 200, "c" * 200]
    world.check_journal()


def test_a_message_that_grows_by_its_returns_is_judged_as_it_is() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"release_delay_ms_max": 0}),)))
    client = world.client()
    filled(world, "x" * 50)
    exact = client.receiver("q", "exact", credit=1)
    world.settle()
    (held,) = client.held(exact)
    size = len(held.payload)
    held.settle(RELEASED)
    world.settle()
    client.detach(exact)
    for allowance in range(30, 80):
        tight = client.receiver("q", f"tight{allowance}", credit=1, max_message_size=size + allowance)
        for delivery in client.held(tight):
            assert len(delivery.payload) <= size + allowance
        world.settle()
        client.detach(tight)
        world.settle()
    world.check_journal()


def test_a_temporary_topic_whose_link_is_refused_is_not_left_behind() -> None:
    world = World()
    peer = raw(world)
    for handle in range(3):
        source = Source(
            None,
            expiry_policy=TerminusExpiryPolicy.LINK_DETACH,
            dynamic=True,
            capabilities=("temporary-topic", "shared"),
        )
        peer.say(Attach("|nameless", handle, Role.RECEIVER, source=source, target=Target("there")))
    world.settle()
    assert not world.core.topics.by_address


def test_one_answer_that_fails_keeps_no_other_from_being_told() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")

    def fail() -> None:
        raise RuntimeError("a fault of ours")

    world.core.scribe.when_synced(fail)
    (sent,) = client.post(sender, durable("x"))
    world.carry()
    with pytest.raises(RuntimeError, match="a fault of ours"):
        world.sync()
    world.settle()
    assert isinstance(client.outcome(sent), Accepted)
    assert world.core.queues.by_name["q"].available == 1


def test_long_ids_are_not_kept_in_memory() -> None:
    world = World(journal=JournalOptions(segment_bytes=1 << 20))
    client = world.client()
    sender = client.sender("q")
    long = "x" * 60_000
    client.post_all(sender, durable("a", group_id=long), durable("b", group_id=long + "y"))
    later = durable("c", message_id=long, annotations={"x-opt-delivery-delay": 1_000})
    client.post_all(sender, later)
    for again in (world, world.crash()):
        client = again.client("again")
        reader = client.receiver("q", credit=10)
        again.settle()
        assert sorted(map(str, client.bodies(reader))) == ["a", "b"]
        extras = [message.extra for message in again.core.life.live.values() if message.extra is not None]
        assert {len(extra.group) for extra in extras if extra.group is not None} == {96}
        assert {len(extra.message_id) for extra in extras if extra.message_id} == {33}
        assert len({extra.group for extra in extras if extra.group is not None}) == 2
        client.close()
    queue = again.core.queues.by_name["q"]
    listing = Listing(queue, 0, 10)
    assert listing.run()
    told: list[object] = []
    listing.result.when_finished(told.append)
    assert [[one.message_id for one in found] for found in told if isinstance(found, list)] == [[None]]
    assert len(found_by_id(queue, long)) == 1
    assert not found_by_id(queue, long[1:])


def test_what_is_said_of_many_messages_at_once_is_kept_while_it_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acquit.broker.outcomes.settling.SAID_BYTES_MAX", 10_000)
    world = World(journal=JournalOptions(segment_bytes=1 << 20))
    filled(world, *range(20))
    client = world.client()
    reader = client.receiver("q", "n" * 5_000, credit=20)
    world.settle()
    said = {"x-opt-short": "y" * 40}, {"x-opt-long": "z" * 5_000}
    for words in said:
        reader.session.settle_all(client.held(reader), Modified(message_annotations=words))
        world.settle()
        reader.grant(20)
        world.settle()
    (one, *_) = client.held(reader)
    told = Message.decode(one.payload).annotations
    assert "x-opt-short" in told and "x-opt-long" not in told
    one.settle(Modified(message_annotations=said[1], undeliverable_here=True))
    world.settle()
    (extra,) = (message.extra for message in world.core.life.live.values() if message.extra and message.extra.excluded)
    assert sum(map(len, extra.annotations)) > 5_000, "of one alone it may be long"
    (terminus,) = extra.excluded
    assert len(terminus) < 1_100
    world.check_journal()
    again = world.crash()
    other = again.client()
    others = other.receiver("q", "n" * 5_000, credit=20), other.receiver("q", "n" * 5_000 + "x", credit=20)
    again.settle()
    assert [len(other.bodies(link)) for link in others] in ([19, 1], [10, 10])


def test_no_two_subscriptions_have_one_queue() -> None:
    world = World()
    client = world.client()
    first = client.subscriber("a", ":x", durable=True, shared_by_all=True)
    second = client.subscriber("a:", "x", durable=True, shared_by_all=True)
    error = client.detached[second].error
    assert error is not None and error.condition == AmqpCondition.INVALID_FIELD
    client.post_all(client.publisher("a"), durable("news"))
    world.settle()
    assert client.bodies(first) == ["news"]


def test_a_temporary_topic_goes_although_the_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    peer = raw(world)
    source = Source(
        None, expiry_policy=TerminusExpiryPolicy.LINK_DETACH, dynamic=True, capabilities=("temporary-topic",)
    )
    peer.say(Attach("t", 0, Role.RECEIVER, source=source, target=Target("there")))
    world.settle()
    (topic,) = world.core.topics.by_address.values()
    with monkeypatch.context() as full:
        full.setattr(world.core.queues, "record_deleted", lambda number, actor: False)
        peer.lose()
        assert not world.core.topics.by_address
    world.settle()
    assert topic.number not in world.fold().table.queues


def test_who_fences_itself_attaches_nothing_more() -> None:
    world = World()
    peer = raw(world)
    peer.say(receiving("replies", 0, "$management"))
    peer.say(CREDIT)
    for name, handle, target in (("ask", 1, Target("$management")), ("control", 2, Coordinator())):
        peer.say(Attach(name, handle, Role.SENDER, source=Source("here"), target=target, initial_delivery_count=0))
    world.settle()
    peer.say(Transfer(2, 0, b"0", 0, False), b"\x00\x53\x77" + encode_composite(Declare()))
    world.settle()
    (txn_id,) = peer.txn_ids
    question = Message(
        AmqpValue(None),
        reply_to="there",
        application_properties={"operation": "READ", "type": "acquit:transaction", "name": txn_id.hex()},
    )
    peer.say(Transfer(1, 1, b"1", 0, False), question.encode())
    peer.say(receiving("more", 3))
    peer.say(Attach("most", 4, Role.SENDER, source=Source("here"), target=Target("q"), initial_delivery_count=0))
    world.settle()
    assert peer.over
    assert "q" not in world.core.queues.by_name

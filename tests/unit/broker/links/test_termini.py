"""Termini that outlive their links, over lost connections and crashes, as raw frames of an engine see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions
from acquit.errors import StoreFull
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import (
    Accepted,
    AmqpCondition,
    Detach,
    Modified,
    RcvSettleMode,
    Received,
    Rejected,
    Released,
    SndSettleMode,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from acquit.protocol.delivery import Delivery, DeliveryState
from acquit.protocol.extensions import RESUME, TERMINUS
from acquit.protocol.frames import encode_frame
from acquit.protocol.link import Link, LinkState, ReceivingLink, SendingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World, durable
from tests.support.transacting import Controller

LASTING = {"durable": TerminusDurability.UNSETTLED_STATE, "expiry_policy": TerminusExpiryPolicy.NEVER}


def resume_from(
    client: Client,
    unsettled: Mapping[bytes, DeliveryState | None] | None,
    *,
    credit: int = 10,
    address: str = "q",
    settle: bool = True,
    incomplete: bool = False,
    **source: object,
) -> ReceivingLink:
    """Attach a resumable receiver with this unsettled map."""
    link = client.begun.attach_receiver(
        "receiver",
        source=Source(address, **{**LASTING, **source}),
        target=Target("there"),
        snd_settle_mode=SndSettleMode.UNSETTLED,
        rcv_settle_mode=RcvSettleMode.SECOND,
        unsettled=unsettled,
        incomplete_unsettled=incomplete,
        desired_capabilities=(RESUME,),
    )
    link.grant(credit)
    client.world.carry()
    if settle:
        client.world.settle()
    return link


def resume_to(
    client: Client, unsettled: Mapping[bytes, DeliveryState | None] | None, *, settle: bool = True
) -> SendingLink:
    """Attach a resumable sender with this unsettled map."""
    link = client.begun.attach_sender(
        "sender",
        source=Source("here"),
        target=Target("q", **LASTING),
        rcv_settle_mode=RcvSettleMode.SECOND,
        unsettled=unsettled,
        desired_capabilities=(RESUME,),
    )
    client.world.carry()
    if settle:
        client.world.settle()
    return link


def posted(*bodies: str, **options: object) -> World:
    world = World(**options)  # type: ignore[arg-type]
    sender = world.client("poster")
    sender.post_all(sender.sender("q"), *[durable(body) for body in bodies])
    return world


def map_of(link: ReceivingLink | SendingLink) -> Mapping[bytes, object]:
    """The broker's unsettled map, as its attach says."""
    assert link.remote_attach is not None
    return link.remote_attach.unsettled or {}


def queue_of(world: World) -> tuple[int, int, int]:
    queue = world.core.queues.by_name["q"]
    return queue.available, queue.acquired, queue.suspended


def test_the_broker_says_what_it_grants() -> None:
    world = posted()
    link = resume_from(world.client(), None)
    asked = link.remote_attach
    assert asked is not None
    assert RESUME in asked.offered_capabilities
    assert isinstance(asked.source, Source)
    assert asked.source.durable is TerminusDurability.UNSETTLED_STATE
    assert asked.source.timeout == 7 * 24 * 3600
    assert len(asked.properties[TERMINUS]) == 16  # type: ignore[index, arg-type]


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ({"durable": TerminusDurability.NONE}, BrokerOptions()),
        ({"durable": TerminusDurability.CONFIGURATION}, BrokerOptions()),
        ({"expiry_policy": TerminusExpiryPolicy.LINK_DETACH}, BrokerOptions()),
        ({}, BrokerOptions(limits=BrokerLimits(termini_max=0))),
    ],
)
def test_what_is_not_granted_is_not_offered(source: dict[str, object], options: BrokerOptions) -> None:
    world = posted("one", options=options)
    client = world.client()
    link = resume_from(client, None, **source)
    assert link.remote_attach is not None
    assert RESUME not in link.remote_attach.offered_capabilities
    client.lose()
    world.settle()
    assert queue_of(world) == (1, 0, 0)


def test_nothing_leaves_before_its_acquisition_is_on_the_disk() -> None:
    world = posted("one")
    client = world.client()
    link = resume_from(client, None, credit=0)
    link.grant(1)
    world.carry()
    assert client.received.get(link) is None
    world.settle()
    assert client.bodies(link) == ["one"]


@pytest.mark.parametrize("loss", ["connection", "crash", "stop", "session", "detach"])
def test_what_was_unsettled_waits_for_the_link_to_come_back(loss: str) -> None:
    world = posted("one", "two")
    client = world.client()
    link = resume_from(client, None)
    tags = [one.tag for one in client.received[link]]
    match loss:
        case "connection":
            client.lose()
        case "crash":
            world = world.crash()
        case "stop":
            world = world.stop()
        case "session":
            client.begun.end()
            client.session = None
        case "detach":
            client.detach(link, closed=False)
    world.settle()
    assert queue_of(world) == (0, 0, 2)
    other = world.client("other")
    assert other.bodies(other.receiver("q", credit=10)) == []

    client = world.client() if loss != "detach" and loss != "session" else client
    link = resume_from(client, dict.fromkeys(tags))
    assert list(map_of(link)) == tags
    assert client.bodies(link) == ["one", "two"]
    assert [one.tag for one in client.received[link]] == tags
    assert all(one.resumed for one in client.received[link])
    assert queue_of(world) == (0, 2, 0)
    for delivery in client.received[link]:
        delivery.settle(ACCEPTED)
    world.settle()
    assert all(one.settled for one in client.received[link])
    assert world.core.queues.by_name["q"].live == 0
    world.check_journal()


@pytest.mark.parametrize("crash", [False, True])
def test_an_outcome_that_was_lost_is_performed_as_the_link_comes_back(crash: bool) -> None:
    """Example 3 of 3.4.6."""
    world = posted("one", "two")
    client = world.client()
    link = resume_from(client, None)
    one, two = client.received[link]
    client.lose()
    world.settle()
    world = world.crash() if crash else world
    client = world.client()
    link = resume_from(client, {one.tag: ACCEPTED, two.tag: Rejected()}, settle=False)
    world.settle()
    resumed = client.received[link]
    assert [delivery.payload for delivery in resumed] == [b"", b""]
    assert [client.outcome(delivery) for delivery in resumed] == [Accepted(), Rejected()]
    assert world.core.queues.by_name["q"].live == 0
    assert world.core.queues.by_name["DLQ"].live == 1


def test_an_outcome_is_answered_after_its_record_is_synced() -> None:
    world = posted("one")
    client = world.client()
    link = resume_from(client, None)
    (one,) = client.received[link]
    client.lose()
    world.settle()
    client = world.client()
    link = resume_from(client, {one.tag: ACCEPTED}, settle=False)
    world.sync()
    world.carry()
    (resumed,) = client.received[link]
    assert client.outcome(resumed) is None
    crashed = world.crash()
    world.settle()
    assert client.outcome(resumed) == Accepted()
    assert crashed.core.queues.by_name["q"].live == 1


@pytest.mark.parametrize("crash", [False, True])
def test_what_the_broker_does_not_know_is_settled(crash: bool) -> None:
    """An outcome that was performed, and whose answer was lost."""
    world = posted("one", "two")
    client = world.client()
    link = resume_from(client, None)
    one, two = client.received[link]
    one.settle(ACCEPTED)
    world.carry()
    world.sync()  # the outcome is on the disk, and its answer on the way
    client.lose()
    world.settle()
    world = world.crash() if crash else world
    client = world.client()
    link = resume_from(client, {one.tag: ACCEPTED, two.tag: None})
    assert list(map_of(link)) == [two.tag]
    assert client.bodies(link) == ["two"]


def test_what_the_receiver_never_had_is_sent_again_to_it_alone() -> None:
    """Example 1 of 3.4.6."""
    world = posted("one", "two")
    client = world.client()
    link = resume_from(client, None)
    one, two = client.received[link]
    client.lose()
    world.settle()
    other = world.client("other")
    elsewhere = other.receiver("q", credit=10)
    client = world.client()
    link = resume_from(client, {two.tag: None})
    assert [(d.tag, d.resumed) for d in client.received[link]] == [(one.tag, False), (two.tag, True)]
    assert client.bodies(link) == ["one", "two"]
    assert other.bodies(elsewhere) == []


def test_a_part_is_resumed_from_the_first_byte() -> None:
    """Example 2 of 3.4.6, in its form a."""
    world = posted("one")
    client = world.client()
    link = resume_from(client, None)
    (one,) = client.received[link]
    client.lose()
    world.settle()
    client = world.client()
    link = resume_from(client, {one.tag: Received(1, 2)})
    assert client.bodies(link) == ["one"]


def test_what_waits_for_credit_goes_before_anything_new() -> None:
    world = posted("one", "two", "three")
    client = world.client()
    link = resume_from(client, None, credit=2)
    tags = [one.tag for one in client.received[link]]
    client.lose()
    world.settle()
    client = world.client()
    link = resume_from(client, dict.fromkeys(tags), credit=1)
    assert client.bodies(link) == ["one"]
    link.grant(5)
    world.settle()
    assert client.bodies(link) == ["one", "two", "three"]
    assert [one.resumed for one in client.received[link]] == [True, True, False]


@pytest.mark.parametrize("end", ["resumed", "its time", "restarted, resumed", "restarted, its time"])
def test_the_group_of_a_suspended_message_waits_for_it(end: str) -> None:
    world = World(BrokerOptions(limits=BrokerLimits(terminus_kept_ms_max=60_000)))
    client = world.client("first")
    sender = client.sender("q")
    client.post(sender, durable(b"a1", group_id="a"))
    world.settle()
    link = resume_from(client, {}, credit=1)
    tag = client.received[link][0].tag
    client.post(sender, durable(b"a2", group_id="a"), durable(b"b1", group_id="b"), durable(b"a3", group_id="a"))
    world.settle()
    client.lose()
    world.settle()
    if end.startswith("restarted"):
        world = world.crash()
    other = world.client("other").receiver("q", credit=10)
    world.settle()
    assert world.clients[-1].bodies(other) == [b"b1"]
    if end.endswith("its time"):
        world.advance(60_001)
        world.settle()
        assert world.clients[-1].bodies(other) == [b"b1", b"a1", b"a2", b"a3"]
    else:
        again = world.client("first")
        link = resume_from(again, {tag: None})
        assert again.bodies(link) == [b"a1", b"a2", b"a3"]
    world.check()
    world.check_journal()


def test_an_attach_without_a_map_begins_anew() -> None:
    world = posted("one")
    client = world.client()
    link = resume_from(client, None)
    before = link.remote_attach
    client.lose()
    world.settle()
    client = world.client()
    link = resume_from(client, None)
    after = link.remote_attach
    assert before is not None
    assert after is not None
    assert before.properties[TERMINUS] != after.properties[TERMINUS]  # type: ignore[index]
    assert map_of(link) == {}
    assert client.bodies(link) == ["one"]
    assert [one.resumed for one in client.received[link]] == [False]
    assert world.core.queues.by_name["q"].acquired == 1


@pytest.mark.parametrize(
    ("default", "attempts"), [(None, 1), (Released(), 0), (Modified(delivery_failed=True), 1), (Rejected(), None)]
)
def test_a_terminus_ends_after_its_time(default: DeliveryState | None, attempts: int | None) -> None:
    world = posted("one")
    client = world.client()
    resume_from(client, None, default_outcome=default, expiry_policy=TerminusExpiryPolicy.CONNECTION_CLOSE, timeout=60)
    client.lose()
    world.settle()
    world.advance(59_000)
    assert queue_of(world) == (0, 0, 1)
    world = world.crash()
    world.advance(2_000)
    world.settle()
    if attempts is None:
        assert world.core.queues.by_name["DLQ"].live == 1
        return
    assert queue_of(world) == (1, 0, 0)
    other = world.client("other")
    link = other.receiver("q", credit=1)
    world.settle()
    (delivery,) = other.received[link]
    assert Message.decode(delivery.payload).delivery_count == attempts
    world.check_journal()


def test_a_link_that_is_closed_ends_its_terminus() -> None:
    world = posted("one")
    client = world.client()
    link = resume_from(client, None, default_outcome=RELEASED)
    client.detach(link)
    world.settle()
    assert queue_of(world) == (1, 0, 0)


def test_another_user_has_another_terminus() -> None:
    world = posted("one")
    client = world.client(user="alice")
    link = resume_from(client, None)
    (one,) = client.received[link]
    client.lose()
    world.settle()
    thief = world.client(user="mallory")
    link = resume_from(thief, {one.tag: ACCEPTED})
    assert map_of(link) == {}
    assert thief.received.get(link) is None
    assert queue_of(world) == (0, 0, 1)


def test_a_link_that_is_stolen_hands_its_deliveries_on() -> None:
    world = posted("one")
    first = world.client()
    link = resume_from(first, None)
    (one,) = first.received[link]
    second = world.client()
    taken = resume_from(second, {one.tag: None})
    assert first.detached[link].error is not None
    assert second.bodies(taken) == ["one"]
    assert queue_of(world) == (0, 1, 0)
    one.settle(ACCEPTED)  # too late: it is the other's
    world.settle()
    assert queue_of(world) == (0, 1, 0)


def taken_unheard() -> tuple[World, Client, ReceivingLink, Delivery]:
    """A message whose lock has run out, of which its receiver, who has it and reads no more, has not heard."""
    policy = AddressRule("q", {"lock_duration_ms": 1_000})
    world = posted("one", options=BrokerOptions(address=(policy,)))
    client = world.client()
    link = resume_from(client, None, credit=1)
    (one,) = client.received[link]
    client.reading = False
    world.advance(2_000)
    world.settle()
    return world, client, link, one


def test_what_was_told_to_be_taken_is_not_resumed_after_a_crash() -> None:
    """The outcome came when the lock had run out and the journal did not know yet, and the broker is killed then."""
    policy = AddressRule("q", {"lock_duration_ms": 1_000})
    world = posted("one", options=BrokerOptions(address=(policy,)))
    client = world.client()
    (one,) = client.received[resume_from(client, None, credit=1)]
    world.advance(1_000)
    one.settle(ACCEPTED)
    world.carry()
    told = one in client.answers
    world = world.crash()
    link = resume_from(world.client(), {} if told else {one.tag: ACCEPTED}, credit=1)
    assert (one.tag in map_of(link)) is not told


@pytest.mark.parametrize("safe", [False, True], ids=["killed before", "killed after"])
def test_a_volatile_message_goes_to_another_when_the_journal_knows_that_it_was_taken(safe: bool) -> None:
    """Nothing else is recorded of it: over a crash, who had it first takes it for accepted, and another as well."""
    policy = AddressRule("q", {"lock_duration_ms": 1_000})
    world = posted("lasts", options=BrokerOptions(address=(policy,)))
    client = world.client()
    client.post(client.sender("q"), Message("volatile"))
    world.settle()
    link = resume_from(client, None, credit=2)
    assert client.bodies(link) == ["lasts", "volatile"]
    volatile = client.received[link][1]
    other = world.client("other")
    link = other.receiver("q", credit=2)
    world.advance(1_000)
    if safe:
        world.settle()
    had = "volatile" in other.bodies(link) if link in other.received else False
    assert had is safe
    world = world.crash()
    link = resume_from(world.client(), {volatile.tag: ACCEPTED}, credit=0)
    assert (volatile.tag in map_of(link)) is had


@pytest.mark.parametrize("safe", [False, True], ids=["killed before", "killed after"])
def test_a_volatile_message_goes_to_another_when_the_journal_knows_that_its_terminus_ended(safe: bool) -> None:
    """For the same reason."""
    world = World()
    client = world.client()
    client.post(client.sender("q"), Message("volatile", durable=False))
    world.settle()
    resume_from(client, None, expiry_policy=TerminusExpiryPolicy.CONNECTION_CLOSE, timeout=60)
    client.lose()
    world.settle()
    other = world.client("other")
    receiver = other.receiver("q", credit=1)
    world.advance(60_001)
    if safe:
        world.settle()
    had = bool(other.received.get(receiver))
    assert had is safe
    assert bool(world.crash().core._termini.snapshots()) is not had


def test_a_lock_that_ran_out_is_told_as_the_link_comes_back() -> None:
    """Example 13 of 3.4.6: the broker's outcome holds. Also over a crash."""
    world, client, link, one = taken_unheard()
    client.lose()
    world.settle()
    world = world.crash()
    client = world.client()
    link = resume_from(client, {one.tag: ACCEPTED}, credit=1)
    assert map_of(link) == {one.tag: Modified(delivery_failed=True)}
    (resumed,) = client.received[link]
    assert resumed.remote_state == Modified(delivery_failed=True)
    assert queue_of(world)[0] == 1
    resumed.settle(resumed.remote_state)
    world.settle()
    assert client.answers[resumed] == (Modified(delivery_failed=True), True)
    client.lose()
    world.settle()
    client = world.client()
    assert map_of(resume_from(client, {}, credit=0)) == {}


def test_who_keeps_to_its_outcome_hears_again_what_became_of_it() -> None:
    world, client, _, one = taken_unheard()
    client.lose()
    world.settle()
    client = world.client()
    (resumed,) = client.received[resume_from(client, {one.tag: ACCEPTED}, credit=1)]
    resumed.settle(ACCEPTED)
    world.settle()
    assert client.answers[resumed] == (Modified(delivery_failed=True), True)


def tags_of(world: World) -> int:
    """How many deliveries the broker still has to tell the receiver of."""
    (terminus,) = world.core._termini.snapshots()
    return terminus.tags


@pytest.mark.parametrize("way", ["answer", "abort"])
def test_what_was_taken_is_not_forgotten_before_the_peer_has_heard(way: str) -> None:
    """The connection is lost with the frame that tells it: a map without the tag would say that all went well."""
    world, client, _, one = taken_unheard()
    if way == "answer":
        one.settle(ACCEPTED)
    else:
        client.lose()
        client = world.client()
        client.reading = False
        resume_from(client, {one.tag: None}, credit=1)
    world.settle()
    client.lose()
    world.settle()
    client = world.client()
    assert map_of(resume_from(client, {one.tag: ACCEPTED}, credit=0)) == {one.tag: Modified(delivery_failed=True)}


@pytest.mark.pure
def test_a_rejection_that_became_a_failed_attempt_is_told_as_the_link_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There was no room for its dead letter, and the answer that said so is lost."""
    world = posted("one")
    client = world.client()
    (one,) = client.received[resume_from(client, None, credit=1)]

    def full(*_: object, **__: object) -> int:
        raise StoreFull("no room")

    monkeypatch.setattr(world.core._letters, "copy", full)
    client.reading = False
    one.settle(Rejected())
    world.settle()
    assert queue_of(world)[0] == 1
    client.lose()
    world.settle()
    client = world.client()
    assert map_of(resume_from(client, {one.tag: Rejected()}, credit=0)) == {one.tag: Modified(delivery_failed=True)}


def test_what_was_taken_is_forgotten_when_the_peer_speaks_of_what_was_sent_later() -> None:
    world, client, link, one = taken_unheard()
    one.settle(ACCEPTED)
    world.settle()
    client.reading = True
    world.settle()
    assert tags_of(world) == 1
    link.grant(1)
    world.settle()
    client.received[link][-1].settle(ACCEPTED)
    world.settle()
    assert tags_of(world) == 0


def test_a_queue_that_is_deleted_takes_its_termini_along() -> None:
    world = posted("one")
    client = world.client()
    resume_from(client, None)
    client.lose()
    world.settle()
    world.core.removal.remove(world.core.queues.by_name["q"], 0)
    world.settle()
    assert "q" not in world.core.queues.by_name
    assert not world.core.removal.queues
    world.check_journal()


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("resume", [resume_from, resume_to])
def test_a_queue_that_is_deleted_meanwhile_is_attached_to_by_nobody(
    resume: Callable[..., ReceivingLink | SendingLink], new: bool
) -> None:
    """What would be posted there was accepted, and was nowhere."""
    world = World() if new else posted("one")
    client = world.client()
    link = resume(client, None, settle=False)
    world.core.administration.delete("q", None)
    world.settle()
    error = client.detached[link].error
    assert error is not None and error.condition == AmqpCondition.RESOURCE_DELETED
    assert "q" not in world.core.queues.by_name
    world.check_journal()


def test_a_map_that_no_frame_holds_is_told_in_parts() -> None:
    bodies = [f"{number}" for number in range(40)]
    world = posted(*bodies)
    client = world.client(max_frame_size=512)
    link = resume_from(client, None, credit=40)
    tags = [one.tag for one in client.received[link]]
    assert len(tags) == 40
    client.lose()
    world.settle()
    left = list(tags)
    rounds = 0
    while left:
        client = world.client(max_frame_size=512)
        named = left[:10]
        link = resume_from(client, dict.fromkeys(named, ACCEPTED), credit=100, incomplete=len(left) > len(named))
        assert link.remote_attach is not None
        assert link.remote_attach.incomplete_unsettled == (len(left) > len(map_of(link)))
        settled = [one.tag for one in client.received[link] if client.outcome(one) == ACCEPTED]
        assert 0 < len(settled) <= len(named)
        left = [tag for tag in left if tag not in settled]
        client.lose()
        world.settle()
        rounds += 1
        assert rounds < 20
    assert world.core.queues.by_name["q"].live == 0


# -- peers that send --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True])
def test_a_sender_learns_what_was_posted(crash: bool) -> None:
    world = World()
    client = world.client()
    link = resume_to(client, None)
    first, second = client.post(link, durable("one"), durable("two"))
    world.carry()
    world.sync()  # posted; the answer is on its way
    client.lose()
    world.settle()
    world = world.crash() if crash else world
    client = world.client()
    link = resume_to(client, {first.tag: None, second.tag: None, b"never": None})
    assert map_of(link) == {first.tag: Accepted(), second.tag: Accepted()}
    assert world.core.queues.by_name["q"].live == 2


GARBAGE = b"\0\0\0\x01\0\0\0\0"
UNKNOWN_HANDLE = encode_frame(0, encode_composite(Detach(77)))


def leave(client: Client, link: Link, way: str) -> None:
    """End a link that is resumable, or what it stands on, or make the broker do so."""
    match way:
        case "detach":
            link.detach(closed=False)
        case "end":
            client.begun.end()
        case "close":
            client.engine.close()
        case _:
            frames = client.engine.data_to_send() + {"garbage": GARBAGE, "error": UNKNOWN_HANDLE}[way]
            world = client.world
            world.core.handle(client.peer, client.server.receive_data(frames, world.now_s), world.now_us)


WAYS = ("detach", "end", "close", "garbage", "error")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("alike", [False, True], ids=["singly", "as a run"])
@pytest.mark.parametrize("lasting", [False, True], ids=["volatile", "durable"])
def test_what_came_in_one_read_with_the_end_is_known(way: str, alike: bool, lasting: bool) -> None:
    """The engine has lost the deliveries before the broker hears of them."""
    world = World()
    client = world.client()
    link = resume_to(client, None)
    messages = [Message(body, durable=lasting) for body in ("one", "two", "six" if alike else "three")]
    if alike:
        client.post_all(link, *messages)  # so that the next ones are predicted
    before = world.core.queues.by_name["q"].live
    with world.in_one_read():
        sent = client.post(link, *messages)
        leave(client, link, way)
    world.settle()
    assert world.core.queues.by_name["q"].live == before + 3
    client = world.client()
    link = resume_to(client, {one.tag: None for one in sent})
    assert map_of(link) == {one.tag: Accepted() for one in sent}


@pytest.mark.parametrize("way", WAYS)
def test_what_was_resumed_in_one_read_with_the_end_is_known_still(way: str) -> None:
    """Its sender has not settled it: it was lost before it could hear the outcome."""
    world = World()
    client = world.client()
    (first,) = client.post(resume_to(client, None), durable("one"))
    world.settle()
    client.lose()
    client = world.client()
    link = resume_to(client, {first.tag: None})
    with world.in_one_read():
        link.send(first.tag, durable("one").encode(), resume=True)
        leave(client, link, way)
    world.settle()
    world = world.crash()
    assert map_of(resume_to(world.client(), {first.tag: None})) == {first.tag: Accepted()}
    assert world.core.queues.by_name["q"].live == 1


@pytest.mark.parametrize("settled", [False, True])
def test_what_is_resumed_is_posted_once(settled: bool) -> None:
    world = World()
    client = world.client()
    link = resume_to(client, None)
    (first,) = client.post(link, durable("one"))
    world.carry()
    world.sync()
    client.lose()
    world.settle()
    client = world.client()
    link = resume_to(client, {first.tag: None})
    again = link.send(first.tag, durable("one").encode(), resume=True, settled=settled)
    world.settle()
    if not settled:
        state, over = client.answers[again]
        assert (state, over) == (Accepted(), False)
        again.settle()
        world.settle()
    assert world.core.queues.by_name["q"].live == 1
    client.lose()
    world.settle()
    client = world.client()
    assert map_of(resume_to(client, {})) == {}


def test_what_the_sender_has_settled_is_forgotten() -> None:
    world = World()
    client = world.client()
    link = resume_to(client, None)
    (first,) = client.post(link, durable("one"))
    world.settle()
    assert client.answers[first] == (Accepted(), False)
    first.settle()
    world.settle()
    world = world.crash()
    client = world.client()
    assert map_of(resume_to(client, {first.tag: None})) == {}


def test_what_the_sender_does_not_name_is_settled() -> None:
    world = World()
    client = world.client()
    link = resume_to(client, None)
    client.post(link, durable("one"))
    world.settle()
    client.lose()
    world.settle()
    client = world.client()
    assert map_of(resume_to(client, {})) == {}
    world = world.crash()
    client = world.client()
    assert map_of(resume_to(client, {})) == {}


def test_a_posting_that_a_crash_forgets_is_not_known() -> None:
    world = World()
    client = world.client()
    link = resume_to(client, None)
    (first,) = client.post(link, durable("one"))
    world.carry()
    world = world.crash()
    client = world.client()
    link = resume_to(client, {first.tag: None})
    assert map_of(link) == {}
    link.send(first.tag, durable("one").encode())
    world.settle()
    assert world.core.queues.by_name["q"].live == 1


def test_a_tag_that_is_not_settled_is_not_used_again() -> None:
    world = World()
    client = world.client()
    link = resume_to(client, None)
    (first,) = client.post(link, durable("one"))
    world.settle()
    client.lose()
    world.settle()
    client = world.client()
    link = resume_to(client, {first.tag: None})
    link.send(first.tag, durable("another").encode())
    world.settle()
    assert client.detached[link].error is not None
    assert world.core.queues.by_name["q"].live == 1


def test_a_target_ends_after_its_time_too() -> None:
    world = World()
    client = world.client()
    link = resume_to(client, None)
    (first,) = client.post(link, durable("one"))
    world.settle()
    client.lose()
    world.settle()
    world.advance(8 * 24 * 3_600_000)
    world.settle()
    world = world.crash()
    client = world.client()
    assert map_of(resume_to(client, {first.tag: None})) == {}


def test_a_refusal_is_told_again() -> None:
    policy = AddressRule("q", {"messages_max": 1, "full_policy": "reject"})
    world = World(BrokerOptions(address=(policy,)))
    client = world.client()
    link = resume_to(client, None)
    first, second = client.post(link, durable("one"), durable("two"))
    world.carry()
    client.reading = False
    world.settle()
    client.lose()
    world.settle()
    client = world.client()
    known = map_of(resume_to(client, {first.tag: None, second.tag: None}))
    assert known[first.tag] == Accepted()
    assert isinstance(known[second.tag], Rejected)


@pytest.mark.parametrize("attach", [resume_from, resume_to])
def test_a_terminus_that_is_ended_while_its_attach_waits_is_not_attached(
    attach: Callable[..., ReceivingLink | SendingLink],
) -> None:
    world = posted("one")
    link = attach(world.client(), {}, settle=False)
    (terminus,) = world.core.administration.termini()
    world.core.administration.end_terminus(terminus.identity)
    world.settle()
    assert link.state is LinkState.DETACHED
    assert world.core.administration.termini() == []
    assert queue_of(world) == (1, 0, 0)
    world = world.crash()
    again = attach(world.client(), {})
    assert again.state is LinkState.ATTACHED


def test_what_a_terminus_holds_stays_there_when_its_link_is_refused() -> None:
    options = BrokerOptions(address=(AddressRule("q", {"consumers_max": 1}),))
    world = posted("one", options=options)
    client = world.client()
    link = resume_from(client, None)
    (one,) = client.received[link]
    client.lose()
    world.settle()
    other = world.client("another")
    consumer = other.receiver("q")
    world.settle()
    client = world.client()
    refused = resume_from(client, {one.tag: None})
    assert refused.state is LinkState.DETACHED
    (terminus,) = world.core.administration.termini()
    assert (terminus.attached, terminus.messages) == (False, 1)
    assert queue_of(world) == (0, 0, 1)
    other.detach(consumer)
    world.settle()
    link = resume_from(client, {one.tag: ACCEPTED})
    assert list(map_of(link)) == [one.tag]
    assert queue_of(world) == (0, 0, 0)
    world.check_journal()


def test_a_link_that_is_refused_leaves_no_terminus() -> None:
    world = posted("one", options=BrokerOptions(address=(AddressRule("q", {"consumers_max": 1}),)))
    consumer = world.client("another").receiver("q")
    world.settle()
    assert consumer.state is LinkState.ATTACHED
    refused = resume_from(world.client(), {})
    assert refused.state is LinkState.DETACHED
    assert world.core.administration.termini() == []


def test_an_attach_whose_answer_has_no_room_for_a_map_is_refused() -> None:
    world = posted("one")
    link = resume_from(world.client(max_frame_size=512), {}, address="q" * 100)
    assert link.state is LinkState.DETACHED
    assert world.core.administration.termini() == []
    assert resume_from(world.client(max_frame_size=1_024), {}, address="q" * 100).state is LinkState.ATTACHED


@pytest.mark.parametrize("begins", ["while it is suspended", "when it has ended"])
def test_a_browser_sees_what_a_terminus_gives_back_that_held_it_when_it_began(begins: str) -> None:
    world = posted("one", "two")
    client = world.client("k")
    link = resume_from(client, None, credit=1)
    assert client.bodies(link) == ["one"]
    client.lose()
    world.settle()
    looks = world.client("looks")
    browser = looks.receiver("q", "browser", browse=True)
    if begins == "while it is suspended":
        browser.grant(10)
        world.settle()
        assert looks.bodies(browser) == ["two"]
    (terminus,) = world.core._termini.snapshots()
    world.core.administration.end_terminus(terminus.identity)
    browser.grant(10)
    world.carry()
    world.settle()
    assert sorted(map(str, looks.bodies(browser))) == ["one", "two"]


@pytest.mark.parametrize("said", ["at once", "in a transaction", "at a commit after the end"])
def test_what_was_called_undeliverable_comes_to_the_next_terminus_of_the_name(said: str) -> None:
    world = posted("one")
    client = world.client("k")
    link = resume_from(client, None)
    (delivery,) = client.held(link)
    controller, outcome = Controller(client), Modified(undeliverable_here=True)
    if said == "at once":
        delivery.update(outcome)
    else:
        txn = controller.declare()
        controller.retire(txn, delivery, outcome=outcome, settled=False)
    if said == "in a transaction":
        assert controller.commit(txn) is None
    link.detach(closed=False)
    world.settle()
    (terminus,) = world.core._termini.snapshots()
    world.core.administration.end_terminus(terminus.identity)
    world.settle()
    if said == "at a commit after the end":
        assert controller.commit(txn) is None
    assert not world.core.life.exclusions
    link = client.receiver("q", credit=1)
    world.settle()
    assert client.bodies(link) == ["one"]
    world.check_journal()


def test_a_terminus_that_was_ended_says_nothing_more_when_its_time_comes() -> None:
    world = posted("one", "two")
    client = world.client("k")
    resume_from(client, None, credit=1).detach(closed=False)
    world.settle()
    (terminus,) = world.core._termini.snapshots()
    world.core.administration.end_terminus(terminus.identity)
    world.settle()
    link = client.receiver("q", credit=1)
    world.settle()
    client.held(link)[0].settle(Modified(undeliverable_here=True))
    world.settle()
    assert world.core.life.exclusions
    assert terminus.ends_in_ms is not None
    world.advance(terminus.ends_in_ms + 1_000)
    world.settle()
    assert world.core.life.exclusions, "what the next link of that name has said holds"
    link.grant(5)
    world.settle()
    assert client.bodies(link) == ["one", "two"]


def test_the_time_of_a_terminus_may_come_before_the_disk_has_its_end() -> None:
    world = posted("one", "two")
    client = world.client("k")
    resume_from(client, None, credit=2).detach(closed=False)
    world.settle()
    (terminus,) = world.core._termini.snapshots()
    assert terminus.ends_in_ms is not None
    world.now_us += (terminus.ends_in_ms - 5) * 1000
    world.core.administration.end_terminus(terminus.identity)
    world.advance(10)
    world.settle()
    link = client.receiver("q", credit=5)
    world.settle()
    assert client.bodies(link) == ["one", "two"]
    world.check_journal()

from __future__ import annotations

import pytest

from acquit.errors import LocalProtocolError
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import (
    AmqpCondition,
    Attach,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    LinkCondition,
    RcvSettleMode,
    Role,
    SessionCondition,
    SndSettleMode,
    Source,
    Target,
)
from acquit.protocol.events import (
    DeliveriesReceived,
    LinkAttached,
    LinkDetached,
    LinkRequested,
    SessionEnded,
    StatesReceived,
)
from acquit.protocol.link import LinkState, ReceivingLink, SendingLink
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.settlement import Phase
from acquit.protocol.types import Described, ULong
from tests.support.peer import (
    attach_to,
    begun_server,
    credit_flow,
    receiving_attach,
    receiving_engine,
    sending_attach,
    sending_engine,
    transfer,
)
from tests.support.wire import kinds, only, opened

NOT_FOUND = Error(AmqpCondition.NOT_FOUND, "no such address")

# -- attach


def test_source_and_target_are_as_their_own_side_says() -> None:
    wire = opened()
    session, _ = wire.begin()
    sender = session.attach_sender("l", source=Source("my source"), target=Target("wanted"))
    _, heard = wire.run()
    receiver = only(heard, LinkRequested).link
    assert isinstance(receiver, ReceivingLink)
    assert receiver.remote_attach is not None
    assert receiver.remote_attach.target == Target("wanted")
    receiver.accept_attach(source=Source("not mine to say"), target=Target("actual"))
    heard, _ = wire.run()
    assert heard == [LinkAttached(sender)]
    for link in (sender, receiver):
        assert link.source == Source("my source")
        assert link.target == Target("actual")
        assert link.state is LinkState.ATTACHED


@pytest.mark.parametrize("asked", list(SndSettleMode))
@pytest.mark.parametrize("granted", list(SndSettleMode))
def test_the_sender_says_how_it_settles(asked: SndSettleMode, granted: SndSettleMode) -> None:
    wire = opened()
    session, _ = wire.begin()
    receiver = session.attach_receiver("l", source=Source("s"), snd_settle_mode=asked)
    _, heard = wire.run()
    sender = only(heard, LinkRequested).link
    sender.accept_attach(snd_settle_mode=granted)
    wire.run()
    assert receiver.snd_settle_mode is sender.snd_settle_mode is granted


@pytest.mark.parametrize("asked", list(RcvSettleMode))
@pytest.mark.parametrize("granted", list(RcvSettleMode))
def test_the_receiver_says_when_it_settles(asked: RcvSettleMode, granted: RcvSettleMode) -> None:
    wire = opened()
    session, _ = wire.begin()
    sender = session.attach_sender("l", source=Source("s"), target=Target("t"), rcv_settle_mode=asked)
    _, heard = wire.run()
    receiver = only(heard, LinkRequested).link
    receiver.accept_attach(rcv_settle_mode=granted)
    wire.run()
    assert receiver.rcv_settle_mode is sender.rcv_settle_mode is granted


@pytest.mark.parametrize("asked", list(RcvSettleMode))
@pytest.mark.parametrize("granted", list(RcvSettleMode))
def test_a_sender_can_say_that_it_does_not_wait_for_the_receiver(asked: RcvSettleMode, granted: RcvSettleMode) -> None:
    wire = opened()
    session, _ = wire.begin()
    receiver = session.attach_receiver("l", source=Source("s"), target=Target("t"), rcv_settle_mode=asked)
    _, heard = wire.run()
    sender = only(heard, LinkRequested).link
    sender.accept_attach(rcv_settle_mode=granted)
    wire.run()
    assert receiver.rcv_settle_mode is min(asked, granted)


def test_what_is_left_out_is_as_the_peer_asked() -> None:
    wire = opened()
    session, _ = wire.begin()
    sender = session.attach_sender(
        "txn",
        source=Source("s"),
        target=Target("t"),
        snd_settle_mode=SndSettleMode.UNSETTLED,
        rcv_settle_mode=RcvSettleMode.SECOND,
    )
    _, heard = wire.run()
    only(heard, LinkRequested).link.accept_attach(properties={"a": 1}, offered_capabilities=("b",))
    wire.run()
    answer = sender.remote_attach
    assert answer is not None
    assert answer == Attach(
        "txn",
        0,
        Role.RECEIVER,
        SndSettleMode.UNSETTLED,
        RcvSettleMode.SECOND,
        Source("s"),
        Target("t"),
        max_message_size=64 * 1024 * 1024,
        offered_capabilities=("b",),
        properties={"a": 1},
    )
    assert sender.remote_max_message_size == 64 * 1024 * 1024


def test_a_coordinator_is_a_target() -> None:
    wire = opened()
    session, _ = wire.begin()
    session.attach_sender("txn", source=Source("s"), target=Coordinator(("amqp:local-transactions",)))
    _, heard = wire.run()
    link = only(heard, LinkRequested).link
    link.accept_attach()
    assert link.target == Coordinator(("amqp:local-transactions",))


def test_unsettled_maps_are_for_the_application() -> None:
    wire = opened()
    session, _ = wire.begin()
    sender = session.attach_sender("l", source=Source("s"), target=Target("t"), unsettled={b"1": None, b"2": ACCEPTED})
    _, heard = wire.run()
    link = only(heard, LinkRequested).link
    assert link.remote_attach is not None
    assert link.remote_attach.unsettled == {b"1": None, b"2": ACCEPTED}
    link.accept_attach(unsettled={b"2": ACCEPTED}, incomplete_unsettled=True)
    wire.run()
    assert sender.remote_attach is not None
    assert sender.remote_attach.unsettled == {b"2": ACCEPTED}
    assert sender.remote_attach.incomplete_unsettled


# -- refusal


def test_a_refused_sender() -> None:
    wire = opened()
    session, _ = wire.begin()
    sender = session.attach_sender("l", source=Source("s"), target=Target("nowhere"))
    _, heard = wire.run()
    refused = only(heard, LinkRequested).link
    refused.refuse(NOT_FOUND)
    heard_by_client, heard_by_server = wire.run()
    assert heard_by_client == [LinkDetached(sender, True, NOT_FOUND, remote=True, unsettled=[])]
    assert heard_by_server == [LinkDetached(refused, True, None, remote=False, unsettled=[])]
    assert sender.remote_attach is not None
    assert sender.remote_attach.target is None, "2.6.3"
    assert sender.remote_attach.source == Source("s")
    assert session.links == []


def test_a_refused_receiver() -> None:
    wire = opened()
    session, theirs = wire.begin()
    receiver = session.attach_receiver("l", source=Source("nowhere"), target=Target("t"))
    _, heard = wire.run()
    only(heard, LinkRequested).link.refuse(NOT_FOUND)
    heard, _ = wire.run()
    assert kinds(heard) == ["LinkDetached"]
    assert receiver.remote_attach is not None
    assert receiver.remote_attach.source is None
    assert theirs.links == []


def test_a_peer_that_refuses_without_closing_still_has_refused() -> None:
    peer = begun_server()
    link = peer.engine.sessions[0].attach_sender("l", source=Source("s"), target=Target("t"))
    peer.hear()
    assert peer.say(receiving_attach("l", target=None)) == []
    (told,) = peer.say(Detach(0, False, NOT_FOUND))
    assert told == LinkDetached(link, True, NOT_FOUND, remote=True, unsettled=[])
    assert peer.hear_only(Detach).closed


def test_a_request_is_answered_once() -> None:
    peer = begun_server()
    link = only(peer.say(sending_attach()), LinkRequested).link
    with pytest.raises(LocalProtocolError, match="accept or refuse"):
        link.detach()
    link.accept_attach()
    for answer in (link.accept_attach, lambda: link.refuse(NOT_FOUND)):
        with pytest.raises(LocalProtocolError, match="no request"):
            answer()


def test_a_peer_that_is_gone_before_it_is_answered() -> None:
    peer = begun_server()
    events = peer.say(sending_attach()) + peer.say(Detach(0, closed=True))
    assert kinds(events) == ["LinkRequested", "LinkDetached"]
    assert [type(item) for item in peer.hear()] == [Attach, Detach], "its attach is answered, as it must be"
    link = only(events, LinkRequested).link
    link.accept_attach()
    assert peer.hear() == [], "too late is no mistake of the application's"
    with pytest.raises(LocalProtocolError):
        link.refuse(NOT_FOUND)
    assert peer.engine.sessions[0].links == []


@pytest.mark.parametrize("accept", [True, False])
def test_a_session_that_is_gone_before_the_answer(accept: bool) -> None:
    peer = begun_server()
    link = only(peer.say(sending_attach()) + peer.say(End()), LinkRequested).link
    peer.hear()
    if accept:
        link.accept_attach()
    else:
        link.refuse(NOT_FOUND)
    assert not peer.engine.has_output


def test_a_terminus_of_an_unknown_type_is_refused() -> None:
    peer = begun_server()
    strange = Described(ULong(0x9999), [])
    assert peer.say(sending_attach(target=strange)) == [], "nobody hears of it"
    answer, detach = peer.hear()
    assert isinstance(answer, Attach)
    assert answer.target is None
    assert isinstance(detach, Detach)
    assert detach.error is not None
    assert detach.error.condition == AmqpCondition.NOT_IMPLEMENTED
    assert peer.say(Detach(0, closed=True)) == []
    assert peer.engine.sessions[0].links == []


def test_a_senders_attach_without_a_delivery_count() -> None:
    peer = begun_server()
    assert peer.say(sending_attach(initial_delivery_count=None)) == []
    assert peer.error_heard(Detach).condition == AmqpCondition.INVALID_FIELD


def test_the_same_in_answer_to_ours() -> None:
    peer = begun_server()
    link = peer.engine.sessions[0].attach_receiver("l", source=Source("s"))
    peer.hear()
    (told,) = peer.say(sending_attach("l", initial_delivery_count=None))
    assert isinstance(told, LinkDetached)
    assert told.link is link
    assert peer.error_heard(Detach).condition == AmqpCondition.INVALID_FIELD


def test_an_answer_too_large_for_the_peers_frame_ends_the_session() -> None:
    """There is no shorter way to answer its attach."""
    peer = begun_server(max_frame_size=512)
    link = only(peer.say(sending_attach("x" * 600)), LinkRequested).link
    link.accept_attach()
    assert peer.error_heard(End).condition == AmqpCondition.FRAME_SIZE_TOO_SMALL
    (told,) = peer.engine.handle_deadline(peer.now)
    assert isinstance(told, SessionEnded)
    assert not told.remote


# -- flow before the answer


def test_credit_that_came_before_the_answer_counts() -> None:
    peer = begun_server()
    events = peer.say(receiving_attach()) + peer.say(credit_flow(5, delivery_count=None))
    assert kinds(events) == ["LinkRequested"]
    link = only(events, LinkRequested).link
    assert isinstance(link, SendingLink)
    assert not link.sendable
    link.accept_attach(initial_delivery_count=0xFFFF_FFFE)
    assert link.credit == 5
    assert link.sendable
    assert kinds(peer.engine.handle_deadline(peer.now)) == ["CreditChanged"]


def test_a_transfer_before_the_answer() -> None:
    peer = begun_server()
    peer.say(sending_attach())
    (told,) = peer.say(transfer(0))
    assert isinstance(told, LinkDetached)
    assert peer.error_heard(Detach).condition == LinkCondition.TRANSFER_LIMIT_EXCEEDED


# -- detach


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("error", [None, NOT_FOUND])
def test_we_detach(closed: bool, error: Error | None) -> None:
    wire = opened()
    session, _ = wire.begin()
    sender, receiver = wire.attach_sender(session)
    sender.detach(error, closed=closed)
    sender.detach()
    heard_by_client, heard_by_server = wire.run()
    gone = closed or error is not None
    assert heard_by_client == [LinkDetached(sender, gone, None, remote=False, unsettled=[])]
    assert heard_by_server == [LinkDetached(receiver, gone, error, remote=True, unsettled=[])]
    assert sender.state is receiver.state is LinkState.DETACHED
    assert session.links == []


def test_both_detach_at_once() -> None:
    wire = opened()
    session, _ = wire.begin()
    sender, receiver = wire.attach_sender(session)
    sender.detach(closed=False)
    receiver.detach(NOT_FOUND)
    heard_by_client, heard_by_server = wire.run()
    assert heard_by_client == [LinkDetached(sender, True, NOT_FOUND, remote=False, unsettled=[])]
    assert heard_by_server == [LinkDetached(receiver, True, None, remote=False, unsettled=[])]


def test_a_detach_before_our_attach_is_answered() -> None:
    wire = opened()
    session, _ = wire.begin()
    link = session.attach_sender("l", source=Source("s"), target=Target("t"))
    link.detach()
    heard_by_client, heard_by_server = wire.run()
    assert kinds(heard_by_client) == ["LinkDetached"]
    assert kinds(heard_by_server) == ["LinkRequested", "LinkDetached"]
    assert session.links == []


def test_the_application_may_answer_a_detach_later() -> None:
    peer = begun_server()
    peer.engine.ends_later = True
    link = attach_to(peer, sending_attach("one"))
    assert kinds(peer.say(Detach(0, closed=True))) == ["LinkDetached"]
    assert peer.hear() == []
    assert (link.state, link.end_owed) == (LinkState.DETACHED, True)
    other = attach_to(peer, sending_attach("two", 0))
    assert other.handle == 1, "the peer's handle is free, and ours is not"
    link.answer_end()
    assert peer.hear() == [Detach(0, True)]
    link.answer_end()
    link.detach()
    assert peer.hear() == []
    assert peer.engine.sessions[0].links == [other]
    assert attach_to(peer, sending_attach("one", 1)).handle == 0


def test_a_detach_before_its_attach_is_answered_is_answered_later_as_well() -> None:
    peer = begun_server()
    peer.engine.ends_later = True
    link = only(peer.say(sending_attach()) + peer.say(Detach(0, closed=True)), LinkRequested).link
    assert [type(item) for item in peer.hear()] == [Attach]
    link.accept_attach()
    assert peer.hear() == []
    link.answer_end()
    assert peer.hear() == [Detach(0, True)]
    assert peer.engine.sessions[0].links == []


@pytest.mark.parametrize("end", [End(), Close()], ids=["session", "connection"])
def test_what_has_ended_is_owed_no_answer(end: End | Close) -> None:
    peer = begun_server()
    peer.engine.ends_later = True
    link = attach_to(peer, sending_attach())
    peer.say(Detach(0, closed=True))
    peer.say(end)
    assert [type(item) for item in peer.hear()] == [type(end)]
    link.answer_end()
    assert peer.hear() == []


@pytest.mark.parametrize(
    ("detach", "later"),
    [(Detach(0, closed=False), True), (Detach(0, True, NOT_FOUND), True), (Detach(0, closed=True), False)],
    ids=["suspended", "failed", "said of the link"],
)
def test_other_detaches_are_answered_at_once(detach: Detach, later: bool) -> None:
    peer = begun_server()
    peer.engine.ends_later = True
    link = attach_to(peer, sending_attach())
    link.ends_later = later
    peer.say(detach)
    assert [type(item) for item in peer.hear()] == [Detach]
    assert not link.end_owed


def test_what_is_on_the_way_when_we_detach_is_ignored() -> None:
    peer, link = receiving_engine()
    link.detach(NOT_FOUND)
    peer.hear()
    assert peer.say(transfer(0)) == []
    assert peer.say(transfer(1, more=True), b"a") == []
    assert peer.say(transfer(None, more=False), b"b") == []
    assert peer.say(Flow(0, 9, 3, 9, handle=0, delivery_count=3, link_credit=1, echo=True)) == []
    assert kinds(peer.say(Detach(0, closed=True))) == ["LinkDetached"]
    second = attach_to(peer, sending_attach("again"))
    second.grant(5)  # type: ignore[attr-defined]
    assert kinds(peer.say(transfer(2))) == ["DeliveriesReceived"], "its delivery-ids were counted"


def test_dispositions_still_arrive_while_we_close() -> None:
    wire = opened()
    session, _ = wire.begin()
    sender, _ = wire.attach_sender(session, credit=5)
    sent = sender.send(b"1", b"x")
    _, heard = wire.run()
    sender.detach()
    only(heard, DeliveriesReceived).deliveries[0].settle(ACCEPTED)
    heard, _ = wire.run()
    assert heard == [
        StatesReceived(sender, [sent], ACCEPTED, settled=True),
        LinkDetached(sender, True, None, remote=False, unsettled=[]),
    ]


def test_closing_loses_what_nobody_settled() -> None:
    wire = opened()
    session, theirs = wire.begin()
    sender, receiver = wire.attach_sender(session, credit=5)
    other, _ = wire.attach_sender(session, "other", credit=5)
    sent = [sender.send(b"1", b"x"), sender.send(b"2", b"x")]
    kept = other.send(b"3", b"x")
    wire.run()
    arrived = receiver.unsettled()
    sender.detach()
    heard_by_client, heard_by_server = wire.run()
    assert only(heard_by_client, LinkDetached).unsettled == sent
    assert only(heard_by_server, LinkDetached).unsettled == arrived
    assert {delivery.phase for delivery in sent + arrived} == {Phase.LOST}
    assert theirs.settle_all(arrived, ACCEPTED) == 0
    assert session.unsettled() == [kept]


def test_a_suspended_link_leaves_its_deliveries_alive() -> None:
    """2.7.6: dispositions may refer to links that are no longer attached, unless closed or detached with an error."""
    wire = opened()
    session, _ = wire.begin()
    sender, _ = wire.attach_sender(session, credit=5)
    sent = sender.send(b"1", b"x")
    _, heard = wire.run()
    (arrived,) = only(heard, DeliveriesReceived).deliveries
    sender.detach(closed=False)
    heard, _ = wire.run()
    assert heard == [LinkDetached(sender, False, None, remote=False, unsettled=[sent])]
    assert sent.phase == Phase.UNSETTLED
    assert arrived.settle(ACCEPTED)
    heard, _ = wire.run()
    assert heard == [StatesReceived(sender, [sent], ACCEPTED, settled=True)]


def test_a_link_attached_again_after_it_was_suspended() -> None:
    wire = opened()
    session, _ = wire.begin()
    sender, _ = wire.attach_sender(session, credit=5)
    sender.detach(closed=False)
    wire.run()
    again, receiver = wire.attach_sender(session, credit=1)
    again.send(b"1", b"x")
    _, heard = wire.run()
    assert only(heard, DeliveriesReceived).link is receiver


def test_an_error_ends_the_link_although_closed_is_not_said() -> None:
    """2.6.5: an endpoint that is detached with an error is destroyed."""
    peer, link = sending_engine()
    sent = link.send(b"1", b"x")
    peer.hear()
    (told,) = peer.say(Detach(0, False, NOT_FOUND))
    assert told == LinkDetached(link, True, NOT_FOUND, remote=True, unsettled=[sent])
    assert sent.phase == Phase.LOST


def test_an_errant_handle_is_forgiven_when_it_is_attached_again() -> None:
    peer, _ = receiving_engine()
    peer.say(Detach(0, True, NOT_FOUND))
    attach_to(peer, sending_attach("again"))
    peer.say(Detach(0, True))
    ended = only(peer.say(Detach(0)), SessionEnded)
    assert ended.error is not None
    assert ended.error.condition == SessionCondition.UNATTACHED_HANDLE


def test_no_flow_follows_our_detach() -> None:
    """The handle is about to go: a flow for it would end the session."""
    wire = opened()
    session, _ = wire.begin()
    receiver, _ = wire.attach_receiver(session, credit=3)
    receiver.grant(10)
    receiver.detach()
    receiver.grant(20)
    heard_by_client, heard_by_server = wire.run()
    assert kinds(heard_by_client) == kinds(heard_by_server) == ["LinkDetached"]


def test_nothing_is_said_of_the_deliveries_of_a_link_that_we_close() -> None:
    peer, link = receiving_engine()
    arrived = [only(peer.say(transfer(id_)), DeliveriesReceived).deliveries[0] for id_ in range(3)]
    arrived[0].settle(ACCEPTED)
    link.detach()
    assert not arrived[1].settle(ACCEPTED)
    assert link.session.settle_all(arrived, ACCEPTED) == 0
    assert [type(item) for item in peer.hear()] == [Disposition, Detach]
    told = only(peer.say(Detach(0, closed=True)), LinkDetached)
    assert told.unsettled == arrived[1:]


def test_those_of_a_link_that_we_suspend_can_still_be_settled() -> None:
    peer, link = receiving_engine()
    (delivery,) = only(peer.say(transfer(0)), DeliveriesReceived).deliveries
    link.detach(closed=False)
    assert delivery.settle(ACCEPTED)
    assert [type(item) for item in peer.hear()] == [Detach, Disposition]


def test_an_answer_that_cannot_be_encoded_can_be_given_again() -> None:
    peer = begun_server()
    link = only(peer.say(sending_attach()), LinkRequested).link
    with pytest.raises(LocalProtocolError):
        link.accept_attach(properties={"x": object()})
    assert peer.hear() == []
    link.refuse(NOT_FOUND)
    assert [type(item) for item in peer.hear()] == [Attach, Detach]


def test_a_closed_link_makes_room_for_the_others() -> None:
    """`unsettled_max` counts the session's deliveries, and those of a closed link are no more."""
    wire = opened(ConnectionOptions(container_id="c", unsettled_max=2))
    session, _ = wire.begin()
    one, _ = wire.attach_sender(session, "one", credit=5)
    two, _ = wire.attach_sender(session, "two", credit=5)
    one.send(b"1", b"x")
    one.send(b"2", b"x")
    assert not two.sendable
    one.detach()
    heard, _ = wire.run()
    assert kinds(heard) == ["CreditChanged", "LinkDetached"]
    assert two.sendable


def test_an_echo_asked_for_before_we_accepted_is_answered() -> None:
    peer = begun_server()
    link = only(peer.say(receiving_attach()), LinkRequested).link
    flow = credit_flow(5)
    flow.echo = True
    peer.say(flow)
    peer.hear()
    link.accept_attach()
    _, answer = peer.hear()
    assert isinstance(answer, Flow)
    assert (answer.handle, answer.link_credit) == (link.handle, 5)

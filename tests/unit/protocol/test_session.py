from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from acquit.errors import FrameTooLarge, LocalProtocolError
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import (
    Accepted,
    AmqpCondition,
    Attach,
    Begin,
    Close,
    ConnectionCondition,
    Declared,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    RcvSettleMode,
    Received,
    Rejected,
    Role,
    SessionCondition,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from acquit.protocol.delivery import Delivery, DeliveryState
from acquit.protocol.events import (
    CreditChanged,
    DeliveriesReceived,
    Event,
    LinkDetached,
    SessionBegun,
    SessionEnded,
    StatesReceived,
)
from acquit.protocol.frames import encode_frame
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.serial import MASK
from acquit.protocol.session import SessionState
from acquit.protocol.settlement import Phase
from acquit.protocol.types import Described, ULong
from tests.support.peer import (
    Peer,
    attach_to,
    begun_server,
    credit_flow,
    open_server,
    receiving_attach,
    receiving_engine,
    sending_attach,
    sending_engine,
    transfer,
)
from tests.support.wire import SERVER, frames_in, kinds, only, opened

# -- begin and end


def test_a_session_begins_and_ends() -> None:
    wire = opened()
    session, theirs = wire.begin()
    assert session.state is theirs.state is SessionState.MAPPED
    assert theirs.remote_begin is not None
    assert theirs.remote_begin.remote_channel is None
    session.end()
    heard_by_client, heard_by_server = wire.run()
    assert heard_by_client == [SessionEnded(session, None, remote=False)]
    assert heard_by_server == [SessionEnded(theirs, None, remote=True)]
    assert session.state is theirs.state is SessionState.ENDED
    assert wire.client.sessions == wire.server.sessions == []
    session.end()
    assert not wire.client.has_output


def test_both_end_at_once() -> None:
    wire = opened()
    session, theirs = wire.begin()
    session.end(Error("amqp:internal-error"))
    theirs.end()
    heard_by_client, heard_by_server = wire.run()
    assert heard_by_client == [SessionEnded(session, None, remote=False)]
    assert heard_by_server == [SessionEnded(theirs, Error("amqp:internal-error"), remote=False)]
    assert wire.client.sessions == wire.server.sessions == []


def test_an_end_before_the_begin_is_answered() -> None:
    wire = opened()
    session = wire.client.begin()
    session.attach_sender("early", target=Target("t"))
    session.end()
    heard_by_client, heard_by_server = wire.run()
    assert kinds(heard_by_client) == ["SessionEnded"]
    assert kinds(heard_by_server) == ["SessionBegun", "LinkRequested", "SessionEnded"]
    assert wire.client.sessions == []
    again, _ = wire.begin()
    assert again.channel == 1


@pytest.mark.parametrize("by_us", [True, False])
def test_the_channel_of_a_session_that_ended_is_the_last_to_be_taken_again(by_us: bool) -> None:
    wire = opened(server=ConnectionOptions(container_id="s", channel_max=2))
    ours, theirs = wire.begin()
    if by_us:
        ours.end()
    else:
        theirs.end(Error("amqp:not-implemented"))
    wire.run()
    assert [wire.begin()[0].channel for _ in range(3)] == [1, 2, 0]
    with pytest.raises(LocalProtocolError):
        wire.client.begin()


def test_links_can_be_attached_before_the_begin_is_answered() -> None:
    wire = opened()
    session = wire.client.begin()
    link = session.attach_receiver("early", source=Source("s"))
    link.grant(5)
    _, heard = wire.run()
    assert kinds(heard) == ["SessionBegun", "LinkRequested"]


def test_what_we_say_in_begin() -> None:
    options = ConnectionOptions(
        container_id="c", incoming_window_frames=17, outgoing_window_frames=19, handle_max=23, initial_serial=29
    )
    peer = open_server(options)
    peer.engine.begin(offered_capabilities=("a",), desired_capabilities=("b",), properties={"p": "q"})
    assert peer.hear_only(Begin) == Begin(None, 29, 17, 19, 23, ("a",), ("b",), {"p": "q"})


def test_sessions_on_crossed_channels() -> None:
    """Channels are numbered by each side on its own (2.4.1)."""
    peer = open_server()
    ours = peer.engine.begin()
    theirs = only(peer.say(Begin(None, 0, 1, 1), channel=7), SessionBegun).session
    assert only(peer.say(Begin(0, 0, 1, 1), channel=9), SessionBegun).session is ours
    peer.hear()
    assert kinds(peer.say(End(), channel=7)) == ["SessionEnded"]
    assert theirs.state is SessionState.ENDED
    assert ours.state is SessionState.MAPPED
    ((channel, said, _),) = frames_in(peer.hear_bytes())
    assert (channel, said) == (theirs.channel, End())


# -- what goes wrong on a session


def error_of_end(peer: Peer, *said: object) -> str:
    """The condition with which the engine ends the session for what was said last."""
    for item in said[:-1]:
        peer.say(item)  # type: ignore[arg-type]
    peer.hear()
    ended = only(peer.say(said[-1]), SessionEnded)  # type: ignore[arg-type]
    assert ended.error is not None
    assert not ended.remote
    assert peer.error_heard(End) == ended.error
    assert peer.say(sending_attach("late", handle=99)) == [], "what follows is ignored"
    assert peer.say(End()) == [], "and nobody is told twice"
    assert peer.engine.sessions == []
    assert peer.hear() == []
    return ended.error.condition


@pytest.mark.parametrize(
    "frame", [Flow(0, 1, 0, 1, handle=4), Detach(4), transfer(0, handle=4)], ids=["flow", "detach", "transfer"]
)
def test_an_unattached_handle(frame: Flow) -> None:
    assert error_of_end(begun_server(), frame) == SessionCondition.UNATTACHED_HANDLE


def test_the_handle_of_a_link_that_was_detached_in_order() -> None:
    peer, _ = receiving_engine()
    assert error_of_end(peer, Detach(0, closed=True), transfer(0)) == SessionCondition.UNATTACHED_HANDLE


def test_the_handle_of_a_link_that_was_detached_with_an_error() -> None:
    peer, _ = receiving_engine()
    error = Error("amqp:internal-error")
    assert error_of_end(peer, Detach(0, True, error), transfer(0)) == SessionCondition.ERRANT_LINK


def test_a_handle_in_use() -> None:
    peer, _ = receiving_engine()
    assert error_of_end(peer, sending_attach("other", handle=0)) == SessionCondition.HANDLE_IN_USE


def test_a_handle_above_the_highest_ends_the_connection() -> None:
    peer = begun_server(ConnectionOptions(container_id="c", handle_max=3))
    peer.say(sending_attach(handle=4))
    assert peer.error_heard(Close).condition == ConnectionCondition.FRAMING_ERROR


def test_more_links_than_the_peers_handles_can_answer() -> None:
    peer = begun_server(handle_max=0)
    peer.say(sending_attach("a", 0))
    assert error_of_end(peer, sending_attach("b", 1)) == AmqpCondition.RESOURCE_LIMIT_EXCEEDED


def test_transfers_beyond_the_window() -> None:
    options = ConnectionOptions(container_id="c", incoming_window_frames=4)
    peer, _ = receiving_engine(options=options)
    said = [transfer(id_) for id_ in range(5)]
    for item in said[:4]:
        peer.say(item)  # the flows that would renew the window are not taken
    ended = only(peer.say(said[4]), SessionEnded)
    assert ended.error is not None
    assert ended.error.condition == SessionCondition.WINDOW_VIOLATION


def test_our_window_is_renewed_when_half_of_it_is_used() -> None:
    options = ConnectionOptions(container_id="c", incoming_window_frames=4)
    peer, _ = receiving_engine(options=options, next_outgoing_id=MASK)
    peer.say(transfer(0))
    assert peer.hear() == []
    peer.say(transfer(1))
    flow = peer.hear_only(Flow)
    assert (flow.next_incoming_id, flow.incoming_window, flow.handle) == (1, 4, None)


@pytest.mark.parametrize("next_incoming_id", [1, 1_000, 1 << 30])
def test_a_flow_that_counts_what_we_have_not_sent(next_incoming_id: int) -> None:
    flow = Flow(next_incoming_id, 10, 0, 10)
    assert error_of_end(begun_server(), flow) == SessionCondition.WINDOW_VIOLATION


def test_a_delivery_id_that_jumps() -> None:
    peer, _ = receiving_engine()
    assert error_of_end(peer, transfer(7), transfer(9)) == AmqpCondition.INVALID_FIELD


@pytest.mark.parametrize("first", [Transfer(0, None, b"t"), Transfer(0, 0, None)])
def test_a_first_transfer_without_its_name(first: Transfer) -> None:
    peer, _ = receiving_engine()
    assert error_of_end(peer, first) == AmqpCondition.INVALID_FIELD


def test_a_transfer_to_a_sender() -> None:
    peer, _ = sending_engine()
    assert error_of_end(peer, transfer(0)) == AmqpCondition.NOT_ALLOWED


def test_a_disposition_whose_last_is_before_its_first() -> None:
    peer, _ = sending_engine()
    assert error_of_end(peer, Disposition(Role.RECEIVER, 5, 4, True)) == AmqpCondition.INVALID_FIELD


@pytest.mark.parametrize("frame", ["disposition", "transfer"])
def test_a_delivery_state_of_an_unknown_type(frame: str) -> None:
    strange = Described(ULong(0x9999), [])
    peer, _ = receiving_engine()
    said = transfer(0, state=strange) if frame == "transfer" else Disposition(Role.SENDER, 0, 0, False, strange)
    assert error_of_end(peer, said) == AmqpCondition.NOT_IMPLEMENTED


def test_an_open_on_a_session_is_the_connections_business() -> None:
    peer = begun_server()
    peer.send_bytes(encode_frame(0, b"\x00\x53\x10\xc0\x04\x01\xa1\x01x"))
    assert peer.error_heard(Close).condition == AmqpCondition.NOT_ALLOWED


# -- what a session takes with it


def test_links_and_deliveries_are_lost_with_the_session() -> None:
    wire = opened()
    session, theirs = wire.begin()
    sender, receiver = wire.attach_sender(session, credit=5)
    sent = sender.send(b"1", b"x")
    _, heard = wire.run()
    (arrived,) = only(heard, DeliveriesReceived).deliveries
    theirs.end()
    wire.run()
    for delivery in (sent, arrived):
        assert delivery.phase == Phase.LOST
        assert delivery.over and not delivery.settled
        assert delivery.settle(ACCEPTED) is False
        assert delivery.update(Received(0, 0)) is False
    assert session.links == [sender]
    assert theirs.links == [receiver]
    assert session.unsettled() == [sent]
    assert theirs.unsettled() == [arrived]
    assert not sender.sendable
    with pytest.raises(LocalProtocolError):
        sender.send(b"2", b"x")
    receiver.grant(5)
    assert not receiver.drain_credit()
    sender.detach()
    assert not wire.client.has_output
    assert not wire.server.has_output
    with pytest.raises(LocalProtocolError):
        session.attach_sender("again")


def test_the_same_when_the_connection_ends() -> None:
    wire = opened()
    session, _ = wire.begin()
    sender, _ = wire.attach_sender(session, credit=5)
    sent = sender.send(b"1", b"x")
    wire.run()
    wire.client.receive_eof(wire.now)
    assert sent.phase == Phase.LOST
    assert session.state is SessionState.ENDED
    assert session.unsettled() == [sent]
    assert sent.settle() is False


# -- dispositions


def sent_by(peer: Peer, count: int) -> list[int]:
    session = peer.engine.sessions[0]
    (link,) = session.links
    ids = [link.send(b"%d" % n, b"x").delivery_id for n in range(count)]  # type: ignore[attr-defined]
    peer.hear()
    return ids


def test_a_disposition_of_2_to_the_31_ids_is_cheap() -> None:
    """Work goes with what there is, not with what is claimed: otherwise this would not come to an end."""
    peer, _ = sending_engine()
    ids = sent_by(peer, 3)
    for _ in range(200):
        peer.say(Disposition(Role.RECEIVER, 0, (1 << 31) - 1, False, Received(0, 0)))
    (told,) = peer.say(Disposition(Role.RECEIVER, 0, (1 << 31) - 1, True, ACCEPTED))
    assert isinstance(told, StatesReceived)
    assert [delivery.delivery_id for delivery in told.deliveries] == ids


def test_a_range_over_the_end_of_the_numbers() -> None:
    options = ConnectionOptions(container_id="c", initial_serial=MASK - 1)
    peer = begun_server(options)
    link = attach_to(peer, receiving_attach())
    peer.say(credit_flow(10, delivery_count=0, next_incoming_id=MASK - 1))
    assert sent_by(peer, 4) == [MASK - 1, MASK, 0, 1]
    told = only(peer.say(Disposition(Role.RECEIVER, MASK, 0, True, ACCEPTED)), StatesReceived)
    assert [delivery.delivery_id for delivery in told.deliveries] == [MASK, 0]
    told = only(peer.say(Disposition(Role.RECEIVER, MASK - 5, 10, True, RELEASED)), StatesReceived)
    assert [delivery.delivery_id for delivery in told.deliveries] == [MASK - 1, 1]
    assert link.unsettled() == []


def test_dispositions_out_of_order_and_for_ids_that_nobody_knows() -> None:
    peer, link = sending_engine()
    sent_by(peer, 4)
    for id_ in (3, 0):
        told = only(peer.say(Disposition(Role.RECEIVER, id_, None, True, ACCEPTED)), StatesReceived)
        assert [delivery.delivery_id for delivery in told.deliveries] == [id_]
    assert peer.say(Disposition(Role.RECEIVER, 3, None, True, RELEASED)) == [], "settled before"
    assert peer.say(Disposition(Role.RECEIVER, 900, 1_000, True, RELEASED)) == [], "never sent"
    assert peer.say(Disposition(Role.SENDER, 0, 3, True, RELEASED)) == [], "the other direction"
    assert [delivery.delivery_id for delivery in link.unsettled()] == [1, 2]


def test_one_disposition_for_several_links() -> None:
    wire = opened()
    session, theirs = wire.begin()
    one, _ = wire.attach_sender(session, "one", credit=9)
    two, _ = wire.attach_sender(session, "two", credit=9)
    for number, link in enumerate((one, two, two, one)):
        link.send(b"%d" % number, b"x")
    _, heard = wire.run()
    assert [event.link.name for event in heard if isinstance(event, DeliveriesReceived)] == ["one", "two", "one"]
    arrived = [delivery for event in heard if isinstance(event, DeliveriesReceived) for delivery in event.deliveries]
    assert theirs.settle_all(arrived, ACCEPTED) == 4
    said = wire.server.data_to_send()
    assert [item for _, item, _ in frames_in(said)] == [Disposition(Role.RECEIVER, 0, 3, True, Accepted())]
    told = wire.client.receive_data(said, wire.now)
    assert [(event.link, [item.tag for item in event.deliveries]) for event in told] == [  # type: ignore[union-attr]
        (one, [b"0", b"3"]),
        (two, [b"1", b"2"]),
    ]


def test_settlements_are_gathered_until_output_is_taken() -> None:
    peer, _ = receiving_engine()
    arrived = [only(peer.say(transfer(id_)), DeliveriesReceived).deliveries[0] for id_ in range(6)]
    for delivery in (arrived[1], arrived[0], arrived[2]):
        assert delivery.settle(ACCEPTED)
    arrived[4].settle(RELEASED)
    arrived[5].settle(ACCEPTED)
    assert arrived[1].local_state == ACCEPTED
    assert peer.hear() == [
        Disposition(Role.RECEIVER, 0, 2, True, Accepted()),
        Disposition(Role.RECEIVER, 4, 4, True, RELEASED),
        Disposition(Role.RECEIVER, 5, 5, True, Accepted()),
    ]


def test_settlements_go_before_the_detach_end_and_close_that_follow() -> None:
    for verb, kind in (("detach", Detach), ("end", End), ("close", Close)):
        peer, link = receiving_engine()
        (delivery,) = only(peer.say(transfer(0)), DeliveriesReceived).deliveries
        delivery.settle(ACCEPTED)
        {"detach": link.detach, "end": link.session.end, "close": peer.engine.close}[verb]()
        assert [type(item) for item in peer.hear()] == [Disposition, kind]


def test_no_transfer_overtakes_a_transactional_settlement() -> None:
    """A discharge is a transfer: it must come after the work of its transaction (4.3)."""
    wire = opened()
    session, _theirs = wire.begin()
    _, sending = wire.attach_receiver(session, "in", credit=1)
    sender, _ = wire.attach_sender(session, "coordinator", credit=9)
    sending.send(b"1", b"x")
    heard, _ = wire.run()
    (delivery,) = only(heard, DeliveriesReceived).deliveries
    delivery.settle(TransactionalState(b"txn", Accepted()))
    sender.send(b"discharge", b"x")
    said = [item for _, item, _ in frames_in(wire.client.data_to_send())]
    assert [type(item) for item in said] == [Disposition, Transfer]


def test_settle_all_passes_over_what_is_over_and_refuses_what_is_not_its_own() -> None:
    peer, link = receiving_engine()
    arrived = [only(peer.say(transfer(id_)), DeliveriesReceived).deliveries[0] for id_ in range(3)]
    arrived[1].settle(RELEASED)
    assert link.session.settle_all(arrived, ACCEPTED) == 2
    assert link.session.settle_all(arrived, ACCEPTED) == 0
    assert arrived[1].local_state == RELEASED, "the first outcome stands"
    assert link.session.settle_all([]) == 0
    other, _ = receiving_engine()
    (foreign,) = only(other.say(transfer(0)), DeliveriesReceived).deliveries
    with pytest.raises(LocalProtocolError, match="another session"):
        link.session.settle_all([foreign], ACCEPTED)


def test_a_state_larger_than_the_peers_frame_is_refused_and_nothing_changes() -> None:
    wire = opened(server=replace(SERVER, max_frame_size=512))
    session, _ = wire.begin()
    receiver, sender = wire.attach_receiver(session, credit=1)
    wire.run()
    sender.send(b"1", b"x")
    (delivery,) = only(wire.run()[0], DeliveriesReceived).deliveries
    too_large = Rejected(Error("amqp:internal-error", "x" * 600))
    for attempt in (lambda: delivery.settle(too_large), lambda: receiver.session.settle_all([delivery], too_large)):
        with pytest.raises(LocalProtocolError):
            attempt()
    assert delivery.phase == Phase.UNSETTLED
    assert delivery.settle(RELEASED)


LONG = "x" * 600


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (Rejected(Error("amqp:internal-error", LONG)), Rejected(Error("amqp:internal-error", LONG[:60]))),
        (Rejected(Error(LONG)), Rejected()),
        (Modified(True, True, {"x-opt-a": LONG}), Modified(True, True)),
        (TransactionalState(b"id", Rejected(Error(LONG))), TransactionalState(b"id", Rejected())),
        (TransactionalState(LONG.encode(), Accepted()), RELEASED),
        (Declared(LONG.encode()), RELEASED),
    ],
)
def test_a_server_says_a_state_larger_than_the_peers_frame_in_short(state: DeliveryState, said: DeliveryState) -> None:
    peer = begun_server(max_frame_size=512)
    link = attach_to(peer, sending_attach())
    link.grant(2)  # type: ignore[attr-defined]
    peer.hear()
    ways: tuple[Callable[[Delivery], object], ...] = (
        lambda delivery: delivery.settle(state),
        lambda delivery: link.session.settle_all([delivery], state),
    )
    for id_, settle in enumerate(ways):
        (delivery,) = only(peer.say(transfer(id_)), DeliveriesReceived).deliveries
        assert settle(delivery)
        (disposition,) = [said for said in peer.hear() if isinstance(said, Disposition)]
        assert disposition.state == said


# -- settling second


def test_in_mode_second_the_acknowledgement_is_answered() -> None:
    wire = opened()
    session, _ = wire.begin()
    sender, receiver = wire.attach_sender(session, credit=3, rcv_settle_mode=RcvSettleMode.SECOND)
    assert receiver.rcv_settle_mode is sender.rcv_settle_mode is RcvSettleMode.SECOND
    sent = sender.send(b"1", b"x")
    _, heard = wire.run()
    (arrived,) = only(heard, DeliveriesReceived).deliveries
    assert arrived.phase == Phase.UNSETTLED_SECOND

    with pytest.raises(LocalProtocolError, match="needs an outcome"):
        arrived.settle()
    with pytest.raises(LocalProtocolError, match="needs an outcome"):
        receiver.session.settle_all([arrived])
    assert arrived.settle(ACCEPTED)
    heard, _ = wire.run()
    assert heard == [StatesReceived(sender, [sent], ACCEPTED, settled=False)]
    assert (arrived.phase, sent.phase) == (Phase.DECIDED_SECOND, Phase.DECIDED)
    with pytest.raises(LocalProtocolError):
        arrived.settle(RELEASED)
    assert receiver.session.settle_all([arrived], RELEASED) == 0

    assert sent.settle(ACCEPTED)
    _, heard = wire.run()
    assert heard == [StatesReceived(receiver, [arrived], ACCEPTED, settled=True)]
    assert arrived.phase == sent.phase == Phase.SETTLED
    assert receiver.unsettled() == sender.unsettled() == []


def test_progress_and_transactional_states_decide_nothing() -> None:
    wire = opened()
    session, _ = wire.begin()
    sender, _ = wire.attach_sender(session, credit=3)
    sent = sender.send(b"1", b"x")
    _, heard = wire.run()
    (arrived,) = only(heard, DeliveriesReceived).deliveries
    for state in (Received(1, 5), TransactionalState(b"t", Accepted())):
        assert arrived.update(state)
        heard, _ = wire.run()
        assert heard == [StatesReceived(sender, [sent], state, settled=False)]
        assert sent.phase == Phase.UNSETTLED
        assert sent.remote_state == arrived.local_state == state


def test_the_sender_takes_a_message_back() -> None:
    """A lock that ran out: the sender offers an outcome, the receiver confirms it (2.6.12)."""
    wire = opened()
    session, _ = wire.begin()
    sender, receiver = wire.attach_sender(session, credit=3)
    sent = sender.send(b"1", b"x")
    _, heard = wire.run()
    (arrived,) = only(heard, DeliveriesReceived).deliveries
    assert sent.update(Modified(True))
    with pytest.raises(LocalProtocolError):
        sent.update(RELEASED)
    _, heard = wire.run()
    assert heard == [StatesReceived(receiver, [arrived], Modified(True), settled=False)]
    assert arrived.phase == Phase.OFFERED
    assert arrived.settle(Modified(True))
    heard, _ = wire.run()
    assert heard == [StatesReceived(sender, [sent], Modified(True), settled=True)]


def test_verbs_that_cross_on_the_wire_are_harmless() -> None:
    wire = opened()
    session, _ = wire.begin()
    sender, _ = wire.attach_sender(session, credit=3)
    sent = sender.send(b"1", b"x")
    _, heard = wire.run()
    (arrived,) = only(heard, DeliveriesReceived).deliveries
    assert sent.settle(RELEASED)
    assert arrived.settle(ACCEPTED)
    assert wire.run() == ([], [])
    assert not arrived.settle(ACCEPTED)


# -- windows and room


def test_a_closed_window_stops_and_a_flow_starts_again() -> None:
    peer, link = sending_engine(incoming_window=2)
    link.send(b"1", b"x")
    link.send(b"2", b"x")
    assert link.credit == 98
    assert not link.sendable
    with pytest.raises(LocalProtocolError, match="window"):
        link.send(b"3", b"x")
    peer.hear()
    assert peer.say(Flow(1, 1, 0, 1)) == []
    assert not link.sendable
    assert peer.say(Flow(2, 2, 0, 1)) == [CreditChanged(link)]
    link.send(b"3", b"x")


def test_a_window_as_wide_as_it_gets() -> None:
    peer, link = sending_engine(incoming_window=MASK)
    assert link.session.remote_incoming_window == MASK
    link.send(b"1", b"x")
    peer.say(Flow(0, MASK, 0, 1))
    assert link.session.remote_incoming_window == MASK - 1


def test_a_peer_that_never_settles_does_not_fill_our_memory() -> None:
    peer, link = sending_engine(options=ConnectionOptions(container_id="c", unsettled_max=2))
    link.send(b"1", b"x")
    link.send(b"2", b"x")
    assert not link.sendable
    with pytest.raises(LocalProtocolError):
        link.send(b"3", b"x")
    told = peer.say(Disposition(Role.RECEIVER, 0, None, True, ACCEPTED))
    assert kinds(told) == ["StatesReceived", "CreditChanged"]
    third = link.send(b"3", b"x")
    assert not link.sendable
    third.settle()
    assert kinds(peer.engine.handle_deadline(peer.now)) == ["CreditChanged"]


def test_an_echo_of_the_session() -> None:
    peer = begun_server()
    peer.say(Flow(0, 10, 0, 10, echo=True))
    assert peer.hear_only(Flow).handle is None


def test_flow_before_begin_is_answered_has_no_next_incoming_id() -> None:
    peer = open_server()
    session = peer.engine.begin()
    link = session.attach_receiver("early", source=Source("s"))
    link.grant(3)
    said = peer.hear()
    flow = said[-1]
    assert isinstance(flow, Flow)
    assert flow.next_incoming_id is None
    assert flow.delivery_count is None
    assert flow.link_credit == 3


# -- attaching


def test_names_and_handles() -> None:
    wire = opened()
    session, theirs = wire.begin()
    one, _ = wire.attach_sender(session, "one")
    with pytest.raises(LocalProtocolError, match="in use"):
        session.attach_sender("one")
    receiver, _ = wire.attach_receiver(session, "one")
    assert receiver.handle == 1, "the same name the other way is another link"
    one.detach()
    wire.run()
    again, _ = wire.attach_sender(session, "one")
    assert again.handle == 0, "the handle is used again"
    assert {link.name for link in theirs.links} == {"one"}


def test_the_name_of_a_link_that_the_peer_asks_for_is_in_use() -> None:
    """It would take our attach for the answer."""
    peer = begun_server()
    peer.say(receiving_attach("wanted"))
    session = peer.engine.sessions[0]
    with pytest.raises(LocalProtocolError, match="in use"):
        session.attach_sender("wanted")
    assert session.attach_receiver("wanted").handle == 1


def test_handles_run_out() -> None:
    wire = opened(server=ConnectionOptions(container_id="s", handle_max=0))
    session, _ = wire.begin()
    wire.attach_sender(session, "one")
    with pytest.raises(LocalProtocolError, match="no handle"):
        session.attach_sender("two")


def test_an_attach_that_does_not_fit_changes_nothing() -> None:
    peer = open_server(max_frame_size=512)
    session = peer.engine.begin()
    with pytest.raises(FrameTooLarge):
        session.attach_sender("x" * 600)
    assert session.links == []
    assert session.attach_sender("short").handle == 0


def test_a_link_name_attached_twice_is_the_applications_business() -> None:
    """On one session too: who steals a link accepts the second and detaches the first."""
    peer, first = receiving_engine()
    second = attach_to(peer, sending_attach("link", handle=1))
    first.detach(Error("amqp:link:stolen"))
    assert peer.error_heard(Detach).condition == "amqp:link:stolen"
    assert kinds(peer.say(Detach(0, closed=True))) == ["LinkDetached"]
    assert first.session.links == [second]


def test_an_attach_of_both_sides_under_one_name_is_one_link() -> None:
    wire = opened()
    session, theirs = wire.begin()
    ours = session.attach_sender("both", source=Source("s"), target=Target("t"))
    other = theirs.attach_receiver("both", source=Source("s"), target=Target("t"))
    heard_by_client, heard_by_server = wire.run()
    assert kinds(heard_by_client) == kinds(heard_by_server) == ["LinkAttached"]
    other.grant(1)
    wire.run()
    ours.send(b"1", b"x")
    _, heard = wire.run()
    assert only(heard, DeliveriesReceived).link is other


def test_a_hostile_begin_and_end_leave_nothing_behind() -> None:
    peer = open_server()
    for _ in range(300):
        peer.say(Begin(None, 0, 1, 1))
        peer.say(sending_attach())
        peer.say(End())
    assert peer.engine.sessions == []
    peer.hear()
    peer.say(Begin(None, 0, 1, 1))
    assert peer.engine.sessions[0].channel == 0


def test_the_attach_is_as_it_was_written() -> None:
    peer = begun_server()
    session = peer.engine.sessions[0]
    session.attach_sender(
        "s",
        source=Source("a"),
        target=Target("b"),
        initial_delivery_count=7,
        unsettled={b"1": Accepted(), b"2": None},
        incomplete_unsettled=True,
        max_message_size=9,
        offered_capabilities=("x",),
        desired_capabilities=("y",),
        properties={"p": 1},
    )
    said = peer.hear_only(Attach)
    expected = Attach(
        "s",
        0,
        Role.SENDER,
        source=Source("a"),
        target=Target("b"),
        unsettled={b"1": Accepted(), b"2": None},
        incomplete_unsettled=True,
        initial_delivery_count=7,
        max_message_size=9,
        offered_capabilities=("x",),
        desired_capabilities=("y",),
        properties={"p": 1},
    )
    assert encode_composite(said) == encode_composite(expected)


@pytest.mark.parametrize("ends", ["session", "connection"])
def test_nothing_is_written_after_our_end_or_close(ends: str) -> None:
    wire = opened()
    session, theirs = wire.begin()
    sender, _ = wire.attach_sender(session, "out", credit=5)
    receiver, sending = wire.attach_receiver(session, "in", credit=5)
    sender.send(b"0", b"x")  # teaches the template
    sent = sender.send(b"1", b"x")
    sending.send(b"2", b"x")
    heard, _ = wire.run()
    (arrived,) = only(heard, DeliveriesReceived).deliveries
    session.end() if ends == "session" else wire.client.close()
    assert not sender.sendable
    with pytest.raises(LocalProtocolError):
        sender.send(b"3", b"x")
    assert not arrived.settle(ACCEPTED)
    assert not arrived.update(Received(0, 0))
    assert session.settle_all([arrived, sent], ACCEPTED) == 0
    receiver.grant(9)
    receiver.detach()
    sender.offer(3)
    assert not sender.abort(sent)
    said = [type(item) for _, item, _ in frames_in(wire.client.data_to_send())]
    assert said == [End if ends == "session" else Close]
    wire.client.data_to_send()
    assert not wire.client.has_output
    assert theirs.unsettled()


def test_settle_all_says_what_it_did_before_it_was_refused() -> None:
    peer, link = receiving_engine()
    other, _ = receiving_engine()
    (ours,) = only(peer.say(transfer(0)), DeliveriesReceived).deliveries
    (foreign,) = only(other.say(transfer(0)), DeliveriesReceived).deliveries
    with pytest.raises(LocalProtocolError):
        link.session.settle_all([ours, foreign], ACCEPTED)
    assert ours.settled
    assert peer.hear() == [Disposition(Role.RECEIVER, 0, 0, True, Accepted())]


def test_a_disposition_that_says_nothing() -> None:
    peer, _ = sending_engine()
    sent_by(peer, 1)
    assert peer.say(Disposition(Role.RECEIVER, 0, 0)) == []


# -- links that are attached before the peer has begun


def begun_in_reply(peer: Peer, handle_max: int) -> list[Event]:
    """The peer answers our begin, which is on channel 0."""
    return peer.say(Begin(0, 0, 1_000, 1_000, handle_max))


@pytest.mark.parametrize("handle_max", [0, 1, 2])
def test_no_attach_has_a_handle_above_what_the_peer_will_say(handle_max: int) -> None:
    peer = open_server()
    session = peer.engine.begin()
    links = [session.attach_receiver(f"r{number}") for number in range(3)]
    for link in links:
        link.grant(5)
    assert [(type(said), getattr(said, "handle", None)) for said in peer.hear()] == [
        (Begin, None),
        (Attach, 0),
        (Flow, 0),
    ]
    events = begun_in_reply(peer, handle_max)
    taken = list(range(1, handle_max + 1))
    said = peer.hear()
    assert [attach.handle for attach in said if isinstance(attach, Attach)] == taken
    assert [flow.handle for flow in said if isinstance(flow, Flow)] == taken
    assert events[0] == SessionBegun(session)
    assert [(event.link, event.error, event.remote) for event in events[1:] if isinstance(event, LinkDetached)] == [
        (
            link,
            Error(
                AmqpCondition.RESOURCE_LIMIT_EXCEEDED, f"no handle is left on this session: the highest is {handle_max}"
            ),
            False,
        )
        for link in links[handle_max + 1 :]
    ]
    assert session.links == links[: handle_max + 1]
    for link in links[handle_max + 1 :]:
        link.grant(1)
        link.detach()
    assert peer.hear() == []


def test_what_is_said_of_a_link_before_the_peer_has_begun_follows_its_attach() -> None:
    peer = open_server()
    session = peer.engine.begin()
    session.attach_sender("first")
    left, told = session.attach_receiver("left"), session.attach_receiver("told")
    left.grant(3)
    left.detach()
    told.grant(4, properties={"k": 1})
    peer.hear()
    begun_in_reply(peer, 9)
    said = peer.hear()
    assert [(type(frame), getattr(frame, "handle", None)) for frame in said] == [
        (Attach, 1),
        (Detach, 1),
        (Attach, 2),
        (Flow, 2),
    ]
    assert isinstance(said[-1], Flow)
    assert said[-1].next_incoming_id == 0
    assert said[-1].link_credit == 4


def test_a_session_that_ends_before_the_peer_has_begun_attaches_nothing_more() -> None:
    peer = open_server()
    session = peer.engine.begin()
    links = [session.attach_sender(name) for name in ("one", "two")]
    peer.hear()
    session.end()
    assert begun_in_reply(peer, 9) == []
    assert peer.say(End()) == [SessionEnded(session, None, remote=False)]
    assert [type(frame) for frame in peer.hear()] == [End]
    assert [link.state.name for link in links] == ["DETACHED", "DETACHED"]

from __future__ import annotations

import pytest

from acquit.errors import LocalProtocolError
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import (
    Accepted,
    Detach,
    Disposition,
    Flow,
    Modified,
    Role,
    SndSettleMode,
    TransactionalState,
    Transfer,
)
from acquit.protocol.delivery import DeliveryState
from acquit.protocol.events import CreditChanged, DeliveriesReceived, DeliveryAborted, FlowReceived
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.serial import MASK
from acquit.protocol.settlement import Phase
from tests.support.peer import attach_to, begun_server, credit_flow, receiving_attach, sending_engine
from tests.support.wire import frames_in, kinds, only, opened

SMALL = ConnectionOptions(container_id="small", max_frame_size=512)

# -- transfers


def test_a_transfer_as_it_is_written() -> None:
    peer, link = sending_engine()
    sent = link.send(b"tag", b"payload", message_format=3, context="mine")
    ((channel, said, payload),) = frames_in(peer.hear_bytes())
    assert (channel, payload) == (0, b"payload")
    assert said == Transfer(0, 0, b"tag", 3)
    assert (sent.tag, sent.delivery_id, sent.message_format, sent.context) == (b"tag", 0, 3, "mine")
    assert sent.payload == b"", "nothing is kept of what was written"
    assert sent.phase == Phase.UNSETTLED
    assert link.unsettled() == [sent]
    assert (link.credit, link.delivery_count) == (99, 1)


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("resume", [False, True])
def test_transfers_after_the_first_are_written_from_a_template_and_are_no_different(
    settled: bool, resume: bool
) -> None:
    peer, link = sending_engine()
    for number, tag in enumerate((b"t", b"u", b"v")):
        assert link.send(tag, b"x", settled=settled, resume=resume).settled is settled
        (heard,) = peer.hear()
        assert (heard.delivery_id, heard.delivery_tag, heard.message_format) == (number, tag, 0)
        assert (bool(heard.settled), bool(heard.resume), bool(heard.more)) == (settled, resume, False)
        assert (heard.rcv_settle_mode, heard.state) == (None, None)


def test_a_presettled_transfer_is_forgotten_before_it_is_sent() -> None:
    peer, link = sending_engine()
    sent = link.send(b"t", b"x", settled=True)
    assert peer.hear() == [Transfer(0, 0, b"t", 0, True)]
    assert sent.settled
    assert link.unsettled() == []


def test_a_transfer_with_a_state() -> None:
    peer, link = sending_engine()
    state = TransactionalState(b"txn")
    sent = link.send(b"t", b"x", state=state)
    assert peer.hear() == [Transfer(0, 0, b"t", 0, state=state)]
    assert sent.local_state == state
    assert sent.phase == Phase.UNSETTLED
    offered = link.send(b"u", b"", state=Modified(True), resume=True)
    assert peer.hear() == [Transfer(0, 1, b"u", 0, state=Modified(True), resume=True)]
    assert offered.phase == Phase.OFFERED


@pytest.mark.parametrize(
    ("mode", "settled"),
    [(SndSettleMode.SETTLED, True), (SndSettleMode.UNSETTLED, False), (SndSettleMode.MIXED, False)],
)
def test_the_links_mode_decides_unless_it_is_mixed(mode: SndSettleMode, settled: bool) -> None:
    _, link = sending_engine(snd_settle_mode=mode)
    assert link.send(b"1", b"x").settled is settled
    assert link.send(b"2", b"x", settled=settled).settled is settled
    if mode is SndSettleMode.MIXED:
        assert link.send(b"3", b"x", settled=not settled).settled is not settled
    else:
        with pytest.raises(LocalProtocolError, match="snd-settle-mode"):
            link.send(b"3", b"x", settled=not settled)


@pytest.mark.parametrize("tag", [b"", bytes(33)])
def test_a_tag_has_1_to_32_bytes(tag: bytes) -> None:
    peer, link = sending_engine()
    with pytest.raises(LocalProtocolError, match="delivery-tag"):
        link.send(tag, b"x")
    assert peer.hear() == []
    link.send(bytes(32), b"x")


def test_a_message_larger_than_the_peer_takes() -> None:
    peer, link = sending_engine(max_message_size=10)
    with pytest.raises(LocalProtocolError, match="11 bytes"):
        link.send(b"t", bytes(11))
    assert link.credit == 100
    link.send(b"t", bytes(10))
    assert len(peer.hear()) == 1


def test_a_state_that_fills_a_frame() -> None:
    _, link = sending_engine(max_frame_size=512)
    with pytest.raises(LocalProtocolError, match="alone"):
        link.send(b"t", b"x", state=TransactionalState(bytes(600)))
    assert link.credit == 100


def test_only_resumed_deliveries_while_the_peers_map_is_incomplete() -> None:
    peer = begun_server()
    link = attach_to(peer, receiving_attach(unsettled={b"1": None}, incomplete_unsettled=True))
    peer.say(credit_flow(5))
    with pytest.raises(LocalProtocolError, match="resume"):
        link.send(b"2", b"x")  # type: ignore[attr-defined]
    link.send(b"1", b"x", resume=True)  # type: ignore[attr-defined]


def test_delivery_ids_are_the_sessions_and_delivery_counts_the_links() -> None:
    wire = opened(ConnectionOptions(container_id="c", initial_serial=MASK))
    session, _ = wire.begin()
    one, _ = wire.attach_sender(session, "one", credit=9, initial_delivery_count=MASK)
    two, _ = wire.attach_sender(session, "two", credit=9)
    ids = [link.send(b"t%d" % number, b"x").delivery_id for number, link in enumerate((one, two, one))]
    assert ids == [MASK, 0, 1]
    assert (one.delivery_count, two.delivery_count) == (1, 1)
    assert (one.credit, two.credit) == (7, 8)
    _, heard = wire.run()
    assert sum(len(event.deliveries) for event in heard if isinstance(event, DeliveriesReceived)) == 3


# -- credit


def test_no_credit_no_send() -> None:
    peer, link = sending_engine(credit=0)
    with pytest.raises(LocalProtocolError, match="no credit"):
        link.send(b"t", b"x")
    assert peer.say(credit_flow(1)) == [CreditChanged(link)]
    link.send(b"t", b"x")
    with pytest.raises(LocalProtocolError, match="no credit"):
        link.send(b"u", b"x")


def test_credit_counts_from_what_the_receiver_has_seen() -> None:
    peer, link = sending_engine(credit=10)
    for number in range(4):
        link.send(b"%d" % number, b"x")
    assert peer.say(credit_flow(10, delivery_count=1, next_incoming_id=4)) == [CreditChanged(link)]
    assert link.credit == 7
    assert peer.say(credit_flow(2, delivery_count=1, next_incoming_id=4)) == [CreditChanged(link)]
    assert link.credit == 0, "the receiver lowered its limit below what is on the way"
    assert peer.say(credit_flow(3, delivery_count=1, next_incoming_id=4)) == [], "nothing has changed"


def test_one_event_for_all_flows_of_a_read() -> None:
    peer, link = sending_engine(credit=0)
    wire = opened()
    session, _ = wire.begin()
    sender, receiver = wire.attach_sender(session)
    for credit in (1, 2, 3):
        receiver.grant(credit)
        wire.server.data_to_send()  # three flows, of which the last arrives
    receiver.grant(4)
    heard, _ = wire.run()
    assert heard == [CreditChanged(sender)]
    assert sender.credit == 4
    events = peer.say(credit_flow(1))
    events += peer.say(credit_flow(2))
    assert events == [CreditChanged(link), CreditChanged(link)]


def test_a_flow_without_credit_says_nothing_about_it() -> None:
    peer, link = sending_engine(credit=5)
    assert peer.say(Flow(0, 9, 0, 9, handle=0)) == []
    assert link.credit == 5


def test_properties_of_a_flow_are_for_the_application() -> None:
    peer, link = sending_engine(credit=0)
    flow = credit_flow(5, properties={"txn-id": b"1"})
    assert peer.say(flow) == [FlowReceived(link, flow), CreditChanged(link)]


def test_draining() -> None:
    peer, link = sending_engine(credit=0)
    assert peer.say(credit_flow(5, drain=True)) == [CreditChanged(link)]
    assert link.drain
    link.send(b"1", b"x")
    peer.hear()
    link.drained()
    flow = peer.hear_only(Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.drain) == (0, 5, 0, True)
    assert link.credit == 0
    assert link.delivery_count == 5
    peer.say(credit_flow(1, delivery_count=5, next_incoming_id=1))
    assert not link.drain
    link.drained()
    assert peer.hear() == [], "nobody drains any more"


def test_a_drain_with_nothing_left_is_answered_by_itself() -> None:
    peer, link = sending_engine(credit=1)
    link.send(b"1", b"x")
    peer.hear()
    assert peer.say(credit_flow(1, drain=True)) == [], "the credit was used by what is on the way"
    flow = peer.hear_only(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (1, 0, True)


def test_a_drain_that_takes_the_credit_away_is_answered_by_itself() -> None:
    """go-amqp's DrainCredit waits for a flow, whatever credit the drain comes with."""
    peer, link = sending_engine(credit=3)
    assert peer.say(credit_flow(0, drain=True)) == [CreditChanged(link)]
    flow = peer.hear_only(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (0, 0, True)


def test_offer_and_echo() -> None:
    peer, link = sending_engine(credit=3)
    link.offer(17)
    link.offer(18)
    assert peer.hear_only(Flow).available == 18
    assert peer.say(credit_flow(3, echo=True)) == []
    flow = peer.hear_only(Flow)
    assert (flow.handle, flow.link_credit, flow.echo) == (0, 3, False)


# -- messages larger than a frame


def sent_frames(data: bytes) -> list[Transfer]:
    return [said for _, said, _ in frames_in(data) if isinstance(said, Transfer)]


@pytest.mark.parametrize("size", [480, 490, 500, 1_000, 10_000])
def test_a_large_message_arrives_as_it_was_sent(size: int) -> None:
    wire = opened(server=SMALL)
    session, _ = wire.begin()
    sender, _ = wire.attach_sender(session, credit=2)
    payload = bytes(number % 251 for number in range(size))
    sent = sender.send(b"big", payload)
    _, heard = wire.run()
    (arrived,) = only(heard, DeliveriesReceived).deliveries
    assert arrived.payload == payload
    assert sender.sendable
    arrived.settle(ACCEPTED)
    wire.run()
    assert sent.phase == Phase.SETTLED


def test_how_it_is_cut() -> None:
    peer, link = sending_engine(max_frame_size=512)
    link.send(b"t", bytes(1_200), settled=True)
    assert not link.sendable
    with pytest.raises(LocalProtocolError, match="not completely written"):
        link.send(b"u", b"x")
    data = peer.hear_bytes()
    frames = sent_frames(data)
    assert [(item.delivery_id, item.delivery_tag, item.more, item.settled) for item in frames] == [
        (0, b"t", True, True),
        (0, None, True, True),
        (0, None, False, True),
    ]
    sizes = [len(payload) for _, _, payload in frames_in(data)]
    assert sum(sizes) == 1_200
    assert max(sizes) > 480, "frames are filled"
    assert kinds(peer.engine.handle_deadline(peer.now)) == ["CreditChanged"], "the link is free again"
    assert peer.engine.next_deadline() is not None


def test_the_end_of_a_large_message_asks_to_be_handed_over_now() -> None:
    peer, link = sending_engine(max_frame_size=512)
    link.send(b"t", bytes(1_200))
    peer.hear()
    assert peer.engine.next_deadline() == peer.now
    assert peer.engine.handle_deadline(peer.now) == [CreditChanged(link)]
    later = peer.engine.next_deadline()
    assert later is not None
    assert later > peer.now


def test_it_waits_for_the_window_and_goes_on_by_itself() -> None:
    peer, link = sending_engine(max_frame_size=512, incoming_window=2)
    link.send(b"t", bytes(1_800))
    assert len(peer.hear()) == 2
    assert not peer.engine.has_output
    assert peer.say(Flow(2, 1, 0, 1)) == []
    assert len(peer.hear()) == 1
    peer.say(Flow(3, 9, 0, 1))
    (last,) = peer.hear()
    assert isinstance(last, Transfer)
    assert not last.more


def test_links_take_turns() -> None:
    peer = begun_server(ConnectionOptions(container_id="c", output_chunk_bytes=1_000), max_frame_size=512)
    links = [attach_to(peer, receiving_attach(f"l{handle}", handle)) for handle in range(3)]
    for handle, link in enumerate(links):
        peer.say(credit_flow(5, handle=handle))
        link.send(b"t", bytes(5_000))  # type: ignore[attr-defined]
    order = []
    calls = 0
    while peer.engine.has_output:
        data = peer.engine.data_to_send()
        assert len(data) <= 3 * 512 + 1_000 + 512, "output comes in chunks"
        order += [item.handle for item in sent_frames(data)]
        calls += 1
    assert calls > 5
    assert order[:9] == [0, 1, 2] * 3
    assert order.count(0) == order.count(1) == order.count(2)


def test_a_small_message_of_another_link_does_not_wait_for_a_large_one() -> None:
    wire = opened(server=SMALL)
    session, _ = wire.begin()
    large, _ = wire.attach_sender(session, "large", credit=1)
    small, _ = wire.attach_sender(session, "small", credit=1)
    large.send(b"l", bytes(100_000))
    small.send(b"s", b"x")
    _, heard = wire.run()
    assert [event.link.name for event in heard if isinstance(event, DeliveriesReceived)] == ["small", "large"]


def test_a_receiver_that_settles_early_still_gets_the_rest() -> None:
    peer, link = sending_engine(max_frame_size=512, incoming_window=1)
    sent = link.send(b"t", bytes(1_000))
    peer.hear()
    peer.say(Disposition(Role.RECEIVER, 0, 0, True, Accepted()))
    assert sent.settled
    peer.say(Flow(1, 9, 0, 1))
    assert [type(item) for item in peer.hear()] == [Transfer, Transfer]


@pytest.mark.parametrize(("state", "said"), [(TransactionalState(b"t"), TransactionalState(b"t")), (Accepted(), None)])
def test_each_frame_of_a_message_says_its_transaction(state: DeliveryState, said: DeliveryState | None) -> None:
    peer, link = sending_engine(max_frame_size=512)
    link.send(b"t", bytes(1_200), state=state)
    assert [one.state for one in peer.hear()] == [state, said, said]  # type: ignore[attr-defined]


def test_abort() -> None:
    wire = opened(server=ConnectionOptions(container_id="s", max_frame_size=512, incoming_window_frames=4))
    session, _ = wire.begin()
    sender, receiver = wire.attach_sender(session, credit=5)
    sent = sender.send(b"t", bytes(100_000))
    wire.step()
    assert sender.abort(sent)
    assert not sender.abort(sent)
    assert sent.settled
    heard_by_client, heard_by_server = wire.run()
    assert heard_by_server == [DeliveryAborted(receiver, b"t")]
    assert CreditChanged(sender) in heard_by_client
    assert session.unsettled() == receiver.session.unsettled() == []
    whole = sender.send(b"u", b"x")
    assert not sender.abort(whole), "it is written"
    _, heard = wire.run()
    assert kinds(heard) == ["DeliveriesReceived"]
    assert receiver.credit == sender.credit == 3, "an aborted delivery uses a credit"


def test_detaching_gives_up_what_is_half_written() -> None:
    peer, link = sending_engine(max_frame_size=512, incoming_window=1)
    sent = link.send(b"t", bytes(1_000))
    peer.hear()
    link.detach()
    assert peer.hear() == [Detach(0, closed=True)]
    peer.say(Flow(1, 9, 0, 1))
    (told,) = peer.say(Detach(0, closed=True))
    assert told.unsettled == [sent]  # type: ignore[union-attr]
    assert sent.phase == Phase.LOST
    assert peer.hear() == []


def test_so_does_ending_the_session() -> None:
    peer, link = sending_engine(max_frame_size=512, incoming_window=1)
    sent = link.send(b"t", bytes(1_000))
    peer.hear()
    link.session.end()
    peer.hear()
    assert not link.abort(sent)
    assert not peer.engine.has_output

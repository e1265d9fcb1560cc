from __future__ import annotations

from typing import Literal
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.errors import LocalProtocolError
from acquit.protocol import receiver
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import (
    Accepted,
    AmqpCondition,
    Detach,
    Disposition,
    Flow,
    LinkCondition,
    Modified,
    RcvSettleMode,
    Received,
    Role,
    SessionCondition,
    SndSettleMode,
    TransactionalState,
    Transfer,
)
from acquit.protocol.delivery import Delivery, DeliveryState, ReceivedRun
from acquit.protocol.endpoint import UINT_MAX
from acquit.protocol.events import (
    DeliveriesReceived,
    DeliveryAborted,
    FlowReceived,
    LinkDetached,
    LinkDrained,
    LinkRequested,
    RunReceived,
    SessionEnded,
    StatesReceived,
)
from acquit.protocol.frames import encode_frame
from acquit.protocol.link import ReceivingLink
from acquit.protocol.message import Message
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.serial import MASK
from acquit.protocol.settlement import Phase
from tests.support.peer import Peer, attach_to, begun_server, receiving_engine, sending_attach, transfer
from tests.support.wire import kinds, only, opened


def sender_flow(delivery_count: int, link_credit: int, *, available: int = 0, drain: bool = False, **more: int) -> Flow:
    return Flow(0, 1_000, 0, 1_000, 0, delivery_count, link_credit, available, drain, **more)  # type: ignore[arg-type]


def failure(peer: Peer, *said: Transfer, payload: bytes = b"") -> str:
    """The condition with which the link is detached for what was said last; the session goes on."""
    for item in said[:-1]:
        peer.say(item, payload)
    (told,) = peer.say(said[-1], payload)
    assert isinstance(told, LinkDetached)
    assert told.closed
    assert not told.remote
    assert told.error is not None
    assert peer.error_heard(Detach) == told.error
    assert peer.say(Detach(0, closed=True)) == [], "told once"
    again = attach_to(peer, sending_attach("again", handle=5))
    assert isinstance(again, ReceivingLink)
    return told.error.condition


# -- deliveries


def test_consecutive_deliveries_come_in_one_event() -> None:
    peer, link = receiving_engine()
    data = b"".join(
        encode_frame(0, encode_composite(transfer(number, settled=number == 2)) + b"body%d" % number)
        for number in range(3)
    )
    (event,) = peer.send_bytes(data)
    assert isinstance(event, DeliveriesReceived)
    assert event.link is link
    first, _, third = event.deliveries
    assert (first.delivery_id, first.tag, first.payload, first.phase) == (0, b"t0", b"body0", Phase.UNSETTLED)
    assert (third.payload, third.phase) == (b"body2", Phase.SETTLED)
    assert link.unsettled() == event.deliveries[:2]
    assert (link.credit, link.delivery_count) == (97, 3)
    assert not first.resumed


def test_a_delivery_in_several_frames() -> None:
    peer, link = receiving_engine()
    link.takes_crc = True
    assert peer.say(transfer(0, more=True), b"one,") == []
    assert peer.say(transfer(None, more=True), b"") == []
    assert peer.say(transfer(0, more=True), b"two,") == []
    (event,) = peer.say(Transfer(0), b"three")
    assert isinstance(event, DeliveriesReceived)
    assert event.deliveries[0].payload == b"one,two,three"
    assert event.crc == crc32(b"one,two,three")
    assert link.credit == 99


DURABLE = Message(b"body", durable=True).encode()


@pytest.mark.pure
@pytest.mark.parametrize(
    ("payload", "split", "takes", "known"),
    [
        (DURABLE, 12, True, True),
        (DURABLE, 2, True, True),  # who says so is not there whole
        (DURABLE, 0, True, True),
        (b"\x00\x80" + bytes(7) + b"\x70\x45" + Message(b"body").encode(), 30, True, False),
        (b"\x00\x53\x70\xd0\x00\x00\x10\x04\x00\x00\x10\x00" + b"\x40" * 4096, 4100, True, True),  # no header
        (DURABLE, 12, False, False),
        (Message(b"body", durable=False, priority=7).encode(), 12, True, False),
        (Message(b"body", durable=False).encode(), 8, True, False),
    ],
)
def test_who_records_nothing_takes_no_checksum(
    monkeypatch: pytest.MonkeyPatch, payload: bytes, split: int, takes: bool, known: bool
) -> None:
    """A checksum of 100 MB costs tens of milliseconds, and a client, or a volatile message, has no use for it."""
    taken: list[int] = []

    def counting(data: bytes, value: int) -> int:
        taken.append(len(data))
        return crc32(data, value)

    monkeypatch.setattr(receiver, "crc32", counting)
    peer, link = receiving_engine()
    assert not link.takes_crc, "whoever records says so"
    link.takes_crc = takes
    assert peer.say(transfer(0, more=True), payload[:split]) == []
    event = only(peer.say(Transfer(0), payload[split:]), DeliveriesReceived)
    assert event.deliveries[0].payload == payload
    assert event.crc == (crc32(payload) if known else None)
    assert sum(taken) == (len(payload) if known else 0)


@pytest.mark.parametrize("large", [0, 1])
def test_a_checksum_is_known_of_the_first_of_those_that_came_together(large: int) -> None:
    peer, link = receiving_engine()
    link.takes_crc = True
    said = [(transfer(0), b"small"), (transfer(1, more=True), b"one,"), (Transfer(0), b"two"), (transfer(2), b"small")]
    if large == 0:
        said = [(transfer(0, more=True), b"one,"), (Transfer(0), b"two"), (transfer(1), b"small")]
    event = only(
        peer.send_bytes(b"".join(encode_frame(0, encode_composite(one) + payload) for one, payload in said)),
        DeliveriesReceived,
    )
    assert event.deliveries[large].payload == b"one,two"
    assert event.crc == (None if large else crc32(b"one,two"))


def test_deliveries_of_two_links_may_be_interleaved() -> None:
    peer, _ = receiving_engine()
    other = attach_to(peer, sending_attach("other", handle=1))
    other.grant(5)  # type: ignore[attr-defined]
    peer.say(transfer(0, more=True), b"a")
    peer.say(transfer(1, handle=1, more=True), b"b")
    assert only(peer.say(Transfer(0), b"A"), DeliveriesReceived).deliveries[0].payload == b"aA"
    assert only(peer.say(Transfer(1), b"B"), DeliveriesReceived).deliveries[0].payload == b"bB"


def test_a_later_frame_may_settle() -> None:
    peer, link = receiving_engine()
    peer.say(transfer(0, more=True), b"a")
    assert len(link.unsettled()) == 1
    (delivery,) = only(peer.say(Transfer(0, settled=True), b"b"), DeliveriesReceived).deliveries
    assert delivery.settled
    assert link.unsettled() == []


@pytest.mark.parametrize(
    ("link_mode", "said", "phase"),
    [
        (RcvSettleMode.FIRST, None, Phase.UNSETTLED),
        (RcvSettleMode.FIRST, RcvSettleMode.FIRST, Phase.UNSETTLED),
        (RcvSettleMode.SECOND, None, Phase.UNSETTLED_SECOND),
        (RcvSettleMode.SECOND, RcvSettleMode.FIRST, Phase.UNSETTLED),
    ],
)
def test_a_transfer_may_ask_for_another_settle_mode(
    link_mode: RcvSettleMode, said: RcvSettleMode | None, phase: Phase
) -> None:
    peer, _ = receiving_engine(rcv_settle_mode=link_mode)
    (delivery,) = only(peer.say(transfer(0, rcv_settle_mode=said)), DeliveriesReceived).deliveries
    assert delivery.phase == phase


def test_on_a_link_in_mode_first_no_transfer_asks_for_second() -> None:
    """2.7.5: illegal. The sender would wait for an outcome that it has to settle, and nobody would tell it one."""
    peer, _ = receiving_engine()
    assert failure(peer, transfer(0, rcv_settle_mode=RcvSettleMode.SECOND)) == AmqpCondition.INVALID_FIELD


def test_of_what_comes_settled_the_settle_mode_says_nothing() -> None:
    """2.7.5: the value is ignored."""
    peer, _ = receiving_engine()
    said = transfer(0, settled=True, rcv_settle_mode=RcvSettleMode.SECOND)
    assert only(peer.say(said), DeliveriesReceived).deliveries[0].settled


# -- delivery-tags

WIDE = 1_000  # a delivery-id from which on the fast path knows transfers again


@pytest.mark.parametrize("before", [1, 2, 5, 40])
def test_a_tag_is_not_used_again_before_its_delivery_is_settled(before: int) -> None:
    """2.6.12. As the codec finds it, and as the fast path does, whatever has come between."""
    peer, _ = receiving_engine()
    first = [transfer(WIDE + number, b"%04d" % number) for number in range(before)]
    assert failure(peer, *first, transfer(WIDE + before, b"0000")) == AmqpCondition.NOT_ALLOWED


def test_what_came_with_a_reused_tag_is_handed_over_up_to_it() -> None:
    """In one piece of bytes, which is how the fast path has them."""
    peer, link = receiving_engine()
    peer.say(transfer(WIDE, b"0000"))
    frames = [
        encode_frame(0, encode_composite(transfer(WIDE + number, b"%04d" % (number % 7)))) for number in range(1, 10)
    ]
    events = peer.engine.receive_data(b"".join(frames), 1_000.0)
    deliveries = [one for event in events if isinstance(event, DeliveriesReceived) for one in event.deliveries]
    assert [one.tag for one in deliveries] == [b"%04d" % number for number in range(1, 7)]
    assert only(events, LinkDetached).link is link


@pytest.mark.parametrize("mode", list(RcvSettleMode))
def test_a_tag_may_be_used_again_once_both_ends_have_settled(mode: RcvSettleMode) -> None:
    peer, link = receiving_engine(rcv_settle_mode=mode)
    for number in range(1_000):
        link.grant(100)
        peer.hear()
        (delivery,) = only(peer.say(transfer(number, b"tag%d" % (number % 2))), DeliveriesReceived).deliveries
        delivery.settle(ACCEPTED)
        if mode is RcvSettleMode.SECOND:
            peer.say(Disposition(Role.SENDER, number, number, True))
    assert link.unsettled_count == 0


def test_what_comes_settled_may_have_any_tag() -> None:
    peer, _ = receiving_engine()
    for number in range(5):
        assert only(peer.say(transfer(number, b"t", settled=True)), DeliveriesReceived)
    assert only(peer.say(transfer(5, b"t")), DeliveriesReceived)


@pytest.mark.parametrize("order", ["big", "little"])
def test_tags_of_settled_deliveries_are_not_remembered_without_end(order: Literal["big", "little"]) -> None:
    peer, link = receiving_engine(credit=0)
    for number in range(2_000):
        link.grant(10)
        peer.hear()
        said = transfer(number, number.to_bytes(4, order))
        (delivery,) = only(peer.say(said), DeliveriesReceived).deliveries
        delivery.settle(ACCEPTED)
    assert len(link._tags or ()) < 300


runs_of_tags = st.lists(
    st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(0, 12), st.sampled_from([1, 2])),
    max_size=12,
)


@given(runs=runs_of_tags)
def test_whatever_the_order_of_tags_only_those_of_unsettled_deliveries_are_refused(
    runs: list[tuple[list[int], int, int]],
) -> None:
    """Runs of tags of one length, each followed by settling some: the fast path, and the codec's, as a set says."""
    peer, _ = receiving_engine(credit=1_000)
    unsettled: dict[bytes, Delivery] = {}
    number = WIDE
    for numbers, settled, width in runs:
        tags = [one.to_bytes(width, "big") for one in numbers]
        good = next((at for at, tag in enumerate(tags) if tag in unsettled or tag in tags[:at]), len(tags))
        frames = [encode_frame(0, encode_composite(transfer(number + at, tag))) for at, tag in enumerate(tags)]
        events = peer.engine.receive_data(b"".join(frames), 1_000.0)
        came = [one for event in events if isinstance(event, DeliveriesReceived) for one in event.deliveries]
        assert [one.tag for one in came] == tags[:good]
        assert bool([event for event in events if isinstance(event, LinkDetached)]) is (good < len(tags))
        if good < len(tags):
            return
        number += good
        unsettled |= {one.tag: one for one in came}
        for tag in list(unsettled)[:settled]:
            unsettled.pop(tag).settle(ACCEPTED)


@given(runs=runs_of_tags)
def test_whatever_the_order_of_tags_what_came_together_stays_so(runs: list[tuple[list[int], int, int]]) -> None:
    """The same of a link that takes runs: who looks for a tag looks at none of their deliveries."""
    peer, link = receiving_engine(credit=1_000)
    link.takes_runs = True
    unsettled: dict[bytes, int] = {}
    together: list[ReceivedRun] = []
    number = WIDE
    for numbers, settled, width in runs:
        tags = [one.to_bytes(width, "big") for one in numbers]
        good = next((at for at, tag in enumerate(tags) if tag in unsettled or tag in tags[:at]), len(tags))
        frames = [encode_frame(0, encode_composite(transfer(number + at, tag))) for at, tag in enumerate(tags)]
        events = peer.engine.receive_data(b"".join(frames), 1_000.0)
        came: list[bytes] = []
        for event in events:
            if isinstance(event, RunReceived):
                came += event.run.tags
                together.append(event.run)
            elif isinstance(event, DeliveriesReceived):
                came += [one.tag for one in event.deliveries]
        assert came == tags[:good]
        assert bool([event for event in events if isinstance(event, LinkDetached)]) is (good < len(tags))
        if good < len(tags):
            return
        assert all(run.whole for run in together)
        unsettled |= {tag: number + at for at, tag in enumerate(tags)}
        assert link.session.received_tags(link) == unsettled
        number += good
        for tag in list(unsettled)[:settled]:
            assert link.session.settle_range(link, unsettled.pop(tag), 1, ACCEPTED, None) == (0, 1)
    assert all(run.whole for run in together)


def test_tags_that_are_taken_again_leave_together_what_came_together() -> None:
    """As of a sender that has some tags, and takes each again once it is free: each run is as long as without."""
    peer, link = receiving_engine(credit=1_000)
    link.takes_runs = True
    together: list[ReceivedRun] = []
    for first in range(0, 600, 20):
        frames = [
            encode_frame(0, encode_composite(transfer(WIDE + at, b"%02d" % (at % 50))))
            for at in range(first, first + 20)
        ]
        events = peer.engine.receive_data(b"".join(frames), 1_000.0)
        runs = [event.run for event in events if isinstance(event, RunReceived)]
        assert max(len(run.tags) for run in runs) >= 18
        together += runs
        assert all(run.whole for run in together)
        if first:
            link.session.settle_range(link, WIDE + first - 20, 20, ACCEPTED, None)


@pytest.mark.parametrize("together", [False, True])
def test_each_link_has_tags_of_its_own(together: bool) -> None:
    peer, first = receiving_engine(credit=1_000)
    second = attach_to(peer, sending_attach("another", 1))
    assert isinstance(second, ReceivingLink)
    second.grant(1_000)
    peer.hear()
    first.takes_runs = second.takes_runs = together
    tags = [b"%02d" % number for number in range(40, 20, -1)]  # falling, so that each is looked for
    for handle, link, ids in ((0, first, range(WIDE, WIDE + 20)), (1, second, range(WIDE + 20, WIDE + 40))):
        frames = [
            encode_frame(0, encode_composite(transfer(id_, tag, handle=handle)))
            for id_, tag in zip(ids, tags, strict=True)
        ]
        assert LinkDetached not in kinds(peer.engine.receive_data(b"".join(frames), 1_000.0))
        assert link.session.received_tags(link) == dict(zip(tags, ids, strict=True))


@pytest.mark.parametrize("mode", list(SndSettleMode))
def test_each_delivery_says_for_itself_whether_it_is_settled(mode: SndSettleMode) -> None:
    """Senders that do not keep their snd-settle-mode exist, and nothing is lost by believing the transfer."""
    peer, _ = receiving_engine(snd_settle_mode=mode)
    for number, settled in enumerate((False, True)):
        (delivery,) = only(peer.say(transfer(number, settled=settled)), DeliveriesReceived).deliveries
        assert delivery.settled is settled


def test_states_that_come_with_transfers() -> None:
    peer, _ = receiving_engine()
    (first,) = only(peer.say(transfer(0, state=TransactionalState(b"t"))), DeliveriesReceived).deliveries
    assert first.remote_state == TransactionalState(b"t")
    assert first.phase == Phase.UNSETTLED
    peer.say(transfer(1, more=True, state=Received(0, 0)))
    (second,) = only(peer.say(Transfer(0, state=Modified(True))), DeliveriesReceived).deliveries
    assert second.remote_state == Modified(True)
    assert second.phase == Phase.OFFERED
    (third,) = only(peer.say(transfer(2, settled=True, state=Accepted())), DeliveriesReceived).deliveries
    assert third.remote_state == ACCEPTED
    assert third.phase == Phase.SETTLED


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (TransactionalState(b"t"), TransactionalState(b"u")),
        (TransactionalState(b"t"), Accepted()),
        (Received(0, 0), TransactionalState(b"t")),
    ],
)
def test_frames_of_one_message_in_several_transactions(first: DeliveryState, second: DeliveryState) -> None:
    peer, _ = receiving_engine()
    peer, _ = receiving_engine()
    assert failure(peer, transfer(0, more=True, state=first), Transfer(0, state=second)) == AmqpCondition.INVALID_FIELD


@pytest.mark.parametrize("second", [None, TransactionalState(b"t")])
@pytest.mark.parametrize("said", [Accepted(), TransactionalState(b"u"), TransactionalState(b"t", Accepted())])
def test_a_transaction_is_told_by_transfers_alone(said: DeliveryState, second: DeliveryState | None) -> None:
    peer, _ = receiving_engine()
    peer.say(transfer(0, more=True, state=TransactionalState(b"t")))
    peer.say(Disposition(Role.SENDER, 0, 0, False, said))
    (delivery,) = only(peer.say(Transfer(0, state=second)), DeliveriesReceived).deliveries
    assert isinstance(delivery.remote_state, TransactionalState)
    assert delivery.remote_state.txn_id == b"t"


def test_a_disposition_on_what_has_not_arrived_completely() -> None:
    """2.7.6 discourages it. The application hears of the delivery when it is whole, and finds it settled."""
    peer, link = receiving_engine()
    peer.say(transfer(0, more=True), b"a")
    assert peer.say(Disposition(Role.SENDER, 0, 0, True)) == []
    assert link.unsettled() == []
    (delivery,) = only(peer.say(Transfer(0), b"b"), DeliveriesReceived).deliveries
    assert delivery.phase == Phase.SETTLED
    assert delivery.payload == b"ab"
    assert not delivery.settle(ACCEPTED)


def test_the_sender_settles() -> None:
    peer, link = receiving_engine()
    (delivery,) = only(peer.say(transfer(0)), DeliveriesReceived).deliveries
    assert peer.say(Disposition(Role.SENDER, 0, 0, True)) == [StatesReceived(link, [delivery], None, settled=True)]
    assert not delivery.settle(ACCEPTED)
    assert peer.hear() == []


# -- aborted and resumed


def test_an_aborted_delivery() -> None:
    peer, link = receiving_engine()
    peer.say(transfer(0, more=True), b"a")
    assert peer.say(Transfer(0, more=True, aborted=True), b"ignored") == [DeliveryAborted(link, b"t0")]
    assert link.unsettled() == []
    assert link.credit == 99
    assert peer.say(transfer(1, aborted=True)) == [DeliveryAborted(link, b"t1")]
    assert link.unsettled() == []
    assert kinds(peer.say(transfer(2))) == ["DeliveriesReceived"]


def test_resumed_deliveries_that_we_know_and_that_we_do_not() -> None:
    peer = begun_server()
    link = only(peer.say(sending_attach()), LinkRequested).link
    assert isinstance(link, ReceivingLink)
    link.accept_attach(unsettled={b"known": Received(1, 0)})
    link.grant(10)
    peer.hear()
    (delivery,) = only(peer.say(transfer(0, b"known", resume=True), b"x"), DeliveriesReceived).deliveries
    assert delivery.resumed
    assert peer.say(transfer(1, b"strange", resume=True), b"x") == []
    assert peer.say(transfer(2, b"strange", resume=True, more=True), b"x") == []
    assert peer.say(Transfer(0, aborted=True)) == []
    assert link.unsettled() == [delivery]
    assert link.credit == 7


def test_a_drain_ends_with_a_resumed_delivery_that_nobody_knows() -> None:
    peer = begun_server()
    link = only(peer.say(sending_attach()), LinkRequested).link
    assert isinstance(link, ReceivingLink)
    link.accept_attach(unsettled={b"known": None})
    link.grant(1)
    link.drain_credit()
    peer.hear()
    assert peer.say(transfer(0, b"strange", resume=True), b"x") == [LinkDrained(link)]


def test_a_new_delivery_while_our_map_is_incomplete() -> None:
    peer = begun_server()
    link = only(peer.say(sending_attach()), LinkRequested).link
    assert isinstance(link, ReceivingLink)
    link.accept_attach(unsettled={b"1": None}, incomplete_unsettled=True)
    link.grant(10)
    peer.hear()
    assert failure(peer, transfer(0, b"2")) == AmqpCondition.NOT_ALLOWED


# -- what goes wrong


def test_a_delivery_beyond_the_credit() -> None:
    peer, _ = receiving_engine(credit=1)
    assert failure(peer, transfer(0), transfer(1)) == LinkCondition.TRANSFER_LIMIT_EXCEEDED


def test_a_tag_too_long() -> None:
    peer, _ = receiving_engine()
    assert failure(peer, transfer(0, bytes(33))) == AmqpCondition.INVALID_FIELD


@pytest.mark.parametrize("cut", [1, 3])
def test_a_message_too_large(cut: int) -> None:
    peer, _ = receiving_engine(max_message_size=10)
    assert kinds(peer.say(transfer(0), bytes(10))) == ["DeliveriesReceived"]
    if cut == 1:
        assert failure(peer, transfer(1), payload=bytes(11)) == LinkCondition.MESSAGE_SIZE_EXCEEDED
    else:
        frames = [transfer(1, more=True), transfer(None, more=True), transfer(None)]
        assert failure(peer, *frames, payload=bytes(4)) == LinkCondition.MESSAGE_SIZE_EXCEEDED
    assert [delivery.delivery_id for delivery in peer.engine.sessions[0].unsettled()] == []


def test_without_a_limit_of_its_own_a_link_has_the_connections() -> None:
    peer, link = receiving_engine(options=ConnectionOptions(container_id="c", max_message_size=10))
    assert link.max_message_size == 10
    assert failure(peer, transfer(0), payload=bytes(11)) == LinkCondition.MESSAGE_SIZE_EXCEEDED


def test_zero_is_no_limit() -> None:
    peer, link = receiving_engine(max_message_size=0)
    assert link.max_message_size == 0
    assert kinds(peer.say(transfer(0), bytes(60_000))) == ["DeliveriesReceived"]


def test_unfinished_deliveries_of_all_links_together_are_bounded() -> None:
    peer, _ = receiving_engine(options=ConnectionOptions(container_id="c", assembly_bytes_max=100))
    for handle in (1, 2):
        attach_to(peer, sending_attach(f"l{handle}", handle)).grant(9)  # type: ignore[attr-defined]
    peer.hear()
    peer.say(transfer(0, more=True), bytes(40))
    peer.say(transfer(1, handle=1, more=True), bytes(60))
    (told,) = peer.say(transfer(2, handle=2, more=True), b"x")
    assert isinstance(told, LinkDetached)
    assert told.error is not None
    assert told.error.condition == AmqpCondition.RESOURCE_LIMIT_EXCEEDED
    assert told.unsettled == []
    assert kinds(peer.say(Transfer(0))) == ["DeliveriesReceived"]
    assert peer.say(transfer(3, more=True), bytes(40)) == [], "what has ended counts no more"
    peer.say(Transfer(1, aborted=True))
    peer.say(Detach(0))
    assert kinds(peer.say(transfer(4, handle=1, more=True), bytes(100))) == []


@pytest.mark.parametrize(
    "other", [Transfer(0, 5), Transfer(0, None, b"other"), Transfer(0, None, None, 7), transfer(1)], ids=repr
)
def test_a_frame_of_another_delivery_in_the_middle_of_one(other: Transfer) -> None:
    peer, _ = receiving_engine()
    peer.say(transfer(0, more=True), b"a")
    ended = only(peer.say(other), SessionEnded)
    assert ended.error is not None
    assert ended.error.condition == AmqpCondition.INVALID_FIELD


def test_endless_empty_frames_take_no_memory_but_window() -> None:
    peer, _ = receiving_engine(options=ConnectionOptions(container_id="c", incoming_window_frames=10))
    peer.say(transfer(0, more=True))
    events = [event for _ in range(50) for event in peer.say(Transfer(0, more=True))]
    (ended,) = events
    assert isinstance(ended, SessionEnded)
    assert ended.error is not None
    assert ended.error.condition == SessionCondition.WINDOW_VIOLATION


# -- credit


def test_grants_are_one_flow() -> None:
    peer, link = receiving_engine(credit=0)
    link.grant(3)
    link.grant(5)
    flow = peer.hear_only(Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.drain, flow.echo) == (0, 0, 5, False, False)
    assert flow.incoming_window == 2_048


@pytest.mark.parametrize("credit", [-1, 1 << 32])
def test_credit_is_a_uint(credit: int) -> None:
    _, link = receiving_engine(credit=0)
    with pytest.raises(LocalProtocolError, match="credit"):
        link.grant(credit)


def test_no_credit_before_the_link_is_accepted() -> None:
    link = only(begun_server().say(sending_attach()), LinkRequested).link
    assert isinstance(link, ReceivingLink)
    with pytest.raises(LocalProtocolError, match="accept"):
        link.grant(1)


def test_properties_go_out_at_once() -> None:
    peer, link = receiving_engine(credit=0)
    link.grant(1, properties={"txn-id": b"1"})
    link.grant(2)
    first, second = peer.hear()
    assert isinstance(first, Flow)
    assert isinstance(second, Flow)
    assert (first.properties, second.properties) == ({"txn-id": b"1"}, None)


def test_what_was_sent_before_we_lowered_the_credit_is_taken() -> None:
    peer, link = receiving_engine(credit=5)
    link.grant(1)
    peer.hear()
    for number in range(5):
        assert kinds(peer.say(transfer(number))) == ["DeliveriesReceived"]
    assert link.credit == 0
    assert failure(peer, transfer(5)) == LinkCondition.TRANSFER_LIMIT_EXCEEDED


def test_once_the_sender_has_heard_the_lower_limit_holds() -> None:
    peer, link = receiving_engine(credit=5)
    link.grant(1)
    peer.hear()
    peer.say(sender_flow(0, 1))
    assert failure(peer, transfer(0), transfer(1)) == LinkCondition.TRANSFER_LIMIT_EXCEEDED


def test_a_sender_that_says_the_same_as_long_ago_may_not_have_heard() -> None:
    """Its flow was on the way when we raised the limit and lowered it to what it had been."""
    peer, link = receiving_engine(credit=1)
    peer.say(transfer(0))
    for credit in (4, 0):
        link.grant(credit)
        peer.hear()
    peer.say(sender_flow(1, 0))
    for number in range(1, 5):
        assert kinds(peer.say(transfer(number))) == ["DeliveriesReceived"]
    assert failure(peer, transfer(5)) == LinkCondition.TRANSFER_LIMIT_EXCEEDED


def test_a_sender_that_went_on_before_it_heard_has_heard_when_it_says_so() -> None:
    peer, link = receiving_engine(credit=5)
    link.grant(1)
    peer.hear()
    for number in range(3):
        peer.say(transfer(number))
    peer.say(sender_flow(3, 0))
    assert failure(peer, transfer(3)) == LinkCondition.TRANSFER_LIMIT_EXCEEDED


def test_the_limits_that_a_silent_sender_was_told_are_forgotten_as_it_goes_on() -> None:
    peer, link = receiving_engine(credit=2)
    for number in range(1_000):
        peer.say(transfer(number))
        link.grant(2)
        peer.hear()
    assert len(link._told) <= 3
    for credit in range(1_000):
        link.grant(credit)
        peer.hear()
    assert len(link._told) < 100
    for credit in (UINT_MAX, 0, UINT_MAX):
        link.grant(credit)
        assert peer.hear()


def test_lower_and_higher_again() -> None:
    peer, link = receiving_engine(credit=5)
    link.grant(0)
    link.grant(5)
    peer.hear()
    assert failure(peer, *[transfer(number) for number in range(6)]) == LinkCondition.TRANSFER_LIMIT_EXCEEDED


def test_the_end_of_credit_goes_before_what_is_given_back() -> None:
    # Else the sender sends at once again what it gets back.
    peer, link = receiving_engine(credit=5)
    ((event),) = peer.say(transfer(0), b"x")
    assert isinstance(event, DeliveriesReceived)
    link.session.settle_all(event.deliveries, RELEASED)
    link.grant(0)
    flow, disposition = peer.hear()
    assert isinstance(flow, Flow)
    assert isinstance(disposition, Disposition)
    assert (flow.link_credit, disposition.state) == (0, RELEASED)


def test_draining() -> None:
    wire = opened()
    session, _ = wire.begin()
    receiver, sender = wire.attach_receiver(session, credit=3)
    assert receiver.drain_credit()
    assert receiver.drain
    _, heard = wire.run()
    assert kinds(heard) == ["CreditChanged"]
    sender.send(b"1", b"x")
    sender.drained()
    heard, _ = wire.run()
    assert kinds(heard) == ["DeliveriesReceived", "LinkDrained"]
    assert not receiver.drain
    assert receiver.credit == 0
    assert not receiver.drain_credit(), "nothing is left to drain"
    receiver.grant(2)
    _, heard = wire.run()
    assert not sender.drain
    assert sender.credit == 2


def test_a_drain_that_ends_because_everything_was_used() -> None:
    peer, link = receiving_engine(credit=2)
    link.drain_credit()
    peer.hear()
    peer.say(transfer(0))
    peer.say(transfer(1, more=True), b"a")
    assert peer.say(sender_flow(2, 0, drain=True)) == [], "the last delivery is still arriving"
    assert kinds(peer.say(Transfer(0))) == ["DeliveriesReceived", "LinkDrained"]


@pytest.mark.parametrize("aborted", [False, True])
def test_a_drain_while_the_last_delivery_is_arriving_waits_for_that(aborted: bool) -> None:
    """No credit is left then, and all that was asked for is not there."""
    peer, link = receiving_engine(credit=1)
    peer.hear()
    peer.say(transfer(0, more=True), b"a")
    assert link.credit == 0 and link.drain_credit()
    assert peer.hear() == [], "there is nothing to ask for"
    what = "DeliveryAborted" if aborted else "DeliveriesReceived"
    assert kinds(peer.say(Transfer(0, aborted=aborted))) == [what, "LinkDrained"]
    assert not link.drain_credit(), "nothing is left to drain"


def test_a_drain_that_ends_with_an_aborted_delivery() -> None:
    peer, link = receiving_engine(credit=1)
    link.drain_credit()
    peer.say(transfer(0, more=True))
    assert kinds(peer.say(Transfer(0, aborted=True))) == ["DeliveryAborted", "LinkDrained"]


def test_what_the_sender_says() -> None:
    peer, link = receiving_engine(credit=5)
    assert peer.say(sender_flow(0, 5, available=42)) == []
    assert link.available == 42
    peer.say(transfer(0))
    assert link.available == 41
    assert peer.say(sender_flow(0, 5)) == [], "a sender that counts when a delivery ends may be one behind"
    assert (link.credit, link.delivery_count) == (4, 1)
    assert peer.say(sender_flow(3, 2)) == [], "it may give credit back without being asked"
    assert (link.credit, link.delivery_count) == (2, 3)


def test_a_sender_that_counts_past_the_limit_gets_no_credit() -> None:
    peer, link = receiving_engine(credit=5)
    peer.say(sender_flow(1_000, 0))
    assert (link.credit, link.delivery_count) == (0, 1_000)


def test_delivery_counts_wrap_around() -> None:
    wire = opened()
    session, _ = wire.begin()
    sender, receiver = wire.attach_sender(session, credit=3, initial_delivery_count=MASK - 1)
    for number in range(3):
        sender.send(b"%d" % number, b"x")
    wire.run()
    assert receiver.delivery_count == sender.delivery_count == 1
    receiver.grant(2)
    wire.run()
    assert sender.credit == 2


def test_an_echo() -> None:
    peer, link = receiving_engine(credit=0)
    link.grant(0, echo=True)
    assert peer.hear_only(Flow).echo
    flow = sender_flow(0, 0)
    assert peer.say(flow) == [FlowReceived(link, flow)]
    assert peer.say(flow) == []
    link.grant(1)
    assert not peer.hear_only(Flow).echo


def test_a_flow_with_properties() -> None:
    peer, link = receiving_engine(credit=0)
    flow = Flow(0, 9, 0, 9, 0, 0, 0, properties={"a": 1})
    assert peer.say(flow) == [FlowReceived(link, flow)]


def test_drained_is_told_once() -> None:
    peer, link = receiving_engine(credit=2)
    link.drain_credit()
    assert peer.say(sender_flow(2, 0, drain=True)) == [LinkDrained(link)]
    assert peer.say(sender_flow(2, 0, drain=True)) == []


def test_a_grant_that_does_not_fit_changes_nothing() -> None:
    peer = begun_server(max_frame_size=512)
    link = attach_to(peer, sending_attach())
    assert isinstance(link, ReceivingLink)
    link.grant(3)
    peer.hear()
    with pytest.raises(LocalProtocolError):
        link.grant(9, echo=True, properties={"x": "y" * 600})
    assert link.credit == 3
    link.grant(4)
    flow = peer.hear_only(Flow)
    assert (flow.link_credit, flow.echo) == (4, False)

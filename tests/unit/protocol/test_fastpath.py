from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acquit.protocol import fastpath, frames
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import (
    Detach,
    Disposition,
    End,
    Error,
    LinkCondition,
    Modified,
    RcvSettleMode,
    Received,
    Rejected,
    Role,
    TransactionalState,
    Transfer,
)
from acquit.protocol.delivery import Delivery, DeliveryState
from acquit.protocol.events import DeliveriesReceived, LinkDetached, LinkDrained, StatesReceived
from acquit.protocol.frames import encode_frame
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.serial import MASK
from acquit.protocol.settlement import Phase
from acquit.protocol.states import transaction_of
from tests.support.hostile import Application, state_of
from tests.support.peer import (
    Peer,
    attach_to,
    begun_server,
    credit_flow,
    receiving_engine,
    sending_attach,
    sending_engine,
)
from tests.support.wire import kinds, only

FIRST_ID = 1_000  # wide from the start


def transfer_bytes(id_: int, payload: bytes = b"x", *, handle: int = 0, tag_bytes: int = 4, **fields: object) -> bytes:
    transfer = Transfer(handle, id_, id_.to_bytes(tag_bytes, "big"), 0, **fields)  # type: ignore[arg-type]
    return encode_frame(0, encode_composite(transfer) + payload)


def taught(credit: int = 100, **options: object) -> tuple[Peer, ReceivingLink]:
    """An engine that has seen one transfer."""
    settings = ConnectionOptions(container_id="engine", **options)  # type: ignore[arg-type]
    peer, link = receiving_engine(credit, options=settings)
    peer.send_bytes(transfer_bytes(FIRST_ID))
    peer.hear()
    assert list(peer.engine.predictions.transfers.values()) == [peer.engine.predictions.links[link]]
    return peer, link


def test_what_looks_as_before_needs_no_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    peer, link = taught()
    with monkeypatch.context() as patched:
        patched.setattr(frames, "decode_composite", None)
        (event,) = peer.send_bytes(b"".join(transfer_bytes(FIRST_ID + n, b"body%d" % n) for n in range(1, 10)))
    assert isinstance(event, DeliveriesReceived)
    assert [item.payload for item in event.deliveries] == [b"body%d" % n for n in range(1, 10)]
    assert [item.delivery_id for item in event.deliveries] == list(range(FIRST_ID + 1, FIRST_ID + 10))
    assert {item.phase for item in event.deliveries} == {Phase.UNSETTLED}
    assert (link.credit, link.delivery_count, link.unsettled_count) == (90, 10, 10)
    assert link.unsettled()[1:] == event.deliveries


@pytest.mark.parametrize(
    ("mode", "settled", "phase"),
    [
        (RcvSettleMode.FIRST, None, Phase.UNSETTLED),
        (RcvSettleMode.SECOND, None, Phase.UNSETTLED_SECOND),
        (RcvSettleMode.FIRST, True, Phase.SETTLED),
        (RcvSettleMode.SECOND, True, Phase.SETTLED),
    ],
)
def test_phases_are_those_of_the_table(mode: RcvSettleMode, settled: bool | None, phase: Phase) -> None:
    peer, link = receiving_engine(rcv_settle_mode=mode)
    events = peer.send_bytes(b"".join(transfer_bytes(FIRST_ID + n, settled=settled) for n in range(3)))
    assert {item.phase for item in only(events, DeliveriesReceived).deliveries} == {phase}
    assert link in peer.engine.predictions.links
    assert len(link.unsettled()) == (0 if settled else 3)


def test_it_stops_at_the_end_of_the_credit() -> None:
    peer, _ = taught(credit=3)
    events = peer.send_bytes(b"".join(transfer_bytes(FIRST_ID + n) for n in range(1, 4)))
    assert kinds(events) == ["DeliveriesReceived", "LinkDetached"]
    error = only(events, LinkDetached).error
    assert error is not None
    assert error.condition == LinkCondition.TRANSFER_LIMIT_EXCEEDED
    assert peer.engine.predictions.transfers == {}, "nothing is kept of a link that is gone"


def test_it_stops_at_the_end_of_the_window() -> None:
    peer, _ = taught(incoming_window_frames=4)
    events = peer.send_bytes(b"".join(transfer_bytes(FIRST_ID + n) for n in range(1, 5)))
    assert kinds(events) == ["DeliveriesReceived", "SessionEnded"]
    assert len(only(events, DeliveriesReceived).deliveries) == 3


@pytest.mark.pure
@example(100, 20, FIRST_ID, True, (0, 0), 0)
@example(100, 40, MASK - 30, False, (0, 0), 0)
@given(
    st.sampled_from([0, 3, 100]),
    st.integers(1, 60),
    st.sampled_from([FIRST_ID, MASK - 30]),
    st.booleans(),
    st.tuples(st.integers(0), st.integers(0, 255)),
    st.integers(0, 2_000),
)
def test_many_of_one_size_are_taken_as_one_by_one(
    body_bytes: int, count: int, first: int, tight: bool, flipped: tuple[int, int], cut: int
) -> None:
    """Whatever octet of them is another, wherever a read ends, where ids begin anew, or messages are too large."""
    ids = [first + n & MASK for n in range(count + 1)]
    data = bytearray(b"".join(transfer_bytes(one, bytes(body_bytes)) for one in ids[1:]))
    data[flipped[0] % len(data)] ^= flipped[1]
    options = ConnectionOptions(
        container_id="engine", incoming_window_frames=55, max_message_size=90 if tight else 1_000
    )
    seen = []
    for many in (3, 1_000):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(fastpath, "MANY", many)
            peer, _ = receiving_engine(50, options=options)
            application = Application(50, passive=True)
            for part in (transfer_bytes(ids[0]), data[:cut], data[cut:]):
                application.hear(peer.send_bytes(bytes(part)))
            seen.append((application.all_heard(), state_of(peer.engine), peer.hear_bytes()))
    assert seen[0] == seen[1]


@pytest.mark.pure
@pytest.mark.parametrize(("last_bytes", "together"), [(1, 20), (2, 19)])
def test_those_of_one_size_are_unpacked_together(
    monkeypatch: pytest.MonkeyPatch, last_bytes: int, together: int
) -> None:
    """Else the test before would compare one way with itself."""
    unpacked, way = [], fastpath._of_one_size

    def of_one_size(*arguments: Any) -> tuple[list[bytes], list[bytes], int]:
        found = way(*arguments)
        unpacked.append(len(found[0]))
        return found

    monkeypatch.setattr(fastpath, "_of_one_size", of_one_size)
    monkeypatch.setattr(fastpath, "MANY", 8)
    peer, _ = taught()
    bodies = [b"x"] * 19 + [bytes(last_bytes)]
    (event,) = peer.send_bytes(b"".join(transfer_bytes(FIRST_ID + n, body) for n, body in enumerate(bodies, 1)))
    assert isinstance(event, DeliveriesReceived)
    assert [item.payload for item in event.deliveries] == bodies
    assert unpacked == [together]


@pytest.mark.parametrize("at", [1, 7, 8, 40, 44, 99])
def test_many_of_one_size_are_of_the_transaction_that_each_names(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    monkeypatch.setattr(fastpath, "MANY", 8)
    peer, _ = taught(200)
    states = [TransactionalState(b"other" if n == at else b"first") for n in range(100)]
    peer.send_bytes(transfer_bytes(FIRST_ID + 1, state=states[0]))
    sent = (transfer_bytes(FIRST_ID + 2 + n, state=state) for n, state in enumerate(states))
    events = peer.send_bytes(b"".join(sent))
    received = [event for event in events if isinstance(event, DeliveriesReceived)]
    assert [one.remote_state for event in received for one in event.deliveries] == states


@pytest.mark.parametrize(
    "other",
    [
        transfer_bytes(FIRST_ID + 2),  # the id jumps
        transfer_bytes(FIRST_ID + 1, bytes(60_000)),  # larger than the link takes
        transfer_bytes(FIRST_ID + 1)[:-1] + b"",  # not whole
        transfer_bytes(FIRST_ID + 1, tag_bytes=5),
        transfer_bytes(FIRST_ID + 1, batchable=True),
        transfer_bytes(FIRST_ID + 1, more=True),
        transfer_bytes(FIRST_ID + 1, settled=True),
        transfer_bytes(FIRST_ID + 1, state=Received(0, 0)),
    ],
)
def test_what_looks_different_goes_the_long_way(other: bytes) -> None:
    seen = []
    for forgets in (False, True):
        peer, link = taught(max_message_size=50_000)
        if forgets:
            peer.engine.predictions.transfers.clear()
        events = peer.send_bytes(other + transfer_bytes(FIRST_ID + 2, settled=None)[:9])
        seen.append((kinds(events), [item.payload for item in link.unsettled()], link.credit, link.state))
    assert seen[0] == seen[1]


def test_a_client_that_changes_is_learnt_again_and_only_the_last_is_kept() -> None:
    peer, link = taught()
    old = peer.engine.predictions.links[link]
    peer.send_bytes(transfer_bytes(FIRST_ID + 1, tag_bytes=8))
    assert peer.engine.predictions.links[link] is not old
    assert list(peer.engine.predictions.transfers.values()) == [peer.engine.predictions.links[link]]
    peer.send_bytes(transfer_bytes(FIRST_ID + 2, state=Received(0, 0)))
    assert peer.engine.predictions.transfers == {}, "a state cannot be predicted"


def test_small_ids_in_one_byte_are_not_predicted() -> None:
    peer, link = receiving_engine()
    events = peer.send_bytes(b"".join(transfer_bytes(n) for n in range(3)))
    assert len(only(events, DeliveriesReceived).deliveries) == 3
    assert link not in peer.engine.predictions.links


def wide_list(frame: bytes) -> bytes:
    """The same transfer, its fields in a list with wide sizes (1.6.22), as some clients write them."""
    assert frame[11] == 0xC0
    size, count = frame[12], frame[13]
    wide = frame[4:11] + b"\xd0" + (size + 3).to_bytes(4, "big") + count.to_bytes(4, "big") + frame[14:]
    return (len(wide) + 4).to_bytes(4, "big") + wide


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("handles", [(0, 1), (254, 255), (255, 256), (300, 301), (0x10000, 0x10001)])
def test_links_that_take_turns_do_not_forget_each_other(
    monkeypatch: pytest.MonkeyPatch, handles: tuple[int, int], wide: bool
) -> None:
    peer = begun_server(options=ConnectionOptions(container_id="engine", handle_max=0x20000))
    for handle in handles:
        attach_to(peer, sending_attach(f"l{handle}", handle)).grant(50)  # type: ignore[attr-defined]
    written = [transfer_bytes(FIRST_ID + n, handle=handles[n % 2]) for n in range(10)]
    if wide:
        written = [wide_list(frame) for frame in written]
    names = [f"l{handle}" for handle in handles]
    events = peer.send_bytes(b"".join(written[:2]))
    assert [event.link.name for event in events if isinstance(event, DeliveriesReceived)] == names
    with monkeypatch.context() as patched:
        patched.setattr(frames, "decode_composite", None)
        events = peer.send_bytes(b"".join(written[2:]))
    assert [event.link.name for event in events if isinstance(event, DeliveriesReceived)] == names * 4
    assert len(peer.engine.predictions.transfers) == 2


def test_two_links_take_turns() -> None:
    peer = begun_server()
    for handle in (0, 1):
        attach_to(peer, sending_attach(f"l{handle}", handle)).grant(50)  # type: ignore[attr-defined]
    peer.send_bytes(transfer_bytes(FIRST_ID) + transfer_bytes(FIRST_ID + 1, handle=1))
    assert len(peer.engine.predictions.transfers) == 2
    events = peer.send_bytes(b"".join(transfer_bytes(FIRST_ID + n, handle=n % 2) for n in range(2, 8)))
    assert [event.link.name for event in events if isinstance(event, DeliveriesReceived)] == ["l0", "l1"] * 3


@pytest.mark.parametrize("gone", [Detach(0, closed=True), End()])
def test_a_layout_goes_with_its_link(gone: Detach | End) -> None:
    peer, _ = taught()
    peer.say(gone)
    assert peer.engine.predictions.transfers == {}


def test_a_drain_ends_with_the_last_credit() -> None:
    peer, link = taught(credit=3)
    link.drain_credit()
    events = peer.send_bytes(transfer_bytes(FIRST_ID + 1) + transfer_bytes(FIRST_ID + 2))
    assert kinds(events) == ["DeliveriesReceived", "LinkDrained"]
    assert only(events, LinkDrained).link is link


def test_our_window_is_renewed() -> None:
    peer, _ = taught(incoming_window_frames=4)
    peer.send_bytes(transfer_bytes(FIRST_ID + 1))
    assert len(peer.hear()) == 1


def test_predicted_transfers_are_signs_of_life() -> None:
    peer, _ = taught(idle_timeout_ms=1_000)
    peer.now += 1.5
    peer.send_bytes(transfer_bytes(FIRST_ID + 1))
    assert peer.engine.handle_deadline(peer.now + 1) == []


# -- ours


def second_frame(link: SendingLink, peer: Peer, tag: bytes, settled: bool) -> tuple[bytes, bytes]:
    """The same message by the codec and by the template."""
    link.send(tag, b"payload", settled=settled)
    by_codec = peer.hear_bytes()
    assert link._templates
    link.send(tag, b"payload", settled=settled)
    return by_codec, peer.hear_bytes()


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("tag", [b"1", bytes(32)])
@pytest.mark.parametrize("handle", [0, 200, 300])
def test_a_template_says_what_the_codec_says(settled: bool, tag: bytes, handle: int) -> None:
    peer, link = sending_engine(options=ConnectionOptions(container_id="c", initial_serial=FIRST_ID))
    peer.say(credit_flow(100, next_incoming_id=FIRST_ID))
    link.handle = handle
    by_codec, by_template = second_frame(link, peer, tag, settled)
    expected = bytearray(by_codec)
    position = expected.index((FIRST_ID).to_bytes(4, "big"))
    expected[position : position + 4] = (FIRST_ID + 1).to_bytes(4, "big")
    assert by_template == bytes(expected), "byte for byte, with an id of four bytes"


# -- dispositions


def disposition_bytes(first: int, last: int | None, state: DeliveryState | None = ACCEPTED) -> bytes:
    return encode_frame(0, encode_composite(Disposition(Role.RECEIVER, first, last, True, state)))


def sent_to(count: int) -> tuple[Peer, SendingLink, list[Delivery]]:
    """An engine that has sent deliveries with wide ids."""
    peer, link = sending_engine(0, options=ConnectionOptions(container_id="c", initial_serial=FIRST_ID))
    peer.say(credit_flow(100, next_incoming_id=FIRST_ID))
    sent = [link.send(b"%d" % number, b"x") for number in range(count)]
    peer.hear()
    return peer, link, sent


def wide(frame: bytes) -> bytes:
    """The same disposition with its list in the wide form, as Qpid Proton writes it."""
    assert frame[11] == 0xC0
    size, count = frame[12:14]
    return encode_frame(0, frame[8:11] + b"\xd0" + (size + 3).to_bytes(4, "big") + bytes((0, 0, 0, count)) + frame[14:])


@pytest.mark.parametrize("form", [bytes, wide])
@pytest.mark.parametrize("last", [None, 0])
def test_a_disposition_like_the_last_needs_no_codec(
    monkeypatch: pytest.MonkeyPatch, last: int | None, form: Callable[[bytes], bytes]
) -> None:
    peer, link, sent = sent_to(4)

    def said(number: int) -> bytes:
        id_ = FIRST_ID + number
        return form(disposition_bytes(id_, None if last is None else id_))

    peer.send_bytes(said(0))
    with monkeypatch.context() as patched:
        patched.setattr(frames, "decode_composite", None)
        assert peer.send_bytes(said(2)) == [StatesReceived(link, [sent[2]], ACCEPTED, settled=True)]
        assert peer.send_bytes(said(2) + said(1)) == [StatesReceived(link, [sent[1]], ACCEPTED, settled=True)]
        assert peer.send_bytes(said(3)[:-1]) == [], "not whole"
    assert kinds(peer.send_bytes(said(3)[-1:])) == ["StatesReceived"]
    assert link.unsettled() == []


def in_transaction(txn_id: bytes, number: int) -> bytes:
    return disposition_bytes(FIRST_ID + number, None, TransactionalState(txn_id, ACCEPTED))


@pytest.mark.parametrize("form", [bytes, wide])
def test_another_transaction_needs_no_codec(monkeypatch: pytest.MonkeyPatch, form: Callable[[bytes], bytes]) -> None:
    peer, link, sent = sent_to(4)
    peer.send_bytes(form(in_transaction(b"one", 0)))
    with monkeypatch.context() as patched:
        patched.setattr(frames, "decode_composite", None)
        for number, txn_id in ((1, b"two"), (2, b"two"), (3, b"one")):
            state = TransactionalState(txn_id, ACCEPTED)
            told = peer.send_bytes(form(in_transaction(txn_id, number)))
            assert told == [StatesReceived(link, [sent[number]], state, settled=True)]


def with_wide_state(txn_id: bytes, number: int, *, wide_id: bool = False) -> bytes:
    """A transfer whose state is a list of four-byte size and count, or whose id has a length of four bytes."""
    short = encode_composite(TransactionalState(txn_id))
    if wide_id:
        wide = short[:4] + bytes([short[4] + 3, 1, 0xB0]) + len(txn_id).to_bytes(4, "big") + txn_id
    else:
        wide = short[:3] + b"\xd0" + (4 + len(short) - 6).to_bytes(4, "big") + b"\x00\x00\x00\x01" + short[6:]
    id_ = FIRST_ID + number
    transfer = encode_composite(Transfer(0, id_, id_.to_bytes(4, "big"), 0, state=TransactionalState(txn_id)))
    assert transfer.count(short) == 1
    widened = transfer.replace(short, wide)
    return encode_frame(0, widened[:4] + bytes([widened[4] + len(wide) - len(short)]) + widened[5:] + b"x")


def test_an_id_within_an_outcome_is_not_taken_for_that_of_the_transaction() -> None:
    """Written by a peer whose own descriptor is longer than most write it, so that another is found first."""

    def sent_in(txn_id: bytes, nested: bytes, number: int) -> bytes:
        hidden = encode_composite(TransactionalState(nested))
        id_ = FIRST_ID + number
        state = TransactionalState(txn_id, Rejected(Error("c", info={"k": hidden})))
        transfer = encode_composite(Transfer(0, id_, id_.to_bytes(4, "big"), 0, state=state))
        outer = b"\x00\x80" + bytes(7) + b"\x34"
        assert transfer.count(b"\x00\x53\x34") == 2
        longer = transfer.replace(b"\x00\x53\x34", outer, 1)
        at = longer.index(b"\xc0") + 1
        longer = longer[:at] + bytes((longer[at] + 7,)) + longer[at + 1 :]
        return encode_frame(0, longer + b"x")

    peer, _ = receiving_engine(100)
    for number, (txn_id, nested) in enumerate([(b"one", b"one"), (b"one", b"two"), (b"two", b"one")]):
        (event,) = peer.send_bytes(sent_in(txn_id, nested, number + 1))
        assert isinstance(event, DeliveriesReceived)
        assert [transaction_of(one.remote_state) for one in event.deliveries] == [txn_id]


@pytest.mark.parametrize("wide", [True, False])
def test_another_transaction_of_transfers_needs_none_either(monkeypatch: pytest.MonkeyPatch, wide: bool) -> None:
    def sent_in(txn_id: bytes, number: int) -> bytes:
        if wide:
            return with_wide_state(txn_id, number)
        return transfer_bytes(FIRST_ID + number, state=TransactionalState(txn_id))

    peer, _ = receiving_engine(100)
    peer.send_bytes(sent_in(b"one", 0))
    with monkeypatch.context() as patched:
        patched.setattr(frames, "decode_composite", None)
        for number, txn_id in ((1, b"two"), (2, b"two"), (3, b"one")):
            (event,) = peer.send_bytes(sent_in(txn_id, number))
            assert isinstance(event, DeliveriesReceived)
            assert [one.remote_state for one in event.deliveries] == [TransactionalState(txn_id)]


def test_an_id_that_is_written_with_a_wide_length_is_read() -> None:
    peer, _ = receiving_engine(100)
    for number, txn_id in enumerate((b"one", b"one", b"two")):
        (event,) = peer.send_bytes(with_wide_state(txn_id, number, wide_id=True))
        assert isinstance(event, DeliveriesReceived)
        assert [one.remote_state for one in event.deliveries] == [TransactionalState(txn_id)]


def test_an_id_that_comes_in_two_reads_is_whole() -> None:
    peer, _ = receiving_engine(100)
    peer.send_bytes(transfer_bytes(FIRST_ID, state=TransactionalState(b"one")))
    state = TransactionalState(b"two")
    data = b"".join(transfer_bytes(FIRST_ID + number, state=state) for number in range(1, 80))
    cut = data.index(b"two") + 2
    events = [*peer.send_bytes(data[:cut]), *peer.send_bytes(data[cut:])]
    deliveries = [one for event in events if isinstance(event, DeliveriesReceived) for one in event.deliveries]
    assert [one.remote_state for one in deliveries] == [state] * 79


def test_an_id_of_another_length_or_that_is_written_otherwise_is_read() -> None:
    peer, link, sent = sent_to(5)
    peer.send_bytes(in_transaction(b"one", 0))
    state = TransactionalState(b"other", ACCEPTED)
    assert peer.send_bytes(in_transaction(b"other", 1)) == [StatesReceived(link, [sent[1]], state, settled=True)]
    known = len(peer.engine.predictions.dispositions)
    failed = TransactionalState(b"other", Modified(True))
    told = peer.send_bytes(disposition_bytes(FIRST_ID + 2, None, failed))
    assert told == [StatesReceived(link, [sent[2]], failed, settled=True)]
    assert len(peer.engine.predictions.dispositions) == known
    for number, long in enumerate((b"long" * 64, b"late" * 64), 3):
        state = TransactionalState(long, ACCEPTED)
        told = peer.send_bytes(disposition_bytes(FIRST_ID + number, None, state))
        assert told == [StatesReceived(link, [sent[number]], state, settled=True)]


def test_another_state_is_another_layout() -> None:
    peer, link, sent = sent_to(4)
    for number, state in enumerate((ACCEPTED, RELEASED, ACCEPTED, RELEASED)):
        id_ = FIRST_ID + number
        told = peer.send_bytes(disposition_bytes(id_, id_, state))
        assert told == [StatesReceived(link, [sent[number]], state, settled=True)]


def test_states_with_contents_are_read_each_time() -> None:
    peer, _, _ = sent_to(1)
    peer.send_bytes(disposition_bytes(FIRST_ID, FIRST_ID, Modified(True)))
    assert peer.engine.predictions.dispositions == {}


@pytest.mark.parametrize("form", [bytes, wide])
def test_a_predicted_range_over_the_end_of_the_numbers_and_one_that_is_wrong(form: Callable[[bytes], bytes]) -> None:
    peer, _, _ = sent_to(1)
    peer.send_bytes(form(disposition_bytes(FIRST_ID, FIRST_ID)))
    assert peer.send_bytes(form(disposition_bytes(0xFFFF_FFF0, 5))) == []
    assert kinds(peer.send_bytes(form(disposition_bytes(FIRST_ID + 5, FIRST_ID)))) == ["SessionEnded"]


def test_layouts_of_dispositions_are_few() -> None:
    """A peer that makes each disposition look different gains nothing."""
    peer, _, _ = sent_to(1)
    for extension in range(1, 100):
        body = encode_composite(Disposition(Role.RECEIVER, FIRST_ID, FIRST_ID, True, ACCEPTED))
        assert body[3] == 0xC0
        frame = encode_frame(0, b"\x00\x53\x15\xc0" + bytes([body[4], body[5]]) + body[6:] + bytes(extension))
        peer.send_bytes(frame)
    assert len(peer.engine.predictions.dispositions) <= 16


def test_a_disposition_on_a_session_that_has_ended() -> None:
    peer, link, _ = sent_to(2)
    peer.send_bytes(disposition_bytes(FIRST_ID, FIRST_ID))
    link.session.end()
    assert peer.send_bytes(disposition_bytes(FIRST_ID + 1, FIRST_ID + 1)) == []

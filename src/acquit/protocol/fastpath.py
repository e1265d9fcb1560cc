"""The steady state without the codec: transfers in and out, and simple dispositions in, at a tenth of the price.

Theory of operation. The transfers of one client on one link look alike: but for size, delivery-id, tag and payload they
are the same bytes every time. So after a transfer went the long way, its constant bytes are kept as a `TransferLayout`,
and as long as the bytes that follow agree with it, deliveries are cut out with one `struct` call each, or with one for
many that are of one size. The same goes for dispositions that say settled, accepted or released, where only the range
differs. In the other direction `sender.TransferTemplate` has the constant bytes of our transfers.

The rule that keeps this honest: *nothing here decides anything*. Bytes that equal those of a frame which the codec has
read mean what they meant then. Whatever does not agree to the last byte, does not fit credit, window, limits or state,
or is not wholly there, is left to the long way, which gives the very same result and refuses what is to be refused.
tests/properties/test_fastpath.py holds the two against each other, on clients of every habit and on hostile ones.

What can be predicted: a delivery of one frame, unsettled or settled, with its delivery-id as a four-byte uint and a tag
of the same length as before; a disposition whose ids are four-byte uints. What is in a transaction may be in another
than before, with an id of the same length.
Clients that write small ids in one byte go the long way until they grow.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from acquit.protocol.connection_base import ConnectionBase
from acquit.protocol.costs import PREDICTED_COST
from acquit.protocol.definitions import (
    Accepted,
    Disposition,
    RcvSettleMode,
    Released,
    Role,
    TransactionalState,
    Transfer,
)
from acquit.protocol.delivery import ReceivedRun
from acquit.protocol.frames import FrameDecoder
from acquit.protocol.receiver import ReceivingLink
from acquit.protocol.sender import TRANSFER_CODE
from acquit.protocol.serial import MASK
from acquit.protocol.session import Session
from acquit.protocol.settlement import Input, Phase, apply
from acquit.protocol.types import Described

_KEY_FROM: Final = 4
"""Begin of the bytes of a transfer frame that choose its layout: data offset, type, channel, descriptor, list, and
the handle (see `_transfer_key`)."""

_LIST_AT: Final = 11
"""Offset of the constructor of a frame's list, if the data offset and the descriptor are as here."""

_FIRST_ID_AT: Final = {0xC0: 16, 0xD0: 22}
"""Offset of the first delivery-id of a disposition, by its list's constructor, where that is four octets of a uint."""

_LEAST_BYTES: Final = 21
"""Fewer bytes than any frame that can be predicted."""

MANY: Final = 32
"""Transfers of one size from which on it is quicker to unpack them together than one by one."""
_TOGETHER_MAX: Final = 256
"""Transfers that are unpacked together: of more, what is only compared would take up the processor's cache."""

_DISPOSITION: Final = b"\x00\x53\x15"
_PREDICTABLE_STATES: Final = (type(None), Accepted, Released)
_DISPOSITION_LAYOUTS_MAX: Final = 16
_TRANSACTIONAL: Final = b"\x00\x53\x34"
"""Descriptor of a transactional state, as most write it. A list follows."""
_ID_AT: Final = {0xC0: 8, 0xD0: 14}
"""Offset of its id in it, by the list's constructor, where that of the id is as here."""
_BINARY: Final = 0xA0
_UINT_WIDTHS: Final = {0x43: 1, 0x52: 2, 0x70: 5}


class TransferLayout:
    """The constant bytes of one link's transfers, and what the codec has read in them."""

    __slots__ = (
        "alike",
        "before_id",
        "between",
        "head_bytes",
        "id_at",
        "key",
        "link",
        "message_format",
        "phase",
        "size_max",
        "state",
        "tag_at",
        "tag_bytes",
        "tail",
        "txn_at",
        "unpack",
        "unsettled",
    )

    def __init__(self, link: ReceivingLink, frame: bytes, id_at: int) -> None:
        tag_at = id_at + 6
        tag_bytes = frame[tag_at - 1]
        head_bytes = len(frame)
        self.link = link
        self.key = _transfer_key(frame, 0)
        self.before_id = frame[4:id_at]
        self.between = frame[id_at + 4 : tag_at]
        self.tail = frame[tag_at + tag_bytes : head_bytes]
        self.head_bytes = head_bytes
        self.id_at, self.tag_at, self.tag_bytes = id_at, tag_at, tag_bytes
        self.unpack = struct.Struct(f">I{id_at - 4}sI2s{tag_bytes}s{len(self.tail)}s").unpack_from
        options = link.session.connection.options
        self.size_max = options.max_frame_size
        if link.max_message_size:
            self.size_max = min(self.size_max, head_bytes + link.max_message_size)
        self.message_format = 0
        self.phase = 0
        self.unsettled = False
        self.state: TransactionalState | None = None
        self.txn_at = 0
        """Offset of the id of its transaction in `tail`; 0 for none."""
        self.alike = False
        """True if nothing is to be said of one of them that is not said of all: they may come as a run."""


class DispositionLayout:
    """The constant bytes of dispositions, and what the codec has read in them."""

    __slots__ = ("between", "frame_bytes", "role", "session", "settled", "state", "tail", "txn_at", "unpack")

    def __init__(self, session: Session, said: Disposition, frame: bytes) -> None:
        self.session = session
        self.role = said.role
        self.settled = said.settled
        self.state = None if isinstance(said.state, Described) else said.state
        self.frame_bytes = len(frame)
        first_id_at = _FIRST_ID_AT[frame[_LIST_AT]]
        last_id_at = first_id_at + 5
        self.between = frame[last_id_at - 1 : last_id_at]
        self.tail = frame[last_id_at if said.last is None else last_id_at + 4 :]
        self.txn_at = _txn_at(self.tail, self.state)
        last = "" if said.last is None else "I"
        self.unpack = struct.Struct(f">{first_id_at}xI1s{last}{len(self.tail)}s").unpack_from


class Predictions:
    """The layouts that one connection has learnt: at most one for each link, and a few of dispositions."""

    __slots__ = ("dispositions", "links", "transfers")

    def __init__(self) -> None:
        self.transfers: dict[bytes, TransferLayout] = {}
        self.links: dict[object, TransferLayout] = {}
        self.dispositions: dict[bytes, DispositionLayout] = {}

    def learn(self, session: Session, said: object, frame: bytes) -> None:
        """Take note of a frame that has just gone the long way. `frame` is the frame up to its payload."""
        if isinstance(said, Transfer):
            link = session.input_handles.get(said.handle)
            if isinstance(link, ReceivingLink) and link.predictable:
                self.forget(link)
                layout = _transfer_layout(link, said, frame)
                if layout is not None:
                    self.transfers[layout.key] = self.links[link] = layout
        elif isinstance(said, Disposition) and session.mapped and _is_predictable(said, frame):
            if len(self.dispositions) >= _DISPOSITION_LAYOUTS_MAX:
                self.dispositions.clear()
            self.dispositions[_disposition_key(frame, 0)] = DispositionLayout(session, said, frame)

    def forget(self, link: object) -> None:
        """The link's transfers will look different, or no more come."""
        layout = self.links.pop(link, None)
        if layout is not None and self.transfers.get(layout.key) is layout:
            del self.transfers[layout.key]

    def forget_session(self, session: object) -> None:
        """Forget the session's dispositions: its channel may be another session's now."""
        for key in [key for key, layout in self.dispositions.items() if layout.session is session]:
            del self.dispositions[key]

    def take(self, decoder: FrameDecoder, connection: ConnectionBase) -> int:
        """Take as many predicted frames as there are from `decoder`, and fit in the connection's turn. Returns how many
        that were.

        Stops at the first frame that is not as predicted, or that its link or session must look at; it is still there.
        """
        total = 0
        turn = connection.turn
        while turn.left > 0 and connection.unfinished is None:
            data, offset = decoder.data, decoder.offset
            if len(data) - offset < _LEAST_BYTES:
                return total
            transfers = self.transfers.get(_transfer_key(data, offset))
            if transfers is not None:
                cost = transfers.link.predicted_cost
                taken = _take_transfers(transfers, decoder, 1 + turn.left // cost)
            else:
                dispositions = self.dispositions.get(_disposition_key(data, offset))
                if dispositions is None:
                    return total
                cost = PREDICTED_COST
                taken = _take_disposition(dispositions, decoder)
            if not taken:
                return total
            turn.left -= taken * cost
            total += taken
        return total


def _transfer_key(data: bytes, offset: int) -> bytes:
    """The bytes that choose the layout of the frame here, which has _LEAST_BYTES or more, if it is a transfer. All of
    its handle is among them, however it is written: else links of one connection, each of which sends one message in
    turn, would take the place of each other."""
    handle_at = offset + (14 if data[offset + _LIST_AT] == 0xC0 else 20)
    return data[offset + _KEY_FROM : handle_at + (5 if data[handle_at] == 0x70 else 2)]


def _disposition_key(data: bytes, offset: int) -> bytes:
    """The bytes that choose the layout of the frame here, which has _LEAST_BYTES or more, if it is a disposition: all
    before its first delivery-id."""
    return data[offset : offset + _FIRST_ID_AT.get(data[offset + _LIST_AT], 0)]


def _is_predictable(said: Disposition, frame: bytes) -> bool:
    """Return True if the ids stand where DispositionLayout looks for them, and the state is always the same."""
    state = said.state
    if isinstance(state, TransactionalState):
        state = state.outcome
    first_id_at = _FIRST_ID_AT.get(frame[_LIST_AT], 0)
    return (
        isinstance(state, _PREDICTABLE_STATES)
        and first_id_at > 0
        and len(frame) > first_id_at + 4
        and frame[4] == 2
        and frame[8:_LIST_AT] == _DISPOSITION
        and frame[first_id_at - 1] == 0x70
        and frame[first_id_at + 4] == (0x40 if said.last is None else 0x70)
    )


def _transfer_layout(link: ReceivingLink, said: Transfer, frame: bytes) -> TransferLayout | None:
    """The layout of a delivery's only frame, or None if it cannot be predicted."""
    if said.delivery_id is None or said.delivery_tag is None or link.resuming_only:
        return None
    if said.more or said.aborted or said.resume or said.rcv_settle_mode is not None:
        return None
    state = said.state
    if state is not None and not isinstance(state, TransactionalState):
        return None
    if frame[4] != 2 or frame[8:_LIST_AT] != TRANSFER_CODE:
        return None
    handle_at = 14 if frame[_LIST_AT] == 0xC0 else 20 if frame[_LIST_AT] == 0xD0 else 0
    width = _UINT_WIDTHS.get(frame[handle_at]) if handle_at else None
    if width is None:
        return None
    id_at = handle_at + width + 1
    if frame[id_at - 1] != 0x70 or frame[id_at + 4] != 0xA0:
        return None
    layout = TransferLayout(link, frame, id_at)
    layout.message_format = said.message_format or 0
    layout.unsettled = not said.settled
    layout.state = state
    layout.txn_at = 0 if state is None or state.outcome is not None else _txn_at(layout.tail, state)
    if said.settled:
        input_ = Input.RECV_TRANSFER_SETTLED
    elif link.rcv_settle_mode is RcvSettleMode.SECOND:
        input_ = Input.RECV_TRANSFER_SECOND
    else:
        input_ = Input.RECV_TRANSFER
    layout.phase, _ = apply(Role.RECEIVER, Phase.NEW, input_)
    layout.alike = input_ is not Input.RECV_TRANSFER_SECOND or link.hears_runs
    return layout


def _txn_at(tail: bytes, state: object) -> int:
    """Return the offset of the id of a transaction in the end of a frame that has its state; 0 where there is none, or
    it stands elsewhere than most write it. No other field of a transfer behind the tag, or of a disposition, is binary.
    """
    if not isinstance(state, TransactionalState):
        return 0
    at, head = tail.find(_TRANSACTIONAL), bytes((_BINARY, len(state.txn_id) & 0xFF))
    list_at = at + len(_TRANSACTIONAL)
    id_at = at + _ID_AT.get(tail[list_at], 0) if 0 <= at < len(tail) - len(_TRANSACTIONAL) else 0
    return id_at if tail.startswith(head + state.txn_id, id_at - 2) else 0


def _follow(layout: TransferLayout | DispositionLayout, data: bytes, tail_at: int) -> None:
    """Expect the transaction that the frame names whose tail is there, if it is like those before."""
    state, txn_at = layout.state, layout.txn_at
    assert isinstance(state, TransactionalState)  # or there would be no id
    size = len(state.txn_id)
    txn_id = data[tail_at + txn_at : tail_at + txn_at + size]
    if txn_id != state.txn_id and len(txn_id) == size:
        layout.tail = layout.tail[:txn_at] + txn_id + layout.tail[txn_at + size :]
        layout.state = TransactionalState(txn_id, state.outcome)


def _take_transfers(layout: TransferLayout, decoder: FrameDecoder, count_max: int) -> int:
    data, offset = decoder.data, decoder.offset
    end = len(data)
    if layout.txn_at:
        _follow(layout, data, offset + layout.tag_at + layout.tag_bytes)
    link = layout.link
    session = link.session
    room = min(link.room_for_run, count_max)
    first_id = next_id = session.next_incoming_delivery_id
    head_bytes, size_max, unpack = layout.head_bytes, layout.size_max, layout.unpack
    before_id, between, tail = layout.before_id, layout.between, layout.tail
    tags, payloads, size = _of_one_size(layout, data, offset, room, first_id)
    if first_id is not None:
        next_id = first_id + len(tags)
    offset += len(tags) * size
    room -= len(tags)
    append, append_tag = payloads.append, tags.append
    while room and end - offset >= head_bytes:
        size, found_before, delivery_id, found_between, tag, found_tail = unpack(data, offset)
        if (
            found_before != before_id
            or delivery_id != next_id
            or found_between != between
            or found_tail != tail
            or not head_bytes <= size <= size_max
            or offset + size > end
        ):
            break
        append(data[offset + head_bytes : offset + size])
        append_tag(tag)
        offset += size
        next_id = (delivery_id + 1) & MASK
        room -= 1
    if not tags:
        return 0
    assert first_id is not None  # one was found that has it
    if layout.unsettled:
        good = link.use_tags(tags, first_id)
        if good < len(tags):  # the codec's way says what is wrong with the next
            del tags[good:], payloads[good:]
            if not good:
                return 0
            offset, next_id = decoder.offset, (first_id + good) & MASK
            for _ in tags:
                offset += int.from_bytes(data[offset : offset + 4], "big")
    count = len(tags)
    decoder.offset = offset
    session.next_incoming_delivery_id = next_id
    session.count_incoming(count)
    run = ReceivedRun(link, first_id, tags, payloads, layout.message_format, layout.phase, layout.state)
    if link.takes_runs and layout.alike and first_id + count <= MASK:
        link.take_run(run)
    else:
        deliveries = run.deliveries
        if layout.unsettled:
            session.keep_singly(deliveries)
        link.take_deliveries(deliveries, layout.unsettled)
    return count


def _of_one_size(
    layout: TransferLayout, data: bytes, offset: int, count_max: int, first_id: int | None
) -> tuple[list[bytes], list[bytes], int]:
    """Return tags and payloads of the transfers of one size that are here, one behind the other, up to the first that
    does not agree with `layout`, and that size. None where it is better to look at them one by one.

    Most are of one size under load: records, of which many are unpacked by one call. Where links send in turns, or
    sizes are others, that is seen at one of the next; as more and more agree, more are unpacked together."""
    tags: list[bytes] = []
    payloads: list[bytes] = []
    head, between, tail = data[offset : offset + 4] + layout.before_id, layout.between, layout.tail
    size = int.from_bytes(head[:4], "big")
    if first_id is None or not layout.head_bytes <= size <= layout.size_max:
        return tags, payloads, size
    left = min(count_max, (len(data) - offset) // size, MASK - first_id)
    if left < MANY or not data.startswith(head, offset + (MANY - 1) * size):
        return tags, payloads, size
    records = _records(len(head), len(between), layout.tag_bytes, len(tail), size - layout.head_bytes)
    view, next_id, together = memoryview(data), first_id, MANY
    while left:
        count = min(left, together)
        heads, ids, betweens, some_tags, tails, some_payloads = zip(
            *records(view[offset : offset + count * size]), strict=True
        )
        expected = range(next_id, next_id + count)
        alike = heads.count(head) == betweens.count(between) == tails.count(tail) == count and ids == tuple(expected)
        if not alike:
            found = zip(heads, ids, betweens, tails, expected, strict=True)
            count = next(at for at, one in enumerate(found) if one != (head, one[-1], between, tail, one[-1]))
        tags += some_tags[:count]
        payloads += some_payloads[:count]
        if not alike:
            break
        offset += count * size
        next_id += count
        left -= count
        together = min(4 * together, _TOGETHER_MAX)
    return tags, payloads, size


@lru_cache(maxsize=64)
def _records(
    head_bytes: int, between_bytes: int, tag_bytes: int, tail_bytes: int, payload_bytes: int
) -> Callable[[memoryview], Iterator[tuple[Any, ...]]]:
    """Return what unpacks transfers of which each part has one size: what is before the id, that, what is between it
    and the tag, and so on."""
    return struct.Struct(f">{head_bytes}sI{between_bytes}s{tag_bytes}s{tail_bytes}s{payload_bytes}s").iter_unpack


def _take_disposition(layout: DispositionLayout, decoder: FrameDecoder) -> int:
    data, offset = decoder.data, decoder.offset
    if len(data) - offset < layout.frame_bytes or not layout.session.mapped:
        return 0
    if layout.txn_at:
        _follow(layout, data, offset + layout.frame_bytes - len(layout.tail))
    first, between, *last, tail = layout.unpack(data, offset)
    if between != layout.between or tail != layout.tail:
        return 0
    decoder.offset = offset + layout.frame_bytes
    layout.session.hear_range(layout.role, first, last[0] if last else first, layout.settled, layout.state)
    return 1


__all__ = ["DispositionLayout", "Predictions", "TransferLayout"]

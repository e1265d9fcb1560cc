"""The steady state without the codec: transfers in and out, and simple dispositions in, at a tenth of the price.

Theory of operation. The transfers of one client on one link look alike: but for size, delivery-id, tag and payload they
are the same bytes every time. So after a transfer went the long way, its constant bytes are kept as a `TransferLayout`,
and as long as the bytes that follow agree with it, deliveries are cut out with one `struct` call each. The same goes
for dispositions that say settled, accepted or released, where only the range differs. In the other direction a
`Template` has the constant bytes of our transfers.

The rule that keeps this honest: *nothing here decides anything*. Bytes that equal those of a frame which the codec has
read mean what they meant then. Whatever does not agree to the last byte, does not fit credit, window, limits or state,
or is not wholly there, is left to the long way, which gives the very same result and refuses what is to be refused.
tests/properties/test_fastpath.py holds the two against each other, on clients of every habit and on hostile ones.

What can be predicted: a delivery of one frame, unsettled or settled, with its delivery-id as a four-byte uint and a tag
of the same length as before, and in the same transaction, if in any; a disposition whose ids are four-byte uints.
Clients that write small ids in one byte go the long way until they grow.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from acquit.protocol._definitions import (
    Accepted,
    Disposition,
    RcvSettleMode,
    Released,
    Role,
    TransactionalState,
    Transfer,
)
from acquit.protocol.delivery import Delivery
from acquit.protocol.receiver import ReceivingLink
from acquit.protocol.serial import MASK
from acquit.protocol.settlement import Input, Phase, apply
from acquit.protocol.types import Described

if TYPE_CHECKING:
    from acquit.protocol.frames import FrameDecoder
    from acquit.protocol.sender import SendingLink
    from acquit.protocol.session import Session

_KEY_FROM: Final = 4
_KEY_TO: Final = 16
"""Which bytes of a transfer frame choose its layout: data offset, type, channel, descriptor, list, and a handle below
256 with what follows it. Larger handles may share a key; the layout itself compares all constant bytes. For a
disposition these bytes end where the first delivery-id begins, and the size before them is constant too."""

_TRANSFER: Final = b"\x00\x53\x14"
_DISPOSITION: Final = b"\x00\x53\x15"
_PREDICTABLE_STATES: Final = (type(None), Accepted, Released)
_DISPOSITION_LAYOUTS_MAX: Final = 16
_UINT_WIDTHS: Final = {0x43: 1, 0x52: 2, 0x70: 5}


class TransferLayout:
    """The constant bytes of one link's transfers, and what the codec has read in them."""

    __slots__ = (
        "before_id",
        "between",
        "head_bytes",
        "key",
        "link",
        "message_format",
        "phase",
        "size_max",
        "state",
        "tail",
        "unpack",
        "unsettled",
    )

    def __init__(self, link: ReceivingLink, frame: bytes, id_at: int) -> None:
        tag_at = id_at + 6
        tag_bytes = frame[tag_at - 1]
        head_bytes = len(frame)
        self.link = link
        self.key = frame[_KEY_FROM:_KEY_TO]
        self.before_id = frame[4:id_at]
        self.between = frame[id_at + 4 : tag_at]
        self.tail = frame[tag_at + tag_bytes : head_bytes]
        self.head_bytes = head_bytes
        self.unpack = struct.Struct(f">I{id_at - 4}sI2s{tag_bytes}s{len(self.tail)}s").unpack_from
        options = link.session.connection.options
        self.size_max = options.max_frame_size
        if link.max_message_size:
            self.size_max = min(self.size_max, head_bytes + link.max_message_size)
        self.message_format = 0
        self.phase = 0
        self.unsettled = False
        self.state: TransactionalState | None = None


class DispositionLayout:
    """The constant bytes of dispositions, and what the codec has read in them."""

    __slots__ = ("between", "frame_bytes", "role", "session", "settled", "state", "tail", "unpack")

    def __init__(self, session: Session, said: Disposition, frame: bytes) -> None:
        self.session = session
        self.role = said.role
        self.settled = said.settled
        self.state = None if isinstance(said.state, Described) else said.state
        self.frame_bytes = len(frame)
        self.between = frame[20:21]
        after = 21 if said.last is None else 25
        self.tail = frame[after:]
        last = "" if said.last is None else "I"
        self.unpack = struct.Struct(f">16xI1s{last}{len(self.tail)}s").unpack_from


class Predictions:
    """The layouts that one connection has learnt: at most one for each link, and a few of dispositions."""

    __slots__ = ("dispositions", "transfers")

    def __init__(self) -> None:
        self.transfers: dict[bytes, TransferLayout] = {}
        self.dispositions: dict[bytes, DispositionLayout] = {}

    def learn(self, session: Session, said: object, frame: bytes) -> None:
        """Take note of a frame that has just gone the long way. `frame` is the frame up to its payload."""
        if isinstance(said, Transfer):
            link = session.input_handles.get(said.handle)
            if isinstance(link, ReceivingLink) and link.predictable:
                self.forget(link)
                layout = _transfer_layout(link, said, frame)
                if layout is not None:
                    self.transfers[layout.key] = link.layout = layout
        elif isinstance(said, Disposition) and session.mapped and _is_predictable(said, frame):
            if len(self.dispositions) >= _DISPOSITION_LAYOUTS_MAX:
                self.dispositions.clear()
            self.dispositions[frame[:_KEY_TO]] = DispositionLayout(session, said, frame)

    def forget(self, link: ReceivingLink) -> None:
        """The link's transfers will look different, or no more come."""
        layout = link.layout
        if layout is not None:
            link.layout = None
            if self.transfers.get(layout.key) is layout:
                del self.transfers[layout.key]

    def take(self, decoder: FrameDecoder) -> int:
        """Take as many predicted frames as there are from `decoder`. Returns how many that were.

        Stops at the first frame that is not as predicted, or that its link or session must look at; it is still there.
        """
        total = 0
        while True:
            data, offset = decoder.data, decoder.offset
            transfers = self.transfers.get(data[offset + _KEY_FROM : offset + _KEY_TO])
            if transfers is not None:
                taken = _take_transfers(transfers, decoder)
            else:
                dispositions = self.dispositions.get(data[offset : offset + _KEY_TO])
                if dispositions is None:
                    return total
                taken = _take_disposition(dispositions, decoder)
            if not taken:
                return total
            total += taken


def _is_predictable(said: Disposition, frame: bytes) -> bool:
    """Whether the ids stand where DispositionLayout looks for them, and the state is always the same."""
    return (
        isinstance(said.state, _PREDICTABLE_STATES)
        and len(frame) > 20
        and frame[4] == 2
        and frame[8:12] == _DISPOSITION + b"\xc0"
        and frame[15] == 0x70
        and frame[20] == (0x40 if said.last is None else 0x70)
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
    if frame[4] != 2 or frame[8:11] != _TRANSFER:
        return None
    handle_at = 14 if frame[11] == 0xC0 else 20 if frame[11] == 0xD0 else 0
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
    if said.settled:
        input_ = Input.RECV_TRANSFER_SETTLED
    elif link.rcv_settle_mode is RcvSettleMode.SECOND:
        input_ = Input.RECV_TRANSFER_SECOND
    else:
        input_ = Input.RECV_TRANSFER
    layout.phase, _ = apply(Role.RECEIVER, Phase.NEW, input_)
    return layout


def _take_transfers(layout: TransferLayout, decoder: FrameDecoder) -> int:
    data, offset = decoder.data, decoder.offset
    end = len(data)
    link = layout.link
    session = link.session
    room = link.room_for_run
    next_id = session.next_incoming_delivery_id
    head_bytes, size_max, unpack = layout.head_bytes, layout.size_max, layout.unpack
    before_id, between, tail = layout.before_id, layout.between, layout.tail
    message_format, phase = layout.message_format, layout.phase
    incoming = session.incoming if layout.unsettled else None
    deliveries: list[Delivery] = []
    append = deliveries.append
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
        payload = data[offset + head_bytes : offset + size]
        delivery = Delivery(link, delivery_id, tag, message_format, payload, phase, None)
        if incoming is not None:
            incoming[delivery_id] = delivery
        append(delivery)
        offset += size
        next_id = (delivery_id + 1) & MASK
        room -= 1
    if deliveries:
        if layout.state is not None:
            for delivery in deliveries:
                delivery.remote_state = layout.state
        decoder.offset = offset
        session.next_incoming_delivery_id = next_id
        session.count_incoming(len(deliveries))
        link.take_run(deliveries, layout.unsettled)
    return len(deliveries)


def _take_disposition(layout: DispositionLayout, decoder: FrameDecoder) -> int:
    data, offset = decoder.data, decoder.offset
    if len(data) - offset < layout.frame_bytes or not layout.session.mapped:
        return 0
    first, between, *last, tail = layout.unpack(data, offset)
    if between != layout.between or tail != layout.tail:
        return 0
    decoder.offset = offset + layout.frame_bytes
    layout.session.hear_range(layout.role, first, last[0] if last else first, layout.settled, layout.state)
    return 1


class Template:
    """The constant bytes of our transfers with a tag of one length, settled or not."""

    __slots__ = (
        "before_id",
        "between",
        "head_bytes",
        "pack",
        "payload_bytes_max",
        "phase",
        "tag_bytes",
        "tail",
        "unsettled",
    )

    def __init__(self, link: SendingLink, tag_bytes: int, settled: bool) -> None:
        channel, handle = link.session.channel, link.handle
        encoded_handle = (
            b"\x43"
            if not handle
            else b"\x52" + bytes([handle])
            if handle < 256
            else b"\x70" + handle.to_bytes(4, "big")
        )
        self.tag_bytes = tag_bytes
        self.between = bytes([0xA0, tag_bytes])
        self.tail = b"\x43\x41" if settled else b"\x43"
        fields = len(encoded_handle) + 5 + 2 + tag_bytes + len(self.tail)
        count = 5 if settled else 4
        self.before_id = (
            b"\x02\x00"
            + channel.to_bytes(2, "big")
            + _TRANSFER
            + bytes([0xC0, fields + 1, count])
            + encoded_handle
            + b"\x70"
        )
        self.pack = struct.Struct(f">I{len(self.before_id)}sI2s{tag_bytes}s{len(self.tail)}s").pack
        self.head_bytes = 4 + len(self.before_id) + 4 + 2 + tag_bytes + len(self.tail)
        self.payload_bytes_max = link.session.connection.frame_size_max - self.head_bytes
        if link.remote_max_message_size:
            self.payload_bytes_max = min(self.payload_bytes_max, link.remote_max_message_size)
        phase, _ = apply(Role.SENDER, Phase.NEW, Input.TRANSFER_SETTLED if settled else Input.TRANSFER)
        self.phase = phase
        self.unsettled = not settled

    def send_run(
        self,
        link: SendingLink,
        tags: Sequence[bytes],
        payloads: Sequence[bytes],
        contexts: Sequence[object],
        first: int,
    ) -> int:
        """What `SendingLink.send` does, for the messages from `first` on, up to one that has to go the long way.

        Returns the index of that one.
        """
        session = link.session
        if session.keep_order:
            return first
        out, outgoing, unsettled = session.out, session.outgoing, self.unsettled
        pack, before_id, between, tail = self.pack, self.before_id, self.between, self.tail
        head_bytes, payload_bytes_max, tag_bytes, phase = (
            self.head_bytes,
            self.payload_bytes_max,
            self.tag_bytes,
            self.phase,
        )
        delivery_id = session.next_delivery_id
        last = min(len(payloads), first + link.room)
        index = first
        while index < last:
            tag, payload = tags[index], payloads[index]
            size = len(payload)
            if size > payload_bytes_max or len(tag) != tag_bytes:
                break
            out.append(pack(head_bytes + size, before_id, delivery_id, between, tag, tail))
            out.append(payload)
            if unsettled:
                outgoing[delivery_id] = Delivery(link, delivery_id, tag, 0, b"", phase, contexts[index])
            delivery_id = (delivery_id + 1) & MASK
            index += 1
        count = index - first
        session.next_delivery_id = delivery_id
        session.next_outgoing_id = (session.next_outgoing_id + count) & MASK
        session.remote_incoming_window -= count
        link.credit -= count
        link.delivery_count = (link.delivery_count + count) & MASK
        if unsettled:
            link.unsettled_count += count
        return index


__all__ = ["DispositionLayout", "Predictions", "Template", "TransferLayout"]

"""The steady state without the codec: whole small transfers, in and out, at a tenth of the price.

Theory of operation. The transfers of one client on one link look alike: but for size, delivery-id, tag and payload they
are the same bytes every time. So after a transfer went the long way, its constant bytes are kept as a `Layout`, and as
long as the bytes that follow agree with it, deliveries are cut out with one `struct` call each. In the other direction
a `Template` has the constant bytes of ours.

The rule that keeps this honest: *nothing here decides anything*. Bytes that equal those of a transfer which the codec
has read mean what they meant then. Whatever does not agree to the last byte, does not fit credit, window, limits or
state, or is not wholly there, is left to the long way, which gives the very same result and refuses what is to be
refused.
tests/properties/test_fastpath.py holds the two against each other, on clients of every habit and on hostile ones.

What can be predicted: a delivery of one frame, unsettled or settled, with its delivery-id as a four-byte uint and a tag
of the same length as before. Clients that write small ids in one byte go the long way until they grow.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from acquit.protocol._definitions import RcvSettleMode, Role, Transfer
from acquit.protocol.delivery import Delivery
from acquit.protocol.serial import MASK
from acquit.protocol.settlement import Input, Phase, apply

if TYPE_CHECKING:
    from acquit.protocol.frames import FrameDecoder
    from acquit.protocol.receiver import ReceivingLink
    from acquit.protocol.sender import SendingLink

_KEY_FROM: Final = 4
_KEY_TO: Final = 16
"""Which bytes of a frame choose its layout: data offset, type, channel, descriptor, list, and a handle below 256 with
what follows it. Larger handles may share a key; the layout itself compares all constant bytes."""

_DESCRIPTOR: Final = b"\x00\x53\x14"
_UINT_WIDTHS: Final = {0x43: 1, 0x52: 2, 0x70: 5}


class Layout:
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


def learn(link: ReceivingLink, transfer: Transfer, frame: bytes) -> Layout | None:
    """The layout of a delivery's only frame, which has just been taken, or None if it cannot be predicted.

    `frame` is the frame up to its payload.
    """
    if (
        transfer.delivery_id is None
        or transfer.delivery_tag is None
        or transfer.more
        or transfer.aborted
        or transfer.resume
        or transfer.state is not None
        or transfer.rcv_settle_mode is not None
        or link.resuming_only
    ):
        return None
    if frame[4] != 2 or frame[8:11] != _DESCRIPTOR:
        return None
    handle_at = 14 if frame[11] == 0xC0 else 20 if frame[11] == 0xD0 else 0
    width = _UINT_WIDTHS.get(frame[handle_at]) if handle_at else None
    if width is None:
        return None
    id_at = handle_at + width + 1
    if frame[id_at - 1] != 0x70 or frame[id_at + 4] != 0xA0:
        return None
    layout = Layout(link, frame, id_at)
    layout.message_format = transfer.message_format or 0
    layout.unsettled = not transfer.settled
    if transfer.settled:
        input_ = Input.RECV_TRANSFER_SETTLED
    elif link.rcv_settle_mode is RcvSettleMode.SECOND:
        input_ = Input.RECV_TRANSFER_SECOND
    else:
        input_ = Input.RECV_TRANSFER
    layout.phase, _ = apply(Role.RECEIVER, Phase.NEW, input_)
    return layout


def receive_run(layouts: dict[bytes, Layout], decoder: FrameDecoder) -> int:
    """Take as many predicted transfers as there are, from `decoder` to their links. Returns how many frames that were.

    Stops at the first frame that is not as predicted, or that its link or session must look at; it is still there.
    """
    data, offset = decoder.data, decoder.offset
    end = len(data)
    total = 0
    while layout := layouts.get(data[offset + _KEY_FROM : offset + _KEY_TO]):
        link = layout.link
        session = link.session
        room = link.room_for_run
        if not room:
            break
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
            delivery = Delivery(
                link, delivery_id, tag, message_format, data[offset + head_bytes : offset + size], phase, None
            )
            if incoming is not None:
                incoming[delivery_id] = delivery
            append(delivery)
            offset += size
            next_id = (delivery_id + 1) & MASK
            room -= 1
        if not deliveries:
            break
        total += len(deliveries)
        decoder.offset = offset
        session.next_incoming_delivery_id = next_id
        session.count_incoming(len(deliveries))
        link.take_run(deliveries, layout.unsettled)
    return total


class Template:
    """The constant bytes of our transfers with a tag of one length, settled or not."""

    __slots__ = ("before_id", "between", "head_bytes", "pack", "payload_bytes_max", "phase", "tail", "unsettled")

    def __init__(self, link: SendingLink, tag_bytes: int, settled: bool) -> None:
        channel, handle = link.session.channel, link.handle
        encoded_handle = (
            b"\x43"
            if not handle
            else b"\x52" + bytes([handle])
            if handle < 256
            else b"\x70" + handle.to_bytes(4, "big")
        )
        self.between = bytes([0xA0, tag_bytes])
        self.tail = b"\x43\x41" if settled else b"\x43"
        fields = len(encoded_handle) + 5 + 2 + tag_bytes + len(self.tail)
        count = 5 if settled else 4
        self.before_id = (
            b"\x02\x00"
            + channel.to_bytes(2, "big")
            + _DESCRIPTOR
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


__all__ = ["Layout", "Template", "learn", "receive_run"]

"""The sending end of a link: credit to spend, and messages larger than a frame (2.6.7, 2.6.12, 2.6.14)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat
from typing import Final

from acquit.errors import LocalProtocolError
from acquit.protocol.composite import encode_composite
from acquit.protocol.connection_base import Event
from acquit.protocol.contexts import Contexts
from acquit.protocol.credit import sender_credit
from acquit.protocol.definitions import (
    AmqpCondition,
    Attach,
    Flow,
    Role,
    SndSettleMode,
    TransactionalState,
    Transfer,
)
from acquit.protocol.delivery import Delivery, DeliveryState, SentRun, is_outcome
from acquit.protocol.endpoint import TAG_BYTES_MAX, UINT_MAX, FlowReceived, Link, LinkState
from acquit.protocol.rope import ROPE_MIN, Rope
from acquit.protocol.serial import MASK, add
from acquit.protocol.session_base import SessionBase
from acquit.protocol.settlement import Input, Phase, apply

TRANSFER_CODE: Final = b"\x00\x53\x14"
"""The descriptor with which a transfer begins."""

_SETTLED = int(Phase.SETTLED)


class Heads:
    """Beginnings of the payloads of several deliveries, all of one length, in columns: a value of each is packed for
    each delivery, together with what is before it in its frame."""

    __slots__ = ("columns", "head_bytes", "layout")

    def __init__(self, layout: str, columns: tuple[Iterable[object], ...], head_bytes: int) -> None:
        self.layout = layout
        """Format in which `struct` packs a value of each."""
        self.columns = columns
        self.head_bytes = head_bytes
        """Length of each head."""


@lru_cache(64)
def _packing(layout: str) -> Callable[..., bytes]:
    """Return what packs by this layout; it is the same for most of what a link sends."""
    return struct.Struct(layout).pack


class TransferTemplate:
    """The constant bytes of our transfers with a tag of one length, settled or not, new or resumed."""

    __slots__ = (
        "before_id",
        "between",
        "head_bytes",
        "layout",
        "pack",
        "payload_bytes_max",
        "phase",
        "tag_bytes",
        "tail",
        "unsettled",
    )

    def __init__(self, link: SendingLink, tag_bytes: int, settled: bool, resume: bool) -> None:
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
        count = 5 if settled else 4
        if resume:
            self.tail = self.tail.ljust(5, b"\x40") + b"\x41"
            count = 9
        fields = len(encoded_handle) + 5 + 2 + tag_bytes + len(self.tail)
        self.before_id = (
            b"\x02\x00"
            + channel.to_bytes(2, "big")
            + TRANSFER_CODE
            + bytes([0xC0, fields + 1, count])
            + encoded_handle
            + b"\x70"
        )
        self.layout = f">I{len(self.before_id)}sI2s{tag_bytes}s{len(self.tail)}s"
        self.pack = struct.Struct(self.layout).pack
        self.head_bytes = 4 + len(self.before_id) + 4 + 2 + tag_bytes + len(self.tail)
        self.payload_bytes_max = min(link.session.connection.frame_size_max - self.head_bytes, ROPE_MIN - 1)
        if link.remote_max_message_size:
            self.payload_bytes_max = min(self.payload_bytes_max, link.remote_max_message_size)
        phase, _ = apply(Role.SENDER, Phase.NEW, Input.TRANSFER_SETTLED if settled else Input.TRANSFER)
        self.phase = phase
        self.unsettled = not settled

    def send_run(
        self,
        link: SendingLink,
        tags: Sequence[bytes],
        payloads: Sequence[bytes | Rope],
        contexts: Sequence[object],
        first: int,
    ) -> int:
        """Send as `SendingLink.send` does, from the message at `first` on, up to one that has to go the long way.

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
            out.append(payload)  # type: ignore[arg-type]  # a rope is longer
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

    def write_together(self, link: SendingLink, tags: Sequence[bytes], heads: Heads, rests: Sequence[bytes]) -> int:
        """Write deliveries, each with a head and a rest for its payload, for which there is room; return the first's
        id."""
        session, count = link.session, len(tags)
        first_id = session.next_delivery_id
        size = self.head_bytes + heads.head_bytes
        sizes = [size + len(rest) for rest in rests]
        frames = map(
            _packing(self.layout + heads.layout),
            sizes,
            repeat(self.before_id),
            range(first_id, first_id + count),
            repeat(self.between),
            tags,
            repeat(self.tail),
            *heads.columns,
        )
        session.out.extend(chain.from_iterable(zip(frames, rests, strict=True)))
        session.next_delivery_id = (first_id + count) & MASK
        session.next_outgoing_id = (session.next_outgoing_id + count) & MASK
        session.remote_incoming_window -= count
        link.credit -= count
        link.delivery_count = (link.delivery_count + count) & MASK
        return first_id


class HalfWritten:
    """A delivery larger than a frame, of which some is written. One for a link at most: 2.6.14 forbids interleaving."""

    __slots__ = ("aborted", "delivery", "link", "offset", "payload", "settled", "state")

    def __init__(
        self,
        link: SendingLink,
        delivery: Delivery,
        payload: bytes | Rope,
        offset: int,
        settled: bool,
        state: TransactionalState | None,
    ) -> None:
        self.link = link
        self.delivery = delivery
        self.payload = payload
        self.offset = offset
        self.settled = settled
        self.state = state
        """State that names the transaction of all frames (4.4.1); None: none."""
        self.aborted = False

    def next_frame(self, frame_size_max: int) -> tuple[bytes, bytes, bool]:
        """Return the next transfer's performative, its part of the payload, and whether it is the last."""
        link = self.link
        transfer = Transfer(
            link.handle, self.delivery.delivery_id, settled=self.settled or None, more=True, state=self.state
        )
        if self.aborted:
            transfer.more, transfer.aborted = False, True
        head = encode_composite(transfer)
        chunk = self.payload[self.offset : self.offset + frame_size_max - 8 - len(head)]
        self.offset += len(chunk)
        last = self.offset >= len(self.payload)
        if last:
            transfer.more = False
            head = encode_composite(transfer)
            link.half_written = None
            if link.credit > 0:
                link.tell_credit()
        return head, chunk, last


@dataclass(slots=True)
class CreditChanged(Event):
    """A sending link's credit or drain changed, or what held it back (the session's window, `unsettled_max`, its own
    half-written delivery) no longer does. At most one for each link and call: read `link.credit`, `link.drain`,
    `link.sendable`."""

    link: SendingLink


class SendingLink(Link):
    """A link whose sender we are.

    `credit`: messages the peer will take now; `drain`: it wants them now or never, see `drained`; `delivery_count` and
    `available` as in 2.6.7.
    """

    __slots__ = ("_templates", "available", "delivery_count", "drain", "half_written")

    role = Role.SENDER

    def __init__(self, session: SessionBase, name: str, handle: int, context: object) -> None:
        super().__init__(session, name, handle, context)
        self.drain = False
        self.delivery_count = 0
        self.available = 0
        self.half_written: HalfWritten | None = None
        self._templates: dict[int, TransferTemplate] = {}  # by length of tag, resumed and settled, see `fastpath`

    @property
    def sendable(self) -> bool:
        """True if `send` would be taken now: attached, credit, window, room for unsettled, no half-written delivery."""
        return self.credit > 0 and self.half_written is None and self.session.may_send

    def send(
        self,
        tag: bytes,
        payload: bytes | Rope,
        *,
        settled: bool | None = None,
        state: DeliveryState | None = None,
        message_format: int = 0,
        resume: bool = False,
        context: object = None,
    ) -> Delivery:
        """Send one message: `payload` is its encoded sections, passed on byte for byte.

        `settled` defaults to what the link's snd-settle-mode says. `tag` (1 to 32 bytes) must be unique among the
        link's unsettled deliveries: the engine passes it on and does not check. A message larger than a frame or the
        session's window is cut, and the rest is written as the peer makes room, in turns with other links; until then
        this link is not `sendable`. Uses one credit. Raises LocalProtocolError, with nothing sent, where not
        `sendable`, for a tag too long, a message larger than `remote_max_message_size`, or against the settle mode.
        """
        if settled is None:
            settled = self.snd_settle_mode is SndSettleMode.SETTLED
        session = self.session
        template = self._templates.get(4 * len(tag) + 2 * resume + settled)
        if (
            template is not None
            and state is None
            and not message_format
            and len(payload) <= template.payload_bytes_max
            and self.credit > 0
            and self.half_written is None
            and session.remote_incoming_window > 0
            and session.outgoing_count < session.unsettled_max
            and not session.keep_order
        ):
            delivery_id = session.next_delivery_id
            size = template.head_bytes + len(payload)
            session.out.append(
                template.pack(size, template.before_id, delivery_id, template.between, tag, template.tail)
            )
            session.out.append(payload)  # type: ignore[arg-type]  # a rope is longer
            session.next_outgoing_id = (session.next_outgoing_id + 1) & MASK
            session.remote_incoming_window -= 1
            return self._sent(tag, 0, template.phase, context)
        return self._send_by_codec(tag, payload, settled, state, message_format, resume, context)

    @property
    def room(self) -> int:
        """Messages of one frame each that `send_all` would take now, at the least."""
        if self.half_written is not None or self.credit <= 0:
            return 0
        return max(0, min(self.credit, self.session.room))

    def send_all(
        self,
        tags: Sequence[bytes],
        payloads: Sequence[bytes | Rope],
        contexts: Sequence[object],
        *,
        settled: bool | None = None,
    ) -> int:
        """`send` for message after message, and much faster, for as long as the link is `sendable`. How many were sent.

        Raises LocalProtocolError as `send` does; those before are sent.
        """
        if settled is None:
            settled = self.snd_settle_mode is SndSettleMode.SETTLED
        sent, count = 0, len(payloads)
        while sent < count and self.sendable:
            template = self._templates.get(4 * len(tags[sent]) + settled)
            before = sent
            if template is not None:
                sent = template.send_run(self, tags, payloads, contexts, sent)
            if sent == before:
                self._send_by_codec(tags[sent], payloads[sent], settled, None, 0, False, contexts[sent])
                sent += 1
        return sent

    def may_send_together(self, count: int, tag_bytes: int, payload_bytes_max: int) -> bool:
        """Return True if so many deliveries, none with a larger payload, can be sent by `send_together`."""
        template = self._templates.get(4 * tag_bytes)
        session = self.session
        return (
            template is not None
            and payload_bytes_max <= template.payload_bytes_max
            and count <= self.room
            and session.next_delivery_id + count <= MASK
            and not session.keep_order
        )

    def send_together(self, tags: Sequence[bytes], heads: Heads, rests: Sequence[bytes], contexts: Contexts) -> None:
        """`send_all` of unsettled deliveries, where `may_send_together` says so: the payload of each is a head and a
        rest, and none of them is an object until somebody looks at it."""
        template = self._templates[4 * len(tags[0])]
        first_id = template.write_together(self, tags, heads, rests)
        self.session.keep_sent(SentRun(self, first_id, tags, template.phase, contexts))

    def abort(self, delivery: Delivery) -> bool:
        """Give up a delivery that is half written (2.6.14): it is settled, and the peer forgets what it has of it.

        False, and nothing happens, if it was written to its end or its link is gone.
        """
        half = self.half_written
        if half is None or half.delivery is not delivery or half.aborted or not self.session.writable:
            return False
        half.aborted = True
        half.payload = b""
        delivery.phase, _ = apply(Role.SENDER, delivery.phase, Input.ABORT)
        self.session.forget(delivery)
        return True

    def abort_resumed(self, tag: bytes) -> None:
        """Resume a delivery and give it up in the same frame (2.7.5): the peer forgets it. Uses one credit.

        Raises LocalProtocolError, with nothing sent, where not `sendable` or for a tag too long.
        """
        self._check_send(tag, b"", False, True)
        session = self.session
        transfer = Transfer(self.handle, session.next_delivery_id, tag, 0, resume=True, aborted=True)
        self._sent(tag, 0, _SETTLED, None)
        session.write_transfer(encode_composite(transfer), b"")

    def drained(self) -> None:
        """Give back the credit that is left: there is nothing (more) to send for this drain (2.6.7).

        Does nothing where the peer does not drain, or has gone.
        """
        if self.drain and self.state is LinkState.ATTACHED and self.session.writable:
            self.delivery_count = add(self.delivery_count, self.credit)
            self.credit = 0
            self.session.write_flow(self)

    def offer(self, available: int) -> None:
        """Tell the peer how many messages wait for credit here, with the next output."""
        self.available = min(available, UINT_MAX)
        if self.state is LinkState.ATTACHED:
            self.session.owe_flow(self)

    # -- for the session

    def on_flow(self, flow: Flow) -> None:
        """The receiver says how far it has come and how much more it takes (2.6.7)."""
        if flow.properties is not None:
            self.session.events.append(FlowReceived(self, flow))
        if flow.link_credit is None or self.local_attach is None:
            return
        before = self.credit
        self.credit = sender_credit(
            flow.delivery_count, flow.link_credit, self.delivery_count, self.local_attach.initial_delivery_count or 0
        )
        self.drain = flow.drain
        if self.credit != before or (self.drain and self.credit):
            self.tell_credit()
        if self.drain and not self.credit:
            # Nothing is left to give back; a receiver that waits for an answer hears so without the application.
            self.session.owe_flow(self)

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Transfers come from senders only."""
        self.session.fail(AmqpCondition.NOT_ALLOWED, f"a transfer on link {self.name:.64}, whose sender we are")

    def flow_fields(self) -> tuple[int | None, int, int, bool, bool]:
        """Return the fields of a flow from the sender (2.7.4)."""
        return self.delivery_count, self.credit, self.available, self.drain, False

    def tell_credit(self) -> None:
        """CreditChanged, once for each time that events are handed over."""
        connection = self.session.connection
        if self._credit_told != connection.event_batch:
            self._credit_told = connection.event_batch
            connection.events.append(CreditChanged(self))

    # -- its own

    def _send_by_codec(
        self,
        tag: bytes,
        payload: bytes | Rope,
        settled: bool,
        state: DeliveryState | None,
        message_format: int,
        resume: bool,
        context: object,
    ) -> Delivery:
        self._check_send(tag, payload, settled, resume)
        session = self.session
        transfer = Transfer(
            self.handle, session.next_delivery_id, tag, message_format, settled or None, state=state, resume=resume
        )
        room = session.connection.frame_size_max - 8
        head = encode_composite(transfer)
        if len(head) >= room:
            raise LocalProtocolError(f"the transfer's state alone fills a frame of {room + 8} bytes")
        cut = len(payload) > room - len(head)
        if cut:
            transfer.more = True
            head = encode_composite(transfer)
        if isinstance(state, TransactionalState) or session.keep_order:
            session.flush_dispositions()
        phase, _ = apply(Role.SENDER, Phase.NEW, Input.TRANSFER_SETTLED if settled else Input.TRANSFER)
        if is_outcome(state) and not settled:
            phase, _ = apply(Role.SENDER, phase, Input.DECIDE)
        delivery = self._sent(tag, message_format, phase, context)
        delivery.local_state = state
        if cut:
            offset = room - len(head)
            session.write_transfer(head, payload[:offset])
            transaction = state if isinstance(state, TransactionalState) else None
            self.half_written = HalfWritten(self, delivery, payload, offset, settled, transaction)
            session.add_half_written(self.half_written)
        else:
            session.write_transfer(head, bytes(payload))
        if resume or not (self.remote_attach and self.remote_attach.incomplete_unsettled):
            self._templates[4 * len(tag) + 2 * resume + settled] = TransferTemplate(self, len(tag), settled, resume)
        return delivery

    def _sent(self, tag: bytes, message_format: int, phase: int, context: object) -> Delivery:
        """Count a delivery, and remember it if it is unsettled."""
        session = self.session
        delivery_id = session.next_delivery_id
        delivery = Delivery(self, delivery_id, tag, message_format, b"", phase, context)
        if phase != _SETTLED:
            session.outgoing[delivery_id] = delivery
            self.unsettled_count += 1
        session.next_delivery_id = (delivery_id + 1) & MASK
        self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) & MASK
        return delivery

    def _local_attach_sent(self, attach: Attach) -> None:
        self.delivery_count = attach.initial_delivery_count or 0

    def _check_send(self, tag: bytes, payload: bytes | Rope, settled: bool, resume: bool) -> None:
        if not self.sendable:
            raise LocalProtocolError(f"link {self.name!r} cannot send now: {self._why_not_sendable()}")
        if not 0 < len(tag) <= TAG_BYTES_MAX:
            raise LocalProtocolError(f"a delivery-tag has 1 to {TAG_BYTES_MAX} bytes, got {len(tag)}")
        limit = self.remote_max_message_size
        if limit and len(payload) > limit:
            raise LocalProtocolError(f"a message of {len(payload)} bytes; link {self.name!r} takes {limit} at most")
        mode = self.snd_settle_mode
        if mode is not SndSettleMode.MIXED and settled != (mode is SndSettleMode.SETTLED):
            raise LocalProtocolError(f"link {self.name!r} has snd-settle-mode {mode.name.lower()}")
        if self.remote_attach is not None and self.remote_attach.incomplete_unsettled and not resume:
            raise LocalProtocolError(f"link {self.name!r} must only resume: the peer's unsettled map is incomplete")

    def _why_not_sendable(self) -> str:
        if self.state is not LinkState.ATTACHED:
            return f"it is {self.state.name}"
        if self.half_written is not None:
            return "its last delivery is not completely written"
        if self.credit <= 0:
            return "no credit"
        return "the session's window is closed, or it has too many unsettled deliveries"

    def _stop(self) -> None:
        self.credit = 0
        self.drain = False
        half, self.half_written = self.half_written, None
        if half is not None:
            self.session.drop_half_written(half)


__all__ = ["TRANSFER_CODE", "CreditChanged", "HalfWritten", "Heads", "SendingLink"]

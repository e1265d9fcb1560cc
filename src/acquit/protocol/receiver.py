"""The receiving end of a link: credit to grant, and frames put together to deliveries (2.6.7, 2.6.14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from operator import lt
from typing import Final
from zlib import crc32

from acquit.errors import LocalProtocolError
from acquit.protocol.connection_base import Event
from acquit.protocol.costs import PREDICTED_COST, SINGLE_COST
from acquit.protocol.credit import receiver_credit
from acquit.protocol.definitions import (
    AmqpCondition,
    Attach,
    Flow,
    LinkCondition,
    RcvSettleMode,
    Role,
    Transfer,
)
from acquit.protocol.delivery import Delivery, DeliveryState, ReceivedRun, ResumedDelivery, is_outcome
from acquit.protocol.endpoint import TAG_BYTES_MAX, UINT_MAX, FlowReceived, Link, LinkState
from acquit.protocol.sections import may_be_durable
from acquit.protocol.serial import MASK, add, distance
from acquit.protocol.session_base import Properties, SessionBase
from acquit.protocol.settlement import Input, Phase, apply
from acquit.protocol.states import transaction_of
from acquit.protocol.types import Described

_TOLD_MAX: Final = 64
"""Limits that a link remembers which its sender may not have heard of yet."""
_TAGS_KEPT: Final = 256
"""Tags of settled deliveries that a link may remember: looking for them costs more than they do."""

UNFINISHED: Final = "too many bytes of unfinished deliveries"
"""Description of the error that ends a link whose delivery takes memory that is not there."""


class _Arriving:
    """A delivery that has begun to arrive and not ended.

    `buffer` has what came in frames before the present one. It is a BytesIO, as that gives its content without a copy:
    a large message is not there twice when it is complete. `crc` is the CRC-32 of the same: whoever records a large
    message needs that of all of it, and would take milliseconds over it at once. None: nobody will ask.
    """

    __slots__ = ("buffer", "counted_bytes", "crc", "delivery", "ignored")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.ignored = False
        self.buffer: BytesIO | None = None
        self.crc: int | None = None
        self.counted_bytes = 0


@dataclass(slots=True)
class DeliveriesReceived(Event):
    """Complete deliveries of one link, in order. Settle them with `delivery.settle` or `session.settle_all`.

    `crc` is the CRC-32 of the payload of the first of them, where that came in several frames, may be durable, and the
    link `takes_crc`; None: it is not known.
    """

    link: ReceivingLink
    deliveries: list[Delivery]
    crc: int | None = None


@dataclass(slots=True)
class RunReceived(Event):
    """Complete deliveries of one link, in order, alike in all but tag and payload. Only a link that `takes_runs` gets
    these, in place of some DeliveriesReceived. Settle them with `session.settle_run`, or take `run.deliveries`."""

    link: ReceivingLink
    run: ReceivedRun


@dataclass(slots=True)
class DeliveryAborted(Event):
    """The sender gave up a delivery that had begun to arrive. Nothing of it is left; its credit is used."""

    link: ReceivingLink
    tag: bytes


@dataclass(slots=True)
class LinkDrained(Event):
    """A receiving link that was draining has no credit left: all that was available has arrived."""

    link: ReceivingLink


class ReceivingLink(Link):
    """A link whose receiver we are.

    `credit` is what is left of what we granted; `available` what the sender said waits; `drain` whether it was asked to
    use the credit or give it back; `max_message_size` (bytes, 0 for no limit) what we take; `stateful` whether any
    transfer came with a state, which is then its delivery's `remote_state`. `takes_runs` is the application's: True if
    it wants RunReceived where that can be; with `hears_runs` it wants that in rcv-settle-mode second as well, and
    RunSettled when the sender has settled what it has decided. So is `takes_crc`: True if it records messages.
    `predicted_cost` is the application's as well: what a transfer that looks like the one before costs of a turn, and
    any other at the least.
    """

    __slots__ = (
        "_arriving",
        "_echo",
        "_echo_awaited",
        "_last_tag",
        "_overdraft",
        "_tags",
        "_told",
        "available",
        "delivery_count",
        "drain",
        "hears_runs",
        "max_message_size",
        "predicted_cost",
        "stateful",
        "takes_crc",
        "takes_runs",
    )

    role = Role.RECEIVER

    def __init__(self, session: SessionBase, name: str, handle: int, context: object) -> None:
        super().__init__(session, name, handle, context)
        self.drain = False
        self.delivery_count = 0
        self.available = 0
        self.max_message_size = 0
        self.stateful = False
        self.takes_crc = False
        self.takes_runs = False
        self.hears_runs = False
        self.predicted_cost = PREDICTED_COST
        self._arriving: _Arriving | None = None
        self._overdraft = 0  # messages beyond the credit that may be on the way since we lowered it (2.6.7)
        self._told: list[tuple[int, int]] = []  # limits of our flows from the last on that it has heard, see `_heard`
        self._echo = False
        self._echo_awaited = False
        self._last_tag = b""  # the largest, shorter ones being smaller, while each was larger than the one before
        self._tags: dict[bytes, int] | None = None  # then: of what is unsettled, and of some that is not any more

    def grant(self, credit: int, *, echo: bool = False, properties: Properties | None = None) -> None:
        """Set the link-credit: the peer may send this many more messages, counted from what has arrived (2.6.7).

        Ends a drain. The flow goes out with the next output, one for all grants until then; at once with `properties`.
        Less than before is allowed: what the peer sent before it heard is taken as usual. `echo` asks the peer for its
        state (FlowReceived); not every peer answers. Does nothing on a link that is detached or detaching. Raises
        LocalProtocolError for a credit that is no uint, on a link that was not yet accepted, or where the properties do
        not fit the peer's frames.
        """
        if not 0 <= credit <= UINT_MAX:
            raise LocalProtocolError(f"credit must be in 0..{UINT_MAX}, got {credit}")
        if not self._can_flow():
            return
        before = self.credit, self.drain, self._overdraft, self._echo
        self._overdraft = max(0, self._overdraft + self.credit - credit)
        self.credit = credit
        self.drain = False
        self._echo = self._echo or echo
        if properties is None:
            self.session.owe_flow(self)
            return
        try:
            self.session.write_flow(self, properties=properties)
        except LocalProtocolError:
            self.credit, self.drain, self._overdraft, self._echo = before
            raise

    def drain_credit(self) -> bool:
        """Ask the sender to use the credit at once or give it back. LinkDrained follows when none is left, and what has
        begun to arrive is there.

        Returns False, and nothing is sent, where no credit is left: everything that was asked for has arrived. Nothing
        is sent, either, where the last of it is arriving.
        """
        if not self._can_flow() or not (self.credit or self._arriving is not None):
            return False
        self.drain = True
        if self.credit:
            self.session.owe_flow(self)
        return True

    @property
    def arriving_state(self) -> DeliveryState | None:
        """The state of a delivery that has begun to arrive and not ended; None where there is no such."""
        return None if self._arriving is None else self._arriving.delivery.remote_state

    # -- for the session

    @property
    def predictable(self) -> bool:
        """True if the next transfer may be the only one of its delivery, with nothing special about it."""
        return self.state is LinkState.ATTACHED and self._arriving is None and self.session.mapped

    @property
    def room_for_run(self) -> int:
        """Number of `predictable` transfers that may come now."""
        return min(self.credit, self.session.incoming_window) if self.predictable else 0

    @property
    def resuming_only(self) -> bool:
        """True if a new delivery would be wrong, as we have told only part of our unsettled map (2.7.3)."""
        return self.local_attach is not None and self.local_attach.incomplete_unsettled

    def take_deliveries(self, deliveries: list[Delivery], unsettled: bool) -> None:
        """Take deliveries that `fastpath` has found, within `room_for_run`; those unsettled are in the map already."""
        self._count_run(len(deliveries), unsettled)
        self._hand_over(deliveries, None)

    def take_run(self, run: ReceivedRun) -> None:
        """Take deliveries that `fastpath` has found, within `room_for_run`."""
        if not run.settled:
            self.session.keep_received(run)
        self._count_run(len(run.tags), not run.settled)
        self.session.events.append(RunReceived(self, run))
        self._check_drained()

    def _count_run(self, count: int, unsettled: bool) -> None:
        self.credit -= count
        self.delivery_count = (self.delivery_count + count) & MASK
        self.available = max(0, self.available - count)
        if unsettled:
            self.unsettled_count += count
            self._forget_tags()

    @property
    def in_delivery(self) -> bool:
        """True if the next transfer must belong to a delivery that has begun."""
        return self._arriving is not None

    def on_flow(self, flow: Flow) -> None:
        """The sender says how far it has come (2.6.7)."""
        self.available = flow.available or 0
        if flow.delivery_count is not None:
            self._follow(flow.delivery_count, flow.link_credit)
        if self._echo_awaited or flow.properties is not None:
            self._echo_awaited = False
            self.session.events.append(FlowReceived(self, flow))

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Put together what arrives, and hand it over when it is whole. The session has counted the frame."""
        arriving = self._arriving
        if arriving is None:
            arriving = self._first_frame(transfer)
        elif not self._same_delivery(arriving.delivery, transfer):
            self.session.fail(AmqpCondition.INVALID_FIELD, f"a transfer in the middle of another, on {self.name:.64}")
            return
        elif self.state is LinkState.ATTACHED:
            self._take_state(arriving, transfer)
        ended = transfer.aborted or not transfer.more
        self._arriving = arriving
        if self.state is LinkState.ATTACHED:
            if transfer.aborted:
                self._abort(arriving)
            else:
                self._take_payload(arriving, payload, ended)
        # A link that is detaching, or failed just now, only keeps track of which frames belong together.
        if ended:
            self._arriving = None

    def flow_fields(self) -> tuple[int | None, int, int, bool, bool]:
        """Return the fields of a flow from the receiver (2.7.4). It asks for an echo once."""
        count = None if self.remote_attach is None else self.delivery_count
        echo, self._echo = self._echo, False
        self._echo_awaited = self._echo_awaited or echo
        self._tell(add(self.delivery_count, self.credit))
        return count, self.credit, self.available, self.drain, echo

    def is_arriving(self, delivery: object) -> bool:
        """Return True if the application has not seen this delivery yet."""
        return self._arriving is not None and self._arriving.delivery is delivery

    # -- its own

    def _local_attach_sent(self, attach: Attach) -> None:
        self.max_message_size = attach.max_message_size or 0

    def _can_flow(self) -> bool:
        if self.state is LinkState.ATTACH_RECEIVED:
            raise LocalProtocolError(f"link {self.name!r} was requested: accept it before granting credit")
        return self.state in (LinkState.ATTACH_SENT, LinkState.ATTACHED) and self.session.writable

    def _check_remote(self, attach: Attach) -> bool:
        if not super()._check_remote(attach):
            return False
        if attach.initial_delivery_count is not None:
            self.delivery_count = initial = attach.initial_delivery_count
            self._told = [(add(limit, initial), add(highest, initial)) for limit, highest in self._told]
        elif attach.source is not None:  # without a source it is only a refusal
            self.fail(AmqpCondition.INVALID_FIELD, "a sender's attach must have an initial-delivery-count (2.7.3)")
            return False
        return True

    def _follow(self, delivery_count: int, link_credit: int | None) -> None:
        advance = distance(self.delivery_count, delivery_count)
        # A sender may count a delivery when it ends; we count it when it begins, so it can be one behind, never more.
        if advance > 0:
            self.credit = receiver_credit(self.credit, self.delivery_count, delivery_count)
            self.delivery_count = delivery_count
        if link_credit is not None:
            self._heard(delivery_count, link_credit)
        self._check_drained()

    def _tell(self, limit: int) -> None:
        """Remember what a flow says: the delivery-count up to which the sender may go."""
        told, count = self._told, self.delivery_count
        if not told:
            told.append((limit, limit))
        elif limit != told[-1][0]:
            highest = told[-1][1]
            told.append((limit, limit if distance(highest, limit) > 0 else highest))
            # A sender that has gone further than all that it was told up to one flow has heard of a later one.
            while len(told) > 1 and (len(told) > _TOLD_MAX or distance(told[0][1], count) > 0):
                del told[0]

    def _heard(self, delivery_count: int, link_credit: int) -> None:
        """Learn from the sender's state which of our flows it has heard: at least the first that makes this of it. As
        the limit goes up and down, a later one may make the same of it, which would prove nothing."""
        limit = add(delivery_count, link_credit)
        for at, (told, _) in enumerate(self._told):
            # One that has gone further than a lower limit says so.
            if (told if distance(delivery_count, told) > 0 else delivery_count) == limit:
                del self._told[:at]
                break
        else:
            return
        if len(self._told) == 1 and limit == add(self.delivery_count, self.credit):
            self._overdraft = 0

    def _check_drained(self) -> None:
        if self.drain and not self.credit and self._arriving is None:
            self.drain = False
            self.session.events.append(LinkDrained(self))

    def _first_frame(self, transfer: Transfer) -> _Arriving:
        """Begin a delivery; the session has checked that it has a delivery-id, the next one, and a tag."""
        assert transfer.delivery_id is not None
        assert transfer.delivery_tag is not None
        kind = ResumedDelivery if transfer.resume else Delivery
        delivery = kind(
            self, transfer.delivery_id, transfer.delivery_tag, transfer.message_format or 0, b"", Phase.NEW, None
        )
        arriving = _Arriving(delivery)
        if self.state is not LinkState.ATTACHED or not self._admit(transfer):
            return arriving
        if transfer.settled:
            input_ = Input.RECV_TRANSFER_SETTLED
        elif self.rcv_settle_mode is RcvSettleMode.SECOND and transfer.rcv_settle_mode is not RcvSettleMode.FIRST:
            input_ = Input.RECV_TRANSFER_SECOND
        else:
            input_ = Input.RECV_TRANSFER
        delivery.phase, _ = apply(Role.RECEIVER, Phase.NEW, input_)
        if transfer.resume:
            ours = None if self.local_attach is None else self.local_attach.unsettled
            arriving.ignored = ours is None or transfer.delivery_tag not in ours  # 2.7.5: one that we do not know
        if not transfer.settled and not arriving.ignored:
            if not self.use_tags([delivery.tag], delivery.delivery_id):
                self.fail(AmqpCondition.NOT_ALLOWED, "the delivery-tag of a delivery that is not settled (2.6.12)")
                return arriving
            self.session.keep_singly([delivery])
            self.unsettled_count += 1
            self._forget_tags()
        self._take_state(arriving, transfer)
        return arriving

    def _take_state(self, arriving: _Arriving, transfer: Transfer) -> None:
        """Take what a transfer says besides its payload; a state is as good as a disposition just before it (2.7.5)."""
        delivery = arriving.delivery
        state = transfer.state
        if state is not None and not isinstance(state, Described) and not arriving.ignored:
            told = delivery.remote_state
            if told is not None and transaction_of(told) != transaction_of(state):
                self.fail(AmqpCondition.INVALID_FIELD, "frames of one message in several transactions (4.4.1)")
                return
            self.stateful = True
            delivery.remote_state = state
            input_ = Input.RECV_OUTCOME if is_outcome(state) else Input.RECV_STATE
            delivery.phase, _ = apply(Role.RECEIVER, delivery.phase, input_)
        if transfer.settled:
            delivery.phase, _ = apply(Role.RECEIVER, delivery.phase, Input.RECV_TRANSFER_SETTLED)
            self.session.forget(delivery)

    def use_tags(self, tags: Sequence[bytes], first_id: int) -> int:
        """Note the tags, all of one length, of deliveries that will not be settled yet and whose ids follow one
        another. Returns how many of them may have theirs: the next has that of a delivery that is not settled (2.6.12).

        Most senders count, so each tag is larger than all before it: as long as that is so, the last is all there is to
        remember. After the first that is not, each is looked for among those of unsettled deliveries.
        """
        last, next_ = self._last_tag, tags[0]
        if self._tags is None:
            larger = len(next_) > len(last) or (len(next_) == len(last) and next_ > last)
            if larger and all(map(lt, tags, islice(tags, 1, None))):
                self._last_tag = tags[-1]
                return len(tags)
            self._tags = self.session.received_tags(self)
        return self._find_tags(self._tags, tags, first_id)

    def _find_tags(self, known: dict[bytes, int], tags: Sequence[bytes], first_id: int) -> int:
        count = len(tags)
        fresh = dict(zip(tags, range(first_id, first_id + count), strict=True))
        is_unsettled = self.session.is_unsettled
        if len(fresh) == count and first_id + count <= MASK:
            again = known.keys() & fresh.keys()  # some senders take each tag again once it is free
            if not any(map(is_unsettled, map(known.__getitem__, again))):
                known.update(fresh)
                return count
        for at, tag in enumerate(tags):
            used_by = known.get(tag)
            if used_by is not None and (is_unsettled(used_by) or (used_by - first_id) & MASK < at):
                return at
            known[tag] = (first_id + at) & MASK
        return count

    def _forget_tags(self) -> None:
        """Keep the tags of what is unsettled, once most are of what is not."""
        if self._tags is not None and len(self._tags) > 4 * self.unsettled_count + _TAGS_KEPT:
            self._tags = self.session.received_tags(self)

    def _admit(self, transfer: Transfer) -> bool:
        """Count a delivery against the credit, or fail the link for it."""
        assert transfer.delivery_tag is not None
        if len(transfer.delivery_tag) > TAG_BYTES_MAX:
            self.fail(AmqpCondition.INVALID_FIELD, f"a delivery-tag of {len(transfer.delivery_tag)} bytes (2.8.7)")
            return False
        asks_second = transfer.rcv_settle_mode is RcvSettleMode.SECOND and not transfer.settled
        if asks_second and self.rcv_settle_mode is RcvSettleMode.FIRST:
            self.fail(AmqpCondition.INVALID_FIELD, "rcv-settle-mode second on a link in mode first (2.7.5)")
            return False
        if self.resuming_only and not transfer.resume:
            self.fail(AmqpCondition.NOT_ALLOWED, "a new delivery while our unsettled map is incomplete (2.7.3)")
            return False
        if self.credit:
            self.credit -= 1
        elif self._overdraft:
            self._overdraft -= 1
        else:
            self.fail(LinkCondition.TRANSFER_LIMIT_EXCEEDED, "a delivery beyond the link-credit (2.6.7)")
            return False
        self.delivery_count = (self.delivery_count + 1) & MASK
        if self.available:
            self.available -= 1
        return True

    @staticmethod
    def _same_delivery(delivery: Delivery, transfer: Transfer) -> bool:
        return (
            transfer.delivery_id in (None, delivery.delivery_id)
            and transfer.delivery_tag in (None, delivery.tag)
            and transfer.message_format in (None, delivery.message_format)
        )

    def _take_payload(self, arriving: _Arriving, payload: bytes, ended: bool) -> None:
        size = arriving.counted_bytes + len(payload)
        if self.max_message_size and size > self.max_message_size:
            self.fail(LinkCondition.MESSAGE_SIZE_EXCEEDED, f"a message of more than {self.max_message_size} bytes")
        elif not ended:
            if arriving.buffer is None:
                arriving.buffer = BytesIO()
                if self.takes_crc and may_be_durable(payload):
                    arriving.crc = 0
            arriving.buffer.write(payload)
            if arriving.crc is not None:
                arriving.crc = crc32(payload, arriving.crc)
            arriving.counted_bytes = size
            if not self.session.connection.assemble(len(payload)):
                self.fail(AmqpCondition.RESOURCE_LIMIT_EXCEEDED, UNFINISHED)
        else:
            self.session.connection.turn.left -= max(0, self.predicted_cost - SINGLE_COST)
            crc = None
            if arriving.buffer is not None:
                arriving.buffer.write(payload)
                if arriving.crc is not None:
                    crc = crc32(payload, arriving.crc)
                payload = arriving.buffer.getvalue()
            self._let_go(arriving)
            if not arriving.ignored:
                arriving.delivery.payload = payload
                self._hand_over([arriving.delivery], crc)
            else:
                self._check_drained()

    def _let_go(self, arriving: _Arriving) -> None:
        self._arriving = None
        self.session.connection.assemble(-arriving.counted_bytes)
        arriving.counted_bytes = 0
        arriving.buffer = None

    def _abort(self, arriving: _Arriving) -> None:
        delivery = arriving.delivery
        delivery.phase, _ = apply(Role.RECEIVER, delivery.phase, Input.RECV_ABORT)
        self.session.forget(delivery)
        self._let_go(arriving)
        if not arriving.ignored:
            self.session.events.append(DeliveryAborted(self, delivery.tag))
        self._check_drained()

    def _hand_over(self, deliveries: list[Delivery], crc: int | None) -> None:
        events = self.session.events
        last = events[-1] if events else None
        if isinstance(last, DeliveriesReceived) and last.link is self:
            last.deliveries += deliveries
        else:
            events.append(DeliveriesReceived(self, deliveries, crc))
        self._check_drained()

    def _stop(self) -> None:
        self.session.connection.forget_link(self)
        self.credit = 0
        self.drain = False
        self._overdraft = 0
        arriving = self._arriving
        if arriving is not None:
            # Only the fact that it is unfinished is kept, so that the frames still on the way are told apart.
            self._let_go(arriving)
            self.session.forget(arriving.delivery)
            if self.state is LinkState.DETACH_SENT:
                self._arriving = arriving


__all__ = ["UNFINISHED", "DeliveriesReceived", "DeliveryAborted", "LinkDrained", "ReceivingLink", "RunReceived"]

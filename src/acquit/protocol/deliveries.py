"""The deliveries of a session: what is unsettled in each direction, and every settlement (specification 2.6.12, 2.7.6).

Theory of operation. Deliveries of all links of a session share one sequence of delivery-ids in each direction, so that
one disposition can speak of many links; hence the two maps are the session's, by delivery-id, oldest first. What the
application says comes through `act` and `settle_all`, what the peer says through `hear_range`; what either does is in
`settlement.TABLE`, and its effects are performed here. Dispositions of ours are gathered (`dispositions.py`), and
written when output is taken, or before a frame that they must precede.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from acquit.errors import LocalProtocolError
from acquit.protocol._definitions import AmqpCondition, Role, TransactionalState
from acquit.protocol.delivery import Delivery, DeliveryState, is_outcome, shortened
from acquit.protocol.dispositions import FRAME_OVERHEAD, DispositionRuns, encode_state
from acquit.protocol.events import StatesReceived, TransactionalStateMissed
from acquit.protocol.receiver import ReceivingLink
from acquit.protocol.serial import MASK, distance
from acquit.protocol.settlement import RECEIVER_STEPS, SENDER_STEPS, Effect, Input, apply

if TYPE_CHECKING:
    from acquit.protocol.connection import Connection
    from acquit.protocol.endpoint import Link

_SETTLE: Final = int(Input.SETTLE)
_FORGET: Final = int(Effect.FORGET)
_NOTIFY: Final = int(Effect.NOTIFY)
_HALF: Final = 1 << 31
_SEARCHES: Final = 4_096
"""Ids that may be looked for before a session's first delivery."""
_WIDE: Final = 64
"""Dispositions of more ids than this are looked at twice before the work for them is done."""


class SessionDeliveries:
    """The half of a session that knows its deliveries. `Session` is the other half."""

    __slots__ = (
        "_dispositions",
        "_searches",
        "channel",
        "connection",
        "incoming",
        "keep_order",
        "next_delivery_id",
        "next_incoming_delivery_id",
        "outgoing",
        "unsettled_max",
    )

    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection = connection
        self.channel = channel
        self.unsettled_max = connection.options.unsettled_max
        self.outgoing: dict[int, Delivery] = {}
        self.incoming: dict[int, Delivery] = {}
        self.keep_order = False  # dispositions wait that no transfer may overtake
        self.next_delivery_id = connection.options.initial_serial
        self.next_incoming_delivery_id: int | None = None
        # By the peer's role: the delivery-id at the last wide disposition, and how many more ids may be looked for.
        self._searches = [(0, _SEARCHES), (self.next_delivery_id, _SEARCHES)]
        self._dispositions = DispositionRuns()

    # -- for the application

    def unsettled(self) -> list[Delivery]:
        """All deliveries of the session, of both directions, that neither end has settled; oldest first in each."""
        return [*self.outgoing.values(), *self.incoming.values()]

    def settle_all(self, deliveries: Iterable[Delivery], state: DeliveryState | None = None) -> int:
        """`Delivery.settle` for many deliveries of this session, of any of its links, and much faster.

        Returns how many it was in time for: those that were settled or lost, or that already have their outcome, or
        whose link, session or connection is closing, are passed over. Raises LocalProtocolError at the first delivery
        that is of another session, or that needs an outcome (rcv-settle-mode second) where `state` is none; those
        before it are settled.
        """
        encoded = self._encode_state(state)
        if not self.writable:  # what is gathered now would never be written
            return 0
        final = is_outcome(state)
        before = len(self.outgoing)
        count = 0
        link: Link | None = None
        ids: list[int] | None = None
        settling = False
        try:
            for delivery in deliveries:
                if delivery.link is not link:
                    link = delivery.link
                    if link.session is not self:
                        raise LocalProtocolError(f"{delivery!r} is of another session")
                    role = link.role
                    steps, unsettled = (RECEIVER_STEPS, self.incoming) if role else (SENDER_STEPS, self.outgoing)
                    ids = None
                step = steps[delivery.phase][_SETTLE]
                if step is None or not step[1] or link.closing:
                    continue
                forget = step[1] & _FORGET != 0
                if forget:
                    del unsettled[delivery.delivery_id]
                    link.unsettled_count -= 1
                elif not final:
                    raise LocalProtocolError(f"{delivery!r} needs an outcome: its receiver settles second")
                delivery.phase = step[0]
                if state is not None:
                    delivery.local_state = state
                if ids is None or settling is not forget:
                    settling = forget
                    ids = self._dispositions.run(role, forget, encoded)
                ids.append(delivery.delivery_id)
                count += 1
        finally:  # those before one that raises are settled, and must be said
            if count:
                self._said(state, before)
        return count

    # -- for links, deliveries and the connection

    def map_of(self, role: Role) -> dict[int, Delivery]:
        """The unsettled deliveries of the links that have this role here, by delivery-id, oldest first."""
        return self.incoming if role else self.outgoing

    def act(self, delivery: Delivery, input_: Input, state: DeliveryState | None) -> bool:
        """Do what the table says to one of the application's verbs. False if it came too late."""
        link = delivery.link
        role = link.role
        next_phase, effects = apply(role, delivery.phase, input_)
        if not effects or link.closing or not self.writable:
            return False
        forget = effects & _FORGET != 0
        if input_ is Input.SETTLE and not forget and not is_outcome(state):
            raise LocalProtocolError(f"{delivery!r} needs an outcome: its receiver settles second")
        encoded = self._encode_state(state)
        before = len(self.outgoing)
        delivery.phase = next_phase
        if state is not None:
            delivery.local_state = state
        if forget:
            del self.map_of(role)[delivery.delivery_id]
            link.unsettled_count -= 1
        self._dispositions.run(role, forget, encoded).append(delivery.delivery_id)
        self._said(state, before)
        return True

    def lose_deliveries(self, deliveries: list[Delivery]) -> None:
        """Their link is closed: nobody can dispose of them any more."""
        before = len(self.outgoing)
        for delivery in deliveries:
            role = delivery.link.role
            delivery.phase, _ = apply(role, delivery.phase, Input.LOSE)
            del self.map_of(role)[delivery.delivery_id]
            delivery.link.unsettled_count -= 1
        self._tell_room(before)

    def forget(self, delivery: Delivery) -> None:
        """Take a delivery out of its map, if it is there."""
        link = delivery.link
        before = len(self.outgoing)
        if self.map_of(link.role).pop(delivery.delivery_id, None) is not None:
            link.unsettled_count -= 1
            self._tell_room(before)

    def flush_dispositions(self) -> None:
        """Write the dispositions that wait."""
        self.keep_order = False
        if self._dispositions:
            self.connection.write_raw(self._dispositions.take_frames(self.channel))

    def hear_range(self, role: Role, first: int, last: int, settled: bool, state: DeliveryState | None) -> None:
        """The peer, in this role, says this of the deliveries from `first` to `last`."""
        count = ((last - first) & MASK) + 1
        if count > _HALF:
            self.fail(AmqpCondition.INVALID_FIELD, f"a disposition from {first} to {last}: last is before first")
            return
        if state is None and not settled:
            return  # nothing is said
        # A receiver speaks of deliveries that we sent, a sender of those that we received (2.7.6).
        unsettled = self.outgoing if role else self.incoming
        said_of = count
        if count > _WIDE:
            if not unsettled:
                self._missed(role, state)
                return
            # Ids come in order: what is before the oldest or behind the newest needs no search.
            oldest, newest = next(iter(unsettled)), next(reversed(unsettled))
            skipped = max(0, distance(first, oldest))
            count -= skipped + max(0, distance(newest, last))
            first = (first + skipped) & MASK
            if count <= 0:
                self._missed(role, state)
                return
            if not self._may_search(role, min(count, len(unsettled))):
                return
        if count > len(unsettled):  # the claim may be of 2^31 ids, our work must not be
            found = [delivery for id_, delivery in unsettled.items() if (id_ - first) & MASK < count]
        else:
            found = [
                delivery for id_ in range(first, first + count) if (delivery := unsettled.get(id_ & MASK)) is not None
            ]
        if len(found) < said_of:
            self._missed(role, state)
        if not found:
            return
        if settled:
            input_ = Input.RECV_SETTLED
        else:
            input_ = Input.RECV_OUTCOME if is_outcome(state) else Input.RECV_STATE
        self._hear(found, input_, state, unsettled, SENDER_STEPS if role else RECEIVER_STEPS)

    def _missed(self, role: Role, state: DeliveryState | None) -> None:
        """Some of what the peer speaks of is not there: that matters to who retires messages in a transaction."""
        if role == Role.RECEIVER and isinstance(state, TransactionalState):
            self.connection.events.append(TransactionalStateMissed(state))

    def _hear(
        self,
        found: list[Delivery],
        input_: int,
        state: DeliveryState | None,
        unsettled: dict[int, Delivery],
        steps: tuple[tuple[tuple[int, int] | None, ...], ...],
    ) -> None:
        """Do what the table says to the peer's word on deliveries that are in the map, and tell the application."""
        before = len(self.outgoing)
        told: dict[Link, list[Delivery]] = {}
        link: Link | None = None
        group: list[Delivery] = []
        for delivery in found:
            step = steps[delivery.phase][input_]
            assert step is not None  # every input from the peer has a row; tests/properties/test_settlement.py
            delivery.phase, effects = step
            if effects & _FORGET:
                del unsettled[delivery.delivery_id]
                delivery.link.unsettled_count -= 1
            if effects & _NOTIFY:
                if state is not None:
                    delivery.remote_state = state
                if delivery.link is not link:
                    link = delivery.link
                    group = told.setdefault(link, [])
                group.append(delivery)
        settled = input_ == Input.RECV_SETTLED
        for link, group in told.items():
            if isinstance(link, ReceivingLink):  # what has not arrived completely is not known to the application
                group = [delivery for delivery in group if not link.is_arriving(delivery)]
            if group:
                self.connection.events.append(StatesReceived(link, group, state, settled))
        self._tell_room(before)

    def _may_search(self, role: Role, ids: int) -> bool:
        """Charge the search for so many ids against what the deliveries until now have earned.

        A frame of 30 bytes may name all that is unsettled, and may be repeated: only deliveries pay for it.
        """
        per_delivery = self.connection.options.dispositions_per_delivery_max
        begun = self.next_delivery_id if role else (self.next_incoming_delivery_id or 0)
        seen, left = self._searches[role]
        left = min(left + ((begun - seen) & MASK) * per_delivery, self.unsettled_max * per_delivery) - ids
        self._searches[role] = (begun, left)
        if left < 0:
            self.fail(AmqpCondition.RESOURCE_LIMIT_EXCEEDED, "dispositions say the same deliveries again and again")
        return left >= 0

    # -- the other half's

    @property
    def writable(self) -> bool:
        """Whether frames may be written on the session."""
        raise NotImplementedError

    def fail(self, condition: str, description: str) -> None:
        """The peer broke the rules of the session."""
        raise NotImplementedError

    def mark_dirty(self) -> None:
        """Something waits to be written."""
        raise NotImplementedError

    def tell_senders(self) -> None:
        """There is room to send where there was none."""
        raise NotImplementedError

    # -- its own

    def _said(self, state: DeliveryState | None, outgoing_before: int) -> None:
        if isinstance(state, TransactionalState):
            self.keep_order = True
        self.mark_dirty()
        self._tell_room(outgoing_before)

    def _tell_room(self, outgoing_before: int) -> None:
        if outgoing_before >= self.unsettled_max > len(self.outgoing):
            self.tell_senders()

    def _encode_state(self, state: DeliveryState | None) -> bytes:
        encoded = encode_state(state)
        if len(encoded) + FRAME_OVERHEAD > self.connection.peer_frame_size_max:
            if self.connection.server:
                # Often the peer's own words, and always in answer to it: a server has nobody else to tell.
                return encode_state(shortened(state))
            raise LocalProtocolError(f"a {type(state).__name__} of {len(encoded)} bytes does not fit the peer's frame")
        return encoded


__all__ = ["SessionDeliveries"]

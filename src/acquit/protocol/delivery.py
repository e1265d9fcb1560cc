"""Deliveries at either end of a link, and settling them: all that a session knows of its own (2.6.12, 2.7.6).

Theory of operation. There is one object for each delivery and end, and it is flat: at 100,000 a second nothing else
would do. Deliveries of all links of a session share one sequence of delivery-ids in each direction, so that one
disposition can speak of many links; hence the two maps of what is unsettled are the session's, by delivery-id, oldest
first. What the application says comes through `act` and `settle_all`, what the peer says through `hear_range`; what
either does is in `settlement.TABLE`, and its effects are performed here. Dispositions of ours are gathered
(`dispositions.py`), and written when output is taken, or before a frame that they must precede.

Most deliveries are born, settled and forgotten together with their neighbours, and nobody ever looks at one of them. So
where an application asks for it they are kept as *runs*: a `ReceivedRun` until it is settled, a `SentRun` until its
receiver accepts and settles it. The maps are the one door to single deliveries, and whoever opens it finds no runs
behind it: they are laid out as the objects that they would have been (`incoming`, `outgoing`). See `received_runs`.

A delivery knows its link, that its session, and this its deliveries: the three are here together, so that all modules
above need look in one direction only. What a link does is in `endpoint`, what else a session does in `session`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count as counting
from typing import Final, TypeAlias, TypeGuard

from acquit.errors import LocalProtocolError
from acquit.protocol.connection_base import ConnectionBase, Event
from acquit.protocol.constants import Outcome
from acquit.protocol.contexts import Contexts
from acquit.protocol.costs import DELIVERY_COST, RECEIVER_COSTS, SENDER_COSTS
from acquit.protocol.definitions import (
    Accepted,
    AmqpCondition,
    Declared,
    DeliveryState,
    Modified,
    Rejected,
    Released,
    Role,
    TransactionalState,
)
from acquit.protocol.dispositions import FRAME_OVERHEAD, DispositionRuns, encode_state
from acquit.protocol.link_base import LinkBase
from acquit.protocol.serial import MASK, distance
from acquit.protocol.settlement import RECEIVER_STEPS, SENDER_STEPS, Input, Phase, SettlementEffect, Steps, apply
from acquit.protocol.states import accepts, shortened, transaction_of

OUTCOME_CLASSES: Final = frozenset((Accepted, Rejected, Released, Modified, Declared))
"""The states that are final (3.4). A transactional state is provisional until the discharge, so it is not here."""

_SETTLED: Final = int(Phase.SETTLED)
_SETTLE: Final = int(Input.SETTLE)
_RECV_OUTCOME: Final = int(Input.RECV_OUTCOME)
_LOSE: Final = int(Input.LOSE)
_FORGET: Final = int(SettlementEffect.FORGET)
_NOTIFY: Final = int(SettlementEffect.NOTIFY)
_HALF: Final = 1 << 31
_SEARCHES: Final = 4_096
"""Ids that may be looked for before a session's first delivery."""
_PIECE: Final = 16
"""Deliveries that are split off a longer run where the peer settles one: it will go on so, and the rest is copied."""
_WIDE: Final = 64
"""Dispositions of more ids than this are looked at twice before the work for them is done."""


class Delivery:
    """Delivery, sent or received. `SendingLink.send` returns it, `DeliveriesReceived` brings it.

    `payload` is the whole message of a received delivery, byte for byte; b"" on the sending side, which keeps nothing
    of what it has written. `phase` is a `settlement.Phase`. `local_state` and `remote_state` are what each end told
    last; but in which transaction a message is posted, if in any, its transfer alone tells (4.4.1). `context` is the
    application's.
    """

    __slots__ = (
        "context",
        "delivery_id",
        "link",
        "local_state",
        "message_format",
        "payload",
        "phase",
        "remote_state",
        "tag",
    )

    resumed = False
    """True where the transfer carried the resume flag (2.6.13)."""

    def __init__(
        self,
        link: AnyLink,
        delivery_id: int,
        tag: bytes,
        message_format: int,
        payload: bytes,
        phase: int,
        context: object,
    ) -> None:
        self.link = link
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        self.payload = payload
        self.phase = phase
        self.local_state: DeliveryState | None = None
        self.remote_state: DeliveryState | None = None
        self.context = context

    @property
    def settled(self) -> bool:
        """True if an end has settled it: before a receiver answers, its sender. Not of what was lost with its link."""
        return self.phase == _SETTLED

    @property
    def over(self) -> bool:
        """True if nothing more can be said of it: settled or, perhaps before the application heard of it, lost."""
        return self.phase >= _SETTLED

    def settle(self, state: DeliveryState | None = None) -> bool:
        """Settle, as this end and the link's mode have it.

        A sender, and a receiver in rcv-settle-mode first, forgets the delivery and says so. A receiver in mode second
        announces `state`, which must be an outcome, and forgets when the sender has settled (StatesReceived with
        `settled`). Returns False when it was too late, and nothing is sent: the peer had settled, or the link is gone.
        Raises LocalProtocolError, and changes nothing, in mode second without an outcome or after one was announced.
        """
        return self.link.session.act(self, Input.SETTLE, state)

    def update(self, state: DeliveryState) -> bool:
        """Tell the peer a state without settling: progress (`Received`), a transactional state, or an outcome.

        Returns False when it was too late, as `settle` does. Raises LocalProtocolError after an outcome of this end.
        """
        return self.link.session.act(self, Input.DECIDE if is_outcome(state) else Input.UPDATE, state)

    def __repr__(self) -> str:
        return f"<Delivery {self.delivery_id} tag={self.tag.hex()} {Phase(self.phase).name} on {self.link.name!r}>"


class ResumedDelivery(Delivery):
    """A delivery that its sender resumed, of those in the `unsettled` map of our attach (2.6.13)."""

    __slots__ = ()

    resumed = True


class ReceivedRun:
    """Deliveries of one link that came one behind the other, with consecutive ids, in one transaction or none: `state`
    is the `remote_state` of each. `local_state` and `context` are those of each as well.

    Settle it with `session.settle_run`, or take `deliveries`, which are single ones like any others. Who needs the
    payloads no longer may put as many empty ones in their place.
    """

    __slots__ = (
        "_single",
        "context",
        "first_id",
        "link",
        "local_state",
        "message_format",
        "payloads",
        "phase",
        "state",
        "tags",
    )

    def __init__(
        self,
        link: AnyLink,
        first_id: int,
        tags: Sequence[bytes],
        payloads: Sequence[bytes],
        message_format: int,
        phase: int,
        state: TransactionalState | None = None,
    ) -> None:
        self.link = link
        self.first_id = first_id
        self.tags = tags
        self.payloads = payloads
        self.message_format = message_format
        self.phase = phase
        self.state = state
        self.local_state: DeliveryState | None = None
        self.context: object = None
        self._single: list[Delivery] | None = None

    @property
    def whole(self) -> bool:
        """True until somebody has looked at one of them."""
        return self._single is None

    @property
    def settled(self) -> bool:
        """True if an end has settled them, as `Delivery.settled`."""
        return self.phase == _SETTLED

    @property
    def deliveries(self) -> list[Delivery]:
        """The deliveries, as single ones from now on."""
        if self._single is None:
            link, message_format, phase, context = self.link, self.message_format, self.phase, self.context
            self._single = [
                Delivery(link, (self.first_id + at) & MASK, tag, message_format, payload, phase, context)
                for at, (tag, payload) in enumerate(zip(self.tags, self.payloads, strict=True))
            ]
            if self.state is not None or self.local_state is not None:
                for delivery in self._single:
                    delivery.remote_state = self.state
                    delivery.local_state = self.local_state
        return self._single

    def split(self, count: int) -> ReceivedRun:
        """Return the first of them, so many, which are here no more. Only while nobody has looked at one of them."""
        tags, payloads = self.tags[:count], self.payloads[:count]
        front = ReceivedRun(self.link, self.first_id, tags, payloads, self.message_format, self.phase, self.state)
        front.local_state, front.context = self.local_state, self.context
        self.tags, self.payloads = self.tags[count:], self.payloads[count:]
        self.first_id += count
        return front


class SentRun:
    """Deliveries that were sent on one link one behind the other, with consecutive ids, and wait for their outcome.
    `state` is the `remote_state` of each.

    Where the peer has accepted them and `waits` for us to settle: do so with `session.settle_sent`, or take
    `deliveries`, which are single ones like any others.
    """

    __slots__ = ("_single", "contexts", "first_id", "heard", "link", "phase", "state", "tags", "waits")

    def __init__(self, link: AnyLink, first_id: int, tags: Sequence[bytes], phase: int, contexts: Contexts) -> None:
        self.link = link
        self.first_id = first_id
        self.tags = tags
        self.phase = phase
        self.contexts = contexts
        self.state: DeliveryState | None = None
        self.waits = False
        self.heard = False
        """Set by the application once it wants to hear no more of them: their contexts are None from then on."""
        self._single: list[Delivery] | None = None

    @property
    def whole(self) -> bool:
        """True until somebody has looked at one of them."""
        return self._single is None

    @property
    def deliveries(self) -> list[Delivery]:
        """The deliveries, as single ones from now on."""
        if self._single is None:
            link, phase, state, first_id = self.link, self.phase, self.state, self.first_id
            contexts = [None] * len(self.tags) if self.heard else self.contexts.each()
            self._single = [
                Delivery(link, first_id + at, tag, 0, b"", phase, context)
                for at, (tag, context) in enumerate(zip(self.tags, contexts, strict=True))
            ]
            if state is not None:
                for delivery in self._single:
                    delivery.remote_state = state
        return self._single

    def split(self, count: int) -> SentRun:
        """Return the first of them, so many, which are here no more."""
        front = SentRun(self.link, self.first_id, self.tags[:count], self.phase, self.contexts.split(count))
        self.tags = self.tags[count:]
        self.first_id += count
        return front


def is_outcome(state: object) -> TypeGuard[Outcome]:
    """Return True if a state is an outcome, and so final."""
    return state.__class__ in OUTCOME_CLASSES


@dataclass(slots=True)
class StatesReceived(Event):
    """The peer told a state of deliveries of one link, by one disposition.

    `settled`: the peer has forgotten them, and so have we: their phase is SETTLED. Otherwise `state` is news, and a
    sender that hears an outcome this way (rcv-settle-mode second) settles them when it has acted on it.
    """

    link: AnyLink
    deliveries: list[Delivery]
    state: DeliveryState | None
    settled: bool


@dataclass(slots=True, eq=False, repr=False)
class RunAccepted(Event):
    """The peer accepted deliveries of one link that were sent together, and nobody had looked at one of them: a
    StatesReceived for all. The peer has settled them, or `run.waits` for us to do so. In the transaction that
    `run.state` names, where it names one. `run.contexts` is what `SendingLink.send_together` was given, or a part of
    it."""

    run: SentRun


@dataclass(slots=True)
class TransactionalStateMissed(Event):
    """The peer told a transactional state of deliveries that it received, of which some are settled here, or never
    were: what it believes to be part of the transaction is not. Of those that there are, StatesReceived follows."""

    state: TransactionalState


AnyLink: TypeAlias = LinkBase["SessionDeliveries"]


class SessionDeliveries:
    """The half of a session that knows its deliveries. `Session` is the other half."""

    __slots__ = (
        "_dispositions",
        "_incoming",
        "_outgoing",
        "_received_runs",
        "_searches",
        "_sent_count",
        "_sent_runs",
        "_waiting_runs",
        "channel",
        "connection",
        "keep_order",
        "next_delivery_id",
        "next_incoming_delivery_id",
        "unsettled_max",
    )

    def __init__(self, connection: ConnectionBase, channel: int) -> None:
        self.connection = connection
        self.channel = channel
        self.unsettled_max = connection.options.unsettled_max
        self._outgoing: dict[int, Delivery] = {}
        self._sent_runs: deque[SentRun] = deque()  # all of them younger than what is in the map
        self._waiting_runs: list[SentRun] = []  # those that wait for us to settle: older than these
        self._sent_count = 0  # deliveries in both
        self._incoming: dict[int, Delivery] = {}
        self._received_runs: list[ReceivedRun] = []  # oldest first; what is in the map may be between them
        self.keep_order = False  # dispositions wait that no transfer may overtake
        self.next_delivery_id = connection.options.initial_serial
        self.next_incoming_delivery_id: int | None = None
        # By the peer's role: the delivery-id at the last wide disposition, and how many more ids may be looked for.
        self._searches = [(0, _SEARCHES), (self.next_delivery_id, _SEARCHES)]
        self._dispositions = DispositionRuns()

    # -- for the application

    @property
    def outgoing(self) -> dict[int, Delivery]:
        """The unsettled deliveries that we sent, by delivery-id, oldest first. Lays out what was sent together."""
        self.lay_out_sent()
        return self._outgoing

    def lay_out_sent(self) -> None:
        """Let what was sent together be single deliveries."""
        self._lay_out_waiting()
        while self._sent_runs:
            self._lay_out(self._sent_runs.popleft())

    def _lay_out_waiting(self) -> None:
        """Let what waits for us to settle be single deliveries."""
        if self._waiting_runs:
            runs, self._waiting_runs = self._waiting_runs, []
            for run in runs:
                self._lay_out(run)

    def _lay_out(self, run: SentRun) -> None:
        self._sent_count -= len(run.tags)
        self._outgoing.update(zip(counting(run.first_id), run.deliveries, strict=False))

    @property
    def outgoing_count(self) -> int:
        """Number of these."""
        return len(self._outgoing) + self._sent_count

    @property
    def sent_together(self) -> bool:
        """True if some of these are no single ones yet."""
        return self._sent_count > 0

    @property
    def oldest_outgoing(self) -> int | None:
        """Delivery-id of the first of these; None for none."""
        if self._outgoing:
            return next(iter(self._outgoing))
        runs = self._waiting_runs or self._sent_runs
        return runs[0].first_id if runs else None

    @property
    def incoming(self) -> dict[int, Delivery]:
        """The unsettled deliveries that we received, by delivery-id, oldest first. Lays out what came together."""
        if self._received_runs:
            runs, self._received_runs = self._received_runs, []
            found = [delivery for run in runs for delivery in run.deliveries]
            singles, start = self._incoming, runs[0].first_id
            if singles and distance(next(reversed(singles)), start) < 0:  # some came between them
                found = [*singles.values(), *found]
                found.sort(key=lambda delivery: distance(start, delivery.delivery_id))
                singles.clear()
            singles.update([(delivery.delivery_id, delivery) for delivery in found])
        return self._incoming

    @property
    def _incoming_singly(self) -> dict[int, Delivery]:
        """The same for deliveries that somebody has: what came together and is whole stays as it is."""
        return self._incoming if all(run.whole for run in self._received_runs) else self.incoming

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
        before = self.outgoing_count
        count = 0
        link: AnyLink | None = None
        ids: list[int] | None = None
        settling = False
        try:
            for delivery in deliveries:
                if delivery.link is not link:
                    link = delivery.link
                    if link.session is not self:
                        raise LocalProtocolError(f"{delivery!r} is of another session")
                    role = link.role
                    steps, unsettled = (
                        (RECEIVER_STEPS, self._incoming_singly) if role else (SENDER_STEPS, self._outgoing)
                    )
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

    def settle_sent(self, run: SentRun, state: Outcome) -> int:
        """`settle_all` for deliveries that were sent together, and whose receiver `waits` for that."""
        if not run.whole:
            return self.settle_all(run.deliveries, state)
        encoded = self._encode_state(state)
        link, count = run.link, len(run.tags)
        if link.closing or not self.writable:
            return 0
        before = self.outgoing_count
        self._waiting_runs.remove(run)
        self._sent_count -= count
        link.unsettled_count -= count
        self._dispositions.run(Role.SENDER, True, encoded).extend(range(run.first_id, run.first_id + count))
        self._said(state, before)
        return count

    # -- for links, deliveries and the connection

    def keep_sent(self, run: SentRun) -> None:
        """Keep deliveries that were sent together, younger than all others, as such until somebody looks."""
        self._sent_runs.append(run)
        self._sent_count += len(run.tags)
        run.link.unsettled_count += len(run.tags)

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
        before = self.outgoing_count
        delivery.phase = next_phase
        if state is not None:
            delivery.local_state = state
        if forget:
            del (self.incoming if role else self._outgoing)[delivery.delivery_id]
            link.unsettled_count -= 1
        self._dispositions.run(role, forget, encoded).append(delivery.delivery_id)
        self._said(state, before)
        return True

    def lose_deliveries(self, deliveries: list[Delivery]) -> None:
        """Lose deliveries whose link is closed: nobody can dispose of them any more."""
        before = self.outgoing_count
        for delivery in deliveries:
            link = delivery.link
            steps, unsettled = (RECEIVER_STEPS, self.incoming) if link.role else (SENDER_STEPS, self.outgoing)
            _lose(delivery, steps)
            del unsettled[delivery.delivery_id]
            link.unsettled_count -= 1
        self._tell_room(before)

    def lose_all(self) -> None:
        """The session is over. They stay in the maps, for whoever walks what it took with it."""
        for steps, unsettled in ((SENDER_STEPS, self.outgoing), (RECEIVER_STEPS, self.incoming)):
            for delivery in unsettled.values():
                _lose(delivery, steps)

    def forget(self, delivery: Delivery) -> None:
        """Take a delivery out of its map, if it is there."""
        link = delivery.link
        before = self.outgoing_count
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
        if role and self._sent_runs and (accepts(state) if settled else state.__class__ is Accepted):
            before = max(0, distance(first, self._sent_runs[0].first_id))
            begun = (first + before) & MASK
            heard = self._hear_runs(begun, count - before, state, settled) if before < count else 0
            left = count - before - heard
            if left and heard and self.connection.turn.left <= 0:
                rest = (last - left + 1) & MASK
                self.connection.unfinished = partial(self._hear_rest_of_runs, rest, last, state, settled)
                left = 0
            if not left:
                count, last = before, (first + before - 1) & MASK
            if not count:
                return
        # A receiver speaks of deliveries that we sent, a sender of those that we received (2.7.6).
        unsettled = self._listed(role, first, last)
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
        ids: Sequence[int] = range(first, first + count)
        if count > len(unsettled):  # the claim may be of 2^31 ids, our work must not be
            ids = [id_ for id_ in unsettled if (id_ - first) & MASK < count]
        if len(ids) < said_of:
            self._missed(role, state)
        self._hear_some(role, ids, settled, state, self.connection.unfinished)

    def _hear_some(
        self,
        role: Role,
        ids: Sequence[int],
        settled: bool,
        state: DeliveryState | None,
        behind: Callable[[], None] | None,
    ) -> None:
        """Hear of as many of these as fit in the turn, and in others of the rest, and of what is `behind` them in their
        disposition. Nobody hears of those of a session that we have ended meanwhile."""
        if not self.mapped:
            return
        heard = self.hear_ids(role, ids, settled, state)
        if heard < len(ids):
            behind = partial(self._hear_some, role, ids[heard:], settled, state, behind)
        self.connection.unfinished = behind

    def _hear_rest_of_runs(self, first: int, last: int, state: DeliveryState | None, settled: bool) -> None:
        """Likewise of what was sent together, as of a disposition of its own."""
        if self.mapped:
            self.hear_range(Role.RECEIVER, first, last, settled, state)

    def _hear_runs(self, first: int, count: int, state: DeliveryState | None, settled: bool) -> int:
        """The peer has accepted so many, and settled them or waits for us to do so, as `state` says: hear of those that
        were sent together, from the first of them on, of one run and as many as fit in the turn. Returns how many that
        were."""
        runs, before, turn = self._sent_runs, self.outgoing_count, self.connection.turn
        heard = 0
        while heard < count and runs and runs[0].first_id == (first + heard) & MASK and (turn.left > 0 or not heard):
            size = min(len(runs[0].tags), count - heard)
            if size == 1 < len(runs[0].tags):
                if len(runs[0].tags) > _PIECE:
                    runs.appendleft(runs[0].split(_PIECE))
                runs[0].contexts = runs[0].contexts.singly()
            run = runs.popleft() if size == len(runs[0].tags) else runs[0].split(size)
            heard += size
            if settled:
                self._sent_count -= size
                run.link.unsettled_count -= size
            else:
                step = SENDER_STEPS[run.phase][_RECV_OUTCOME]
                assert step is not None
                run.phase, run.state, run.waits = step[0], state, True
                self._waiting_runs.append(run)
            if isinstance(state, TransactionalState):
                turn.left -= DELIVERY_COST * size
                run.phase, run.state = _SETTLED, state
            else:
                turn.left -= run.contexts.accepted_cost
            self.connection.events.append(RunAccepted(run))
        if heard:
            self._tell_room(before)
        return heard

    def hear_ids(self, role: Role, ids: Sequence[int], settled: bool, state: DeliveryState | None) -> int:
        """Hear it of the first of these, as many as fit in the turn and one; how many."""
        turn = self.connection.turn
        cost = (RECEIVER_COSTS if role else SENDER_COSTS).get(state.__class__, DELIVERY_COST)
        ids = ids[: 1 + max(0, turn.left) // cost]
        turn.left -= cost * len(ids)
        unsettled = self._listed(role, ids[0] & MASK, ids[-1] & MASK) if ids else {}
        found = [delivery for id_ in ids if (delivery := unsettled.get(id_ & MASK)) is not None]
        if len(found) < len(ids):
            self._missed(role, state)
        if found:
            if settled:
                input_ = Input.RECV_SETTLED
            else:
                input_ = Input.RECV_OUTCOME if is_outcome(state) else Input.RECV_STATE
            self._hear(found, input_, state, unsettled, SENDER_STEPS if role else RECEIVER_STEPS)
        return len(ids)

    def _listed(self, role: Role, first: int, last: int) -> dict[int, Delivery]:
        """The map of what the peer in this role speaks of, if it speaks of none but those from `first` to `last`."""
        for runs in (self._waiting_runs, self._sent_runs) if role else ():
            if runs:
                if distance(first, runs[0].first_id) > 0 and distance(last, runs[0].first_id) > 0:
                    return self._outgoing  # without what was sent together after that
                self._lay_out_waiting()
        return self.outgoing if role else self.incoming

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
        steps: Steps,
    ) -> None:
        """Do what the table says to the peer's word on deliveries that are in the map, and tell the application."""
        before = self.outgoing_count
        received = steps is RECEIVER_STEPS
        told: dict[AnyLink, list[Delivery]] = {}
        link: AnyLink | None = None
        group: list[Delivery] = []
        for delivery in found:
            step = steps[delivery.phase][input_]
            assert step is not None  # every input from the peer has a row; tests/properties/test_settlement.py
            delivery.phase, effects = step
            if effects & _FORGET:
                del unsettled[delivery.delivery_id]
                delivery.link.unsettled_count -= 1
            if effects & _NOTIFY:
                if state is not None and not (
                    received and transaction_of(state) != transaction_of(delivery.remote_state)
                ):
                    delivery.remote_state = state
                if delivery.link is not link:
                    link = delivery.link
                    group = told.setdefault(link, [])
                group.append(delivery)
        settled = input_ == Input.RECV_SETTLED
        for link, group in told.items():
            if link.role:  # what has not arrived completely is not known to the application
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
        """True if frames may be written on the session."""
        raise NotImplementedError

    @property
    def mapped(self) -> bool:
        """True if both ends have begun the session and neither has ended it."""
        raise NotImplementedError

    def fail(self, condition: str, description: str) -> None:
        """The peer broke the rules of the session."""
        raise NotImplementedError

    def mark_dirty(self) -> None:
        """Note that something waits to be written."""
        raise NotImplementedError

    def tell_senders(self) -> None:
        """Tell the senders that there is room where there was none."""
        raise NotImplementedError

    # -- its own

    def _said(self, state: DeliveryState | None, outgoing_before: int) -> None:
        if isinstance(state, TransactionalState):
            self.keep_order = True
        self.mark_dirty()
        self._tell_room(outgoing_before)

    def _tell_room(self, outgoing_before: int) -> None:
        if outgoing_before >= self.unsettled_max > self.outgoing_count:
            self.tell_senders()

    def _encode_state(self, state: DeliveryState | None) -> bytes:
        encoded = encode_state(state)
        if len(encoded) + FRAME_OVERHEAD > self.connection.peer_frame_size_max:
            if self.connection.server:
                # Often the peer's own words, and always in answer to it: a server has nobody else to tell.
                return encode_state(shortened(state))
            raise LocalProtocolError(f"a {type(state).__name__} of {len(encoded)} bytes does not fit the peer's frame")
        return encoded


def _lose(delivery: Delivery, steps: Steps) -> None:
    step = steps[delivery.phase][_LOSE]
    assert step is not None  # every phase has its row
    delivery.phase = step[0]


__all__ = [
    "OUTCOME_CLASSES",
    "Delivery",
    "DeliveryState",
    "Outcome",
    "ReceivedRun",
    "ResumedDelivery",
    "RunAccepted",
    "SentRun",
    "SessionDeliveries",
    "StatesReceived",
    "TransactionalStateMissed",
    "is_outcome",
]

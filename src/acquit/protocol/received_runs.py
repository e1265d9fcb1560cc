"""Runs of deliveries that were received: settling them, all or some, and hearing that their sender has settled them.

Theory of operation. A `ReceivedRun` stands for deliveries that are alike in all that matters here: one link, one phase,
one state. What is said of some of them alone makes two runs of it, or three, so that each is alike again: a thousand
messages with one outcome and one message with another are three runs, and still no objects. Only where more than that
is said (an outcome of the sender's own, a state on the way to one, an outcome in a transaction) they are laid out as
single deliveries, all of the session, and `delivery` does the rest.

A link in rcv-settle-mode first forgets a run as it is settled. In mode second our outcome is told, and the run stays
where it is, in the order of its ids, until its sender has settled it (2.8.3). Which is which says `settlement.TABLE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from acquit.errors import LocalProtocolError
from acquit.protocol.connection_base import Event
from acquit.protocol.constants import Outcome
from acquit.protocol.costs import DELIVERY_COST
from acquit.protocol.definitions import DeliveryState, Role, TransactionalState
from acquit.protocol.delivery import AnyLink, Delivery, ReceivedRun, SessionDeliveries, is_outcome
from acquit.protocol.serial import MASK, distance
from acquit.protocol.settlement import RECEIVER_STEPS, Input, SettlementEffect

_SETTLE: Final = int(Input.SETTLE)
_RECV_SETTLED: Final = int(Input.RECV_SETTLED)
_FORGET: Final = int(SettlementEffect.FORGET)
_HALF: Final = 1 << 31


@dataclass(slots=True, eq=False, repr=False)
class RunSettled(Event):
    """The sender has settled deliveries that came together, of which it had our outcome (`run.local_state`), and nobody
    had looked at one of them: a StatesReceived for all. `state` is what the sender says became of them, if it does."""

    run: ReceivedRun
    state: DeliveryState | None


class SessionRuns(SessionDeliveries):
    """The part of a session that knows what to do with runs that were received."""

    __slots__ = ()

    # -- for the application

    def settle_run(self, run: ReceivedRun, state: Outcome | TransactionalState) -> int:
        """`settle_all` for deliveries that came together."""
        if not run.whole:
            return self.settle_all(run.deliveries, state)
        encoded = self._encode_state(state)
        if run.settled or not self._settle_whole(self._received_runs.index(run), state, encoded):
            return 0
        self._said(state, self.outgoing_count)
        return len(run.tags)

    def settle_range(
        self, link: AnyLink, first: int, count: int, state: Outcome | TransactionalState, context: object
    ) -> tuple[int, int]:
        """`settle_all` for so many deliveries of one link that we received, from this id on, as they came: together or
        not. `context` becomes that of each that it was in time for.

        Returns how many these are: whose sender is to settle now (rcv-settle-mode second), and that are forgotten.
        """
        encoded = self._encode_state(state)
        told = forgotten = offset = 0
        singles: list[Delivery] = []
        while offset < count:
            id_ = (first + offset) & MASK
            at, before = self._run_at(id_, count - offset)
            if before:
                ids = range(id_, id_ + before)
                singles += [one for one in map(self._incoming.get, [id_ & MASK for id_ in ids]) if one is not None]
                offset += before
                continue
            if not self._received_runs[at].whole:
                self._lay_out_received()
                continue
            at = self._part(at, id_, count - offset)
            run = self._received_runs[at]
            size = len(run.tags)
            offset += size
            if run.link is link and self._settle_whole(at, state, encoded):
                run.context = context
                if run.settled:
                    forgotten += size
                else:
                    told += size
        if told or forgotten:
            self._said(state, self.outgoing_count)
        if singles:
            second, settled = self._settle_singles(link, singles, state, context)
            told, forgotten = told + second, forgotten + settled
        return told, forgotten

    # -- for links

    def keep_received(self, run: ReceivedRun) -> None:
        """Keep deliveries that came together, younger than all others, as such until somebody looks."""
        self._received_runs.append(run)

    def is_unsettled(self, id_: int) -> bool:
        """Return whether a delivery that we received, with this id, is unsettled. What came together stays so."""
        return id_ in self._incoming or not self._run_at(id_, 1)[1]

    def received_tags(self, link: AnyLink) -> dict[bytes, int]:
        """Return the tags of the unsettled deliveries of a link, with their ids. What came together stays so."""
        tags = {one.tag: one.delivery_id for one in self._incoming.values() if one.link is link}
        for run in self._received_runs:
            if run.link is link:
                tags.update(zip(run.tags, range(run.first_id, run.first_id + len(run.tags)), strict=True))
        return tags

    def keep_singly(self, deliveries: Iterable[Delivery]) -> None:
        """Keep deliveries, younger than all others, one by one."""
        self._incoming.update([(delivery.delivery_id, delivery) for delivery in deliveries])

    def hear_range(self, role: Role, first: int, last: int, settled: bool, state: DeliveryState | None) -> None:
        """The peer, in this role, says this of the deliveries from `first` to `last`."""
        if settled and not role and self._received_runs and (last - first) & MASK < _HALF:
            self._hear_settled(first, last, state)
        else:
            super().hear_range(role, first, last, settled, state)

    # -- its own

    def _settle_whole(self, at: int, state: Outcome | TransactionalState, encoded: bytes) -> bool:
        """Settle the run at this place; False if it is too late for that."""
        run = self._received_runs[at]
        step = RECEIVER_STEPS[run.phase][_SETTLE]
        if step is None or not step[1] or run.link.closing or not self.writable:
            return False
        forget = step[1] & _FORGET != 0
        count = len(run.tags)
        if forget:
            del self._received_runs[at]
            run.link.unsettled_count -= count
        elif not is_outcome(state):
            raise LocalProtocolError(
                f"deliveries from {run.first_id} on need an outcome: their receiver settles second"
            )
        run.phase, run.local_state = step[0], state
        self._dispositions.run(Role.RECEIVER, forget, encoded).extend(range(run.first_id, run.first_id + count))
        return True

    def _settle_singles(
        self, link: AnyLink, singles: list[Delivery], state: Outcome | TransactionalState, context: object
    ) -> tuple[int, int]:
        """Settle what came one by one; how many of it the sender is to settle now, and how many are forgotten."""
        fresh = []
        forgotten = 0
        if link.closing or not self.writable:
            return 0, 0
        for delivery in singles:
            step = RECEIVER_STEPS[delivery.phase][_SETTLE]
            if delivery.link is link and step is not None and step[1]:
                delivery.context = context
                forgotten += step[1] & _FORGET != 0
                fresh.append(delivery)
        return self.settle_all(fresh, state) - forgotten, forgotten

    def _run_at(self, id_: int, count: int) -> tuple[int, int]:
        """Return the place of the first run that does not end before this id, and how many of the ids from it on, at
        most `count`, are before that run."""
        runs = self._received_runs
        low, high = 0, len(runs)
        while low < high:
            middle = (low + high) // 2
            run = runs[middle]
            if distance(run.first_id + len(run.tags) - 1, id_) > 0:
                low = middle + 1
            else:
                high = middle
        if low == len(runs):
            return low, count
        before = distance(id_, runs[low].first_id)
        if before <= -len(runs[low].tags):  # half of all ids away: it is neither before nor behind
            return low, count
        return low, min(count, max(0, before))

    def _part(self, at: int, id_: int, count: int) -> int:
        """Let the part of the run at this place that begins with this id and has at most `count` be a run; return the
        place of that."""
        runs = self._received_runs
        run = runs[at]
        before = distance(run.first_id, id_)
        if before > 0:
            runs.insert(at, run.split(before))
            at += 1
        if count < len(run.tags):
            runs.insert(at, run.split(count))
        return at

    def _lay_out_received(self) -> None:
        """Let what came together be single deliveries."""
        _ = self.incoming  # lays it out

    def _hear_settled(self, first: int, last: int, state: DeliveryState | None) -> None:
        """The sender has settled these: hear of the runs among them as such, of what is between these one by one, and
        in other turns of what does not fit in this one."""
        turn = self.connection.turn
        while True:
            heard = self._hear_settled_next(first, last, state)
            if heard > (last - first) & MASK:
                return
            first = (first + heard) & MASK
            before = self.connection.unfinished
            if before is not None or turn.left <= 0:
                self.connection.unfinished = partial(self._hear_rest, before, first, last, state)
                return

    def _hear_rest(self, before: Callable[[], None] | None, first: int, last: int, state: DeliveryState | None) -> None:
        if before is not None:
            before()
            before = self.connection.unfinished
            if before is not None:
                self.connection.unfinished = partial(self._hear_rest, before, first, last, state)
                return
        if self.mapped:
            self._hear_settled(first, last, state)

    def _hear_settled_next(self, first: int, last: int, state: DeliveryState | None) -> int:
        """Hear of the first of these: of a run, or of what is before it. Returns how many these were."""
        count = ((last - first) & MASK) + 1
        at, before = self._run_at(first, count)
        if not before:
            run = self._received_runs[at]
            if run.whole and run.local_state is not None and run.state is None:
                at = self._part(at, first, count)
                run = self._received_runs.pop(at)
                step = RECEIVER_STEPS[run.phase][_RECV_SETTLED]
                assert step is not None  # every input from the peer has a row; tests/properties/test_settlement.py
                run.phase = step[0]
                size = len(run.tags)
                run.link.unsettled_count -= size
                self.connection.turn.left -= DELIVERY_COST
                self.connection.events.append(RunSettled(run, state))
                return size
            self._lay_out_received()
            before = count
        super().hear_range(Role.SENDER, first, (first + before - 1) & MASK, True, state)
        return before

    def _listed(self, role: Role, first: int, last: int) -> dict[int, Delivery]:
        if not role and self._received_runs:
            count = ((last - first) & MASK) + 1
            if count <= _HALF and self._run_at(first, count)[1] == count:
                return self._incoming  # without what came together before and after that
        return super()._listed(role, first, last)


__all__ = ["RunSettled", "SessionRuns"]

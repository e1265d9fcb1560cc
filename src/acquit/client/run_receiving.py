"""A receiving link of the client that hands out payloads, many at a time, and settles them by their numbers.

Theory of operation. Who takes tens of thousands of messages, looks at their bytes in columns, and gives nearly all of
them one outcome has no use for an object each. Here a message is a payload and a number: they are numbered from 0 in
the order in which they are handed out, over the life of the receiver. In between there are *lots*: of what came
together, and is numbered together. The engine keeps its own runs by delivery-id (`protocol.received_runs`), without
the payloads, and is told of ranges of ids alone; so neither side minds where the other cuts. What is handed out is the
user's: no payload is kept here.

    engine:  a run ──▶ on_run ──▶ buffer of lots ──▶ take_payloads ──▶ handed out, by number
    engine:  settle_range  ◀────  by delivery-id  ◀──  loop side  ◀──  settle_numbers

All else is as for other receivers in mode INDIVIDUAL: credit, draining, receipts, the close, interruption. What the
peer takes back while it waits in the buffer is left out as its lot is handed out; later, its outcome is STALE.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acquit.client.modes import AckMode
from acquit.client.receipts import ReceiptStatus, SettlementReceipt
from acquit.client.receiving import ReceiverCore
from acquit.errors import ConfigurationError
from acquit.protocol.constants import RELEASED, Outcome
from acquit.protocol.serial import MASK

if TYPE_CHECKING:
    from acquit.client.failures import Failure
    from acquit.client.options import ReceiverSpec
    from acquit.client.received import MessageCore, SessionCoreBase
    from acquit.protocol.delivery import Delivery, ReceivedRun


@dataclass(slots=True, eq=False, repr=False)
class PayloadLot:
    """Messages with consecutive delivery-ids, and numbers once they are handed out."""

    arrived: int
    """The session's number of the first: it tells of which connection they are."""
    first_id: int
    sizes: Sequence[int]
    """Bytes of each."""
    payloads: Sequence[bytes]
    """Empty once they are handed out."""
    number: int = 0

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.sizes)

    @property
    def end(self) -> int:
        """Number behind the last."""
        return self.number + self.count

    def cut(self, count: int) -> tuple[PayloadLot, PayloadLot]:
        """Return the first of them, so many, and the others."""
        arrived, first_id, sizes, payloads = self.arrived, self.first_id, self.sizes, self.payloads
        return (
            PayloadLot(arrived, first_id, sizes[:count], payloads[:count], self.number),
            PayloadLot(
                arrived + count, (first_id + count) & MASK, sizes[count:], payloads[count:], self.number + count
            ),
        )


class RunReceiverCore(ReceiverCore):
    """A receiver of payloads. Its methods are called as those of `ReceiverCore` are."""

    __slots__ = ("_asked", "_next_number", "_out", "_receipts", "_withdrawn")

    def __init__(self, session: SessionCoreBase, spec: ReceiverSpec) -> None:
        if (
            session.mode.name is not AckMode.INDIVIDUAL
            or spec.browse
            or spec.unreliable
            or spec.exactly_once is not None
            or not spec.prefetch
        ):
            raise ConfigurationError(
                "payloads are prefetched and handed out in mode INDIVIDUAL, and neither browsed nor resumed"
            )
        super().__init__(session, spec)
        self.buffer: deque[PayloadLot] = deque()  # type: ignore[assignment]  # `ReceiverCore` asks whether there is any; all else is overridden
        self._out: list[PayloadLot] = []
        """Messages that are handed out and have no outcome, by number: user code appends, and the loop side does all
        else."""
        self._next_number = 0
        self._asked: deque[SettlementReceipt] = deque()
        """Calls that the loop side has not heard of."""
        self._receipts: list[SettlementReceipt] = []
        """Receipts that wait for the peer, and some that have ended."""
        self._withdrawn: set[int] = set()
        """Delivery-ids of what the peer has taken back."""

    # -- user side -----------------------------------------------------------------------------------------------------

    def take(self) -> MessageCore | None:
        """Hand out nothing: there are no messages here."""
        raise ConfigurationError(f"{self.spec.what} hands out payloads")

    take_for_listener = take

    def take_payloads(self, max_messages: int) -> Sequence[bytes] | None:
        """Hand out the next, of one lot; None when the buffer is empty. For one thread at a time."""
        while True:
            try:
                lot = self.buffer.popleft()
            except IndexError:
                return None
            if lot.arrived < self.session.since or self.failure is not None:
                continue  # its rest was put back as the buffer was emptied
            count = min(max_messages, lot.count)
            gone = False
            if self._withdrawn:
                each = [(lot.first_id + at) & MASK in self._withdrawn for at in range(count)]
                gone = each[0]
                count = each.index(not gone) if (not gone) in each else count
            if count < lot.count:
                lot, rest = lot.cut(count)
                self.buffer.appendleft(rest)
            if gone:
                self.session.core.post((self._give_back_lots, [lot]))
                continue
            lot.number = self._next_number
            self._next_number += count
            payloads, lot.payloads = lot.payloads, ()
            self._out.append(lot)
            return payloads

    def settle_numbers(self, ranges: Sequence[tuple[int, int]], outcome: Outcome) -> SettlementReceipt:
        """Give messages their outcome: those with numbers from the first of each pair up to, and without, the second.
        It is STALE for one that has an outcome already."""
        session = self.session
        session.core.check_outcome(outcome)
        receipt = session.kinds.receipt(sum([end - first for first, end in ranges]))
        if not receipt.done:
            self._asked.append(receipt)
            session.core.post((self._settle_numbers, ranges, outcome, receipt))
        return receipt

    def _sizes_handed_out(self) -> list[int]:
        if self._asked:
            return []  # outcomes are on their way
        since = self.session.since
        return [size for lot in list(self._out) if lot.arrived >= since for size in lot.sizes]

    # -- loop side -----------------------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Attach, and ask for runs."""
        super().attach()
        self.link.takes_runs = self.link.hears_runs = True

    def on_run(self, run: ReceivedRun) -> None:
        """Messages arrived together."""
        if self.failure is not None:
            return
        if self.closing:
            self.session.engine.settle_run(run, self.spec.default_outcome or RELEASED)
            return
        payloads, run.payloads = run.payloads, [b""] * len(run.payloads)
        sizes = list(map(len, payloads))
        self.buffer.append(PayloadLot(self.session.number, run.first_id, sizes, payloads))
        self._count_in(len(sizes), sum(sizes))

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Messages arrived one by one."""
        if self.failure is not None:
            return
        if self.closing:
            self._return_to_sender(deliveries)
            return
        lots = [
            PayloadLot(number, one.delivery_id, [len(one.payload)], [one.payload])
            for number, one in enumerate(deliveries, self.session.number)
        ]
        for delivery in deliveries:
            delivery.payload = b""
        self.buffer.extend(lots)
        self._count_in(len(lots), sum([lot.sizes[0] for lot in lots]))

    def on_interrupted(self, failure: Failure) -> None:
        """The connection is lost, and will be restored."""
        super().on_interrupted(failure)
        self._withdrawn.clear()  # another session counts its own

    def _drop_buffer(self) -> None:
        self._give_back_lots(self.empty_buffer())  # type: ignore[arg-type]  # lots are what is in it

    def withdraw(self, delivery: Delivery) -> bool:
        """The peer took back a delivery. False: where it is in the buffer, it is left out when its turn comes."""
        self._withdrawn.add(delivery.delivery_id)
        return False

    def settle_leftovers(self) -> None:
        """Give what has no outcome, at the close, that of the mode, or the default-outcome of the link."""
        mode, wanted = self.mode, self.spec.default_outcome
        buffered, handed_out = list(self.buffer), list(self._out)
        self.buffer.clear()
        self._out.clear()
        for lots, outcome in (buffered, mode.left_in_buffer), (handed_out, mode.left_handed_out):
            count = sum([lot.count for lot in lots])
            if outcome is not None and count:
                self._settle_lots(lots, wanted or outcome, self.session.kinds.receipt(count))

    def open_receipts(self) -> list[SettlementReceipt]:
        """Receipts that wait for the peer's answer."""
        return [receipt for receipt in self._receipts if not receipt.done]

    # -- inside --------------------------------------------------------------------------------------------------------

    def _settle_numbers(self, ranges: Sequence[tuple[int, int]], outcome: Outcome, receipt: SettlementReceipt) -> None:
        self._asked.popleft()
        self._settle_lots([lot for first, end in ranges for lot in self._claim(first, end)], outcome, receipt)

    def _settle_lots(self, lots: list[PayloadLot], outcome: Outcome, receipt: SettlementReceipt) -> None:
        told = sent = 0
        if self.failure is None:
            for first_id, count in _stretches([lot for lot in lots if lot.arrived >= self.session.since]):
                second, forgotten = self.session.engine.settle_range(self.link, first_id, count, outcome, receipt)
                told, sent = told + second, sent + forgotten
        found = sum([lot.count for lot in lots])
        if found > told + sent:
            why = self.session.why_late(self, lots[0].arrived, None)
            receipt.note(ReceiptStatus.STALE, found - told - sent, why)
        if receipt.count > found:
            receipt.note(ReceiptStatus.STALE, receipt.count - found, "it has its outcome already")
        if sent:
            self.session.core.await_written(receipt, sent)
        if told:
            self._receipts = [*self.open_receipts(), receipt]
            self.session.core.await_answer(receipt)
        self._give_back_lots(lots)

    def _claim(self, first: int, end: int) -> Iterator[PayloadLot]:
        """Take those of these numbers that are handed out and have no outcome."""
        out = self._out
        at = max(0, bisect_right(out, first, key=_number) - 1)
        while at < len(out) and out[at].number < end:
            lot = out[at]
            if lot.end <= first:
                at += 1
                continue
            kept = []
            if lot.number < first:
                front, lot = lot.cut(first - lot.number)
                kept.append(front)
            if lot.end > end:
                lot, rest = lot.cut(end - lot.number)
                kept.append(rest)
            out[at : at + 1] = kept
            yield lot

    def _give_back_lots(self, lots: list[PayloadLot]) -> None:
        """Return the credit of messages."""
        self._warned = False
        since = self.session.since
        for lot in lots:
            if lot.arrived >= since:
                self.held -= lot.count
                self.held_bytes -= sum(lot.sizes)
                if self._withdrawn:
                    self._withdrawn.difference_update([(lot.first_id + at) & MASK for at in range(lot.count)])
        self.session.core.short_of_credit[self] = None


def _number(lot: PayloadLot) -> int:
    return lot.number


def _stretches(lots: list[PayloadLot]) -> Iterator[tuple[int, int]]:
    """Return the ranges of consecutive delivery-ids: the first, and how many."""
    first_id = count = 0
    for lot in lots:
        if count and lot.first_id == (first_id + count) & MASK:
            count += lot.count
            continue
        if count:
            yield first_id, count
        first_id, count = lot.first_id, lot.count
    if count:
        yield first_id, count


__all__ = ["RunReceiverCore"]

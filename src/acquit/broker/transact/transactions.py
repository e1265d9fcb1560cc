"""Transactions: postings and outcomes that happen together, or not at all (specification 4).

Theory of operation. A transaction belongs to the connection that declared it, and gathers two things:

    postings       recorded as HELD under a provisional sequence, and in no queue: see `held_postings`
    retirements    outcomes of deliveries. Their messages stay ACQUIRED, and the transaction has their outcome: as a
                   `Retirement` in the place where the delivery had its message, so that an outcome from elsewhere finds
                   no message there, and in `life.retiring`, which forgets it when the message is taken away. A run that
                   was accepted and settled is behind no delivery any more: it stays a run, as a `RetiredRun`, until
                   somebody comes to one of its messages

**Commit** is one record in one batch, made in one turn of the loop. Its events let the postings enter their queues,
each under a fresh sequence, which is its place there, and retire what was accepted; other outcomes are performed in
the same turn by `settling`, as if they were said now. All that needs the disk is done before (bodies for dead letters)
or waits for the sync: the answer, what is now available, the settlement of deliveries that their receiver left
unsettled. A commit of which anything cannot be done any more is refused, and the transaction rolled back.

**Rollback** gives deliveries back as they were. Those that the receiver had settled cannot come back to it: for them
the source's default-outcome says what becomes of them (4.4.4). Nobody waits for the disk: what is not committed there
is rolled back by a restart as well.

**Failed.** Work that could not be done, and of which nobody could be told (a settled posting that was refused, an
outcome for a delivery that is not there any more), makes the transaction fail: it goes on holding what it has, and
every commit of it is refused. So does its time, if it is limited; then what it held is given back at once.

A transaction is recorded (TRANSACTION) with its first durable posting, or in the batch of its commit. One that only
retires and is lost in a crash has left no trace, and needs none. One in which all is volatile is answered at once, as
each of its postings and outcomes would be without it: it is recorded for its fate alone, with others, now and then.
"""

from __future__ import annotations

import secrets
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from acquit.broker.links.endpoints import verdict_of
from acquit.broker.message import DURABLE, Message
from acquit.broker.message_run import MessageRun
from acquit.broker.queue import LOSSES, Ending, NodeState, Verdict
from acquit.broker.refusal import Refused
from acquit.broker.transact.fates import Fates
from acquit.broker.transact.held_postings import HeldPostings, HeldRun, entering_events
from acquit.broker.transact.retirement import CONTESTED, RetiredRun, Retirement
from acquit.broker.transact.transaction import Held, Phasing, Read, Transaction
from acquit.errors import StoreFull
from acquit.ledger import records
from acquit.ledger.events import ATTEMPT_MAX, EVENT, EventKind, pack_event
from acquit.ledger.recorder import RECORD_BYTES
from acquit.ledger.records import Verdict as Fate
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import (
    Accepted,
    AmqpCondition,
    Error,
    Modified,
    RcvSettleMode,
    Rejected,
    Released,
    TransactionalState,
    TransactionCondition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from acquit.broker.dispatching.browsing import Browser
    from acquit.broker.dispatching.consumers import Consumer
    from acquit.broker.dispatching.reading import Reading
    from acquit.broker.intake.arrival import Arrival
    from acquit.broker.intake.duplicates import Duplicates
    from acquit.broker.intake.entering import Entering
    from acquit.broker.life import Life
    from acquit.broker.links.endpoints import Producer
    from acquit.broker.links.peers import Peer
    from acquit.broker.nodes.finding import Nodes
    from acquit.broker.nodes.node import Queue
    from acquit.broker.options import TransactionLimits
    from acquit.broker.outcomes.settling import Settling
    from acquit.protocol.delivery import Delivery, Outcome, ReceivedRun, SentRun

TXN_ID_BYTES: Final = 16
IDS: Final = 64
"""Transactions for whose ids the system is asked at once."""
VOLATILE_MAX: Final = 64
"""Commits of what is volatile that are recorded together."""
OUTCOME_BYTES: Final = 4_096
"""Bytes that the journal needs room for, beside the message, where an outcome may send it elsewhere."""
_ACCEPTED: Final = int(EventKind.ACCEPTED)


class Transactions:
    """All transactions of one broker."""

    def __init__(
        self,
        life: Life,
        limits: TransactionLimits,
        entering: Entering,
        settling: Settling,
        nodes: Nodes,
        duplicates: Duplicates,
        reading: Reading,
    ) -> None:
        self._life = life
        self._scribe = life.scribe
        self.limits = limits
        """Limits of transactions; may be replaced at any time."""
        self._entering = entering
        self._settling = settling
        self._nodes = nodes
        self._duplicates = duplicates
        self._reading = reading
        self.terminate: Callable[[Transaction, Error], None] = lambda transaction, error: None
        """End a transaction's control link. Set by the coordinator."""
        self._live: dict[bytes, Transaction] = {}
        self._counts: dict[Peer, int] = {}
        """Live ones of each connection."""
        self._unrecorded: list[int] = []
        """Numbers of transactions that were rolled back while the journal had no room at all."""
        self._ids = b""
        """Random bytes for the next ids: the system is asked for those of many at once."""
        self._commits_due: list[bytes] = []
        """Ids of those that committed what is volatile, of which the journal has not heard."""
        self._unsynced: dict[bytes, Transaction] = {}
        """Committed, and the batch that says so is not synced."""
        self.postings = HeldPostings(life, entering, nodes)
        self.fates = Fates(self._scribe.recorder, self._scribe.time_us)

    @property
    def open(self) -> int:
        """Transactions that are declared and have not ended."""
        return len(self._live)

    def retired_of(self, queue: Queue) -> list[Message]:
        """Messages of a queue that are acquired and have an outcome in a transaction."""
        retired = []
        for transaction in self._live.values():
            if any(run.messages.queue is queue for run in transaction.runs):
                self._lay_out(transaction)
            retired += [one.message for one in transaction.retirements if one.message.queue is queue]
        return retired

    # -- for the coordinator ------------------------------------------------------------------------------------------

    def declare(self, peer: Peer, owner: object) -> Transaction:
        """A new one. Raises Refused for one too many."""
        limit = self.limits.per_connection_max
        count = self._counts.get(peer, 0)
        if count >= limit:
            raise Refused(
                f"this connection has {limit} transactions, no more are declared",
                condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
            )
        if not self._ids:
            self._ids = secrets.token_bytes(IDS * TXN_ID_BYTES)
        txn_id, self._ids = self._ids[:TXN_ID_BYTES], self._ids[TXN_ID_BYTES:]
        self._live[txn_id] = transaction = Transaction(txn_id, peer, owner, self._scribe.time_us)
        self._counts[peer] = count + 1
        return transaction

    def find(self, peer: Peer, txn_id: object) -> Transaction:
        """A live one of this connection. Raises Refused for any other."""
        transaction = self._live.get(txn_id) if isinstance(txn_id, bytes) else None
        if transaction is None or transaction.peer is not peer or transaction.phase is not Phasing.OPEN:
            raise Refused("there is no such transaction", condition=TransactionCondition.UNKNOWN_ID)
        return transaction

    def commit(self, transaction: Transaction, answer: Callable[[Error | None], None]) -> None:
        """Commit it; `answer` comes when it is known what became of that."""
        transaction.phase = Phasing.COMMITTING
        self._go_on(transaction, answer)

    def roll_back(self, transaction: Transaction, ending: Ending = Ending.SETTLED) -> None:
        """Roll it back. `ending`: how it came to that, for deliveries that cannot go back to a receiver."""
        if transaction.phase is Phasing.ENDED:
            return
        self._give_back(transaction, ending)
        self._record_rollback(transaction)
        self._end(transaction)
        self._ended(transaction, Fate.ROLLED_BACK)

    def abandon(self, peer: Peer, ending: Ending, owner: object = None) -> None:
        """The connection has ended, or only the control link `owner`: roll back what is live there.

        Messages that have an outcome there were seen by whoever said it: to close over a transaction is to roll it back
        (4.4), and no link that leaves them behind unseen."""
        for transaction in [one for one in self._live.values() if one.peer is peer and owner in (None, one.owner)]:
            for retirement in transaction.retirements:
                retirement.settled = retirement.settled or owner is None
            self.roll_back(transaction, ending if ending in LOSSES else Ending.SETTLED)

    def fail(self, peer: Peer, txn_id: bytes) -> None:
        """The peer said something of deliveries that are settled here: what it believes is done cannot be."""
        transaction = self._live.get(txn_id)
        if transaction is not None and transaction.peer is peer:
            transaction.fail(
                TransactionCondition.TRANSACTION_ROLLBACK, "an outcome was for a delivery that is not known any more"
            )

    def __len__(self) -> int:
        """Return how many are live."""
        return len(self._live)

    def __iter__(self) -> Iterator[Transaction]:
        """Go through those that are live, the oldest first."""
        return iter(self._live.values())

    # -- for who asks -------------------------------------------------------------------------------------------------

    def live(self, txn_id: bytes, user: str) -> Transaction | None:
        """Return the transaction if it is live and this user's; None otherwise."""
        transaction = self._live.get(txn_id)
        return transaction if transaction is not None and transaction.user == user else None

    def fate(self, txn_id: bytes, user: str) -> str | None:
        """Return what became of a transaction that is not live; None: ask again after the next sync."""
        if txn_id in self._unsynced:
            return None
        return self.fates.of(txn_id, user)

    @property
    def fates_kept_ms(self) -> int:
        """Milliseconds for which it is known now what became of a transaction: who declared one within that time, and
        hears that nothing is known of it, knows that it was not committed."""
        return min(self.limits.fates_kept_ms, self.fates.known_for_us(self._scribe.time_us) // 1000)

    def expire(self) -> None:
        """Give back what those hold that were idle for too long, record what is due, and forget old fates. Now and
        then."""
        time_us = self._scribe.time_us
        self._record_rollbacks()
        self.tell_volatile()
        self._forget_fates()
        timeout_us = self.limits.idle_timeout_ms * 1000
        if not timeout_us:
            return
        for transaction in list(self._live.values()):
            idle = transaction.phase is Phasing.OPEN and transaction.used_us + timeout_us <= time_us
            if idle and not transaction.empty:
                transaction.fail(
                    TransactionCondition.TRANSACTION_TIMEOUT,
                    f"nothing was done in it for {self.limits.idle_timeout_ms} milliseconds",
                )
                self._give_back(transaction, Ending.SETTLED)
                self._record_rollback(transaction)
                transaction.number = 0  # should more be done in it, the journal must hear of it again

    def tell_volatile(self) -> None:
        """Record the commits of what is volatile that the journal has not heard of."""
        try:
            self._record_volatile()
        except StoreFull:
            self._scribe.exhausted = True

    def clock_set(self, by_us: int) -> None:
        """The wall clock jumped: what was idle for so long still was for as long."""
        for transaction in self._live.values():
            transaction.used_us += by_us
            transaction.declared_us += by_us
        self.fates.clock_set(by_us)

    # -- postings -----------------------------------------------------------------------------------------------------

    def run(self, transaction: Transaction, producer: Producer) -> HeldRun | None:
        """Begin to hold plain postings of this link; None where each of them needs a closer look."""
        queue = producer.queue
        if queue is None or not queue.durable or not queue.plain or transaction.failed is not None:
            return None
        return HeldRun(self._life, self.postings, self._duplicates, self.limits, transaction, producer, queue)

    def hold_run(self, producer: Producer, came: ReceivedRun, state: TransactionalState) -> bool:
        """Hold postings that came together, and answer them. False where one of them must be looked at by itself:
        nothing is changed then. (Links that post in no transaction take no runs.)"""
        if came.message_format:
            return False
        try:
            transaction = self.find(producer.peer, state.txn_id)
        except Refused:
            return False
        run = self.run(transaction, producer)
        if run is None or not run.take_all(came.payloads):
            return False
        run.close()
        producer.link.session.settle_run(came, transaction.accepted)
        return True

    def hold(self, transaction: Transaction, arrival: Arrival, delivery: Delivery) -> None:
        """Record a posting, which enters its queues at the commit. Raises Refused, DecodeError or StoreFull; nothing is
        changed then."""
        transaction.used_us = self._scribe.time_us
        if transaction.failed is not None:
            raise Refused(
                f"the transaction has failed: {transaction.failed.description}", condition=transaction.failed.condition
            )
        held = self.postings.hold(transaction, arrival, delivery, self.limits)
        if arrival.posting.identity is not None:
            self._duplicates.held(arrival.posting.identity, transaction, held.sequence)

    def answer_postings(self, transaction: Transaction, deliveries: list[Delivery], outcome: Outcome) -> None:
        """Tell their sender the outcome that they will have (4.4.1)."""
        state = transaction.accepted if outcome is ACCEPTED else TransactionalState(transaction.txn_id, outcome)
        link = deliveries[0].link
        if link.rcv_settle_mode is RcvSettleMode.SECOND:
            # To settle it, an outcome is needed that is not provisional: that comes with the commit.
            for delivery in deliveries:
                delivery.update(state)
        else:
            link.session.settle_all(deliveries, state)

    # -- retirements --------------------------------------------------------------------------------------------------

    def retire(self, consumer: Consumer, deliveries: list[Delivery], state: TransactionalState, settled: bool) -> None:
        """An outcome in a transaction, of deliveries of one link."""
        try:
            transaction = self.find(consumer.peer, state.txn_id)
        except Refused as exc:
            # What is settled cannot be told to anybody any more, and is not to stay acquired for ever.
            for delivery in deliveries:
                if isinstance(delivery.context, Retirement):
                    delivery.context.settled = delivery.context.settled or settled
            self._settling.conclude(consumer, deliveries, None, Ending.SETTLED)
            consumer.link.detach(Error(exc.condition, exc.description))
            return
        outcome = _outcome_of(state)
        if outcome is None and not settled:
            return  # nothing is asked for
        transaction.used_us = self._scribe.time_us
        limit = self.limits.retirements_max
        left = limit - transaction.retired
        retirements, retiring = transaction.retirements, self._life.retiring
        accepted = verdict_of(outcome) is Verdict.ACCEPTED
        contested = False
        for at, delivery in enumerate(deliveries):
            message = delivery.context
            if message.__class__ is Message and message.holder is consumer:
                if left <= 0:
                    transaction.fail(
                        TransactionCondition.TRANSACTION_ROLLBACK, f"a transaction holds no more than {limit} outcomes"
                    )
                    if settled:
                        self._settling.conclude(consumer, deliveries[at:], None, Ending.SETTLED)
                    break
                retirement = Retirement(
                    transaction, consumer, delivery, message, outcome, accepted=accepted, settled=settled
                )
                delivery.context = retiring[message] = retirement
                retirements.append(retirement)
                left -= 1
            elif isinstance(message, Retirement):
                message.settled = message.settled or settled
                contested = contested or message.transaction is not transaction
                contested = contested or outcome not in (None, message.state)
            else:
                transaction.fail(
                    TransactionCondition.TRANSACTION_ROLLBACK,
                    "an outcome was for a message that is not held by its link any more",
                )
        if contested:
            # Two outcomes for one delivery: this one cannot be promised. 4.4.2 wants the control link to end for it.
            error = Error(TransactionCondition.TRANSACTION_ROLLBACK, CONTESTED)
            transaction.fail(error.condition, CONTESTED)
            self.terminate(transaction, error)

    def retire_run(self, consumer: Consumer, sent: SentRun) -> bool:
        """*Accepted* in a transaction, and settled, of messages that were sent together. False where they must be
        looked at one by one: nothing is changed then."""
        messages, state = sent.contexts, sent.state
        if not isinstance(messages, MessageRun) or messages.laid_out is not None:
            return False
        if not isinstance(state, TransactionalState):
            return False
        try:
            transaction = self.find(consumer.peer, state.txn_id)
        except Refused:
            return False
        if transaction.retired + messages.count > self.limits.retirements_max:
            return False
        transaction.used_us = self._scribe.time_us
        retired = RetiredRun(consumer, messages, sent)
        transaction.runs.append(retired)
        if messages.recorded is not None:
            self._life.retired_runs[messages] = partial(self._retire_singly, transaction, retired)
        return True

    def _retire_singly(self, transaction: Transaction, retired: RetiredRun, messages: Sequence[Message]) -> None:
        """Hold the outcome of a run as those of the single messages that it was laid out as."""
        consumer, _, sent = retired
        transaction.runs.remove(retired)
        for message, delivery in zip(messages, sent.deliveries, strict=True):
            retirement = Retirement(transaction, consumer, delivery, message, ACCEPTED, accepted=True, settled=True)
            delivery.context = self._life.retiring[message] = retirement
            transaction.retirements.append(retirement)

    def read(self, browser: Browser, deliveries: list[Delivery], state: TransactionalState, settled: bool) -> None:
        """The same of what a link was shown of a non-destructive queue, which holds nothing for it."""
        try:
            transaction = self.find(browser.peer, state.txn_id)
        except Refused as exc:
            browser.link.detach(Error(exc.condition, exc.description))
            return
        outcome = _outcome_of(state)
        if outcome is None:
            return  # nothing is asked for
        transaction.used_us = self._scribe.time_us
        limit = self.limits.retirements_max
        if transaction.outcomes + len(deliveries) > limit:
            transaction.fail(
                TransactionCondition.TRANSACTION_ROLLBACK, f"a transaction holds no more than {limit} outcomes"
            )
            return
        transaction.reads.append(Read(browser, deliveries, outcome, settled))

    # -- commit -------------------------------------------------------------------------------------------------------

    def _go_on(self, transaction: Transaction, answer: Callable[[Error | None], None]) -> None:
        """Commit, if all that is needed is in memory; go on when it is."""
        if transaction.phase is not Phasing.COMMITTING:
            answer(Error(TransactionCondition.TRANSACTION_ROLLBACK, "the transaction was rolled back"))
            return
        error = transaction.failed or self._obstacle(transaction)
        if error is None:
            lacking = self._settling.lacking(
                [(one.consumer, one.message, one.state) for one in transaction.retirements if not one.accepted]
            )
            if lacking:
                self._settling.once_read(lacking, lambda: self._go_on(transaction, answer))
                return
            try:
                self._perform(transaction, answer)
            except StoreFull as exc:
                error = Error(TransactionCondition.TRANSACTION_ROLLBACK, f"the broker has no room for it: {exc}")
        if error is not None:
            self.roll_back(transaction)
            answer(error)

    def _obstacle(self, transaction: Transaction) -> Error | None:
        """Return the error for what cannot be done any more as it was promised; None if all can."""
        if not all(map(self._stands, transaction.retirements)):
            what = "a message of which it has the outcome was purged, or taken back"
        elif not all(map(self._nodes.exists, {held.target for held in transaction.postings})):
            what = "a queue or topic that it posts to was deleted"
        else:
            return None
        return Error(TransactionCondition.TRANSACTION_ROLLBACK, what)

    def _perform(self, transaction: Transaction, answer: Callable[[Error | None], None]) -> None:
        """All of it, in one turn. Raises StoreFull, with nothing changed."""
        scribe, life = self._scribe, self._life
        if lasting := transaction.lasting:
            self.postings.record(transaction)
        lots = self.postings.lots(transaction, at_once=not (lasting or transaction.repeats))
        events = bytearray().join(entering_events(lot, scribe.time_us) for lot in lots)
        accepted = [one for one in transaction.retirements if one.accepted]
        events += b"".join(self._accepting_event(one) for one in accepted if one.message.flags & DURABLE)
        for run in transaction.runs:
            if run.messages.recorded is not None:
                actor = scribe.actor_number(run.consumer)
                events += scribe.events_of_run(_ACCEPTED, run.messages, actor, transaction.number)
        others = [one for one in transaction.retirements if not one.accepted]
        if lasting:
            reads = sum(len(read.deliveries) for read in transaction.reads)
            needed = RECORD_BYTES + len(events) + reads * EVENT.size + self._duplicates.commit_bytes(transaction)
            needed += sum(one.message.size_bytes + OUTCOME_BYTES for one in others)
            if needed > scribe.recorder.room_bytes:
                raise StoreFull("the disk is full")
            scribe.recorder.append(records.Commit(scribe.time_us, transaction.number, bytes(events)))
        elif not transaction.empty:
            if len(self._commits_due) >= VOLATILE_MAX:
                self._record_volatile()
            self._commits_due.append(transaction.txn_id)
        # From here on nothing can be refused any more, and all of it has room.
        entered: list[list[Message] | MessageRun] = []
        fresh: dict[int, Message] = {}
        for lot in lots:
            self.postings.enter(lot)
            entered.append(lot.messages)
            if isinstance(lot.messages, list) and isinstance(lot.held, list):
                fresh.update(zip([held.sequence for held in lot.held], lot.messages, strict=False))
        self._duplicates.commit(transaction, fresh)
        for consumer, group in groupby(accepted, attrgetter("consumer")):
            self._settling.accept_recorded(consumer, [self._give(retirement) for retirement in group])
        for run in transaction.runs:
            life.retired_runs.pop(run.messages, None)
            self._settling.run_accepted(run.messages, recorded=True)
        for retirement in others:
            if retirement.message.state is NodeState.ACQUIRED:
                self._give(retirement)
                self._settling.conclude(retirement.consumer, [retirement.delivery], retirement.state, Ending.SETTLED)
        for read in transaction.reads:
            self._reading.record(read.browser, read.deliveries, read.outcome)
        queues = [retirement.message.queue for retirement in transaction.retirements]
        queues += [run.messages.queue for run in transaction.runs]
        for queue in dict.fromkeys(queues):
            life.wake(queue)  # it may be empty now, and not needed any more
        self._end(transaction)
        self._unsynced[transaction.txn_id] = transaction
        self._ended(transaction, Fate.COMMITTED)
        if lasting:
            scribe.when_synced(self._committed, transaction, entered, answer)
        elif transaction.repeats:
            scribe.once_durable(self._committed, transaction, entered, answer)
        else:
            self._committed(transaction, entered, answer)

    def _record_volatile(self) -> None:
        """Record commits of what is volatile, for their fates. Raises StoreFull where there is no room for another."""
        recorded = 0
        try:
            for txn_id in self._commits_due:
                self.fates.record(txn_id, self._scribe.time_us)
                recorded += 1
        finally:
            del self._commits_due[:recorded]

    def _accepting_event(self, retirement: Retirement) -> bytes:
        message = retirement.message
        return pack_event(
            message.sequence,
            0,
            self._scribe.time_us,
            message.fingerprint,
            message.queue.number,
            self._scribe.actor_number(retirement.consumer),
            _ACCEPTED,
            DURABLE,
            min(message.attempt, ATTEMPT_MAX),
            retirement.transaction.number,
        )

    def _committed(
        self,
        transaction: Transaction,
        entered: list[list[Message] | MessageRun],
        answer: Callable[[Error | None], None],
    ) -> None:
        """Release what waited for the disk: it has what it must of the commit."""
        del self._unsynced[transaction.txn_id]
        self._entering.committed(entered)
        single = [held.delivery for held in transaction.postings if isinstance(held, Held)]
        for delivery in (*single, *transaction.repeated):
            if not delivery.over:  # its sender settles second
                delivery.settle(ACCEPTED)
        for retirement in transaction.retirements:
            if not retirement.settled:
                session = retirement.consumer.link.session
                session.settle_all([retirement.delivery], retirement.state)
                self._life.touch(session.connection)
        for read in transaction.reads:
            if not read.settled:
                self._reading.settle(read.browser, read.deliveries, read.outcome)
        answer(None)
        self._life.touch(transaction.peer.engine)

    # -- both ends ----------------------------------------------------------------------------------------------------

    def _end(self, transaction: Transaction) -> None:
        transaction.phase = Phasing.ENDED
        del self._live[transaction.txn_id]
        peer = transaction.peer
        self._counts[peer] -= 1
        if not self._counts[peer]:
            del self._counts[peer]

    def _record_rollback(self, transaction: Transaction) -> None:
        if transaction.number:
            self._unrecorded.append(transaction.number)
            self._record_rollbacks()

    def _record_rollbacks(self) -> None:
        """Record rollbacks, as room allows. Nobody waits: no commit is there, and a restart would say the same."""
        while self._unrecorded:
            try:
                self._scribe.recorder.append(records.Rollback(self._scribe.time_us, self._unrecorded[0]))
            except StoreFull:
                self._scribe.exhausted = True
                return
            del self._unrecorded[0]

    def _ended(self, transaction: Transaction, fate: Fate) -> None:
        self.fates.ended(
            transaction.txn_id, fate, transaction.user, self._scribe.time_us, recorded=transaction.number > 0
        )
        if len(self.fates) > self.limits.fates_max:  # what is old goes now and then
            self._forget_fates()

    def _forget_fates(self) -> None:
        try:
            self.fates.forget(self._scribe.time_us, self.limits.fates_kept_ms * 1000, self.limits.fates_max)
        except StoreFull:
            self._scribe.exhausted = True

    def _give_back(self, transaction: Transaction, ending: Ending) -> None:
        """Roll back what it holds; it may go on."""
        self.postings.roll_back(transaction)
        self._duplicates.release(transaction)
        self._lay_out(transaction)
        for retirement in transaction.retirements:
            if not self._stands(retirement):
                retirement.delivery.context = None
                continue
            self._give(retirement)
            if retirement.settled:
                self._settling.conclude(retirement.consumer, [retirement.delivery], None, ending)
                self._life.wake(retirement.message.queue)
        transaction.postings = []
        transaction.posted = 0
        transaction.repeated = []
        transaction.retirements = []
        transaction.reads = []
        transaction.bytes = 0

    def _lay_out(self, transaction: Transaction) -> None:
        """Hold the outcomes of runs as those of single messages."""
        for retired in list(transaction.runs):
            messages = retired.messages.each()
            if retired.messages.recorded is None:  # else `life` has told of it
                self._retire_singly(transaction, retired, messages)

    def _stands(self, retirement: Retirement) -> bool:
        """Return whether its message is still what the outcome was said of: not if it was purged or taken away."""
        message = retirement.message
        return self._life.retiring.get(message) is retirement and message.holder is retirement.consumer

    def _give(self, retirement: Retirement) -> Delivery:
        """Let the message be its delivery's again, which is returned."""
        message, delivery = retirement.message, retirement.delivery
        del self._life.retiring[message]
        delivery.context = message
        return delivery


def _outcome_of(state: TransactionalState) -> Accepted | Rejected | Released | Modified | None:
    """The provisional outcome, if it is one that a receiver can have meant (4.4.2)."""
    said = state.outcome
    return said if isinstance(said, Accepted | Rejected | Released | Modified) else None


__all__ = ["Transactions"]

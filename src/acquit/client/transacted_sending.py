"""A sending link of a session in mode TRANSACTED: its sends are part of the session's transaction.

Theory of operation. A send waits in the queue for credit and for its transaction's id, and has an outcome that holds if
that is committed. What was sent on a connection that is lost was rolled back with it: it has certainly not been taken.
It is sent again in a fresh transaction, or the transaction it was part of has failed (`transacting`). Where its time is
over before that, a transaction without it is not what was asked for, and is not committed.
"""

from __future__ import annotations

from acquit.client.failures import Failure
from acquit.client.options import SenderSpec
from acquit.client.receipts import Provisional, SendPromise, TimeOver
from acquit.client.received import SessionCoreBase
from acquit.client.sending import SenderCore
from acquit.client.transacting import SessionTransactions, Transaction
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import TransactionalState
from acquit.protocol.delivery import Delivery, DeliveryState, is_outcome


class TransactedSender(SenderCore):
    """A sender whose sends are part of the session's transaction."""

    __slots__ = ("_transactions",)

    def __init__(self, session: SessionCoreBase, spec: SenderSpec, transactions: SessionTransactions) -> None:
        super().__init__(session, spec)
        self._transactions = transactions

    def pump(self) -> None:
        """Transfer what the peer gives credit for, once there is a transaction for it; refuse what is of one that
        failed."""
        self._pumps += 1
        if self.failure is not None:
            if self.queue:  # else there is nothing to tell: it would advance the transactions, who pump us, for ever
                self.on_ended(self.failure, [])
            return
        queue, link, transactions = self.queue, self.link, self._transactions
        before = len(queue)
        refused = []
        while queue:
            transaction = transactions.of(queue[0])
            if transaction is None:
                break
            goes = transaction.fate is None
            if goes and not (transaction.txn_id is not None and link.sendable and self.session.core.writable):
                break
            promise = queue.popleft()
            payload = promise.payload
            self._sent_bytes += len(payload)
            promise.state = Provisional(transaction, None)
            if not goes:
                refused.append(promise)
                continue
            assert transaction.txn_id is not None
            promise.transferred = True
            self.in_flight += 1
            state = TransactionalState(transaction.txn_id)
            link.send(next(self._tags), payload, state=state, context=promise)
        for promise in refused:
            if transactions.ending is None:  # else who ends the transaction is told
                self._failed.append(promise)
            promise.settle(promise.state)
            transactions.resolved(promise)
        if len(queue) < before and len(queue) <= self.spec.buffer_messages // 2:
            self.notify()
        if refused:
            transactions.advance()

    def on_states(self, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
        """The peer told what will become of sends, when they are committed."""
        outcome = state.outcome if isinstance(state, TransactionalState) else state
        if not settled:
            if not is_outcome(outcome):
                return  # progress
            self.session.engine.settle_all(deliveries)
        self.in_flight -= len(deliveries)
        for delivery in deliveries:
            promise = delivery.context
            assert isinstance(promise, SendPromise)
            provisional = promise.state
            assert isinstance(provisional, Provisional)
            transaction = provisional.transaction
            assert isinstance(transaction, Transaction)
            transaction.heard_of = True
            provisional.outcome = outcome if is_outcome(outcome) else None
            if outcome != ACCEPTED:
                self._failed.append(promise)
                transaction.failed.append(promise)
            promise.settle(provisional)
            self._transactions.resolved(promise)
        self._transactions.advance()

    def on_interrupted(self, lost: list[Delivery]) -> None:
        """The connection is lost, and what was sent on it was rolled back: it counts as never sent."""
        for delivery in lost:
            if isinstance(promise := delivery.context, SendPromise):
                promise.transferred = False
        super().on_interrupted(lost)

    def on_ended(self, failure: Failure, lost: list[Delivery]) -> None:
        """The link is gone: what was in flight may be part of the transaction or not, so it cannot be committed."""
        gone = [delivery.context for delivery in lost] + list(self.queue)
        super().on_ended(failure, lost)
        for promise in gone:
            if isinstance(promise, SendPromise):
                self._missing(promise)
        self._transactions.advance()

    def _fail(self, promise: SendPromise, failure: Failure | TimeOver | None) -> None:
        super()._fail(promise, failure)
        self._missing(promise)
        self.session.core.post((self._transactions.advance,))  # not now: an interruption may be half done

    def _missing(self, promise: SendPromise) -> None:
        """Note a send without which its transaction is not what was asked for."""
        transactions, state = self._transactions, promise.state
        found = state.transaction if isinstance(state, Provisional) else transactions.of(promise)
        assert found is None or isinstance(found, Transaction)
        (found or transactions.current).failed.append(promise)
        transactions.resolved(promise)

    def withdraw(self, promise: SendPromise, timeout_s: float | None = None) -> None:
        """Take a send back if it has not left: it is not part of the transaction, which is committed without it. One
        that was sent before, on a connection that was lost, was part of it: that is not committed any more."""
        super().withdraw(promise, timeout_s)
        if promise.done:
            if promise.resent:
                self._missing(promise)
            self._transactions.resolved(promise)
            self._transactions.advance()

    def _time_over(self, promise: SendPromise, timeout_s: float | None) -> TimeOver:
        _, reason, known = super()._time_over(promise, timeout_s)
        transaction = self._transactions.of(promise)
        if not self.session.out_of_reach(self):
            if transaction is None:
                reason = "the transaction before it was not ended"
            elif transaction.txn_id is None:
                reason = "the peer declared no transaction"
        if promise.resent:
            known = "what was sent before was rolled back as its connection was lost"
        return TimeOver(timeout_s, reason, known)


__all__ = ["TransactedSender"]

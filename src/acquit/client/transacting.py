"""Transactions of a session, as their controller sees them (specification 4.2 to 4.4).

Theory of operation. All of it is loop side. A session in mode TRANSACTED has one control link, and at most two
transactions: the *current* one, which new work joins, and the one that is *ending*. The first work of a transaction (a
send, an outcome, a message handed out) asks the coordinator to declare it; until its id is there sends wait in their
queues and outcomes here.

::

    work ─▶ declare ─▶ declared: sends and outcomes carry the id ─▶ end ─▶ discharge ─▶ answered: the fate is known

What was handed out and has no outcome stays unsettled, and is accepted with the commit, in one disposition just before
the discharge. So an explicit outcome is possible until then, and a rollback gives it back by itself. Outcomes in the
transaction are settled; for what is rolled back of these the link's default-outcome speaks.

**Commit** waits for the peer's word on every send. Where one was refused and nobody has heard of it, or a message of
the transaction is not ours any more, it becomes a rollback: all of it, or nothing.

**Rollback** asks all credit back and waits until it is there, gives back what was prefetched (released) and handed out
(modified, delivery-failed), and discharges with *fail*. Then credit is granted again.

A transaction that cannot be committed any more (not declared, its control link gone) is rolled back at once, and
refuses its further sends and receives, until somebody ends it. One whose commit was sent and not answered is *in
doubt*.

**Interruption.** When the connection is lost, the broker rolls back what is not committed. A transaction of which
nobody has heard anything yet (no send of it was answered, nothing received in it) is simply done again on the next
connection, in a fresh one; any other has failed, which is no failure of what was received in it: that goes back
uncounted (released). A commit that was under way is asked about (`fates`) as soon as there
is a connection again; where the broker cannot tell, it is in doubt.

`advance` does what can be done now, and is called after whatever may have made something possible.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from acquit.client.failures import Failure
from acquit.client.fates import FateQuery, Origin, TransactionFate
from acquit.client.modes import FAILED
from acquit.client.options import link_name
from acquit.client.receipts import (
    Milestone,
    Promise,
    ReceiptStatus,
    SendPromise,
    SettlementReceipt,
)
from acquit.client.received import MessageCore, SessionCoreBase
from acquit.client.receiving import ReceiverCore
from acquit.client.sending import SenderCore
from acquit.client.tags import delivery_tags
from acquit.client.transaction_stages import DISCHARGING, FATES, Fate, Stage, TransactionEvent, step
from acquit.errors import (
    AcquitError,
    LinkDetached,
    LocalProtocolError,
    TransactionFailed,
    TransactionInDoubt,
    TransactionRolledBack,
)
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED, RELEASED, Outcome
from acquit.protocol.definitions import (
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Rejected,
    Source,
    TransactionalState,
    TxnCapability,
)
from acquit.protocol.delivery import Delivery, DeliveryState, is_outcome
from acquit.protocol.sections import VALUE_HEAD

OUTCOMES: Final = ("amqp:accepted:list", "amqp:rejected:list", "amqp:declared:list")
"""Outcomes that a control link understands: *rejected* is how a commit is refused without an end of the link (4.3)."""

BY_US: Final = "the transaction was rolled back by us"
"""Reason of a rollback that was asked for."""


class Transaction(Promise):
    """A transaction. It is done when its end is, one way or another."""

    __slots__ = (
        "claimed",
        "condition",
        "description",
        "failed",
        "given_back",
        "goes_back_as",
        "heard",
        "heard_of",
        "in_doubt",
        "missed",
        "origin",
        "reason",
        "sends",
        "stage",
        "txn_id",
        "waiting",
        "wanted",
    )

    def __init__(self, in_doubt: type[TransactionFailed] = TransactionInDoubt) -> None:
        """`in_doubt`: what is raised where its fate is not known."""
        super().__init__()
        self.in_doubt = in_doubt
        self.txn_id: bytes | None = None
        self.origin: Origin | None = None
        """Place and time at which the transaction was declared; None before."""
        self.stage = Stage.FRESH
        self.reason = ""
        self.condition: str | None = None
        self.description: str | None = None
        self.given_back = False
        self.goes_back_as: Outcome = FAILED
        """Outcome that a rollback gives what was received."""
        self.heard = False
        """True if somebody has been told how the transaction ended."""
        self.wanted = False
        """True if its commit was asked for, and no rollback after that: it is told where it was not committed."""
        self.sends: set[SendPromise] = set()
        """Sends whose outcome is awaited, while the transaction is ending."""
        self.failed: list[SendPromise] = []
        self.claimed: list[MessageCore] = []
        """Messages that were handed out without an outcome, while the transaction is ending. Those that were given one
        that was never said go back with them."""
        self.waiting: list[tuple[Sequence[MessageCore], Outcome, SettlementReceipt]] = []
        """Outcomes that wait for its id."""
        self.missed: str | None = None
        """The reason why an outcome given in the transaction has no effect; None where there is no such outcome."""
        self.heard_of = False
        """True if something was learnt of the transaction: an outcome of a send, a message received in it. Then it
        cannot be done again as if nothing had been."""

    @property
    def fate(self) -> Fate | None:
        """The fate of the transaction; None while that is open."""
        return FATES.get(self.stage)

    @property
    def discharging(self) -> bool:
        """True if the end of the transaction is under way, and not answered."""
        return self.stage in DISCHARGING

    @property
    def is_idle(self) -> bool:
        """True if nothing was done in the transaction."""
        nothing_asked = self.stage is Stage.FRESH or self.stage is Stage.ROLLED_BACK
        return nothing_asked and self.txn_id is None and not (self.claimed or self.waiting or self.failed)

    def apply(
        self, event: TransactionEvent, reason: str = "", condition: str | None = None, description: str | None = None
    ) -> None:
        """Go on as the table says. `reason` and what follows it are why, where its fate is another now."""
        before = self.fate
        self.stage = step(self.stage, event)
        if self.fate is not before and reason:
            self.reason, self.condition, self.description = reason, condition, description

    def roll_back(self, reason: str, condition: str | None = None, description: str | None = None) -> None:
        """Decide that the transaction will not be committed any more."""
        self.apply(TransactionEvent.ROLL_BACK, reason, condition, description)

    def error(self) -> TransactionFailed | None:
        """Return the error to raise, freshly made; None if the transaction was committed, or its fate is open."""
        if self.fate is None or self.fate is Fate.COMMITTED:
            return None
        kind = TransactionRolledBack if self.fate is Fate.ROLLED_BACK else self.in_doubt
        return kind(self.reason, txn_id=self.txn_id, condition=self.condition, description=self.description)


class Request(NamedTuple):
    """A request to the coordinator."""

    transaction: Transaction
    body: Declare | Discharge


class ControlLink:
    """The control link of a session."""

    what = "the transactions' control link"

    def __init__(self, transactions: SessionTransactions) -> None:
        self.attached = Milestone()
        self.failure: Failure | None = None
        self._transactions = transactions
        self._queue: deque[Request] = deque()
        self._tags = delivery_tags()
        self.attach()

    def attach(self) -> None:
        """Attach, for the first time or on another connection. What was asked for on the last one is forgotten."""
        wanted = Coordinator((TxnCapability.LOCAL_TRANSACTIONS,))
        try:
            self._link = self._transactions.session.engine.attach_sender(
                link_name("transactions"), source=Source(outcomes=OUTCOMES), target=wanted, context=self
            )
        except LocalProtocolError as exc:  # no handle is left
            self.on_ended(Failure(LinkDetached, f"{self.what} was detached by us: {exc}"))

    def forget(self) -> set[Transaction]:
        """The connection is lost. Returns whose discharge never left."""
        waiting, self._queue = self._queue, deque()
        return {request.transaction for request in waiting if isinstance(request.body, Discharge)}

    def ask(self, transaction: Transaction, body: Declare | Discharge) -> None:
        """Send a request as soon as there is credit for it."""
        self._queue.append(Request(transaction, body))
        self.pump()

    def pump(self) -> None:
        """Send what waits, while there is credit."""
        while (
            self.failure is None
            and self._queue
            and self._link.sendable
            and not self._transactions.session.core.interrupted
        ):
            request = self._queue.popleft()
            payload = VALUE_HEAD + encode_composite(request.body)
            self._link.send(next(self._tags), payload, settled=False, context=request)

    def on_attached(self) -> None:
        """The peer has a coordinator."""
        self.attached.succeed()

    def on_ended(self, failure: Failure) -> None:
        """Note that the link is gone, and with it the transactions that were declared on it (4.2)."""
        if self.failure is None:
            self.failure = failure
            self.attached.fail(failure)
            self._transactions.on_control_ended(failure)

    def on_states(self, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
        """The coordinator answers."""
        if not settled:
            if not is_outcome(state):
                return
            self._transactions.session.engine.settle_all(deliveries)
        for delivery in deliveries:
            asked = delivery.context
            assert isinstance(asked, Request)
            if isinstance(asked.body, Declare):
                self._transactions.on_declared(asked.transaction, state)
            else:
                self._transactions.on_discharged(asked.transaction, state)


class SessionTransactions:
    """The transactions of one session."""

    def __init__(self, session: SessionCoreBase, senders: list[SenderCore], receivers: list[ReceiverCore]) -> None:
        """`senders` and `receivers` are the session's own lists."""
        self.session = session
        self._senders = senders
        self._receivers = receivers
        self.control: ControlLink | None = None
        as_jms = session.core.options.in_doubt_is_rolled_back
        self._in_doubt = TransactionRolledBack if as_jms else TransactionInDoubt
        self.current = Transaction(self._in_doubt)
        self.ending: Transaction | None = None
        self._last: Transaction | None = None
        self._advancing = False
        self._again = False

    # -- asked for by the session's user -------------------------------------------------------------------------------

    def open(self) -> ControlLink:
        """Attach the control link, if there is none."""
        if self.control is None or self.control.failure is not None:
            self.control = ControlLink(self)
        return self.control

    @property
    def unheard(self) -> Transaction | None:
        """The transaction that was, or is being, ended by somebody who stopped waiting for it."""
        return self._last if self._last is not None and not self._last.heard else None

    @property
    def refusal(self) -> AcquitError | None:
        """The error of what would be done in the current transaction; None while that can be committed (user side)."""
        return self.current.error() if self.session.failure is None else None

    @property
    def untouched(self) -> bool:
        """True if nothing was done in the current transaction."""
        return self.current.stage is Stage.FRESH and not (self.current.failed or self._work)

    def end(self, *, commit: bool) -> Transaction:
        """End the current transaction. None may be ending."""
        session = self.session
        ending, self.current = self.current, Transaction(self._in_doubt)
        self.ending = self._last = ending
        ending.wanted = commit
        if not commit or session.mode.commits_all:
            ending.claimed += [message for message in list(session.handed_out.values()) if session.claim(message)]
        for message in ending.claimed:
            message.outcome = ACCEPTED if commit else FAILED
        ending.sends = {promise for sender in self._senders for promise in sender.unfinished()}
        if not commit:
            ending.roll_back(BY_US)
        self.advance()
        return ending

    def turn(self, ending: Transaction) -> None:
        """Roll back, if that is still possible, what somebody wanted to commit."""
        ending.wanted = False
        if not ending.discharging:
            ending.roll_back(BY_US)
            self.advance()

    def give_up(self, ending: Transaction, within: str) -> None:
        """End a transaction whose time is over with what is known."""
        if ending.done:
            return
        if not ending.discharging:
            ending.roll_back(f"the transaction could not be committed{within}, and was rolled back")
            self._give_back(ending)
            if ending.stage is Stage.VOID:
                self._discharge(ending, fail=True)
        elif ending.fate is None:
            ending.apply(
                TransactionEvent.UNCLEAR,
                f"no answer to the commit{within}: it may or may not have happened",
                ending.condition,
                ending.description,
            )
        self._finish(ending)
        self.advance()

    def settle(self, messages: Sequence[MessageCore], outcome: Outcome, receipt: SettlementReceipt) -> None:
        """Give messages their outcome in the current transaction."""
        current = self.current
        failure = self.session.failure
        if failure is not None or current.fate is not None:
            receipt.note(ReceiptStatus.STALE, len(messages), failure.message if failure is not None else current.reason)
            current.claimed += messages
            return
        current.waiting.append((messages, outcome, receipt))
        self._say_waiting(current)
        if current.waiting:
            self.session.core.await_answer(receipt)  # the peer may never declare the transaction
        self.advance()

    def open_receipts(self) -> list[SettlementReceipt]:
        """Receipts of outcomes that are not said yet."""
        return [receipt for _, _, receipt in self.current.waiting]

    # -- what happens --------------------------------------------------------------------------------------------------

    def of(self, promise: SendPromise) -> Transaction | None:
        """The transaction that a send which waits belongs to; None while another has to end first."""
        if self.ending is None:
            return self.current
        return self.ending if promise in self.ending.sends else None

    def resolved(self, promise: SendPromise) -> None:
        """A send has ended, or was taken back."""
        if self.ending is not None:
            self.ending.sends.discard(promise)

    def on_declared(self, transaction: Transaction, state: DeliveryState | None) -> None:
        """The answer to a declare."""
        if isinstance(state, Declared):
            transaction.txn_id = state.txn_id
            transaction.apply(TransactionEvent.DECLARED)
            if transaction.done:  # given up meanwhile
                self._discharge(transaction, fail=True)
                return
            if transaction.fate is None:
                self._say_waiting(transaction)
                for sender in self._senders:
                    sender.pump()
        else:
            condition, description = _error_of(state)
            transaction.roll_back(
                f"the peer declared no transaction: {description or condition or 'no reason given'}",
                condition,
                description,
            )
            transaction.apply(TransactionEvent.GONE)
        self._refuse_queued(transaction)
        self.advance()

    def on_discharged(self, transaction: Transaction, state: DeliveryState | None) -> None:
        """The answer to a discharge."""
        if state == ACCEPTED:
            transaction.apply(TransactionEvent.COMMITTED)
        elif isinstance(state, Rejected):
            condition, description = _error_of(state)
            transaction.apply(
                TransactionEvent.ROLLED_BACK,
                f"the peer rolled the transaction back: {description or 'no reason given'} ({condition})",
                condition,
                description,
            )
        else:
            transaction.apply(TransactionEvent.UNCLEAR, "the peer answered the commit without saying what became of it")
        self._finish(transaction)
        self.advance()

    def on_control_ended(self, failure: Failure) -> None:
        """The control link is gone."""
        for transaction in (self.ending, self.current):
            if transaction is None or transaction.stage is Stage.FRESH:
                continue
            ends = transaction.discharging
            if not ends or (failure.condition or "").startswith("amqp:transaction:"):
                transaction.roll_back(
                    f"the transaction was rolled back: {failure.message}", failure.condition, failure.description
                )
            transaction.apply(
                TransactionEvent.GONE,
                f"no answer to the commit, which may or may not have happened: {failure.message}",
                failure.condition,
                failure.description,
            )
            if ends:
                self._finish(transaction)
        self._refuse_queued(self.current)
        self.advance()

    def on_session_ended(self, failure: Failure) -> None:
        """Session or connection are gone: what was not committed never will be."""
        if self.control is not None:
            self.control.on_ended(failure)
        reason = f"the transaction was rolled back: {failure.message}"
        if self.session.handed_out or self.current.waiting:
            self.current.roll_back(reason, failure.condition, failure.description)
        self._drop_waiting(self.current, reason)
        if self.ending is not None:
            self.ending.roll_back(reason, failure.condition, failure.description)
            self._finish(self.ending)

    def on_interrupted(self, failure: Failure) -> None:
        """The connection is lost, and will be restored."""
        session = self.session
        unsent = self.control.forget() if self.control is not None else set()
        reason = f"the transaction was rolled back: {failure.message}"
        for transaction in (self.ending, self.current):
            if transaction is None:
                continue
            ends = transaction.discharging
            handed_out = transaction.claimed if transaction is self.ending else session.handed_out
            received = handed_out or transaction.waiting  # for an outcome waits of what was received in it
            self._drop_waiting(transaction, failure.message)
            if ends and transaction.fate is None and transaction not in unsent:
                transaction.apply(TransactionEvent.UNANSWERED)
                transaction.reason = f"no answer to the commit, which may or may not have happened: {failure.message}"
                transaction.condition, transaction.description = failure.condition, failure.description
                continue
            if received or transaction.heard_of or ends:
                transaction.roll_back(reason, failure.condition, failure.description)
                transaction.apply(TransactionEvent.GONE)
                transaction.goes_back_as = RELEASED
            else:
                transaction.txn_id = None
                transaction.apply(TransactionEvent.RESET)
            if ends:
                self._finish(transaction)
        self._refuse_queued(self.current)
        self.advance()

    def restore(self) -> None:
        """Attach the control link on the next connection, and ask for the fate of a commit that was not answered."""
        if self.control is not None and self.control.failure is None:
            self.control.attach()
        ending = self.ending
        if ending is not None and ending.stage is Stage.ASKING:
            self._ask_fate(ending)
        self.advance()

    def _ask_fate(self, ending: Transaction) -> None:
        """Ask what became of a commit. The question ends with the connection, and is asked again on the next."""
        assert ending.txn_id is not None
        try:
            query = FateQuery(self.session, ending.txn_id, ending.origin)
        except LocalProtocolError:  # no handle is left
            ending.apply(TransactionEvent.UNCLEAR)
            self._finish(ending)
            return
        query.done.when_done(lambda: self._fate_told(ending, query))

    def _fate_told(self, ending: Transaction, query: FateQuery) -> None:
        if query.done.failure is not None:
            return
        if query.answer is TransactionFate.COMMITTED:
            ending.apply(TransactionEvent.COMMITTED)
        elif query.answer is TransactionFate.ROLLED_BACK:
            ending.apply(
                TransactionEvent.ROLLED_BACK,
                f"{ending.reason}; the broker says that it was rolled back",
                ending.condition,
                ending.description,
            )
        else:
            ending.apply(TransactionEvent.UNCLEAR)
        self._finish(ending)
        self.advance()

    def advance(self) -> None:
        """Do what can be done now."""
        self._again = True
        if self._advancing:  # we have come here by what is being done
            return
        self._advancing = True
        try:
            while self._again:
                self._again = False
                if self.ending is not None:
                    self._advance_end(self.ending)
                if self.ending is None:
                    self._begin_work()
        finally:
            self._advancing = False

    # -- inside --------------------------------------------------------------------------------------------------------

    def _begin_work(self) -> None:
        current, session = self.current, self.session
        if current.stage is not Stage.FRESH or session.failure is not None:
            return
        if not session.engine.writable:  # interrupted, or ending
            return
        if self._work:
            self._declare(current)

    @property
    def _work(self) -> bool:
        """True if something was done of which the coordinator has to hear."""
        return bool(self.session.handed_out or self.current.waiting or any(sender.queue for sender in self._senders))

    def _declare(self, transaction: Transaction) -> None:
        transaction.apply(TransactionEvent.DECLARE)
        transaction.origin = Origin.of(self.session.core)
        self.open().ask(transaction, Declare())

    def _discharge(self, transaction: Transaction, *, fail: bool) -> None:
        assert transaction.txn_id is not None
        assert self.control is not None
        transaction.apply(TransactionEvent.DISCHARGE)
        self.control.ask(transaction, Discharge(transaction.txn_id, fail))

    def _advance_end(self, ending: Transaction) -> None:
        if self.session.failure is not None:
            if not ending.is_idle:
                ending.roll_back(f"the transaction was rolled back: {self.session.failure.message}")
            self._finish(ending)
            return
        if ending.discharging:
            return
        if ending.fate is None and not self._advance_commit(ending):
            return
        if ending.fate is Fate.ROLLED_BACK:
            self._advance_rollback(ending)

    def _advance_commit(self, ending: Transaction) -> bool:
        """A step to the commit. True when it came out that there will be none."""
        if ending.stage is not Stage.DECLARED:
            if ending.is_idle and not ending.sends:
                ending.apply(TransactionEvent.COMMITTED)
                self._finish(ending)
            elif ending.stage is Stage.FRESH and self.session.engine.writable:
                self._declare(ending)
            return False
        for sender in self._senders:
            sender.pump()
        if ending.sends:
            return False
        unfit = _unfit(ending)
        if unfit is not None:
            ending.roll_back(unfit)
            return True
        self._say(ending, ending.claimed, ACCEPTED, None)
        self._discharge(ending, fail=False)
        return False

    def _advance_rollback(self, ending: Transaction) -> None:
        if ending.is_idle and not ending.sends:
            self._finish(ending)
            return
        self._give_back(ending)
        declaring = ending.stage is Stage.VOID_DECLARING
        if ending.sends or declaring or not all(receiver.returned for receiver in self._receivers):
            return
        if ending.stage is Stage.ROLLED_BACK:
            self._finish(ending)
        else:
            self._discharge(ending, fail=True)

    def _give_back(self, ending: Transaction) -> None:
        """Give back what was received in a transaction, and what would come then; what was not sent never will be."""
        if ending.given_back:
            return
        ending.given_back = True
        engine, since = self.session.engine, self.session.since
        self._drop_waiting(ending, ending.reason)
        outcome = ending.goes_back_as
        for message in ending.claimed:
            message.outcome = outcome
        buffered = [message for receiver in self._receivers for message in receiver.return_buffer()]
        engine.settle_all([message.delivery for message in ending.claimed if message.number >= since], outcome)
        engine.settle_all([message.delivery for message in buffered], RELEASED)
        self._refuse_queued(ending)

    def _finish(self, transaction: Transaction) -> None:
        if transaction.done:
            return
        session = self.session
        for promise in transaction.failed:
            promise.asked = True  # who ends the transaction is told
        if self.ending is transaction:
            self.ending = None
            transaction.sends = set()
            for receiver in self._receivers:
                if not transaction.given_back:
                    session.core.short_of_credit[receiver] = None  # what was unsettled is not any more
                elif not session.closing:
                    receiver.resume()
        transaction.end()
        for sender in self._senders:
            sender.pump()

    def _refuse_queued(self, transaction: Transaction) -> None:
        if transaction.fate is not None:
            for sender in tuple(self._senders):
                sender.pump()
            for receiver in self._receivers:
                receiver.notify()

    @staticmethod
    def _drop_waiting(transaction: Transaction, reason: str) -> None:
        waiting, transaction.waiting = transaction.waiting, []
        for messages, _, receipt in waiting:
            transaction.claimed += messages
            receipt.note(ReceiptStatus.STALE, len(messages), reason)

    def _say_waiting(self, transaction: Transaction) -> None:
        if transaction.txn_id is not None:
            waiting, transaction.waiting = transaction.waiting, []
            for messages, outcome, receipt in waiting:
                self._say(transaction, messages, outcome, receipt)

    def _say(
        self,
        transaction: Transaction,
        messages: Sequence[MessageCore],
        outcome: Outcome,
        receipt: SettlementReceipt | None,
    ) -> None:
        session = self.session
        assert transaction.txn_id is not None
        since = session.since
        ours = [m.delivery for m in messages if m.number >= since and not m.delivery.over]
        transaction.heard_of = True
        session.engine.settle_all(ours, TransactionalState(transaction.txn_id, outcome))
        for message in messages:
            session.core.short_of_credit[message.receiver] = None
        if receipt is None:
            return
        if len(ours) < len(messages):
            late = next(message for message in messages if message.delivery not in ours)
            transaction.missed = session.why_stale(late)
            receipt.note(ReceiptStatus.STALE, len(messages) - len(ours), transaction.missed)
        if ours:
            session.core.await_written(receipt, len(ours))
            session.core.post((session.say_all,))  # in answer to an event nobody else would tell when it is written


def _unfit(ending: Transaction) -> str | None:
    """Return why a transaction must not be committed; None if it may."""
    for promise in ending.failed:
        # Of a send that was refused its sender may know, and want the rest; of one that is in doubt nobody knows.
        if promise.outcome is None or not promise.asked:
            return f"the transaction was rolled back, for a send in it failed: {promise.error()}"
    if ending.missed is not None:
        return f"the transaction was rolled back, for an outcome in it has no effect: {ending.missed}"
    for message in ending.claimed:
        if message.delivery.over or message.number < message.receiver.session.since:
            return (
                "the transaction was rolled back, for a message received in it is not ours any more: "
                f"{message.receiver.session.why_stale(message)}"
            )
    return None


def _error_of(state: DeliveryState | None) -> tuple[str | None, str | None]:
    error = state.error if isinstance(state, Rejected) else None
    return (None, None) if error is None else (error.condition, error.description)


__all__ = ["BY_US", "ControlLink", "SessionTransactions", "Transaction"]

"""The coordinator: the target that transactions are declared and discharged at (4.2, 4.3).

Each control link is its own; when it goes, every live transaction that was declared on it is rolled back. A declare is
answered at once with an id of 16 random bytes, a discharge that commits when its batch is synced, one that rolls back
at once: nobody relies on what is not there.

What goes wrong is told as the controller said it can hear it: *rejected* with the error if its source lists that
outcome or says nothing of outcomes, and otherwise, or when it settled its own message, by detaching the link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.links.endpoints import takes_rejected
from acquit.broker.links.peers import Actor, Peer
from acquit.broker.queue import Ending
from acquit.broker.refusal import Refused
from acquit.broker.transact.requests import RequestReader
from acquit.errors import RemoteProtocolError
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import (
    AmqpCondition,
    Declare,
    Declared,
    Discharge,
    Error,
    Rejected,
    TransactionalState,
    TransactionCondition,
    TxnCapability,
)
from acquit.protocol.definitions import Coordinator as CoordinatorTarget
from acquit.protocol.link import ReceivingLink

if TYPE_CHECKING:
    from collections.abc import Callable

    from acquit.broker.transact.transaction import Transaction
    from acquit.broker.transact.transactions import Transactions
    from acquit.protocol.connection_base import ConnectionBase
    from acquit.protocol.delivery import Delivery, DeliveryState

CREDIT: Final = 64
"""Declares and discharges of one link that may be on their way."""
CAPABILITIES: Final = (
    TxnCapability.LOCAL_TRANSACTIONS,
    TxnCapability.MULTI_TXNS_PER_SSN,
    TxnCapability.MULTI_SSNS_PER_TXN,
)


class Control(Actor):
    """A control link."""

    __slots__ = ("link", "requests")

    def __init__(self, peer: Peer, link: ReceivingLink) -> None:
        super().__init__(peer, link.name, "")
        self.link = link
        self.requests = RequestReader()


MESSAGE_BYTES_MAX: Final = 4_096
"""Largest message to the coordinator: a declare or a discharge has some 50 bytes."""


class Coordinator:
    """Answers on control links."""

    def __init__(self, transactions: Transactions, touch: Callable[[ConnectionBase], None]) -> None:
        self._transactions = transactions
        self._touch = touch
        transactions.terminate = self._terminate

    def attach(self, peer: Peer, link: ReceivingLink) -> Control:
        """A controller attached."""
        link.accept_attach(target=CoordinatorTarget(CAPABILITIES), max_message_size=MESSAGE_BYTES_MAX)
        link.grant(CREDIT)
        link.takes_runs = True  # so that what came together before its request stays together
        return Control(peer, link)

    def ended(self, control: Control, ending: Ending) -> None:
        """Roll back what was declared on a control link that is gone."""
        self._transactions.abandon(control.peer, ending, control)

    def receive(self, control: Control, deliveries: list[Delivery]) -> None:
        """Declares and discharges, in order."""
        for delivery in deliveries:
            try:
                if delivery.settled:
                    raise Refused(
                        "a message to the coordinator must not be settled (4.2, 4.3)",
                        condition=AmqpCondition.NOT_ALLOWED,
                    )
                request = control.requests.read(delivery.payload)
                if isinstance(request, Declare):
                    self._declare(control, delivery, request)
                else:
                    self._discharge(control, delivery, request)
            except RemoteProtocolError as exc:
                self._refuse(control, delivery, Error(exc.condition, exc.description))
        if control.link.credit <= CREDIT // 2:
            control.link.grant(CREDIT)

    def _declare(self, control: Control, delivery: Delivery, declare: Declare) -> None:
        if declare.global_id is not None:
            raise Refused("there are no distributed transactions here", condition=AmqpCondition.NOT_IMPLEMENTED)
        transaction = self._transactions.declare(control.peer, control)
        self._settle(delivery, Declared(transaction.txn_id))

    def _discharge(self, control: Control, delivery: Delivery, discharge: Discharge) -> None:
        transaction = self._transactions.find(control.peer, discharge.txn_id)
        if _is_arriving(control.peer, transaction):
            # 4.4.1: it is not known what is to be committed, or rolled back.
            self._terminate(
                transaction,
                Error(TransactionCondition.TRANSACTION_ROLLBACK, "a message of this transaction has not ended"),
            )
        elif discharge.fail:
            self._transactions.roll_back(transaction)
            self._settle(delivery, ACCEPTED)
        else:
            self._transactions.commit(transaction, lambda error: self._answer(control, delivery, error))

    def _answer(self, control: Control, delivery: Delivery, error: Error | None) -> None:
        if error is None:
            self._settle(delivery, ACCEPTED)
        else:
            self._refuse(control, delivery, error)

    def _refuse(self, control: Control, delivery: Delivery, error: Error) -> None:
        if takes_rejected(control.link) and not delivery.settled:
            self._settle(delivery, Rejected(error))
        else:
            self._detach(control, error)

    def _terminate(self, transaction: Transaction, error: Error) -> None:
        """The control link of a transaction ends, and all that was declared on it."""
        assert isinstance(transaction.owner, Control)
        self._detach(transaction.owner, error)

    def _detach(self, control: Control, error: Error) -> None:
        control.link.detach(error)
        self.ended(control, Ending.ENDED_HERE)
        self._touch(control.link.session.connection)

    def _settle(self, delivery: Delivery, state: DeliveryState) -> None:
        session = delivery.link.session
        session.settle_all([delivery], state)
        # Before what it made available is sent: a message that comes between a rollback and its answer is released by
        # Qpid JMS as one that it held before, and handed to its user all the same, who then gets it twice.
        session.flush_dispositions()
        self._touch(session.connection)


def _is_arriving(peer: Peer, transaction: Transaction) -> bool:
    """Return True if a posting of this transaction has begun to arrive, and not ended."""
    return peer.engine.assembling and any(
        isinstance(link, ReceivingLink)
        and isinstance(link.arriving_state, TransactionalState)
        and link.arriving_state.txn_id == transaction.txn_id
        for session in peer.engine.sessions
        for link in session.links
    )


__all__ = ["CAPABILITIES", "CREDIT", "Control", "Coordinator"]

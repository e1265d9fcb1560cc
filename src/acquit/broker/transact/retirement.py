"""An outcome that waits for its transaction, in the place of its message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.message_run import MessageRun
from acquit.protocol.definitions import AmqpCondition, Error
from acquit.protocol.delivery import SentRun

if TYPE_CHECKING:
    from acquit.broker.message import Message
    from acquit.protocol.delivery import Delivery, DeliveryState

CONTESTED: Final = "a transaction has the outcome of this delivery already"


class Owner(Protocol):
    """The transaction that has an outcome: `transaction.Transaction`."""

    number: int


class Retirement:
    """An outcome that waits for its transaction. It is the `context` of its delivery."""

    __slots__ = ("accepted", "consumer", "delivery", "message", "settled", "state", "transaction")

    def __init__(
        self,
        transaction: Owner,
        consumer: Consumer,
        delivery: Delivery,
        message: Message,
        state: DeliveryState | None,
        *,
        accepted: bool,
        settled: bool,
    ) -> None:
        self.transaction = transaction
        self.consumer = consumer
        self.delivery = delivery
        self.message = message
        self.state = state
        """None: settled without an outcome, so that the source's default-outcome applies either way."""
        self.accepted = accepted
        """True if it is *accepted*, as most of them are: the record of the commit says all of it."""
        self.settled = settled
        """The receiver has forgotten the delivery, or its link is gone: it cannot come back to it."""

    def said_outside(self, state: DeliveryState | None) -> None:
        """Take what was said of the delivery in no transaction. To settle it is to forget it, no more; but it cannot
        have two outcomes: with a second one the link is detached."""
        self.settled = self.settled or self.delivery.over
        if state is not None:
            self.consumer.link.detach(Error(AmqpCondition.ILLEGAL_STATE, CONTESTED))


class RetiredRun(NamedTuple):
    """*Accepted*, of messages that one consumer holds as a run and has settled, so that no delivery has them any more.
    They stay a run until somebody comes to a single one, as can be with durable ones."""

    consumer: Consumer
    messages: MessageRun
    sent: SentRun
    """The deliveries, should single ones be needed after all."""


__all__ = ["CONTESTED", "RetiredRun", "Retirement"]

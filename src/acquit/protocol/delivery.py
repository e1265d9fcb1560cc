"""One delivery, at either end of a link."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from acquit.protocol._definitions import (
    Accepted,
    Declared,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
)
from acquit.protocol.settlement import Phase

if TYPE_CHECKING:
    from acquit.protocol.link import Link

Outcome: TypeAlias = Accepted | Rejected | Released | Modified
DeliveryState: TypeAlias = Accepted | Rejected | Released | Modified | Received | Declared | TransactionalState


class Delivery:
    """One delivery, sent or received. Made by the engine: `SendingLink.send` returns it, `DeliveriesReceived` brings it.

    `payload` is the whole message of a received delivery, byte for byte; b"" on the sending side, which keeps nothing
    of what it has written. `context` is the application's.
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
        link: Link,
        delivery_id: int,
        tag: bytes,
        message_format: int,
        payload: bytes,
        phase: int,
        remote_state: DeliveryState | None,
        context: object,
    ) -> None:
        self.link = link
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        self.payload = payload
        self.phase = phase
        self.local_state: DeliveryState | None = None
        self.remote_state = remote_state
        self.context = context

    @property
    def settled(self) -> bool:
        """Whether this end has nothing more to do: settled, or lost with its link."""
        return self.phase >= Phase.SETTLED

    def settle(self, state: DeliveryState | None = None) -> bool:
        """Settle, as this end and the link's mode have it.

        A sender, and a receiver in rcv-settle-mode first, forgets the delivery and says so. A receiver in mode second
        announces `state`, which must be an outcome, and forgets when the sender has settled (StatesReceived with
        `settled`). Returns False when it was too late, and nothing is sent: the peer had settled, or the link is gone.
        Raises LocalProtocolError where an outcome was announced before.
        """
        raise NotImplementedError

    def update(self, state: DeliveryState) -> bool:
        """Tell the peer a state without settling: progress (`Received`), a transactional state, or an outcome.

        Returns False when it was too late, as `settle` does.
        """
        raise NotImplementedError

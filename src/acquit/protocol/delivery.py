"""One delivery, at either end of a link.

There is one object for each delivery and end, and it is flat: at 100,000 a second nothing else would do. What may
happen to it is in `settlement.TABLE`; the session performs it, because delivery-ids and dispositions are the session's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.protocol._definitions import (
    Accepted,
    Declared,
    DeliveryState,
    Error,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from acquit.protocol.constants import Outcome
from acquit.protocol.settlement import Input, Phase

if TYPE_CHECKING:
    from acquit.protocol.link import Link

OUTCOME_CLASSES: Final = frozenset((Accepted, Rejected, Released, Modified, Declared))
"""The states that are final (3.4). A transactional state is provisional until the discharge, so it is not here."""

SHORT_MAX: Final = 60
"""Of a shortened state: characters of a text, of up to four octets each, or octets of an id."""

_SETTLED: Final = int(Phase.SETTLED)


class Delivery:
    """One delivery, sent or received. `SendingLink.send` returns it, `DeliveriesReceived` brings it.

    `payload` is the whole message of a received delivery, byte for byte; b"" on the sending side, which keeps nothing
    of what it has written. `phase` is a `settlement.Phase`. `local_state` and `remote_state` are what each end told
    last. `context` is the application's.
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
        """Whether this end has nothing more to do: settled, or lost with its link."""
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


def is_outcome(state: object) -> bool:
    """Whether a state is final."""
    return state.__class__ in OUTCOME_CLASSES


def shortened(state: object) -> DeliveryState:
    """A state that says what this one does, without what can be left out: it fits the smallest frame (2.3.1)."""
    match state:
        case TransactionalState(txn_id=txn_id, outcome=outcome) if len(txn_id) <= SHORT_MAX:
            return TransactionalState(txn_id, None if outcome is None else shortened(outcome))
        case Rejected(error=Error(condition=condition, description=description)) if len(condition) <= SHORT_MAX:
            return Rejected(Error(condition, (description or "")[:SHORT_MAX]))
        case Rejected():
            return Rejected()
        case Modified(delivery_failed=failed, undeliverable_here=here):
            return Modified(failed, here)
        case _:
            return Released()


__all__ = ["OUTCOME_CLASSES", "Delivery", "DeliveryState", "Outcome", "ResumedDelivery", "is_outcome", "shortened"]

"""Delivery states, and what can be asked of them."""

from __future__ import annotations

from typing import Final

from acquit.protocol.definitions import (
    Accepted,
    DeliveryState,
    Error,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)

SHORT_MAX: Final = 60
"""Longest parts of a shortened state: characters of a text, of up to four octets each, or octets of an id."""


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


def accepts(state: DeliveryState | None) -> bool:
    """Return True if a state is *accepted*, in a transaction or not."""
    outcome = state.outcome if isinstance(state, TransactionalState) else state
    return outcome.__class__ is Accepted


def transaction_of(state: DeliveryState | None) -> bytes | None:
    """The transaction that a state names; None: none."""
    return state.txn_id if isinstance(state, TransactionalState) else None


__all__ = ["SHORT_MAX", "accepts", "shortened", "transaction_of"]

"""A transaction's life at its controller, as one table (specification 4.2 to 4.4).

::

    FRESH ──▶ DECLARING ──▶ DECLARED ──▶ COMMITTING ──▶ COMMITTED, ROLLED_BACK, IN_DOUBT
      │           │             │             └▶ ASKING ──▶ the same
      │ to be     │ rolled      │ back
      ▼           ▼             ▼
    ROLLED_BACK   VOID_DECLARING ──▶ VOID ──▶ ROLLING_BACK ──▶ ROLLED_BACK

What is decided is told apart from what the coordinator knows: a transaction that is *void* will be rolled back, and the
coordinator is to hear of it (VOID) or has heard (ROLLING_BACK). ROLLED_BACK is what there is nobody to tell of.

`TABLE` says for a stage and an event what the next stage is. A case without a row is refused, loudly.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from acquit.errors import LocalProtocolError


class Stage(IntEnum):
    """The stage that a transaction is in."""

    FRESH = 0
    """The coordinator knows nothing of it."""
    DECLARING = 1
    """The coordinator is asked for an id."""
    DECLARED = 2
    """The transaction has an id: sends and outcomes carry it."""
    COMMITTING = 3
    """The discharge that commits it is sent, or waits for credit of the control link."""
    ASKING = 4
    """The connection was lost before the commit was answered: the broker is asked what became of it."""
    COMMITTED = 5
    IN_DOUBT = 6
    """The commit was sent, and nobody could say what became of it (yet)."""
    VOID_DECLARING = 7
    """The transaction is to be rolled back, and the coordinator is asked for its id."""
    VOID = 8
    """The transaction is to be rolled back, and has an id."""
    ROLLING_BACK = 9
    """The discharge that rolls it back is sent, or waits for credit."""
    ROLLED_BACK = 10
    """The transaction is rolled back, and the coordinator need not hear of it."""


class TransactionEvent(IntEnum):
    """An event that can happen to a transaction."""

    DECLARE = 0
    """We ask for an id."""
    DECLARED = 1
    """The coordinator gave one."""
    ROLL_BACK = 2
    """The transaction must not be committed any more."""
    DISCHARGE = 3
    """We end it, as its stage says: with a commit, or with a rollback."""
    GONE = 4
    """The coordinator refused to declare it, or its control link or its connection is gone."""
    RESET = 5
    """The connection is lost, and nothing was learnt of the transaction: it is done again on the next."""
    UNANSWERED = 6
    """The connection is lost, and the commit may have arrived."""
    COMMITTED = 7
    """The peer says that it is committed; of one in which nothing was done that needs nobody's word."""
    ROLLED_BACK = 8
    """The peer says that it is rolled back."""
    UNCLEAR = 9
    """The peer does not say what became of its commit, or says nothing in time."""


class Fate(IntEnum):
    """The fate of a transaction: what became of it."""

    COMMITTED = 0
    ROLLED_BACK = 1
    IN_DOUBT = 2
    """The commit was sent, and not answered (yet)."""


FATES: Final[dict[Stage, Fate]] = {
    Stage.COMMITTED: Fate.COMMITTED,
    Stage.IN_DOUBT: Fate.IN_DOUBT,
    Stage.VOID_DECLARING: Fate.ROLLED_BACK,
    Stage.VOID: Fate.ROLLED_BACK,
    Stage.ROLLING_BACK: Fate.ROLLED_BACK,
    Stage.ROLLED_BACK: Fate.ROLLED_BACK,
}
"""Fate of a transaction by its stage. It is open in all other stages."""

DISCHARGING: Final = frozenset((Stage.COMMITTING, Stage.ASKING, Stage.ROLLING_BACK))
"""Stages in which the end is under way: nothing can be done but wait for what the peer says."""

_S, _E = Stage, TransactionEvent
TABLE: Final[dict[Stage, dict[TransactionEvent, Stage]]] = {
    _S.FRESH: {
        _E.DECLARE: _S.DECLARING,
        _E.ROLL_BACK: _S.ROLLED_BACK,
        _E.RESET: _S.FRESH,
        _E.COMMITTED: _S.COMMITTED,
    },
    _S.DECLARING: {
        _E.DECLARED: _S.DECLARED,
        _E.ROLL_BACK: _S.VOID_DECLARING,
        _E.RESET: _S.FRESH,
    },
    _S.DECLARED: {
        _E.ROLL_BACK: _S.VOID,
        _E.DISCHARGE: _S.COMMITTING,
        _E.RESET: _S.FRESH,
    },
    _S.COMMITTING: {
        _E.ROLL_BACK: _S.ROLLED_BACK,
        _E.GONE: _S.IN_DOUBT,
        _E.UNANSWERED: _S.ASKING,
        _E.COMMITTED: _S.COMMITTED,
        _E.ROLLED_BACK: _S.ROLLED_BACK,
        _E.UNCLEAR: _S.IN_DOUBT,
    },
    _S.ASKING: {
        _E.ROLL_BACK: _S.ROLLED_BACK,
        _E.GONE: _S.IN_DOUBT,
        _E.UNANSWERED: _S.ASKING,
        _E.COMMITTED: _S.COMMITTED,
        _E.ROLLED_BACK: _S.ROLLED_BACK,
        _E.UNCLEAR: _S.IN_DOUBT,
    },
    # An answer that comes after all is heard.
    _S.IN_DOUBT: {
        _E.ROLL_BACK: _S.IN_DOUBT,
        _E.COMMITTED: _S.COMMITTED,
        _E.ROLLED_BACK: _S.ROLLED_BACK,
        _E.UNCLEAR: _S.IN_DOUBT,
    },
    _S.COMMITTED: {_E.ROLL_BACK: _S.COMMITTED},
    _S.VOID_DECLARING: {
        _E.DECLARED: _S.VOID,
        _E.ROLL_BACK: _S.VOID_DECLARING,
        _E.GONE: _S.ROLLED_BACK,
        _E.RESET: _S.ROLLED_BACK,
    },
    _S.VOID: {
        _E.ROLL_BACK: _S.VOID,
        _E.DISCHARGE: _S.ROLLING_BACK,
        _E.GONE: _S.ROLLED_BACK,
        _E.RESET: _S.ROLLED_BACK,
    },
    _S.ROLLING_BACK: {
        _E.ROLL_BACK: _S.ROLLING_BACK,
        _E.GONE: _S.ROLLED_BACK,
        # Whatever the peer says of a rollback: it is one.
        _E.COMMITTED: _S.ROLLED_BACK,
        _E.ROLLED_BACK: _S.ROLLED_BACK,
        _E.UNCLEAR: _S.ROLLED_BACK,
    },
    _S.ROLLED_BACK: {
        _E.ROLL_BACK: _S.ROLLED_BACK,
        _E.GONE: _S.ROLLED_BACK,
        _E.RESET: _S.ROLLED_BACK,
        # The control link was ended with the commit, and the broker was asked: its word counts.
        _E.COMMITTED: _S.COMMITTED,
        _E.ROLLED_BACK: _S.ROLLED_BACK,
        _E.UNCLEAR: _S.ROLLED_BACK,
    },
}


def step(stage: Stage, event: TransactionEvent) -> Stage:
    """Return the next stage. Raises LocalProtocolError where the table has no row."""
    try:
        return TABLE[stage][event]
    except KeyError:
        raise LocalProtocolError(f"no row for a transaction that is {stage.name}, and {event.name}") from None


__all__ = ["DISCHARGING", "FATES", "TABLE", "Fate", "Stage", "TransactionEvent", "step"]

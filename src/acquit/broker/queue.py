"""A message's life at a node, as one table (specification 3.3; the states are those of 3.3, made finer).

Theory of operation. A message enters a queue once, is *acquired* by a link, and comes back or leaves for good. The
specification's three states do not say enough for a broker that must keep promises, so AVAILABLE has forerunners
(PENDING: its record is not on the disk yet; HELD: its transaction is not committed; SCHEDULED: its time has not come)
and ACQUIRED has a brother (SUSPENDED: acquired by a link that may come back)::

              posted, durable            synced                acquired             accepted, rejected ...
        NEW ───────────────────▶ PENDING ───────▶ AVAILABLE ──────────────▶ ACQUIRED ─────────────────────▶ ARCHIVED
         │  posted, volatile                       ▲  ▲  └─ ttl, purge, taken by a pre-settled link ─────────▲
         └─────────────────────────────────────────┘  └──── released, modified, link gone ────┘

`ROWS` says for a state and an event what the next state is, how the delivery-count changes, what the journal is told
and what else must be done (`Effect`). It knows no link, no clock, no bytes. Conditions are decided *before* the table
is asked, by `decide`, and are part of the event: a rejected message whose address has a dead letter address is one
event, one without is another. So every row can be checked by eye.

A link that ends over messages says nothing about any one of them. It may raise their delivery-count, which tells
consumers that they may have been seen, but it is no *failure*, and failures alone use up max-delivery-attempts.

An outcome reaches the table only through a delivery that still holds the message. What comes for a message that was
purged or taken back meanwhile is stale, and changes nothing.

A case without a row is refused, loudly.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

from acquit.errors import LocalProtocolError
from acquit.ledger.events import EventKind


class NodeState(IntEnum):
    """State of a message at its node."""

    NEW = 0
    PENDING = 1
    """Posted; its record waits for the disk. Invisible, so that nobody acts on what a crash would forget."""
    HELD = 2
    """Posted in a transaction that is not committed. Invisible."""
    SCHEDULED = 3
    """Waiting for its time: a delivery time, or the end of the delay before another attempt."""
    AVAILABLE = 4
    ACQUIRED = 5
    SUSPENDED = 6
    """Acquired by a link that is away and may resume."""
    ARCHIVED = 7
    """Left for good."""


class NodeEvent(IntEnum):
    """Event that can happen to a message."""

    POST_DURABLE = 0
    POST_VOLATILE = 1
    POST_VOLATILE_LATER = 2
    """Posted, not durable, with a delivery time."""
    POST_HELD = 3
    SYNCED = 4
    SYNCED_LATER = 5
    """Synced, with a delivery time that has not come."""
    COMMIT = 6
    ROLL_BACK = 7
    ACQUIRE = 8
    CONSUME = 9
    """Taken by a pre-settled link."""
    BROWSE = 10
    EXPIRE = 11
    ACCEPT = 12
    REJECT = 13
    """Rejected, and the address has a dead letter address."""
    REJECT_NOWHERE = 14
    """Rejected, and it has none."""
    RELEASE = 15
    MODIFY = 16
    """Modified, the attempt does not count."""
    FAIL = 17
    """The attempt failed, and others may follow at once: modified(delivery-failed), a lock that ran out."""
    FAIL_LATER = 18
    """The attempt failed as in FAIL, and others may follow after a redelivery delay."""
    FAIL_LAST = 19
    """The last attempt failed as in FAIL, and the address has a dead letter address."""
    FAIL_LAST_NOWHERE = 20
    """The last attempt failed as in FAIL, and the address has none."""
    SUSPEND = 21
    RESUME = 22
    DISPLACE = 23
    """Ring, last value, drop-oldest."""
    DUE = 24
    PURGE = 25
    MOVE = 26
    RESTART = 27
    """The broker starts again; the message is durable."""
    RESTART_VOLATILE = 28
    RELEASE_LATER = 29
    """Released, and it has come back so often and so fast that its returns are paced."""
    MODIFY_LATER = 30
    """Modified as in MODIFY, and its returns are paced."""
    RETURN_LAST = 31
    """Released, or modified without delivery-failed, as often as the address allows; it has a dead letter address."""
    RETURN_LAST_NOWHERE = 32
    """Returned for the last time as in RETURN_LAST, and the address has no dead letter address."""
    LEAVE = 33
    """Left by a link that ended over it; released by its default-outcome or, without one, closed in order or ended by
    the broker."""
    LEAVE_MODIFIED = 34
    """Left by a link that ended over it; modified by default, and the delivery-count stays."""
    LEAVE_COUNTED = 35
    """Left by a link that ended over it, and the delivery-count grows: it may have been seen. No failure."""
    LEAVE_COUNTED_LATER = 36
    """Left as in LEAVE_COUNTED, and offered again after a redelivery delay."""


class Effect(IntFlag):
    """Work that must be done besides changing the state. Performed by `life.Life`, or by who handles many messages at
    once."""

    NONE = 0
    ENTER = 1
    """Count one more in the queue."""
    OFFER = 2
    """Put it in its place among the available, which is its sequence's, and look for a consumer."""
    WITHDRAW = 4
    """Take it from the available."""
    SCHEDULE = 8
    """Keep it until its time."""
    TRANSMIT = 16
    """Send it on the link."""
    TRANSMIT_SYNCED = 32
    """Send it on the link once what is recorded here is synced: at most once, also over a crash."""
    MARK = 64
    """Mark it as acquired: first-acquirer is false from now on (2.7.5, 3.2.1)."""
    NOTE = 128
    """Add the attempt to its history."""
    COPY = 256
    """Post a copy of it to the address that the record's kind implies; both name each other."""
    RETIRE = 512
    """Count one less in the queue; its body may go."""
    LEFT = 1024
    """Tell the journal that no consumer said this: it is neither a failure nor a release."""


class Row(NamedTuple):
    """Row of the table: what follows from an event in a state."""

    state: NodeState
    event: NodeEvent
    next: NodeState
    attempts: int
    """Number that is added to the delivery-count."""
    record: EventKind
    """Event that the journal (durable), or the queue's totals (volatile), are told; NONE: nothing."""
    effects: Effect
    why: str

    @property
    def failures(self) -> int:
        """Number that is added to the failures, which max-delivery-attempts goes by."""
        return 0 if self.effects & Effect.LEFT else self.attempts


_S = NodeState
_E = NodeEvent
_K = EventKind
_X = Effect

_BACK = _X.OFFER
_GONE = _X.RETIRE
_WITHDRAWN = _X.WITHDRAW | _X.RETIRE

_ACQUIRED = (_S.ACQUIRED, _S.SUSPENDED)
_WAITING = (_S.AVAILABLE, _S.SCHEDULED)
_LIVE = (_S.PENDING, _S.SCHEDULED, _S.AVAILABLE, _S.ACQUIRED, _S.SUSPENDED)

# (states, event, next, attempts, record, effects, why). `None` as next: the state it was in.
_COMPACT: Final[tuple[tuple[tuple[NodeState, ...], NodeEvent, NodeState | None, int, EventKind, Effect, str], ...]] = (
    # Posting
    ((_S.NEW,), _E.POST_DURABLE, _S.PENDING, 0, _K.POSTED, _X.ENTER, "nobody acts on what a crash would forget"),
    ((_S.NEW,), _E.POST_VOLATILE, _S.AVAILABLE, 0, _K.POSTED, _X.ENTER | _X.OFFER, "it waits for no disk"),
    ((_S.NEW,), _E.POST_VOLATILE_LATER, _S.SCHEDULED, 0, _K.POSTED, _X.ENTER | _X.SCHEDULE, "a delivery time"),
    ((_S.NEW,), _E.POST_HELD, _S.HELD, 0, _K.HELD, _X.NONE, "in a transaction: recorded, not in the queue"),
    ((_S.PENDING,), _E.SYNCED, _S.AVAILABLE, 0, _K.NONE, _X.OFFER, "its place is its place in the journal"),
    ((_S.PENDING,), _E.SYNCED_LATER, _S.SCHEDULED, 0, _K.NONE, _X.SCHEDULE, "a delivery time"),
    ((_S.HELD,), _E.COMMIT, _S.PENDING, 0, _K.POSTED, _X.ENTER, "visible when the commit is synced"),
    ((_S.HELD,), _E.ROLL_BACK, _S.ARCHIVED, 0, _K.ROLLED_BACK, _X.NONE, "it never entered"),
    # Acquiring
    ((_S.AVAILABLE,), _E.ACQUIRE, _S.ACQUIRED, 0, _K.ACQUIRED, _X.WITHDRAW | _X.TRANSMIT | _X.MARK, "in order"),
    (
        (_S.AVAILABLE,),
        _E.CONSUME,
        _S.ARCHIVED,
        0,
        _K.CONSUMED,
        _WITHDRAWN | _X.TRANSMIT_SYNCED,
        "pre-settled: at most once, also over a crash",
    ),
    ((_S.AVAILABLE,), _E.BROWSE, None, 0, _K.NONE, _X.TRANSMIT, "distribution-mode copy: by cursor, once for each"),
    # Time to live
    (_WAITING, _E.EXPIRE, _S.ARCHIVED, 0, _K.EXPIRED, _WITHDRAWN | _X.COPY, "copied where there is an expiry address"),
    (_ACQUIRED, _E.EXPIRE, None, 0, _K.NONE, _X.NONE, "the outcome wins; on return it expires at once"),
    ((_S.PENDING,), _E.EXPIRE, None, 0, _K.NONE, _X.NONE, "it expires as it becomes available"),
    # Outcomes (3.4). A suspended delivery gets its outcome as its link resumes, or as its terminus expires.
    (_ACQUIRED, _E.ACCEPT, _S.ARCHIVED, 0, _K.ACCEPTED, _GONE, "3.4.2"),
    (_ACQUIRED, _E.REJECT, _S.ARCHIVED, 1, _K.DEAD_LETTERED, _GONE | _X.NOTE | _X.COPY, "3.4.3: the error is kept"),
    (_ACQUIRED, _E.REJECT_NOWHERE, _S.ARCHIVED, 1, _K.DROPPED, _GONE | _X.NOTE, "no dead letter address"),
    (_ACQUIRED, _E.RELEASE, _S.AVAILABLE, 0, _K.RELEASED, _BACK, "3.4.4: never counts; back at its old place"),
    (_ACQUIRED, _E.MODIFY, _S.AVAILABLE, 0, _K.MODIFIED, _BACK | _X.NOTE, "3.4.5 without delivery-failed"),
    (_ACQUIRED, _E.RELEASE_LATER, _S.SCHEDULED, 0, _K.RELEASED, _X.SCHEDULE, "it came back too often and too fast"),
    (_ACQUIRED, _E.MODIFY_LATER, _S.SCHEDULED, 0, _K.MODIFIED, _X.SCHEDULE | _X.NOTE, "the same"),
    (
        _ACQUIRED,
        _E.RETURN_LAST,
        _S.ARCHIVED,
        0,
        _K.DEAD_LETTERED,
        _GONE | _X.NOTE | _X.COPY,
        "it came back uncounted as often as max_releases says",
    ),
    (_ACQUIRED, _E.RETURN_LAST_NOWHERE, _S.ARCHIVED, 0, _K.DROPPED, _GONE | _X.NOTE, "no dead letter address"),
    (_ACQUIRED, _E.FAIL, _S.AVAILABLE, 1, _K.MODIFIED, _BACK | _X.NOTE, "3.4.5, a lock run out"),
    (_ACQUIRED, _E.FAIL_LATER, _S.SCHEDULED, 1, _K.MODIFIED, _X.SCHEDULE | _X.NOTE, "a redelivery delay applies"),
    (
        _ACQUIRED,
        _E.FAIL_LAST,
        _S.ARCHIVED,
        1,
        _K.DEAD_LETTERED,
        _GONE | _X.NOTE | _X.COPY,
        "the failures, this one included, reached max-delivery-attempts",
    ),
    (_ACQUIRED, _E.FAIL_LAST_NOWHERE, _S.ARCHIVED, 1, _K.DROPPED, _GONE | _X.NOTE, "no dead letter address"),
    # Links that end over what they hold
    (_ACQUIRED, _E.LEAVE, _S.AVAILABLE, 0, _K.RELEASED, _BACK | _X.LEFT, "closed in order: nothing counts"),
    (_ACQUIRED, _E.LEAVE_MODIFIED, _S.AVAILABLE, 0, _K.MODIFIED, _BACK | _X.LEFT, "the same; annotations merge"),
    (
        _ACQUIRED,
        _E.LEAVE_COUNTED,
        _S.AVAILABLE,
        1,
        _K.MODIFIED,
        _BACK | _X.NOTE | _X.LEFT,
        "a lost connection: it may have been seen, nobody failed",
    ),
    (
        _ACQUIRED,
        _E.LEAVE_COUNTED_LATER,
        _S.SCHEDULED,
        1,
        _K.MODIFIED,
        _X.SCHEDULE | _X.NOTE | _X.LEFT,
        "a redelivery delay applies",
    ),
    # Links that go and come back
    ((_S.ACQUIRED,), _E.SUSPEND, _S.SUSPENDED, 0, _K.SUSPENDED, _X.NONE, "the terminus lives on (2.6.13)"),
    ((_S.SUSPENDED,), _E.RESUME, _S.ACQUIRED, 0, _K.RESUMED, _X.NONE, "2.6.13"),
    # The rest of life
    ((_S.SCHEDULED,), _E.DUE, _S.AVAILABLE, 0, _K.DUE, _X.OFFER, "at its old place"),
    (_WAITING, _E.DISPLACE, _S.ARCHIVED, 0, _K.DISPLACED, _WITHDRAWN, "acquired ones are skipped"),
    (_LIVE, _E.PURGE, _S.ARCHIVED, 0, _K.PURGED, _WITHDRAWN, "recorded with who asked; a later outcome is stale"),
    (_LIVE, _E.MOVE, _S.ARCHIVED, 0, _K.MOVED_OUT, _WITHDRAWN | _X.COPY, "posted there; both name each other"),
    # Restart
    ((_S.AVAILABLE, _S.SCHEDULED, _S.SUSPENDED), _E.RESTART, None, 0, _K.NONE, _X.NONE, "as recorded"),
    (
        (_S.ACQUIRED,),
        _E.RESTART,
        _S.AVAILABLE,
        1,
        _K.MODIFIED,
        _BACK | _X.NOTE | _X.LEFT,
        "as for a lost connection",
    ),
    ((_S.HELD,), _E.RESTART, _S.ARCHIVED, 0, _K.ROLLED_BACK, _X.NONE, "no commit was recorded"),
    (
        (_S.SCHEDULED, _S.AVAILABLE, _S.ACQUIRED, _S.SUSPENDED),
        _E.RESTART_VOLATILE,
        _S.ARCHIVED,
        0,
        _K.LOST_VOLATILE,
        _WITHDRAWN,
        "never recovered: at most once",
    ),
)


def _expanded() -> Iterator[Row]:
    for states, event, next_state, attempts, record, effects, why in _COMPACT:
        for state in states:
            yield Row(state, event, state if next_state is None else next_state, attempts, record, effects, why)


ROWS: Final = tuple(_expanded())

TABLE: Final = {(row.state, row.event): row for row in ROWS}

if len(TABLE) != len(ROWS):  # a second row for the same case would silently win
    raise AssertionError("queue.TABLE has two rows for one case")

STEPS: Final = tuple(tuple(TABLE.get((state, event)) for event in NodeEvent) for state in NodeState)
"""TABLE as `[state][event]`, None where there is no row: for the hot path."""


def step(state: int, event: int) -> Row:
    """The row of a case. Raises LocalProtocolError where the table has none: the broker itself is at fault."""
    row = STEPS[state][event]
    if row is None:
        raise LocalProtocolError(f"a message that is {NodeState(state).name} cannot {NodeEvent(event).name}")
    return row


class Verdict(IntEnum):
    """Outcome that was said of an acquired message, or is implied by what became of its link."""

    ACCEPTED = 0
    REJECTED = 1
    RELEASED = 2
    MODIFIED = 3
    FAILED = 4
    """modified(delivery-failed=true), and everything that counts as such."""


class Ending(IntEnum):
    """Way in which a delivery ended that has no outcome of its own and whose source has no default-outcome."""

    SETTLED = 0
    """The receiver settled it without a state."""
    DETACHED = 1
    """The receiver closed the link, session or connection in order: what its user had of it, it settled before."""
    CONNECTION_LOST = 2
    LOCK_EXPIRED = 3
    RESTARTED = 4
    ENDED_HERE = 5
    """The broker ended the link, session or connection: it stops, the link was stolen, the queue is deleted. The
    receiver had no chance to settle what its user has seen."""


ENDINGS: Final = {
    Ending.SETTLED: Verdict.RELEASED,
    Ending.DETACHED: Verdict.RELEASED,
    Ending.ENDED_HERE: Verdict.RELEASED,
    Ending.CONNECTION_LOST: Verdict.FAILED,
    Ending.LOCK_EXPIRED: Verdict.FAILED,
    Ending.RESTARTED: Verdict.FAILED,
}
"""The verdict that an ending stands for, where the source's default-outcome (3.5.3) does not say another."""

LOSSES: Final = frozenset({Ending.CONNECTION_LOST, Ending.RESTARTED})
"""Endings that no consumer chose."""

LEFT_BEHIND: Final = LOSSES | {Ending.DETACHED, Ending.ENDED_HERE}
"""Endings of links, which say nothing about any one message: neither a flapping network nor consumers that come and
go, with a prefetch of 1,000 and the default-outcome of Qpid JMS (modified, delivery-failed), must use up the attempts
of what nobody has seen."""

_PLAIN: Final = {
    Verdict.ACCEPTED: NodeEvent.ACCEPT,
    Verdict.RELEASED: NodeEvent.RELEASE,
    Verdict.MODIFIED: NodeEvent.MODIFY,
}
_LEFT: Final = {
    Verdict.ACCEPTED: NodeEvent.ACCEPT,
    Verdict.RELEASED: NodeEvent.LEAVE,
    Verdict.MODIFIED: NodeEvent.LEAVE_MODIFIED,
    Verdict.FAILED: NodeEvent.LEAVE_COUNTED,
}
_PACED: Final = {Verdict.RELEASED: NodeEvent.RELEASE_LATER, Verdict.MODIFIED: NodeEvent.MODIFY_LATER}
RETURNS: Final = frozenset(_PACED)
"""Verdicts after which a message comes back and no attempt is counted: it may do so without end."""


def decide(verdict: Verdict, *, left: bool, last: bool, dead_letter: bool, delayed: bool) -> NodeEvent:
    """Return the event for a verdict on an acquired message.

    `left`: no consumer said it, its link ended; `last`: the failures, this one included, have reached their limit, or
    for a verdict of `RETURNS` the releases have; `dead_letter`: there is a dead letter address; `delayed`: a redelivery
    delay applies, or the releases are paced.
    """
    match verdict:
        case Verdict.REJECTED:
            return NodeEvent.REJECT if dead_letter else NodeEvent.REJECT_NOWHERE
        case Verdict.FAILED if left and delayed:
            return NodeEvent.LEAVE_COUNTED_LATER
        case _ if left:
            return _LEFT[verdict]
        case Verdict.FAILED if last:
            return NodeEvent.FAIL_LAST if dead_letter else NodeEvent.FAIL_LAST_NOWHERE
        case Verdict.FAILED:
            return NodeEvent.FAIL_LATER if delayed else NodeEvent.FAIL
        case Verdict.RELEASED | Verdict.MODIFIED if last:
            return NodeEvent.RETURN_LAST if dead_letter else NodeEvent.RETURN_LAST_NOWHERE
        case Verdict.RELEASED | Verdict.MODIFIED if delayed:
            return _PACED[verdict]
        case _:
            return _PLAIN[verdict]


__all__ = [
    "ENDINGS",
    "LEFT_BEHIND",
    "LOSSES",
    "RETURNS",
    "ROWS",
    "STEPS",
    "TABLE",
    "Effect",
    "Ending",
    "NodeEvent",
    "NodeState",
    "Row",
    "Verdict",
    "decide",
    "step",
]

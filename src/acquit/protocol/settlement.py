"""Settlement of a delivery: what each end of its link knows and does about it, in one table (2.6.12 to 2.6.14).

Theory of operation. Sender and receiver each keep a delivery until they *settle* it: forget it, once. Between them go
transfers (sender to receiver) and dispositions (both ways), which may cross. A disposition tells a *state*, and may say
*settled*. A state is an *outcome* when it is final (accepted, rejected, released, modified, declared); *received* is
progress, and a transactional state wraps an outcome that is provisional until the discharge, so it is no outcome here.

`Phase` is one end's knowledge, `Input` what may happen to it: the verbs of its application and the frames of its peer.
`TABLE` gives, for a role, a phase and an input, the next phase and the `SettlementEffect`s. It knows no link, no clock
and no bytes; `session.py` performs the effects.

The receiver's settle mode (2.8.3) is not a condition anywhere: a delivery that arrives in mode second starts in a phase
of its own, and that phase has its own rows. In mode first the receiver's *settle* forgets at once and says so; in mode
second it announces the outcome, and the delivery ends when the sender has settled.

What lost a race is told from what is wrong. A verb that comes too late because of what the *peer* did finds a row
without effects, and nothing is sent. A verb that this end's own earlier verb has ruled out finds no row and is refused.
Every input from the peer has a row: nothing it can say about a known delivery is unexpected.

tests/properties/test_settlement.py joins two ends over two wires with up to four frames in flight each way and walks
every reachable joint state: none is stuck, none misses a row, and the only end is both settled and nothing on the wire.
docs/acknowledgement.md is generated from the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple, TypeAlias

from acquit.errors import LocalProtocolError
from acquit.protocol.definitions import Role


class Phase(IntEnum):
    """Phases of a delivery: what one end knows about it."""

    NEW = 0
    """No part of it has been transferred."""
    UNSETTLED = 1
    """Transferred, at least in part; nobody has decided."""
    UNSETTLED_SECOND = 2
    """UNSETTLED, at a receiver in rcv-settle-mode second."""
    OFFERED = 3
    """The sender announced an outcome of its own accord, and waits for the receiver to confirm it."""
    OFFERED_SECOND = 4
    """OFFERED, at a receiver in rcv-settle-mode second."""
    DECIDED = 5
    """The receiver has announced its outcome, and neither end has settled."""
    DECIDED_SECOND = 6
    """DECIDED, at a receiver in rcv-settle-mode second: the sender settles next."""
    SETTLED = 7
    """Settled by one end, and this end knows: it has forgotten the delivery."""
    LOST = 8
    """The link, session or connection went first: nothing more can be said to the peer about it."""


class Input(IntEnum):
    """Inputs of the table: what can happen to a delivery at one end."""

    TRANSFER = 0
    """We send a frame of it, unsettled."""
    TRANSFER_SETTLED = 1
    """We send a frame of it that says settled."""
    ABORT = 2
    """We give it up half-way."""
    UPDATE = 3
    """Our application tells a state that is no outcome."""
    DECIDE = 4
    """Our application tells an outcome, without settling."""
    SETTLE = 5
    """Our application settles."""
    RECV_TRANSFER = 6
    """A frame of it arrives, unsettled; the first one in rcv-settle-mode first."""
    RECV_TRANSFER_SECOND = 7
    """The first frame of it arrives, unsettled, in rcv-settle-mode second."""
    RECV_TRANSFER_SETTLED = 8
    """A frame of it arrives that says settled."""
    RECV_ABORT = 9
    """The sender gives it up half-way."""
    RECV_STATE = 10
    """The peer tells a state that is no outcome."""
    RECV_OUTCOME = 11
    """The peer tells an outcome, without settling."""
    RECV_SETTLED = 12
    """The peer has settled."""
    LOSE = 13
    """The link failed or was closed, or what carried it ended."""


class SettlementEffect(IntFlag):
    """Effects that a row asks for, performed by the session."""

    NONE = 0
    ANNOUNCE = 1
    """A disposition that does not settle goes out."""
    ANNOUNCE_SETTLED = 2
    """A disposition that settles goes out."""
    FORGET = 4
    """The delivery leaves this end's unsettled map."""
    NOTIFY = 8
    """The application hears of it."""


class SettlementRow(NamedTuple):
    """Row of `TABLE`: the step from a phase on an input."""

    role: Role
    phase: Phase
    input: Input
    next: Phase
    effects: SettlementEffect
    why: str


_SENDER, _RECEIVER = Role.SENDER, Role.RECEIVER
_NEW, _UNSETTLED, _UNSETTLED_2, _OFFERED, _OFFERED_2, _DECIDED, _DECIDED_2, _SETTLED, _LOST = Phase
_NONE, _ANNOUNCE, _ANNOUNCE_SETTLED, _FORGET, _NOTIFY = (
    SettlementEffect.NONE,
    SettlementEffect.ANNOUNCE,
    SettlementEffect.ANNOUNCE_SETTLED,
    SettlementEffect.FORGET,
    SettlementEffect.NOTIFY,
)
_SAME = None
_ANY_UNSETTLED = (_UNSETTLED, _UNSETTLED_2)
_ANY_OFFERED = (_OFFERED, _OFFERED_2)
_ANY_DECIDED = (_DECIDED, _DECIDED_2)
_SENDER_OPEN = (_UNSETTLED, _OFFERED, _DECIDED)
_RECEIVER_OPEN = (*_ANY_UNSETTLED, *_ANY_OFFERED, *_ANY_DECIDED)
_OVER = (_SETTLED, _LOST)

_COMPACT: Final = (
    # role, phases, input, next phase (_SAME: unchanged), effects, why and where the specification says so
    #
    # The sender's own frames (2.6.12, 2.6.14)
    (_SENDER, (_NEW,), Input.TRANSFER, _UNSETTLED, _NONE, "2.6.12: an entry in the unsettled map"),
    (_SENDER, (_NEW,), Input.TRANSFER_SETTLED, _SETTLED, _NONE, "2.6.12: at most once, forgotten before it is sent"),
    (_SENDER, _SENDER_OPEN, Input.TRANSFER, _SAME, _NONE, "2.6.14: more of the same delivery"),
    (_SENDER, _SENDER_OPEN, Input.TRANSFER_SETTLED, _SETTLED, _FORGET, "2.7.5: a later frame may settle"),
    (_SENDER, _SENDER_OPEN, Input.ABORT, _SETTLED, _FORGET, "2.7.5: an aborted message is implicitly settled"),
    (_SENDER, (_SETTLED,), Input.TRANSFER, _SAME, _NONE, "settled early: the rest still has to follow"),
    (_SENDER, (_SETTLED,), Input.TRANSFER_SETTLED, _SAME, _NONE, "2.7.5: each frame of it may say so"),
    (_SENDER, (_SETTLED,), Input.ABORT, _SAME, _NONE, "2.6.14: settled or not, it can be given up half-way"),
    # The sender's verbs
    (_SENDER, (_UNSETTLED,), Input.UPDATE, _SAME, _ANNOUNCE, "2.6.12: a state that is not terminal"),
    (_SENDER, (_UNSETTLED,), Input.DECIDE, _OFFERED, _ANNOUNCE, "2.6.12: a terminal state attained spontaneously"),
    (_SENDER, _SENDER_OPEN, Input.SETTLE, _SETTLED, _ANNOUNCE_SETTLED | _FORGET, "2.6.12: said once, then forgotten"),
    (_SENDER, (_DECIDED,), Input.UPDATE, _SAME, _NONE, "too late: the receiver has decided"),
    (_SENDER, (_DECIDED,), Input.DECIDE, _SAME, _NONE, "too late: the receiver has decided"),
    # The sender hears the receiver
    (_SENDER, (_UNSETTLED, _OFFERED), Input.RECV_STATE, _SAME, _NOTIFY, "2.6.12: progress"),
    (_SENDER, (_UNSETTLED,), Input.RECV_OUTCOME, _DECIDED, _NOTIFY, "2.8.3: mode second; we settle next"),
    (_SENDER, (_OFFERED,), Input.RECV_OUTCOME, _DECIDED, _NOTIFY, "2.6.12: the receiver confirms; we settle next"),
    (_SENDER, (_DECIDED,), Input.RECV_STATE, _SAME, _NONE, "2.6.12: an outcome is final"),
    (_SENDER, (_DECIDED,), Input.RECV_OUTCOME, _SAME, _NONE, "2.6.12: an outcome is final"),
    (_SENDER, _SENDER_OPEN, Input.RECV_SETTLED, _SETTLED, _FORGET | _NOTIFY, "2.6.12: at least once"),
    (_SENDER, (_SETTLED,), Input.RECV_STATE, _SAME, _NONE, "crossed our settlement"),
    (_SENDER, (_SETTLED,), Input.RECV_OUTCOME, _SAME, _NONE, "crossed our settlement"),
    (_SENDER, (_SETTLED,), Input.RECV_SETTLED, _SAME, _NONE, "crossed our settlement"),
    # The receiver hears the sender's transfers
    (_RECEIVER, (_NEW,), Input.RECV_TRANSFER, _UNSETTLED, _NONE, "2.6.12: an entry in the unsettled map"),
    (_RECEIVER, (_NEW,), Input.RECV_TRANSFER_SECOND, _UNSETTLED_2, _NONE, "2.8.3: mode second"),
    (_RECEIVER, (_NEW,), Input.RECV_TRANSFER_SETTLED, _SETTLED, _NONE, "2.6.12: nobody waits for an answer"),
    (_RECEIVER, _RECEIVER_OPEN, Input.RECV_TRANSFER, _SAME, _NONE, "2.6.14: more of the same delivery"),
    (_RECEIVER, _RECEIVER_OPEN, Input.RECV_TRANSFER_SETTLED, _SETTLED, _FORGET, "2.7.5: a later frame settles"),
    (_RECEIVER, _RECEIVER_OPEN, Input.RECV_ABORT, _SETTLED, _FORGET, "2.7.5: implicitly settled, contents discarded"),
    (_RECEIVER, (_SETTLED,), Input.RECV_TRANSFER, _SAME, _NONE, "settled early: the rest still arrives"),
    (_RECEIVER, (_SETTLED,), Input.RECV_TRANSFER_SETTLED, _SAME, _NONE, "settled early: the rest still arrives"),
    (_RECEIVER, (_SETTLED,), Input.RECV_ABORT, _SAME, _NONE, "settled early: the rest is given up"),
    # The receiver's verbs
    (_RECEIVER, _ANY_UNSETTLED, Input.UPDATE, _SAME, _ANNOUNCE, "2.6.12: a state that is not terminal"),
    (_RECEIVER, _ANY_OFFERED, Input.UPDATE, _SAME, _ANNOUNCE, "2.6.12: a state that is not terminal"),
    (_RECEIVER, (_UNSETTLED, _OFFERED), Input.DECIDE, _DECIDED, _ANNOUNCE, "2.6.12: outcome first, settled later"),
    (_RECEIVER, (_UNSETTLED_2, _OFFERED_2), Input.DECIDE, _DECIDED_2, _ANNOUNCE, "2.8.3: the sender settles next"),
    (_RECEIVER, (_UNSETTLED_2, _OFFERED_2), Input.SETTLE, _DECIDED_2, _ANNOUNCE, "2.8.3: the sender settles next"),
    (
        _RECEIVER,
        (_UNSETTLED, _OFFERED, _DECIDED),
        Input.SETTLE,
        _SETTLED,
        _ANNOUNCE_SETTLED | _FORGET,
        "2.8.3: mode first",
    ),
    # The receiver hears the sender's dispositions
    (_RECEIVER, _ANY_UNSETTLED, Input.RECV_STATE, _SAME, _NOTIFY, "2.6.12: a state that is not terminal"),
    (_RECEIVER, _ANY_OFFERED, Input.RECV_STATE, _SAME, _NONE, "2.6.12: the sender's outcome is final"),
    (_RECEIVER, _ANY_DECIDED, Input.RECV_STATE, _SAME, _NOTIFY, "2.6.12: it had not heard ours yet"),
    (_RECEIVER, (_UNSETTLED,), Input.RECV_OUTCOME, _OFFERED, _NOTIFY, "2.6.12: it waits for us to confirm"),
    (_RECEIVER, (_UNSETTLED_2,), Input.RECV_OUTCOME, _OFFERED_2, _NOTIFY, "2.6.12: it waits for us to confirm"),
    (_RECEIVER, _ANY_OFFERED, Input.RECV_OUTCOME, _SAME, _NONE, "2.6.12: the sender's outcome is final"),
    (_RECEIVER, _ANY_DECIDED, Input.RECV_OUTCOME, _SAME, _NOTIFY, "crossed ours, which confirms it"),
    (_RECEIVER, _RECEIVER_OPEN, Input.RECV_SETTLED, _SETTLED, _FORGET | _NOTIFY, "2.6.12: the sender has forgotten"),
    (_RECEIVER, (_SETTLED,), Input.RECV_STATE, _SAME, _NONE, "crossed our settlement"),
    (_RECEIVER, (_SETTLED,), Input.RECV_OUTCOME, _SAME, _NONE, "crossed our settlement"),
    (_RECEIVER, (_SETTLED,), Input.RECV_SETTLED, _SAME, _NONE, "crossed our settlement"),
    # Too late, at either end: the peer has settled, or the link is gone
    (_SENDER, _OVER, Input.UPDATE, _SAME, _NONE, "too late"),
    (_SENDER, _OVER, Input.DECIDE, _SAME, _NONE, "too late"),
    (_SENDER, _OVER, Input.SETTLE, _SAME, _NONE, "too late"),
    (_RECEIVER, _OVER, Input.UPDATE, _SAME, _NONE, "too late"),
    (_RECEIVER, _OVER, Input.DECIDE, _SAME, _NONE, "too late"),
    (_RECEIVER, _OVER, Input.SETTLE, _SAME, _NONE, "too late"),
    # The link goes (2.6.5, 2.7.6)
    (_SENDER, _SENDER_OPEN, Input.LOSE, _LOST, _FORGET, "2.7.6: live only until the link is closed or fails"),
    (_RECEIVER, _RECEIVER_OPEN, Input.LOSE, _LOST, _FORGET, "2.7.6: live only until the link is closed or fails"),
    (_SENDER, _OVER, Input.LOSE, _SAME, _NONE, "nothing is left to lose"),
    (_RECEIVER, _OVER, Input.LOSE, _SAME, _NONE, "nothing is left to lose"),
)


def _expanded() -> Iterable[SettlementRow]:
    for role, phases, input_, next_phase, effects, why in _COMPACT:
        for phase in phases:
            yield SettlementRow(role, phase, input_, phase if next_phase is _SAME else next_phase, effects, why)


ROWS: Final = tuple(_expanded())

TABLE: Final = {(row.role, row.phase, row.input): (row.next, row.effects) for row in ROWS}

if len(TABLE) != len(ROWS):  # a second row for the same case would silently win
    raise AssertionError("settlement.TABLE has two rows for one case")


Steps: TypeAlias = tuple[tuple[tuple[int, int] | None, ...], ...]
"""The table of one role, by phase and input."""


def _steps(role: Role) -> Steps:
    def step(phase: Phase, input_: Input) -> tuple[int, int] | None:
        found = TABLE.get((role, phase, input_))
        return None if found is None else (int(found[0]), int(found[1]))

    return tuple(tuple(step(phase, input_) for input_ in Input) for phase in Phase)


SENDER_STEPS: Final = _steps(Role.SENDER)
"""TABLE for the sender as `[phase][input] -> (next phase, effects)`, None where there is no row: for the hot path."""

RECEIVER_STEPS: Final = _steps(Role.RECEIVER)
"""TABLE for the receiver, in the same form."""


def apply(role: Role, phase: int, input_: int) -> tuple[int, int]:
    """The next phase and the effects. Raises LocalProtocolError where the table has no row: the verb is ruled out."""
    found = (RECEIVER_STEPS if role else SENDER_STEPS)[phase][input_]
    if found is None:
        raise LocalProtocolError(
            f"a {role.name.lower()} cannot {Input(input_).name} a delivery that is {Phase(phase).name}"
        )
    return found


__all__ = [
    "RECEIVER_STEPS",
    "ROWS",
    "SENDER_STEPS",
    "TABLE",
    "Input",
    "Phase",
    "SettlementEffect",
    "SettlementRow",
    "Steps",
    "apply",
]

"""The table of what becomes of unsettled deliveries when a link is attached again (2.6.13, 3.4.6).

Theory of operation. Both attaches carry an unsettled map: for each delivery-tag that this end has not settled, the
state that it knows, or null. The sender then looks at every tag that either map has, and `ROWS` say what it does::

    the sender's map      the receiver's map      the sender
    ────────────────      ──────────────────      ──────────────────────────────────────────────
    unsettled             not there               sends it again: the receiver never had it
    unsettled             unsettled               resumes it, with the whole message
    unsettled             an outcome              resumes it without the message, and applies that outcome
    an outcome            not there               forgets it: the receiver has settled
    an outcome            unsettled               aborts it: the outcome came from elsewhere, nothing can be resumed
    an outcome            the same outcome        resumes it settled
    an outcome            another outcome         resumes it with its own, which is what holds
    not there             anything                does nothing, and the receiver takes it for settled

Our senders keep whole messages and never say *received* of their own; a receiver that says it has a part gets the
message from its first byte, and passes over what it has (example 2, a). A map may be *incomplete* because no frame
holds all of it. Then a tag that is not in it says nothing, new deliveries wait, and both ends attach once more when
those that were named are settled.

`ResumptionRow.examples` are the delivery-tags of the specification's example that a row decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import chain
from typing import Final, NamedTuple

from acquit.protocol.composite import encode_composite
from acquit.protocol.definitions import DeliveryState, Received, TransactionalState
from acquit.protocol.delivery import is_outcome


class MapState(IntEnum):
    """The knowledge that one end's unsettled map shows of a delivery."""

    ABSENT = 0
    """The map does not have the tag."""
    UNSETTLED = 1
    """Null, or a state that asks for the whole message."""
    PARTIAL = 2
    """*Received* beyond the first byte: the receiver has kept a part."""
    OUTCOME = 3
    """A terminal state (3.4)."""


class ResumeAction(IntEnum):
    """The sender's part in resuming one delivery."""

    IGNORE = 0
    """Do nothing: the receiver takes it for settled."""
    WAIT = 1
    """Do nothing yet: the receiver's map is incomplete and does not name it."""
    SEND = 2
    """Send the message as a new delivery with the same tag. A resumed one would be ignored."""
    RESUME = 3
    """Send the whole message with the resume flag."""
    CONFIRM = 4
    """Resume without the message, apply the receiver's outcome, and settle when it is applied."""
    FORGET = 5
    """Settle without a word: the receiver has settled."""
    ABORT = 6
    """Resume and abort in one frame: the sender's outcome holds, and the message cannot be resumed."""
    SETTLE = 7
    """Resume settled, without the message: both ends agree."""
    RESTATE = 8
    """Resume with the sender's outcome, unsettled: the receiver repeats it and settles."""


class ResumptionRow(NamedTuple):
    """The action for one case of the two maps."""

    sender: MapState
    receiver: MapState
    agree: bool
    """True in the row for equal outcomes; False in all rows where there are not two."""
    action: ResumeAction
    examples: tuple[int, ...]
    """Delivery-tags of the specification's example (3.4.6) that are this case."""


_ABSENT, _UNSETTLED, _PARTIAL, _OUTCOME = MapState

ROWS: Final = (
    ResumptionRow(_UNSETTLED, _ABSENT, False, ResumeAction.SEND, (1, 5)),
    ResumptionRow(_UNSETTLED, _UNSETTLED, False, ResumeAction.RESUME, (4, 9)),
    ResumptionRow(_UNSETTLED, _PARTIAL, False, ResumeAction.RESUME, (2, 6, 7)),
    ResumptionRow(_UNSETTLED, _OUTCOME, False, ResumeAction.CONFIRM, (3, 8)),
    ResumptionRow(_OUTCOME, _ABSENT, False, ResumeAction.FORGET, (10,)),
    ResumptionRow(_OUTCOME, _UNSETTLED, False, ResumeAction.ABORT, (14,)),
    ResumptionRow(_OUTCOME, _PARTIAL, False, ResumeAction.ABORT, (11,)),
    ResumptionRow(_OUTCOME, _OUTCOME, True, ResumeAction.SETTLE, (12,)),
    ResumptionRow(_OUTCOME, _OUTCOME, False, ResumeAction.RESTATE, (13,)),
    ResumptionRow(_ABSENT, _UNSETTLED, False, ResumeAction.IGNORE, ()),
    ResumptionRow(_ABSENT, _PARTIAL, False, ResumeAction.IGNORE, ()),
    ResumptionRow(_ABSENT, _OUTCOME, False, ResumeAction.IGNORE, ()),
)

TABLE: Final = {(row.sender, row.receiver, row.agree): row.action for row in ROWS}

if len(TABLE) != len(ROWS):  # a second row for the same case would silently win
    raise AssertionError("resumption.TABLE has two rows for one case")


class _NoEntry:
    """The type of `MISSING`."""


MISSING: Final = _NoEntry()
"""Stands for the state of a tag that a map does not have; null is a state."""


def known(state: object) -> MapState:
    """Return what a state in an unsettled map means; `MISSING` for a tag that the map does not have."""
    if state is MISSING:
        return MapState.ABSENT
    if isinstance(state, TransactionalState):
        return MapState.UNSETTLED  # a coordinator's links are never resumed, and its transactions ended with them (4.3)
    if is_outcome(state):
        return MapState.OUTCOME
    if isinstance(state, Received) and (state.section_number or state.section_offset):
        return MapState.PARTIAL
    return MapState.UNSETTLED


def action(sender: object, receiver: object, *, complete: bool = True) -> ResumeAction:
    """Return what the sender does about one tag, by the states in both maps.

    `complete`: the receiver's map is; where it is not, a tag that it lacks is left for the next attach.
    """
    ours, theirs = known(sender), known(receiver)
    if ours is MapState.PARTIAL:
        ours = MapState.UNSETTLED  # a sender that says so has the whole message all the same
    if theirs is MapState.ABSENT and not complete:
        return ResumeAction.WAIT
    return TABLE[ours, theirs, ours is theirs is MapState.OUTCOME and sender == receiver]


def plan(
    sender: Mapping[bytes, DeliveryState | None],
    receiver: Mapping[bytes, DeliveryState | None] | None,
    *,
    complete: bool,
) -> Iterator[tuple[bytes, ResumeAction]]:
    """Yield each tag of either map with what the sender does about it: its own in its map's order, then the others."""
    theirs = receiver or {}
    for tag, state in sender.items():
        yield tag, action(state, theirs.get(tag, MISSING), complete=complete)
    for tag in theirs:
        if tag not in sender:
            yield tag, ResumeAction.IGNORE


def first_fitting(
    unsettled: Mapping[bytes, DeliveryState | None], wanted: Iterable[bytes], room_bytes: int
) -> tuple[dict[bytes, DeliveryState | None], bool]:
    """Return as many entries of a map as `room_bytes` of a frame hold, in its order, and whether some are left out.

    Where they are, those that the peer named (`wanted`) come before others: each attach makes both maps smaller.
    """
    fitting: dict[bytes, DeliveryState | None] = {}
    for tag in chain([tag for tag in wanted if tag in unsettled], unsettled):
        if tag in fitting:
            continue
        state = unsettled[tag]
        room_bytes -= len(tag) + _TAG_OVERHEAD + (1 if state is None else len(encode_composite(state)))
        if room_bytes < 0:
            return fitting, True
        fitting[tag] = state
    return dict(unsettled), False


_TAG_OVERHEAD: Final = 2
"""Constructor and size of a tag of up to 32 bytes."""

__all__ = [
    "MISSING",
    "ROWS",
    "TABLE",
    "MapState",
    "ResumeAction",
    "ResumptionRow",
    "action",
    "first_fitting",
    "known",
    "plan",
]

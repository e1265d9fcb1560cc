"""Cost of each kind of frame to whoever serves it, so that one peer's frames do not hold the others up.

A unit is about a microsecond of a broker's loop: decoding the frame, acting on it, and what is to be done in its wake.
Bytes say little about that: a flow of 30 bytes costs as much as a transfer of 10 KiB. `Turn` counts the units.
"""

from __future__ import annotations

import sys
from typing import Final

from acquit.protocol.definitions import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    Transfer,
)

FRAME_COSTS: Final[dict[type, int]] = {
    type(None): 5,  # a heartbeat: nothing is decoded, nothing follows
    Open: 500,  # limits are looked at, the container's other connections, an open is written
    Begin: 150,  # a session with its tables, an answer
    Attach: 500,  # termini are decoded, an address is looked up, rights are checked, a filter compiled
    Flow: 50,  # a queue is looked at again for whoever has credit now, perhaps an answer
    Transfer: 40,  # the long way, and a message posted at its end
    Disposition: 40,  # besides DELIVERY_COST for each delivery that it speaks of
    Detach: 250,  # a terminus is taken down, an answer; besides DELIVERY_COST for each delivery
    End: 150,
    Close: 150,
}
"""Costs by the class of the performative; a frame without one has that of None."""

HEAD_BYTES_PER_COST: Final = 8
"""Bytes of a performative that cost one unit besides: it may have maps with thousands of entries. A payload is free."""

PREDICTED_COST: Final = 4
"""Cost of a transfer that looks like the one before (`fastpath`): not decoded, and posted with its neighbours."""

SINGLE_COST: Final = 100
"""Cost of such a transfer where the application cannot take it with its neighbours; `ReceivingLink.predicted_cost` says
on which links that is, and on which a message costs more: then one that comes the long way does as well."""

FAN_COST: Final = 4
"""Cost of a message besides for each queue that it goes to, but for the first `FAN_FREE`."""

RUN_FAN_COST: Final = 1
"""The same where messages that come together enter each queue together: less, but they may have to be laid out."""

FAN_FREE: Final = 16
"""Queues to which messages go for what they cost anyway."""

DELIVERY_COST: Final = 10
"""Cost of a delivery that gets an outcome, or is given back: a state is changed, often a record is written."""

RETURN_COST: Final = 200
"""Cost of a delivery that its receiver does not accept: a copy of its message may be posted elsewhere, a dead letter,
whatever the outcome is, by the limits of its queue or the outcome that its source has by default."""

ACCEPTED_COST: Final = 2
"""Cost of a delivery that gets *accepted*: it leaves with all its neighbours at once."""

RECEIVER_COSTS: Final[dict[type, int]] = {
    Accepted: ACCEPTED_COST,
    Rejected: RETURN_COST,
    Released: RETURN_COST,
    Modified: RETURN_COST,
    type(None): RETURN_COST,
}
"""Costs of a delivery of which its receiver tells a state, by the class of that; DELIVERY_COST is that of others."""

SENDER_COSTS: Final[dict[type, int]] = {Accepted: ACCEPTED_COST}
"""The same for its sender, who settles what we have said."""

UNBOUNDED: Final = sys.maxsize
"""Budget of a turn without limit: more than anybody can spend."""


class Turn:
    """Budget that may still be spent before others have their turn.

    What is overdrawn, because a frame cannot be cut or because its cost was known only afterwards, is taken from the
    turns that follow: over time everybody gets the same, whatever their frames are (deficit round robin).
    """

    __slots__ = ("_cost_max", "left")

    def __init__(self, cost_max: int) -> None:
        """`cost_max`: of one turn; 0 for no limit."""
        self._cost_max = cost_max or UNBOUNDED
        self.left = 0
        """Units that are left; at 0 or below, the turn is over."""

    def begin(self) -> None:
        """Begin another turn."""
        self.left = min(self.left, 0) + self._cost_max


__all__ = [
    "ACCEPTED_COST",
    "DELIVERY_COST",
    "FAN_COST",
    "FAN_FREE",
    "FRAME_COSTS",
    "HEAD_BYTES_PER_COST",
    "PREDICTED_COST",
    "RECEIVER_COSTS",
    "RETURN_COST",
    "RUN_FAN_COST",
    "SENDER_COSTS",
    "SINGLE_COST",
    "UNBOUNDED",
    "Turn",
]

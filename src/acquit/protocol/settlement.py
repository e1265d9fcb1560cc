"""What the two ends of a link know about one delivery, as a table (specification 2.6.12).

Being written: phases are final, the table follows.
"""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    """What one end knows about one delivery."""

    NEW = 0
    """Nothing of it has been transferred."""
    UNSETTLED = 1
    """Transferred; nobody has decided. The receiver settles first."""
    UNSETTLED_SECOND = 2
    """Receiver only: as UNSETTLED, and the receiver settles after the sender (rcv-settle-mode second)."""
    OFFERED = 3
    """The sender announced a terminal state of its own accord and waits for the receiver to confirm it."""
    OFFERED_SECOND = 4
    """Receiver only: as OFFERED, in rcv-settle-mode second."""
    DECIDED = 5
    """The receiver's outcome is known at this end, and neither end has settled."""
    DECIDED_SECOND = 6
    """Receiver only: as DECIDED, in rcv-settle-mode second: the sender settles next."""
    SETTLED = 7
    """This end has forgotten the delivery, and the peer has or will."""
    LOST = 8
    """The link, session or connection went first: nothing can be said to the peer about it any more."""

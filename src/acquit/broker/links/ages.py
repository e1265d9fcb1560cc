"""The age of deliveries that wait for an outcome, without a clock in the way of each.

A delivery does not know when it was sent. So now and then (`look`, each second) it is noted how far the delivery-ids of
a session have come: what has an id below that was sent before. From these notes follows the age of the oldest delivery
that is unsettled, up to the time between two looks. A session that holds one delivery for hours, and sends others
meanwhile, has few notes all the same: they are close for what is young and far apart for what is old.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from acquit.protocol.serial import distance

if TYPE_CHECKING:
    from acquit.protocol.session import Session

NOTES_MAX: Final = 32
"""Notes of one session."""

_Notes = list[tuple[int, int]]
"""The next delivery-id and the time in microseconds, oldest first."""


class Ages:
    """The ages of what one connection was sent."""

    __slots__ = ("_notes",)

    def __init__(self) -> None:
        self._notes: dict[Session, _Notes] = {}

    def look(self, sessions: Iterable[Session], time_us: int) -> None:
        """Note how far the sessions are, those that wait for an outcome."""
        before, self._notes = self._notes, {}
        for session in sessions:
            oldest, reached = session.oldest_outgoing, session.next_delivery_id
            if oldest is None:
                continue
            notes = [note for note in before.get(session, ()) if distance(oldest, note[0]) > 0]
            if not notes or notes[-1][0] != reached:
                notes.append((reached, time_us))
            if len(notes) > NOTES_MAX:
                del notes[_least_missed(notes)]
            self._notes[session] = notes

    def shift(self, by_us: int) -> None:
        """Take notice that the clock was set, forward or (negative) back: an age is a duration."""
        for notes in self._notes.values():
            notes[:] = [(reached, time_us + by_us) for reached, time_us in notes]

    def age_ms(self, session: Session, delivery_id: int, time_us: int) -> int:
        """Return the age of a delivery of the session, in milliseconds; 0 if it was sent since the last look."""
        for reached, noted_us in self._notes.get(session, ()):
            if distance(delivery_id, reached) > 0:
                return max(0, time_us - noted_us) // 1000
        return 0

    def oldest_ms(self, sessions: Iterable[Session], time_us: int) -> int:
        """Return the age of the oldest delivery that waits for an outcome; 0 for none."""
        return max(
            (
                self.age_ms(session, oldest, time_us)
                for session in sessions
                if (oldest := session.oldest_outgoing) is not None
            ),
            default=0,
        )


def _least_missed(notes: _Notes) -> int:
    """Return the index of the note without which ages are the least wrong, in proportion."""
    now_us = notes[-1][1]

    def error(index: int) -> float:
        before_us = notes[index - 1][1]
        return (notes[index + 1][1] - before_us) / (now_us - before_us + 1)

    return min(range(1, len(notes) - 1), key=error)


__all__ = ["NOTES_MAX", "Ages"]

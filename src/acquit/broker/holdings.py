"""The live messages of a broker, as the checkpoint of its journal sees them (`ledger.checkpoint.CheckpointOwner`).

Live are the durable messages in queues (`life`), and those that transactions hold until they are committed. For each it
is known where its record stands, so that a segment leaves only when none of them needs it any more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from acquit.broker.recovery import to_live
from acquit.store.interface import Position

if TYPE_CHECKING:
    from acquit.broker.life import Life
    from acquit.broker.transact.held_postings import HeldPostings
    from acquit.ledger.live import LiveMessage

logger = logging.getLogger("acquit.broker.journal")

_STAYS: Final = (
    "segment %d stays in the journal, because messages in it have no newer record: none is lost, and it is tried again"
)


class Holdings:
    """The live messages of one broker."""

    def __init__(self, life: Life, postings: HeldPostings) -> None:
        """`postings` are those that transactions hold."""
        self._life = life
        self._parking = life.parking
        self._postings = postings
        self._staying = 0
        """The number of a segment that could not leave the journal."""

    @property
    def live_bytes(self) -> int:
        """Payloads of all live durable messages, and of those that transactions hold."""
        return self._life.live_bytes + self._postings.durable_bytes

    @property
    def live_count(self) -> int:
        """The number of these messages."""
        return self._life.live_count + len(self._parking.rows) + len(self._postings.durable)

    @property
    def last_sequence(self) -> int:
        """The highest sequence that was given to a message."""
        return self._life.scribe.sequences.last

    @property
    def warning(self) -> str:
        """The reason why somebody should look at the journal; "" for none."""
        return _STAYS % self._staying if self._staying else ""

    def sequences(self) -> Iterable[int]:
        """Return those of all live messages at this moment, those held by transactions included."""
        return chain(self._life.sequences(), self._parking.rows.sequences(), list(self._postings.durable))

    def take_committed(self) -> Iterable[int]:
        """Return the sequences of messages that have come to be live by a commit since the last call."""
        committed, self._postings.committed = self._postings.committed, []
        return committed

    def live(self, sequence: int) -> LiveMessage | None:
        """Return a live message as the ledger sees it; None for one that is not live."""
        message = self._life.message(sequence)
        if message is not None:
            return to_live(message)
        return self._parking.live(sequence) or self._postings.live(sequence)

    def positions(self, sequences: Sequence[int]) -> Sequence[int]:
        """Return where the records of these messages stand; 0 for each that is not live. Lays out no run."""
        return [
            position or self._life.position(sequence) or self._postings.position(sequence)
            for sequence, position in zip(sequences, self._parking.rows.positions(sequences), strict=True)
        ]

    def moved(self, sequence: int, position: Position) -> None:
        """Take notice that the record of a message stands there now."""
        before = self._parking.rows.move(sequence, position)
        if before is None:
            message = self._life.message(sequence)
            if message is None:
                before = self._postings.move(sequence, position)
            else:
                before, message.position = Position(message.position), position
        self._life.occupancy.left(before)
        self._life.occupancy.entered(position)

    def occupants(self, segment: int) -> int:
        """Return how many live messages have their record in this segment or an older one."""
        return self._life.occupancy.occupants(self._life.scribe.journal.segments, segment)

    def stays(self, segment: int, messages: int) -> None:
        """Take notice that the segment cannot leave the journal; 0 messages: it has left after all."""
        self._staying = segment if messages else 0
        if messages:
            logger.error("%s; please report this", _STAYS % segment, extra={"messages": messages})
        else:
            logger.warning("segment %d, which had to stay in the journal, has left it", segment)


__all__ = ["Holdings"]

"""The live messages of a fold, by sequence: as columns while there is nothing special about them, else as objects.

To the fold it is one mapping. Who asks for a message by its sequence may change it, and so gets an object, which it is
from then on; who goes through all of them gets copies.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from itertools import chain

from acquit.ledger.events import DISPATCHED
from acquit.ledger.live import LiveMessage
from acquit.ledger.rows import PlainRow, PlainRows


class LiveMessages(MutableMapping[int, LiveMessage]):
    """Messages in queues, and those held by open transactions."""

    def __init__(self) -> None:
        self.objects: dict[int, LiveMessage] = {}
        """Messages of which there is something special to say, and others that somebody asked for."""
        self.rows = PlainRows()
        """All others."""

    def __len__(self) -> int:
        return len(self.objects) + len(self.rows)

    def __iter__(self) -> Iterator[int]:
        return chain(self.rows.sequences(), list(self.objects))

    def __contains__(self, sequence: object) -> bool:
        return sequence in self.objects or (isinstance(sequence, int) and sequence in self.rows)

    def __getitem__(self, sequence: int) -> LiveMessage:
        message = self.objects.get(sequence)
        if message is None:
            row = self.rows.take(sequence)
            if row is None:
                raise KeyError(sequence)
            message = self.objects[sequence] = to_message(row)
        return message

    def __setitem__(self, sequence: int, message: LiveMessage) -> None:
        self.rows.discard(sequence)
        self.objects.pop(sequence, None)
        if is_plain(message):
            self.rows.add(
                sequence,
                message.position,
                message.fingerprint,
                message.posted_us,
                message.queue,
                message.actor,
                message.flags,
                message.priority,
            )
        else:
            self.objects[sequence] = message

    def __delitem__(self, sequence: int) -> None:
        if not self.drop(sequence):
            raise KeyError(sequence)

    def drop(self, sequence: int) -> bool:
        """Forget a message; False where it is not live."""
        return self.objects.pop(sequence, None) is not None or self.rows.discard(sequence)

    def look(self, sequence: int) -> LiveMessage | None:
        """Return a message to look at: what is done to it may be done to a copy. None where it is not live."""
        message = self.objects.get(sequence)
        if message is None:
            row = self.rows.find(sequence)
            return None if row is None else to_message(row)
        return message

    def acquire(self, sequence: int, actor: int) -> bool:
        """An actor has acquired a message; False where it is not live."""
        message = self.objects.get(sequence)
        if message is None:
            return self.rows.acquire(sequence, actor)
        message.actor = actor
        message.flags |= DISPATCHED
        return True

    def add_copy(self, origin: int, sequence: int, queue: int, posted_us: int, flags: int) -> bool:
        """Take one more message of the record that `origin` has. False, and nothing is changed, where a row does not
        say all of that, or a message of this sequence is here."""
        return sequence not in self.objects and self.rows.add_copy(origin, sequence, queue, posted_us, flags)

    def copies(self) -> Iterator[LiveMessage]:
        """Return all of them to look at: what is done to them is done to copies, or to what is special."""
        for sequence in self:
            message = self.look(sequence)
            if message is not None:
                yield message


def is_plain(message: LiveMessage) -> bool:
    """Return True if a row says all of a message."""
    return not (
        message.attempt
        or message.expires_at_ms
        or message.due_at_ms
        or message.transaction
        or message.notes is not None
        or not message.position
    )


def to_message(row: PlainRow) -> LiveMessage:
    """Return the message that a row is of."""
    return LiveMessage(
        row.sequence,
        row.queue,
        row.position,
        row.fingerprint,
        row.flags,
        0,
        row.posted_us,
        priority=row.priority,
        actor=row.actor,
    )


__all__ = ["LiveMessages", "is_plain", "to_message"]

"""Parked messages: those of deep queues, kept as rows of numbers while their turn is far away.

A durable message that waits, with its body in the journal and nothing special about it, is seven numbers
(`ledger.rows`): a tenth of what it takes as an object. A restart begins with all of them parked, as the fold of the
journal has them; a queue that grows deep parks what stands in its middle (`dispatching.backlog`). As their turn comes
they are objects again.

**One object.** At any moment a message has one object or none: who knows it by its sequence asks here, and gets the
object that there is, or the one that is made now, also where it has come into a run since (`dispatching.paging`). So a
message is parked only if nobody else has its object in hand: a walk through the queue, a browser, a reader of bodies.
Nobody has to say so, because the interpreter counts references.
"""

from __future__ import annotations

from array import array
from collections import deque
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from acquit.broker.message import COPY, DISPATCHED, DURABLE, Message, QueueBase
from acquit.broker.queue import NodeState
from acquit.ledger.events import ID_REUSED
from acquit.ledger.live_messages import to_message
from acquit.ledger.rows import PlainRow, PlainRows, Stretch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from acquit.broker.message_run import MessageRun
    from acquit.ledger.live import LiveMessage

_AVAILABLE: Final = NodeState.AVAILABLE
KEPT_FLAGS: Final = DURABLE | DISPATCHED | COPY | ID_REUSED
"""Flags of a message that a restart keeps, and a row."""


class ParkingAccount(Protocol):
    """Account of the memory that messages cost, which parking changes: `memory.Memory`."""

    def enter_parked(self, messages: int) -> None:
        """Count messages that are in queues from now on, and are parked."""
        ...

    def park(self, messages: int) -> None:
        """Count so many messages as having no objects any more."""
        ...

    def unpark(self, messages: int) -> None:
        """Count so many messages that were parked as having objects again."""
        ...


class Sizes(NamedTuple):
    """Sizes that a queue goes by."""

    line_max: int
    """Messages of one priority beyond which those that come are parked."""
    block: int
    """Messages that are parked, and made objects again, together: less than a millisecond's work."""
    run: int = 1
    """Messages that are worth a run where others wait already, or that are parked: each costs as much as some messages
    to be handed out."""


SIZES = Sizes(8_192, 512, 8)
"""Sizes of a broker that is made now. Tests make them small."""


class Parking:
    """The parked messages of one broker."""

    def __init__(
        self, live: dict[int, Message], account: ParkingAccount, in_run: Callable[[int], Message | None]
    ) -> None:
        """`live`: the messages that have objects, by sequence. `in_run` gives the object of one that is in a run."""
        self.sizes: Final = SIZES
        self.rows = PlainRows()
        self._live = live
        self._account = account
        self._in_run = in_run
        self._queues: dict[int, QueueBase] = {}
        """Queues of messages that are parked, by number."""
        self._counts: dict[int, int] = {}
        """Messages that are parked, by the number of their queue."""
        self._looked_at: deque[int] = deque()
        """Sequences of messages that were parked, and are objects because somebody asked for them."""

    def count(self, queue: QueueBase) -> int:
        """Return how many messages of a queue are parked."""
        return self._counts.get(queue.number, 0)

    def park(self, messages: list[Message]) -> array[int] | list[Message]:
        """Park messages of one queue, if that can be done with all of them; what stands for them in the backlog."""
        for index in range(len(messages)):
            if _references(messages, index) != _ALONE or not _is_plain(messages[index]):
                return messages
        add, live = self.rows.add, self._live
        sequences = array("Q")
        for message in messages:
            sequence, queue = message.sequence, message.queue
            add(
                sequence,
                message.position,
                message.fingerprint,
                message.posted_us,
                queue.number,
                0,
                message.flags,
                message.priority,
            )
            del live[sequence]
            sequences.append(sequence)
        self._account.park(len(messages))
        self._note(messages[0].queue, len(messages))
        return sequences

    def park_run(self, run: MessageRun) -> bool:
        """Park durable messages that were posted together, of which nobody has an object; False, and nothing is
        changed, where a message of their chunks that came later is parked already."""
        queue, count = run.queue, run.count
        assert run.recorded is not None
        _, positions, fingerprints = run.recorded
        times_us = array("q", (run.posted_us,)) * count
        numbers, marks = array("I", (queue.number,)) * count, array("H", (run.priority << 8 | DURABLE,)) * count
        if not self.rows.extend(run.sequences, positions, fingerprints, times_us, numbers, marks):
            return False
        self._account.park(count)
        self._note(queue, count)
        return True

    def take_over(self, rows: PlainRows, counts: Iterable[tuple[QueueBase, int]]) -> None:
        """Begin with these rows, of which so many are messages of each queue, as the journal left it."""
        self.rows = rows
        for queue, count in counts:
            self._account.enter_parked(count)
            self._note(queue, count)

    def look(self, sequence: int) -> Message | None:
        """`message`, for who only looks at it where it stands: it is parked again some time after nobody has it in hand
        any more. For each that is made an object, two others are tried, so that no more are objects than are in hand,
        have a body in memory, or have changed."""
        message = self._live.get(sequence)
        if message is None:
            message = self._unparked(sequence)
            if message is None:
                return self._in_run(sequence)
            self.tidy(2)
            self._looked_at.append(sequence)
        return message

    def tidy(self, limit: int) -> None:
        """Try to park so many of those again that somebody has looked at."""
        looked_at, live = self._looked_at, self._live
        for _ in range(min(limit, len(looked_at))):
            sequence = looked_at.popleft()
            if sequence not in live:
                continue
            messages = [live[sequence]]
            if messages[0].state is _AVAILABLE and self.park(messages) is messages:
                looked_at.append(sequence)

    def message(self, sequence: int) -> Message | None:
        """Return the object of a live message, made now if it was parked; None where it is not live."""
        return self._live.get(sequence) or self._unparked(sequence) or self._in_run(sequence)

    def _unparked(self, sequence: int) -> Message | None:
        """Return the object of a message that was parked, made now; None for others."""
        row = self.rows.take(sequence)
        if row is None:
            return None
        self._unpark([row])
        return self._live[sequence]

    def stretch(self, sequences: range, priority: int) -> Stretch | None:
        """Return what is known of these messages, if all of them are parked, with this priority, and nobody has ever
        had one; None if not. `PlainRows.beginning` gives such sequences."""
        return self.rows.stretch(sequences, DURABLE, priority)

    def leave_out(self, queue: QueueBase, sequences: range) -> None:
        """Let the messages of a `stretch`, of this queue, be parked no more: they are in a run."""
        self.rows.leave_out(sequences)
        self._unnote(queue.number, len(sequences))

    def objects(self, sequences: Sequence[int]) -> list[Message]:
        """Return the objects of those of these messages, of one queue and in order, that are live: their turn has
        come."""
        live = self._live
        rows = self.rows.take_all([sequence for sequence in sequences if sequence not in live])
        if rows:
            self._unpark(rows)
        return [live[sequence] for sequence in sequences if sequence in live]

    def _unpark(self, rows: list[PlainRow]) -> None:
        """Make objects of these messages of one queue, which are parked no more."""
        number = rows[0].queue
        queue, live = self._queues[number], self._live
        for sequence, position, fingerprint, posted_us, _, _, flags, priority in rows:
            flags = DURABLE | flags & KEPT_FLAGS
            live[sequence] = Message(
                sequence, queue, _AVAILABLE, None, fingerprint, flags, priority, posted_us, 0, position
            )
        self._unnote(number, len(rows))

    def known(self, sequences: Sequence[int]) -> Iterable[Message | None]:
        """Return the objects of these messages; None for each that has none."""
        return map(self._live.get, sequences)

    def posted_us(self, sequence: int) -> int:
        """Return when a message was posted of which a backlog has the sequence, and which `waits`."""
        message = self._live.get(sequence)
        if message is not None:
            return message.posted_us
        row = self.rows.find(sequence)
        assert row is not None
        return row.posted_us

    def waits(self, sequence: int) -> bool:
        """Return True if a message, of which a backlog has the sequence, still waits there."""
        message = self._live.get(sequence)
        return sequence in self.rows if message is None else message.state is _AVAILABLE

    def live(self, sequence: int) -> LiveMessage | None:
        """Return a parked message as the ledger sees it; None where none of that sequence is parked."""
        row = self.rows.find(sequence)
        return None if row is None else to_message(row._replace(flags=DURABLE | row.flags & KEPT_FLAGS))

    def _unnote(self, number: int, count: int) -> None:
        self._account.unpark(count)
        self._counts[number] -= count
        if not self._counts[number]:
            del self._counts[number], self._queues[number]

    def _note(self, queue: QueueBase, count: int) -> None:
        self._queues[queue.number] = queue
        self._counts[queue.number] = self.count(queue) + count


def _is_plain(message: Message) -> bool:
    """Return True if a row says all of a message."""
    return (
        message.body is None
        and message.extra is None
        and message.state is _AVAILABLE
        and message.flags & ~KEPT_FLAGS == 0
        and message.flags & DURABLE != 0
        and not message.attempt
        and not message.expires_at_ms
        and message.holder is None
    )


def _references(objects: list[Any], index: int) -> int:
    """Count the references to an object, that of the list among them."""
    return getrefcount(objects[index])


def _alone() -> int:
    """Return what `_references` says of a message that is known to the list and to the table of live messages alone."""
    probe = [object()]
    known = {0: probe[0]}
    count = _references(probe, 0)
    assert known[0] is probe[0]  # both are there until now, for a compiler as well
    return count


_ALONE: Final = _alone()

__all__ = ["KEPT_FLAGS", "SIZES", "Parking", "Sizes"]

"""The fixed-width event: what happened to which message, in 48 bytes.

Every record of the journal carries at least one. The event is what the audit reads: who (actor) did what (kind) to
which message (sequence) in which queue, and when. It has a fixed width so that a million of them are one array::

    offset  size  field        meaning
         0     8  sequence     the message, unique in the broker, never reused; 0 where no message is meant
         8     8  origin       a link to elsewhere, by kind. Entering kinds: the copy it came from. Retiring kinds: the
                               copy it became. RELEASED, MODIFIED: not offered again before this time (milliseconds
                               since the epoch). READ: the outcome. 0: none, at once
        16     8  time_us      wall clock, microseconds since the epoch, signed
        24     4  crc          CRC-32 of the payload of the message's posting   } together its fingerprint,
        28     4  size         bytes of that payload                            } one word: size << 32 | crc
        32     4  queue        queue number, never reused; 0 where no queue is meant
        36     4  actor        who: the number of a link or user declared by an ACTOR record; 0: the broker itself
        40     1  kind         EventKind
        41     1  flags        EventFlag
        42     2  attempt      delivery-count after the event (stays at 65535)
        44     4  transaction  number of the transaction it belongs to, within its run; 0: none

All little-endian, every field aligned to its size; ``numpy.frombuffer(data, numpy.dtype(list(EVENT_DTYPE)))`` reads
the lot. Retiring events repeat the fingerprint of the posting, so that posted and retired messages can be summed and
compared without joining them (`acquit.ledger.totals`).

**Place is sequence.** Within a queue (and priority) messages are ordered by sequence: nothing else records their
place. A message posted in a transaction is recorded under a provisional sequence (HELD, not yet in the queue) and
enters at the commit under a fresh one, by a POSTED event whose origin is the provisional one.

Numbers in this module are part of the format and never reused.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import IntEnum, IntFlag
from struct import Struct
from sys import byteorder
from typing import Final, NamedTuple
from zlib import crc32

from acquit.store.interface import EVENT_BYTES


class EventKind(IntEnum):
    """Kinds of events. 1 to 15: entered a queue; 16 to 31: left it for good; 32 and up: neither."""

    NONE = 0
    """No message is concerned: the record's own kind says all."""

    POSTED = 1
    MOVED_IN = 2
    DEAD_LETTERED_IN = 3
    EXPIRED_IN = 4

    ACCEPTED = 16
    CONSUMED = 17
    """Taken by a pre-settled link."""
    DEAD_LETTERED = 18
    EXPIRED = 19
    DROPPED = 20
    """Rejected, or tried too often, at an address without a dead letter address."""
    DISPLACED = 21
    """Displaced by a newer message: ring, last value, drop-oldest."""
    MOVED_OUT = 22
    PURGED = 23
    """Removed by a purge, or with its queue; the actor says who asked."""
    LOST_VOLATILE = 24

    ACQUIRED = 32
    RELEASED = 33
    """Back in its place, the count unchanged."""
    MODIFIED = 34
    """Back in its place; the count went up if `attempt` says so, and then it is a failure unless it is flagged
    LEFT_BEHIND."""
    DUE = 35
    """A scheduled message became available."""
    SUSPENDED = 36
    RESUMED = 37
    READ = 38
    """Read in a non-destructive queue, where it stays. `origin` says the outcome: 1 accepted, 2 rejected, 3 released,
    4 modified, 5 modified with delivery-failed."""

    UNROUTED = 48
    """Posted to an address where nothing matched."""
    DUPLICATE = 49
    """A posting that repeated this message was suppressed by duplicate detection, or by its sender's mark. Its
    fingerprint is that of the body alone, which both have. Sequence 0: by a mark, and which posting it repeated is not
    known."""
    HELD = 50
    """Posted in a transaction: recorded, not in the queue before the commit."""
    ROLLED_BACK = 51
    COPIED_FORWARD = 52
    """Rewritten further on, as a record; nothing happened to the message."""
    PASSED = 53
    """Committed by the transaction that held it, and entered only queues whose messages are not recorded."""


ENTERING: Final = frozenset(kind for kind in EventKind if 1 <= kind < 16)
RETIRING: Final = frozenset(kind for kind in EventKind if 16 <= kind < 32)

READ_OUTCOMES: Final = ("", "accepted", "rejected", "released", "modified", "modified, delivery failed")
"""Names of the outcomes that the origin of READ says."""


class EventFlag(IntFlag):
    """Circumstances of an event."""

    DURABLE = 0x01
    COPY = 0x02
    """Entered without a payload of its own: the message of `origin`, live at this moment, holds it."""
    CONNECTION_LOST = 0x04
    """Returned because the connection was lost, not because the consumer said so."""
    UNDELIVERABLE_HERE = 0x08
    ID_REUSED = 0x10
    """The posting repeats a duplicate-detection id with another body: it passed, flagged."""
    DISPATCHED = 0x20
    """COPIED_FORWARD of a message that had been acquired before (first-acquirer is false)."""
    SUSPENDED = 0x40
    """COPIED_FORWARD of a message acquired by a link that is suspended, to be resumed."""
    LEFT_BEHIND = 0x80
    """RELEASED or MODIFIED that no consumer said: a link ended over the message. If the delivery-count went up, that is
    no failure; if it did not, that is no release."""


# The flags as plain numbers: what is done with an IntFlag costs a call each time, and there may be a million messages.
DURABLE: Final = int(EventFlag.DURABLE)
COPY: Final = int(EventFlag.COPY)
CONNECTION_LOST: Final = int(EventFlag.CONNECTION_LOST)
UNDELIVERABLE_HERE: Final = int(EventFlag.UNDELIVERABLE_HERE)
ID_REUSED: Final = int(EventFlag.ID_REUSED)
DISPATCHED: Final = int(EventFlag.DISPATCHED)
SUSPENDED: Final = int(EventFlag.SUSPENDED)
LEFT_BEHIND: Final = int(EventFlag.LEFT_BEHIND)


class Event(NamedTuple):
    """See the module's table."""

    sequence: int
    origin: int
    time_us: int
    fingerprint: int
    queue: int
    actor: int
    kind: int
    flags: int
    attempt: int
    transaction: int

    @property
    def crc(self) -> int:
        return self.fingerprint & 0xFFFFFFFF

    @property
    def size(self) -> int:
        return self.fingerprint >> 32


def fingerprint(payload: bytes) -> int:
    """Size and CRC-32 of a payload in one word."""
    return len(payload) << 32 | crc32(payload)


EVENT: Final = Struct("<QQqQIIBBHI")
EVENT_DTYPE: Final = (
    ("sequence", "<u8"),
    ("origin", "<u8"),
    ("time_us", "<i8"),
    ("crc", "<u4"),
    ("size", "<u4"),
    ("queue", "<u4"),
    ("actor", "<u4"),
    ("kind", "u1"),
    ("flags", "u1"),
    ("attempt", "<u2"),
    ("transaction", "<u4"),
)
"""Fields for ``numpy.dtype(list(EVENT_DTYPE))``; this package itself does not import numpy."""

ATTEMPT_MAX: Final = 0xFFFF
"""Highest delivery-count recorded, where it stays: it has 16 bits, and a message may be returned for ever."""

_WORDS: Final = EVENT_BYTES // 8
_SEQUENCE, _ORIGIN, _FINGERPRINT = 0, 1, 3
"""Places of columns among the words of an event."""

pack_event = EVENT.pack
"""The ten fields of `Event`, in order and by position -> 48 bytes."""


def pack_events(
    sequences: Sequence[int],
    fingerprints: Sequence[int],
    time_us: int,
    queue: int,
    actor: int,
    kind: int,
    *,
    flags: int = 0,
    transaction: int = 0,
    origins: Sequence[int] | None = None,
) -> bytes:
    """Pack events that differ in sequence, fingerprint and perhaps origin alone, a column at a time: a tenth of the
    time of packing each by itself (`benchmarks/bench_journal.py`)."""
    # An event is six words of eight bytes, and the columns are three of them.
    words = array("Q", pack_event(0, 0, time_us, 0, queue, actor, kind, flags, 0, transaction)) * len(sequences)
    words[_SEQUENCE::_WORDS] = _column(sequences)
    words[_FINGERPRINT::_WORDS] = _column(fingerprints)
    if origins is not None:
        words[_ORIGIN::_WORDS] = _column(origins)
    return words.tobytes()


def _column(values: Sequence[int]) -> array[int]:
    column = array("Q", values)
    if byteorder == "big":
        column.byteswap()
    return column


NO_EVENT: Final = bytes(EVENT_BYTES)
"""The event of a record that concerns no message."""


def unpack_event(data: bytes) -> Event:
    """Unpack one event. Raises struct.error unless it is 48 bytes."""
    return Event._make(EVENT.unpack(data))


def unpack_events(data: bytes) -> list[Event]:
    """An array of events. Its length must be a multiple of 48 (struct.error otherwise)."""
    return list(map(Event._make, EVENT.iter_unpack(data)))

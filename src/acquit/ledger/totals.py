"""Counting: how many of each event in each queue, and sums that tell whether posted and retired messages are the same.

Beside counts, two sums modulo 2**128 are kept for each queue: over all messages that entered, and over all that were
retired, of a hash of the message::

    hash(sequence, fingerprint) = (sequence << 64) + sequence * fingerprint          modulo 2**128

where the fingerprint is the payload's size and CRC-32 in one word. What entered minus what was retired must be the
sum over the messages that are live: a message retired twice, retired in the wrong queue, lost, invented or altered
shows even where the counts agree. It is a check on the broker and the disk, not on an adversary, and it was chosen to
cost next to nothing in plain Python and in numpy: the upper half sums sequences, the lower half sequences times
fingerprints, and both sums are taken apart from the rest of the arithmetic.

A segment's seal carries the counts and sums of that segment and, cumulated, of all before it, for every queue that then
existed::

    summary:  version u16 | reserved u16 | rows u32 | events u64 | first event, microseconds i64 | last event i64 |
    rows row:      queue u32 | flags u16 | kinds u16 | live u64 | entered here 16 | retired here 16 | entered 16 |
    retired 16 | kinds kind:     event kind u8 | volatile u8 | zeros 6 | here u64 | cumulated u64

The row of queue 0 sums what deleted queues had. So the balance at any time is in the newest seal, and the seals, each
adding its own to the one before, name the segment in which a difference began.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from itertools import islice
from operator import mul
from struct import Struct
from typing import Final

from acquit.errors import StoreVersionUnsupported
from acquit.ledger.events import ENTERING, EVENT, RETIRING, EventKind
from acquit.ledger.fields import FieldReader

HASH_MODULUS: Final = 1 << 128
VERSION: Final = 1
NEVER_US: Final = (1 << 63) - 1
_MANY_BYTES: Final = 32 * EVENT.size
"""Size of an array of events that is worth a look at its columns."""
_ALIKE_MIN: Final = 8
"""Events that stand side by side with others of their kind and queue, on average, to be counted by columns."""
_KEY_AT: Final = (40, 32, 33, 34, 35)
"""Places of the kind, and of the octets of the queue's number, in an event: together they are its key."""
_KEY_BYTES: Final = len(_KEY_AT)
_ALIKE: Final = re.compile(rb"(.{%d})\1*+" % _KEY_BYTES, re.DOTALL)
"""Keys that are the same."""
_WORDS: Final = EVENT.size // 8
_TIME_WORD: Final = 2
_FINGERPRINT_WORD: Final = 3
"""Places of fields in an event, in words of 8 octets; its sequence is the first."""


def message_hash(sequence: int, fingerprint: int) -> int:
    """See above."""
    return ((sequence << 64) + sequence * fingerprint) % HASH_MODULUS


@dataclass(slots=True)
class QueueTotals:
    """The totals of one queue."""

    counts: dict[int, int] = field(default_factory=dict)
    """Durable messages, by EventKind."""
    volatile: dict[int, int] = field(default_factory=dict)
    """Volatile messages, by EventKind: as far as they were recorded."""
    entered_sum: int = 0
    retired_sum: int = 0

    @property
    def entered(self) -> int:
        return sum(count for kind, count in self.counts.items() if kind in ENTERING)

    @property
    def retired(self) -> int:
        return sum(count for kind, count in self.counts.items() if kind in RETIRING)

    @property
    def unrouted(self) -> int:
        """Number of messages posted to this topic that no subscription took, volatile ones included."""
        return self.counts.get(EventKind.UNROUTED, 0) + self.volatile.get(EventKind.UNROUTED, 0)

    @property
    def live(self) -> int:
        """Number of messages that must be live if nothing is wrong."""
        return self.entered - self.retired

    @property
    def live_sum(self) -> int:
        return (self.entered_sum - self.retired_sum) % HASH_MODULUS

    def copy(self) -> QueueTotals:
        return QueueTotals(dict(self.counts), dict(self.volatile), self.entered_sum, self.retired_sum)

    def add(self, other: QueueTotals) -> None:
        """Add another's counts and sums to these."""
        for mine, theirs in ((self.counts, other.counts), (self.volatile, other.volatile)):
            for kind, count in theirs.items():
                mine[kind] = mine.get(kind, 0) + count
        self.entered_sum = (self.entered_sum + other.entered_sum) % HASH_MODULUS
        self.retired_sum = (self.retired_sum + other.retired_sum) % HASH_MODULUS


class Totals:
    """The totals of all queues, in the flat form that is quick to add to."""

    __slots__ = ("_rows", "events", "first_us", "last_us", "volatile")

    def __init__(self) -> None:
        self._rows: dict[int, list[int]] = {}
        """queue << 8 | kind -> [count, sum of sequence * fingerprint, sum of sequences]"""
        self.volatile: dict[int, int] = {}
        """queue << 8 | kind -> count"""
        self.events = 0
        self.first_us = NEVER_US
        """Time of the earliest event; `NEVER_US` while there was none."""
        self.last_us = -NEVER_US

    def add_events(self, events: bytes) -> None:
        """Count an array of events. Raises struct.error where its last one is not whole."""
        if len(events) < _MANY_BYTES or len(events) % EVENT.size or not self._add_columns(events):
            self._add_each(events)

    def _add_columns(self, events: bytes) -> bool:
        """Count many events by their columns: those of one kind and queue that stand side by side are counted together.
        False, with nothing counted, where too few do for that to be cheaper than to count each."""
        count = len(events) // EVENT.size
        keys = bytearray(_KEY_BYTES * count)
        for at, place in enumerate(_KEY_AT):
            keys[at::_KEY_BYTES] = events[place :: EVENT.size]
        runs_max = count // _ALIKE_MIN
        runs = [match.span() for match in islice(_ALIKE.finditer(keys), runs_max + 1)]
        if len(runs) > runs_max:
            return False
        words = array("Q", events)
        if sys.byteorder == "big":
            words.byteswap()
        for begin, end in runs:
            key = int.from_bytes(keys[begin : begin + _KEY_BYTES], "little")
            row = self._rows.setdefault(key, [0, 0, 0])
            row[0] += (end - begin) // _KEY_BYTES
            if key & 0xFF < 32:
                first, behind = begin // _KEY_BYTES * _WORDS, end // _KEY_BYTES * _WORDS
                sequences = words[first:behind:_WORDS]
                row[1] += sum(map(mul, sequences, words[first + _FINGERPRINT_WORD : behind : _WORDS]))
                row[2] += sum(sequences)
        times_us = sorted(array("q", words[_TIME_WORD::_WORDS].tobytes()))  # nearly sorted: quicker than two searches
        self.first_us = min(self.first_us, times_us[0])
        self.last_us = max(self.last_us, times_us[-1])
        self.events += count
        return True

    def _add_each(self, events: bytes) -> None:
        """Count an array of events one by one."""
        rows = self._rows
        first_us, last_us = self.first_us, self.last_us
        for sequence, _, time_us, fingerprint, queue, _, kind, _, _, _ in EVENT.iter_unpack(events):
            key = queue << 8 | kind
            row = rows.get(key)
            if row is None:
                row = rows[key] = [0, 0, 0]
            row[0] += 1
            if kind < 32:
                row[1] += sequence * fingerprint
                row[2] += sequence
            if time_us < first_us:
                first_us = time_us
            if time_us > last_us:
                last_us = time_us
        self.first_us, self.last_us = first_us, last_us
        self.events += len(events) // EVENT.size

    def add_run(
        self, kind: int, queue: int, sequences: Sequence[int], fingerprints: Sequence[int], times_us: Sequence[int]
    ) -> None:
        """Count many of one kind that enter or leave one queue."""
        row = self._rows.setdefault(queue << 8 | kind, [0, 0, 0])
        row[0] += len(sequences)
        row[1] += sum(map(mul, sequences, fingerprints))
        row[2] += sum(sequences)
        self.first_us = min(self.first_us, *times_us)
        self.last_us = max(self.last_us, *times_us)
        self.events += len(sequences)

    def add_event(self, kind: int, queue: int, sequence: int, fingerprint: int, time_us: int) -> None:
        """Count one."""
        row = self._rows.get(queue << 8 | kind)
        if row is None:
            row = self._rows[queue << 8 | kind] = [0, 0, 0]
        row[0] += 1
        if kind < 32:
            row[1] += sequence * fingerprint
            row[2] += sequence
        if time_us < self.first_us:
            self.first_us = time_us
        if time_us > self.last_us:
            self.last_us = time_us
        self.events += 1

    def add_volatile(self, counts: Iterable[tuple[int, int, int]]) -> None:
        """Count (queue, kind, how many) of volatile messages."""
        for queue, kind, count in counts:
            key = queue << 8 | kind
            self.volatile[key] = self.volatile.get(key, 0) + count

    @property
    def entries(self) -> int:
        """Number of (queue, kind) pairs."""
        return len(self._rows) + len(self.volatile)

    def queues(self) -> dict[int, QueueTotals]:
        """Return the totals by queue, in order."""
        result: dict[int, QueueTotals] = {}
        for key, (count, products, sequences) in self._rows.items():
            totals = result.setdefault(key >> 8, QueueTotals())
            kind = key & 0xFF
            totals.counts[kind] = count
            total = products + (sequences << 64)
            if kind in ENTERING:
                totals.entered_sum = (totals.entered_sum + total) % HASH_MODULUS
            elif kind in RETIRING:
                totals.retired_sum = (totals.retired_sum + total) % HASH_MODULUS
        for key, count in self.volatile.items():
            result.setdefault(key >> 8, QueueTotals()).volatile[key & 0xFF] = count
        return dict(sorted(result.items()))


class RowFlag(IntFlag):
    """Flags of a row in a summary."""

    DELETED = 0x01
    """The queue was deleted in this segment: from the next on, what it had counts under queue 0."""


@dataclass(slots=True)
class SummaryRow:
    """Row of a summary: one queue."""

    here: QueueTotals = field(default_factory=QueueTotals)
    """Totals in this segment."""
    cumulated: QueueTotals = field(default_factory=QueueTotals)
    """Totals from the beginning to the end of this segment."""
    flags: int = 0


@dataclass(slots=True)
class Summary:
    """Summary of a segment, as its seal says it."""

    rows: dict[int, SummaryRow] = field(default_factory=dict)
    events: int = 0
    first_us: int = NEVER_US
    """Times of the earliest and the latest event here; `NEVER_US` and its negative where there was none."""
    last_us: int = -NEVER_US

    def encode(self) -> bytes:
        parts = [_HEAD.pack(VERSION, 0, len(self.rows), self.events, self.first_us, self.last_us)]
        for queue, row in sorted(self.rows.items()):
            kinds = [
                _KIND.pack(kind, volatile, here.get(kind, 0), count)
                for volatile, here, cumulated in (
                    (0, row.here.counts, row.cumulated.counts),
                    (1, row.here.volatile, row.cumulated.volatile),
                )
                for kind, count in sorted(cumulated.items())
            ]
            sums = (row.here.entered_sum, row.here.retired_sum, row.cumulated.entered_sum, row.cumulated.retired_sum)
            parts.append(_ROW.pack(queue, row.flags, len(kinds), row.cumulated.live, *(_wide(value) for value in sums)))
            parts += kinds
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Summary:
        """Raises ValueError, and StoreVersionUnsupported for one that a later version of acquit wrote."""
        reader = FieldReader(data)
        version, _, rows, events, first_us, last_us = reader.struct(_HEAD)
        if version != VERSION:
            raise StoreVersionUnsupported(
                f"a seal's summary of version {version}: written by a later version of acquit"
            )
        summary = cls(events=events, first_us=first_us, last_us=last_us)
        for _ in range(rows):
            queue, flags, kinds, live, *sums = _ROW.unpack(reader.raw(_ROW.size))
            numbers = [int.from_bytes(value, "little") for value in sums]
            row = SummaryRow(
                QueueTotals(entered_sum=numbers[0], retired_sum=numbers[1]),
                QueueTotals(entered_sum=numbers[2], retired_sum=numbers[3]),
                flags,
            )
            for _ in range(kinds):
                kind, volatile, here, cumulated = reader.struct(_KIND)
                if here > cumulated:
                    raise ValueError(f"queue {queue}: {here} of kind {kind} in the segment, {cumulated} up to its end")
                for totals, count in ((row.here, here), (row.cumulated, cumulated)):
                    if count:
                        (totals.volatile if volatile else totals.counts)[kind] = count
            if row.cumulated.live != live:
                raise ValueError(f"queue {queue}: {live} live, but its counts leave {row.cumulated.live}")
            summary.rows[queue] = row
        return summary


_HEAD: Final = Struct("<HHIQqq")
_ROW: Final = Struct("<IHHq16s16s16s16s")
_KIND: Final = Struct("<BB6xQQ")
HEAD_BYTES: Final = _HEAD.size
ROW_BYTES: Final = _ROW.size
KIND_BYTES: Final = _KIND.size


def _wide(value: int) -> bytes:
    return value.to_bytes(16, "little")

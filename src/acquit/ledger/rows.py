"""Live messages of which there is nothing special to say, as columns: some 40 bytes each, found by sequence.

A message that was posted, waits in its queue, and was never given back needs seven numbers. As an object it takes ten
times as much memory as the numbers do, and a queue that is millions deep is mostly of such messages: the fold of a
journal keeps them so (`ledger.live_messages`), and so does the broker as long as their turn is far away
(`broker.parking`).

The columns are cut into chunks by sequence. Within one they are sorted, and mostly without holes, so that where a
message stands is guessed and seldom searched. What leaves is struck out, and a chunk that is half struck out is
written anew.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice, repeat
from operator import lt, rshift
from typing import Final, NamedTuple, cast

from acquit.ledger.events import DISPATCHED
from acquit.store.interface import Position

ROW_BYTES: Final = 40
"""Bytes that a message costs here, about: 36 in the columns, which grow by an eighth at a time."""
_SHIFT: Final = 12
_OFFSET: Final = (1 << _SHIFT) - 1
_ALL_OFFSETS: Final = array("H", range(_OFFSET + 1))
_STRUCK_MIN: Final = 64


class PlainRow(NamedTuple):
    """Row of a message that is kept here."""

    sequence: int
    position: Position
    """Position of the record that holds its payload; never 0, where a journal begins with no posting."""
    fingerprint: int
    posted_us: int
    queue: int
    actor: int
    """Actor that has it acquired; 0: nobody."""
    flags: int
    priority: int


class Stretch(NamedTuple):
    """Rows of messages that follow one another, and differ in no more than these."""

    positions: Sequence[int]
    fingerprints: Sequence[int]
    times_us: Sequence[int]


class RowLot(NamedTuple):
    """Rows of messages that are alike."""

    queue: int
    actor: int
    flags: int
    priority: int
    sequences: list[int]
    positions: Sequence[int]
    fingerprints: Sequence[int]

    @property
    def size_bytes(self) -> int:
        """Size of their payloads."""
        return sum(map(rshift, self.fingerprints, repeat(32)))


class _SequenceChunk:
    """PlainRows of sequences that agree but for their last bits, by those: `offsets`."""

    __slots__ = ("actors", "fingerprints", "marks", "offsets", "positions", "queues", "struck", "times_us")

    def __init__(self) -> None:
        self.offsets = array("H")
        self.positions = array("Q")
        """0: struck out."""
        self.fingerprints = array("Q")
        self.times_us = array("q")
        self.queues = array("I")
        self.actors = array("I")
        self.marks = array("H")
        """Flags, and above them the priority."""
        self.struck = 0

    @property
    def columns(self) -> tuple[array[int], ...]:
        """The columns besides the offsets."""
        return self.positions, self.fingerprints, self.times_us, self.queues, self.actors, self.marks

    def find(self, offset: int) -> int:
        """Return the index of a row; -1 where there is none."""
        offsets = self.offsets
        if not offsets:
            return -1
        index = offset - offsets[0]
        if index < 0:
            return -1
        if index >= len(offsets) or offsets[index] != offset:
            index = bisect_left(offsets, offset)
            if index == len(offsets) or offsets[index] != offset:
                return -1
        return index if self.positions[index] else -1

    def insert(self, offset: int, row: tuple[int, int, int, int, int, int]) -> bool:
        """Put a row where others stand behind it, or where one was struck out; False where it is there."""
        columns = self.columns
        index = bisect_left(self.offsets, offset)
        if index < len(self.offsets) and self.offsets[index] == offset:
            if self.positions[index]:
                return False
            self.struck -= 1
            for column, value in zip(columns, row, strict=True):
                column[index] = value
            return True
        self.offsets.insert(index, offset)
        for column, value in zip(columns, row, strict=True):
            column.insert(index, value)
        return True

    def stretch(self, offsets: array[int]) -> slice | None:
        """Return the place of these rows, where they stand one behind the other; None where that is not so, or one of
        them is not there."""
        first = bisect_left(self.offsets, offsets[0])
        place = slice(first, first + len(offsets))
        return place if self.offsets[place] == offsets and 0 not in self.positions[place] else None

    def delete(self, place: slice) -> None:
        """Leave out these rows, none of which is struck out."""
        for column in (self.offsets, *self.columns):
            del column[place]

    def rewrite(self) -> None:
        """Leave out what is struck out."""
        kept = [index for index, position in enumerate(self.positions) if position]
        self.offsets = array("H", [self.offsets[index] for index in kept])
        self.positions = array("Q", [self.positions[index] for index in kept])
        self.fingerprints = array("Q", [self.fingerprints[index] for index in kept])
        self.times_us = array("q", [self.times_us[index] for index in kept])
        self.queues = array("I", [self.queues[index] for index in kept])
        self.actors = array("I", [self.actors[index] for index in kept])
        self.marks = array("H", [self.marks[index] for index in kept])
        self.struck = 0


_EMPTY: Final = _SequenceChunk()
"""Chunk without rows, in the place of each that is not there."""


class PlainRows:
    """The columns; see above. Nothing in them is of interest but by sequence, and in order."""

    def __init__(self) -> None:
        self._chunks: dict[int, _SequenceChunk] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, sequence: int) -> bool:
        return self._chunks.get(sequence >> _SHIFT, _EMPTY).find(sequence & _OFFSET) >= 0

    def add(
        self,
        sequence: int,
        position: int,
        fingerprint: int,
        posted_us: int,
        queue: int,
        actor: int,
        flags: int,
        priority: int,
    ) -> bool:
        """Keep a message. False, and nothing is changed, where one of that sequence is here. In the order of sequences
        it is cheapest."""
        chunk = self._chunks.get(sequence >> _SHIFT)
        if chunk is None:
            chunk = self._chunks[sequence >> _SHIFT] = _SequenceChunk()
        offset = sequence & _OFFSET
        offsets = chunk.offsets
        if offsets and offsets[-1] >= offset:
            added = chunk.insert(offset, (position, fingerprint, posted_us, queue, actor, priority << 8 | flags))
            self._count += added
            return added
        self._count += 1
        offsets.append(offset)
        chunk.positions.append(position)
        chunk.fingerprints.append(fingerprint)
        chunk.times_us.append(posted_us)
        chunk.queues.append(queue)
        chunk.actors.append(actor)
        chunk.marks.append(priority << 8 | flags)
        return True

    def add_copy(self, origin: int, sequence: int, queue: int, posted_us: int, flags: int) -> bool:
        """`add` a message whose record is that of another one, `origin`, and its priority; False where that is not
        here."""
        chunk = self._chunks.get(origin >> _SHIFT, _EMPTY)
        index = chunk.find(origin & _OFFSET)
        if index < 0:
            return False
        position, fingerprint = chunk.positions[index], chunk.fingerprints[index]
        return self.add(sequence, position, fingerprint, posted_us, queue, 0, flags, chunk.marks[index] >> 8)

    def extend(
        self,
        sequences: Sequence[int],
        positions: Sequence[int],
        fingerprints: Sequence[int],
        times_us: Sequence[int],
        queues: Sequence[int],
        marks: Sequence[int],
    ) -> bool:
        """`add` for many that nobody has acquired, if they are in order and behind all others of their chunks; False,
        and nothing is changed, if they are not. `marks`: flags, and above them the priority."""
        if not all(map(lt, sequences, islice(sequences, 1, None))):
            return False
        parts = list(_by_chunk(sequences))
        for number, part in parts:
            known = self._chunks.get(number)
            if known is not None and known.offsets[-1] >= sequences[part.start] & _OFFSET:
                return False
        for number, part in parts:
            chunk = self._chunks.get(number)
            if chunk is None:
                chunk = self._chunks[number] = _SequenceChunk()
            chunk.offsets += array("H", [sequence & _OFFSET for sequence in sequences[part]])
            # By way of another array: twice as fast as one by one.
            chunk.positions += array("Q", positions[part])
            chunk.fingerprints += array("Q", fingerprints[part])
            chunk.times_us += array("q", times_us[part])
            chunk.queues += array("I", queues[part])
            chunk.actors += array("I", (0,)) * (part.stop - part.start)
            chunk.marks += array("H", marks[part])
        self._count += len(sequences)
        return True

    def find(self, sequence: int) -> PlainRow | None:
        """Return what is known of a message; None where it is not here."""
        chunk = self._chunks.get(sequence >> _SHIFT, _EMPTY)
        index = chunk.find(sequence & _OFFSET)
        if index < 0:
            return None
        mark = chunk.marks[index]
        return PlainRow(
            sequence,
            Position(chunk.positions[index]),
            chunk.fingerprints[index],
            chunk.times_us[index],
            chunk.queues[index],
            chunk.actors[index],
            mark & 0xFF,
            mark >> 8,
        )

    def positions(self, sequences: Iterable[int]) -> list[int]:
        """Return where the records of these messages stand; 0 for each that is not here."""
        found: list[int] = []
        for number, part in groupby(sequences, _number):
            chunk = self._chunks.get(number, _EMPTY)
            offsets = array("H", [sequence & _OFFSET for sequence in part])
            place = chunk.stretch(offsets)
            if place is not None:
                found += chunk.positions[place]
            else:
                found += [0 if index < 0 else chunk.positions[index] for index in map(chunk.find, offsets)]
        return found

    def take(self, sequence: int) -> PlainRow | None:
        """Return what is known of a message, and keep it no more."""
        row = self.find(sequence)
        if row is not None:
            self.discard(sequence)
        return row

    def take_all(self, sequences: Sequence[int]) -> list[PlainRow]:
        """`take` for many, which are in order: what is known of those that are here."""
        taken: list[PlainRow] = []
        for number, part in _by_chunk(sequences):
            chunk = self._chunks.get(number, _EMPTY)
            place = chunk.stretch(array("H", [sequence & _OFFSET for sequence in sequences[part]]))
            if place is None:
                taken += filter(None, map(self.take, sequences[part]))
                continue
            marks = chunk.marks[place]
            taken += map(
                PlainRow,
                sequences[part],
                cast("Sequence[Position]", chunk.positions[place]),
                chunk.fingerprints[place],
                chunk.times_us[place],
                chunk.queues[place],
                chunk.actors[place],
                [mark & 0xFF for mark in marks],
                [mark >> 8 for mark in marks],
            )
            self._delete(number, chunk, place)
        return taken

    def beginning(self, sequences: Sequence[int]) -> range:
        """Return the first of these sequences, which are in order, that follow one another and are kept together."""
        first, count = sequences[0], len(sequences)
        if sequences[-1] - first >= count:
            count = bisect_right(range(count), first, key=lambda place: sequences[place] - place)
        return range(first, min(first + count, (first | _OFFSET) + 1))

    def stretch(self, sequences: range, flags: int, priority: int) -> Stretch | None:
        """Return what is known of the messages of a `beginning`, if all are here with these flags and this priority,
        and nobody has acquired one; None if not."""
        chunk = self._chunks.get(sequences[0] >> _SHIFT, _EMPTY)
        place = chunk.stretch(_offsets(sequences))
        if place is None or any(chunk.actors[place]):
            return None
        if chunk.marks[place] != array("H", (priority << 8 | flags,)) * len(sequences):
            return None
        return Stretch(chunk.positions[place], chunk.fingerprints[place], chunk.times_us[place])

    def leave_out(self, sequences: range) -> None:
        """Keep the messages of a `stretch` no more."""
        number = sequences[0] >> _SHIFT
        chunk = self._chunks[number]
        place = chunk.stretch(_offsets(sequences))
        assert place is not None
        self._delete(number, chunk, place)

    def _delete(self, number: int, chunk: _SequenceChunk, place: slice) -> None:
        self._count -= place.stop - place.start
        chunk.delete(place)
        if chunk.struck == len(chunk.offsets):
            del self._chunks[number]

    def discard(self, sequence: int) -> bool:
        """Keep a message no more; False where it is not here."""
        number = sequence >> _SHIFT
        chunk = self._chunks.get(number, _EMPTY)
        index = chunk.find(sequence & _OFFSET)
        if index < 0:
            return False
        self._count -= 1
        chunk.positions[index] = 0
        chunk.struck += 1
        if chunk.struck == len(chunk.offsets):
            del self._chunks[number]
        elif chunk.struck > _STRUCK_MIN and 2 * chunk.struck > len(chunk.offsets):
            chunk.rewrite()
        return True

    def mark(self, sequence: int, flags: int) -> None:
        """Add flags to those of a message that is here."""
        chunk = self._chunks[sequence >> _SHIFT]
        chunk.marks[chunk.find(sequence & _OFFSET)] |= flags

    def acquire(self, sequence: int, actor: int) -> bool:
        """An actor has acquired a message; False where it is not here."""
        chunk = self._chunks.get(sequence >> _SHIFT, _EMPTY)
        index = chunk.find(sequence & _OFFSET)
        if index < 0:
            return False
        chunk.actors[index] = actor
        chunk.marks[index] |= DISPATCHED
        return True

    def move(self, sequence: int, position: Position) -> Position | None:
        """The record of a message stands at `position` now. Where it stood; None where the message is not here."""
        chunk = self._chunks.get(sequence >> _SHIFT, _EMPTY)
        index = chunk.find(sequence & _OFFSET)
        if index < 0:
            return None
        before = Position(chunk.positions[index])
        chunk.positions[index] = position
        return before

    def sequences(self) -> Iterator[int]:
        """Return the sequences of what is here now, in order, whatever becomes of it while the caller goes through
        them. To begin costs two bytes a message."""
        return _joined(
            [
                (number << _SHIFT, chunk.offsets[:], chunk.positions[:] if chunk.struck else None)
                for number, chunk in sorted(self._chunks.items())
            ]
        )

    def lots(self) -> Iterator[RowLot]:
        """Return all that is here, up to some thousands at a time, each lot in order, that differ in no more than
        sequence, position, size and time. Nothing may be added or leave meanwhile, nor change."""
        for number, chunk in sorted(self._chunks.items()):
            if chunk.struck:
                chunk.rewrite()
            offsets, base = chunk.offsets, number << _SHIFT
            columns = [base + offset for offset in offsets], chunk.positions, chunk.fingerprints
            if all(column == column[:1] * len(column) for column in (chunk.queues, chunk.actors, chunk.marks)):
                yield _lot((chunk.queues[0], chunk.actors[0], chunk.marks[0]), *columns)
                continue
            places: dict[tuple[int, int, int], list[int]] = {}
            for index, kind in enumerate(zip(chunk.queues, chunk.actors, chunk.marks, strict=True)):
                places.setdefault(kind, []).append(index)
            for kind, indexes in places.items():
                yield _lot(kind, *([column[index] for index in indexes] for column in columns))


def _number(sequence: int) -> int:
    return sequence >> _SHIFT


def _by_chunk(sequences: Sequence[int]) -> Iterator[tuple[int, slice]]:
    """Return the numbers of the chunks of these sequences, which are in order, and which of them are in each."""
    begin, count = 0, len(sequences)
    while begin < count:
        number = sequences[begin] >> _SHIFT
        end = bisect_left(sequences, number + 1 << _SHIFT, begin)
        yield number, slice(begin, end)
        begin = end


def _offsets(sequences: range) -> array[int]:
    """Return where the rows of sequences of one chunk are in it."""
    return _ALL_OFFSETS[sequences[0] & _OFFSET : (sequences[-1] & _OFFSET) + 1]


def _lot(
    kind: tuple[int, int, int], sequences: list[int], positions: Sequence[int], fingerprints: Sequence[int]
) -> RowLot:
    queue, actor, mark = kind
    return RowLot(queue, actor, mark & 0xFF, mark >> 8, sequences, positions, fingerprints)


def _joined(copies: list[tuple[int, array[int], array[int] | None]]) -> Iterator[int]:
    for base, offsets, positions in copies:
        if positions is None:
            for offset in offsets:
                yield base + offset
        else:
            for offset, position in zip(offsets, positions, strict=True):
                if position:
                    yield base + offset


__all__ = ["ROW_BYTES", "PlainRow", "PlainRows", "RowLot", "Stretch"]

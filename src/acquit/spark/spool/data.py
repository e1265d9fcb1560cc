"""Data files: the rows of one (epoch, part) as an Arrow IPC file, written once and then only read.

Arrow IPC is read by mapping it: a replay costs no parsing and no copy. What the columns mean is not the spool's affair
(see `spark.columns`); it counts rows. A publication may name rows to be skipped: the file was written before its
writer learned that another part already had them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa

from acquit.spark.spool.entries import Span


class EncodedFile(NamedTuple):
    """A data file that is about to be written: its bytes, most of which lie in the batches that it was made of."""

    pieces: Sequence[memoryview]
    crc: int
    """CRC-32 of all pieces together."""


def encode_batches(batches: Sequence[pa.RecordBatch]) -> EncodedFile:
    """The file. `batches` has at least one, all of one schema."""
    collector = _Collector()
    with pa.ipc.new_file(pa.PythonFile(collector, mode="w"), batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return EncodedFile(collector.pieces, collector.crc)


class _Collector:
    """A file, as Arrow wants one, that keeps what it is given in place of copying it: memory of the size of a part,
    touched for the first time, costs more than all else that is done to write it."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[memoryview] = []
        self.crc = 0
        self._size = 0

    def write(self, piece: pa.Buffer | bytes) -> int:
        view = memoryview(piece)
        self.pieces.append(view)
        self.crc = crc32(view, self.crc)
        self._size += len(view)
        return len(view)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Do nothing: Arrow calls it."""

    def close(self) -> None:
        """Do nothing, as above."""


def decode_batches(data: memoryview) -> list[pa.RecordBatch]:
    """The batches in a file, still lying in `data`."""
    reader = pa.ipc.open_file(pa.py_buffer(data))
    return [reader.get_batch(number) for number in range(reader.num_record_batches)]


def without(batches: Iterable[pa.RecordBatch], skipped: Sequence[Span]) -> Iterator[pa.RecordBatch]:
    """`batches` without the rows in `skipped` (sorted, counted over all batches). Empty batches are left out."""
    start = 0
    for batch in batches:
        end = start + batch.num_rows
        kept_from = start
        for first, last in (*((first, last) for first, last in skipped if first < end and last > start), (end, end)):
            if first > kept_from:
                yield batch.slice(kept_from - start, first - kept_from)
            kept_from = max(kept_from, last)
        start = end


def spans(rows: Iterable[int]) -> tuple[Span, ...]:
    """Ascending row numbers as spans."""
    found: list[Span] = []
    for row in rows:
        if found and found[-1][1] == row:
            found[-1] = (found[-1][0], row + 1)
        else:
            found.append((row, row + 1))
    return tuple(found)

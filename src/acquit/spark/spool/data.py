"""Data files: the rows of one (epoch, part) as an Arrow IPC file, written once and then only read.

Arrow IPC is read by mapping it: a replay costs no parsing and no copy. What the columns mean is not the spool's affair
(see `spark.columns`); it counts rows. A publication may name rows to be skipped: the file was written before its
writer learned that another part already had them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from acquit.spark.spool.entries import Span


def encode_batches(batches: Sequence[pa.RecordBatch]) -> memoryview:
    """The file. `batches` has at least one, all of one schema."""
    measure = pa.MockOutputStream()
    _write(batches, measure)
    # A buffer that grows would be copied each time that it does.
    buffer = pa.allocate_buffer(measure.size())
    _write(batches, pa.FixedSizeBufferWriter(buffer))
    return memoryview(buffer)


def _write(batches: Sequence[pa.RecordBatch], sink: pa.NativeFile) -> None:
    with pa.ipc.new_file(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


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

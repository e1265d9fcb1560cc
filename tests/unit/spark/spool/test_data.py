"""Data files and the rows that a publication leaves out of them."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from acquit.spark.spool.data import decode_batches, encode_batches, spans, without


def _numbers(batches: list[pa.RecordBatch]) -> list[int]:
    return [row["n"] for batch in batches for row in batch.to_pylist()]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_skipped_rows_are_left_out_over_all_batches(sizes: list[int], data: st.DataObject) -> None:
    total = sum(sizes)
    numbers = iter(range(total))
    batches = [pa.record_batch({"n": [next(numbers) for _ in range(size)]}) for size in sizes]
    skipped = data.draw(st.sets(st.integers(0, total - 1)))
    pieces, crc = encode_batches(batches)
    data_file = b"".join(pieces)
    assert crc32(data_file) == crc
    kept = list(without(decode_batches(memoryview(data_file)), spans(sorted(skipped))))
    assert _numbers(kept) == [number for number in range(total) if number not in skipped]
    assert all(batch.num_rows for batch in kept)


def test_rows_are_not_copied_to_be_written() -> None:
    bodies = pa.array([bytes(1_000)] * 1_000, pa.binary())
    pieces, _ = encode_batches([pa.record_batch({"body": bodies})])
    addresses = {np.frombuffer(piece, np.uint8).ctypes.data for piece in pieces if len(piece)}
    assert bodies.buffers()[2].address in addresses


def test_spans_join_neighbours() -> None:
    assert spans([0, 1, 2, 5, 7, 8]) == ((0, 3), (5, 6), (7, 9))
    assert spans([]) == ()

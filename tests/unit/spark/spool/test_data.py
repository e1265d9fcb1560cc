"""Data files and the rows that a publication leaves out of them."""

from __future__ import annotations

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
    kept = list(without(decode_batches(encode_batches(batches)), spans(sorted(skipped))))
    assert _numbers(kept) == [number for number in range(total) if number not in skipped]
    assert all(batch.num_rows for batch in kept)


def test_spans_join_neighbours() -> None:
    assert spans([0, 1, 2, 5, 7, 8]) == ((0, 3), (5, 6), (7, 9))
    assert spans([]) == ()

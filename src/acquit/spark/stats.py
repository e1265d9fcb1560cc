"""Statistics of a file in a table's log, by which readers skip it: how many rows, and of its columns the least and
greatest value and how many are null (Delta protocol, "Per-file Statistics").

It is taken from the file's footer, so it costs no look at a row. Bodies are left out, whatever column has them: the log
is read by whoever plans a query. Text is cut to 32 characters: what was cut from a greatest value is replaced by the
last character there is. Times have milliseconds: the least are rounded down and the greatest up.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

_BODIES: Final = frozenset(("body", "text", "json", "corrupt", "exact"))
"""Columns of the source that have a body, or a part of it."""
_TEXT_MAX: Final = 32
_LAST: Final = "\U0010ffff"
_MILLISECOND: Final = timedelta(milliseconds=1)

Bound: TypeAlias = Callable[[object, bool], object]
"""A value as the log has it; True: it is the greatest."""


def file_stats(path: Path) -> str:
    """Return the statistics of a Parquet file, as JSON."""
    footer = pq.read_metadata(path)
    found: dict[str, dict[str, object]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for number, field in enumerate(_leaves(footer)):
        bound = _bound_of(field.type) if field.name not in _BODIES else None
        if bound is None:
            continue
        column = _column(footer, number)
        if column.nulls is not None:
            found["nullCount"][field.name] = column.nulls
        if column.least is not None:
            with suppress(OverflowError):  # of the calendar's last moment, rounded up: without a bound
                least, greatest = bound(column.least, False), bound(column.greatest, True)
                found["minValues"][field.name], found["maxValues"][field.name] = least, greatest
    return json.dumps({"numRecords": footer.num_rows, **found}, ensure_ascii=False)


def _leaves(footer: pq.FileMetaData) -> list[pa.Field]:
    """The field of each column of the file; of columns within others one that no bound is known of."""
    schema = footer.schema.to_arrow_schema()
    within = pa.field("", pa.null())
    paths = [footer.schema.column(number).path for number in range(footer.num_columns)]
    return [schema.field(path) if path in schema.names else within for path in paths]


class _ColumnStatistics(NamedTuple):
    nulls: int | None
    least: object
    greatest: object


def _column(footer: pq.FileMetaData, number: int) -> _ColumnStatistics:
    """Return the statistics of a column over all row groups; None for what one of them does not say."""
    nulls: int | None = 0
    least: list[object] = []
    greatest: list[object] = []
    bounded = True
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(number)
        said = chunk.statistics
        if said is None or not said.has_null_count:
            return _ColumnStatistics(None, None, None)
        nulls += said.null_count
        if said.has_min_max:
            try:
                least.append(said.min)
                greatest.append(said.max)
            except OverflowError:
                bounded = False  # a day that Python's calendar has not
        elif said.num_values:
            bounded = False  # its values are too long for a footer
    if not bounded or not least:
        return _ColumnStatistics(nulls, None, None)
    return _ColumnStatistics(nulls, min(least), max(greatest))  # type: ignore[type-var]  # all of one type


def _number(value: object, _: bool) -> object:
    return value


def _text(value: object, greatest: bool) -> object:
    text = str(value)
    return text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX] + (_LAST if greatest else "")


def _day(value: object, _: bool) -> object:
    assert isinstance(value, date)
    return value.isoformat()


def _instant(value: object, greatest: bool) -> object:
    assert isinstance(value, datetime)
    cut = value.astimezone(UTC).replace(microsecond=value.microsecond // 1_000 * 1_000)
    if greatest and cut.microsecond != value.microsecond:
        cut += _MILLISECOND
    return cut.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_BOUNDS: Final[tuple[tuple[Callable[[pa.DataType], bool], Bound], ...]] = (
    (pa.types.is_signed_integer, _number),
    (pa.types.is_string, _text),
    (pa.types.is_date32, _day),
    (lambda kind: pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None, _instant),
)
"""Type of a column: how its bounds are written. Columns of other types have none."""


def _bound_of(kind: pa.DataType) -> Bound | None:
    return next((bound for is_kind, bound in _BOUNDS if is_kind(kind)), None)


__all__ = ["file_stats"]

"""Rows of plain messages, many at once: from where their parts are (`spark.plain`), and one parsed row a pattern.

A column that is a part comes from the bytes of each message, any other from the row of its pattern. Two columns are
made of both: `application_properties`, whose keys belong to the pattern, and `exact`, which repeats ids that are uuids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acquit.protocol.codec import encode, skip
from acquit.protocol.sections import MAP8
from acquit.spark.parsing import ParsedRow
from acquit.spark.plain import Lot, Mask, Part, Places

_IDS: Final = ("message_id", "correlation_id")
"""Columns of which `exact` has what is no text, in this order, before all else (`spark.exact`)."""
_UUID_BYTES: Final = 16
_MAP8_HEAD_BYTES: Final = 3
_MAP32_HEAD_BYTES: Final = 9


def batch_like(read: Sequence[ParsedRow], lot: Lot, good: Mask, numbers: Places, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of the `good` plain messages. `read` has the row of one message of each pattern that can be
    parsed, and `numbers` says which pattern each message has."""
    rows = np.flatnonzero(good)
    alike = _Alike(read, lot, rows, np.unique(numbers[rows], return_inverse=True)[1])
    return pa.RecordBatch.from_arrays([alike.column(field) for field in schema], schema=schema)


@dataclass(frozen=True, slots=True)
class _Alike:
    """Messages of a lot, with the rows of their patterns."""

    read: Sequence[ParsedRow]
    lot: Lot
    rows: Places
    patterns: Places
    """Index into `read` of each message."""

    def column(self, field: pa.Field) -> pa.Array:
        """Return one column of these messages."""
        match field.name:
            case "head":
                return self.lot.slices(self.lot.starts[self.rows], self.lot.parts["body"].start[self.rows])
            case "body":
                return self.lot.content(self.lot.parts["body"], self.rows)
            case "application_properties":
                return self._entries(self._of_patterns(field))
            case "exact":
                return self._exact(field)
            case name if name in self.lot.parts:
                return self._of_part(self.lot.parts[name], field)
            case _:
                return self._of_patterns(field)

    def _of_patterns(self, field: pa.Field) -> pa.Array:
        values = pa.array([getattr(row, field.name) for row in self.read], field.type)
        return values.take(pa.array(self.patterns))

    def _of_part(self, part: Part, field: pa.Field) -> pa.Array:
        there = part.there[self.rows]
        if not there.any():
            return self._of_patterns(field)
        if pa.types.is_string(field.type):
            values = self._texts(part)
        else:
            numbers = self.lot.number(part, self.rows)
            values = pa.array(numbers * 1_000 if pa.types.is_timestamp(field.type) else numbers).view(field.type)
        return values if there.all() else pc.if_else(pa.array(there), values, self._of_patterns(field))

    def _texts(self, part: Part) -> pa.StringArray:
        values = self.lot.content(part, self.rows)
        uuids = self.lot.are_uuids(part, self.rows)
        if uuids.any():
            texts = self.lot.uuid_texts(part, self.rows[uuids])
            values = pc.replace_with_mask(values, pa.array(uuids), texts)
        return values.view(pa.string())

    def _entries(self, like: pa.MapArray) -> pa.MapArray:
        """Return application-properties with the keys of `like`, and its values where they belong to the pattern."""
        offsets = like.offsets.to_numpy().astype(np.int64)
        arrays, count = [like.items], len(like.items)
        places = np.arange(count)
        for place, part in enumerate(self.lot.entries):
            those = np.flatnonzero(part.there[self.rows])
            if len(those):
                arrays.append(self.lot.content(part, self.rows[those]).view(pa.string()))
                places[offsets[those] + place] = count + np.arange(len(those))
                count += len(those)
        if len(arrays) == 1:
            return like
        return pa.MapArray.from_arrays(like.offsets, like.keys, pa.concat_arrays(arrays).take(pa.array(places)))

    def _exact(self, field: pa.Field) -> pa.BinaryArray:
        """Return what the pattern has, with each message's own uuids in the places of those."""
        parts = [self.lot.parts.get(column) for column in _IDS]
        masks = [
            np.zeros(len(self.rows), np.bool_) if part is None else self.lot.are_uuids(part, self.rows)
            for part in parts
        ]
        if not np.any(masks):
            return self._of_patterns(field)
        example = np.unique(self.patterns, return_index=True)[1]
        cut = [_cut(row.exact, [bool(mask[at]) for mask in masks]) for row, at in zip(self.read, example, strict=True)]
        pieces = []
        for number, (part, mask) in enumerate(zip(parts, masks, strict=True)):
            pieces.append(pa.array([one[number] for one in cut], pa.binary()).take(pa.array(self.patterns)))
            if part is not None and mask.any():
                # Nothing where the id is none: such a part ends where it begins.
                end = np.where(mask, part.end[self.rows], part.start[self.rows])
                pieces.append(self.lot.slices(part.start[self.rows], end))
        pieces.append(pa.array([one[-1] for one in cut], pa.binary()).take(pa.array(self.patterns)))
        return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))


def _cut(exact: bytes | None, uuids: Sequence[bool]) -> list[bytes | None]:
    """Return what stands before, between and behind the uuids of `_IDS` in the column `exact`: one piece before each of
    them, which is empty where it is none, and the rest."""
    if exact is None:
        return [None] * (len(uuids) + 1)
    at = _MAP8_HEAD_BYTES if exact[0] == MAP8 else _MAP32_HEAD_BYTES
    pieces: list[bytes | None] = []
    done = 0
    for column, is_uuid in zip(_IDS, uuids, strict=True):
        key = encode(column)
        if exact.startswith(key, at):
            value_at = at + len(key)
            at = skip(exact, value_at, len(exact))
            if is_uuid:
                pieces.append(exact[done : at - _UUID_BYTES])
                done = at
                continue
        pieces.append(b"")
    return [*pieces, exact[done:]]

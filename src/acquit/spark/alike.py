"""Rows of plain messages, many at once: from where their parts are (`spark.plain`), and one parsed row a pattern.

A column that is a part comes from the bytes of each message, any other from the row of its pattern. Two columns are
made of both: `application_properties`, whose keys belong to the pattern, and `exact`, which repeats what is no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acquit.protocol.codec import decode, encode, skip
from acquit.protocol.sections import MAP8, MAP32
from acquit.protocol.sections import UUID as UUID_CONSTRUCTOR
from acquit.spark.parsing import ParsedRow, text_of
from acquit.spark.plain import INTEGERS, TEXTS, Lot, Mask, Places, Varying

_IDS: Final = ("message_id", "correlation_id")
_MAP: Final = "application_properties"
_KEYS: Final = (*_IDS, "address", _MAP)
"""Keys that the column `exact` begins with, in this order, where it has them (`spark.parsing`)."""


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
                return self._entries(self._keys(field))
            case "exact":
                return self._exact(field)
            case name if name in self.lot.parts:
                return self._of_part(self.lot.parts[name], field)
            case _:
                return self._of_patterns(field)

    def _of_patterns(self, field: pa.Field) -> pa.Array:
        values = pa.array([getattr(row, field.name) for row in self.read], field.type)
        return values.take(pa.array(self.patterns))

    def _of_part(self, part: Varying, field: pa.Field) -> pa.Array:
        there = part.there[self.rows]
        if not there.any():
            return self._of_patterns(field)
        if pa.types.is_string(field.type):
            values = self._texts(part, self.rows)
        else:
            numbers = self.lot.numbers(part, self.rows)
            values = pa.array(numbers * 1_000 if pa.types.is_timestamp(field.type) else numbers).view(field.type)
        return values if there.all() else pc.if_else(pa.array(there), values, self._of_patterns(field))

    def _texts(self, part: Varying, rows: Places) -> pa.StringArray:
        """The content as text, in messages that have the part, or (then it means nothing) have it not."""
        values = self.lot.content(part, rows)
        constructors = self.lot.constructors(part, rows)
        for some, make in (
            (constructors == UUID_CONSTRUCTOR, self.lot.uuid_texts),
            (np.isin(constructors, INTEGERS), self._number_texts),
            (~np.isin(constructors, (0, *TEXTS, UUID_CONSTRUCTOR, *INTEGERS)), self._other_texts),
        ):
            if some.any():
                values = pc.replace_with_mask(values, pa.array(some), make(part, rows[some]))
        return values.view(pa.string())

    def _number_texts(self, part: Varying, rows: Places) -> pa.BinaryArray:
        return pa.array(self.lot.numbers(part, rows)).cast(pa.string()).view(pa.binary())

    def _other_texts(self, part: Varying, rows: Places) -> pa.BinaryArray:
        texts = [text_of(decode(value)[0]) for value in self.lot.encoded(part, rows).to_pylist()]
        return pa.array(texts, pa.string()).view(pa.binary())

    def _keys(self, field: pa.Field) -> pa.MapArray:
        """Return application-properties without the values that are each message's own: those of the message that was
        read would be there as often as it has others like it."""
        example = self.rows[np.unique(self.patterns, return_index=True)[1]]
        found = [
            [
                (key, None if place < len(self.lot.entries) and self.lot.entries[place].there[at] else value)
                for place, (key, value) in enumerate(row.application_properties)
            ]
            for row, at in zip(self.read, example.tolist(), strict=True)
        ]
        return pa.array(found, field.type).take(pa.array(self.patterns))

    def _entries(self, like: pa.MapArray) -> pa.MapArray:
        """Return application-properties with the keys of `like`, and its values where they belong to the pattern."""
        offsets = like.offsets.to_numpy().astype(np.int64)
        arrays, count = [like.items], len(like.items)
        places = np.arange(count)
        for place, part in enumerate(self.lot.entries):
            those = np.flatnonzero(part.there[self.rows])
            if len(those):
                arrays.append(self._texts(part, self.rows[those]))
                places[offsets[those] + place] = count + np.arange(len(those))
                count += len(those)
        if len(arrays) == 1:
            return like
        return pa.MapArray.from_arrays(like.offsets, like.keys, pa.concat_arrays(arrays).take(pa.array(places)))

    def _exact(self, field: pa.Field) -> pa.BinaryArray:
        """Return what the pattern has, with each message's own values in their places."""
        lost = np.array([row.exact is not None for row in self.read], np.bool_)[self.patterns]
        example = np.unique(self.patterns, return_index=True)[1]
        masks = [lost & self._typed(self.lot.parts.get(column)) for column in _IDS]
        masks.append(
            lost & np.array([_places(row.exact)[-1] is not None for row in self.read], np.bool_)[self.patterns]
        )
        masks[-1] &= self._vary()
        if not np.any(masks):
            return self._of_patterns(field)
        cut = [_cut(row.exact, [bool(mask[at]) for mask in masks]) for row, at in zip(self.read, example, strict=True)]
        around = [pa.array(pieces, pa.binary()).take(pa.array(self.patterns)) for pieces in zip(*cut, strict=True)]
        between = [self._typed_bytes(column, mask) for column, mask in zip(_IDS, masks, strict=False)]
        between.append(self._map(masks[-1]))
        pieces = [piece for pair in zip(around, between, strict=False) for piece in pair]
        counts = np.array([0 if row.exact is None else _head(row.exact)[1] for row in self.read], np.int64)[
            self.patterns
        ]
        return _as_map(_joined(*pieces, around[-1]), counts)

    def _typed(self, part: Varying | None) -> Mask:
        """Return where an id is no text, and not the same in all messages of its pattern."""
        if part is None:
            return np.zeros(len(self.rows), np.bool_)
        constructors = self.lot.constructors(part, self.rows)
        typed: Mask = (constructors > 0) & ~np.isin(constructors, TEXTS)
        return typed

    def _vary(self) -> Mask:
        """Return where a value of application-properties is not the same in all messages of the pattern."""
        found = np.zeros(len(self.rows), np.bool_)
        for part in self.lot.entries:
            found |= part.there[self.rows]
        return found

    def _typed_bytes(self, column: str, mask: Mask) -> pa.BinaryArray:
        """Return what stands behind the constructor of an id, where it is to be in `exact`."""
        part = self.lot.parts.get(column)
        if part is None:
            return pa.array([b""], pa.binary()).take(pa.array(np.zeros(len(mask), np.int64)))
        start = part.start[self.rows]
        return self.lot.slices(start, np.where(mask, part.end[self.rows], start))

    def _map(self, mask: Mask) -> pa.BinaryArray:
        """Return the application-properties of the message, where they are to be in `exact`."""
        start = self.lot.entries_at[self.rows]
        items = self.lot.slices(start, np.where(mask, self.lot.entries_end[self.rows], start))
        counts = np.array([2 * len(row.application_properties) for row in self.read], np.int64)[self.patterns]
        return pc.if_else(pa.array(mask), _as_map(items, counts), pa.scalar(b"", pa.binary()))


def holds(row: ParsedRow, lot: Lot, example: int) -> bool:
    """Return whether the row of this message can stand for others of its pattern: not if `exact` would say its
    application-properties in other bytes than the message does, and these differ."""
    place = _places(row.exact)[-1]
    if place is None or not any(part.there[example] for part in lot.entries):
        return True
    assert row.exact is not None
    items = row.exact[slice(*place)]
    return items[_head(items)[0] :] == lot.data[lot.entries_at[example] : lot.entries_end[example]]


def _head(encoded: bytes) -> tuple[int, int]:
    """Return how long the head of an encoded map is, and how many items it counts."""
    if encoded[0] == MAP8:
        return 3, encoded[2]
    return 9, int.from_bytes(encoded[5:9], "big")


def _places(exact: bytes | None) -> list[tuple[int, int] | None]:
    """Return where the column `exact` has the values of `_KEYS`."""
    found: dict[str, tuple[int, int]] = {}
    if exact is not None:
        at = _head(exact)[0]
        for key in _KEYS:
            name = encode(key)
            if exact.startswith(name, at):
                end = skip(exact, at + len(name), len(exact))
                found[key], at = (at + len(name), end), end
    return [found.get(key) for key in (*_IDS, _MAP)]


def _cut(exact: bytes | None, own: Sequence[bool]) -> list[bytes | None]:
    """Return what stands before, between and behind the values that are each message's own: of the ids all behind the
    constructor, and the whole map. Those that are not leave an empty piece. The head is no part of it."""
    if exact is None:
        return [None] * (len(own) + 1)
    pieces: list[bytes | None] = []
    done = _head(exact)[0]
    for number, (place, cuts) in enumerate(zip(_places(exact), own, strict=True)):
        if cuts:
            assert place is not None
            start, end = place
            pieces.append(exact[done : start + (number < len(_IDS))])
            done = end
        else:
            pieces.append(b"")
    return [*pieces, exact[done:]]


def _joined(*pieces: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))


def _as_map(items: pa.BinaryArray, counts: Places) -> pa.BinaryArray:
    """Return encoded maps of so many items each, as the codec writes them. Null stays null."""
    lengths = pc.fill_null(pc.binary_length(items), 0).to_numpy().astype(np.int64)
    short = (lengths < 255) & (counts < 256)
    heads = pc.if_else(
        pa.array(short),
        _bytes_of(np.stack((np.full_like(lengths, MAP8), lengths + 1, counts), axis=1)),
        _bytes_of(
            np.concatenate(
                (
                    np.full((len(lengths), 1), MAP32),
                    (lengths + 4).astype(">u4").view(np.uint8).reshape(-1, 4),
                    counts.astype(">u4").view(np.uint8).reshape(-1, 4),
                ),
                axis=1,
            )
        ),
    )
    return _joined(heads, items)


def _bytes_of(octets: Places) -> pa.BinaryArray:
    """Return one binary for each row of octets."""
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(octets.shape[1]), len(octets), [None, pa.py_buffer(octets.astype(np.uint8).ravel())]
    ).cast(pa.binary())

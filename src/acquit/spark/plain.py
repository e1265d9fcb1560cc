"""The short way to rows: for messages in their usual form, many at once.

`spark.parsing` reads a message section by section. Most messages of a queue are laid out alike, and differ in few of
their fields. So here the layout of all messages of a lot is read together, field by field, over their bytes joined.
What certain fields hold (`Varying`) is found so, and what else a message says is its *pattern*: the bytes in front of,
between and behind these. Each pattern is read once, the long way, for all messages that have it, so the two ways cannot
disagree about the meaning of bytes; a property test holds them to the same rows.

A message is *plain* when it is laid out like this, each section in its short form::

    header or none | message annotations, our two together | properties or none | application-properties or none
    | one data section, or one value that is text or binary | nothing behind it

(Other annotations belong to the pattern: a message that was acquired before has some behind our two. Those of another
broker than ours belong to it, too, and need not be there.)

and its texts are UTF-8, its times in the calendar. Anything else goes the long way.

These differ between messages of one pattern: the sizes of sections; our annotations; the time to live; of the
properties those of `_FIELDS`; the values of application-properties that are `_VALUES`; the body. A value in
another form than a part can have, a correlation-id that is binary for instance, belongs to the pattern.

``words[at]`` is the eight bytes from `at` on as one number, whatever `at` is: so what stands at each of many places is
one gather. A place that is computed from bytes that turn out to be wrong may lie anywhere; it is kept within the bytes,
and a message is plain only if in the end all of its parts together are as long as it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from acquit.protocol.codec import SKIP_WIDTHS
from acquit.protocol.definitions import SectionCode
from acquit.protocol.extensions import POSTED_AT, SEQUENCE
from acquit.protocol.sections import (
    BINARY8,
    BINARY32,
    HEADER_HEAD,
    LIST8,
    MAP8,
    MAP32,
    STRING8,
    STRING32,
    TIMESTAMP,
    PropertyIndex,
    section_head,
)
from acquit.protocol.sections import UUID as UUID_CONSTRUCTOR
from acquit.spark.parsing import TIME_MAX_MS, TIME_MIN_MS

Places: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
_Words: TypeAlias = NDArray[np.uint64]

_ANNOTATIONS: Final = section_head(SectionCode.MESSAGE_ANNOTATIONS, MAP8)
_SEQUENCE_NAME: Final = b"\xa3%c%b\x80" % (len(SEQUENCE), SEQUENCE.encode())
_TIME_NAME: Final = b"\xa3%c%b\x83" % (len(POSTED_AT), POSTED_AT.encode())
_PROPERTIES: Final = section_head(SectionCode.PROPERTIES, LIST8)
_APPLICATION_PROPERTIES: Final = section_head(SectionCode.APPLICATION_PROPERTIES)
_SHORT_BODIES: Final = (
    section_head(SectionCode.DATA, BINARY8),
    section_head(SectionCode.AMQP_VALUE, BINARY8),
    section_head(SectionCode.AMQP_VALUE, STRING8),
)
_LONG_BODIES: Final = (
    section_head(SectionCode.DATA, BINARY32),
    section_head(SectionCode.AMQP_VALUE, BINARY32),
    section_head(SectionCode.AMQP_VALUE, STRING32),
)
"""First bytes of a body of one piece; its size follows, in one byte (`_SHORT_BODIES`) or in four."""
TEXTS: Final = (STRING8, STRING32)
_NULL: Final = 0x40
_UINTS: Final = (0x52, 0x70)
_IDS: Final = (*TEXTS, 0x53, 0x80, UUID_CONSTRUCTOR)
_FLOAT: Final = 0x72
INTEGERS: Final = (0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x60, 0x61, 0x70, 0x71, 0x80, 0x81)
_VALUES: Final = (*TEXTS, *INTEGERS, _FLOAT, 0x82, TIMESTAMP, UUID_CONSTRUCTOR, BINARY8, BINARY32)
"""Constructors of application-properties that differ between messages of one pattern: of values that are never wrong,
if texts are UTF-8."""
_SIGNED: Final = np.isin(np.arange(256), (0x51, 0x54, 0x55, 0x61, 0x71))
"""Constructors of signed numbers of less than eight bytes."""
_HEADER_FIELDS: Final = 5
_TTL: Final = 2
_FIELDS: Final = {
    PropertyIndex.MESSAGE_ID: ("message_id", _IDS),
    PropertyIndex.SUBJECT: ("subject", TEXTS),
    PropertyIndex.CORRELATION_ID: ("correlation_id", _IDS),
    PropertyIndex.CREATION_TIME: ("created_at", (TIMESTAMP,)),
    PropertyIndex.GROUP_ID: ("group_id", TEXTS),
    PropertyIndex.GROUP_SEQUENCE: ("group_sequence", _UINTS),
}
"""Properties that differ between messages of one pattern: the column, and the constructors with which they do."""
_PROPERTIES_MAX: Final = PropertyIndex.REPLY_TO_GROUP_ID + 1
_ENTRIES_MAX: Final = 32
"""Entries of a map that are looked at one by one. One with more is no annotations of a plain message; as
application-properties it belongs to the pattern."""
_PADDING: Final = bytes(128)
"""Bytes behind the last message, so that what is gathered from its end on is there."""


_WIDTHS: Final = np.array(SKIP_WIDTHS, np.int64)
_FIXED_BYTES: Final = np.where((_WIDTHS >= 0) & (_WIDTHS < 32), _WIDTHS, 0)
_SIZE_BYTES: Final = np.where(_WIDTHS >= 32, _WIDTHS - 32, 0)
"""Bytes of a value, and of the size before it, by its constructor."""


def _wider(*ranges: tuple[int, int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    low, high = np.ones(256, np.int64), np.zeros(256, np.int64)
    for constructor, least, most in ranges:
        low[constructor], high[constructor] = least, most
    return low, high


_NARROW: Final = _wider(
    (0x52, 0, 0), (0x53, 0, 0), (0x70, 0, 255), (0x80, 0, 255), (0x71, -128, 127), (0x81, -128, 127)
)
"""The least and the most number for which there is a shorter form than that of the constructor."""


_HEX: Final = np.frombuffer(b"".join(b"%02x" % octet for octet in range(256)), np.uint8).reshape(256, 2)
_DIGITS: Final = np.flatnonzero(np.frombuffer(str(UUID(int=0)).encode(), np.uint8) != ord("-"))
"""Places of the digits in a uuid."""


@dataclass(frozen=True, slots=True)
class Varying:
    """A part of the messages that differs between those of one pattern. All arrays are over the messages."""

    there: Mask
    """Mask of the messages that have it; of others the places are the same, and the pattern says what there is."""
    at: Places
    """Offset from which the pattern does not have it: of the size, if there is one."""
    start: Places
    """Offset of the content."""
    end: Places

    def take(self, rows: Places) -> Varying:
        """Return the part of these messages."""
        return Varying(self.there[rows], self.at[rows], self.start[rows], self.end[rows])


@dataclass(frozen=True, slots=True)
class Lot:
    """Messages, joined, and where their parts are. All arrays are over the messages."""

    data: bytes
    starts: Places
    ends: Places
    plain: Mask
    """Mask of the plain messages. What follows holds for these alone, if it does not say otherwise."""
    numbered: Mask
    """Mask of those that an acquit broker has numbered and of which the first sections are as a plain message has them,
    whatever follows these: sequence and time of posting are known of all of them."""
    bare_at: Places
    """Offset of the bare message, which begins with its properties."""
    nameless: Mask
    """Mask of those without a message-id."""
    parts: dict[str, Varying]
    """Parts that are columns, by their names."""
    entries: list[Varying]
    """Values of application-properties, the first of each message, the second, and so on."""
    entries_at: Places
    """Offset behind the head of the map of application-properties."""
    entries_end: Places
    _all: list[Varying] = field(repr=False)
    """All parts, as they follow each other. The last is the body."""

    def take(self, rows: Places) -> Lot:
        """Return these messages, which ascend, over the same bytes."""
        return replace(
            self,
            starts=self.starts[rows],
            ends=self.ends[rows],
            plain=self.plain[rows],
            numbered=self.numbered[rows],
            bare_at=self.bare_at[rows],
            nameless=self.nameless[rows],
            parts={name: part.take(rows) for name, part in self.parts.items()},
            entries=[part.take(rows) for part in self.entries],
            entries_at=self.entries_at[rows],
            entries_end=self.entries_end[rows],
            _all=[part.take(rows) for part in self._all],
        )

    def slices(self, starts: Places, ends: Places) -> pa.BinaryArray:
        """The bytes between, one for each; the places ascend."""
        # An array whose elements lie side by side: ours, and what is between them, in turns.
        every = self._elements(np.stack((starts, ends), axis=1))
        return every.take(pa.array(np.arange(0, 2 * len(starts), 2)))

    def _elements(self, bounds: Places) -> pa.BinaryArray:
        """Return what is between one place and the next, row by row. The last element is empty."""
        count = bounds.size
        offsets = np.empty(count + 1, np.int32)
        offsets[:-1] = bounds.ravel()
        offsets[-1] = offsets[-2] if count else 0
        return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(self.data)])

    def payload(self, row: int) -> bytes:
        """Return the bytes of one message."""
        return self.data[self.starts[row] : self.ends[row]]

    def bare(self) -> list[bytes]:
        """Return the bare messages."""
        return [self.data[start:end] for start, end in zip(self.bare_at.tolist(), self.ends.tolist(), strict=True)]

    def postings(self) -> tuple[Places, Places]:
        """Return the sequence and the time of posting of each numbered message, in milliseconds. Of others they make no
        sense."""
        words: _Words = np.ndarray((len(self.data) - 7,), ">u8", self.data, 0, (1,))
        sequences, times = (words[self.parts[name].start].astype(np.int64) for name in ("sequence", "posted_at"))
        return sequences, times

    def names(self) -> tuple[Places, list[bytes]]:
        """Return which plain messages have a message-id that is encoded as we would, and how it is encoded."""
        named = self.parts.get("message_id")
        if named is None:
            return np.zeros(0, np.int64), []
        rows = np.flatnonzero(self.plain & named.there)
        # Encoded as they stand there, if that is the shortest form. It is, but for texts with a size of four bytes.
        rows = rows[self.constructors(named, rows) != STRING32]
        return rows, self.encoded(named, rows).to_pylist()

    def encoded(self, part: Varying, rows: Places) -> pa.BinaryArray:
        """The part in these messages, which have it and ascend, from its constructor on."""
        return self.slices(part.at[rows] - 1, part.end[rows])

    def content(self, part: Varying, rows: Places) -> pa.BinaryArray:
        """The content of a part in these messages, which ascend."""
        return self.slices(part.start[rows], part.end[rows])

    def constructors(self, part: Varying, rows: Places) -> Places:
        """Return the constructor of the part in these messages; 0 where they do not have it."""
        octets = np.frombuffer(self.data, np.uint8)
        return np.where(part.there[rows], octets[part.at[rows] - 1].astype(np.int64), 0)

    def uuid_texts(self, part: Varying, rows: Places) -> pa.BinaryArray:
        """The content, which are uuids, in their usual form."""
        octets = np.frombuffer(self.data, np.uint8)
        digits = _HEX[octets[part.start[rows, None] + np.arange(16)]].reshape(len(rows), 32)
        texts = np.full((len(rows), 36), ord("-"), np.uint8)
        texts[:, _DIGITS] = digits
        offsets = np.arange(0, texts.size + 1, 36, dtype=np.int32)
        return pa.BinaryArray.from_buffers(
            pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(texts.ravel())]
        )

    def numbers(self, part: Varying, rows: Places) -> Places:
        """The same as whole numbers, which are of one byte, two, four or eight."""
        octets = np.frombuffer(self.data, np.uint8)
        words: _Words = np.ndarray((len(self.data) - 7,), ">u8", self.data, 0, (1,))
        return _numbers(words, octets[part.at[rows] - 1], part.start[rows], part.end[rows])

    def patterns(self) -> tuple[Places, Places]:
        """Return the pattern number of each message, and a message of each pattern. All are plain."""
        count, parts = len(self.starts), len(self._all)
        bounds = np.empty((count, 2 * parts), np.int64)
        bounds[:, 0] = self.starts
        for place, part in enumerate(self._all):
            bounds[:, 2 * place + 1] = part.at
            if place < parts - 1:
                bounds[:, 2 * place + 2] = part.end  # the last ends where the next message begins
        pieces = self._elements(bounds).take(pa.array(np.arange(0, bounds.size, 2)))
        # Those of one message follow each other: its pattern is all of them in one.
        offsets = np.frombuffer(pieces.buffers()[1], np.int32, count * parts + 1)[::parts].copy()
        whole = pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pieces.buffers()[2]])
        numbers: Places = pc.dictionary_encode(whole).indices.to_numpy().astype(np.int64)
        # The same bytes may be left of different ones: which parts a message has belongs to its pattern, too.
        having = np.zeros(count, np.int64)
        for place, part in enumerate(self._all):
            having |= part.there.astype(np.int64) << place
        kinds, kind = np.unique(having, return_inverse=True)
        numbers = np.unique(numbers * max(1, len(kinds)) + kind, return_inverse=True)[1]
        return numbers, np.unique(numbers, return_index=True)[1]


def _numbers(words: _Words, constructor: NDArray[np.integer], start: Places, end: Places) -> Places:
    """Return the whole numbers there, of up to eight bytes; what is longer makes no sense."""
    bits = 8 * np.clip(end - start, 1, 8)
    numbers = (words[start] >> (64 - bits).astype(np.uint64)).astype(np.int64)
    sign = np.where(_SIGNED[constructor], np.int64(1) << np.minimum(bits - 1, 62), 0)
    signed: Places = (numbers ^ sign) - sign
    return signed


class _Reader:
    """Bytes of many messages, of which the same part is read in all at once."""

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self.data = data = b"".join([*payloads, _PADDING])
        self.octets = np.frombuffer(data, np.uint8)
        self.numbers: _Words = np.ndarray((len(data) - 7,), ">u8", data, 0, (1,))
        self._words: _Words = np.ndarray((len(data) - 7,), "<u8", data, 0, (1,))
        self._last = len(data) - len(_PADDING) + 1  # what would end further behind does not seem to end where all ends
        self.plain = np.ones(len(payloads), np.bool_)
        """Mask of the messages that are plain as far as they were read."""
        self.nameless = np.ones(len(payloads), np.bool_)
        self.parts: dict[str, Varying] = {}
        self.entries: list[Varying] = []
        self.entries_at: Places = np.zeros(len(payloads), np.int64)
        self.every: list[Varying] = []

    def within(self, places: Places) -> Places:
        """Keep places within the bytes."""
        return np.minimum(places, self._last)

    def octet(self, at: Places) -> Places:
        """Return the byte at each of these places."""
        return self.octets[at].astype(np.int64)

    def word(self, at: Places) -> Places:
        """Return the number of four bytes at each."""
        return (self.numbers[at] >> np.uint64(32)).astype(np.int64)

    def begins(self, at: Places, wanted: bytes) -> Mask:
        """Return whether the bytes at each of these places begin so."""
        different = np.zeros(len(at), np.uint64)
        for offset in range(0, len(wanted), 8):
            piece = wanted[offset : offset + 8]
            mask = np.uint64((1 << 8 * len(piece)) - 1)
            different |= (self._words[at + offset] ^ np.uint64(int.from_bytes(piece, "little"))) & mask
        same: Mask = different == 0
        return same

    def _any_begins(self, at: Places, wanted: Sequence[bytes]) -> Mask:
        """The same of any of these."""
        found = np.zeros(len(at), np.bool_)
        for one in wanted:
            found |= self.begins(at, one)
        return found

    # -- section by section: each from where the one before ends, to where it ends itself ------------------------------

    def header(self, at: Places) -> Places:
        """Read the headers. One with more fields than a header has belongs to the pattern."""
        headed = self.begins(at, HEADER_HEAD)
        counts = np.where(headed, self.octet(at + 5), 0)
        end = self.within(at + np.where(headed, 5 + self.octet(at + 4), 0))
        usual = headed & (counts <= _HEADER_FIELDS)
        self._size(at, np.where(usual, 1, 0))
        place_at = np.where(usual, at + 6, end)
        for place, (there, constructor, part) in enumerate(self._values(place_at, np.where(usual, counts, 0))):
            if place == _TTL:
                self._add(_chosen(part, there & np.isin(constructor, _UINTS)), "ttl_ms")
            place_at = part.end
        self.plain &= ~usual | (place_at == end)
        return end

    def annotations(self, at: Places) -> Places:
        """Read the message annotations of another broker."""
        return self.within(np.where(self.begins(at, _ANNOTATIONS), at + 5 + self.octet(at + 4), at))

    def own_annotations(self, at: Places) -> Places:
        """Read the message annotations: our two, one behind the other, and others before and behind them."""
        self.plain &= self.begins(at, _ANNOTATIONS)
        counts = self.octet(at + 5)
        self.plain &= (counts <= 2 * _ENTRIES_MAX) & (counts % 2 == 0)
        end = self.within(at + 5 + self.octet(at + 4))
        place_at = own_at = at + 6
        found = np.zeros((2, len(at)), np.bool_)
        for place, (there, _, part) in enumerate(self._values(place_at, np.where(self.plain, counts, 0))):
            if place % 2 == 0:
                for name, before in zip((SEQUENCE, POSTED_AT), found, strict=True):
                    same = there & (part.end - part.start == len(name)) & self.begins(part.start, name.encode())
                    self.plain &= ~(same & before)  # of several the first would be the message's
                    before |= same
                    if name is SEQUENCE:
                        own_at = np.where(same, place_at, own_at)
            place_at = part.end
        self.plain &= place_at == end
        for column, whole in (("sequence", _SEQUENCE_NAME), ("posted_at", _TIME_NAME)):
            self.plain &= self.begins(own_at, whole)
            start = self.within(own_at + len(whole))
            own_at = self.within(start + 8)
            self._add(Varying(np.ones(len(at), np.bool_), start, start, own_at), column)
        self.plain &= own_at <= end
        return end

    def numbered(self, at: Places, ends: Places) -> Mask:
        """Return which messages have all annotations, from these places on, before they end, and a sequence that is
        one. The others are not plain."""
        sequences = self.numbers[self.parts["sequence"].start].astype(np.int64)
        # Whatever follows may be missing, and then nothing else would show what is cut short.
        self.plain &= (sequences > 0) & (at + 5 + self.octet(at + 4) <= ends)
        return self.plain.copy()

    def properties(self, at: Places) -> Places:
        """Read the properties."""
        described = self.begins(at, _PROPERTIES)
        counts = np.where(described, self.octet(at + 5), 0)
        self.plain &= counts <= _PROPERTIES_MAX
        end = self.within(np.where(described, at + 5 + self.octet(at + 4), at))
        self._size(at, np.where(described, 1, 0))
        place_at = self.within(np.where(described, at + 6, at))
        for place, (there, constructor, part) in enumerate(self._values(place_at, np.minimum(counts, _PROPERTIES_MAX))):
            if place == PropertyIndex.MESSAGE_ID:
                self.nameless = ~there | (constructor == _NULL)
            if place in _FIELDS:
                column, constructors = _FIELDS[place]
                there = there & np.isin(constructor, constructors)
                if constructors is _IDS:  # what is no text is in the column `exact` as well
                    there &= np.isin(constructor, (*TEXTS, UUID_CONSTRUCTOR)) | self._shortest(constructor, part)
                self._add(_chosen(part, there), column)
            place_at = part.end
        self.plain &= place_at == end
        return end

    def application_properties(self, at: Places) -> Places:
        """Read the application properties. What is not as it should be there belongs to the pattern."""
        described, form = self.begins(at, _APPLICATION_PROPERTIES), self.octet(at + 3)
        short, long = described & (form == MAP8), described & (form == MAP32)
        size_bytes = np.where(short, 1, np.where(long, 4, 0))
        size = np.where(short, self.octet(at + 4), np.where(long, self.word(at + 4), 0))
        end = self.within(np.where(short | long, at + 4 + size_bytes + size, at))
        counts = np.where(short, self.octet(at + 5), np.where(long, self.word(at + 8), 0))
        counted = self.plain & (counts > 0) & (counts <= 2 * _ENTRIES_MAX) & (counts % 2 == 0)
        self.entries_at = place_at = self.within(at + 4 + 2 * size_bytes)
        values: list[tuple[Mask, Varying]] = []
        plain, self.plain = self.plain, self.plain.copy()
        for place, (there, constructor, part) in enumerate(self._values(place_at, np.where(counted, counts, 0))):
            if place % 2:
                values.append((there & self._shortest(constructor, part), part))
            place_at = np.where(there, part.end, place_at)
        counted &= self.plain & (place_at == end)
        self.plain = plain
        self._size(at, np.where(counted, size_bytes, 0))
        for there, part in values:
            # Where the pattern has them they are nowhere, behind whatever came before.
            inside = Varying(*(np.where(counted, one, end) for one in (part.there, part.at, part.start, part.end)))
            self.entries.append(_chosen(inside, counted & there))
            self._add(self.entries[-1])
        return end

    def body(self, at: Places) -> Places:
        """Read the bodies."""
        short, long = self._any_begins(at, _SHORT_BODIES), self._any_begins(at, _LONG_BODIES)
        self.plain &= short | long
        size_at = self.within(at + 4)
        start = size_at + np.where(long, 4, 1)
        end = start + np.where(long, self.word(size_at), self.octet(size_at))
        self._add(Varying(np.isin(self.octet(at + 3), TEXTS), size_at, start, end), "body")
        return end

    # -- what they are made of -----------------------------------------------------------------------------------------

    def _add(self, part: Varying, column: str | None = None) -> None:
        self.every.append(part)
        if column is not None:
            self.parts[column] = part

    def _size(self, section_at: Places, size_bytes: Places) -> None:
        """Add the size of a section, which differs where parts of it do."""
        at = self.within(np.where(size_bytes > 0, section_at + 4, section_at))
        self._add(Varying(size_bytes > 0, at, at, self.within(at + size_bytes)))

    def _values(self, at: Places, counts: Places) -> Iterator[tuple[Mask, Places, Varying]]:
        """The values from these places on, so many in each message: which messages have one more, its constructor,
        and where it is. One that is described, or has no constructor, is none of a plain message."""
        for place in range(int(counts.max(initial=0))):
            there = counts > place
            constructor = self.octet(at)
            self.plain &= ~there | (_WIDTHS[constructor] >= 0)
            size_bytes = _SIZE_BYTES[constructor]
            size = np.where(size_bytes == 1, self.octet(at + 1), _FIXED_BYTES[constructor])
            if (size_bytes == 4).any():
                size = np.where(size_bytes == 4, self.word(at + 1), size)
            start = self.within(np.where(there, at + 1 + size_bytes, at))
            end = self.within(np.where(there, start + size, at))
            yield there, constructor, Varying(there, self.within(np.where(there, at + 1, at)), start, end)
            at = end

    def _shortest(self, constructor: Places, part: Varying) -> Mask:
        """Return where a value is one of `_VALUES`, and is written in its shortest form."""
        numbers = _numbers(self.numbers, constructor, part.start, part.end)
        low, high = _NARROW
        shortest = (numbers < low[constructor]) | (numbers > high[constructor])
        shortest &= (constructor != 0x80) | (numbers >= 0)  # those that no column of Arrow's numbers holds
        shortest &= ~np.isin(constructor, (STRING32, BINARY32)) | (part.end - part.start > 255)
        # A float that is a signalling NaN is quiet once it was a Python number.
        signalling = (numbers & 0x7FC0_0000 == 0x7F80_0000) & (numbers & 0x003F_FFFF != 0)
        shortest &= (constructor != _FLOAT) | ~signalling
        return shortest & np.isin(constructor, _VALUES)


def _chosen(part: Varying, there: Mask) -> Varying:
    """Return the part for these messages alone; in the others it ends where it would begin."""
    at = np.where(there, part.at, part.end)
    return Varying(there, at, np.where(there, part.start, part.end), part.end)


def read_lot(payloads: Sequence[bytes], *, ours: bool = True) -> Lot:
    """The layout of these messages, which have less than 2 GiB together. `ours`: an acquit broker handed them out."""
    read = _Reader(payloads)
    ends = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)))
    starts = np.concatenate(([0], ends[:-1])) if len(payloads) else ends
    headers_end = read.header(starts)
    bare_at = read.own_annotations(headers_end) if ours else read.annotations(headers_end)
    numbered = read.numbered(headers_end, ends) if ours else np.zeros(len(payloads), np.bool_)
    entries_end = read.application_properties(read.properties(bare_at))
    read.plain &= read.body(entries_end) == ends
    parts = read.parts, read.entries, read.entries_at, entries_end, read.every
    lot = Lot(read.data, starts, ends, read.plain, numbered, bare_at, read.nameless, *parts)
    _check_values(lot)
    return lot


def _check_values(lot: Lot) -> None:
    """Take from the plain messages those with values that no column holds, or that are not what they claim to be."""
    plain = lot.plain
    for column in ("posted_at", "created_at"):
        part = lot.parts.get(column)
        if part is not None:
            rows = np.flatnonzero(plain & part.there)
            times = lot.numbers(part, rows)
            plain[rows] = (times >= TIME_MIN_MS) & (times <= TIME_MAX_MS)
    texts = [lot.parts[column] for column, made in _FIELDS.values() if STRING8 in made and column in lot.parts]
    for part in (*texts, *lot.entries):
        rows = np.flatnonzero(plain & part.there)
        rows = rows[np.isin(lot.constructors(part, rows), TEXTS)]
        plain[rows] = _are_texts(lot.content(part, rows))
    body = lot.parts["body"]
    rows = np.flatnonzero(plain & body.there)
    plain[rows] = _are_texts(lot.content(body, rows))


def _are_texts(values: pa.BinaryArray) -> Mask:
    """Return which of these are UTF-8."""
    texts: Mask = pc.string_is_ascii(values.view(pa.string())).to_numpy(zero_copy_only=False)
    texts = texts.copy()
    for row in np.flatnonzero(~texts).tolist():
        with contextlib.suppress(UnicodeDecodeError):
            values[row].as_py().decode()
            texts[row] = True
    return texts

"""The short way to rows: for messages of an acquit broker in their usual form, many at once.

`spark.parsing` reads a message section by section. Most messages of a queue are laid out alike, and differ in little
but their sequence, the time of posting, the message-id and the body. So here the layout of all messages of a lot is
read together, column by column, over their bytes joined. What else a message says is its *pattern*: each pattern is
read once, the long way, for all messages that have it, so the two ways cannot disagree about the meaning of bytes; a
property test holds them to the same rows.

A message is *plain* when it is laid out like this, each part in its short form::

    header or none | our annotations, and no others | properties, beginning with a message-id of ASCII
    | application-properties or none | one data section, or one value that is ASCII text or binary | nothing behind it

Anything else goes the long way.

``words[at]`` is the eight bytes from `at` on as one number, whatever `at` is: so what stands at each of many places is
one gather. A place that is computed from bytes that turn out to be wrong may lie anywhere; it is kept within the bytes,
and a message is plain only if in the end all of its parts together are as long as it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from acquit.protocol.definitions import SectionCode
from acquit.protocol.sections import BINARY8, BINARY32, HEADER_HEAD, LIST8, MAP8, STRING8, STRING32, section_head
from acquit.spark.parsing import TIME_MAX_MS
from acquit.spark.spool.drain import Identified

Places: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
_Words: TypeAlias = NDArray[np.uint64]

_SEQUENCE_NAME: Final = (
    section_head(SectionCode.MESSAGE_ANNOTATIONS, MAP8) + b"\x42\x04\xa3\x15x-opt-acquit-sequence\x80"
)
_TIME_NAME: Final = b"\xa3\x16x-opt-acquit-posted-at\x83"
_OWN_BYTES: Final = len(_SEQUENCE_NAME) + 8 + len(_TIME_NAME) + 8
assert _SEQUENCE_NAME[4] == _OWN_BYTES - 5
_PROPERTIES: Final = section_head(SectionCode.PROPERTIES, LIST8)
_APPLICATION_PROPERTIES: Final = section_head(SectionCode.APPLICATION_PROPERTIES)
_STR8: Final = 0xA1
_MAP8: Final = 0xC1
_MAP32: Final = 0xD1
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
_TEXTS: Final = (0xA1, 0xB1)
_PADDING: Final = bytes(128)
"""Bytes behind the last message, so that what is gathered from its end on is there."""


@dataclass(frozen=True, slots=True)
class Lot:
    """Messages, joined, and where their parts are. All arrays are over the messages."""

    data: bytes
    starts: Places
    ends: Places
    plain: Mask
    """Mask of the plain messages. The arrays below hold for these alone."""
    sequences: NDArray[np.int64]
    posted_ms: NDArray[np.int64]
    bare_at: Places
    """Offset of the bare message, which begins with its properties."""
    id_at: Places
    id_end: Places
    form_end: Places
    """Offset behind the first four bytes of the body's section."""
    body_at: Places

    def slices(self, starts: Places, ends: Places) -> pa.BinaryArray:
        """The bytes between, one for each; the places ascend."""
        count = len(starts)
        # An array whose elements lie side by side: ours, and what is between them, in turns.
        offsets = np.empty(2 * count + 1, np.int32)
        offsets[0:-1:2], offsets[1::2] = starts, ends
        offsets[-1] = ends[-1] if count else 0
        every = pa.BinaryArray.from_buffers(
            pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        )
        return every.take(pa.array(np.arange(0, 2 * count, 2)))

    def payload(self, row: int) -> bytes:
        """Return the bytes of one message."""
        return self.data[self.starts[row] : self.ends[row]]

    def patterns(self) -> tuple[Places, Places]:
        """Return the pattern number of each message, and a message of each pattern. For plain messages alone."""
        octets = np.frombuffer(self.data, np.uint8)
        parts = (
            _numbered(self.slices(self.starts, self.bare_at - _OWN_BYTES)),
            _numbered(self.slices(self.id_end, self.form_end)),
            octets[self.bare_at + 5].astype(np.int64),
            # How long the properties are behind the message-id: where one section ends and the next begins.
            octets[self.bare_at + 4].astype(np.int64) - octets[self.bare_at + 7],
        )
        numbers = np.zeros(len(self.starts), np.int64)
        for part in parts:
            # Numbered anew after each, so that they stay as small as there are messages.
            part = part - part.min(initial=0)
            numbers = np.unique(numbers * (int(part.max(initial=0)) + 1) + part, return_inverse=True)[1]
        return numbers, np.unique(numbers, return_index=True)[1]


def read_lot(payloads: Sequence[bytes]) -> Lot:
    """The layout of these messages, which have less than 2 GiB together."""
    data = b"".join([*payloads, _PADDING])
    ends = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)))
    starts = np.concatenate(([0], ends[:-1])) if len(payloads) else ends
    octets = np.frombuffer(data, np.uint8)
    words: _Words = np.ndarray((len(data) - 7,), "<u8", data, 0, (1,))
    numbers: _Words = np.ndarray((len(data) - 7,), ">u8", data, 0, (1,))
    last = len(data) - len(_PADDING)

    def within(places: Places) -> Places:
        return np.minimum(places, last)

    headed = _begins(words, starts, HEADER_HEAD)
    own_at = within(starts + np.where(headed, 5 + octets[starts + 4].astype(np.int64), 0))
    plain = _begins(words, own_at, _SEQUENCE_NAME)
    sequences = numbers[own_at + len(_SEQUENCE_NAME)].astype(np.int64)
    plain &= _begins(words, own_at + len(_SEQUENCE_NAME) + 8, _TIME_NAME) & (sequences > 0)
    posted_ms = numbers[own_at + _OWN_BYTES - 8].astype(np.int64)
    plain &= (posted_ms >= 0) & (posted_ms <= TIME_MAX_MS)
    bare_at = within(own_at + _OWN_BYTES)
    plain &= _begins(words, bare_at, _PROPERTIES) & (octets[bare_at + 6] == _STR8) & (octets[bare_at + 5] > 0)
    id_at = bare_at + 8
    id_end = within(id_at + octets[bare_at + 7])
    properties_end = within(bare_at + 5 + octets[bare_at + 4])
    plain &= id_end <= properties_end
    form = octets[properties_end + 3]
    described = _begins(words, properties_end, _APPLICATION_PROPERTIES)
    skipped = np.where(form == _MAP8, 5 + octets[properties_end + 4].astype(np.int64), 0)
    skipped += np.where(form == _MAP32, 8 + (numbers[properties_end + 4] >> np.uint64(32)).astype(np.int64), 0)
    section_at = within(properties_end + np.where(described, skipped, 0))
    short = _any_begins(words, section_at, _SHORT_BODIES)
    long = _any_begins(words, section_at, _LONG_BODIES)
    form_end = within(section_at + 4)
    body_at = form_end + np.where(long, 4, 1)
    size = np.where(long, (numbers[form_end] >> np.uint64(32)).astype(np.int64), octets[form_end])
    plain &= (short | long) & (body_at + size == ends)
    text = np.isin(octets[section_at + 3], _TEXTS)
    lot = Lot(data, starts, ends, plain, sequences, posted_ms, bare_at, id_at, id_end, form_end, body_at)
    for some, at, end in ((plain, id_at, id_end), (plain & text, body_at, ends)):
        rows = np.flatnonzero(some)
        plain[rows] &= pc.string_is_ascii(lot.slices(at[rows], end[rows]).view(pa.string())).to_numpy(False)
    return lot


def identify_plain(payloads: Sequence[bytes], sequence_key: bytes) -> tuple[Mask, Identified]:
    """Return which messages are plain, and their identities; those of other messages are not true."""
    lot = read_lot(payloads)
    bare_at = (lot.bare_at - lot.starts).tolist()
    sequence_at = (lot.bare_at - lot.starts - _OWN_BYTES + len(_SEQUENCE_NAME)).tolist()
    keys = [sequence_key + payload[at : at + 8] for payload, at in zip(payloads, sequence_at, strict=True)]
    contents = [payload[at:] for payload, at in zip(payloads, bare_at, strict=True)]
    posting = [True] * len(payloads)
    return lot.plain, Identified([*keys], posting, [*contents], lot.sequences.tolist(), [*payloads])


def _begins(words: _Words, at: Places, wanted: bytes) -> Mask:
    """Return whether the bytes at each of these places begin so."""
    different = np.zeros(len(at), np.uint64)
    for offset in range(0, len(wanted), 8):
        piece = wanted[offset : offset + 8]
        mask = np.uint64((1 << 8 * len(piece)) - 1)
        different |= (words[at + offset] ^ np.uint64(int.from_bytes(piece, "little"))) & mask
    same: Mask = different == 0
    return same


def _any_begins(words: _Words, at: Places, wanted: Sequence[bytes]) -> Mask:
    """The same of any of these."""
    found = np.zeros(len(at), np.bool_)
    for one in wanted:
        found |= _begins(words, at, one)
    return found


def _numbered(values: pa.BinaryArray) -> NDArray[np.int64]:
    """A number for each value, the same for the same."""
    numbers: Places = pc.dictionary_encode(values).indices.to_numpy().astype(np.int64)
    return numbers

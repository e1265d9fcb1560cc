"""A message as its sections: where each begins, found without decoding what is in them (specification 3.2).

Theory of operation. An encoded message is a row of described values in a fixed order, each there at most once, only
the body may take several::

    header | delivery-annotations | message-annotations | properties | application-properties | body... | footer
             └ may change on the way ─────────────────┘   └ the bare message ────────────────────────┘
                                                          └ passes through byte for byte ────────────────────┘

As they adjoin each other, eight offsets say it all: section *i* is ``payload[bounds[i] : bounds[i + 1]]``, empty where
it is absent. A broker reads and writes the first three, looks at single fields of the properties, and never touches
the rest; what is inside of a section is therefore only checked by whoever decodes it.

A message without a body is not what the specification says, but exists; it has an empty body here.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

from acquit.errors import DecodeError, EncodeError
from acquit.protocol import _decoder as d
from acquit.protocol import _encoder as e
from acquit.protocol.composite import decode_composite, encode_composite, field_readers
from acquit.protocol.definitions import Header, Properties, SectionCode
from acquit.protocol.types import Symbol, ULong, Value

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, BODY, FOOTER = range(7)
"""Ranks: the places of the sections in a message."""

_LISTS: Final = {0x45: 0, 0xC0: 33, 0xD0: 36}
_MAPS: Final = {0xC1: 33, 0xD1: 36}
_BINARIES: Final = {0xA0: 33, 0xB0: 36}
_VALUES: Final = {code: width for code, width in enumerate(d.SKIP_WIDTHS) if width >= 0}

_FORMS: Final[dict[int, tuple[int, dict[int, int]]]] = {
    SectionCode.HEADER: (HEADER, _LISTS),
    SectionCode.DELIVERY_ANNOTATIONS: (DELIVERY_ANNOTATIONS, _MAPS),
    SectionCode.MESSAGE_ANNOTATIONS: (MESSAGE_ANNOTATIONS, _MAPS),
    SectionCode.PROPERTIES: (PROPERTIES, _LISTS),
    SectionCode.APPLICATION_PROPERTIES: (APPLICATION_PROPERTIES, _MAPS),
    SectionCode.DATA: (BODY, _BINARIES),
    SectionCode.AMQP_SEQUENCE: (BODY, _LISTS),
    SectionCode.AMQP_VALUE: (BODY, _VALUES),
    SectionCode.FOOTER: (FOOTER, _MAPS),
}
"""Descriptor -> rank, and how to step over each encoding that the section may have (see `_decoder.SKIP_WIDTHS`)."""

_CODES_BY_SYMBOL: Final = {
    "amqp:header:list": SectionCode.HEADER,
    "amqp:delivery-annotations:map": SectionCode.DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": SectionCode.MESSAGE_ANNOTATIONS,
    "amqp:properties:list": SectionCode.PROPERTIES,
    "amqp:application-properties:map": SectionCode.APPLICATION_PROPERTIES,
    "amqp:data:binary": SectionCode.DATA,
    "amqp:amqp-sequence:list": SectionCode.AMQP_SEQUENCE,
    "amqp:amqp-value:*": SectionCode.AMQP_VALUE,
    "amqp:footer:map": SectionCode.FOOTER,
}

_DESCRIPTORS: Final = (0x53, 0x80, 0x44, 0xA3, 0xB3)
"""Constructors (1.6) that a descriptor can have, which is a ulong or a symbol."""

SHORT_DESCRIPTOR: Final = 0x53
"""The constructor (smallulong) of a section's descriptor, as nearly everybody writes it."""
BINARY8, STRING8, BINARY32, STRING32 = 0xA0, 0xA1, 0xB0, 0xB1
LIST8, MAP8, LIST32, MAP32 = 0xC0, 0xC1, 0xD0, 0xD1
"""Constructors (1.6) of what sections hold most often."""
TIMESTAMP: Final = 0x83
"""The one constructor of a timestamp (1.6.17)."""
ULONG, UUID = 0x80, 0x98
"""Constructors of ids of one width (1.6.6, 1.6.18)."""


def section_head(code: int, *constructor: int) -> bytes:
    """Return the octets with which a section begins in its shortest form: up to its descriptor, a `SectionCode`, or up
    to the `constructor` of its value. Fast paths compare with them."""
    return bytes((0x00, SHORT_DESCRIPTOR, code, *constructor))


HEADER_HEAD: Final = section_head(SectionCode.HEADER, LIST8)
"""The octets before the size of a short header section (3.2.1)."""
VALUE_HEAD: Final = section_head(SectionCode.AMQP_VALUE)
"""The octets before the value of an amqp-value section (3.2.8)."""

_VALUE_ITEMS_MAX: Final = 1_024
"""Items of a value that is picked out of a map by its key, lists in lists included: those that matter have none."""

_UINT32 = struct.Struct(">I").unpack_from


class PropertyIndex:
    """Places of the fields in the properties section (3.2.4), for `Sections.property_values`."""

    MESSAGE_ID: Final = 0
    USER_ID: Final = 1
    TO: Final = 2
    SUBJECT: Final = 3
    REPLY_TO: Final = 4
    CORRELATION_ID: Final = 5
    CONTENT_TYPE: Final = 6
    CONTENT_ENCODING: Final = 7
    ABSOLUTE_EXPIRY_TIME: Final = 8
    CREATION_TIME: Final = 9
    GROUP_ID: Final = 10
    GROUP_SEQUENCE: Final = 11
    REPLY_TO_GROUP_ID: Final = 12


class Sections:
    """Bounds of the sections of `payload`. Made by `scan_sections`.

    The properties give a section as it stands, descriptor included, b"" where it is absent. `body_code` is the
    descriptor of the body (SectionCode.DATA, AMQP_SEQUENCE or AMQP_VALUE), 0 where there is none.
    """

    __slots__ = ("body_code", "bounds", "payload")

    def __init__(self, payload: bytes, bounds: list[int], body_code: int) -> None:
        self.payload = payload
        self.bounds = bounds
        self.body_code = body_code

    def section(self, rank: int) -> bytes:
        """The section at a rank (HEADER .. FOOTER)."""
        bounds = self.bounds
        return self.payload[bounds[rank] : bounds[rank + 1]]

    def has(self, rank: int) -> bool:
        """Return True if the section is there. It may be there and say nothing."""
        bounds = self.bounds
        return bounds[rank] != bounds[rank + 1]

    @property
    def header(self) -> bytes:
        """3.2.1."""
        return self.payload[: self.bounds[1]]

    @property
    def delivery_annotations(self) -> bytes:
        """3.2.2: for the next hop only."""
        return self.section(DELIVERY_ANNOTATIONS)

    @property
    def message_annotations(self) -> bytes:
        """3.2.3: carried to the end, added to on the way."""
        return self.section(MESSAGE_ANNOTATIONS)

    @property
    def bare_message(self) -> bytes:
        """Properties to body: what the sender signs and nobody on the way may change (3.2)."""
        return self.payload[self.bounds[PROPERTIES] : self.bounds[FOOTER]]

    @property
    def unchanging(self) -> bytes:
        """The bare message and the footer: what passes through byte for byte."""
        return self.payload[self.bounds[PROPERTIES] :]

    def decode_header(self) -> Header:
        """The header, with the specification's defaults where it, or a field of it, is absent."""
        if not self.bounds[1]:
            return Header()
        return decode_header(self.payload[: self.bounds[1]])

    def decode_properties(self) -> Properties:
        """The properties, all of them; see `property_values` for single ones."""
        if not self.has(PROPERTIES):
            return Properties()
        return cast(Properties, _decode_section(self.section(PROPERTIES), Properties))

    def decode_map(self, rank: int) -> dict[Value, Value]:
        """Decode a section that is a map (annotations, application-properties, footer); {} where it is absent."""
        section = self.section(rank)
        if not section:
            return {}
        value, _ = d.decode(section, _value_offset(section))
        return cast("dict[Value, Value]", value)  # `scan_sections` lets no other type stand there

    def property_values(self, *indexes: int) -> list[object]:
        """The fields of the properties at these places (`PropertyIndex`, ascending), None where absent.

        Other fields are stepped over unseen. Raises DecodeError for a field of the wrong type.
        """
        start, end = self.bounds[PROPERTIES], self.bounds[PROPERTIES + 1]
        if start == end:
            return [None] * len(indexes)
        return _pick_fields(self.payload, start, end, indexes)

    def property_spans(self, *indexes: int) -> list[tuple[int, int] | None]:
        """Return where the fields of the properties at these places (`PropertyIndex`, ascending) begin and end in the
        payload, with their constructors; None where absent or null. Raises DecodeError."""
        start, end = self.bounds[PROPERTIES], self.bounds[PROPERTIES + 1]
        if start == end:
            return [None] * len(indexes)
        spans: list[tuple[int, int] | None] = []
        position = 0
        try:
            count, offset, _ = d.list_head(self.payload, start + _value_offset(self.payload[start:end]))
            for index in indexes:
                while position < min(index, count):
                    offset = d.skip(self.payload, offset, end)
                    position += 1
                there = index < count and self.payload[offset] != _NULL
                spans.append((offset, d.skip(self.payload, offset, end)) if there else None)
        except d.MALFORMED as exc:
            raise d.malformed("properties", exc) from exc
        return spans


def data_head(size: int) -> bytes:
    """Return the octets of a data section (3.2.6) before its `size` octets of data."""
    return b"\x00\x53\x75\xa0" + size.to_bytes(1) if size < 256 else b"\x00\x53\x75\xb0" + size.to_bytes(4)


def text_head(size: int) -> bytes:
    """Return the octets of an amqp-value section (3.2.8) before a string of `size` octets."""
    return b"\x00\x53\x77\xa1" + size.to_bytes(1) if size < 256 else b"\x00\x53\x77\xb1" + size.to_bytes(4)


def message_id_head(size: int) -> bytes:
    """Return the octets of a properties section (3.2.4) before its only field, a message id of `size` octets: a list8
    of one str8-utf8."""
    return bytes((0x00, 0x53, 0x73, 0xC0, size + 3, 1, 0xA1, size))


def scan_sections(payload: bytes, *, body_sections_max: int = sys.maxsize) -> Sections:
    """Find the sections of an encoded message.

    Raises DecodeError for what is no section, sections out of order or repeated, a section of the wrong type, a body
    that mixes kinds, has two values or more than `body_sections_max` sections, and anything cut short. The insides of
    the sections are not looked at.
    """
    length = len(payload)
    bounds: list[int] = []
    body_code = offset = 0
    try:
        while offset < length:
            code = payload[offset + 2]
            value = offset + 3
            if payload[offset] or payload[offset + 1] != 0x53:
                code, value = _descriptor(payload, offset)
            form = _FORMS.get(code)
            if form is None:
                raise DecodeError(f"descriptor 0x{code:x} at offset {offset} begins no section of a message")
            rank, widths = form
            missing = rank + 1 - len(bounds)
            if missing > 0:
                bounds += [offset] * missing
                if rank == BODY:
                    body_code = code
            elif missing or rank != BODY or code != body_code or code == SectionCode.AMQP_VALUE:
                raise DecodeError(f"section 0x{code:x} at offset {offset} is out of order or there twice (3.2)")
            else:
                body_sections_max -= 1
                if body_sections_max < 1:
                    raise DecodeError("the body has more sections than the limit")
            width = widths.get(payload[value])
            if width == 33:
                offset = value + 2 + payload[value + 1]
            elif width == 36:
                offset = value + 5 + _UINT32(payload, value + 1)[0]
            elif width is not None:
                offset = value + 1 + width
            elif code == SectionCode.AMQP_VALUE:
                offset = d.skip(payload, value, length)
            else:
                raise DecodeError(f"section 0x{code:x} cannot be encoded as 0x{payload[value]:02x}")
    except (IndexError, struct.error) as exc:
        raise d.malformed("message", exc) from exc
    if offset != length:
        raise DecodeError(f"the last section ends at {offset}, the message at {length}")
    bounds += [length] * (8 - len(bounds))
    return Sections(payload, bounds, body_code)


def _descriptor(payload: bytes, offset: int) -> tuple[int, int]:
    """A descriptor in one of the rarer forms (a wide ulong, a symbol); its code, and the offset of the value."""
    if payload[offset] != 0x00:
        raise DecodeError(f"0x{payload[offset]:02x} at offset {offset} begins no section of a message")
    if payload[offset + 1] not in _DESCRIPTORS:
        raise DecodeError(f"0x{payload[offset + 1]:02x} at offset {offset + 1} is a descriptor that begins no section")
    descriptor, value = d.decode(payload, offset + 1)
    if type(descriptor) is ULong:
        return int(descriptor), value
    code = _CODES_BY_SYMBOL.get(descriptor) if type(descriptor) is Symbol else None
    if code is None:
        raise DecodeError(f"descriptor {descriptor!r:.80} begins no section of a message")
    return code, value


def _value_offset(section: bytes) -> int:
    return 3 if section[1] == 0x53 else d.skip(section, 1, len(section))


# -- header -----------------------------------------------------------------------------------------------------------


def decode_header(section: bytes) -> Header:
    """The header from its section. Raises DecodeError."""
    return cast(Header, _decode_section(section, Header))


_HEADER_BYTES_MAX: Final = 64
"""A header and its descriptor take fewer bytes, in whatever form a sender writes them."""


def may_be_durable(front: bytes) -> bool:
    """False if the message that begins so is not durable: without a header, or with one that does not say it (3.2.1).
    Of a front that ends before it tells, has a header larger than there is, or is no message, True."""
    try:
        code, value = (front[2], 3) if front[1] == 0x53 else _descriptor(front, 0)
        if code != SectionCode.HEADER:
            return False
        end = d.skip(front, value, len(front))
        return end > _HEADER_BYTES_MAX or bool(decode_header(front[:end]).durable)
    except (IndexError, struct.error, DecodeError):
        return True


def _decode_section(section: bytes, kind: type) -> object:
    value, end = decode_composite(section)
    if end != len(section) or type(value) is not kind:
        raise DecodeError(f"a section that is not one {kind.__name__.lower()}")
    return value


@lru_cache(maxsize=1024, typed=True)
def encode_header(
    durable: Any = False,
    priority: Any = 4,
    ttl_ms: Any = None,
    first_acquirer: Any = False,
    delivery_count: Any = 0,
) -> bytes:
    """A header section; b"" where it would only say the defaults. Remembered, as few combinations come up.

    The values are whatever a message was given. Raises EncodeError for what its field cannot hold."""
    for name, value in (("durable", durable), ("first_acquirer", first_acquirer)):
        if not isinstance(value, bool):  # whatever else is not nothing would pass for true
            raise EncodeError(f"{name} must be True or False, got {value!r:.60}")
    header = encode_composite(Header(durable, priority, ttl_ms, first_acquirer, delivery_count))
    return b"" if header == _EMPTY_HEADER else header


_EMPTY_HEADER: Final = encode_composite(Header())


# -- properties -------------------------------------------------------------------------------------------------------

_PROPERTY_READERS: Final = field_readers(Properties)
_NULL: Final = 0x40


def _pick_fields(payload: bytes, start: int, end: int, indexes: Sequence[int]) -> list[object]:
    try:
        offset = start + 3 if payload[start + 1] == 0x53 else d.skip(payload, start + 1, end)
        count, offset, _ = d.list_head(payload, offset)
        found: list[object] = []
        position = 0
        for index in indexes:
            if index >= count:
                found.append(None)
                continue
            while position < index:
                code = payload[offset]
                if code == _NULL:  # most of them
                    offset += 1
                else:
                    offset = d.skip(payload, offset, end)
                position += 1
            position += 1
            code = payload[offset]
            if code == _NULL:
                found.append(None)
                offset += 1
                continue
            value, offset = _PROPERTY_READERS[index][code](payload, offset + 1, d.FLAT)
            found.append(value)
    except d.MALFORMED as exc:
        raise d.malformed("properties", exc) from exc
    if offset > end:
        raise DecodeError("the properties end inside of a field")
    return found


def without_property(section: bytes, index: int) -> bytes:
    """A properties section with null at this place (`PropertyIndex`); all other fields stay byte for byte.

    Raises DecodeError for a section that is no list.
    """
    try:
        head = _value_offset(section)
        count, first, end = d.list_head(section, head)
        if index >= count:
            return section
        start = first
        for _ in range(index):
            start = d.skip(section, start, end)
        after = d.skip(section, start, end)
    except d.MALFORMED as exc:
        raise d.malformed("properties", exc) from exc
    return section[:head] + e.compound_bytes(0, count, section[first:start] + b"\x40" + section[after:end])


def count_entries(sections: Sections, rank: int) -> int:
    """Count the entries that a section which is a map claims to have (annotations, application-properties, footer),
    without a look at them; 0 where it is absent. Raises DecodeError."""
    section = sections.section(rank)
    if not section:
        return 0
    try:
        return d.map_head(section, _value_offset(section))[0] // 2
    except (IndexError, struct.error) as exc:
        raise d.malformed("section", exc) from exc


# -- maps -------------------------------------------------------------------------------------------------------------


def map_value(section: bytes, key: str) -> Value:
    """The value under a symbol or string key of a map section, without decoding the others; None where absent."""
    octets = key.encode()
    if octets not in section:
        return None
    for name, _, value, end in _entries(section):
        if name == octets:
            return d.decode(section, value, end, items_max=_VALUE_ITEMS_MAX)[0]
    return None


def map_values(section: bytes, prefix: str) -> dict[str, Value]:
    """The values under all symbol or string keys of a map section that begin with `prefix`, which is ASCII."""
    octets = prefix.encode()
    if octets not in section:
        return {}
    return {
        name.decode("ascii", "backslashreplace"): d.decode(section, value, end, items_max=_VALUE_ITEMS_MAX)[0]
        for name, _, value, end in _entries(section)
        if name.startswith(octets)
    }


def splice_annotations(
    section: bytes,
    changes: Mapping[str, object],
    *,
    remove: Collection[str] = (),
    code: int = SectionCode.MESSAGE_ANNOTATIONS,
) -> bytes:
    """An annotations section with `changes` added or put in place of what was under the same symbols.

    All other entries stay byte for byte and in their order; those under a key in `remove` go. An empty `section`
    (absent) becomes a new one with the descriptor `code`, and b"" stays b"" where nothing is added. Raises DecodeError
    for a section that is not a map, EncodeError for a value without encoding.
    """
    head = section[: _value_offset(section)] if section else b"\x00" + e.ulong_bytes(code)
    outdated = {key.encode() for key in (*changes, *remove)}
    kept = bytearray()
    count = 0
    if section:
        for name, start, _, end in _entries(section):
            if name not in outdated:
                kept += section[start:end]
                count += 1
    for key, value in changes.items():
        e.encode_into(kept, Symbol(key))
        e.encode_into(kept, value)
        count += 1
    return head + e.compound_bytes(1, 2 * count, kept) if count else b""


def _entries(section: bytes) -> list[tuple[bytes, int, int, int]]:
    """The entries of a map section: octets of the key (b"" where it is no symbol or string), offsets of the key, of
    the value, and behind it."""
    found: list[tuple[bytes, int, int, int]] = []
    try:
        count, offset, end = d.map_head(section, _value_offset(section))
        if end != len(section):
            raise DecodeError(f"a map ends at {end}, its section at {len(section)}")
        if count & 1:
            raise DecodeError(f"a map has pairs, this one has {count} items")
        for _ in range(count // 2):
            value = d.skip(section, offset, end)
            after = d.skip(section, value, end)
            form = section[offset]
            name = b""
            if form in (0xA1, 0xA3):
                name = section[offset + 2 : value]
            elif form in (0xB1, 0xB3):
                name = section[offset + 5 : value]
            found.append((name, offset, value, after))
            offset = after
    except (IndexError, struct.error) as exc:
        raise d.malformed("section", exc) from exc
    if offset != end:
        raise DecodeError(f"map items end at offset {offset}, but the size given says {end}")
    return found

"""The values of a selector's names for one message: read from the encoded sections when a name is asked for, and kept.

Values are what selectors know: bool, int, float, str and None; anything else that a message may hold under a name (a
binary, a list) is `OPAQUE`, which is not null and equal to nothing. A section that makes no sense has no fields.

**Names.** Those that begin with JMS give what a JMS client sees; Artemis' AMQ... mean the same. ``amqp.`` names give
the field of the header or the properties as it was sent, null where it was not. ``m.`` leads into the message
annotations, every other name into the application properties::

    JMSMessageID     ID:..., and as Qpid JMS writes ids that are no such string: ID:AMQP_UUID:, ID:AMQP_ULONG:,
                     ID:AMQP_BINARY:, ID:AMQP_NO_PREFIX:. A literal without ID: is taken as one with that last prefix.
    amqp.message_id  the string; a uuid, ulong or binary as text without a prefix

The application properties are walked once, as far as the names that were asked for; what is stepped over stays encoded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from acquit.errors import DecodeError
from acquit.protocol import _decoder as d
from acquit.protocol.definitions import SectionCode
from acquit.protocol.rope import Rope
from acquit.protocol.sections import (
    APPLICATION_PROPERTIES,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SHORT_DESCRIPTOR,
    PropertyIndex,
    Sections,
    scan_sections,
    section_head,
)
from acquit.protocol.types import Byte, Char, Float, Int, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort

if TYPE_CHECKING:
    from acquit.broker.message import Message


class MessageFacts(Protocol):
    """The facts that a selector can ask besides the sections; `broker.message.Message` has them."""

    @property
    def durable(self) -> bool: ...
    @property
    def priority(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def expires_at_ms(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


class Fields(dict[str, object]):
    """Values by name; a name that has none is null. `steps_left` is what LIKE may still cost the selector that asks."""

    __slots__ = ("steps_left",)

    steps_left: int

    def __missing__(self, name: str) -> object:
        return None


class _Opaque:
    """A value that selectors have no type for."""

    __slots__ = ()


OPAQUE: Final = _Opaque()


class _PostedMessage:
    """The facts of a message that is not in a queue yet."""

    __slots__ = ("attempt", "durable", "expires_at_ms", "priority", "size_bytes")

    def __init__(self, durable: bool, priority: int, expires_at_ms: int, size_bytes: int) -> None:
        self.durable = durable
        self.priority = priority
        self.attempt = 0
        self.expires_at_ms = expires_at_ms
        self.size_bytes = size_bytes


def fields_of(message: Message) -> Fields:
    """The fields of a message in a queue.

    Its body must be in memory before a name is asked for that stands there (`Selector.needs_body`).
    """
    body = message.body
    return _EncodedFields(message, message.front() if isinstance(body, Rope) else body, message.queue.address)


def fields_of_posting(
    payload: bytes, address: str, *, durable: bool, priority: int, expires_at_ms: int, size_bytes: int
) -> Fields:
    """The fields of a message that is not in a queue yet.

    `payload` is its sections, with or without a header, which is not looked at; `expires_at_ms` 0 for never.
    """
    return _EncodedFields(_PostedMessage(durable, priority, expires_at_ms, size_bytes), payload, address)


def fields_of_properties(section: bytes) -> Fields:
    """The fields that stand in a section of application properties; b"" has none."""
    return _EncodedFields(_PostedMessage(False, 0, 0, 0), section, "")


_MALFORMED: Final = (DecodeError, *d.MALFORMED)
_NO_TEXT: Final = b"\xff"
"""Key in place of one that is no string; no name is encoded so."""
_NESTED: Final = (0x00, 0x45)
_ANNOTATION: Final = "m."
"""Beginning of a name that leads into the message annotations."""
_UINT32: Final = struct.Struct(">I").unpack_from


_FIXED: Final = {
    form: (struct.Struct(f">x{layout}").unpack_from, struct.calcsize(f">x{layout}"))
    for form, layout in {0x54: "b", 0x55: "b", 0x71: "i", 0x72: "f", 0x81: "q", 0x82: "d"}.items()
}
"""Readers of the numbers that applications send most often, and the octets of each: int, long, float, double."""
_STRING8: Final = 0xA1


class _Map:
    """A map section, walked as far as was needed."""

    __slots__ = ("at", "end", "left", "payload", "places")

    def __init__(self, payload: bytes, offset: int) -> None:
        self.payload = payload
        self.places: dict[bytes, int] = {}
        """Octets of a key -> offset of its value."""
        count, self.at, self.end = d.map_head(payload, offset)
        self.left = count // 2

    def find(self, key: bytes) -> object:
        payload, end = self.payload, self.end
        place = self.places.get(key)
        if place is None:
            if not self.left or payload.find(key, self.at, end) < 0:
                return None
            place = self._walk(key)
            if not place:
                return None
        form = payload[place]
        number = _FIXED.get(form)
        if number is not None:
            return number[0](payload, place)[0] if place + number[1] <= end else None
        if form == _STRING8:
            after = place + 2 + payload[place + 1]
            return payload[place + 2 : after].decode() if after <= end else None
        if form in _NESTED or form >= 0xC0:
            return OPAQUE
        value, after = d.READERS[form](payload, place + 1, d.FLAT)
        if after > end:
            return None
        return plain(value)

    def _walk(self, key: bytes) -> int:
        """Step on, up to this key. The offset of its value, or 0."""
        payload, at, left, places = self.payload, self.at, self.left, self.places
        while left:
            left -= 1
            form = payload[at]
            if form == 0xA1 or form == 0xA3:
                value = at + 2 + payload[at + 1]
                name = payload[at + 2 : value]
            elif form == 0xB1 or form == 0xB3:
                value = at + 5 + _UINT32(payload, at + 1)[0]
                name = payload[at + 5 : value]
            else:
                value = d.skip(payload, at, self.end)
                name = _NO_TEXT
            width = d.SKIP_WIDTHS[payload[value]]
            if 0 <= width < 32:
                at = value + 1 + width
            elif width == 33:
                at = value + 2 + payload[value + 1]
            else:
                at = d.skip(payload, value, self.end)
            if at > self.end:
                break  # the map ends in the middle of it: what stands behind is no part of it
            places.setdefault(name, value)
            if name == key:
                self.at, self.left = at, left
                return value
        self.at, self.left = at, 0
        return 0


class _EncodedFields(Fields):
    """Fields that are read when asked for."""

    __slots__ = ("_maps", "_payload", "_places", "address", "facts")

    def __init__(self, facts: MessageFacts, payload: bytes | None, address: str) -> None:
        self.facts = facts
        self.address = address
        self._payload = payload
        self._places: dict[int, tuple[int, int]] | None = None
        self._maps: dict[int, _Map] = {}

    def __missing__(self, name: str) -> object:
        known = _NAMES.get(name)
        try:
            if known is not None:
                value = known[0](self)
            elif name.startswith(_ANNOTATION):
                value = self._map_value(SectionCode.MESSAGE_ANNOTATIONS, name[2:])
            else:
                value = self._map_value(SectionCode.APPLICATION_PROPERTIES, name)
        except _MALFORMED:
            value = None
        self[name] = value
        return value

    def property_value(self, index: int) -> object:
        """The field of the properties at an index, as it was sent."""
        start, end = self._section(SectionCode.PROPERTIES)
        if not end:
            return None
        assert self._payload is not None
        return Sections(self._payload, [0, 0, 0, start, end], 0).property_values(index)[0]

    def _map_value(self, code: int, name: str) -> object:
        section = self._maps.get(code)
        if section is None:
            start, end = self._section(code)
            section = _NO_MAP
            if end:
                assert self._payload is not None
                section = _Map(self._payload, start + 3)
            self._maps[code] = section
        return section.find(name.encode())

    def _section(self, code: int) -> tuple[int, int]:
        """Return where a section is in the payload: (0, 0) if it is not."""
        places = self._places
        if places is None:
            assert self._payload is not None, "the body must be in memory where a selector needs it"
            self._places = {}
            places = _places_in(self._payload)
            if places is None:
                self._payload = _plainly_described(self._payload)
                places = _places_in(self._payload) or {}
            self._places = places
        return places.get(code, _NOWHERE)


_LAST_CODE: Final = int(SectionCode.APPLICATION_PROPERTIES)


def _places_in(payload: bytes) -> dict[int, tuple[int, int]] | None:
    """Section code -> offset of its descriptor, and of its end, for those before the body; None where a descriptor is
    written in one of the rarer ways."""
    places: dict[int, tuple[int, int]] = {}
    offset = 0
    length = len(payload)
    while offset < length:
        if payload[offset] or payload[offset + 1] != SHORT_DESCRIPTOR:
            return None
        code = payload[offset + 2]
        if code > _LAST_CODE:
            break
        form = payload[offset + 3]
        if form == 0xC1 or form == 0xC0:
            end = offset + 5 + payload[offset + 4]
        elif form == 0xD1 or form == 0xD0:
            end = offset + 8 + _UINT32(payload, offset + 4)[0]
        else:
            end = offset + 4  # the empty list; anything else is no section, and ends the walk
        if end > length:
            break
        places[code] = offset, end
        offset = end
    return places


def _plainly_described(payload: bytes) -> bytes:
    """The same sections, of those that have fields, each with the shortest descriptor."""
    sections = scan_sections(payload)
    plain = b""
    for rank, code in _RANKS:
        if section := sections.section(rank):
            plain += section_head(code) + section[d.skip(section, 1, len(section)) :]
    return plain


_RANKS: Final = (
    (MESSAGE_ANNOTATIONS, SectionCode.MESSAGE_ANNOTATIONS),
    (PROPERTIES, SectionCode.PROPERTIES),
    (APPLICATION_PROPERTIES, SectionCode.APPLICATION_PROPERTIES),
)
_NO_MAP: Final = _Map(b"\xc1\x01\x00", 0)
_NOWHERE: Final = (0, 0)


# -- values -----------------------------------------------------------------------------------------------------------


def _opaque(value: object) -> object:
    return OPAQUE


_PLAIN: Final = frozenset((bool, int, float, str, type(None)))
_CONVERTERS: Final[dict[type, Callable[..., object]]] = {
    **dict.fromkeys((Byte, Int, Short, Timestamp, UByte, UInt, ULong, UShort), int),
    Float: float,
    Char: str,
    Symbol: str,
    UUID: str,
}


def plain(value: object) -> object:
    """A decoded value as selectors know it."""
    return value if type(value) in _PLAIN else _CONVERTERS.get(type(value), _opaque)(value)


def _text(value: object) -> object:
    """An id or a user id as text: octets that are no text, and uuids and ulongs, in their usual notation."""
    if type(value) is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex().upper()
    return None if value is None else str(int(value)) if isinstance(value, int) else str(value)


_NO_PREFIX: Final = "ID:AMQP_NO_PREFIX:"
_ENCODINGS: Final = ("ID:AMQP_UUID:", "ID:AMQP_ULONG:", "ID:AMQP_BINARY:", "ID:AMQP_STRING:", _NO_PREFIX)


def _jms_correlation_id(value: object) -> object:
    """A correlation id as Qpid JMS shows it."""
    if isinstance(value, str):
        return f"ID:AMQP_STRING:{value}" if value.startswith(_ENCODINGS) else str(value)
    if isinstance(value, UUID):
        return f"ID:AMQP_UUID:{value}"
    if isinstance(value, int):
        return f"ID:AMQP_ULONG:{int(value)}"
    if isinstance(value, bytes):
        return f"ID:AMQP_BINARY:{value.hex().upper()}"
    return None


def _jms_message_id(value: object) -> object:
    """A message id as Qpid JMS shows it: always one that begins with ID:."""
    if isinstance(value, str) and not value.startswith("ID:"):
        return _NO_PREFIX + value
    return _jms_correlation_id(value)


def literal_for(name: str, literal: str) -> str:
    """A string that a name is compared with, in the form that its values have."""
    return _NO_PREFIX + literal if name in _JMS_MESSAGE_IDS and not literal.startswith("ID:") else literal


# -- names ------------------------------------------------------------------------------------------------------------

_Read = Callable[[_EncodedFields], object]


def _property(index: int, convert: Callable[[object], object] = plain, absent: object = None) -> tuple[_Read, bool]:
    def read(fields: _EncodedFields) -> object:
        value = fields.property_value(index)
        return absent if value is None else convert(value)

    return read, True


def _fact(read: _Read) -> tuple[_Read, bool]:
    return read, False


_P = PropertyIndex
_JMS_MESSAGE_IDS: Final = ("JMSMessageID", "AMQUserID", "AMQMessageID")
_priority: Final = _fact(lambda fields: fields.facts.priority)
_durable: Final = _fact(lambda fields: fields.facts.durable)
_delivery_mode: Final = _fact(lambda fields: "PERSISTENT" if fields.facts.durable else "NON_PERSISTENT")
_expiration: Final = _fact(lambda fields: fields.facts.expires_at_ms)
_redelivered: Final = _fact(lambda fields: fields.facts.attempt > 0)
_address: Final = _fact(lambda fields: fields.address)
_destination: Final[tuple[_Read, bool]] = (lambda fields: plain(fields.property_value(_P.TO)) or fields.address, True)

_NAMES: Final[dict[str, tuple[_Read, bool]]] = {
    **dict.fromkeys(_JMS_MESSAGE_IDS, _property(_P.MESSAGE_ID, _jms_message_id)),
    "JMSCorrelationID": _property(_P.CORRELATION_ID, _jms_correlation_id),
    "JMSDeliveryMode": _delivery_mode,
    "JMSDestination": _destination,
    "JMSExpiration": _expiration,
    "JMSPriority": _priority,
    "JMSRedelivered": _redelivered,
    "JMSReplyTo": _property(_P.REPLY_TO),
    "JMSTimestamp": _property(_P.CREATION_TIME, absent=0),
    "JMSType": _property(_P.SUBJECT),
    "JMSXDeliveryCount": _fact(lambda fields: fields.facts.attempt + 1),
    "JMSXGroupID": _property(_P.GROUP_ID),
    "JMSXGroupSeq": _property(_P.GROUP_SEQUENCE),
    "JMSXUserID": _property(_P.USER_ID, _text),
    "AMQAddress": _address,
    "AMQDurable": _fact(lambda fields: "DURABLE" if fields.facts.durable else "NON_DURABLE"),
    "AMQExpiration": _expiration,
    "AMQGroupID": _property(_P.GROUP_ID),
    "AMQPriority": _priority,
    "AMQSize": _fact(lambda fields: fields.facts.size_bytes),
    "AMQTimestamp": _property(_P.CREATION_TIME, absent=0),
    "amqp.absolute_expiry_time": _property(_P.ABSOLUTE_EXPIRY_TIME),
    "amqp.content_encoding": _property(_P.CONTENT_ENCODING),
    "amqp.content_type": _property(_P.CONTENT_TYPE),
    "amqp.correlation_id": _property(_P.CORRELATION_ID, _text),
    "amqp.creation_time": _property(_P.CREATION_TIME),
    "amqp.delivery_count": _fact(lambda fields: fields.facts.attempt),
    "amqp.delivery_mode": _delivery_mode,
    "amqp.durable": _durable,
    "amqp.group_id": _property(_P.GROUP_ID),
    "amqp.group_sequence": _property(_P.GROUP_SEQUENCE),
    "amqp.message_id": _property(_P.MESSAGE_ID, _text),
    "amqp.priority": _priority,
    "amqp.redelivered": _redelivered,
    "amqp.reply_to": _property(_P.REPLY_TO),
    "amqp.reply_to_group_id": _property(_P.REPLY_TO_GROUP_ID),
    "amqp.subject": _property(_P.SUBJECT),
    "amqp.to": _property(_P.TO),
    "amqp.user_id": _property(_P.USER_ID, _text),
}
"""Name -> how it is read, and whether it stands in the body."""


def stands_in_body(name: str) -> bool:
    """True if a name is one of the sections', and not of the message's place in the queue."""
    known = _NAMES.get(name)
    return known is None or known[1]


def is_application_property(name: str) -> bool:
    """True if a name leads into the application properties."""
    return name not in _NAMES and not name.startswith(_ANNOTATION)

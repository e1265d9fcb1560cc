"""What the broker reads of a posted message, and what it writes around it.

A message travels as ``header | delivery-annotations | message-annotations | the rest``. The header is ours: it is read
at posting and written anew on every transfer, with all five fields explicit, because *first-acquirer* and
*delivery-count* change and their absence means different things to different clients. Our two annotations are spliced
in once, at posting. Everything else passes byte for byte.

    posted            header' [da] [ma]                                      properties .. footer
    kept (body)               [da] [ma + sequence, posted-at]                properties .. footer
    transferred       header  [da] [ma + sequence, posted-at]                properties .. footer

**Short ways.** Messages of one sender look alike. After one whole scan of a message that is nothing but an optional
header and one body section, `Template` remembers the bytes before the body's length; the next message that begins with
them and whose one length accounts for its end has the same meaning. A message that has properties, but says nothing
else that matters here, is read by `read_plain`. Everything else takes `read_posting`, which gives the very same result.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Final
from uuid import UUID

from acquit.broker.refusal import Refused
from acquit.errors import DecodeError
from acquit.ledger.records import Extra, encode_extras, encode_id
from acquit.protocol.codec import decode
from acquit.protocol.definitions import AmqpCondition, SectionCode
from acquit.protocol.extensions import ACQUIRED_COUNT, POSTED_AT, SEQUENCE
from acquit.protocol.sections import (
    APPLICATION_PROPERTIES,
    BODY,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER_HEAD,
    LIST8,
    MAP8,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SHORT_DESCRIPTOR,
    PropertyIndex,
    Sections,
    count_entries,
    decode_header,
    map_value,
    map_values,
    scan_sections,
    section_head,
    splice_annotations,
)
from acquit.protocol.types import Timestamp, ULong, whole_number

if TYPE_CHECKING:
    from acquit.broker.options import AddressPolicy

DELIVERY_TIME: Final = "x-opt-delivery-time"
DELIVERY_DELAY: Final = "x-opt-delivery-delay"
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
"""Application property: the id to detect duplicates by, as Artemis names it; without it, the message id."""

GROUP_KEPT_MAX: Final = 64
"""Characters of a group-id that are kept as they are."""
_DUPLICATE_ID: Final = DUPLICATE_ID.encode()
TTL_MAX: Final = 0xFFFF_FFFF
TIME_MAX_MS: Final = (1 << 63) - 1
"""The latest time that a timestamp, and the journal, can say. What is to be later than that is then."""


# -- the header we write ----------------------------------------------------------------------------------------------


def transfer_header(durable: bool, priority: int, first_acquirer: bool, attempt: int, ttl_ms: int | None) -> bytes:
    """A header section with every field explicit (3.2.1)."""
    fields = bytearray(b"\x41" if durable else b"\x42")
    fields += bytes((0x50, min(priority, 255)))
    fields += b"\x40" if ttl_ms is None else b"\x70" + min(ttl_ms, TTL_MAX).to_bytes(4, "big")
    fields += b"\x41" if first_acquirer else b"\x42"
    if not attempt:
        fields += b"\x43"
    elif attempt < 256:
        fields += bytes((0x52, attempt))
    else:
        fields += b"\x70" + attempt.to_bytes(4, "big")
    return HEADER_HEAD + bytes((len(fields) + 1, 5)) + fields


# -- our annotations --------------------------------------------------------------------------------------------------


def _symbol(text: str) -> bytes:
    return b"\xa3" + bytes((len(text),)) + text.encode()


_BEFORE_SEQUENCE: Final = _symbol(SEQUENCE) + b"\x80"
_BEFORE_POSTED_AT: Final = _symbol(POSTED_AT) + b"\x83"
_MAP_BYTES: Final = 1 + len(_BEFORE_SEQUENCE) + 8 + len(_BEFORE_POSTED_AT) + 8
_BEFORE: Final = section_head(SectionCode.MESSAGE_ANNOTATIONS, MAP8) + bytes((_MAP_BYTES, 4)) + _BEFORE_SEQUENCE
_ANNOTATIONS: Final = Struct(f">{len(_BEFORE)}sQ{len(_BEFORE_POSTED_AT)}sq")


def own_annotations(sequence: int, posted_ms: int) -> bytes:
    """The section with nothing but our two annotations."""
    return _ANNOTATIONS.pack(_BEFORE, sequence, _BEFORE_POSTED_AT, posted_ms)


def make_body(sections: Sections, sequence: int, posted_ms: int) -> bytes:
    """What is kept of a posted message: everything behind the header, with our annotations in place of older ones.

    Raises DecodeError where the message annotations are no map.
    """
    payload, bounds = sections.payload, sections.bounds
    start, end = bounds[MESSAGE_ANNOTATIONS], bounds[PROPERTIES]
    if start == end:
        ours = own_annotations(sequence, posted_ms)
    else:
        ours = splice_annotations(payload[start:end], {SEQUENCE: ULong(sequence), POSTED_AT: Timestamp(posted_ms)})
    return payload[bounds[1] : start] + ours + payload[end:]


_PROPERTIES: Final = section_head(SectionCode.PROPERTIES, LIST8)
_BEHIND_PROPERTIES: Final = tuple(
    map(
        section_head,
        (
            SectionCode.APPLICATION_PROPERTIES,
            SectionCode.DATA,
            SectionCode.AMQP_SEQUENCE,
            SectionCode.AMQP_VALUE,
        ),
    )
)


def make_plain_body(payload: bytes, sequence: int, posted_ms: int) -> bytes | None:
    """What `make_body` makes of a payload that was posted, for most of those that belong to no group; None for others.

    A message without annotations that has its header and properties in the usual form needs no look at the rest: ours
    go between header and properties. The properties have their number of fields at a fixed place, and a group-id is one
    of the last.
    """
    start = 5 + payload[4] if payload.startswith(HEADER_HEAD) else 0
    if payload.startswith(_PROPERTIES, start):
        if payload[start + 5] > PropertyIndex.GROUP_ID:
            return None
    elif not payload.startswith(_BEHIND_PROPERTIES, start):
        return None
    return own_annotations(sequence, posted_ms) + payload[start:]


def shape_body(payload: bytes, sequence: int, posted_ms: int) -> bytes:
    """`make_body` of a payload as it stands in the journal."""
    return make_body(scan_sections(payload), sequence, posted_ms)


class SharedBody:
    """`make_body` for many copies of one message, which differ in nothing but their sequence."""

    __slots__ = ("_after", "_before")

    def __init__(self, sections: Sections, posted_ms: int) -> None:
        """Raises DecodeError as `make_body` does."""
        body = make_body(sections, _ANY_SEQUENCE, posted_ms)
        # Ours is the last but one entry of the section that ends where the properties begin.
        end = len(body) - (len(sections.payload) - sections.bounds[PROPERTIES])
        at = body.rindex(_PLACE, 0, end) + len(_PLACE)
        self._before, self._after = body[: at - 8], body[at:]

    def of(self, sequence: int) -> bytes:
        """The body of the copy with this sequence."""
        return self._before + sequence.to_bytes(8, "big") + self._after


_ANY_SEQUENCE: Final = (1 << 64) - 1
_PLACE: Final = _BEFORE_SEQUENCE + b"\xff" * 8


def merge_annotations(body: bytes, annotations: bytes) -> bytes:
    """`body` with an encoded map of annotations merged in, new ones in place of old ones (3.4.5).

    As it was where the message's own annotations make no sense.
    """
    value, _ = decode(annotations)
    assert isinstance(value, dict)
    try:
        sections = scan_sections(body)
        start, end = sections.bounds[MESSAGE_ANNOTATIONS], sections.bounds[PROPERTIES]
        merged = splice_annotations(body[start:end], {str(key): item for key, item in value.items()})
    except DecodeError:
        return body
    return body[:start] + merged + body[end:]


# -- what a posting may cost -------------------------------------------------------------------------------------------

_ENTRY_BYTES_MIN: Final = 3
"""Of an entry of a map: an empty key, and a value without width."""
_MAPS: Final = {
    DELIVERY_ANNOTATIONS: "delivery annotations",
    MESSAGE_ANNOTATIONS: "message annotations",
    APPLICATION_PROPERTIES: "application properties",
    FOOTER: "a footer",
}


def check_cost(payload: bytes, entries_max: int, body_sections_max: int) -> None:
    """Look whether a message is too laborious to deal with: its bytes may be many, but not what they say.

    Raises Refused for more entries in a map, or sections of the body, than these; DecodeError for what is no message.
    """
    if len(payload) <= min(entries_max, body_sections_max) * _ENTRY_BYTES_MIN:
        return
    sections = scan_sections(payload, body_sections_max=body_sections_max)
    for rank, name in _MAPS.items():
        count = count_entries(sections, rank)
        if count > entries_max:
            raise Refused(
                f"{name} with {count:,} entries: at most {entries_max:,} are taken",
                condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
            )


# -- what a posting says ----------------------------------------------------------------------------------------------


_HEADERS_MAX: Final = 1_024
_headers: dict[bytes, tuple[bool, int, int | None]] = {}
"""What header sections say that came up: few differ."""


def _read_header(section: bytes) -> tuple[bool, int, int | None]:
    """durable, priority, ttl. Raises DecodeError."""
    known = _headers.get(section)
    if known is None:
        header = decode_header(section)
        known = header.durable, header.priority, header.ttl
        if len(_headers) >= _HEADERS_MAX:
            _headers.clear()
        _headers[section] = known
    return known


def read_plain(sections: Sections) -> tuple[bool, int, bytes] | None:
    """Durable, priority and message id (as the ledger encodes it) of a message about which nothing else matters here.

    None for one that says more: annotations, a time to live, a late property, an id that is no short string. Those take
    `read_posting`. Raises DecodeError for a header that makes no sense.
    """
    payload, bounds = sections.payload, sections.bounds
    header_end, properties, after = bounds[1], bounds[PROPERTIES], bounds[APPLICATION_PROPERTIES]
    if header_end != properties:
        return None
    durable, priority, ttl_ms = _read_header(payload[:header_end]) if header_end else _NO_HEADER
    if ttl_ms is not None:
        return None
    message_id = b""
    if properties != after:
        # A list8 of no more fields than come before absolute-expiry-time, of which the first is a str8, or null.
        if not payload.startswith(_PROPERTIES, properties):
            return None
        if 0 < payload[properties + 5] <= PropertyIndex.ABSOLUTE_EXPIRY_TIME:
            first = properties + 6
            if payload[first] == 0xA1:
                end = first + 2 + payload[first + 1]
                message_id = b"s" + payload[first + 2 : end]
                if end > after or not _is_utf8(message_id):
                    return None
            elif payload[first] != 0x40:
                return None
            else:
                end = first + 1
            if payload[properties + 5] > 1 and payload[end] != 0x40:
                return None  # a user-id, which may have to be the sender's
        elif payload[properties + 5]:
            return None
    if after != bounds[BODY] and payload.find(_DUPLICATE_ID, after, bounds[BODY]) >= 0:
        return None
    return durable, priority, message_id


_NO_HEADER: Final = (False, 4, None)


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


class Posting:
    """What the broker must know of a posted message."""

    __slots__ = (
        "absolute_expiry_ms",
        "due_at_ms",
        "duplicate_id",
        "durable",
        "extras",
        "group",
        "group_sequence",
        "last_value",
        "message_id",
        "poster",
        "priority",
        "sections",
        "to",
        "ttl_ms",
        "user_id",
    )

    def __init__(self, sections: Sections) -> None:
        self.sections = sections
        self.durable = False
        self.priority = 4
        self.ttl_ms: int | None = None
        self.message_id = b""
        """As the ledger encodes ids; b"" for none."""
        self.duplicate_id = b""
        """The same of the application property that duplicate detection goes by."""
        self.to: str | None = None
        self.user_id: object = None
        """Who sent it, as it says itself."""
        self.absolute_expiry_ms: int | None = None
        self.extras = b""
        """What the journal keeps besides: the id that duplicate detection goes by, the group, the last-value key."""
        self.last_value = b""
        """As `limits.note_value` found it; b"" for none."""
        self.due_at_ms = 0
        """Its delivery time; 0: at once."""
        self.group: str | None = None
        """Its group-id, and where in the group it stands."""
        self.group_sequence: int | None = None
        self.poster: str | None = None
        """The container that it comes from; None where it comes from no link."""


def read_group(sections: Sections) -> tuple[str | None, int | None]:
    """group-id and group-sequence of a message (3.2.4). Raises DecodeError.

    Of a long id its hash stands for its end: it is kept in memory also while the message is not.
    """
    group, sequence = sections.property_values(PropertyIndex.GROUP_ID, PropertyIndex.GROUP_SEQUENCE)
    text = None if group is None else str(group)
    if text is not None and len(text) > GROUP_KEPT_MAX:
        text = text[:GROUP_KEPT_MAX] + blake2b(text.encode(), digest_size=16).hexdigest()
    return text, sequence if isinstance(sequence, int) else None


def read_posting(payload: bytes) -> Posting:
    """Read what matters, but for its delivery time, which is asked once, when the message is taken (`read_due_at`).

    Raises DecodeError for bytes that are no message, or say nonsense where we look.
    """
    sections = scan_sections(payload)
    posting = Posting(sections)
    bounds = sections.bounds
    if bounds[1]:
        posting.durable, posting.priority, posting.ttl_ms = _read_header(payload[: bounds[1]])
    if bounds[PROPERTIES] != bounds[PROPERTIES + 1]:
        identity, posting.user_id, to, expiry, group = sections.property_values(
            PropertyIndex.MESSAGE_ID,
            PropertyIndex.USER_ID,
            PropertyIndex.TO,
            PropertyIndex.ABSOLUTE_EXPIRY_TIME,
            PropertyIndex.GROUP_ID,
        )
        posting.message_id = _id(identity)
        if group is not None:
            posting.extras = encode_extras([(Extra.GROUP_ID, _bounded("group id", str(group).encode()))])
            posting.group, posting.group_sequence = read_group(sections)
        posting.to = None if to is None else str(to)
        posting.absolute_expiry_ms = min(expiry, TIME_MAX_MS) if isinstance(expiry, int) else None
    start, end = bounds[APPLICATION_PROPERTIES], bounds[BODY]
    if start != end and payload.find(_DUPLICATE_ID, start, end) >= 0:
        posting.duplicate_id = _id(map_value(payload[start:end], DUPLICATE_ID))
        posting.extras += encode_extras([(Extra.DUPLICATE_ID, posting.duplicate_id)])
    return posting


def _id(value: object) -> bytes:
    """An id as the ledger encodes it; of what cannot be one, its text."""
    match value:
        case bool():
            encoded = encode_id(str(value))
        case int() if not 0 <= value < 1 << 64:
            encoded = encode_id(str(value))
        case None | str() | int() | UUID() | bytes():
            encoded = encode_id(value)
        case _:
            encoded = encode_id(str(value))
    return _bounded("message id", encoded)


def _bounded(what: str, value: bytes) -> bytes:
    if len(value) > 0xFFFF:
        raise DecodeError(f"a {what} of {len(value)} bytes")
    return value


def read_due_at(sections: Sections, now_ms: int) -> int:
    """When a message is to be delivered; 0: at once. A time wins over a delay, and what is past means at once.

    Raises Refused for a value that is no whole number, and for an annotation that begins like the two and is neither:
    one misspelt would be delivered at once, and those of other brokers ask for what is not done here, as to be
    delivered again and again.
    """
    start, end = sections.bounds[MESSAGE_ANNOTATIONS], sections.bounds[PROPERTIES]
    if start == end or sections.payload.find(_DELIVERY, start, end) < 0:
        return 0
    said: dict[str, int] = {}
    for name, value in map_values(sections.payload[start:end], _DELIVERY.decode()).items():
        if name not in (DELIVERY_TIME, DELIVERY_DELAY):
            raise Refused(
                f"the annotation {name:.80} is not known here: {DELIVERY_TIME} and {DELIVERY_DELAY} are",
                condition=AmqpCondition.NOT_IMPLEMENTED,
            )
        if value is None:
            continue
        number = whole_number(value)
        if number is None:
            raise Refused(
                f"the annotation {name} must be a whole number of milliseconds, not {value!r:.80}",
                condition=AmqpCondition.INVALID_FIELD,
            )
        said[name] = number
    if DELIVERY_TIME in said:
        due_at_ms = said[DELIVERY_TIME]
    else:
        due_at_ms = now_ms + said.get(DELIVERY_DELAY, 0)
    return min(due_at_ms, TIME_MAX_MS) if due_at_ms > now_ms else 0


def expiry(posting: Posting, policy: AddressPolicy, now_ms: int) -> int:
    """When the message expires: by its header, its properties and the policy, the earliest of them. 0: never."""
    ttl_ms = posting.ttl_ms
    if ttl_ms is None and posting.absolute_expiry_ms is None and policy.default_ttl_ms:
        ttl_ms = policy.default_ttl_ms
    expiries = [] if ttl_ms is None else [now_ms + ttl_ms]
    if posting.absolute_expiry_ms:
        expiries.append(max(1, posting.absolute_expiry_ms))
    if policy.ttl_ms_max:
        expiries.append(now_ms + policy.ttl_ms_max)
    return min(expiries, default=0)


_DELIVERY: Final = b"x-opt-delivery-"


_UINT32: Final = Struct(">I").unpack_from
_WIDE: Final = frozenset((0xB0, 0xB1))
_LENGTHS: Final = _WIDE | {0xA0, 0xA1}


class Template:
    """Messages that are a header (or none), perhaps a message id, and one section of octets: all is known of them but
    the id itself and the body's length. Ids of one sender have one width, as a rule."""

    __slots__ = ("between", "body_at", "durable", "id_at", "id_end", "length_at", "prefix", "priority", "wide")

    def __init__(
        self, prefix: bytes, body_at: int, durable: bool, priority: int, id_bytes: int = 0, between: bytes = b""
    ) -> None:
        self.prefix = prefix
        """Everything up to the id, or without one up to the body's length."""
        self.between = between
        """What is between the id and the body's length."""
        self.id_at = len(prefix) if id_bytes else 0
        self.id_end = self.id_at + id_bytes
        self.length_at = len(prefix) + id_bytes + len(between)
        self.body_at = body_at
        """Where the header ends."""
        self.wide = (between or prefix)[-1] in _WIDE
        self.durable = durable
        self.priority = priority

    def fits(self, payload: bytes) -> bool:
        """Is `payload` such a message, whole and with nothing behind it?"""
        if not payload.startswith(self.prefix):
            return False
        if self.id_end and not (
            payload.startswith(self.between, self.id_end) and payload[self.id_at : self.id_end].isascii()
        ):
            return False
        at = self.length_at
        size = len(payload)
        if self.wide:
            return size >= at + 4 and size == at + 4 + _UINT32(payload, at)[0]
        return size > at and size == at + 1 + payload[at]

    def message_id(self, payload: bytes) -> bytes:
        """The id of a message that fits, as the ledger encodes it."""
        return b"s" + payload[self.id_at : self.id_end] if self.id_end else b""


def learn_template(sections: Sections) -> Template | None:
    """A template of messages like this one, or None where it says more than a template can. Raises DecodeError."""
    bounds, payload = sections.bounds, sections.payload
    header_end, properties, after, body_at = bounds[1], bounds[PROPERTIES], bounds[APPLICATION_PROPERTIES], bounds[BODY]
    if header_end != properties or after != body_at or bounds[BODY + 1] != len(payload) or len(payload) < body_at + 5:
        return None
    if payload[body_at + 1] != SHORT_DESCRIPTOR or payload[body_at + 3] not in _LENGTHS:
        return None
    durable, priority, ttl_ms = _read_header(payload[:header_end]) if header_end else _NO_HEADER
    if ttl_ms is not None:
        return None
    if properties == after:
        template = Template(payload[: body_at + 4], header_end, durable, priority)
    else:
        # A list8 of one field, a str8 that ends where the section does.
        id_at = properties + 8
        head = payload[properties:id_at]
        if head[1:4] != b"\x53\x73\xc0" or head[5:7] != b"\x01\xa1" or not head[7] or id_at + head[7] != after:
            return None
        template = Template(
            payload[:id_at], header_end, durable, priority, payload[id_at - 1], payload[after : body_at + 4]
        )
    return template if template.fits(payload) else None


__all__ = [
    "ACQUIRED_COUNT",
    "DELIVERY_DELAY",
    "DELIVERY_TIME",
    "POSTED_AT",
    "SEQUENCE",
    "Posting",
    "SharedBody",
    "Template",
    "learn_template",
    "make_body",
    "merge_annotations",
    "own_annotations",
    "read_due_at",
    "read_group",
    "read_plain",
    "read_posting",
    "shape_body",
    "transfer_header",
]

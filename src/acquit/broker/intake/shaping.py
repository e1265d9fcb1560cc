"""Reading of posted messages, and what the broker writes around them.

A message travels as ``header | delivery-annotations | message-annotations | the rest``. The header is ours: it is read
at posting and written anew on every transfer, with all five fields explicit, because *first-acquirer* and
*delivery-count* change and their absence means different things to different clients. Our two annotations are spliced
in once, at posting. Everything else passes byte for byte.

    posted            header' [da] [ma]                                      properties .. footer
    kept (body)               [da] [ma + sequence, posted-at]                properties .. footer
    transferred       header  [da] [ma + sequence, posted-at]                properties .. footer

Most messages are never read: `templates` knows what they say.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Final
from uuid import UUID

from acquit.broker.refusal import Refused
from acquit.errors import DecodeError
from acquit.ledger.records import Extra, encode_extras, encode_id, encode_posting_meta
from acquit.protocol.codec import decode
from acquit.protocol.definitions import AmqpCondition, SectionCode
from acquit.protocol.extensions import ACQUIRED_COUNT, POSTED_AT, SEQUENCE
from acquit.protocol.rope import Rope, spliced
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
    from acquit.broker.intake.identity import Identity
    from acquit.broker.options import AddressPolicy

DELIVERY_TIME: Final = "x-opt-delivery-time"
DELIVERY_DELAY: Final = "x-opt-delivery-delay"
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
"""Application property: the id to detect duplicates by, as Artemis names it; without it, the message id."""

GROUP_KEPT_MAX: Final = 64
"""Characters of a group-id that are kept as they are."""
DUPLICATE_KEY: Final = DUPLICATE_ID.encode()
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
BEFORE_POSTED_AT: Final = _symbol(POSTED_AT) + b"\x83"
"""The octets between our two values."""
_MAP_BYTES: Final = 1 + len(_BEFORE_SEQUENCE) + 8 + len(BEFORE_POSTED_AT) + 8
_BEFORE: Final = section_head(SectionCode.MESSAGE_ANNOTATIONS, MAP8) + bytes((_MAP_BYTES, 4)) + _BEFORE_SEQUENCE
_OURS: Final = Struct(f">Q{len(BEFORE_POSTED_AT)}sq")


def own_annotations(sequence: int, posted_ms: int) -> bytes:
    """The section with nothing but our two annotations."""
    return _BEFORE + _OURS.pack(sequence, BEFORE_POSTED_AT, posted_ms)


def _ours(sequence: int, posted_ms: int) -> bytes:
    """Return what follows a `kept_head`: both of our values, and the name of the second."""
    return _OURS.pack(sequence, BEFORE_POSTED_AT, posted_ms)


def kept_head(sections: Sections) -> bytes:
    """Return what is kept of a posted message, up to the octets of our sequence: all behind its header, our annotations
    being the last of its own, in place of older ones.

    Raises DecodeError where the message annotations are no map.
    """
    payload, bounds = sections.payload, sections.bounds
    start, end = bounds[MESSAGE_ANNOTATIONS], bounds[PROPERTIES]
    if start == end:
        head = _BEFORE
    elif end - start <= _REMEMBERED_BYTES_MAX:
        head = _known_head(payload[start:end])
    else:
        head = _spliced_head(payload[start:end])
    return head if bounds[1] == start else payload[bounds[1] : start] + head


def _spliced_head(annotations: bytes) -> bytes:
    ours = {SEQUENCE: ULong(_EIGHT_OCTETS), POSTED_AT: Timestamp(0)}
    return splice_annotations(annotations, ours)[: -_OURS.size]


_REMEMBERED_BYTES_MAX: Final = 512
_known_head: Final = lru_cache(maxsize=256)(_spliced_head)
"""The same, remembered: those of one sender are alike."""
_EIGHT_OCTETS: Final = (1 << 64) - 1
"""A sequence that is written as we write all of them."""


def make_body(sections: Sections, sequence: int, posted_ms: int) -> bytes | Rope:
    """Return what is kept of a posted message. Raises DecodeError as `kept_head` does."""
    return spliced(kept_head(sections) + _ours(sequence, posted_ms), sections.payload, sections.bounds[PROPERTIES])


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


def make_plain_body(payload: bytes, sequence: int, posted_ms: int) -> bytes | Rope | None:
    """Return what `make_body` makes of a posted payload, for most of those that belong to no group; None for others.

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
    return spliced(own_annotations(sequence, posted_ms), payload, start)


def shape_body(payload: bytes, sequence: int, posted_ms: int) -> bytes | Rope:
    """`make_body` of a payload as it stands in the journal."""
    return make_body(scan_sections(payload), sequence, posted_ms)


def merge_annotations(body: bytes | Rope, annotations: bytes) -> bytes | Rope:
    """`body` with an encoded map of annotations merged in, new ones in place of old ones (3.4.5).

    As it was where the message's own annotations make no sense.
    """
    value, _ = decode(annotations)
    assert isinstance(value, dict)
    front = body.head if isinstance(body, Rope) else body  # a rope's has all annotations, and nothing behind them
    try:
        sections = scan_sections(front)
        start, end = sections.bounds[MESSAGE_ANNOTATIONS], sections.bounds[PROPERTIES]
        merged = splice_annotations(front[start:end], {str(key): item for key, item in value.items()})
    except DecodeError:
        return body
    if isinstance(body, Rope):
        return Rope(front[:start] + merged, body.payload, body.start)
    return spliced(front[:start] + merged, body, end)


# -- what a posting may cost -------------------------------------------------------------------------------------------

_ENTRY_BYTES_MIN: Final = 3
"""Bytes of the smallest entry of a map: an empty key, and a value without width."""
COUNTED_MAPS: Final = {
    DELIVERY_ANNOTATIONS: "delivery annotations",
    MESSAGE_ANNOTATIONS: "message annotations",
    APPLICATION_PROPERTIES: "application properties",
    FOOTER: "a footer",
}
"""Sections whose entries are counted, by what they are called."""


def check_cost(payload: bytes, entries_max: int, body_sections_max: int) -> None:
    """Look whether a message is too laborious to deal with: its bytes may be many, but not what they say.

    Raises Refused for more entries in a map, or sections of the body, than these; DecodeError for what is no message.
    """
    if len(payload) <= min(entries_max, body_sections_max) * _ENTRY_BYTES_MIN:
        return
    sections = scan_sections(payload, body_sections_max=body_sections_max)
    for rank, name in COUNTED_MAPS.items():
        count = count_entries(sections, rank)
        if count > entries_max:
            raise Refused(
                f"{name} with {count:,} entries: at most {entries_max:,} are taken",
                condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
            )


# -- what a posting says ----------------------------------------------------------------------------------------------


_HEADERS_MAX: Final = 1_024
_headers: dict[bytes, tuple[bool, int, int | None]] = {}
"""Meanings of header sections that came up: few differ."""


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


class Posting:
    """Fields of a posted message that the broker must know."""

    __slots__ = (
        "absolute_expiry_ms",
        "due_at_ms",
        "duplicate_id",
        "durable",
        "extras",
        "group",
        "group_sequence",
        "head",
        "identity",
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
        """Raises DecodeError as `kept_head` does."""
        self.sections = sections
        self.head = kept_head(sections)
        """Octets that are kept of it, up to its sequence."""
        self.durable = False
        self.priority = 4
        self.ttl_ms: int | None = None
        self.message_id = b""
        """Id of the message, as the ledger encodes ids; b"" for none."""
        self.duplicate_id = b""
        """The same of the application property that duplicate detection goes by."""
        self.to: str | None = None
        self.user_id: object = None
        """User who sent it, as the message says itself."""
        self.absolute_expiry_ms: int | None = None
        self.extras = b""
        """Fields for the journal besides: the id that duplicate detection goes by, the group, the last-value key."""
        self.last_value = b""
        """Value that a last-value queue goes by, as `limits.note_value` found it; b"" for none."""
        self.due_at_ms = 0
        """Delivery time, in milliseconds since the epoch; 0: at once."""
        self.group: str | None = None
        """Group-id; None for none. `group_sequence` is where in the group it stands."""
        self.group_sequence: int | None = None
        self.poster: str | None = None
        """The container that it comes from; None where it comes from no link."""
        self.identity: Identity | None = None
        """Knowledge of its id, once that was looked up; None: it has none that counts."""

    marked: Final = True
    """True: the group or the id may have to be noted."""

    @property
    def plain(self) -> bool:
        """True if it has no times: nothing about it asks for care but its id, if duplicates are told by that."""
        return self.ttl_ms is None and self.absolute_expiry_ms is None and not self.due_at_ms

    def body(self, payload: bytes, sequence: int, posted_ms: int) -> bytes | Rope:
        """Return what is kept of it, as `make_body` makes it. `payload` is the message."""
        return spliced(self.head + _ours(sequence, posted_ms), payload, self.sections.bounds[PROPERTIES])

    def group_of(self, payload: bytes) -> str | None:
        """Return its group-id, as it is kept. `payload` is the message."""
        return self.group

    def meta(self, address: bytes, payload: bytes, *, expires_at_ms: int = 0, due_at_ms: int = 0) -> bytes:
        """The plain fields of its record, where it is posted to this address."""
        return encode_posting_meta(
            address,
            self.message_id,
            expires_at_ms=expires_at_ms,
            due_at_ms=due_at_ms,
            priority=self.priority,
            extras=self.extras,
        )


def read_group(sections: Sections) -> tuple[str | None, int | None]:
    """group-id and group-sequence of a message (3.2.4). Raises DecodeError."""
    group, sequence = sections.property_values(PropertyIndex.GROUP_ID, PropertyIndex.GROUP_SEQUENCE)
    return None if group is None else _kept_group(str(group)), sequence if isinstance(sequence, int) else None


def _kept_group(text: str) -> str:
    """A group-id as it is kept, in memory also while its message is not: of a long one its hash stands for its end."""
    if len(text) > GROUP_KEPT_MAX:
        return text[:GROUP_KEPT_MAX] + blake2b(text.encode(), digest_size=16).hexdigest()
    return text


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
        identity, posting.user_id, to, expiry, group, group_sequence = sections.property_values(
            PropertyIndex.MESSAGE_ID,
            PropertyIndex.USER_ID,
            PropertyIndex.TO,
            PropertyIndex.ABSOLUTE_EXPIRY_TIME,
            PropertyIndex.GROUP_ID,
            PropertyIndex.GROUP_SEQUENCE,
        )
        posting.message_id = _id(identity)
        if group is not None:
            text = str(group)
            posting.extras = encode_extras([(Extra.GROUP_ID, _bounded("group id", text.encode()))])
            posting.group = _kept_group(text)
            posting.group_sequence = group_sequence if isinstance(group_sequence, int) else None
        posting.to = None if to is None else str(to)
        posting.absolute_expiry_ms = min(expiry, TIME_MAX_MS) if isinstance(expiry, int) else None
    start, end = bounds[APPLICATION_PROPERTIES], bounds[BODY]
    if start != end and payload.find(DUPLICATE_KEY, start, end) >= 0:
        posting.duplicate_id = _id(map_value(payload[start:end], DUPLICATE_ID))
        posting.extras += encode_extras([(Extra.DUPLICATE_ID, posting.duplicate_id)])
    return posting


def _id(value: object) -> bytes:
    """An id as the ledger encodes it; of what cannot be one, its text."""
    if value is None:
        return b""
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
    """Return when a message is to be delivered; 0: at once. A time wins over a delay, and what is past means at once.

    Raises Refused for a value that is no whole number, and for an annotation that begins like the two and is neither:
    one misspelt would be delivered at once, and those of other brokers ask for what is not done here, as to be
    delivered again and again.
    """
    start, end = sections.bounds[MESSAGE_ANNOTATIONS], sections.bounds[PROPERTIES]
    if start == end or sections.payload.find(DELIVERY_PREFIX, start, end) < 0:
        return 0
    said: dict[str, int] = {}
    for name, value in map_values(sections.payload[start:end], DELIVERY_PREFIX.decode()).items():
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
    """Return when the message expires: by its header, its properties and the policy, the earliest of them. 0: never."""
    ttl_ms = posting.ttl_ms
    if ttl_ms is None and posting.absolute_expiry_ms is None and policy.default_ttl_ms:
        ttl_ms = policy.default_ttl_ms
    expiries = [] if ttl_ms is None else [now_ms + ttl_ms]
    if posting.absolute_expiry_ms:
        expiries.append(max(1, posting.absolute_expiry_ms))
    if policy.ttl_ms_max:
        expiries.append(now_ms + policy.ttl_ms_max)
    return min(expiries, default=0)


DELIVERY_PREFIX: Final = b"x-opt-delivery-"
"""The beginning of the names of both, and of what is neither."""


__all__ = [
    "ACQUIRED_COUNT",
    "BEFORE_POSTED_AT",
    "COUNTED_MAPS",
    "DELIVERY_DELAY",
    "DELIVERY_PREFIX",
    "DELIVERY_TIME",
    "DUPLICATE_KEY",
    "GROUP_KEPT_MAX",
    "POSTED_AT",
    "SEQUENCE",
    "Posting",
    "make_body",
    "merge_annotations",
    "own_annotations",
    "read_due_at",
    "read_group",
    "read_posting",
    "shape_body",
    "transfer_header",
]

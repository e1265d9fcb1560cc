"""Reading of posted messages, and what the broker writes around them.

A message travels as ``header | delivery-annotations | message-annotations | the rest``. The header is ours: it is read
at posting and written anew on every transfer, with all five fields explicit, because *first-acquirer* and
*delivery-count* change and their absence means different things to different clients. Our two annotations are spliced
in once, at posting. Everything else passes byte for byte.

    posted            header' [da] [ma]                                      properties .. footer
    kept (body)               [da] [ma + sequence, posted-at]                properties .. footer
    transferred       header  [da] [ma + sequence, posted-at]                properties .. footer

**The short way.** Messages of one sender look alike. After one whole scan of a message with one body section, its
`Template` remembers the octets before that section's length, but for those of its id, creation time and group-id, and
its application properties; the next message that has them in their places, and whose lengths account for its end, has
the same meaning. Everything else takes `read_posting`, which gives the very same result.
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
from acquit.protocol.sections import (
    APPLICATION_PROPERTIES,
    BODY,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER_HEAD,
    LIST8,
    LIST32,
    MAP8,
    MAP32,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SHORT_DESCRIPTOR,
    STRING8,
    TIMESTAMP,
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
    from collections.abc import Sequence

    from acquit.broker.intake.identity import Identity
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
_OURS: Final = Struct(f">Q{len(_BEFORE_POSTED_AT)}sq")


def own_annotations(sequence: int, posted_ms: int) -> bytes:
    """The section with nothing but our two annotations."""
    return _BEFORE + _OURS.pack(sequence, _BEFORE_POSTED_AT, posted_ms)


def _ours(sequence: int, posted_ms: int) -> bytes:
    """Return what follows a `kept_head`: both of our values, and the name of the second."""
    return _OURS.pack(sequence, _BEFORE_POSTED_AT, posted_ms)


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


def make_body(sections: Sections, sequence: int, posted_ms: int) -> bytes:
    """Return what is kept of a posted message. Raises DecodeError as `kept_head` does."""
    return kept_head(sections) + _ours(sequence, posted_ms) + sections.payload[sections.bounds[PROPERTIES] :]


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
    return own_annotations(sequence, posted_ms) + payload[start:]


def shape_body(payload: bytes, sequence: int, posted_ms: int) -> bytes:
    """`make_body` of a payload as it stands in the journal."""
    return make_body(scan_sections(payload), sequence, posted_ms)


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
"""Bytes of the smallest entry of a map: an empty key, and a value without width."""
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

    def body(self, payload: bytes, sequence: int, posted_ms: int) -> bytes:
        """Return what is kept of it, as `make_body` makes it. `payload` is the message."""
        return self.head + _ours(sequence, posted_ms) + payload[self.sections.bounds[PROPERTIES] :]

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
    if start != end and payload.find(_DUPLICATE_ID, start, end) >= 0:
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


_DELIVERY: Final = b"x-opt-delivery-"


_UINT32: Final = Struct(">I").unpack_from
_TWO_UINT32: Final = Struct(">II").unpack_from
_LENGTHS: Final = frozenset((0xA0, 0xA1, 0xB0, 0xB1))
"""Constructors of binaries and strings."""
_WIDER: Final = 0x10
"""Bit in which the constructor of a long one is another."""


class Template:
    """Messages that are alike, octet for octet, but for a message id and a group-id of one width, their creation time,
    their application properties and what is in their one body section, however long: all is known of them but the ids
    themselves.

    One with an id to detect duplicates by must be compared with others, and does not `fits`: what it says is `read`."""

    __slots__ = (
        "_body_code",
        "_bounds",
        "_extras_head",
        "_message_id",
        "_meta",
        "_pack",
        "_pack_transferred",
        "_to",
        "_transferred",
        "body_head",
        "durable",
        "group_at",
        "group_end",
        "group_sequence",
        "head",
        "id_at",
        "id_end",
        "known_to",
        "marked",
        "more",
        "narrow",
        "prefix",
        "priority",
        "rest_at",
        "wide_map",
    )
    identity: Final = None

    def __init__(
        self,
        posting: Posting,
        alike: Sequence[tuple[int, bytes]],
        identity: tuple[int, int],
        group: tuple[int, int],
        body_head: bytes,
        body_constructor: int,
    ) -> None:
        self.prefix = alike[0][1]
        """Octets up to the first that may be another, which is the body's constructor where there is no other."""
        self.more = tuple(alike[1:])
        """Octets that are alike behind that, and where they are."""
        self.id_at, self.id_end = identity
        self.group_at, self.group_end = group
        self.group_sequence = posting.group_sequence
        self.marked = bool(self.group_end)
        width = self.group_end - self.group_at
        self._extras_head = encode_extras([(Extra.GROUP_ID, bytes(width))])[: -width or None] if self.group_end else b""
        """Extras up to the group-id."""
        at, octets = alike[-1]
        self.known_to = at + len(octets)
        """Offset of the size of the application properties; where there are none, of the body's constructor."""
        self.wide_map = octets[-1] == MAP32
        self.body_head = body_head
        """The octets between the application properties and the body's constructor; b"" where there are none."""
        self.narrow = body_constructor & ~_WIDER
        """The constructor of a short body."""
        self.head = posting.head
        self._pack = Struct(f">{len(posting.head)}sQ{len(_BEFORE_POSTED_AT)}sq").pack
        self._transferred = transfer_header(posting.durable, posting.priority, True, 0, None) + posting.head
        """The head behind the header that the first consumer sees."""
        self._pack_transferred = Struct(f">{len(self._transferred)}sQ{len(_BEFORE_POSTED_AT)}sq").pack
        self._bounds = posting.sections.bounds[:BODY]
        self._body_code = posting.sections.body_code
        self._message_id = posting.message_id
        self._to = posting.to
        self.rest_at = self._bounds[PROPERTIES]
        """Offset of what is kept as it is."""
        self.durable = posting.durable
        self.priority = posting.priority
        self._meta = b""
        """The same for all of them, where they have no id: they go to one address."""

    def fits(self, payload: bytes, *, identified: bool = False) -> bool:
        """Return whether `payload` is such a message, whole and with nothing behind it: without an id to detect
        duplicates by, or where `identified` with one."""
        if not payload.startswith(self.prefix):
            return False
        if self.more:
            for at, octets in self.more:
                if not payload.startswith(octets, at):
                    return False
        if self.id_end and not payload[self.id_at : self.id_end].isascii():
            return False
        if self.group_end and not payload[self.group_at : self.group_end].isascii():
            return False
        at = self.known_to
        if self.body_head:
            map_end = self._map_end(payload)
            if not map_end or (payload.find(_DUPLICATE_ID, at, map_end) >= 0) is not identified:
                return False
            at = map_end + 3
        size = len(payload)
        if size < at + 2:
            return False
        if payload[at] == self.narrow:
            return size == at + 2 + payload[at + 1]
        return payload[at] == self.narrow | _WIDER and size >= at + 5 and size == at + 5 + _UINT32(payload, at + 1)[0]

    def read(self, payload: bytes) -> Posting | None:
        """Return what `read_posting` says of a message that would fit but for its only application property, which is
        the id to detect duplicates by. None for any other."""
        if not self.body_head or not self.fits(payload, identified=True):
            return None
        map_end = self._map_end(payload)
        first = self.known_to + (8 if self.wide_map else 2)
        at = first + len(_DUPLICATE_HEAD)
        if payload[first - 1] != 2 or not payload.startswith(_DUPLICATE_HEAD, first) or at >= map_end:
            return None
        identity = payload[at + 1 : map_end]
        size = len(payload)
        if len(identity) != payload[at] or not identity.isascii():
            return None
        posting = Posting(Sections(payload, [*self._bounds, map_end, size, size], self._body_code))
        posting.durable, posting.priority, posting.to = self.durable, self.priority, self._to
        posting.message_id = b"s" + payload[self.id_at : self.id_end] if self.id_end else self._message_id
        if self.group_end:
            posting.group, posting.group_sequence = self.group_of(payload), self.group_sequence
            posting.extras = self._extras_head + payload[self.group_at : self.group_end]
        posting.duplicate_id = b"s" + identity
        posting.extras += encode_extras([(Extra.DUPLICATE_ID, posting.duplicate_id)])
        return posting

    def _map_end(self, payload: bytes) -> int:
        """Return the offset behind the application properties, where they are few enough to count nowhere and such a
        body follows; 0 for others."""
        at = self.known_to
        if len(payload) < at + 8:
            return 0
        size: int
        count: int
        if self.wide_map:
            size, count = _TWO_UINT32(payload, at)
            room, end = size - 4, at + 4 + size
        else:
            size, count = payload[at], payload[at + 1]
            room, end = size - 1, at + 1 + size
        if count > min(room, 2 * _TEMPLATE_ENTRIES_MAX) or not payload.startswith(self.body_head, end):
            return 0
        return end

    def group_of(self, payload: bytes) -> str | None:
        """`Posting.group_of` a message that fits."""
        return payload[self.group_at : self.group_end].decode() if self.group_end else None

    def meta(self, address: bytes, payload: bytes) -> bytes:
        """`Posting.meta` of a message that fits."""
        if self.group_end:
            identity = b"s" + payload[self.id_at : self.id_end] if self.id_end else b""
            extras = self._extras_head + payload[self.group_at : self.group_end]
            return encode_posting_meta(address, identity, priority=self.priority, extras=extras)
        if self.id_end:
            return encode_posting_meta(address, b"s" + payload[self.id_at : self.id_end], priority=self.priority)
        if not self._meta:
            self._meta = encode_posting_meta(address, b"", priority=self.priority)
        return self._meta

    def body(self, payload: bytes, sequence: int, posted_ms: int) -> bytes:
        """`Posting.body` of a message that fits."""
        return self._pack(self.head, sequence, _BEFORE_POSTED_AT, posted_ms) + payload[self.rest_at :]

    def heads(self, sequences: Sequence[int], posted_ms: int) -> list[bytes]:
        """Return what is transferred of messages with these sequences, to their first consumers, before the octets from
        `rest_at` on."""
        pack, head = self._pack_transferred, self._transferred
        return [pack(head, sequence, _BEFORE_POSTED_AT, posted_ms) for sequence in sequences]


def learn_template(posting: Posting) -> Template | None:
    """A template of messages like this one, or None where it says more than a template can. Raises DecodeError."""
    sections = posting.sections
    payload, bounds = sections.payload, sections.bounds
    body_at = bounds[BODY]
    if not posting.plain or posting.user_id is not None:
        return None
    if len(payload) < body_at + 5 or payload[body_at + 1] != SHORT_DESCRIPTOR:
        return None
    if payload[body_at + 3] not in _LENGTHS or payload.find(_DELIVERY, 0, bounds[PROPERTIES]) >= 0:
        return None
    if any(count_entries(sections, rank) > _TEMPLATE_ENTRIES_MAX for rank in _MAPS):
        return None
    spans = sections.property_spans(PropertyIndex.MESSAGE_ID, PropertyIndex.CREATION_TIME, PropertyIndex.GROUP_ID)
    start = 0
    alike, others = [], []
    for span, (code, head_bytes) in zip(spans, _SPANNED, strict=True):
        if span is None:
            others.append((0, 0))
            continue
        at, end = span[0] + head_bytes, span[1]
        if payload[span[0]] != code:
            return None
        others.append((at, end))
        alike.append((start, payload[start:at]))
        start = end
    map_at = bounds[APPLICATION_PROPERTIES]
    if map_at != body_at and payload[map_at + 1] != SHORT_DESCRIPTOR:
        return None
    alike.append((start, payload[start : map_at + (3 if map_at == body_at else 4)]))
    identity, _, group = others
    if map_at > _TEMPLATE_BYTES_MAX or group[1] - group[0] > GROUP_KEPT_MAX:
        return None
    body_head = payload[body_at : body_at + 3] if map_at != body_at else b""
    template = Template(posting, alike, identity, group, body_head, payload[body_at + 3])
    return template if template.fits(payload) or template.read(payload) is not None else None


_DUPLICATE_HEAD: Final = bytes((STRING8, len(_DUPLICATE_ID))) + _DUPLICATE_ID + bytes((STRING8,))
"""The name of the id to detect duplicates by, as a key, and the constructor of its value."""
_SPANNED: Final = ((STRING8, 2), (TIMESTAMP, 1), (STRING8, 2))
"""The constructors of what may be others, and how many octets of each are alike."""


class Templates:
    """Predicts one sender's messages: has the template of the latest, and those of its other headers, as where
    priorities come in turns."""

    __slots__ = ("_by_header", "_misses", "latest")

    def __init__(self) -> None:
        self.latest: Template | None = None
        self._by_header: dict[bytes, Template] = {}
        self._misses = 0
        """Messages that fitted none, since the last that fitted."""

    def of(self, payload: bytes) -> Template | None:
        """Return the template that a message fits; None where there is none."""
        template = self.latest
        return template if template is not None and template.fits(payload) else self.other(payload)

    def other(self, payload: bytes) -> Template | None:
        """Return the template that a message fits which does not fit the latest one; None where there is none."""
        template = self._by_header.get(_header_of(payload))
        if template is None or template is self.latest or not template.fits(payload):
            self._misses += 1
            return None
        self.latest = template
        self._misses = 0
        return template

    def read(self, payload: bytes) -> Posting | None:
        """Return what a message says that fits no template but for its id to detect duplicates by; None for others."""
        template = self.latest
        posting = None if template is None else template.read(payload)
        if posting is None:
            template = self._by_header.get(_header_of(payload))
            posting = None if template is None else template.read(payload)
        if posting is not None:
            self.latest = template
            self._misses = 0
        return posting

    def learn(self, posting: Posting) -> None:
        """Learn from a message that fitted none, seldom where what was learned has fitted none for long. Raises
        DecodeError."""
        if self._misses > _MISSES_MAX and self._misses % _MISSES_MAX:
            return
        template = learn_template(posting)
        if template is None:
            return
        self.latest = template
        if len(self._by_header) >= _TEMPLATES_MAX:
            self._by_header.clear()
        self._by_header[posting.sections.header] = template


def _header_of(payload: bytes) -> bytes:
    """The header section of a message, if it begins with one as nearly everybody writes it; b"" else."""
    if payload.startswith(HEADER_HEAD):
        return payload[: 5 + payload[4]] if len(payload) > 4 else b""
    return payload[: 8 + _UINT32(payload, 4)[0]] if payload.startswith(_WIDE_HEADER) and len(payload) > 7 else b""


_WIDE_HEADER: Final = section_head(SectionCode.HEADER, LIST32)
_TEMPLATES_MAX: Final = 32
_TEMPLATE_BYTES_MAX: Final = 4_096
"""Octets that a template remembers, about: nobody counts them."""
_TEMPLATE_ENTRIES_MAX: Final = 64
"""The least that `limits.message_entries_max` may be: what a template takes, no limit refuses (`check_cost`)."""
_MISSES_MAX: Final = 64


__all__ = [
    "ACQUIRED_COUNT",
    "DELIVERY_DELAY",
    "DELIVERY_TIME",
    "POSTED_AT",
    "SEQUENCE",
    "Posting",
    "Template",
    "Templates",
    "learn_template",
    "make_body",
    "merge_annotations",
    "own_annotations",
    "read_due_at",
    "read_group",
    "read_posting",
    "shape_body",
    "transfer_header",
]

"""Templates: what most messages say is known without a look, as those of one sender are alike.

After one whole scan of a message with one body section, its `Template` remembers the octets before that section's
length, but for those of its id, correlation-id, creation time and group-id, and its application properties; the next
message that has them in their places, and whose lengths account for its end, has the same meaning. Everything else
takes `shaping.read_posting`, which gives the very same result.
"""

from __future__ import annotations

from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from acquit.broker.dispatching.groups import CLOSING
from acquit.broker.intake.columns import agreeing, all_ascii
from acquit.broker.intake.shaping import (
    BEFORE_POSTED_AT,
    COUNTED_MAPS,
    DELIVERY_PREFIX,
    DUPLICATE_KEY,
    GROUP_KEPT_MAX,
    Posting,
    transfer_header,
)
from acquit.ledger.duplicates import encode_id_extras
from acquit.ledger.records import Extra, encode_extras, encode_posting_meta
from acquit.protocol.definitions import SectionCode
from acquit.protocol.rope import Rope, spliced
from acquit.protocol.sections import (
    APPLICATION_PROPERTIES,
    BINARY8,
    BODY,
    HEADER_HEAD,
    LIST32,
    MAP32,
    PROPERTIES,
    SHORT_DESCRIPTOR,
    STRING8,
    TIMESTAMP,
    ULONG,
    UUID,
    PropertyIndex,
    Sections,
    count_entries,
    section_head,
)
from acquit.protocol.sender import Heads

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_UINT32: Final = Struct(">I").unpack_from
_INT64: Final = Struct(">q").pack
_TWO_UINT32: Final = Struct(">II").unpack_from
_LENGTHS: Final = frozenset((0xA0, 0xA1, 0xB0, 0xB1))
"""Constructors of binaries and strings."""
_WIDER: Final = 0x10
"""Bit in which the constructor of a long one is another."""


ALIKE_MIN: Final = 32
"""Messages from which on it is quicker to compare columns than to look at each."""


class Template:
    """Messages that are alike, octet for octet, but for ids of one width (of message, correlation and group), their
    creation time, their application properties and what is in their one body section, however long: all is known of
    them but the ids themselves.

    One with an id to detect duplicates by must be compared with others, and does not `fits`: it is `identified`, and
    what it says is `read`."""

    __slots__ = (
        "_body_code",
        "_bounds",
        "_extras_head",
        "_layout",
        "_meta",
        "_pack",
        "_texts",
        "_to",
        "_transferred",
        "body_head",
        "closes_group",
        "durable",
        "group_at",
        "group_end",
        "group_sequence",
        "head",
        "id_at",
        "id_end",
        "id_type",
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
        id_type: bytes,
        group: tuple[int, int],
        body_head: bytes,
        body_constructor: int,
    ) -> None:
        self.prefix = alike[0][1]
        """Octets up to the first that may be another, which is the body's constructor where there is no other."""
        self.more = tuple(alike[1:])
        """Octets that are alike behind that, and where they are."""
        self.id_at, self.id_end = identity
        self.id_type = id_type
        """Letter of the type of the message ids, as the ledger encodes them; b"" where there are none."""
        self.group_at, self.group_end = group
        self.group_sequence = posting.group_sequence
        self.marked = bool(self.group_end)
        """True if each is of a group."""
        self.closes_group = self.marked and posting.group_sequence == CLOSING
        texts = ((identity, id_type == _TEXT), (group, self.marked))
        self._texts = tuple(place for place, is_text in texts if is_text)
        """Places of ids that are read as texts."""
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
        self._pack = Struct(f">{len(posting.head)}sQ{len(BEFORE_POSTED_AT)}sq").pack
        self._transferred = transfer_header(posting.durable, posting.priority, True, 0, None) + posting.head
        """The head behind the header that the first consumer sees."""
        self._layout = f"{len(self._transferred)}sQ"
        self._bounds = posting.sections.bounds[:BODY]
        self._body_code = posting.sections.body_code
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
        for begin, end in self._texts:
            if not payload[begin:end].isascii():
                return False
        at = self.known_to
        if self.body_head:
            map_end = self._map_end(payload)
            if not map_end or (payload.find(DUPLICATE_KEY, at, map_end) >= 0) is not identified:
                return False
            at = map_end + 3
        size = len(payload)
        if size < at + 2:
            return False
        if payload[at] == self.narrow:
            return size == at + 2 + payload[at + 1]
        return payload[at] == self.narrow | _WIDER and size >= at + 5 and size == at + 5 + _UINT32(payload, at + 1)[0]

    def fits_all(self, payloads: Sequence[bytes]) -> bool:
        """Return whether all of these messages fit. Those of one size, as most are that come together, are compared by
        columns."""
        if not self.fits(payloads[0]):
            return False
        return self._same(payloads) or all(map(self.fits, payloads))

    def identified_all(self, payloads: Sequence[bytes]) -> list[tuple[bytes, int]] | None:
        """Return what `identified` says of all of these; None where one of them is not."""
        found = self.identified(payloads[0])
        if found is None:
            return None
        identity, end = found
        at = end + 1 - len(identity)
        if self._same(payloads, at):
            return [(b"s" + payload[at:end], end) for payload in payloads]
        known = [one for one in map(self.identified, payloads) if one is not None]
        return known if len(known) == len(payloads) else None

    def _same(self, payloads: Sequence[bytes], identity_at: int = 0) -> bool:
        """Return whether messages, the first of which fits, are of one size, and all octets by which it fits are the
        same in all. (They may fit if they are not.) `identity_at`: where it has an id to detect duplicates by."""
        first, count = payloads[0], len(payloads)
        size = len(first)
        if count < ALIKE_MIN or list(map(len, payloads)).count(size) < count:
            return False
        joined = b"".join(payloads)
        at, alike = self.known_to, [(0, self.prefix), *self.more]
        texts = [*self._texts]
        if self.body_head:
            map_end = self._map_end(first)
            alike.append((at, first[at : at + (8 if self.wide_map else 2)]))
            alike.append((map_end, self.body_head))
            at = map_end + 3
            if identity_at:
                begins = identity_at - 1 - len(_DUPLICATE_HEAD)
                alike.append((begins, first[begins:identity_at]))
                texts.append((identity_at, map_end))
            elif joined.find(DUPLICATE_KEY) >= 0:  # perhaps not as a property
                return False
        alike.append((at, first[at : at + (2 if first[at] == self.narrow else 5)]))
        if any(agreeing(joined, place, size, count, octets) < count for place, octets in alike):
            return False
        return all(all_ascii(joined, begin, size, count, end - begin) for begin, end in texts)

    def identified(self, payload: bytes) -> tuple[bytes, int] | None:
        """Return the id to detect duplicates by, as the ledger encodes ids, of a message that would fit but for that,
        which is its only application property, and where its body section begins. None for any other."""
        if not self.body_head or not self.fits(payload, identified=True):
            return None
        map_end = self._map_end(payload)
        first = self.known_to + (8 if self.wide_map else 2)
        at = first + len(_DUPLICATE_HEAD)
        if payload[first - 1] != 2 or not payload.startswith(_DUPLICATE_HEAD, first) or at >= map_end:
            return None
        identity = payload[at + 1 : map_end]
        return (b"s" + identity, map_end) if len(identity) == payload[at] and identity.isascii() else None

    def read(self, payload: bytes) -> Posting | None:
        """Return what `read_posting` says of a message that is `identified`. None for any other."""
        found = self.identified(payload)
        if found is None:
            return None
        identity, map_end = found
        size = len(payload)
        posting = Posting(Sections(payload, [*self._bounds, map_end, size, size], self._body_code))
        posting.durable, posting.priority, posting.to = self.durable, self.priority, self._to
        posting.message_id = self._id_of(payload)
        if self.group_end:
            posting.group, posting.group_sequence = self.group_of(payload), self.group_sequence
            posting.extras = self._extras_head + payload[self.group_at : self.group_end]
        posting.duplicate_id = identity
        posting.extras += encode_extras([(Extra.DUPLICATE_ID, identity)])
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

    def _id_of(self, payload: bytes) -> bytes:
        """Return the id of a message that fits, as the ledger encodes it."""
        return self.id_type + payload[self.id_at : self.id_end]

    def group_of(self, payload: bytes) -> str | None:
        """`Posting.group_of` a message that fits."""
        return payload[self.group_at : self.group_end].decode() if self.group_end else None

    def rests(self, payloads: Sequence[bytes]) -> list[bytes]:
        """Return what is kept as it is of messages that fit: the octets from `rest_at` on."""
        rest_at = self.rest_at
        return [payload[rest_at:] for payload in payloads]

    def groups(self, rests: Sequence[bytes]) -> list[bytes]:
        """Return the encoded group-ids of messages with these `rests`, which have one."""
        at, end = self.group_at - self.rest_at, self.group_end - self.rest_at
        return [rest[at:end] for rest in rests]

    def properties(self, rests: Sequence[bytes]) -> list[bytes]:
        """Return the sections of application properties of messages with these `rests`; b"" where they have none."""
        if not self.body_head:
            return [b""] * len(rests)
        at = self.known_to - self.rest_at
        begin = at - 4
        if self.wide_map:
            return [rest[begin : at + 4 + _UINT32(rest, at)[0]] for rest in rests]
        return [rest[begin : at + 1 + rest[at]] for rest in rests]

    def meta(self, address: bytes, payload: bytes) -> bytes:
        """`Posting.meta` of a message that fits."""
        if self.group_end:
            extras = self._extras_head + payload[self.group_at : self.group_end]
            return encode_posting_meta(address, self._id_of(payload), priority=self.priority, extras=extras)
        if self.id_end:
            return encode_posting_meta(address, self._id_of(payload), priority=self.priority)
        if not self._meta:
            self._meta = encode_posting_meta(address, b"", priority=self.priority)
        return self._meta

    def metas(self, address: bytes, payloads: Sequence[bytes]) -> list[bytes]:
        """Return `meta` of each of these messages."""
        if self.group_end:
            return [self.meta(address, payload) for payload in payloads]
        id_at, id_end = self.id_at, self.id_end
        if not id_end:
            return [self.meta(address, b"")] * len(payloads)
        before = self.meta(address, bytes(id_end))[: id_at - id_end or None]
        return [before + payload[id_at:id_end] for payload in payloads]

    def meta_of_identified(self, address: bytes, payload: bytes, identity: bytes, fingerprint: int) -> bytes:
        """`Posting.meta` of a message that is `identified`, and in no group. `fingerprint`: of its body; 0 where its id
        is not to be compared."""
        extras = encode_id_extras(identity, fingerprint)
        return encode_posting_meta(address, self._id_of(payload), priority=self.priority, extras=extras)

    def body(self, payload: bytes, sequence: int, posted_ms: int) -> bytes | Rope:
        """`Posting.body` of a message that fits."""
        return spliced(self._pack(self.head, sequence, BEFORE_POSTED_AT, posted_ms), payload, self.rest_at)

    def bodies(self, rests: Sequence[bytes], sequences: Sequence[int], times_ms: Iterable[int]) -> list[bytes]:
        """Return `body` of each of the messages with these `rests`."""
        pack, head = self._pack, self.head
        return [
            pack(head, sequence, BEFORE_POSTED_AT, posted_ms) + rest
            for rest, sequence, posted_ms in zip(rests, sequences, times_ms, strict=True)
        ]

    def heads(self, sequences: Sequence[int], posted_ms: int | Sequence[int]) -> Heads:
        """Return what is transferred of messages with these sequences, which were posted at one time or at these, to
        their first consumers, before the octets from `rest_at` on."""
        before, size = self._transferred, len(BEFORE_POSTED_AT)
        head_bytes = len(before) + 8 + size + 8
        if isinstance(posted_ms, int):
            columns = repeat(before), sequences, repeat(BEFORE_POSTED_AT + _INT64(posted_ms))
            return Heads(f"{self._layout}{size + 8}s", columns, head_bytes)
        columns_apart = repeat(before), sequences, repeat(BEFORE_POSTED_AT), posted_ms
        return Heads(f"{self._layout}{size}sq", columns_apart, head_bytes)


def learn_template(posting: Posting) -> Template | None:
    """A template of messages like this one, or None where it says more than a template can. Raises DecodeError."""
    sections = posting.sections
    payload, bounds = sections.payload, sections.bounds
    body_at = bounds[BODY]
    if not posting.plain or posting.user_id is not None:
        return None
    if len(payload) < body_at + 5 or payload[body_at + 1] != SHORT_DESCRIPTOR:
        return None
    if payload[body_at + 3] not in _LENGTHS or payload.find(DELIVERY_PREFIX, 0, bounds[PROPERTIES]) >= 0:
        return None
    if any(count_entries(sections, rank) > _TEMPLATE_ENTRIES_MAX for rank in COUNTED_MAPS):
        return None
    start = 0
    alike = []
    places: dict[int, tuple[int, int]] = {}
    id_type = b""
    for index, span in zip(_OTHERS, sections.property_spans(*_OTHERS), strict=True):
        if span is None:
            continue
        written = _OTHERS[index].get(payload[span[0]])
        if written is None:
            if index == PropertyIndex.CORRELATION_ID:
                continue  # whatever it is, nobody reads it: it is alike in all of them
            return None
        at = span[0] + written.head_bytes
        places[index] = at, span[1]
        alike.append((start, payload[start:at]))
        start = span[1]
        if index == PropertyIndex.MESSAGE_ID:
            id_type = written.type
    map_at = bounds[APPLICATION_PROPERTIES]
    if map_at != body_at and payload[map_at + 1] != SHORT_DESCRIPTOR:
        return None
    alike.append((start, payload[start : map_at + (3 if map_at == body_at else 4)]))
    identity = places.get(PropertyIndex.MESSAGE_ID, _NOWHERE)
    group = places.get(PropertyIndex.GROUP_ID, _NOWHERE)
    if map_at > _TEMPLATE_BYTES_MAX or group[1] - group[0] > GROUP_KEPT_MAX:
        return None
    body_head = payload[body_at : body_at + 3] if map_at != body_at else b""
    template = Template(posting, alike, identity, id_type, group, body_head, payload[body_at + 3])
    return template if template.fits(payload) or template.read(payload) is not None else None


_DUPLICATE_HEAD: Final = bytes((STRING8, len(DUPLICATE_KEY))) + DUPLICATE_KEY + bytes((STRING8,))
"""The name of the id to detect duplicates by, as a key, and the constructor of its value."""
_TEXT: Final = b"s"


class _Written(NamedTuple):
    """A property that may be another in each message, as its constructor writes it."""

    head_bytes: int
    """Octets that are alike: its constructor, and its size if it has one."""
    type: bytes = b""
    """Letter of the type, as the ledger encodes ids."""


_WRITTEN_TEXT: Final = {STRING8: _Written(2, _TEXT)}
_IDS: Final = _WRITTEN_TEXT | {BINARY8: _Written(2, b"b"), UUID: _Written(1, b"u"), ULONG: _Written(1, b"n")}
_OTHERS: Final = {
    PropertyIndex.MESSAGE_ID: _IDS,
    PropertyIndex.CORRELATION_ID: _IDS,
    PropertyIndex.CREATION_TIME: {TIMESTAMP: _Written(1)},
    PropertyIndex.GROUP_ID: _WRITTEN_TEXT,
}
"""Properties that may be others, by constructor."""
_NOWHERE: Final = (0, 0)


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

    def alike(self, payloads: Sequence[bytes]) -> dict[Template, Sequence[int]]:
        """Return where those are that fit each template; nothing where one fits none. Those with one header fit one
        template, if any."""
        latest = self.latest
        if latest is not None and latest.fits_all(payloads):
            return {latest: range(len(payloads))}
        parts: dict[bytes, list[int]] = {}
        width = max(map(len, self._by_header), default=0)
        for place, payload in enumerate(payloads):
            begin = payload[:width]
            part = parts.get(begin)
            if part is None:
                parts[begin] = [place]
            else:
                part.append(place)
        alike: dict[Template, Sequence[int]] = {}
        for places in parts.values():
            template = self.of(payloads[places[0]])
            if template is None or not template.fits_all([payloads[place] for place in places]):
                return {}
            alike[template] = sorted([*alike.get(template, ()), *places])
        return alike

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

    def predicts(self, payload: bytes) -> bool:
        """Return whether a message is like others, whatever id to detect duplicates by it has."""
        template = self.latest
        return (template is not None and template.identified(payload) is not None) or self.of(payload) is not None

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


__all__ = ["ALIKE_MIN", "Template", "Templates", "learn_template"]

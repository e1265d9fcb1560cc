"""A terminus that outlives its link: its name, its identity, and what is unsettled there (2.6.13, 3.5.3).

These are plain data, below messages' lives and consumers; `termini` makes them, keeps them in the journal and ends
them. A terminus is *attached* while a link stands on it, and otherwise *suspended* until it is attached again or its
time is over. A source holds messages in the place of its consumer then (`message.Holder`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from struct import Struct
from typing import TYPE_CHECKING, Final, Self

from acquit.broker.message import Message
from acquit.broker.refusal import Refused
from acquit.errors import DecodeError
from acquit.ledger.fields import FieldReader, blob_field, text_field
from acquit.protocol.composite import decode_composite, encode_composite
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import (
    Accepted,
    AmqpCondition,
    Attach,
    Modified,
    RcvSettleMode,
    Rejected,
    Released,
    Role,
    SndSettleMode,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from acquit.protocol.extensions import RESUME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from acquit.protocol.constants import Outcome
    from acquit.protocol.delivery import DeliveryState

IDENTITY_BYTES: Final = 16
NAME_BYTES_MAX: Final = 4_096
"""Bytes of the encoded name of a terminus that outlives its link."""
TAGS_MAX: Final = 65_536
"""Tags that a target remembers at once: a peer that has so many answers to acknowledge gets no credit."""

NAME_KEY: Final = b"n"
TAG_KEY: Final = b"t"
"""First bytes of the two kinds of key: of a terminus, and of a delivery-tag that it remembers."""

_ANSWER_BYTES: Final = 320
"""Bytes of an answer to an attach that were not asked for: outcomes, properties, capabilities."""
_ROOM_BYTES_MIN: Final = 40
"""Bytes of an answer that a single entry of an unsettled map needs, or somewhat more."""
_FLAGS: Final = Struct("<BB")
_GROUP: Final = Struct("<Q")
_OUTCOMES: Final = (Accepted, Rejected, Released, Modified)
_LAYOUT: Final = Struct("<16sIQq")
"""Identity, number in the journal, timeout in ms, and since when it is suspended, in ms since the epoch."""


@dataclass(frozen=True, slots=True)
class TerminusName:
    """The name of a terminus (2.6.1): another user's link of the same name is another link."""

    user: str | None
    container: str
    link: str
    receives: bool
    """True for a target: messages arrive here on its link."""

    def encode(self) -> bytes:
        """Return the key under which the journal keeps it."""
        texts = (self.user or "", self.container, self.link)
        return NAME_KEY + _FLAGS.pack(self.receives, self.user is not None) + b"".join(map(text_field, texts))

    @classmethod
    def decode(cls, key: bytes) -> Self:
        """Return the name that a key says. Raises ValueError for what is no such key."""
        reader = FieldReader(key, len(NAME_KEY))
        receives, named = reader.struct(_FLAGS)
        user = reader.text()
        return cls(user if named else None, reader.text(), reader.text(), bool(receives))


class Terminus:
    """The common part of sources and targets that outlive their links."""

    __slots__ = (
        "attached",
        "busy",
        "fresh",
        "identity",
        "name",
        "node",
        "number",
        "over",
        "since_ms",
        "timeout_ms",
        "waiting",
    )

    def __init__(self, name: TerminusName, identity: bytes, number: int, node: str, timeout_ms: int) -> None:
        self.name = name
        self.identity = identity
        """16 random bytes: a terminus that was destroyed and made again under one name is another."""
        self.number = number
        """The number by which the journal names its links, whichever of them it is."""
        self.node = node
        """The queue, or the address of a target."""
        self.timeout_ms = timeout_ms
        self.since_ms = 0
        """Since when it is suspended, in milliseconds since the epoch; 0 while it is attached."""
        self.over = False
        """True once it has ended."""
        self.attached: object | None = None
        """The consumer or producer whose link stands on it."""
        self.busy = False
        """True while what its last link held is being suspended, over several turns."""
        self.fresh = False
        """True while no link that asked for it has been granted."""
        self.waiting: Callable[[], None] | None = None
        """The answer to an attach that waits for that."""

    def tag_key(self, tag: bytes) -> bytes:
        """Return the key under which the journal remembers a tag."""
        return TAG_KEY + self.identity + tag


class SourceTerminus(Terminus):
    """A terminus that messages leave from: it holds what its consumer had acquired and not settled."""

    __slots__ = ("default_outcome", "messages", "taken", "told")

    def __init__(
        self,
        name: TerminusName,
        identity: bytes,
        number: int,
        node: str,
        timeout_ms: int,
        default_outcome: Outcome | None = None,
    ) -> None:
        super().__init__(name, identity, number, node, timeout_ms)
        self.default_outcome = default_outcome
        """The source's (3.5.3): it applies to what is held when the terminus ends."""
        self.messages: dict[bytes, Message] = {}
        """The messages that it holds, by delivery-tag, in the order in which they were sent."""
        self.taken: dict[bytes, DeliveryState] = {}
        """Outcomes of deliveries whose message somebody else has taken away, until the peer has heard of it."""
        self.told: dict[bytes, int] = {}
        """Tags of `taken` that the peer was told on this link, and the delivery-id of the next transfer after that: a
        word of the peer about that one, or a later one, shows that it has heard."""

    def stand_in_line(self) -> None:
        """Do nothing: a terminus without a link waits for no messages."""

    def let_go(self, message: Message, time_us: int) -> None:
        """Do nothing: `messages` are what it holds."""

    def encode(self) -> bytes:
        """Return its state for the journal."""
        outcome = b"" if self.default_outcome is None else encode_composite(self.default_outcome)
        head = _LAYOUT.pack(self.identity, self.number, self.timeout_ms, self.since_ms)
        return head + text_field(self.node) + blob_field(outcome)

    def unsettled(self) -> dict[bytes, DeliveryState | None]:
        """Return the unsettled map of our attach."""
        return {**dict.fromkeys(self.messages), **self.taken}


class TagGroup:
    """The tags of one batch of postings: one entry of the journal, until the peer has settled all of them. So after a
    restart some may be back that the peer has settled; its next map does not have them, and they are forgotten then."""

    __slots__ = ("key", "left")

    def __init__(self, key: bytes, left: int) -> None:
        self.key = key
        self.left = left
        """Tags that the peer has not settled."""


class TargetTerminus(Terminus):
    """A terminus that messages arrive at: it remembers the tags that it has answered and the peer has not settled."""

    __slots__ = ("answered", "group_number", "groups")

    def __init__(self, name: TerminusName, identity: bytes, number: int, node: str, timeout_ms: int) -> None:
        super().__init__(name, identity, number, node, timeout_ms)
        self.answered: dict[bytes, DeliveryState] = {}
        """The outcome of each. An *accepted* that waits for its sync is here already: attaches wait for syncs too."""
        self.groups: dict[bytes, TagGroup] = {}
        """The entry of the journal that remembers each, if one does."""
        self.group_number = 0
        """The number of the latest."""

    def record(self, tags: Sequence[bytes]) -> tuple[bytes, bytes]:
        """Return key and value of an entry that remembers tags."""
        self.group_number += 1
        key = self.tag_key(_GROUP.pack(self.group_number))
        self.groups.update(dict.fromkeys(tags, TagGroup(key, len(tags))))
        return key, b"".join(map(blob_field, tags))

    def restore(self, key: bytes, value: bytes) -> None:
        """Take over what an entry remembers."""
        (number,) = _GROUP.unpack(key[-_GROUP.size :])
        self.group_number = max(self.group_number, number)
        reader = FieldReader(value)
        tags = []
        while reader.left:
            tags.append(reader.blob())
        self.answered.update(dict.fromkeys(tags, ACCEPTED))
        self.groups.update(dict.fromkeys(tags, TagGroup(key, len(tags))))

    def forget(self, tag: bytes) -> bytes | None:
        """Forget a tag; return the key of its entry if that remembers nothing any more."""
        group = self.groups.pop(tag, None)
        if group is None:
            return None
        group.left -= 1
        return None if group.left else group.key

    def encode(self) -> bytes:
        """Return its state for the journal."""
        head = _LAYOUT.pack(self.identity, self.number, self.timeout_ms, self.since_ms)
        return head + text_field(self.node) + blob_field(b"")


def decode_terminus(key: bytes, value: bytes) -> SourceTerminus | TargetTerminus:
    """Return the terminus that the journal tells of. Raises ValueError or DecodeError for what is none."""
    reader = FieldReader(value)
    identity, number, timeout_ms, since_ms = _LAYOUT.unpack(reader.raw(_LAYOUT.size))
    name, node, outcome = TerminusName.decode(key), reader.text(), reader.blob()
    found: SourceTerminus | TargetTerminus
    if name.receives:
        found = TargetTerminus(name, identity, number, node, timeout_ms)
    else:
        default = decode_composite(outcome)[0] if outcome else None
        if default is not None and not isinstance(default, _OUTCOMES):
            raise DecodeError(f"a default-outcome of type {type(default).__name__}")
        found = SourceTerminus(name, identity, number, node, timeout_ms, default)
    found.since_ms = since_ms
    return found


def delivery_tag(message: Message) -> bytes:
    """Return the tag of the delivery by which a message was acquired last.

    It is text, because there are clients that read tags as text. A message comes back with its delivery-count or its
    count of returns raised, so no tag is used twice, and after a restart the journal's counts give the same one.
    """
    returns = 0 if message.extra is None else message.extra.returns
    return b"%x.%x" % (message.sequence, message.attempt + returns)


def granted_ms(asked: Attach, kept_ms_max: int, frame_bytes: int) -> int:
    """Return for how many milliseconds the terminus of a requested link outlives it; 0 where it does not.

    `frame_bytes`: of our answer, at most. Raises Refused where that is too little, and for a link to a node of its own,
    or to wherever each message says: neither has a terminus to keep.
    """
    if RESUME not in asked.desired_capabilities:
        return 0
    terminus = asked.source if asked.role == Role.RECEIVER else asked.target
    if not isinstance(terminus, Source | Target) or terminus.durable is not TerminusDurability.UNSETTLED_STATE:
        return 0
    if asked.rcv_settle_mode is not RcvSettleMode.SECOND or asked.snd_settle_mode is SndSettleMode.SETTLED:
        return 0
    if terminus.dynamic or terminus.address is None:
        raise Refused(f"a link of {RESUME} needs an address of its own", condition=AmqpCondition.NOT_IMPLEMENTED)
    if map_room(asked, frame_bytes) < _ROOM_BYTES_MIN:
        raise Refused(
            f"an attach of {frame_bytes} bytes (max-frame-size) has no room for the unsettled map of {RESUME}",
            condition=AmqpCondition.NOT_IMPLEMENTED,
        )
    if terminus.expiry_policy == TerminusExpiryPolicy.NEVER:
        return kept_ms_max
    return min(terminus.timeout * 1000, kept_ms_max)


def map_room(asked: Attach, frame_bytes: int) -> int:
    """Return how many bytes of the answer to an attach are left for our unsettled map: it says what was asked for, and
    some more of our own."""
    return frame_bytes - len(encode_composite(replace(asked, unsettled=None))) - _ANSWER_BYTES


__all__ = [
    "IDENTITY_BYTES",
    "NAME_BYTES_MAX",
    "TAGS_MAX",
    "TAG_KEY",
    "SourceTerminus",
    "TargetTerminus",
    "Terminus",
    "TerminusName",
    "decode_terminus",
    "delivery_tag",
    "granted_ms",
    "map_room",
]

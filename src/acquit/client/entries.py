"""Entries of a store of deliveries, and the interface of such a store (`stores` has those that there are)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from acquit.errors import ConfigurationError
from acquit.protocol.composite import decode_composite, encode_composite
from acquit.protocol.constants import ACCEPTED, Outcome
from acquit.protocol.definitions import Accepted, Modified, Rejected, Released


class EntryKind(IntEnum):
    """The kinds of entry in a store of deliveries."""

    IDENTITY = 0
    """The identity of the link's terminus at the broker. Its tag is empty."""
    OUTCOME = 1
    """The outcome of a delivery that was received, as AMQP encodes it."""
    SEND = 2
    """A message that was handed in to be sent, with all its sections."""


class StoreEntry(NamedTuple):
    """A change of one entry; without a value it is forgotten."""

    kind: EntryKind
    link: str
    tag: bytes
    value: bytes | None


@dataclass(slots=True)
class LinkEntries:
    """The entries of one link."""

    identity: bytes = b""
    outcomes: dict[bytes, Outcome] = field(default_factory=dict)
    sends: dict[bytes, bytes] = field(default_factory=dict)
    """Messages in the order in which they were handed in."""


Done: TypeAlias = Callable[[BaseException | None], object]
"""Called when a change is safe, or with why it is not; from any thread."""


class TransactionalStore(Protocol):
    """A store that can write in a transaction of the user's (`stores.SqlStore`)."""

    def write_within(self, cursor: Any, entry: StoreEntry) -> None:
        """Write an entry in the transaction of a cursor (PEP 249)."""


class DeliveryStore(Protocol):
    """A store of deliveries, as an exactly-once link uses it. Implement it to keep deliveries elsewhere."""

    @property
    def durable(self) -> bool:
        """True if entries outlive the process: then the link and its container need names that do, too."""

    def load(self, link: str) -> LinkEntries:
        """Return the entries of a link. May block; called once for each link, before it is attached."""

    def write(self, entries: Sequence[StoreEntry], done: Done | None = None) -> None:
        """Change entries, in order, and call `done` when that is safe. Must not block."""


_OUTCOMES: Final = (Accepted, Rejected, Released, Modified)
_ACCEPTED: Final = encode_composite(ACCEPTED)


def apply_entry(links: dict[str, LinkEntries], entry: StoreEntry) -> None:
    """Change an entry of what is held in memory. Raises ConfigurationError for a value that is no outcome."""
    kind, link, tag, value = entry
    entries = links.setdefault(link, LinkEntries())
    if kind is EntryKind.IDENTITY:
        entries.identity = value or b""
    elif kind is EntryKind.SEND:
        if value is None:
            entries.sends.pop(tag, None)
        else:
            entries.sends[tag] = value
    elif value is None:
        entries.outcomes.pop(tag, None)
    else:
        outcome = ACCEPTED if value == _ACCEPTED else decode_composite(value)[0]
        if not isinstance(outcome, _OUTCOMES):
            raise ConfigurationError(f"a store of deliveries has {type(outcome).__name__} for an outcome")
        entries.outcomes[tag] = outcome


def entries_of(link: str, entries: LinkEntries) -> Iterator[StoreEntry]:
    """Yield the changes that make these entries."""
    if entries.identity:
        yield StoreEntry(EntryKind.IDENTITY, link, b"", entries.identity)
    for tag, outcome in entries.outcomes.items():
        yield StoreEntry(EntryKind.OUTCOME, link, tag, encode_composite(outcome))
    for tag, payload in entries.sends.items():
        yield StoreEntry(EntryKind.SEND, link, tag, payload)


def copied(entries: LinkEntries) -> LinkEntries:
    """Return a copy that may be changed."""
    return LinkEntries(entries.identity, dict(entries.outcomes), dict(entries.sends))


def forget(kind: EntryKind, link: str, tags: Iterable[bytes]) -> list[StoreEntry]:
    """Return the changes that forget the entries of these tags."""
    return [StoreEntry(kind, link, tag, None) for tag in tags]


__all__ = [
    "DeliveryStore",
    "Done",
    "EntryKind",
    "LinkEntries",
    "StoreEntry",
    "TransactionalStore",
    "apply_entry",
    "copied",
    "entries_of",
    "forget",
]

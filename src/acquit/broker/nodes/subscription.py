"""A subscription of a topic: who has it, and what it takes.

Its identity is its name, and the user and container that it belongs to unless it is *global*: the name is the part of a
link's name before the first ``|``, as Qpid JMS names links. The name of its queue says the same::

    address::container/name|user=ada       durable, of one container of a user
    address::container/name                the same of a container whose peer has not logged in
    address::name                          durable, global
    address::container/name|volatile       shared and volatile, likewise
    address::container/name|17             of one link, as long as that lasts; the number is the queue's

In the container's part ``/`` and ``%`` are written ``%2F`` and ``%25``, and in global names as well, so that no two
subscriptions have one queue.

The journal keeps it as the properties of its queue: version and flags, a byte each; container, name, and the filters as
they were asked for, an AMQP map, each behind a 16-bit length. Version 2, written where there is a user, ends with it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from acquit.broker.links.filters import NOTHING, AppliedFilters, read_filters
from acquit.errors import StoreVersionUnsupported
from acquit.ledger.fields import FieldReader, blob_field, text_field
from acquit.protocol.codec import decode, encode

if TYPE_CHECKING:
    from acquit.broker.selector import Selector

VERSION: Final = 1
OWNED_VERSION: Final = 2
"""Version for a subscription that belongs to a user: brokers that would give it to others refuse to read it."""
_HEAD: Final = Struct("<BB")
NAME_MAX: Final = 500
"""Characters of a subscription's name, and of its container's. Where nobody finds it by them, as many are shown."""
_SHARED: Final = 1
_GLOBAL: Final = 2


class Subscription:
    """A subscription. What changes about it is in its queue."""

    __slots__ = (
        "container",
        "durable",
        "encoded",
        "filtered",
        "filters",
        "name",
        "no_local",
        "selector",
        "shared",
        "user",
    )

    def __init__(
        self,
        name: str,
        container: str | None,
        *,
        user: str | None = None,
        shared: bool = False,
        durable: bool = True,
        filters: AppliedFilters = NOTHING,
    ) -> None:
        """Raises ValueError where names or filters are longer than the journal can say: 65535 bytes each."""
        self.name = name
        self.container = container
        """None: global."""
        self.user = user if container is not None else None
        """User that it belongs to; None: nobody in particular."""
        self.shared = shared
        """True if several links may receive from it, in turns."""
        self.durable = durable
        """True if it outlives its links."""
        self.filters = filters
        self.selector: Selector | None = filters.selector
        self.no_local = filters.no_local
        self.filtered = self.selector is not None or self.no_local
        self.encoded = (
            _HEAD.pack(
                VERSION if self.user is None else OWNED_VERSION, _SHARED * shared | _GLOBAL * (container is None)
            )
            + text_field(container or "")
            + text_field(name)
            + blob_field(b"" if filters.echo is None else encode(dict(filters.echo)))
            + (b"" if self.user is None else text_field(self.user))
        )

    @classmethod
    def decode(cls, data: bytes) -> Subscription:
        """A durable one, from the journal. Raises StoreVersionUnsupported, and SelectorError for filters that cannot be
        read."""
        reader = FieldReader(data)
        version, flags = reader.struct(_HEAD)
        if version not in (VERSION, OWNED_VERSION):
            raise StoreVersionUnsupported(f"a subscription of version {version}: written by a later version of acquit")
        container, name, asked = reader.text(), reader.text(), reader.blob()
        value: object = decode(asked)[0] if asked else None
        return cls(
            name,
            None if flags & _GLOBAL else container,
            user=reader.text() if version == OWNED_VERSION else None,
            shared=bool(flags & _SHARED),
            filters=read_filters(value if isinstance(value, dict) else None),
        )

    @property
    def identity(self) -> tuple[str | None, str | None, str]:
        """User, container and name: no two durable subscriptions have the same."""
        return self.user, self.container, self.name

    def owned_by(self, user: str) -> Subscription:
        """The same, as it belongs to this user."""
        return Subscription(
            self.name, self.container, user=user, shared=self.shared, durable=self.durable, filters=self.filters
        )

    def takes_the_same(self, other: Subscription) -> bool:
        """Do both filter alike?"""
        return _text(self) == _text(other) and self.no_local == other.no_local

    def queue_name(self, address: str, suffix: str = "") -> str:
        """The name of its queue at an address."""
        name = shown(self.name)
        if self.container is None:
            return f"{address}::{_escaped(name)}{suffix}"
        # A name has no "|": what stands behind the first one is ours.
        # One that goes with its link has a number of its own there, and is not found by whose it is.
        whose = f"|user={self.user}" if self.user is not None and (self.durable or self.shared) else ""
        return f"{address}::{_escaped(shown(self.container))}/{name}{suffix}{whose}"


def subscription_name(link_name: str) -> str:
    """Return the name of the subscription that a link of this name means."""
    return link_name.partition("|")[0]


def shown(name: str) -> str:
    """A name as it stands in that of a queue, which people read: its beginning, of printable characters."""
    return "".join(character if character.isprintable() else "?" for character in name[:NAME_MAX])


def _text(subscription: Subscription) -> str | None:
    return None if subscription.selector is None else subscription.selector.text


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


__all__ = ["NAME_MAX", "Subscription", "shown", "subscription_name"]

"""Peers, one for each connection, and actors: the links of a peer, as the journal names them."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from acquit.broker.access.permissions import EVERYTHING
from acquit.broker.links.ages import Ages

if TYPE_CHECKING:
    from acquit.protocol.connection import Connection

TERMINUS_MAX: Final = 1_024
"""Characters of a terminus's name that are kept as they are."""


class Enforcement(IntEnum):
    """The fate of a second connection of one container (`access.admission`)."""

    REFUSE_CONNECTION = 0
    CLOSE_EXISTING = 1


class Peer:
    """A connection, as the core knows it."""

    __slots__ = (
        "_links_added",
        "ages",
        "container",
        "enforcement",
        "engine",
        "links",
        "measured",
        "mechanism",
        "name",
        "network",
        "number",
        "opened_us",
        "output_bytes_max",
        "rights",
        "socket_bytes",
        "tls",
        "unwritten_bytes",
        "user",
        "writable",
    )

    def __init__(self, engine: Connection, name: str, output_bytes_max: int, network: str = "") -> None:
        self.engine = engine
        self.name = name
        """``host:port``"""
        self.network = network
        """Network by which limits count the connection (`access.unauthenticated.peer_network`)."""
        self.number = 0
        """Number of the connection, unique in this run; 0 before its open (`admin.connections`)."""
        self.opened_us = 0
        """Time of its open, by the broker's clock."""
        self.mechanism = ""
        """SASL mechanism that the peer has chosen; empty without SASL."""
        self.tls = ""
        """Version of TLS, as ``TLSv1.3``; empty where nothing is encrypted."""
        self.socket_bytes: Callable[[], int] = int
        """Ask how much output waits in the buffer of the socket."""
        self.container = ""
        """Container-id of the peer; empty before its open."""
        self.user: str | None = None
        self.rights = EVERYTHING
        """Rights of the user; the core sets them when the connection is opened."""
        self.enforcement: Enforcement | None = None
        """Fate that the peer asks for a second connection of its container; None: it asks for none."""
        self.writable = True
        """False while its socket takes no more."""
        self.output_bytes_max = output_bytes_max
        self.measured = 0
        """The pass of dispatch that last asked what is not written."""
        self.unwritten_bytes = 0
        """Bytes produced for the peer and not written, as far as this turn knows; see `measure`."""
        self.ages = Ages()
        """Ages of the deliveries to it."""
        self.links: dict[object, int] = {}
        """Contexts of its links, with the number that each has among those of the connection."""
        self._links_added = 0

    def add_link(self, context: object) -> None:
        """Give a number to a new link."""
        self._links_added += 1
        self.links[context] = self._links_added

    def replace_link(self, before: object, context: object) -> None:
        """Give the number of a link that has waited for its answer to what it is now."""
        self.links[context] = self.links.pop(before)

    @property
    def open_to_more(self) -> bool:
        """True if more may be produced for the peer: bytes that it does not read must not pile up here."""
        return self.writable and self.unwritten_bytes < self.output_bytes_max

    def measure(self) -> None:
        """Ask the engine what is not written: once a turn, as it has to look at all of it."""
        self.unwritten_bytes = self.engine.output_bytes


class Actor:
    """The author of events in the journal: a link of a container."""

    __slots__ = ("address", "link_name", "number", "peer")

    def __init__(self, peer: Peer, link_name: str, address: str) -> None:
        self.peer = peer
        self.link_name = link_name
        self.address = address
        self.number = 0
        """Given when the first record needs it; 0 until then."""

    @property
    def terminus(self) -> str:
        """Name that *undeliverable-here* is bound to."""
        return terminus_text(self.peer.user, self.peer.container, self.link_name)


def terminus_text(user: str | None, container: str, link_name: str) -> str:
    """Return the name of a terminus that *undeliverable-here* is bound to: the user, the container and the link's name.
    It is kept with each message that is, so a hash stands for the end of a very long one."""
    before = "" if user is None else f"{user.replace('%', '%25').replace(':', '%3A')}:"
    text = f"{before}{container}/{link_name}"
    if len(text) > TERMINUS_MAX:
        text = text[:TERMINUS_MAX] + blake2b(text.encode(), digest_size=16).hexdigest()
    return text


__all__ = ["TERMINUS_MAX", "Actor", "Enforcement", "Peer", "terminus_text"]

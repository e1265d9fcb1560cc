"""Preconditions of exactly-once links, and the exchange of their unsettled maps in as many attaches as they take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from acquit.errors import ConfigurationError
from acquit.protocol.definitions import RcvSettleMode
from acquit.protocol.endpoint import LinkState
from acquit.protocol.extensions import RESUME, TERMINUS

if TYPE_CHECKING:
    from acquit.client.options import ReceiverSpec, SenderSpec
    from acquit.client.received import SessionCoreBase
    from acquit.protocol.connection import Connection
    from acquit.protocol.definitions import Attach
    from acquit.protocol.endpoint import Link

_ATTACH_BYTES: Final = 2_048
"""Bytes of an attach that are kept free for all but its unsettled map."""
_FRAME_BYTES_MIN: Final = 2 * _ATTACH_BYTES


def check_exactly_once(session: SessionCoreBase, spec: SenderSpec | ReceiverSpec) -> None:
    """Raise ConfigurationError for an exactly-once link that could not keep its promise."""
    store, mode = spec.exactly_once, session.mode
    if store is None:
        return
    if isinstance(store, type) or not all(hasattr(store, name) for name in ("durable", "load", "write")):
        raise ConfigurationError(
            f"exactly_once takes a DeliveryStore, such as acquit.FileStore(path) or acquit.MemoryStore(), got {store!r}"
        )
    if spec.unreliable:
        raise ConfigurationError(f"{spec.what} is unreliable: nothing about it can be exactly once")
    if mode.transacted:
        raise ConfigurationError("exactly_once is not for sessions in mode TRANSACTED: its links resume, they do not")
    if spec.address is None:
        raise ConfigurationError("an exactly-once link needs an address: one that the broker makes does not last")
    if store.durable and not session.core.named:
        raise ConfigurationError(
            "exactly_once with a store that outlives the process needs a connection with a container_id, by which the "
            "broker knows the program again: acquit.connect(url, container_id=...)"
        )
    if store.durable and not spec.named:
        raise ConfigurationError("exactly_once with a store that outlives the process needs a link with a name=")


def check_receiving(session: SessionCoreBase, spec: ReceiverSpec) -> None:
    """Raise ConfigurationError for an exactly-once receiver where messages are acknowledged without the user."""
    if spec.exactly_once is None:
        return
    if session.mode.rcv_settle_mode is not RcvSettleMode.SECOND:
        raise ConfigurationError(
            f"an exactly-once receiver needs a session in mode CLIENT or INDIVIDUAL, not {session.mode.name.name}"
        )
    if spec.topic and (spec.subscription is None or not spec.subscription.durable):
        raise ConfigurationError("an exactly-once receiver of a topic needs a durable subscription")
    if spec.browse or (spec.subscription is not None and spec.subscription.shared):
        raise ConfigurationError("an exactly-once receiver neither browses nor shares a subscription")


def refusal(link: Link) -> str | None:
    """Return why a peer's answer to an attach is not enough for exactly once; None where it is."""
    answer = link.remote_attach
    if answer is None or RESUME not in answer.offered_capabilities:
        return f"the peer does not resume deliveries ({RESUME}), so that exactly_once is not to be had from it"
    frame_bytes = link.session.connection.peer_frame_size_max
    if frame_bytes < _FRAME_BYTES_MIN:
        return f"the peer takes frames of {frame_bytes} bytes, too short to tell what is unsettled"
    return None


def identity_of(link: Link) -> bytes:
    """Return the identity of the peer's terminus."""
    answer = link.remote_attach
    value = None if answer is None or answer.properties is None else answer.properties.get(TERMINUS)
    return bytes(value) if isinstance(value, bytes) else b""


def lacking(link: Link, ours: Iterable[bytes]) -> list[bytes]:
    """Return those tags of ours that the peer does not have, by its answer to our attach.

    A complete map says so by itself. One in parts does of what we have named, if it has a tag that we have not: those
    of ours come first (`protocol.resumption.first_fitting`), which is part of what the capability promises.
    """
    asked, answer = link.local_attach, link.remote_attach
    assert asked is not None
    assert answer is not None
    named, theirs = asked.unsettled or {}, answer.unsettled or {}
    if not answer.incomplete_unsettled:
        return [tag for tag in ours if tag not in theirs]
    if theirs.keys() <= named.keys():
        return []
    return [tag for tag in ours if tag in named and tag not in theirs]


def map_room(engine: Connection) -> int:
    """Return how many bytes of an attach are left for our unsettled map."""
    return max(0, engine.peer_frame_size_max - _ATTACH_BYTES)


def incomplete_maps(link: Link) -> bool:
    """Return True if one of the two maps of a link does not have all that is unsettled."""
    attaches = link.local_attach, link.remote_attach
    return any(one is not None and one.incomplete_unsettled for one in attaches)


class MapExchange:
    """The attaches of one link, each with the next part of our map until both maps are complete (2.6.13)."""

    __slots__ = ("_made_of", "again", "compared", "cut", "leaving")

    def __init__(self) -> None:
        self._made_of: object = None
        self.cut = False
        """The peer's last map did not have all."""
        self.compared = False
        """The maps of this attach have been compared."""
        self.again = False
        """The link is being detached to be attached once more."""
        self.leaving = False
        """The link is to be detached for good as soon as it is attached once more."""

    def begin(self, made_of: object) -> None:
        """The link is attached. `made_of`: what there is to tell."""
        self._made_of = made_of
        self.compared = self.again = False

    def compare(self, answer: Attach) -> None:
        """The peer has answered with its own map, and what becomes of what both have is decided."""
        self.compared, self.cut = True, answer.incomplete_unsettled

    def stands(self, link: Link) -> bool:
        """Return True if the link is attached and its maps have been compared."""
        return self.compared and link.state is LinkState.ATTACHED

    def unfinished(self, link: Link) -> bool:
        """Return True if, moreover, one of the maps does not have all."""
        return self.stands(link) and incomplete_maps(link)

    def go_on(self, link: Link, made_of: object) -> None:
        """Detach, to be attached with the next map; not where there is the same to tell as before."""
        if made_of != self._made_of:
            self.again = True
            link.detach(closed=False)


__all__ = [
    "MapExchange",
    "check_exactly_once",
    "check_receiving",
    "identity_of",
    "incomplete_maps",
    "lacking",
    "map_room",
    "refusal",
]

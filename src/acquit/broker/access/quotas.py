"""Quotas of connections and links: in all, of one user, and from one address.

One user, or one address, may have a share of them, so that nobody keeps all others out. One connection too many is
opened and closed, one link too many attached and detached, with amqp:resource-limit-exceeded, so that its program is
told. Where no users are configured all are the same one, and none is kept from the others; programs on this machine
share their address, and are not limited by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, TypeVar

from acquit.protocol.definitions import AmqpCondition, Error

if TYPE_CHECKING:
    from acquit.broker.access.permissions import Permissions
    from acquit.broker.links.peers import Peer
    from acquit.broker.options import BrokerLimits

T = TypeVar("T")

ADMINISTRATORS: Final = 8
"""Connections beyond connections_max, for users whose roles let them manage everything: who clears up can come in."""


class _Counted:
    """The number of connections, or of links: in all, by user and by network."""

    def __init__(self, kind: str) -> None:
        """`kind`: how people call them."""
        self.kind = kind
        self.total = 0
        self.of_user: Counter[str | None] = Counter()
        self.of_network: Counter[str] = Counter()

    def enter(self, peer: Peer) -> None:
        """The peer has one more."""
        self.total += 1
        self.of_user[peer.user] += 1
        self.of_network[peer.network] += 1

    def leave(self, peer: Peer) -> None:
        """Count one less for this peer."""
        self.total -= 1
        _take_one(self.of_user, peer.user)
        _take_one(self.of_network, peer.network)

    def refusal(self, network: str, user: str | None, total_max: int, user_max: int, network_max: int) -> str:
        """Return the reason why this user may not have one more from this network; "" if it may."""
        if self.total >= total_max:
            return f"the broker has {self.total} {self.kind}, as many as there may be"
        if self.of_user[user] >= user_max:
            return f"{_name(user)} {self.of_user[user]} {self.kind}, as many as one user may have"
        if network and self.of_network[network] >= network_max:
            return f"there are {self.of_network[network]} {self.kind} from {network}, as many as there may be"
        return ""


class Quotas:
    """The connections and links that are there, by user and network. Refuses those beyond a limit."""

    def __init__(self, limits: BrokerLimits, permissions: Permissions) -> None:
        self.limits = limits
        self.permissions = permissions
        self.connections_max = limits.connections_max
        self._peers: set[Peer] = set()
        self._connections = _Counted("connections")
        self._links = _Counted("links")
        self._containers: dict[tuple[str | None, str], dict[Peer, None]] = {}

    def enter(self, peer: Peer) -> None:
        """Count a peer that has opened its connection."""
        self._peers.add(peer)
        self._connections.enter(peer)
        self._containers.setdefault((peer.user, peer.container), {})[peer] = None

    def leave(self, peer: Peer) -> None:
        """Count a peer no more, which has gone. A second call does nothing."""
        if peer in self._peers:
            self._peers.remove(peer)
            self._connections.leave(peer)
            key = peer.user, peer.container
            alike = self._containers[key]
            del alike[peer]
            if not alike:
                del self._containers[key]

    def enter_link(self, peer: Peer) -> None:
        """Count one more link of the peer."""
        self._links.enter(peer)

    def leave_link(self, peer: Peer) -> None:
        """Count one link less of the peer."""
        self._links.leave(peer)

    def of_container(self, user: str | None, container: str) -> Collection[Peer]:
        """The connections that a container of this user has opened."""
        return self._containers.get((user, container), {})

    def refusal(self, peer: Peer) -> Error | None:
        """Return the error for a peer that may not open a connection; None if it may."""
        limits, user = self.limits, peer.engine.user
        rights = self.permissions.of(user)
        clears_up = rights.everywhere("manage") and not rights.unlimited
        why = self._connections.refusal(
            peer.network,
            user,
            self.connections_max + (ADMINISTRATORS if clears_up else 0),
            self._user_max(limits.connections_per_user_max, self.connections_max),
            share(limits.connections_per_address_max, self.connections_max),
        )
        return Error(AmqpCondition.RESOURCE_LIMIT_EXCEEDED, why) if why else None

    def link_refusal(self, peer: Peer) -> str:
        """Return the reason why this peer may not attach another link; "" if it may."""
        limits = self.limits
        return self._links.refusal(
            peer.network,
            peer.user,
            limits.links_max,
            self._user_max(limits.links_per_user_max, limits.links_max),
            share(limits.links_per_address_max, limits.links_max),
        )

    def _user_max(self, limit: int, of: int) -> int:
        """A user's share, where there are users to be told apart."""
        return share(limit, of) if self.permissions.distinguish else of


def _take_one(counter: Counter[T], key: T) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def share(limit: int, of: int) -> int:
    """Return the share of `of` that one user or one address may have: `limit`, or three quarters of it where the limit
    is 0."""
    return limit or -(-of * 3 // 4)


def _name(user: str | None) -> str:
    return "those who are anonymous have" if user is None else f"{user!r:.200} has"


__all__ = ["ADMINISTRATORS", "Quotas", "share"]

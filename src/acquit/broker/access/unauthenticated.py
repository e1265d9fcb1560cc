"""The unauthenticated connections: sockets whose peers have not opened their connection yet.

Their number is limited. Beyond the limit a new socket is not refused. Another one is closed for it: the oldest of those
that come from the address with the most of them. So half-open sockets that say nothing, or say it slowly, cost a
newcomer nothing, from wherever they come, and an honest peer is not sent away while one address has many.

IPv6 addresses count by their first 64 bits, as who has one of them has all that begin so.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable


def peer_network(address: object) -> str:
    """Return the network that limits count a socket address by; "" for this machine, whose programs share one
    address."""
    match address:
        case (str(host), *_):
            try:
                found = ipaddress.ip_address(host.partition("%")[0])
            except ValueError:
                return host
            if isinstance(found, ipaddress.IPv6Address):
                if found.ipv4_mapped is None:
                    return "" if found.is_loopback else str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))
                found = found.ipv4_mapped
            return "" if found.is_loopback else str(found)
        case _:
            return ""


class Slot:
    """A socket's place among the connections that are not opened yet. `turn_away` ends the socket; its present holder
    sets it."""

    __slots__ = ("_unauthenticated", "network", "turn_away")

    def __init__(self, unauthenticated: Unauthenticated, network: str, turn_away: Callable[[], None]) -> None:
        self._unauthenticated = unauthenticated
        self.network = network
        self.turn_away = turn_away

    def leave(self) -> None:
        """Give the place up: the peer has opened its connection, or is gone. A second call does nothing."""
        self.turn_away = _nothing
        self._unauthenticated.remove(self)


class Unauthenticated:
    """The sockets whose peers have not opened a connection yet."""

    def __init__(self, size_max: int, evicted: Callable[[], None]) -> None:
        """`evicted` is called for each that is sent away for a newcomer."""
        self.size_max = size_max
        self._evicted = evicted
        self._size = 0
        self._places: dict[str, dict[Slot, None]] = {}
        """Places by network, in the order in which they were taken."""

    def __len__(self) -> int:
        return self._size

    def enter(self, address: object, turn_away: Callable[[], None]) -> Slot:
        """A place for a socket that has just been connected from there."""
        place = Slot(self, peer_network(address), turn_away)
        self._places.setdefault(place.network, {})[place] = None
        self._size += 1
        while self._size > self.size_max:
            self._evict()
        return place

    def remove(self, place: Slot) -> None:
        """Take a place out of the count."""
        places = self._places.get(place.network)
        if places is not None and place in places:
            del places[place]
            self._size -= 1
            if not places:
                del self._places[place.network]

    def _evict(self) -> None:
        # Of several networks that are as large, the one that came first: never the newcomer.
        largest: dict[Slot, None] = max(self._places.values(), key=len)
        oldest = next(iter(largest))
        turn_away = oldest.turn_away
        oldest.leave()
        turn_away()
        self._evicted()


def _nothing() -> None:
    pass


__all__ = ["Slot", "Unauthenticated", "peer_network"]

"""The connections that peers have opened, as operators see and close them.

Each has a number, unique in this run of the broker, in the order in which they were opened. What is to be closed is
closed at the end of the turn, when the answer has left: it may have to leave by that very connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from acquit.broker.links.peers import Actor
from acquit.protocol.definitions import ConnectionCondition, Error, LinkCondition
from acquit.protocol.link import Link

if TYPE_CHECKING:
    from acquit.broker.links.peers import Peer


class Connections:
    """The open connections of one broker."""

    def __init__(self, close: Callable[[Peer, Error], None], detach: Callable[[Link, Error], None]) -> None:
        """`close` ends a connection with an error, `detach` a link, at once."""
        self._close = close
        self._detach = detach
        self._by_number: dict[int, Peer] = {}
        self._last = 0
        self._closing: dict[Peer, Error] = {}
        self._detaching: dict[Actor, Error] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Peer]:
        """Go through them, in the order in which they were opened."""
        return iter(self._by_number.values())

    def enter(self, peer: Peer, time_us: int) -> None:
        """Give a number to a connection that its peer has opened."""
        self._last += 1
        peer.number, peer.opened_us = self._last, time_us
        self._by_number[peer.number] = peer

    def leave(self, peer: Peer) -> None:
        """Forget a connection that has ended. A second call does nothing."""
        self._by_number.pop(peer.number, None)

    def find(self, number: int) -> Peer | None:
        """Return the connection with this number."""
        return self._by_number.get(number)

    @staticmethod
    def look(moved: Iterable[Peer], time_us: int) -> None:
        """Note what is needed to tell the age of unsettled deliveries: each second or so, of those connections that had
        output since the last time. Of the others nothing has changed."""
        for peer in moved:
            peer.ages.look(peer.engine.sessions, time_us)

    def clock_set(self, by_us: int) -> None:
        """Take notice that the clock was set, forward or (negative) back."""
        for peer in self:
            peer.opened_us += by_us
            peer.ages.shift(by_us)

    def close(self, peer: Peer, reason: str) -> None:
        """Close a connection at the end of this turn, with amqp:connection:forced and the reason. What it holds goes
        back, and what it has sent and is not read yet does not count any more."""
        self._closing[peer] = Error(ConnectionCondition.CONNECTION_FORCED, reason)

    def link(self, connection: int, number: int) -> Actor | None:
        """Return the link with this number of a connection."""
        peer = self._by_number.get(connection)
        found = () if peer is None else (context for context, its in peer.links.items() if its == number)
        return next((context for context in found if isinstance(context, Actor)), None)

    def detach(self, link: Actor, reason: str) -> None:
        """Detach a link at the end of this turn, with amqp:link:detach-forced and the reason: its terminus goes with
        it, and what it holds goes back."""
        self._detaching[link] = Error(LinkCondition.DETACH_FORCED, reason)

    def run(self) -> None:
        """Detach and close what is to be: last in a turn."""
        while self._detaching:
            context = next(iter(self._detaching))
            error, link = self._detaching.pop(context), getattr(context, "link", None)
            if context in context.peer.links and isinstance(link, Link):
                self._detach(link, error)
        while self._closing:
            peer = next(iter(self._closing))
            error = self._closing.pop(peer)
            if peer.number in self._by_number:
                self._close(peer, error)


__all__ = ["Connections"]

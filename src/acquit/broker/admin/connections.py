"""The connections of a broker: those that there are, and those of them that peers have opened, as operators see and
close them.

One that is opened has a number, unique in this run of the broker, in the order in which they were opened. What is to be
closed is closed at the end of the turn, when the answer has left: it may have to leave by that very connection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from acquit.broker.links.peers import Actor
from acquit.protocol.definitions import ConnectionCondition, Error, LinkCondition
from acquit.protocol.link import Link

if TYPE_CHECKING:
    from acquit.broker.links.peers import Peer
    from acquit.protocol.connection_base import ConnectionBase


class Connections:
    """The connections of one broker. As a collection: those that are opened."""

    def __init__(self, close: Callable[[Peer, Error], None], detach: Callable[[Link, Error], None]) -> None:
        """`close` ends a connection with an error, `detach` a link, at once."""
        self._close = close
        self._detach = detach
        self._by_engine: dict[ConnectionBase, Peer] = {}
        self._by_number: dict[int, Peer] = {}
        self._last = 0
        self._closing: dict[Peer, Error] = {}
        self._detaching: dict[Actor, Error] = {}
        self._moved: dict[Peer, None] = {}
        """Connections that had output since the last `look`."""

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Peer]:
        """Go through them, in the order in which they were opened."""
        return iter(self._by_number.values())

    @property
    def all(self) -> Collection[Peer]:
        """All that there are, also those that are not opened yet."""
        return self._by_engine.values()

    def of(self, engine: ConnectionBase) -> Peer | None:
        """Return the connection of this engine; None if it has ended."""
        return self._by_engine.get(engine)

    def add(self, peer: Peer) -> None:
        """Take up a connection that is to be opened."""
        self._by_engine[peer.engine] = peer

    def enter(self, peer: Peer, time_us: int) -> None:
        """Give a number to a connection that its peer has opened."""
        self._last += 1
        peer.number, peer.opened_us = self._last, time_us
        self._by_number[peer.number] = peer

    def leave(self, peer: Peer) -> None:
        """Forget a connection that has ended. A second call does nothing."""
        self._by_engine.pop(peer.engine, None)
        self._by_number.pop(peer.number, None)
        self._moved.pop(peer, None)

    def find(self, number: int) -> Peer | None:
        """Return the connection with this number."""
        return self._by_number.get(number)

    def note_output(self, engines: Iterable[ConnectionBase]) -> None:
        """Note that something was produced for these, for `look`."""
        for engine in engines:
            peer = self._by_engine.get(engine)
            if peer is not None:
                self._moved[peer] = None

    def look(self, time_us: int) -> None:
        """Note what is needed to tell the age of unsettled deliveries: each second or so, of those connections that had
        output since the last time. Of the others nothing has changed."""
        moved, self._moved = self._moved, {}
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

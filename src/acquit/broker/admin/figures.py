"""The figures of a running broker that operators ask for: of all of it, and page by page of its parts.

A page has a bounded number of rows and costs about as much as these: a broker may have 10,000 queues and 5,000
connections, and nobody else waits while somebody looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from heapq import heapify, heappop
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from acquit._version import version
from acquit.broker.admin.later import Later
from acquit.broker.inspect import BrokerSnapshot, DiskSnapshot, Overview, ProcessSnapshot
from acquit.broker.links.peers import Actor
from acquit.broker.scribe import FULL
from acquit.broker.snapshots import (
    connection_snapshot,
    link_snapshot,
    node_snapshots,
    queue_snapshot,
    topic_snapshot,
    transaction_snapshot,
)
from acquit.protocol.link import Link
from acquit.protocol.session import Session
from acquit.protocol.types import Value

if TYPE_CHECKING:
    from acquit.broker.access.quotas import Quotas
    from acquit.broker.admin.connections import Connections
    from acquit.broker.denials import Denials
    from acquit.broker.holdings import Holdings
    from acquit.broker.inspect import ConnectionSnapshot, LinkSnapshot, QueueSnapshot, TransactionSnapshot
    from acquit.broker.life import Life
    from acquit.broker.links.peers import Peer
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.nodes.topics import Topics
    from acquit.broker.transact.transactions import Transactions

LOOKED_MAX: Final = 100_000
"""Deliveries that one page of links looks at, to find the oldest of each."""


class Figures:
    """The figures of one broker."""

    def __init__(
        self,
        broker_id: str,
        life: Life,
        queues: Queues,
        topics: Topics,
        transactions: Transactions,
        connections: Connections,
        denials: Denials,
        quotas: Quotas,
        holdings: Holdings,
    ) -> None:
        self._denials = denials
        self._quotas = quotas
        self._broker_id = broker_id
        self._holdings = holdings
        self._life = life
        self._queues = queues
        self._topics = topics
        self._transactions = transactions
        self._connections = connections
        self.process: Callable[[], Later[ProcessSnapshot]] = no_process
        """Look at the process and the disk. The server's."""

    def snapshot(self) -> BrokerSnapshot:
        """Return a snapshot of all queues, topics and connections."""
        time_us = self._life.scribe.time_us
        connections = tuple(connection_snapshot(peer, time_us) for peer in self._connections.all)
        return replace(self.nodes(), connections=connections)

    def nodes(self) -> BrokerSnapshot:
        """Return the same without the connections, of which there may be thousands."""
        nodes = node_snapshots(self._queues.by_name, self._topics.by_address, self._life.scribe.time_us)
        return replace(self._head(), queues=nodes)

    def node(self, name: str) -> QueueSnapshot | None:
        """Return a snapshot of the queue of this name, or else of the topic; None if there is neither."""
        queue, topic = self._queues.by_name.get(name), self._topics.by_address.get(name)
        if queue is not None:
            return queue_snapshot(queue, self._life.scribe.time_us)
        return None if topic is None else topic_snapshot(topic)

    def going_with(self, name: str) -> tuple[int, int]:
        """Return how many messages and links go with the queue of this name, or else with the topic: its subscriptions
        go too."""
        queue, topic = self._queues.by_name.get(name), self._topics.by_address.get(name)
        queues = [queue] if queue is not None else [] if topic is None else topic.queues
        links = 0 if queue is not None or topic is None else len(topic.producers)
        links += sum(len(one.consumers) + len(one.browsers) + len(one.producers) for one in queues)
        return sum(one.live for one in queues), links

    def subscriber(self, name: str) -> str | None:
        """Return the user whose subscription the queue of this name is; None if it is nobody's in particular."""
        queue = self._queues.by_name.get(name)
        return None if queue is None or queue.subscription is None else queue.subscription.user

    def _head(self) -> BrokerSnapshot:
        """Return a snapshot that has no queues and no connections."""
        scribe = self._life.scribe
        return BrokerSnapshot(
            broker_id=self._broker_id,
            last_sequence=scribe.sequences.last,
            accepting=not scribe.journal.full,
            warnings=self.warnings,
        )

    def overview(self) -> Later[Overview]:
        """Return the broker as a whole."""
        return self.process().then(self._overview)

    def _overview(self, process: ProcessSnapshot) -> Overview:
        head, journal, queues = self._head(), self._life.scribe.journal, self._queues.by_name.values()
        segments, memory = journal.segments, self._life.memory
        return Overview(
            broker_id=head.broker_id,
            version=version(),
            uptime_ms=process.uptime_ms,
            last_sequence=head.last_sequence,
            accepting=head.accepting,
            warnings=head.warnings,
            connections=len(self._connections),
            links=sum(len(peer.links) for peer in self._connections),
            queues=len(queues),
            topics=len(self._topics.by_address),
            transactions=len(self._transactions),
            unsettled=sum(queue.acquired for queue in queues),
            memory_bytes=memory.bytes,
            memory_bytes_max=memory.bytes_max,
            disk=DiskSnapshot(
                free_bytes=process.free_bytes,
                journal_bytes=sum(segment.file_bytes for segment in segments),
                segments=len(segments),
                refusing=not head.accepting,
                why="" if head.accepting else head.warnings[0],
            ),
            sync=process.sync,
            loop_lag_ms=process.loop_lag_ms,
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what somebody should see to, and why."""
        scribe, found = self._life.scribe, []
        if scribe.journal.full:
            found.append(FULL)
        if scribe.exhausted:
            found.append("not even the reserve has room: no message is handed out")
        if self._holdings.warning:
            found.append(self._holdings.warning)
        return tuple(found)

    def totals(self) -> dict[Value, Value]:
        """Return figures of the broker as a whole, for monitoring."""
        head, journal = self._head(), self._life.scribe.journal
        return {
            "broker_id": head.broker_id,
            "accepting": head.accepting,
            "warnings": len(head.warnings),
            "memory_bytes": self._life.memory.bytes,
            "transactions": self._transactions.open,
            "journal_bytes": journal.end,
            "journal_pending_bytes": journal.pending_bytes,
            "connections_max": self._quotas.connections_max,
            "segments": len(journal.segments),
            "segment_bytes": sum(segment.file_bytes for segment in journal.segments),
            "refused": [[what, condition, count] for (what, condition), count in sorted(self._denials.counts.items())],
        }

    def all_queues(self, *, of: Callable[[str], bool]) -> Iterator[QueueSnapshot | None]:
        """Go through the queues by name, and then the topics, of addresses that `of` is true for; None for each other.
        What goes meanwhile is left out."""
        queues, topics = self._queues.by_name, self._topics.by_address
        for name in sorted(queues):
            queue = queues.get(name)
            seen = queue is not None and of(queue.address)
            yield queue_snapshot(queue, self._life.scribe.time_us) if queue is not None and seen else None
        for name in sorted(topics):
            topic = topics.get(name)
            yield topic_snapshot(topic) if topic is not None and of(topic.address) else None

    def queues(self, after: str, limit: int, *, of: Callable[[str], bool]) -> Iterator[QueueSnapshot | None]:
        """Go through so many queues and topics, in the order of their names, of names above `after` and of addresses
        that `of` is true for; None for each other. Where a queue and a topic have one name, the last may be one too
        many."""
        queues, topics = self._queues.by_name, self._topics.by_address
        names = [name for name in {*queues, *topics} if name > after]
        heapify(names)
        count = 0
        while names and count < limit:
            name = heappop(names)
            queue, topic = queues.get(name), topics.get(name)
            if queue is not None and of(queue.address):
                count += 1
                yield queue_snapshot(queue, self._life.scribe.time_us)
            if topic is not None and of(topic.address):
                count += 1
                yield topic_snapshot(topic)
            else:
                yield None

    def connections(self, after: int, limit: int, *, of: Callable[[str | None], bool]) -> list[ConnectionSnapshot]:
        """Return so many connections with a number above `after`, of users that `of` is true for."""
        time_us = self._life.scribe.time_us
        found = (peer for peer in self._connections if peer.number > after and of(peer.user))
        return [connection_snapshot(peer, time_us) for peer in islice(found, limit)]

    def links(
        self, after: tuple[int, int], limit: int, *, connection: int | None, node: str | None, of: Callable[[str], bool]
    ) -> list[LinkSnapshot]:
        """Return so many links above `after`, which is a connection and a link of it, of nodes that `of` is true for.
        `connection`, `node`: none but those of this one."""
        found: list[LinkSnapshot] = []
        deliveries = LOOKED_MAX
        for peer, context, link in self._links(after, connection):
            if not of(context.address) or (node is not None and node_of(context) != node):
                continue
            age_ms, looked = self._oldest_ms(peer, link, deliveries)
            deliveries -= looked
            found.append(link_snapshot(peer, context, link, age_ms))
            if len(found) == limit:
                break
        return found

    def _links(self, after: tuple[int, int], connection: int | None) -> Iterator[tuple[Peer, Actor, Link]]:
        """Go through links by connection and number."""
        for peer in self._connections:
            if peer.number < after[0] or connection not in (None, peer.number):
                continue
            for context, number in sorted(peer.links.items(), key=itemgetter(1)):
                link = getattr(context, "link", None)
                if (peer.number, number) > after and isinstance(context, Actor) and isinstance(link, Link):
                    yield peer, context, link

    def _oldest_ms(self, peer: Peer, link: Link, looked_max: int) -> tuple[int | None, int]:
        """Return the age of the oldest unsettled delivery to a receiver, and how many deliveries were looked at."""
        session = link.session
        if link.role or not link.unsettled_count or not isinstance(session, Session):
            return (None if link.role else 0), 0
        looked = 0
        for delivery_id, delivery in session.outgoing.items():
            if looked >= looked_max:
                break
            looked += 1
            if delivery.link is link:
                return peer.ages.age_ms(session, delivery_id, self._life.scribe.time_us), looked
        return None, looked

    def transactions(self, limit: int) -> list[TransactionSnapshot]:
        """Return so many transactions that are open, the oldest first."""
        time_us = self._life.scribe.time_us
        return [transaction_snapshot(one, time_us) for one in islice(self._transactions, limit)]


def node_of(context: Actor) -> str:
    """Return the name of the queue or topic of a link."""
    queue = getattr(context, "queue", None)
    return context.address if queue is None else str(queue.name)


def no_process() -> Later[ProcessSnapshot]:
    """Answer for a core that nobody serves."""
    later = Later[ProcessSnapshot]()
    later.finish(ProcessSnapshot())
    return later


__all__ = ["LOOKED_MAX", "Figures", "no_process", "node_of"]

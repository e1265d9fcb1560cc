"""The figures of a running broker that operators ask for: of all of it, and page by page of its parts.

A page has a bounded number of rows and costs about as much as these: a broker may have 10,000 queues and 5,000
connections, and nobody else waits while somebody looks at them.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop
from itertools import islice
from typing import TYPE_CHECKING

from acquit._version import version
from acquit.broker.admin.later import Later
from acquit.broker.inspect import DiskSnapshot, Overview, ProcessSnapshot
from acquit.broker.snapshots import connection_snapshot, queue_snapshot, topic_snapshot

if TYPE_CHECKING:
    from acquit.broker.admin.connections import Connections
    from acquit.broker.inspect import BrokerSnapshot, ConnectionSnapshot, QueueSnapshot
    from acquit.broker.life import Life
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.nodes.topics import Topics
    from acquit.broker.transact.transactions import Transactions


class Figures:
    """The figures of one broker."""

    def __init__(
        self,
        head: Callable[[], BrokerSnapshot],
        life: Life,
        queues: Queues,
        topics: Topics,
        transactions: Transactions,
        connections: Connections,
    ) -> None:
        """`head` gives a snapshot that has no queues and no connections."""
        self._head = head
        self._life = life
        self._queues = queues
        self._topics = topics
        self._transactions = transactions
        self._connections = connections
        self.process: Callable[[], Later[ProcessSnapshot]] = no_process
        """Look at the process and the disk. The server's."""

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
            transactions=self._transactions.count,
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

    def queues(self, after: str, limit: int, *, of: Callable[[str], bool]) -> list[QueueSnapshot]:
        """Return so many queues and topics, in the order of their names, of names above `after` and of addresses that
        `of` is true for. Where a queue and a topic have one name, the last may be one too many."""
        queues, topics = self._queues.by_name, self._topics.by_address
        names = [name for name in {*queues, *topics} if name > after]
        heapify(names)
        found: list[QueueSnapshot] = []
        while names and len(found) < limit:
            name = heappop(names)
            queue, topic = queues.get(name), topics.get(name)
            if queue is not None and of(queue.address):
                found.append(queue_snapshot(queue))
            if topic is not None and of(topic.address):
                found.append(topic_snapshot(topic))
        return found

    def connections(self, after: int, limit: int, *, of: Callable[[str | None], bool]) -> list[ConnectionSnapshot]:
        """Return so many connections with a number above `after`, of users that `of` is true for."""
        time_us = self._life.scribe.time_us
        found = (peer for peer in self._connections if peer.number > after and of(peer.user))
        return [connection_snapshot(peer, time_us) for peer in islice(found, limit)]


def no_process() -> Later[ProcessSnapshot]:
    """Answer for a core that nobody serves."""
    later = Later[ProcessSnapshot]()
    later.finish(ProcessSnapshot())
    return later


__all__ = ["Figures", "no_process"]

"""Snapshots of queues, topics and connections as people and tools see them (`inspect`), made from the broker's own."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final

from acquit.broker.dispatching import tags
from acquit.broker.dispatching.browsing import Browser
from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.inspect import ConnectionSnapshot, LinkSnapshot, QueueSnapshot, TransactionSnapshot
from acquit.broker.nodes.node import whole
from acquit.broker.tally import NO_TALLY
from acquit.ledger.events import RETIRING, EventKind
from acquit.protocol.link import SendingLink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acquit.broker.links.peers import Actor, Peer
    from acquit.broker.nodes.node import Queue
    from acquit.broker.nodes.topics import Topic
    from acquit.broker.transact.transaction import Transaction
    from acquit.protocol.link import Link

_TEXT_MAX: Final = 256
"""Characters of a name that a peer has chosen, in a snapshot."""
_COUNT_MASK: Final = 0xFFFF_FFFF

_RETIRED: Final = tuple((kind.name.lower(), kind) for kind in sorted(RETIRING))
RETIRED_FIGURES: Final = tuple(name for name, _ in _RETIRED)
"""Figures of a queue that count the messages which left it, one for each way of leaving."""
_COUNTED: Final = (*_RETIRED, ("duplicates", EventKind.DUPLICATE))

QUEUE_FIGURES: Final = (
    "entered",
    *(name for name, _ in _COUNTED),
    "rolled_back",
    "unrouted",
    "pending",
    "available",
    "acquired",
    "scheduled",
    "suspended",
    "consumers",
    "producers",
    "body_bytes",
    "memory_bytes",
    "undeliverable",
)
"""Figures of a queue or topic that can be summed up: those of `QueueSnapshot` with these names."""
_counts: Final = itemgetter(*(kind for _, kind in _COUNTED), EventKind.ROLLED_BACK)


def queue_figures(queue: Queue) -> list[float]:
    """Return the `QUEUE_FIGURES` and, behind them, the `TALLY_FIGURES` of a queue at this moment, for much less than a
    snapshot costs."""
    counts = queue.counts
    acquired, read = counts[EventKind.ACQUIRED] + counts[EventKind.CONSUMED], counts[EventKind.READ]
    return [
        queue.entered,
        *_counts(counts),
        0,
        queue.pending,
        queue.available,
        queue.acquired,
        len(queue.scheduled),
        queue.suspended,
        len(queue.consumers) + len(queue.browsers),
        len(queue.producers),
        queue.bytes,
        queue.memory_bytes,
        queue.undeliverable,
        *queue.tally.figures(acquired, read),
    ]


def topic_figures(topic: Topic) -> list[float]:
    """Return those of a topic, which holds nothing."""
    return [*(getattr(topic_snapshot(topic), name) for name in QUEUE_FIGURES), *NO_TALLY]


def topic_snapshot(topic: Topic) -> QueueSnapshot:
    """Return what a topic is and counts at this moment."""
    return QueueSnapshot(
        name=topic.address,
        address=topic.address,
        kind="topic" if topic.temporary is None else "temporary topic",
        consumers=len(topic.queues),
        producers=len(topic.producers),
        unrouted=topic.counts[EventKind.UNROUTED],
        held=topic.held,
        paused=topic.paused,
        rolled_back=topic.counts[EventKind.ROLLED_BACK],
        duplicates=topic.counts[EventKind.DUPLICATE],
    )


def queue_snapshot(queue: Queue, time_us: int) -> QueueSnapshot:
    """Return what a queue holds and counts at this moment."""
    plain = "queue" if queue.temporary is None else "temporary queue"
    return QueueSnapshot(
        name=queue.name,
        address=queue.address,
        kind=plain if queue.subscription is None else "subscription",
        available=queue.available,
        acquired=queue.acquired,
        suspended=queue.suspended,
        scheduled=len(queue.scheduled),
        undeliverable=queue.undeliverable,
        pending=queue.pending,
        consumers=len(queue.consumers) + len(queue.browsers),
        producers=len(queue.producers),
        active_consumer="" if queue.active is None else queue.active.terminus,
        body_bytes=queue.bytes,
        memory_bytes=queue.memory_bytes,
        entered=queue.entered,
        held=queue.held,
        paused=queue.paused,
        oldest_age_ms=oldest_age_ms(queue, time_us),
        rolled_back=queue.counts[EventKind.ROLLED_BACK],
        **{name: queue.counts[kind] for name, kind in _COUNTED},
    )


def oldest_age_ms(queue: Queue, time_us: int) -> int:
    """Return the age of the oldest message that could be acquired, as `QueueSnapshot.oldest_age_ms` says."""
    posted_us = [one for one in (queue.backlog.oldest_us(), queue.aside.oldest_us()) if one is not None]
    return max(0, time_us - min(posted_us, default=time_us)) // 1000


def node_snapshots(queues: Mapping[str, Queue], topics: Mapping[str, Topic], time_us: int) -> tuple[QueueSnapshot, ...]:
    """Return what all queues, and all topics, hold and count at this moment, each by name."""
    return (
        *(queue_snapshot(queue, time_us) for _, queue in sorted(queues.items())),
        *(topic_snapshot(topic) for _, topic in sorted(topics.items())),
    )


def connection_snapshot(peer: Peer, time_us: int) -> ConnectionSnapshot:
    """Return what a connection has at this moment."""
    sessions = peer.engine.sessions
    consumers = [context for context in peer.links if isinstance(context, Consumer)]
    remote = peer.engine.remote_open
    said: Mapping[str, object] = {} if remote is None else remote.properties or {}
    return ConnectionSnapshot(
        id=peer.number,
        peer=peer.name,
        container=peer.container[:_TEXT_MAX],
        user=peer.user,
        product=_text(said.get("product")),
        version=_text(said.get("version")),
        mechanism=peer.mechanism,
        tls=peer.tls,
        sessions=len(sessions),
        links=len(peer.links),
        unsettled=sum(consumer.held for consumer in consumers),
        oldest_unsettled_ms=peer.ages.oldest_ms(sessions, time_us),
        credit_starved=sum(starved(consumer) for consumer in consumers),
        buffered_bytes=peer.engine.output_bytes + peer.socket_bytes(),
        writable=peer.writable,
        since_ms=max(0, time_us - peer.opened_us) // 1000 if peer.opened_us else 0,
    )


CONNECTION_FIGURES: Final = ("connections", "blocked", "sessions", "links", "unsettled", "starved")
"""Figures of a connection that can be summed up."""


def connection_figures(peer: Peer) -> tuple[int, ...]:
    """Return the `CONNECTION_FIGURES` of one connection at this moment."""
    consumers = [context for context in peer.links if isinstance(context, Consumer)]
    held, waiting = sum(consumer.held for consumer in consumers), sum(map(starved, consumers))
    return 1, not peer.writable, len(peer.engine.sessions), len(peer.links), held, waiting


def link_snapshot(peer: Peer, context: Actor, link: Link, oldest_unsettled_ms: int | None) -> LinkSnapshot:
    """Return what a link has at this moment."""
    receives, sent = isinstance(link, SendingLink), getattr(context, "tag", 0)
    if sent:
        delivered = tags.count(sent)
    else:
        said = link.local_attach if receives else link.remote_attach
        first = (said.initial_delivery_count if said is not None else 0) or 0
        delivered = getattr(link, "delivery_count", 0) - first & _COUNT_MASK
    queue = getattr(context, "queue", None)
    return LinkSnapshot(
        id=f"{peer.number}.{peer.links[context]}",
        connection=peer.number,
        name=link.name[:_TEXT_MAX],
        role="receiver" if receives else "sender",
        node=context.address if queue is None else queue.name,
        user=peer.user,
        container=peer.container[:_TEXT_MAX],
        credit=link.credit,
        unsettled=context.held if isinstance(context, Consumer) else link.unsettled_count,
        oldest_unsettled_ms=oldest_unsettled_ms,
        delivered=delivered,
        snd_settle_mode=link.snd_settle_mode.name.lower(),
        rcv_settle_mode=link.rcv_settle_mode.name.lower(),
        mode="consume" if isinstance(context, Consumer) else "browse" if isinstance(context, Browser) else "",
    )


def transaction_snapshot(transaction: Transaction, time_us: int) -> TransactionSnapshot:
    """Return what a transaction holds at this moment."""
    peer, failed = transaction.peer, transaction.failed
    return TransactionSnapshot(
        id=transaction.txn_id.hex(),
        connection=peer.number,
        user=peer.user,
        container=peer.container[:_TEXT_MAX],
        age_ms=max(0, time_us - transaction.declared_us) // 1000,
        idle_ms=max(0, time_us - transaction.used_us) // 1000,
        postings=transaction.posted,
        outcomes=transaction.outcomes,
        failed="" if failed is None else failed.description or str(failed.condition),
    )


def starved(consumer: Consumer) -> bool:
    """True if the consumer has no credit, while messages are available in its queue."""
    return consumer.link.credit <= 0 and whole(consumer.queue).available > 0


def _text(value: object) -> str:
    return value[:_TEXT_MAX] if isinstance(value, str) else ""


__all__ = [
    "CONNECTION_FIGURES",
    "QUEUE_FIGURES",
    "RETIRED_FIGURES",
    "connection_figures",
    "connection_snapshot",
    "link_snapshot",
    "node_snapshots",
    "oldest_age_ms",
    "queue_figures",
    "queue_snapshot",
    "starved",
    "topic_figures",
    "topic_snapshot",
    "transaction_snapshot",
]

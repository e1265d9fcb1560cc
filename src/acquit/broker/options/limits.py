"""How much one connection, the broker as a whole and transactions may take."""

from __future__ import annotations

from dataclasses import dataclass

from acquit.broker.options.checks import TIME_MS_MAX, UINT_MAX, check_range
from acquit.store.options import MIB


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    """What one connection may do."""

    idle_timeout_ms: int = 30_000
    """The idle-time-out we ask of peers (2.4.5); one that is silent for twice as long is gone, and what it held is
    available again. 0: never."""

    handshake_timeout_ms: int = 10_000
    """From the connect to the peer's open, authentication included."""

    max_frame_size: int = 65_536
    """Largest frame we take, in bytes (2.7.1)."""

    sessions_max: int = 256
    """Sessions of one connection."""

    links_max: int = 4_096
    """Links of one connection, over all its sessions; one more is refused with amqp:resource-limit-exceeded."""

    message_bytes_max: int = 64 * MIB
    """Largest message; a larger one ends its link with amqp:link:message-size-exceeded."""

    assembly_bytes_max: int = 256 * MIB
    """Bytes of messages that have begun to arrive and not ended, over all links of a connection."""

    unsettled_max: int = 65_536
    """Deliveries that one session may hold unsettled, whatever credit its links grant."""

    output_bytes_max: int = 1 * MIB
    """What may wait to be written to a peer before its links are passed over: a slow consumer keeps its messages in
    the queue, not in memory."""

    credit_max: int = 1_000
    """Credit of a sender that nothing holds back; topped up at half."""

    def __post_init__(self) -> None:
        check_range(
            self,
            {
                "idle_timeout_ms": (0, UINT_MAX),
                "handshake_timeout_ms": (1, TIME_MS_MAX),
                "max_frame_size": (512, UINT_MAX),
                "sessions_max": (1, 65_536),
                "links_max": (1, 1 << 20),
                "message_bytes_max": (1, UINT_MAX),
                "assembly_bytes_max": (1, 1 << 40),
                "unsettled_max": (1, 0x7FFF_FFFF),
                "output_bytes_max": (4096, 1 << 30),
                "credit_max": (1, 0x7FFF_FFFF),
            },
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerLimits:
    """What the broker as a whole may hold."""

    connections_max: int = 1_024
    """Sockets open at once; one more is closed at once."""

    unauthenticated_max: int = 256
    """Of these, sockets whose peer has not authenticated: a crowd that says nothing keeps nobody out for longer than
    the handshake timeout."""

    queues_max: int = 10_000
    """Queues at once; the link that needs one more is refused."""

    memory_bytes_max: int = 256 * MIB
    """Bodies held in memory, over all queues. From half of it senders get less credit, from three quarters durable
    bodies are read back from the journal when they are needed, and beyond it postings are refused."""

    read_ahead_bytes: int = 4 * MIB
    """Bodies read back from the journal at once for one queue."""

    requests_max: int = 100
    """Answers of the management node that wait for one client's credit."""

    duplicate_ids_max: int = 500_000
    """Ids that duplicate detection remembers, over all addresses: a quarter of a KiB each. Beyond, the addresses give
    way that nobody has posted to for longest."""

    sender_marks_max: int = 100_000
    """Marks of senders whose postings are numbered: half a KiB each. A link that needs one more is refused while none
    may be forgotten."""

    sender_marks_kept_ms: int = 604_800_000
    """How long a mark is kept that no link has and that does not move. Only then may it be forgotten, where room is
    needed for another."""

    def __post_init__(self) -> None:
        check_range(
            self,
            {
                "connections_max": (1, 1 << 20),
                "unauthenticated_max": (1, 1 << 20),
                "queues_max": (1, 1 << 24),
                "memory_bytes_max": (MIB, 1 << 46),
                "read_ahead_bytes": (4096, 1 << 30),
                "requests_max": (1, 1 << 20),
                "duplicate_ids_max": (1, 1 << 30),
                "sender_marks_max": (1, 1 << 30),
                "sender_marks_kept_ms": (0, 10 * 366 * 86_400_000),
            },
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TransactionLimits:
    """What transactions may hold, and what is remembered of them."""

    per_connection_max: int = 256
    """Live transactions of one connection; one more is not declared."""

    postings_max: int = 100_000
    """Messages that one transaction may post; one more is rejected."""

    bytes_max: int = 64 * MIB
    """Their bytes. They are in memory until the transaction ends."""

    retirements_max: int = 100_000
    """Deliveries of which one transaction may have the outcome; with one more it fails."""

    idle_timeout_ms: int = 0
    """A transaction that holds something, and in which nothing was done for so long, is rolled back, and its commit
    refused. 0: never."""

    fates_kept_ms: int = 3_600_000
    """How long it is known what became of a transaction."""

    fates_max: int = 100_000
    """Of how many, at most; of more, of the latest. Each takes half a KiB of memory."""

    def __post_init__(self) -> None:
        check_range(
            self,
            {
                "per_connection_max": (1, 1 << 20),
                "postings_max": (1, 1 << 20),
                "bytes_max": (1, 1 << 40),
                "retirements_max": (1, 1 << 20),
                "idle_timeout_ms": (0, TIME_MS_MAX),
                "fates_kept_ms": (0, TIME_MS_MAX),
                "fates_max": (0, 1 << 30),
            },
        )


__all__ = ["BrokerLimits", "ConnectionLimits", "TransactionLimits"]

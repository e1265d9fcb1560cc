"""Limits of one connection, of the broker as a whole, and of transactions."""

from __future__ import annotations

from dataclasses import dataclass

from acquit.broker.options.checks import TIME_MS_MAX, UINT_MAX, check_fields
from acquit.store.options import MIB


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    """The limits of one connection."""

    idle_timeout_ms: int = 30_000
    """The idle-time-out we ask of peers (2.4.5); one that is silent for twice as long is gone, and what it held is
    available again. 0: never."""

    handshake_timeout_ms: int = 10_000
    """Milliseconds from the connect to the peer's open, authentication included."""

    max_frame_size: int = 65_536
    """Largest frame we take, in bytes (2.7.1)."""

    sessions_max: int = 256
    """Sessions of one connection."""

    links_max: int = 4_096
    """Links of one connection, over all its sessions; one more is refused with amqp:resource-limit-exceeded."""

    message_bytes_max: int = 64 * MIB
    """Largest message; a larger one ends its link with amqp:link:message-size-exceeded."""

    message_entries_max: int = 4_096
    """Entries of each map of a message: its annotations, application properties and footer. A message with more is
    rejected with amqp:resource-limit-exceeded: each takes the broker about a microsecond."""

    message_sections_max: int = 4_096
    """Sections of a message's body; a message with more is rejected with amqp:decode-error."""

    assembly_bytes_max: int = 128 * MIB
    """Bytes of messages that have begun to arrive and not ended, over all links of a connection. A link that goes
    beyond is ended with amqp:resource-limit-exceeded."""

    unsettled_max: int = 65_536
    """Deliveries that one session may hold unsettled, whatever credit its links grant."""

    output_bytes_max: int = 1 * MIB
    """Bytes that may wait to be written to a peer before its links are passed over: a slow consumer keeps its messages
    in the queue, not in memory."""

    turn_cost_max: int = 8000
    """Work that is done for a connection before the others have their turn. A unit is about a microsecond: a small
    message that is like the one before costs 4, a link 500. The rest waits, in the peer's socket at last."""

    credit_max: int = 1_000
    """Credit of a sender that nothing holds back; topped up at half."""

    def __post_init__(self) -> None:
        check_fields(
            self,
            {
                "idle_timeout_ms": (0, UINT_MAX),
                "handshake_timeout_ms": (1, TIME_MS_MAX),
                "max_frame_size": (512, UINT_MAX),
                "sessions_max": (1, 65_536),
                "links_max": (1, 1 << 20),
                "message_bytes_max": (1, UINT_MAX),
                "message_entries_max": (64, 1 << 24),
                "message_sections_max": (64, 1 << 24),
                "assembly_bytes_max": (1, 1 << 40),
                "unsettled_max": (1, 0x7FFF_FFFF),
                "output_bytes_max": (4096, 1 << 30),
                "turn_cost_max": (100, 1 << 30),
                "credit_max": (1, 0x7FFF_FFFF),
            },
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerLimits:
    """The limits of the broker as a whole."""

    connections_max: int = 1_024
    """Connections at once; one more is opened, and closed with amqp:resource-limit-exceeded. With unauthenticated_max
    it has to fit into the limit of open files of the process, which `acquit serve` raises as far as it may; where it
    does not, there are fewer, and the log says so."""

    connections_per_user_max: int = 0
    """Connections of one user, of connections_max; who is anonymous counts as one, and where no users are configured
    there is no such limit. 0: three quarters of connections_max."""

    connections_per_address_max: int = 0
    """The same, from one IPv4 address, or one /64 of IPv6; programs on this machine are not counted. 0: three quarters
    of connections_max. Where all peers come through one proxy, give it connections_max."""

    links_max: int = 50_000
    """Links at once, over all connections; the link that is one more is refused with amqp:resource-limit-exceeded. Each
    takes some KiB of memory, and more where its peer chooses long names."""

    links_per_user_max: int = 0
    """Links of one user, of links_max, as connections_per_user_max says. 0: three quarters of links_max."""

    links_per_address_max: int = 0
    """The same, from one address, as connections_per_address_max says. 0: three quarters of links_max."""

    unauthenticated_max: int = 256
    """Sockets beside them whose peer has not opened its connection. One more is let in, and the one of the address with
    the most of them that has been there for longest is closed: a crowd that says nothing keeps nobody out."""

    queues_max: int = 10_000
    """Queues, subscriptions and topics at once; the link that needs one more is refused."""

    queues_per_user_max: int = 0
    """Queues that one user had made since the broker was started, of queues_max, dynamic ones included; who is
    anonymous counts as one, and where no users are configured there is no such limit. 0: three quarters of
    queues_max."""

    termini_max: int = 10_000
    """Termini of resumable links at once, attached or not; the link that needs one more is refused. 0: none, so that
    no link is resumable."""

    terminus_kept_ms_max: int = 7 * 24 * 3_600_000
    """The longest time for which a terminus outlives its link, with what it holds: a link asks for its own time, or, by
    the expiry-policy never, for this one."""

    memory_bytes_max: int = 1024 * MIB
    """Messages in memory, over all queues: their bodies, 400 bytes for each message beside it (48 for a durable one
    that waits far behind, with its body in the journal and no time to live), and messages that have begun to arrive or
    that transactions hold. From half of it senders get less credit, where bodies take three quarters of what the others
    leave durable ones are read back from the journal when they are needed, and beyond it postings are refused. The
    process has up to one and a half times as much."""

    assembly_bytes_max: int = 0
    """Bytes of messages that have begun to arrive and not ended, over all connections; part of memory_bytes_max.
    Beyond, the connection with the most, of the user with the most, loses the links they are on, with
    amqp:resource-limit-exceeded. 0: half of memory_bytes_max."""

    assembly_bytes_per_user_max: int = 0
    """Bytes of one user, of assembly_bytes_max; the link that goes beyond is ended. Where no users are configured there
    is no such limit. 0: three quarters of them."""

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
    """Milliseconds that a mark is kept that no link has and that does not move. Only then may it be forgotten, where
    room is needed for another."""

    def __post_init__(self) -> None:
        check_fields(
            self,
            {
                "connections_max": (1, 1 << 20),
                "connections_per_user_max": (0, 1 << 20),
                "connections_per_address_max": (0, 1 << 20),
                "links_max": (1, 1 << 24),
                "links_per_user_max": (0, 1 << 24),
                "links_per_address_max": (0, 1 << 24),
                "queues_per_user_max": (0, 1 << 24),
                "unauthenticated_max": (1, 1 << 20),
                "queues_max": (1, 1 << 24),
                "termini_max": (0, 1 << 24),
                "terminus_kept_ms_max": (1, TIME_MS_MAX),
                "memory_bytes_max": (MIB, 1 << 46),
                "assembly_bytes_max": (0, 1 << 46),
                "assembly_bytes_per_user_max": (0, 1 << 46),
                "read_ahead_bytes": (4096, 1 << 30),
                "requests_max": (1, 1 << 20),
                "duplicate_ids_max": (1, 1 << 30),
                "sender_marks_max": (1, 1 << 30),
                "sender_marks_kept_ms": (0, 10 * 366 * 86_400_000),
            },
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TransactionLimits:
    """The limits of transactions, and of what is remembered of them."""

    per_connection_max: int = 256
    """Live transactions of one connection; one more is not declared."""

    postings_max: int = 100_000
    """Messages that one transaction may post; one more is rejected."""

    bytes_max: int = 64 * MIB
    """Bytes of a transaction's messages. They are in memory until the transaction ends."""

    retirements_max: int = 100_000
    """Deliveries of which one transaction may have the outcome; with one more it fails."""

    idle_timeout_ms: int = 0
    """A transaction that holds something, and in which nothing was done for so long, is rolled back, and its commit
    refused. 0: never."""

    fates_kept_ms: int = 3_600_000
    """Milliseconds for which the fate of a transaction is known."""

    fates_max: int = 100_000
    """Transactions whose fate is known, at most; the latest ones. Each takes half a KiB of memory."""

    def __post_init__(self) -> None:
        check_fields(
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

"""What a broker may be told: typed, frozen, validated; one class for each concern.

A value that cannot work raises ConfigurationError naming the field. `configuration` reads these from TOML, where each
class is a table and each field a key; docs/configuration.md lists them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Literal, Self

from acquit.errors import ConfigurationError
from acquit.store.options import MIB, JournalOptions

UINT_MAX: Final = 0xFFFF_FFFF
TIME_MS_MAX: Final = 10 * 365 * 24 * 3600 * 1000
"""Ten years: longer than any broker waits, and no sum of a few overflows a timestamp."""

RELEASES_UNPACED: Final = 10
"""So often a message may come back uncounted before its returns are paced."""

Where = Literal["never", "loopback", "always"]
"""Who is offered a SASL mechanism: nobody, peers on this machine, everybody."""


def check_range(owner: object, bounds: Mapping[str, tuple[float, float]]) -> None:
    """Raise ConfigurationError for a number of `owner` that is outside of its bounds."""
    for name, (low, high) in bounds.items():
        value = getattr(owner, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ConfigurationError(f"{name}: expected a number from {low} to {high}, found {value!r}")


def check_choice(owner: object, choices: Mapping[str, tuple[str, ...]]) -> None:
    """Raise ConfigurationError for a word of `owner` that is none of its choices."""
    for name, allowed in choices.items():
        value = getattr(owner, name)
        if value not in allowed:
            raise ConfigurationError(f"{name}: expected one of {', '.join(map(repr, allowed))}, found {value!r}")


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

    fates_max: int = 1_000_000
    """Of how many, at most; of more, of the latest."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class User:
    """Somebody who may log in."""

    password: str = field(default="", repr=False)
    """The password itself, or its verifier, ``SCRAM-SHA-256$iterations:salt$stored key:server key`` with base64 but for
    the number, from which it cannot be read: see `users.Verifier`. Empty: none; such a user logs in by TLS certificate
    alone."""

    roles: tuple[str, ...] = ()
    """Names of roles: the user may do what any of them may."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """What those who have it may do: for each permission, patterns of the addresses where they may. In a pattern ``*``
    is one word between dots, ``#`` any number of words."""

    send: tuple[str, ...] = ()
    """Send messages there."""

    consume: tuple[str, ...] = ()
    """Take messages from there."""

    browse: tuple[str, ...] = ()
    """Look at messages there, and at what the management node tells of queues."""

    create: tuple[str, ...] = ()
    """Make a node that does not exist, by using its address."""

    delete: tuple[str, ...] = ()
    """Delete a queue or a topic. A durable subscription is ended by whoever may consume from it."""

    manage: tuple[str, ...] = ()
    """What the management node does to queues: purge them, for one. ``#`` includes what concerns the whole broker."""

    def __post_init__(self) -> None:
        for permission in PERMISSIONS:
            for pattern in getattr(self, permission):
                check_pattern(permission, pattern)


PERMISSIONS: Final = tuple(spec.name for spec in fields(Role))


def check_pattern(name: str, pattern: str) -> None:
    """Raise ConfigurationError for what is no pattern of addresses; `name` is the key that has it."""
    words = pattern.split(".")
    if not pattern or not all(words) or any(len(word) > 1 and set(word) & set("*#") for word in words):
        raise ConfigurationError(f"{name}: expected words between dots, where a word may be * or #, found {pattern!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Security:
    """Who may come in."""

    anonymous: Where = "loopback"
    """SASL ANONYMOUS, and peers that begin without SASL."""

    scram: Where = "always"
    """SASL SCRAM-SHA-256, which shows the password to nobody; without TLS it protects nothing but the password."""

    plain: Where = "loopback"
    """SASL PLAIN without TLS, which shows the password to the network. With TLS it is always offered."""

    users: Mapping[str, User] = field(default_factory=dict)
    """By name."""

    users_file: str = ""
    """More users: a file that `acquit user` keeps. Empty: ``users.toml`` in the data folder, if it is there."""

    roles: Mapping[str, Role] = field(default_factory=dict)
    """By name. Without any, everybody who comes in may do everything; with one, nobody may do what no role of theirs
    names, and who comes in anonymously has the role ``anonymous``, if there is one."""

    verifications_max: int = 64
    """Passwords that wait to be verified; a peer beyond is refused, and may try again."""

    refusal_delay_ms: int = 300
    """How long a peer whose login failed waits for its answer."""

    def __post_init__(self) -> None:
        check_choice(self, dict.fromkeys(("anonymous", "plain", "scram"), ("never", "loopback", "always")))
        check_range(self, {"verifications_max": (1, 1 << 20), "refusal_delay_ms": (0, 10_000)})
        for name in self.users:
            if not name or "\0" in name:
                raise ConfigurationError(f"users: expected names without NUL that are not empty, found {name!r}")
        for name in self.roles:
            if not name:
                raise ConfigurationError("roles: expected names that are not empty, found ''")


TlsMode = Literal["off", "offered", "required", "immediate"]
"""TLS on a listener: none; if the peer asks for it by AMQP's TLS header (5.2.1); only then; from the first byte."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listen:
    """Where the broker listens. With any of these, ``--host`` and ``--port`` are not used."""

    host: str = "127.0.0.1"
    """A name or an address of this machine."""

    port: int = 5672
    """0: a free one."""

    tls: TlsMode = "off"
    """"immediate": TLS from the first byte, which is ``amqps://``. "offered": AMQP in the clear, or with TLS if the
    peer begins with AMQP's TLS header; "required": only that. All but "off" need a certificate in ``[tls]``."""

    def __post_init__(self) -> None:
        check_choice(self, {"tls": ("off", "offered", "required", "immediate")})
        check_range(self, {"port": (0, 65_535)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """TLS, 1.2 or later. Both files, or none."""

    certificate_file: str = ""
    """The certificate chain, in PEM."""

    key_file: str = ""
    """Its private key, in PEM, without a passphrase."""

    mode: TlsMode = "immediate"
    """TLS on the port that ``--port`` names, where there is a certificate; as ``tls`` of ``[[listen]]``."""

    client_certificates: Literal["none", "optional", "required"] = "none"
    """Whether peers are asked for a certificate, and whether they must have one. A peer with one that names a user may
    log in as that user with SASL EXTERNAL."""

    client_ca_file: str = ""
    """Who signs the certificates of peers: certificates in PEM."""

    client_name: Literal["common-name", "dns", "email", "uri"] = "common-name"
    """Which part of a peer's certificate is the name of the user: the common name of its subject, or the one
    alternative name of this kind."""

    def __post_init__(self) -> None:
        if bool(self.certificate_file) != bool(self.key_file):
            raise ConfigurationError("key_file: expected together with certificate_file, found only one of them")
        check_choice(
            self,
            {
                "mode": ("off", "offered", "required", "immediate"),
                "client_certificates": ("none", "optional", "required"),
                "client_name": ("common-name", "dns", "email", "uri"),
            },
        )
        if bool(self.client_ca_file) != (self.client_certificates != "none"):
            raise ConfigurationError(
                "client_ca_file: expected together with client_certificates, found only one of them"
            )
        if self.client_ca_file and not self.certificate_file:
            raise ConfigurationError("client_certificates: expected a certificate_file as well, found none")


@dataclass(frozen=True, kw_only=True, slots=True)
class AddressPolicy:
    """How messages are treated at an address."""

    create: bool = True
    """A link to an address that does not exist makes a queue of it; otherwise it is refused with amqp:not-found."""

    auto_delete: bool = False
    """A queue that was made by a link is deleted when it is empty and no link uses it."""

    routing: Literal["", "anycast", "multicast"] = ""
    """What the address is to links that do not say: "anycast", a queue, where each message goes to one consumer, or
    "multicast", a topic, where it goes to every subscription. Empty: a topic if there is one of this name and no queue,
    otherwise a queue."""

    unroutable: Literal["accept", "release"] = "accept"
    """What becomes of a message to a topic where no subscription takes it: "accept" accepts and counts it (as
    *unrouted*), "release" gives it back to its sender."""

    dead_letter_address: str = "DLQ"
    """Where rejected messages go, and those that were tried too often. Empty: nowhere, they are dropped (and recorded).
    What is rejected at a dead letter or expiry address itself is always dropped."""

    expiry_address: str = "ExpiryQueue"
    """Where messages go whose time to live has passed. Empty: nowhere."""

    max_delivery_attempts: int = 10
    """A message whose delivery-count reaches this is dead-lettered. 0: never."""

    connection_loss: Literal["count", "dead-letter"] = "count"
    """Whether an attempt may be the last one that ended with a lost connection, or with a link closed over it. The one
    counts in any case, the other where its default-outcome says so."""

    redelivery_delay_ms: int = 0
    """How long a message waits after a failed attempt."""

    redelivery_multiplier: float = 1.0
    """The delay grows by this factor with each attempt."""

    redelivery_delay_ms_max: int = 0
    """And no further than this. 0: ten times redelivery_delay_ms."""

    redelivery_jitter: float = 0.0
    """Each delay is longer or shorter by up to this part of it, at random, so that messages that failed together are
    not tried again together. From 0 to 1; the longest delay stays the longest."""

    redelivery_blocks: Literal["none", "queue", "group"] = "none"
    """What a message that waits for another attempt holds up: nothing, what is behind it in its queue, or what is of
    its group. What consumers hold already is not held up."""

    max_releases: int = 0
    """A message that came back this often without its attempt counting (released, or modified without
    delivery-failed) is dead-lettered. 0: never."""

    release_delay_ms_max: int = 1_000
    """From the eleventh time on that a message comes back uncounted, it does so no more often than once in 1 ms, then
    in 2, 4, 8 ..., and at last in this many milliseconds. 0: as often as it is released."""

    lock_duration_ms: int = 0
    """How long a consumer may hold a message without an outcome, before the attempt is taken for failed and the message
    is given to others. The consumer starts it again with a disposition of state *received*. 0: as long as its link
    lasts."""

    default_ttl_ms: int = 0
    """For messages that say none. 0: they live for ever."""

    ttl_ms_max: int = 0
    """A longer time to live is cut to this. 0: none is cut."""

    bytes_max: int = 0
    """Size of the queue, in bytes of messages as they were posted; what is acquired counts. full_policy says what
    happens there. 0: no limit."""

    messages_max: int = 0
    """The same, in messages."""

    full_policy: Literal["page", "block", "reject", "drop-oldest"] = "block"
    """What becomes of postings to a queue that has reached bytes_max or messages_max. ``page``: they are taken, their
    bodies stay in the journal until their turn comes. ``block``: senders get less credit as the limit comes near and
    none there; what overshoots is refused. ``reject``: senders get credit as ever, and amqp:resource-limit-exceeded.
    ``drop-oldest``: the oldest messages that nobody has acquired are displaced."""

    last_value: bool = False
    """The queue keeps the newest message of each value of last_value_key; older ones that nobody has acquired are
    displaced."""

    last_value_key: str = "_AMQ_LVQ_NAME"
    """The application property that last_value goes by. Messages without it are all kept."""

    ring_size: int = 0
    """The queue keeps so many messages; beyond, the oldest that nobody has acquired is displaced. 0: no limit."""

    duplicate_detection: Literal["off", "id", "message-id"] = "id"
    """Postings that come twice are answered and not posted again. ``id``: told by the application property
    ``_AMQ_DUPL_ID``. ``message-id``: where there is none, by the message id."""

    duplicate_window: int = 20_000
    """Ids that an address remembers: its latest."""

    memory_bytes_max: int = 64 * MIB
    """Bodies of one queue in memory. Durable ones beyond are read back from the journal when they are needed; others
    are bounded by it as by bytes_max."""

    consumers_max: int = 0
    """Consumers of a queue; one more is refused. 0: no limit."""

    prefetch_max: int = 0
    """Messages a consumer may hold unsettled, whatever its credit. 0: no limit."""

    consumers: Literal["shared", "single-active", "exclusive"] = "shared"
    """Who of a queue's consumers is served. ``shared``: all of them. ``single-active``: one at a time, another takes
    over when it has gone. ``exclusive``: one, and others are refused with amqp:resource-locked."""

    message_groups: bool = True
    """All messages of one group-id go to one consumer, while it lives."""

    non_destructive: bool = False
    """Every receiver reads the whole queue and removes nothing; what it says of a message is recorded."""

    browsers_max: int = 100
    """Links of a queue that only look; one more is refused. 0: no limit."""

    def __post_init__(self) -> None:
        check_choice(
            self,
            {
                "connection_loss": ("count", "dead-letter"),
                "routing": ("", "anycast", "multicast"),
                "unroutable": ("accept", "release"),
                "redelivery_blocks": ("none", "queue", "group"),
                "consumers": ("shared", "single-active", "exclusive"),
                "full_policy": ("page", "block", "reject", "drop-oldest"),
                "duplicate_detection": ("off", "id", "message-id"),
            },
        )
        if not self.last_value_key:
            raise ConfigurationError("last_value_key: expected the name of an application property, found ''")
        check_range(
            self,
            {
                "max_delivery_attempts": (0, 65_534),
                "redelivery_delay_ms": (0, TIME_MS_MAX),
                "redelivery_multiplier": (1, 1000),
                "redelivery_delay_ms_max": (0, TIME_MS_MAX),
                "redelivery_jitter": (0, 1),
                "max_releases": (0, 65_534),
                "release_delay_ms_max": (0, TIME_MS_MAX),
                "lock_duration_ms": (0, TIME_MS_MAX),
                "default_ttl_ms": (0, UINT_MAX),
                "ttl_ms_max": (0, UINT_MAX),
                "bytes_max": (0, 1 << 60),
                "messages_max": (0, 1 << 60),
                "ring_size": (0, 1 << 60),
                "duplicate_window": (1, 1 << 24),
                "memory_bytes_max": (64 * 1024, 1 << 46),
                "consumers_max": (0, 1 << 30),
                "browsers_max": (0, 1 << 30),
                "prefetch_max": (0, 1 << 30),
            },
        )

    def redelivery_delay(self, attempt: int, chance: float = 0.5) -> int:
        """Milliseconds before the attempt that follows `attempt` failed ones. `chance`, from 0 to 1, places it between
        the shortest and the longest that the jitter allows."""
        if not self.redelivery_delay_ms:
            return 0
        longest = self.redelivery_delay_ms_max or 10 * self.redelivery_delay_ms
        # The exponent is bounded before the power is taken: 1000.0 ** 65534 is no float.
        growth = self.redelivery_multiplier ** min(attempt - 1, 100) if attempt > 1 else 1.0
        delay = min(longest, self.redelivery_delay_ms * growth)
        return max(1, int(min(longest, delay * (1 + self.redelivery_jitter * (2 * chance - 1)))))

    def release_delay(self, returns: int) -> int:
        """Milliseconds between two returns of a message that has come back uncounted `returns` times."""
        beyond = returns - RELEASES_UNPACED
        if beyond <= 0 or not self.release_delay_ms_max:
            return 0
        return min(self.release_delay_ms_max, 1 << min(beyond - 1, 40))


POLICY_FIELDS: Final = tuple(spec.name for spec in fields(AddressPolicy))


@dataclass(frozen=True, slots=True)
class AddressRule:
    """What is different at the addresses that `match`: words between dots, ``*`` for one word, ``#`` for any number."""

    match: str
    settings: Mapping[str, object] = field(default_factory=dict)
    """Fields of AddressPolicy. What is not set comes from less specific rules, and at last from AddressPolicy."""

    def __post_init__(self) -> None:
        check_pattern("match", self.match)
        for name in self.settings:
            if name not in POLICY_FIELDS:
                raise ConfigurationError(f"{name}: no such setting of an address; there are {', '.join(POLICY_FIELDS)}")
        AddressPolicy(**self.settings)  # type: ignore[arg-type]  # it validates what it is given


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerOptions:
    """Everything. The defaults are fit for a small machine."""

    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    transactions: TransactionLimits = field(default_factory=TransactionLimits)
    security: Security = field(default_factory=Security)
    tls: Tls = field(default_factory=Tls)
    listen: tuple[Listen, ...] = ()
    """Where to listen, if not on the one host and port that are given beside the options."""
    journal: JournalOptions = field(default_factory=JournalOptions)
    address: tuple[AddressRule, ...] = ()
    """Rules, in any order: the most specific one that sets a field decides."""

    stop_timeout_ms: int = 5_000
    """How long a stopping broker waits for its peers to close."""

    @classmethod
    def small(cls) -> Self:
        """For brokers that live as long as a test: little disk space is prepared."""
        return cls(journal=JournalOptions.small())

    def __post_init__(self) -> None:
        check_range(self, {"stop_timeout_ms": (0, TIME_MS_MAX)})
        for listen in self.listen:
            if listen.tls != "off" and not self.tls.certificate_file:
                raise ConfigurationError(f"listen: tls = {listen.tls!r} needs tls.certificate_file, found none")
        seen = set()
        for rule in self.address:
            if rule.match in seen:
                raise ConfigurationError(f"address: expected one rule for each pattern, found two for {rule.match!r}")
            seen.add(rule.match)


__all__ = [
    "PERMISSIONS",
    "POLICY_FIELDS",
    "AddressPolicy",
    "AddressRule",
    "BrokerLimits",
    "BrokerOptions",
    "ConnectionLimits",
    "Listen",
    "Role",
    "Security",
    "Tls",
    "TlsMode",
    "TransactionLimits",
    "User",
    "Where",
]

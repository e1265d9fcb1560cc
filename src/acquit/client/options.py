"""Options that a user may set: for a connection, for a sender, for a receiver.

Times in options are whole milliseconds and say so in their names; the `timeout` arguments of methods are seconds, as
everywhere in Python.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from acquit.client.entries import DeliveryStore
from acquit.client.reconnecting import Reconnect
from acquit.client.tracing import Tracer
from acquit.errors import ConfigurationError
from acquit.protocol.constants import Outcome
from acquit.protocol.definitions import Accepted, Modified, Rejected, Released

if TYPE_CHECKING:
    from acquit.client.subscriptions import Subscription


class DeliveryMode(IntEnum):
    """The durability of a message: whether it must survive a crash of the broker. The values are those of JMS."""

    NON_PERSISTENT = 1
    """Delivery at most once: the broker never waits for its disk, and forgets the message when it stops."""
    PERSISTENT = 2
    """The header says *durable*: the broker answers *accepted* when the message is safe."""

    def __str__(self) -> str:
        return self.name


def check_range(name: str, value: object, low: int, high: int) -> None:
    """Raise ConfigurationError, naming the setting, unless `value` is a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigurationError(f"{name} must be a whole number from {low} to {high}, got {value!r}")


def check_flag(name: str, value: object) -> None:
    """Raise ConfigurationError, naming the setting, unless `value` is True or False."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, got {value!r}")


def check_text(name: str, value: object) -> None:
    """Raise ConfigurationError, naming the setting, unless `value` is a text, or None. The value is not shown: it may
    be a password."""
    if value is None:
        return
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be a text or None, got a value of type {type(value).__name__}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ConfigurationError(f"{name} must be a text that UTF-8 can encode, and has half of a surrogate pair")


def check_mapping(name: str, value: object) -> None:
    """Raise ConfigurationError, naming the setting, unless `value` is a mapping with texts as its keys, or None."""
    if value is not None and not (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
        raise ConfigurationError(f"{name} must be a mapping with texts as its keys, or None, got {value!r}")


def capabilities_of(names: object) -> tuple[str, ...]:
    """A link's capabilities, from what a user gave. Raises ConfigurationError for what is no list of texts."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ConfigurationError(f"capabilities must be a list of texts, got {names!r}")
    found = tuple(names)
    if not all(isinstance(name, str) for name in found):
        raise ConfigurationError(f"capabilities must be a list of texts, got {found!r}")
    return found


def check_timeout(timeout: object) -> None:
    """Raise ConfigurationError unless `timeout` is a number of seconds from 0, or None."""
    if timeout is None or (type(timeout) is float and timeout >= 0):
        return
    if isinstance(timeout, int | float) and not isinstance(timeout, bool):
        try:
            if float(timeout) >= 0:
                return
        except OverflowError:
            raise ConfigurationError("timeout must be a number of seconds from 0, or None, got one too large") from None
    raise ConfigurationError(f"timeout must be a number of seconds from 0, or None, got {timeout!r}")


def check_subscription(value: object) -> None:
    """Raise ConfigurationError unless `value` is a Subscription."""
    from acquit.client.subscriptions import Subscription

    if not isinstance(value, Subscription):
        raise ConfigurationError(f"subscription must be a Subscription(name=...), got {value!r}")


def check_outcome(name: str, value: object) -> None:
    """Raise ConfigurationError, naming the setting, unless `value` is an outcome."""
    if not isinstance(value, Accepted | Rejected | Released | Modified):
        raise ConfigurationError(
            f"{name} must be an outcome, such as Released() or Modified(delivery_failed=True), got {value!r}"
        )


MECHANISMS = ("EXTERNAL", "SCRAM-SHA-256", "PLAIN", "ANONYMOUS")
"""The SASL mechanisms that there are, the strongest first."""


def check_mechanisms(names: object) -> None:
    """Raise ConfigurationError for a list that names another mechanism, or one twice."""
    known = isinstance(names, tuple | list) and set(names) <= set(MECHANISMS)
    if not known or len(set(names)) != len(names):  # type: ignore[arg-type,call-overload]
        raise ConfigurationError(f"sasl_mechanisms must be some of {', '.join(MECHANISMS)}, got {names!r}")


DEFAULT_RECONNECT = Reconnect()
_COUNT_MAX = 0x7FFF_FFFF
_TIME_MS_MAX = 0x7FFF_FFFF


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectOptions:
    """Options of one connection. Raises ConfigurationError, naming the field, for a value out of its range."""

    hostname: str | None = None
    """The host named in *open* (2.7.1); by default that of the URL. Brokers that serve several names choose by it."""

    connect_timeout_ms: int = 10_000
    """Milliseconds from the first packet to the peer's *open*, at most: TCP, TLS and SASL included."""

    answer_timeout_ms: int = 10_000
    """Milliseconds that the peer has to answer a *begin* or an *attach*, or to give back the credit of a `receive` with
    prefetch 0 whose time is over."""

    close_timeout_ms: int = 5_000
    """Milliseconds that `close` waits: for outcomes of sends, answers to acknowledgements, and the peer's own close."""

    ack_timeout_ms: int = 30_000
    """Milliseconds that an acknowledgement waits for the peer's answer before its receipt says *unknown*."""

    ack_capacity: int = 10_000
    """Deliveries of one session that may be acknowledged without waiting (``sync=False``) and not answered yet. Beyond,
    such a call waits for the oldest of them. A receiver to which the peer owes so many answers, in time or not, gets no
    more messages before it gives some: `receive` raises CreditExhausted."""

    send_timeout_ms: int = 60_000
    """Milliseconds that `send`, `commit` and `rollback` wait for their outcome if their `timeout` says nothing, and
    that what was sent without waiting waits for a connection to be restored."""

    in_doubt_is_rolled_back: bool = False
    """True if a commit that is in doubt raises TransactionRolledBack, as JMS does, and not TransactionInDoubt. All of
    it may have happened all the same: for programs that repeat the work, and mind no duplicates."""

    unsettled_max: int = 10_000
    """Messages without an acknowledgement that one receiver may have, in the buffer or handed out, in the modes that
    give credit back on hand-over and acknowledge later (TRANSACTED, DUPS_OK)."""

    idle_timeout_ms: int = 30_000
    """Idle time-out for the peer, in milliseconds (2.4.5): it is dropped when silent for twice as long. 0: no limit."""

    max_frame_size: int = 65_536
    """The largest frame we accept, in bytes."""

    max_message_size: int = 64 * 1024 * 1024
    """The largest message a receiver accepts, in bytes; 0 for no limit."""

    channel_max: int = 255
    """Highest channel number: one less than the number of sessions that the connection may have."""

    properties: Mapping[str, object] | None = None
    """Shown to the peer in *open*, besides product and version."""

    in_band_tls: bool = False
    """True if a connection to an ``amqp://`` URL begins with AMQP's TLS header (5.2.1), and goes on over TLS on the
    same port, or not at all. Few brokers know this; ``amqps://``, TLS from the first byte, is what all know."""

    reconnect: Reconnect | None = DEFAULT_RECONNECT
    """The policy to restore a lost connection. None: it is not, and every wait raises ConnectionLost at once."""

    sasl_mechanisms: tuple[str, ...] = ()
    """The SASL mechanisms that may be used, the preferred one first, of EXTERNAL, SCRAM-SHA-256, PLAIN and ANONYMOUS.
    By default the strongest that the peer offers and for which there is what it takes: a TLS context (EXTERNAL, only
    where no user is named), a user and a password (SCRAM-SHA-256, then PLAIN), or neither (ANONYMOUS)."""

    tracer: Tracer | None = None
    """An observer of sends, messages and outcomes: `acquit.telemetry.OpenTelemetry`."""

    def __post_init__(self) -> None:
        for name in (
            "connect_timeout_ms",
            "answer_timeout_ms",
            "close_timeout_ms",
            "ack_timeout_ms",
            "send_timeout_ms",
        ):
            check_range(name, getattr(self, name), 1, _TIME_MS_MAX)
        check_range("idle_timeout_ms", self.idle_timeout_ms, 0, _TIME_MS_MAX)
        check_range("unsettled_max", self.unsettled_max, 1, _COUNT_MAX)
        check_range("ack_capacity", self.ack_capacity, 1, _COUNT_MAX)
        check_mechanisms(self.sasl_mechanisms)
        check_text("hostname", self.hostname)
        check_mapping("properties", self.properties)
        check_flag("in_doubt_is_rolled_back", self.in_doubt_is_rolled_back)
        check_flag("in_band_tls", self.in_band_tls)
        if not (self.reconnect is None or isinstance(self.reconnect, Reconnect)):
            raise ConfigurationError(f"reconnect must be a Reconnect or None, got {self.reconnect!r}")
        if self.tracer is not None and not hasattr(self.tracer, "begin_send"):
            raise ConfigurationError(f"tracer must be a tracer, such as OpenTelemetry(), or None, got {self.tracer!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class SenderSpec:
    """All it takes to attach a sender, and to attach it again."""

    name: str
    address: str | None
    """None is the anonymous terminus: each message goes where its `to` says."""
    delivery_mode: DeliveryMode
    topic: bool
    unreliable: bool
    """Sends are settled as they are sent, and never sent again: at most once."""
    capabilities: tuple[str, ...]
    properties: Mapping[str, object] | None
    buffer_messages: int
    buffer_bytes: int
    named: bool = False
    """True if the user chose the name."""
    exactly_once: DeliveryStore | None = None
    """The store by which sends are resumed."""

    def __post_init__(self) -> None:
        _check_address("sender", self.address)
        if not isinstance(self.delivery_mode, DeliveryMode):
            raise ConfigurationError(
                f"delivery_mode must be DeliveryMode.PERSISTENT or NON_PERSISTENT, got {self.delivery_mode!r}"
            )
        check_flag("topic", self.topic)
        check_flag("unreliable", self.unreliable)
        check_mapping("properties", self.properties)
        check_range("buffer_messages", self.buffer_messages, 1, _COUNT_MAX)
        check_range("buffer_bytes", self.buffer_bytes, 1, _COUNT_MAX)

    @property
    def what(self) -> str:
        """Description of the sender, for messages to people."""
        return f"the sender to {self.address!r}" if self.address is not None else "the anonymous sender"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiverSpec:
    """All it takes to attach a receiver, and to attach it again."""

    name: str
    """Name of the link. Links of a shared subscription are counted in it: see `subscriptions`."""
    address: str | None
    """None: a temporary node, which the peer makes and names."""
    prefetch: int
    """Messages; 0: one credit for each `receive`, taken back at its timeout."""
    prefetch_bytes: int
    browse: bool = False
    default_outcome: Outcome | None = None
    filters: Mapping[str, object] | None = None
    selector: str | None = None
    no_local: bool = False
    topic: bool = False
    subscription: Subscription | None = None
    unreliable: bool = False
    """The peer settles messages as it sends them, whatever the mode of the session: at most once."""
    target: str | None = None
    capabilities: tuple[str, ...] = ()
    properties: Mapping[str, object] | None = None
    named: bool = False
    """True if the user chose the name."""
    exactly_once: DeliveryStore | None = None
    """The store by which deliveries are resumed."""
    in_runs: bool = False
    """True if payloads are handed out, and no messages (`run_receiving`)."""

    def __post_init__(self) -> None:
        _check_address("receiver", self.address)
        if self.default_outcome is not None:
            check_outcome("default_outcome", self.default_outcome)
        check_text("selector", self.selector)
        check_text("target", self.target)
        for name in ("browse", "no_local", "topic", "unreliable"):
            check_flag(name, getattr(self, name))
        check_mapping("properties", self.properties)
        check_mapping("filters", self.filters)
        if self.selector is not None and not self.selector.strip():
            raise ConfigurationError(f"selector must be a text that is not empty, found {self.selector!r}")
        if self.subscription is not None:
            check_subscription(self.subscription)
        if self.subscription is not None and (self.address is None or self.browse):
            raise ConfigurationError("a subscription needs the address of a topic, and is not browsed")
        check_range("prefetch", self.prefetch, 0, _COUNT_MAX)
        check_range("prefetch_bytes", self.prefetch_bytes, 1, _COUNT_MAX)

    @property
    def what(self) -> str:
        """Description of the receiver, for messages to people."""
        return (
            f"the receiver from {self.address!r}" if self.address is not None else "the receiver from a temporary node"
        )


def _check_address(what: str, address: object) -> None:
    if address is not None and not (isinstance(address, str) and address):
        raise ConfigurationError(f"the address of a {what} must be a string that is not empty, got {address!r}")


def check_max_messages(max_messages: int) -> None:
    """Raise ConfigurationError for a number of messages to receive that makes no sense."""
    check_range("max_messages", max_messages, 1, _COUNT_MAX)


def link_name(address: str | None) -> str:
    """A name that no other link has: names are shared by all connections of one container id (2.6.1)."""
    return f"{address or 'anonymous'}-{uuid.uuid4().hex[:16]}"

"""The treatment of messages at an address: the policy, and the rules that it is put together from.

Who adds a setting puts it under its concern, says in its docstring what it means, its unit and what 0 means, and lists
it in docs/configuration.md, which a test compares with this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Literal

from acquit.broker.options.checks import TIME_MS_MAX, UINT_MAX, check_fields, check_pattern, meant
from acquit.errors import ConfigurationError
from acquit.store.options import MIB

RELEASES_UNPACED: Final = 10
"""Releases of a message before further ones are paced."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AddressPolicy:
    """The treatment of messages at an address."""

    # -- nodes --------------------------------------------------------------------------------------------------------

    create: bool = True
    """A link to an address that does not exist makes a queue of it; otherwise it is refused with amqp:not-found, unless
    its terminus asks for the node to be made (capability create-on-demand, as Qpid's clients have it)."""

    auto_delete: bool = False
    """A queue that was made by a link is deleted when it is empty and no link uses it."""

    routing: Literal["", "anycast", "multicast"] = ""
    """Meaning of the address to links that do not say: "anycast", a queue, where each message goes to one consumer, or
    "multicast", a topic, where it goes to every subscription. Empty: a topic if there is one of this name and no queue,
    otherwise a queue."""

    unroutable: Literal["accept", "release"] = "accept"
    """Treatment of a message to a topic where no subscription takes it: "accept" accepts and counts it (as *unrouted*),
    "release" gives it back to its sender."""

    # -- messages that nobody takes -----------------------------------------------------------------------------------

    dead_letter_address: str = "DLQ"
    """Address for rejected messages, and those that were tried too often. Empty: they are dropped (and recorded). A
    message that is rejected at a dead letter or expiry address itself is always dropped."""

    expiry_address: str = "ExpiryQueue"
    """Address for messages whose time to live has passed. Empty: they are dropped."""

    max_delivery_attempts: int = 10
    """A message that failed this often is dead-lettered. What fails is an attempt that a consumer calls
    modified(delivery-failed), or whose lock ran out. 0: never."""

    connection_loss: Literal["count", "dead-letter"] = "count"
    """Effect of a lost connection on the messages that its consumers held: ``count``, it raises their delivery-count
    and is no failure, ``dead-letter``, it is a failure as any other."""

    orderly_close: Literal["uncounted", "count"] = "uncounted"
    """Effect on its messages when a receiver closes its link, session or connection over them, with the default-outcome
    modified(delivery-failed): ``uncounted``, none, ``count``, it raises their delivery-count. A failure it never is."""

    # -- other attempts -----------------------------------------------------------------------------------------------

    redelivery_delay_ms: int = 0
    """Milliseconds that a message waits after a failed attempt, or a lost connection."""

    redelivery_multiplier: float = 1.0
    """The delay grows by this factor with each failure."""

    redelivery_delay_ms_max: int = 0
    """Longest delay that the multiplier leads to. 0: ten times redelivery_delay_ms."""

    redelivery_jitter: float = 0.0
    """Each delay is longer or shorter by up to this part of it, at random, so that messages that failed together are
    not tried again together. From 0 to 1; the longest delay stays the longest."""

    redelivery_blocks: Literal["none", "queue", "group"] = "none"
    """Messages that one waiting for another attempt holds up: ``none``, ``queue``, all behind it in its queue,
    ``group``, those of its group. Messages that consumers hold already are not held up."""

    max_releases: int = 0
    """A message that consumers gave back this often without its attempt counting (released, or modified without
    delivery-failed) is dead-lettered. 0: never."""

    release_delay_ms_max: int = 200
    """Longest pause of a message that is released again and again. From the eleventh release on it comes back no more
    often than once in 1 ms, then in 2, 4, 8 ..., and at last in this many milliseconds. 0: no pause."""

    # -- time ---------------------------------------------------------------------------------------------------------

    lock_duration_ms: int = 0
    """Milliseconds that a consumer may hold a message without an outcome, before the attempt is taken for failed and
    the message is given to others. The consumer starts it again with a disposition of state *received*. 0: as long as
    its link lasts."""

    default_ttl_ms: int = 0
    """Time to live of messages that have none. 0: they live for ever."""

    ttl_ms_max: int = 0
    """A longer time to live is cut to this. 0: none is cut."""

    # -- size, and what gives way -------------------------------------------------------------------------------------

    bytes_max: int = 0
    """Size of the queue, in bytes of messages as they were posted; what is acquired counts. full_policy says what
    happens there. 0: no limit."""

    messages_max: int = 0
    """The same, in messages."""

    full_policy: Literal["page", "block", "reject", "drop-oldest"] = "block"
    """Treatment of postings to a queue that has reached bytes_max or messages_max. ``page``: they are taken, their
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

    memory_bytes_max: int = 64 * MIB
    """Bodies of one queue in memory. Durable ones beyond are read back from the journal when they are needed; others
    are bounded by it as by bytes_max."""

    # -- postings that come twice -------------------------------------------------------------------------------------

    duplicate_detection: Literal["off", "id", "message-id"] = "id"
    """Postings that come twice are answered and not posted again. ``id``: told by the application property
    ``_AMQ_DUPL_ID``. ``message-id``: where there is none, by the message id. ``off``: none is told."""

    duplicate_window: int = 20_000
    """Ids that an address remembers: its latest."""

    # -- who gets what ------------------------------------------------------------------------------------------------

    consumers_max: int = 0
    """Consumers of a queue; one more is refused. 0: no limit."""

    prefetch_max: int = 0
    """Messages a consumer may hold unsettled, whatever its credit. 0: no limit."""

    consumers: Literal["shared", "single-active", "exclusive"] = "shared"
    """Consumers of a queue that are served. ``shared``: all of them. ``single-active``: one at a time, another takes
    over when it has gone. ``exclusive``: one, and others are refused with amqp:resource-locked."""

    message_groups: bool = True
    """All messages of one group-id go to one consumer, while it lives."""

    non_destructive: bool = False
    """Every receiver reads the whole queue and removes nothing; what it says of a message is recorded."""

    browsers_max: int = 100
    """Links of a queue that only look; one more is refused. 0: no limit."""

    def __post_init__(self) -> None:
        check_fields(
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
        if not self.last_value_key:
            raise ConfigurationError("last_value_key: expected the name of an application property, found ''")

    def redelivery_delay(self, failures: int, chance: float = 0.5) -> int:
        """Milliseconds before the attempt that follows `failures` failed ones. `chance`, from 0 to 1, places it between
        the shortest and the longest that the jitter allows."""
        if not self.redelivery_delay_ms:
            return 0
        longest = self.redelivery_delay_ms_max or 10 * self.redelivery_delay_ms
        # The exponent is bounded before the power is taken: 1000.0 ** 65534 is no float.
        growth = self.redelivery_multiplier ** min(failures - 1, 100) if failures > 1 else 1.0
        delay = min(longest, self.redelivery_delay_ms * growth)
        return max(1, int(min(longest, delay * (1 + self.redelivery_jitter * (2 * chance - 1)))))

    def release_delay(self, releases: int) -> int:
        """Milliseconds between two returns of a message that has been released `releases` times."""
        beyond = releases - RELEASES_UNPACED
        if beyond <= 0 or not self.release_delay_ms_max:
            return 0
        return min(self.release_delay_ms_max, 1 << min(beyond - 1, 40))


POLICY_FIELDS: Final = tuple(spec.name for spec in fields(AddressPolicy))


@dataclass(frozen=True, slots=True)
class AddressRule:
    """The settings that differ at the addresses that `match`: words between dots, ``*`` for one word, ``#`` for any
    number."""

    match: str
    settings: Mapping[str, object] = field(default_factory=dict)
    """Fields of AddressPolicy. What is not set comes from less specific rules, and at last from AddressPolicy."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_pattern("match", self.match)
        if not isinstance(self.settings, Mapping):
            raise ConfigurationError(f"settings: expected them by their names, found {self.settings!r}")
        for name in self.settings:
            if name not in POLICY_FIELDS:
                raise ConfigurationError(f"{name}: no such setting of an address; {meant(name, POLICY_FIELDS)}")
        AddressPolicy(**self.settings)  # type: ignore[arg-type]  # it validates what it is given


__all__ = ["POLICY_FIELDS", "RELEASES_UNPACED", "AddressPolicy", "AddressRule"]

"""Addresses of a world: the policy of each, drawn from traits, and what senders put into the messages for it.

A *trait* is something that an address can be told, and that users notice: a ring, a lock, a time to live. Each address
of a world has some of them, in any combination, so that the oracle has to know what each allows and forbids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from acquit.broker.options import AddressRule

HOURS_MS: Final = 3_600_000
VALUE: Final = "value"
"""The application property that last-value queues go by."""
COLOURS: Final = ("red", "blue")
"""Values of the application property `colour`, by which selectors choose."""

TRAITS: Final[Mapping[str, Callable[[Random], Mapping[str, object]]]] = {
    "attempts": lambda rng: {
        "max_delivery_attempts": rng.randint(1, 3),
        "connection_loss": rng.choice(("count", "dead-letter")),
    },
    "delays": lambda rng: {
        "redelivery_delay_ms": rng.choice((50, 500)),
        "redelivery_multiplier": rng.choice((1.0, 2.0)),
        "redelivery_delay_ms_max": 1_000,
        "redelivery_blocks": rng.choice(("none", "queue", "queue", "group")),
    },
    "expires": lambda rng: {"default_ttl_ms": rng.choice((0, 0, 2_000))},
    "scheduled": lambda _: {},
    "groups": lambda _: {},
    "priorities": lambda _: {},
    "single": lambda rng: {"consumers": rng.choice(("single-active", "exclusive"))},
    "last_value": lambda _: {"last_value": True, "last_value_key": VALUE},
    "ring": lambda rng: {"ring_size": rng.choice((1, 5, 40))},
    "full": lambda rng: {
        "messages_max": rng.choice((1, 10, 50)),
        "full_policy": rng.choice(("page", "block", "block", "reject", "drop-oldest")),
    },
    "heavy": lambda rng: {
        "bytes_max": rng.choice((3_000, 20_000)),
        "full_policy": rng.choice(("page", "block", "block", "reject", "drop-oldest")),
    },
    "paged": lambda _: {"memory_bytes_max": 65_536},
    "unique": lambda _: {"duplicate_detection": "message-id", "duplicate_window": 2_000},
    "locks": lambda rng: {"lock_duration_ms": rng.choice((100, 1_000))},
    "few": lambda rng: {"consumers_max": rng.choice((1, 2))},
    "narrow": lambda _: {"prefetch_max": 1},
    "releases": lambda _: {"max_releases": 3},
    "nowhere": lambda _: {"dead_letter_address": "", "expiry_address": ""},
}
"""What each makes of a policy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """An address."""

    name: str
    traits: frozenset[str] = frozenset()
    settings: Mapping[str, Any]
    """Of its policy."""
    topic: bool = False

    def __str__(self) -> str:
        return f"{self.name}({','.join(sorted(self.traits))})"

    @property
    def rule(self) -> AddressRule:
        """As the broker is told."""
        return AddressRule(self.name, self.settings)

    @property
    def attempts_max(self) -> int:
        return int(self.settings["max_delivery_attempts"])

    @property
    def lock_s(self) -> float:
        """How long a consumer has a message; 0: as long as its link lasts."""
        return int(self.settings.get("lock_duration_ms", 0)) / 1000

    @property
    def displaces(self) -> bool:
        """What is accepted may give way to what comes later."""
        return bool(self.traits & {"ring", "last_value"}) or self.settings.get("full_policy") == "drop-oldest"

    @property
    def drops(self) -> bool:
        """What fails too often, comes back too often or expires here goes nowhere."""
        return "nowhere" in self.traits

    @property
    def messages_max(self) -> int:
        """No more are in it at rest; 0: as many as like."""
        limits = [self.settings.get("ring_size", 0)]
        if self.settings.get("full_policy") in ("block", "reject", "drop-oldest"):
            limits.append(self.settings.get("messages_max", 0))
        return min((limit for limit in limits if limit), default=0)

    def dress(self, rng: Random) -> dict[str, Any]:
        """What a message for it says, beside its body (the arguments of `Message`)."""
        traits = self.traits
        fields: dict[str, Any] = {"application_properties": {"colour": rng.choice(COLOURS)}}
        if "expires" in traits and rng.random() < 0.7:
            fields["ttl_ms"] = rng.choice((1, 300, 2_000, 100 * HOURS_MS))
        if "scheduled" in traits and rng.random() < 0.5:
            fields["annotations"] = {"x-opt-delivery-delay": rng.choice((1, 200, 2_000))}
        if "groups" in traits and rng.random() < 0.7:
            fields["group_id"] = f"group-{rng.randrange(3)}"
        if "priorities" in traits:
            fields["priority"] = rng.choice((0, 4, 4, 9))
        if "last_value" in traits and rng.random() < 0.8:
            fields["application_properties"][VALUE] = f"value-{rng.randrange(4)}"
        return fields


def draw(name: str, rng: Random, traits: tuple[str, ...], *, topic: bool = False) -> Place:
    """An address with some of these traits."""
    mine = [trait for trait in traits if rng.random() < 2.5 / len(TRAITS)]
    settings: dict[str, object] = {"max_delivery_attempts": 0}
    for trait in mine:
        settings |= TRAITS[trait](rng)
    if topic:
        settings["routing"] = "multicast"
    return Place(name=name, traits=frozenset(mine), settings=settings, topic=topic)


__all__ = ["COLOURS", "TRAITS", "VALUE", "Place", "draw"]

"""Limits drawn for a broker: mostly the usual ones, and now and then the least that a limit may be."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from acquit.broker.options import BrokerLimits, ConnectionLimits, TransactionLimits

SHARE: Final = 0.06
"""Of brokers for which a limit is at its least."""
SHARES: Final = {"credit_max": 0.15}
"""The same, of some limits: who has little credit often waits for more."""
LEAST_OF_A_CONNECTION: Final = {
    "sessions_max": 1,
    "links_max": 1,
    "unsettled_max": 1,
    "credit_max": 1,
    "turn_cost_max": 100,
    "max_frame_size": 512,
}
# Without those of which a promise speaks: how many ids are remembered.
LEAST_OF_THE_BROKER: Final = {
    "connections_max": 1,
    "connections_per_address_max": 1,
    "unauthenticated_max": 1,
    "requests_max": 1,
    "sender_marks_max": 1,
    "memory_bytes_max": 1 << 20,
}
LEAST_OF_TRANSACTIONS: Final = {"per_connection_max": 1, "postings_max": 1, "retirements_max": 1, "fates_max": 1}


def draw_limits(rng: Random, *, idle_timeout_ms: int) -> dict[str, Any]:
    """The limits among `BrokerOptions`."""

    def some(least: dict[str, int]) -> dict[str, Any]:
        return {name: value for name, value in least.items() if rng.random() < SHARES.get(name, SHARE)}

    return {
        "connection": ConnectionLimits(idle_timeout_ms=idle_timeout_ms, **some(LEAST_OF_A_CONNECTION)),
        "limits": BrokerLimits(**some(LEAST_OF_THE_BROKER)),
        "transactions": TransactionLimits(**some(LEAST_OF_TRANSACTIONS)),
    }


def draw_less(rng: Random) -> dict[str, int]:
    """What a broker grants its connections that is started again with less: one of these limits, at its least."""
    return {(name := rng.choice(("sessions_max", "links_max"))): LEAST_OF_A_CONNECTION[name]}


__all__ = ["draw_less", "draw_limits"]

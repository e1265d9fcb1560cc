"""The troubles of a queue that somebody should look at, as consoles show them and sort by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from acquit.broker.snapshots import oldest_age_ms

if TYPE_CHECKING:
    from acquit.broker.nodes.node import Queue
    from acquit.broker.nodes.topics import Topic

OLD_MS: Final = 600_000
"""Milliseconds that a message may be available before it counts as old."""

Condition = Callable[["Queue", bool, int], object]
"""Tells of a queue, of whether dead or expired letters go there, and of the time in microseconds."""

TROUBLES: Final[tuple[tuple[str, Condition], ...]] = (
    ("undeliverable", lambda queue, final, now_us: queue.undeliverable),
    ("dead-letters", lambda queue, final, now_us: final and queue.live),
    ("no-consumer", lambda queue, final, now_us: not final and queue.available and not queue.consumers),
    ("paused", lambda queue, final, now_us: queue.consumers_paused or queue.producers_paused),
    ("old", lambda queue, final, now_us: not final and queue.available and oldest_age_ms(queue, now_us) > OLD_MS),
    ("suspended", lambda queue, final, now_us: queue.suspended),
)
"""Names of troubles, the worst first, each with the condition for it."""
_PAUSED: Final = 1 << [name for name, _ in reversed(TROUBLES)].index("paused")


def troubles_of_queue(queue: Queue, final: bool, now_us: int) -> int:
    """Return the troubles of a queue as a number, which is the higher the worse they are. `final`: dead or expired
    letters go there."""
    found = 0
    for _, condition in TROUBLES:
        found = found << 1 | bool(condition(queue, final, now_us))
    return found


def troubles_of_topic(topic: Topic) -> int:
    """Return the same of a topic, which has no messages."""
    return 0 if topic.paused == "none" else _PAUSED


def trouble_names(found: int) -> list[str]:
    """Return the names of such troubles, the worst first."""
    last = len(TROUBLES) - 1
    return [name for place, (name, _) in enumerate(TROUBLES) if found >> (last - place) & 1]


__all__ = ["OLD_MS", "TROUBLES", "trouble_names", "troubles_of_queue", "troubles_of_topic"]

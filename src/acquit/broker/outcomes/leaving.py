"""Consumers that leave give back what they held, some in each turn: one may have held all that a session can.

While a consumer has not given back all, nothing of its queue is handed out: what it held stands before what is there,
and goes first. Peers that use other queues notice nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from acquit.broker.message import QueueBase

GIVEN_BACK_MAX: Final = 40
"""Deliveries given back in one turn, about. Each is a change of state, often with a record, or even a dead letter."""

_T = TypeVar("_T")


@dataclass(slots=True)
class _Departure:
    """A consumer that has left, and what it leaves behind."""

    queue: QueueBase
    held: Sequence[Any]
    give_back: Callable[[Any], None]
    over: Callable[[], None]
    given_back: int = 0
    """The number of those given back; what is behind them is left."""


class Leaving:
    """Gives back what the consumers held that leave."""

    def __init__(self) -> None:
        self._departures: deque[_Departure] = deque()
        self._left = GIVEN_BACK_MAX

    def leave(
        self,
        queue: QueueBase,
        held: Sequence[_T],
        give_back: Callable[[Sequence[_T]], None],
        over: Callable[[], None],
    ) -> None:
        """Give back what a consumer of `queue` held whose link has ended. `over` is called when all of it is: at once
        where it is little."""
        if len(held) <= self._left:
            self._left -= len(held)
            give_back(held)
            over()
            return
        queue.leaving += 1
        self._departures.append(_Departure(queue, held, give_back, over))

    def run(self) -> bool:
        """Give back as many as one turn has time for. True if some are left."""
        self._left = GIVEN_BACK_MAX
        departures = self._departures
        while departures and self._left > 0:
            departure = departures[0]
            now = departure.held[departure.given_back : departure.given_back + self._left]
            departure.given_back += len(now)
            self._left -= max(1, len(now))
            departure.give_back(now)
            if departure.given_back == len(departure.held):
                departures.popleft()
                departure.queue.leaving -= 1
                departure.over()
        return bool(departures)


__all__ = ["GIVEN_BACK_MAX", "Leaving"]

"""Consumers that leave give back what they held, some in each turn: one may have held all that a session can.

While a consumer has not given back all, nothing of its queue is handed out: what it held stands before what is there,
and goes first. Peers that use other queues notice nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from acquit.broker.dispatching.consumers import Consumer
    from acquit.broker.outcomes.settling import Settling
    from acquit.broker.queue import Ending
    from acquit.protocol.delivery import Delivery

GIVEN_BACK_MAX: Final = 100
"""Deliveries given back in one turn, about. Each is a change of state, often with a record."""


@dataclass(slots=True)
class _Departure:
    """A consumer that has left, and the deliveries that it leaves behind."""

    consumer: Consumer
    deliveries: list[Delivery]
    ending: Ending
    over: Callable[[], None]
    given_back: int = 0
    """How many of the deliveries; what is behind them is left."""


class Leaving:
    """Gives back what the consumers held that leave."""

    def __init__(self, settling: Settling) -> None:
        self._settling = settling
        self._departures: deque[_Departure] = deque()
        self._left = GIVEN_BACK_MAX

    def leave(self, consumer: Consumer, deliveries: list[Delivery], ending: Ending, over: Callable[[], None]) -> None:
        """A consumer's link has ended, with these deliveries unsettled. `over` is called when all are given back: at
        once where they are few."""
        if len(deliveries) <= self._left:
            self._left -= len(deliveries)
            self._settling.ended(consumer, deliveries, ending)
            over()
            return
        consumer.queue.leaving += 1
        self._departures.append(_Departure(consumer, deliveries, ending, over))

    def run(self) -> bool:
        """Another turn: give back as many as there is time for. True if some are left."""
        self._left = GIVEN_BACK_MAX
        departures = self._departures
        while departures and self._left > 0:
            departure = departures[0]
            now = departure.deliveries[departure.given_back : departure.given_back + self._left]
            departure.given_back += len(now)
            self._left -= max(1, len(now))
            self._settling.ended(departure.consumer, now, departure.ending)
            if departure.given_back == len(departure.deliveries):
                departures.popleft()
                departure.consumer.queue.leaving -= 1
                departure.over()
        return bool(departures)


__all__ = ["GIVEN_BACK_MAX", "Leaving"]

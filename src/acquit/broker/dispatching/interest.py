"""What consumers of a queue would take: those who would take the same are one *interest*.

Most queues have one, which is everything. Consumers with another selector, with no-local, with a limit on size that
some message has exceeded, or that called some message undeliverable here, have an interest of their own (or share it
with their like). A message is judged once for each interest, not for each consumer.

Of the messages that are set aside, an interest knows which are for it, up to the place `looked`: those it has *ahead*,
a heap of bounded size. Beyond that place it has not looked; where it has looked at all, it is told of each that is set
aside from then on. So neither its memory nor what it costs to judge grows with how often somebody looks.

Within an interest, consumers that wait for messages stand in a `Line`: higher priorities first, in turns among equals.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from acquit.broker.dispatching.aside import BEYOND, FIRST, rank
from acquit.broker.message import ASIDE, Message

if TYPE_CHECKING:
    from acquit.broker.links.endpoints import Consumer
    from acquit.broker.selector import Fields, Selector

AHEAD_MAX: Final = 1_024
"""Messages that are set aside for one interest and known to be: more are looked for when these have gone."""


class Wants(NamedTuple):
    """What tells interests apart."""

    selector: str | None = None
    """The selector's text: two of the same text select the same."""
    no_local: str | None = None
    """The container whose own postings are passed over."""
    bytes_max: int = 0
    """The largest body; 0 for no limit."""
    terminus: str | None = None
    """For what was called undeliverable there; None where nothing was."""

    @property
    def particular(self) -> bool:
        """Has a consumer of this interest passed over some message, whatever it asked for?"""
        return self.bytes_max > 0 or self.terminus is not None


EVERYTHING: Final = Wants()


class Line:
    """Consumers that wait, in turns; one is in it once."""

    __slots__ = ("_lanes", "count")

    def __init__(self) -> None:
        self._lanes: list[tuple[int, deque[Consumer]]] = []  # the highest priority first
        self.count = 0

    def add(self, consumer: Consumer) -> None:
        """At the end of those of its priority; nothing happens where it is in line already."""
        if consumer.in_line:
            return
        consumer.in_line = True
        self.count += 1
        priority = consumer.priority
        for at, (other, lane) in enumerate(self._lanes):
            if other == priority:
                lane.append(consumer)
                return
            if other < priority:
                self._lanes.insert(at, (priority, deque((consumer,))))
                return
        self._lanes.append((priority, deque((consumer,))))

    def pop(self) -> Consumer | None:
        """The next one, no longer in line; None for nobody."""
        for at, (_, lane) in enumerate(self._lanes):
            if lane:
                consumer = lane.popleft()
                if not lane and len(self._lanes) > 1:
                    del self._lanes[at]
                consumer.in_line = False
                self.count -= 1
                return consumer
        return None

    def add_first(self, consumer: Consumer) -> None:
        """Before all others of its priority: it was taken out, and its turn has not come."""
        self.add(consumer)
        for priority, lane in self._lanes:
            if priority == consumer.priority and len(lane) > 1:
                lane.rotate(1)

    def discard(self, consumer: Consumer) -> None:
        """It does not wait any more."""
        if consumer.in_line:
            consumer.in_line = False
            self.count -= 1
            for _, lane in self._lanes:
                if consumer in lane:
                    lane.remove(consumer)
                    return


class Interest:
    """Consumers of one queue that would take the same."""

    __slots__ = ("_ahead", "line", "looked", "members", "needs_body", "selector", "takes_all", "wants")

    def __init__(self, wants: Wants, selector: Selector | None) -> None:
        self.wants = wants
        self.selector = selector
        self.members = 0
        """Consumers, waiting or not."""
        self.line = Line()
        self.looked = FIRST
        """It knows of all that is set aside below this rank; BEYOND: of all there is."""
        self.needs_body = wants.bytes_max > 0 or (selector is not None and selector.needs_body)
        """Whether a message's body must be in memory to judge it."""
        self.takes_all = wants == EVERYTHING
        """It accepts whatever there is."""
        self._ahead: list[tuple[int, Message]] = []

    def accepts(self, message: Message, fields: Fields | None) -> bool:
        """Is a message for it? `fields` are its own, for the selector; its body is in memory if `needs_body`."""
        wants, extra = self.wants, message.extra
        if extra is not None:
            if wants.terminus is not None and wants.terminus in extra.excluded:
                return False
            if wants.no_local is not None and extra.poster == wants.no_local:
                return False
        if wants.bytes_max and message.body is not None and len(message.body) > wants.bytes_max:
            return False
        return self.selector is None or (fields is not None and self.selector.matches(fields))

    def expect(self, message: Message) -> None:
        """A message that it accepts is aside, at a place where it has looked."""
        ahead = self._ahead
        heappush(ahead, (rank(message), message))
        if len(ahead) > AHEAD_MAX:
            ahead = sorted(pair for pair in ahead if pair[1].flags & ASIDE)  # which is a heap as well
            if len(ahead) > AHEAD_MAX // 2:
                self.looked = min(self.looked, ahead[AHEAD_MAX // 2][0])  # the later half is looked for again
            self._ahead = ahead[: AHEAD_MAX // 2]

    @property
    def looks(self) -> bool:
        """Is there more to look at, and room to remember it?"""
        return self.looked < BEYOND and len(self._ahead) <= AHEAD_MAX // 2

    def first(self) -> Message | None:
        """The first of those it knows to be set aside for it."""
        ahead = self._ahead
        while ahead:
            message = ahead[0][1]
            if message.flags & ASIDE:
                return message
            heappop(ahead)
        return None

    def next_ones(self, limit: int) -> list[Message]:
        """Some of those it has ahead, the first among them, to be read together."""
        return [message for _, message in sorted(self._ahead[: 2 * limit])[:limit] if message.flags & ASIDE]

    def skip(self) -> None:
        """The first one is nothing for it after all."""
        heappop(self._ahead)


__all__ = ["AHEAD_MAX", "EVERYTHING", "Interest", "Line", "Wants"]

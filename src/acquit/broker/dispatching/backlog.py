"""The messages of a queue that wait for a consumer, in order: higher priorities first, then by sequence.

Each priority has a *lane* of two parts. What is posted comes in order and goes to the end of a deque; what returns to
its old place (released, a failed attempt, a delivery time that has come, a durable message that volatile ones overtook
while it was synced) goes into a heap. The next message is the smaller one of the two heads. So posting and taking cost
a step each, and returning the logarithm of how many have returned.

Messages that expired or were purged stay where they are and are passed over when their turn comes (their state is no
longer AVAILABLE); when there are more of them than of the others, the lane is swept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, merge, nsmallest
from itertools import islice

from acquit.broker.message import Message
from acquit.broker.queue import NodeState

_AVAILABLE = NodeState.AVAILABLE
_SWEEP_MIN = 1_000
_PORTION = 5_000


class _Lane:
    """The messages of one priority: the line as it was posted, and a heap of those that returned."""

    __slots__ = ("line", "priority", "returned")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.line: deque[Message] = deque()
        self.returned: list[tuple[int, Message]] = []

    def in_order(self, limit: int | None) -> Iterator[Message]:
        if not self.returned:
            return iter(self.line)
        pairs = sorted(self.returned) if limit is None else nsmallest(limit, self.returned)
        return merge((message for _, message in pairs), self.line, key=_sequence)


def _sequence(message: Message) -> int:
    return message.sequence


class Backlog:
    """The available messages of one queue. `count` is how many there are."""

    __slots__ = ("_absent", "_lanes", "count")

    def __init__(self) -> None:
        self.count = 0
        self._lanes: list[_Lane] = []  # the highest priority first
        self._absent = 0  # messages in lanes that are not AVAILABLE any more

    def add(self, message: Message) -> None:
        """A message is available: put it in its place."""
        self.count += 1
        lane = self._lane(message.priority)
        line = lane.line
        if not line or line[-1].sequence < message.sequence:
            line.append(message)
        else:
            heappush(lane.returned, (message.sequence, message))

    def extend(self, messages: list[Message]) -> None:
        """`add` for many that are in order."""
        first = messages[0]
        lane = self._lane(first.priority)
        line = lane.line
        mixed = any(message.priority != first.priority for message in messages)
        if mixed or (line and line[-1].sequence > first.sequence):
            for message in messages:
                self.add(message)
            return
        line.extend(messages)
        self.count += len(messages)

    def take(self, limit: int) -> list[Message]:
        """The next messages, at most `limit`, no longer counted; they are the caller's now."""
        taken: list[Message] = []
        for lane in self._lanes:
            line, returned = lane.line, lane.returned
            while len(taken) < limit and (line or returned):
                if returned and (not line or returned[0][0] < line[0].sequence):
                    message = heappop(returned)[1]
                else:
                    message = line.popleft()
                if message.state is _AVAILABLE:
                    taken.append(message)
                else:
                    self._absent -= 1
            if len(taken) == limit:
                break
        self.count -= len(taken)
        return taken

    def put_back(self, messages: list[Message]) -> None:
        """Messages of the last `take`, which were not used after all: in front again."""
        for message in reversed(messages):
            lane = self._lane(message.priority)
            if lane.line and lane.line[0].sequence < message.sequence:
                heappush(lane.returned, (message.sequence, message))
            else:
                lane.line.appendleft(message)
        self.count += len(messages)

    def peek(self) -> Message | None:
        """The next message, which stays where it is; None for none."""
        for lane in self._lanes:
            line, returned = lane.line, lane.returned
            while line or returned:
                if returned and (not line or returned[0][0] < line[0].sequence):
                    message = returned[0][1]
                    if message.state is _AVAILABLE:
                        return message
                    heappop(returned)
                else:
                    message = line[0]
                    if message.state is _AVAILABLE:
                        return message
                    line.popleft()
                self._absent -= 1
        return None

    def oldest(self) -> Message | None:
        """The message with the lowest sequence, whatever its priority; it stays where it is. None for none."""
        first: Message | None = None
        for lane in self._lanes:
            line, returned = lane.line, lane.returned
            while line and line[0].state is not _AVAILABLE:
                line.popleft()
                self._absent -= 1
            while returned and returned[0][1].state is not _AVAILABLE:
                heappop(returned)
                self._absent -= 1
            heads = [line[0]] if line else []
            if returned:
                heads.append(returned[0][1])
            for message in heads:
                if first is None or message.sequence < first.sequence:
                    first = message
        return first

    def left(self, count: int = 1) -> None:
        """Count so many messages in it as no longer available; they stay in place until they are passed or swept."""
        self.count -= count
        self._absent += count
        if self._absent > _SWEEP_MIN and self._absent > self.count:
            self._sweep()

    def next_messages(self, limit: int | None = None) -> Iterator[Message]:
        """Return what `take` would give, in order, without taking it. Nothing may be added meanwhile."""
        waiting = (message for lane in self._lanes for message in lane.in_order(limit) if message.state is _AVAILABLE)
        return islice(waiting, limit)

    def remembered(self) -> Iterator[Message]:
        """Return what is in it now, in order, whatever becomes of it while the caller goes through it. What has left
        meanwhile is among it. To begin costs no more than a copy of the places."""
        return _in_order([(lane.line.copy(), lane.returned.copy()) for lane in self._lanes])

    def lanes_above(self, sequence: int, limit: int) -> Iterator[list[Message]]:
        """Return, of each priority, the messages with higher sequences: the first ones, at most `limit`, of what was
        posted, and by portions all of what has returned to its place, in no order. They stay where they are."""
        for lane in list(self._lanes):
            behind = islice(lane.line, bisect_right(lane.line, sequence, key=_sequence), None)
            yield list(islice((message for message in behind if message.state is _AVAILABLE), limit))
            returned = list(lane.returned)
            for at in range(0, len(returned), _PORTION):
                yield [message for _, message in returned[at : at + _PORTION]]

    def _sweep(self) -> None:
        for lane in self._lanes:
            lane.line = deque(message for message in lane.line if message.state is _AVAILABLE)
            lane.returned = [pair for pair in lane.returned if pair[1].state is _AVAILABLE]
            heapify(lane.returned)
        self._lanes = [lane for lane in self._lanes if lane.line or lane.returned]
        self._absent = 0

    def _lane(self, priority: int) -> _Lane:
        lanes = self._lanes
        for index, lane in enumerate(lanes):
            if lane.priority == priority:
                return lane
            if lane.priority < priority:
                lanes.insert(index, _Lane(priority))
                return lanes[index]
        lanes.append(_Lane(priority))
        return lanes[-1]


def _in_order(lanes: list[tuple[deque[Message], list[tuple[int, Message]]]]) -> Iterator[Message]:
    """Take the messages out of lanes of which nobody else knows."""
    for line, returned in lanes:
        while line or returned:
            if returned and (not line or returned[0][0] < line[0].sequence):
                yield heappop(returned)[1]
            else:
                yield line.popleft()


__all__ = ["Backlog"]

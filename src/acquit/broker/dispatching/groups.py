"""Message groups: all messages of one group-id go to one consumer, in order, while it lives (properties, 3.2.4).

The first message of a group that is handed out binds the group to the consumer that gets it; the consumer's end, or a
message that closes the group (group-sequence 0xFFFFFFFF, JMSXGroupSeq -1), frees it. What is retained of the group for
that consumer is anybody's then; so where that was posted before the last message, or is much, the group stays bound.
One that comes back after it has closed its group closes no other of that name. A message of the group that its
consumer's selector does not match may go to another one, and binds nothing.

The map is bounded: beyond `GROUPS_MAX` bound groups, further ones are bound by the hash of their id, many in one
bucket. So their messages stay together and in order all the same, only no longer evenly spread.

Where the address says so, a message that waits for another attempt holds back those of its group: they are *parked*
(set aside, and for nobody) until it has gone.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from zlib import crc32

from acquit.broker.dispatching.aside import Aside, rank
from acquit.broker.message import ASIDE, Message

if TYPE_CHECKING:
    from acquit.broker.message_run import MessageRun

GROUPS_MAX: Final = 65_536
"""Groups of one queue that are bound one by one."""
BUCKETS: Final = 1_024
"""Buckets in which further groups are bound, many in one."""
CLOSING: Final = 0xFFFF_FFFF
"""The group-sequence of a group's last message."""

HANDED_OVER_MAX: Final = 256
"""Messages that may wait behind the last of a group for it to be freed: each of them is placed anew then."""

_SLACK: Final = 64
_SWEEP_MIN: Final = 1_024

Consumer = TypeVar("Consumer")
Key = str | int
"""A group's id, or the number of its bucket."""


class Retained:
    """Messages that are set aside for one consumer alone, as their groups are bound to it: each group's in order.

    Some may be gone. To take out what there is of one group costs nothing for the others. What came together may be
    in `runs`, until somebody asks for more than those.
    """

    __slots__ = ("_aside", "_firsts", "_groups", "_sequences", "_swept_at", "runs")

    def __init__(self, aside: Aside) -> None:
        self._aside = aside
        self.runs: deque[MessageRun] = deque()
        """Messages that came together, in order. `Aside` puts them here and takes them."""
        self._groups: dict[str, list[tuple[int, Message]]] = {}  # a heap for each; none of them is empty
        self._firsts: list[tuple[int, str]] = []  # a heap of where groups begin; some have gone, or begin elsewhere
        self._sequences: set[int] = set()  # of all messages in the heaps
        self._swept_at = _SWEEP_MIN  # number of messages at which those that are gone are struck off

    def __len__(self) -> int:
        """Return how many there are, with some that are gone."""
        return len(self._sequences)

    def add(self, group: str, message: Message) -> None:
        """Retain a message of this group. Nothing happens where it is retained already."""
        self._lay_out()
        if message.sequence in self._sequences:
            return
        if len(self._sequences) >= self._swept_at:
            self._sweep()
        self._sequences.add(message.sequence)
        place = rank(message)
        heap = self._groups.setdefault(group, [])
        heappush(heap, (place, message))
        if heap[0][0] == place:
            heappush(self._firsts, (place, group))

    @property
    def is_empty(self) -> bool:
        """True if there is nothing that is still aside."""
        return not self.runs and self.first() is None

    def first(self) -> Message | None:
        """Return the first one that is still aside; None for none."""
        self._lay_out()
        firsts = self._firsts
        while firsts:
            place, group = firsts[0]
            heap = self._groups.get(group)
            if heap is None or heap[0][0] != place:
                heappop(firsts)
            elif heap[0][1].flags & ASIDE:
                return heap[0][1]
            else:
                self.skip()
        return None

    def skip(self) -> None:
        """Strike off the first one, which `first` has returned."""
        _, group = heappop(self._firsts)
        heap = self._groups[group]
        self._sequences.discard(heappop(heap)[1].sequence)
        if heap:
            heappush(self._firsts, (heap[0][0], group))
        else:
            del self._groups[group]

    def take_behind(self, last: Message, group: str) -> list[Message] | None:
        """Strike off all of a group, whose last message is on its way, and return them. None, and nothing is struck
        off, where some were posted before that one, or there are more than `HANDED_OVER_MAX`."""
        self._lay_out()
        heap = self._groups.get(group, ())
        if len(heap) > HANDED_OVER_MAX:
            return None
        messages = [message for _, message in heap if message.flags & ASIDE]
        if any(message.sequence < last.sequence for message in messages):
            return None
        self._sequences.difference_update([message.sequence for _, message in heap])
        self._groups.pop(group, None)
        if len(self._firsts) > 2 * len(self._groups) + _SLACK:
            self._firsts = sorted((heap[0][0], other) for other, heap in self._groups.items())
        return messages

    def take_all(self) -> list[Message]:
        """Strike off all there are, and return them."""
        self._lay_out()
        messages = [message for heap in self._groups.values() for _, message in heap]
        self._groups.clear()
        self._firsts.clear()
        self._sequences.clear()
        return messages

    def _lay_out(self) -> None:
        if self.runs:
            self._aside.lay_out(self)

    def _sweep(self) -> None:
        """Strike off all that are gone."""
        kept = {group: [entry for entry in heap if entry[1].flags & ASIDE] for group, heap in self._groups.items()}
        self._groups = {group: heap for group, heap in kept.items() if heap}
        for heap in self._groups.values():
            heap.sort()
        self._firsts = sorted((heap[0][0], group) for group, heap in self._groups.items())
        self._sequences = {message.sequence for heap in self._groups.values() for _, message in heap}
        self._swept_at = _SWEEP_MIN + 2 * len(self._sequences)


class Groups(Generic[Consumer]):
    """Bindings of groups to consumers, in one queue."""

    __slots__ = ("_owners", "parked")

    def __init__(self) -> None:
        self._owners: dict[Key, Consumer] = {}
        self.parked: dict[str, dict[int, Message]] = {}
        """Messages that are set aside until a delayed one has gone, by group and sequence."""

    def __len__(self) -> int:
        return len(self._owners)

    def owner(self, group: str) -> Consumer | None:
        """Return the consumer that the group is bound to; None for none."""
        return self._owners.get(self._key(group))

    def bind(self, group: str, consumer: Consumer) -> None:
        """The consumer gets the first message of the group."""
        self._owners[self._key(group)] = consumer

    def alone(self, group: str) -> Consumer | None:
        """Return the consumer that this very group is bound to. None where none is, and in a bucket: others in that may
        not have ended."""
        return self._owners.get(group)

    def close(self, group: str) -> None:
        """The group's last message is on its way. In a bucket nothing happens."""
        self._owners.pop(group, None)

    def leave(self, consumer: Consumer) -> None:
        """Free all groups of a consumer."""
        self._owners = {key: owner for key, owner in self._owners.items() if owner is not consumer}

    def _key(self, group: str) -> Key:
        owners = self._owners
        if group in owners:
            return group
        bucket = crc32(group.encode()) % BUCKETS
        if bucket in owners or len(owners) >= GROUPS_MAX:
            return bucket
        return group


__all__ = ["BUCKETS", "CLOSING", "GROUPS_MAX", "Groups", "Retained"]

"""Message groups: all messages of one group-id go to one consumer, in order, while it lives (properties, 3.2.4).

The first message of a group that is handed out binds the group to the consumer that gets it; the consumer's end, or a
message that closes the group (group-sequence 0xFFFFFFFF, JMSXGroupSeq -1), frees it. What is retained of the group for
that consumer is anybody's then. A message of the group that its consumer's selector does not match may go to another
one, and binds nothing.

The map is bounded: beyond `GROUPS_MAX` bound groups, further ones are bound by the hash of their id, many in one
bucket. So their messages stay together and in order all the same, only no longer evenly spread.

Where the address says so, a message that waits for another attempt holds back those of its group: they are *parked*
(set aside, and for nobody) until it has gone.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final, Generic, TypeVar
from zlib import crc32

from acquit.broker.dispatching.aside import rank
from acquit.broker.message import ASIDE, Message

GROUPS_MAX: Final = 65_536
"""Groups of one queue that are bound one by one."""
BUCKETS: Final = 1_024
"""Buckets in which further groups are bound, many in one."""
CLOSING: Final = 0xFFFF_FFFF
"""The group-sequence of a group's last message."""

_SLACK: Final = 64

Consumer = TypeVar("Consumer")
Key = str | int
"""A group's id, or the number of its bucket."""


class Retained:
    """Messages that are set aside for one consumer alone, as their groups are bound to it: each group's in order.

    Some may be gone. To take out what there is of one group costs nothing for the others.
    """

    __slots__ = ("_firsts", "_groups")

    def __init__(self) -> None:
        self._groups: dict[str, list[tuple[int, Message]]] = {}  # a heap for each; none of them is empty
        self._firsts: list[tuple[int, str]] = []  # a heap of where groups begin; some have gone, or begin elsewhere

    def add(self, group: str, message: Message) -> None:
        """Retain a message of this group."""
        place = rank(message)
        heap = self._groups.setdefault(group, [])
        heappush(heap, (place, message))
        if heap[0][0] == place:
            heappush(self._firsts, (place, group))

    def first(self) -> Message | None:
        """Return the first one that is still aside; None for none."""
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
        heappop(heap)
        if heap:
            heappush(self._firsts, (heap[0][0], group))
        else:
            del self._groups[group]

    def take(self, group: str) -> list[Message]:
        """Strike off all of a group, and return them."""
        messages = [message for _, message in self._groups.pop(group, ())]
        if len(self._firsts) > 2 * len(self._groups) + _SLACK:
            self._firsts = sorted((heap[0][0], other) for other, heap in self._groups.items())
        return messages

    def take_all(self) -> list[Message]:
        """Strike off all there are, and return them."""
        messages = [message for heap in self._groups.values() for _, message in heap]
        self._groups.clear()
        self._firsts.clear()
        return messages


class Groups(Generic[Consumer]):
    """Bindings of groups to consumers, in one queue."""

    __slots__ = ("_owners", "parked")

    def __init__(self) -> None:
        self._owners: dict[Key, Consumer] = {}
        self.parked: dict[str, list[Message]] = {}
        """Messages that are set aside until a delayed one has gone, by group."""

    def __len__(self) -> int:
        return len(self._owners)

    def owner(self, group: str) -> Consumer | None:
        """Return the consumer that the group is bound to; None for none."""
        return self._owners.get(self._key(group))

    def bind(self, group: str, consumer: Consumer) -> None:
        """The consumer gets the first message of the group."""
        self._owners[self._key(group)] = consumer

    def hand_out(self, message: Message, consumer: Consumer) -> Consumer | None:
        """Bind the group of a message to the consumer that gets it, or free the group if the message is its last.
        Return the consumer that had it then."""
        extra = message.extra
        assert extra is not None and extra.group is not None
        if extra.closes_group:
            return self.close(extra.group)
        if self.owner(extra.group) is None:
            self.bind(extra.group, consumer)
        return None

    def close(self, group: str) -> Consumer | None:
        """The group's last message is on its way: return the consumer that had it. In a bucket, others may not have
        ended: then nothing happens."""
        return self._owners.pop(group, None)

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

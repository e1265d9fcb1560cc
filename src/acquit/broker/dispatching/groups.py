"""Message groups: all messages of one group-id go to one consumer, in order, while it lives (properties, 3.2.4).

The first message of a group that is handed out binds the group to the consumer that gets it; the consumer's end, or a
message that closes the group (group-sequence 0xFFFFFFFF, JMSXGroupSeq -1), frees it. A message of the group that its
consumer's selector does not match may go to another one, and binds nothing.

The map is bounded: beyond `GROUPS_MAX` bound groups, further ones are bound by the hash of their id, many in one
bucket. So their messages stay together and in order all the same, only no longer evenly spread.

Where the address says so, a message that waits for another attempt holds back those of its group: they are *parked*
(set aside, and for nobody) until it has gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar
from zlib import crc32

if TYPE_CHECKING:
    from acquit.broker.message import Message

GROUPS_MAX: Final = 65_536
"""Groups of one queue that are bound one by one."""
BUCKETS: Final = 1_024
"""Buckets in which further groups are bound, many in one."""
CLOSING: Final = 0xFFFF_FFFF
"""The group-sequence of a group's last message."""

Consumer = TypeVar("Consumer")
Key = str | int
"""A group's id, or the number of its bucket."""


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

    def hand_out(self, message: Message, consumer: Consumer) -> None:
        """Bind the group of a message to the consumer that gets it, or free the group if the message is its last."""
        extra = message.extra
        assert extra is not None and extra.group is not None
        if extra.closes_group:
            self.close(extra.group)
        elif self.owner(extra.group) is None:
            self.bind(extra.group, consumer)

    def close(self, group: str) -> None:
        """The group's last message is on its way. In a bucket, others may not have ended: then nothing happens."""
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


__all__ = ["BUCKETS", "CLOSING", "GROUPS_MAX", "Groups"]

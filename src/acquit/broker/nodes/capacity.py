"""Limits of a policy, as they apply to one queue; `intake.limits` keeps to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.queue import NodeState

if TYPE_CHECKING:
    from acquit.broker.message import Message
    from acquit.broker.options import AddressPolicy

UNLIMITED: Final = 1 << 62


class Values:
    """The newest message of each value, in one last-value queue."""

    __slots__ = ("arrived", "newest")

    def __init__(self) -> None:
        self.newest: dict[bytes, Message] = {}
        self.arrived: list[Message] = []
        """Messages that became available since the last turn."""

    def note(self, message: Message) -> Message | None:
        """Know a message by its value, if it has one. Return the older one of that value, if there are two."""
        if message.extra is None or not message.extra.last_value:
            return None
        value = message.extra.last_value
        known = self.newest.get(value)
        if known is None or known.state is NodeState.ARCHIVED or known.sequence < message.sequence:
            self.newest[value] = message
            return known
        return None if known is message else message


def displaces(policy: AddressPolicy) -> bool:
    """True if anything gives way to newer messages under this policy."""
    sized = policy.full_policy == "drop-oldest" and (policy.bytes_max or policy.messages_max)
    return bool(policy.last_value or policy.ring_size or sized)


def treats_alike(policy: AddressPolicy) -> bool:
    """Return whether every posting that says nothing special is treated alike under this policy."""
    special = policy.default_ttl_ms or policy.ttl_ms_max or policy.last_value
    return not special and policy.duplicate_detection != "message-id" and policy.full_policy != "drop-oldest"


def resident_bytes_max(policy: AddressPolicy) -> int:
    """Bodies of one queue that are kept in memory."""
    if policy.full_policy == "page" and policy.bytes_max:
        return min(policy.memory_bytes_max, policy.bytes_max)
    return policy.memory_bytes_max


def resident_messages_max(policy: AddressPolicy) -> int:
    """Messages of one queue beyond which bodies are not kept in memory."""
    return policy.messages_max if policy.full_policy == "page" and policy.messages_max else UNLIMITED


__all__ = ["UNLIMITED", "Values", "displaces", "resident_bytes_max", "resident_messages_max", "treats_alike"]

"""Lifetime of a node that a client had made for itself (3.5.10 to 3.5.13); `temporary` makes such nodes."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol


class Lifetime(IntEnum):
    """Moment when a dynamic node is deleted."""

    ON_CLOSE = 0
    """End of the link that had it made."""
    ON_NO_LINKS = 1
    """End of its last link."""
    ON_NO_MESSAGES = 2
    """First moment when the link that had it made is gone and it has no messages."""
    ON_NO_LINKS_OR_MESSAGES = 3
    """First moment when it has neither links nor messages."""


class Node(Protocol):
    """A queue or a topic, as far as its end depends on it."""

    @property
    def links(self) -> bool: ...
    @property
    def live(self) -> int: ...


class Temporary:
    """Lifetime of one dynamic node, and the link that it may depend on."""

    __slots__ = ("lifetime", "owner")

    def __init__(self, lifetime: Lifetime) -> None:
        self.lifetime = lifetime
        self.owner: object = self
        """The context of the link that had it made; None once that is gone."""

    def over(self, node: Node) -> bool:
        """True if the node is to be deleted now."""
        match self.lifetime:
            case Lifetime.ON_CLOSE:
                return self.owner is None
            case Lifetime.ON_NO_LINKS:
                return not node.links
            case Lifetime.ON_NO_MESSAGES:
                return self.owner is None and not node.live
            case Lifetime.ON_NO_LINKS_OR_MESSAGES:
                return not node.links and not node.live


__all__ = ["Lifetime", "Temporary"]

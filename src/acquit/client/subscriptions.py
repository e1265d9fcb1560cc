"""Subscriptions of topics that have a name, and the names of the links to them.

A subscription is named by the first part of its link's name; the terminus is durable, shared or both by its durability
and its capabilities (`topic`, `shared`, `global`). Without a container id of the user's own a connection has a name
that nobody can come back to, so its shared subscriptions are `global`, and an exclusive durable one makes no sense.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from itertools import count

from acquit.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True, slots=True)
class Subscription:
    """A subscription of a topic that has a name (JMS 2.0, section 8.3).

    Durable ones keep what is posted while nobody receives, until `Session.unsubscribe`. Shared ones may have several
    receivers, which take turns. Raises ConfigurationError for one that is neither, and for a name that is empty or has
    a ``|``, which link names use.
    """

    name: str
    durable: bool = True
    shared: bool = False

    def __post_init__(self) -> None:
        if not self.name or "|" in self.name:
            raise ConfigurationError(
                f"the name of a subscription must be a string that is not empty, without |, got {self.name!r}"
            )
        if not (self.durable or self.shared):
            raise ConfigurationError(
                "a subscription that is neither durable nor shared has no name: receive with topic=True"
            )

    def link_name(self, taken: Container[str], *, named: bool) -> str:
        """The name of one more link to it. `named`: the user chose the container id; `taken`: names of other links.

        Raises ConfigurationError for an exclusive subscription of a container that has no name of its own.
        """
        if not self.shared:
            if not named:
                raise ConfigurationError(
                    f"the durable subscription {self.name!r} belongs to a container: connect with a container_id, or "
                    "make it shared"
                )
            return self.name
        for number in count(1):
            link_name = self._shared_name(number, named)
            if link_name not in taken:
                return link_name
        raise AssertionError("count has no end")

    def first_link_name(self, *, named: bool) -> str:
        """The name of the link that unsubscribes."""
        return self.name if named or not self.shared else f"{self.name}|global"

    def _shared_name(self, number: int, named: bool) -> str:
        if self.durable:
            suffix = ("" if number == 1 else str(number)) if named else f"global{'' if number == 1 else number}"
        else:
            suffix = f"{'' if named else 'global-'}volatile{number}"
        return f"{self.name}|{suffix}" if suffix else self.name

    def capabilities(self, *, named: bool) -> tuple[str, ...]:
        """Return the capabilities of the source, besides ``topic``."""
        return (("shared",) if named else ("shared", "global")) if self.shared else ()


__all__ = ["Subscription"]

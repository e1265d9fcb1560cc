"""Counters of the queues that have no series of their own, as one series that never goes back.

Which queues have most in them changes from one look to the next, and each has counted for as long as it is there. A sum
over those that are left would jump by all that a queue ever counted when it comes to be among them, and go back when it
is deleted. So what counts here is what each counted while it was among them: from one look to the next, and from the
first look on. What was before that is not counted, so that a restart is no increase.
"""

from __future__ import annotations

from collections import OrderedDict
from operator import add, sub
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

VIEWS_MAX: Final = 8
"""Views that are remembered. Of one that is asked for again after so many others, the counters begin at 0 again."""

Node = tuple[bool, int]
"""Key of a queue or topic: whether it is a topic, and its number, which no other ever has."""


class OtherCounters:
    """The counters of one view: of one user, with so many rows."""

    def __init__(self, size: int) -> None:
        self.totals: list[float] = [0] * size
        self.seen: dict[Node, list[float]] | None = None
        """The counters of each queue at the last look; None before the first."""


class LookAtOthers:
    """A look at all queues, while it is made. Where another of the same view ended meanwhile, this one counts nothing:
    the next will."""

    def __init__(self, counters: OtherCounters) -> None:
        self._counters = counters
        self._before = counters.seen
        self._seen: dict[Node, list[float]] = {}
        self._added = [0.0] * len(counters.totals)

    def see(self, node: Node, counted: list[float], *, among_others: bool) -> None:
        """Take note of what one queue or topic has counted."""
        before = None if self._before is None else self._before.get(node)
        if before == counted:
            self._seen[node] = before
            return
        self._seen[node] = counted
        if among_others and self._before is not None:
            grown = counted if before is None else map(sub, counted, before)
            self._added = list(map(add, self._added, grown))

    def end(self) -> list[float]:
        """Return the counters after this look."""
        counters = self._counters
        if counters.seen is self._before:
            counters.totals = list(map(add, counters.totals, self._added))
            counters.seen = self._seen
        return counters.totals


class OtherViews:
    """The views that were asked for last."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._views: OrderedDict[Hashable, OtherCounters] = OrderedDict()

    def look(self, view: Hashable) -> LookAtOthers:
        """Begin a look."""
        counters = self._views.pop(view, None) or OtherCounters(self._size)
        self._views[view] = counters
        if len(self._views) > VIEWS_MAX:
            self._views.popitem(last=False)
        return LookAtOthers(counters)


__all__ = ["VIEWS_MAX", "LookAtOthers", "OtherCounters", "OtherViews"]

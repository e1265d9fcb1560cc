"""Application's side of deliveries that were sent together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Contexts(Protocol):
    """The application's side of a `SentRun`: what the contexts of its deliveries would be."""

    @property
    def accepted_cost(self) -> int:
        """Units of a turn (`costs`) that it takes the application to hear that they are accepted."""
        ...

    def each(self) -> Sequence[object]:
        """Return the contexts, as single ones from now on: they are not split any more."""
        ...

    def split(self, count: int) -> Contexts:
        """Return the first of them, so many, which are here no more."""
        ...

    def singly(self) -> Contexts:
        """Return all of them as what is quickly split into few at a time."""
        ...


__all__ = ["Contexts"]

"""What administration does to messages, for the oracle: what it may have taken from a queue, and what it must have.

A request is *asked*, and answered or not. Of one without an answer nobody knows when it was done, so from then on it
may take whatever is there. One that is answered has taken what waited in its queue before it was asked, and nobody has
had: it is not there any more.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Final, NamedTuple

FOREVER: Final = math.inf


class Act(NamedTuple):
    """A request for something that takes messages out of a queue."""

    kind: str
    queue: str
    to: str = ""
    """Where they go; empty: they are gone."""
    colour: str = ""
    """It takes those of this colour alone."""
    partial: bool = False
    """It takes some, and leaves others like them."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """An act that was answered: what it must have taken."""

    act: Act
    newest: int
    """What had a higher sequence may have entered later."""
    asked_s: float
    answered_s: float


class Sweeps:
    """All of them."""

    def __init__(self) -> None:
        self.targets: dict[str, None] = {}
        """Queues that something may have been moved to."""
        self._ways: defaultdict[str, set[str]] = defaultdict(set)
        self._until_s: dict[tuple[str, str], float] = {}
        """By kind and queue: what was sent later was not taken."""
        self._done: list[Sweep] = []

    def asks(self, act: Act) -> None:
        """Somebody is about to ask for it."""
        if act.to:
            self.targets[act.to] = None
            self._ways[act.queue].add(act.to)
        self._until_s[act.kind, act.queue] = FOREVER

    def answered(self, sweep: Sweep, before_s: float) -> None:
        """It is done. `before_s`: as `until_s` was when it was asked."""
        act = sweep.act
        self._until_s[act.kind, act.queue] = max(before_s, sweep.answered_s)
        if not act.partial:
            self._done.append(sweep)

    def until_s(self, act: Act) -> float:
        """What was sent later than this was taken by none of its kind."""
        return self._until_s.get((act.kind, act.queue), 0.0)

    def reaches(self, queue: str) -> set[str]:
        """Where what was sent to a queue may be."""
        found, new = {queue}, [queue]
        while new:
            more = self._ways.get(new.pop(), set()) - found
            found |= more
            new += more
        return found

    def may_miss(self, queue: str, sent_s: float, *, later: bool) -> bool:
        """Whether what was sent to this queue then may be gone. `later`: it has a delivery time."""
        kinds = ("purge", "cancel") if later else ("purge",)
        return any(self._until_s.get((kind, one), 0.0) >= sent_s for kind in kinds for one in self.reaches(queue))

    def may_have_taken(self, queue: str, there_s: float) -> bool:
        """Whether what stood in this queue then may be gone from there, or elsewhere."""
        return any(self._until_s.get((kind, queue), 0.0) >= there_s for kind in ("purge", "move"))

    def took(
        self, queue: str, sequence: int, colour: str, told_s: float, due_s: float, *, since_s: float
    ) -> Sweep | None:
        """What must have taken a message that nobody has had: one that entered `queue` under `sequence`, was accepted
        at `told_s`, waited for its delivery time until `due_s`, and stood there at `since_s`."""
        for sweep in self._done:
            act = sweep.act
            waits = act.kind != "cancel" or sweep.answered_s < due_s
            there = told_s < sweep.asked_s and sequence < sweep.newest
            if act.queue == queue and waits and there and sweep.answered_s < since_s and act.colour in ("", colour):
                return sweep
        return None


__all__ = ["Act", "Sweep", "Sweeps"]

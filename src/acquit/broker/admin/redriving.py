"""Sending dead letters back to where they died, each to its own queue, because somebody asked for it.

A dead letter says where it died in the annotation ``x-opt-ORIG-QUEUE``, which the broker wrote when it made it
(`outcomes.letters`). It goes there as a move (`moving`): its attempts begin anew, and what it says of its past stays.
That is what the pipeline ``redrive`` does as well, which chooses letters in Spark.

What cannot go stays, and is counted with the reason: a letter that does not say where it died, one whose queue is no
more and cannot be made, one whose queue whoever asks may not manage. It keeps nothing from the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from acquit.broker.admin.moving import move_message
from acquit.broker.admin.walking import MessageChoice, Walk
from acquit.broker.nodes.addresses import ADDRESS_BYTES_MAX
from acquit.broker.outcomes.letters import ORIG_QUEUE
from acquit.broker.refusal import Refused
from acquit.broker.selector.fields import fields_of

if TYPE_CHECKING:
    from acquit.broker.intake.entering import Entering
    from acquit.broker.life import Life
    from acquit.broker.message import Message
    from acquit.broker.nodes.node import Queue

ORIGINS_MAX: Final = 1_000
"""Origins that one answer names; what is of further ones is counted under `OTHERS`."""
OTHERS: Final = "(others)"
_ORIGIN: Final = f"m.{ORIG_QUEUE}"

FindOrigin = Callable[[str, bool], "Queue | None"]
"""Return the queue of this name, which is made if it is not there and the second argument says so. None: it would be.
Raises Refused where it must not be used, or not be made."""


class Redriven(NamedTuple):
    """The letters of one redrive."""

    by_origin: dict[str, int]
    """Letters that went back, by queue; in a dry run, those that would."""
    left: dict[str, int]
    """Letters that stay, by the queue that they cannot go to."""
    reasons: dict[str, str]
    """The reasons, by the same queues."""
    without_origin: int
    """Letters that stay because they do not say where they died, or died where they are."""
    why: str
    """The reason why it stopped before its end; "": it did not."""

    @property
    def redriven(self) -> int:
        """The number of letters that went back; in a dry run, that would."""
        return sum(self.by_origin.values())


class Redrive(Walk):
    """A redrive of one queue of dead letters."""

    def __init__(
        self,
        life: Life,
        entering: Entering,
        source: Queue,
        choice: MessageChoice,
        find: FindOrigin,
        *,
        actor: int,
        dry_run: bool,
        done: Callable[[Redriven], None],
    ) -> None:
        """`actor` is who asked; `dry_run`: letters are counted, and nothing is moved or made."""
        super().__init__(life, source, choice)
        self._entering = entering
        self._find = find
        self._actor = actor
        self._dry_run = dry_run
        self._done = done
        self._by_origin: dict[str, int] = {}
        self._kept: dict[str, int] = {}
        self._reasons: dict[str, str] = {}
        self._without_origin = 0

    def _act_on(self, message: Message) -> bool:
        origin = fields_of(message)[_ORIGIN]
        if not isinstance(origin, str) or len(origin) > ADDRESS_BYTES_MAX or origin == self._source.name:
            self._without_origin += 1
            return False
        try:
            target = self._find(origin, not self._dry_run)
        except Refused as exc:
            named = _count(self._kept, origin)
            self._reasons.setdefault(named, exc.description)
            return False
        if target is not None and not self._dry_run:
            recorded = move_message(self._life, self._entering, message, target, self._actor)
            self._recorded = self._recorded or recorded
        _count(self._by_origin, origin)
        return True

    def _told(self, why: str) -> None:
        self._done(Redriven(self._by_origin, self._kept, self._reasons, self._without_origin, why))


def _count(counts: dict[str, int], name: str) -> str:
    """Count one more of this name; under which name it was counted."""
    if name not in counts and len(counts) >= ORIGINS_MAX:
        name = OTHERS
    counts[name] = counts.get(name, 0) + 1
    return name


__all__ = ["ORIGINS_MAX", "OTHERS", "Redrive", "Redriven"]

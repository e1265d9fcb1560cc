"""The audit of a broker: what operators did, what they were refused, and whom it did not let in.

Each is a line in the journal (`ledger.records.AuditLine`), where it stands in the order of what happened to messages,
and one of the log. What a user does is recorded at once, and counted apart from what others do and from refusals, so
that nobody can hide it behind a flood: of more than `LINES_PER_S` lines of one user in a second only the number is
recorded.

A refusal costs him who is refused nothing, and a batch of its own would cost the journal a block and a sync. So
refusals are recorded once a second, together, and in the long run no more than `REFUSALS_PER_S`: whoever knocks for
days fills no disk, and pushes no older segment out of the archive. A crash can take those of the last second with it.

Where the disk is full nothing is recorded, for what room there is belongs to messages; how much that was is, when
there is room again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from acquit.errors import StoreFull
from acquit.ledger.records import AuditLine

if TYPE_CHECKING:
    from acquit.broker.scribe import Scribe

LINES_PER_S: Final = 20
"""Lines of one user that are recorded between two ticks, and refusals of everybody after a quiet time."""
REFUSALS_PER_S: Final = 2
"""Refusals that are recorded between two ticks in the long run."""
TOO_MANY: Final = "more than there is room for"
"""The reason for which lines are suppressed."""
TEXT_MAX: Final = 256
"""Characters of each text in a line."""

Tell = Callable[[bool, str, Mapping[str, object]], None]
"""Called with whether something was refused, whom to count it for, and the particulars of an operation."""


def _nobody(refused: bool, by: str, particulars: Mapping[str, object]) -> None:
    """Tell nobody."""


class Auditor:
    """Writes the audit of one broker. Set `tell` to hear of operations as well."""

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe
        self._lines: Counter[str | None] = Counter()
        """Lines since the last tick, by the user who did something; None: refusals, as far as they count still."""
        self._refusals: list[AuditLine] = []
        """Refusals since the last tick."""
        self._suppressed: Counter[str | None] = Counter()
        """Lines that are not recorded, by the same."""
        self.tell: Tell = _nobody

    def performed(self, action: str, user: str | None, peer: str, target: str, result: str, *, refused: bool) -> None:
        """Record an operation of somebody, and tell of it."""
        particulars: dict[str, object] = {"action": action, "user": user, "peer": peer}
        particulars |= {"target": target[:TEXT_MAX], "result": result[:TEXT_MAX]}
        self.tell(refused, user or peer.rpartition(":")[0], particulars)
        self._take(None if refused else user or "", action, user, peer, target, result)

    def refused(self, action: str, user: str | None, peer: str, target: str, result: str) -> None:
        """Record that somebody was not let in, at the next tick, unless too many were before."""
        self._take(None, action, user, peer, target, result)

    def tick(self) -> None:
        """Record what was refused and how many lines were too many, and take lines again. Each second or so."""
        refusals, self._refusals = self._refusals, []
        for line in refusals:
            self._write(None, line)
        still = max(0, self._lines[None] - REFUSALS_PER_S)
        self._lines = Counter({None: still})
        suppressed, self._suppressed = self._suppressed, Counter()
        for by, count in suppressed.items():
            self._write(by, AuditLine(self._scribe.time_us, "suppressed", by or "", "", "", TOO_MANY, count))

    def _take(self, by: str | None, *given: str | None) -> None:
        if self._lines[by] >= LINES_PER_S:
            self._suppressed[by] += 1
            return
        self._lines[by] += 1
        action, user, peer, target, result = ((text or "")[:TEXT_MAX] for text in given)
        line = AuditLine(self._scribe.time_us, action, user, peer, target, result)
        if by is None:
            self._refusals.append(line)
        else:
            self._write(by, line)

    def _write(self, by: str | None, line: AuditLine) -> None:
        try:
            if self._scribe.journal.full:
                raise StoreFull("no room for the audit")
            self._scribe.recorder.append(line)
        except StoreFull:
            self._suppressed[by] += line.count


__all__ = ["LINES_PER_S", "REFUSALS_PER_S", "TEXT_MAX", "TOO_MANY", "Auditor"]

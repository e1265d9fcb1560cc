"""The audit of a broker: what operators did, what they were refused, and whom it did not let in.

Each is a line in the journal (`ledger.records.AuditLine`), where it stands in the order of what happened to messages,
and one of the log. Whoever is refused can be so as often as it likes: of more than `LINES_PER_S` refusals in a second
only the number is recorded. What a user does is counted apart from these, and from what others do, so that nobody can
hide it behind a flood. Where the disk is full nothing is recorded, for what room there is belongs to messages; how much
that was is, when there is room again.
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
"""Lines of one user that are recorded between two ticks, and refusals of everybody."""
TOO_MANY: Final = f"more than {LINES_PER_S} in a second, or no room"
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
        """Lines since the last tick, by the user who did something; None: refusals."""
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
        """Record that somebody was not let in, unless too many were since the last tick."""
        self._take(None, action, user, peer, target, result)

    def tick(self) -> None:
        """Take lines again, and record how many were too many. Each second or so."""
        self._lines.clear()
        suppressed, self._suppressed = self._suppressed, Counter()
        for by, count in suppressed.items():
            self._write(by, "suppressed", by, "", "", TOO_MANY, count=count)

    def _take(self, by: str | None, action: str, user: str | None, peer: str, target: str, result: str) -> None:
        self._lines[by] += 1
        if self._lines[by] > LINES_PER_S:
            self._suppressed[by] += 1
        else:
            self._write(by, action, user, peer, target, result)

    def _write(self, by: str | None, action: str, user: str | None, *others: str, count: int = 1) -> None:
        try:
            if self._scribe.journal.full:
                raise StoreFull("no room for the audit")
            action, user, peer, target, result = (text[:TEXT_MAX] for text in (action, user or "", *others))
            self._scribe.recorder.append(AuditLine(self._scribe.time_us, action, user, peer, target, result, count))
        except StoreFull:
            self._suppressed[by] += count


__all__ = ["LINES_PER_S", "TEXT_MAX", "TOO_MANY", "Auditor"]

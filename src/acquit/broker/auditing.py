"""The audit of a broker: what operators did, what they were refused, and whom it did not let in.

Each is a line in the journal (`ledger.records.AuditLine`), where it stands in the order of what happened to messages,
and one of the log. Whoever is refused can be so as often as it likes: of more than `LINES_PER_S` lines only their
number is recorded. Where the disk is full nothing is: what room there is belongs to messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from acquit.errors import StoreFull
from acquit.ledger.records import AuditLine

if TYPE_CHECKING:
    from acquit.broker.scribe import Scribe

LINES_PER_S: Final = 20
"""Lines that are recorded between two ticks."""
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
        self._left = LINES_PER_S
        self._suppressed = 0
        self.tell: Tell = _nobody

    def performed(self, action: str, user: str | None, peer: str, target: str, result: str, *, refused: bool) -> None:
        """Record an operation of somebody, and tell of it."""
        particulars: dict[str, object] = {"action": action, "user": user, "peer": peer}
        particulars |= {"target": target[:TEXT_MAX], "result": result[:TEXT_MAX]}
        self.tell(refused, user or peer.rpartition(":")[0], particulars)
        self.record(action, user, peer, target, result)

    def record(self, action: str, user: str | None, peer: str, target: str, result: str) -> None:
        """Record what happened, unless too much has since the last tick."""
        if not self._left:
            self._suppressed += 1
            return
        self._left -= 1
        self._write(action, user or "", peer, target, result)

    def tick(self) -> None:
        """Take lines again, and record how many were too many. Each second or so."""
        self._left = LINES_PER_S
        suppressed, self._suppressed = self._suppressed, 0
        if suppressed:
            self._write("suppressed", "", "", "", f"more than {LINES_PER_S} in a second", count=suppressed)

    def _write(self, *texts: str, count: int = 1) -> None:
        if not self._scribe.journal.full:
            action, user, peer, target, result = (text[:TEXT_MAX] for text in texts)
            line = AuditLine(self._scribe.time_us, action, user, peer, target, result, count)
            with suppress(StoreFull):
                self._scribe.recorder.append(line)


__all__ = ["LINES_PER_S", "TEXT_MAX", "Auditor"]

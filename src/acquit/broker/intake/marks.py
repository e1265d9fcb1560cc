"""Senders whose postings are numbered: what a sender repeats after a loss is told by its number, and not posted again.

A sender that can make all its messages again, in the same order (a task of a Spark query that is run anew), needs no
window of ids, which forgets. It gives its link a *mark*: the link property ``acquit:sender-mark`` names it, and each
message says its *place* in the delivery annotation ``x-opt-acquit-place``, which ends here: batch and index, compared
in this order, and a digest, of all messages of the batch up to it. The broker remembers the highest place for each
user and name.

    place above the mark      posted, and the mark moves there: both are in one batch of the journal, or neither is
    place at or below it      posted before: nothing is posted, and it is answered when the mark is on the disk
    another digest at it      refused: the messages before it are not those that were posted
    no place                  refused
    behind a refused one      refused: were it posted, the mark would pass the other one over

So *accepted* means that this message, and every one of the same link below it, is posted. A link that was refused
something takes no more: its sender decides what becomes of that message, and attaches again. Our attach tells where the
mark is (`describe`); it may not be on the disk then, so a sender that leaves out what is below begins with the place of
the mark itself, whose answer waits for the disk.

Several links may have one mark, a task and its late double: whoever is first posts. One that numbers its messages
without gaps comes to the mark itself before it overtakes, and is stopped there, by the digest, if its messages are
others.

**Bounds.** A mark is half a KiB, and `sender_marks_max` bounds them. When a new one finds no room, those give way that
no link has and that have not moved for `sender_marks_kept_ms`; are there none, the link is refused. A mark is never
forgotten before its time to make room: its sender would post all of it again.

In the journal a mark is keyed state (`ledger.records.Namespace.SENDER_MARK`), copied forward as all of it is.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from acquit.broker.inspect import MarkSnapshot
from acquit.broker.refusal import Refused
from acquit.errors import StoreFull
from acquit.ledger.events import EventKind, fingerprint
from acquit.ledger.records import Namespace, State, StateDeleted
from acquit.protocol.definitions import AmqpCondition
from acquit.protocol.extensions import SENDER_MARK
from acquit.protocol.numbered import Place
from acquit.protocol.sections import BODY, scan_sections
from acquit.protocol.types import UInt, ULong

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acquit.broker.intake.duplicates import Target
    from acquit.broker.options import BrokerLimits
    from acquit.broker.scribe import Scribe

NAME_MAX: Final = 256
"""Characters of a name."""

_DUPLICATE: Final = int(EventKind.DUPLICATE)
_VALUE: Final = Struct("<QQIQ")
"""Layout of a mark in the journal: batch, index, digest, sequence."""
_RETIRED_AT_ONCE: Final = 1_000


class Mark:
    """The mark of one sender: how far it has posted."""

    __slots__ = ("at", "digest", "key", "links", "recorded", "sequence")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.at = -1, -1
        """Batch and index of its highest posting."""
        self.digest = 0
        self.sequence = 0
        """Sequence of that posting; of one to a topic, of its last copy."""
        self.links = 0
        self.recorded = False
        """True if there is something about it in the journal, or about to be."""


class Claim:
    """A link's hold on a mark."""

    __slots__ = ("mark", "refused")

    def __init__(self, mark: Mark) -> None:
        self.mark = mark
        self.refused = False
        """True if a posting of the link was refused, and nothing behind it may pass."""

    def why(self) -> Refused:
        """Return the error that everything behind a refused posting is refused with."""
        return Refused(
            f"a message before it on this link, which has a mark ({SENDER_MARK}), was refused: attach again to go on",
            condition=AmqpCondition.PRECONDITION_FAILED,
        )

    @staticmethod
    def other() -> Refused:
        """Return the error that a message at the mark itself is refused with, when its digest is not the mark's."""
        return Refused(
            f"a message of this place was posted with another digest ({SENDER_MARK}): what was posted under this mark "
            "are other messages, or the same in another order",
            condition=AmqpCondition.ILLEGAL_STATE,
        )

    @staticmethod
    def in_transaction() -> Refused:
        """Return the error for a posting in a transaction: the mark would move before it is known to enter."""
        return Refused(
            f"a link with a mark ({SENDER_MARK}) posts in no transaction", condition=AmqpCondition.NOT_ALLOWED
        )


class Marks:
    """Knows the marks of all senders."""

    def __init__(self, scribe: Scribe, limits: BrokerLimits) -> None:
        self._scribe = scribe
        self.limits = limits
        self._table = scribe.recorder.table
        self._open: dict[bytes, Mark] = {}
        """Marks that links have, by key."""
        self._kept = sum(namespace == Namespace.SENDER_MARK for namespace, _ in self._table.state)
        """Number of marks that the journal tells of."""
        self._idle_since_us = 0
        """No mark that might give way has moved before this time."""

    # -- links --------------------------------------------------------------------------------------------------------

    def claim(self, user: str | None, name: object) -> Claim:
        """A link asks for the mark of this name. Raises Refused."""
        if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX:
            raise Refused(
                f"the link property {SENDER_MARK} must be a string of 1 to {NAME_MAX} characters",
                condition=AmqpCondition.INVALID_FIELD,
            )
        key = f"{user or ''}\0{name}".encode()
        mark = self._open.get(key)
        if mark is None:
            mark = self._open[key] = self._found(key)
        mark.links += 1
        return Claim(mark)

    def release(self, claim: Claim) -> None:
        """Let go the mark of a link that has ended."""
        self._let_go(claim.mark)

    def _let_go(self, mark: Mark) -> None:
        mark.links -= 1
        if not mark.links:
            del self._open[mark.key]
            entry = self._table.state.get((Namespace.SENDER_MARK, mark.key))
            if entry is not None:
                self._idle_since_us = min(self._idle_since_us, entry.time_us)

    @staticmethod
    def describe(claim: Claim) -> list[object]:
        """Return where the mark is, for our attach: batch, index, digest; empty where nothing was posted yet."""
        mark = claim.mark
        return [ULong(mark.at[0]), ULong(mark.at[1]), UInt(mark.digest)] if mark.recorded else []

    def _found(self, key: bytes) -> Mark:
        mark = Mark(key)
        entry = self._table.state.get((Namespace.SENDER_MARK, key))
        if entry is not None:
            batch, index, mark.digest, mark.sequence = _VALUE.unpack(entry.value)
            mark.at = batch, index
            mark.recorded = True
        elif self._kept + sum(not other.recorded for other in self._open.values()) >= self.limits.sender_marks_max:
            self._make_room()
        return mark

    def _make_room(self) -> None:
        """Some marks give way, more than one, because to find them is to look at all. Raises Refused."""
        now_us, kept_us = self._scribe.time_us, self.limits.sender_marks_kept_ms * 1_000
        idle: list[tuple[int, bytes]] = []
        if now_us >= self._idle_since_us + kept_us:
            idle = sorted(
                (entry.time_us, key)
                for (namespace, key), entry in self._table.state.items()
                if namespace == Namespace.SENDER_MARK and key not in self._open
            )
            self._idle_since_us = idle[0][0] if idle else now_us
        over = [key for time_us, key in idle[:_RETIRED_AT_ONCE] if time_us + kept_us <= now_us]
        if not over:
            raise Refused(
                f"{self.limits.sender_marks_max} marks of senders are kept (limits.sender_marks_max), and each was "
                f"used in the last {self.limits.sender_marks_kept_ms} ms (limits.sender_marks_kept_ms)",
                condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
            )
        for key in over:
            try:
                self._scribe.recorder.append(StateDeleted(now_us, Namespace.SENDER_MARK, key))
            except StoreFull as exc:
                self._scribe.exhausted = True
                raise Refused(
                    "the broker's disk is full: try again later", condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED
                ) from exc
            self._kept -= 1

    # -- for operators ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> Mapping[tuple[int, bytes], State]:
        """The keyed state of the journal, that of marks among it."""
        return self._table.state

    def unrecorded(self) -> list[bytes]:
        """Return the keys of the marks that links have and under which nothing was posted yet."""
        return [key for key, mark in self._open.items() if not mark.recorded]

    def look(self, key: bytes) -> MarkSnapshot | None:
        """Return what there is to see of a mark; None if it is gone."""
        entry = self._table.state.get((Namespace.SENDER_MARK, key))
        mark = self._open.get(key)
        if mark is None:
            if entry is None:
                return None
            mark = self._found(key)
        user, _, name = key.decode().partition("\0")
        batch, index = mark.at if mark.recorded else (None, None)
        moved_ms = None if entry is None else entry.time_us // 1000
        return MarkSnapshot(key.hex(), name, user or None, batch, index, mark.sequence, mark.links, moved_ms)

    # -- postings -----------------------------------------------------------------------------------------------------

    def moved(self, mark: Mark) -> None:
        """Record where it is now, in the batch with the postings that moved it."""
        if not mark.recorded:
            mark.recorded = True
            self._kept += 1
        scribe = self._scribe
        value = _VALUE.pack(*mark.at, mark.digest, mark.sequence)
        try:
            scribe.recorder.keep(State(scribe.time_us, Namespace.SENDER_MARK, mark.key, value))
        except StoreFull:
            scribe.exhausted = True  # the recorder keeps it, and no batch is taken without it
            mark.links += 1  # until then nothing but this object knows
            scribe.when_synced(self._let_go, mark)

    def suppress(self, mark: Mark, place: Place, payload: bytes, target: Target | None, actor: int) -> None:
        """Count a message that was posted before, and record that it came again. Which posting it repeats is known of
        the highest one alone; sequence 0 stands for the others. `target` is None where its address is no more."""
        sections = scan_sections(payload)
        body = payload[sections.bounds[BODY] : sections.bounds[BODY + 1]]
        sequence = mark.sequence if place[:2] == mark.at else 0
        number = 0
        if target is not None:
            number = target.number
            target.counts[_DUPLICATE] += 1
        scribe = self._scribe
        try:
            scribe.recorder.transition(_DUPLICATE, sequence, number, fingerprint(body), scribe.time_us, actor)
        except StoreFull:
            scribe.exhausted = True  # the recorder keeps the event


__all__ = ["NAME_MAX", "Claim", "Mark", "Marks"]

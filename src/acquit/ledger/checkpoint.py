"""Keeping recovery short: the oldest segment's live content is written again, and the segment leaves.

Segments leave strictly oldest first. Dropping one from the middle would bring back what its records had retired, and
a snapshot of everything would stop the broker for as long as it takes; instead, before the oldest one leaves,
whatever in it still matters is appended again like any other record:

1. state: every key of the `StateTable` that was last set in it (a queue, keyed state, reservations);
2. messages: every live one whose record stands in it, as a COPIED record with its body and its history; further copies
   of one posting, where a topic has several subscriptions, as a COPIED_WITH record each, which names the first;
3. when all of that is appended, a LEFT record with the segment's own totals. Once that is synced, the segment is
   archived.

**Proof.** Before step 3 the owner's account of the segment must be zero (`ledger.occupancy`): a count of records that
does not know how the messages were found. If it is not, the segment stays, which the owner is told. Nothing is lost,
the broker goes on, and the segment is tried again with a new census once the log has grown by its size.

Who stands in it, a census of all segments says (`ledger.census`). Nothing is copied twice for one segment, and what
changes meanwhile changes by records further on. But one thing comes to stand in the segment while it leaves: what a
transaction holds there is another message once it is committed, and has its record where it was. So before step 3 it is
asked again who stands there. A crash in between costs nothing: the
copies already made stand for their originals, and the next run begins again with what is still in the segment. Copying
forward is no event in the balance of a queue.

All of it happens in small steps between other work: the loop decides and appends, bodies are read by a thread.

**When.** When recovery would have to read more than `recovery_bytes_max`, but only while less than half of that is
live: a backlog that is simply large would otherwise be copied round and round. So recovery reads about the larger of
the option and twice the backlog. And whatever was copied, beyond a sixteenth of its segment, must first be matched by
as much new in the log before the next segment is begun: copying takes little more than every second byte. The sixteenth
is for a backlog that was consumed: it leaves also while nobody writes, for little beside what it cost to write it. From
what a look at this has found follows how far the log has to grow before another is worth it (`Checkpointer.look_at`):
however fast it is written, the segments leave as fast as they come.

A segment that leaves costs records as well: that it left, and later that it was deleted, each with its summary. Where
segments are small and queues many, that may be as much as a segment holds, and one would follow the other for ever. So
when recovery would not have to read less than before the last one left, the next waits until something has happened.

Where bodies are to be erased in time (`JournalOptions.erase_bodies_after_s`), age is a reason as well, whatever the
size: the open segment is closed, and a closed one leaves, once it is half as old as that. But only where something was
posted or settled since: what holds nothing but live messages, and records about segments, need not be written again.

When the disk is full, a segment that leaves may make room. Then the oldest is let go sooner, but only when all that is
live would fit into a quarter of it: the reserve is for outcomes first.
"""

from __future__ import annotations

import contextlib
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from acquit.errors import StoreFull
from acquit.ledger.census import Census
from acquit.ledger.live import LiveMessage, copied, copied_with
from acquit.ledger.recorder import Recorder
from acquit.ledger.table import Key
from acquit.store.interface import Journal, Position, Record, SegmentInfo

_HEAD_GUESS_BYTES: Final = 512
"""Bytes of a record beside its payload, at most, mostly: a reader's hint."""
_OVERHEAD_GUESS_BYTES: Final = 160
"""Average bytes of a record beside its payload. A bad guess only makes the rule about the backlog less sharp."""
_FREE_SHARE: Final = 16
"""Divisor: one such part of a segment may be copied without being matched by anything new."""
_NO_BASE: Final = Position(-1), 0


class CheckpointOwner(Protocol):
    """Owner of the live messages (the broker). On the loop."""

    @property
    def live_bytes(self) -> int:
        """Payloads of all live messages together."""
        ...

    @property
    def live_count(self) -> int:
        """Number of messages that are live."""
        ...

    @property
    def last_sequence(self) -> int:
        """The highest sequence that was given to a message."""
        ...

    def sequences(self) -> Iterable[int]:
        """Return the sequences of all messages that are live at this moment, those held by transactions included (by
        their provisional sequence), whatever becomes of them while the caller goes through them."""
        ...

    def take_committed(self) -> Iterable[int]:
        """Sequences of the messages that transactions held, and that are live since they were committed: since the last
        call."""
        ...

    def live(self, sequence: int) -> LiveMessage | None:
        """The message as it now is, or None when it is not live any more."""
        ...

    def positions(self, sequences: Sequence[int]) -> Sequence[int]:
        """Return where the records of these messages now stand; 0 for each that is not live any more. Costs a tenth of
        `live`, and nothing is made of a message for it."""
        ...

    def occupants(self, segment: int) -> int:
        """Count the live messages that have their record in the segment of this number or an older one, by an account
        of its own. Not 0 where that cannot be told."""
        ...

    def stays(self, segment: int, messages: int) -> None:
        """The segment cannot leave: so many messages in it have no newer record. 0: it has left after all."""
        ...

    def moved(self, sequence: int, position: Position) -> None:
        """The message's record now stands at `position`, which can be read once it is synced; until then the old one
        can."""
        ...


class BodyRead:
    """Records to be read off the loop."""

    def __init__(self, journal: Journal, wanted: list[tuple[int, Position, int]], seal_of: int) -> None:
        self._journal = journal
        self._wanted = wanted
        self._seal_of = seal_of
        self.records: list[tuple[int, Record]] = []
        self.summary: bytes | None = None

    def run(self) -> None:
        """Read them, on any thread; blocks. Raises StoreCorrupt or StoreFailed: the journal cannot be trusted then; or
        StoreFull, where a file cannot be opened now: it is to be run again."""
        records: dict[Position, Record] = {}
        for _, position, hint in self._wanted:
            if position not in records:  # copies of one posting share it
                records[position] = self._journal.read(position, hint)
        self.records = [(sequence, records[position]) for sequence, position, _ in self._wanted]
        if self._seal_of:
            self.summary = self._journal.read_seal(self._seal_of)


class Checkpointer:
    """Drives one segment at a time out of the recovery set. On the loop.

    Call `advance` often while it is `active`, else once the log is synced up to `look_at`, and each tick: what is live
    may have become less. When `take_read` gives something, run it on a thread and give it back with `complete_read`.
    """

    def __init__(
        self,
        recorder: Recorder,
        owner: CheckpointOwner,
        *,
        recovery_bytes_max: int,
        leave_after_us: int | None = None,
        step_records: int = 256,
        step_bytes: int = 1 << 20,
        step_candidates: int = 8192,
    ) -> None:
        """A step appends at most `step_records` records, of about `step_bytes`, and looks at no more than
        `step_candidates` messages."""
        self._recorder = recorder
        self._journal = recorder.journal
        self._owner = owner
        self._recovery_bytes_max = recovery_bytes_max
        self._leave_after_us = leave_after_us
        self._messages = 0, 0
        """The last sequence and the number of live messages at the last look."""
        self._changed_up_to = self._journal.end
        """The end of the journal when either was last seen to change: what stands before may be of settled messages."""
        self._open = 0, 0
        """The segment that was open at the last look, and when it was first seen."""
        self._turned = 0
        """The segment that was asked to close."""
        self._step_records = step_records
        self._step_bytes = step_bytes
        self._step_candidates = step_candidates
        self._segment: SegmentInfo | None = None
        self._census: Census | None = None
        self._base = _NO_BASE
        """The record whose payload was copied forward last, and the message it was copied with."""
        self._keys: deque[Key] = deque()
        """State still to be set again."""
        self._candidates: Sequence[int] | None = None
        """Messages to be looked at; None before it is known who they are."""
        self._looked = 0
        """Number of those that were."""
        self._ready: BodyRead | None = None
        self._out: BodyRead | None = None
        self._copies: deque[tuple[int, Record]] = deque()
        """Read, and still to be appended."""
        self._summary: bytes | None = None
        """Summary in the segment's seal: the last thing that is read."""
        self._copied_bytes = 0
        self._staying = False
        """The oldest segment could not leave when it was to."""
        self._resume_at = 0
        """No segment is begun before the log has grown to here."""
        self._span = sys.maxsize
        """Bytes that recovery would have had to read when the last segment began to leave."""
        self._eventful_batches = -1
        """Number of eventful batches when that segment had left."""
        self.look_at = 0
        """Position before which a look is not worth it either, unless less is live than there was at the last one."""

    @property
    def active(self) -> bool:
        """A segment is on its way out."""
        return self._segment is not None

    def advance(self, time_us: int) -> None:
        """Do the next step, if there is one. May raise what `Recorder.append` raises: nothing is lost by that, the
        next call goes on where this one stopped."""
        self._hear_of_commits()
        if self._leave_after_us is not None:
            self._mind_the_age(time_us, self._leave_after_us)
        if self._journal.congested or self._ready is not None or self._out is not None:
            return
        segment = self._segment
        if segment is None:
            segment = self._segment = self._due(time_us)
            if segment is None:
                return
            self._keys = deque(self._recorder.table.stale(segment.end))
            self._candidates = None
        if self._candidates is None and not self._look_who_stands_in(segment):
            return
        if self._keys:
            self._set_again(segment, time_us)
        elif self._copies or self._summary is not None:
            self._append_copies(segment)
        else:
            self._ready = self._gather(segment)

    def _hear_of_commits(self) -> None:
        committed = self._owner.take_committed()
        if self._census is not None:
            self._census.add(committed)

    def _look_who_stands_in(self, segment: SegmentInfo) -> bool:
        """Take a step; True when it is known."""
        census = self._census
        if census is None or not census.covers(segment):
            census = self._census = Census(
                self._journal.segments, self._journal.end, self._owner.sequences(), self._owner.positions
            )
        if not census.ask(self._step_candidates):
            return False
        self._candidates, self._looked = census.take(segment), 0
        return True

    def _set_again(self, segment: SegmentInfo, time_us: int) -> None:
        for _ in range(min(self._step_records, len(self._keys))):
            entry = self._recorder.table.renewed(self._keys[0], segment.end, time_us)
            if entry is not None:
                position = self._recorder.append(entry)
                self._copied_bytes += self._journal.end - position
            self._keys.popleft()

    def _mind_the_age(self, time_us: int, leave_after_us: int) -> None:
        """Take note of what was posted and settled, and have the open segment closed when it is old enough."""
        owner, journal = self._owner, self._journal
        messages = owner.last_sequence, owner.live_count
        if messages != self._messages:
            self._messages, self._changed_up_to = messages, journal.end
        newest = journal.segments[-1]
        if newest.number != self._open[0] or time_us < self._open[1]:  # or the clock was set back
            self._open = newest.number, time_us
        old = self._open[1] <= time_us - leave_after_us
        if old and newest.base < self._changed_up_to and self._turned != newest.number:
            with contextlib.suppress(StoreFull):
                journal.turn()
                self._turned = newest.number

    def _is_aged(self, segment: SegmentInfo, time_us: int) -> bool:
        age_us = self._leave_after_us
        if age_us is None or segment.base >= self._changed_up_to:
            return False
        return self._journal.age_us(segment, time_us) >= age_us

    def _due(self, time_us: int) -> SegmentInfo | None:
        """The oldest segment, if it is time for it to leave."""
        journal, owner = self._journal, self._owner
        segments = journal.segments
        at = bisect_right(segments, journal.left_through, key=lambda info: info.number)
        self.look_at = journal.end + 1
        if len(segments) - at < 2 or not segments[at].sealed:
            return None
        oldest = segments[at]
        live_bytes = owner.live_bytes + owner.live_count * _OVERHEAD_GUESS_BYTES
        if journal.full:
            if live_bytes > oldest.file_bytes // 4:
                return None
        elif not self._is_aged(oldest, time_us):
            due_at = max(oldest.base + max(self._recovery_bytes_max, 2 * live_bytes) + 1, self._resume_at)
            if journal.end < due_at:
                self.look_at = due_at
                return None
            if journal.end - oldest.base >= self._span and journal.eventful_batches == self._eventful_batches:
                return None
        self._span = journal.end - oldest.base
        self._copied_bytes = 0
        self.look_at = sys.maxsize
        return oldest

    def _gather(self, segment: SegmentInfo) -> BodyRead | None:
        """The next few messages to be copied; after the last of them, the seal."""
        wanted: list[tuple[int, Position, int]] = []
        size = 0
        last = -1
        until = self._looked + self._step_candidates
        while self._looked < until and len(wanted) < self._step_records and size < self._step_bytes:
            asked = (self._candidates or ())[self._looked : min(until, self._looked + self._step_records)]
            if not asked:
                return BodyRead(self._journal, wanted, segment.number)
            for sequence, position in zip(asked, self._owner.positions(asked), strict=True):
                self._looked += 1
                message = self._owner.live(sequence) if 0 < position < segment.end else None
                if message is not None:
                    wanted.append((sequence, message.position, message.size_bytes + _HEAD_GUESS_BYTES))
                    size += 0 if message.position == last else message.size_bytes
                    last = message.position
                    if len(wanted) >= self._step_records or size >= self._step_bytes:
                        break
        return BodyRead(self._journal, wanted, 0) if wanted else None

    def take_read(self) -> BodyRead | None:
        """Return something to be read off the loop, or None."""
        if self._ready is None:
            return None
        self._out, self._ready = self._ready, None
        return self._out

    def complete_read(self, read: BodyRead) -> None:
        """The read was run: append the copies of what is still live and still there. May raise as `advance`."""
        if read is not self._out or self._segment is None:
            raise ValueError("this read is not out")
        self._out = None
        self._copies.extend(read.records)
        self._summary = read.summary
        self._append_copies(self._segment)

    def _base_of(self, record: Record) -> LiveMessage | None:
        """The message that took the payload of this record along, if it still lives."""
        position, sequence = self._base
        return self._owner.live(sequence) if position == record.position else None

    def _append_copies(self, segment: SegmentInfo) -> None:
        while self._copies:
            sequence, record = self._copies[0]
            message = self._owner.live(sequence)
            if message is not None and message.position == record.position:
                base = self._base_of(record)
                beside = None if base is None else copied_with(message, base)
                if base is None or beside is None:
                    position = moved_to = self._recorder.append(copied(message, record))
                    self._base = record.position, sequence
                else:
                    position, moved_to = self._recorder.append(beside), base.position
                self._owner.moved(sequence, moved_to)
                self._copied_bytes += self._journal.end - position
            self._copies.popleft()
        if self._summary is not None:
            assert self._census is not None
            self._hear_of_commits()
            committed = self._census.take(segment)
            if committed:
                self._candidates, self._looked, self._summary = committed, 0, None
                return
            if self._is_empty(segment):
                self._recorder.flush()
                self._journal.leave(segment.number, self._summary)
                wait_bytes = self._copied_bytes - (segment.end - segment.base) // _FREE_SHARE
            else:
                self._census = None
                wait_bytes = segment.file_bytes
            self._segment = self._summary = None
            self._eventful_batches = self._journal.eventful_batches
            self._base = _NO_BASE
            self._resume_at = self.look_at = self._journal.end + wait_bytes

    def _is_empty(self, segment: SegmentInfo) -> bool:
        """True if it is proven that nothing live has its record in the segment, or in one before it."""
        messages = self._owner.occupants(segment.number)
        if messages or self._staying:
            self._owner.stays(segment.number, messages)
        self._staying = bool(messages)
        return not messages

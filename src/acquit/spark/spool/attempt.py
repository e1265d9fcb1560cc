"""Attempt at one (epoch, part): the protocol that turns unsettled deliveries into rows exactly once.

1. The log names (epoch, part): replay its data file; no broker is asked. The epoch is at or below the floor: refuse.
2. Drain up to the limits and hold everything unsettled. Look each message up in the log; make rows of the new ones and
   write them to a data file under a name of our own.
3. Publish: append an entry naming (epoch, part), the data file, and every drained message with the outcome it will be
   given. At each number of the log we look again: what other entries name in the meantime is skipped and set aside;
   if another attempt has published our part, ours is void: give everything back, replay theirs.
4. Settle, the set-aside ones with the outcome that their entry records.

Why nothing is lost: a message is settled only after an entry naming it is in the log, and its row is in the data file
of that entry or of the earlier entry that set it aside. A part that was published is replayed until its batch is
committed, and the floor, which ends that, is raised only after. Why nothing doubles: entries are in one order, each was
written by someone who had read all before it, so of two entries naming a message the later one skips it.

It does not matter where an attempt is killed, or how long it sleeps between two of its steps: before 3 its
deliveries go back to the queue, after 3 its copy finds the entry, and what was not settled comes again and is set
aside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID, uuid4
from zlib import crc32

import numpy as np
import pyarrow as pa

from acquit.errors import MessageUnusable, SpoolDamaged, SpoolFenced
from acquit.spark.spool.data import decode_batches, encode_batches, spans, without
from acquit.spark.spool.drain import Drain, Identified, MessageReader, Numbers, take_messages
from acquit.spark.spool.entries import FIRST_FORMAT, SECOND_FORMAT, LogTotals, Publication
from acquit.spark.spool.housekeeping import number_of
from acquit.spark.spool.identities import I64, U8, UNKNOWN, Identities, Mask, Outcome
from acquit.spark.spool.log import Log, LogState
from acquit.spark.spool.store import SpoolStore

_FEW: Final = 256
"""Messages to have at least before they are looked at: to read some together takes milliseconds, whatever their number,
and what is kept of that a page or two."""
NEWER_MAX: Final = 1_000
"""An AvailableNow part ends after this many messages posted after the run began. They are given back."""


class Poison(StrEnum):
    """Treatment of a message that cannot be parsed."""

    COLUMN = "column"
    REJECT = "reject"
    FAIL = "fail"


class MissingIdentity(StrEnum):
    """Treatment of a message that has no identity."""

    FAIL = "fail"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The work of one task."""

    epoch: int
    part: int
    rows_max: int
    bytes_max: int
    """The message that passes it is the last one."""
    until_sequence: int | None = None
    """AvailableNow on an acquit broker: the last sequence that counts as being there."""
    poison: Poison = Poison.COLUMN
    missing_identity: MissingIdentity = MissingIdentity.FAIL


class Result(NamedTuple):
    """Result of a part: what the log says of it, and its rows."""

    publication: Publication
    batches: Iterator[pa.RecordBatch]
    replayed: bool


def take_part(
    store: SpoolStore,
    log: Log,
    part: Part,
    connect: Callable[[], Drain],
    reader: MessageReader,
    now_ms: Callable[[], int],
) -> Result:
    """Replay or drain `part`. Everything durable has happened when this returns; the batches are only read.

    Raises SpoolFenced when the epoch is finished, MessageUnusable when the options say to stop at a message, and
    whatever `connect` and the store raise: then nothing is published and everything drained has been given back.
    """
    state = log.read()
    _refuse_finished(state, part, store)
    decided = state.decided.get((part.epoch, part.part))
    if decided is not None:
        return replay(store, decided)
    drain = connect()
    try:
        attempt = _PartAttempt(part, reader, drain.broker_id, *_drain(drain, part, reader))
        attempt.look_up(state)
        attempt.make_rows(store)
        state = log.append(lambda latest: attempt.decide(latest, store, now_ms))
        decided = state.decided[part.epoch, part.part]
        if decided.nonce != attempt.nonce:
            drain.detach()
            return replay(store, decided)
        if drain.settle(attempt.answers()):
            store.put(acknowledgement_name(decided), b"", durable=False)
        rows = without(attempt.batches, decided.skipped) if decided.data is not None else iter(())
        return Result(decided, rows, replayed=False)
    finally:
        drain.detach()


def replay(store: SpoolStore, publication: Publication) -> Result:
    """The rows of a published part."""
    # Its writer may have died between giving it its name and making that name durable: we are about to act on it.
    store.sync("log")
    if publication.data is None:
        return Result(publication, iter(()), replayed=True)
    data = store.view(publication.data)
    if data is None:
        raise SpoolDamaged(
            f"spool {store.place}: {publication.data}, the rows of epoch {publication.epoch} part {publication.part}, "
            "is missing"
        )
    if publication.crc is not None and crc32(data) != publication.crc:
        raise SpoolDamaged(
            f"spool {store.place}: {publication.data}, the rows of epoch {publication.epoch} part {publication.part}: "
            "the checksum does not fit: the file was altered or is cut short. `acquit spool verify` says what it costs"
        )
    return Result(publication, without(decode_batches(data), publication.skipped), replayed=True)


def acknowledgement_name(publication: Publication) -> str:
    """The file that says: every delivery of this publication was settled, and the broker answered."""
    return f"acknowledged/{publication.epoch}-{publication.part}-{publication.nonce}"


_ACKNOWLEDGED: Final = re.compile(r"\d+-\d+-[0-9a-f]{32}")
"""Names of `acknowledgement_name`; another program may leave files of others beside them."""


def lost_publications(acknowledged: Iterable[str], state: LogState) -> list[str]:
    """Return those of the names in `acknowledged`, listed before the log was read, that are above the floor and of no
    publication. A marker is written after its entry, so these entries were lost."""
    known = {acknowledgement_name(one).partition("/")[2] for one in state.decided.values()}
    return sorted(
        name
        for name in acknowledged
        if name not in known and _ACKNOWLEDGED.fullmatch(name) and (number_of(name) or 0) > state.floor
    )


def _refuse_finished(state: LogState, part: Part, store: SpoolStore) -> None:
    if part.epoch <= state.floor:
        raise SpoolFenced(
            f"spool {store.place}: epoch {part.epoch} part {part.part} is finished (the floor is {state.floor}) and "
            "is never read again. If this is not a left-over task of a dead query, the checkpoint is older than the "
            "spool: restore the newer checkpoint, or start a new query with a new checkpoint and a new spool"
        )


class _Drained:
    """Messages that were drained, in their order."""

    def __init__(self) -> None:
        self.count = 0
        self.numbers: list[I64] = []
        """Numbers of them at their drain, part by part."""
        self._identified: list[Identified] = []

    def add(self, first: int, count: int, identified: Identified, rows: I64) -> None:
        """Add these rows of so many that were received. `first`: the number of the first."""
        if len(rows) < count:
            identified = identified.take(rows)
        self.count += len(rows)
        self.numbers.append(rows + first)
        self._identified.append(identified)

    def identified(self) -> Identified:
        """Return what is known of all of them."""
        return Identified.join(self._identified)


def _drain(drain: Drain, part: Part, reader: MessageReader) -> tuple[_Drained, bool]:
    """Drain what the limits allow. Return it, and whether the part came to an end: of the queue, or of what is older
    than the newest that it may take. What is too new is held, counts for the limits, and is not returned."""
    drained = _Drained()
    size = newer = received = 0
    over = False
    while not over and drained.count + newer < part.rows_max and size < part.bytes_max and newer < NEWER_MAX:
        few = _FEW if part.until_sequence is None else min(_FEW, NEWER_MAX - newer)
        payloads, over = _receive(drain, few, part.rows_max - drained.count - newer, part.bytes_max - size)
        if not payloads:
            break
        identified = reader.identify(payloads, drain.broker_id)
        sizes = np.cumsum([size, *map(len, payloads)])
        size = int(sizes[-1])
        count = min(int(np.searchsorted(sizes, part.bytes_max)), len(payloads))
        rows = np.arange(count)
        if part.until_sequence is not None:
            rows = np.flatnonzero(identified.sequences[:count] <= part.until_sequence)
            newer += count - len(rows)
        drained.add(received, len(payloads), identified, rows)
        received += len(payloads)
    # With priorities, older ones may be behind newer ones: whoever knows asks the broker (`spark.driver`).
    return drained, newer > 0 or (over and drain.exhausted)


def _receive(drain: Drain, few: int, rows_max: int, bytes_max: int) -> tuple[list[bytes], bool]:
    """Receive messages until they are `few` at least, or reach a limit. Return them, and whether nothing more came."""
    payloads: list[bytes] = []
    size = 0
    while len(payloads) < min(few, rows_max) and size < bytes_max:
        received = drain.receive(rows_max - len(payloads))
        if not received:
            return payloads, True
        payloads += received
        size += sum(map(len, received))
    return payloads, False


class _PartAttempt:
    """Drained messages of a part, and what is known of them. Arrays are over these messages, in their order."""

    def __init__(
        self,
        part: Part,
        reader: MessageReader,
        broker_id: UUID | None,
        drained: _Drained,
        ended: bool,
    ) -> None:
        self.nonce = uuid4().hex
        self.batches: Sequence[pa.RecordBatch] = ()
        self._part = part
        self._reader = reader
        self._broker_id = broker_id
        self._drained = drained
        self._ended = ended
        count = drained.count
        identified = drained.identified()
        self._messages = identified.messages
        self._named = identified.named
        self._names_posting = identified.names_posting
        self._identities = identified.identities.take(self._named)
        if part.missing_identity is MissingIdentity.FAIL and not self._named.all():
            raise MessageUnusable(
                f"{int((~self._named).sum())} of {count} messages have no identity (no sequence of an acquit "
                "broker, not the field of `identityField`, no message-id), so a redelivery could not be recognised; "
                "they are still in the queue. Name a field with `identityField`, or accept duplicates with "
                "`missingIdentity = at-least-once`"
            )
        self._repeats = self._find_repeats()
        self._repeated: Mask = np.zeros(count, np.bool_)
        self._repeated[list(self._repeats)] = True
        self._seen_slot = -1
        self._recorded: U8 = np.full(count, UNKNOWN, np.uint8)
        """The outcome that an earlier entry records; UNKNOWN for new messages."""
        self._conflict: Mask = np.zeros(count, np.bool_)
        """Mask of conflicts with what an earlier entry names. Of what one has recorded it says nothing."""
        self._conflict_within: Mask = np.zeros(count, np.bool_)
        """Mask of conflicts with what was drained before."""
        self._conflict_within[self._named] = self._identities.conflicts()
        self._rejected: Mask = np.zeros(count, np.bool_)
        self._file_rows = np.arange(0)
        """Place of the drained message of each row of the data file."""
        self._corrupt: Mask = np.zeros(count, np.bool_)
        self._data: str | None = None
        self._crc: int | None = None

    def look_up(self, state: LogState) -> None:
        """Find what `state` has named."""
        if state.next_slot == self._seen_slot:
            return
        self._seen_slot = state.next_slot
        self._recorded[self._named], self._conflict[self._named] = state.outcomes(self._identities)
        if not state.earlier:
            return
        rows = np.flatnonzero(self._named & (self._recorded == UNKNOWN))
        self._recorded[rows], conflict = state.outcomes(self._earlier(rows, SECOND_FORMAT), earlier=True)
        self._conflict[rows] |= conflict
        # The number of a posting with another content: an entry of the first format, or another posting indeed.
        rows = rows[conflict]
        self._recorded[rows], _ = state.outcomes(self._earlier(rows, FIRST_FORMAT), earlier=True)

    def _earlier(self, rows: I64, log_format: int) -> Identities:
        return self._reader.earlier(take_messages(self._messages, rows), self._broker_id, log_format)

    def make_rows(self, store: SpoolStore) -> None:
        """Rows of the new messages, in a data file of our own."""
        rows = np.flatnonzero(~self._again())
        made = self._reader.rows(take_messages(self._messages, rows), self._broker_id)
        corrupt = rows[sorted(made.corrupt)]
        if len(corrupt) and self._part.poison is Poison.FAIL:
            raise MessageUnusable(
                f"{len(corrupt)} of {len(rows)} messages cannot be parsed, the first: "
                f"{made.corrupt[min(made.corrupt)]}; they are still in the queue. Take them with `poison = column`, or "
                "out of the way with `poison = reject`"
            )
        self.batches = made.batches
        self._file_rows = rows
        if self._part.poison is Poison.REJECT:
            self._rejected[corrupt] = True
            bad = spans(sorted(made.corrupt))
            self.batches = list(without(made.batches, bad))
            self._file_rows = rows[~self._rejected[rows]]
        else:
            self._corrupt[corrupt] = True
        if len(self._file_rows):
            self._data = f"data/{self._part.epoch}-{self._part.part}-{self.nonce}.arrow"
            pieces, self._crc = encode_batches(self.batches)
            store.put(self._data, *pieces)

    def decide(self, state: LogState, store: SpoolStore, now_ms: Callable[[], int]) -> Publication | None:
        """The entry to append in the light of `state`; None when the part is decided, by us or by another."""
        if (self._part.epoch, self._part.part) in state.decided:
            return None
        _refuse_finished(state, self._part, store)
        self.look_up(state)
        again = self._again()
        skipped = again[self._file_rows]
        kept = self._file_rows[~skipped]
        return Publication(
            epoch=self._part.epoch,
            part=self._part.part,
            nonce=self.nonce,
            data=self._data if len(kept) else None,
            crc=self._crc if len(kept) else None,
            skipped=spans(np.flatnonzero(skipped).tolist()) if len(kept) else (),
            totals=LogTotals(
                rows=len(kept),
                set_aside=int(again.sum()),
                corrupt=int(self._corrupt[kept].sum()),
                rejected=int((self._rejected & ~again).sum()),
                conflicts=int((self._conflict | self._conflict_within)[kept].sum()),
                unidentified=int((~self._named[kept]).sum()),
            ),
            ended=self._ended,
            written_at_ms=now_ms(),
            identities=Identities(
                self._identities.identity,
                self._identities.match_low,
                self._identities.match_high,
                self._outcomes()[self._named],
            ).sort(),
        )

    def answers(self) -> dict[Outcome, Numbers]:
        """Return what to settle, by outcome, once published: the numbers at the drain."""
        numbers, outcomes = np.concatenate([*self._drained.numbers, np.arange(0)]), self._outcomes()
        found = {one: numbers[outcomes == one] for one in Outcome}
        return {one: its_own for one, its_own in found.items() if len(its_own)}

    def _again(self) -> Mask:
        recorded: Mask = self._recorded != UNKNOWN
        return recorded | self._repeated

    def _outcomes(self) -> U8:
        own = np.where(self._rejected, np.uint8(Outcome.REJECTED), np.uint8(Outcome.ACCEPTED))
        outcomes = np.where(self._recorded == UNKNOWN, own, self._recorded).astype(np.uint8)
        for row, first in self._repeats.items():
            outcomes[row] = outcomes[first]
        return outcomes

    def _find_repeats(self) -> dict[int, int]:
        """Deliveries of a posting that came earlier in this drain (a lock ran out), and that earlier one."""
        rows = np.flatnonzero(self._named).tolist()
        repeats = {rows[later]: rows[first] for later, first in self._identities.repeats().items()}
        return {row: first for row, first in repeats.items() if self._names_posting[row]}

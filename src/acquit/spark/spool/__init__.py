"""The spool: how a queue becomes something that Spark can read twice.

Spark reads a batch again after a failure and expects the same rows. A queue gives a message once. So each batch's
messages are first written to a folder that all workers share, and only then settled; whoever reads the batch again
reads the folder. What makes this exact under crashes, copies and sleepers is a numbered log (`spool.log`) and a fixed
order of steps (`spool.attempt`); what keeps it small is `spool.housekeeping`. Nothing here knows Spark or AMQP.

::

    SPOOL/owner, source             the query that this spool belongs to, and which source of it (`spool.owner`)
          log/000000000042          entries: publications, floors, checkpoints
          checkpoints/000000000040  marker: this entry is a checkpoint, entries before it may be gone
          data/7-0-NONCE.arrow      rows of epoch 7, part 0
          identities/40-NONCE-0     fingerprints of what was taken, sorted
          plans/7-NONCE             left by the driver for the tasks of epoch 7 to find
          acknowledged/7-0-NONCE    every delivery of that publication was settled, and the broker answered
          probes/NONCE              for the moment of opening

`Spool` is the whole of it for a driver or a task.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from acquit.errors import SpoolDamaged, SpoolNotShared, SpoolOwned, SpoolUnfit
from acquit.spark.spool.attempt import (
    MissingIdentity,
    Part,
    Poison,
    Result,
    acknowledgement_name,
    lost_publications,
    take_part,
)
from acquit.spark.spool.drain import Drain, Identified, MessageReader, Numbers, Rows
from acquit.spark.spool.entries import Forgotten, LogTotals
from acquit.spark.spool.housekeeping import RetentionOptions, finish_epochs, number_of
from acquit.spark.spool.identities import Outcome
from acquit.spark.spool.log import Log, LogState, slot_name
from acquit.spark.spool.owner import (
    claim,
    claim_source,
    read_owner,
    refuse_lost_owner,
    refuse_other_source,
    what_if_lost,
)
from acquit.spark.spool.places import describe, open_store
from acquit.spark.spool.store import FolderStore, SpoolStore, StoreDoubt

__all__ = [
    "Drain",
    "FolderStore",
    "Forgotten",
    "HeldFiles",
    "Identified",
    "LogState",
    "LogTotals",
    "MessageReader",
    "MissingIdentity",
    "Numbers",
    "Outcome",
    "Part",
    "Poison",
    "Result",
    "RetentionOptions",
    "Rows",
    "Spool",
    "SpoolStatus",
    "SpoolStore",
    "StoreDoubt",
    "open_store",
]


def wall_clock_ms() -> int:
    """Milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStatus:
    """Status of a spool, as far as its folder alone tells."""

    query: str | None
    floor: int
    totals: LogTotals
    published: int
    """Parts above the floor that are published and may be replayed."""
    unacknowledged: int
    """Published parts with deliveries not known to be settled. These may come again, and are then set aside."""
    remembered: int
    """Identities."""
    remembered_since_ms: int | None
    """Wall clock of the oldest: a message that comes again after being taken before that is a new row."""
    forgotten: Forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFiles:
    """Data files that are there now, of finished epochs too until they are cleaned away."""

    files: int
    bytes: int
    oldest_epoch: int | None


class Spool:
    """The spool in `store`. One for a process and folder; not safe for threads."""

    def __init__(
        self,
        store: SpoolStore,
        retention: RetentionOptions | None = None,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._store = store
        self._retention = retention or RetentionOptions()
        self._now_ms = now_ms
        self._log = Log(store)
        self._proven = False

    @property
    def place(self) -> str:
        return self._store.place

    def prove(self) -> None:
        """Show, once in a process, that the store refuses a second write of one name, and lists what it has.

        Raises SpoolUnfit; StoreDoubt when the store does not answer.
        """
        if self._proven:
            return
        nonce = uuid4().hex
        name = f"probes/{nonce}"
        try:
            first = self._store.put_if_absent(name, b"first")
            second = self._store.put_if_absent(name, b"second")
            kept = self._store.get(name)
            listed = nonce in self._store.names("probes")
        finally:
            self._store.remove(name)
        if not first or second or kept != b"first":
            raise SpoolUnfit(
                f"spool {self.place}: this store lets one name be written twice (first write {first}, second {second}, "
                f"kept {kept!r}); exactly-once cannot be kept on it. Use a local or shared POSIX folder with hard "
                "links, or an object store with conditional writes (If-None-Match)"
            )
        if not listed:
            raise SpoolUnfit(
                f"spool {self.place}: this store does not list what it has just been given; exactly-once cannot be "
                "kept on it. On NFS, mount with lookupcache=none; an object store must list consistently"
            )
        self._proven = True

    def plan(self, epoch: int, nonce: str | None = None, *, durable: bool = False) -> str:
        """Leave a nonce, or this one, for the tasks of `epoch` and return it. For the driver."""
        nonce = nonce or uuid4().hex
        self._store.put(f"plans/{epoch}-{nonce}", b"", durable=durable)
        return nonce

    def has_plan(self, epoch: int, nonce: str) -> bool:
        """True if the plan of that nonce is here. It goes when its epoch is finished."""
        return self._store.get(f"plans/{epoch}-{nonce}") is not None

    def check_plan(self, epoch: int, nonce: str) -> None:
        """Raise SpoolNotShared unless the driver's nonce is here. Asks before anything is written or drained."""
        if not self.has_plan(epoch, nonce):
            raise SpoolNotShared(
                f"spool {self.place} on host {socket.gethostname()}{describe(self.place)} is not the folder that the "
                f"driver wrote to, or the task is a left-over of epoch {epoch}: the option `spool` must name a folder "
                "that the driver and all workers share (a local folder is shared only with a `local[...]` master), or "
                "s3://bucket/path"
            )

    def claim(self, query: str) -> str:
        """Make `query` the owner if there is none; raise SpoolOwned if there is another. Returns the spool's own id."""
        return claim(self._store, query).spool

    def claim_source(self, source: int) -> None:
        """Make `source` the one that is served if there is none; raise SpoolOwned if there is another. After `claim`: a
        query that may not have the spool leaves no number in it."""
        claim_source(self._store, source)

    def refuse_other_source(self, source: int | None) -> None:
        """Raise SpoolOwned where another source than this one is served; None: one that has no number yet."""
        refuse_other_source(self._store, source)

    def begins_after(self) -> int:
        """The epoch after which a query with a new checkpoint begins: 0, or where a spool that was given up stood.

        For the driver. Raises SpoolOwned when epochs have been finished since: then there was a checkpoint before; and
        SpoolDamaged when its owner is lost.
        """
        owner = read_owner(self._store)
        begins_after = 0 if owner is None else owner.begins_after
        state = self._log.read()
        refuse_lost_owner(self._store, state)
        if (floor := state.floor) > begins_after:
            query = None if owner is None else owner.query
            raise SpoolOwned(
                f"spool {self.place} belongs to the query {query}, which has finished epoch {floor}, and this "
                f"checkpoint is new: start with the checkpoint of {query}, or name another `spool`. "
                f"{what_if_lost(self.place)}"
            )
        return begins_after

    def state(self) -> LogState:
        """Return what the log says now."""
        return self._log.read()

    def refuse_lost_entries(self) -> LogState:
        """Return what the log says now. For the driver, as it begins: two listings.

        Raises SpoolDamaged where the log has lost an entry before others, whose number would be given to another one,
        or one whose rows are acknowledged: its part would be drained as if nobody had come to it yet."""
        listed, acknowledged = self._store.names("log"), self._store.names("acknowledged")
        state = self._log.read()
        if any(int(name) >= state.next_slot for name in listed if name.isdecimal()):
            raise SpoolDamaged(
                f"spool {self.place}: {slot_name(state.next_slot)} is missing, and there are entries after it: restore "
                "it, or start a new query with a new spool and checkpoint. `acquit spool verify` says what that costs"
            )
        lost = lost_publications(acknowledged, state)
        if lost:
            raise SpoolDamaged(
                f"spool {self.place}: the entry of the log that acknowledged/{lost[0]} follows is missing, and its "
                "rows are acknowledged: restore it, or start a new query with a new spool and checkpoint. "
                "`acquit spool verify` says what that costs"
            )
        return state

    def untouched(self) -> bool:
        """True if no epoch was ever planned or published here. For the driver, to notice a spool that was lost."""
        return self._log.read().next_slot == 0 and not self._store.names("plans")

    def take(self, part: Part, connect: Callable[[], Drain], reader: MessageReader) -> Result:
        """Replay or drain `part`: see `spool.attempt.take_part`."""
        return take_part(self._store, self._log, part, connect, reader, self._now_ms)

    def held(self) -> HeldFiles:
        """Return what lies in data files, by one listing. For reports while a query runs."""
        sizes = self._store.sizes("data")
        epochs = [epoch for name in sizes if (epoch := number_of(name)) is not None]
        return HeldFiles(files=len(sizes), bytes=sum(sizes.values()), oldest_epoch=min(epochs, default=None))

    def unacknowledged(self, state: LogState) -> int:
        """Parts in `state` that may be replayed and whose settlements are not all known to have been taken: one
        listing."""
        acknowledged = set(self._store.names("acknowledged"))
        parts = state.decided.values()
        return sum(acknowledgement_name(one).partition("/")[2] not in acknowledged for one in parts)

    def stale(self, epoch: int) -> int:
        """Count the attempts at parts up to `epoch`, none of which is still being read, that left rows which nobody
        will read: another attempt was first, or they ended before they published. `finish` removes what they left."""
        taken = {one.data for one in self._log.read().decided.values()}
        finished = (name for name in self._store.names("data") if (number_of(name) or epoch + 1) <= epoch)
        return sum(f"data/{name}" not in taken for name in finished)

    def finish(self, epoch: int) -> LogState:
        """Epochs up to `epoch` are committed: they are never read again, and their files may go. For the driver."""
        return finish_epochs(self._store, self._log, epoch, self._retention, self._now_ms())

    def status(self) -> SpoolStatus:
        """A summary, for people and reports."""
        state = self._log.read()
        owner = read_owner(self._store)
        written = [run.oldest_ms for run, _ in state.runs] + [recent.written_at_ms for recent in state.recent]
        return SpoolStatus(
            query=None if owner is None else owner.query,
            floor=state.floor,
            totals=state.totals,
            published=len(state.decided),
            unacknowledged=self.unacknowledged(state),
            remembered=sum(run.count for run, _ in state.runs) + sum(len(one.identities) for one in state.recent),
            remembered_since_ms=min(written, default=None),
            forgotten=state.forgotten,
        )

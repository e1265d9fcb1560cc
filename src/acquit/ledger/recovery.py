"""Opening the journal of a broker: the store is recovered, its records folded, a new run begun.

After this, the broker holds the state as of the last synced batch, a START record names the new run and the first
block of sequences is reserved, both synced: it may serve at once.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acquit.ledger.balance import accept_losses, check
from acquit.ledger.collection import without_collection
from acquit.ledger.events import EventKind
from acquit.ledger.fold import Fold
from acquit.ledger.recorder import Recorder
from acquit.ledger.records import (
    FATES_KNOWN,
    KNOWN_EVER_US,
    Namespace,
    Reserved,
    Start,
    State,
    Stop,
    encode_known,
    without_body,
)
from acquit.ledger.sequences import BLOCK, Sequences, first_of_copy
from acquit.store.backup import begin_epoch, is_marked
from acquit.store.disk import Disk, PosixDisk
from acquit.store.folder import Folder, StoreIdentity
from acquit.store.interface import Journal
from acquit.store.journal import SegmentedJournal
from acquit.store.options import JournalOptions
from acquit.store.recovery import RecoveryReport, open_store

_DEFAULTS: Final = JournalOptions()


def wall_clock_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class OpenedJournal:
    """A journal and what it said."""

    journal: SegmentedJournal
    recorder: Recorder
    sequences: Sequences
    fold: Fold
    """The state to start from. Its table is the recorder's, and goes on changing; its messages are the caller's."""
    report: RecoveryReport
    identity: StoreIdentity
    run: Start
    created: bool
    """The folder was new."""
    losses: tuple[str, ...]
    """Descriptions of the losses that were accepted and recorded, one for each queue."""


def open_journal(
    path: Path,
    options: JournalOptions = _DEFAULTS,
    *,
    software: str = "acquit",
    container_id: str = "",
    sequence_block: int = BLOCK,
    accept_loss: bool = False,
    disk: Disk | None = None,
    clock_us: Callable[[], int] = wall_clock_us,
    clock_s: Callable[[], float] = time.monotonic,
    draw: Callable[[int], int] = secrets.randbelow,
) -> OpenedJournal:
    """Open, or make, the journal in a data folder; blocks on the disk. A copy of another's begins a new epoch
    (`acquit.store.backup`), with sequences from where `draw` says (`first_of_copy`).

    What is live must be what the journal's own accounts say: StoreUnbalanced is raised where it is not, unless
    `accept_loss`, which records the difference and goes on. Raises also StoreLocked, StoreVersionUnsupported,
    StoreCorrupt, StoreFull, StoreFailed or StoreError, as `acquit.store.recovery.open_store` does; the folder is then
    as it was, or recovers as before.
    """
    fold = Fold()

    def settle(report: RecoveryReport) -> None:
        fold.settle()
        if not accept_loss:
            check(fold, str(path))

    with without_collection():
        opened = open_store(
            path,
            options,
            fold,
            fold.digest,
            replayed=settle,
            erasing=without_body,
            container_id=container_id,
            disk=disk,
            clock_us=clock_us,
            clock_s=clock_s,
        )
    journal = opened.journal
    folder = Folder(path, disk if disk is not None else PosixDisk())
    identity = opened.identity
    try:
        now_us = clock_us()
        restored = is_marked(folder)
        run = Start(now_us, secrets.randbits(64), fold.clean or opened.created, software)
        known = _fates_known(fold)
        dropped = fold.begin_run(run)
        recorder = Recorder(journal, fold.table)
        reserved = fold.table.reserved_up_to
        first = first_of_copy(reserved, draw) if restored else reserved + 1
        recorder.append(run)
        if known is not None:
            recorder.append(State(now_us, Namespace.FATE, FATES_KNOWN, known))
        losses = accept_losses(fold, now_us) if accept_loss else {}
        for loss in losses.values():
            recorder.append(loss)
        for held in dropped:
            recorder.transition(EventKind.ROLLED_BACK, held.sequence, held.queue, held.fingerprint, now_us)
        recorder.append(Reserved(now_us, first - 1 + sequence_block, fold.table.queue_max, fold.table.actor_max))
        write_now(recorder)
        if restored:
            identity = begin_epoch(folder, identity)
    except BaseException:
        journal.close()
        raise
    sequences = Sequences(recorder, first, fold.table.reserved_up_to, block=sequence_block)
    return OpenedJournal(
        journal, recorder, sequences, fold, opened.report, identity, run, opened.created, tuple(losses)
    )


def _fates_known(fold: Fold) -> bytes | None:
    """Return what the run that is over says of the fates that it knew; None where it says nothing. Before the first run
    there were none."""
    if not fold.table.reserved_up_to:
        return encode_known(KNOWN_EVER_US)
    said = fold.table.state.get((Namespace.FATE, FATES_KNOWN))
    return None if said is None else said.value


def write_now(recorder: Recorder) -> None:
    """Write what is pending and wait for the disk. For opening, closing and tools; a serving loop never does this."""
    batch = recorder.take_batch()
    if batch is not None:
        batch.write_and_sync()
        recorder.journal.complete(batch)


def close_journal(recorder: Recorder, time_us: int) -> None:
    """A clean stop: write what is pending and a STOP record, seal, close. Blocks on the disk.

    No batch may be in flight and no chore running. The journal is closed even when the last write fails; the error is
    raised all the same, and the next start will find an unclean stop.
    """
    journal: Journal = recorder.journal
    try:
        recorder.append(Stop(time_us))
        write_now(recorder)
    finally:
        journal.close()

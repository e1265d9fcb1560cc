"""Keeping the spool small: the floor, what it sets free, and checkpoints of the log.

The driver calls `finish_epochs` when Spark says that a batch is committed. In this order, so that a crash between any
two steps leaves only files that the next call removes:

1. The floor is raised, in the log. From then on no attempt reads or drains those epochs.
2. Files of finished epochs are removed: data files (the winners' and the losers'), plans, acknowledgement markers.
3. When the log has grown, a checkpoint sums it up, its marker is written, and what it replaced is removed.

A removal that fails is logged, and done by the next call as well.

**Who may remove what** follows from names, never from age: every file of an epoch begins with its number and belongs
to the epoch; every file made for a number of the log (a run of identities, a temporary entry) begins with that number,
and once a checkpoint beyond it holds, whoever wrote it has lost the race for which it was made.

**Identities** move from entries into *runs*, sorted files. Runs of similar size are merged (`FANIN` at a time), so
that a look-up searches few of them and each identity is rewritten a few times in its life. A run is forgotten whole:
when its newest identity is older than `identity_retention_ms`, or when there are more than `identity_limit`, oldest run
first. What the limit forgets before its time is counted apart, because it shortens the promise.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

from acquit.errors import ConfigurationError, SpoolError
from acquit.spark.spool.entries import Checkpoint, FloorRaised, Forgotten, Run, encode_run
from acquit.spark.spool.identities import Identities, merge
from acquit.spark.spool.log import MARKERS_KEPT, Log, LogState, marker_name
from acquit.spark.spool.store import TEMPORARY_SUFFIX, SpoolStore

logger = logging.getLogger("acquit.spark")

FANIN: Final = 8
RUN_SHARE: Final = 16
"""No merge makes a run of more than a sixteenth of the limit, nor one that spans more than a sixteenth of the
retention: runs are forgotten whole, so their size is the grain of forgetting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionOptions:
    """Limits to how long and how many identities are remembered."""

    identity_retention_ms: int = 7 * 24 * 3600 * 1000
    """Longer than any redelivery can take: beyond it the guarantee is at-least-once."""
    identity_limit: int = 20_000_000
    """Identities to remember, at most, at 25 bytes each on disk, mapped into every reading process."""
    checkpoint_entries: int = 32
    """A checkpoint after so many entries: what a fresh process has to read, and how many blocks a look-up searches."""

    def __post_init__(self) -> None:
        for name in ("identity_retention_ms", "identity_limit", "checkpoint_entries"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, got {getattr(self, name)}")


def finish_epochs(store: SpoolStore, log: Log, epoch: int, options: RetentionOptions, now_ms: int) -> LogState:
    """Raise the floor to `epoch` and clean up. Safe to call twice, late, or by a driver that was believed dead."""
    nonce = uuid4().hex
    state = log.append(lambda latest: FloorRaised(floor=epoch, nonce=nonce) if latest.floor < epoch else None)
    with _left_for_later():
        _remove_finished(store, state.floor)
    if state.entries_since_checkpoint >= options.checkpoint_entries:
        state, _ = write_checkpoint(store, log, options, now_ms)
    return state


@contextlib.contextmanager
def _left_for_later() -> Iterator[None]:
    """Log errors of the block: what cannot be removed now goes with a later commit, and does not end a query."""
    try:
        yield
    except SpoolError as error:
        logger.warning("%s; a later commit removes it", error)


def _remove_finished(store: SpoolStore, floor: int) -> None:
    for folder in ("data", "plans", "acknowledged"):
        for name in store.names(folder):
            if _owner(name) <= floor:
                store.remove(f"{folder}/{name}")


def write_checkpoint(store: SpoolStore, log: Log, options: RetentionOptions, now_ms: int) -> tuple[LogState, bool]:
    """Try to sum up the log, and say whether that was done. If another writer comes between, nothing is lost and the
    next commit tries again."""
    state = log.read()
    slot = state.next_slot
    nonce = uuid4().hex
    runs, forgotten, written = _plan_runs(state, options, now_ms, f"{slot:012d}-{nonce}")
    for run, identities in written:
        store.put(f"identities/{run.name}", encode_run(identities))
    checkpoint = Checkpoint(
        nonce=nonce,
        floor=state.floor,
        runs=runs,
        decided=tuple(state.decided[key] for key in sorted(state.decided)),
        totals=state.totals,
        forgotten=forgotten,
    )
    state = log.append(lambda latest: checkpoint if latest.next_slot == slot else None)
    if state.checkpoint_nonce != nonce:
        return state, False
    store.put(marker_name(slot), b"")
    with _left_for_later():
        _remove_replaced(store, slot, {run.name for run in runs})
    return state, True


def _plan_runs(
    state: LogState, options: RetentionOptions, now_ms: int, prefix: str
) -> tuple[tuple[Run, ...], Forgotten, list[tuple[Run, Identities]]]:
    """The runs after this checkpoint, oldest first, what is forgotten, and the files to be written for it."""
    kept = list(state.runs)
    if any(len(recent.identities) for recent in state.recent):
        fresh = merge([recent.identities for recent in state.recent])
        times = [recent.written_at_ms for recent in state.recent]
        earlier = any(recent.earlier for recent in state.recent)
        run = Run(name="", count=len(fresh), oldest_ms=min(times), newest_ms=max(times), earlier=earlier)
        kept.append((run, fresh))
    forgotten = state.forgotten
    while kept and kept[0][0].newest_ms < now_ms - options.identity_retention_ms:
        forgotten = forget_run(forgotten, kept.pop(0)[0], by_limit=False)
    while len(kept) > 1 and sum(run.count for run, _ in kept) > options.identity_limit:
        forgotten = forget_run(forgotten, kept.pop(0)[0], by_limit=True)
    kept = _merge_similar(kept, options)
    runs, written = [], []
    for number, (run, identities) in enumerate(kept):
        if not run.name:
            run = replace(run, name=f"{prefix}-{number}")
            written.append((run, identities))
        runs.append(run)
    return tuple(runs), forgotten, written


def forget_run(forgotten: Forgotten, run: Run, *, by_limit: bool) -> Forgotten:
    """`forgotten`, and `run` as well."""
    return Forgotten(
        count=forgotten.count + run.count,
        newest_ms=max(forgotten.newest_ms, run.newest_ms),
        by_limit=forgotten.by_limit + (run.count if by_limit else 0),
    )


def _merge_similar(runs: Sequence[tuple[Run, Identities]], options: RetentionOptions) -> list[tuple[Run, Identities]]:
    """Merge the newest `FANIN` runs while they are all of the newest's class of size; runs without a name are new."""
    runs = list(runs)
    while len(runs) >= FANIN:
        last = runs[-FANIN:]
        count = sum(run.count for run, _ in last)
        oldest_ms, newest_ms = last[0][0].oldest_ms, max(run.newest_ms for run, _ in last)
        if (
            max(run.count for run, _ in last) > FANIN // 2 * max(1, last[-1][0].count)
            or count > options.identity_limit // RUN_SHARE
            or newest_ms - oldest_ms > options.identity_retention_ms // RUN_SHARE
        ):
            break
        merged = merge([identities for _, identities in last])
        earlier = any(run.earlier for run, _ in last)
        run = Run(name="", count=len(merged), oldest_ms=oldest_ms, newest_ms=newest_ms, earlier=earlier)
        runs[-FANIN:] = [(run, merged)]
    return runs


def _remove_replaced(store: SpoolStore, slot: int, runs: set[str]) -> None:
    """Remove what the checkpoint at `slot` stands for. Entries lowest first: see `spool.log`."""
    for name in sorted(store.names("log")):
        if _owner(name) < slot:
            store.remove(f"log/{name}")
    for name in store.names("identities"):
        if _owner(name) <= slot and name not in runs:
            store.remove(f"identities/{name}")
    markers = sorted(name for name in store.names("checkpoints") if not name.endswith(TEMPORARY_SUFFIX))
    oldest_kept = _owner(markers[-MARKERS_KEPT:][0])
    for name in store.names("checkpoints"):
        if _owner(name) < oldest_kept:
            store.remove(f"checkpoints/{name}")


def number_of(name: str) -> int | None:
    """The epoch or the number of the log that a file name begins with; None for a file that is not of ours."""
    digits = name.partition("-")[0].partition(".")[0]
    return int(digits) if digits.isdecimal() else None


def _owner(name: str) -> int:
    """Return `number_of`, and a number beyond all of them for a file that is not of ours."""
    number = number_of(name)
    return sys.maxsize if number is None else number

"""Every file of a spool, looked at: is it what its name says, and does what names it find it?

Two kinds of findings. *Damage* is a file that is missing or altered while the spool needs it; the finding says what it
costs. *Leftovers* are files that nobody will ask for again, of a process or a clean-up that was killed: they cost
nothing and go with the next clean-up, or with `spool.repair`.

Nothing is written. A query may be running: what is listed first and read later may be gone by then for good reasons, so
findings count only if the log said the same before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from acquit.errors import SpoolDamaged, SpoolError
from acquit.spark.spool.attempt import lost_publications
from acquit.spark.spool.data import decode_batches
from acquit.spark.spool.entries import Publication, Run, decode_run
from acquit.spark.spool.housekeeping import forget_run, number_of
from acquit.spark.spool.identities import NONE, Identities
from acquit.spark.spool.log import Log, LogState, slot_name
from acquit.spark.spool.owner import OWNER, SOURCE, SpoolOwner, read_owner, read_source, refuse_lost_owner
from acquit.spark.spool.store import TEMPORARY_SUFFIX, SpoolStore

FOLDERS: Final = ("log", "checkpoints", "data", "identities", "plans", "acknowledged", "probes")
_NAMED_BY_ENTRIES: Final = ("data", "identities")
_NO_QUERY: Final = "no query can use the spool"
_LOOKS_MAX: Final = 12
_ALTERED: Final = "the checksum does not fit: the file was altered or is cut short"


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that the spool needs and does not have as it was written."""

    name: str
    problem: str
    cost: str
    run: Run | None = None
    """Run of identities, where the file is one: it can be forgotten."""

    @property
    def is_entry(self) -> bool:
        """True if an entry of the log is lost or damaged: the file is one, or says that there was one."""
        return self.name.startswith(("log/", "acknowledged/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolVerification:
    """Findings of a verification."""

    owner: SpoolOwner | None
    state: LogState
    next_slot: int
    """Number at which the log ends, or can no longer be read."""
    entries: int
    """Read, and every checksum held."""
    data_files: int
    rows: int
    """Rows in these data files."""
    identities: int
    damage: tuple[Damage, ...]
    leftovers: tuple[str, ...]
    """Files that nobody will ask for."""
    unpublished: tuple[str, ...]
    """Files of attempts that are under way, or were when their process died: leftovers if no query is running."""


def verify(store: SpoolStore) -> SpoolVerification:
    """Look at every file. Raises SpoolError when the store cannot be read."""
    for _ in range(_LOOKS_MAX):
        found = _look(store)
        # A query that runs raises the floor and removes what we had still to read.
        if not found.damage or _look_at_log(store).next_slot == found.next_slot:
            return found
    raise SpoolError(f"spool {store.place}: a query is busy with it: stop it, or try again")


@dataclass(slots=True)
class LogReading:
    """The log as far as it can be read."""

    state: LogState
    next_slot: int
    entries: int = 0
    identities: int = 0
    damage: list[Damage] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """True if it could be read to its end, and nothing says that there was more."""
        return not any(one.is_entry for one in self.damage)


def _look(store: SpoolStore) -> SpoolVerification:
    files = {folder: store.names(folder) for folder in FOLDERS}
    top = store.names("")
    log = _look_at_log(store)
    damage = log.damage
    if log.whole:
        damage += [_lost_entry(name, files["data"]) for name in lost_publications(files["acknowledged"], log.state)]
    owner = None
    try:
        owner = read_owner(store)
        refuse_lost_owner(store, log.state)
    except SpoolDamaged as error:
        damage.append(Damage(OWNER, str(error), _NO_QUERY))
    try:
        read_source(store)
    except SpoolDamaged as error:
        damage.append(Damage(SOURCE, str(error), _NO_QUERY))
    data_files = rows = 0
    for publication in log.state.decided.values():
        if publication.data is not None:
            found, problem = _look_at_data(store, publication)
            data_files, rows = data_files + 1, rows + found
            if problem:
                damage.append(_lost_rows(publication, problem))
    leftovers, unpublished = _beside(files, log, top, owner)
    return SpoolVerification(
        owner=owner,
        state=log.state,
        next_slot=log.next_slot,
        entries=log.entries,
        data_files=data_files,
        rows=rows,
        identities=log.identities,
        damage=tuple(damage),
        leftovers=tuple(leftovers),
        unpublished=tuple(unpublished),
    )


def _look_at_log(store: SpoolStore) -> LogReading:
    """Read from the newest checkpoint to the end, past nothing that is missing."""
    listed = sorted(number for name in store.names("log") if name.isdecimal() and (number := int(name)) >= 0)
    markers = [int(name) for name in store.names("checkpoints") if name.isdecimal()]
    reading = LenientLog(store)
    damage: list[Damage] = []
    first = max(markers, default=0)
    count, slot = 0, first
    while (data := store.get(slot_name(slot))) is not None:
        try:
            reading.apply(slot, data)
        except SpoolDamaged as error:
            damage.append(Damage(slot_name(slot), _after_place(store, error), _unread(listed, slot)))
            break
        count, slot = count + 1, slot + 1
    if not damage and (slot <= max(listed, default=-1) or (markers and slot == first)):
        damage.append(Damage(slot_name(slot), "it is missing", _unread(listed, slot)))
    return LogReading(
        state=reading.state,
        next_slot=slot,
        entries=count,
        identities=reading.identities + sum(len(one.identities) for one in reading.state.recent),
        damage=damage + reading.damage,
    )


class LenientLog(Log):
    """The log, with runs that are missing or damaged told in `damage`: empty by `apply`, and forgotten by `read`."""

    def __init__(self, store: SpoolStore) -> None:
        super().__init__(store)
        self.damage: list[Damage] = []
        self.identities = 0

    @property
    def state(self) -> LogState:
        """State of the log, as far as it has been read."""
        return self._state

    def apply(self, slot: int, data: bytes) -> None:
        """Fold entry number `slot` in. Raises SpoolDamaged."""
        self._apply(slot, self._decode(slot, data))

    def read(self) -> LogState:
        """Read as `Log.read`, and forget the runs in `damage`."""
        state = super().read()
        gone = {one.run for one in self.damage}
        forgotten = state.forgotten
        for run, _ in state.runs:
            if run in gone:
                forgotten = forget_run(forgotten, run, by_limit=False)
        runs = [(run, identities) for run, identities in state.runs if run not in gone]
        self._state = replace(state, runs=runs, forgotten=forgotten)
        return self._state

    def _open(self, run: Run) -> tuple[Run, Identities]:
        name = f"identities/{run.name}"
        data = self._store.view(name)
        problem = "it is missing" if data is None else _look_at_run(data, run, f"{self._store.place}/{name}")
        if data is None or problem:
            cost = f"{run.count} identities: a message among them that comes again is not recognised"
            self.damage.append(Damage(name, problem, cost, run))
            return run, NONE
        self.identities += run.count
        return run, decode_run(data, run, name)


def _look_at_run(data: memoryview, run: Run, place: str) -> str:
    """Return what is wrong with the file of a run; "" for nothing."""
    body, digest = data[:-32], data[-32:]
    if sha256(body).digest() != digest:
        return _ALTERED
    try:
        identities = decode_run(data, run, place)
    except SpoolDamaged as error:
        return str(error)
    return "" if bool(np.all(identities.identity[1:] >= identities.identity[:-1])) else "it is not sorted"


def _look_at_data(store: SpoolStore, publication: Publication) -> tuple[int, str]:
    """The rows in a data file, and what is wrong with it; "" for nothing."""
    assert publication.data is not None
    data = store.view(publication.data)
    if data is None:
        return 0, "it is missing"
    if publication.crc is not None and crc32(data) != publication.crc:
        return 0, _ALTERED
    try:
        batches = decode_batches(data)
        for batch in batches:
            batch.validate(full=True)
    except (pa.ArrowInvalid, OSError, ValueError) as error:
        return 0, f"it is no Arrow file, or a damaged one: {' '.join(str(error).split())}"
    rows = sum(batch.num_rows for batch in batches)
    expected = publication.totals.rows + sum(last - first for first, last in publication.skipped)
    return rows, "" if rows == expected else f"it has {rows} rows, and the log says {expected}"


def _lost_rows(publication: Publication, problem: str) -> Damage:
    rows = publication.totals.rows
    cost = (
        f"the {rows} rows of epoch {publication.epoch} part {publication.part}, which are acknowledged: they are lost "
        "unless the table has that epoch already"
    )
    return Damage(str(publication.data), problem, cost)


def _lost_entry(marker: str, data: Sequence[str]) -> Damage:
    epoch, _, rest = marker.partition("-")
    file = f"{marker}.arrow"
    kept = f"data/{file} has them" if file in data else "no file has them"
    cost = (
        f"what it said, and the rows of epoch {epoch} part {rest.partition('-')[0]}, which are acknowledged ({kept}): "
        "no query can go on"
    )
    return Damage(f"acknowledged/{marker}", "the entry of the log that it follows is missing", cost)


def _unread(listed: list[int], slot: int) -> str:
    later = sum(number > slot for number in listed)
    return f"what it said, and {later} later entries, which are not read: no query can go on"


def _after_place(store: SpoolStore, error: SpoolDamaged) -> str:
    return str(error).removeprefix(f"{store.place}/").partition(": ")[2]


def _beside(
    files: dict[str, list[str]], log: LogReading, top: list[str], owner: SpoolOwner | None
) -> tuple[list[str], list[str]]:
    """Files that the log does not name: those nobody will ask for, and those of attempts that may be under way. Where
    entries are lost, files that one of them may have named are neither: they are wanted once it is restored. Nor are
    entries before a checkpoint: if that is lost, they say what it said."""
    state = log.state
    checkpoint = log.next_slot - log.entries
    named = {one.data for one in state.decided.values()} | {f"identities/{run.name}" for run, _ in state.runs}
    limits = dict.fromkeys(("data", "plans", "acknowledged"), state.floor + 1)
    limits |= {"log": checkpoint, "identities": log.next_slot, "checkpoints": checkpoint}
    leftovers, unpublished = [], []
    for name in _all(files):
        folder = name.partition("/")[0]
        number = number_of(name.rpartition("/")[2])
        if name in named or (folder == "checkpoints" and not name.endswith(TEMPORARY_SUFFIX)):
            continue
        if folder in (*_NAMED_BY_ENTRIES, "log") and not log.whole:
            continue
        if number is not None and number < limits.get(folder, 0):
            leftovers.append(name)
        elif folder in (*_NAMED_BY_ENTRIES, "probes") or name.endswith(TEMPORARY_SUFFIX):
            unpublished.append(name)
    for name in top:
        if name.startswith((f"{OWNER}.", f"{SOURCE}.")):
            unpublished.append(name)
        # Where `owner` is missing or damaged, one of them may say whose the spool is: once it is restored.
        elif name.startswith(f"{OWNER}-") and owner is not None and name != f"{OWNER}-{owner.spool}":
            leftovers.append(name)
    return leftovers, unpublished


def _all(files: dict[str, list[str]]) -> Iterator[str]:
    for folder, names in files.items():
        yield from (f"{folder}/{name}" for name in sorted(names))

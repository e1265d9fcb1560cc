"""The log: one numbered sequence of entries that every process agrees on.

Entry n is the file ``log/n``, created with put-if-absent by whoever comes first. A writer reads all entries up to the
first number that does not exist, decides in the light of them, and tries to take that number. If somebody else was
faster it reads on, decides again, and tries the next. So each entry was written by someone who had read every entry
before it: decisions about drained messages, about finished epochs and about what may be deleted come in one order.

**Old entries are deleted**, or the log would grow for ever, and then "the first number that does not exist" could be
one that existed once. A process that stalled for long would find such a hole and fill it. Three rules make that
harmless:

1. A *checkpoint* is itself an entry: it takes its number in the same race, sums up everything before it, and whoever
   reads it forgets what they thought they knew and takes its word.
2. After a checkpoint took number c, the marker ``checkpoints/c`` is written, and only then are numbers below c
   deleted, lowest first. So whoever reads or fills a hole below c could have seen the marker.
3. Every reader, once it has read to the end, and every writer, once it has written, looks for the newest marker. If
   that is beyond where they stand, what they read or wrote was in a hole: nobody starting at the checkpoint will ever
   see it. They start again from the checkpoint.

Reading runs into the checkpoint or stops short of it: in the first case rule 1 heals, in the second rule 3. (A number
that was filled while it was a hole, and read before the checkpoint, is forgotten by rule 1.) Markers are few, and the
last `MARKERS_KEPT` stay, so that a listing that races with a deletion still shows a newest one.

A process keeps its `Log` between tasks and reads only what is new.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias, assert_never

import numpy as np

from acquit.errors import SpoolDamaged, SpoolError
from acquit.spark.spool.entries import (
    Checkpoint,
    Entry,
    FloorRaised,
    Forgotten,
    LogTotals,
    Publication,
    Run,
    decode_entry,
    decode_run,
    encode_entry,
)
from acquit.spark.spool.identities import NONE, U8, UNKNOWN, Identities, Mask
from acquit.spark.spool.store import SpoolStore, StoreDoubt

MARKERS_KEPT: Final = 8
_BEATEN_BEFORE_PAUSES: Final = 10
_PAUSE_STEP_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0

EpochPart: TypeAlias = tuple[int, int]


def slot_name(slot: int) -> str:
    """The file of entry number `slot`."""
    return f"log/{slot:012d}"


def marker_name(slot: int) -> str:
    """The file that says: entry number `slot` is a checkpoint, and entries before it may be gone."""
    return f"checkpoints/{slot:012d}"


class Recent(NamedTuple):
    """Identities that an entry since the last checkpoint named."""

    identities: Identities
    written_at_ms: int
    earlier: bool
    """True if they are of an earlier format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """State of the log up to, not including, entry `next_slot`. Immutable: deciding on it cannot change it."""

    next_slot: int = 0
    floor: int = 0
    """Epochs up to here are finished. Epochs count from 1."""
    decided: Mapping[EpochPart, Publication]
    """Above the floor."""
    runs: Sequence[tuple[Run, Identities]] = ()
    recent: Sequence[Recent] = ()
    """Since the last checkpoint, oldest first."""
    checkpoint_nonce: str = ""
    """Nonce of the last checkpoint; "" before the first."""
    entries_since_checkpoint: int = 0
    totals: LogTotals = field(default_factory=LogTotals)
    forgotten: Forgotten = field(default_factory=Forgotten)

    @property
    def earlier(self) -> bool:
        """True if identities of an earlier format may be remembered."""
        return any(run.earlier for run, _ in self.runs) or any(recent.earlier for recent in self.recent)

    def outcomes(self, wanted: Identities, *, earlier: bool = False) -> tuple[U8, Mask]:
        """Return `Identities.outcomes` over everything that is remembered, for `wanted` in any order. `earlier`: only
        over what may hold identities of an earlier format, as `wanted` are."""
        blocks = [identities for run, identities in self.runs if run.earlier or not earlier]
        blocks += [recent.identities for recent in self.recent if recent.earlier or not earlier]
        order = np.argsort(wanted.identity)
        ordered = wanted.take(order)
        found = np.full(len(wanted), UNKNOWN, np.uint8)
        conflict = np.zeros(len(wanted), np.bool_)
        for block in blocks:
            here, other = block.outcomes(ordered)
            found[order] = np.where(here == UNKNOWN, found[order], here)
            conflict[order] |= other
        return found, conflict & (found == UNKNOWN)


class Log:
    """The log in `store`, as far as this process has read it. Not safe for threads.

    `attempts_max` bounds how often an append that is always beaten to the number tries again before it raises
    SpoolError: one of a thousand parts that publish at once is beaten by all others. `readings_max` bounds it for a
    reading that is always overtaken by checkpoints.
    """

    def __init__(
        self,
        store: SpoolStore,
        *,
        attempts_max: int = 2_000,
        readings_max: int = 200,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._attempts_max = attempts_max
        self._readings_max = readings_max
        self._sleep = sleep
        self._state = LogState(decided={})

    def read(self) -> LogState:
        """Read to the end. Raises SpoolDamaged when entries are missing or altered."""
        for _ in range(self._readings_max):
            overtaken = self._read_on()
            newest = self._newest_checkpoint()
            if newest < self._state.next_slot and not overtaken:
                return self._state
            self._jump(newest)
        raise SpoolDamaged(
            f"spool {self._store.place}: entry {self._newest_checkpoint()} or {self._state.next_slot}, or a file that "
            "one of them names, is missing; restore the folder, or start a new query with a new spool and checkpoint"
        )

    def append(self, decide: Callable[[LogState], Entry | None]) -> LogState:
        """Append what `decide` returns, and return the state after it; None from `decide` ends it without an entry.

        `decide` is called again, with what is new, each time the number turns out to be taken, which may be by our own
        first try; whatever it raises comes out. So `decide` must see in the state whether its entry is there already,
        by its nonce or by what it says, and then return None.
        """
        for beaten in range(self._attempts_max):
            if beaten >= _BEATEN_BEFORE_PAUSES:
                # There are many: who tries less often, and not in step with the rest, leaves the store to the others.
                self._sleep(random.uniform(0, min(_PAUSE_STEP_S * (beaten - _BEATEN_BEFORE_PAUSES + 1), _PAUSE_MAX_S)))
            state = self.read()
            entry = decide(state)
            if entry is None:
                return state
            slot = state.next_slot
            # A marker beyond us means that we filled a hole, or that a checkpoint has already summed us up: reading
            # again tells which.
            if self._create(slot, entry) and self._newest_checkpoint() <= slot and self._apply(slot, entry):
                return self._state
        raise SpoolError(f"spool {self._store.place}: gave up appending after {self._attempts_max} attempts")

    def _read_on(self) -> bool:
        """Read entries until there is none. True when one names a file that a newer checkpoint has removed."""
        while (data := self._store.get(slot_name(self._state.next_slot))) is not None:
            if not self._apply(self._state.next_slot, self._decode(self._state.next_slot, data)):
                return True
        return False

    def _create(self, slot: int, entry: Entry) -> bool:
        """Create entry number `slot`; True if it is `entry` now. After False, reading on tells: it may be there."""
        try:
            return self._store.put_if_absent(slot_name(slot), encode_entry(entry))
        except StoreDoubt:
            return False

    def _decode(self, slot: int, data: bytes) -> Entry:
        return decode_entry(data, f"{self._store.place}/{slot_name(slot)}")

    def _newest_checkpoint(self) -> int:
        """-1 when there is none."""
        return max((int(name) for name in self._store.names("checkpoints") if name.isdecimal()), default=-1)

    def _jump(self, slot: int) -> None:
        """Take the word of the checkpoint at `slot`; do nothing when a newer one has already replaced it."""
        data = self._store.get(slot_name(slot))
        if data is None:
            return
        entry = self._decode(slot, data)
        # Anything but a checkpoint there was put into the hole that the checkpoint left.
        if isinstance(entry, Checkpoint):
            self._apply(slot, entry)

    def _apply(self, slot: int, entry: Entry) -> bool:
        """Fold entry number `slot` into the state. False when a run that it names is gone: it is itself outdated."""
        state = self._state
        match entry:
            case Publication():
                self._state = _publish(state, entry)
            case FloorRaised():
                self._state = _raise_floor(state, entry.floor)
            case Checkpoint():
                known = {run.name: (run, identities) for run, identities in state.runs}
                runs = [known.get(run.name) or self._open(run) for run in entry.runs]
                if None in runs:
                    return False
                self._state = LogState(
                    floor=entry.floor,
                    decided={(one.epoch, one.part): one for one in entry.decided},
                    runs=[run for run in runs if run is not None],
                    totals=entry.totals,
                    forgotten=entry.forgotten,
                    checkpoint_nonce=entry.nonce,
                )
            case _:
                assert_never(entry)
        self._state = replace(self._state, next_slot=slot + 1)
        return True

    def _open(self, run: Run) -> tuple[Run, Identities] | None:
        name = f"identities/{run.name}"
        data = self._store.view(name)
        return None if data is None else (run, decode_run(data, run, f"{self._store.place}/{name}"))


def _publish(state: LogState, entry: Publication) -> LogState:
    key = (entry.epoch, entry.part)
    return replace(
        state,
        decided={**state.decided, key: replace(entry, identities=NONE)},
        recent=[*state.recent, Recent(entry.identities, entry.written_at_ms, entry.earlier)],
        entries_since_checkpoint=state.entries_since_checkpoint + 1,
        totals=state.totals + entry.totals,
    )


def _raise_floor(state: LogState, floor: int) -> LogState:
    return replace(
        state,
        floor=floor,
        decided={key: one for key, one in state.decided.items() if key[0] > floor},
        entries_since_checkpoint=state.entries_since_checkpoint + 1,
    )

"""The spool's promise, on the real code, under random schedules of everything that can go wrong.

Nothing that was accepted is missing from the table, nothing is in it twice (but for what retention has let go), no
message gets the wrong outcome or two, every attempt at one part gives the same rows, and nobody who is current is
refused. See `tests.support.spool_world`.

A check that cannot fail proves nothing: each of the mutations below takes one sentence out of the protocol, and the
same schedules must find it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from acquit.errors import SpoolError
from acquit.spark.spool import Drain, MessageReader, Part, SpoolStore, attempt, housekeeping
from acquit.spark.spool.attempt import _PartAttempt
from acquit.spark.spool.entries import Checkpoint, Entry, FloorRaised, Publication, decode_entry, encode_entry
from acquit.spark.spool.identities import UNKNOWN
from acquit.spark.spool.log import Log, LogState, marker_name, slot_name
from acquit.spark.spool.store import StoreDoubt
from tests.support.examples import share
from tests.support.spool_world import Faults, Process, World

pytestmark = pytest.mark.promise("once-in-a-table")

SCHEDULES = 40

FAULTS = {
    "calm": Faults(),
    "broker restarts": Faults(broker_restarts=0.02),
    "stalls": Faults(stalls=0.05),
    "restarts and stalls": Faults(broker_restarts=0.02, stalls=0.05),
    "everything": Faults(
        broker_restarts=0.01,
        stalls=0.03,
        task_kills=0.01,
        driver_kills=0.02,
        lost_answers=0.1,
        store_doubts=0.05,
        poison=0.2,
    ),
    "an object store": Faults(
        broker_restarts=0.01,
        stalls=0.03,
        task_kills=0.01,
        driver_kills=0.02,
        lost_answers=0.1,
        store_doubts=0.05,
        lost_requests=0.01,
        poison=0.1,
    ),
    "another broker": Faults(
        broker_restarts=0.01, stalls=0.03, task_kills=0.01, driver_kills=0.02, lost_answers=0.1, foreign=True
    ),
    "forgetting": Faults(
        broker_restarts=0.02,
        stalls=0.03,
        task_kills=0.01,
        driver_kills=0.02,
        lost_answers=0.1,
        poison=0.1,
        forgetting=True,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_every_message_is_in_the_table_once(name: str, seed: int) -> None:
    for number in range(seed * 1_000, seed * 1_000 + share(SCHEDULES)):
        world = World(number, FAULTS[name]).run()
        assert world.account() == ([], [], [], []), f"schedule {number}"


@pytest.mark.slow
def test_every_message_is_in_the_table_once_in_many_more_schedules(seed: int, soak_rounds: int) -> None:
    """A hundred schedules a round; in a short soak, of which they took a fifth, fewer."""
    for number in range(seed * 1_000, seed * 1_000 + soak_rounds * min(100, 5 * soak_rounds)):
        for name, faults in FAULTS.items():
            assert World(number, faults).run().account() == ([], [], [], []), f"schedule {number}, {name}"


@pytest.mark.promise("retention")
def test_forgetting_really_forgets(seed: int) -> None:
    worlds = (World(number, FAULTS["forgetting"]).run() for number in range(seed * 1_000, seed * 1_000 + SCHEDULES))
    assert any(max(world.rows().values(), default=0) > 1 for world in worlds)


# -- the protocol with one sentence missing ---------------------------------------------------------------------------


class _FilePerPart(Log):
    """Not a log: one file for each (epoch, part), put-if-absent, and a file for the floor."""

    def read(self) -> LogState:
        state = LogState(decided={})
        for name in self._store.names("log"):
            data = self._store.get(f"log/{name}")
            entry = None if data is None else decode_entry(data, name)
            if isinstance(entry, FloorRaised):
                state = replace(state, floor=max(state.floor, entry.floor))
            elif isinstance(entry, Publication):
                found = self._fold(entry)
                state = replace(
                    state, decided={**state.decided, **found.decided}, recent=[*state.recent, *found.recent]
                )
        return state

    def append(self, decide: Callable[[LogState], Entry | None]) -> LogState:
        entry = decide(self.read())
        if entry is not None:
            key = f"{entry.epoch}-{entry.part}" if isinstance(entry, Publication) else f"floor-{entry.nonce}"
            self._store.put_if_absent(f"log/{key}", encode_entry(entry))
            if isinstance(entry, FloorRaised):
                for name in self._store.names("log"):
                    if name[0].isdigit() and int(name.partition("-")[0]) <= entry.floor:
                        self._store.remove(f"log/{name}")
        state = self.read()
        if isinstance(entry, Publication) and (entry.epoch, entry.part) not in state.decided:
            state = replace(state, decided={**state.decided, (entry.epoch, entry.part): entry})
        return state

    def _fold(self, entry: Publication) -> LogState:
        fresh = Log(self._store)
        assert fresh._apply(0, entry)
        return fresh._state


class _FilePerPartProcess(Process):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.spool._log = _FilePerPart(self.store)


def _no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other entries name between draining and publishing is not looked up."""
    real = _PartAttempt.look_up

    def look_up(self: _PartAttempt, state: LogState) -> None:
        if self._seen_slot < 0:
            real(self, state)

    monkeypatch.setattr(_PartAttempt, "look_up", look_up)


def _no_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished epoch may be drained again."""
    monkeypatch.setattr(attempt, "_refuse_finished", lambda *_: None)


def _no_hole_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has read the log before does not look for newer checkpoints."""
    real = Log._newest_checkpoint

    def newest(self: Log) -> int:
        return real(self) if self._state.next_slot == 0 else -1

    monkeypatch.setattr(Log, "_newest_checkpoint", newest)


def _no_identities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is ever recognised."""
    monkeypatch.setattr(
        LogState,
        "outcomes",
        lambda _, wanted: (np.full(len(wanted), UNKNOWN, np.uint8), np.zeros(len(wanted), np.bool_)),
    )


def _checkpoint_forgets_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint sums up identities only."""
    monkeypatch.setattr(housekeeping, "Checkpoint", lambda **fields: Checkpoint(**{**fields, "decided": ()}))


def _accept_what_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set-aside messages are accepted, whatever their entry records."""
    real = _PartAttempt.look_up

    def look_up(self: _PartAttempt, state: LogState) -> None:
        real(self, state)
        self._recorded[self._recorded != UNKNOWN] = 0

    monkeypatch.setattr(_PartAttempt, "look_up", look_up)


def _doubt_is_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publication that got no answer is taken for one that happened."""

    def create(self: Log, slot: int, entry: Entry) -> bool:
        try:
            return self._store.put_if_absent(slot_name(slot), encode_entry(entry))
        except StoreDoubt:
            return isinstance(entry, Publication)

    monkeypatch.setattr(Log, "_create", create)


def _settle_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are settled, once, before an entry names them."""
    real_drain, real_rows = attempt._drain, _PartAttempt.make_rows
    links: dict[attempt._Drained, Any] = {}

    def drain(link: Drain, part: Part, reader: MessageReader) -> tuple[attempt._Drained, bool]:
        drained, ended = real_drain(link, part, reader)
        links[drained] = link
        return drained, ended

    def make_rows(self: _PartAttempt, store: SpoolStore) -> None:
        real_rows(self, store)
        link = links.pop(self._drained)
        answered = link.settle(self.answers())
        link.settle = lambda _: answered

    monkeypatch.setattr(attempt, "_drain", drain)
    monkeypatch.setattr(_PartAttempt, "make_rows", make_rows)


def _remove_before_the_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a checkpoint sums up is removed before its marker is written, and some time goes by."""
    real = housekeeping._remove_replaced

    def remove(store: SpoolStore, slot: int, runs: set[str]) -> None:
        for name in sorted(store.names("log")):
            if int(name) < slot:
                store.remove(f"log/{name}")
        for _ in range(60):
            store.names("checkpoints")
        store.put(marker_name(slot), b"")
        real(store, slot, runs)

    monkeypatch.setattr(housekeeping, "marker_name", lambda slot: f"unmarked/{slot}")
    monkeypatch.setattr(housekeeping, "_remove_replaced", remove)


class _Mutation(NamedTuple):
    faults: Faults
    """Of which at least one schedule in ten shows it."""
    symptom: str
    """The field of `Account` that shows it."""
    apply: Callable[[pytest.MonkeyPatch], None] = lambda _: None
    process: type[Process] = Process


MUTATIONS = {
    "a file for each part loses": _Mutation(FAULTS["stalls"], "lost", process=_FilePerPartProcess),
    "a file for each part doubles": _Mutation(FAULTS["broker restarts"], "doubled", process=_FilePerPartProcess),
    "no second look before publishing": _Mutation(FAULTS["restarts and stalls"], "doubled", _no_second_look),
    "no floor": _Mutation(FAULTS["stalls"], "lost", _no_floor),
    "no look for holes": _Mutation(FAULTS["everything"], "lost", _no_hole_check),
    "no identities": _Mutation(FAULTS["broker restarts"], "doubled", _no_identities),
    "checkpoints without open parts": _Mutation(
        Faults(driver_kills=0.15, task_kills=0.05), "disagreements", _checkpoint_forgets_decided
    ),
    "no recorded outcome": _Mutation(FAULTS["everything"], "lost", _accept_what_comes_again),
    "doubt is taken for yes": _Mutation(Faults(store_doubts=0.2, stalls=0.1, driver_kills=0.02), "lost", _doubt_is_yes),
    "settled before the entry": _Mutation(FAULTS["stalls"], "lost", _settle_first),
    "removed before the marker": _Mutation(FAULTS["restarts and stalls"], "disagreements", _remove_before_the_marker),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_protocol_that_lacks_a_sentence_is_found_out(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation = MUTATIONS[name]
    mutation.apply(monkeypatch)
    for number in range(seed * 1_000, seed * 1_000 + SCHEDULES):
        world = World(number, mutation.faults, process=mutation.process)
        # A broken protocol may also refuse current tasks, or find its own files missing; we want to see it do harm.
        with contextlib.suppress(AssertionError, SpoolError):
            if getattr(world.run().account(), mutation.symptom):
                return
    pytest.fail(f"{SCHEDULES} schedules did not show: {name}")


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_is_found_out_is_not_the_mutation_itself(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation = MUTATIONS[name]
    mutation.apply(monkeypatch)
    for number in range(seed * 1_000, seed * 1_000 + share(10)):
        assert World(number, FAULTS["calm"], process=mutation.process).run().account() == ([], [], [], [])

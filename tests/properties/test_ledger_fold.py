"""The ledger says the same however it is read: up to any batch, from recovery's beginning, the archive's, by seals."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.ledger.balance import balance
from acquit.ledger.events import ENTERING, EVENT_DTYPE, RETIRING
from acquit.ledger.fold import Fold
from acquit.ledger.totals import HASH_MODULUS, Summary, message_hash
from acquit.ledger.verify import verify
from acquit.store.folder import EVENTS
from acquit.store.interface import Position, RecordRun
from acquit.store.reading import FolderReader
from acquit.store.segment import EVENTS_HEADER_BYTES
from acquit.testing.simulation.disk import FaultyDisk
from tests.properties.test_journal_power_loss import TINY
from tests.support.examples import share
from tests.support.mini_broker import DATA, Clock, History, MiniBroker, check_fold

pytestmark = pytest.mark.promise("balance")

KEEPING = replace(TINY, archive_bytes_max=1 << 40)
"""As the tiny journal, but nothing is deleted from the archive."""


def lived(seed: int, runs: int, turns: int) -> tuple[FaultyDisk, History]:
    """A folder after a few runs of a broker, killed or closed."""
    truth, clock, rng = History(), Clock(), random.Random(seed)
    disk = FaultyDisk()
    for _ in range(runs):
        broker = MiniBroker(disk, rng, truth=truth, clock=clock, options=KEEPING)
        broker.live_on(turns, sync=0.6, chores=0.7)
        broker.sync()
        if rng.random() < 0.5:
            broker.close()
        disk = disk.after_kill()
    return disk, truth


class Stopping:
    """Folds, and looks at the fold after each batch."""

    def __init__(self, truth: History) -> None:
        self.fold = Fold()
        self.truth = truth
        self.looked = 0

    def segment(self, number: int, base: Position) -> None:
        self.fold.segment(number, base)

    def batch(self, runs: Iterator[RecordRun], time_us: int) -> None:
        # Batches are told by position: whatever ended before this one began is what the fold must say now.
        known = list(runs)
        start = known[0].positions[0] - 64
        if start in self.truth.snapshots:
            self.check(start)
        self.fold.batch(iter(known), time_us)

    def sealed(self, summary: bytes) -> None:
        self.fold.sealed(summary)

    def check(self, end: int) -> None:
        held = {key: message for key, message in self.fold.messages.items() if message.transaction}
        for key in held:
            del self.fold.messages[key]
        check_fold(self.fold, self.truth, end)
        self.fold.messages.update(held)
        self.looked += 1


@settings(max_examples=share(25))
@given(seed=st.integers(0, 1 << 32), runs=st.integers(1, 3), turns=st.integers(5, 50))
def test_after_any_batch_the_fold_says_what_was_so(seed: int, runs: int, turns: int) -> None:
    disk, truth = lived(seed, runs, turns)
    looking = Stopping(truth)
    FolderReader(DATA, disk).replay(looking, archive=True)
    assert looking.looked >= runs


@settings(max_examples=share(25))
@given(seed=st.integers(0, 1 << 32), runs=st.integers(1, 3), turns=st.integers(20, 120))
def test_what_recovery_reads_says_as_much_as_everything(seed: int, runs: int, turns: int) -> None:
    disk, _ = lived(seed, runs, turns)
    part, whole = Fold(), Fold()
    FolderReader(DATA, disk).replay(part)
    FolderReader(DATA, disk).replay(whole, archive=True)
    part.settle()
    assert part.messages == whole.messages
    assert part.totals() == whole.totals()
    assert part.held == {key: value for key, value in whole.held.items() if value}
    for name in ("queues", "state", "dispatched", "transactions", "reserved_up_to", "queue_max", "actor_max"):
        assert getattr(part.table, name) == getattr(whole.table, name), name
    assert (part.clean, part.left_through, part.anomalies) == (whole.clean, whole.left_through, whole.anomalies)


@settings(max_examples=share(20))
@given(seed=st.integers(0, 1 << 32), turns=st.integers(20, 80))
def test_the_seals_alone_balance_and_so_do_the_side_files(seed: int, turns: int) -> None:
    """As the audit reads a journal: summaries first, events as arrays, bodies never."""
    import numpy

    disk, truth = lived(seed, 2, turns)
    MiniBroker(disk, random.Random(0), truth=truth, clock=Clock(), options=KEEPING).close()
    MiniBroker(disk, random.Random(0), truth=truth, clock=Clock(), options=KEEPING).chores()
    found = verify(DATA, disk=disk)
    assert found.problems == ()
    whole = Fold()
    FolderReader(DATA, disk).replay(whole, archive=True)
    assert balance(whole).balanced
    newest = [link.seal for link in found.links if link.seal is not None][-1]
    cumulated = {queue: row.cumulated for queue, row in Summary.decode(newest.summary).rows.items()}
    # The last run has recorded its start and nothing else.
    totals = {queue: value for queue, value in whole.totals().items() if queue in cumulated}
    assert {queue: value for queue, value in cumulated.items() if queue in totals} == totals
    entered = retired = 0
    for path in disk.paths():
        if path.suffix != EVENTS:
            continue
        array = numpy.frombuffer(bytes(disk.content(path))[EVENTS_HEADER_BYTES:], numpy.dtype(list(EVENT_DTYPE)))
        for event in array:
            mark = int(event["size"]) << 32 | int(event["crc"])
            if int(event["kind"]) in ENTERING:
                entered += message_hash(int(event["sequence"]), mark)
            elif int(event["kind"]) in RETIRING:
                retired += message_hash(int(event["sequence"]), mark)
    live = sum(message_hash(m.sequence, m.fingerprint) for m in whole.messages.values() if not m.transaction)
    assert (entered - retired - live) % HASH_MODULUS == 0

"""A full rebuild of the audit equals its increments, wherever a journal is cut, and both equal a fold by hand.

Histories are made by the real journal writer: postings, topic copies, every outcome, dead letters, transactions, queues
that are deleted, segments that are copied forward. They are cut behind every segment, and within segments as they are
while a broker writes them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acquit.ledger.events import ENTERING, RETIRING, Event, EventKind
from acquit.ledger.recovery import close_journal
from acquit.spark.audit.jobs import PIECES
from acquit.spark.audit.lives import LIFE
from acquit.spark.audit.log import AuditLog
from acquit.spark.ledger.chain import plan_folder
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.audited import all_of, audited, batches_of, closed_of, open_of, until
from tests.support.examples import share
from tests.support.ledger_folder import LedgerFolder, grow
from tests.support.mini_broker import DATA, SMALL, Clock, History, MiniBroker
from tests.support.plain_session import PlainSession

SEEDS = range(share(4))


def history(path: Path, seed: int) -> LedgerFolder:
    """Some runs of a broker: stopped in order, or killed."""
    rng = random.Random(seed)
    truth, clock, disk = History(), Clock(), FaultyDisk()
    options = replace(SMALL, archive_bytes_max=1 << 30)
    for _ in range(3):
        broker = MiniBroker(disk, rng, truth=truth, clock=clock, options=options)
        first = len(broker.journal.segments)
        while len(broker.journal.segments) < first + 2:
            broker.live_on(1, sync=1.0, chores=0.9)
            if rng.random() < 0.2:
                broker.checkpoint(5)
            clock.us += rng.randrange(5_000_000)
        broker.sync()
        broker.chores()
        if rng.random() < 0.5:
            close_journal(broker.recorder, clock.wall_us())
        else:
            broker.journal.close()
            disk = disk.after_kill()
    for source in disk.after_kill().paths():
        if source.name != "lock":
            target = path / source.relative_to(DATA)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(disk.after_kill().content(source))
    return LedgerFolder(path, plan_folder(path)[-1].number)


def events_of(folder: LedgerFolder) -> Iterator[Event]:
    for number in range(1, folder.newest + 1):
        yield from (event for event in folder.events(number) if event.sequence)


def by_hand(folder: LedgerFolder) -> tuple[dict[int, dict[str, Any]], dict[int, dict[str, Any]]]:
    """Closed and open messages by sequence, event by event."""
    live: dict[int, dict[str, Any]] = {}
    closed: dict[int, dict[str, Any]] = {}
    for event in events_of(folder):
        if event.kind in ENTERING:
            assert event.sequence not in live
            life = {"queue_number": event.queue, "posted": event.time_us, "attempts": 0, "first": None}
            live[event.sequence] = life | {"size": event.size, "crc": event.crc, "origin": event.origin or None}
        if event.kind in (EventKind.ACQUIRED, EventKind.CONSUMED):
            life = live[event.sequence]
            life["attempts"] += 1
            life["first"] = life["first"] or event.time_us
        if event.kind in RETIRING:
            outcome = {"outcome": EventKind(event.kind).name, "retired": event.time_us}
            closed[event.sequence] = live.pop(event.sequence) | outcome
    return closed, live


def told(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """As `by_hand` has them."""

    def us(value: Any) -> int | None:
        return None if value is None else round(value.timestamp() * 1_000_000)

    found = {}
    for row in rows:
        life = {name: row[name] for name in ("queue_number", "attempts", "size", "crc", "origin")}
        life |= {"posted": us(row["posted_at"]), "first": us(row["first_acquired_at"])}
        if "outcome" in row:
            life |= {"outcome": row["outcome"], "retired": us(row["retired_at"])}
        found[row["sequence"]] = life
    return found


@pytest.mark.promise("balance")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_rebuild_equals_its_increments_and_a_fold_by_hand(tmp_path: Path, seed: int) -> None:
    folder = history(tmp_path / "a", seed)
    other = grow(tmp_path / "b", seed=seed + 100)
    rng = random.Random(seed)
    summary = audited([folder.path, other.path], tmp_path / "whole", PlainSession(rng, twice=True))
    assert summary.sound, summary
    assert summary.balance.keys() == {"balanced"}
    whole = all_of(tmp_path / "whole")
    [store] = {row["broker"] for row in whole["coverage"] if row["broker"] in (folder.path / "broker.json").read_text()}
    closed, live = by_hand(folder)
    assert len(closed) > 50
    assert live
    assert told([row for row in whole["closed"] if row["broker"] == store]) == closed
    assert told([row for row in whole["open"] if row["broker"] == store]) == live

    cuts: list[tuple[int, int | None]] = [(number, None) for number in range(1, folder.newest + 1)]
    for number in rng.sample(range(1, folder.newest + 1), 3):
        cuts += [(number, batches) for batches in {rng.randrange(1, batches_of(folder.path, number) + 1)}]
    # Within a segment comes before its end.
    cuts.sort(key=lambda cut: (cut[0], cut[1] is None))
    for step, (number, batches) in enumerate(cuts):
        path = until(folder.path, tmp_path / f"cut-{step}", number, batches=batches)
        # The other broker comes in the middle, and stays away at times.
        also = [other.path] if step == len(cuts) // 2 else []
        found = audited([path, *also], tmp_path / "parts", PlainSession(rng))
        assert found.sound, (number, batches, found)
    audited([folder.path], tmp_path / "parts", PlainSession(rng))
    assert len(AuditLog(tmp_path / "parts").numbers()) >= folder.newest
    parts = all_of(tmp_path / "parts")
    for name, rows in whole.items():
        assert parts[name] == rows, name


@pytest.mark.parametrize("seed", SEEDS)
def test_minutes_add_up_to_the_events(tmp_path: Path, seed: int) -> None:
    folder = history(tmp_path / "a", seed)
    audited([folder.path], tmp_path / "into")
    minutes = all_of(tmp_path / "into")["minutes"]
    kinds = Counter(EventKind(event.kind).name.lower() for event in events_of(folder))
    kinds["acquired"] += kinds["consumed"]
    for name in ("posted", "accepted", "consumed", "dead_lettered", "moved_in", "purged", "acquired", "released"):
        assert sum(row[name] for row in minutes) == kinds[name], name
    closed, live = by_hand(folder)
    durations = [one["count"] for row in minutes for one in row["latency"]]
    assert sum(durations) == len(closed)
    waits = [one["count"] for row in minutes for one in row["wait"]]
    first = [life for life in (*closed.values(), *live.values()) if life["first"]]
    assert sum(waits) == len(first)
    assert sum(row["redelivered"] for row in minutes) == kinds["acquired"] - len(first)
    assert sum(row["depth_change"] for row in minutes) == len(live)
    assert len({row["minute"] for row in minutes}) > 1


def test_what_is_closed_in_its_segment_is_not_shuffled(tmp_path: Path) -> None:
    folder = history(tmp_path / "a", 1)
    session = PlainSession()
    audited([folder.path], tmp_path / "into", session)
    [blocks] = session.shuffled
    lengths = [len(row["payload"]) for row in blocks.to_pylist() if row["kind"] == PIECES]
    assert not any(length % LIFE.itemsize for length in lengths), "fixed-width rows"
    pieces = sum(lengths) // LIFE.itemsize
    where: dict[int, set[int]] = {}
    for number in range(1, folder.newest + 1):
        for event in folder.events(number):
            if event.sequence and event.kind < EventKind.UNROUTED:
                where.setdefault(event.sequence, set()).add(number)
    live = {row["sequence"] for row in open_of(tmp_path / "into")}
    assert pieces == sum(len(found) for sequence, found in where.items() if len(found) > 1 or sequence in live)
    assert len(closed_of(tmp_path / "into")) > pieces

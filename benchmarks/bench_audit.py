"""What an audit costs: a day of 50 million events, and the next day of 50 million after it.

    python benchmarks/bench_audit.py [--short] [--folder DIR] [--keep] [--events N] [--verify full|quick]

A journal is made by driving the real writer (recorder, batches, segments, hash chain, seals) with batches of messages:
posted on eight queues, acquired, one in ten given back and acquired again, accepted; some minutes' worth is in flight
at any time, and one in a thousand stays. Day 1 is audited by a Spark with two cores, then day 2 into the same folder.
Printed: seconds, processor time, and their ratio (in processor time it does not depend on who else is busy), the most
memory that the audit's processes (driver, JVM, workers) held together, and what went through Spark's shuffle, by
Spark's own count and by that of the tasks. Exit code 1 where what is claimed does not hold: 50 million events in under
5 minutes and 4 GB, day 2 at most 1.2 times day 1. In the short form, where starting Spark's jobs is most of it, only
the balance is held to that.

`--folder` names where the journal is made, and with `--keep` left, to be used again. Full size takes about 9 GB.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Self

import numpy as np

from acquit.ledger.events import EVENT_DTYPE, EventKind, fingerprint
from acquit.ledger.records import Actor, Queue, RecordKind, encode_id, encode_posting_meta
from acquit.ledger.recovery import OpenedJournal, close_journal, open_journal, write_now
from acquit.spark.audit import AuditOptions, AuditSummary, audit
from acquit.spark.ledger.options import Verify
from acquit.spark.session import start_session
from acquit.store.folder import EVENTS, SEGMENT
from acquit.store.interface import ARRAY, EVENTFUL
from acquit.store.options import JournalOptions

QUEUES, LINKS, BATCH = 8, 16, 2_000
IN_FLIGHT = 20
"""Batches between a posting and what becomes of it."""
EVENTS_A_MESSAGE = 3.2
DAY_US = 86_400_000_000
FIRST_DAY_US = 1_767_225_600_000_000
EVENT = np.dtype(list(EVENT_DTYPE))
SECONDS_MAX, MEMORY_MAX_MB, RATIO_MAX = 300.0, 4_096.0, 1.2
BASE_EVENTS = 50_000_000


class Maker:
    """Drives the writer. The clock is the journal's: a day has a day's minutes, however fast it is made."""

    def __init__(self, path: Path, *, segment_bytes: int, side_files: bool) -> None:
        self.path = path
        self.side_files = side_files
        self.us = FIRST_DAY_US
        options = JournalOptions(segment_bytes=segment_bytes, recovery_bytes_max=1 << 42)
        self.opened: OpenedJournal = open_journal(path, options, clock_us=lambda: self.us)
        recorder = self.opened.recorder
        for number in range(1, QUEUES + 1):
            recorder.append(Queue(self.us, number, f"orders-{number}", f"orders-{number}"))
        for number in range(1, LINKS + 1):
            recorder.append(Actor(self.us, number, f"worker-{number}", "orders", "user", "orders-1"))
        self.payload = b"0123456789abcdef"
        self.mark = fingerprint(self.payload)
        self.waiting: deque[Any] = deque()
        self.rng = np.random.default_rng(1)

    def day(self, events: int, start_us: int) -> None:
        """So many events, over a day."""
        batches = max(IN_FLIGHT + 1, int(events / (BATCH * EVENTS_A_MESSAGE)))
        for number in range(batches):
            self.us = start_us + DAY_US * number // batches
            self._post()
            if len(self.waiting) > IN_FLIGHT:
                self._serve(self.waiting.popleft())
            self._write()
        self.us += 1_000_000
        while self.waiting:
            self._serve(self.waiting.popleft())
        self._write()

    def close(self) -> None:
        close_journal(self.opened.recorder, self.us)

    def _post(self) -> None:
        sequences, recorder, us, payload = self.opened.sequences, self.opened.recorder, self.us, self.payload
        first = 0
        for number in range(BATCH):
            sequence = sequences.take(us)
            first = first or sequence
            meta = encode_posting_meta(b"orders", encode_id(sequence))
            recorder.posted(sequence, sequence % QUEUES + 1, payload, meta, us + number)
        self.waiting.append(np.arange(first, first + BATCH, dtype=np.uint64))

    def _serve(self, sequences: Any) -> None:
        gone = sequences[sequences % np.uint64(1000) != 0]
        back = sequences[sequences % np.uint64(10) == 3]
        self._events(sequences, EventKind.ACQUIRED, 0)
        self._events(back, EventKind.RELEASED, 1_000)
        self._events(back, EventKind.ACQUIRED, 2_000)
        self._events(gone, EventKind.ACCEPTED, 4_000)

    def _events(self, sequences: Any, kind: EventKind, after_us: int) -> None:
        events = np.zeros(len(sequences), EVENT)
        events["sequence"] = sequences
        events["time_us"] = self.us + after_us + self.rng.integers(0, 900, len(sequences))
        events["crc"], events["size"] = self.mark & 0xFFFFFFFF, self.mark >> 32
        events["queue"] = sequences % np.uint64(QUEUES) + np.uint64(1)
        events["actor"] = sequences % np.uint64(LINKS) + np.uint64(1)
        events["kind"], events["flags"] = int(kind), 1
        packed = events.tobytes()
        self.opened.recorder.flush()
        head = packed[: EVENT.itemsize]
        rest = packed[EVENT.itemsize :]
        self.opened.journal.append(int(RecordKind.TRANSITIONS), head, rest, flags=EVENTFUL | ARRAY)

    def _write(self) -> None:
        write_now(self.opened.recorder)
        while (chore := self.opened.journal.take_chore()) is not None:
            chore.run()
            self.opened.journal.complete_chore(chore)
            if not self.side_files:
                for file in (self.path / "journal").glob(f"*{EVENTS}"):
                    file.unlink()

    @property
    def newest(self) -> int:
        return max(int(file.stem) for file in (self.path / "journal").glob(f"*{SEGMENT}"))


def make(path: Path, events: int, *, side_files: bool) -> None:
    """A journal of two days."""
    segment_bytes = (64 if events >= BASE_EVENTS // 10 else 4) * 1024 * 1024
    maker = Maker(path, segment_bytes=segment_bytes, side_files=side_files)
    maker.day(events, FIRST_DAY_US)
    first_day = maker.newest - 1
    maker.day(events, FIRST_DAY_US + DAY_US)
    maker.close()
    (path / "made.json").write_text(json.dumps({"events": events, "first_day": first_day}))


def first_day_of(path: Path, view: Path) -> Path:
    """The folder as it was after day 1: the same files under other names."""
    last = json.loads((path / "made.json").read_text())["first_day"]
    (view / "journal").mkdir(parents=True)
    shutil.copy(path / "broker.json", view)
    for file in (path / "journal").iterdir():
        if file.suffix in (SEGMENT, EVENTS) and int(file.stem) <= last:
            os.link(file, view / "journal" / file.name)
    return view


class Cost:
    """What this process and all below it took: the most memory at once, shared pages counted once, and processor
    time."""

    def __init__(self) -> None:
        self.most_mb = 0.0
        self.cpu_s = 0.0
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self.cpu_s = -_cpu_s()
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._watcher.join()
        self.cpu_s += _cpu_s()

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            self.most_mb = max(self.most_mb, sum(map(_pss_mb, _processes(os.getpid()))))


def _cpu_s() -> float:
    ticks = 0
    for process in _processes(os.getpid()):
        with contextlib.suppress(OSError):
            # utime, stime, and those of children that have ended.
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _processes(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def _pss_mb(process: int) -> float:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def shuffled(spark: Any) -> int:
    """Bytes that all stages so far wrote for a shuffle, from Spark's status store."""
    jvm, store = spark.sparkContext._jvm, spark.sparkContext._jsc.sc().statusStore()
    empty = jvm.java.util.ArrayList()
    stages = store.stageList(empty, False, False, spark.sparkContext._gateway.new_array(jvm.double, 0), empty)
    return sum(stages.apply(number).shuffleWriteBytes() for number in range(stages.size()))


def measured(spark: Any, label: str, folder: Path, into: Path, verify: Verify) -> tuple[AuditSummary, Cost]:
    """Audit, and say what it cost."""
    before = shuffled(spark)
    with Cost() as cost:
        summary = audit(AuditOptions(folders=[folder], into=into, verify=verify), spark=spark)
    events, took = summary.events, summary.duration_s
    each_us = cost.cpu_s / events * 1e6
    print(
        f"{label}: {events:,} events in {summary.segments} segments, {took:.1f} s ({events / took / 1e6:.2f} M/s), "
        f"{cost.cpu_s:.1f} s of processor time ({each_us:.2f} us an event), {cost.most_mb:,.0f} MB\n"
        f"    {summary.closed:,} closed, {summary.open:,} open; {summary.balance}, "
        f"{summary.anomalies or 'no anomalies'}\n"
        f"    shuffled {shuffled(spark) - before:,} bytes by Spark's count, {summary.shuffled_bytes:,} as handed over: "
        f"{summary.shuffled_bytes / events:.2f} bytes an event",
        flush=True,
    )
    return summary, cost


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="half a million events a day instead of 50 million")
    parser.add_argument("--events", type=int, help="a day")
    parser.add_argument("--folder", type=Path, help="where to make the journal, or where one is (a folder made here)")
    parser.add_argument("--keep", action="store_true", help="leave the journal in --folder")
    parser.add_argument("--verify", choices=list(Verify), default=Verify.FULL, type=Verify)
    options = parser.parse_args()
    events = options.events or (500_000 if options.short else BASE_EVENTS)
    root = options.folder or Path(tempfile.mkdtemp(prefix="bench-audit-", dir=Path.cwd()))
    path, work = root.absolute() / "data", Path(tempfile.mkdtemp(prefix="bench-audit-", dir=root.absolute().parent))
    try:
        if not (path / "made.json").exists():
            start = time.perf_counter()
            child = multiprocessing.get_context("spawn").Process(
                target=make, args=(path, events), kwargs={"side_files": options.verify is Verify.QUICK}
            )
            child.start()
            child.join()
            if child.exitcode:
                return 1
            size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            print(f"made two days of {events:,} events, {size / 1e9:.1f} GB, in {time.perf_counter() - start:.0f} s")
        first = first_day_of(path, work / "day-1")
        spark = start_session(master="local[2]", memory_mb=1_024, log_level="OFF")
        try:
            day_1, cost_1 = measured(spark, "day 1", first, work / "audit", options.verify)
            day_2, cost_2 = measured(spark, "day 2", path, work / "audit", options.verify)
        finally:
            spark.stop()
        ratio = (cost_2.cpu_s / day_2.events) / (cost_1.cpu_s / day_1.events)
        elapsed = (day_2.duration_s / day_2.events) / (day_1.duration_s / day_1.events)
        most_s, most_mb = max(day_1.duration_s, day_2.duration_s), max(cost_1.most_mb, cost_2.most_mb)
        print(f"day 2 / day 1, for each event: {ratio:.2f} in processor time, {elapsed:.2f} in time")
        sound = day_1.sound and day_2.sound
        if events < BASE_EVENTS:
            return 0 if sound else 1
        held = most_s < SECONDS_MAX and most_mb < MEMORY_MAX_MB and ratio <= RATIO_MAX
        return 0 if sound and held else 1
    finally:
        shutil.rmtree(work)
        if not options.keep:
            shutil.rmtree(root if options.folder is None else path)


if __name__ == "__main__":
    sys.exit(main())

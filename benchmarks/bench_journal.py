"""What the journal costs: on the event loop, to the disk, and at the next start.

    python benchmarks/bench_journal.py [--short] [--folder DIR]

* the loop's share of one posting (1 KB) and of one packed transition, by itself and among a thousand that are packed a
  column at a time, in microseconds;
* messages per second for a 1 KB message posted, acquired and accepted, durable each batch of 1, 10, 100 and 1000: the
  whole way through recorder, batch, sync, hash and summary, with the chores on a thread of their own;
* the time and memory of a recovery with many live messages.

Figures swing with the machine: compare runs side by side only. The folder should be on the disk that is meant.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import shutil
import statistics
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from acquit.ledger.events import DURABLE, EventKind, pack_events
from acquit.ledger.records import Queue, encode_id, encode_posting_meta
from acquit.ledger.recovery import OpenedJournal, close_journal, open_journal, write_now
from acquit.store.interface import Batch
from acquit.store.memory import MemoryDisk
from acquit.store.options import JournalOptions

QUEUE = 1
ACQUIRED, ACCEPTED = int(EventKind.ACQUIRED), int(EventKind.ACCEPTED)
OPTIONS = JournalOptions(archive_bytes_max=0, recovery_bytes_max=1 << 40)


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


def begin(opened: OpenedJournal) -> None:
    """A queue to post to."""
    opened.recorder.append(Queue(now_us(), QUEUE, "bench", "bench"))
    write_now(opened.recorder)


def loop_cost(rounds: int) -> None:
    """Microseconds of the loop, without the disk."""
    opened = open_journal(Path("/bench"), OPTIONS, disk=MemoryDisk())
    begin(opened)
    recorder, journal = opened.recorder, opened.journal
    for size in (100, 1024):
        payload = bytes(size)
        postings, metas, transitions, together, batches = [], [], [], [], []
        for _ in range(rounds):
            when = now_us()
            sequences = [opened.sequences.take(when) for _ in range(1000)]
            ids = [encode_id(f"message-{sequence}") for sequence in sequences]
            start = time.perf_counter()
            built = [encode_posting_meta(b"bench", message_id) for message_id in ids]
            metas.append(time.perf_counter() - start)
            start = time.perf_counter()
            posted = [
                recorder.posted(sequence, QUEUE, payload, meta, when)
                for sequence, meta in zip(sequences, built, strict=True)
            ]
            postings.append(time.perf_counter() - start)
            start = time.perf_counter()
            for sequence, (_, fingerprint) in zip(sequences, posted, strict=True):
                recorder.transition(ACQUIRED, sequence, QUEUE, fingerprint, when, 7)
                recorder.transition(ACCEPTED, sequence, QUEUE, fingerprint, when, 7)
            transitions.append((time.perf_counter() - start) / 2)
            fingerprints = [fingerprint for _, fingerprint in posted]
            start = time.perf_counter()
            for kind in (ACQUIRED, ACCEPTED):
                recorder.transitions(pack_events(sequences, fingerprints, when, QUEUE, 7, kind, flags=DURABLE))
            together.append((time.perf_counter() - start) / 2)
            start = time.perf_counter()
            batch = recorder.take_batch()
            batches.append(time.perf_counter() - start)
            assert batch is not None
            batch.write_and_sync()
            journal.complete(batch)
        parts = {
            "plain fields": metas,
            "posting": postings,
            "transition": transitions,
            "of a thousand": together,
            "batch share": batches,
        }
        text = ", ".join(f"{name} {statistics.median(times) * 1e3:.2f}" for name, times in parts.items())
        print(f"loop, {size:4} B, microseconds each: {text}")
    journal.close()


def throughput(folder: Path, seconds: float) -> None:
    """Messages per second through a real disk: as in the broker, a batch is gathered while one is in flight, batches
    and chores each have a thread."""
    for batch_size in (1, 10, 100, 1000):
        path = folder / f"batch-{batch_size}"
        opened = open_journal(path, OPTIONS)
        begin(opened)
        recorder, journal, sequences = opened.recorder, opened.journal, opened.sequences
        payload = bytes(1024)
        count, synced = 0, 0
        waiting: list[tuple[int, int]] = []
        with ThreadPoolExecutor(1) as batches, ThreadPoolExecutor(1) as chores:
            chore, chore_run = None, None
            flight: Future[None] | None = None
            batch: Batch | None = None
            landed = threading.Event()
            start = time.perf_counter()
            while time.perf_counter() - start < seconds:
                when = now_us()
                fresh = []
                for _ in range(batch_size):
                    sequence = sequences.take(when)
                    meta = encode_posting_meta(b"bench", encode_id(f"message-{sequence}"))
                    fresh.append((sequence, recorder.posted(sequence, QUEUE, payload, meta, when)[1]))
                for sequence, fingerprint in waiting:
                    recorder.transition(ACQUIRED, sequence, QUEUE, fingerprint, when, 7)
                    recorder.transition(ACCEPTED, sequence, QUEUE, fingerprint, when, 7)
                waiting = fresh
                if batch is not None:
                    landed.wait()
                    journal.complete(batch)
                    count += batch_size
                    synced += 1
                batch = recorder.take_batch()
                assert batch is not None
                landed.clear()
                flight = batches.submit(batch.write_and_sync, landed.set)
                if chore_run is not None and chore is not None and chore_run.done():
                    chore_run.result()
                    journal.complete_chore(chore)
                    chore_run = None
                if chore_run is None:
                    chore = journal.take_chore()
                    chore_run = chores.submit(chore.run) if chore is not None else None
            elapsed = time.perf_counter() - start
            if flight is not None:
                flight.result()
        size = sum(info.file_bytes for info in journal.segments) / 1e6
        print(
            f"disk, batches of {batch_size:4}: {count / elapsed:9,.0f} messages/s, {synced / elapsed:7,.0f} syncs/s, "
            f"{len(journal.segments)} segments, {size:,.0f} MB"
        )
        journal.close()
        shutil.rmtree(path)


def recovery(folder: Path, live: int) -> None:
    """Seconds and memory for a start with many live messages, in a process of its own."""
    path = folder / "recovery"
    opened = open_journal(path, OPTIONS)
    begin(opened)
    for _ in range(live // 1000):
        when = now_us()
        for _ in range(1000):
            sequence = opened.sequences.take(when)
            opened.recorder.posted(sequence, QUEUE, b"x" * 100, encode_posting_meta(b"bench", b"s%d" % sequence), when)
        write_now(opened.recorder)
    close_journal(opened.recorder, now_us())
    child = multiprocessing.get_context("spawn").Process(target=_recover, args=(path,))
    child.start()
    child.join()
    shutil.rmtree(path)


def _resident_bytes() -> int:
    """Linux only; 0 elsewhere. (The peak that getrusage gives is inherited from the parent.)"""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * resource.getpagesize() if statm.exists() else 0


def _recover(path: Path) -> None:
    before = _resident_bytes()
    start = time.perf_counter()
    opened = open_journal(path, OPTIONS)
    elapsed = time.perf_counter() - start
    memory = _resident_bytes() - before
    live = len(opened.fold.messages)
    each = memory / live
    print(f"recovery of {live:,} live messages: {elapsed:.2f} s, {memory / 1e6:.0f} MB ({each:.0f} bytes each)")
    opened.journal.close()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a few seconds in all")
    parser.add_argument("--folder", type=Path, help="where to write: a folder on the disk that is meant (here)")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-journal-", dir=options.folder or Path.cwd()))
    try:
        loop_cost(20 if options.short else 100)
        recovery(folder, 100_000 if options.short else 1_000_000)
        throughput(folder, 1.0 if options.short else 5.0)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

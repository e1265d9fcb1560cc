"""The store without the ledger: a journal of records that mean nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from zlib import crc32

from acquit.store.disk import Disk
from acquit.store.interface import Erasing, Position, Record, RecordRun
from acquit.store.journal import SegmentedJournal
from acquit.store.options import JournalOptions
from acquit.store.record import encode_record, pack_crc, records_of
from acquit.store.recovery import OpenedStore, open_store
from tests.support.mini_broker import Clock

DATA = Path("/data")
EVENT = bytes(range(48))
OPTIONS = JournalOptions(
    segment_bytes=16 * 1024, alignment_bytes=512, reserve_segments=1, spare_segments=1, recovery_bytes_max=1
)


class Gathered:
    """Remembers everything that is replayed. A `Replay`."""

    def __init__(self) -> None:
        self.segments: list[tuple[int, Position]] = []
        self.records: list[Record] = []
        self.summaries: list[bytes] = []

    def segment(self, number: int, base: Position) -> None:
        self.segments.append((number, base))

    def batch(self, runs: Iterator[RecordRun], time_us: int) -> None:
        for run in runs:
            self.records += records_of(run)

    def sealed(self, summary: bytes) -> None:
        self.summaries.append(summary)

    @property
    def payloads(self) -> list[bytes]:
        """Of the records that are not the store's own."""
        return [record.payload for record in self.records if record.kind < 240]


def run_of(record: Record) -> RecordRun:
    """A record as a run of its own."""
    _, head = encode_record(record.kind, record.event, record.meta, record.payload, 0, record.flags, record.version)
    data = pack_crc(record.crc) + head + record.payload
    return RecordRun(record.kind, record.version, record.flags, record.position - 16, data, [16], [len(record.meta)])


class Counting:
    """A digest that counts events."""

    def __init__(self) -> None:
        self.events = 0

    def add(self, events: bytes, others: Sequence[Record]) -> None:
        self.events += len(events) // 48

    def seal(self) -> bytes:
        events, self.events = self.events, 0
        return b"%d events" % events

    @property
    def seal_bytes_max(self) -> int:
        return 30


class Raw:
    """An open journal, driven by hand."""

    def __init__(
        self,
        disk: Disk,
        *,
        options: JournalOptions = OPTIONS,
        path: Path = DATA,
        clock: Clock | None = None,
        container_id: str = "",
        erasing: Erasing = lambda record: None,
    ) -> None:
        self.replay = Gathered()
        self.clock = clock if clock is not None else Clock()
        self.digest = Counting()
        self.opened: OpenedStore = open_store(
            path,
            options,
            self.replay,
            self.digest,
            replayed=lambda report: None,
            erasing=erasing,
            container_id=container_id,
            disk=disk,
            clock_us=self.clock.wall_us,
            clock_s=self.clock.seconds,
        )
        self.journal: SegmentedJournal = self.opened.journal

    def append(self, payload: bytes, kind: int = 5) -> Position:
        return self.journal.append(kind, EVENT, b"meta", payload, crc32(payload))

    def sync(self) -> None:
        batch = self.journal.take_batch()
        assert batch is not None
        batch.write_and_sync()
        self.journal.complete(batch)

    def put(self, *payloads: bytes) -> list[Position]:
        """One batch."""
        positions = [self.append(payload) for payload in payloads]
        self.sync()
        return positions

    def chores(self, most: int = 100) -> list[str]:
        """Do what is due; the names of what was done."""
        done: list[str] = []
        while len(done) < most and (chore := self.journal.take_chore()) is not None:
            chore.run()
            self.journal.complete_chore(chore)
            done.append(type(chore).__name__)
        return done

"""Data folders on a real disk with archived, closed and open segments, and what happened in them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

from acquit.ledger.events import Event, EventKind
from acquit.ledger.records import Actor, decode_events
from acquit.ledger.recovery import close_journal
from acquit.store.options import JournalOptions
from acquit.store.reading import FolderReader
from acquit.store.record import walk
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.mini_broker import DATA, SMALL, Clock, History, MiniBroker

ACTOR = 7


@dataclass(frozen=True, slots=True)
class LedgerFolder:
    """A folder and its newest segment."""

    path: Path
    newest: int

    def file(self, number: int, suffix: str = ".seg") -> Path:
        """A file of a segment. Raises KeyError when it is in neither place."""
        for part in ("journal", "archive"):
            path = self.path / part / f"{number:020}{suffix}"
            if path.exists():
                return path
        raise KeyError(number)

    def flip(self, number: int, offset: int, suffix: str = ".seg") -> None:
        """Change one byte."""
        path = self.file(number, suffix)
        content = bytearray(path.read_bytes())
        content[offset] ^= 1
        path.write_bytes(content)

    def events(self, number: int) -> list[Event]:
        """All events of a segment, record by record."""
        found = []
        with FolderReader(self.path).open(number) as segment:
            for head, data in segment.batches():
                for record in walk(head, data):
                    found += decode_events(record)
        return found


def grow(
    path: Path, *, seed: int = 9, archive_bytes_max: int = 1 << 30, stubs_max: int = 100, left: int = 4
) -> LedgerFolder:
    """Archived, closed and open segments; with a small archive, some that retention deleted."""
    options: JournalOptions = replace(SMALL, archive_bytes_max=archive_bytes_max, stubs_max=stubs_max)
    truth, clock, rng = History(), Clock(), random.Random(seed)
    disk = FaultyDisk()
    broker = MiniBroker(disk, rng, truth=truth, clock=clock, options=options)
    broker.recorder.append(Actor(clock.wall_us(), ACTOR, "container", "link", "user", "address-1"))
    broker.sync()
    while broker.journal.left_through < left:
        broker.live_on(1, sync=1.0, chores=0.9)
        broker.checkpoint(5)
    for _ in range(4):
        broker.sync()
        broker.chores()
    broker.sync()
    close_journal(broker.recorder, clock.wall_us())
    broker = MiniBroker(disk, rng, truth=truth, clock=clock, options=options)
    first = min(broker.queues)
    for number in range(4):
        message = broker.post(first, b"open %d" % number)
        broker.transition(message, EventKind.ACQUIRED, actor=ACTOR)
        broker.sync()
        broker.chores()
    for source in disk.after_kill().paths():
        if source.name == "lock":
            continue
        target = path / source.relative_to(DATA)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(disk.content(source))
    newest = FolderReader(path).contents().journal[-1]
    return LedgerFolder(path, newest)

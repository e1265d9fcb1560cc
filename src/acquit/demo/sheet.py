"""The balance sheet: the frozen manifest against the ledger and the table.

Three witnesses that know nothing of each other: the manifest says what should be accounted for, the broker's journal
says what was posted and what became of it, the table says what arrived. Nothing is taken from what the processes said
of themselves. Files are compared by identity (path and hash), so a copy that was recognised on the way is no double,
and a row that should not be there is noticed.

    lost      in the manifest, and neither in the table nor dead-lettered
    doubled   more than one row in the table, or in the table and dead-lettered as well

Posting again what was in doubt, forwarding again what a killed worker had not acknowledged, and delivering again are
no failures. They are what at-least-once is made of, and have lines of their own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from acquit.demo.manifest import IDENTITY_HASH_DIGITS, Manifest
from acquit.demo.messages import DEAD_LETTERS, FILES, INGEST
from acquit.ledger.balance import balance
from acquit.ledger.events import RETIRING, EventKind
from acquit.ledger.fold import Fold
from acquit.ledger.records import Posting, RecordKind, decode_events
from acquit.ledger.verify import verify
from acquit.store.interface import RecordRun
from acquit.store.reading import FolderReader
from acquit.store.record import records_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The figures of the journal. Each counter: identity -> how many messages with it entered that queue."""

    posted: Counter[str]
    forwarded: Counter[str]
    dead_lettered: Counter[str]
    redelivered: int
    """Postings that were acquired more than once."""
    story: int | None
    """The sequence of a message that was acquired before a crash and settled after it."""
    balanced: bool
    """True if, for each queue, what entered is what left and what is there."""
    verified: bool
    """The hash chain of the journal is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The closing balance of one run. Identities are sorted."""

    files: int
    posted: int
    posted_again: int
    in_table: int
    dead_lettered: int
    redelivered: int
    forwarded_again: int
    lost: tuple[str, ...]
    doubled: tuple[str, ...]
    strangers: tuple[str, ...]
    """Identities in the table that are not in the manifest."""
    ledger_balanced: bool
    ledger_verified: bool
    story: int | None

    @property
    def holds(self) -> bool:
        """True if every file is accounted for once, and the ledger agrees with itself."""
        return self.ledger_balanced and self.ledger_verified and not (self.lost or self.doubled or self.strangers)

    def as_json(self) -> dict[str, object]:
        """Plain values, for `--json`."""
        counts = {"lost": len(self.lost), "doubled": len(self.doubled)}
        return asdict(self) | counts | {"lost_files": self.lost, "doubled_files": self.doubled, "holds": self.holds}


class _Accountant(Fold):
    """The ledger's own fold that counts, beside it, who entered where and how often it was acquired."""

    def __init__(self) -> None:
        super().__init__()
        self.entered: defaultdict[int, Counter[str]] = defaultdict(Counter)
        """Identities, by queue number."""
        self.acquired: Counter[tuple[int, int]] = Counter()
        """Queue number and sequence -> how often."""
        self.settled: set[tuple[int, int]] = set()

    def batch(self, runs: Iterator[RecordRun], time_us: int) -> None:
        gathered = list(runs)
        super().batch(iter(gathered), time_us)
        for record in chain.from_iterable(map(records_of, gathered)):
            if record.kind == RecordKind.POSTING:
                posting = Posting.decode(record)
                self.entered[posting.event.queue][str(posting.message_id)] += 1
            for event in decode_events(record):
                if event.kind == EventKind.ACQUIRED:
                    self.acquired[event.queue, event.sequence] += 1
                elif event.kind in RETIRING:
                    self.settled.add((event.queue, event.sequence))


def read(data: Path) -> Accounts:
    """The accounts of a stopped broker. Raises StoreError and its kin where the folder cannot be read."""
    journal = _Accountant()
    FolderReader(data).replay(journal, archive=True)
    journal.settle()
    numbers = {queue.name: number for number, queue in journal.table.queues.items()}
    posted, forwarded, dead_lettered = (journal.entered[numbers.get(name, 0)] for name in (FILES, INGEST, DEAD_LETTERS))
    again = [one for one, times in journal.acquired.items() if one[0] == numbers.get(FILES, 0) and times > 1]
    # Lives with an end are better stories, and those with more trouble.
    story = max(again, key=lambda one: (one in journal.settled, journal.acquired[one]), default=None)
    return Accounts(
        posted=posted,
        forwarded=forwarded,
        dead_lettered=dead_lettered,
        redelivered=len(again),
        story=None if story is None else story[1],
        balanced=balance(journal).balanced,
        verified=not verify(data).problems,
    )


def draw_up(manifest: Manifest, accounts: Accounts, rows: Iterable[tuple[str, str]]) -> Sheet:
    """Compare. `rows` are (path, sha256) of every row of the table, as it is, doubles included."""
    expected = {entry.identity for entry in manifest.entries}
    in_table = Counter(f"{path}#{sha256[:IDENTITY_HASH_DIGITS]}" for path, sha256 in rows)
    dead = accounts.dead_lettered
    return Sheet(
        files=len(expected),
        posted=len(accounts.posted),
        posted_again=accounts.posted.total() - len(accounts.posted),
        in_table=len(in_table),
        dead_lettered=len(dead),
        redelivered=accounts.redelivered,
        forwarded_again=accounts.forwarded.total() - len(accounts.forwarded),
        lost=tuple(sorted(expected - in_table.keys() - dead.keys())),
        doubled=tuple(sorted(one for one, rows in in_table.items() if rows > 1 or one in dead)),
        strangers=tuple(sorted(in_table.keys() - expected)),
        ledger_balanced=accounts.balanced,
        ledger_verified=accounts.verified,
        story=accounts.story,
    )

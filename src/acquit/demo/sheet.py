"""The balance sheet: the frozen manifest against the ledger and the table.

Three witnesses that know nothing of each other: the manifest says what should be accounted for, the broker's journal
says what was posted and what became of it, the table says what arrived. Files are compared by identity (path and
hash), so a copy that was recognised on the way is no double, and a row that should not be there is noticed.

    lost      in the manifest, and neither in the table nor dead-lettered
    doubled   more than one row in the table, or in the table and dead-lettered as well

Posting again what was in doubt, forwarding again what a killed worker had not acknowledged, and delivering again are
no failures. They are what at-least-once is made of, and have lines of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from acquit.demo.manifest import IDENTITY_HASH_DIGITS, Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The figures of the journal. Each counter: identity -> how many messages with it entered."""

    posted: Counter[str]
    """Messages that entered the queue of postings."""
    forwarded: Counter[str]
    """Messages that entered the forward queue."""
    dead_lettered: Counter[str]
    """Messages that entered the dead letter queue."""
    redelivered: int
    """Postings that were acquired more than once."""
    balanced: bool
    """True if, for each queue, what entered is what left and what is there."""
    queues: Mapping[str, Mapping[str, int]]
    """The balance of each queue, counts by name."""
    story: int | None
    """The sequence of a message that was acquired before a crash and settled after it."""
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
    balanced: bool
    verified: bool
    story: int | None

    @property
    def holds(self) -> bool:
        """True if every file is accounted for once, and the ledger agrees with itself."""
        return self.balanced and self.verified and not (self.lost or self.doubled or self.strangers)

    def as_json(self) -> dict[str, object]:
        """Plain values, for `--json`."""
        return {
            "files": self.files,
            "posted": self.posted,
            "posted_again": self.posted_again,
            "in_table": self.in_table,
            "dead_lettered": self.dead_lettered,
            "redelivered": self.redelivered,
            "forwarded_again": self.forwarded_again,
            "lost": len(self.lost),
            "doubled": len(self.doubled),
            "lost_files": list(self.lost),
            "doubled_files": list(self.doubled),
            "strangers": list(self.strangers),
            "ledger_balanced": self.balanced,
            "ledger_verified": self.verified,
            "story": self.story,
            "holds": self.holds,
        }


def draw_up(manifest: Manifest, accounts: Accounts, rows: Iterable[tuple[str, str]]) -> Sheet:
    """Compare. `rows` are (path, sha256) of every row of the table, as it is, doubles included."""
    expected = {entry.identity for entry in manifest.entries}
    in_table = Counter(f"{path}#{sha256[:IDENTITY_HASH_DIGITS]}" for path, sha256 in rows)
    dead = accounts.dead_lettered
    return Sheet(
        files=len(expected),
        posted=len(accounts.posted),
        posted_again=_extra(accounts.posted),
        in_table=len(in_table),
        dead_lettered=len(dead),
        redelivered=accounts.redelivered,
        forwarded_again=_extra(accounts.forwarded),
        lost=tuple(sorted(expected - in_table.keys() - dead.keys())),
        doubled=tuple(sorted(one for one, rows in in_table.items() if rows > 1 or one in dead)),
        strangers=tuple(sorted(in_table.keys() - expected)),
        balanced=accounts.balanced,
        verified=accounts.verified,
        story=accounts.story,
    )


def _extra(counter: Counter[str]) -> int:
    return counter.total() - len(counter)

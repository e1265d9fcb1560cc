"""Result of a reconciliation, kept in the audit's folder, for the report and for whoever asks later.

`reconciliations/<name>.json` has the counts and a bounded number of examples; all rows that differ are Parquet files in
the folder that it names. One that is made again, of the same table and queue, takes the place of the one before.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from acquit.errors import NOT_WHAT_WAS_WRITTEN, ConfigurationError, StoreCorrupt
from acquit.spark.files import write_whole

FORMAT: Final = 1
FOLDER: Final = "reconciliations"
FINDINGS: Final = f"{FOLDER}/findings"
"""Prefix of the folders of rows that differ; a hyphen and a name follow."""
_ABANDONED_S: Final = 86_400
"""Seconds after which a folder that no reconciliation names is of one that was killed; before, one may be making it."""


class Against(StrEnum):
    """Kind of other side that the ledger was compared with."""

    TABLE = "table"
    RECEIPTS = "receipts"


class Finding(StrEnum):
    """Kind of finding about one message."""

    MISSING = "missing"
    DOUBLED = "doubled"
    NOT_ACCEPTED = "not-accepted"
    STILL_LIVE = "still-live"
    OTHER_QUEUE = "other-queue"
    UNKNOWN = "unknown"
    UNMATCHED = "unmatched"
    NAMELESS = "without-identity"
    LATER = "later-than-audit"
    EARLIER = "earlier-than-audit"
    NEVER_POSTED = "never-posted"
    POSTED_TWICE = "posted-twice"
    ACCEPTED_TWICE = "accepted-twice"
    POSTED_THOUGH_REFUSED = "posted-though-refused"
    UNKNOWN_TO_PRODUCER = "unknown-to-producer"
    IN_DOUBT_POSTED = "in-doubt-posted"
    IN_DOUBT_NOT_POSTED = "in-doubt-not-posted"


MEANING: Final[Mapping[Finding, str]] = {
    Finding.MISSING: "accepted in the ledger, and not in the table",
    Finding.DOUBLED: "more often in the table than the ledger has it",
    Finding.NOT_ACCEPTED: "in the table, and retired in the ledger in another way",
    Finding.STILL_LIVE: "in the table, and not yet retired in the ledger",
    Finding.OTHER_QUEUE: "in the table, and in the ledger a message of another queue",
    Finding.UNKNOWN: "in the table, and nowhere in the audit",
    Finding.UNMATCHED: "not in the ledger by its id; the journal may have had its posting, and has it no more",
    Finding.NAMELESS: "without a value in the column by which rows are matched",
    Finding.LATER: "in the table, and newer than the audit: audit again to judge them",
    Finding.EARLIER: "in the table, and older than what the journal still had when it was first audited",
    Finding.NEVER_POSTED: "accepted, as the producer has it, and not posted in the ledger",
    Finding.POSTED_TWICE: "posted more often than the producer has accepted sends of it",
    Finding.ACCEPTED_TWICE: "accepted more often, as the producer has it, than posted or suppressed as a duplicate",
    Finding.POSTED_THOUGH_REFUSED: "not accepted, as the producer has it, and posted in the ledger",
    Finding.UNKNOWN_TO_PRODUCER: "posted in the ledger, and not in the receipts",
    Finding.IN_DOUBT_POSTED: "in doubt for the producer: it was posted",
    Finding.IN_DOUBT_NOT_POSTED: "in doubt for the producer: it was not posted",
}
ANSWERS: Final = frozenset((Finding.IN_DOUBT_POSTED, Finding.IN_DOUBT_NOT_POSTED, Finding.LATER, Finding.EARLIER))
"""Findings that tell what was not known, or what cannot be; nothing is wrong with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Message that differs."""

    finding: Finding
    broker: str | None
    identity: str
    """Sequence or message id."""
    ledger: str
    """State in the ledger: outcomes and how often; "" for nothing."""
    other: str
    """State on the other side; "" for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """The ledger of one queue beside a table, or beside a producer's receipts."""

    against: Against
    place: str
    """The table, or the file of receipts."""
    broker: str | None
    """The one that was compared; None for all."""
    queue: str
    identity: str
    """The column by which rows were matched: ``sequence`` or ``message_id``."""
    made_at_us: int
    ledger_rows: int
    """Messages that the other side was expected to have: accepted ones, or postings."""
    other_rows: int
    ranges: int
    """Ranges of identities that were compared by count and sum."""
    ranges_differing: int
    """Ranges in which rows were looked at."""
    counts: Mapping[Finding, int] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()
    findings: str = ""
    """Folder with all that differ, below the audit's; "" where nothing does."""
    format: int = FORMAT

    @property
    def equal(self) -> bool:
        """True if the two sides agree; `ANSWERS` do not count against them."""
        return not any(count for finding, count in self.counts.items() if finding not in ANSWERS)

    @property
    def differs(self) -> bool:
        """True if the two sides differ; what is unmatched says neither."""
        return any(count for finding, count in self.counts.items() if finding not in {*ANSWERS, Finding.UNMATCHED})

    @property
    def name(self) -> str:
        """Name of its file: the same for the same comparison."""
        said = json.dumps([self.against, self.place, self.broker, self.queue])
        return hashlib.sha256(said.encode()).hexdigest()[:16]


def write_reconciliation(folder: Path, found: Reconciliation) -> Path:
    """Keep it with the audit in `folder`, in place of an earlier one of the same comparison."""
    target = folder / FOLDER / f"{found.name}.json"
    target.parent.mkdir(exist_ok=True)
    write_whole(target, json.dumps(asdict(found), indent=1).encode())
    return target


def replace_reconciliation(folder: Path, found: Reconciliation) -> None:
    """Write as `write_reconciliation`, and delete the rows that an earlier one of the same comparison named, and those
    of comparisons that were killed."""
    before = read_reconciliations(folder)
    write_reconciliation(folder, found)
    replaced = {each.findings for each in before if each.name == found.name and each.findings}
    kept = {each.findings for each in (*before, found)} - replaced
    for path in folder.glob(f"{FINDINGS}-*"):
        place = path.relative_to(folder).as_posix()
        if place in replaced or (place not in kept and time.time() - path.stat().st_mtime > _ABANDONED_S):
            shutil.rmtree(path, ignore_errors=True)


def read_reconciliations(folder: Path) -> list[Reconciliation]:
    """Return the reconciliations of the audit in `folder`, newest first. Raises StoreCorrupt for a file that is none,
    and ConfigurationError for one of a later version of acquit."""
    found = [_read(path) for path in sorted((folder / FOLDER).glob("*.json"))]
    return sorted(found, key=lambda each: -each.made_at_us)


def _read(path: Path) -> Reconciliation:
    found = None
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        if said.get("format", FORMAT) <= FORMAT:
            said["against"] = Against(said["against"])
            said["counts"] = {Finding(name): count for name, count in said["counts"].items()}
            said["examples"] = tuple(
                Example(**{**each, "finding": Finding(each["finding"])}) for each in said["examples"]
            )
            found = Reconciliation(**said)
    except NOT_WHAT_WAS_WRITTEN as error:
        raise StoreCorrupt(f"not a reconciliation: {error}", path=str(path), offset=0) from error
    if found is None:
        raise ConfigurationError(f"{path} was written by a later version of acquit")
    return found

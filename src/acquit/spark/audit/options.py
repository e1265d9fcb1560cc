"""Options of an audit, what it reports as it goes, and what it has done in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from acquit.errors import ConfigurationError
from acquit.spark.ledger.options import Verify
from acquit.spark.options import SparkAt

BUCKETS: Final = 32
"""A task holds one bucket's pieces and open messages in memory, about 110 bytes each."""
ANOMALIES_MAX: Final = 10_000
HISTORIES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions(SparkAt):
    """Options of an audit: what to audit, where to keep it. Raises ConfigurationError for options that cannot be."""

    folders: Sequence[Path]
    """The data folders of the brokers: absolute, seen under the same path by driver and executors."""
    into: Path
    """The audit's folder, made if it is not there: absolute, and seen by all, too."""
    verify: Verify = Verify.FULL
    """``full`` reads every byte of each new segment; ``quick`` its side file where there is one."""
    histories: int = HISTORIES_MAX
    """Messages, of those that anomalies name, whose events are kept, at most."""
    anomalies: int = ANOMALIES_MAX
    """Anomalies of a run that are kept as rows, at most; all are counted."""
    buckets: int = BUCKETS
    """Parts in which a new audit puts together the messages that are not complete in one segment."""

    def __post_init__(self) -> None:
        for name, path in (*(("folders", folder) for folder in self.folders), ("into", self.into)):
            if not path.is_absolute():
                raise ConfigurationError(f"{name}: expected an absolute path, got {path}")
        if not self.folders:
            raise ConfigurationError("folders: expected at least one data folder of a broker")
        for name, value, least in (
            ("histories", self.histories, 0),
            ("anomalies", self.anomalies, 1),
            ("buckets", self.buckets, 1),
        ):
            if value < least:
                raise ConfigurationError(f"{name}: expected a number from {least} on, got {value}")
        if self.verify not in list(Verify):
            raise ConfigurationError(f"verify: expected full or quick, got {self.verify}")
        object.__setattr__(self, "verify", Verify(self.verify))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditProgress:
    """Progress of an audit so far."""

    stage: str
    """Stage of the run: `planning`, `folding`, `explaining` or `committing`."""
    segments: int
    """Folded, about: tasks that have ended."""
    segments_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSummary:
    """Result of a run, and how the audit then stands."""

    into: Path
    entry: int
    """Number of the newest entry in the audit's log."""
    changed: bool
    """True if this run committed the entry; else there was nothing new."""
    brokers: int
    segments: int
    """Folded by this run."""
    events: int
    """Folded by this run."""
    closed: int
    """Messages whose retirement this run found."""
    open: int
    """Messages that are live, as far as the journals were read."""
    anomalies: dict[str, int] = field(default_factory=dict)
    """Found by this run, by kind, notes included (`acquit.spark.audit.anomalies.NOTES`)."""
    anomalies_before: dict[str, int] = field(default_factory=dict)
    """Found by earlier runs of this audit, by kind, notes included. What a journal once said stays said."""
    balance: dict[str, int] = field(default_factory=dict)
    """Queues by the state of their balance: `balanced`, `differs`, `incomplete`."""
    differing: tuple[str, ...] = ()
    """The first queues whose balance does not hold, and why."""
    sound: bool
    """Every balance holds, and neither this run nor an earlier one of this audit found an anomaly that is more than a
    note. A gap in a journal is one."""
    shuffled_bytes: int = 0
    """Handed to the shuffle by tasks, before it compresses."""
    duration_s: float


def summary_json(summary: AuditSummary) -> dict[str, Any]:
    """Return the summary as plain values, for machines."""
    return asdict(summary) | {"into": str(summary.into), "duration_s": round(summary.duration_s, 3)}

"""Merge of the pieces of messages: those of all segments of a run, and what earlier runs left open.

A message belongs to one bucket, by its broker, queue and sequence. A bucket's pieces come from everywhere; its open
lives lie in one file. Put together they are *closed*, or open again, or *suspects*: pieces without a posting. Where
the journal was complete a suspect is an anomaly; where segments before it could not be read, a message that can have
been posted in those is what it looks like, and its posting is unknown.

A bucket that no piece came for is not touched, nor is its file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from acquit.ledger.events import EventKind
from acquit.spark.audit import counters as counting
from acquit.spark.audit import tables
from acquit.spark.audit.anomalies import Anomaly, AnomalyRow, of_extras, of_flags, told_of
from acquit.spark.audit.counters import Counters
from acquit.spark.audit.lives import NO_LIVES, LifeFlag, Lives, concatenate, flagged, merge
from acquit.spark.audit.tables import DataFile
from acquit.spark.ledger.segments import sums_by

Sums = dict[str, list[int]]
"""Messages by "broker queue": their number, and the sum of their hashes."""
NO_POSTING: Final = "its posting is nowhere in the journal"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolders:
    """Folders that a run writes into, and what it knows of its brokers."""

    root: Path
    """The audit's folder."""
    folder: str
    """The run's, within it."""
    brokers: Mapping[int, str]
    below: Mapping[int, int]
    """Sequence by broker: a message with a lower one can have been posted in a segment that could not be read."""
    open: Mapping[int, str]
    """The file of each bucket that has one."""
    anomalies_max: int


@dataclass(slots=True, kw_only=True)
class BucketFacts:
    """Facts that a run needs to know of a bucket."""

    bucket: int
    files: list[DataFile] = field(default_factory=list)
    opened: bool = False
    """True if its open lives were written anew (or there are none left)."""
    live: Sums = field(default_factory=dict)
    unknown: Sums = field(default_factory=dict)
    """Retired, and posted in a segment that could not be read."""
    backward: list[tuple[int, int, int]] = field(default_factory=list)
    """Broker, segment, and how many messages' events go back."""
    anomalies: list[AnomalyRow] = field(default_factory=list)
    suspects: list[AnomalyRow] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """Anomalies and suspects by kind, those included that no row tells of."""

    def to_json(self) -> dict[str, Any]:
        """Return the facts as plain values."""
        return asdict(self) | {
            "anomalies": [list(row) for row in self.anomalies],
            "suspects": [list(row) for row in self.suspects],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> BucketFacts:
        """Return the facts that `to_json` gave, by way of JSON."""
        changed = {
            "files": [DataFile(**file) for file in value["files"]],
            "backward": [tuple(one) for one in value["backward"]],
            "anomalies": [AnomalyRow(*row) for row in value["anomalies"]],
            "suspects": [AnomalyRow(*row) for row in value["suspects"]],
        }
        return cls(**(value | changed))


def merge_bucket(bucket: int, pieces: Lives, counters: Counters, place: RunFolders, label: str) -> BucketFacts:
    """Put a bucket together, and write what comes of it. Raises OSError."""
    facts = BucketFacts(bucket=bucket)
    if len(pieces):
        counters = np.concatenate([counters, _lives(facts, pieces, place, label)])
    if len(counters):
        path = f"{place.folder}/counters/{label}.parquet"
        table = tables.counter_table(counting.summed(counters))
        facts.files.append(tables.write(place.root, path, table, name="counters"))
    return facts


def _lives(facts: BucketFacts, pieces: Lives, place: RunFolders, label: str) -> Counters:
    before = place.open.get(facts.bucket)
    left = tables.open_lives(place.root / before) if before is not None else NO_LIVES
    in_order = pieces[np.argsort(pieces["first_segment"], kind="stable")]
    lives, extras = merge(concatenate([left, in_order]))
    explained = np.zeros(len(lives), np.bool_)
    for number, below in place.below.items():
        explained |= (lives["broker"] == number) & (lives["sequence"] < below)
    known = lives["entered"] != 0
    retired = lives["retired"] != 0
    _note(facts, lives, extras, lives[~known & ~explained], place.anomalies_max)
    sound = lives[known | explained]
    counted = counting.of_lives(sound)
    closed, still = lives[retired & (known | explained)], lives[~retired & (known | explained)]
    facts.files += tables.closed_files(closed, dict(place.brokers), place.root, place.folder, label)
    facts.unknown = sums(closed[closed["entered"] == 0])
    facts.live = sums(still[still["entered"] != 0])
    facts.opened = True
    if len(still):
        path = f"{place.folder}/open/{label}.parquet"
        table = tables.open_table(still, dict(place.brokers))
        metadata = tables.live_metadata(facts.live)
        file = tables.write(place.root, path, table, name="open", bucket=facts.bucket, metadata=metadata)
        facts.files.append(file)
    return counted


def _note(facts: BucketFacts, lives: Lives, extras: Lives, suspects: Lives, most: int) -> None:
    unposted = (
        (suspects[suspects["retired"] != 0], Anomaly.RETIRED_WITHOUT_POSTING, _unposted, "last_us"),
        (suspects[suspects["retired"] == 0], Anomaly.ACQUIRED_WITHOUT_POSTING, _unposted, "last_us"),
    )
    after, flags = of_extras(extras, most), of_flags(lives, most)
    facts.suspects, counts = told_of(unposted, most)
    facts.anomalies = after[0] + flags[0]
    facts.counts = dict(after[1] + flags[1] + counts)
    back = lives[flagged(lives, LifeFlag.BACKWARD)]
    where = Counter(zip(back["broker"].tolist(), back["last_segment"].tolist(), strict=True))
    facts.backward = [(broker, segment, count) for (broker, segment), count in sorted(where.items())]


def _unposted(life: Any) -> str:
    return f"{EventKind(int(life['last'])).name}; {NO_POSTING}"


def sums(lives: Lives) -> Sums:
    """Return the number of lives and the sum of their hashes, by broker and queue."""
    keys = lives["broker"].astype(np.uint64) << np.uint64(32) | lives["queue"]
    return {f"{key >> 32} {key & 0xFFFFFFFF}": list(pair) for key, pair in sums_by(lives, keys).items()}

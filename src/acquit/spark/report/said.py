"""Content of the page, as plain values for the template. Rows are those of the audit's tables, with what they lack."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from acquit.spark.audit.reconciled import Reconciliation
from acquit.spark.report.tables import Row


class Mood(IntEnum):
    """A state of things, for its colour and its sign; the text beside it says it, too. The worst is the greatest."""

    GOOD = 0
    NOTE = 1
    BAD = 2


_MOODS: Final = {"balanced": Mood.GOOD, "incomplete": Mood.NOTE}


def mood_of(found: Row | Reconciliation) -> Mood:
    """Return that of a balance or a reconciliation."""
    if isinstance(found, Reconciliation):
        return Mood.GOOD if found.equal else Mood.BAD if found.differs else Mood.NOTE
    return _MOODS.get(found["state"], Mood.BAD)


class Tile(NamedTuple):
    """A figure that stands for itself."""

    label: str
    value: str
    note: str
    mood: Mood | None = None


@dataclass(frozen=True, slots=True)
class BrokerSection:
    """A broker: all its queues as rows, and those that have `charts`."""

    name: str
    folder: str
    account: Row
    """Account of all its queues."""
    rows: list[Row]
    rows_left_out: int
    sections: list[Row]


@dataclass(frozen=True, slots=True)
class AnomalyKind:
    """All anomalies of one kind."""

    kind: str
    mood: Mood
    meaning: str
    count: int
    shown: list[Row]
    """Each with the `steps` of its history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that the template needs."""

    title: str
    made: str
    span: str
    mood: Mood
    verdict: str
    because: list[str]
    tiles: list[Tile]
    brokers: list[BrokerSection]
    anomalies: list[AnomalyKind]
    reconciliations: list[Reconciliation]
    coverage: list[Row]
    left_out: str
    """Sentences about what the page leaves out; "" for nothing."""

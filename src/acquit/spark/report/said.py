"""What the page says, as plain values for the template."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from acquit.spark.audit.reconciled import Reconciliation
from acquit.spark.report.charts import Chart


class Mood(StrEnum):
    """How something is, for its colour and its sign; the text beside it says it, too."""

    GOOD = "good"
    NOTE = "note"
    BAD = "bad"


BADNESS: Final = {mood: badness for badness, mood in enumerate(Mood)}
MOODS: Final = {"balanced": Mood.GOOD, "incomplete": Mood.NOTE, "differs": Mood.BAD}
"""Of a balance, by its state."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure that stands for itself."""

    label: str
    value: str
    note: str = ""
    mood: Mood | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A queue in the balance sheet."""

    broker: str
    queue: str
    anchor: str
    """Of its section; "" where it has none."""
    mood: Mood
    state: str
    detail: str
    entered: int | None
    retired: int | None
    live: int | None
    live_by_seal: int | None
    entered_by: tuple[tuple[str, int], ...]
    retired_by: tuple[tuple[str, int], ...]
    dead: int
    latency: str
    """p50 and p99."""

    @property
    def left_or_live(self) -> int | None:
        """The other side of the account; None where a part of it is not known."""
        return None if self.retired is None or self.live is None else self.retired + self.live

    @property
    def off(self) -> int:
        """By how much the sides differ; 0 where that cannot be said."""
        other = self.left_or_live
        return 0 if self.entered is None or other is None else self.entered - other


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSection:
    """A queue with its charts."""

    row: QueueRow
    charts: list[Chart]
    opened: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSection:
    """A broker: its charts, all its queues as rows, and some of them as sections."""

    anchor: str
    name: str
    folder: str
    charts: list[Chart]
    account: QueueRow
    """Of all its queues."""
    rows: list[QueueRow]
    rows_left_out: int
    sections: list[QueueSection]


@dataclass(frozen=True, slots=True)
class Step:
    """An event of a message's history."""

    time: str
    kind: str
    attempt: str
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Something that ought not to be."""

    broker: str
    where: str
    detail: str
    time: str
    steps: list[Step]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyKind:
    """All of one kind."""

    kind: str
    mood: Mood
    meaning: str
    count: int
    shown: list[Instance]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What of one broker's journal the audit has seen."""

    broker: str
    folder: str
    segments: str
    events: int
    first: str
    last: str
    missing: str
    deleted: str
    unclean_stops: int


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
    coverage: list[Coverage]
    left_out: str
    """What was filtered away; "" for nothing."""

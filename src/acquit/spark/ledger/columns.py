"""The columns of the format `acquit.ledger`, and how arrays of events become Arrow.

`EVENT_FIELDS`, `DETAIL_FIELDS` and `SEGMENT_FIELDS` are the reference, which `docs/ledger-source.md` repeats. Each
column is made by one function of a `Chunk`, and only if it is asked for; no loop over rows, those of the details
excepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acquit.errors import ConfigurationError
from acquit.ledger.events import READ_OUTCOMES, EventFlag, EventKind
from acquit.ledger.totals import NEVER_US
from acquit.spark.ledger.chain import Segment
from acquit.spark.ledger.names import Names, names_at
from acquit.spark.ledger.options import FORMAT_NAME, LedgerOptions, Table
from acquit.spark.ledger.segments import CAUSES, KINDS, Details, Events, id_text, read_events
from acquit.spark.options import type_ddl

ROWS: Final = 65_536
"""Rows in a batch, at most."""
_TEXT: Final = pa.string()
_TIME: Final = pa.timestamp("us", "UTC")
_LONG: Final = pa.int64()
_INT: Final = pa.int32()
_BOOL: Final = pa.bool_()
_SPARK: Final = {_TEXT: "STRING", _TIME: "TIMESTAMP", _LONG: "BIGINT", _INT: "INT", _BOOL: "BOOLEAN"}
_UNTIL_MS: Final = (EventKind.RELEASED, EventKind.MODIFIED)
_TIME_MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999, as far as Spark's and Python's calendars go: what is later is never."""
_KIND_NAMES: Final = pa.array([KINDS.get(number, str(number)) for number in range(256)], _TEXT)
_OUTCOMES: Final = pa.array([name or None for name in READ_OUTCOMES], _TEXT)

T = TypeVar("T")

_TABLE_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Labels:
    """Texts of the numbers that occur in a segment: `numbers`, sorted, and a text (or None) for each."""

    numbers: npt.NDArray[np.int64]
    texts: pa.Array

    @classmethod
    def of(cls, names: dict[int, str]) -> Labels:
        """Return the labels of these numbers."""
        numbers = sorted(names)
        return cls(np.array(numbers, np.int64), pa.array([names[number] or None for number in numbers] + [None], _TEXT))

    def places(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the place of each value's text in `texts`; of one that has none, the last place, which is null."""
        absent = len(self.numbers)
        if not absent:
            return np.zeros(len(values), np.int64)
        if self.numbers[-1] < _TABLE_MAX:  # to look up is a few times faster than to search
            table = np.full(int(self.numbers[-1]) + 2, absent, np.int64)
            table[self.numbers] = np.arange(absent)
            known: npt.NDArray[np.int64] = table[np.minimum(values, len(table) - 1)]
            return known
        at = np.searchsorted(self.numbers, values)
        found = self.numbers[np.minimum(at, absent - 1)] == values
        return np.where(found, at, absent)

    def take(self, places: npt.NDArray[np.int64]) -> pa.Array:
        """The texts at these places."""
        if self.texts.null_count == len(self.texts):
            return pa.nulls(len(places), _TEXT)
        return self.texts.take(pa.array(places))


@dataclass(frozen=True, slots=True)
class Whole:
    """State that all chunks of a segment share."""

    segment: Segment
    details: Details
    labels: dict[str, Labels] = field(default_factory=dict)
    """Labels by the column that they are for."""
    constants: dict[object, pa.Array] = field(default_factory=dict)
    """Columns that are the same in all rows, of the longest chunk so far."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some events of a segment, and where in it they are."""

    whole: Whole
    events: Events
    index: npt.NDArray[np.int64]
    places: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    """Places of each field's values among their labels, by field; they are the same for all columns of the field."""

    def long(self, name: str) -> pa.Array:
        """A field as BIGINT."""
        return pa.array(self.events[name].astype(np.int64))

    def int_(self, name: str) -> pa.Array:
        """A field as INT."""
        return pa.array(self.events[name].astype(np.int32))

    def known(self, name: str, where: npt.NDArray[np.bool_] | None = None) -> pa.Array:
        """A field as BIGINT, null where it is 0, or not `where`."""
        values = self.events[name].astype(np.int64)
        absent = values == 0
        return pa.array(values, mask=absent if where is None else absent | ~where)

    def kind_is(self, *kinds: EventKind) -> npt.NDArray[np.bool_]:
        """Return which events are of these kinds."""
        return np.isin(self.events["kind"], np.array(kinds, np.uint8))

    def flag(self, flag: EventFlag) -> pa.Array:
        """A flag as BOOLEAN."""
        return pa.array(self.events["flags"] & np.uint8(flag) != 0)

    def label(self, column: str, name: str) -> pa.Array:
        """Return the texts that the numbers of a field stand for."""
        labels = self.whole.labels[column]
        if name not in self.places:
            self.places[name] = labels.places(self.events[name])
        return labels.take(self.places[name])

    def constant(self, value: object, type_: pa.DataType) -> pa.Array:
        """The same in each row."""
        rows = len(self.events)
        held = self.whole.constants.get(value)
        if held is None or len(held) < rows:
            held = self.whole.constants[value] = pa.repeat(pa.scalar(value, type_), rows)
        return held.slice(0, rows)

    def looked_up(self, values: dict[int, T], read: Callable[[T], object], type_: pa.DataType) -> pa.Array:
        """Return a value of details for each event, null where there is none."""
        found = (values.get(at) for at in self.index.tolist())
        return pa.array([None if value is None else read(value) for value in found], type_)


C = TypeVar("C")


class LedgerColumn(NamedTuple, Generic[C]):
    """A column."""

    name: str
    type: pa.DataType
    make: Callable[[C], Any]
    """Maker of an event column's array from a chunk, or of a segment column's value from a segment."""
    meaning: str

    @property
    def spark_type(self) -> str:
        """Spark type, as DDL has it."""
        return _SPARK[self.type]


def _times_ms(chunk: Chunk) -> pa.Array:
    held = chunk.known("origin", chunk.kind_is(*_UNTIL_MS) & (chunk.events["origin"] <= _TIME_MAX_MS))
    return pc.multiply(held, 1000).view(_TIME)


def _time(milliseconds: int) -> int | None:
    return milliseconds * 1000 if 0 < milliseconds <= _TIME_MAX_MS else None


def _outcome(chunk: Chunk) -> pa.Array:
    outcome = np.where(chunk.kind_is(EventKind.READ), chunk.events["origin"], 0)
    return _OUTCOMES.take(pa.array(np.where(outcome < len(_OUTCOMES), outcome, 0).astype(np.uint8)))


def _text(value: str) -> str | None:
    return value or None


EVENT_FIELDS: Final[tuple[LedgerColumn[Chunk], ...]] = (
    LedgerColumn(
        "broker", _TEXT, lambda c: c.constant(str(c.whole.segment.store), _TEXT), "uuid of the broker's store"
    ),
    LedgerColumn("segment", _LONG, lambda c: c.constant(c.whole.segment.number, _LONG), "number of the segment"),
    LedgerColumn("index", _INT, lambda c: pa.array(c.index.astype(np.int32)), "which event of the segment, from 0"),
    LedgerColumn("sequence", _LONG, lambda c: c.long("sequence"), "the message: unique in the broker, never reused"),
    LedgerColumn(
        "origin",
        _LONG,
        lambda c: c.known("origin", ~c.kind_is(*_UNTIL_MS, EventKind.READ)),
        "of an event that enters a queue, the message that this is a copy of; of one that retires, the copy made of it",
    ),
    LedgerColumn("queue_number", _LONG, lambda c: c.known("queue"), "number of the queue, never reused"),
    LedgerColumn(
        "queue", _TEXT, lambda c: c.label("queue", "queue"), "its name, as of the segment; null where none says it"
    ),
    LedgerColumn("address", _TEXT, lambda c: c.label("address", "queue"), "its address"),
    LedgerColumn(
        "kind", _TEXT, lambda c: _KIND_NAMES.take(pa.array(c.events["kind"].copy())), "what happened, by name"
    ),
    LedgerColumn(
        "kind_number", _INT, lambda c: c.int_("kind"), "1 to 15 enters a queue, 16 to 31 retires, others neither"
    ),
    LedgerColumn("time", _TIME, lambda c: c.long("time_us").view(_TIME), "when, by the broker's clock"),
    LedgerColumn("size", _LONG, lambda c: c.long("size"), "bytes of the message as it was posted"),
    LedgerColumn("crc", _LONG, lambda c: c.long("crc"), "CRC-32 of these bytes: with `size` the message's fingerprint"),
    LedgerColumn("attempt", _INT, lambda c: c.int_("attempt"), "delivery-count after the event; stays at 65535"),
    LedgerColumn(
        "not_before", _TIME, _times_ms, "of RELEASED and MODIFIED: not offered again before; null for at once"
    ),
    LedgerColumn(
        "outcome", _TEXT, _outcome, "of READ: accepted, rejected, released, modified, or modified, delivery failed"
    ),
    LedgerColumn("durable", _BOOL, lambda c: c.flag(EventFlag.DURABLE), "the message is durable"),
    LedgerColumn(
        "copy", _BOOL, lambda c: c.flag(EventFlag.COPY), "entered without a payload of its own: `origin` has it"
    ),
    LedgerColumn(
        "connection_lost", _BOOL, lambda c: c.flag(EventFlag.CONNECTION_LOST), "came back because a connection was lost"
    ),
    LedgerColumn(
        "left_behind",
        _BOOL,
        lambda c: c.flag(EventFlag.LEFT_BEHIND),
        "of RELEASED and MODIFIED: no consumer said it, a link ended over the message; no failure, and no release",
    ),
    LedgerColumn(
        "undeliverable_here",
        _BOOL,
        lambda c: c.flag(EventFlag.UNDELIVERABLE_HERE),
        "the consumer shall not see it again",
    ),
    LedgerColumn(
        "id_reused",
        _BOOL,
        lambda c: c.flag(EventFlag.ID_REUSED),
        "posted under a duplicate-detection id that another body had",
    ),
    LedgerColumn(
        "actor_number", _LONG, lambda c: c.known("actor"), "number of the link or user; null for the broker itself"
    ),
    LedgerColumn(
        "actor", _TEXT, lambda c: c.label("actor", "actor"), "its link's name, where the journal still says it"
    ),
    LedgerColumn("container", _TEXT, lambda c: c.label("container", "actor"), "its container-id"),
    LedgerColumn("user", _TEXT, lambda c: c.label("user", "actor"), "its user; null for an anonymous one"),
    LedgerColumn(
        "transaction", _LONG, lambda c: c.known("transaction"), "number of the transaction within the broker's run"
    ),
)

DETAIL_FIELDS: Final[tuple[LedgerColumn[Chunk], ...]] = (
    LedgerColumn(
        "message_id",
        _TEXT,
        lambda c: c.looked_up(c.whole.details.postings, lambda p: id_text(p.message_id), _TEXT),
        "of a posting; a uuid in its usual form, a number in decimal, binary in hex",
    ),
    LedgerColumn(
        "posted_to",
        _TEXT,
        lambda c: c.looked_up(c.whole.details.postings, lambda p: _text(p.address), _TEXT),
        "of a posting: the address that it was sent to",
    ),
    LedgerColumn(
        "priority",
        _INT,
        lambda c: c.looked_up(c.whole.details.postings, lambda p: p.priority, _INT),
        "of a posting",
    ),
    LedgerColumn(
        "expires_at",
        _TIME,
        lambda c: c.looked_up(c.whole.details.postings, lambda p: _time(p.expires_at_ms), _TIME),
        "of a posting; null for never",
    ),
    LedgerColumn(
        "due_at",
        _TIME,
        lambda c: c.looked_up(c.whole.details.postings, lambda p: _time(p.due_at_ms), _TIME),
        "of a scheduled posting",
    ),
    LedgerColumn(
        "cause",
        _TEXT,
        lambda c: c.looked_up(c.whole.details.attempts, lambda a: CAUSES.get(a.cause, str(a.cause)), _TEXT),
        "why an attempt ended, where more is known than the kind: " + ", ".join(CAUSES.values()),
    ),
    LedgerColumn(
        "condition",
        _TEXT,
        lambda c: c.looked_up(c.whole.details.attempts, lambda a: _text(a.condition), _TEXT),
        "the error's condition, as the consumer gave it",
    ),
    LedgerColumn(
        "description",
        _TEXT,
        lambda c: c.looked_up(c.whole.details.attempts, lambda a: _text(a.description), _TEXT),
        "the error's description",
    ),
)


def _event_time(segment: Segment, *, first: bool) -> int | None:
    summary = segment.summary
    if summary is None or summary.first_us == NEVER_US:
        return None
    return summary.first_us if first else summary.last_us


SEGMENT_FIELDS: Final[tuple[LedgerColumn[Segment], ...]] = (
    LedgerColumn("broker", _TEXT, lambda s: str(s.store), "uuid of the broker's store"),
    LedgerColumn("folder", _TEXT, lambda s: str(s.folder), "its data folder"),
    LedgerColumn("segment", _LONG, lambda s: s.number, "number of the segment; from 1 without a gap"),
    LedgerColumn(
        "state",
        _TEXT,
        lambda s: s.state.value,
        "`open` (the newest), `closed`, `archived`, `deleted` (by retention, which is on record) or `missing`: a gap",
    ),
    LedgerColumn(
        "events", _LONG, lambda s: s.summary and s.summary.events, "how many events it has or had, by its seal"
    ),
    LedgerColumn("first_time", _TIME, lambda s: _event_time(s, first=True), "of its earliest event"),
    LedgerColumn("last_time", _TIME, lambda s: _event_time(s, first=False), "of its latest event"),
    LedgerColumn("created", _TIME, lambda s: s.header and s.header.created_us, "when it was begun"),
    LedgerColumn("sealed", _TIME, lambda s: s.seal and s.seal.sealed_us, "when it was closed"),
    LedgerColumn("cut", _LONG, lambda s: s.seal and s.seal.cut, "bytes of a torn tail that recovery dropped"),
    LedgerColumn("bytes", _LONG, lambda s: s.length or None, "its valid bytes"),
    LedgerColumn("sha256", _TEXT, lambda s: s.sha256.hex() or None, "their SHA-256, as its successor has it"),
)


def fields_of(options: LedgerOptions) -> tuple[LedgerColumn[Any], ...]:
    """The columns that a read with these options has."""
    if options.table is Table.SEGMENTS:
        return SEGMENT_FIELDS
    return EVENT_FIELDS + DETAIL_FIELDS if options.details else EVENT_FIELDS


def ddl(fields: Iterable[LedgerColumn[Any]]) -> str:
    """Return the columns as Spark's DDL."""
    return ", ".join(f"`{column.name}` {type_ddl(column.spark_type)}" for column in fields)


def check_schema(schema: pa.Schema, options: LedgerOptions) -> None:
    """Raises ConfigurationError for a column that is not ours, or of another type."""
    by_name: dict[str, LedgerColumn[Any]] = {column.name: column for column in fields_of(options)}
    for wanted in schema:
        column = by_name.get(wanted.name)
        if column is None:
            why = "with the option details = true only" if wanted.name in {c.name for c in DETAIL_FIELDS} else ""
            raise ConfigurationError(
                f"schema: the format {FORMAT_NAME} has the column {wanted.name} {why}"
                if why and options.table is Table.EVENTS
                else f"schema: the {options.table} of the format {FORMAT_NAME} have no column {wanted.name}; they have "
                f"{', '.join(by_name)}"
            )
        if wanted.type != column.type:
            raise ConfigurationError(
                f"schema: column {wanted.name} is {column.spark_type}, and cannot be read as {wanted.type}"
            )


def segment_rows(segments: Sequence[Segment], schema: pa.Schema) -> pa.RecordBatch:
    """The segments as rows."""
    by_name = {column.name: column for column in SEGMENT_FIELDS}
    columns = [pa.array([by_name[wanted.name].make(segment) for segment in segments], wanted.type) for wanted in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def event_rows(segment: Segment, options: LedgerOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The events of one segment as rows: those that the options ask for. All is verified before the first batch.

    Raises as `acquit.spark.ledger.segments.read_events` and `acquit.spark.ledger.names.names_at`.
    """
    by_name = {column.name: column for column in fields_of(options)}
    detailed = any(column.name in schema.names for column in DETAIL_FIELDS)
    details = Details()
    events = read_events(segment, options.verify, details if detailed else None)
    whole = Whole(segment, details)
    index = np.arange(len(events), dtype=np.int64)
    keep = np.ones(len(events), np.bool_)
    if options.since_us is not None:
        keep &= events["time_us"] >= options.since_us
    if options.until_us is not None:
        keep &= events["time_us"] < options.until_us
    names = _names(segment, events, schema, options)
    if options.queues is not None:
        wanted = [number for number, queue in names.queues.items() if queue.name in options.queues]
        keep &= np.isin(events["queue"], np.array(wanted, np.uint32))
    if not keep.all():
        events, index = events[keep], index[keep]
    whole.labels.update(
        {
            "queue": Labels.of({number: queue.name for number, queue in names.queues.items()}),
            "address": Labels.of({number: queue.address for number, queue in names.queues.items()}),
            "actor": Labels.of({number: actor.link for number, actor in names.actors.items()}),
            "container": Labels.of({number: actor.container for number, actor in names.actors.items()}),
            "user": Labels.of({number: actor.user for number, actor in names.actors.items()}),
        }
    )
    for start in range(0, len(events), ROWS):
        chunk = Chunk(whole, events[start : start + ROWS], index[start : start + ROWS])
        arrays = [by_name[name].make(chunk) for name in schema.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _names(segment: Segment, events: Events, schema: pa.Schema, options: LedgerOptions) -> Names:
    """Return the names of what occurs in the events, as far as a column or an option needs them."""
    queues: set[int] = set()
    actors: set[int] = set()
    if options.queues is not None or not {"queue", "address"}.isdisjoint(schema.names):
        queues = set(np.unique(events["queue"]).tolist()) - {0}
    if not {"actor", "container", "user"}.isdisjoint(schema.names):
        actors = set(np.unique(events["actor"]).tolist()) - {0}
    return names_at(segment, queues, actors) if queues or actors else Names()

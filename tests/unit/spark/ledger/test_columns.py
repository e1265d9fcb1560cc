"""Events as Arrow: each column, what options leave out, and the page that repeats the reference."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from acquit.errors import ConfigurationError, StoreCorrupt
from acquit.ledger.events import ENTERING, Event, EventFlag, EventKind, pack_event
from acquit.spark.ledger import columns as module
from acquit.spark.ledger.chain import Segment, SegmentState, plan_folder
from acquit.spark.ledger.columns import (
    DETAIL_FIELDS,
    EVENT_FIELDS,
    SEGMENT_FIELDS,
    check_schema,
    ddl,
    event_rows,
    fields_of,
    segment_rows,
)
from acquit.spark.ledger.options import LedgerOptions
from acquit.spark.ledger.segments import DTYPE, id_text
from acquit.spark.ledger.source import planned
from tests.support.ledger_folder import LedgerFolder, grow

DURABLE = int(EventFlag.DURABLE)


def schema_of(options: LedgerOptions, *names: str) -> pa.Schema:
    return pa.schema([(c.name, c.type) for c in fields_of(options) if not names or c.name in names])


def rows(path: Path, *names: str, **options: str) -> list[dict[str, Any]]:
    parsed = LedgerOptions.parse({"folders": str(path), **options})
    found: list[dict[str, Any]] = []
    for segments in planned(parsed):
        for batch in event_rows(segments[0], parsed, schema_of(parsed, *names)):
            assert batch.schema == schema_of(parsed, *names)
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


def micros(value: Any) -> int:
    return int(pa.scalar(value, pa.timestamp("us", "UTC")).value)


def told(folder: LedgerFolder) -> list[Event]:
    return [event for number in range(1, folder.newest + 1) for event in folder.events(number) if event.kind]


@pytest.mark.parametrize("verify", ["full", "quick"])
def test_each_event_is_a_row(tmp_path: Path, verify: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 50)
    folder = grow(tmp_path)
    found = rows(tmp_path, verify=verify)
    for row, event in zip(found, told(folder), strict=True):
        assert (row["sequence"], row["size"], row["crc"]) == (event.sequence, event.size, event.crc)
        assert (row["kind"], row["kind_number"]) == (EventKind(event.kind).name, event.kind)
        assert (row["queue_number"], row["queue"]) == (event.queue, f"queue-{event.queue}")
        assert row["address"] == f"address-{event.queue}"
        assert (row["attempt"], micros(row["time"])) == (event.attempt, event.time_us)
        assert (row["actor_number"] or 0, row["transaction"] or 0) == (event.actor, event.transaction)
        assert row["durable"] and row["copy"] == bool(event.flags & EventFlag.COPY)
        if event.kind in ENTERING:
            assert (row["origin"] or 0) == event.origin
    keys = [(row["segment"], row["index"]) for row in found]
    counts = Counter(number for number, _ in keys)
    assert keys == [(number, index) for number in sorted(counts) for index in range(counts[number])]
    assert len({row["broker"] for row in found}) == 1 and UUID(found[0]["broker"])
    assert (found[-1]["actor"], found[-1]["container"], found[-1]["user"]) == ("link", "container", "user")


def made_of(*events: Event) -> list[dict[str, Any]]:
    """Rows of events that no journal had to be made for."""
    array = np.frombuffer(b"".join(pack_event(*event) for event in events), DTYPE)
    segment = Segment(folder=Path("/data"), store=UUID(int=1), number=3, state=SegmentState.CLOSED)
    labels = {name: module.Labels.of({}) for name in ("queue", "address", "actor", "container", "user")}
    chunk = module.Chunk(module.Whole(segment, module.Details(), labels), array, np.arange(len(array), dtype=np.int64))
    table = pa.table({column.name: column.make(chunk) for column in EVENT_FIELDS})
    assert [field.type for field in table.schema] == [column.type for column in EVENT_FIELDS]
    return list(table.to_pylist())


def event(kind: int, *, origin: int = 0, flags: int = DURABLE) -> Event:
    return Event(5, origin, 1_000_000, 7 << 32 | 9, 1, 0, kind, flags, 2, 0)


def test_what_the_origin_means_depends_on_the_kind() -> None:
    found = made_of(
        event(EventKind.DEAD_LETTERED, origin=44),
        event(EventKind.RELEASED, origin=1_500),
        event(EventKind.MODIFIED),
        event(EventKind.MODIFIED, origin=(1 << 64) - 1),
        event(EventKind.READ, origin=4),
        event(EventKind.READ, origin=77),
    )
    assert [row["origin"] for row in found] == [44, None, None, None, None, None]
    assert [row["not_before"] and micros(row["not_before"]) for row in found[:4]] == [None, 1_500_000, None, None]
    assert [row["outcome"] for row in found] == [None] * 4 + ["modified", None]


def test_flags_and_kinds_that_are_not_known_yet() -> None:
    names = {
        "durable": EventFlag.DURABLE,
        "copy": EventFlag.COPY,
        "connection_lost": EventFlag.CONNECTION_LOST,
        "left_behind": EventFlag.LEFT_BEHIND,
        "undeliverable_here": EventFlag.UNDELIVERABLE_HERE,
        "id_reused": EventFlag.ID_REUSED,
    }
    for name, flag in names.items():
        [row] = made_of(event(200, flags=flag))
        assert [row[other] for other in names] == [other == name for other in names]
        assert (row["kind"], row["queue"], row["actor"]) == ("200", None, None)


def test_since_and_until(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    events = told(folder)
    times = sorted(event.time_us for event in events)
    since, until = times[len(times) // 4], times[len(times) // 2]
    options = {name: str(np.datetime64(value, "us")) for name, value in (("since", since), ("until", until))}
    found = rows(tmp_path, "time", "sequence", **options)
    assert [row["sequence"] for row in found] == [e.sequence for e in events if since <= e.time_us < until]
    parsed = LedgerOptions.parse({"folders": str(tmp_path), **options})
    assert 0 < len(planned(parsed)) < folder.newest, "segments of other times are not read"


def test_queue(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    found = rows(tmp_path, "sequence", "index", queue="queue-1, queue-3, nothing")
    assert [row["sequence"] for row in found] == [e.sequence for e in told(folder) if e.queue in (1, 3)]
    assert max(row["index"] for row in found) > len(found) / folder.newest, "places are those in the segment"
    assert rows(tmp_path, queue="nothing") == []


def test_details(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    found = rows(tmp_path, details="true")
    assert [row["sequence"] for row in found] == [event.sequence for event in told(folder)]
    posted = [row for row in found if row["kind"] == "POSTED" and not row["copy"] and row["transaction"] is None]
    assert posted and all(row["message_id"] == f"id-{row['sequence']}" for row in posted)
    assert {row["posted_to"] for row in posted} == {"address"} and {row["priority"] for row in posted} == {3}
    assert {micros(row["expires_at"]) for row in posted} == {9_000}
    assert {row["due_at"] and micros(row["due_at"]) for row in posted} == {None, 5_000}
    attempts = {(row["kind"], row["cause"], row["condition"], row["description"]) for row in found if row["cause"]}
    assert attempts == {
        ("DEAD_LETTERED", "REJECTED", "amqp:decode-error", "line 3: not JSON"),
        ("MODIFIED", "MODIFIED", "app:busy", "try later"),
    }
    assert all(row["message_id"] is None for row in found if row["kind"] == "ACQUIRED")


def test_ids_as_text() -> None:
    uuid = UUID(int=7)
    assert [id_text(value) for value in ("a", 5, uuid, b"\x01\xff", None)] == ["a", "5", str(uuid), "01ff", None]


def test_segments_as_rows(tmp_path: Path) -> None:
    folder = grow(tmp_path, archive_bytes_max=100_000)
    folder.file(5).unlink()
    options = LedgerOptions.parse({"folders": str(tmp_path), "table": "segments"})
    [segments] = planned(options)
    found = segment_rows(segments, schema_of(options)).to_pylist()
    states = [row["state"] for row in found]
    assert states[0] == "deleted" and states[4] == "missing" and states[-1] == "open"
    assert found[0]["events"] > 0 and found[0]["first_time"] < found[0]["last_time"] <= found[0]["sealed"]
    assert found[4]["events"] is None and found[4]["created"] is None
    assert found[-1]["events"] is None and found[-1]["bytes"] == plan_folder(tmp_path)[-1].length
    assert {row["folder"] for row in found} == {str(tmp_path)}


def test_a_gap(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    gone = folder.file(3)
    gone.unlink()
    with pytest.raises(
        StoreCorrupt, match="segment 3: missing, and no record says that retention deleted it"
    ) as caught:
        rows(tmp_path)
    assert Path(caught.value.path).name == gone.name
    found = rows(tmp_path, "segment", missing="allow")
    assert {row["segment"] for row in found} == set(range(1, folder.newest + 1)) - {3}


def test_what_retention_deleted_is_no_error(tmp_path: Path) -> None:
    grow(tmp_path, archive_bytes_max=100_000)
    deleted = [segment.number for segment in plan_folder(tmp_path) if segment.state is SegmentState.DELETED]
    assert deleted and min(row["segment"] for row in rows(tmp_path, "segment")) == max(deleted) + 1


@pytest.mark.parametrize(
    ("given", "options", "says"),
    [
        (("who", pa.string()), {}, "the events of the format acquit.ledger have no column who; they have broker"),
        (("folder", pa.string()), {}, "no column folder"),
        (("sequence", pa.int64()), {"table": "segments"}, "the segments of the format acquit.ledger have no column"),
        (("message_id", pa.string()), {}, "has the column message_id with the option details = true only"),
        (("time", pa.int64()), {}, "column time is TIMESTAMP, and cannot be read as int64"),
    ],
)
def test_columns_that_are_not_there(given: tuple[str, pa.DataType], options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        check_schema(pa.schema([given]), LedgerOptions.parse({"folders": "/data", **options}))


def test_the_page_repeats_the_reference() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "ledger-source.md").read_text()
    for column in (*EVENT_FIELDS, *DETAIL_FIELDS, *SEGMENT_FIELDS):
        assert f"| `{column.name}` | {column.spark_type} | {column.meaning} |\n" in page
    assert ddl(EVENT_FIELDS).startswith("`broker` STRING, `segment` BIGINT, `index` INT")


@pytest.mark.parametrize("factor", [1, 100_000], ids=["a table", "a search"])
def test_labels_of_numbers_with_gaps(factor: int) -> None:
    names = {3 * factor: "three", 5 * factor: "", 9 * factor: "nine"}
    labels = module.Labels.of(names)
    values = np.array([0, 1, 3, 4, 5, 9, 10, 40_000], np.uint32) * np.uint32(factor)
    expected = [names.get(value) or None for value in values.tolist()]
    assert labels.take(labels.places(values)).to_pylist() == expected
    for nothing in ({}, {3 * factor: ""}):
        unnamed = module.Labels.of(nothing)
        assert unnamed.take(unnamed.places(values)).to_pylist() == [None] * len(values)

"""How a run of the query ends, with a query that is none: it is left behind by nothing, and the first error is told."""

from __future__ import annotations

import re
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException

from acquit.errors import AcquitError, ConfigurationError, PipelineFailed
from acquit.spark import ingest as module
from acquit.spark.columns import FIELDS
from acquit.spark.delta import DeltaAppender
from acquit.spark.ingest import IngestOptions, IngestProgress, TableFormat
from acquit.spark.ingest_checks import check_table
from tests.support.stream_table import begun, listed


class Query:
    """Has a batch more each time that somebody waits for it, and ends when it is stopped, or by `ends`."""

    def __init__(self, ends: Callable[[], bool] = lambda: False, refusal: Exception | None = None) -> None:
        self.recentProgress: list[dict[str, Any]] = []
        self.stopped = 0
        self._ends = ends
        self._refusal = refusal

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        self.recentProgress.append({"batchId": len(self.recentProgress), "numInputRows": 2, "sources": []})
        return self._ends()

    def stop(self) -> None:
        self.stopped += 1
        if self._refusal is not None:
            raise self._refusal

    def exception(self) -> None:
        return None


def run(tmp_path: Path, told: Callable[[IngestProgress], None] | None, trigger: str | None = None) -> module._IngestRun:
    options = IngestOptions(url="amqp://127.0.0.1:1", address="orders", table=tmp_path / "table", trigger=trigger)
    return module._IngestRun(options, told)


@pytest.mark.parametrize("name", ["north,south", ""])
def test_no_queue_is_emptied_in_the_place_of_another(tmp_path: Path, name: str) -> None:
    given = {"url": "amqp://127.0.0.1:1", "table": tmp_path}
    with pytest.raises(ConfigurationError, match=rf"address '{name}': .* is ingested alone"):
        IngestOptions(address=("south", name), **given)  # type: ignore[arg-type]
    if name:
        assert IngestOptions(address=name, **given).addresses == (name,)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"columns": ("body", "subject", "body")}, "columns: body is given 2 times"),
        ({"partition_by": ("queue", "queue")}, "partition by: queue is given 2 times"),
    ],
)
def test_a_column_that_is_given_twice_is_named(tmp_path: Path, given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        IngestOptions(url="amqp://host", address="a", table=tmp_path / "t", **given)


def test_an_option_of_the_source_is_one_however_its_name_is_written(tmp_path: Path) -> None:
    options = IngestOptions(
        url="amqp://host", address="a", table=tmp_path / "t", source={"SPOOL": "/other", "Parts": "7", "Poison": "fail"}
    )
    found = options.source_options()
    assert (found["spool"], found["parts"], found["Poison"]) == ("/other", "7", "fail")
    assert len({name.lower() for name in found}) == len(found)


@pytest.mark.parametrize(
    ("given", "expected_ms"),
    [(None, None), ("0 seconds", 0), ("2s", 2_000), ("2 seconds", 2_000), (" 500ms ", 500), ("3 Minutes", 180_000)],
)
def test_a_trigger_is_a_time_as_the_options_of_the_source_take_it(
    tmp_path: Path, given: str | None, expected_ms: int | None
) -> None:
    options = IngestOptions(url="amqp://127.0.0.1:1", address="orders", table=tmp_path / "table", trigger=given)
    assert options.trigger_ms == expected_ms


def raising(error: BaseException) -> Callable[..., Any]:
    def act(*_: object, **__: object) -> None:
        raise error

    return act


@pytest.mark.parametrize("refusal", [None, StreamingQueryException("[STOP] not within the time-out")])
@pytest.mark.parametrize("trigger", [None, "1 second"])
def test_who_is_told_of_progress_and_raises_ends_the_query(
    tmp_path: Path, trigger: str | None, refusal: Exception | None
) -> None:
    told: list[IngestProgress] = []

    def tell(progress: IngestProgress) -> None:
        told.append(progress)
        raise ValueError(f"of batch {progress.batch_id}")

    query = Query(refusal=refusal)
    with pytest.raises(ValueError, match="^of batch 0$"):
        run(tmp_path, tell, trigger).follow(cast(Any, query))
    assert query.stopped == 1
    assert [progress.batch_id for progress in told] == [0], "told no more"


def test_what_was_raised_by_who_is_told_is_known_for_that_whatever_its_kind(tmp_path: Path) -> None:
    """A closed pipe of the caller's is no Java that has ended."""
    error = BrokenPipeError("of the caller's")
    following = run(tmp_path, raising(error))
    with pytest.raises(BrokenPipeError):
        following.follow(cast(Any, Query()))
    assert following.raised is error


def test_a_query_that_fails_is_told_as_it_is(tmp_path: Path) -> None:
    query = Query(raising(StreamingQueryException("[STREAM_FAILED] of a reason")))
    with pytest.raises(StreamingQueryException, match="of a reason"):
        run(tmp_path, raising(ValueError("of a batch"))).follow(cast(Any, query))


@pytest.mark.parametrize("trigger", [None, "1 second"])
def test_an_interrupt_stops_it(tmp_path: Path, trigger: str | None) -> None:
    told: list[IngestProgress] = []
    following = run(tmp_path, told.append, trigger)
    query = Query(raising(KeyboardInterrupt()))
    if trigger is None:
        with pytest.raises(KeyboardInterrupt):
            following.follow(cast(Any, query))
    else:
        following.follow(cast(Any, query))
        assert [(progress.batch_rows, progress.rows) for progress in told] == [(2, 2)]
    assert query.stopped == 1


def test_one_that_ends_has_been_told_whole(tmp_path: Path) -> None:
    told: list[IngestProgress] = []
    following = run(tmp_path, told.append)
    query = Query(iter([False, False, True]).__next__)
    following.follow(cast(Any, query))
    assert [progress.rows for progress in told] == [2, 4, 6]
    assert (following.batches, following.rows, query.stopped) == (3, 6, 0)


class QuietQuery(Query):
    """Has a batch when it is first waited for, and nothing after it. A look at it takes four seconds."""

    now_s = 0.0

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        self.now_s += 4
        return self._ends() if self.recentProgress else super().awaitTermination(timeout)

    @property
    def status(self) -> dict[str, object]:
        return {"isTriggerActive": self.now_s > 20}


def test_a_run_that_is_idle_says_every_ten_seconds_that_it_lives(tmp_path: Path) -> None:
    query = QuietQuery(iter([False] * 7 + [True]).__next__)
    said: list[tuple[float, str]] = []
    options = IngestOptions(url="amqp://127.0.0.1:1", address="orders", table=tmp_path / "table", trigger="1 second")
    following = module._IngestRun(options, None, lambda stage: said.append((query.now_s, stage)), lambda: query.now_s)
    following.follow(cast(Any, query))
    assert said == [(16.0, "2 rows, waiting for messages"), (28.0, "2 rows, a batch is under way")]


def test_a_batch_that_is_cut_off_by_the_end_says_so_in_the_words_that_spark_looks_for(tmp_path: Path) -> None:
    """Java's trace behind them is more than Spark's pattern can take: its own was on the terminal."""

    class Batch:
        def collect(self) -> None:
            raise Py4JError("An error occurred while calling o1.collectToPython.\n" + "\tat a.b(c)\n" * 1_000)

    ended = run(tmp_path, None, trigger="1 second")
    with pytest.raises(Py4JError):
        ended._collect(cast(Any, Batch()))
    assert ended.follow(cast(Any, Query(ends=raising(KeyboardInterrupt())))) is None
    with pytest.raises(PipelineFailed) as cut_off:
        ended._collect(cast(Any, Batch()))
    told = "".join(traceback.format_exception(cut_off.value))
    assert re.search(
        r"py4j\.protocol\.Py4JJavaError: An error occurred while calling((.|\r\n|\r|\n)*)"
        r"(java\.lang\.InterruptedException|java\.nio\.channels\.ClosedByInterruptException)",
        told,
    )
    assert "at a.b(c)" not in told


def test_who_waits_for_a_broker_is_told_so_and_where_it_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(module, "check_start", lambda master: None)
    monkeypatch.setattr("acquit.spark.session.start_session", raising(AcquitError("Spark would be started")))

    def start(url: str, **more: Any) -> None:
        module.ingest(IngestOptions(url=url, address="q", table=tmp_path, **more), on_stage=told.append)

    with socket.socket() as unheard:  # bound, and nobody listens
        unheard.bind(("127.0.0.1", 0))
        url = f"amqp://127.0.0.1:{unheard.getsockname()[1]}"
        with pytest.raises(PipelineFailed, match=f"cannot reach the broker at {url}"):
            start(url, source={"connectTimeout": "1ms"})
        assert told == [f"waiting for the broker at {url}"]
        with pytest.raises(PipelineFailed, match=f"cannot reach the broker at {url}"):
            start(url, create=True, source={"connectTimeout": "1ms"})
        assert "starting" not in told


FIRST = pa.schema([(field.name, field.arrow_type) for field in FIELDS if field.since == 1])


@pytest.mark.parametrize("partition_by", [(), ("queue", "posted_day")], ids=str)
@pytest.mark.parametrize("decoded", [{}, {"bodyAs": "text"}], ids=str)
def test_a_table_of_an_older_version_goes_on_with_its_columns(
    tmp_path: Path, partition_by: tuple[str, ...], decoded: dict[str, str]
) -> None:
    schema = FIRST if not decoded else FIRST.append(pa.field("text", pa.string()))
    names = schema.names
    if partition_by:
        schema = schema.append(pa.field("posted_day", pa.date32()))
    DeltaAppender(tmp_path / "delta", schema, "query", partition_by).commit(0, [])
    given = {"url": "amqp://127.0.0.1:1", "address": "q", "partition_by": partition_by, "source": decoded}
    delta = IngestOptions(table=tmp_path / "delta", **given)  # type: ignore[arg-type]
    assert delta.columns == () and list(check_table(delta).columns) == names
    assert check_table(check_table(delta)) == check_table(delta)
    if not partition_by:
        listed(tmp_path / "parquet", "0", schema=schema)
        begun(tmp_path / "parquet" / "_acquit" / "checkpoint", 0)
        parquet = IngestOptions(table=tmp_path / "parquet", format=TableFormat.PARQUET, **given)  # type: ignore[arg-type]
        assert list(check_table(parquet).columns) == names


def test_a_table_with_other_columns_is_still_refused(tmp_path: Path) -> None:
    DeltaAppender(tmp_path / "t", FIRST.remove(3), "query").commit(0, [])
    with pytest.raises(ConfigurationError, match="only the pipeline has subject, "):
        check_table(IngestOptions(url="amqp://127.0.0.1:1", address="q", table=tmp_path / "t"))

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import acquit
from acquit.cli.exits import Exit
from acquit.errors import AcquitError, PipelineFailed
from acquit.spark import ingest as module
from acquit.spark.session import QUICK_JAVA
from tests.support.shell import Shell


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--spool", "hdfs://bucket/spool"], "SPOOL 'hdfs://bucket/spool': expected an absolute path"),
        (["--columns", "body,colour"], "columns: colour given; the source has"),
        (["--url", "amqp://me:secret@127.0.0.1"], "url"),
        (["--option", "parts=many"], "parts"),
        (["--option", "partz=1"], "partz"),
        (["--credential", "secret"], "credential"),
        (["--trigger", "soon"], "trigger = 'soon': expected a time from 0 to"),
        (
            ["--format", "parquet", "--target-file-size", "1m"],
            "the files of a Parquet table that Spark lists are not merged",
        ),
        (["--partition-by", "body"], "partition by body: expected posted_day, or a column of type STRING or BOOLEAN"),
        (["--columns", "body", "--partition-by", "queue"], "partition by queue: not one of the columns body"),
        (["--option", "address=x", "--option", "addresses=x"], "addresses"),
    ],
)
def test_wrong_options_are_named_before_spark_starts(
    shell: Shell, tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    ran = shell("pipeline", "ingest", "orders", tmp_path / "table", *arguments)
    assert ran.code == Exit.USAGE
    assert complaint in ran.err
    assert "secret" not in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize("option", ["novalue", "=x"])
def test_an_option_is_a_pair(shell: Shell, tmp_path: Path, option: str) -> None:
    ran = shell("pipeline", "ingest", "orders", tmp_path / "table", "--option", option)
    assert ran.code == Exit.USAGE
    assert f"expected KEY=VALUE, found '{option}'" in ran.err


def test_without_spark_it_says_what_to_install(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without_deltalake(name: str, *rest: Any) -> object:
        return None if name == "deltalake" else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without_deltalake)
    ran = shell("pipeline", "ingest", "orders", tmp_path / "table")
    assert ran.code == Exit.USAGE
    assert ran.err == "acquit: this needs deltalake: pip install 'acquit[spark]'\n"


def test_a_queue_that_is_not_there_is_named_before_spark_starts(
    at_broker: Shell, broker: acquit.Broker, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acquit.spark.session.start_session", lambda **_: pytest.fail("Spark was started"))
    at_broker("send", address, "one")
    ran = at_broker("pipeline", "ingest", f"{address}s", tmp_path / "table")
    assert (ran.code, len(ran.err.splitlines())) == (Exit.USAGE, 1)
    assert f"there is no queue '{address}s' at {broker.url}; did you mean " in ran.err
    assert f"'{address}'" in ran.err
    assert "--create" in ran.err
    assert all(queue.name != f"{address}s" for queue in broker.inspect().queues)


@pytest.mark.parametrize("arguments", [(), ("--create",)])
def test_a_selector_that_is_none_is_named_before_spark_starts(
    at_broker: Shell, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr("acquit.spark.session.start_session", lambda **_: pytest.fail("Spark was started"))
    at_broker("send", address, "one")
    ran = at_broker("pipeline", "ingest", address, tmp_path / "table", "--option", "selector=region ==", *arguments)
    assert (ran.code, len(ran.err.splitlines())) == (Exit.USAGE, 1)
    assert ran.err.startswith("acquit: option selector = 'region ==': ")
    assert "character 9" in ran.err


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ((), "{}/table/_acquit/spool"),
        (("--work", "mine"), "{}/mine/spool"),
        (("--work", "mine", "--spool", "spool"), "{}/spool"),
        (("--spool", "s3://bucket/spool"), "s3://bucket/spool"),
    ],
)
def test_where_the_spool_is(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], place: str
) -> None:
    given: list[module.IngestOptions] = []

    def ingest(options: module.IngestOptions, **_: object) -> None:
        given.append(options)
        raise AcquitError("that is all")

    monkeypatch.setattr(module, "ingest", ingest)
    monkeypatch.chdir(tmp_path)
    ran = shell("pipeline", "ingest", "orders", "table", *arguments)
    assert ran.err == "acquit: that is all\n"
    assert given[0].source_options()["spool"] == place.format(tmp_path)


@pytest.mark.parametrize("arguments", [("--create",), ("--option", "create=true")])
def test_a_queue_may_be_made(
    at_broker: Shell, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    asked: list[object] = []

    def start(*, java_options: str, **_: object) -> None:
        asked.append(java_options)
        raise AcquitError("Spark would be started")

    monkeypatch.setattr("acquit.spark.session.start_session", start)
    ran = at_broker("pipeline", "ingest", address, tmp_path / "table", *arguments)
    assert ran.err == "acquit: Spark would be started\n"
    assert asked == [QUICK_JAVA]


def test_no_broker_is_told_before_spark_starts(
    shell: Shell, unused_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acquit.spark.session.start_session", lambda **_: pytest.fail("Spark was started"))
    where = ("--url", f"amqp://127.0.0.1:{unused_port}", "--option", "connectTimeout=1ms")
    ran = shell("pipeline", "ingest", "orders", tmp_path / "table", *where)
    assert (ran.code, len(ran.err.splitlines())) == (Exit.UNREACHABLE, 1)
    assert "cannot reach the broker at" in ran.err


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_queue_into_a_table(at_broker: Shell, broker: acquit.Broker, address: str, tmp_path: Path) -> None:
    """In a process of its own: a Spark session is for ever."""
    from deltalake import DeltaTable

    table = tmp_path / "table"
    at_broker("send", address, "one", "two", "three")
    command = [sys.executable, "-m", "acquit", "pipeline", "ingest", address, str(table)]
    command += ["--url", broker.url, "--columns", "body,address", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == Exit.OK, ran.stderr
    document = json.loads(ran.stdout)
    assert (document["addresses"], document["rows"], document["taken"]["rows"]) == ([address], 3, 3)
    assert DeltaTable(table).to_pyarrow_table().num_rows == 3
    assert at_broker("browse", address).out == ""


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda table: table.write_text(""), "expected a folder, or nothing yet; found a file"),
        (lambda table: (table / "_spark_metadata").mkdir(parents=True), "found the Parquet files of a Spark stream"),
        (
            lambda table: write_deltalake(table, pa.table({"a": [1]})),
            "has the columns a; this pipeline writes message_id",
        ),
        (
            lambda table: (
                (table / "_delta_log").mkdir(parents=True),
                (table / "_delta_log" / f"{0:020d}.json").write_text("{}"),
            ),
            "its log in _delta_log cannot be read",
        ),
        (
            lambda table: (table / "_acquit" / "checkpoint" / "commits" / "0").mkdir(parents=True),
            "it is not there, and the query whose checkpoint is",
        ),
        (
            lambda table: (
                (table / "_delta_log").mkdir(parents=True),
                (table / "_acquit" / "checkpoint" / "commits" / "0").mkdir(parents=True),
            ),
            "it is not there, and the query whose checkpoint is",
        ),
    ],
)
def test_a_table_that_cannot_be_this_pipelines_is_named_before_spark_starts(
    shell: Shell, tmp_path: Path, make: Callable[[Path], object], complaint: str
) -> None:
    make(tmp_path / "table")
    ran = shell("pipeline", "ingest", "orders", tmp_path / "table")
    assert (ran.code, len(ran.err.splitlines())) == (Exit.USAGE, 1)
    assert complaint in ran.err


def test_a_log_that_was_about_to_be_begun_is_begun(
    at_broker: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a run that was killed."""
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)

    def start_session(**_: object) -> None:
        raise PipelineFailed("Spark is asked for")

    monkeypatch.setattr("acquit.spark.session.start_session", start_session)
    ran = at_broker("pipeline", "ingest", "orders", tmp_path / "table", "--create")
    assert ran.err == "acquit: Spark is asked for\n"


def test_a_folder_that_delta_takes_for_another_is_refused(shell: Shell, tmp_path: Path) -> None:
    ran = shell("pipeline", "ingest", "orders", tmp_path / "a%20b")
    assert (ran.code, len(ran.err.splitlines())) == (Exit.USAGE, 1)
    assert ran.err.endswith("cannot be in a folder whose name has '%20' in it\n")
    assert not [*tmp_path.iterdir()]


def test_a_folder_of_something_else_is_left_alone(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "broker.json").touch()
    ran = shell("pipeline", "ingest", "orders", tmp_path)
    assert (ran.code, len(ran.err.splitlines())) == (Exit.USAGE, 1)
    assert ran.err.endswith("expected nothing yet, or a table; found other files, such as broker.json\n")
    assert [path.name for path in tmp_path.iterdir()] == ["broker.json"]


def test_where_no_folder_can_be_made(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = shell("pipeline", "ingest", "orders", tmp_path / "file" / "table")
    assert ran.code == Exit.USAGE
    assert ran.err.endswith("file/table: the folder cannot be made: Not a directory\n")


def test_without_java_it_says_what_to_install(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("acquit.spark.java._bundled", lambda: None)
    # Other tests of this process may have a session, which would do.
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    ran = shell("pipeline", "ingest", "orders", tmp_path / "table")
    assert (ran.code, len(ran.err.splitlines())) == (Exit.USAGE, 1)
    assert "Spark needs Java 17 or newer and none was found" in ran.err

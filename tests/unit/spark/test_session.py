"""What is made of Spark's way to tell of an error."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from acquit.cli.exits import Exit, exit_of
from acquit.errors import ConfigurationError, PipelineFailed
from acquit.spark.options import SparkAt
from acquit.spark.session import (
    QUERY_ERRORS,
    QUICK_JAVA,
    check_start,
    failure_of,
    interrupts,
    reason_of,
    refuse_connect,
    session_of,
    start_session,
)
from acquit.spark.worker_python import worker_python

TASK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Task 1
in stage 3.0 failed 1 times, most recent failure: Lost task 1.0 in stage 3.0 (TID 5) (host executor driver):
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
ConnectionRefusedError: [Errno 111] refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "source.py", line 1, in read
acquit.errors.ConnectionFailed: cannot reach the broker at amqp://host:1 within 1 s: refused

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
Caused by: org.apache.spark.SparkException: something
\t... 1 more"""


def test_our_own_error_is_the_reason() -> None:
    assert reason_of(Exception(TASK)) == "cannot reach the broker at amqp://host:1 within 1 s: refused"


def test_else_the_last_that_is_named() -> None:
    text = (
        "[X] failed\nTraceback:\nValueError: no\n\tat a.b(c)\nCaused by: java.io.IOException: No space left on device"
    )
    assert reason_of(Exception(text)) == "IOException: No space left on device"


def test_what_py4j_tells_of_java_is_named() -> None:
    text = "An error occurred while calling o1.x.\n: java.lang.IllegalStateException: stopped\n\tat a.b(c)"
    assert reason_of(Py4JError(text)) == "IllegalStateException: stopped"


def test_two_runs_of_a_query_at_once_are_named() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [CONCURRENT_STREAM_LOG_UPDATE] "
        "Concurrent update to the log. Multiple streaming jobs detected for 36."
    )
    assert reason_of(Exception(text)).startswith("another run of this query is at work on the same checkpoint")


def test_which_query_it_was_is_known() -> None:
    text = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [TABLE] is not there\nmore"
    assert reason_of(Exception(text)) == "[TABLE] is not there"


def test_else_the_first_line() -> None:
    assert reason_of(Exception("[TABLE] is not there\nmore")) == "[TABLE] is not there"
    assert reason_of(KeyError()) == "KeyError"


def test_what_kind_of_failure_it_was_decides_the_exit_code() -> None:
    assert exit_of(failure_of(Exception(TASK))) is Exit.UNREACHABLE
    refused = "org.apache.spark.SparkException: x\nacquit.errors.AuthenticationFailed: SASL refused us"
    assert exit_of(failure_of(Exception(refused))) is Exit.FAILED
    assert exit_of(failure_of(Exception("acquit.errors.ConfigurationError: option x"))) is Exit.USAGE
    damaged = "pyspark.errors.PySparkRuntimeError: x\nacquit.errors.SpoolDamaged: spool /s: data/1-0-a.arrow is missing"
    assert exit_of(failure_of(Exception(damaged))) is Exit.UNSOUND
    assert exit_of(failure_of(Exception("java.io.IOException: No space left on device"))) is Exit.FAILED


@pytest.mark.parametrize(
    "error",
    [
        Py4JNetworkError("Error while sending or receiving"),
        Py4JError("An error occurred while calling o1.x. Trace: Answer from Java side is empty"),
        Py4JError("An error occurred while calling o87.recentProgress"),
        Py4JError("An error occurred while calling None.None"),
        ConnectionRefusedError(111, "Connection refused"),
    ],
)
def test_a_jvm_that_is_gone_is_named_and_not_the_way_to_it(error: Exception) -> None:
    assert isinstance(error, QUERY_ERRORS)
    assert reason_of(error).startswith("the JVM of the Spark driver has ended")


def test_a_jvm_that_answers_with_an_error_is_not_gone() -> None:
    said = "An error occurred while calling o1.x. Trace:\npy4j.Py4JException: There is no method x\n\tat py4j.A(B)\n"
    assert reason_of(Py4JError(said)) == "Py4JException: There is no method x"
    assert "has ended" not in reason_of(Exception("An error occurred while calling o1.x.\nof some kind"))
    assert "has ended" not in reason_of(Exception("An error occurred while calling o1.x\nof some kind"))


@pytest.mark.parametrize("master", ["lcal", "local[4", "host:7077", "spark:/host:7077"])
def test_a_master_that_is_none_is_named_before_java_starts(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with pytest.raises(ConfigurationError, match="expected local, local"):
        start_session(master=master)


def test_what_keeps_a_session_from_being_started_is_known_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr("acquit.spark.java._bundled", lambda: None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with pytest.raises(ConfigurationError, match="master 'here': expected local"):
        check_start("here")
    with pytest.raises(ConfigurationError, match="Spark needs Java 17"):
        check_start()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    check_start("here")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: "one that runs, which is taken as it is")
    check_start("here")


def test_an_interrupt_waits_until_java_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in the middle leaves a JVM behind that fails with a stack trace. No Spark is started with it."""
    done: list[str] = []

    def launch(*, conf: object) -> None:
        signal.raise_signal(signal.SIGINT)
        done.append("launched")

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda self: done.append("started"))
    monkeypatch.setattr(SparkContext, "_ensure_initialized", launch)
    monkeypatch.setattr("acquit.spark.session.use_java", lambda: None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")  # which is put back
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        start_session(master="local[2]")
    assert done == ["launched"]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("master", "before", "python"),
    [
        ("local[2]", "python3", worker_python()),
        ("spark://host:7077", "python3", "python3"),
        ("spark://host:7077", worker_python(), sys.executable),
        ("spark://host:7077", None, sys.executable),
    ],
)
def test_the_python_of_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, master: str, before: str | None, python: str
) -> None:
    """A script of this user on this machine is for sessions of this machine."""

    def launch(**_: object) -> None:
        raise ConnectionError("no JVM")

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", launch)
    monkeypatch.setattr("acquit.spark.java.java_home", lambda: tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", before or "")
    if before is None:
        monkeypatch.delenv("PYSPARK_PYTHON")
    with pytest.raises(PipelineFailed):
        start_session(master=master)
    assert os.environ["PYSPARK_PYTHON"] == python


def test_options_of_java_are_added_to_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    def launch(*, conf: SparkConf) -> None:
        given.append(conf.get("spark.driver.extraJavaOptions") or "")
        raise ConnectionError("no JVM")

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", launch)
    monkeypatch.setattr("acquit.spark.session.use_java", lambda: None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    with pytest.raises(PipelineFailed):
        start_session(master="local[2]", java_options=QUICK_JAVA)
    ours, *others = given[0].split()
    assert ours.startswith("-Dlog4j2.configurationFile=")
    assert " ".join(others) == QUICK_JAVA


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_second_interrupt_does_not_wait(first: signal.Signals, second: signal.Signals) -> None:
    before = {number: signal.signal(number, signal.default_int_handler) for number in {first, second}}
    try:
        with interrupts() as interrupted:
            signal.raise_signal(first)
            assert interrupted.is_set()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(second)
        assert {signal.getsignal(number) for number in before} == {signal.default_int_handler}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_what_a_program_makes_of_sigterm_is_its_own() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with interrupts() as interrupted:
            signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM] and not interrupted.is_set()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_interrupt_that_is_ignored_stays_so() -> None:
    """As in what a shell has put into the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts() as interrupted:
            signal.raise_signal(signal.SIGINT)
        assert not interrupted.is_set() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_py4j_says_of_an_interrupt_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda **_: signal.raise_signal(signal.SIGINT))
    monkeypatch.setattr("acquit.spark.session.use_java", lambda: None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    with pytest.raises(KeyboardInterrupt):
        start_session(master="local[2]")
    logging.getLogger("py4j.clientserver").error("Exception occurred while shutting down connection")
    assert not caplog.records
    logging.getLogger("py4j.clientserver").error("There was an exception while executing the Python Proxy")
    assert len(caplog.records) == 1


class _Pyspark(type):
    """Makes classes that look as if PySpark's client for Connect had made them."""

    def __new__(cls, name: str) -> _Pyspark:
        return super().__new__(cls, name, (), {"__module__": "pyspark.sql.connect.session"})

    def __init__(cls, name: str) -> None:
        super().__init__(name, (), {})


OVER_CONNECT: Any = _Pyspark("SparkSession")()


def ingests(folder: Path) -> None:
    from acquit.spark.ingest import IngestOptions, ingest

    ingest(IngestOptions(url="amqp://127.0.0.1:1", address="q", table=folder / "table"), spark=OVER_CONNECT)


def audits(folder: Path) -> None:
    from acquit.spark.audit import AuditOptions, audit

    audit(AuditOptions(folders=(folder,), into=folder / "into"), spark=OVER_CONNECT)


def reconciles(folder: Path) -> None:
    from acquit.spark.audit.reconcile import ReconcileOptions, reconcile

    reconcile(ReconcileOptions(audit=folder / "into", queue="q", table=folder / "table"), spark=OVER_CONNECT)


def redrives(folder: Path) -> None:
    from acquit.spark.redrive import RedriveOptions, redrive

    redrive(RedriveOptions(url="amqp://127.0.0.1:1"), spark=OVER_CONNECT)


@pytest.mark.parametrize("pipeline", [ingests, audits, reconciles, redrives])
def test_a_session_of_spark_connect_is_refused_before_anything_is_done(
    tmp_path: Path, pipeline: Callable[[Path], None]
) -> None:
    with pytest.raises(ConfigurationError, match=r"^spark: expected a classic session, .* Spark Connect") as caught:
        pipeline(tmp_path)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_an_active_session_of_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_connect(None)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: OVER_CONNECT)
    with pytest.raises(ConfigurationError, match="without SPARK_REMOTE"):
        refuse_connect(None)


class _LocalSession:
    """What is asked of a session that somebody made."""

    def __init__(self, python: str, master: str = "local[2]") -> None:
        self.sparkContext = SimpleNamespace(pythonExec=python, master=master)


@pytest.mark.parametrize("found", [True, False])
def test_workers_of_another_python_are_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    """As in an environment that is not activated."""
    if found:
        (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    session: Any = _LocalSession("python3")
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: session)
    for use in (start_session, lambda: session_of(session, SparkAt())):
        with pytest.raises(
            ConfigurationError, match=f"python3, which cannot .* PYSPARK_PYTHON to {sys.executable}"
        ) as e:
            use()
        assert "\n" not in str(e.value)


def test_workers_of_a_python_that_has_what_they_need_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for session in (_LocalSession("python3"), _LocalSession(sys.executable), _LocalSession("none", "spark://host:1")):
        given: Any = session
        assert session_of(given, SparkAt()) is given

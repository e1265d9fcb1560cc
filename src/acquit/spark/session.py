"""A Spark session for pipelines that are not given one, and what went wrong in a query, in one line.

Under spark-submit, or where a session is running, that one is used as it is. Else a local one is started that listens
on the loopback only, has no web page, and keeps Spark's log to itself.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from acquit.errors import (
    AuthenticationFailed,
    ConfigurationError,
    ConnectionFailed,
    ConnectionLost,
    ConnectTimeout,
    PipelineFailed,
    SpoolDamaged,
)
from acquit.spark.java import use_java
from acquit.spark.options import SparkAt
from acquit.spark.worker_python import worker_python

QUERY_ERRORS: Final = (PySparkException, Py4JError, ConnectionError)
"""Errors that a failed query may raise: of Spark, or of the way to a JVM that is no more."""
QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1"
"""Options of Java for queries whose work Python does: a compiler that is quick rather than good. A pipeline then begins
in two thirds of the time, and the JVM takes half of what it took for each message. No collector, although that of small
heaps would take less: Java does not start where the environment chooses another one."""

_REPEATING: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark prints an error that it raises as JSON as well, Java's stack included."""
_LOGGED: Final = (
    "KeyboardInterrupt while sending command.",
    "Exception while sending command.",
    "Exception occurred while shutting down connection",
)
"""Messages that py4j logs with a traceback, and raises as well; the last follows from one that was raised."""
_LOGGERS: Final = (None, "py4j.clientserver")
"""Loggers that py4j logs them with."""
_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MASTER: Final = re.compile(r"local(-cluster)?(\[[\d*, ]+\])?|(spark|k8s)://.+|yarn")
_LOCAL: Final = "local[*]"
_CONNECT: Final = "pyspark.sql.connect."
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
_NO_ANSWER: Final = re.compile(r"Answer from Java side is empty|^An error occurred while calling \S+\Z")
"""Errors of py4j for a call that the JVM did not answer; the second where one was under way as the JVM ended. If the
JVM answered with an error, there is more than that line."""
_TWO_AT_ONCE: Final = "[CONCURRENT_STREAM_LOG_UPDATE]"
_STREAM_FAILED: Final = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_LOG_CONFIGURATION: Final = Path(__file__).with_name("log4j2.properties")
_OUR_ERROR: Final = re.compile(r"^(?:.*\s)?acquit\.errors\.(\w+): (.+)$", re.MULTILINE)
_ANY_ERROR: Final = re.compile(r"^(?:: |Caused by: )?(?:[\w.$]+\.)?(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)

_TELLING: Final = {
    kind.__name__: kind
    for kind in (
        AuthenticationFailed,
        ConfigurationError,
        ConnectionFailed,
        ConnectionLost,
        ConnectTimeout,
        SpoolDamaged,
    )
}


def start_session(
    *,
    master: str | None = None,
    memory_mb: int = 1_024,
    log_level: str = "FATAL",
    name: str = "acquit",
    java_options: str = "",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, or a new local one.

    `master` (such as ``local[4]`` or ``spark://host:7077``), `memory_mb`, `log_level`, `java_options` of the driver
    (`QUICK_JAVA`, if Python does most of the work) and `settings` (Spark's own, by their names) are for a new one; the
    default master is ``local[*]``. On a cluster the driver listens where Spark chooses (``SPARK_LOCAL_IP``,
    ``spark.driver.host``), and PYSPARK_PYTHON is obeyed where it is set.

    Raises ConfigurationError when there is no Java, `master` names no Spark, or the session of this process is one that
    acquit cannot be used with; PipelineFailed when it does not start.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        refuse_connect(active)
        _refuse_other_python(active)
        return active
    if _GATEWAY in os.environ:  # spark-submit has started the JVM and says where
        return SparkSession.builder.appName(name).getOrCreate()
    master = master or _LOCAL
    check_start(master)
    if master.startswith("local"):
        # Workers must be this very Python, with this very acquit. Elsewhere its user may know better.
        os.environ["PYSPARK_PYTHON"] = worker_python()
    elif os.environ.get("PYSPARK_PYTHON") == worker_python():  # of a local session before this one; other hosts lack it
        os.environ["PYSPARK_PYTHON"] = sys.executable
    configured = {
        "spark.app.name": name,
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{memory_mb}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()} {java_options}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    if master.startswith("local"):
        # Executors on other hosts could not reach the driver there.
        configured |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    configured |= settings or {}
    interrupt = signal.getsignal(signal.SIGINT)
    for logger in _LOGGERS:
        logging.getLogger(logger).addFilter(_tells)
    try:
        _launch_java(configured)
        session = SparkSession.builder.config(map=dict(configured)).getOrCreate()
    except QUERY_ERRORS as error:
        raise PipelineFailed(f"Spark did not start on {master}: {reason_of(error)}") from None
    if threading.current_thread() is threading.main_thread():
        # Spark's handler asks the JVM to cancel all jobs, in the middle of whatever is being asked of it, and a stream
        # then fails that could have been stopped in order.
        signal.signal(signal.SIGINT, interrupt)
    session.sparkContext.setLogLevel(log_level)
    for logger in _REPEATING:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    return session


def _launch_java(configured: Mapping[str, str]) -> None:
    """Start the JVM, if there is none. An interrupt waits until that is done, which takes a second or two: one in the
    middle of it would remove the folder in which the JVM is about to say where it listens, and it would fail with a
    stack trace, on the terminal of somebody who has the prompt back."""
    conf = SparkConf(loadDefaults=False).setAll(list(configured.items()))
    with interrupts() as interrupted:
        SparkContext._ensure_initialized(conf=conf)
    if interrupted.is_set():
        raise KeyboardInterrupt


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Set by the first interrupt in the block; the second is raised as ever. For what should end in order: one that is
    raised while the JVM is being asked something breaks the connection to it. SIGTERM and SIGHUP are interrupts where
    they are raised as one, as in our commands."""
    interrupted = threading.Event()
    ours = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _INTERRUPTS if ours and _interrupts(number)}

    def set_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def once(number: int, frame: FrameType | None) -> None:
        set_back()
        interrupted.set()

    for number in before:
        signal.signal(number, once)
    try:
        yield interrupted
    finally:
        set_back()


def _interrupts(number: signal.Signals) -> bool:
    """True if this signal is an interrupt, and Python's to change. What a program makes of SIGTERM is its own."""
    handler = signal.getsignal(number)
    if number is signal.SIGINT:
        return handler not in (signal.SIG_IGN, None)
    return handler is signal.default_int_handler


def session_of(spark: SparkSession | None, where: SparkAt, *, java_options: str = "") -> SparkSession:
    """The session that a pipeline was given, or else one that is started as `where` says. Raises as `start_session`."""
    if spark is None:
        return start_session(master=where.master, memory_mb=where.memory_mb, java_options=java_options)
    _refuse_other_python(spark)
    return spark


def _refuse_other_python(session: SparkSession) -> None:
    """Raise ConfigurationError where the workers of a local session are of a Python that lacks this package. By itself
    Spark starts ``python3`` from the PATH: in an environment that is not activated, that is another one, and what it
    cannot import ends in a hundred lines of Java. On a cluster the path is one of other hosts."""
    context = session.sparkContext
    program = shutil.which(context.pythonExec)
    if not str(context.master).startswith("local") or program in (sys.executable, worker_python()):
        return
    if program is None or not _imports_us(program):
        raise ConfigurationError(
            f"Spark starts its Python workers as {program or context.pythonExec}, which cannot import acquit: set "
            f"PYSPARK_PYTHON to {sys.executable} before the session is made, or activate the environment"
        )


@cache
def _imports_us(program: str) -> bool:
    done = subprocess.run([program, "-c", "import pyspark, pyspark_acquit"], capture_output=True, check=False)
    return done.returncode == 0


def refuse_connect(spark: SparkSession | None) -> None:
    """Raise ConfigurationError for a session of Spark Connect, given or active: tasks and callbacks of a pipeline need
    the driver's process. For what a pipeline does first."""
    session = spark if spark is not None else SparkSession.getActiveSession()
    if any(kind.__module__.startswith(_CONNECT) for kind in type(session).__mro__):
        raise ConfigurationError(
            "spark: expected a classic session, with the driver in this process or under spark-submit; this is one of "
            "Spark Connect. Start it with master(...) in the place of remote(...), and without SPARK_REMOTE"
        )


def check_start(master: str | None = None) -> None:
    """Check what `start_session` needs to begin, and nothing else, before a caller looks at more. Raises
    ConfigurationError when there is no Java, or `master` names no Spark."""
    if SparkSession.getActiveSession() is not None or _GATEWAY in os.environ:
        return
    if _MASTER.fullmatch(master or _LOCAL) is None:
        raise ConfigurationError(
            f"master {master!r}: expected local, local[4], spark://host:7077, k8s://https://host:6443 or yarn"
        )
    use_java()


def _tells(record: logging.LogRecord) -> bool:
    return record.msg not in _LOGGED


def failure_of(error: BaseException) -> PipelineFailed:
    """The error to raise for a query that failed: its reason in one line. Its `__cause__` says what kind it is, where
    that tells whether trying again may help; the original is its `__context__` when it is raised while that is handled.
    """
    failed = PipelineFailed(reason_of(error))
    ours = _OUR_ERROR.findall(str(error))
    if ours and ours[-1][0] in _TELLING:
        failed.__cause__ = _TELLING[ours[-1][0]](str(failed))
    return failed


def reason_of(error: BaseException) -> str:
    """Return why a query failed, in one line: our own error if it has one, else the innermost that Spark shows."""
    if isinstance(error, (Py4JNetworkError, ConnectionError)) or _NO_ANSWER.search(str(error)):
        return (
            "the JVM of the Spark driver has ended: killed, or out of memory? What is written stays right, and the "
            "next run goes on from there"
        )
    text = str(error)
    ours = _OUR_ERROR.findall(text)
    if ours:
        return str(ours[-1][1])
    if _TWO_AT_ONCE in text:
        return (
            "another run of this query is at work on the same checkpoint, and one of the two has to end. What is "
            "written stays right; run it again when the other has ended"
        )
    others = _ANY_ERROR.findall(text)
    if others:
        return f"{others[-1][0]}: {others[-1][1]}"
    return next(
        (line.strip() for line in _STREAM_FAILED.sub("", text).splitlines() if line.strip()), type(error).__name__
    )

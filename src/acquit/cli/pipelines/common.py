"""The parts that the pipelines' commands share: session, broker, progress and exit.

Progress goes to standard error: on a terminal one line that changes, elsewhere (a log, a scheduler's output) a line
every `TOLD_EVERY_S` seconds. The exit codes are those of all commands (`acquit.cli.exits`); `ended` says which.
"""

from __future__ import annotations

import importlib.util
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import wraps
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from acquit.cli.exits import Exit
from acquit.cli.options import CREDENTIAL_VARIABLE, TLS_OPTIONS, password_file_option, url_option, user_option
from acquit.cli.output import counted, remark
from acquit.client.locks import UserLock
from acquit.errors import ConfigurationError

NEEDED: Final = ("pyspark", "pyarrow", "deltalake")
"""Packages of the extra `spark`."""
TOLD_EVERY_S: Final = 10.0
"""Seconds between two lines of progress where there is no terminal."""
_RATE_OVER_S: Final = 30.0
_SIZE: Final = re.compile(r"(\d{1,18})([kmg]?)")
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def need(*packages: str, extra: str = "spark") -> None:
    """Raise ConfigurationError, saying what to install, unless `packages` (default: the extra `spark`) are there."""
    missing = [name for name in packages or NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"this needs {', '.join(missing)}: pip install 'acquit[{extra}]'")


def spark_options(command: Callable[..., object]) -> Callable[..., object]:
    """``--master`` and ``--memory``, given to the command as `spark`, a `SparkAt`."""

    @click.option(
        "--master",
        metavar="URL",
        help="The Spark to run on: local[4], spark://host:7077.  [default: local[*], all cores of this machine]",
    )
    @click.option(
        "--memory",
        "memory_mb",
        type=click.IntRange(min=512),
        default=1024,
        show_default=True,
        metavar="MB",
        help="For the driver; of a local Spark that is all there is.",
    )
    @wraps(command)
    def run(*args: object, master: str | None, memory_mb: int, **options: object) -> object:
        from acquit.spark.options import SparkAt

        return command(*args, spark=SparkAt(master=master, memory_mb=memory_mb), **options)

    return run


def task_broker_options(command: Callable[..., object]) -> Callable[..., object]:
    """``--url``, ``--user``, ``--ca`` and their kin, given to the command as `broker`, a `BrokerAccess`: tasks run
    elsewhere, so no terminal can be asked, and no password be handed on."""

    @wraps(command)
    def run(
        *args: object,
        url: str,
        user: str | None,
        credential: str | None,
        password_file: Path | None,
        ca: Path | None,
        cert: Path | None,
        key: Path | None,
        **options: object,
    ) -> object:
        from acquit.spark.options import BrokerAccess

        broker = BrokerAccess(
            url=url,
            user=user,
            credential=_reference(user, credential, password_file, certified=cert is not None),
            ca=None if ca is None else ca.absolute(),
            cert=None if cert is None else cert.absolute(),
            key=None if key is None else key.absolute(),
        )
        return command(*args, broker=broker, **options)

    for option in reversed(_BROKER_OPTIONS):
        run = option(run)
    return run


_BROKER_OPTIONS: Final = (
    url_option("The broker: amqp://HOST[:PORT], or amqps:// for TLS."),
    user_option(f"The password is in --password-file or in {CREDENTIAL_VARIABLE}, or where --credential says."),
    password_file_option,
    click.option(
        "--credential",
        metavar="REFERENCE",
        help="Where each task finds the password: env:NAME, file:PATH or provider:module.function.",
    ),
    *TLS_OPTIONS,
)


def _reference(user: str | None, credential: str | None, password_file: Path | None, *, certified: bool) -> str | None:
    """Return where tasks find the password. As in all commands, but tasks are told the place of the password, not the
    password."""
    source = click.get_current_context().get_parameter_source("password_file")
    if credential is not None:
        if password_file is not None and source is not ParameterSource.ENVIRONMENT:
            raise ConfigurationError("--credential and --password-file are given: expected one, both say the password")
        return credential
    if password_file is not None and (user is not None or source is not ParameterSource.ENVIRONMENT):
        return f"file:{password_file.absolute()}"
    if user is None:
        return None
    if CREDENTIAL_VARIABLE in os.environ:
        return f"env:{CREDENTIAL_VARIABLE}"
    if certified:
        raise ConfigurationError("--user needs a password beside --cert; without --user the certificate says who")
    raise ConfigurationError(f"--user needs a password: --password-file, {CREDENTIAL_VARIABLE}, or --credential")


def spool_place(text: str) -> str:
    """A spool as it was typed: a relative folder is one of this process. Raises ConfigurationError."""
    from acquit.spark.spool.places import read_place

    try:
        return read_place(text if "://" in text or not text else str(Path(text).absolute()))
    except ConfigurationError:
        raise
    except ValueError as error:
        raise ConfigurationError(f"SPOOL {text!r}: expected {error}") from None


class Size(click.ParamType[int]):
    """Bytes, perhaps in units of 1024: ``65536``, ``512k``, ``64m``, ``1g``."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip().lower())
        if match is None:
            self.fail(f"expected a size such as 65536, 512k, 64m or 1g, found {value!r}", param, ctx)
        return int(match[1]) * _UNITS[match[2]]


class Follower:
    """The progress of a pipeline: a count, its rate over the last half minute, and how much is known to be left."""

    def __init__(
        self,
        description: str,
        unit: str,
        show: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._description = description
        self._unit = unit
        self._show = show
        self._clock = clock
        self._points: deque[tuple[float, int]] = deque([(clock(), 0)])

    def at(self, done: int, *, left: int | None = None, place: str = "in the queue") -> None:
        """Show that `done` are done now; `left` more are known to be `place`."""
        now_s = self._clock()
        self._points.append((now_s, done))
        while len(self._points) > 2 and now_s - self._points[1][0] > _RATE_OVER_S:
            self._points.popleft()
        first_s, first = self._points[0]
        parts = [counted(done, self._unit.removesuffix("s"))]
        if now_s > first_s:
            rate = (done - first) / (now_s - first_s)
            parts.append(f"{rate:,.0f}/s" if rate >= 1 else f"{rate:.2f}/s")
        if left is not None:
            parts.append(f"{left:,} {place}")
        self._show(f"{self._description}: {', '.join(parts)}")

    def say(self, stage: str) -> None:
        """Show the present stage, where there is nothing to count."""
        self._show(f"{self._description}: {stage}")


@contextmanager
def following(description: str, unit: str = "rows") -> Iterator[Follower]:
    """Tell on standard error how far the work is, until the block ends, and if it was interrupted."""
    try:
        with _shown(description, unit) as follower:
            yield follower
    except KeyboardInterrupt:
        remark(f"acquit: interrupted while {description}; what was done stays done, run it again for the rest")
        raise


@contextmanager
def _shown(description: str, unit: str) -> Iterator[Follower]:
    console = Console(stderr=True)
    if not console.is_terminal:
        with closing(_ProgressLines()) as lines:
            yield Follower(description, unit, lines)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        # What begins is the question to the broker, Spark, or neither.
        task = progress.add_task(f"{description}: starting", total=None)
        yield Follower(description, unit, lambda text: progress.update(task, description=text))


class _ProgressLines:
    """Shows a line now and then: the first after `TOLD_EVERY_S`, and of what comes before the next is due, the last."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()
        self._text = ""
        """Text that waits to be shown."""
        self._timer: threading.Timer | None = None
        self._lock = UserLock()

    def __call__(self, text: str) -> None:
        with self._lock:
            self._text = text
            if self._timer is None:
                self._timer = threading.Timer(max(0.0, self._last_s + TOLD_EVERY_S - time.monotonic()), self._show)
                self._timer.daemon = True
                self._timer.start()

    def _show(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer = None
                self._last_s = time.monotonic()
                remark(self._text)

    def close(self) -> None:
        """Show no more of it: there is a summary."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None


def bytes_text(size: int) -> str:
    """A size for people: ``3.4 MB``, in powers of ten."""
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1_000:
            break
        value, unit = value / 1_000, larger
    return f"{size} B" if unit == "B" else f"{value:,.1f} {unit}"


def ended(*, balanced: bool = True, complete: bool = True) -> Exit:
    """The exit code of a pipeline that ran: `Exit.UNSOUND` (4) when a balance does not hold, `Exit.FAILED` (1) when not
    all that was asked for was done. A pipeline that failed raises instead (PipelineFailed: 1)."""
    if not balanced:
        return Exit.UNSOUND
    return Exit.OK if complete else Exit.FAILED

"""Options as Spark hands them over: text, keys in any case. Each format has a table of `Option`s and a dataclass.

`parse_options` refuses what is missing, wrong or unknown, naming the option, what was given and what is expected,
before anything runs. The tables are the references that the pages in `docs/` repeat (`default_text` writes a default as
a user would). `SparkConnectionOptions` and `CONNECTION_OPTIONS` are what every format needs to reach a broker.

**Secrets are never options.** Options are part of the query's plan, which Spark shows, logs and keeps. So a password
is given by reference (`credential`), and the reference is followed in the task that needs it: ``env:NAME`` reads an
environment variable, ``file:PATH`` the first line of a file, ``provider:module.function`` calls a function without
arguments that returns the password. Certificates and keys are files (`ca`, `cert`, `key`), which each task reads.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TypeVar
from urllib.parse import urlsplit

from acquit.client.tls import make_ssl_context
from acquit.errors import ConfigurationError

T = TypeVar("T")

FORMAT_NAME: Final = "acquit"

HOUR_MS: Final = 3_600_000
YEAR_MS: Final = 366 * 24 * HOUR_MS

_DIGITS_MAX: Final = 18
"""More than any number here has, and fewer than Python refuses to read."""
_SIZE: Final = re.compile(rf"(\d{{1,{_DIGITS_MAX}}})\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DURATION: Final = re.compile(
    rf"(\d{{1,{_DIGITS_MAX}}})\s*(ms|milliseconds?|s|seconds?|min|minutes?|m|h|hours?|d|days?)", re.IGNORECASE
)
_DURATIONS_MS: Final = {"ms": 1, "mi": 60_000, "m": 60_000, "s": 1_000, "h": 3_600_000, "d": 86_400_000}
_CREDENTIAL_KINDS: Final = ("env", "file", "provider")


def type_ddl(spark_type: str) -> str:
    """Return a type in Spark's DDL. What Spark shows as TIMESTAMP has another name there: that word means what a
    session's `spark.sql.timestampType` says."""
    return spark_type.replace("TIMESTAMP", "TIMESTAMP_LTZ")


class Option(NamedTuple):
    """Option of a format: its name for users, the field that holds it, its reader (ValueError says what it expects).

    A field whose name ends in ``_ms`` is a time, one with ``_bytes`` in it a size: so defaults are written.
    """

    name: str
    field: str
    read: Callable[[str], object]
    meaning: str
    required: bool = False


def parse_options(cls: type[T], options: Iterable[Option], given: Mapping[str, str]) -> T:
    """An instance of the dataclass `cls` from options as Spark gives them. An option of white space alone is not given.

    Raises ConfigurationError; so may the `__post_init__` of `cls`, for what does not go together.
    """
    options = tuple(options)
    lowered = {key.lower(): (key, value) for key, value in given.items()}
    _refuse_unknown(options, lowered)
    values: dict[str, object] = {}
    for option in options:
        _, text = lowered.get(option.name.lower(), ("", ""))
        if text.strip():
            try:
                values[option.field] = option.read(text.strip())
            except ConfigurationError:
                raise
            except ValueError as error:
                raise ConfigurationError(f"option {option.name} = {text!r}: expected {error}") from None
        elif option.required:
            raise ConfigurationError(f"option {option.name} is missing: {option.meaning}")
    return cls(**values)


def default_text(cls: type[object], option: Option) -> str:
    """The default as one would write it; "" where there is none."""
    value: object = next(field.default for field in fields(cls) if field.name == option.field)  # type: ignore[arg-type]
    if option.required or value in (None, ()):
        return ""
    if isinstance(value, int) and option.field.endswith("_ms"):
        return _in_units(value, {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000, "ms": 1})
    if isinstance(value, int) and "_bytes" in option.field:
        return _in_units(value, {"g": 1 << 30, "m": 1 << 20, "k": 1 << 10, "": 1})
    return str(value).lower() if isinstance(value, bool) else str(value)


def _in_units(value: int, units: Mapping[str, int]) -> str:
    """Return the value in the largest unit that it is a whole number of; the units come largest first."""
    unit = next(unit for unit, size in units.items() if value % size == 0)
    return f"{value // units[unit]}{unit}"


def _refuse_unknown(options: Iterable[Option], given: Mapping[str, tuple[str, str]]) -> None:
    names = {option.name.lower(): option.name for option in options}
    for lowered, (key, _) in given.items():
        if lowered in ("password", "pass", "sasl.password", "secret"):
            raise ConfigurationError(
                f"option {key} is refused: options are part of the query plan, which Spark shows and logs. Use "
                "credential = env:NAME, file:PATH or provider:module.function"
            )
        if lowered not in names:
            close = difflib.get_close_matches(lowered, names, 1)
            hint = f"did you mean {names[close[0]]}?" if close else f"there are {', '.join(names.values())}"
            raise ConfigurationError(f"option {key} is not known; {hint}")


# Readers. Each takes text without white space around it, and raises ValueError with what it expects.


def read_choice(kind: Callable[[str], T], *choices: str) -> Callable[[str], T]:
    """Return a reader of one of `choices`, in any case, which gives it to `kind` in lower case."""

    def read(text: str) -> T:
        if text.lower() not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return kind(text.lower())

    return read


read_truth: Final = read_choice(lambda text: text == "true", "true", "false")
"""``true`` or ``false``."""


def read_count(low: int, high: int) -> Callable[[str], int]:
    """A whole number."""

    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > _DIGITS_MAX or not low <= int(text) <= high:
            raise ValueError(f"a number from {low} to {high}")
        return int(text)

    return read


def read_size(low: int, high: int) -> Callable[[str], int]:
    """Bytes; ``k``, ``m`` and ``g`` are powers of 1,024."""

    def read(text: str) -> int:
        match = _SIZE.fullmatch(text)
        if match is None or not low <= (size := int(match[1]) * _SIZES[match[2].lower()]) <= high:
            raise ValueError(f"a size from {low} to {high} bytes, such as 65536, 512k, 64m or 1g")
        return size

    return read


def read_duration(low: int, high: int) -> Callable[[str], int]:
    """Milliseconds, from a time with its unit."""

    def read(text: str) -> int:
        match = _DURATION.fullmatch(text)
        if match is None:
            _refuse_duration(low, high)
        unit = match[2].lower()
        factor = _DURATIONS_MS["ms" if unit.startswith(("ms", "milli")) else unit[0]]
        if not low <= (time := int(match[1]) * factor) <= high:
            _refuse_duration(low, high)
        return time

    return read


def _refuse_duration(low: int, high: int) -> NoReturn:
    raise ValueError(f"a time from {low} to {high} ms with its unit, such as 500ms, 2s, 10min, 6h or 7d")


def read_url(text: str) -> str:
    """The URL of a broker, without user and password."""
    if any(mark in text for mark in "@?#"):
        # The value is not repeated, however wrong the rest of it is.
        raise ConfigurationError(
            "option url: a user or password in the URL is refused, and any options, because options are part of the "
            "query plan. Use the options user and credential = env:NAME, file:PATH or provider:module.function"
        )
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname or port == 0 or parts.path not in ("", "/"):
        raise ValueError("amqp://host:port or amqps://host:port")
    return text


def read_credential(text: str) -> str:
    """A reference to a password, not followed yet."""
    kind, _, where = text.partition(":")
    if kind not in _CREDENTIAL_KINDS or not where or (kind == "provider" and "." not in where):
        # The text may be the password itself.
        raise ConfigurationError("option credential: expected env:NAME, file:PATH or provider:module.function")
    return text


def _file_of(name: str) -> Callable[[str], Path]:
    def read(text: str) -> Path:
        if not (path := Path(text)).is_absolute():
            # The text may be what belongs into the file.
            raise ConfigurationError(f"option {name}: expected the absolute path of a file, which each task reads")
        return path

    return read


def resolve_credential(reference: str) -> str:
    """The password that `reference` points at. Raises ConfigurationError, never showing it."""
    kind, _, where = reference.partition(":")
    try:
        if kind == "env":
            return os.environ[where]
        if kind == "file":
            return Path(where).read_text(encoding="utf-8").splitlines()[0]
        module, _, function = where.rpartition(".")
        password = getattr(importlib.import_module(module), function)()
    except Exception as error:  # whatever the function raises
        what = {"env": "is not set", "file": "cannot be read or is empty"}.get(kind, "cannot be imported or called")
        raise ConfigurationError(
            f"credential {reference}: {where} {what} {_where()} ({type(error).__name__})"
        ) from error
    if not isinstance(password, str):
        raise ConfigurationError(f"credential {reference}: the function must return a string")
    return password


def _where() -> str:
    """Return the side that this process is on: files and variables of the one need not be there on the other."""
    from pyspark import TaskContext  # there since whoever connects for Spark runs, and not needed to read options

    return "on the driver" if TaskContext.get() is None else "on this worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAccess:
    """Address of a broker, and our credentials there. The files are seen under the same paths by driver and workers."""

    url: str
    """``amqp://host:port``, or ``amqps://`` for TLS; without user and password."""
    user: str | None = None
    """User to log in as. Without it the one that `cert` names, or ANONYMOUS."""
    credential: str | None = None
    """Reference to the password: ``env:NAME``, ``file:PATH`` or ``provider:module.function``."""
    ca: Path | None = None
    """A file (PEM) with the authorities that are trusted to sign the broker's certificate; by default the system's."""
    cert: Path | None = None
    """A file (PEM) with our certificate, for brokers that ask for one."""
    key: Path | None = None
    """A file (PEM) with its key, where that is not in the same file."""

    def access_options(self) -> dict[str, str]:
        """Return these options in the form that every format takes."""
        given = {field.name: getattr(self, field.name) for field in fields(BrokerAccess)}
        return {name: str(value) for name, value in given.items() if value is not None}


@dataclass(frozen=True, kw_only=True)  # no slots: beside a base that has some there is no room for them
class SparkAt:
    """Spark to start for a pipeline that is not given a session."""

    master: str | None = None
    """Master of a session that is started here: ``local[4]``, ``spark://host:7077``."""
    memory_mb: int = 1_024
    """Memory of the driver's JVM, in MiB, for a session that is started here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConnectionOptions(BrokerAccess):
    """Options for reaching a broker; see `CONNECTION_OPTIONS` for each."""

    connect_timeout_ms: int = 30_000
    ack_timeout_ms: int = 30_000

    def __post_init__(self) -> None:
        if self.credential is not None and self.user is None:
            raise ConfigurationError("option credential is given without the option user")
        given = [name for name in ("ca", "cert", "key") if getattr(self, name) is not None]
        if given and urlsplit(self.url).scheme != "amqps":
            raise ConfigurationError(
                f"option {given[0]} is given, but the URL says amqp://; for TLS it begins with amqps://"
            )
        if self.key is not None and self.cert is None:
            raise ConfigurationError("option key is given without the option cert, the certificate that it belongs to")

    def password(self) -> str | None:
        """Follow `credential`. For the process that connects, when it connects. Raises ConfigurationError."""
        return None if self.credential is None else resolve_credential(self.credential)

    def ssl_context(self) -> ssl.SSLContext | None:
        """Read `ca`, `cert` and `key`; None where none is given. For the process that connects, when it connects.
        Raises ConfigurationError."""
        return make_ssl_context(self.ca, self.cert, self.key, said=f"option {{}} = {{}} {_where()}")


CONNECTION_OPTIONS: Final = (
    Option("url", "url", read_url, "where the broker is: amqp://host:port, or amqps:// for TLS", required=True),
    Option("user", "user", str, "who to log in as; without it whoever `cert` says, or ANONYMOUS"),
    Option(
        "credential",
        "credential",
        read_credential,
        "where the password is: env:NAME, file:PATH, provider:module.function",
    ),
    Option(
        "ca",
        "ca",
        _file_of("ca"),
        "a file (PEM) with the authorities that are trusted to sign the broker's certificate, instead of the system's",
    ),
    Option("cert", "cert", _file_of("cert"), "a file (PEM) with our certificate, for brokers that ask for one"),
    Option("key", "key", _file_of("key"), "a file (PEM) with its key, where that is not in the same file"),
    Option("connectTimeout", "connect_timeout_ms", read_duration(1, HOUR_MS), "how long to try to reach the broker"),
    Option("ackTimeout", "ack_timeout_ms", read_duration(1, HOUR_MS), "how long to wait for the broker's answers"),
)

"""The options of the source, read once, early, and completely.

Spark hands options over as text, keys in any case. `SourceOptions.parse` refuses what is missing, wrong or unknown,
naming the option, what was given and what is expected, before anything runs. `OPTIONS` is the reference that
`docs/spark.md` repeats.

**Passwords are never options.** Options are part of the query's plan, which Spark shows, logs and keeps. So a password
is given by reference (`credential`), and the reference is followed in the task that needs it: ``env:NAME`` reads an
environment variable, ``file:PATH`` the first line of a file, ``provider:module.function`` calls a function without
arguments that returns the password.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TypeVar
from urllib.parse import urlsplit

from acquit.errors import ConfigurationError
from acquit.spark.columns import identity_finder
from acquit.spark.spool import MissingIdentity, Poison, RetentionOptions

T = TypeVar("T")

FORMAT_NAME: Final = "acquit"

_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DURATION: Final = re.compile(r"(\d+)\s*(ms|milliseconds?|s|seconds?|min|minutes?|m|h|hours?|d|days?)", re.IGNORECASE)
_DURATIONS_MS: Final = {"ms": 1, "mi": 60_000, "m": 60_000, "s": 1_000, "h": 3_600_000, "d": 86_400_000}
_BATCH_BYTES_MAX: Final = 1 << 30
_CREDENTIAL_KINDS: Final = ("env", "file", "provider")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options of the streaming source; see `OPTIONS` for each."""

    url: str
    address: str
    spool: str
    user: str | None = None
    credential: str | None = None
    parts: int = 2
    max_messages_per_batch: int = 50_000
    max_bytes_per_batch: int = 64 << 20
    drain_timeout_ms: int = 2_000
    connect_timeout_ms: int = 30_000
    ack_timeout_ms: int = 30_000
    identity_field: str | None = None
    missing_identity: MissingIdentity = MissingIdentity.FAIL
    identity_retention_ms: int = RetentionOptions().identity_retention_ms
    identity_limit: int = RetentionOptions().identity_limit
    poison: Poison = Poison.COLUMN
    reject_is_dead_letter: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Read options as Spark gives them. Raises ConfigurationError."""
        given = {key.lower(): (key, value) for key, value in options.items()}
        _refuse_unknown(given)
        values: dict[str, object] = {}
        for option in OPTIONS:
            _, text = given.get(option.name.lower(), ("", ""))
            if text.strip():
                try:
                    values[option.field] = option.read(text.strip())
                except ConfigurationError:
                    raise
                except ValueError as error:
                    raise ConfigurationError(f"option {option.name} = {text!r}: expected {error}") from None
            elif option.required:
                raise ConfigurationError(f"option {option.name} is missing: {option.meaning}")
        parsed = cls(**values)  # type: ignore[arg-type]  # OPTIONS says which reader belongs to which field
        if parsed.credential is not None and parsed.user is None:
            raise ConfigurationError("option credential is given without the option user")
        return parsed

    @property
    def retention(self) -> RetentionOptions:
        """What the spool needs to know of it."""
        return RetentionOptions(identity_retention_ms=self.identity_retention_ms, identity_limit=self.identity_limit)

    def password(self) -> str | None:
        """Follow `credential`. For the process that connects, when it connects. Raises ConfigurationError."""
        return None if self.credential is None else resolve_credential(self.credential)


class Option(NamedTuple):
    """One option: its name for users, the field that holds it, and how it is read (ValueError says what it expects)."""

    name: str
    field: str
    read: Callable[[str], object]
    meaning: str
    required: bool = False

    @property
    def default(self) -> str:
        """As one would write it; "" where there is none."""
        value: object = next(field.default for field in fields(SourceOptions) if field.name == self.field)
        if self.required or value is None:
            return ""
        if isinstance(value, int) and self.field.endswith("_ms"):
            return _in_units(value, {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000, "ms": 1})
        if isinstance(value, int) and "_bytes_" in self.field:
            return _in_units(value, {"g": 1 << 30, "m": 1 << 20, "k": 1 << 10, "": 1})
        return str(value).lower() if isinstance(value, bool) else str(value)


def _in_units(value: int, units: Mapping[str, int]) -> str:
    """In the largest unit that it is a whole number of; the units come largest first."""
    unit = next(unit for unit, size in units.items() if value % size == 0)
    return f"{value // units[unit]}{unit}"


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
    except (KeyError, IndexError, OSError, ImportError, AttributeError) as error:
        what = {"env": "is not set", "file": "cannot be read or is empty"}.get(kind, "cannot be imported or called")
        raise ConfigurationError(f"credential {reference}: {where} {what} on this worker") from error
    if not isinstance(password, str):
        raise ConfigurationError(f"credential {reference}: the function must return a string")
    return password


def _refuse_unknown(given: Mapping[str, tuple[str, str]]) -> None:
    names = {option.name.lower(): option.name for option in OPTIONS}
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


def _url(text: str) -> str:
    if "@" in text:
        # The value is not repeated, however wrong the rest of it is.
        raise ConfigurationError(
            "option url: a user or password in the URL is refused, because options are part of the query plan. Use the "
            "options user and credential = env:NAME, file:PATH or provider:module.function"
        )
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname or port == 0 or parts.path not in ("", "/"):
        raise ValueError("amqp://host:port or amqps://host:port")
    return text


def _folder(text: str) -> str:
    path = text.removeprefix("file://")
    if not os.path.isabs(path):
        raise ValueError(
            "an absolute path (or file:///path) of a local or shared folder, the same for the driver and all workers"
        )
    return path


def _credential(text: str) -> str:
    kind, _, where = text.partition(":")
    if kind not in _CREDENTIAL_KINDS or not where or (kind == "provider" and "." not in where):
        # The text may be the password itself.
        raise ConfigurationError("option credential: expected env:NAME, file:PATH or provider:module.function")
    return text


def _choice(kind: Callable[[str], T], *choices: str) -> Callable[[str], T]:
    def read(text: str) -> T:
        if text.lower() not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return kind(text.lower())

    return read


def _count(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise ValueError(f"a number from {low} to {high}")
        return int(text)

    return read


def _bytes(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        match = _SIZE.fullmatch(text)
        if match is None or not low <= (size := int(match[1]) * _SIZES[match[2].lower()]) <= high:
            raise ValueError(f"a size from {low} to {high} bytes, such as 65536, 512k, 64m or 1g")
        return size

    return read


def _milliseconds(low: int, high: int) -> Callable[[str], int]:
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


def _identity_field(text: str) -> str:
    identity_finder(text)
    return text


_HOUR_MS: Final = 3_600_000
_YEAR_MS: Final = 366 * 24 * _HOUR_MS

OPTIONS: Final = (
    Option("url", "url", _url, "where the broker is: amqp://host:port, or amqps:// for TLS", required=True),
    Option("address", "address", str, "the queue to read", required=True),
    Option(
        "spool",
        "spool",
        _folder,
        "a folder of this query alone, shared by the driver and all workers; a local one with local[...] only",
        required=True,
    ),
    Option("user", "user", str, "user name for SASL PLAIN; without it ANONYMOUS"),
    Option(
        "credential", "credential", _credential, "where the password is: env:NAME, file:PATH, provider:module.function"
    ),
    Option("parts", "parts", _count(1, 1_000), "how many tasks read the queue in parallel in each batch"),
    Option(
        "maxMessagesPerBatch", "max_messages_per_batch", _count(1, 100_000_000), "messages in a batch, over all parts"
    ),
    Option(
        "maxBytesPerBatch",
        "max_bytes_per_batch",
        _bytes(1, 1_000 * _BATCH_BYTES_MAX),
        "bytes in a batch, over all parts",
    ),
    Option("drainTimeout", "drain_timeout_ms", _milliseconds(1, _HOUR_MS), "how long a part may drain"),
    Option("connectTimeout", "connect_timeout_ms", _milliseconds(1, _HOUR_MS), "how long to try to reach the broker"),
    Option("ackTimeout", "ack_timeout_ms", _milliseconds(1, _HOUR_MS), "how long to wait for the broker's answers"),
    Option(
        "identityField",
        "identity_field",
        _identity_field,
        "which field says that two messages are one, also when they were posted twice: message-id, correlation-id, "
        "application-properties.NAME or message-annotations.NAME; else the acquit broker's sequence, else message-id",
    ),
    Option(
        "missingIdentity",
        "missing_identity",
        _choice(MissingIdentity, *MissingIdentity),
        "a message without identity: fail, or at-least-once",
    ),
    Option(
        "identityRetention",
        "identity_retention_ms",
        _milliseconds(1_000, 10 * _YEAR_MS),
        "how long identities are remembered: longer than any redelivery can take",
    ),
    Option("identityLimit", "identity_limit", _count(1, 1_000_000_000), "how many identities are remembered at most"),
    Option(
        "poison",
        "poison",
        _choice(Poison, *Poison),
        "a message that cannot be parsed: column (a row with `corrupt`), reject (to the broker), or fail",
    ),
    Option(
        "rejectIsDeadLetter",
        "reject_is_dead_letter",
        _choice(lambda text: text == "true", "true", "false"),
        "with poison = reject on a broker that is not acquit: true says that it dead-letters what is rejected",
    ),
)

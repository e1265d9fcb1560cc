"""The options of the format `acquit.ledger`, read once, before anything runs.

`OPTIONS` is the reference that `docs/ledger-source.md` repeats.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from acquit.errors import ConfigurationError

FORMAT_NAME: Final = "acquit.ledger"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Table(StrEnum):
    """Table to read: what a row is."""

    EVENTS = "events"
    SEGMENTS = "segments"


class Missing(StrEnum):
    """Effect of a gap in the chain on a read of events."""

    FAIL = "fail"
    ALLOW = "allow"


class Verify(StrEnum):
    """Depth of the check against the hash chain before a row is given out."""

    FULL = "full"
    """Every byte of the segment."""
    QUICK = "quick"
    """The side file, against the chain and the counts and sums of the seal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOptions:
    """See `OPTIONS` for each."""

    folders: tuple[Path, ...]
    table: Table = Table.EVENTS
    since_us: int | None = None
    """Microseconds since the epoch, inclusive."""
    until_us: int | None = None
    """Exclusive."""
    queues: frozenset[str] | None = None
    missing: Missing = Missing.FAIL
    verify: Verify = Verify.FULL
    details: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> LedgerOptions:
        """Read options as Spark gives them, keys in any case. Raises ConfigurationError."""
        known = {option.name.lower(): option for option in OPTIONS}
        values: dict[str, object] = {}
        for key, text in options.items():
            option = known.get(key.lower())
            if option is None:
                close = difflib.get_close_matches(key.lower(), known, 1)
                hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
                raise ConfigurationError(f"option {key} is not known; {hint}")
            try:
                values[option.field] = option.read(text.strip())
            except ValueError:
                raise ConfigurationError(f"option {key} = {text!r}: expected {option.expected}") from None
        if "folders" not in values:
            raise ConfigurationError("option folders is missing: the data folders of the brokers, separated by commas")
        parsed = cls(**values)  # type: ignore[arg-type]  # OPTIONS says which reader belongs to which field
        if parsed.since_us is not None and parsed.until_us is not None and parsed.since_us >= parsed.until_us:
            raise ConfigurationError("option since is not before the option until: no event can be in between")
        return parsed


class LedgerOption(NamedTuple):
    """Option: its name, the field that holds it, how it is read (ValueError where it cannot be)."""

    name: str
    field: str
    read: Callable[[str], object]
    expected: str
    default: str
    meaning: str


def _folders(text: str) -> tuple[Path, ...]:
    folders = tuple(Path(part.strip()) for part in text.split(",") if part.strip())
    if not folders or not all(folder.is_absolute() for folder in folders):
        raise ValueError(text)
    return tuple(dict.fromkeys(folders))


def _names(text: str) -> frozenset[str]:
    names = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ValueError(text)
    return names


def _time(text: str) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[_lowered(text, ("true", "false"))]


def _lowered(text: str, choices: tuple[str, ...]) -> str:
    if text.lower() not in choices:
        raise ValueError(text)
    return text.lower()


_WHEN: Final = "a time as 2026-01-31T12:00:00 (UTC), or with its offset as 2026-01-31T13:00:00+01:00"

OPTIONS: Final = (
    LedgerOption(
        "folders",
        "folders",
        _folders,
        "absolute paths, separated by commas",
        "",
        "the data folders of the brokers, absolute, separated by commas; every executor must see them",
    ),
    LedgerOption(
        "table",
        "table",
        lambda text: Table(text.lower()),
        "events or segments",
        "events",
        "`events`: a row for each event; `segments`: a row for each segment that there is, was or should be",
    ),
    LedgerOption("since", "since_us", _time, _WHEN, "", "events of this time and later; without an offset it is UTC"),
    LedgerOption("until", "until_us", _time, _WHEN, "", "events before this time"),
    LedgerOption("queue", "queues", _names, "names, separated by commas", "", "events of these queues, by their names"),
    LedgerOption(
        "missing",
        "missing",
        lambda text: Missing(text.lower()),
        "fail or allow",
        "fail",
        "what a gap does: `fail`, or `allow` to read what is there. What retention deleted is no gap",
    ),
    LedgerOption(
        "verify",
        "verify",
        lambda text: Verify(text.lower()),
        "full or quick",
        "full",
        "`full`: every byte of a segment, against the hash in its successor; `quick`: its side file, against that hash "
        "and the counts and sums in its seal",
    ),
    LedgerOption(
        "details",
        "details",
        _truth,
        "true or false",
        "false",
        "the columns that are read record by record, too; slower",
    ),
)

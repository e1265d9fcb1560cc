"""Entries of the spool's log: what they say, and how they are written.

An entry is one file: a line of JSON that a person can read (``head -1 log/000000000042``), a block of fingerprints
(`identities`), and the SHA-256 of both. There are three kinds:

publication   the rows of one (epoch, part) are decided: this data file, without these rows
floor         epochs up to here are finished: they are never drained or replayed again
checkpoint    everything the log said before this entry, summed up; entries before it may be deleted

Every entry carries the nonce of who wrote it, so that a writer can recognise its own. The format number is in every
entry; one that is not known is refused, naming the file. The formats differ in the fingerprints of postings that an
acquit broker has numbered (`identities`): in the first the content of each message was the bare message; in the second
the identity was digested, and combined with the time. Whoever took these for what is written now would take a message
that comes again for another one, so an entry of an earlier format says so (`Publication.earlier`, `Run.earlier`), and
so does a run into which one of these was merged, until it is forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import Final, TypeAlias, cast

from acquit.errors import NOT_WHAT_WAS_WRITTEN, SpoolDamaged, SpoolVersionUnsupported
from acquit.spark.spool.identities import BYTES_EACH, NONE, Identities

FIRST_FORMAT: Final = 1
SECOND_FORMAT: Final = 2
FORMAT: Final = 3
_READ: Final = (FIRST_FORMAT, SECOND_FORMAT, FORMAT)
_DIGEST_BYTES: Final = 32

Span: TypeAlias = tuple[int, int]
"""Rows from the first up to, not including, the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTotals:
    """Totals of what the whole log published, in messages. They never fall."""

    rows: int = 0
    """Rows in data files, each counted once however often it is replayed."""
    set_aside: int = 0
    """Came again, were recognised and settled as recorded."""
    corrupt: int = 0
    """Rows of messages that could not be parsed and went to the column `corrupt`."""
    rejected: int = 0
    """Could not be parsed and were rejected."""
    conflicts: int = 0
    """Rows with the identity of an earlier message and other content; both are kept."""
    unidentified: int = 0
    """Rows without identity (`missingIdentity = at-least-once`)."""

    def __add__(self, other: LogTotals) -> LogTotals:
        mine, theirs = asdict(self), asdict(other)
        return LogTotals(**{name: mine[name] + theirs[name] for name in mine})

    def __sub__(self, other: LogTotals) -> LogTotals:
        mine, theirs = asdict(self), asdict(other)
        return LogTotals(**{name: mine[name] - theirs[name] for name in mine})


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """(epoch, part) is decided."""

    epoch: int
    part: int
    nonce: str
    data: str | None
    """Name of the data file; None when there are no rows."""
    skipped: tuple[Span, ...]
    """Rows of the data file that an earlier entry names, in spans: written before that was known."""
    totals: LogTotals
    """Totals of this publication alone."""
    ended: bool
    """The queue had nothing more for this part, or it met messages newer than an AvailableNow run wants."""
    written_at_ms: int
    """Wall clock of the writer. Retention looks at it and nothing else does."""
    crc: int | None = None
    """CRC-32 of the data file; None where there is none."""
    identities: Identities = field(default=NONE, compare=False)
    """Sorted. Of all that was drained, set-aside ones too: their outcomes are wanted again if they come again."""
    earlier: bool = field(default=False, compare=False)
    """True if the identities are those of an earlier format. The entry's number says so, and nothing else in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorRaised:
    """Epochs up to `floor` are finished."""

    floor: int
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A file of sorted identities."""

    name: str
    count: int
    oldest_ms: int
    newest_ms: int
    earlier: bool = True
    """True if there may be identities of an earlier format of the log among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """Identities that retention or the limit let go. A message among them that comes again is a new row."""

    count: int = 0
    newest_ms: int = 0
    by_limit: int = 0
    """Identities that went before `identityRetention` because there were more than `identityLimit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The sum of every entry before this one."""

    nonce: str
    floor: int
    runs: tuple[Run, ...]
    """Oldest first."""
    decided: tuple[Publication, ...]
    """Above the floor: they may still be replayed. Their identities are in the runs."""
    totals: LogTotals
    forgotten: Forgotten


Entry: TypeAlias = Publication | FloorRaised | Checkpoint

_KINDS: Final[Mapping[str, type[Publication | FloorRaised | Checkpoint]]] = {
    "publication": Publication,
    "floor": FloorRaised,
    "checkpoint": Checkpoint,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def encode_entry(entry: Entry) -> bytes:
    """The bytes of the file."""
    identities = NONE
    if isinstance(entry, Publication):
        identities = entry.identities
    header = {"acquit": "spool", "format": FORMAT, "kind": _NAMES[type(entry)], "identities": len(identities)}
    body = json.dumps(header | _plain(entry), separators=(",", ":")).encode() + b"\n" + identities.encode()
    return body + sha256(body).digest()


def decode_entry(data: bytes, place: str) -> Entry:
    """The entry in `data`. Raises SpoolDamaged naming `place` (folder and file) when it is none of ours, and
    SpoolVersionUnsupported."""
    body = memoryview(data)[:-_DIGEST_BYTES]
    if sha256(body).digest() != data[-_DIGEST_BYTES:]:
        raise SpoolDamaged(f"{place}: the checksum does not fit: the file was altered or is cut short")
    line, _, _ = data.partition(b"\n")
    try:
        fields = json.loads(line)
        found, count = fields.pop("format"), fields.pop("identities")
        if fields.pop("acquit") != "spool":
            raise ValueError("of something else")
        if found not in _READ:
            raise SpoolVersionUnsupported(
                f"{place}: spool format {found}; this version of acquit reads formats {' and '.join(map(str, _READ))}"
            )
        kind = _KINDS[fields.pop("kind")]
        if kind is FloorRaised:
            return FloorRaised(**fields)
        if kind is Checkpoint:
            return _checkpoint(fields, earlier=found < FORMAT)
        identities = Identities.decode(body[len(line) + 1 :], count) if count else NONE
        return replace(_publication(fields), identities=identities, earlier=found < FORMAT)
    except NOT_WHAT_WAS_WRITTEN as error:
        raise SpoolDamaged(f"{place}: not an entry of a spool: {error}") from error


def encode_run(identities: Identities) -> bytes:
    """The file of a run: the columns of sorted identities, and their SHA-256."""
    body = identities.encode()
    return body + sha256(body).digest()


def decode_run(data: memoryview, run: Run, place: str) -> Identities:
    """The identities of `run`, mapped, not copied. Only the length is checked: reading it all is what a run avoids."""
    if len(data) != run.count * BYTES_EACH + _DIGEST_BYTES:
        raise SpoolDamaged(f"{place}: {len(data)} bytes do not hold {run.count} identities")
    return Identities.decode(data[:-_DIGEST_BYTES], run.count)


def _plain(value: Entry) -> dict[str, object]:
    """The fields as JSON can say them; identities travel in the block."""
    if isinstance(value, Publication):
        fields = asdict(replace(value, identities=NONE))
        del fields["identities"], fields["earlier"]
        return fields
    if isinstance(value, Checkpoint):
        plain = {"decided": [_plain(publication) for publication in value.decided]}
        return asdict(replace(value, decided=())) | plain
    return asdict(value)


def _publication(fields: Mapping[str, object]) -> Publication:
    changed = {
        "totals": _totals(fields["totals"]),
        "skipped": tuple((first, last) for first, last in cast("list[Span]", fields["skipped"])),
    }
    return Publication(**{**fields, **changed})  # type: ignore[arg-type]  # names and types were ours when written


def _checkpoint(fields: Mapping[str, object], *, earlier: bool) -> Checkpoint:
    runs = [Run(**run) for run in cast("list[dict[str, int]]", fields["runs"])]  # type: ignore[arg-type]
    changed = {
        "runs": tuple(replace(run, earlier=run.earlier or earlier) for run in runs),
        "decided": tuple(_publication(one) for one in cast("list[dict[str, object]]", fields["decided"])),
        "totals": _totals(fields["totals"]),
        "forgotten": Forgotten(**cast("dict[str, int]", fields["forgotten"])),
    }
    return Checkpoint(**{**fields, **changed})  # type: ignore[arg-type]  # as above


def _totals(fields: object) -> LogTotals:
    return LogTotals(**cast("dict[str, int]", fields))

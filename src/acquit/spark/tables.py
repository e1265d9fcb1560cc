"""Tables in folders: which kind of table a folder has, which files its readers see, and whether these are its rows.

Three kinds. *Delta*: the log in ``_delta_log`` says. *Stream*: Parquet files that a Spark stream wrote, of which those
count that the list in ``_spark_metadata`` names; Spark reads that list, other readers see every file, those of attempts
that died as well. *Plain*: a folder of Parquet files where every file counts.

The list is written as Spark's file sink does: one file for each batch, ``_spark_metadata/<batch>``, or
``<batch>.compact``, which repeats all before it. The first line is the version (``v1``), each other line a JSON object
with the *path* as a URI, the *size*, and the *action* ``add``.

Needs pyarrow, and deltalake for Delta; no Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from acquit.errors import NOT_WHAT_WAS_WRITTEN, ConfigurationError, PipelineFailed

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

DELTA_LOG: Final = "_delta_log"
STREAM_LOG: Final = "_spark_metadata"
_STREAM_VERSION: Final = "v1"
_NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
"""Value that Spark writes into the name of a folder of rows where it is null."""
_LISTED: Final = 6
"""Columns of either side in an error."""


class TableKind(StrEnum):
    """Kind of a table, by what keeps its list of files."""

    DELTA = "delta"
    STREAM = "stream"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class TableFile:
    """A Parquet file with rows of the table."""

    path: Path
    size_bytes: int
    partition: tuple[tuple[str, object], ...] = ()
    """Columns that have one value in all rows of the file, by its partition, and these values."""


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Files that readers of the table see now."""

    kind: TableKind
    files: tuple[TableFile, ...]

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(file.size_bytes for file in self.files)


def table_files(table: Path) -> TableFiles:
    """The files of the table in the folder `table`.

    Raises ConfigurationError when there is no table, or one whose list names files of another folder; PipelineFailed
    when its list names a file that is not there, or one goes while it is looked at.
    """
    try:
        kind = table_kind(table)
        files = tuple(_READERS[kind](table))
    except OSError as error:
        raise PipelineFailed(f"table {table}: {error}") from error
    missing = next((file.path for file in files if not file.path.exists()), None)
    if missing is not None:
        raise PipelineFailed(f"table {table}: its list names {missing}, which is not there")
    return TableFiles(kind, files)


def table_kind(table: Path) -> TableKind:
    """Return the kind of the table in the folder. Raises ConfigurationError when there is none."""
    if not table.is_dir():
        raise ConfigurationError(f"table {table}: expected a folder with a table, found {_what_is(table)}")
    if (table / DELTA_LOG).is_dir():
        return TableKind.DELTA
    if (table / STREAM_LOG).is_dir():
        return TableKind.STREAM
    if next(_plain_files(table), None) is not None:
        return TableKind.PLAIN
    raise ConfigurationError(
        f"table {table}: expected a folder with a table, found neither {DELTA_LOG} nor {STREAM_LOG} nor a Parquet file"
    )


def readable_files(table: Path) -> TableFiles:
    """Return `table_files` for a caller that reads the files themselves. Raises ConfigurationError, too, for a Delta
    table whose files do not hold its rows as they are."""
    found = table_files(table)
    if found.kind is TableKind.DELTA:
        refuse_unhandled(open_delta(table), Use.READ)
    return found


_MISREAD: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]")
"""Part of a folder's name by which delta-rs takes it for another folder, or for none."""


def refuse_misread(table: Path) -> None:
    """Raise ConfigurationError for a folder that delta-rs would take for another one."""
    found = _MISREAD.search(str(table)) or _MISREAD.search(str(table.resolve()))
    if found is not None:
        raise ConfigurationError(
            f"table {str(table)!r}: a Delta table cannot be in a folder whose name has {found[0]!r} in it"
        )


def open_delta(table: Path) -> DeltaTable:
    """A Delta table at its newest version. Raises ConfigurationError for a log that cannot be read, or asks for what
    delta-rs does not know."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    refuse_misread(table)
    try:
        return DeltaTable(table)
    except DeltaError as error:
        raise ConfigurationError(
            f"table {table}: its log in {DELTA_LOG} cannot be read: {first_line(error)}"
        ) from error


def first_line(error: Exception | None) -> str:
    """Return the first line of what delta-rs says, which may be many."""
    return next(iter(str(error).splitlines()), "")


class Use(Enum):
    """Use of the files of a Delta table. The value says what to do where it is refused."""

    READ = "name a copy of it, written as Parquet"
    MERGE = "compact it with what writes it"


_READ_ONLY: Final = frozenset({Use.READ})
_FEATURES: Final[Mapping[str, frozenset[Use]]] = {
    "timestampNtz": frozenset({Use.READ, Use.MERGE}),
    # These say how the log is written, or how columns of some types are: rows are those of the files, as they stand.
    "typeWidening": _READ_ONLY,
    "typeWidening-preview": _READ_ONLY,
    "v2Checkpoint": _READ_ONLY,
    "vacuumProtocolCheck": _READ_ONLY,
    "variantShredding-preview": _READ_ONLY,
    "variantType": _READ_ONLY,
    "variantType-preview": _READ_ONLY,
    # Some rows are deleted by vectors beside the files; columns have other names in them.
    "deletionVectors": frozenset(),
    "columnMapping": frozenset(),
}
"""Reader feature of a table, by its name in the Delta protocol ("Valid Feature Names in Table Features"): what can be
done with its files. With a feature that is not here, nothing."""
_COLUMN_MAPPING_VERSION: Final = 2
"""The reader version that stands for that feature, of tables without a list of features."""


def refuse_unhandled(opened: DeltaTable, use: Use) -> None:
    """Raise ConfigurationError for a table whose files cannot be used so without regard to what its log says of them
    besides."""
    protocol = opened.protocol()
    features = set(protocol.reader_features or ())
    if protocol.min_reader_version == _COLUMN_MAPPING_VERSION:
        features.add("columnMapping")
    beyond = sorted(name for name in features if use not in _FEATURES.get(name, ()))
    if beyond:
        place = unquote(urlsplit(opened.table_uri).path).rstrip("/")
        raise ConfigurationError(f"table {place} uses {', '.join(beyond)}: {use.value}")


def refuse_other_columns(
    table: Path,
    found: Sequence[str],
    columns: Sequence[str],
    partitions: Sequence[str],
    partition_by: Sequence[str],
    *,
    in_order: bool = True,
) -> None:
    """Raise ConfigurationError unless a table with the columns `found` and these `partitions` is one with `columns` and
    partitions by `partition_by`. In the same order, unless its readers go by names alone."""
    if list(partitions) != list(partition_by):
        raise ConfigurationError(
            f"table {table} is partitioned by {', '.join(partitions) or 'nothing'}; this pipeline writes partitions by "
            f"{', '.join(partition_by) or 'nothing'} (partition_by, --partition-by)"
        )
    if list(found) == list(columns) or (not in_order and sorted(found) == sorted(columns)):
        return
    sides = (("the table", found, columns), ("the pipeline", columns, found))
    only = ((side, [name for name in names if name not in others]) for side, names, others in sides)
    differing = "; ".join(f"only {side} has {', '.join(rest)}" for side, rest in only if rest)
    raise ConfigurationError(
        f"table {table} has the columns {_listed(found)}; this pipeline writes {_listed(columns)}: "
        f"{differing or 'their order differs'}. Name another table, or choose the columns (json and text come with the "
        "option bodyAs)"
    )


def _listed(names: Sequence[str]) -> str:
    """Return the names as text; of many only the first, as an error also says which differ."""
    more = len(names) - _LISTED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_LISTED])} and {more} more"


def columns_of(file: TableFile, table: Path) -> pa.Schema:
    """The columns that are in a file. Raises ConfigurationError where it is no Parquet file, or cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(file.path)
    except pa.ArrowInvalid as error:
        raise ConfigurationError(f"table {table}: {file.path} is no Parquet file: {first_line(error)}") from error
    except OSError as error:
        raise ConfigurationError(f"table {table}: {file.path} cannot be read: {first_line(error)}") from error


def _what_is(path: Path) -> str:
    return "a file" if path.exists() else "nothing"


def _delta_files(table: Path) -> Iterator[TableFile]:
    import pyarrow as pa

    # Not `file_uris`: there the names of the table's own folders are quoted, and those within it are not.
    actions = pa.table(open_delta(table).get_add_actions())
    wanted = [name for name in ("path", "partition") if name in actions.column_names]
    for action in actions.select(wanted).to_pylist():
        path = table / unquote(action["path"]).removeprefix("file://")
        partition = tuple((action.get("partition") or {}).items())
        yield TableFile(path, path.stat().st_size if path.exists() else 0, partition)


def newest_batch(table: Path) -> int | None:
    """Return the number of the newest batch in the list of a table that a Spark stream wrote; None where it has none.
    Spark's file sink leaves out every batch up to that one, of whichever query it is. Raises OSError."""
    batches, repeats = _lists(table / STREAM_LOG)
    return max((*batches, *repeats), default=None)


def _lists(log: Path) -> tuple[dict[int, Path], dict[int, Path]]:
    """Return the lists of single batches, and those that repeat all before theirs, by their batch."""
    batches = {int(path.name): path for path in log.iterdir() if path.name.isdecimal()}
    return batches, {int(path.stem): path for path in log.glob("*.compact") if path.stem.isdecimal()}


def _stream_files(table: Path) -> Iterator[TableFile]:
    batches, repeats = _lists(table / STREAM_LOG)
    newest = max(repeats, default=-1)
    names = [repeats[newest]] if repeats else []
    # Each has its own, without rows, too: one that is missing in between is an error, as it is to Spark.
    names += [table / STREAM_LOG / str(batch) for batch in range(newest + 1, max(batches, default=newest) + 1)]
    for name in names:
        version, *entries = name.read_text(encoding="utf-8").splitlines() or [""]
        if version != _STREAM_VERSION:
            raise PipelineFailed(f"{name}: expected a list of version {_STREAM_VERSION}, found {version[:40]!r}")
        for line in entries:
            try:
                entry = json.loads(line)
                added = entry["action"] == "add"
                path, size = Path(unquote(urlsplit(entry["path"]).path)), int(entry["size"])
            except NOT_WHAT_WAS_WRITTEN as error:
                raise PipelineFailed(f"{name}: expected a file of the table as JSON, found {line[:40]!r}") from error
            if added:
                yield TableFile(path, size, _folder_values(path, table))


def _plain_files(table: Path) -> Iterator[TableFile]:
    for path in sorted(table.rglob("*.parquet")):
        if not any(part.startswith(("_", ".")) for part in path.relative_to(table).parts):
            yield TableFile(path, path.stat().st_size, _folder_values(path, table))


def place_within(path: Path, table: Path) -> Path:
    """Return the path of a table's file within the table. A stream's list has the name that its writer gave the table,
    and folders in there may be links.

    Raises ConfigurationError for a file that is not in there: the list of a copy names the files of the first."""
    if path.is_relative_to(table):
        return path.relative_to(table)
    top = table.resolve()
    same = next((folder for folder in path.parents if folder.resolve() == top), None)
    if same is None:
        raise ConfigurationError(
            f"table {table}: its list names {path}, which is not in it: what a Spark stream wrote is a table where "
            "it was written alone, and this was copied or moved"
        )
    return path.relative_to(same)


def _folder_values(path: Path, table: Path) -> tuple[tuple[str, object], ...]:
    """Return the values that the folders of a file within its table say, as text: ``day=2026-01-31``. Raises as
    `place_within`."""
    said = (part.partition("=") for part in place_within(path, table).parts[:-1])
    return tuple(
        (unquote(name), None if value == _NULL_FOLDER else unquote(value)) for name, equals, value in said if equals
    )


_READERS: Final = {TableKind.DELTA: _delta_files, TableKind.STREAM: _stream_files, TableKind.PLAIN: _plain_files}

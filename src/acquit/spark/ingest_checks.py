"""Checks before an ingest begins, so that mistakes are reported in one line and at once: the table and the queues
before Spark has started, the schema of bodies by Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, CharType, DataType, MapType, StructType, VarcharType

from acquit.errors import ConfigurationError, ConnectionFailed, EndpointError, PipelineFailed
from acquit.spark.beforehand import check_beforehand
from acquit.spark.connecting import broker_id, connect_patiently
from acquit.spark.decoding import BodyAs, body_ddl, decoder_for
from acquit.spark.delta import check_table as check_delta
from acquit.spark.files import make_folders
from acquit.spark.ingest_options import IngestOptions, TableFormat, columns_of, with_columns_of
from acquit.spark.link import check_poison
from acquit.spark.session import reason_of
from acquit.spark.source_options import SourceOptions
from acquit.spark.table_source import POSTED_DAY
from acquit.spark.tables import (
    STREAM_LOG,
    TableKind,
    newest_batch,
    open_delta,
    refuse_misread,
    refuse_other_columns,
    table_files,
    table_kind,
)

_KINDS: Final = {TableFormat.DELTA: TableKind.DELTA, TableFormat.PARQUET: TableKind.STREAM}
_FOUND: Final = {
    TableKind.DELTA: "a Delta table",
    TableKind.STREAM: "the Parquet files of a Spark stream",
    TableKind.PLAIN: "Parquet files of something else",
}

_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
"""Key in a Parquet file under which Spark keeps its own schema of it, as JSON."""


def check_table(options: IngestOptions) -> IngestOptions:
    """Check the table before Spark starts. Return the options, with the columns of a table that an older version began.
    Raises ConfigurationError where the table cannot be this pipeline's."""
    table = options.table
    if options.format is TableFormat.DELTA:
        refuse_misread(table)
    try:
        make_folders(table)
    except OSError as error:
        if table.is_file():
            raise ConfigurationError(f"table {table}: expected a folder, or nothing yet; found a file") from None
        raise ConfigurationError(f"table {table}: the folder cannot be made: {error.strerror}") from error
    try:
        kind = table_kind(table)
    except ConfigurationError:
        _check_empty(table)
        _check_not_lost(options)
        return options
    if kind is not _KINDS[options.format]:
        raise ConfigurationError(
            f"table {table}: expected nothing yet or a table of format {options.format}, found {_FOUND[kind]}"
        )
    if kind is TableKind.DELTA:
        if not DeltaTable.is_deltatable(str(table)):  # killed before the log had its first entry
            _check_not_lost(options)
            return options
        opened = open_delta(table)
        options = with_columns_of(options, [field.name for field in opened.schema().fields])
        check_delta(opened, table, _columns_written(options), options.partition_by)
        return options
    _check_batches(options)
    newest = _newest_file(table)
    if newest is None:
        return options
    partitions = _partitions_of(table, newest)
    found = [*_schema_of(table, newest).names, *partitions]
    options = with_columns_of(options, found)
    refuse_other_columns(table, found, _columns_written(options), partitions, options.partition_by, in_order=False)
    return options


def check_types(options: IngestOptions, columns: StructType) -> None:
    """Raise ConfigurationError where a Parquet table, whose columns have these names, has them of other types than
    `columns`: Spark reads all its files by the schema of one of them."""
    newest = _newest_file(options.table) if (options.table / STREAM_LOG).is_dir() else None
    text = None if newest is None else (_schema_of(options.table, newest).metadata or {}).get(_SPARK_SCHEMA)
    if text is None:
        return
    found = StructType.fromJson(json.loads(text))
    for field in found:
        have, want = field.dataType, columns[field.name].dataType
        if _as_read(have) != _as_read(want):
            raise ConfigurationError(
                f"table {options.table}: its column {field.name} is {have.simpleString()}, this pipeline writes "
                f"{want.simpleString()}. Name another table, or give the bodySchema that it was made with"
            )


def _as_read(kind: DataType) -> object:
    """Return what readers go by: members of a STRUCT by their names, in any order, and not what may be null."""
    match kind:
        case StructType():
            return {field.name: _as_read(field.dataType) for field in kind}
        case ArrayType():
            return [_as_read(kind.elementType)]
        case MapType():
            return _as_read(kind.keyType), _as_read(kind.valueType)
        case _:
            return kind.simpleString()


def _columns_written(options: IngestOptions) -> list[str]:
    names = [*(options.columns or columns_of(SourceOptions.parse(options.source_options())))]
    return [*names, POSTED_DAY] if POSTED_DAY in options.partition_by else names


def _newest_file(table: Path) -> Path | None:
    newest = max(table_files(table).files, key=lambda file: file.path.stat().st_mtime_ns, default=None)
    return None if newest is None else newest.path


def _schema_of(table: Path, path: Path) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise PipelineFailed(f"table {table}: {path} cannot be read: {error}") from error


def _partitions_of(table: Path, path: Path) -> list[str]:
    """Return the columns that are in the names of folders, and not in the file. Such a folder may be a link."""
    top, folder = table.resolve(), path.parent
    names: list[str] = []
    while folder.resolve() != top and "=" in folder.name:
        names.insert(0, folder.name.partition("=")[0])
        folder = folder.parent
    return names


def _check_not_lost(options: IngestOptions) -> None:
    """Raise ConfigurationError where there is no table and the query has one: its first batch makes it."""
    checkpoint = options.work_folder / "checkpoint"
    if any(path.name.isdecimal() for path in (checkpoint / "commits").glob("*")):
        raise ConfigurationError(
            f"table {options.table}: it is not there, and the query whose checkpoint is {checkpoint} has put batches "
            f"into it. Name the table that it was; or, for a new one, remove {options.work_folder} and its spool too"
        )


def _check_batches(options: IngestOptions) -> None:
    """Raise ConfigurationError where a Parquet table has batches that the checkpoint never began. A new checkpoint
    counts from 0 again, and Spark's file sink passes over each batch up to the newest in the table's list without a
    word: it is done with then, and what the spool had for it is in no table. A batch that was killed when the table had
    it and the checkpoint did not yet say so is none of these: Spark writes down that it begins before it does."""
    checkpoint = options.work_folder / "checkpoint"
    begun = max((int(path.name) for path in (checkpoint / "offsets").glob("*") if path.name.isdecimal()), default=-1)
    newest = newest_batch(options.table)
    if newest is not None and newest > begun:
        raise ConfigurationError(
            f"table {options.table} has batches up to {newest}, and the checkpoint {checkpoint} "
            f"{'is new' if begun < 0 else f'has begun those up to {begun}'}: it is the table of another query, or the "
            "checkpoint is not the newest, and Spark would leave out as many batches of this one. Go on with the "
            "checkpoint and the spool that wrote it; or name another table, as a Parquet table has one query for life"
        )


def check_queues(options: IngestOptions) -> None:
    """Raise ConfigurationError for a queue that is not there, unless it may be made, and for a selector that is none;
    PipelineFailed where no broker answers. The source asks the same, but only when Spark has started; so if the
    connection is lost here, it is left to that."""
    source = SourceOptions.parse(options.source_options())
    try:
        connection = connect_patiently(source)
    except ConnectionFailed as error:
        raise PipelineFailed(str(error)) from error
    with suppress(EndpointError), connection:
        broker = broker_id(connection)
        check_poison(source, broker)
        if broker is not None:
            check_beforehand(connection, source)


def _check_empty(table: Path) -> None:
    """Raise ConfigurationError where the folder, which has no table, has files: it is that of something else. Folders
    may be there: ours, of a run that was killed before its first batch was done."""
    others = [path.name for path in table.iterdir() if path.name[0] not in "._" and path.is_file()]
    if others:
        raise ConfigurationError(
            f"table {table}: expected nothing yet, or a table; found other files, such as {min(others)}"
        )


def check_body_schema(options: IngestOptions) -> None:
    """Raise ConfigurationError for DDL that is none, and for types and names that JSON or a table cannot have. Needs a
    session. Of a whole schema with such a column Spark names another place."""
    source = SourceOptions.parse(options.source_options())
    column = body_ddl(source.body_as, source.body_schema)
    if source.body_schema is None or column is None:
        return
    said = f"option bodySchema = {source.body_schema!r}"
    try:
        found = StructType.fromDDL(column)
    except PySparkException as error:
        raise ConfigurationError(
            f"{said}: expected DDL such as `id BIGINT, tags ARRAY<STRING>`; Spark says: {reason_of(error)}"
        ) from error
    assert isinstance(found, StructType)
    problem = next(_problems(found[BodyAs.JSON].dataType, BodyAs.JSON), None)
    if problem is not None:
        raise ConfigurationError(f"{said}: {problem}")
    try:
        decoder_for(source.body_as, to_arrow_schema(found, timezone="UTC"))
    except PySparkException as error:
        raise ConfigurationError(
            f"{said}: it has a type that cannot be read from JSON; Spark says: {reason_of(error)}"
        ) from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{said}: {str(error).removeprefix('schema: ')}") from error


def _problems(kind: DataType, where: str) -> Iterator[str]:
    """Find what Spark reads as DDL and no table of ours can have, in words."""
    if isinstance(kind, (CharType, VarcharType)):
        yield f"{where} is {kind.simpleString().upper()}, whose length nobody holds bodies to: use STRING"
    elif isinstance(kind, ArrayType):
        yield from _problems(kind.elementType, f"{where}[]")
    elif isinstance(kind, MapType):
        yield from _problems(kind.keyType, f"the key of {where}")
        yield from _problems(kind.valueType, f"{where}[]")
    elif isinstance(kind, StructType):
        seen: set[str] = set()
        for field in kind:
            if field.name.lower() in seen:
                yield f"{where} has the member {field.name} twice; names that differ by case alone are one in a table"
            seen.add(field.name.lower())
            yield from _problems(field.dataType, f"{where}.{field.name}")


__all__ = ["check_body_schema", "check_queues", "check_table", "check_types"]

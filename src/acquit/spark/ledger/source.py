"""The batch source `acquit.ledger`, adapted to PySpark; it decides nothing.

The folders are listed and the chain is planned in the process that plans the query, one partition for each segment that
is to be read. A task reads its segment, holds it to the plan, and gives out Arrow batches. No row passes the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from acquit.spark.collector import spare_imports
from acquit.spark.ledger.chain import READABLE, Segment, SegmentState, plan
from acquit.spark.ledger.columns import check_schema, ddl, event_rows, fields_of, segment_rows
from acquit.spark.ledger.options import FORMAT_NAME, LedgerOptions, Missing, Table


class LedgerDataSource(DataSource):
    """``spark.read.format("acquit.ledger")``. Options and columns: `docs/ledger-source.md`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = LedgerOptions.parse(dict(options))

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT_NAME

    def schema(self) -> str:
        """All columns, as DDL. A read may give a schema with some of them instead: only those are then made."""
        return ddl(fields_of(self._parsed))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader. Raises ConfigurationError for a column that is not ours."""
        check_schema(to_arrow_schema(schema, timezone="UTC"), self._parsed)
        return LedgerReader(self._parsed, schema)


class SegmentPartition(InputPartition):
    """Segment whose events are to be read, or all segments that are to be listed."""

    def __init__(self, segments: list[Segment]) -> None:
        super().__init__(segments)
        self.segments = segments


class LedgerReader(DataSourceReader):
    """Plans and reads."""

    def __init__(self, options: LedgerOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each segment that may hold what is asked for. Raises as
        `acquit.spark.ledger.chain.plan`, and StoreCorrupt for a gap where `missing` is `fail`."""
        return [SegmentPartition(segments) for segments in planned(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition. Raises StoreCorrupt naming file and offset where a segment is not what it was."""
        if not isinstance(partition, SegmentPartition):
            return  # Spark's own, where there is nothing to read
        spare_imports()
        schema = to_arrow_schema(self._schema, timezone="UTC")
        if self._options.table is Table.SEGMENTS:
            yield segment_rows(partition.segments, schema)
            return
        for segment in partition.segments:
            yield from event_rows(segment, self._options, schema)


def planned(options: LedgerOptions) -> list[list[Segment]]:
    """The segments of each partition."""
    ranged = options.since_us is not None or options.until_us is not None
    segments = plan(options.folders, seals=ranged or options.table is Table.SEGMENTS)
    if options.table is Table.SEGMENTS:
        return [segments]
    gap = next((segment for segment in segments if segment.state is SegmentState.MISSING), None)
    if gap is not None and options.missing is Missing.FAIL:
        raise gap.corrupt("missing, and no record says that retention deleted it (missing = allow reads the others)")
    return [
        [segment]
        for segment in segments
        if segment.state in READABLE and segment.may_hold(options.since_us, options.until_us)
    ]

"""The batch source as PySpark has it: ``spark.read.format("acquit")``. Decides nothing: see `spark.browse`.

The reader is pickled into tasks; it holds what was given and makes everything else when it is first needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from acquit.spark.browse import BrowsePart, browse, plan_browse
from acquit.spark.browse_options import BrowseOptions
from acquit.spark.collector import spare_imports
from acquit.spark.columns import MessageColumns, check_columns
from acquit.spark.decoding import BodyDecoder


class BrowsePartition(InputPartition):
    """A share of one queue."""

    def __init__(self, part: BrowsePart) -> None:
        super().__init__(part)
        self.part = part


class AcquitReader(DataSourceReader):
    """Spark's verbs, handed on. Raises ConfigurationError for options and columns that are wrong."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = BrowseOptions.parse(given)
        self._schema = schema
        _ = self._columns

    @cached_property
    def _columns(self) -> tuple[pa.Schema, BodyDecoder | None]:
        """Schema that Spark expects of batches, and the decoder of their bodies, if they need one."""
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        return wanted, check_columns(wanted, self._options.body_as)

    def partitions(self) -> Sequence[BrowsePartition]:
        """The tasks: the snapshot is taken here."""
        return [BrowsePartition(part) for part in plan_browse(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task, as they come."""
        assert isinstance(partition, BrowsePartition)
        spare_imports()
        schema, decoder = self._columns
        reader = MessageColumns(partition.part.address, None, decoder)
        return reader.select(browse(self._options, partition.part, reader), schema)

"""The format `acquit` as Spark finds it: a table of what it can be, each in a module of its own that is imported when
it is wanted.

``spark.readStream`` is a queue as a stream (`spark.stream`). Spark does not say for what a source is made until it asks
for the reader or writer, and hides our error if asking for a stream's reader fails; so what is sure to be a stream,
because it has a spool, is checked when it is made.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from acquit.spark.browse_options import OPTIONS as BROWSE_OPTIONS
from acquit.spark.browse_options import BrowseOptions
from acquit.spark.columns import schema_ddl
from acquit.spark.options import FORMAT_NAME
from acquit.spark.source_options import OPTIONS as SOURCE_OPTIONS
from acquit.spark.source_options import SourceOptions

if TYPE_CHECKING:
    from acquit.spark.browse_reader import AcquitReader
    from acquit.spark.sink.writers import AcquitStreamWriter, AcquitWriter
    from acquit.spark.stream import AcquitStreamReader


class AcquitDataSource(DataSource):
    """``format("acquit")``. Options and columns: `docs/spark.md`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        if any(key.lower() == "spool" for key in options):
            SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT_NAME

    def schema(self) -> str:
        """All columns, as DDL. A query may give a schema with some of them instead. Raises ConfigurationError."""
        options = (SourceOptions if self._streams() else BrowseOptions).parse(self.options)
        return schema_ddl(options.body_as, options.body_schema)

    def reader(self, schema: StructType) -> AcquitReader:
        """A queue looked at, as a batch (`docs/spark-batch.md`). Raises ConfigurationError."""
        from acquit.spark.browse_reader import AcquitReader

        return AcquitReader(self.options, schema)

    def streamReader(self, schema: StructType) -> AcquitStreamReader:  # noqa: N802  # PySpark's name
        """A queue as a stream. Never raises: see the module."""
        from acquit.spark.stream import AcquitStreamReader

        return AcquitStreamReader(self.options, schema)

    def _streams(self) -> bool:
        """Whether it can only be meant as a stream: it has an option that nothing else has."""
        browsing = {option.name.lower() for option in BROWSE_OPTIONS}
        streaming = {option.name.lower() for option in SOURCE_OPTIONS} - browsing
        return any(key.lower() in streaming for key in self.options)

    def writer(self, schema: StructType, overwrite: bool) -> AcquitWriter:
        """A batch as messages (`docs/spark-sink.md`). Raises ConfigurationError."""
        from acquit.spark.sink.writers import AcquitWriter

        return AcquitWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> AcquitStreamWriter:  # noqa: N802
        """The batches of a stream as messages. Raises ConfigurationError."""
        from acquit.spark.sink.writers import AcquitStreamWriter

        return AcquitStreamWriter(self.options, schema, overwrite)

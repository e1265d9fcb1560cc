"""The format `acquit` as Spark finds it: a table of what it can be, each in a module of its own that is imported when
it is wanted.

``spark.readStream`` is a queue as a stream (`spark.stream`). Spark does not say for what a source is made until it asks
for the reader or writer, and hides our error if asking for a stream's reader fails. So what can be checked is checked
when the source is made, in `load`, in `save`, and before the first batch of a stream that is written: of what is sure
to be a stream, because it has a spool, the options and, with the broker, the queue; of what may be written to, that the
broker lets us in.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from acquit.errors import ConfigurationError
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


def _check_stream(options: SourceOptions) -> None:
    """Raise what the broker has against the stream. Spark makes the source once, in `load`: so it is said there, and
    not behind the traceback of a query that has been started."""
    from acquit.spark.link import QueueProbe

    probe = QueueProbe(options)
    try:
        probe.check()
    finally:
        probe.close()


def _check_sink(options: MutableMapping[str, str]) -> None:
    """Raise why no connection can be had, where these may be the options of a sink."""
    from acquit.spark.connecting import CLOSE_TIMEOUT_S, connect_patiently
    from acquit.spark.sink.options import SinkOptions

    try:
        parsed = SinkOptions.parse(options)
    except ConfigurationError:
        return  # to be read, or else the writer will say what is wrong
    connect_patiently(parsed).close(CLOSE_TIMEOUT_S)


class AcquitDataSource(DataSource):
    """``format("acquit")``. Options and columns: `docs/spark.md`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        given = {key.lower() for key in options}
        if "spool" in given and "checkpointlocation" not in given:  # only what is written has that among its options
            _check_stream(SourceOptions.parse(options))
        else:
            _check_sink(options)

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
        """True if a stream alone can be meant: an option is given that nothing else has."""
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

"""The name under which Spark finds the format `acquit` by itself.

PySpark imports every top-level package that is called ``pyspark_...`` and takes its `DefaultSource`. An exception in
that import would break *every* Python data source of the session, so there is none: where something that the source
needs is missing, this package simply offers no source, and Spark says that it does not know the format.
"""

from __future__ import annotations

import contextlib

with contextlib.suppress(Exception):
    from acquit.spark.source import AcquitDataSource as DefaultSource

__all__ = ["DefaultSource"]

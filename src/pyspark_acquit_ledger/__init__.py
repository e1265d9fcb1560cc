"""The name under which Spark finds the format `acquit.ledger` by itself.

A second package beside `pyspark_acquit`, because PySpark takes one `DefaultSource` of each, under the name that the
class itself says. Why nothing may be raised here is said there.
"""

from __future__ import annotations

import contextlib

with contextlib.suppress(Exception):
    from acquit.spark.ledger.source import LedgerDataSource as DefaultSource

__all__ = ["DefaultSource"]

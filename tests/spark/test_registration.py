"""The name under which Spark finds the source by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import acquit
import pyspark_acquit
from acquit.spark.source import AcquitDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_finds_the_format_without_being_told(spark: SparkSession, broker: acquit.Broker, tmp_path: Path) -> None:
    fresh = spark.newSession().readStream.format("acquit")
    frame = fresh.options(url=broker.url, address="queue", spool=str(tmp_path)).load()
    assert "body" in frame.columns
    assert pyspark_acquit.DefaultSource is AcquitDataSource


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "acquit"])
def test_nothing_raises_where_something_is_missing(missing: str) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import pyspark_acquit\n"
        "assert not hasattr(pyspark_acquit, 'DefaultSource')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def _path_of_pyspark(_: int) -> str:
    return pyspark.__file__


def test_workers_import_pyspark_from_where_it_is_installed(spark: SparkSession) -> None:
    """And not from Spark's zip, of which each process would compile it anew."""
    assert spark.sparkContext.parallelize([0], 1).map(_path_of_pyspark).collect() == [pyspark.__file__]

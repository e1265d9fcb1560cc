"""What a Spark has in its temporary folder stays there when it is killed: then it is pytest's to remove."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_all_processes_of_spark_have_a_folder_of_pytests(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    context = spark.sparkContext
    (workers,) = context.parallelize([0], 1).map(lambda _: tempfile.gettempdir()).collect()
    java = context._jvm.java.lang.System.getProperty("java.io.tmpdir")
    assert {workers, java} == {tempfile.gettempdir()}
    base = tmp_path_factory.getbasetemp()
    assert base in Path(java).parents
    assert base in Path(context._temp_dir).parents

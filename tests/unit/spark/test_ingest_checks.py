"""Tables that an ingest must not write into, known before Spark starts and before a message is taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from acquit.errors import ConfigurationError
from acquit.spark.ingest import IngestOptions, TableFormat
from acquit.spark.ingest_checks import check_table, check_types
from tests.support.stream_table import begun, listed


def options_of(table: Path, **given: Any) -> IngestOptions:
    return IngestOptions(url="amqp://127.0.0.1:1", address="q", table=table, format=TableFormat.PARQUET, **given)


@pytest.mark.parametrize(
    ("batches", "begins", "refused"),
    [
        ((), (), None),
        (("0",), (0,), None),
        (("0", "1"), (0, 1, 2), None),
        (("8", "9.compact", "10"), (9, 10), None),
        (("0",), (), "has batches up to 0, and the checkpoint .* is new: "),
        (("0", "1"), (0,), "has batches up to 1, and the checkpoint .* has begun those up to 0: "),
        (("8", "9.compact"), (8,), "has batches up to 9, and the checkpoint .* has begun those up to 8: "),
    ],
    ids=str,
)
def test_a_parquet_table_with_batches_that_the_checkpoint_never_began_is_refused(
    tmp_path: Path, batches: tuple[str, ...], begins: tuple[int, ...], refused: str | None
) -> None:
    """Spark would leave out as many of this query's. One that is in the table and not yet committed has begun."""
    table = tmp_path / "table"
    listed(table, *batches)
    begun(table / "_acquit" / "checkpoint", *begins)
    if refused is None:
        check_table(options_of(table))
    else:
        with pytest.raises(ConfigurationError, match=f"{refused}.*; or name another table") as caught:
            check_table(options_of(table))
        assert "\n" not in str(caught.value)


def test_a_second_query_into_a_parquet_table_is_refused(tmp_path: Path) -> None:
    listed(tmp_path / "table", "0")
    begun(tmp_path / "table" / "_acquit" / "checkpoint", 0)
    check_table(options_of(tmp_path / "table"))
    with pytest.raises(ConfigurationError, match="other/checkpoint is new: it is the table of another query"):
        check_table(options_of(tmp_path / "table", work=tmp_path / "other"))


SEVERAL = pa.schema([("sequence", pa.int64()), ("json", pa.struct([("id", pa.int64())]))])
JSON = {"bodyAs": "json", "bodySchema": "id BIGINT"}


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"columns": ("sequence", "json"), "source": JSON}, None),
        ({"columns": ("json", "sequence"), "source": JSON}, None),
        ({}, "has the columns sequence, json; this pipeline writes message_id, .*; only the pipeline has message_id"),
        ({"columns": ("sequence",)}, "this pipeline writes sequence: only the table has json. Name another table"),
        ({"columns": ("sequence", "json", "queue"), "source": JSON}, "only the pipeline has queue"),
        (
            {"columns": ("sequence", "json", "queue"), "source": JSON, "partition_by": ("queue",)},
            "is partitioned by nothing; this pipeline writes partitions by queue",
        ),
    ],
    ids=str,
)
def test_a_parquet_table_with_other_columns_is_refused(
    tmp_path: Path, given: dict[str, Any], refused: str | None
) -> None:
    """Spark reads all files by the schema of one: rows would be there without their values, or none could be read."""
    listed(tmp_path / "t", "0", schema=SEVERAL)
    begun(tmp_path / "t" / "_acquit" / "checkpoint", 0)
    if refused is None:
        check_table(options_of(tmp_path / "t", **given))
    else:
        with pytest.raises(ConfigurationError, match=refused) as caught:
            check_table(options_of(tmp_path / "t", **given))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("top", ["t", "a=b"])
def test_a_parquet_table_with_other_partitions_is_refused(tmp_path: Path, top: str) -> None:
    table = tmp_path / top
    listed(table, "0", schema=SEVERAL, folder="queue=a/posted_day=2026-01-31")
    begun(table / "_acquit" / "checkpoint", 0)
    given = {"columns": ("sequence", "json", "queue"), "source": JSON}
    check_table(options_of(table, partition_by=("queue", "posted_day"), **given))
    for other in ((), ("queue",), ("posted_day", "queue")):
        with pytest.raises(ConfigurationError, match="is partitioned by queue, posted_day; this pipeline writes part"):
            check_table(options_of(table, partition_by=other, **given))


def test_a_partition_may_be_a_link_to_another_disk(tmp_path: Path) -> None:
    table = tmp_path / "t"
    listed(table, "0", schema=SEVERAL, folder="queue=a/posted_day=2026-01-31")
    begun(table / "_acquit" / "checkpoint", 0)
    (table / "queue=a").rename(tmp_path / "elsewhere")
    (table / "queue=a").symlink_to(tmp_path / "elsewhere")
    given: dict[str, Any] = {"columns": ("sequence", "json", "queue"), "source": JSON}
    given["partition_by"] = ("queue", "posted_day")
    check_table(options_of(table, **given))
    (tmp_path / "linked").symlink_to(table)
    check_table(options_of(tmp_path / "linked", **given))


def test_members_may_come_in_another_order(tmp_path: Path) -> None:
    """Readers go by their names, however deep they are."""

    def columns(*names: str) -> StructType:
        inner = StructType([StructField(name, LongType()) for name in names])
        kinds = {names[0]: ArrayType(inner), names[1]: MapType(StringType(), inner)}
        return StructType().add("json", StructType([StructField(name, kinds[name]) for name in sorted(names)]))

    def reversed_(there: StructType) -> StructType:
        struct = there["json"].dataType
        assert isinstance(struct, StructType)
        return StructType().add("json", StructType(struct.fields[::-1]))

    schema = pa.schema([("json", pa.null())])
    there = columns("a", "b")
    listed(
        tmp_path / "t",
        "0",
        schema=schema.with_metadata({"org.apache.spark.sql.parquet.row.metadata": there.json()}),
    )
    options = options_of(tmp_path / "t", columns=("json",), source=JSON)
    check_types(options, reversed_(there))
    inner = (
        columns("a", "b")
        .json()
        .replace('"name":"a","nullable":true,"type":"long"', '"name":"c","nullable":true,"type":"long"')
    )
    for other in (columns("b", "a"), columns("a", "c"), StructType.fromJson(json.loads(inner))):
        with pytest.raises(ConfigurationError, match="its column json is"):
            check_types(options, other)


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    struct = StructType().add("id", LongType(), nullable=False)
    spark = StructType().add("sequence", LongType()).add("json", struct)
    schema = SEVERAL.with_metadata({"org.apache.spark.sql.parquet.row.metadata": spark.json()})
    options = options_of(tmp_path / "t", columns=("sequence", "json"), source=JSON)
    check_types(options, spark)
    listed(tmp_path / "t", "0", schema=schema)
    check_types(options, spark)
    check_types(options, StructType().add("sequence", LongType()).add("json", StructType().add("id", LongType())))
    other = StructType().add("sequence", LongType()).add("json", StructType().add("id", StringType()))
    with pytest.raises(ConfigurationError, match="json is struct<id:bigint>, this pipeline writes struct<id:string>"):
        check_types(options, other)

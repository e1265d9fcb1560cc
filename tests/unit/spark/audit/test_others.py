from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from acquit.errors import ConfigurationError
from acquit.spark.audit.others import check_receipts, columns_beforehand


def test_places_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        check_receipts(tmp_path / "none.csv")
    (tmp_path / "odd.xml").touch()
    with pytest.raises(ConfigurationError, match=r"expected .csv, .json, .jsonl or .parquet"):
        check_receipts(tmp_path / "odd.xml")
    with pytest.raises(ConfigurationError, match="expected a folder with a table, found neither"):
        check_receipts(tmp_path)
    write_deltalake(
        tmp_path / "deleted", pa.table({"sequence": [1]}), configuration={"delta.enableDeletionVectors": "true"}
    )
    with pytest.raises(ConfigurationError, match="uses deletionVectors"):
        check_receipts(tmp_path / "deleted")


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.csv", "csv"), ("b.CSV.gz", "csv"), ("c.json", "json"), ("d.jsonl.gz", "jsonl"), ("e.parquet", "parquet")],
)
def test_forms_of_receipts(tmp_path: Path, name: str, form: str) -> None:
    (tmp_path / name).touch()
    assert check_receipts(tmp_path / name) == form


def test_receipts_may_be_a_table(tmp_path: Path) -> None:
    pq.write_table(pa.table({"message_id": ["a"]}), tmp_path / "part-0.parquet")
    assert check_receipts(tmp_path) == ""


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.csv", b'\xef\xbb\xbf\nid,"the, outcome"\n1,accepted\n', ["id", "the, outcome"]),
        ("b.csv", b'\r\n"the ""id""","of\na send"\r\n1,accepted\r\n', ['the "id"', "of\na send"]),
        ("blank.csv", b"  \nid,outcome\n", ["  "]),
        ("a.csv.gz", gzip.compress(b"id,outcome\n", mtime=0), ["id", "outcome"]),
        ("empty.csv", b"", []),
        ("odd.csv", b"\xff\xfe", None),
        ("odd.csv.gz", b"id,outcome\n", None),
        ("cut.csv.gz", gzip.compress(b"id,outcome\n", mtime=0)[:6], None),
        ("b.jsonl", b'{"id": 1}\n\n{"id": 2, "outcome": "ok"}\n', ["id", "outcome"]),
        ("long.jsonl", b'{"id": 1}\n' * 1_001, None),
        ("list.json", b'[{"id": 1}]\n', None),
        ("odd.json", b"{", None),
        ("deep.json", b"[" * 100_000, None),
        ("odd.parquet", b"nothing of the kind", None),
    ],
)
def test_columns_of_receipts_that_are_known_without_spark(
    tmp_path: Path, name: str, content: bytes, columns: list[str] | None
) -> None:
    (tmp_path / name).write_bytes(content)
    assert columns_beforehand(tmp_path / name, receipts=True) == columns


def test_columns_of_tables_that_are_known_without_spark(tmp_path: Path) -> None:
    plain, delta, stream = tmp_path / "plain", tmp_path / "delta", tmp_path / "stream"
    (plain / "day=1").mkdir(parents=True)
    pq.write_table(pa.table({"body": ["x"]}), plain / "day=1" / "0.parquet")
    pq.write_table(pa.table({"body": ["x"], "sequence": [1]}), plain / "day=1" / "1.parquet")
    assert columns_beforehand(plain, receipts=False) == ["body", "sequence", "day"]
    assert columns_beforehand(plain / "day=1" / "0.parquet", receipts=True) == ["body"]
    write_deltalake(delta, pa.table({"sequence": [1], "queue": ["q"]}), partition_by=["queue"])
    assert columns_beforehand(delta, receipts=True) == ["sequence", "queue"]
    (stream / "_spark_metadata").mkdir(parents=True)
    (stream / "_spark_metadata" / "0").write_text("v1")
    assert columns_beforehand(stream, receipts=False) == ("sequence", "message_id"), "without a row yet"
    (plain / "day=1" / "2.parquet").write_text("nothing of the kind")
    assert columns_beforehand(plain, receipts=False) is None
    with pytest.raises(ConfigurationError, match="expected a folder with a table"):
        columns_beforehand(tmp_path / "none", receipts=False)

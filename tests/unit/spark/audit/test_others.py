from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from acquit.errors import ConfigurationError
from acquit.spark.audit.others import check_receipts


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

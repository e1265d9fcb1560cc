"""Which files are a table's, and which tables are more than their files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from acquit.errors import ConfigurationError
from acquit.spark.tables import TableKind, refuse_beyond_files, table_files


def test_a_delta_table_has_what_its_log_names(tmp_path: Path) -> None:
    rows = pa.table({"sequence": [1, 2], "queue": ["a b", "x:y%"]})
    write_deltalake(tmp_path, rows, partition_by=["queue"])
    before = table_files(tmp_path)
    write_deltalake(tmp_path, rows.slice(0, 1), mode="overwrite")
    (tmp_path / "left-over.parquet").touch()
    now = table_files(tmp_path)
    assert (now.kind, len(before.files), len(now.files)) == (TableKind.DELTA, 2, 1)
    assert not set(now.files) & set(before.files)
    assert now.size_bytes == sum(file.path.stat().st_size for file in now.files)
    refuse_beyond_files(tmp_path)


@pytest.mark.parametrize(
    ("setting", "value", "named"),
    [("enableDeletionVectors", "true", "deletionVectors"), ("columnMapping.mode", "name", "columnMapping")],
)
def test_a_table_whose_files_are_not_its_rows_is_refused(tmp_path: Path, setting: str, value: str, named: str) -> None:
    write_deltalake(tmp_path, pa.table({"sequence": [1]}), configuration={f"delta.{setting}": value})
    with pytest.raises(ConfigurationError, match=f"uses {named}: name a copy of it, written as Parquet"):
        refuse_beyond_files(tmp_path)

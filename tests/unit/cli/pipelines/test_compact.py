from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from acquit.cli.exits import Exit
from acquit.cli.pipelines.common import bytes_text
from tests.support.shell import Shell


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for number in range(3):
        write_deltalake(tmp_path / "table", pa.table({"sequence": [number]}), mode="append")
    return tmp_path / "table"


def test_a_dry_run_and_the_run(shell: Shell, table: Path) -> None:
    planned = shell("pipeline", "compact", table, "--dry-run")
    assert planned.code == Exit.OK
    assert planned.out.startswith(f"{table}: 3 files, 1.5 kB, would be 1 file, ")
    assert len(DeltaTable(table).file_uris()) == 3
    done = json.loads(shell("pipeline", "compact", table, "--vacuum", "--json").out)
    assert (done["files_before"], done["files_after"], done["merged"], done["vacuumed"]) == (3, 1, 3, [])
    assert len(DeltaTable(table).file_uris()) == 1


def test_what_became_of_the_files_is_said(shell: Shell, table: Path) -> None:
    assert shell("pipeline", "compact", table).out.startswith(f"{table}: 3 files, 1.5 kB, now 1 file, ")
    again = shell("pipeline", "compact", table).out
    assert again.startswith(f"{table}: 1 file, ")
    assert ", nothing to merge, " in again


def test_what_a_stream_writes_is_copied_only(shell: Shell, tmp_path: Path) -> None:
    table = tmp_path / "table"
    (table / "_spark_metadata").mkdir(parents=True)
    file = table / "part-0.parquet"
    pq.write_table(pa.table({"sequence": [1, 2]}), file)
    (table / "_spark_metadata" / "0").write_text(
        "v1\n" + json.dumps({"path": file.as_uri(), "size": file.stat().st_size, "action": "add"})
    )
    refused = shell("pipeline", "compact", table)
    assert (refused.code, len(refused.err.splitlines())) == (Exit.USAGE, 1)
    assert "--into DIR writes a copy" in refused.err
    assert shell("pipeline", "compact", table, "--into", tmp_path / "copy").code == Exit.OK
    assert pq.read_table(tmp_path / "copy")["sequence"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--target-file-size", "big"], "expected a size such as 65536, 512k, 64m or 1g, found 'big'"),
        (["--target-file-size", "1"], "target file size: expected at least 1024 bytes, got 1"),
        ([], "expected a folder with a table, found nothing"),
    ],
)
def test_wrong_use_is_named(shell: Shell, tmp_path: Path, arguments: list[str], complaint: str) -> None:
    ran = shell("pipeline", "compact", tmp_path / "gone", *arguments)
    assert ran.code == Exit.USAGE
    assert complaint in ran.err


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (3_400_000, "3.4 MB"), (2_500_000_000_000_000, "2,500.0 TB")]
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert bytes_text(size) == text

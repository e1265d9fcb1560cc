"""Which files are a table's, and which tables are more than their files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from acquit.errors import ConfigurationError, PipelineFailed
from acquit.spark.tables import TableKind, Use, open_delta, readable_files, refuse_unhandled, table_files
from tests.support.stream_table import listed


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
    assert readable_files(tmp_path) == now


@pytest.mark.parametrize("name", ["a b", "é漢", "100%", "x#y", "q?r", " lead", "plus+x", "co:lon"])
def test_a_delta_table_may_be_in_a_folder_of_most_names(tmp_path: Path, name: str) -> None:
    table = tmp_path / name
    write_deltalake(table, pa.table({"a": [1, 2], "queue": ["a b/=%é", "x%20y"]}), partition_by=["queue"])
    files = table_files(table).files
    assert sum(pq.read_metadata(file.path).num_rows for file in files) == 2


@pytest.mark.parametrize("name", ["a%20b", "%41", "back\\slash", "new\nline"])
def test_a_folder_that_is_taken_for_another_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "_delta_log").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / name)
    for path in (tmp_path / name, tmp_path / "link"):
        with pytest.raises(ConfigurationError, match="a Delta table cannot be in a folder whose name has") as caught:
            table_files(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "value", "named"),
    [("enableDeletionVectors", "true", "deletionVectors"), ("columnMapping.mode", "name", "columnMapping")],
)
def test_a_table_whose_files_are_not_its_rows_is_refused(tmp_path: Path, setting: str, value: str, named: str) -> None:
    write_deltalake(tmp_path, pa.table({"sequence": [1]}), configuration={f"delta.{setting}": value})
    with pytest.raises(ConfigurationError, match=f"uses {named}: name a copy of it, written as Parquet"):
        readable_files(tmp_path)
    with pytest.raises(ConfigurationError, match=f"table {tmp_path} uses {named}.*: compact it with what writes it"):
        refuse_unhandled(open_delta(tmp_path), Use.MERGE)


def with_features(table: Path, *features: str) -> Path:
    """A table whose log says that its readers must know these."""
    write_deltalake(table, pa.table({"sequence": [1]}))
    log = table / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    kept = [action for action in actions if "protocol" not in action]
    log.write_text("\n".join(json.dumps(action) for action in [{"protocol": protocol}, *kept]))
    return table


def test_what_changes_no_row_may_be_read_and_is_not_merged(tmp_path: Path) -> None:
    table = with_features(tmp_path / "table", "v2Checkpoint", "timestampNtz", "vacuumProtocolCheck")
    assert len(readable_files(table).files) == 1
    with pytest.raises(ConfigurationError, match="uses v2Checkpoint, vacuumProtocolCheck: compact it"):
        refuse_unhandled(open_delta(table), Use.MERGE)
    refuse_unhandled(open_delta(with_features(tmp_path / "times", "timestampNtz")), Use.MERGE)


def test_a_log_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    unknown = with_features(tmp_path / "unknown", "nobodyKnows")
    (tmp_path / "empty" / "_delta_log").mkdir(parents=True)
    damaged = with_features(tmp_path / "damaged")
    (damaged / "_delta_log" / f"{0:020}.json").write_text("garbage")
    for table, said in ((unknown, "nobodyKnows"), (tmp_path / "empty", "No files"), (damaged, "Json error")):
        with pytest.raises(
            ConfigurationError, match=f"{table}: its log in _delta_log cannot be read: .*{said}"
        ) as caught:
            table_files(table)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "v2\n", "v1\ngarbage", 'v1\n{"action": "add"}', "v1\n[]", 'v1\n{"action": "add", "path": 7, "size": 1}'],
)
def test_a_list_of_a_stream_that_makes_no_sense_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "_spark_metadata" / "0").write_text(text)
    with pytest.raises(
        PipelineFailed, match=r"^.*/_spark_metadata/0: expected a (list of version v1|file of the table)"
    ):
        table_files(tmp_path)


@pytest.mark.parametrize("moved", [False, True])
def test_a_copy_of_what_a_stream_wrote_is_not_taken_for_the_first(tmp_path: Path, moved: bool) -> None:
    """Its list names the files of that one: what is compared with it would be equal whatever the copy has."""
    listed(tmp_path / "table", "0")
    if moved:
        (tmp_path / "table").rename(tmp_path / "copy")
    else:
        shutil.copytree(tmp_path / "table", tmp_path / "copy")
    with pytest.raises(
        ConfigurationError, match=r"copy: its list names .*/table/part-0.parquet, which is not in it: "
    ) as it:
        table_files(tmp_path / "copy")
    assert "\n" not in str(it.value)


@pytest.mark.parametrize("kind", list(TableKind))
def test_what_partitions_say_is_known_of_each_file(tmp_path: Path, kind: TableKind) -> None:
    table = tmp_path / "table"
    values = ["a b/ü", None]
    if kind is TableKind.DELTA:
        write_deltalake(table, pa.table({"n": [1, 2], "p": values}), partition_by=["p"])
    else:
        paths = [table / "p=a b%2Fü" / "x.parquet", table / "p=__HIVE_DEFAULT_PARTITION__" / "x.parquet"]
        for path in paths:
            path.parent.mkdir(parents=True)
            pq.write_table(pa.table({"n": [1]}), path)
        if kind is TableKind.STREAM:
            (table / "_spark_metadata").mkdir()
            lines = [json.dumps({"path": path.as_uri(), "size": 1, "action": "add"}) for path in paths]
            (table / "_spark_metadata" / "0").write_text("\n".join(["v1", *lines]))
    (tmp_path / "link").symlink_to(table)
    for place in (table, tmp_path / "link"):
        found = table_files(place)
        assert found.kind is kind
        assert sorted(str(dict(file.partition)["p"]) for file in found.files) == ["None", "a b/ü"]

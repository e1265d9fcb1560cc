"""`acquit spool`: whose a spool is and what it holds, what is wrong with it, and what can be done."""

from __future__ import annotations

from pathlib import Path

import pytest

from acquit.cli.exits import Exit
from acquit.spark.columns import MessageColumns
from acquit.spark.spool import FolderStore, RetentionOptions, Spool, SpoolStore, open_store
from tests.support.queue_double import QueueDouble, part, posting
from tests.support.s3 import SECRET, make_bucket, point_to, serving
from tests.support.shell import Shell

READER = MessageColumns("queue")


def fill(store: SpoolStore) -> None:
    """Six epochs of two messages, the last one published and not finished."""
    spool = Spool(store, RetentionOptions(checkpoint_entries=4), now_ms=lambda: 1_700_000_000_000)
    spool.claim("query-1")
    for epoch in range(1, 7):
        spool.finish(epoch - 1)
        spool.plan(epoch)
        spool.take(part(epoch), QueueDouble(posting(2 * epoch), posting(2 * epoch + 1)).attach, READER)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(FolderStore(tmp_path / "spool"))
    return tmp_path / "spool"


def test_show_says_whose_it_is_and_what_it_holds(shell: Shell, root: Path) -> None:
    (told,) = shell("spool", "show", root, "--json").documents
    assert (told["query"], told["floor"], told["remembered"]) == ("query-1", 5, 12)
    assert told["remembered_since"] == "2023-11-14T22:13:20.000Z"
    assert told["totals"]["rows"] == 12
    size = next((root / "data").iterdir()).stat().st_size
    assert told["published"] == [
        {"epoch": 6, "part": 0, "rows": 2, "bytes": size, "written": "2023-11-14T22:13:20.000Z"}
    ]
    assert told["folders"]["data"] == {"files": 1, "bytes": size}
    shown = shell("spool", "show", root)
    assert shown.code == Exit.OK
    assert shown.out.startswith(f"{root}: of query-1\nepochs up to 5 are finished; 1 published part may be replayed, 0")
    assert "12 identities remembered since 2023-11-14T22:13:20.000Z" in shown.out


def test_a_path_may_be_relative(shell: Shell, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.parent)
    assert shell("spool", "verify", "spool").code == Exit.OK


def test_verify_names_each_problem_and_has_its_own_exit_code(shell: Shell, root: Path) -> None:
    sound = shell("spool", "verify", root)
    assert (sound.code, sound.err) == (Exit.OK, "")
    assert f"{root}: sound; " in sound.out and "2 rows in 1 data file, 12 identities" in sound.out
    data = next((root / "data").iterdir())
    data.unlink()
    damaged = shell("spool", "verify", root)
    assert damaged.code == Exit.UNSOUND and f"{root}: damaged; " in damaged.out
    assert damaged.err.startswith(f"data/{data.name}: it is missing; it costs the 2 rows of epoch 6 part 0")
    (told,) = shell("spool", "verify", root, "--json").documents
    assert [one["file"] for one in told["damage"]] == [f"data/{data.name}"]


def test_repair_shows_its_plan_and_carries_it_out(shell: Shell, root: Path) -> None:
    (root / "data" / "1-0-abc.arrow").write_bytes(b"")
    planned = shell("spool", "repair", root, "--dry-run")
    assert (planned.code, planned.out) == (Exit.OK, "would remove data/1-0-abc.arrow\n")
    assert shell("spool", "verify", root, "--json").documents[0]["leftovers"] == ["data/1-0-abc.arrow"]
    (told,) = shell("spool", "repair", root, "--json").documents
    assert told["done"] and told["actions"] == [{"what": "remove", "name": "data/1-0-abc.arrow", "cost": ""}]
    assert shell("spool", "repair", root).out == f"{root}: nothing to do\n"


def test_repair_says_what_it_leaves(shell: Shell, root: Path) -> None:
    next((root / "data").iterdir()).unlink()
    ran = shell("spool", "repair", root)
    assert ran.code == Exit.UNSOUND and "left as it is, it costs the 2 rows of epoch 6 part 0" in ran.err


def test_a_lost_checkpoint_is_an_explicit_choice(shell: Shell, root: Path) -> None:
    ran = shell("spool", "repair", root, "--take-over", "finish")
    assert ran.code == Exit.OK
    assert ran.out.startswith("take over owner: from query-1; the new query never gives 2 rows of epochs 6 to 6")
    (told,) = shell("spool", "show", root, "--json").documents
    assert (told["query"], told["previous"], told["begins_after"], told["floor"]) == (None, ["query-1"], 6, 6)


@pytest.mark.parametrize("command", ["show", "verify", "repair"])
def test_where_there_is_no_spool_that_is_said(shell: Shell, tmp_path: Path, command: str) -> None:
    ran = shell("spool", command, tmp_path)
    assert (ran.code, ran.err) == (
        Exit.USAGE,
        f"acquit: {tmp_path}: there is no spool (no owner, no log, no plans)\n",
    )
    assert shell("spool", command, "hdfs://host/spool").code == Exit.USAGE
    assert list(tmp_path.iterdir()) == [], "looking writes nothing"


def test_a_secret_in_the_name_of_a_spool_is_not_repeated(shell: Shell) -> None:
    ran = shell("spool", "show", "s3://key:hunter2@bucket/path")
    assert ran.code == Exit.USAGE and "credentials in the environment" in ran.err and "hunter2" not in ran.err


def test_of_the_folder_of_a_table_its_spool_is_named(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "_acquit" / "spool").mkdir(parents=True)
    assert shell("spool", "show", tmp_path).err.endswith(f"; did you mean {tmp_path}/_acquit/spool?\n")
    assert shell("spool", "show", tmp_path / "_acquit").err.endswith(f"; did you mean {tmp_path}/_acquit/spool?\n")


def test_the_folder_of_an_audit_is_no_spool(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "00000001.json").touch()
    (tmp_path / "audit.html").touch()
    assert shell("spool", "verify", tmp_path).code == Exit.USAGE


def test_a_log_that_cannot_be_read_is_one_line_and_the_same_code(shell: Shell, root: Path) -> None:
    entry = max((root / "log").iterdir())
    entry.write_bytes(b"")
    ran = shell("spool", "show", root)
    assert ran.code == Exit.UNSOUND
    assert (
        ran.err == f"acquit: {root}/log/{entry.name}: the checksum does not fit: the file was altered or is cut short\n"
    )


def test_a_spool_in_an_object_store(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        point_to(monkeypatch, server.endpoint)
        place = f"s3://{make_bucket()}/orders"
        fill(open_store(place))
        (told,) = shell("spool", "show", place, "--json").documents
        assert (told["spool"], told["query"], told["remembered"]) == (place, "query-1", 12)
        assert shell("spool", "verify", place).code == Exit.OK
        store = open_store(place)
        store.put("data/1-0-abc.arrow", b"")
        assert shell("spool", "repair", place).out == "remove data/1-0-abc.arrow\n"
        server.method, server.faults = "GET", []
        missing = shell("spool", "show", "s3://no-such-bucket/orders")
    assert missing.code == Exit.FAILED
    assert "s3://no-such-bucket/orders" in missing.err and "NoSuchBucket" in missing.err
    assert SECRET not in missing.err and missing.err.count("\n") == 1

from __future__ import annotations

import shutil
from pathlib import Path

import acquit
from acquit.broker.options import BrokerOptions
from acquit.cli.exits import Exit
from acquit.store.disk import PosixDisk
from acquit.store.folder import Folder
from acquit.store.options import JournalOptions
from tests.support.shell import Shell


def test_a_running_broker_is_backed_up_and_the_copy_serves(shell: Shell, tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    with acquit.Broker(data) as broker:
        assert shell("send", "orders", "one", "two", "--url", broker.url).code == Exit.OK
        (told,) = shell("backup", data, copy, "--json").documents
        assert (told["segments"], told["archived"]) == (1, 0)
        assert str(told["head"]).startswith(str(told["store"]))
        assert shell("send", "orders", "three", "--url", broker.url).code == Exit.OK
    assert [row["depth"] for row in shell("queues", "--data", copy, "--json").documents] == [2]
    ran = shell("restore", copy)
    assert (ran.code, ran.out) == (
        Exit.OK,
        f"{copy}: 1 queue, 2 messages; the next broker on it begins a new epoch\n",
    )
    with acquit.Broker(copy) as broker:
        assert [row["body"] for row in shell("browse", "orders", "--json", "--url", broker.url).documents] == [
            "one",
            "two",
        ]
    assert shell("ledger", "verify", "--data", copy).code == Exit.OK


def test_a_folder_with_something_in_it_is_left_alone(shell: Shell, tmp_path: Path) -> None:
    acquit.Broker(tmp_path / "data").close()
    ran = shell("backup", tmp_path / "data", tmp_path)
    assert ran.code == Exit.FAILED
    assert ran.err == f"acquit: {tmp_path} is not empty: a backup is made into a folder of its own\n"


def test_what_is_no_data_folder_leaves_nothing_behind(shell: Shell, tmp_path: Path) -> None:
    ran = shell("backup", tmp_path / "nowhere", tmp_path / "copy")
    assert ran.code == Exit.USAGE
    assert ran.err == f"acquit: {tmp_path / 'nowhere'} is not a data folder of acquit: it has no broker.json\n"
    assert not (tmp_path / "copy").exists()


def test_a_snapshot_is_marked(shell: Shell, tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    with acquit.Broker(data) as broker:
        assert shell("send", "orders", "one", "--url", broker.url).code == Exit.OK
        assert shell("restore", data).code == Exit.FAILED, "it is in use"
    shutil.copytree(data, copy)
    assert shell("restore", copy, "--json").documents == [
        {"copy": str(copy), "queues": 1, "messages": 1, "balanced": True}
    ]
    assert (copy / "backup.json").exists()
    acquit.Broker(copy).close()
    assert (copy / "restored.json").exists()


def test_a_copy_without_a_journal_is_damaged(shell: Shell, tmp_path: Path) -> None:
    acquit.Broker(tmp_path / "data").close()
    for path in (tmp_path / "data" / "journal").iterdir():
        path.unlink()
    for command in (("restore",), ("ledger", "balance", "--data"), ("ledger", "audit-log", "--data")):
        ran = shell(*command, tmp_path / "data")
        assert ran.code == Exit.UNSOUND
        assert ran.err == f"acquit: {tmp_path / 'data' / 'journal'}, offset 0: no segment is there\n"


def test_a_copy_without_the_archive_is_whole_and_says_what_it_was_made_without(shell: Shell, tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    small = JournalOptions(segment_bytes=1 << 20, first_segment_bytes=1 << 20, recovery_bytes_max=1 << 20)
    archive = Folder(data, PosixDisk())
    with acquit.Broker(data, config=BrokerOptions(journal=small)) as broker, acquit.connect(broker.url) as connection:
        session = connection.session("auto")
        sender, receiver = session.sender("q"), session.receiver("q")
        while len(archive.numbers(archived=True)) < 2:
            sender.send(bytes(100_000))
            assert receiver.receive(timeout=30) is not None
    (told,) = shell("backup", data, copy, "--json").documents
    left = told["left_behind"]
    assert left == archive.numbers()[0] - 1
    for _ in ("as it was made", "restored"):
        *segments, verdict = shell("ledger", "verify", "--data", copy, "--json").documents
        assert [row["place"] for row in segments[:left]] == ["left_behind"] * left
        assert (verdict["whole"], verdict["problems"], verdict["left_behind"]) == (True, [], list(range(1, left + 1)))
        ran = shell("ledger", "verify", "--data", copy, "--against", told["head"])
        assert ran.code == Exit.OK
        assert f"a copy made without {left} segments, 1 to {left}: of these it proves nothing\n" in ran.out
        assert shell("restore", copy).code == Exit.OK
        acquit.Broker(copy).close()
    Folder(copy, PosixDisk()).segment(left + 1).unlink()
    ran = shell("ledger", "verify", "--data", copy)
    assert ran.code == Exit.UNSOUND
    assert f"segment {left + 1}: missing, and no record says that retention deleted it" in ran.err

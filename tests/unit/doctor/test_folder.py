from __future__ import annotations

import os
from pathlib import Path

import pytest

import acquit
from acquit.broker.options import BrokerOptions
from acquit.doctor import folder
from acquit.doctor.findings import Severity
from acquit.doctor.folder import SyncTimes
from acquit.errors import StoreFull
from acquit.store.disk import PosixDisk
from acquit.store.options import JournalOptions

OK, WARNING, PROBLEM = Severity
MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /dev rw - devtmpfs udev rw
24 23 0:20 / /dev/shm rw - tmpfs tmpfs rw
25 22 8:2 / /data\040one rw - xfs /dev/sdb rw
26 25 0:30 / /data\040one rw shared:3 master:1 - nfs4 server:/x rw
""".strip()


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "ext4"), ("/var/lib", "ext4"), ("/dev/shm/x", "tmpfs"), ("/dev/shmx", "devtmpfs"), ("/data one/x", "nfs4")],
)
def test_the_mount_that_has_a_path(path: str, kind: str) -> None:
    assert folder.file_system(Path(path), MOUNTS) == kind
    assert folder.file_system(Path(path), "") == ""


@pytest.mark.parametrize(
    ("kind", "severity"),
    [("ext4", OK), ("", OK), ("tmpfs", PROBLEM), ("overlay", WARNING), ("nfs4", WARNING), ("fuse.sshfs", WARNING)],
)
def test_where_a_broker_should_not_be(kind: str, severity: Severity) -> None:
    assert folder.judge_file_system(Path("/x"), kind).severity is severity


def test_what_is_not_there_yet_is_judged_by_what_will_have_it(tmp_path: Path) -> None:
    assert folder.nearest(tmp_path / "a" / "b") == tmp_path
    assert folder.nearest(tmp_path) == tmp_path


def test_room_for_what_the_journal_may_grow_to() -> None:
    options = BrokerOptions(journal=JournalOptions.small())
    first = 3 * options.journal.segment_bytes
    whole = first + options.journal.recovery_bytes_max + options.journal.archive_bytes_max * 4 // 3
    assert folder.room(whole, 0, options).severity is OK
    assert folder.room(0, whole, options).severity is OK
    found = folder.room(whole - 10, 0, options)
    assert (found.severity, "goes early" in found.found) == (WARNING, True)
    assert folder.room(first - 1, 0, options).severity is PROBLEM
    young = BrokerOptions(journal=JournalOptions())
    assert folder.room(20_000_000, 0, young).severity is WARNING, "it begins small, and grows"
    assert folder.room(10_000_000, 0, young).severity is PROBLEM
    strict = BrokerOptions(journal=JournalOptions(archive_yields=False))
    assert "messages are refused" in folder.room(1 << 30, 0, strict).found


@pytest.mark.parametrize(
    ("median_ms", "max_ms", "kind", "severity"),
    [
        (0.1, 1.0, "ext4", OK),
        (0.001, 1.0, "ext4", WARNING),
        (0.001, 1.0, "tmpfs", OK),
        (25.0, 30.0, "ext4", WARNING),
        (1.0, 300.0, "ext4", WARNING),
    ],
)
def test_how_long_the_disk_takes(median_ms: float, max_ms: float, kind: str, severity: Severity) -> None:
    assert folder.judge_syncs(SyncTimes(median_ms, max_ms), kind).severity is severity


def test_timing_leaves_no_file(tmp_path: Path) -> None:
    times = folder.time_syncs(tmp_path)
    assert 0 < times.median_ms <= times.max_ms
    assert not list(tmp_path.iterdir())


def test_a_new_folder(tmp_path: Path) -> None:
    found = list(folder.examine(tmp_path / "new", BrokerOptions.small()))
    assert PROBLEM not in {one.severity for one in found if one.subject != "file system"}
    assert "the first start makes it" in found[-1].found
    assert not list(tmp_path.iterdir())


def nobody(pid: int, number: int) -> None:
    raise ProcessLookupError


def test_a_broker_that_runs_is_seen_and_not_disturbed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with acquit.Broker(data) as broker:
        with acquit.connect(broker.url) as connection, connection.session() as session:
            session.sender("orders").send("one")
        (running,) = [one for one in folder.examine(data, BrokerOptions.small()) if one.subject == "broker"]
        assert "one is running" in running.found and "process" in running.found
        assert "queues: 1, messages: 1" in folder.journal(data).found
    assert "none is running" in folder.holder(data).found
    with PosixDisk().lock(data / "lock", "process 4711"), pytest.MonkeyPatch.context() as patched:
        patched.setattr("os.kill", nobody)
        left = folder.holder(data)
    assert (left.severity, "held by process 4711, which is not running here" in left.found) == (WARNING, True)
    assert folder.used_bytes(data) > 0


def test_a_lock_that_cannot_be_taken_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(os.devnull)
    found = folder.holder(tmp_path)
    assert (found.severity, "lock cannot be opened: expected a file" in found.found) == (PROBLEM, True)


def test_a_link_that_leads_nowhere_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "archive").symlink_to(tmp_path / "away")
    found = [one.found for one in folder.examine(tmp_path, BrokerOptions.small()) if one.severity is PROBLEM]
    assert f"{tmp_path / 'archive'} cannot be written by this user" in found


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    assert folder.journal(tmp_path).severity is PROBLEM


def test_a_folder_of_a_first_start_that_was_refused(tmp_path: Path) -> None:
    huge = JournalOptions(first_segment_bytes=1 << 60, segment_bytes=1 << 60)
    with pytest.raises(StoreFull, match="No space left on device for a segment of"):
        acquit.Broker(tmp_path / "data", config=BrokerOptions(journal=huge))
    assert [path.name for path in (tmp_path / "data").rglob("*") if path.is_file()] == ["lock"]
    found = folder.journal(tmp_path / "data")
    assert found.severity is OK and "the first start makes it" in found.found


def test_damage_is_a_problem(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with acquit.Broker(data):
        pass
    (data / "broker.json").write_text("{}")
    assert folder.journal(data).severity is PROBLEM


def test_messages_that_others_may_read(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert any("others may read" in one.found for one in folder.examine(tmp_path, BrokerOptions.small()))
    tmp_path.chmod(0o700)
    assert not any("others may read" in one.found for one in folder.examine(tmp_path, BrokerOptions.small()))


@pytest.mark.parametrize("name", ["", "journal", "archive"])
@pytest.mark.parametrize(("mode", "verb"), [(0o500, "written"), (0o300, "read"), (0o600, "entered"), (0, "written")])
def test_folders_that_a_broker_could_not_work_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mode: int, verb: str
) -> None:
    def access(path: Path, wanted: int) -> bool:  # as it is for who is not root
        return path.stat().st_mode >> 6 & wanted == wanted

    acquit.Broker(tmp_path / "data").close()
    (tmp_path / "data" / name).chmod(mode)
    monkeypatch.setattr("os.access", access)
    try:
        *_, last = folder.examine(tmp_path / "data", BrokerOptions.small())
    finally:
        (tmp_path / "data" / name).chmod(0o700)
    assert (last.severity, last.found) == (PROBLEM, f"{tmp_path / 'data' / name} cannot be {verb} by this user")
    assert list(folder.examine(tmp_path / "data", BrokerOptions.small()))[-1].severity is OK

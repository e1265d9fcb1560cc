"""Copies of a data folder, and what a broker makes of one."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from acquit.errors import StoreCorrupt, StoreError, StoreFailed, StoreFull, StoreLocked
from acquit.ledger.recovery import close_journal, open_journal
from acquit.ledger.verify import Head, read_head, verify
from acquit.protocol.constants import ACCEPTED
from acquit.store import folder as folder_module
from acquit.store.backup import EPOCH_GAP, MARK, USED_MARK, back_up, mark
from acquit.store.disk import Disk, DiskFile, OpenMode, PosixDisk
from acquit.store.folder import STUB, Folder
from acquit.store.memory import MemoryDisk
from acquit.store.options import JournalOptions
from acquit.store.scan import SegmentReader
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.broker_world import DATA, SMALL, World, durable, live_of

OPTIONS = JournalOptions.small()


def copy_of(world: World, *, archive: bool = False, seed: int = 0) -> World:
    disk = MemoryDisk()
    back_up(DATA, DATA, archive=archive, disk=world.disk, target_disk=disk, clock_us=lambda: world.now_us)
    return World(world.options, disk=disk, now_us=world.now_us, journal=SMALL, seed=seed)


def lively(count: int = 40, *, disk: Disk | None = None, journal: JournalOptions = SMALL) -> World:
    """A broker whose oldest segments have left."""
    world = World(disk=disk, journal=journal)
    client = world.client()
    client.post_all(client.sender("keep", "keep"), durable("kept", application_properties={"_AMQ_DUPL_ID": 1}))
    sender = client.sender("q")
    link = client.receiver("q", credit=10_000)
    for number in range(count):
        client.post_all(sender, durable(b"%04d" % number + bytes(9_000)))
        link.session.settle_all(client.held(link)[:-1], ACCEPTED)
        world.settle()
    return world


def test_a_copy_has_everything() -> None:
    world = lively()
    assert world.opened.journal.left_through
    again = copy_of(world)
    assert set(again.core.holdings.sequences()) == set(world.core.holdings.sequences())
    assert again.core.scribe.recorder.table.windows == world.core.scribe.recorder.table.windows
    assert {name: queue.live for name, queue in again.core.queues.by_name.items()} == {
        name: queue.live for name, queue in world.core.queues.by_name.items()
    }
    again.settle()
    again.check_journal()


def test_a_copy_begins_a_new_epoch() -> None:
    world = lively(3)
    again = copy_of(world)
    assert again.opened.identity.store == world.opened.identity.store
    assert again.opened.identity.container_id != world.opened.identity.container_id
    client = again.client()
    client.post_all(client.sender("new"), durable("x"))
    assert max(again.core.holdings.sequences()) > world.core.scribe.sequences.last + EPOCH_GAP // 2
    third = again.crash()
    assert third.opened.identity == again.opened.identity, "once"
    names = third.disk.names(DATA)
    assert USED_MARK in names
    assert MARK not in names
    assert third.core.scribe.sequences.last < max(again.core.holdings.sequences()) + EPOCH_GAP // 2


def numbers_of(world: World, count: int = 10) -> set[int]:
    """Sequences of messages that are posted now."""
    client, before = world.client("posts"), set(world.core.holdings.sequences())
    client.post_all(client.sender("new"), *(durable(b"%d" % number) for number in range(count)))
    world.settle()
    return set(world.core.holdings.sequences()) - before


def test_a_backup_that_is_restored_twice_numbers_no_two_messages_alike() -> None:
    """For a drill, then in earnest: neither knows of the other, and each has the broker-id of the original."""
    world = lively(3)
    drill, earnest = copy_of(world, seed=1), copy_of(world, seed=2)
    assert drill.opened.identity.store == earnest.opened.identity.store == world.opened.identity.store
    taken = [numbers_of(world), numbers_of(drill), numbers_of(earnest)]
    taken.append(numbers_of(copy_of(drill, seed=3)))  # and a copy of the copy
    assert [len(one) for one in taken] == [10] * 4
    assert len(set().union(*taken)) == 40


def test_what_was_posted_before_is_still_a_duplicate() -> None:
    again = copy_of(lively(3))
    client = again.client()
    client.post_all(client.sender("keep"), durable("kept", application_properties={"_AMQ_DUPL_ID": 1}))
    assert live_of(again, "keep") == 1


@pytest.mark.parametrize("seed", range(8))
def test_the_original_goes_on_while_it_is_copied(seed: int) -> None:
    """Between any two steps of the copy the broker posts, settles, moves on to other segments and archives."""
    rng = Random(seed)
    world = lively(rng.randrange(4, 12))
    client = world.clients[0]
    sender = client.sender("more", "more")
    taken = []

    def go_on(done: int, steps: int) -> None:
        for _ in range(rng.randrange(3)):
            client.post_all(sender, durable(bytes(rng.randrange(20_000))))
        taken.append(done)

    before = set(world.core.holdings.sequences())
    disk = MemoryDisk()
    back_up(DATA, DATA, disk=world.disk, target_disk=disk, progress=go_on)
    assert taken
    again = World(world.options, disk=disk, now_us=world.now_us, journal=SMALL)
    assert before <= set(again.core.holdings.sequences()) <= set(world.core.holdings.sequences())
    again.settle()
    again.check_journal()


@pytest.mark.parametrize("stubs_max", [100_000, 2])
@pytest.mark.parametrize("seed", range(4))
def test_retention_deletes_the_archive_while_it_is_copied(seed: int, stubs_max: int) -> None:
    """At each step of the copy the oldest segment is deleted, as a busy broker with many stubs does."""
    world = lively(120, journal=replace(SMALL, archive_bytes_max=600_000, stubs_max=stubs_max))
    rng = Random(seed)
    before = Folder(DATA, world.disk).numbers(archived=True)
    client = world.clients[0]
    sender, link = client.sender("r", "more"), client.receiver("r", "other", credit=10_000)

    def go_on(done: int, steps: int) -> None:
        for _ in range(rng.randrange(20)):
            client.post_all(sender, durable(bytes(9_000)))
        link.session.settle_all(client.held(link), ACCEPTED)
        world.settle()

    disk = MemoryDisk()
    report = back_up(DATA, DATA, archive=True, disk=world.disk, target_disk=disk, progress=go_on)
    assert report.copied_bytes == sum(map(len, disk.files.values())) - len(disk.files[DATA / MARK]) - len(
        disk.files[DATA / "broker.json"]
    )
    assert not set(before) & set(Folder(DATA, world.disk).numbers(archived=True)), "all of them are gone by now"
    assert verify(DATA, disk=disk).problems == ()
    again = World(world.options, disk=disk, now_us=world.now_us, journal=replace(SMALL, archive_bytes_max=600_000))
    again.settle()
    again.check_journal()
    assert verify(DATA, disk=disk).problems == ()


def test_on_a_real_disk(tmp_path: Path) -> None:
    opened = open_journal(tmp_path / "data", OPTIONS)
    report = back_up(tmp_path / "data", tmp_path / "copy", archive=True)
    assert report.segments == 1
    close_journal(opened.recorder, 1)
    assert verify(tmp_path / "copy").problems == ()
    copy = open_journal(tmp_path / "copy", OPTIONS)
    close_journal(copy.recorder, 2)
    assert verify(tmp_path / "copy").problems == ()
    assert (tmp_path / "copy" / "broker.json").stat().st_mode & 0o777 == 0o600
    assert json.loads((tmp_path / "copy" / USED_MARK).read_text())["store"] == str(opened.identity.store)


def test_chance_is_the_systems_own_where_nobody_gives_another(tmp_path: Path) -> None:
    close_journal(open_journal(tmp_path / "data", OPTIONS).recorder, 1)
    taken = set()
    for name in ("drill", "earnest", "again"):
        back_up(tmp_path / "data", tmp_path / name)
        copy = open_journal(tmp_path / name, OPTIONS)
        taken.add(copy.sequences.last)
        close_journal(copy.recorder, 2)
    assert len(taken) == 3


def test_the_archive_goes_along_where_it_is_asked_for() -> None:
    world = lively()
    with_archive, without = MemoryDisk(), MemoryDisk()
    report = back_up(DATA, DATA, archive=True, disk=world.disk, target_disk=with_archive)
    assert report.archived > 2
    back_up(DATA, DATA, disk=world.disk, target_disk=without)
    assert Folder(DATA, with_archive).numbers(archived=True)
    assert not Folder(DATA, without).numbers(archived=True)
    assert verify(DATA, disk=with_archive).problems == ()


def through(disk: Disk) -> list[int]:
    """What a copy is found to have been made without, and nothing else is wrong with it."""
    found = verify(DATA, disk=disk)
    assert found.problems == ()
    return found.left_behind


def test_what_it_leaves_behind_is_no_damage_of_the_copy() -> None:
    world = lively()
    disk, again = MemoryDisk(), MemoryDisk()
    report = back_up(DATA, DATA, disk=world.disk, target_disk=disk)
    left = list(range(1, Folder(DATA, disk).numbers()[0]))
    assert left == world_archive(world)
    assert report.left_behind == left[-1]
    assert through(disk) == left
    assert back_up(DATA, DATA, disk=disk, target_disk=again).left_behind == left[-1], "a copy of the copy says so too"
    mark(DATA, disk=again)
    assert through(again) == left
    assert through(world.disk) == []
    assert verify(DATA, disk=disk, against=[read_head(DATA, disk=disk)]).problems == ()


def world_archive(world: World) -> list[int]:
    return Folder(DATA, world.disk).numbers(archived=True)


def test_a_restored_broker_that_goes_on_and_its_copies_say_it() -> None:
    world = copy_of(lively())
    left = through(world.disk)
    client = world.client()
    sender, link = client.sender("q"), client.receiver("q", credit=10_000)
    while len(world_archive(world)) < 3:
        client.post_all(sender, durable(bytes(9_000)))
        link.session.settle_all(client.held(link), ACCEPTED)
        world.settle()
    assert through(world.disk) == left
    with_archive, without = MemoryDisk(), MemoryDisk()
    back_up(DATA, DATA, archive=True, disk=world.disk, target_disk=with_archive)
    back_up(DATA, DATA, disk=world.disk, target_disk=without)
    assert through(with_archive) == left
    assert through(without) == [*left, *world_archive(world)]
    gone = world_archive(world)[1]
    world.disk.remove(Folder(DATA, world.disk).segment(gone, archived=True))
    assert verify(DATA, disk=world.disk).problems == (
        f"segment {gone}: missing, and no record says that retention deleted it",
    )


def test_what_was_brought_since_is_not_left_behind() -> None:
    """The archive can be copied by other means: then a copy of all that there is has all."""
    world = lively()
    disk = MemoryDisk()
    back_up(DATA, DATA, disk=world.disk, target_disk=disk)
    *others, last = world_archive(world)
    bring(world.disk, disk, others)
    some, all_ = MemoryDisk(), MemoryDisk()
    assert back_up(DATA, DATA, archive=True, disk=disk, target_disk=some).left_behind == last
    bring(world.disk, disk, [last])
    assert back_up(DATA, DATA, archive=True, disk=disk, target_disk=all_).left_behind == 0
    mark(DATA, disk=disk)
    for complete in (disk, all_):
        assert through(complete) == []
        complete.remove(Folder(DATA, complete).segment(others[0], archived=True))
        assert verify(DATA, disk=complete).problems == (
            f"segment {others[0]}: missing, and no record says that retention deleted it",
        )


def bring(source: Disk, target: Disk, numbers: list[int]) -> None:
    for number in numbers:
        path = Folder(DATA, source).segment(number, archived=True)
        there, copy = source.open(path, OpenMode.READ), target.open(path, OpenMode.WRITE)
        copy.write(there.read(there.size(), 0), 0)


def test_a_mark_that_cannot_be_written_leaves_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_all(file: DiskFile, data: bytes, offset: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    disk = MemoryDisk()
    back_up(DATA, DATA, disk=lively().disk, target_disk=disk)
    left = through(disk)
    with monkeypatch.context() as full:
        full.setattr(folder_module, "write_all", write_all)
        with pytest.raises(StoreFull):
            mark(DATA, disk=disk)
    assert through(disk) == left
    mark(DATA, disk=disk)
    assert through(disk) == left


def test_a_mark_that_is_used_up_as_it_is_read() -> None:
    class Racing(MemoryDisk):
        def open(self, path: Path, mode: OpenMode) -> DiskFile:
            if path == DATA / MARK and path in self.files:
                self.files[DATA / USED_MARK] = self.files.pop(path)
            return super().open(path, mode)

    disk = Racing()
    back_up(DATA, DATA, disk=lively().disk, target_disk=disk)
    assert through(disk)


def test_a_mark_that_was_changed_hides_nothing_that_recovery_reads() -> None:
    """What it can hide is of the archive, and a head of that is then refused."""
    world = lively()
    disk = MemoryDisk()
    back_up(DATA, DATA, archive=True, disk=world.disk, target_disk=disk)
    folder = Folder(DATA, disk)
    archived, needed = folder.numbers(archived=True)[-1], folder.numbers()[-2]
    with SegmentReader(disk, folder.segment(archived, archived=True)) as segment:
        for _ in segment.batches():
            pass
        head = Head(segment.header.store, archived, segment.offset, segment.hash_of(segment.offset))
    assert verify(DATA, disk=disk, against=[head]).problems == ()
    disk.files[DATA / MARK] = bytearray(b'{"left_behind": 1000}')
    for archive, number in (True, archived), (False, needed):
        disk.remove(folder.segment(number, archived=archive))
    found = verify(DATA, disk=disk, against=[head])
    assert found.left_behind == [archived]
    assert f"segment {needed}: missing, and no record says that retention deleted it" in found.problems
    assert found.problems[-1] == (
        f"segment {archived}, of which the head {head} was taken, was left behind by a backup: not verified"
    )


@pytest.mark.parametrize("content", [b"", b"[]", b'{"left_behind": "8"}', b'{"left_behind": true}'])
def test_a_mark_that_is_none_is_named_and_excuses_nothing(content: bytes) -> None:
    disk, again = MemoryDisk(), MemoryDisk()
    back_up(DATA, DATA, disk=lively().disk, target_disk=disk)
    disk.files[DATA / MARK] = bytearray(content)
    found = verify(DATA, disk=disk)
    assert "not the mark of a copy" in found.problems[0] and MARK in found.problems[0]
    assert found.problems[1] == "segment 1: missing, and no record says that retention deleted it"
    assert found.left_behind == []
    assert back_up(DATA, DATA, archive=True, disk=disk, target_disk=again).left_behind == 0


def test_a_copy_of_an_earlier_version_says_nothing_of_it() -> None:
    disk = MemoryDisk()
    back_up(DATA, DATA, disk=lively().disk, target_disk=disk)
    disk.files[DATA / MARK] = bytearray(b'{"store": "x", "taken_us": 1, "newest": 9}')
    assert verify(DATA, disk=disk).problems[0] == "segment 1: missing, and no record says that retention deleted it"


def test_other_files_go_along() -> None:
    world = lively(2)
    path = DATA / "users.toml"
    world.disk.files[path] = bytearray(b"users")  # type: ignore[attr-defined]
    disk = MemoryDisk()
    back_up(DATA, DATA, disk=world.disk, target_disk=disk, others=("users.toml", "nothing.toml"))
    assert disk.files[path] == b"users"
    assert DATA / "nothing.toml" not in disk.files


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    open_journal(tmp_path / "data", OPTIONS).journal.close()
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").write_text("x")
    with pytest.raises(StoreError, match=r"is not empty"):
        back_up(tmp_path / "data", tmp_path / "copy")
    with pytest.raises(StoreError, match=r"no broker\.json"):
        back_up(tmp_path / "nothing", tmp_path / "other")


@pytest.mark.parametrize("inside", ["", "journal", "archive", "link", "aside"])
def test_a_target_inside_of_the_source_is_refused(tmp_path: Path, inside: str) -> None:
    """Also by way of links: there the broker would find a folder among its segments."""
    data, aside = tmp_path / "data", tmp_path / "aside"
    open_journal(data, OPTIONS).journal.close()
    (data / "archive").rename(aside)
    (data / "archive").symlink_to(aside)
    (tmp_path / "link").symlink_to(data / "journal")
    target = (tmp_path if inside in ("link", "aside") else data) / inside / "copy"
    with pytest.raises(
        StoreError, match=rf"^{target} is inside of {data}.*: a backup is made into a folder of its own$"
    ):
        back_up(data, target)
    assert not target.exists()
    back_up(data, tmp_path / "copy")


def test_an_unfinished_copy_is_told_from_what_is_somebodys(tmp_path: Path) -> None:
    def stop(done: int, steps: int) -> None:
        raise KeyboardInterrupt

    open_journal(tmp_path / "data", OPTIONS).journal.close()
    with pytest.raises(KeyboardInterrupt):
        back_up(tmp_path / "data", tmp_path / "copy", progress=stop)
    said = "looks like a backup that was not finished; remove it, or take another folder"
    with pytest.raises(StoreError, match=rf"copy is not empty: it {said}$"):
        back_up(tmp_path / "data", tmp_path / "copy")
    with pytest.raises(StoreError, match=r"data is not empty: a backup is made into a folder of its own$"):
        back_up(tmp_path / "data", tmp_path / "data")


def test_damage_is_not_copied() -> None:
    world = lively(20)
    folder = Folder(DATA, world.disk)
    first = folder.numbers()[0]
    content = world.disk.files[folder.segment(first)]  # type: ignore[attr-defined]
    content[5_000] ^= 1
    with pytest.raises(StoreCorrupt):
        back_up(DATA, DATA, disk=world.disk, target_disk=MemoryDisk())


def test_a_segment_of_another_journal_is_not_copied() -> None:
    world, other = lively(20), lively(20)
    second = Folder(DATA, world.disk).numbers()[1]
    path = Folder(DATA, world.disk).segment(second)
    world.disk.files[path] = other.disk.files[path]  # type: ignore[attr-defined]
    with pytest.raises(StoreCorrupt, match=rf"segment {second} of store {other.opened.identity.store}"):
        back_up(DATA, DATA, disk=world.disk, target_disk=MemoryDisk())


def spoiled(how: str, path: Path, disk: FaultyDisk) -> str:
    """Damage a file, and return what is said of it."""
    if how == "flipped":
        disk.content(path)[5_000] ^= 1
        return rf"^{path}, offset \d+: a batch of \d+ bytes that does not match its checksum"
    if how == "refused":
        disk.refused[path] = errno.EIO
    else:
        disk.lose(path, 500)
    return rf"^{path}, offset \d+: cannot be read: Input/output error"


@pytest.mark.parametrize("how", ["flipped", "lost", "refused"])
def test_damage_in_the_archive_ends_a_backup_that_takes_it_along(how: str) -> None:
    disk = FaultyDisk()
    lively(disk=disk)
    folder = Folder(DATA, disk)
    said = spoiled(how, folder.segment(folder.numbers(archived=True)[1], archived=True), disk)
    with pytest.raises(StoreCorrupt, match=said):
        back_up(DATA, DATA, archive=True, disk=disk, target_disk=MemoryDisk())
    report = back_up(DATA, DATA, disk=disk, target_disk=MemoryDisk())
    assert report.archived == 0, "where it is not taken along, nobody looks there"


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_hole_in_the_archive_ends_a_backup_that_takes_it_along(which: int) -> None:
    """As a damaged segment does: `ledger verify` would find it only in the copy, when the source is gone."""
    world = lively()
    folder = Folder(DATA, world.disk)
    gone = folder.segment(folder.numbers(archived=True)[which], archived=True)
    world.disk.remove(gone)
    with pytest.raises(StoreCorrupt, match=rf"^{gone}, offset 0: missing, and no record says that retention deleted"):
        back_up(DATA, DATA, archive=True, disk=world.disk, target_disk=MemoryDisk())
    back_up(DATA, DATA, disk=world.disk, target_disk=MemoryDisk())


def test_what_retention_deleted_is_no_hole_even_without_a_stub() -> None:
    world = lively(120, journal=replace(SMALL, archive_bytes_max=600_000, stubs_max=0))
    numbers = Folder(DATA, world.disk).numbers(archived=True)
    assert numbers[0] > 1
    back_up(DATA, DATA, archive=True, disk=world.disk, target_disk=MemoryDisk())


@pytest.mark.parametrize("how", ["lost", "refused"])
@pytest.mark.parametrize("name", ["journal", "stub", "users"])
def test_a_source_that_cannot_be_read_is_named(how: str, name: str) -> None:
    disk = FaultyDisk()
    lively(disk=disk, journal=replace(SMALL, archive_bytes_max=0) if name == "stub" else SMALL)
    folder = Folder(DATA, disk)
    users = disk.open(DATA / "users.toml", OpenMode.WRITE)
    users.write(b"users" * 200, 0)
    path = {
        "journal": lambda: folder.segment(folder.numbers()[0]),
        "stub": lambda: next(path for path in disk.paths() if path.suffix == STUB),
        "users": lambda: DATA / "users.toml",
    }[name]()
    said = spoiled(how, path, disk)
    with pytest.raises(StoreCorrupt, match=said):
        back_up(
            DATA,
            Path("/copy"),
            archive=True,
            disk=disk,
            target_disk=MemoryDisk(),
            others=("users.toml", "nothing.toml"),
        )


@pytest.mark.parametrize("step", [0, 8])
def test_a_target_that_takes_nothing_is_named(step: int) -> None:
    world, target = lively(8), FaultyDisk(errors={step: errno.EIO})
    with pytest.raises(StoreFailed, match=r"^/copy: Input/output error"):
        back_up(DATA, Path("/copy"), archive=True, disk=world.disk, target_disk=target)


def test_bodies_that_were_erased_are_no_damage() -> None:
    world = lively(journal=replace(SMALL, erase_bodies_after_s=1))
    for _ in range(20):
        world.now_us += 2_000_000
        world.chores()
        world.settle()
    assert any(info.erased for info in world.opened.journal.segments)
    copy = MemoryDisk()
    back_up(DATA, DATA, archive=True, disk=world.disk, target_disk=copy)
    found = verify(DATA, disk=copy)
    assert found.problems == () and any(link.erased for link in found.links)


def test_a_copy_that_was_not_finished_is_no_data_folder() -> None:
    world = lively(3)
    disk = MemoryDisk()

    def stop(done: int, steps: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(DATA, DATA, disk=world.disk, target_disk=disk, progress=stop)
    with pytest.raises(StoreCorrupt, match=r"but not whose"):
        World(disk=disk, journal=SMALL)


class ForgetfulDisk(MemoryDisk):
    """A disk that knows which names a loss of power could still take, now and as each file got its own by a rename."""

    def __init__(self) -> None:
        super().__init__()
        self.unsafe: set[Path] = set()
        self.unsafe_at: dict[str, set[Path]] = {}

    def open(self, path: Path, mode: OpenMode) -> DiskFile:
        if mode is not OpenMode.READ:
            self.unsafe.add(path)
        return super().open(path, mode)

    def rename(self, old: Path, new: Path) -> None:
        self.unsafe.discard(old)
        self.unsafe_at[new.name] = set(self.unsafe)
        self.unsafe.add(new)
        super().rename(old, new)

    def sync_folder(self, folder: Path) -> None:
        self.unsafe = {path for path in self.unsafe if path.parent != folder}
        super().sync_folder(folder)


def test_a_copy_is_a_data_folder_only_once_all_else_has_its_name_for_good() -> None:
    # Otherwise one that lost power would be opened without its newest segments, and look like a whole one.
    world = lively()
    world.disk.open(DATA / "users.toml", OpenMode.WRITE).write(b"[users]\n", 0)
    disk = ForgetfulDisk()
    back_up(DATA, DATA, archive=True, disk=world.disk, target_disk=disk, others=("users.toml",))
    assert disk.unsafe_at["broker.json"] == set()
    assert disk.unsafe == set()


def test_a_copy_by_other_means_is_marked_by_hand(tmp_path: Path) -> None:
    data = tmp_path / "data"
    opened = open_journal(data, OPTIONS)
    with pytest.raises(StoreLocked):
        mark(data)
    close_journal(opened.recorder, 1)
    mark(data)
    again = open_journal(data, OPTIONS)
    close_journal(again.recorder, 2)
    assert again.identity.container_id != opened.identity.container_id
    assert again.sequences.last > EPOCH_GAP
    with pytest.raises(StoreError, match=r"no broker\.json"):
        mark(tmp_path)
    assert MARK not in PosixDisk().names(data)


def test_a_folder_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    opened = open_journal(tmp_path / "data", OPTIONS)
    close_journal(opened.recorder, 1)
    (tmp_path / "data" / "lock").unlink()
    (tmp_path / "data" / "lock").mkdir()
    with pytest.raises(StoreFailed, match=rf"^{tmp_path / 'data' / 'lock'}: Is a directory"):
        mark(tmp_path / "data")

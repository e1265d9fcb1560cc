"""Chores: what is due, what they do, and that they can be done again."""

from __future__ import annotations

import contextlib
import errno
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from acquit.errors import StoreFailed, StoreFull
from acquit.store.folder import EVENTS, STUB, Folder
from acquit.store.interface import ERASED, Position, Record, SegmentInfo
from acquit.store.options import JournalOptions
from acquit.store.record import StoreKind, check_records, walk
from acquit.store.scan import SegmentReader
from acquit.store.segment import (
    EVENTS_HEADER_BYTES,
    HEADER_BYTES,
    NO_HASH,
    DeletedSegment,
    ErasedSegment,
    EventsHeader,
    SegmentHeader,
    decode_seal,
)
from acquit.store.writer import Sealed
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.mini_broker import Clock
from tests.support.raw_journal import DATA, EVENT, OPTIONS, Raw


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def grow(raw: Raw, segments: int) -> None:
    while sum(not info.archived for info in raw.journal.segments) < segments:
        raw.put(bytes(3000))


def leave(raw: Raw, *numbers: int) -> None:
    for number in numbers:
        raw.journal.leave(number, raw.journal.read_seal(number))
    raw.sync()


def names(disk: FaultyDisk, folder: str, suffix: str) -> list[int]:
    return Folder(DATA, disk).numbers(archived=folder == "archive", suffix=suffix)


# -- prewriting --------------------------------------------------------------------------------------------------------
def test_spare_and_reserve_are_prewritten_first(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    assert raw.chores() == ["Prewrite", "Prewrite"]
    assert raw.chores() == []
    grow(raw, 2)
    assert raw.chores()[0] == "Prewrite"


def test_a_prewritten_file_becomes_the_next_segment(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    raw.chores()
    ready = {path.name for path in disk.paths() if path.suffix == ".zeros"}
    grow(raw, 2)
    left = {path.name for path in disk.paths() if path.suffix == ".zeros"}
    assert left < ready


def test_an_io_error_while_prewriting_is_told(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    chore = raw.journal.take_chore()
    assert chore is not None
    disk.errors[disk.steps] = errno.EIO
    with pytest.raises(StoreFailed):
        chore.run()


# -- side files --------------------------------------------------------------------------------------------------------
def side_file(disk: FaultyDisk, number: int) -> tuple[EventsHeader, bytes]:
    content = bytes(disk.content(DATA / "journal" / f"{number:020}{EVENTS}"))
    header = EventsHeader.decode(content)
    assert header is not None
    return header, content[EVENTS_HEADER_BYTES:]


def test_a_closed_segment_gets_its_side_file(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    grow(raw, 2)
    events = len([p for p in Raw(disk.after_kill()).replay.records if p.position < raw.journal.segments[0].end])
    assert "FinishEvents" in raw.chores()
    header, array = side_file(disk, 1)
    assert header.number == 1
    assert header.events == events
    assert array == EVENT * events


def test_a_side_file_is_built_again_as_it_was(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    grow(raw, 3)
    raw.chores()
    before = [side_file(disk, number) for number in (1, 2)]
    for number in (1, 2):
        disk.delete(DATA / "journal" / f"{number:020}{EVENTS}")
    again = disk.after_kill()
    assert Raw(again).chores().count("FinishEvents") == 3
    assert [side_file(again, number) for number in (1, 2)] == before


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_side_file_that_cannot_be_written_disturbs_nobody(disk: FaultyDisk, code: int) -> None:
    raw = Raw(disk)
    raw.append(b"x")
    batch = raw.journal.take_batch()
    assert batch is not None
    disk.errors[disk.steps + 1] = code  # the write behind the batch's own
    batch.write_and_sync()
    raw.journal.complete(batch)
    grow(raw, 2)
    events = len([p for p in Raw(disk.after_kill()).replay.records if p.position < raw.journal.segments[0].end])
    raw.chores()
    header, array = side_file(disk, 1)
    assert (header.events, array) == (events, EVENT * events), "those that could not be written as well"


def test_a_full_disk_while_finishing_is_tried_again_later(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    raw.chores()
    grow(raw, 2)
    assert raw.chores(1) == ["Prewrite"]
    disk.errors[disk.steps] = errno.ENOSPC
    assert raw.chores() == ["FinishEvents"]
    assert names(disk, "journal", EVENTS) == []
    assert raw.chores() == []
    raw.clock.us += 2_000_000
    assert raw.chores() == ["FinishEvents"]
    assert names(disk, "journal", EVENTS) == [1]


# -- leaving and deleting ----------------------------------------------------------------------------------------------
def test_a_segment_is_archived_once_its_leaving_is_synced(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    grow(raw, 3)
    raw.chores()
    raw.journal.leave(1, b"summary")
    assert raw.chores() == []
    raw.sync()
    assert raw.chores() == ["Archive"]
    assert names(disk, "journal", ".seg") == [2, 3]
    assert names(disk, "archive", ".seg") == names(disk, "archive", EVENTS) == [1]


def test_archiving_can_be_cut_short_anywhere(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    grow(raw, 3)
    raw.chores()
    leave(raw, 1)
    kept = raw.replay.payloads
    disk.errors[disk.steps + 1] = errno.ENOSPC
    assert raw.chores() == ["Archive"]
    assert names(disk, "journal", ".seg") == [1, 2, 3]
    after = disk.after_kill()
    again = Raw(after)
    assert again.replay.payloads[: len(kept)] == kept
    again.chores()
    assert names(after, "archive", ".seg") == names(after, "archive", EVENTS) == [1]
    raw.clock.us += 2_000_000
    assert raw.chores() == ["Archive"]
    assert names(disk, "archive", ".seg") == names(disk, "archive", EVENTS) == [1]


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_the_archive_is_bounded_by_size(disk: FaultyDisk, kept: int) -> None:
    options = replace(OPTIONS, archive_bytes_max=kept * 17_000)
    raw = Raw(disk, options=options)
    grow(raw, 5)
    raw.chores()
    leave(raw, 1, 2, 3, 4)
    for _ in range(20):
        raw.chores()
        if raw.journal.pending:
            raw.sync()
    assert names(disk, "archive", ".seg") == [1, 2, 3, 4][4 - kept :]
    assert names(disk, "archive", STUB) == [1, 2, 3, 4][: 4 - kept]
    # Each deletion is on record, with the link of the chain that went with it.
    records = Raw(disk.after_kill(), options=options).replay.records
    deleted = [DeletedSegment.decode(record.meta) for record in records if record.kind == StoreKind.DELETED]
    assert [gone.number for gone in deleted] == [1, 2, 3, 4][: 4 - kept]
    assert all(gone.sealed_us > gone.created_us > 0 and gone.sha256 != bytes(32) for gone in deleted)


def test_the_archive_is_bounded_by_age(disk: FaultyDisk) -> None:
    raw = Raw(disk, options=replace(OPTIONS, archive_age_max_s=100))
    grow(raw, 4)
    raw.chores()
    leave(raw, 1, 2)
    raw.chores()
    assert names(disk, "archive", ".seg") == [1, 2]
    raw.clock.us += 101_000_000
    for _ in range(4):
        raw.chores()
        if raw.journal.pending:
            raw.sync()
    assert names(disk, "archive", ".seg") == []


AHEAD_US = 365 * 86_400_000_000


def corrected(raw: Raw, disk: FaultyDisk, options: JournalOptions, started: bool) -> tuple[Raw, FaultyDisk]:
    """The clock is right again: while it runs, or before the next start."""
    raw.clock.ahead_us = 0
    if started:
        disk = disk.after_kill()
        raw = Raw(disk, options=options, clock=raw.clock, erasing=blank)
    raw.chores()
    return raw, disk


@pytest.mark.parametrize("started", [False, True])
def test_a_clock_that_was_ahead_keeps_nothing_in_the_archive(disk: FaultyDisk, started: bool) -> None:
    """Only the oldest may leave: with a segment that is of next year, nothing did for a year."""
    options = replace(OPTIONS, archive_age_max_s=100)
    raw = Raw(disk, options=options)
    raw.clock.ahead_us = AHEAD_US
    grow(raw, 3)
    raw, disk = corrected(raw, disk, options, started)
    grow(raw, 6)
    leave(raw, 1, 2, 3, 4)
    run_chores(raw)
    assert names(disk, "archive", ".seg") == [1, 2, 3, 4]
    raw.clock.us += 101_000_000
    run_chores(raw, 12)
    assert names(disk, "archive", ".seg") == []


def test_segments_are_looked_through_once_they_change(disk: FaultyDisk) -> None:
    """It is asked at the end of every turn: with 2,300 segments that took half a millisecond."""

    looks: list[object] = []

    class Counted(tuple[SegmentInfo, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[SegmentInfo]:
            looks.append(self)
            return super().__iter__()

    raw = Raw(disk)
    grow(raw, 4)
    raw.chores()
    leave(raw, 1, 2)
    raw.chores()
    catalog = raw.journal._catalog
    for _ in range(2):
        catalog.segments = Counted(tuple(catalog.segments))
        looks.clear()
        for _ in range(10):
            assert raw.journal.take_chore() is None
        assert len(looks) == 1


def test_nothing_is_deleted_before_the_record_of_it_is_synced(disk: FaultyDisk) -> None:
    raw = Raw(disk, options=replace(OPTIONS, archive_bytes_max=0))
    grow(raw, 3)
    raw.chores()
    leave(raw, 1)
    assert raw.chores() == ["Archive", "ReadDeletion"]
    assert names(disk, "archive", ".seg") == [1]
    raw.sync()
    assert raw.chores() == ["Delete"]
    assert names(disk, "archive", ".seg") == []


def test_a_deletion_on_record_is_finished_by_the_next_process(disk: FaultyDisk) -> None:
    raw = Raw(disk, options=replace(OPTIONS, archive_bytes_max=0))
    grow(raw, 3)
    raw.chores()
    leave(raw, 1)
    raw.chores()
    raw.sync()
    after = disk.after_kill()
    again = Raw(after)
    assert "Delete" in again.chores()
    assert names(after, "archive", ".seg") == []
    assert names(after, "archive", STUB) == [1]


def test_a_stub_is_header_and_seal(disk: FaultyDisk) -> None:
    raw = Raw(disk, options=replace(OPTIONS, archive_bytes_max=0))
    grow(raw, 3)
    raw.chores()
    summary = raw.journal.read_seal(1)
    leave(raw, 1)
    raw.chores()
    raw.sync()
    raw.chores()
    stub = bytes(disk.content(DATA / "archive" / f"{1:020}{STUB}"))
    assert SegmentHeader.decode(stub[:HEADER_BYTES], "stub").number == 1
    seal = decode_seal(stub[HEADER_BYTES:])
    assert seal is not None
    assert seal.summary == summary


def test_stubs_are_bounded(disk: FaultyDisk) -> None:
    raw = Raw(disk, options=replace(OPTIONS, archive_bytes_max=0, stubs_max=2))
    grow(raw, 6)
    raw.chores()
    leave(raw, 1, 2, 3, 4)
    for _ in range(20):
        raw.chores()
        if raw.journal.pending:
            raw.sync()
    assert names(disk, "archive", STUB) == [3, 4]


def test_a_full_disk_while_deleting_is_tried_again(disk: FaultyDisk) -> None:
    raw = Raw(disk, options=replace(OPTIONS, archive_bytes_max=0))
    grow(raw, 3)
    raw.chores()
    leave(raw, 1)
    raw.chores()
    raw.sync()
    stub, removal = disk.steps, disk.steps + 5
    disk.errors[removal] = errno.ENOSPC
    assert raw.chores() == ["Delete"]
    assert disk.steps > removal > stub
    assert names(disk, "archive", ".seg") == [1]
    raw.clock.us += 2_000_000
    assert raw.chores() == ["Delete"]
    assert names(disk, "archive", ".seg") == []
    assert names(disk, "archive", STUB) == [1]


def test_without_room_for_a_stub_there_is_none(disk: FaultyDisk) -> None:
    """The segment goes all the same, or a full disk could never get rid of anything."""
    raw = Raw(disk, options=replace(OPTIONS, archive_bytes_max=0))
    grow(raw, 3)
    raw.chores()
    leave(raw, 1)
    raw.chores()
    raw.sync()
    disk.capacity_bytes = 0
    assert raw.chores() == ["Delete"]
    assert names(disk, "archive", ".seg") == names(disk, "archive", STUB) == []


def chore_names(raw: Raw, most: int = 5) -> list[str]:
    """Do what is due, as the broker does: StoreFull leaves it undone."""
    done: list[str] = []
    while len(done) < most and (chore := raw.journal.take_chore()) is not None:
        with contextlib.suppress(StoreFull):
            chore.run()
        raw.journal.complete_chore(chore)
        done.append(type(chore).__name__)
    return done


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_housekeeping_waits_while_no_file_can_be_opened(disk: FaultyDisk, code: int) -> None:
    """Whatever is due then is due again when there are descriptors; and nothing is deleted for want of them."""
    options = replace(ERASING, archive_age_max_s=300)
    raw, _ = archived(disk, options)

    def starve(chore: str) -> None:
        disk.unopened = code
        assert chore_names(raw) in ([chore], [chore, chore]), "not round and round"
        raw.clock.us += 2_000_000
        disk.unopened = None
        assert names(disk, "archive", ".seg") == [1, 2]

    disk.unopened = code
    assert raw.journal._reserve.take() is not None
    starve("Prewrite")
    raw.chores()
    leave(raw, 3)
    starve("Archive")
    raw.chores()
    names_before = names(disk, "archive", ".seg")
    assert names_before == [1, 2, 3]
    raw.clock.us += 301_000_000
    disk.unopened = code
    assert chore_names(raw) == ["ReadDeletion"]
    disk.unopened = None
    run_chores(raw, 12)
    assert names(disk, "archive", ".seg") == []
    assert names(disk, "archive", STUB) == [1, 2, 3]
    assert raw.journal.failure is None


@pytest.mark.parametrize("meets", ["stub", "folder", "folder of a full disk"])
def test_a_deletion_goes_on_where_something_could_not_be_opened(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, meets: str
) -> None:
    """Its stub is not left out; and its segment may be gone already at the next try."""
    raw, _ = archived(disk, replace(ERASING, archive_age_max_s=300))
    raw.clock.us += 301_000_000
    assert chore_names(raw) == ["ReadDeletion"]
    raw.sync()
    remove = disk.remove

    def removed(path: Path) -> None:
        remove(path)
        if path.suffix == ".seg":
            disk.unopened = errno.EMFILE

    if meets == "stub":
        disk.unopened = errno.EMFILE
    else:
        monkeypatch.setattr(disk, "remove", removed)
    if meets == "folder of a full disk":
        disk.errors[disk.steps] = errno.ENOSPC  # which leaves no stub
    assert chore_names(raw) == ["Delete"]
    monkeypatch.undo()
    disk.unopened = None
    assert names(disk, "archive", ".seg") == ([1, 2] if meets == "stub" else [2])
    run_chores(raw, 12)
    assert names(disk, "archive", ".seg") == []
    assert names(disk, "archive", STUB) == ([2] if meets == "folder of a full disk" else [1, 2])


@pytest.mark.parametrize("yields", [True, False])
def test_the_archive_gives_way_to_messages_if_it_may(disk: FaultyDisk, yields: bool) -> None:
    raw = Raw(disk, options=replace(OPTIONS, archive_bytes_max=1 << 40, archive_yields=yields))
    grow(raw, 6)
    raw.chores()
    leave(raw, 1, 2, 3)
    raw.chores()
    assert names(disk, "archive", ".seg") == [1, 2, 3]
    disk.capacity_bytes = disk.used_bytes
    for _ in range(14):
        raw.clock.us += 2_000_000
        with contextlib.suppress(StoreFull):
            raw.put(bytes(1500))
        raw.chores()
    assert raw.journal.full is not yields
    assert (names(disk, "archive", ".seg") == [1, 2, 3]) is not yields


PLACES = {"header": (1, 0, 512), "middle": (1, 5000, 5512), "seal": (1, -512, None), "successor": (2, 0, 512)}
"""Number of an archived segment, and bytes of it."""


def flip(disk: FaultyDisk, path: Path, start: int, stop: int | None) -> None:
    disk.content(path)[50 if start == 0 else start if start > 0 else -1] ^= 1


def lose(disk: FaultyDisk, path: Path, start: int, stop: int | None) -> None:
    size = len(disk.content(path))
    disk.lose(path, start % size, size if stop is None else stop)


def refuse(disk: FaultyDisk, path: Path, start: int, stop: int | None) -> None:
    disk.refused[path] = errno.EACCES


def take_away(disk: FaultyDisk, path: Path, start: int, stop: int | None) -> None:
    disk.delete(path)


HARMS = (flip, lose, refuse, take_away)
Harm = Callable[[FaultyDisk, Path, int, int | None], None]


def warned(caplog: pytest.LogCaptureFixture) -> list[int]:
    """The numbers of the segments that the log says are damaged."""
    said = [record for record in caplog.records if "segment of the archive is damaged" in record.getMessage()]
    return [record.__dict__["segment"] for record in said]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("place", PLACES)
def test_damage_in_the_archive_stops_nobody(disk: FaultyDisk, place: str, harm: Harm) -> None:
    options = replace(OPTIONS, archive_bytes_max=0)
    raw = Raw(disk, options=options)
    grow(raw, 4)
    raw.chores()
    leave(raw, 1, 2)
    assert raw.chores(2) == ["Archive", "Archive"]
    disk.delete(DATA / "archive" / f"{1:020}{EVENTS}")
    number, start, stop = PLACES[place]
    harm(disk, DATA / "archive" / f"{number:020}.seg", start, stop)
    after = disk.after_kill()
    after.refused = dict(disk.refused)
    again = Raw(after, options=options)
    for journal in (raw, again):
        for _ in range(6):
            journal.chores()
            if journal.journal.pending:
                journal.sync()
    assert names(disk, "archive", ".seg") == []
    assert [DeletedSegment.decode(record.meta).number for record in deletions(disk)] == [1, 2]


def deletions(disk: FaultyDisk) -> list[Record]:
    return [record for record in Raw(disk.after_kill()).replay.records if record.kind == StoreKind.DELETED]


def deleting(disk: FaultyDisk) -> Raw:
    """Two archived segments, of which the first is to be deleted."""
    raw = Raw(disk, options=replace(OPTIONS, archive_bytes_max=17_000))
    grow(raw, 4)
    raw.chores()
    leave(raw, 1, 2)
    assert raw.chores(2) == ["Archive", "Archive"]
    return raw


@pytest.mark.parametrize("harm", [lose, refuse, take_away])
def test_what_cannot_be_read_is_deleted_with_what_is_known(
    disk: FaultyDisk, caplog: pytest.LogCaptureFixture, harm: Harm
) -> None:
    raw = deleting(disk)
    chain = SegmentHeader.decode(bytes(archive(disk, 2))[:HEADER_BYTES], "")
    harm(disk, DATA / "archive" / f"{1:020}.seg", 0, None)
    assert raw.chores() == ["ReadDeletion"]
    raw.sync()
    assert raw.chores() == ["Delete"]
    assert names(disk, "archive", ".seg") == [2] and names(disk, "archive", STUB) == []
    [record] = deletions(disk)
    deleted = DeletedSegment.decode(record.meta)
    assert (deleted.sha256, deleted.valid_bytes) == (chain.previous_sha256, chain.previous_length)
    assert deleted.created_us == 0
    assert warned(caplog) == [1], "once, though three have tried"


def test_a_deletion_whose_hash_cannot_be_read_names_none(disk: FaultyDisk) -> None:
    raw = deleting(disk)
    disk.lose(DATA / "archive" / f"{2:020}.seg", 0, 512)
    assert raw.chores() == ["ReadDeletion"]
    raw.sync()
    [record] = deletions(disk)
    assert DeletedSegment.decode(record.meta).sha256 == NO_HASH


@pytest.mark.parametrize("harm", [lose, refuse, take_away])
@pytest.mark.parametrize("place", ["header", "middle", "seal"])
def test_what_cannot_be_read_has_no_side_file(disk: FaultyDisk, harm: Harm, place: str) -> None:
    raw, _ = archived(disk)
    disk.delete(DATA / "archive" / f"{1:020}{EVENTS}")
    path = DATA / "archive" / f"{1:020}.seg"
    raw.journal._housekeeper._finished.append(Sealed(1, b"", -1))
    harm(disk, path, *PLACES[place][1:])
    assert raw.chores() == ["FinishEvents"]
    assert names(disk, "archive", EVENTS) == [2]
    assert not [path for path in disk.paths() if path.name.endswith(".part") and path.parent.name == "archive"]


def test_a_journal_that_cannot_be_read_gets_no_such_mercy(disk: FaultyDisk) -> None:
    """A segment of `journal/` is needed: who cannot read it says so."""
    raw = Raw(disk)
    grow(raw, 3)
    raw.chores()
    raw.journal._housekeeper._finished.append(Sealed(1, b"", -1))
    disk.lose(DATA / "journal" / f"{1:020}.seg", 5000, 5512)
    with pytest.raises(StoreFailed, match="Input/output error"):
        raw.chores()


def test_the_header_of_a_successor_in_the_journal_gets_none_either(disk: FaultyDisk) -> None:
    raw = Raw(disk, options=replace(OPTIONS, archive_bytes_max=0))
    grow(raw, 3)
    raw.chores()
    leave(raw, 1)
    assert raw.chores(1) == ["Archive"]
    disk.lose(DATA / "journal" / f"{2:020}.seg", 0, 512)
    with pytest.raises(StoreFailed, match="Input/output error"):
        raw.chores()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM])
def test_a_process_without_room_says_nothing_of_a_file(disk: FaultyDisk, code: int) -> None:
    raw = deleting(disk)
    disk.refused[DATA / "archive" / f"{1:020}.seg"] = code
    with pytest.raises(StoreFailed):
        raw.chores()


@pytest.mark.parametrize("due", ["Erase", "Delete", "FinishEvents"])
def test_what_cannot_be_written_to_the_archive_is_told(disk: FaultyDisk, due: str) -> None:
    """Only the reading there is forgiven."""
    raw = archived(disk)[0] if due != "Delete" else deleting(disk)
    if due == "Delete":
        assert raw.chores() == ["ReadDeletion"]
        raw.sync()
    elif due == "Erase":
        raw.clock.us += 51_000_000
    else:
        raw.journal._housekeeper._finished.append(Sealed(1, b"", -1))
    chore = raw.journal.take_chore()
    assert type(chore).__name__ == due and chore is not None
    disk.errors[disk.steps] = errno.EIO
    with pytest.raises(StoreFailed, match="Input/output error"):
        chore.run()


# -- erasing -----------------------------------------------------------------------------------------------------------
ERASING = replace(OPTIONS, erase_bodies_after_s=100)
BODY = b"somebody's own words " * 20


def blank(record: Record) -> bytes | None:
    return bytes(len(record.meta)) if record.kind == 5 else None


def archived(
    disk: FaultyDisk, options: JournalOptions = ERASING, clock: Clock | None = None
) -> tuple[Raw, list[Position]]:
    """Two archived segments with bodies in them, a little too young to be erased, and where these are."""
    raw = Raw(disk, options=options, clock=clock, erasing=blank)
    positions = []
    while sum(not info.archived for info in raw.journal.segments) < 4:
        positions += raw.put(BODY, BODY[::-1])
    raw.append(b"not a message", kind=9)
    raw.chores()
    leave(raw, 1, 2)
    assert raw.chores()[-1] == "Archive"
    return raw, positions


def run_chores(raw: Raw, rounds: int = 6) -> list[str]:
    done = []
    for _ in range(rounds):
        raw.clock.us += 2_000_000
        done += raw.chores()
        if raw.journal.pending:
            raw.sync()
    return done


def archive(disk: FaultyDisk, number: int) -> bytearray:
    return disk.content(DATA / "archive" / f"{number:020}.seg")


def test_bodies_are_erased_once_that_is_on_record(disk: FaultyDisk) -> None:
    raw, positions = archived(disk)
    before = {number: bytes(archive(disk, number)) for number in (1, 2)}
    raw.clock.us += 51_000_000
    assert raw.chores() == ["Erase"]
    assert archive(disk, 1) == before[1], "its record is not synced"
    assert raw.journal.read(positions[0], 8192).payload == BODY
    raw.sync()
    assert raw.chores() == ["Replace"], "the next one not before retry_ms have passed"
    assert run_chores(raw) == ["Erase", "Replace"]
    for number in (1, 2):
        found = bytes(archive(disk, number))
        header = SegmentHeader.decode(found[:HEADER_BYTES], "")
        assert header.original_sha256 == hashlib.sha256(before[number]).digest() and header.erased
        assert len(found) == len(before[number]) and BODY[:8] not in found and BODY[::-1][:8] not in found
    with pytest.raises(KeyError, match="erased"):
        raw.journal.read(positions[0])
    assert raw.journal.read_payloads(positions[:2], [4096, 4096]) == [None, None]
    recorded = [ErasedSegment.decode(one.meta) for one in Raw(disk.after_kill()).replay.records if one.kind == 242]
    assert [one.number for one in recorded] == [1, 2]
    assert {one.original_sha256 for one in recorded} == {hashlib.sha256(one).digest() for one in before.values()}


@pytest.mark.parametrize("started", [False, True])
def test_a_clock_that_was_ahead_keeps_no_body(disk: FaultyDisk, started: bool) -> None:
    clock = Clock()
    clock.ahead_us = AHEAD_US
    raw, disk = corrected(archived(disk, clock=clock)[0], disk, ERASING, started)
    assert raw.chores() == []
    clock.us += 51_000_000
    assert run_chores(raw).count("Replace") == 2
    assert all(BODY[:8] not in archive(disk, number) for number in (1, 2))


def test_an_erased_segment_has_its_records_and_events(disk: FaultyDisk) -> None:
    raw, _ = archived(disk)
    with SegmentReader(disk, DATA / "archive" / f"{1:020}.seg", hashing=True) as segment:
        kept = [record for head, data in segment.batches() for record in walk(head, data)]
        sha256 = segment.chained_sha256
    raw.clock.us += 51_000_000
    run_chores(raw)
    disk.delete(DATA / "archive" / f"{1:020}{EVENTS}")
    again = disk.after_kill()
    assert "FinishEvents" in Raw(again).chores()
    side_file = EventsHeader.decode(bytes(again.content(DATA / "archive" / f"{1:020}{EVENTS}"))[:EVENTS_HEADER_BYTES])
    assert side_file is not None and side_file.sha256 == sha256
    with SegmentReader(disk, DATA / "archive" / f"{1:020}.seg", hashing=True) as segment:
        for head, data in segment.batches():
            check_records(head, data)
            for now in walk(head, data):
                was = kept.pop(0)
                if was.kind == 5:
                    was = was._replace(
                        flags=was.flags | ERASED, meta=bytes(len(was.meta)), payload=bytes(len(was.payload))
                    )
                assert now == was
        assert segment.chained_sha256 == sha256 and not kept


def test_what_is_erased_stays_so(disk: FaultyDisk) -> None:
    raw, _ = archived(disk)
    raw.clock.us += 51_000_000
    run_chores(raw)
    before = bytes(archive(disk, 1))
    again = Raw(disk.after_kill(), options=ERASING, clock=raw.clock, erasing=blank)
    assert not {"Erase", "Replace"} & set(run_chores(again))
    assert archive(disk, 1) == before


@pytest.mark.parametrize("chores", [1, 2])
def test_erasing_that_was_cut_short_is_done_again(disk: FaultyDisk, chores: int) -> None:
    raw, _ = archived(disk)
    raw.clock.us += 51_000_000
    assert raw.chores(1) == ["Erase"]
    if chores == 2:
        raw.sync()
    again = disk.after_kill()
    next_run = Raw(again, options=ERASING, clock=raw.clock, erasing=blank)
    assert not [path for path in again.paths() if path.name.endswith(".seg.part")]
    assert run_chores(next_run).count("Replace") == 2
    assert BODY[:8] not in bytes(archive(again, 1))


@pytest.mark.parametrize("harm", [flip, lose])
@pytest.mark.parametrize("place", ["header", "middle", "seal"])
def test_damage_is_not_erased_and_does_not_hold_up_others(
    disk: FaultyDisk, caplog: pytest.LogCaptureFixture, place: str, harm: Harm
) -> None:
    raw, _ = archived(disk)
    harm(disk, DATA / "archive" / f"{1:020}.seg", *PLACES[place][1:])
    before = bytes(archive(disk, 1))
    raw.clock.us += 51_000_000
    done = run_chores(raw)
    assert (done.count("Erase"), done.count("Replace")) == (2, 1)
    assert archive(disk, 1) == before and BODY[:8] not in bytes(archive(disk, 2))
    assert warned(caplog) == [1]


@pytest.mark.parametrize("harm", [refuse, take_away])
def test_a_segment_that_cannot_be_opened_is_not_erased(disk: FaultyDisk, harm: Harm) -> None:
    raw, _ = archived(disk)
    harm(disk, DATA / "archive" / f"{1:020}.seg", 0, None)
    raw.clock.us += 51_000_000
    assert run_chores(raw).count("Replace") == 1


def test_a_full_disk_erases_later(disk: FaultyDisk) -> None:
    raw, _ = archived(disk, replace(ERASING, archive_yields=False))
    raw.clock.us += 51_000_000
    disk.capacity_bytes = disk.used_bytes
    assert raw.chores() == ["Erase"]
    assert raw.chores() == [] and not raw.journal.pending
    disk.capacity_bytes = None
    assert "Erase" not in run_chores(raw), "room is for postings first"
    raw.clock.us += 60_000_000
    assert run_chores(raw).count("Replace") == 2


def test_what_somebody_removed_before_it_was_in_place_is_written_again(disk: FaultyDisk) -> None:
    raw, _ = archived(disk)
    raw.clock.us += 51_000_000
    assert raw.chores() == ["Erase"]
    raw.sync()
    disk.delete(DATA / "archive" / f"{1:020}.seg.part")
    assert raw.chores(1) == ["Replace"]
    assert BODY[:8] in bytes(archive(disk, 1))
    assert run_chores(raw).count("Replace") == 2
    assert BODY[:8] not in bytes(archive(disk, 1))


def test_nothing_is_erased_while_room_is_wanting(disk: FaultyDisk) -> None:
    raw, _ = archived(disk, replace(ERASING, archive_yields=False))
    raw.journal._reserve.disk_full = True
    raw.clock.us += 51_000_000
    disk.capacity_bytes = disk.used_bytes
    assert "Erase" not in raw.chores()


def test_what_is_deleted_meanwhile_stays_deleted(disk: FaultyDisk) -> None:
    raw, _ = archived(disk, replace(ERASING, archive_age_max_s=60))
    raw.clock.us += 59_000_000
    assert raw.chores() == ["Erase"]
    raw.clock.us += 2_000_000
    assert raw.chores() == ["ReadDeletion"]
    raw.sync()
    assert "Delete" in run_chores(raw)
    assert names(disk, "archive", ".seg") == []
    assert not [path for path in disk.paths() if path.name.endswith(".part") and path.parent.name == "archive"]

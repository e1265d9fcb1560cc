"""The hash chain, and what it shows."""

from __future__ import annotations

import errno
import hashlib
import random
import threading
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest

from acquit.errors import ConfigurationError, StoreCorrupt, StoreError
from acquit.ledger.verify import Head, SegmentPlace, read_head, verify
from acquit.store.folder import EVENTS, STUB
from acquit.store.interface import ERASED
from acquit.store.record import BATCH_HEAD_BYTES, decode_batch_head, encode_batch_head, walk
from acquit.store.scan import SegmentReader
from acquit.store.segment import HEADER_BYTES, SegmentHeader
from acquit.testing.simulation.disk import FaultyDisk
from tests.support.mini_broker import DATA, SMALL, Clock, History, MiniBroker, with_empty_segments
from tests.support.raw_journal import Raw


def grown(archive_bytes_max: int = 1 << 30, left: int = 4) -> FaultyDisk:
    """A folder with archived, closed and open segments; with a small archive, deleted ones too."""
    options = replace(SMALL, archive_bytes_max=archive_bytes_max)
    truth, clock, rng = History(), Clock(), random.Random(9)
    disk = FaultyDisk()
    broker = MiniBroker(disk, rng, truth=truth, clock=clock, options=options)
    while broker.journal.left_through < left:
        broker.live_on(1, sync=1.0, chores=0.9)
        broker.checkpoint(5)
    for _ in range(4):
        broker.sync()
        broker.chores()
    broker.close()
    broker = MiniBroker(disk, rng, truth=truth, clock=clock, options=options)
    for _ in range(4):
        broker.post(min(broker.queues), b"open")
        broker.sync()
        broker.chores()
    return disk.after_kill()


def seg(disk: FaultyDisk, number: int, suffix: str = ".seg") -> bytearray:
    for folder in ("journal", "archive"):
        path = DATA / folder / f"{number:020}{suffix}"
        if path in disk.paths():
            return disk.content(path)
    raise KeyError(number)


def remove(disk: FaultyDisk, number: int, suffix: str = ".seg") -> None:
    for folder in ("journal", "archive"):
        path = DATA / folder / f"{number:020}{suffix}"
        if path in disk.paths():
            disk.delete(path)


def test_a_whole_journal() -> None:
    disk = grown()
    progress: list[tuple[int, int]] = []
    found = verify(DATA, disk=disk, progress=lambda done, total: progress.append((done, total)))
    assert found.problems == ()
    places = [link.place for link in found.links]
    assert places.count(SegmentPlace.ARCHIVE) == 4
    assert set(places) == {SegmentPlace.ARCHIVE, SegmentPlace.JOURNAL}
    assert [link.number for link in found.links] == list(range(1, len(places) + 1))
    assert progress[-1] == (len(places), len(places))
    assert sum(link.events for link in found.links) > 50


def rewrite_a_record(disk: FaultyDisk, number: int, *, mend: bool = True) -> None:
    """Somebody changes a byte of a record and mends the checksums of record (if told to) and batch."""
    content = seg(disk, number)
    offset = HEADER_BYTES
    head = decode_batch_head(bytes(content[offset : offset + 64]))
    assert head is not None
    batch = bytearray(content[offset : offset + head.length])
    *_, last = walk(head, bytes(batch))
    start, meta_end = last.position - head.position, last.position - head.position + 64 + len(last.meta)
    batch[BATCH_HEAD_BYTES + head.body_bytes - 1] ^= 1
    if mend:
        crc = crc32(batch[start + 4 : meta_end], crc32(batch[meta_end : meta_end + last.payload_bytes]))
        batch[start : start + 4] = crc.to_bytes(4, "little")
    batch[:64] = encode_batch_head(
        length=head.length,
        records=head.records,
        epoch=head.epoch,
        position=head.position,
        synced_end=head.synced_end,
        time_us=head.time_us,
        body_bytes=head.body_bytes,
        body_crc=crc32(batch[64:]),
    )
    content[offset : offset + head.length] = batch


@pytest.mark.parametrize("number", [2, 5])
def test_an_altered_segment_with_mended_checksums(number: int) -> None:
    disk = grown()
    rewrite_a_record(disk, number)
    found = verify(DATA, disk=disk)
    assert f"segment {number}: altered: not what its successor says of it" in found.problems


def test_a_records_own_checksum() -> None:
    disk = grown()
    newest = read_head(DATA, disk=disk).number
    rewrite_a_record(disk, newest, mend=False)
    assert any("the checksum of the record at position" in problem for problem in verify(DATA, disk=disk).problems)


@pytest.mark.promise("missing")
@pytest.mark.parametrize("number", [2, 5])
def test_a_missing_segment_is_a_gap(number: int) -> None:
    disk = grown()
    remove(disk, number)
    found = verify(DATA, disk=disk)
    assert found.links[number - 1].place is SegmentPlace.GAP
    assert f"segment {number}: missing, and no record says that retention deleted it" in found.problems


def test_the_oldest_missing_is_a_gap_too() -> None:
    disk = grown()
    remove(disk, 1)
    assert verify(DATA, disk=disk).links[0].place is SegmentPlace.GAP


def test_a_segment_put_in_anothers_place() -> None:
    disk = grown()
    seg(disk, 2)[:] = seg(disk, 3)
    problems = verify(DATA, disk=disk).problems
    assert "segment 2: its header is that of segment 3" in problems


def test_a_segment_of_another_store() -> None:
    disk, other = grown(), grown()
    seg(disk, 2)[:] = seg(other, 2)
    assert any(problem.startswith("segment 2: it belongs to store") for problem in verify(DATA, disk=disk).problems)


def test_damage_is_named_with_its_place() -> None:
    disk = grown()
    seg(disk, 2)[HEADER_BYTES + 70] ^= 1
    problems = verify(DATA, disk=disk).problems
    assert any("segment 2: " in problem and f"offset {HEADER_BYTES}" in problem for problem in problems)


def test_what_retention_deleted_is_no_gap() -> None:
    disk = grown(archive_bytes_max=70_000)
    found = verify(DATA, disk=disk)
    assert found.problems == ()
    assert found.links[0].place is SegmentPlace.STUB
    assert found.links[0].number == 1
    remove(disk, 1, STUB)
    remove(disk, 2, STUB)
    found = verify(DATA, disk=disk)
    assert found.problems == ()
    assert all(link.number > 1 for link in found.links)


def test_a_stub_missing_between_stubs() -> None:
    disk = grown(archive_bytes_max=0)
    remove(disk, 2, STUB)
    found = verify(DATA, disk=disk)
    assert found.problems == ()
    assert found.links[1].place is SegmentPlace.DELETED


def test_a_spoiled_stub() -> None:
    disk = grown(archive_bytes_max=0)
    seg(disk, 2, STUB)[HEADER_BYTES + 100] ^= 1
    assert "segment 2: the seal in its stub does not match its checksum" in verify(DATA, disk=disk).problems
    disk = grown(archive_bytes_max=0)
    seg(disk, 2, STUB)[100] ^= 1
    assert any("segment 2: " in problem and "checksum" in problem for problem in verify(DATA, disk=disk).problems)


def test_a_side_file_of_another_segment() -> None:
    disk = grown()
    seg(disk, 2, EVENTS)[:] = seg(disk, 3, EVENTS)
    assert any("segment 2: " in problem and "delete it" in problem for problem in verify(DATA, disk=disk).problems)


def test_a_side_file_with_other_events() -> None:
    disk = grown()
    seg(disk, 2, EVENTS)[200] ^= 1
    assert any("has other events than the segment" in problem for problem in verify(DATA, disk=disk).problems)


def test_a_journal_that_is_being_written_is_whole_at_every_moment() -> None:
    """The last batch is half there, then whole and followed by others, while somebody looks."""
    disk = grown()
    broker = MiniBroker(disk, random.Random(1))
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            broker.post(min(broker.queues), bytes(200))
            broker.sync()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        head = read_head(DATA, disk=disk)
        for _ in range(8):
            assert verify(DATA, disk=disk, against=[head]).problems == ()
    finally:
        stop.set()
        writer.join()


# -- what cannot be read -----------------------------------------------------------------------------------------------
def place_of(disk: FaultyDisk, number: int, suffix: str = ".seg") -> Path:
    return next(path for path in disk.paths() if path.name == f"{number:020}{suffix}")


@pytest.mark.parametrize("opens", [True, False])
def test_each_place_that_cannot_be_read_is_named(opens: bool) -> None:
    """In the archive and in the journal, and all others are verified."""
    disk = grown()
    for number in (2, 5):
        path = place_of(disk, number)
        if opens:
            disk.lose(path, 8_000, 8_512)
        else:
            disk.refused[path] = errno.EIO
    found = verify(DATA, disk=disk)
    second, fifth = found.problems
    assert second.startswith(f"segment 2: {DATA}/archive/{2:020}.seg, offset ")
    assert fifth.startswith(f"segment 5: {DATA}/journal/{5:020}.seg, offset ")
    assert second.endswith("cannot be read: Input/output error") and fifth.endswith(second[-20:])
    whole = [link for link in found.links if link.number not in (2, 5)]
    assert all(link.sha256 and not link.problems for link in whole) and len(whole) > 3
    assert found.head == read_head(DATA, disk=disk)


def test_a_newest_segment_that_cannot_be_read_leaves_the_head_before_it() -> None:
    disk = grown()
    newest = read_head(DATA, disk=disk).number
    disk.lose(place_of(disk, newest))
    found = verify(DATA, disk=disk)
    [problem] = found.problems
    assert problem.startswith(f"segment {newest}: ") and problem.endswith("cannot be read: Input/output error")
    assert (found.head.number, found.head.sha256) == (newest - 1, found.links[-2].sha256)
    with pytest.raises(StoreCorrupt, match="cannot be read"):
        read_head(DATA, disk=disk)
    assert verify(DATA, disk=grown(), against=[found.head]).problems != (), "of another store"
    disk.lose(place_of(disk, newest), 0, 0)
    assert verify(DATA, disk=disk, against=[found.head]).problems == ()


def test_a_newest_segment_whose_header_is_damaged_is_named_with_the_others() -> None:
    disk = grown()
    newest = read_head(DATA, disk=disk).number
    seg(disk, newest)[50] ^= 1
    seg(disk, 2)[9_000] ^= 1
    named = {problem.split(":")[0] for problem in verify(DATA, disk=disk).problems}
    assert named == {"segment 2", f"segment {newest}"}


def test_a_journal_of_one_segment_that_cannot_be_read() -> None:
    disk = FaultyDisk()
    Raw(disk).put(b"x")
    disk.lose(place_of(disk, 1))
    found = verify(DATA, disk=disk)
    assert (found.head.number, found.head.valid_bytes) == (0, 0)
    assert len(found.problems) == 1


@pytest.mark.parametrize("opens", [True, False])
def test_a_side_file_that_cannot_be_read(opens: bool) -> None:
    disk = grown()
    path = place_of(disk, 2, EVENTS)
    if opens:
        disk.lose(path, 128)
    else:
        disk.refused[path] = errno.EIO
    [problem] = verify(DATA, disk=disk).problems
    assert problem == (f"segment 2: {path}, offset 0: cannot be read: Input/output error; it is derived, delete it")


def test_a_stub_that_cannot_be_read() -> None:
    disk = grown(archive_bytes_max=0)
    path = next(path for path in disk.paths() if path.suffix == STUB)
    disk.lose(path)
    [problem] = verify(DATA, disk=disk).problems
    assert problem == f"segment {int(path.stem)}: {path}, offset 0: cannot be read: Input/output error"


def test_a_stub_that_retention_removes_meanwhile() -> None:
    disk = grown(archive_bytes_max=0)
    path = next(path for path in disk.paths() if path.suffix == STUB)
    disk.refused[path] = errno.ENOENT
    assert verify(DATA, disk=disk).problems == ()


def test_a_segment_that_retention_deletes_meanwhile() -> None:
    disk = grown()

    def delete(done: int, total: int) -> None:
        if done == 1:
            for number in (1, 2, 3):
                remove(disk, number)
                remove(disk, number, EVENTS)

    found = verify(DATA, disk=disk, progress=delete)
    assert found.problems == ()
    places = [link.place for link in found.links[:4]]
    assert places == [SegmentPlace.ARCHIVE, SegmentPlace.DELETED, SegmentPlace.DELETED, SegmentPlace.ARCHIVE]


def test_a_segment_that_somebody_removes_meanwhile() -> None:
    disk = grown()
    found = verify(DATA, disk=disk, progress=lambda done, total: remove(disk, 5) if done == 1 else None)
    assert "segment 5: segment 5 is not in /data" in found.problems


def test_a_segment_that_cannot_be_read_against_a_head_of_it() -> None:
    """It is read once more for that."""
    disk = grown()
    head = read_head(DATA, disk=disk)

    def lose(done: int, total: int) -> None:
        if done == total:
            disk.lose(place_of(disk, head.number), HEADER_BYTES)

    problems = verify(DATA, disk=disk, against=[head], progress=lose).problems
    assert any("cannot be read: Input/output error" in problem for problem in problems)


# -- heads -------------------------------------------------------------------------------------------------------------
def test_a_head_comes_back_from_its_text() -> None:
    head = read_head(DATA, disk=grown())
    assert Head.parse(str(head)) == head
    assert Head.parse(f" {head}\n") == head


@pytest.mark.parametrize("text", ["", "x", "a:b:c:d", "00112233-4455-6677-8899-aabbccddeeff:1:2:abcd"])
def test_what_is_no_head(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not the head of a journal"):
        Head.parse(text)


def test_a_head_is_still_in_a_journal_that_grew() -> None:
    disk = grown()
    head = read_head(DATA, disk=disk)
    broker = MiniBroker(disk, random.Random(1))
    broker.post(min(broker.queues), b"more")
    broker.close()
    assert verify(DATA, disk=disk, against=[head]).problems == ()


def test_a_rewrite_of_the_newest_segment_shows_against_a_head() -> None:
    disk = grown()
    head = read_head(DATA, disk=disk)
    rewrite_a_record(disk, head.number)
    assert verify(DATA, disk=disk).problems == (), "nothing in the folder itself shows this"
    problems = verify(DATA, disk=disk, against=[head]).problems
    assert problems == (f"segment {head.number} is not what it was when the head {head} was taken",)


def test_lost_newest_segments_show_against_a_head() -> None:
    disk = grown()
    head = read_head(DATA, disk=disk)
    remove(disk, head.number)
    assert verify(DATA, disk=disk).problems == (), "nothing in the folder itself shows this"
    assert "the newest are lost" in verify(DATA, disk=disk, against=[head]).problems[0]


def test_a_head_of_another_store() -> None:
    problems = verify(DATA, disk=grown(), against=[read_head(DATA, disk=grown())]).problems
    assert "is of another store" in problems[0]


def test_a_head_of_a_segment_that_is_deleted_by_now() -> None:
    disk = grown(archive_bytes_max=0)
    head = read_head(DATA, disk=disk)
    for number in (1, -1):
        old = Head(head.store, number, 5000, bytes(32))
        assert verify(DATA, disk=disk, against=[old]).problems == ()


def test_a_head_taken_while_a_batch_is_not_synced_stays_true() -> None:
    """It covers all but the last batch, which a power loss may yet take."""
    disk = grown()
    head = read_head(DATA, disk=disk)
    content = seg(disk, head.number)
    content[head.valid_bytes : head.valid_bytes + 4096] = bytes(4096)
    MiniBroker(disk, random.Random(1)).close()
    assert verify(DATA, disk=disk, against=[head]).problems == ()


def test_a_head_taken_of_a_run_that_ended_before_its_first_batch_stays_true() -> None:
    """Its segment is replaced by that of the next run: the head is the segment before it."""
    disk = grown()
    before = read_head(DATA, disk=disk)
    disk = with_empty_segments(disk, 0)
    head = read_head(DATA, disk=disk)
    assert head.number == before.number
    assert head.valid_bytes > before.valid_bytes, "it is closed now"
    broker = MiniBroker(disk, random.Random(1))
    assert broker.journal.segments[-1].number == head.number + 1
    broker.close()
    assert verify(DATA, disk=disk, against=[head]).problems == ()


def test_a_head_of_a_journal_without_a_batch() -> None:
    disk = FaultyDisk()
    Raw(disk)
    head = read_head(DATA, disk=disk)
    assert (head.number, head.valid_bytes) == (0, 0)
    MiniBroker(disk.after_kill(), random.Random(1)).close()
    assert verify(DATA, disk=disk, against=[head]).problems == ()


def test_the_stub_of_a_segment_whose_end_was_never_synced() -> None:
    """Earlier versions kept in it the zeros that a power loss had brought back behind the seal."""
    disk = grown(archive_bytes_max=0)
    stub = next(path for path in disk.paths() if path.suffix == ".stub")
    disk.content(stub).extend(bytes(20_000))
    assert verify(DATA, disk=disk).problems == ()


def test_no_journal() -> None:
    with pytest.raises(StoreError, match="not a data folder"):
        verify(DATA, disk=FaultyDisk())
    disk = grown(archive_bytes_max=0)
    for path in disk.paths():
        if path.suffix in {".seg", ".stub"}:
            disk.delete(path)
    with pytest.raises(StoreCorrupt, match="no segment"):
        verify(DATA, disk=disk)
    with pytest.raises(StoreCorrupt, match="no segment"):
        read_head(DATA, disk=disk)


# -- erased bodies -----------------------------------------------------------------------------------------------------
def erased() -> FaultyDisk:
    """As `grown`, and all that is archived has no bodies any more."""
    options = replace(SMALL, archive_bytes_max=1 << 30, erase_bodies_after_s=1)
    truth, clock, rng = History(), Clock(3_000), random.Random(9)
    disk = FaultyDisk()
    broker = MiniBroker(disk, rng, truth=truth, clock=clock, options=options)
    while broker.journal.left_through < 4:
        broker.live_on(1, sync=1.0, chores=0.9)
    for _ in range(40):
        clock.us += 600_000
        broker.sync()
        broker.chores()
    assert [info.erased for info in broker.journal.segments[:4]] == [True] * 4
    return disk.after_kill()


def test_a_journal_without_bodies_is_whole() -> None:
    disk = erased()
    found = verify(DATA, disk=disk)
    assert found.problems == ()
    assert [link.erased for link in found.links[:4]] == [True] * 4 and not found.links[-1].erased
    for link, after in zip(found.links[:4], found.links[1:5], strict=True):
        assert after.header is not None and link.sha256 == after.header.previous_sha256
    known = Head(found.store, 2, found.links[1].valid_bytes, found.links[1].sha256)
    assert verify(DATA, disk=disk, against=[known, replace(known, valid_bytes=5_000)]).problems == ()
    [problem] = verify(DATA, disk=disk, against=[replace(known, sha256=bytes(32))]).problems
    assert "is not what it was when the head" in problem


@pytest.mark.parametrize("mended", [False, True])
def test_what_was_altered_in_a_segment_without_bodies_is_seen(mended: bool) -> None:
    """Even if every checksum in the file is made right again: the record of the erasure names another one."""
    disk = erased()
    content = seg(disk, 2)
    head = decode_batch_head(bytes(content[HEADER_BYTES : HEADER_BYTES + BATCH_HEAD_BYTES]))
    assert head is not None
    batch = bytearray(content[HEADER_BYTES : HEADER_BYTES + head.length])
    posting = next(record for record in walk(head, bytes(batch)) if record.flags & ERASED)
    batch[posting.position - head.position + 16] ^= 1  # its sequence
    batch[4:8] = crc32(batch[8:64], crc32(batch[64:])).to_bytes(4, "little")
    content[HEADER_BYTES : HEADER_BYTES + head.length] = batch
    if mended:
        header = SegmentHeader.decode(bytes(content[:HEADER_BYTES]), "")
        with SegmentReader(disk, next(path for path in disk.paths() if path.name == f"{2:020}.seg")) as segment:
            for _ in segment.batches():
                pass
            valid = segment.offset
        sha256 = hashlib.sha256(content[HEADER_BYTES:valid]).digest()
        content[:HEADER_BYTES] = replace(header, content_sha256=sha256).encode()
    problems = [problem for problem in verify(DATA, disk=disk).problems if problem.startswith("segment 2:")]
    said = "erased, and no record says so" if mended else "altered: not what its successor says of it"
    assert any(said in problem for problem in problems), problems

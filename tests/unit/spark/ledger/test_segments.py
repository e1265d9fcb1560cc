"""Events of one segment: the same whichever way they are read, and none that the chain does not vouch for."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from acquit.errors import StoreCorrupt, StoreError
from acquit.ledger.events import pack_event
from acquit.ledger.records import without_body
from acquit.ledger.totals import HASH_MODULUS, message_hash
from acquit.spark.ledger.chain import Segment, SegmentState, plan_folder
from acquit.spark.ledger.options import Verify
from acquit.spark.ledger.segments import DTYPE, Details, entering, message_sum, read_events, retiring, sums_by
from acquit.store.archive import ArchiveReader
from acquit.store.chores import Erase, Replace
from acquit.store.disk import PosixDisk
from acquit.store.folder import EVENTS, Folder
from acquit.store.interface import Position, SegmentInfo
from acquit.store.record import BATCH_HEAD_BYTES, decode_batch_head, encode_batch_head
from acquit.store.segment import EVENTS_HEADER_BYTES, HEADER_BYTES
from tests.support.bad_sectors import lose_sectors
from tests.support.ledger_folder import LedgerFolder, grow


def packed(folder: LedgerFolder, number: int) -> bytes:
    return b"".join(pack_event(*event) for event in folder.events(number) if event.kind)


def planned(folder: LedgerFolder, number: int) -> Segment:
    return plan_folder(folder.path)[number - 1]


@pytest.mark.parametrize("verify", Verify)
def test_every_event_of_every_segment(tmp_path: Path, verify: Verify) -> None:
    folder = grow(tmp_path)
    for segment in plan_folder(tmp_path):
        events = read_events(segment, verify)
        assert len(events) > 3
        assert events.tobytes() == packed(folder, segment.number)


def erase(folder: LedgerFolder, segment: Segment) -> None:
    data = Folder(folder.path, PosixDisk())
    path = data.segment(segment.number)
    if path.exists():
        path.rename(data.segment(segment.number, archived=True))
    info = SegmentInfo(segment.number, Position(0), Position(0), segment.length, True, True, 1)
    for chore in (Erase(data, ArchiveReader(data), info, without_body), Replace(data, segment.number)):
        chore.run()


@pytest.mark.parametrize("verify", Verify)
def test_events_of_segments_without_bodies(tmp_path: Path, verify: Verify) -> None:
    folder = grow(tmp_path)
    expected = packed(folder, 2)
    erase(folder, planned(folder, 2))
    segment = planned(folder, 2)
    assert segment.header is not None and segment.header.erased
    details = Details()
    assert read_events(segment, verify).tobytes() == read_events(segment, verify, details).tobytes() == expected
    assert details.postings


def test_an_altered_byte_is_found_where_bodies_were_erased(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    erase(folder, planned(folder, 2))
    path = folder.path / "archive" / f"{2:020}.seg"
    content = bytearray(path.read_bytes())
    head = decode_batch_head(bytes(content[HEADER_BYTES : HEADER_BYTES + 64]))
    assert head is not None
    end = HEADER_BYTES + head.length
    content[HEADER_BYTES + BATCH_HEAD_BYTES + 40] ^= 1
    crc = crc32(content[HEADER_BYTES + 8 : HEADER_BYTES + 64], crc32(content[HEADER_BYTES + 64 : end]))
    content[HEADER_BYTES + 4 : HEADER_BYTES + 8] = crc.to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match="its checksums were mended"):
        read_events(planned(folder, 2), Verify.FULL)


def test_an_altered_byte_is_found_in_its_batch(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    content = folder.file(2).read_bytes()
    head = decode_batch_head(content[HEADER_BYTES : HEADER_BYTES + 64])
    assert head is not None
    second = HEADER_BYTES + head.length
    folder.flip(2, second + BATCH_HEAD_BYTES + 20)
    with pytest.raises(StoreCorrupt, match="segment 2: altered: a batch of .* does not match its checksum") as caught:
        read_events(planned(folder, 2), Verify.FULL)
    assert (caught.value.path, caught.value.offset) == (str(folder.file(2)), second)


def test_an_altered_byte_is_found_where_the_checksum_was_mended(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    content = bytearray(folder.file(2).read_bytes())
    head = decode_batch_head(bytes(content[HEADER_BYTES : HEADER_BYTES + 64]))
    assert head is not None
    end = HEADER_BYTES + head.length
    content[HEADER_BYTES + BATCH_HEAD_BYTES + 40] ^= 1
    content[HEADER_BYTES : HEADER_BYTES + 64] = encode_batch_head(
        length=head.length,
        records=head.records,
        epoch=head.epoch,
        position=head.position,
        synced_end=head.synced_end,
        time_us=head.time_us,
        body_bytes=head.body_bytes,
        body_crc=crc32(content[HEADER_BYTES + 64 : end]),
    )
    folder.file(2).write_bytes(content)
    with pytest.raises(StoreCorrupt, match="segment 2: altered: its SHA-256 is not what its successor says"):
        read_events(planned(folder, 2), Verify.FULL)


def test_a_segment_that_was_cut(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    segment = planned(folder, 2)
    content = folder.file(2).read_bytes()
    folder.file(2).write_bytes(content[: segment.seal_at])
    with pytest.raises(StoreCorrupt, match="segment 2: altered: a closed segment ends without its seal") as caught:
        read_events(segment, Verify.FULL)
    assert caught.value.offset == segment.seal_at


def test_quick_reads_the_side_file_alone(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    expected = packed(folder, 2)
    folder.flip(2, HEADER_BYTES + BATCH_HEAD_BYTES + 20)
    assert read_events(planned(folder, 2), Verify.QUICK).tobytes() == expected


def damage_nothing(folder: LedgerFolder, path: Path) -> None:
    path.unlink()


def damage_header(folder: LedgerFolder, path: Path) -> None:
    folder.flip(2, 30, EVENTS)


def damage_sequence(folder: LedgerFolder, path: Path) -> None:
    folder.flip(2, EVENTS_HEADER_BYTES + 48 * 2, EVENTS)


def damage_queue(folder: LedgerFolder, path: Path) -> None:
    folder.flip(2, EVENTS_HEADER_BYTES + 48 * 2 + 32, EVENTS)


def damage_kind(folder: LedgerFolder, path: Path) -> None:
    folder.flip(2, EVENTS_HEADER_BYTES + 48 * 2 + 40, EVENTS)


def damage_first_time(folder: LedgerFolder, path: Path) -> None:
    folder.flip(2, EVENTS_HEADER_BYTES + 23, EVENTS)


def damage_length(folder: LedgerFolder, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-48])


def of_another(folder: LedgerFolder, path: Path) -> None:
    shutil.copy(folder.file(3, EVENTS), path)


@pytest.mark.parametrize(
    "damage",
    [
        damage_nothing,
        damage_header,
        damage_sequence,
        damage_queue,
        damage_kind,
        damage_first_time,
        damage_length,
        of_another,
    ],
)
def test_a_side_file_that_is_not_this_segments_is_passed_over(tmp_path: Path, damage: object) -> None:
    folder = grow(tmp_path)
    assert callable(damage)
    damage(folder, folder.file(2, EVENTS))
    assert read_events(planned(folder, 2), Verify.QUICK).tobytes() == packed(folder, 2)
    folder.flip(2, HEADER_BYTES + BATCH_HEAD_BYTES + 20)
    with pytest.raises(StoreCorrupt, match="segment 2: altered"):
        read_events(planned(folder, 2), Verify.QUICK)


def test_a_side_file_that_cannot_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = grow(tmp_path)
    lose_sectors(monkeypatch, folder.file(2, EVENTS))
    assert read_events(planned(folder, 2), Verify.QUICK).tobytes() == packed(folder, 2)


@pytest.mark.parametrize("start", [0, HEADER_BYTES])
def test_a_segment_that_cannot_be_read_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int) -> None:
    folder = grow(tmp_path)
    segment = planned(folder, 2)
    lose_sectors(monkeypatch, folder.file(2), start)
    with pytest.raises(StoreCorrupt, match=rf"{2:020}.seg, offset {start}: cannot be read: Input/output error"):
        read_events(segment, Verify.FULL)


def test_a_torn_tail_is_not_read(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    newest = folder.newest
    whole = plan_folder(tmp_path)[-1]
    everything = packed(folder, newest)
    path = folder.file(newest)
    content = path.read_bytes()
    torn = bytearray(content)
    torn[whole.length - 512 + 70] ^= 1  # in the last batch
    path.write_bytes(torn)
    segment = plan_folder(tmp_path)[-1]
    events = read_events(segment, Verify.FULL)
    assert segment.length < whole.length
    assert 0 < len(events.tobytes()) < len(everything)
    assert everything.startswith(events.tobytes())
    # What is written after the planning is not of this read.
    path.write_bytes(content)
    assert read_events(segment, Verify.FULL).tobytes() == events.tobytes()


def test_the_newest_altered_between_planning_and_reading(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    segment = plan_folder(tmp_path)[-1]
    assert segment.state is SegmentState.OPEN
    folder.flip(folder.newest, HEADER_BYTES - 100)
    with pytest.raises(StoreError):
        read_events(segment, Verify.FULL)


def test_a_segment_moves_to_the_archive_or_goes(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    segment = next(segment for segment in plan_folder(tmp_path) if segment.state is SegmentState.CLOSED)
    expected = packed(folder, segment.number)
    moved = tmp_path / "archive" / segment.path.name
    segment.path.rename(moved)
    assert read_events(segment, Verify.FULL).tobytes() == expected
    moved.unlink()
    with pytest.raises(StoreError, match=f"segment {segment.number} of .* was deleted since the read was planned"):
        read_events(segment, Verify.FULL)


def test_a_segment_before_a_gap_is_held_to_its_own_checksums(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    folder.file(3).unlink()
    assert read_events(planned(folder, 2), Verify.QUICK).tobytes() == packed(folder, 2)
    folder.flip(2, HEADER_BYTES + BATCH_HEAD_BYTES + 20)
    with pytest.raises(StoreCorrupt, match="segment 2: altered"):
        read_events(planned(folder, 2), Verify.FULL)


def test_the_sum_is_that_of_the_ledger() -> None:
    rng = random.Random(4)
    events = np.zeros(1000, DTYPE)
    expected = 0
    for number in range(1000):
        sequence, crc, size = (rng.choice((0, 1, (1 << bits) - 1, rng.getrandbits(bits))) for bits in (64, 32, 32))
        events[number]["sequence"], events[number]["crc"], events[number]["size"] = sequence, crc, size
        expected += message_hash(sequence, size << 32 | crc)
    assert message_sum(events) == expected % HASH_MODULUS


def test_sums_by_key_are_those_of_each_alone() -> None:
    rng = random.Random(4)
    rows = np.zeros(500, DTYPE)
    rows["sequence"] = [rng.getrandbits(64) for _ in range(500)]
    rows["crc"], rows["size"] = ([rng.getrandbits(32) for _ in range(500)] for _ in range(2))
    keys = np.array([rng.randrange(7) for _ in range(500)], np.uint32)
    found = sums_by(rows, keys)
    assert found == {key: (int((keys == key).sum()), message_sum(rows[keys == key])) for key in range(7)}
    assert sums_by(rows[:0], keys[:0]) == {}


def test_which_kinds_enter_and_which_leave() -> None:
    events = np.zeros(256, DTYPE)
    events["kind"] = np.arange(256)
    assert np.flatnonzero(entering(events)).tolist() == list(range(1, 16))
    assert np.flatnonzero(retiring(events)).tolist() == list(range(16, 32))

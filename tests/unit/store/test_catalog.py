"""Reading records back, from wherever their segment now is."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from acquit.errors import StoreCorrupt
from acquit.store.catalog import Catalog
from acquit.store.interface import Position, SegmentInfo
from acquit.store.segment import HEADER_BYTES
from acquit.testing.simulation.disk import FaultyDisk, FaultyFile
from tests.support.raw_journal import DATA, EVENT, OPTIONS, Raw


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def filled(raw: Raw, segments: int) -> dict[Position, bytes]:
    """One record a batch, until there are so many segments."""
    written: dict[Position, bytes] = {}
    while len(raw.journal.segments) < segments:
        payload = b"%d" % len(written) * 900
        (position,) = raw.put(payload)
        written[position] = payload
    return written


@pytest.mark.parametrize("size_hint", [1, 64, 500, 4096, 100_000])
def test_whatever_the_hint(disk: FaultyDisk, size_hint: int) -> None:
    raw = Raw(disk)
    first, second = raw.put(b"short", b"long" * 1000)
    record = raw.journal.read(first, size_hint)
    assert (record.kind, record.event, record.meta, record.payload, record.position) == (
        5,
        EVENT,
        b"meta",
        b"short",
        first,
    )
    assert raw.journal.read(second, size_hint).payload == b"long" * 1000


def test_from_segments_open_closed_and_archived(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    written = filled(raw, 5)
    for number in (1, 2):
        raw.journal.leave(number, raw.journal.read_seal(number))
        raw.sync()
        raw.chores()
    assert [info.archived for info in raw.journal.segments] == [True, True, False, False, False]
    for position, payload in written.items():
        assert raw.journal.read(position).payload == payload
    assert raw.journal.read_seal(1).endswith(b"events")
    assert raw.journal.read_seal(3).endswith(b"events")


def test_a_deleted_segment_is_closed_once_nobody_reads_it(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its room on the disk comes back only when the broker ends."""
    raw = Raw(disk, options=replace(OPTIONS, archive_bytes_max=0))
    filled(raw, 4)
    open_files: set[int] = set()

    def opened(file: FaultyFile, disk: FaultyDisk, node: object, *, synced: bool) -> None:
        opening(file, disk, node, synced=synced)  # type: ignore[arg-type]
        open_files.add(id(file))

    opening = FaultyFile.__init__
    monkeypatch.setattr(FaultyFile, "__init__", opened)
    monkeypatch.setattr(FaultyFile, "close", lambda file: open_files.discard(id(file)))
    first, second, *_ = raw.journal.segments
    for info in (first, second):
        raw.journal.leave(info.number, raw.journal.read_seal(info.number))
        raw.journal.read(info.base + Position(64))
    before = len(open_files)
    with raw.journal._reader._file(second.number) as file:
        while raw.journal.pending:
            raw.sync()
            raw.chores()
        assert raw.journal.segments[0].number == 3
        assert len(open_files) == before - 1
        assert file.read(8, 0) == b"ACQUSEGM"
    assert len(open_files) == before - 2


def test_from_a_journal_opened_again(disk: FaultyDisk) -> None:
    written = filled(Raw(disk), 4)
    raw = Raw(disk.after_kill())
    for position, payload in written.items():
        assert raw.journal.read(position).payload == payload


def test_more_segments_than_files_kept_open(disk: FaultyDisk) -> None:
    from dataclasses import replace

    from tests.support.raw_journal import OPTIONS

    raw = Raw(disk, options=replace(OPTIONS, open_files_max=1))
    written = filled(raw, 5)
    for _ in range(2):
        for position, payload in written.items():
            assert raw.journal.read(position).payload == payload
    raw.journal.close()


def test_what_was_never_written(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    raw.put(b"x")
    pending = raw.append(b"not yet")
    for position in (pending, Position(1 << 40)):
        with pytest.raises(KeyError, match="never|nothing was written"):
            raw.journal.read(position)
    for number in (1, 2, 99):
        with pytest.raises(KeyError, match="no closed segment"):
            raw.journal.read_seal(number)


def test_what_stands_within_a_record_is_not_one(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    (position,) = raw.put(b"\xff" * 400)
    for offset in (1, 17, 70, 200):
        with pytest.raises(StoreCorrupt, match=f"offset {HEADER_BYTES + position + offset}"):
            raw.journal.read(Position(position + offset))


def test_a_spoiled_body_is_never_handed_out(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    (position,) = raw.put(b"body" * 100)
    disk.content(DATA / "journal" / f"{1:020}.seg")[HEADER_BYTES + position + 200] ^= 1
    with pytest.raises(StoreCorrupt, match="checksum"):
        raw.journal.read(position)


def test_a_spoiled_seal(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    filled(raw, 2)
    disk.content(DATA / "journal" / f"{1:020}.seg")[-1] ^= 1
    with pytest.raises(StoreCorrupt, match="seal"):
        raw.journal.read_seal(1)


def test_a_segment_that_somebody_took_away(disk: FaultyDisk) -> None:
    raw = Raw(disk)
    written = filled(raw, 2)
    disk.delete(DATA / "journal" / f"{1:020}.seg")
    with pytest.raises(KeyError, match="deleted"):
        raw.journal.read(min(written))


def test_many_threads_read_while_segments_move(disk: FaultyDisk) -> None:
    """Files are opened, evicted and renamed under the readers' hands."""
    from dataclasses import replace

    from tests.support.raw_journal import OPTIONS

    raw = Raw(disk, options=replace(OPTIONS, open_files_max=2))
    written = filled(raw, 6)
    wrong: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            for position, payload in written.items():
                try:
                    if raw.journal.read(position).payload != payload:
                        wrong.append(position)
                except Exception as error:
                    wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1, 6):
        raw.journal.leave(number, raw.journal.read_seal(number))
        raw.sync()
        raw.chores()
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_recovery_needs_was_never_erased() -> None:
    """A flag that says so in the journal itself is damage, and no message that went with its segment."""
    disk = FaultyDisk()
    raw = Raw(disk)
    (position,) = raw.put(bytes(700))
    content = disk.content(DATA / "journal" / f"{1:020}.seg")
    at = HEADER_BYTES + position
    assert content[at + 15] == 0x20
    content[at + 15] |= 0x10
    with pytest.raises(StoreCorrupt, match="says it was erased"):
        raw.journal.read(position, 1024)
    with pytest.raises(StoreCorrupt, match="says it was erased"):
        raw.journal.read_payloads([position], [1024])


# -- ages -------------------------------------------------------------------------------------------------------------
S = 1_000_000


def closed_at(*seconds: int) -> Catalog:
    """Segments that were closed at these times by their own account, and the open one."""
    closed = [
        SegmentInfo(number, Position(number), Position(number + 1), 100, True, False, at * S)
        for number, at in enumerate(seconds, 1)
    ]
    last = len(seconds) + 1
    return Catalog((*closed, SegmentInfo(last, Position(last), Position(last), 100, False, False, 0)))


def test_a_segment_is_as_old_as_it_says() -> None:
    catalog = closed_at(10, 20)
    assert [catalog.age_us(info, 25 * S, 7.0) for info in catalog.segments[:2]] == [15 * S, 5 * S]
    assert catalog.age_us(catalog.segments[1], 20 * S, 7.0) == 0


def test_one_that_was_closed_by_a_clock_that_was_ahead_ages_from_now_on() -> None:
    catalog = closed_at(9_000)
    (ahead, _) = catalog.segments
    assert catalog.age_us(ahead, 100 * S, 7.0) == 0
    assert catalog.age_us(ahead, 130 * S, 37.0) == 30 * S
    assert catalog.age_us(ahead, 50 * S, 47.0) == 40 * S, "by the clock that nobody sets"
    assert catalog.age_us(ahead, 9_005 * S, 48.0) == 41 * S, "for so long it has been looked at"
    assert catalog.age_us(ahead, 9_050 * S, 48.0) == 50 * S, "it was not ahead, the other one was behind"
    catalog.deleted(1)
    assert not catalog._closed_at_s and not catalog._looked_at_s


@pytest.mark.parametrize(
    ("seconds", "age_s"),
    [
        ((10, 9_000, 60, 90), 40),  # closed before 60
        ((10, 9_000, 9_001, 90), 10),
        ((10, 9_000, 9_001, 9_002), 0),
        ((10, 9_000, 5, 90), 10),  # 5 is from a clock that was behind: what went before was closed at 10
        ((9_000, 9_000, 5, 90), 95),  # nothing tells that
    ],
)
def test_what_was_closed_behind_it_tells_how_old_it_is_at_least(seconds: tuple[int, ...], age_s: int) -> None:
    """So that it ages also where the broker is started more often than something is old enough."""
    catalog = closed_at(*seconds)
    for now_s in (7.0, 8.0):
        assert catalog.age_us(catalog.segments[1], 100 * S, now_s) == (age_s + now_s - 7) * S

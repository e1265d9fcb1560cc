"""Which segments there are, were, or should be."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from acquit.errors import ConfigurationError, StoreCorrupt, StoreError
from acquit.ledger.verify import verify
from acquit.spark.ledger.chain import SegmentState, plan, plan_folder
from acquit.store.folder import STUB
from acquit.store.segment import HEADER_BYTES
from tests.support.bad_sectors import lose_sectors
from tests.support.ledger_folder import grow


def states(path: Path) -> list[SegmentState]:
    return [segment.state for segment in plan_folder(path)]


def test_a_whole_journal(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    segments = plan_folder(tmp_path, seals=True)
    assert [segment.number for segment in segments] == list(range(1, folder.newest + 1))
    assert {segment.state for segment in segments} == {SegmentState.ARCHIVED, SegmentState.CLOSED, SegmentState.OPEN}
    assert segments[-1].state is SegmentState.OPEN
    for segment, link in zip(segments, verify(tmp_path).links, strict=True):
        assert (segment.length, segment.sha256) == (link.valid_bytes, link.sha256)
        if segment.state is not SegmentState.OPEN:
            assert segment.summary is not None and segment.summary.events == link.events
            assert segment.path == folder.file(segment.number)


def test_what_retention_deleted_is_known_by_its_stub(tmp_path: Path) -> None:
    grow(tmp_path, archive_bytes_max=100_000)
    segments = plan_folder(tmp_path, seals=True)
    deleted = [segment for segment in segments if segment.state is SegmentState.DELETED]
    assert deleted and deleted == segments[: len(deleted)]
    assert all(segment.summary is not None and segment.summary.events for segment in deleted)
    assert SegmentState.MISSING not in states(tmp_path)


def test_what_retention_deleted_is_known_by_its_record_where_there_is_no_stub(tmp_path: Path) -> None:
    grow(tmp_path, archive_bytes_max=100_000, stubs_max=0)
    found = states(tmp_path)
    assert found[0] is SegmentState.DELETED and SegmentState.MISSING not in found
    assert plan_folder(tmp_path)[0].header is None


def test_a_stub_that_is_gone_is_no_gap_but_a_segment_is(tmp_path: Path) -> None:
    folder = grow(tmp_path, archive_bytes_max=100_000)
    folder.file(2, STUB).unlink()
    kept = next(segment.number for segment in plan_folder(tmp_path) if segment.state is not SegmentState.DELETED)
    folder.file(kept).unlink()
    segments = plan_folder(tmp_path, seals=True)
    assert (segments[1].state, segments[1].number) == (SegmentState.DELETED, 2)
    assert [segment.number for segment in segments if segment.state is SegmentState.MISSING] == [kept]


def test_of_the_segment_before_a_gap_nothing_says_what_it_must_be(tmp_path: Path) -> None:
    grow(tmp_path).file(3).unlink()
    before, gap, after = plan_folder(tmp_path, seals=True)[1:4]
    assert (gap.state, gap.header) == (SegmentState.MISSING, None)
    assert (before.length, before.sha256) == (0, b"")
    assert gap.sha256 and after.sha256


def test_one_brokers_journal_twice_is_refused(tmp_path: Path) -> None:
    grow(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with pytest.raises(
        ConfigurationError, match=f"{tmp_path / 'a'} and {tmp_path / 'b'} hold the journal of one broker"
    ):
        plan([tmp_path / "a", tmp_path / "b"])


def test_two_brokers(tmp_path: Path) -> None:
    one, two = grow(tmp_path / "a"), grow(tmp_path / "b", seed=10)
    assert len(plan([one.path, two.path])) == one.newest + two.newest


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a data folder"):
        plan([tmp_path])


def test_a_segment_under_another_number(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    shutil.copy(folder.file(2), folder.file(3))
    with pytest.raises(StoreCorrupt, match="segment 3: its header is that of segment 2") as caught:
        plan([tmp_path])
    assert caught.value.path == str(folder.file(3))


def test_a_segment_of_another_store(tmp_path: Path) -> None:
    one, two = grow(tmp_path / "a"), grow(tmp_path / "b", seed=10)
    shutil.copy(one.file(2), two.file(2))
    with pytest.raises(StoreCorrupt, match="segment 2: it belongs to store"):
        plan([two.path])


def test_a_seal_that_is_damaged(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    seal_at = plan_folder(tmp_path)[1].seal_at
    folder.flip(2, seal_at + 100)
    assert plan_folder(tmp_path)[1].seal is None  # not looked at
    with pytest.raises(StoreCorrupt, match="segment 2: no whole seal") as caught:
        plan_folder(tmp_path, seals=True)
    assert caught.value.offset == seal_at


@pytest.mark.parametrize("seals", [False, True])
def test_a_header_or_a_seal_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seals: bool) -> None:
    folder = grow(tmp_path)
    seal_at = plan_folder(tmp_path)[1].seal_at
    lose_sectors(monkeypatch, folder.file(2), seal_at if seals else 0, seal_at + 4096 if seals else 4096)
    with pytest.raises(
        StoreCorrupt, match=rf"{2:020}.seg, offset {seal_at * seals}: cannot be read: Input/output error"
    ):
        plan_folder(tmp_path, seals=seals)


def test_damage_in_the_newest_segment_that_had_been_synced(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    folder.flip(folder.newest, HEADER_BYTES + 70)
    with pytest.raises(StoreCorrupt, match="destroyed after it was synced"):
        plan_folder(tmp_path)

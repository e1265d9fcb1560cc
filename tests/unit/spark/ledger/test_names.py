"""Numbers of queues and links have the names that were declared, wherever that was; and no other."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from acquit.errors import StoreError
from acquit.ledger.records import Actor, Queue, encode_posting_meta
from acquit.ledger.recovery import close_journal, open_journal, write_now
from acquit.spark.ledger import names as module
from acquit.spark.ledger.chain import Segment, SegmentState, plan_folder
from acquit.spark.ledger.names import declared_at, names_at
from acquit.spark.ledger.options import Verify
from acquit.spark.ledger.segments import read_events
from acquit.store.record import encode_record
from tests.support.ledger_folder import ACTOR, LedgerFolder, grow


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    module._kept.clear()


def queues_of(folder: LedgerFolder, segment: Segment) -> set[int]:
    return {event.queue for event in folder.events(segment.number) if event.kind and event.queue}


@pytest.mark.parametrize("read_first", [False, True])
def test_every_queue_of_a_whole_journal_has_its_name(tmp_path: Path, read_first: bool) -> None:
    folder = grow(tmp_path)
    for segment in plan_folder(tmp_path):
        if read_first:
            read_events(segment, Verify.FULL)
        queues = queues_of(folder, segment)
        found = names_at(segment, queues, set())
        assert queues and found.queues == {n: (f"queue-{n}", f"address-{n}") for n in queues}


def test_a_name_is_found_behind_where_everything_before_was_deleted(tmp_path: Path) -> None:
    folder = grow(tmp_path, archive_bytes_max=100_000)
    first = next(segment for segment in plan_folder(tmp_path) if segment.state is not SegmentState.DELETED)
    queues = queues_of(folder, first)
    found = names_at(first, queues, set()).queues
    assert found == {number: (f"queue-{number}", f"address-{number}") for number in (7, 9, 10, 11)}
    assert queues == found.keys()


def test_what_a_segment_declares_itself(tmp_path: Path) -> None:
    folder = grow(tmp_path)
    declared: dict[int, str] = {}
    for segment in plan_folder(tmp_path):
        declared |= {number: queue.name for number, queue in declared_at(segment).queues.items()}
    assert declared == {number: f"queue-{number}" for number in range(1, max(declared) + 1)}
    segment = plan_folder(tmp_path)[0]
    folder.file(1).unlink()
    with pytest.raises(StoreError, match="deleted since the read was planned"):
        declared_at(segment)


def test_a_link_has_its_name_and_another_number_has_none(tmp_path: Path) -> None:
    grow(tmp_path)
    newest = plan_folder(tmp_path)[-1]
    found = names_at(newest, set(), {ACTOR, 99})
    assert found.actors == {ACTOR: ("link", "container", "user")}


def test_the_search_ends_where_the_rest_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = grow(tmp_path)
    read: list[int] = []
    original = module._declared
    monkeypatch.setattr(module, "_declared", lambda reader, number: read.append(number) or original(reader, number))
    assert names_at(plan_folder(tmp_path)[-1], {99}, set()).queues == {}
    assert read[0] == folder.newest and min(read) > 1


def test_what_a_message_contains_declares_nothing(tmp_path: Path) -> None:
    opened = open_journal(tmp_path)
    recorder, when = opened.recorder, time.time_ns() // 1000
    recorder.append(Queue(when, 1, "orders", "orders"))
    forged = []
    for entry in (Queue(when, 1, "forged", "forged"), Actor(when, 2, "forged", "forged", "forged", "forged")):
        encoded = entry.encode()
        crc, head = encode_record(
            encoded.kind, encoded.event, encoded.meta, encoded.payload, encoded.payload_crc, encoded.flags, 1
        )
        forged.append(crc + head + encoded.payload)
    recorder.posted(opened.sequences.take(when), 1, b"".join(forged), encode_posting_meta(b"orders", b""), when)
    write_now(recorder)
    close_journal(recorder, when)
    [segment] = plan_folder(tmp_path)
    assert module._MARK in forged[0] and module._MARK in forged[1]
    found = names_at(segment, {1}, {2})
    assert (found.queues, found.actors) == ({1: ("orders", "orders")}, {})

"""docs/journal-format.md: its worked example is what the code writes, byte for byte.

When the page changes on purpose, ``python -m tests.properties.test_journal_format`` from the repository's root writes
the example into it anew.
"""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Iterator
from pathlib import Path

from acquit.ledger.digest import RunningDigest
from acquit.ledger.events import EventKind
from acquit.ledger.recorder import Recorder
from acquit.ledger.records import Queue, RecordKind, encode_id, encode_posting_meta
from acquit.ledger.table import StateTable
from acquit.store.memory import MemoryDisk
from acquit.store.options import JournalOptions
from acquit.store.record import StoreKind
from acquit.store.recovery import open_store
from tests.support.raw_journal import Gathered

PAGE = Path(__file__).resolve().parents[2] / "docs" / "journal-format.md"
BLOCK = re.compile(r"(?<=<!-- example begins -->\n```text\n).*?(?=```\n<!-- example ends -->)", re.DOTALL)

EVENT = [
    ("sequence", 8),
    ("origin", 8),
    ("time, µs", 8),
    ("crc of the payload", 4),
    ("size of the payload", 4),
    ("queue", 4),
    ("actor", 4),
    ("kind {}", 1),
    ("flags", 1),
    ("attempt", 2),
    ("transaction", 4),
]

Field = tuple[str, int]


def record(title: str, kind: str, *rest: Field) -> list[Field]:
    head = [("crc", 4), ("payload bytes", 4), ("meta bytes", 4), (f"kind: {title}", 1), ("version", 1), ("flags", 2)]
    event = [(f"event: {name.format('(' + kind + ')')}", size) for name, size in EVENT]
    return [(f"--- record {title}", 0), *head, *event, *rest]


LAYOUT: list[Field] = [
    ("--- segment header", 0),
    ('"ACQUSEGM"', 8),
    ("format version", 4),
    ("header bytes", 4),
    ("alignment", 4),
    ("flags", 4),
    ("store uuid", 16),
    ("segment number", 8),
    ("epoch", 8),
    ("base position", 8),
    ("created, µs", 8),
    ("previous number: none", 8),
    ("previous valid length", 8),
    ("previous SHA-256", 32),
    ("previous cut bytes", 8),
    ("zeros", 4096 - 128 - 4),
    ("crc of the page before it", 4),
    ("--- batch", 0),
    ('"BTCH"', 4),
    ("crc of body, padding, and head from here on", 4),
    ("length", 4),
    ("records", 4),
    ("epoch", 8),
    ("position", 8),
    ("synced end", 8),
    ("written, µs", 8),
    ("body bytes", 4),
    ("reserved", 4),
    ("reserved", 4),
    ("crc of the head from `length` on", 4),
    *record(
        "QUEUE",
        "NONE",
        ("meta: flags", 4),
        ("meta: name", 2 + 6),
        ("meta: address", 2 + 6),
        ("meta: fingerprint", 2),
    ),
    *record(
        "POSTING",
        "POSTED",
        ("meta: expires at, ms", 8),
        ("meta: due at, ms", 8),
        ("meta: message-format", 4),
        ("meta: address bytes", 2),
        ("meta: message id bytes", 2),
        ("meta: priority", 1),
        ("meta: zeros", 3),
        ("meta: address", 6),
        ('meta: message id, "s" and the string', 5),
        ("payload: an AMQP data section", 8),
    ),
    *record(
        "TRANSITIONS",
        "ACQUIRED",
        *((f"meta: {name.format('(ACCEPTED)')}", size) for name, size in EVENT),
    ),
    ("zeros up to the alignment", 0),
    ("--- seal", 0),
    ('"SEAL"', 4),
    ("crc of all that follows", 4),
    ("length", 4),
    ("summary bytes", 4),
    ("epoch", 8),
    ("segment number", 8),
    ("end position", 8),
    ("sealed, µs", 8),
    ("cut bytes", 8),
    ("reserved", 8),
    ("summary: version", 2),
    ("summary: reserved", 2),
    ("summary: rows", 4),
    ("summary: events", 8),
    ("summary: first event, µs", 8),
    ("summary: last event, µs", 8),
    ("row: queue", 4),
    ("row: flags", 2),
    ("row: kinds", 2),
    ("row: live", 8),
    ("row: sum of what entered here", 16),
    ("row: sum of what was retired here", 16),
    ("row: sum of what ever entered", 16),
    ("row: sum of what was ever retired", 16),
    *(
        (f"{name}: {field}", size)
        for name in ("POSTED", "ACCEPTED", "ACQUIRED")
        for field, size in (("event kind", 1), ("volatile", 1), ("zeros", 6), ("here", 8), ("cumulated", 8))
    ),
    ("zeros up to the alignment", 0),
]


class Still:
    """A clock that stands still, and chance that always gives the same."""

    def __enter__(self) -> None:
        self.randbits, self.uuid4 = secrets.randbits, uuid.uuid4
        secrets.randbits = lambda bits: 0x1122334455667788
        uuid.uuid4 = lambda: uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

    def __exit__(self, *_: object) -> None:
        secrets.randbits, uuid.uuid4 = self.randbits, self.uuid4


TIME_US = 1_700_000_000_000_000


def written() -> bytes:
    """A closed segment with one batch: a queue is declared, a message is posted, acquired and accepted."""
    disk = MemoryDisk()
    options = JournalOptions(segment_bytes=65536, alignment_bytes=512, reserve_segments=0, spare_segments=0)
    with Still():
        opened = open_store(
            Path("/data"),
            options,
            Gathered(),
            RunningDigest(),
            replayed=lambda report: None,
            container_id="example",
            disk=disk,
            clock_us=lambda: TIME_US,
        )
    recorder = Recorder(opened.journal, StateTable())
    recorder.append(Queue(TIME_US, 1, "orders", "orders"))
    meta = encode_posting_meta(b"orders", encode_id("id-7"))
    _, mark = recorder.posted(7, 1, b"\x00\x53\x75\xa0\x03abc", meta, TIME_US)
    recorder.transition(EventKind.ACQUIRED, 7, 1, mark, TIME_US + 50, actor=3)
    recorder.transition(EventKind.ACCEPTED, 7, 1, mark, TIME_US + 90, actor=3)
    batch = recorder.take_batch()
    assert batch is not None
    batch.write_and_sync()
    opened.journal.complete(batch)
    opened.journal.close()
    return bytes(disk.files[Path("/data/journal") / f"{1:020}.seg"])


def lines(data: bytes) -> Iterator[str]:
    offset = 0
    for name, size in LAYOUT:
        if name.startswith("--- "):
            yield ""
            yield name
            continue
        if name == "zeros up to the alignment":
            size = -offset % 512
        field = data[offset : offset + size]
        if name.startswith("zeros") and size > 16:
            assert not any(field)
            yield f"{offset:06x}  {'00 ...':34}  {name}, {size} bytes"
        else:
            for start in range(0, size, 16):
                groups = " ".join(field[n : n + 4].hex() for n in range(start, min(size, start + 16), 4))
                yield f"{offset + start:06x}  {groups:35} {name if not start else ''}".rstrip()
        offset += size
    assert offset == len(data)


def example() -> str:
    return "\n".join(lines(written())).lstrip("\n") + "\n"


def test_every_kind_of_record_and_of_event_is_on_the_page() -> None:
    page = PAGE.read_text()
    records = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", page, re.MULTILINE)
    assert {name: int(number) for number, name in records} == {
        kind.name: int(kind) for kind in (*RecordKind, *StoreKind)
    }
    kinds = page.split("| kinds | |\n", 1)[1].split("\n\n", 1)[0]
    events = re.findall(r"\b(\d+) ([A-Z_]{3,})\b", kinds)
    assert {name: int(number) for number, name in events} == {kind.name: int(kind) for kind in EventKind}


def test_the_page_shows_what_is_written() -> None:
    shown = BLOCK.search(PAGE.read_text())
    assert shown is not None
    assert shown.group() == example()


if __name__ == "__main__":
    PAGE.write_text(BLOCK.sub(lambda _: example(), PAGE.read_text()))

"""What Spark's side reads: messages as rows, by the short way and the long one; the spool, the audit's log, options."""

from __future__ import annotations

from hashlib import sha256
from typing import Any
from unittest import mock
from uuid import UUID

import pyarrow as pa

from acquit.broker.intake.shaping import make_body
from acquit.errors import (
    ConfigurationError,
    DecodeError,
    EncodeError,
    SpoolDamaged,
    SpoolVersionUnsupported,
    StoreCorrupt,
)
from acquit.protocol.sections import scan_sections
from acquit.spark import json_columns
from acquit.spark.audit.log import AuditLog, LogEntry
from acquit.spark.columns import MessageColumns
from acquit.spark.decoding import JsonDecoder, TextDecoder
from acquit.spark.exact import read_exact
from acquit.spark.ledger.options import _time
from acquit.spark.options import read_count, read_credential, read_duration, read_size, read_url
from acquit.spark.sink.rows import BadRow, _body
from acquit.spark.spool.entries import (
    Checkpoint,
    FloorRaised,
    Forgotten,
    LogTotals,
    Publication,
    Run,
    decode_entry,
    decode_run,
    encode_entry,
    encode_run,
)
from acquit.spark.spool.identities import Identities
from acquit.spark.spool.owner import SpoolOwner, _encode, read_owner
from acquit.spark.spool.store import SpoolStore
from tests.fuzz.target import Reader, Target, as_text
from tests.fuzz.targets.texts import deep_json
from tests.fuzz.targets.values import ENCODED
from tests.support.plain_rows import nothing_is_plain

BROKER = UUID(int=9)


def made(payloads: list[bytes], broker: UUID | None) -> tuple[object, ...]:
    """Identities and rows."""
    reader = MessageColumns("queue")
    identified = reader.identify(payloads, broker)
    rows = reader.rows(identified.messages, broker)
    told = (*identified.identities.columns(), *identified[1:4])
    return (
        [one.tolist() for one in told],
        pa.Table.from_batches(rows.batches).to_pydict() if rows.batches else None,
        rows.corrupt,
    )


def rows(data: bytes) -> None:
    """Messages of a queue, each behind its length: the array form says what the long way says of each alone."""
    way = Reader(data)
    payloads: list[bytes] = []
    while way.left and len(payloads) < 6:
        payloads.append(way.take(way.number(2)))
    for broker in (BROKER, None):
        short = made(payloads, broker)
        with nothing_is_plain():
            long = made(payloads, broker)
        assert repr(short) == repr(long)


DECODERS = (
    TextDecoder(),
    JsonDecoder.of(
        pa.struct(
            [
                ("a", pa.int32()),
                ("b", pa.list_(pa.float64())),
                ("c", pa.map_(pa.string(), pa.decimal128(10, 2))),
                ("d", pa.timestamp("us", tz="UTC")),
                ("e", pa.struct([("f", pa.binary()), ("g", pa.date32()), ("h", pa.bool_()), ("i", pa.string())])),
            ]
        )
    ),
)


MANY = JsonDecoder.of(
    pa.struct(
        [
            ("a", pa.int32()),
            ("b", pa.list_(pa.float64())),
            ("e", pa.struct([("h", pa.bool_()), ("i", pa.string()), ("j", pa.float32())])),
        ]
    )
)


def read_alike(content: bytes) -> None:
    """As JSON many at once, and one by one."""
    bodies = pa.array([content, b'{"a": 1}', content], pa.binary())
    with mock.patch.multiple(json_columns, _LEAST_BYTES=0, _SMALL_LOT_BYTES=0):
        short = MANY.decode(bodies)
    long = MANY._decode_each(bodies.to_pylist())
    assert short.failed == long.failed
    assert repr(short.values.to_pylist()) == repr(long.values.to_pylist())


def body(data: bytes) -> None:
    """A body as text, as JSON of a schema; and as a sink writes it."""
    way = Reader(data)
    which = way.number() % 8
    content = way.take(way.left)
    if which < 2:
        found = DECODERS[which].decode(pa.array([content], pa.binary()))
        assert not found.failed or found.values[0].as_py() is None
        read_alike(content)
        return
    kind = (None, None, "data", "string", "binary", "value", "sequence", "other")[which]
    scan_sections(_body(content, kind))


def exact(data: bytes) -> None:
    read_exact.__wrapped__(data)


class Kept:
    """A spool store with these files. As much of a `SpoolStore` as readers use."""

    place = "/spool"

    def __init__(self, **files: bytes) -> None:
        self.files = files

    def get(self, name: str) -> bytes | None:
        return self.files.get(name)


def spool_entry(data: bytes) -> None:
    """An entry of the log, whose checksum is mended where the first byte says so."""
    how, content = data[:1], data[1:]
    if how < b"\x80":
        content += sha256(content).digest()
    found = decode_entry(content, "place")
    assert sha256(content[:-32]).digest() == content[-32:]
    again = decode_entry(encode_entry(found), "place")
    assert again == found or "nan" in repr(found)


def spool_run(data: bytes) -> None:
    run = Run(name="r", count=max(0, len(data) - 32) // 25, oldest_ms=0, newest_ms=0)
    found = decode_run(memoryview(data), run, "place")
    assert encode_run(found)[:-32] == data[:-32]


def spool_owner(data: bytes) -> None:
    store: Any = Kept(owner=data)
    kept: SpoolStore = store
    found = read_owner(kept)
    assert found is not None
    store = Kept(owner=_encode(found))
    assert read_owner(store) == found


class _Path:
    """A file of the audit's log."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read_bytes(self) -> bytes:
        return self.content


class _Log(AuditLog):
    def __init__(self, content: bytes) -> None:
        self._content = content

    def _path(self, number: int) -> Any:
        return _Path(self._content)


def audit_entry(data: bytes) -> None:
    found = _Log(data).read(1)
    assert _Log(found.to_bytes()).read(1).to_bytes() == found.to_bytes()


READ = (
    read_size(1, 1 << 60),
    read_duration(1, 1 << 60),
    read_count(0, 1 << 60),
    read_url,
    read_credential,
    _time,
)


def option(data: bytes) -> None:
    """A value of an option of the source or the sink."""
    way = Reader(data)
    READ[way.number() % len(READ)](as_text(way.take(way.left)))


def handed_out(payload: bytes, sequence: int) -> bytes:
    """As our broker sends it."""
    found = scan_sections(payload)
    return found.header + make_body(found, sequence, 1_700_000_000_000)


def behind_lengths(payloads: list[bytes]) -> bytes:
    return b"".join(len(payload).to_bytes(2, "big") + payload for payload in payloads)


IDENTITIES = Identities.of([b"a", b"b"], [b"1", b"2"]).sort()
PUBLICATION = Publication(
    epoch=1,
    part=0,
    nonce="n",
    data="d",
    skipped=((1, 2),),
    totals=LogTotals(rows=2),
    ended=True,
    written_at_ms=5,
    crc=7,
    identities=IDENTITIES,
)
ENTRIES = (
    PUBLICATION,
    FloorRaised(floor=3, nonce="n"),
    Checkpoint(
        nonce="n",
        floor=1,
        runs=(Run(name="r", count=2, oldest_ms=1, newest_ms=2),),
        decided=(PUBLICATION,),
        totals=LogTotals(),
        forgotten=Forgotten(),
    ),
)
AUDITED = LogEntry(
    number=1,
    run="r",
    buckets=4,
    brokers=[],
    segments=[],
    added=[],
    superseded=[],
    open={1: "p"},
    state={"totals": "t"},
    summary={},
)
JSON_WORDS = (b"NaN", b"Infinity", b"1e999", b"[[[[[[[[", b'{"a":', b"null", b"-1", b'""', b"[]", b"{}", b"1" * 30)

TARGETS = (
    Target(
        "rows",
        rows,
        ("spark.plain", "spark.alike", "spark.parsing", "spark.columns"),
        (),
        (
            behind_lengths([handed_out(payload, 5 + place) for place, payload in enumerate(ENCODED)]),
            behind_lengths([handed_out(ENCODED[0], 5)] * 3 + [ENCODED[3]]),
            behind_lengths([handed_out(ENCODED[0], 5)]),
            behind_lengths([handed_out(ENCODED[0], sequence) for sequence in (0, 1, (1 << 63) - 1, 1 << 63)]),
        ),
        steps=40_000,
        steps_per_byte=400,
        words=(b"\0\x53\x75\xa0", b"\0\x53\x77\xa1", b"\0\x53\x77\xb1\0\0\0\1", b"\0\x53\x73\xc0"),
        warms=True,
    ),
    Target(
        "body",
        body,
        ("spark.decoding", "spark.json_columns", "spark.sink.rows"),
        (BadRow, DecodeError, EncodeError, UnicodeDecodeError),
        (
            (
                b'\1{"a": 1, "b": [1.5, null], "c": {"k": 2.25}, "d": "2020-01-02T03:04:05Z",'
                b' "e": {"f": "AAEC", "g": "2020-01-02", "h": true, "i": "x"}}'
            ),
            b"\0text",
            b'\5{"a": [1, 2.5]}',
            b"\6[1]",
        ),
        words=JSON_WORDS,
        long=tuple(which + one for which in (b"\1", b"\5", b"\6") for one in deep_json()),
        warms=True,
    ),
    Target("exact", exact, ("spark.exact",), (DecodeError,), (b"\xc1\1\0",)),
    Target(
        "spool_entry",
        spool_entry,
        ("spark.spool.entries", "spark.spool.identities"),
        (SpoolDamaged, SpoolVersionUnsupported),
        tuple(b"\0" + encode_entry(one)[:-32] for one in ENTRIES),
        words=(*JSON_WORDS, b'"identities":2', b'"kind":"floor"'),
        long=tuple(b"\0" + one + b"\n" for one in deep_json()),
    ),
    Target("spool_run", spool_run, (), (SpoolDamaged, SpoolVersionUnsupported), (encode_run(IDENTITIES),)),
    Target(
        "spool_owner",
        spool_owner,
        ("spark.spool.owner",),
        (SpoolDamaged, SpoolVersionUnsupported),
        (_encode(SpoolOwner(query="q", spool="5" * 32, previous=("p",), begins_after=4)),),
        words=JSON_WORDS,
        long=deep_json(),
    ),
    Target(
        "audit_entry",
        audit_entry,
        ("spark.audit.log",),
        (StoreCorrupt, ConfigurationError),
        (AUDITED.to_bytes(),),
        words=JSON_WORDS,
        long=deep_json(),
    ),
    Target(
        "option",
        option,
        ("spark.options", "spark.ledger.options"),
        (ConfigurationError, ValueError),
        (
            b"\x0012 MiB",
            b"\1" + b"5 minutes",
            b"\2" + b"17",
            b"\3amqp://h",
            b"\4env:NAME",
            b"\x052020-01-02T03:04:05+01:00",
        ),
        words=(b"KiB", b"seconds", b" days", b"amqps://u:p@", b"file:/", b"provider:"),
        length_max=200,
    ),
)

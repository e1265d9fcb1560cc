"""The short way to a row says what the long way says, whatever stands in the queue."""

from __future__ import annotations

import uuid
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.broker.intake.shaping import make_body
from acquit.protocol.codec import Timestamp, ULong
from acquit.protocol.message import AmqpValue, Message
from acquit.protocol.sections import scan_sections
from acquit.spark import columns
from acquit.spark.columns import MessageColumns
from acquit.spark.plain import PATTERNS_MAX, read_plain

BROKER = uuid.UUID("6f5c1b1e-6d0e-4f5b-9d43-4b8a55d6a2c1")


def made(payloads: list[bytes], *, short: bool, field: str | None = None) -> tuple[object, ...]:
    """Identities and rows."""
    reader = MessageColumns("queue", field)
    with mock.patch.object(columns, "read_plain", read_plain if short else lambda payload: None):
        identified = [reader.identify(payload, BROKER) for payload in payloads]
        rows = reader.rows(identified, BROKER)
    return [one[:3] for one in identified], pa.Table.from_batches(rows.batches) if rows.batches else None, rows.corrupt


def handed_out(message: Message, sequence: int, posted_ms: int) -> bytes:
    """As our broker sends it."""
    payload = message.encode()
    sections = scan_sections(payload)
    return sections.header + make_body(sections, sequence, posted_ms)


_texts = st.text(max_size=3) | st.sampled_from(["id-1", "x" * 254, "x" * 255, "x" * 256, "é", "\x00"])
_optional = st.none() | st.sampled_from(["", "a", "é"])
_bodies = (
    st.binary(max_size=3)
    | st.sampled_from([bytes(254), bytes(255), bytes(256), bytes(70_000)])
    | (_texts | st.binary(max_size=300) | st.none() | st.booleans()).map(AmqpValue)
)
_messages = st.builds(
    Message,
    _bodies,
    message_id=st.none() | _texts | st.integers(0, 3).map(ULong),
    subject=_optional,
    to=_optional,
    correlation_id=_optional,
    content_type=st.sampled_from([None, "text/plain"]),
    creation_time=st.sampled_from([None, Timestamp(0), Timestamp(5), Timestamp(1 << 60)]),
    durable=st.booleans(),
    delivery_count=st.sampled_from([0, 0, 1, 300]),
    first_acquirer=st.booleans(),
    group_id=_optional,
    annotations=st.sampled_from([{}, {}, {}, {"x-opt-a": "b"}]),
    application_properties=st.sampled_from([{}, {"a": 1}, {"a": "b" * 300}]),
    footer=st.sampled_from([{}, {}, {}, {"x-opt-f": 1}]),
)


_sequences = st.integers(1, 300) | st.sampled_from([0, (1 << 63) - 1, 1 << 63])
_times = st.sampled_from([0, 1_700_000_000_000, -1, -(1 << 60), 1 << 60])
_payloads = st.builds(handed_out, _messages, _sequences, _times) | st.builds(Message.encode, _messages)


@given(st.lists(_payloads, max_size=6), st.sampled_from([None, "message-id"]))
def test_the_short_way_and_the_long_way_make_the_same_rows(payloads: list[bytes], field: str | None) -> None:
    assert made(payloads * 2, short=True, field=field) == made(payloads * 2, short=False, field=field)


PLAIN = handed_out(Message(b"body" * 20, message_id="id-1", durable=True, subject="s"), 7, 1_700_000_000_000)


@given(st.data())
def test_also_when_bytes_are_spoiled(data: st.DataObject) -> None:
    whole = PLAIN
    spoiled = []
    for _ in range(4):
        changed = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 2))):
            changed[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.sampled_from([0, 1, 0x40, 0xA1, 255]))
        spoiled.append(bytes(changed[: data.draw(st.sampled_from([len(whole), len(whole), len(whole) // 2, 60]))]))
    payloads = [whole, *spoiled, whole]
    assert made(payloads, short=True) == made(payloads, short=False)


@pytest.mark.parametrize("body", [b"x", bytes(300), AmqpValue("text"), AmqpValue("t" * 300), AmqpValue(b"binary")])
@pytest.mark.parametrize("durable", [False, True])
def test_what_is_plain(body: object, durable: bool) -> None:
    message = Message(body, message_id="id", durable=durable, application_properties={"k": "v"})
    payload = handed_out(message, 7, 8)
    plain = read_plain(payload)
    assert plain is not None
    assert (plain.sequence, plain.posted_ms, plain.message_id) == (7, 8, "id")
    assert read_plain(payload + b"\x00") is None
    assert not [size for size in range(len(payload)) if read_plain(payload[:size]) is not None]


def test_a_pattern_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    parse = columns._parse
    monkeypatch.setattr(columns, "_parse", lambda *given: read.append(1) or parse(*given))
    payloads = [handed_out(Message(b"%d" % n, message_id=f"id-{n}"), n, n) for n in range(1, 50)]
    made(payloads, short=True)
    assert len(read) == 1


def test_patterns_that_vary_all_the_time_are_not_kept_without_end() -> None:
    payloads = [
        handed_out(Message(b"b", message_id="id", creation_time=Timestamp(n)), 1 + n, n)
        for n in range(PATTERNS_MAX + 10)
    ]
    assert made(payloads, short=True) == made(payloads, short=False)

"""The short way to a row says what the long way says, whatever stands in the queue."""

from __future__ import annotations

import contextlib
import struct
import uuid
from typing import cast
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.broker.intake.shaping import make_body, merge_annotations
from acquit.protocol.codec import Byte, Float, Int, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort, encode
from acquit.protocol.extensions import ACQUIRED_COUNT
from acquit.protocol.message import AmqpValue, Message
from acquit.protocol.sections import scan_sections
from acquit.spark import columns
from acquit.spark.columns import ChosenMessages, MessageColumns
from acquit.spark.exact import read_exact
from acquit.spark.plain import read_lot
from acquit.spark.spool.drain import Identified, KeptMessages, Rows, take_messages
from acquit.spark.spool.entries import FIRST_FORMAT, SECOND_FORMAT
from tests.support.plain_rows import nothing_is_plain

BROKER = uuid.UUID("6f5c1b1e-6d0e-4f5b-9d43-4b8a55d6a2c1")


def told(identified: Identified) -> tuple[list[object], ...]:
    """What is told of each message."""
    columns = (*identified.identities.columns(), identified.named, identified.names_posting, identified.sequences)
    return tuple(column.tolist() for column in columns)


def made(payloads: list[bytes], *, short: bool, field: str | None = None, ours: bool = True) -> tuple[object, ...]:
    """Identities and rows, of our broker or of another."""
    reader = MessageColumns("queue", field)
    broker = BROKER if ours else None
    with contextlib.nullcontext() if short else nothing_is_plain():
        identified = reader.identify(payloads, broker)
        assert short or not any(cast("ChosenMessages", some).plain()[0].any() for some in identified.messages)
        rows = reader.rows(identified.messages, broker)
    return told(identified), pa.Table.from_batches(rows.batches) if rows.batches else None, rows.corrupt


def assert_the_same(payloads: list[bytes], field: str | None = None) -> None:
    for ours in (True, False):
        short = made(payloads, short=True, field=field, ours=ours)
        assert short == made(payloads, short=False, field=field, ours=ours)


def handed_out(message: Message, sequence: int, posted_ms: int, behind: dict[str, object] | None = None) -> bytes:
    """As our broker sends it. `behind`: annotations that it was given since it was posted."""
    payload = message.encode()
    sections = scan_sections(payload)
    body = make_body(sections, sequence, posted_ms)
    if behind:
        body = merge_annotations(body, encode({Symbol(name): value for name, value in behind.items()}))
    return sections.header + bytes(body)


_texts = st.text(max_size=3) | st.sampled_from(["id-1", "x" * 254, "x" * 255, "x" * 256, "é", "\x00"])
_optional = st.none() | st.sampled_from(["", "a", "é"])
_bodies = (
    st.binary(max_size=3)
    | st.sampled_from([bytes(254), bytes(255), bytes(256), bytes(70_000)])
    | (_texts | st.binary(max_size=300) | st.none() | st.booleans()).map(AmqpValue)
)
_ids = (
    st.none() | _texts | st.integers(0, 3).map(ULong) | st.uuids() | st.sampled_from([b"", b"\xa1\x0ecorrelation_id"])
)
_values = (
    _texts
    | st.none()
    | st.integers(-200, 200)
    | st.sampled_from(
        [True, 1 << 40, 1.5, b"b", b"b" * 256, Float(0.1), Timestamp(5), Timestamp(1 << 60), uuid.UUID(int=3)]
    )
)
_properties = st.dictionaries(st.sampled_from(["a", "b", "customer", "k" * 300]), _texts | st.none(), max_size=3)
_mixed = st.dictionaries(st.sampled_from(["a", "b", "customer"]), _values, max_size=3)
_many = st.integers(31, 34).map(lambda count: {f"k{number}": "v" for number in range(count)})
_messages = st.builds(
    Message,
    _bodies,
    message_id=_ids,
    user_id=st.sampled_from([None, None, b"guest"]),
    subject=_optional,
    to=_optional | st.just("queue"),
    reply_to=_optional,
    correlation_id=_ids,
    content_type=st.sampled_from([None, "text/plain"]),
    creation_time=st.sampled_from([None, Timestamp(0), Timestamp(5), Timestamp(1 << 60)]),
    durable=st.booleans(),
    delivery_count=st.sampled_from([0, 0, 1, 300]),
    first_acquirer=st.booleans(),
    ttl_ms=st.sampled_from([None, None, 0, 1, 5_000, (1 << 32) - 1]),
    absolute_expiry_time=st.sampled_from([None, None, Timestamp(7), Timestamp(1 << 60)]),
    group_id=_optional,
    group_sequence=st.sampled_from([None, 0, 1, 255, 256]),
    annotations=st.sampled_from([{}, {}, {"x-opt-a": "b"}, {"x-opt-jms-dest": Byte(0), "x-opt-l": [1, "a"]}])
    | _many.map(lambda entries: {f"x-opt-{name}": value for name, value in entries.items()}),
    application_properties=_properties | _mixed | _many,
    footer=st.sampled_from([{}, {}, {}, {"x-opt-f": 1}]),
)


# -- as clients may write it that choose other forms than we do


def _in_form(constructor: int, size: str, content: bytes) -> bytes:
    return bytes((constructor,)) + (struct.pack(size, len(content)) if size else b"") + content


_strings = st.sampled_from(["", "a", "\u00e9", "y" * 255, "y" * 256]).flatmap(
    lambda text: st.sampled_from(
        [_in_form(0xB1, ">I", text.encode()), *([_in_form(0xA1, "B", text.encode())] if len(text) < 256 else [])]
    )
)
_numbers = st.tuples(
    st.sampled_from([(0x50, 1), (0x51, 1), (0x52, 1), (0x53, 1), (0x54, 1), (0x55, 1), (0x60, 2), (0x61, 2)])
    | st.sampled_from([(0x70, 4), (0x71, 4), (0x72, 4), (0x80, 8), (0x81, 8), (0x82, 8), (0x83, 8)]),
    st.sampled_from([0, 1, 127, 128, 255, 256, 1 << 31, (1 << 63) - 1, 1 << 63, -1, -128, -129]),
).map(lambda drawn: _in_form(drawn[0][0], "", (drawn[1] % (1 << 64)).to_bytes(8, "big")[-drawn[0][1] :]))
_others = st.sampled_from(
    [
        b"\x40",
        b"\x41",
        b"\x42",
        b"\x56\x01",
        b"\x43",
        b"\x44",
        b"\xa0\x01b",
        b"\xc0\x01\x00",
        b"\x45",
        b"\xb0\x00\x00\x00\x01b",
    ]
)
_encoded_ids = _strings | _numbers | _others | st.binary(min_size=16, max_size=16).map(lambda octets: b"\x98" + octets)


def _sections(ids: list[bytes], entries: list[tuple[bytes, bytes]], wide: bool) -> bytes:
    fields = b"".join(ids[:1] + [b"\x40"] * 4 + ids[1:])
    items = b"".join(map(b"".join, entries))
    size = ">II" if wide or len(items) > 254 else "BB"
    head = struct.pack(size, len(items) + (4 if size == ">II" else 1), 2 * len(entries))
    return b"".join(
        (
            b"\x00\x53\x73\xd0" + struct.pack(">II", len(fields) + 4, 6)
            if len(fields) > 254
            else b"\x00\x53\x73\xc0" + bytes((len(fields) + 1, 6)),
            fields,
            b"\x00\x53\x74" + (b"\xd1" if size == ">II" else b"\xc1") + head + items,
            b"\x00\x53\x75\xa0\x01x",
        )
    )


_keys = st.sampled_from([b"\xa1\x01a", b"\xa1\x01b", b"\xb1\x00\x00\x00\x01c", b"\xa3\x01s"])
_by_hand = st.builds(
    _sections,
    st.lists(_encoded_ids, min_size=2, max_size=2),
    st.lists(st.tuples(_keys, _strings | _numbers | _others), max_size=3, unique_by=lambda entry: entry[0]),
    st.booleans(),
)


@given(st.lists(_by_hand, min_size=1, max_size=6))
def test_so_it_is_with_other_forms(bare: list[bytes]) -> None:
    payloads = [
        sections.header + bytes(make_body(sections, 7 + number, 1_700_000_000_000))
        for number, sections in enumerate(map(scan_sections, bare))
    ]
    assert_the_same(payloads * 2)


def test_the_same_bytes_may_be_left_of_different_messages() -> None:
    """Of the second the header is no header: what would be its size is its number of fields."""
    good = handed_out(Message(b"x", message_id="id", durable=True), 7, 8)
    assert good.startswith(b"\x00\x53\x70\xc0\x02\x01\x41")
    payloads = [good, good[:4] + b"\x01\x41" + good[7:]]
    assert_the_same(payloads)


@pytest.mark.parametrize("key", [b"\xa3%c", b"\xa1%c", b"\xb3\x00\x00\x00%c"])
@pytest.mark.parametrize("name", [b"x-opt-acquit-sequence\x80", b"x-opt-acquit-posted-at\x83"])
@pytest.mark.parametrize("last", [False, True])
def test_of_two_sequences_or_times_the_first_counts(key: bytes, name: bytes, last: bool) -> None:
    good = handed_out(Message(b"x", message_id="id", annotations={"x-opt-a": "b"}), 7, 8)
    start, end = good.index(b"\x00\x53\x72\xc1"), good.index(b"\x00\x53\x73\xc0")
    other = key % (len(name) - 1) + name + (5).to_bytes(8, "big")
    at = end if last else start + 6
    head = bytes((good[start + 4] + len(other), good[start + 5] + 2))
    payload = good[: start + 4] + head + good[start + 6 : at] + other + good[at:]
    assert_the_same([payload, good])
    assert_the_same([good, payload])


def test_what_was_acquired_before_is_plain() -> None:
    message = Message(b"x", message_id="id", annotations={"x-opt-a": "b"}, delivery_count=1)
    payloads = [handed_out(message, 7, 8), *(handed_out(message, 7, 8, {ACQUIRED_COUNT: UInt(n)}) for n in (1, 2, 300))]
    assert read_lot(payloads).plain.all()
    assert_the_same(payloads)


@pytest.mark.parametrize("change", ["odd", "odd at the end", "behind", "no constructor"])
def test_annotations_that_make_no_sense_have_no_sequence(change: str) -> None:
    good = handed_out(Message(b"x", message_id="id", annotations={"x-opt-a": None}), 7, 8)
    start = good.index(b"\x00\x53\x72\xc1")
    size, count, end = good[start + 4], good[start + 5], good.index(b"\x00\x53\x73\xc0")
    payload = {
        "odd": good[: start + 4] + bytes((size + 1, count + 1)) + b"\x40" + good[start + 6 :],
        "odd at the end": good[: start + 4]
        + bytes((size + 1, count + 1))
        + good[start + 6 : end]
        + b"\x40"
        + good[end:],
        "behind": good[: start + 4] + bytes((size + 1, count)) + good[start + 6 : end] + b"\x40" + good[end:],
        "no constructor": good.replace(b"x-opt-a\x40", b"x-opt-a\x46"),
    }[change]
    assert len(payload) >= len(good) and payload != good
    assert_the_same([good, payload])


@pytest.mark.parametrize(
    ("constructor", "width", "narrow", "wide"),
    [
        (0x52, 1, 0, 1),
        (0x53, 1, 0, 1),
        (0x70, 4, 255, 256),
        (0x80, 8, 255, 256),
        (0x71, 4, 127, 128),
        (0x71, 4, -128, -129),
        (0x81, 8, 127, 128),
        (0x81, 8, -128, -129),
    ],
)
def test_numbers_in_longer_forms_than_they_need(constructor: int, width: int, narrow: int, wide: int) -> None:
    """`exact` has all of them in their shortest form, whatever the message has."""
    payloads = []
    for number in (wide, narrow, wide):
        value = bytes((constructor,)) + number.to_bytes(width, "big", signed=number < 0)
        sections = scan_sections(_sections([value, value], [(b"\xa1\x01a", value)], wide=False))
        payloads.append(sections.header + bytes(make_body(sections, 7, 8)))
    for some in (payloads, payloads[1:], payloads[:1]):
        assert_the_same(some)


def test_what_one_message_has_is_not_there_for_each_that_is_like_it() -> None:
    """One large value among many small ones of its pattern: 220 KB, 1,000 times, would be 220 MB."""
    texts = ["v" * 220_000, *["v" * 256] * 999]
    payloads = [handed_out(Message(b"x", message_id="id", application_properties={"k": text}), 7, 8) for text in texts]
    assert read_lot(payloads).plain.all()
    reader, pool = MessageColumns("queue"), pa.proxy_memory_pool(pa.default_memory_pool())
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        reader.rows(reader.identify(payloads, BROKER).messages, BROKER)
    finally:
        pa.set_memory_pool(usual)
    most = pool.max_memory()
    assert most is not None and 0 < most < 50 << 20
    assert_the_same(payloads[:5])


def test_a_float_that_is_no_number_is_quiet() -> None:
    payloads = []
    for octets in (b"\x3f\xc0\x00\x00", b"\x7f\x80\x00\x01", b"\x7f\xc0\x00\x01", b"\xff\x80\x00\x00"):
        sections = scan_sections(_sections([b"\x40", b"\x40"], [(b"\xa1\x01a", b"\x72" + octets)], wide=False))
        payloads.append(sections.header + bytes(make_body(sections, 7, 8)))
    for number in range(1, 4):
        some = payloads[:1] + payloads[number : number + 1]
        found, wanted = (made(some, short=short)[1] for short in (True, False))
        assert isinstance(found, pa.Table) and isinstance(wanted, pa.Table)
        assert found["exact"].to_pylist() == wanted["exact"].to_pylist()


def test_texts_in_longer_forms_than_they_need() -> None:
    payloads = []
    for text in (b"x" * 256, b"x" * 255, b"x" * 256):
        entries = [(b"\xa1\x01a", b"\xb1" + struct.pack(">I", len(text)) + text), (b"\xa1\x01n", b"\x54\x05")]
        sections = scan_sections(_sections([b"\x40", b"\x40"], entries, wide=True))
        payloads.append(sections.header + bytes(make_body(sections, 7, 8)))
    for some in (payloads, payloads[1:], payloads[:1]):
        assert_the_same(some)


def test_exact_of_any_size() -> None:
    """Maps have other heads from 255 octets on."""
    for with_id in (None, uuid.UUID(int=5)):
        payloads = [
            handed_out(Message(b"x", message_id=with_id, application_properties={"t": "x" * size, "n": 5}), 7, 8)
            for size in range(190, 260)
        ]
        assert_the_same(payloads)


@pytest.mark.parametrize("number", [0, 1, -1, 127, 128, -128, -129, 255, 256, 1 << 31, 1 << 62])
@pytest.mark.parametrize("kind", [int, Byte, Short, Int, UByte, UShort, UInt, ULong])
def test_numbers_of_the_application_keep_their_type(number: int, kind: type[int]) -> None:
    try:
        properties = {"n": kind(number), "text": "t", "yes": True}
    except ValueError:
        return  # no such number
    payloads = [handed_out(Message(b"x", message_id="id", application_properties=properties), 7, 8)]
    _, rows, _ = made(payloads, short=True)
    assert isinstance(rows, pa.Table)
    assert dict(rows["application_properties"].to_pylist()[0])["n"] == str(number)
    found = read_exact(rows["exact"].to_pylist()[0])["application_properties"]
    assert isinstance(found, dict)
    assert type(found["n"]) is kind
    assert_the_same(payloads)


_sequences = st.integers(1, 300) | st.sampled_from([0, (1 << 63) - 1, 1 << 63])
_times = st.sampled_from([0, 1_700_000_000_000, -1, -(1 << 60), 1 << 60])
_behind = st.sampled_from(
    [{}, {}, {ACQUIRED_COUNT: UInt(1)}, {ACQUIRED_COUNT: UInt(300)}, {"x-opt-b": "c", "x-opt-d": [1]}]
)
_whole = st.builds(handed_out, _messages, _sequences, _times, _behind) | st.builds(Message.encode, _messages)
_payloads = _whole | st.builds(lambda payload, cut: payload[: -1 - cut], _whole, st.integers(0, 300))


@given(st.lists(_payloads, max_size=6), st.sampled_from([None, "message-id"]))
def test_the_short_way_and_the_long_way_make_the_same_rows(payloads: list[bytes], field: str | None) -> None:
    assert_the_same(payloads * 2, field)


RICH = handed_out(
    Message(
        AmqpValue("t\u00e9xt"),
        message_id=uuid.UUID(int=77),
        durable=True,
        ttl_ms=9,
        subject="s",
        to="queue",
        correlation_id="c",
        creation_time=Timestamp(5),
        group_id="g",
        group_sequence=300,
        annotations={"x-opt-jms-dest": Byte(0)},
        application_properties={"a": "b", "n": None, "c": "d"},
    ),
    7,
    1_700_000_000_000,
)
PLAIN = handed_out(Message(b"body" * 20, message_id="id-1", durable=True, subject="s"), 7, 1_700_000_000_000)


@pytest.mark.parametrize("whole", [PLAIN, RICH])
@given(data=st.data())
def test_also_when_bytes_are_spoiled(whole: bytes, data: st.DataObject) -> None:
    spoiled = []
    for _ in range(4):
        changed = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 2))):
            changed[data.draw(st.integers(0, len(whole) - 1))] = data.draw(
                st.sampled_from([0, 1, 2, 3, 0x40, 0x45, 0x54, 0x98, 0xA1, 0xC1, 0xD1, 255])
            )
        spoiled.append(bytes(changed[: data.draw(st.sampled_from([len(whole), len(whole), len(whole) // 2, 60]))]))
    payloads = [whole, *spoiled, whole]
    assert_the_same(payloads)


@pytest.mark.parametrize("whole", [PLAIN, RICH])
def test_also_when_each_byte_is_spoiled(whole: bytes) -> None:
    assert read_lot([whole]).plain.all()
    payloads = [
        whole[:at] + bytes((octet,)) + whole[at + 1 :]
        for at in range(len(whole))
        for octet in (0, 1, 0x40, 0x45, 0xA1, 0xB1, 0xC0, 0xD1, (whole[at] + 1) % 256, (whole[at] - 1) % 256)
    ]
    assert_the_same(payloads)


@given(st.lists(_payloads, min_size=1, max_size=6))
def test_a_lot_says_of_each_message_what_it_says_of_it_alone(payloads: list[bytes]) -> None:
    lot = read_lot(payloads)
    for row, payload in enumerate(payloads):
        alone = read_lot([payload])
        assert lot.plain[row] == alone.plain[0]
        assert lot.payload(row) == payload
        if lot.plain[row]:
            assert lot.bare_at[row] - lot.starts[row] == alone.bare_at[0]
            for part, other in zip(alone.entries, lot.entries, strict=False):
                assert part.there[0] == other.there[row]
            for name, part in alone.parts.items():
                assert lot.parts[name].there[row] == part.there[0]
                if part.there[0]:
                    assert lot.parts[name].start[row] - lot.starts[row] == part.start[0]
                    assert lot.parts[name].end[row] - lot.starts[row] == part.end[0]


@pytest.mark.parametrize("body", [b"x", bytes(300), AmqpValue("text"), AmqpValue("t" * 300), AmqpValue(b"binary")])
@pytest.mark.parametrize("durable", [False, True])
def test_what_is_plain(body: object, durable: bool) -> None:
    message = Message(body, message_id="id", durable=durable, application_properties={"k": "v"})
    payload = handed_out(message, 7, 8)
    lot = read_lot([payload])
    assert lot.plain.all()
    assert lot.numbers(lot.parts["sequence"], np.array([0])).tolist() == [7]
    assert lot.numbers(lot.parts["posted_at"], np.array([0])).tolist() == [8]
    assert lot.content(lot.parts["message_id"], np.array([0])).to_pylist() == [b"id"]
    assert lot.content(lot.entries[0], np.array([0])).to_pylist() == [b"v"]
    assert not read_lot([payload + b"\x00", *(payload[:size] for size in range(len(payload)))]).plain.any()


def test_what_is_plain_of_a_rich_one() -> None:
    """All of it is found, so that messages which differ in all of it have one pattern."""
    lot = read_lot([RICH])
    assert sorted(name for name, part in lot.parts.items() if part.there[0]) == [
        "body",
        "correlation_id",
        "created_at",
        "group_id",
        "group_sequence",
        "message_id",
        "posted_at",
        "sequence",
        "subject",
        "ttl_ms",
    ]
    assert [part.there[0] for part in lot.entries] == [True, False, True]


@pytest.mark.parametrize("body", [b"data", AmqpValue("text"), AmqpValue(b"binary")])
@pytest.mark.parametrize("spoiled", [b"\xffd", b"\xed\xa0"])
@pytest.mark.parametrize("field", [b"id", b"ss", b"cc", b"gg", b"vv"])
def test_what_is_not_utf8_is_not_plain_whatever_the_body_is(body: object, spoiled: bytes, field: bytes) -> None:
    message = Message(
        body,
        message_id="id",
        subject="ss",
        correlation_id="cc",
        group_id="gg",
        application_properties={"k": "vv"},
    )
    good = handed_out(message, 7, 8)
    payloads = [good, good.replace(b"\xa1\x02" + field, b"\xa1\x02" + spoiled), good]
    assert read_lot(payloads).plain.tolist() == [True, False, True]
    assert_the_same(payloads)


def assert_the_same_identities(payloads: list[bytes]) -> None:
    reader = MessageColumns("queue")
    short = told(reader.identify(payloads, BROKER))
    with nothing_is_plain():
        assert short == told(reader.identify(payloads, BROKER))


SIMPLE = handed_out(Message(b"body", message_id="id", durable=True), 7, 8)
AGAIN = handed_out(Message(b"body", message_id="id", durable=True), 7, 8, {ACQUIRED_COUNT: UInt(300), "x-opt-b": "c"})


@pytest.mark.parametrize("whole", [SIMPLE, RICH, AGAIN], ids=["simple", "rich", "again"])
def test_what_is_cut_short_is_known_again_as_the_long_way_knows_it(whole: bytes) -> None:
    """Only the first sections are looked at. What lies behind the last message is no part of it, nor is the next."""
    for size in range(len(whole)):
        assert_the_same_identities([SIMPLE, whole[:size]])
        assert_the_same_identities([whole[:size], SIMPLE])
    assert_the_same([SIMPLE, *(whole[:size] for size in range(len(whole))), SIMPLE])


@pytest.mark.parametrize("whole", [SIMPLE, RICH, AGAIN], ids=["simple", "rich", "again"])
def test_annotations_that_end_within_a_value_are_known_by_the_long_way(whole: bytes) -> None:
    sections = scan_sections(whole)
    start = len(sections.header)
    end = start + len(sections.message_annotations)
    for size in range(start + 5, end):
        cut = bytearray(whole[:size])
        cut[start + 4] = size - start - 5
        assert_the_same_identities([SIMPLE, bytes(cut)])
        assert_the_same_identities([bytes(cut), SIMPLE])
        assert_the_same_identities([bytes(cut) + whole[end:], SIMPLE])
    longer = bytearray(whole[:end])
    longer[start + 4] += 1
    assert_the_same_identities([SIMPLE, bytes(longer)])
    assert_the_same_identities([bytes(longer), SIMPLE])


@pytest.mark.parametrize("whole", [SIMPLE, RICH, AGAIN], ids=["simple", "rich", "again"])
def test_first_sections_with_another_octet_are_known_as_the_long_way_knows_them(whole: bytes) -> None:
    end = len(scan_sections(whole).header) + len(scan_sections(whole).message_annotations)
    spoiled = [whole[:at] + bytes((octet,)) + whole[at + 1 :] for at in range(end) for octet in (0, 0x41, 0x83, 255)]
    assert_the_same_identities(spoiled)
    for one in spoiled:
        assert_the_same_identities([one])


def test_an_identity_takes_no_reading_of_what_follows() -> None:
    payloads = [SIMPLE, SIMPLE[:-1], SIMPLE + b"x", handed_out(Message(AmqpValue([1, 2])), 8, 9)]
    found = MessageColumns("queue").identify(payloads, BROKER)
    (messages,) = found.messages
    assert isinstance(messages, ChosenMessages)
    assert messages.lot.numbered.all() and messages.payloads() == payloads
    assert messages.lot.plain.tolist() == [True, False, False, False]
    assert_the_same(payloads)


def test_text_beyond_ascii_is_plain() -> None:
    payloads = [
        handed_out(Message(AmqpValue("\u20ac"), message_id="\u00e9", application_properties={"k": "\u65e5"}), 7, 8)
    ]
    assert read_lot(payloads).plain.all()
    assert_the_same(payloads)


def test_a_pattern_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    parse = columns.parse
    monkeypatch.setattr(columns, "parse", lambda *given: read.append(1) or parse(*given))
    payloads = [
        handed_out(
            Message(
                b"%d" % n,
                message_id=uuid.uuid4(),
                ttl_ms=n,
                subject=f"{n}",
                correlation_id=f"c-{n}",
                creation_time=Timestamp(n),
                group_id=f"g-{n % 7}",
                group_sequence=n,
                reply_to=f"{n % 3}",
                application_properties={"a": f"{n}", "b": "x" * n, "amount": 1_000 * n, "price": n / 7, "paid": True},
            ),
            n,
            n,
        )
        for n in range(1, 50)
    ]
    made(payloads, short=True)
    assert len(read) == 3


def test_each_pattern_has_rows_of_its_own() -> None:
    payloads = [
        handed_out(
            Message(
                b"b" * (n % 3 * 150),
                message_id="i" * (n % 7),
                subject="s" * (n % 5),
                creation_time=Timestamp(n % 11) if n % 2 else None,
                application_properties={"a": n % 4} if n % 3 else None,
                durable=bool(n % 2),
                delivery_count=n % 3,
            ),
            1 + n,
            n,
        )
        for n in range(500)
    ]
    assert read_lot(payloads).plain.all()
    assert_the_same(payloads)


def test_lots_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    payloads = [handed_out(Message(b"b", message_id=f"id-{n}"), 1 + n, n) for n in range(25)] + [b"damaged"]
    whole = made(payloads, short=True)
    monkeypatch.setattr(columns, "_BATCH_ROWS", 10)
    assert made(payloads, short=True) == whole
    monkeypatch.setattr(columns, "_BATCH_BYTES", 100)
    assert made(payloads, short=True) == whole


def test_a_time_behind_the_annotations_is_none_of_them() -> None:
    sequence = b"\xa3\x15x-opt-acquit-sequence\x80" + (7).to_bytes(8, "big")
    first, second = (b"\xa3\x16x-opt-acquit-posted-at\x83" + number.to_bytes(8, "big") for number in (5, 9))
    entries = first + sequence
    payload = b"\x00\x53\x72\xc1" + bytes((len(entries) + 1, 4)) + entries + second
    assert_the_same_identities([SIMPLE, payload, SIMPLE])
    assert_the_same([SIMPLE, payload, SIMPLE])


def test_a_value_that_reads_like_our_sequence_is_none() -> None:
    def symbol(name: bytes) -> bytes:
        return b"\xa3" + bytes((len(name),)) + name

    entries = (
        symbol(b"a")
        + symbol(b"x-opt-acquit-sequence")
        + (b"\x80" + (7).to_bytes(8, "big"))
        + symbol(b"x-opt-acquit-posted-at")
        + (b"\x83" + bytes(8))
        + b"\x40"
    )
    payload = b"\x00\x53\x72\xc1" + bytes((len(entries) + 1, 6)) + entries
    assert_the_same_identities([SIMPLE, payload, SIMPLE])
    assert_the_same([SIMPLE, payload, SIMPLE])


def table(rows: Rows) -> pa.Table | None:
    return pa.Table.from_batches(rows.batches) if rows.batches else None


@given(st.lists(_payloads, max_size=8), st.data())
def test_rows_of_some_are_those_of_them_alone(payloads: list[bytes], data: st.DataObject) -> None:
    """Whatever was identified together, and is not plain among them."""
    for ours in (BROKER, None):
        reader, kept = MessageColumns("queue"), list[KeptMessages]()
        chunk = data.draw(st.integers(1, 8))
        for start in range(0, len(payloads), chunk):
            kept += reader.identify(payloads[start : start + chunk], ours).messages
        numbers = data.draw(st.sets(st.sampled_from(range(len(payloads))))) if payloads else set()
        chosen = take_messages(kept, np.array(sorted(numbers), np.int64))
        assert sum(map(len, chosen)) == len(numbers)
        alone = [payloads[number] for number in sorted(numbers)]
        with mock.patch.object(columns, "_FEW_ROWS", data.draw(st.sampled_from([0, 1_024]))):
            found = reader.rows(chosen, ours)
        wanted = reader.rows(reader.identify(alone, ours).messages, ours)
        assert (table(found), found.corrupt) == (table(wanted), wanted.corrupt)
        identified = reader.identify(alone, ours)
        rows = np.flatnonzero(identified.named)
        named, named_again = take_messages(chosen, rows), take_messages(identified.messages, rows)
        for log_format in (FIRST_FORMAT, SECOND_FORMAT):
            found_by, wanted_by = (reader.earlier(some, ours, log_format).encode() for some in (named, named_again))
            assert found_by == wanted_by


def test_what_was_read_together_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for lots of few messages, which make one batch in place of many."""
    payloads = [handed_out(Message(b"b", message_id=f"id-{n}"), 1 + n, n) for n in range(20)]
    reader, kept = MessageColumns("queue"), list[KeptMessages]()
    for start, end in ((0, 2), (2, 5), (5, 15), (15, 16), (16, 20)):
        kept += reader.identify(payloads[start:end], BROKER).messages
    read = []
    read_again = columns.read_lot
    monkeypatch.setattr(
        columns, "read_lot", lambda payloads, **given: [read.append(len(payloads)), read_again(payloads, **given)][1]
    )
    monkeypatch.setattr(columns, "_FEW_ROWS", 5)
    rows = reader.rows(kept, BROKER)
    assert read == [5, 5]
    assert [batch.num_rows for batch in rows.batches] == [5, 10, 5]
    assert rows.batches[1]["sequence"].to_pylist() == [*range(6, 16)]
    assert reader.rows(kept[2:3], BROKER).batches == rows.batches[1:2]
    assert len(reader.rows(kept[:1], BROKER).batches) == 1
    assert read == [5, 5], "alone it is not read again either"
    monkeypatch.setattr(columns, "_BATCH_ROWS", 3)
    assert [batch.num_rows for batch in reader.rows(kept, BROKER).batches] == [3, 2, 10, 3, 2]

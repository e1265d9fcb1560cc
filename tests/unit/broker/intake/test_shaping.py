"""What is read of a message, and what is written around it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.broker.intake.shaping import (
    TIME_MAX_MS,
    make_body,
    make_plain_body,
    merge_annotations,
    own_annotations,
    read_due_at,
    read_group,
    read_posting,
    shape_body,
    transfer_header,
)
from acquit.broker.refusal import Refused
from acquit.errors import DecodeError
from acquit.protocol.codec import encode
from acquit.protocol.message import AmqpValue, Data, Message
from acquit.protocol.sections import decode_header, scan_sections
from acquit.protocol.types import Float, Symbol, Timestamp, UInt

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("attempt", [0, 1, 255, 256, 65_535])
@pytest.mark.parametrize("ttl_ms", [None, 0, 1, 0xFFFF_FFFF])
def test_our_header_says_everything(durable: bool, attempt: int, ttl_ms: int | None) -> None:
    for priority in (0, 4, 255):
        for first in (False, True):
            header = decode_header(transfer_header(durable, priority, first, attempt, ttl_ms))
            assert (header.durable, header.priority, header.first_acquirer) == (durable, priority, first)
            assert (header.delivery_count, header.ttl) == (attempt, ttl_ms)


def test_our_annotations() -> None:
    message = Message.decode(own_annotations(7, NOW_MS) + Message(b"x").encode())
    assert message.annotations == {"x-opt-acquit-sequence": 7, "x-opt-acquit-posted-at": NOW_MS}
    assert isinstance(message.annotations["x-opt-acquit-posted-at"], Timestamp)


def test_the_body_keeps_everything_behind_the_header_byte_for_byte() -> None:
    message = Message(
        b"x",
        durable=True,
        ttl_ms=5,
        subject="s",
        delivery_annotations={"x-opt-hop": 1},
        annotations={"x-opt-a": "b", "x-opt-acquit-sequence": 1},
        application_properties={"k": 1},
        footer={"x-opt-f": 2},
    )
    payload = message.encode()
    body = shape_body(payload, 9, NOW_MS)
    shaped = Message.decode(body)
    assert shaped.annotations == {"x-opt-a": "b", "x-opt-acquit-sequence": 9, "x-opt-acquit-posted-at": NOW_MS}
    bare = payload[payload.index(b"\x00\x53\x73") :]
    assert body.endswith(bare)
    assert shaped.delivery_annotations == {"x-opt-hop": 1}
    assert shaped.header == Message().header


def test_what_a_posting_says() -> None:
    message = Message(
        "x",
        durable=True,
        priority=7,
        ttl_ms=5,
        message_id="id",
        to="there",
        absolute_expiry_time=NOW_MS + 9,
    )
    posting = read_posting(message.encode())
    assert (posting.durable, posting.priority, posting.ttl_ms, posting.to) == (True, 7, 5, "there")
    assert (posting.message_id, posting.absolute_expiry_ms) == (b"sid", NOW_MS + 9)


@pytest.mark.parametrize(
    ("annotations", "due_at_ms"),
    [
        ({"x-opt-delivery-time": NOW_MS + 1}, NOW_MS + 1),
        ({"x-opt-delivery-time": NOW_MS + 1, "x-opt-delivery-delay": 50}, NOW_MS + 1),
        ({"x-opt-delivery-time": NOW_MS - 1, "x-opt-delivery-delay": 50}, 0),
        ({"x-opt-delivery-delay": 50}, NOW_MS + 50),
        ({"x-opt-delivery-delay": -50}, 0),
        ({"x-opt-delivery-delay": 5_000.0}, NOW_MS + 5_000),
        ({"x-opt-delivery-delay": Float(5_000.0)}, NOW_MS + 5_000),
        ({"x-opt-delivery-delay": UInt(5_000)}, NOW_MS + 5_000),
        ({"x-opt-delivery-delay": Timestamp(5_000)}, NOW_MS + 5_000),
        ({"x-opt-delivery-delay": None}, 0),
        ({"x-opt-delivery-delay": 1e300}, TIME_MAX_MS),
        ({"x-opt-delivery-time": Timestamp(NOW_MS + 1)}, NOW_MS + 1),
        ({"x-opt-delivery-time": float(NOW_MS + 1)}, NOW_MS + 1),
        ({"x-opt-delivery-time": None, "x-opt-delivery-delay": 50}, NOW_MS + 50),
        ({"x-opt-other": 1}, 0),
    ],
)
def test_delivery_times(annotations: dict[str, object], due_at_ms: int) -> None:
    assert read_due_at(scan_sections(Message(b"x", annotations=annotations).encode()), NOW_MS) == due_at_ms


@pytest.mark.parametrize("name", ["x-opt-delivery-delay", "x-opt-delivery-time"])
@pytest.mark.parametrize("value", ["5000", "soon", Symbol("5000"), True, 0.5, float("inf"), float("nan"), [5], b"5"])
def test_a_delivery_time_that_is_no_whole_number_is_refused(name: str, value: object) -> None:
    """It would be delivered at once. Also beside one that is."""
    for said in ({name: value}, {"x-opt-delivery-time": NOW_MS + 1, name: value}):
        with pytest.raises(Refused, match=name) as caught:
            read_due_at(scan_sections(Message(b"x", annotations=said).encode()), NOW_MS)
        assert caught.value.condition == "amqp:invalid-field"


@pytest.mark.parametrize(
    "name",
    ["x-opt-delivery-dealy", "x-opt-delivery-", "x-opt-delivery-Time", "x-opt-delivery-cron", "x-opt-delivery-ü"],
)
def test_an_annotation_that_is_nearly_a_delivery_time_is_refused(name: str) -> None:
    section = b"\x00\x53\x72" + encode({name: 5})
    with pytest.raises(Refused, match="x-opt-delivery-time and x-opt-delivery-delay are") as caught:
        read_due_at(scan_sections(section + Message(b"x").encode()), NOW_MS)
    assert caught.value.condition == "amqp:not-implemented"


def test_nonsense_is_refused() -> None:
    for payload in (b"\xde\xad", b"\x00\x53\x75\xa0\x05abc", b"\x00\x53\x70\xa0\x00\x00\x53\x75\xa0\x00"):
        with pytest.raises(DecodeError):
            read_posting(payload)
    with pytest.raises(DecodeError):
        read_posting(Message(b"x", message_id="m" * 70_000).encode())


def test_annotations_of_an_outcome_are_merged() -> None:
    body = shape_body(Message(b"x", annotations={"x-opt-a": 1}).encode(), 1, NOW_MS)
    merged = Message.decode(merge_annotations(body, encode({"x-opt-a": "new", "x-opt-b": 2})))
    assert merged.annotations["x-opt-a"] == "new"
    assert merged.annotations["x-opt-b"] == 2
    assert merged.annotations["x-opt-acquit-sequence"] == 1


bodies = st.one_of(
    st.binary(max_size=600),
    st.text(max_size=600),
    st.none(),
    st.integers(-5, 5),
    st.builds(Data, st.tuples(st.binary(max_size=5), st.binary(max_size=5))),
    st.builds(AmqpValue, st.binary(max_size=5)),
)
ids = st.one_of(st.none(), st.text(max_size=300), st.integers(0, 5), st.uuids(), st.binary(max_size=5))
told = st.builds(
    Message,
    bodies,
    durable=st.booleans(),
    ttl_ms=st.sampled_from([None, None, 5]),
    message_id=ids,
    to=st.sampled_from([None, "to"]),
    correlation_id=ids,
    absolute_expiry_time=st.sampled_from([None, None, NOW_MS]),
    group_id=st.sampled_from([None, None, "g", "h" * 100]),
    group_sequence=st.sampled_from([None, 0, 0xFFFF_FFFF]),
    annotations=st.sampled_from([{}, {}, {"x-opt-a": 1}]),
    application_properties=st.sampled_from([{}, {"k": "v"}, {"_AMQ_DUPL_ID": "d"}]),
)


@given(told)
def test_a_plain_posting_asks_for_no_care(message: Message) -> None:
    posting = read_posting(message.encode())
    times = message.ttl_ms is not None or message.absolute_expiry_time is not None
    assert posting.plain is not times
    group, sequence = read_group(posting.sections)
    assert (posting.group, posting.group_sequence) == (group, None if group is None else sequence)
    assert posting.to == message.to
    assert (posting.durable, posting.priority) == (message.durable, message.priority)


@given(told, st.sampled_from([1, 300, (1 << 64) - 1]))
def test_what_is_kept_of_a_posting_is_the_same_whoever_asks(message: Message, sequence: int) -> None:
    payload = message.encode()
    body = read_posting(payload).body(payload, sequence, NOW_MS)
    assert body == shape_body(payload, sequence, NOW_MS)
    short = make_plain_body(payload, sequence, NOW_MS)
    assert short is None or short == body


def test_an_id_that_is_no_text_makes_no_message() -> None:
    for properties in (b"\x00\x53\x73\xc0\x05\x01\xa1\x02\xff\xfe", b"\x00\x53\x73\xc0\x04\x01\xa1\x09x"):
        with pytest.raises(DecodeError):
            read_posting(properties + b"\x00\x53\x75\xa0\x20" + bytes(32))


def test_annotations_that_are_no_pairs_are_found_each_time() -> None:
    """What is remembered of annotations is remembered of those that make sense."""
    payload = b"\x00\x53\x72\xc1\x04\x01\xa3\x01a\x00\x53\x75\xa0\x00"
    for _ in range(3):
        with pytest.raises(DecodeError):
            read_posting(payload)


@pytest.mark.parametrize(
    "message",
    [
        Message(b"body"),
        Message(b"body", durable=True, annotations={"x-opt-a": 1, "x-opt-acquit-sequence": 7, "x-opt-b": "z"}),
        # what stands where the sequence is to be put, as somebody else's value
        Message(b"body", annotations={"x-opt-a": b"\xa3\x15x-opt-acquit-sequence\x80" + b"\xff" * 8}),
        Message(b"\xa3\x15x-opt-acquit-sequence\x80" + b"\xff" * 8, message_id="m", application_properties={"a": "b"}),
    ],
    ids=["bare", "annotated", "imitated in an annotation", "imitated in the body"],
)
@pytest.mark.parametrize("sequence", [1, 300, (1 << 64) - 1])
def test_copies_differ_in_their_sequence_alone(message: Message, sequence: int) -> None:
    payload = message.encode()
    posting = read_posting(payload)
    copy = Message.decode(posting.body(payload, sequence, NOW_MS))
    other = Message.decode(posting.body(payload, sequence - 1, NOW_MS))
    assert copy.annotations.pop("x-opt-acquit-sequence") == sequence
    assert other.annotations.pop("x-opt-acquit-sequence") == sequence - 1
    assert copy == other
    assert copy.annotations.pop("x-opt-acquit-posted-at") == NOW_MS
    assert copy.annotations == {key: value for key, value in message.annotations.items() if "acquit" not in key}
    assert copy.body == message.body


_TEXTS = st.none() | st.text(max_size=300)


@given(
    st.builds(
        Message,
        st.binary(max_size=300) | st.text(max_size=8).map(AmqpValue),
        durable=st.booleans(),
        ttl_ms=st.none() | st.integers(0, 1 << 32),
        message_id=_TEXTS,
        subject=_TEXTS,
        group_id=_TEXTS,
        reply_to_group_id=_TEXTS,
        delivery_annotations=st.sampled_from([{}, {"x-opt-hop": 1}]),
        annotations=st.sampled_from([{}, {"x-opt-a": "b"}]),
        application_properties=st.sampled_from([{}, {"k": 1}]),
    )
)
def test_a_plain_message_is_restored_as_any_other(message: Message) -> None:
    payload = message.encode()
    sections = scan_sections(payload)
    plain = make_plain_body(payload, 9, NOW_MS)
    if plain is not None:
        assert plain == make_body(sections, 9, NOW_MS)
        assert read_group(sections)[0] is None


def test_which_messages_are_plain() -> None:
    for message in (Message(b"x"), Message(b"x", durable=True, message_id="id", application_properties={"k": "v"})):
        assert make_plain_body(message.encode(), 9, NOW_MS) is not None
    for message in (Message(b"x", group_id="g"), Message(b"x", annotations={"x-opt-a": 1})):
        assert make_plain_body(message.encode(), 9, NOW_MS) is None

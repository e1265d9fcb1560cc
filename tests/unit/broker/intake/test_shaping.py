"""What is read of a message, what is written around it, and that the short way says the same as the long one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.broker.intake import shaping
from acquit.broker.intake.shaping import (
    TIME_MAX_MS,
    Template,
    Templates,
    check_cost,
    learn_template,
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
from acquit.protocol.types import Byte, Float, Symbol, Timestamp, UInt
from tests.support.raw_payloads import with_creation_time

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
messages = st.builds(
    Message,
    bodies,
    durable=st.booleans(),
    priority=st.sampled_from([4, 9]),
    ttl_ms=st.sampled_from([None, None, None, 5]),
    subject=st.sampled_from([None, None, "s", "t"]),
    annotations=st.sampled_from([{}, {}, {"x-opt-a": "b"}, {"x-opt-acquit-sequence": 5}]),
    application_properties=st.sampled_from([{}, {}, {"k": 1}, {"_AMQ_DUPL_ID": "d"}]),
    creation_time=st.sampled_from([None, Timestamp(NOW_MS), Timestamp(1)]),
    user_id=st.sampled_from([None, None, None, b"u"]),
    message_id=st.sampled_from([None, None, "id-1", "id-2", "id-é", "id-ab", "i", "", "i" * 300, 5]),
)


grouped = st.builds(
    Message,
    st.sampled_from([b"", b"x", b"y" * 300]),
    message_id=st.sampled_from([None, "id-1", "id-2"]),
    group_id=st.sampled_from([None, "g-1", "g-2", "g-é", "", "h" * 64, "h" * 65]),
    group_sequence=st.sampled_from([None, None, 0, 0xFFFF_FFFF]),
    application_properties=st.sampled_from(
        [{}, {"k": 1}, {"k": "v" * 300}, {"k": "_AMQ_DUPL_ID"}, {"_AMQ_DUPL_ID": "d"}]
        + [{f"k{number}": None for number in range(count)} for count in (64, 65)]
    ),
)


@given(st.one_of(st.tuples(messages, messages), st.tuples(grouped, grouped)))
def test_a_template_takes_only_what_it_understands(pair: tuple[Message, Message]) -> None:
    """If a message fits the template of another, reading it the long way gives what the template says."""
    first, second = pair
    template = learn_template(read_posting(first.encode()))
    if template is None:
        return
    assert template.fits(first.encode()) or template.read(first.encode()) is not None
    payload = second.encode()
    if template.fits(payload):
        same(template, payload)
    same_read(template, payload)


@given(grouped, st.integers(0), st.integers(0, 255))
def test_a_template_takes_no_octet_for_another(message: Message, at: int, octet: int) -> None:
    payload = message.encode()
    template = learn_template(read_posting(payload))
    at %= len(payload)
    changed = payload[:at] + bytes((octet,)) + payload[at + 1 :]
    if template is not None and template.fits(changed):
        same(template, changed)
    if template is not None:
        same_read(template, changed)


BODY = b"\x00\x53\x75\xa0\x01x"


def with_properties(octets: bytes) -> bytes:
    """A message with application properties of these octets."""
    return b"\x00\x53\x74" + octets + BODY


@pytest.mark.parametrize("wide", [False, True])
def test_a_template_takes_no_properties_that_the_long_way_refuses_or_counts(wide: bool) -> None:
    def properties(size: int, count: int, octets: bytes) -> bytes:
        width = 4 if wide else 1
        head = b"\xd1" if wide else b"\xc1"
        return with_properties(head + (size + width).to_bytes(width) + count.to_bytes(width) + octets)

    template = learn_template(read_posting(properties(4, 2, b"\xa1\x01k\x40")))
    assert template is not None
    for entries, fits in ((0, True), (1, True), (64, True), (65, False)):
        octets = b"\xa1\x00\x40" * entries
        assert template.fits(properties(len(octets), 2 * entries, octets)) is fits
    assert not template.fits(properties(1, 2, b"\x40")), "two items in one octet"
    assert not template.fits(properties(-1, 0, b"")[:-7] + BODY), "a size that leaves no room for the count"
    assert not template.fits(properties(4, 2, b"\xa1\x01k\x40").replace(BODY, b"\x00\x53\x77\xa0\x01x"))
    assert not template.fits(properties(20, 2, b"\xa1\x0c_AMQ_DUPL_ID\xa1\x04same"))


@pytest.mark.parametrize("value", ["another", "a" * 300, 5])
def test_a_template_reads_groups_of_one_width_and_any_properties(value: object) -> None:
    template = learn_template(
        read_posting(Message(b"body", group_id="group-1", application_properties={"k": "v" * 300}).encode())
    )
    assert template is not None
    for group, fits in (("group-1", True), ("group-2", True), ("group-10", False), ("groupé", False), (None, False)):
        payload = Message(b"body", group_id=group, application_properties={"k": value, "l": "x" * 300}).encode()
        assert template.fits(payload) is fits
        if fits:
            assert template.group_of(payload) == group
            same(template, payload)


def same(template: Template, payload: bytes) -> None:
    """The short way says what the long way says."""
    posting = read_posting(payload)
    assert posting.plain and (posting.user_id, posting.duplicate_id) == (None, b"")
    assert read_due_at(posting.sections, NOW_MS) == 0
    assert (template.durable, template.priority) == (posting.durable, posting.priority)
    assert (template.group_of(payload), template.group_sequence) == (posting.group, posting.group_sequence)
    assert posting.group is None or template.marked
    check_cost(payload, 64, 2)
    assert template.meta(b"q", payload) == posting.meta(b"q", payload)
    assert template.body(payload, 3, NOW_MS) == posting.body(payload, 3, NOW_MS) == shape_body(payload, 3, NOW_MS)


def same_read(template: Template, payload: bytes) -> None:
    """What is read by the template is what the long way says, and what fits is not read."""
    short = template.read(payload)
    if short is None:
        return
    assert not template.fits(payload) and short.plain
    long = read_posting(payload)
    check_cost(payload, 64, 2)
    assert read_due_at(long.sections, NOW_MS) == 0
    fields = [name for name in dir(long) if not name.startswith("_") and not callable(getattr(long, name))]
    assert len(fields) > 15, "compiled classes have no slots to go by"
    for name in fields:
        if name != "sections":
            assert getattr(short, name) == getattr(long, name), name
    for name in ("payload", "bounds", "body_code"):
        assert getattr(short.sections, name) == getattr(long.sections, name), name


def with_id(value: object, **more: Any) -> bytes:
    """A message with an id to detect duplicates by."""
    return Message(b"x" * 20, application_properties={"_AMQ_DUPL_ID": value}, **more).encode()


@pytest.mark.parametrize("more", [{}, {"message_id": "m-1", "group_id": "g-1", "to": "q"}], ids=["plain", "group"])
@pytest.mark.parametrize("wide", [False, True])
def test_an_id_to_detect_duplicates_by_is_read_where_it_is_the_only_property(more: dict[str, Any], wide: bool) -> None:
    def written(payload: bytes) -> bytes:
        at = payload.index(b"\x00\x53\x74") + 3
        size, count, rest = payload[at + 1], payload[at + 2], payload[at + 3 :]
        return payload[:at] + b"\xd1" + (size + 3).to_bytes(4) + count.to_bytes(4) + rest if wide else payload

    templates = Templates()
    assert templates.read(written(with_id("one", **more))) is None
    templates.learn(read_posting(written(with_id("one", **more))))
    template = templates.latest
    assert template is not None
    for value in ("two", "", "x" * 200):
        payload = written(with_id(value, **more))
        posting = templates.read(payload)
        assert posting is not None and posting.duplicate_id == b"s" + value.encode()
        assert templates.other(payload) is None
        same_read(template, payload)
        for at in range(len(payload)):  # whatever is spoiled is read as the long way reads it, or not at all
            same_read(template, payload[:at] + bytes((payload[at] ^ 0x41,)) + payload[at + 1 :])
            same_read(template, payload[:at])
    # A map that ends before the size of its last value, for which the body's first octet could be taken.
    cut = with_id("", **more)
    at = cut.index(b"\x00\x53\x74") + 4
    cut = cut[:at] + bytes((cut[at] - 1,)) + cut[at + 1 :].replace(b"\xa1\x00\x00\x53\x75", b"\xa1\x00\x53\x75")
    assert templates.read(written(cut)) is None
    for value in ("é", 5, None, True, b"b", "x" * 300):
        assert templates.read(written(with_id(value, **more))) is None
    two = Message(b"x" * 20, application_properties={"_AMQ_DUPL_ID": "two", "k": 1}, **more)
    assert templates.read(written(two.encode())) is None


def test_ids_to_detect_duplicates_by_are_read_whatever_the_header() -> None:
    templates = Templates()
    for _ in range(2):
        for durable in (False, True):
            templates.learn(read_posting(with_id("one", durable=durable)))
    for number in range(200):
        payload = with_id(f"{number}", durable=number % 2 == 0)
        assert templates.other(payload) is None
        posting = templates.read(payload)
        assert posting is not None and posting.durable is (number % 2 == 0)
    payload = Message(b"x", message_id="m").encode()
    assert templates.read(payload) is None
    templates.learn(read_posting(payload))
    assert templates.of(payload) is not None, "what was read counted as a miss"


def as_jms(number: int, created_ms: int = NOW_MS, **more: Any) -> Message:
    """As Qpid JMS writes a message, number by number."""
    said: dict[str, Any] = {
        "durable": True,
        "annotations": {"x-opt-jms-msg-type": Byte(3), "x-opt-jms-dest": Byte(0)},
        "message_id": f"ID:4e1f-9c:1:1:1-{number}",
        "to": "q",
        "content_type": "application/octet-stream",
        "creation_time": Timestamp(created_ms),
    }
    return Message(b"x" * 20, **(said | more))


@pytest.mark.parametrize("make", [bytes, bytes.decode])
@pytest.mark.parametrize("properties", [{}, {"k": "v"}])
def test_a_template_takes_bodies_of_any_length(
    make: Callable[[bytes], bytes | str], properties: dict[str, str]
) -> None:
    def payload(size: int) -> bytes:
        return Message(make(b"x" * size), application_properties=properties).encode()

    for learnt in (0, 3, 256):
        template = learn_template(read_posting(payload(learnt)))
        assert template is not None
        for size in (0, 1, 255, 256, 70_000):
            assert template.fits(payload(size))
            assert not template.fits(payload(size) + b"x")
            assert not template.fits(payload(size)[:-1])
        other = make is bytes
        assert not template.fits(Message("text" if other else b"octets", application_properties=properties).encode())


def test_messages_of_jms_clients_have_one_template() -> None:
    templates = Templates()
    templates.learn(read_posting(as_jms(1).encode()))
    assert templates.latest is not None
    for number in range(2, 10):
        payload = as_jms(number, NOW_MS + number).encode()
        assert templates.latest.fits(payload)
        same(templates.latest, payload)
    for other in (
        as_jms(10),
        as_jms(2, to="r"),
        as_jms(2, group_id="g"),
        as_jms(2, ttl_ms=5),
        as_jms(2, durable=False),
    ):
        assert not templates.latest.fits(other.encode())


def with_wide_header(payload: bytes) -> bytes:
    """The same message, with its header as a list32."""
    size, count, rest = payload[4], payload[5], payload[6:]
    return b"\x00\x53\x70\xd0" + (size + 3).to_bytes(4) + count.to_bytes(4) + rest if payload[2] == 0x70 else payload


@pytest.mark.parametrize("written", [bytes, with_wide_header])
def test_priorities_in_turns_have_a_template_each(written: Callable[[bytes], bytes]) -> None:
    templates = Templates()
    payloads = [written(Message(b"x", priority=one, message_id="m-1").encode()) for one in range(10)]
    for payload in payloads:
        assert templates.other(payload) is None
        templates.learn(read_posting(payload))
    for payload in payloads * 2:
        template = templates.other(payload)
        assert template is not None and template is templates.latest
        same(template, payload)


@pytest.mark.pure
def test_a_sender_whose_messages_fit_nothing_is_looked_at_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = []
    monkeypatch.setattr(shaping, "learn_template", learned.append)
    templates = Templates()
    for number in range(1_000):
        payload = Message(b"x", subject=f"{number}").encode()
        assert templates.other(payload) is None
        templates.learn(read_posting(payload))
    assert 64 <= len(learned) < 100


@pytest.mark.parametrize(
    "message",
    [
        Message(b"x", ttl_ms=5),
        Message(b"x", absolute_expiry_time=NOW_MS),
        Message(b"x", user_id=b"u"),
        Message(b"x", group_id="g" * 65),
        Message(b"x", message_id=5),
        Message(b"x", message_id="m", application_properties={"_AMQ_DUPL_ID": 5}),
        Message(b"x", annotations={"x-opt-delivery-time": 5}),
        Message(Data([b"x", b"y"])),
        Message(b"x", subject="s" * 5_000),
        Message(b"x", application_properties={f"k{number}": None for number in range(65)}),
        Message(b"x", application_properties={"k": "_AMQ_DUPL_ID", "_AMQ_DUPL_ID": None}),
    ],
    ids=["ttl", "expiry", "user", "group", "number", "duplicate", "time", "two sections", "long", "many", "null"],
)
def test_what_no_template_can_say(message: Message) -> None:
    assert learn_template(read_posting(message.encode())) is None


@pytest.mark.parametrize(
    "created", [b"\xa1\x08AAAAAAAA", b"\xa0\x08AAAAAAAA", b"\x80AAAAAAAA", b"\x00\x43\x80AAAAAAAA"]
)
def test_a_creation_time_that_is_none_is_no_place_for_other_octets(created: bytes) -> None:
    """Its own length may be among them."""
    try:
        posting = read_posting(with_creation_time(created))
    except DecodeError:
        return
    assert learn_template(posting) is None


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


def test_a_template_reads_ids_of_one_width() -> None:
    template = learn_template(read_posting(Message(b"body", message_id="sender-1").encode()))
    assert template is not None
    for message_id, fits in (("sender-1", True), ("sender-2", True), ("other--2", True), ("sender-10", False)):
        payload = Message(b"another body", message_id=message_id).encode()
        assert template.fits(payload) is fits
        if fits:
            same(template, payload)
    payload = Message(b"body", message_id="sender-1").encode()
    for octets in ("senderé".encode(), b"sender\xff\xfe"):
        assert not template.fits(payload.replace(b"sender-1", octets))
    assert not template.fits(Message(b"body", message_id="sender-1", subject="s").encode())
    assert not template.fits(Message(b"body").encode())


@given(st.binary(max_size=20), st.booleans(), st.binary(max_size=4), st.sampled_from([None, "id"]))
def test_a_template_does_not_take_what_is_cut_or_followed_by_more(
    body: bytes, durable: bool, more: bytes, message_id: str | None
) -> None:
    payload = Message(body, durable=durable, message_id=message_id).encode()
    template = learn_template(read_posting(payload))
    assert template is not None
    assert not [size for size in range(len(payload)) if template.fits(payload[:size])]
    assert template.fits(payload + more) is not bool(more)


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

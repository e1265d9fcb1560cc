"""The short way says the same of a message as the long one."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.broker.intake import templates as module
from acquit.broker.intake.shaping import (
    check_cost,
    read_due_at,
    read_posting,
    shape_body,
    transfer_header,
)
from acquit.broker.intake.templates import ALIKE_MIN, Template, Templates, learn_template
from acquit.errors import DecodeError
from acquit.ledger.records import Extra, MessageId, encode_extras
from acquit.protocol.message import Data, Message
from acquit.protocol.sections import APPLICATION_PROPERTIES, PropertyIndex
from acquit.protocol.sections import BODY as BODY_RANK
from acquit.protocol.types import Byte, Timestamp, ULong
from tests.support.raw_payloads import with_creation_time
from tests.unit.broker.intake.test_shaping import NOW_MS, bodies

UUIDS = UUID(int=1), UUID(int=2 << 100)
odd_ids = st.sampled_from([b"id-1", b"id-\xff", b"i" * 300, ULong(5), ULong(1 << 40), ULong(3 << 60), *UUIDS])
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
    message_id=st.sampled_from([None, None, "id-1", "id-2", "id-é", "id-ab", "i", "", "i" * 300, 5]) | odd_ids,
    correlation_id=st.sampled_from([None, None, None, "id-1", "id-2", "", "i" * 300]) | odd_ids,
)
grouped = st.builds(
    Message,
    st.sampled_from([b"", b"x", b"y" * 300]),
    message_id=st.sampled_from([None, "id-1", "id-2"]) | odd_ids,
    correlation_id=st.none() | odd_ids,
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


PROPERTIES = [{}, {"k": "v"}, {"k": "v" * 300}, {"_AMQ_DUPL_ID": "dupl"}]


@pytest.mark.parametrize("body", [b"x" * 5, b"x" * 300, b"_AMQ_DUPL_ID"], ids=["short", "long", "confusing"])
@pytest.mark.parametrize("properties", PROPERTIES, ids=["none", "one", "many", "identified"])
@pytest.mark.parametrize("count", [ALIKE_MIN - 1, ALIKE_MIN, 120])
def test_many_fit_if_each_fits(body: bytes, properties: dict[str, object], count: int) -> None:
    """Whichever octet of one of them is another, before its body."""
    payload = Message(body, message_id="id-1", group_id="g-1", application_properties=properties).encode()
    template = learn_template(read_posting(payload))
    assert template is not None
    fits = template.fits(payload)
    identified = template.identified(payload)
    assert fits is (identified is None) is (b"DUPL_ID" not in payload[: -len(body)])
    assert template.fits_all([payload] * count) == fits
    assert template.identified_all([payload] * count) == (None if fits else [identified] * count)
    for at in range(len(payload) - len(body)):
        for octet in (payload[at] ^ 0x80, payload[at] ^ 1, payload[at] ^ 0x10):
            changed = payload[:at] + bytes((octet,)) + payload[at + 1 :]
            run = [*[payload] * (count - 1), changed]
            assert template.fits_all(run) == (fits and template.fits(changed)), (at, octet)
            each = [*[identified] * (count - 1), template.identified(changed)]
            assert template.identified_all(run) == (None if None in each else each), (at, octet)


@pytest.mark.parametrize("count", [ALIKE_MIN - 1, ALIKE_MIN, 120])
def test_many_fit_that_are_of_several_sizes(count: int) -> None:
    payloads = [Message(bytes(at % 7), message_id="id-1").encode() for at in range(count)]
    template = learn_template(read_posting(payloads[0]))
    assert template is not None
    assert template.fits_all(payloads)
    assert not template.fits_all([*payloads, Message(b"", message_id="id").encode()])


@pytest.mark.parametrize("count", [3, 9 * ALIKE_MIN])
def test_messages_of_several_headers_are_found_each_with_its_template(count: int) -> None:
    headers = [4, 0, 9]  # the default is written as none
    payloads = [
        Message(b"x", message_id=f"id-{at % 10}", priority=headers[at % 3], durable=False).encode()
        for at in range(count)
    ]
    templates = Templates()
    for payload in payloads[:3]:
        templates.learn(read_posting(payload))
    alike = templates.alike(payloads)
    assert {one.priority: list(places) for one, places in alike.items()} == {
        priority: [*range(at, count, 3)] for at, priority in enumerate(headers)
    }
    for odd in (Message(b"x", message_id="id-é").encode(), Message(b"x", priority=5, message_id="id-1").encode(), b""):
        for at in (0, 1, count):
            assert not templates.alike([*payloads[:at], odd, *payloads[at:]])


def test_what_is_one_template_by_two_beginnings_is_in_order() -> None:
    """A short header is compared with some octets of what follows."""
    short = [Message(b"x", durable=False, message_id=f"id-{at}").encode() for at in range(4)]
    long = Message(b"x", durable=False, priority=9, ttl_ms=None, message_id="id-1").encode()
    templates = Templates()
    for payload in (long, short[0]):
        templates.learn(read_posting(payload))
    templates._by_header[bytes(len(short[0]))] = templates._by_header.pop(read_posting(long).sections.header)
    (places,) = templates.alike([short[0], short[1], short[0], short[1], short[2]]).values()
    assert list(places) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("value", ["v", "v" * 300, None])
def test_groups_and_properties_of_many(value: str | None) -> None:
    messages = [
        Message(b"x", group_id=group, application_properties={} if value is None else {"k": value + end})
        for group, end in (("g-1", "a"), ("g-2", "bb"), ("g-1", "ccc"))
    ]
    payloads = [message.encode() for message in messages]
    template = learn_template(read_posting(payloads[0]))
    assert template is not None
    assert template.fits_all(payloads)
    assert template.groups(template.rests(payloads)) == [b"g-1", b"g-2", b"g-1"]
    sections = [read_posting(payload).sections.section(APPLICATION_PROPERTIES) for payload in payloads]
    assert template.properties(template.rests(payloads)) == sections
    assert all(sections) is (value is not None)


@pytest.mark.parametrize(("sequence", "closes"), [(None, False), (7, False), (0xFFFF_FFFF, True)])
def test_a_template_says_whether_its_messages_close_their_group(sequence: int | None, closes: bool) -> None:
    template = learn_template(read_posting(Message(b"x", group_id="g", group_sequence=sequence).encode()))
    assert template is not None
    assert template.closes_group is closes
    without = learn_template(read_posting(Message(b"x", group_sequence=sequence).encode()))
    assert without is not None
    assert not without.closes_group


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
    assert template.metas(b"q", [payload] * 3) == [posting.meta(b"q", payload)] * 3
    bodies = [posting.body(payload, sequence, NOW_MS) for sequence in range(3, 6)]
    rests = template.rests([payload] * 3)
    assert template.bodies(rests, range(3, 6), [NOW_MS] * 3) == bodies
    header = transfer_header(template.durable, template.priority, True, 0, None)
    times = [NOW_MS, NOW_MS + 300, NOW_MS - 1]
    apart = [posting.body(payload, sequence, time_ms) for sequence, time_ms in enumerate(times, 3)]
    assert template.bodies(rests, range(3, 6), times) == apart
    for posted_ms, expected in ((NOW_MS, bodies), (times, apart)):
        packed = template.heads(range(3, 6), posted_ms)
        layout, columns, head_bytes = packed.layout, packed.columns, packed.head_bytes
        heads = [pack(f">{layout}", *values) for values in zip(*columns, strict=False)]
        assert {*map(len, heads)} == {head_bytes}
        assert [head + rest for head, rest in zip(heads, rests, strict=True)] == [header + body for body in expected]
    assert not template.marked or template.groups(rests) == [str(posting.group).encode()] * 3
    bounds = posting.sections.bounds
    assert template.properties(rests) == [payload[bounds[APPLICATION_PROPERTIES] : bounds[BODY_RANK]]] * 3


@pytest.mark.parametrize("message_id", ["id-{}", ""])
def test_each_of_many_has_its_own_id_and_its_own_body(message_id: str) -> None:
    payloads = [Message(f"body {at}", message_id=message_id.format(at)).encode() for at in range(3)]
    template = learn_template(read_posting(payloads[0]))
    assert template is not None
    postings = [read_posting(payload) for payload in payloads]
    assert template.metas(b"q", payloads) == [
        posting.meta(b"q", payload) for posting, payload in zip(postings, payloads, strict=True)
    ]
    assert template.bodies(template.rests(payloads), range(7, 10), [NOW_MS] * 3) == [
        shape_body(payload, sequence, NOW_MS) for sequence, payload in enumerate(payloads, 7)
    ]


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
    assert template.identified(payload) == (long.duplicate_id, long.sections.bounds[BODY_RANK])
    if long.group is None:
        long.extras += encode_extras([(Extra.BODY_FINGERPRINT, bytes(range(8)))])
        fingerprint = int.from_bytes(bytes(range(8)), "little")
        assert template.meta_of_identified(b"q", payload, long.duplicate_id, fingerprint) == long.meta(b"q", payload)


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
    monkeypatch.setattr(module, "learn_template", learned.append)
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


PAIRS: tuple[tuple[MessageId, MessageId], ...] = (
    ("id-1", "id-2"),
    (b"id-1", b"id-2"),
    (b"id-12345", b"\xff" * 8),
    (ULong(1 << 40), ULong(3 << 60)),
    UUIDS,
)


@pytest.mark.parametrize("name", ["message_id", "correlation_id"])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: type(pair[0]).__name__)
@pytest.mark.parametrize("count", [2, ALIKE_MIN])
def test_ids_of_one_width_and_type_are_of_one_template(
    name: str, pair: tuple[MessageId, MessageId], count: int
) -> None:
    def payload(one: MessageId) -> bytes:
        said: dict[str, Any] = {name: one}
        return Message(b"x", **said).encode()

    payloads = [payload(one) for one in pair]
    template = learn_template(read_posting(payloads[0]))
    assert template is not None
    assert template.fits_all(payloads * count)
    same(template, payloads[1])
    for other in (one for another in PAIRS if another is not pair for one in another):
        assert not template.fits(payload(other))


@pytest.mark.parametrize("identity", [one for pair in PAIRS for one in pair])
def test_an_id_of_any_type_stands_beside_one_to_detect_duplicates_by(identity: MessageId) -> None:
    payload = Message(b"x", message_id=identity, application_properties={"_AMQ_DUPL_ID": "d"}).encode()
    template = learn_template(read_posting(payload))
    assert template is not None
    assert template.identified(payload) is not None
    same_read(template, payload)


def test_a_group_id_in_another_form_is_alike_in_none() -> None:
    fields = b"\x40" * PropertyIndex.GROUP_ID + b"\xb1\x00\x00\x00\x03g-1"
    count = PropertyIndex.GROUP_ID + 1
    payload = b"\x00\x53\x73\xc0" + bytes((len(fields) + 1, count)) + fields + b"\x00\x53\x75\xa0\x01x"
    posting = read_posting(payload)
    assert posting.group == "g-1"
    assert learn_template(posting) is None


@pytest.mark.parametrize(("one", "another"), [(ULong(5), ULong(6)), ("c" * 300, "d" * 300), (b"c" * 300, b"d" * 300)])
def test_a_correlation_id_in_another_form_is_alike_in_all(one: MessageId, another: MessageId) -> None:
    payloads = [Message(b"x", message_id=f"m-{number}", correlation_id=one).encode() for number in range(3)]
    template = learn_template(read_posting(payloads[0]))
    assert template is not None
    assert template.fits_all(payloads)
    assert not template.fits(Message(b"x", message_id="m-1", correlation_id=another).encode())


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

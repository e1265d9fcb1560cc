"""Finding the sections of a message, reading single fields, and changing annotations without touching the rest."""

from __future__ import annotations

import pytest

from acquit.errors import DecodeError, EncodeError
from acquit.protocol.codec import Described, Symbol, Timestamp, UByte, UInt, ULong, encode
from acquit.protocol.composite import encode_composite
from acquit.protocol.definitions import Header, Properties, SectionCode
from acquit.protocol.sections import (
    APPLICATION_PROPERTIES,
    BODY,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    PropertyIndex,
    decode_header,
    encode_header,
    map_value,
    scan_sections,
    splice_annotations,
    without_property,
)


def section(code: int, value: object) -> bytes:
    return encode(Described(ULong(code), value))  # type: ignore[arg-type]


A_HEADER = encode_header(True, 7)
DELIVERY = section(SectionCode.DELIVERY_ANNOTATIONS, {Symbol("x-opt-d"): 1})
ANNOTATIONS = section(SectionCode.MESSAGE_ANNOTATIONS, {Symbol("x-opt-a"): 1, Symbol("x-opt-b"): "two"})
A_PROPERTIES = encode_composite(Properties("id", to="queue", absolute_expiry_time=5, group_id="g"))
APPLICATION = section(SectionCode.APPLICATION_PROPERTIES, {"colour": "red"})
DATA = section(SectionCode.DATA, b"payload")
SEQUENCE = section(SectionCode.AMQP_SEQUENCE, [1, 2])
VALUE = section(SectionCode.AMQP_VALUE, {"a": [1]})
A_FOOTER = section(SectionCode.FOOTER, {Symbol("hash"): b"1"})
IN_ORDER = [A_HEADER, DELIVERY, ANNOTATIONS, A_PROPERTIES, APPLICATION, DATA, A_FOOTER]
WHOLE = b"".join(IN_ORDER)


def test_every_section_is_found() -> None:
    sections = scan_sections(WHOLE)
    assert [sections.section(rank) for rank in range(7)] == IN_ORDER
    assert all(sections.has(rank) for rank in range(7))
    assert sections.body_code == SectionCode.DATA
    assert sections.header == A_HEADER
    assert sections.delivery_annotations == DELIVERY
    assert sections.message_annotations == ANNOTATIONS
    assert sections.bare_message == A_PROPERTIES + APPLICATION + DATA
    assert sections.unchanging == A_PROPERTIES + APPLICATION + DATA + A_FOOTER
    assert sections.bounds[-1] == len(WHOLE)


@pytest.mark.parametrize("present", range(2**7))
def test_every_section_may_be_absent(present: int) -> None:
    chosen = [part if present >> rank & 1 else b"" for rank, part in enumerate(IN_ORDER)]
    sections = scan_sections(b"".join(chosen))
    assert [sections.section(rank) for rank in range(7)] == chosen
    assert sections.decode_header() == (Header(True, 7) if chosen[HEADER] else Header())
    assert sections.decode_properties().to == ("queue" if chosen[PROPERTIES] else None)
    assert sections.decode_map(APPLICATION_PROPERTIES) == ({"colour": "red"} if chosen[APPLICATION_PROPERTIES] else {})
    assert sections.body_code == (SectionCode.DATA if chosen[BODY] else 0)


@pytest.mark.parametrize("body", [DATA, DATA * 3, SEQUENCE, SEQUENCE * 2, VALUE, section(SectionCode.AMQP_VALUE, None)])
def test_bodies(body: bytes) -> None:
    sections = scan_sections(A_HEADER + body + A_FOOTER)
    assert sections.section(BODY) == body
    assert sections.section(FOOTER) == A_FOOTER


ENCODED_OTHERWISE = [
    bytes.fromhex("00 53 70 45"),
    bytes.fromhex("00 53 70 d0 00000005 00000001 41"),
    bytes.fromhex("00 80 0000000000000070 c0 02 01 41"),
    b"\x00" + encode(Symbol("amqp:header:list")) + bytes.fromhex("c0 02 01 41"),
    b"\x00\xb3\0\0\0\x10amqp:header:list" + bytes.fromhex("c0 02 01 41"),
]


@pytest.mark.parametrize("header", ENCODED_OTHERWISE)
def test_every_form_of_a_section(header: bytes) -> None:
    sections = scan_sections(header + ANNOTATIONS + DATA)
    assert sections.header == header
    assert sections.message_annotations == ANNOTATIONS
    assert sections.decode_header().durable == (header != ENCODED_OTHERWISE[0])


def test_symbol_descriptors_for_every_section() -> None:
    names = "header:list delivery-annotations:map message-annotations:map properties:list application-properties:map"
    plain = [{}, {}, {}, [], {}]
    for rank, name in enumerate(names.split()):
        if rank in (HEADER, PROPERTIES):
            data = b"\x00" + encode(Symbol(f"amqp:{name}")) + b"\x45"
        else:
            data = encode(Described(Symbol(f"amqp:{name}"), plain[rank]))  # type: ignore[arg-type]
        sections = scan_sections(data + DATA)
        assert sections.section(rank) == data
        assert sections.decode_header() == Header()
        assert sections.property_values(PropertyIndex.TO) == [None]
        assert sections.decode_map(MESSAGE_ANNOTATIONS) == {}
        assert map_value(sections.message_annotations, "x") is None
    body = encode(Described(Symbol("amqp:data:binary"), b"x")) + encode(Described(ULong(0x75), b"y"))
    assert scan_sections(body).section(BODY) == body


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (A_HEADER + A_HEADER, "out of order or there twice"),
        (ANNOTATIONS + A_HEADER, "out of order or there twice"),
        (A_PROPERTIES + ANNOTATIONS, "out of order or there twice"),
        (DATA + A_PROPERTIES, "out of order or there twice"),
        (A_FOOTER + DATA, "out of order or there twice"),
        (DATA + A_FOOTER + A_FOOTER, "out of order or there twice"),
        (DATA + SEQUENCE, "out of order or there twice"),
        (SEQUENCE + DATA, "out of order or there twice"),
        (VALUE + VALUE, "out of order or there twice"),
        (DATA + VALUE, "out of order or there twice"),
        (section(0x79, {}), "descriptor 0x79 at offset 0 begins no section"),
        (section(0x24, []), "descriptor 0x24 at offset 0 begins no section"),
        (encode(Described(Symbol("amqp:accepted:list"), [])), "begins no section"),
        (encode(Described(UInt(0x70), [])), "begins no section"),
        (encode(Described([], [])), "begins no section"),
        (encode("text"), "0xa1 at offset 0 begins no section"),
        (A_HEADER + b"\x40" * 8, "0x40 at offset 9 begins no section"),
        (section(SectionCode.HEADER, {}), "section 0x70 cannot be encoded as 0xc1"),
        (section(SectionCode.MESSAGE_ANNOTATIONS, []), "section 0x72 cannot be encoded as 0x45"),
        (section(SectionCode.DATA, "text"), "section 0x75 cannot be encoded as 0xa1"),
        (section(SectionCode.AMQP_SEQUENCE, None), "section 0x76 cannot be encoded as 0x40"),
        (section(SectionCode.FOOTER, None), "section 0x78 cannot be encoded as 0x40"),
        (b"\x00\x53\x77\x57", "not an AMQP format code"),
        (b"\x00\x53\x75\xb0\xff\xff\xff\xff", "the last section ends at"),
    ],
)
def test_what_is_no_message_is_refused(payload: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        scan_sections(payload)


def test_a_message_cut_short_is_refused_or_has_fewer_sections() -> None:
    ends = {sum(map(len, IN_ORDER[:count])) for count in range(8)}
    for end in range(len(WHOLE)):
        if end in ends:
            scan_sections(WHOLE[:end])
        else:
            with pytest.raises(DecodeError):
                scan_sections(WHOLE[:end])


def test_described_values_in_an_amqp_value() -> None:
    body = section(SectionCode.AMQP_VALUE, Described(Symbol("a"), Described(Symbol("b"), "c")))
    assert scan_sections(body + A_FOOTER).section(BODY) == body


# -- header -----------------------------------------------------------------------------------------------------------


def test_header_both_ways() -> None:
    assert decode_header(encode_header(True, 9, 1000, True, 3)) == Header(True, 9, 1000, True, 3)
    assert encode_header() == b""
    assert encode_header(delivery_count=1) != b""


@pytest.mark.parametrize("data", [A_PROPERTIES, A_HEADER + b"\x40", A_HEADER[:-1], b""])
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_header(data)


def test_a_header_that_does_not_fit_is_refused() -> None:
    with pytest.raises(EncodeError, match="priority must be"):
        encode_header(priority=300)


# -- properties -------------------------------------------------------------------------------------------------------


def test_single_properties() -> None:
    full = Properties("id", b"u", "to", "s", "r", b"c", "t", "e", 1, 2, "g", 3, "rg")
    sections = scan_sections(encode_composite(full))
    names = [field.name for field in Properties.FIELDS]
    indexes = [value for name, value in vars(PropertyIndex).items() if name.isupper()]
    assert [name.lower() for name in vars(PropertyIndex) if name.isupper()] == names
    for index, name in zip(indexes, names, strict=True):
        assert sections.property_values(index) == [getattr(full, name)]
    assert sections.property_values(*indexes) == [getattr(full, name) for name in names]
    assert sections.property_values(0, 10) == ["id", "g"]


def test_properties_that_are_not_there_are_none() -> None:
    assert scan_sections(DATA).property_values(0, 2, 12) == [None, None, None]
    assert scan_sections(A_PROPERTIES).property_values(0, 1, 12) == ["id", None, None]
    assert scan_sections(bytes.fromhex("00537345")).property_values(0) == [None]


def test_properties_in_a_wide_list() -> None:
    data = encode_composite(Properties("x" * 300, to="queue"))
    assert scan_sections(data).property_values(0, 2) == ["x" * 300, "queue"]


@pytest.mark.parametrize(
    "fields", [[UInt(1)], ["id", "user is binary"], ["id", None, Symbol("to")], ["id"] + [None] * 7 + [5]]
)
def test_a_property_of_the_wrong_type_is_refused(fields: list[object]) -> None:
    sections = scan_sections(section(SectionCode.PROPERTIES, fields))
    with pytest.raises(DecodeError, match="Properties"):
        sections.property_values(0, 1, 2, 8)
    with pytest.raises(DecodeError, match="Properties"):
        sections.decode_properties()


@pytest.mark.parametrize(
    "text",
    [
        "005373 c0 03 01 a1ff",  # the field claims more than there is
        "005373 c0 02 01 a1",
        "005373 c0 03 02 4057",
        "005373 c0 03 01 a1ff 005375a00161",  # the field reaches into the body
        "005373 c0 06 01 8000000000 005375a00161",
    ],
)
def test_malformed_properties_are_refused(text: str) -> None:
    sections = scan_sections(bytes.fromhex(text))
    with pytest.raises(DecodeError):
        sections.property_values(0, 1)
    with pytest.raises(DecodeError):
        sections.decode_properties()


# -- maps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wide", [False, True])
def test_a_property_taken_out_leaves_the_rest_byte_for_byte(wide: bool) -> None:
    user = encode(b"u" * 300) if wide else encode(b"user")
    before = encode("id") + user + encode(None) * 6
    fields = before + encode(Timestamp(5)) + encode(None) + encode("g")
    form = (b"\xd0", 4) if wide else (b"\xc0", 1)
    head = b"\x00\x53\x73" + form[0]
    section = head + (len(fields) + form[1]).to_bytes(form[1], "big") + (11).to_bytes(form[1], "big") + fields
    taken = before + b"\x40" + encode(None) + encode("g")
    expected = head + (len(taken) + form[1]).to_bytes(form[1], "big") + (11).to_bytes(form[1], "big") + taken
    assert without_property(section, PropertyIndex.ABSOLUTE_EXPIRY_TIME) == expected
    assert without_property(encode_composite(Properties("id")), PropertyIndex.ABSOLUTE_EXPIRY_TIME) == encode_composite(
        Properties("id")
    )


def test_a_property_of_what_is_no_list_is_refused() -> None:
    with pytest.raises(DecodeError):
        without_property(b"\x00\x53\x73\xc1\x01\x00", PropertyIndex.ABSOLUTE_EXPIRY_TIME)


def test_a_value_by_its_key() -> None:
    assert map_value(ANNOTATIONS, "x-opt-a") == 1
    assert map_value(ANNOTATIONS, "x-opt-b") == "two"
    assert map_value(ANNOTATIONS, "x-opt-c") is None
    assert map_value(ANNOTATIONS, "two") is None  # it is there, but as a value
    assert map_value(APPLICATION, "colour") == "red"
    assert map_value(b"", "x") is None
    wide = section(SectionCode.MESSAGE_ANNOTATIONS, {Symbol("k" * 300): UByte(1), "s" * 300: 2})
    assert map_value(wide, "k" * 300) == 1
    assert map_value(wide, "s" * 300) == 2


def test_splicing_adds_replaces_and_removes() -> None:
    changed = splice_annotations(ANNOTATIONS, {"x-opt-b": 2, "x-opt-c": None}, remove=["x-opt-a", "x-opt-z"])
    assert scan_sections(changed).decode_map(MESSAGE_ANNOTATIONS) == {"x-opt-b": 2, "x-opt-c": None}
    assert splice_annotations(ANNOTATIONS, {}) == ANNOTATIONS
    assert splice_annotations(b"", {}) == b""
    assert splice_annotations(ANNOTATIONS, {}, remove=["x-opt-a", "x-opt-b"]) == b""


def test_splicing_makes_a_section_where_there_is_none() -> None:
    made = splice_annotations(b"", {"x-opt-a": UInt(1)}, code=SectionCode.DELIVERY_ANNOTATIONS)
    assert made == section(SectionCode.DELIVERY_ANNOTATIONS, {Symbol("x-opt-a"): UInt(1)})
    assert scan_sections(made).decode_map(DELIVERY_ANNOTATIONS) == {"x-opt-a": 1}


def test_splicing_leaves_the_rest_byte_for_byte() -> None:
    """Wide encodings, keys that are no symbols, values that we would not read: all of it stays."""
    odd = bytes.fromhex("b30000000161 7000000001") + bytes.fromhex("5507 c10403 a1ffff")  # key 7, malformed map
    data = bytes.fromhex("80 0000000000000072 d1") + (len(odd) + 4).to_bytes(4, "big") + bytes.fromhex("00000004") + odd
    data = b"\x00" + data
    spliced = splice_annotations(data, {"x-opt-a": 1})
    assert spliced.startswith(data[:10])
    assert odd in spliced
    assert map_value(spliced, "x-opt-a") == 1
    assert odd[:7] not in splice_annotations(data, {}, remove=["a"])


@pytest.mark.parametrize(
    "text",
    [
        "005372 c1 02 01 40",  # odd count
        "005372 c1 03 02 a157",
        "005372 c1 04 02 40 40",  # a count and a size that disagree
        "005372 c1 03 02 4040 40",
        "005372 c1 04 02 4040 40",
        "005372 c0 03 02 4040",
        "005372 c1 03 ff 4040",
        "005372",
    ],
)
def test_malformed_annotations_are_refused(text: str) -> None:
    data = bytes.fromhex(text)
    with pytest.raises(DecodeError):
        splice_annotations(data, {"x-opt-a": 1})


def test_annotations_without_encoding_are_refused() -> None:
    with pytest.raises(EncodeError, match="no AMQP type"):
        splice_annotations(ANNOTATIONS, {"x-opt-a": object()})
    with pytest.raises(EncodeError, match="ASCII"):
        splice_annotations(ANNOTATIONS, {"x-opt-ä": 1})

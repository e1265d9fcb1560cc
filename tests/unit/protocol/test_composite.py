"""Composites both ways: every form that peers may send, and each refusal by name of type and field."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from uuid import UUID

import pytest

from acquit.errors import DecodeError, EncodeError
from acquit.protocol.codec import Array, Described, Symbol, UInt, ULong, decode, encode
from acquit.protocol.composite import decode_composite, encode_composite, several
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import (
    COMPOSITES,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Declared,
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Detach,
    Discharge,
    Disposition,
    End,
    Error,
    Flow,
    Header,
    Modified,
    Open,
    Properties,
    RcvSettleMode,
    Received,
    Rejected,
    Role,
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    SndSettleMode,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
    TransactionalState,
    Transfer,
)

SPECIFICATION = Path(__file__).parents[3] / "spec"
AN_ERROR = Error("amqp:not-found", "no such queue", {"key": [1, {"nested": None}]})
A_SOURCE = Source(
    "queue",
    TerminusDurability.UNSETTLED_STATE,
    TerminusExpiryPolicy.NEVER,
    60,
    True,
    {"lifetime-policy": DeleteOnClose(), "supported-dist-modes": Array(Symbol, ("move",))},
    "copy",
    {"selector": Described(Symbol("apache.org:selector-filter:string"), "a = 1")},
    Modified(True, False, {"x-opt-a": 1}),
    ("amqp:accepted:list", "amqp:released:list"),
    ("queue",),
)
A_TARGET = Target(
    "queue",
    TerminusDurability.CONFIGURATION,
    TerminusExpiryPolicy.LINK_DETACH,
    1,
    True,
    {"lifetime-policy": DeleteOnNoLinks()},
    ("a", "b"),
)

FULL = [
    Open("container", "host", 4096, 10, 30_000, ("en",), ("de", "fr"), ("a",), ("b",), {"product": "acquit"}),
    Begin(1, 2, 3, 4, 5, ("a",), ("b", "c"), {"x": 1}),
    Attach(
        "link",
        1,
        Role.RECEIVER,
        SndSettleMode.SETTLED,
        RcvSettleMode.SECOND,
        A_SOURCE,
        A_TARGET,
        {b"tag": ACCEPTED, b"other": None, b"third": TransactionalState(b"txn", RELEASED)},
        True,
        2**32 - 1,
        2**64 - 1,
        ("a",),
        ("b",),
        {"x": 1},
    ),
    Flow(1, 2, 3, 4, 5, 6, 7, 8, True, True, {"txn-id": b"x"}),
    Transfer(1, 2, b"tag", 0, True, True, RcvSettleMode.SECOND, Received(1, 2**40), True, True, True),
    Disposition(Role.SENDER, 1, 2, True, Rejected(AN_ERROR), True),
    Detach(1, True, AN_ERROR),
    End(AN_ERROR),
    Close(AN_ERROR),
    AN_ERROR,
    Header(True, 9, 1000, True, 3),
    Properties(
        "id", b"user", "to", "subject", "reply", ULong(7), "text/plain", "gzip", 1, -1, "group", 2**32 - 1, "other"
    ),
    Received(1, 2),
    ACCEPTED,
    Rejected(AN_ERROR),
    RELEASED,
    Modified(True, True, {"x-opt-why": "busy"}),
    A_SOURCE,
    A_TARGET,
    DeleteOnClose(),
    DeleteOnNoLinks(),
    DeleteOnNoMessages(),
    DeleteOnNoLinksOrMessages(),
    Coordinator(("amqp:local-transactions",)),
    Declare(b"global"),
    Discharge(b"txn", True),
    Declared(b"txn"),
    TransactionalState(b"txn", Modified(True)),
    SaslMechanisms(("PLAIN", "ANONYMOUS")),
    SaslInit("PLAIN", b"\0user\0pass", "host"),
    SaslChallenge(b"challenge"),
    SaslResponse(b"response"),
    SaslOutcome(SaslCode.AUTH, b"data"),
]

LEAST = [
    Open("container"),
    Begin(None, 1, 2, 3),
    Attach("link", 0, Role.SENDER),
    Flow(None, 1, 2, 3),
    Transfer(0),
    Disposition(Role.RECEIVER, 0),
    Detach(0),
    End(),
    Close(),
    Error("amqp:internal-error"),
    Header(),
    Properties(),
    Received(0, 0),
    Rejected(),
    Modified(),
    Source(),
    Target(),
    Coordinator(),
    Declare(),
    Discharge(b""),
    Declared(b""),
    TransactionalState(b""),
    SaslMechanisms(()),
    SaslInit("ANONYMOUS"),
    SaslChallenge(b""),
    SaslResponse(b""),
    SaslOutcome(SaslCode.OK),
]


def name_of(value: object) -> str:
    return type(value).__name__


def raw(descriptor: object, *fields: object) -> bytes:
    """A composite by hand: any descriptor, any fields."""
    return encode(Described(descriptor, list(fields)))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", FULL, ids=name_of)
def test_every_composite_with_every_field(value: object) -> None:
    data = encode_composite(value)
    assert decode_composite(data) == (value, len(data))
    assert decode_composite(b"\x40" + data + b"\x40", 1, 1 + len(data)) == (value, 1 + len(data))


@pytest.mark.parametrize("value", LEAST, ids=name_of)
def test_every_composite_with_only_what_it_must_have(value: object) -> None:
    data = encode_composite(value)
    assert decode_composite(data) == (value, len(data))


def test_the_examples_are_all_composites_with_all_fields_set() -> None:
    assert [type(value) for value in FULL] == list(COMPOSITES)
    for value in FULL:
        for field in value.FIELDS:  # type: ignore[attr-defined]
            if not field.mandatory:
                assert getattr(value, field.name) != field.default


@pytest.mark.parametrize("value", FULL, ids=name_of)
def test_every_composite_cut_short_is_refused(value: object) -> None:
    data = encode_composite(value)
    for end in range(len(data)):
        with pytest.raises(DecodeError):
            decode_composite(data[:end])
        with pytest.raises(DecodeError):
            decode_composite(data, 0, end)


def test_trailing_defaults_are_left_out() -> None:
    assert encode_composite(Open("a")).hex() == "005310c00401a10161"
    assert encode_composite(Source()).hex() == "00532845"
    assert encode_composite(ACCEPTED).hex() == "00532445"
    assert encode_composite(Transfer(0, 1, b"t", 0)).hex() == "005314c00804435201a0017443"
    assert encode_composite(Flow(None, 1, 2, 3)).hex() == "005313c0080440520152025203"


def test_a_none_among_mandatory_fields_is_written_where_it_may_be() -> None:
    assert decode_composite(encode_composite(Flow(None, 1, 2, 3)))[0] == Flow(None, 1, 2, 3)


@pytest.mark.parametrize("descriptor", [ULong(0x24), Symbol("amqp:accepted:list")])
@pytest.mark.parametrize("list_form", ["45", "c00100", "d00000000400000000"])
def test_either_descriptor_and_any_list(descriptor: object, list_form: str) -> None:
    data = b"\x00" + encode(descriptor) + bytes.fromhex(list_form)
    assert decode_composite(data) == (ACCEPTED, len(data))
    wide = b"\x00\x80" + (0x24).to_bytes(8, "big") + bytes.fromhex(list_form)
    assert decode_composite(wide) == (ACCEPTED, len(wide))


def test_long_lists_take_the_wide_form() -> None:
    for length in (100, 250, 300, 70_000):
        value = Open("c" * length, "h" * length)
        assert decode_composite(encode_composite(value))[0] == value


def test_explicit_nulls_are_the_defaults() -> None:
    assert decode_composite(raw(ULong(0x10), "a", *[None] * 9))[0] == Open("a")
    assert decode_composite(raw(ULong(0x28), *[None] * 11))[0] == Source()
    assert decode_composite(raw(ULong(0x70), *[None] * 5))[0] == Header()


def test_outcomes_without_fields_are_shared() -> None:
    assert decode_composite(encode_composite(Accepted()))[0] is decode_composite(encode_composite(ACCEPTED))[0]


def test_several_may_be_one_or_an_array() -> None:
    def capabilities(value: object) -> object:
        return decode_composite(raw(ULong(0x30), value))[0].capabilities

    assert capabilities(None) == ()
    assert capabilities(Symbol("a")) == ("a",)
    assert capabilities(Array(Symbol, ("a", "b"))) == ("a", "b")
    assert capabilities(Array(Symbol)) == ()
    for wrong in ("a", Array(str, ("a",)), Array(Symbol, ("a",), (Symbol("d"),)), [Symbol("a")], 1):
        with pytest.raises(DecodeError):
            capabilities(wrong)


SEVERAL = [(kind, field.name) for kind in COMPOSITES for field in kind.FIELDS if field.multiple]


def holding(kind: type, name: str, values: tuple[str, ...]) -> object:
    """A composite of this kind, with what is mandatory of it and these symbols in one field."""
    wires = {field.name: field.wire for field in kind.FIELDS if field.mandatory}  # type: ignore[attr-defined]
    needed = {
        field.name: {"string": "x", "uint": 0, "boolean": False, "symbol": "x"}.get(wires.get(field.name, ""))
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.name != name
    }
    return kind(**needed | {name: values})


def test_the_fields_of_several_are_those_of_the_specification() -> None:
    """So that the test below is of all of them."""
    stated = sum(path.read_text().count('multiple="true"') for path in SPECIFICATION.glob("*.xml"))
    assert len(SEVERAL) == stated > 10


@pytest.mark.parametrize(
    ("kind", "name"), SEVERAL, ids=lambda value: value if isinstance(value, str) else value.__name__
)
def test_one_goes_out_as_itself_several_as_an_array_and_none_as_null(kind: type, name: str) -> None:
    place = [field.name for field in kind.FIELDS].index(name)  # type: ignore[attr-defined]
    mandatory = kind.FIELDS[place].mandatory  # type: ignore[attr-defined]
    forms = {(): Array(Symbol) if mandatory else None, ("a",): Symbol("a"), ("a", "b"): Array(Symbol, ("a", "b"))}
    for values, form in forms.items():
        value = holding(kind, name, values)
        data = encode_composite(value)
        fields = decode(data)[0].value
        found = fields[place] if place < len(fields) else None
        assert (type(found), found) == (type(form), form)
        assert several(values) == (form if values else None)
        assert decode_composite(data)[0] == value
        # An array of one, as many peers write it, says the same.
        fields = [*fields, *[None] * (place + 1 - len(fields))]
        fields[place] = Array(Symbol, values)
        assert decode_composite(raw(ULong(kind.DESCRIPTOR), *fields))[0] == value  # type: ignore[attr-defined]
        fields[place] = [Symbol("a")]
        with pytest.raises(DecodeError, match=f"{kind.__name__}.{name} must be symbol, not list"):
            decode_composite(raw(ULong(kind.DESCRIPTOR), *fields))  # type: ignore[attr-defined]


def test_the_empty_tuple_is_an_array_where_several_are_mandatory() -> None:
    assert decode_composite(encode_composite(SaslMechanisms(())))[0] == SaslMechanisms(())


def test_composites_of_extensions_stay_described() -> None:
    unknown = Described(ULong(0x468C_0000_0004), ["x"])
    other = Described(Symbol("example:state:list"), [])
    for state in (unknown, other):
        assert decode_composite(raw(ULong(0x15), True, UInt(0), None, None, state))[0].state == state
        assert decode_composite(encode_composite(Disposition(Role.RECEIVER, 0, state=state)))[0].state == state
    attach = Attach("n", 0, Role.SENDER, source=unknown, target=other)
    assert decode_composite(encode_composite(attach))[0] == attach


def test_a_described_number_is_no_descriptor() -> None:
    state = Described(UInt(0x24), [])
    assert decode_composite(raw(ULong(0x15), True, UInt(0), None, None, state))[0].state == state


def test_a_coordinator_is_a_target() -> None:
    attach = Attach("n", 0, Role.SENDER, target=Coordinator(("amqp:local-transactions",)))
    assert decode_composite(encode_composite(attach))[0] == attach


@pytest.mark.parametrize("message_id", ["id", b"id", UUID(int=5), ULong(2**63)])
def test_message_ids_keep_their_type(message_id: object) -> None:
    decoded = decode_composite(encode_composite(Properties(message_id)))[0].message_id  # type: ignore[arg-type]
    assert decoded == message_id
    assert type(decoded) is type(message_id)


def test_a_plain_int_is_a_ulong_as_message_id() -> None:
    decoded = decode_composite(encode_composite(Properties(correlation_id=7)))[0].correlation_id
    assert type(decoded) is ULong


def test_plain_string_keys_go_out_as_symbols() -> None:
    data = encode_composite(Open("c", properties={"product": "acquit", ULong(1): 2}))  # type: ignore[dict-item]
    properties = decode_composite(data)[0].properties
    assert [type(key) for key in properties] == [Symbol, ULong]


def test_string_keys_of_others_are_read() -> None:
    properties = {"product": "other"}
    assert decode_composite(raw(ULong(0x10), "a", *[None] * 8, properties))[0].properties == properties


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (raw(ULong(0x10)), r"Open.container_id is mandatory and missing"),
        (raw(ULong(0x10), None), r"Open.container_id is mandatory and null"),
        (raw(ULong(0x11), None, UInt(1), UInt(1)), r"Begin.outgoing_window is mandatory and missing"),
        (raw(ULong(0x10), 5), r"Open.container_id must be string, not int"),
        (raw(ULong(0x14), 0), r"Transfer.handle must be uint, not int"),
        (raw(ULong(0x14), ULong(0)), r"Transfer.handle must be uint, not ULong"),
        (raw(ULong(0x14), UInt(0), None, "tag"), r"Transfer.delivery_tag must be binary, not str"),
        (raw(ULong(0x14), UInt(0), *[None] * 6, [1]), r"Transfer.state must be \*, not list"),
        (raw(ULong(0x14), UInt(0), *[None] * 6, Described(ULong(0x28), [])), r"a Source is no delivery-state"),
        (raw(ULong(0x18), Described(ULong(0x24), [])), r"a described value that is no error"),
        (raw(ULong(0x18), Described(Symbol("x"), [])), r"a described value that is no error"),
        (raw(ULong(0x18), Described(ULong(0x1D), [])), r"Error.condition is mandatory and missing"),
        (raw(ULong(0x24), None), r"Accepted has 0 fields, not 1"),
        (raw(ULong(0x17), None, None), r"End has 1 fields, not 2"),
        (encode(Described(ULong(0x17), {})), r"End must be a list, not 0xc1"),
        (raw(ULong(0x28), None, UInt(7)), r"7 is none of 0, 1, 2"),
        (raw(ULong(0x28), None, None, Symbol("later")), r"'later'\) is none of link-detach"),
        (raw(ULong(0x44), ULong(0)), r"SaslOutcome.code must be ubyte, not ULong"),
        (raw(ULong(0x73), 7), r"Properties.message_id must be \*, not int"),
        (raw(ULong(0x73), None, None, Symbol("to")), r"Properties.to must be \*, not Symbol"),
        (raw(ULong(0x33), "txn"), r"Declared.txn_id must be \*, not str"),
        (raw(ULong(0x34), b"t", Described(ULong(0x34), [b"t"])), r"a TransactionalState is no outcome"),
        (raw(ULong(0x99)), r"no composite has this descriptor: ULong\(153\)"),
        (raw(Symbol("amqp:nothing:list")), r"no composite has this descriptor: Symbol"),
        (raw(UInt(0x24)), r"no composite has this descriptor: UInt\(36\)"),
        (b"\x40", r"a composite begins with 0x00, not 0x40"),
        (b"", r"the bytes end"),
        (bytes.fromhex("005324c00000"), r"0 items cannot"),
        (bytes.fromhex("005314c0030152"), r"1 items cannot"),
        (bytes.fromhex("005314c00401520140"), r"Transfer ends at offset 8, but the size given says 9"),
        (bytes.fromhex("005314c002015201"), r"Transfer ends at offset 8, but the size given says 7"),
        (bytes.fromhex("005314d0ffffffff0000000143"), r"1 items cannot"),
        (bytes.fromhex("005312c00f08 a10161 43 41 40 40 40 40 c10402404040"), r"map items end at offset 20, but"),
        (bytes.fromhex("005312c00e08 a10161 43 41 40 40 40 40 c103014040"), r"map items end at|pairs"),
        (bytes.fromhex("005317c0020157"), r"End.error must be error, not 0x57"),
    ],
)
def test_malformed_composites_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        decode_composite(data)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (Open(None), r"Open.container_id is mandatory"),  # type: ignore[arg-type]
        (Begin(None, 1, None, 3), r"Begin.incoming_window is mandatory"),  # type: ignore[arg-type]
        (Begin(None, 1, 2, None), r"Begin.outgoing_window is mandatory"),  # type: ignore[arg-type]
        (Transfer(-1), r"Transfer.handle must be"),
        (Transfer(2**32), r"Transfer.handle must be"),
        (Transfer(0, 0, "tag"), r"Transfer.delivery_tag must be"),  # type: ignore[arg-type]
        (Open("a", channel_max=65536), r"Open.channel_max must be"),
        (Open(b"a"), r"Open.container_id must be"),  # type: ignore[arg-type]
        (Open("\ud800"), r"Open.container_id must be"),
        (Coordinator(("é",)), r"Coordinator.capabilities does not fit"),
        (Header(priority=256), r"priority must be"),
        (Properties(creation_time=2**63), r"creation_time must be"),
        (Close(Error("amqp:x", info={"a": object()})), r"object has no AMQP type"),
        (Described(ULong(1), []), r"Described is no composite"),
        (Properties(message_id=True), r"message_id must be a text, a UUID"),
        (Properties(message_id=-1), r"message_id must be"),
        (Close(ACCEPTED), r"a Accepted is no error"),  # type: ignore[arg-type]
        (Transfer(0, state=AN_ERROR), r"a Error is no delivery-state"),  # type: ignore[arg-type]
        (Attach("n", 0, Role.SENDER, source=A_TARGET), r"a Target is no source"),  # type: ignore[arg-type]
        (Attach("n", 0, Role.SENDER, target="q"), r"a str is no target"),  # type: ignore[arg-type]
    ],
)
def test_composites_that_do_not_fit_are_refused(value: object, why: str) -> None:
    with pytest.raises(EncodeError, match=why):
        encode_composite(value)

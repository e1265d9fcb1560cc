"""Composites (performatives, outcomes, termini, header, properties) from and to bytes, driven by their field tables.

Theory of operation. A composite is a described list (specification 1.4). From the `FIELDS` of a generated class a
`_CodingPlan` is made once: for each field a table of 256 readers by format code, and a writer. A field's table has
readers only for the encodings of its own type, and a refusing one everywhere else, so finding the reader *is* the type
check; its reader for null gives the default. Decoding is then one loop over the fields that are there.

Only fields with values of any depth (maps, ``*``, nested composites) draw on a `Scope`; the others get `FLAT`, which
refuses to be entered. The bounds of `acquit.protocol._decoder` hold here: the fields must end exactly where the list
does, which is the one check that catches everything cut short.

What peers may do and we accept: either form of the descriptor, either list encoding, a single value where several may
be (1.4: the same as an array of one), string keys in maps that should have symbols. What we refuse by name of type and
field: a missing mandatory field, a value of another type, a choice that the specification does not know, fields beyond
the last one. Composites of extensions stay `Described` where the specification lets any type stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias
from uuid import UUID

from acquit.errors import DecodeError, EncodeError
from acquit.protocol import _decoder as d
from acquit.protocol import _encoder as e
from acquit.protocol import definitions
from acquit.protocol._decoder import DEPTH_MAX, FLAT, MALFORMED, READERS, Scope, malformed
from acquit.protocol._schema import Field
from acquit.protocol.definitions import Composite
from acquit.protocol.types import Array, Described, Symbol, ULong

FieldReader: TypeAlias = Callable[[bytes, int, Scope], tuple[Any, int]]
FieldWriter: TypeAlias = Callable[[Any], bytes]


# -- readers: per type of a field, format code -> reader -------------------------------------------------------------

_TRUE, _FALSE, _ZERO = d.constant(True), d.constant(False), d.constant(0)
_SHOWN_MAX: Final = 60
"""Characters of a value that an error message shows."""

_UINTS: Final[dict[int, FieldReader]] = {0x70: d.read_uint32, 0x52: d.read_uint8, 0x43: _ZERO}
_BINARIES: Final[dict[int, FieldReader]] = {0xA0: d.read_binary8, 0xB0: d.read_binary32}
_STRINGS: Final[dict[int, FieldReader]] = {0xA1: d.read_string8, 0xB1: d.read_string32}


def _scoped(read: FieldReader) -> FieldReader:
    """A value of any depth, with an allowance of its own: a field's share does not depend on its neighbours."""

    def read_scoped(data: bytes, offset: int, scope: Scope) -> tuple[Any, int]:
        return read(data, offset, Scope(0))

    return read_scoped


_READERS_BY_TYPE: Final[dict[str, dict[int, FieldReader]]] = {
    "boolean": {0x56: d.read_boolean, 0x41: _TRUE, 0x42: _FALSE},
    "ubyte": {0x50: d.read_uint8},
    "ushort": {0x60: d.read_uint16},
    "uint": _UINTS,
    "ulong": {0x80: d.read_uint64, 0x53: d.read_uint8, 0x44: _ZERO},
    "timestamp": {0x83: d.read_int64},
    "binary": _BINARIES,
    "string": _STRINGS,
    "symbol": {0xA3: d.read_symbol8, 0xB3: d.read_symbol32},
    "map": {0xC1: _scoped(d.read_map8), 0xD1: _scoped(d.read_map32)},
    "fields": {0xC1: _scoped(d.read_map8), 0xD1: _scoped(d.read_map32)},
}

_READERS_BY_REQUIREMENT: Final[dict[str, dict[int, FieldReader]]] = {
    "address": _STRINGS,
    "txn-id": _BINARIES,
    "message-id": {code: READERS[code] for code in (0xA1, 0xB1, 0xA0, 0xB0, 0x98, 0x80, 0x53, 0x44)},
    "global-tx-id": {code: _scoped(READERS[code]) for code in (0x00, *d.TYPED) if code != 0x40},
}


def _choice(choices: Mapping[object, object], read: FieldReader) -> FieldReader:
    def read_choice(data: bytes, offset: int, scope: Scope) -> tuple[object, int]:
        value, offset = read(data, offset, scope)
        try:
            return choices[value], offset
        except KeyError:
            raise DecodeError(f"{value!r} is none of {', '.join(str(item) for item in choices)}") from None

    return read_choice


def _several(element: FieldReader) -> FieldReader:
    """Return a reader of a single value where several may be: it gives a tuple of one."""

    def read_one(data: bytes, offset: int, scope: Scope) -> tuple[tuple[object, ...], int]:
        value, offset = element(data, offset, scope)
        return (value,), offset

    return read_one


def _array_of(kind: type, read: Callable[[bytes, int, Scope], tuple[Array, int]]) -> FieldReader:
    def read_items(data: bytes, offset: int, scope: Scope) -> tuple[tuple[object, ...], int]:
        array, offset = read(data, offset, Scope(0))
        if array.element is not kind or array.descriptors:
            raise DecodeError(f"an array of {array.element.__name__}, must be of {kind.__name__}")
        return array.items, offset

    return read_items


def _map_to(requires: str) -> FieldReader:
    """A map whose values may be composites of this kind; those that are not stay what they are."""
    known = set(definitions.PROVIDES[requires])

    def read_map(data: bytes, offset: int, scope: Scope) -> tuple[dict[object, object], int]:
        count, offset, end = d.map_head(data, offset - 1)
        own = Scope(0)
        items: list[object] = []
        item: object
        for index in range(count):
            if index & 1 and data[offset] == 0x00:
                plan, start = _find_plan(data, offset + 1)
                if plan is not None and plan.kind in known:
                    item, offset = plan.read(data, start)
                    items.append(item)
                    continue
            item, offset = READERS[data[offset]](data, offset + 1, own)
            items.append(item)
        if offset != end:
            raise DecodeError(f"map items end at offset {offset}, but the size given says {end}")
        return d.pair(items), end

    return read_map


def _described(requires: str) -> FieldReader:
    """A ``*`` of which the specification knows some types; one that it does not know stays Described."""
    known = set(definitions.PROVIDES[requires])

    def read(data: bytes, offset: int, scope: Scope) -> tuple[object, int]:
        # The usual form, without a step into the general reader.
        if data[offset] == 0x53:
            plan = _BY_CODE.get(data[offset + 1])
            start = offset + 2
        else:
            plan, start = _find_plan(data, offset)
        if plan is not None:
            if plan.kind not in known:
                raise DecodeError(f"a {plan.kind.__name__} is no {requires}")
            return plan.read(data, start)
        return d.read_described(data, offset, Scope(0))

    return read


def _composite(name: str) -> FieldReader:
    """A field whose type is one composite."""
    symbol = f"amqp:{name}:list"

    def read(data: bytes, offset: int, scope: Scope) -> tuple[object, int]:
        plan, offset = _find_plan(data, offset)
        if plan is None or symbol != plan.kind.SYMBOL:
            raise DecodeError(f"a described value that is no {name}")
        return plan.read(data, offset)

    return read


def _readers(field: Field) -> dict[int, FieldReader]:
    if field.wire == "*":
        readers = _READERS_BY_REQUIREMENT.get(field.requires) or {0x00: _described(field.requires)}
    else:
        readers = _READERS_BY_TYPE.get(field.wire) or {0x00: _composite(field.wire)}
        if field.requires:
            readers = dict.fromkeys(readers, _map_to(field.requires))
    if field.choices is not None:
        choices: dict[object, object] = {choice.value: choice for choice in field.choices}
        readers = {code: _choice(choices, read) for code, read in readers.items()}
    if field.multiple:
        kind = Symbol  # the only type that the specification has several of
        readers = {code: _several(read) for code, read in readers.items()}
        readers[0xE0] = _array_of(kind, d.read_array8)
        readers[0xF0] = _array_of(kind, d.read_array32)
    return readers


def _refusing(owner: str, field: Field) -> FieldReader:
    def refuse(data: bytes, offset: int, scope: Scope) -> tuple[object, int]:
        code = data[offset - 1]
        if code == 0x40:
            raise DecodeError(f"{owner}.{field.name} is mandatory and null")
        kind = d.ELEMENT_TYPES.get(code)
        found = kind.__name__ if kind else "a described value" if code == 0 else f"0x{code:02x}"
        raise DecodeError(f"{owner}.{field.name} must be {field.wire}, not {found}")

    return refuse


# -- writers ----------------------------------------------------------------------------------------------------------


def _symbol_keys(value: Mapping[Any, object]) -> bytes:
    """Maps with symbol keys (2.8.13): a plain str is taken for a symbol, other types go as they are."""
    items = bytearray()
    for key, item in value.items():
        if type(key) is str:
            items += e.symbol_bytes(key)
        else:
            e.write_key(items, key, DEPTH_MAX)
        _write_any(items, item)
    return e.compound_bytes(1, 2 * len(value), items)


def _map(value: Mapping[Any, object]) -> bytes:
    items = bytearray()
    for key, item in value.items():
        e.write_key(items, key, DEPTH_MAX)
        _write_any(items, item)
    return e.compound_bytes(1, 2 * len(value), items)


def _write_any(buffer: bytearray, value: object) -> None:
    plan = _BY_CLASS.get(type(value))
    if plan is None:
        e.write_value(buffer, value, DEPTH_MAX)
    else:
        buffer += plan.write(value)


def _any(value: object) -> bytes:
    plan = _BY_CLASS.get(type(value))
    if plan is not None:
        return plan.write(value)
    buffer = bytearray()
    e.write_value(buffer, value, DEPTH_MAX)
    return bytes(buffer)


def several(values: Sequence[str]) -> Symbol | Array | None:
    """The value of a field that may hold several symbols (1.4): null, one symbol, or an array; never a list."""
    if len(values) > 1:
        return Array(Symbol, tuple(values))
    return Symbol(values[0]) if values else None


def _symbols(values: tuple[str, ...]) -> bytes:
    """Encode symbols in the form that `several` gives; none as an empty array, as in a mandatory field."""
    if len(values) == 1:
        return e.symbol_bytes(values[0])
    buffer = bytearray()
    e.write_array(buffer, Array(Symbol, values), DEPTH_MAX)
    return bytes(buffer)


def _message_id(value: object) -> bytes:
    if isinstance(value, str):
        return e.string_bytes(value)
    if isinstance(value, bytes):
        return e.binary_bytes(value)
    if isinstance(value, UUID):
        return b"\x98" + value.bytes
    if isinstance(value, int) and not isinstance(value, bool):
        return e.ulong_bytes(value)
    raise EncodeError(f"an id is a str, an int, a UUID or bytes, not a {type(value).__name__}")


def _only(name: str) -> FieldWriter:
    """A field whose type is one composite."""
    symbol = f"amqp:{name}:list"

    def write(value: object) -> bytes:
        plan = _BY_CLASS.get(type(value))
        if plan is None or symbol != plan.kind.SYMBOL:
            raise EncodeError(f"a {type(value).__name__} is no {name}")
        return plan.write(value)

    return write


def _providing(requires: str) -> FieldWriter:
    """A ``*`` that must be a composite of this kind, or one of an extension."""
    allowed = (Described, *definitions.PROVIDES[requires])

    def write(value: object) -> bytes:
        if not isinstance(value, allowed):
            raise EncodeError(f"a {type(value).__name__} is no {requires}")
        return _any(value)

    return write


def _number(write: FieldWriter) -> FieldWriter:
    """Return a writer that refuses True and False, which are numbers to Python: the caller meant something else."""

    def write_number(value: Any) -> bytes:
        if value is True or value is False:
            raise TypeError("a truth value is no number")
        return write(value)

    return write_number


_WRITERS_BY_TYPE: Final[dict[str, FieldWriter]] = {
    "boolean": e.boolean_bytes,
    "ubyte": _number(e.ubyte_bytes),
    "ushort": _number(e.ushort_bytes),
    "uint": _number(e.uint_bytes),
    "ulong": _number(e.ulong_bytes),
    "timestamp": _number(e.timestamp_bytes),
    "binary": e.binary_bytes,
    "string": e.string_bytes,
    "symbol": e.symbol_bytes,
    "map": _map,
    "fields": _symbol_keys,
    "*": _any,
}

_WRITERS_BY_REQUIREMENT: Final[dict[str, FieldWriter]] = {
    "address": e.string_bytes,
    "txn-id": e.binary_bytes,
    "message-id": _message_id,
    **{requires: _providing(requires) for requires in ("delivery-state", "outcome", "source", "target")},
}


_EXPECTED: Final[dict[str, str]] = {
    "boolean": "True or False",
    "ubyte": "a whole number from 0 to 255",
    "ushort": "a whole number from 0 to 65535",
    "uint": "a whole number from 0 to 4294967295",
    "ulong": "a whole number from 0 to 18446744073709551615",
    "timestamp": "a whole number of milliseconds since the Unix epoch",
    "binary": "bytes",
    "string": "a text that UTF-8 can hold",
    "symbol": "a text of ASCII",
    "address": "a text that UTF-8 can hold",
    "txn-id": "bytes",
    "message-id": "a text, a UUID, bytes, or a whole number from 0 to 18446744073709551615",
}
"""Values that a field takes, in words for people, by its type or what it requires."""

_ATTRIBUTES: Final[dict[tuple[type, str], str]] = {
    **{(definitions.Header, field.name): field.name for field in definitions.Header.FIELDS},
    **{(definitions.Properties, field.name): field.name for field in definitions.Properties.FIELDS},
    (definitions.Header, "ttl"): "ttl_ms",
}
"""The fields that users know as attributes of a message, by the name that they have there."""


def _writer(field: Field) -> FieldWriter:
    if field.multiple:
        return _symbols
    if field.wire == "*":
        return _WRITERS_BY_REQUIREMENT.get(field.requires, _any)
    return _WRITERS_BY_TYPE.get(field.wire) or _only(field.wire)


# -- plans ------------------------------------------------------------------------------------------------------------


class _CodingPlan:
    """Tables for coding one composite type, worked out once."""

    __slots__ = ("constructor", "defaults", "empty", "fields", "get", "heads", "kind", "required", "shared", "writers")

    def __init__(self, kind: type[Any]) -> None:
        fields: tuple[Field, ...] = kind.FIELDS
        self.kind = kind
        self.fields = fields
        self.constructor = b"\x00" + e.ulong_bytes(kind.DESCRIPTOR)
        self.empty = self.constructor + b"\x45"
        self.shared = None if fields else kind()  # a value without fields is one value
        tables = []
        for field in fields:
            table: list[FieldReader] = [_refusing(kind.__name__, field)] * 256
            if not field.mandatory:
                table[0x40] = d.constant(self._default(field))  # type: ignore[arg-type]  # an enum is its value
            for code, read in _readers(field).items():
                table[code] = read
            tables.append(table)
        self.heads = [tuple(tables[:count]) for count in range(len(fields) + 1)]  # by number of fields present
        self.required = max((index + 1 for index, field in enumerate(fields) if field.mandatory), default=0)
        names = [field.name for field in fields]
        self.get: Callable[[Any], tuple[Any, ...]] = (
            attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, name) for name in names)
        )
        self.defaults = tuple(self._default(field) for field in fields)
        self.writers = tuple(_writer(field) for field in fields)

    @staticmethod
    def _default(field: Field) -> object:
        if field.multiple and not field.mandatory:
            return ()
        return field.default

    def read(self, data: bytes, offset: int) -> tuple[Any, int]:
        """The composite whose list stands at `offset`, behind the descriptor."""
        code = data[offset]
        if code == 0xC0:
            count, offset, end = d.compound8(data, offset + 1)
        elif code == 0xD0:
            count, offset, end = d.compound32(data, offset + 1)
        elif code == 0x45:
            count, offset, end = 0, offset + 1, offset + 1
        else:
            raise DecodeError(f"{self.kind.__name__} must be a list, not 0x{code:02x}")
        if count < self.required:
            raise DecodeError(f"{self.kind.__name__}.{self._missing(count)} is mandatory and missing")
        if count >= len(self.heads):
            raise DecodeError(f"{self.kind.__name__} has {len(self.fields)} fields, not {count}")
        values = []
        for table in self.heads[count]:
            value, offset = table[data[offset]](data, offset + 1, FLAT)
            values.append(value)
        if offset != end:
            raise DecodeError(f"{self.kind.__name__} ends at offset {offset}, but the size given says {end}")
        if self.shared is not None:
            return self.shared, end
        return self.kind(*values), end

    def _missing(self, count: int) -> str:
        return next(field.name for field in self.fields[count:] if field.mandatory)

    def write(self, value: object) -> bytes:
        """The whole composite. A default is known by identity: an equal one that is another object is written out."""
        if self.shared is not None:
            return self.empty
        items, defaults = self.get(value), self.defaults
        count = len(items)
        while count and items[count - 1] is defaults[count - 1]:
            count -= 1
        if count < self.required:
            raise EncodeError(f"{self.kind.__name__}.{self._missing(count)} is mandatory")
        if not count:
            return self.empty
        written = [
            e.NULL if item is None or item is default else write(item)
            for item, default, write in zip(items[:count], defaults, self.writers, strict=False)
        ]
        if None in items[: self.required]:
            self._refuse_none(items)
        return self.constructor + e.compound_bytes(0, count, b"".join(written))

    def misfit(self, value: object) -> Field | None:
        """The field that could not be written: found by trying again, as it is only for the message."""
        for field, item, write in zip(self.fields, self.get(value), self.writers, strict=True):
            try:
                if item is not None:
                    write(item)
            except e.UNENCODABLE:
                return field
        return None

    def _refuse_none(self, items: tuple[object, ...]) -> None:
        for field, item in zip(self.fields, items, strict=True):
            if field.mandatory and item is None:
                raise EncodeError(f"{self.kind.__name__}.{field.name} is mandatory")


_BY_CLASS: Final[dict[type, _CodingPlan]] = {kind: _CodingPlan(kind) for kind in definitions.COMPOSITES}
_BY_CODE: Final[dict[int, _CodingPlan]] = {plan.kind.DESCRIPTOR: plan for plan in _BY_CLASS.values()}
_BY_SYMBOL: Final[dict[str, _CodingPlan]] = {plan.kind.SYMBOL: plan for plan in _BY_CLASS.values()}


def _find_plan(data: bytes, offset: int) -> tuple[_CodingPlan | None, int]:
    """The plan for the descriptor at `offset` (ulong or symbol, any encoding), and the offset behind the descriptor."""
    descriptor, offset = READERS[data[offset]](data, offset + 1, Scope(0))
    if type(descriptor) is ULong:
        return _BY_CODE.get(descriptor), offset
    if type(descriptor) is Symbol:
        return _BY_SYMBOL.get(descriptor), offset
    return None, offset


def field_readers(kind: type) -> tuple[list[FieldReader], ...]:
    """Return the readers of each field of a composite class, by format code: to read single fields where they stand."""
    return _BY_CLASS[kind].heads[-1]


def decode_composite(data: bytes, offset: int = 0, end: int | None = None) -> tuple[Composite, int]:
    """Decode the composite at `offset`; return it with the offset behind it.

    The result is an instance of the class that the descriptor names; which of them may come is for the caller to
    check. Raises DecodeError for an unknown descriptor and for anything that is not a complete
    value of that type before `end`.
    """
    try:
        if data[offset] != 0x00:
            raise DecodeError(f"a composite begins with 0x00, not 0x{data[offset]:02x}")
        if data[offset + 1] == 0x53:
            plan = _BY_CODE.get(data[offset + 2])
            start = offset + 3
        else:
            plan, start = _find_plan(data, offset + 1)
        if plan is None:
            raise DecodeError(f"no composite has this descriptor: {d.decode(data, offset + 1)[0]!r:.80}")
        value, next_offset = plan.read(data, start)
    except MALFORMED as exc:
        raise malformed("composite", exc) from exc
    if next_offset > (len(data) if end is None else end):
        raise DecodeError(f"{plan.kind.__name__} ends at offset {next_offset}, past the end at {end}")
    return value, next_offset


def encode_composite(value: object) -> bytes:
    """The encoding of an instance of one of the generated classes.

    Null and default fields at the end are left out, others are null. Raises EncodeError, naming class and field, for
    a missing mandatory field or a value that does not fit.
    """
    plan = _BY_CLASS.get(type(value))
    if plan is None:
        raise EncodeError(f"{type(value).__name__} is no composite")
    try:
        return plan.write(value)
    except e.UNENCODABLE as exc:
        misfit = plan.misfit(value)
        if misfit is None:  # then it is a mandatory field that is missing, which the message says already
            raise
        got = repr(getattr(value, misfit.name))
        shown = got if len(got) <= _SHOWN_MAX else f"{got[:_SHOWN_MAX]}..."
        name = _ATTRIBUTES.get((plan.kind, misfit.name), f"{plan.kind.__name__}.{misfit.name}")
        expected = _EXPECTED.get(misfit.requires or misfit.wire) if not misfit.multiple else None
        if expected is None:
            raise EncodeError(f"{name} does not fit its type: {exc}, got {shown}") from exc
        raise EncodeError(f"{name} must be {expected}, got {shown}") from exc

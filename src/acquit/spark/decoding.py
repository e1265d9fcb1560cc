"""Bodies as more than bytes: the column `text`, or the column `json` by a schema that the user gives.

The spool keeps messages as they were, so what is made of a body is never final: a query that starts again with another
schema reads old epochs by that one. A body that does not fit makes a corrupt row (`spark.columns`), and the rest of its
row is there all the same.

JSON is read strictly: a value is of the type that the schema says, or it does not fit. A missing member is null, a
member that the schema does not name is passed over. STRING takes anything, what is no string as its JSON text. Types
and what fits them: `_KINDS`. Decoders never raise for what a body holds, and reasons never repeat it.

What a body is read as is said here, by Python's parser and a converter for each value. `spark.json_columns` is the
short way, for many bodies at once, and leaves to this one whatever the two might not agree on.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from acquit.errors import ConfigurationError
from acquit.protocol.jsonform import refuse_constant
from acquit.spark.json_columns import BOM, FLOAT32_MAX, JsonColumns
from acquit.spark.options import Option, read_choice

_STRUCT: Final = re.compile(r"struct\s*<", re.IGNORECASE)
# Python's constructors take more: spaces, underscores, digits of other scripts, weeks, dates without hyphens.
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(
    rf"{_DATE.pattern}([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d(:?\d\d(:?\d\d)?)?)?)?", re.ASCII
)


class BodyAs(StrEnum):
    """Form that bodies are decoded into; ``bytes`` for none."""

    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"


BODY_OPTIONS: Final = (
    Option(
        "bodyAs",
        "body_as",
        read_choice(BodyAs, *BodyAs),
        "what is made of bodies besides `body`: bytes (nothing), text (the column `text`) or json (the column `json`)",
    ),
    Option(
        "bodySchema",
        "body_schema",
        str,
        "with bodyAs = json: the members of the object, as DDL, such as `id BIGINT, tags ARRAY<STRING>`; a schema that "
        "is given to the reader says it instead",
    ),
)


def check_body(body_as: BodyAs, body_schema: str | None) -> None:
    """Raise ConfigurationError for what does not go together."""
    if body_schema is not None and body_as is not BodyAs.JSON:
        raise ConfigurationError("option bodySchema is given without bodyAs = json")


def body_ddl(body_as: BodyAs, body_schema: str | None) -> str | None:
    """The column that is made, as DDL; None where there is none. Raises ConfigurationError without the schema."""
    if body_as is BodyAs.JSON:
        if body_schema is None:
            raise ConfigurationError(
                "option bodyAs = json needs the option bodySchema: the members of the object, such as "
                "`id BIGINT, tags ARRAY<STRING>`"
            )
        return f"{BodyAs.JSON} {body_schema if _STRUCT.match(body_schema) else f'STRUCT<{body_schema}>'}"
    return f"{BodyAs.TEXT} STRING" if body_as is BodyAs.TEXT else None


def decoder_for(body_as: BodyAs, wanted: pa.Schema) -> BodyDecoder | None:
    """Return the decoder of bodies for rows of schema `wanted`, if any. Raises ConfigurationError for a bad schema."""
    names = wanted.names
    for other in BodyAs:
        if other in names and other is not body_as and other is not BodyAs.BYTES:
            raise ConfigurationError(f"schema: the column {other} needs the option bodyAs = {other}")
    if body_as is BodyAs.TEXT:
        if BodyAs.TEXT in names and wanted.field(BodyAs.TEXT).type != pa.string():
            raise ConfigurationError(
                f"schema: column text is STRING, and cannot be read as {wanted.field('text').type}"
            )
        return TextDecoder()
    if body_as is BodyAs.JSON:
        if BodyAs.JSON not in names:
            raise ConfigurationError(
                "schema: bodyAs = json needs the column json, a STRUCT: its members say what to read"
            )
        return JsonDecoder.of(wanted.field(BodyAs.JSON).type)
    return None


class Decoded(NamedTuple):
    """Bodies as values, in their order, and which of them did not fit, with the reason. Those are null."""

    values: pa.Array
    failed: Mapping[int, str]


class BodyDecoder(Protocol):
    """Makes a column of bodies. Pickled into tasks."""

    @property
    def column(self) -> str:
        """Name of the column."""

    @property
    def stored(self) -> bytes | None:
        """Key of this decoding if it is costly: values are kept with it, to be used again. None if it is cheap."""

    def decode(self, bodies: pa.Array) -> Decoded:
        """Decode an array of binary. Null stays null."""


@dataclass(frozen=True, slots=True)
class TextDecoder:
    """UTF-8."""

    column: str = BodyAs.TEXT
    stored: bytes | None = None

    def decode(self, bodies: pa.Array) -> Decoded:
        """See `BodyDecoder`: without a copy where all is well."""
        try:
            return Decoded(bodies.cast(pa.string()), {})
        except pa.ArrowInvalid:
            values: list[str | None] = []
            failed = {}
            for row, body in enumerate(bodies.to_pylist()):
                try:
                    values.append(None if body is None else body.decode())
                except UnicodeDecodeError as error:
                    values.append(None)
                    failed[row] = f"the body is not UTF-8: {error.reason} at {error.start}"
            return Decoded(pa.array(values, pa.string()), failed)


class JsonDecoder:
    """JSON objects as structs of an Arrow type."""

    column: str = BodyAs.JSON

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._convert = _converter(kind, BodyAs.JSON)
        # Decimals would lose digits as floats; else floats are the faster.
        self._parser = json.JSONDecoder(
            parse_constant=refuse_constant, parse_float=_exactly if _has_decimal(kind) else None
        )
        self._short = JsonColumns.of(kind)
        self.stored: bytes | None = f"json 2 {kind}".encode()

    @classmethod
    def of(cls, kind: pa.DataType) -> JsonDecoder:
        """Return a decoder for values of `kind`. Raises ConfigurationError for a type that cannot be read from JSON."""
        if not pa.types.is_struct(kind):
            raise ConfigurationError(f"schema: column json is a STRUCT, and cannot be read as {kind}")
        return cls(kind)

    def __reduce__(self) -> tuple[type[JsonDecoder], tuple[pa.DataType]]:
        return JsonDecoder, (self._kind,)

    def decode(self, bodies: pa.Array) -> Decoded:
        """See `BodyDecoder`."""
        every = bodies.to_pylist()
        if self._short is None or not (taken := self._short.take(every)).pieces:
            return self._decode_each(every)
        values, failed = self._decode_each([every[row] for row in taken.left])
        values = pa.concat_arrays([values, *taken.pieces])
        if taken.left:
            values = values.take(pa.array(np.argsort(taken.left + taken.rows)))
        return Decoded(values, {taken.left[number]: reason for number, reason in failed.items()})

    def _decode_each(self, bodies: Sequence[bytes | None]) -> Decoded:
        parse, convert = self._parser.decode, self._convert
        values: list[object] = []
        failed = {}
        for row, body in enumerate(bodies):
            value = None
            if body is not None:
                try:
                    found = parse(body.removeprefix(BOM).decode())
                    value = None if found is None else convert(found)
                except _DoesNotFit as error:
                    failed[row] = f"the body does not fit bodySchema: {error.where} {error.what}"
                except json.JSONDecodeError as error:
                    failed[row] = f"the body is not JSON: {error.msg} at {error.pos}"
                except (ValueError, RecursionError) as error:
                    failed[row] = f"the body is not JSON: {type(error).__name__}"
            values.append(value)
        return Decoded(pa.array(values, self._kind), failed)


class _DoesNotFit(Exception):
    """A value is not of the type that the schema says."""

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where

    def inside(self, where: str) -> _DoesNotFit:
        """The same, seen from outside."""
        return _DoesNotFit(self.what, where + (f".{self.where}" if self.where else ""))


Converter: TypeAlias = Callable[[object], object]


def _exactly(text: str) -> Decimal | float:
    """A number with all of its digits. Of an exponent that no decimal number has, nothing, or infinity: for members
    that are passed over."""
    try:
        return Decimal(text)
    except DecimalException:
        return float(text)


def _converter(kind: pa.DataType, where: str) -> Converter:
    """Return a function from the parser's values, never null, to Arrow's for `kind`. Raises ConfigurationError."""
    for is_kind, make in _KINDS:
        if is_kind(kind):
            return make(kind, where)
    raise ConfigurationError(f"schema: {where} is {kind}, which cannot be read from JSON")


def _member(field: pa.Field, where: str) -> Converter:
    convert, nullable = _converter(field.type, where), field.nullable

    def member(value: object) -> object:
        if value is not None:
            return convert(value)
        if nullable:
            return None
        raise _DoesNotFit("is null or missing")

    return member


def _struct(kind: pa.DataType, where: str) -> Converter:
    if any(field.metadata and b"variant" in field.metadata for field in kind):
        raise ConfigurationError(f"schema: {where} is VARIANT, which is not read from JSON here: use STRING")
    members = [(field.name, _member(field, f"{where}.{field.name}")) for field in kind]

    def struct(value: object) -> object:
        if type(value) is not dict:
            raise _DoesNotFit("is no object")
        get = value.get
        found = {}
        name = ""
        try:
            for name, member in members:
                found[name] = member(get(name))
        except _DoesNotFit as error:
            raise error.inside(name) from None
        return found

    return struct


def _list(kind: pa.DataType, where: str) -> Converter:
    member = _member(kind.value_field, f"{where}[]")

    def array(value: object) -> object:
        if type(value) is not list:
            raise _DoesNotFit("is no array")
        try:
            return [member(item) for item in value]
        except _DoesNotFit as error:
            raise error.inside("[]") from None

    return array


def _map(kind: pa.DataType, where: str) -> Converter:
    if not pa.types.is_string(kind.key_type):
        raise ConfigurationError(f"schema: {where} is a map whose keys are {kind.key_type}; JSON has STRING keys alone")
    member = _member(kind.item_field, f"{where}[]")

    def entries(value: object) -> object:
        if type(value) is not dict:
            raise _DoesNotFit("is no object")
        try:
            return [(_encodable(key), member(item)) for key, item in value.items()]
        except _DoesNotFit as error:
            raise error.inside("[]") from None

    return entries


def _encodable(text: str) -> str:
    """Raises for half of a surrogate pair, which JSON can say and UTF-8 cannot."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _DoesNotFit("is no text: half of a surrogate pair") from None
    return text


def _string(_: pa.DataType, __: str) -> Converter:
    def string(value: object) -> object:
        if type(value) is str:
            return _encodable(value)
        try:
            return json.dumps(value, default=float, allow_nan=False)
        except ValueError:
            raise _DoesNotFit("has a number that cannot be held") from None

    return string


def _bytes(_: pa.DataType, __: str) -> Converter:
    def binary(value: object) -> object:
        try:
            if type(value) is str:
                return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
        raise _DoesNotFit("is no text in base 64")

    return binary


def _boolean(_: pa.DataType, __: str) -> Converter:
    def boolean(value: object) -> object:
        if type(value) is bool:
            return value
        raise _DoesNotFit("is neither true nor false")

    return boolean


def _integer(kind: pa.DataType, _: str) -> Converter:
    high = (1 << (kind.bit_width - 1)) - 1

    def integer(value: object) -> object:
        if type(value) is int and -high - 1 <= value <= high:
            return value
        raise _DoesNotFit(f"is no whole number of {high.bit_length() + 1} bits")

    return integer


def _floating(kind: pa.DataType, _: str) -> Converter:
    largest = FLOAT32_MAX if kind == pa.float32() else math.inf

    def floating(value: object) -> object:
        if type(value) in (int, float, Decimal):
            try:
                number = float(value)  # type: ignore[arg-type]  # one of the three
            except OverflowError:
                number = math.inf
            if abs(number) < largest:
                return number
        raise _DoesNotFit("is no number that can be held")

    return floating


def _decimal(kind: pa.DataType, _: str) -> Converter:
    context = Context(prec=kind.precision, traps=[InvalidOperation, Inexact])
    quantum = Decimal(1).scaleb(-kind.scale)

    def decimal(value: object) -> object:
        if type(value) in (int, Decimal) or (type(value) is str and _NUMBER.fullmatch(value)):
            try:
                number = Decimal(value).quantize(quantum, context=context)  # type: ignore[arg-type]  # one of the three
                if number.is_finite():
                    return number
            except DecimalException:
                pass
        raise _DoesNotFit(f"is no decimal number of {kind.precision} digits with {kind.scale} of them behind the point")

    return decimal


def _day(_: pa.DataType, __: str) -> Converter:
    def day(value: object) -> object:
        try:
            if type(value) is str and _DATE.fullmatch(value):
                return date.fromisoformat(value)
        except ValueError:
            pass
        raise _DoesNotFit("is no date as 2026-01-31")

    return day


def _moment(kind: pa.DataType, _: str) -> Converter:
    zoned = kind.tz is not None

    def moment(value: object) -> object:
        try:
            if type(value) is str and _TIME.fullmatch(value):
                found = datetime.fromisoformat(value)
                if zoned:
                    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
                if found.tzinfo is None:
                    return found
        except (ValueError, OverflowError):
            pass
        raise _DoesNotFit("is no time as 2026-01-31T12:00:00" + ("Z" if zoned else ", without an offset"))

    return moment


_KINDS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, str], Converter]], ...]] = (
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
    (pa.types.is_list, _list),
    (pa.types.is_string, _string),
    (pa.types.is_binary, _bytes),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_signed_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_date32, _day),
    (pa.types.is_timestamp, _moment),
)


def _has_decimal(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) or any(_has_decimal(inner) for inner in _inner(kind))


def _inner(kind: pa.DataType) -> Iterable[pa.DataType]:
    if pa.types.is_map(kind):
        return (kind.item_type,)
    return [kind.field(number).type for number in range(kind.num_fields)]

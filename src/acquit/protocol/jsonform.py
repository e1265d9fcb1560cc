"""AMQP values as JSON and back: what `--json` prints, `--json-lines` reads, and the HTTP interface speaks.

JSON has fewer types than AMQP, so what it lacks is an object with one key that names the type::

    {"base64": "AAEC"}                        binary
    {"uuid": "5e9b..."}                       uuid
    {"timestamp_ms": 1767225600000}           timestamp
    {"decimal": "2238.."}                     decimal32, 64 or 128: its bits, in hexadecimal
    {"double": "NaN"}                         a number that JSON cannot write: NaN, Infinity, -Infinity
    {"map": [[key, value], ...]}              a map with keys that are not strings, or that would read as one of these
    {"described": [descriptor, value]}        a described value

What is not kept: the widths of integers (all come back as long), symbols and chars (as strings), arrays (as lists),
single precision (as double).
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeAlias
from uuid import UUID

from acquit.errors import ConfigurationError
from acquit.protocol.types import Array, Decimal32, Decimal64, Decimal128, Described, Timestamp

_UNWRITABLE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

NESTED_MAX: Final = 64
"""Lists, maps and described values in one another, at most: twice what an AMQP value may have here."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def to_json(value: object) -> Json:
    """The JSON form of an AMQP value. Raises TypeError for anything else."""
    match value:
        case None | bool():
            return value
        case Timestamp():
            return {"timestamp_ms": int(value)}
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else {"double": _UNWRITABLE[repr(float(value))]}
        case str():
            return str.__str__(value)
        case Decimal32() | Decimal64() | Decimal128():
            return {"decimal": value.hex()}
        case bytes():
            return {"base64": base64.b64encode(value).decode("ascii")}
        case UUID():
            return {"uuid": str(value)}
        case Described(descriptor, inner):
            return {"described": [to_json(descriptor), to_json(inner)]}
        case Array():
            return [to_json(item) for item in value.items]
        case list() | tuple():
            return [to_json(item) for item in value]
        case Mapping():
            keys = list(value)
            if all(isinstance(key, str) for key in keys) and not (len(keys) == 1 and keys[0] in _READERS):
                return {str.__str__(key): to_json(item) for key, item in value.items()}
            return {"map": [[to_json(key), to_json(item)] for key, item in value.items()]}
        case _:
            raise TypeError(f"not an AMQP value: {type(value).__name__}")


def read_json(text: str | bytes) -> Json:
    """The value of a text in JSON (RFC 8259). NaN and the infinities, which Python's own reader takes, are none. Raises
    ValueError (json.JSONDecodeError where a place can be told), and RecursionError."""
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    found: Json = _DECODER.decode(text)
    return found


def refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for one of the numbers that Python's reader takes, and JSON does not have."""
    raise ValueError(f"JSON has no {name}")


_DECODER: Final = json.JSONDecoder(parse_constant=refuse_constant)


def from_json(value: Json) -> object:
    """The AMQP value of its JSON form. Raises ConfigurationError for a typed object that is not what it says, for a
    number that JSON does not have or a double cannot be, and for what is nested deeper than `NESTED_MAX`."""
    return _read(value, NESTED_MAX)


def _read(value: Json, depth_left: int) -> object:
    if not isinstance(value, dict | list):
        if isinstance(value, float) and not math.isfinite(value):
            name = _UNWRITABLE[repr(value)]
            raise ConfigurationError(
                f'expected a number, found {name}; as a value of AMQP it is {{"double": "{name}"}}'
            )
        return value
    if not depth_left:
        raise ConfigurationError(f"the JSON is nested too deeply: more than {NESTED_MAX} values in one another")
    if isinstance(value, list):
        return [_read(item, depth_left - 1) for item in value]
    if len(value) == 1:
        (name, inner), *_ = value.items()
        reader = _READERS.get(name)
        if reader is not None:
            try:
                return reader(inner, depth_left - 1)
            except ConfigurationError:
                raise  # of a value in it
            except (ValueError, TypeError, KeyError, binascii.Error) as error:
                raise ConfigurationError(f'{{"{name}": ...}} does not hold a {name}: {error}') from error
    return {key: _read(item, depth_left - 1) for key, item in value.items()}


def _found(value: Json) -> str:
    """Return what was found in place of what was expected, for an error: of lists and objects no more than that."""
    return type(value).__name__ if isinstance(value, dict | list) else f"{value!r:.60}"


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, found {_found(value)}")
    return value


def _items(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {_found(value)}")
    return value


def _timestamp(value: Json, _: int) -> Timestamp:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected milliseconds since 1970 as an integer, found {_found(value)}")
    return Timestamp(value)


def _decimal(value: Json, _: int) -> bytes:
    bits = bytes.fromhex(_text(value))
    widths: dict[int, Callable[[bytes], bytes]] = {4: Decimal32, 8: Decimal64, 16: Decimal128}
    if len(bits) not in widths:
        raise ValueError(f"expected 4, 8 or 16 bytes, found {len(bits)}")
    return widths[len(bits)](bits)


def _double(value: Json, _: int) -> float:
    numbers = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    return numbers[_text(value)]


def _map(value: Json, depth_left: int) -> dict[object, object]:
    pairs = [_items(pair) for pair in _items(value)]
    return {_read(key, depth_left): _read(item, depth_left) for key, item in pairs}


def _described(value: Json, depth_left: int) -> Described:
    descriptor, inner = _items(value)
    # What is read is made of AMQP's types; the checker cannot know.
    return Described(_read(descriptor, depth_left), _read(inner, depth_left))  # type: ignore[arg-type]


_READERS: dict[str, Callable[[Json, int], object]] = {
    "base64": lambda value, _: base64.b64decode(_text(value), validate=True),
    "uuid": lambda value, _: UUID(_text(value)),
    "timestamp_ms": _timestamp,
    "decimal": _decimal,
    "double": _double,
    "map": _map,
    "described": _described,
}
"""Readers of typed objects: of what is in them, and how deep it may be."""

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
import math
from collections.abc import Callable, Mapping
from typing import TypeAlias
from uuid import UUID

from acquit.errors import ConfigurationError
from acquit.protocol.types import Array, Decimal32, Decimal64, Decimal128, Described, Timestamp

_UNWRITABLE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

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


def from_json(value: Json) -> object:
    """The AMQP value of its JSON form. Raises ConfigurationError for a typed object that is not what it says."""
    match value:
        case dict():
            if len(value) == 1:
                (name, inner), *_ = value.items()
                reader = _READERS.get(name)
                if reader is not None:
                    try:
                        return reader(inner)
                    except (ValueError, TypeError, KeyError, binascii.Error) as error:
                        raise ConfigurationError(f'{{"{name}": ...}} does not hold a {name}: {error}') from error
            return {key: from_json(item) for key, item in value.items()}
        case list():
            return [from_json(item) for item in value]
        case _:
            return value


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, found {value!r}")
    return value


def _items(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {value!r}")
    return value


def _timestamp(value: Json) -> Timestamp:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected milliseconds since 1970 as an integer, found {value!r}")
    return Timestamp(value)


def _decimal(value: Json) -> bytes:
    bits = bytes.fromhex(_text(value))
    widths: dict[int, Callable[[bytes], bytes]] = {4: Decimal32, 8: Decimal64, 16: Decimal128}
    if len(bits) not in widths:
        raise ValueError(f"expected 4, 8 or 16 bytes, found {len(bits)}")
    return widths[len(bits)](bits)


def _double(value: Json) -> float:
    numbers = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    return numbers[_text(value)]


def _map(value: Json) -> dict[object, object]:
    pairs = [_items(pair) for pair in _items(value)]
    return {from_json(key): from_json(item) for key, item in pairs}


def _described(value: Json) -> Described:
    descriptor, inner = _items(value)
    # What from_json gives is made of AMQP's types; the checker cannot know.
    return Described(from_json(descriptor), from_json(inner))  # type: ignore[arg-type]


_READERS: dict[str, Callable[[Json], object]] = {
    "base64": lambda value: base64.b64decode(_text(value), validate=True),
    "uuid": lambda value: UUID(_text(value)),
    "timestamp_ms": _timestamp,
    "decimal": _decimal,
    "double": _double,
    "map": _map,
    "described": _described,
}

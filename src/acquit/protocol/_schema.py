"""Description of a field in the generated definitions: one row of the specification's XML."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any, NamedTuple


class Field(NamedTuple):
    """Field of a composite; `FIELDS` of the composite's class has them all, in wire order.

    `wire` is the primitive on the wire, ``*``, ``fields`` (a map with symbol keys) or the name of a composite;
    `requires` says what a ``*``, or a value in a map, must be; `choices` is the closed set of a restricted type;
    `default` is what null means; a `secret` may be a password.
    """

    name: str
    wire: str
    mandatory: bool = False
    multiple: bool = False
    requires: str = ""
    choices: type[IntEnum | StrEnum] | None = None
    default: int | str | None = None
    secret: bool = False


def shown(composite: Any) -> str:
    """Return a composite as the call that makes it, without its secrets."""
    parts = [f"{field.name}={getattr(composite, field.name)!r}" for field in composite.FIELDS if not field.secret]
    return f"{type(composite).__qualname__}({', '.join(parts)})"

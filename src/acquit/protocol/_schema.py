"""How the generated definitions describe a field: one row of the specification's XML."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a composite, in wire order.

    `wire` is the primitive on the wire, ``*``, ``fields`` (a map with symbol keys) or the name of a composite;
    `requires` says what a ``*``, or a value in a map, must be; `choices` is the closed set of a restricted type;
    `default` is what null means.
    """

    name: str
    wire: str
    mandatory: bool = False
    multiple: bool = False
    requires: str = ""
    choices: type[IntEnum | StrEnum] | None = None
    default: int | str | None = None

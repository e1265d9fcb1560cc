"""Checks of option values, with errors that name the field."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import PurePath
from typing import Final, Literal, get_args, get_origin, get_type_hints

from acquit.errors import ConfigurationError

UINT_MAX: Final = 0xFFFF_FFFF
TIME_MS_MAX: Final = 10 * 365 * 24 * 3600 * 1000
"""Ten years: longer than any broker waits, and no sum of a few overflows a timestamp."""

_Field = tuple[str, Callable[[object], bool]]
"""Words for what is expected of a field, and whether a value is that."""

TYPE_NAMES: Final[Mapping[type, str]] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
}
_FIELDS: Final[dict[type, dict[str, _Field]]] = {}
"""The fields of each class that has been asked for: an address is given its policy while messages wait."""


def meant(name: object, known: Iterable[str]) -> str:
    """Return a hint for who gave an unknown name: the one that is like it, or else all, which may be thirty."""
    names = list(known)
    close = get_close_matches(str(name), names, n=1, cutoff=0.8)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"


def take_paths(owner: object, *names: str) -> None:
    """Put the text of a path in the place of one that a program gave as a `pathlib.Path`."""
    for name in names:
        value = getattr(owner, name)
        if isinstance(value, PurePath):
            object.__setattr__(owner, name, str(value))


def check_fields(owner: object, bounds: Mapping[str, tuple[float, float]] | None = None) -> None:
    """Raise ConfigurationError for a field of `owner`, a dataclass, with a value that it cannot have: of another type
    than the field's, a word that is not among those of its Literal, or a number outside of its bounds.

    A configuration is checked for types as it is read; a program, or an operator by a request, gives what it likes."""
    for name, (expected, allowed) in _fields(type(owner)).items():
        value = getattr(owner, name)
        if not allowed(value):
            raise ConfigurationError(f"{name}: expected {expected}, found {value!r}")
    for name, (low, high) in (bounds or {}).items():
        value = getattr(owner, name)
        if not low <= value <= high:
            raise ConfigurationError(f"{name}: expected a number from {low} to {high}, found {value!r}")


def _fields(kind: type) -> Mapping[str, _Field]:
    """Return what each field of `kind` may have; those of other types than these are left out."""
    if kind not in _FIELDS:
        found = _FIELDS[kind] = {}
        for name, hint in get_type_hints(kind).items():
            if get_origin(hint) is Literal:
                words = get_args(hint)
                found[name] = f"one of {', '.join(map(repr, words))}", words.__contains__
            elif hint in _TYPES:
                found[name] = _TYPES[hint]
    return _FIELDS[kind]


def _is_text(value: object) -> bool:
    """Return True for a text that has an encoding: half of a surrogate pair has none."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


_TYPES: Final[Mapping[object, _Field]] = {
    int: (TYPE_NAMES[int], lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: (TYPE_NAMES[float], lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    str: (TYPE_NAMES[str], _is_text),
    bool: (TYPE_NAMES[bool], lambda value: isinstance(value, bool)),
    tuple[str, ...]: ("a list of texts", lambda value: isinstance(value, tuple | list) and all(map(_is_text, value))),
}


def check_pattern(name: str, pattern: str) -> None:
    """Raise ConfigurationError for what is no pattern of addresses; `name` is the key that has it."""
    words = pattern.split(".")
    if not pattern or not all(words) or any(len(word) > 1 and set(word) & set("*#") for word in words):
        raise ConfigurationError(f"{name}: expected words between dots, where a word may be * or #, found {pattern!r}")


def check_host(name: str, host: str) -> None:
    """Raise ConfigurationError for a host that no resolver is asked for; `name` is the key that has it. The empty one
    would be all addresses of the machine; one with a colon is an IPv6 address, or none."""
    known = bool(host) and not any(character.isspace() or character == "\0" for character in host)
    if known and ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            known = False
    if not known:
        raise ConfigurationError(f"{name}: expected the name or the address of a host, found {host!r}")


def known_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | str:
    """Return the address that a host is, or stands for without a resolver; otherwise its name, in small letters."""
    name = host.lower()
    try:
        return ipaddress.ip_address("127.0.0.1" if name == "localhost" else name)
    except ValueError:
        return name


__all__ = [
    "TIME_MS_MAX",
    "TYPE_NAMES",
    "UINT_MAX",
    "check_fields",
    "check_host",
    "check_pattern",
    "known_address",
    "meant",
    "take_paths",
]

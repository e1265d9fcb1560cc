"""Checks of option values, with errors that name the field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, Literal, get_args, get_origin, get_type_hints

from acquit.errors import ConfigurationError

UINT_MAX: Final = 0xFFFF_FFFF
TIME_MS_MAX: Final = 10 * 365 * 24 * 3600 * 1000
"""Ten years: longer than any broker waits, and no sum of a few overflows a timestamp."""
_CHOICES: Final[dict[type, Mapping[str, tuple[str, ...]]]] = {}
"""The choices of each class that has been asked for: an address is given its policy while messages wait."""


def meant(name: str, known: Iterable[str]) -> str:
    """Return a hint for who gave an unknown name: the one that is like it, or else all, which may be thirty."""
    names = list(known)
    close = get_close_matches(name, names, n=1, cutoff=0.8)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"


def check_range(owner: object, bounds: Mapping[str, tuple[float, float]]) -> None:
    """Raise ConfigurationError for a number of `owner` that is outside of its bounds."""
    for name, (low, high) in bounds.items():
        value = getattr(owner, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ConfigurationError(f"{name}: expected a number from {low} to {high}, found {value!r}")


def check_choice(owner: object) -> None:
    """Raise ConfigurationError for a word of `owner`, a dataclass, that is not among those of its field's Literal."""
    for name, allowed in _choices(type(owner)).items():
        value = getattr(owner, name)
        if value not in allowed:
            raise ConfigurationError(f"{name}: expected one of {', '.join(map(repr, allowed))}, found {value!r}")


def _choices(kind: type) -> Mapping[str, tuple[str, ...]]:
    """Return the words that each field of `kind` with a Literal may have."""
    if kind not in _CHOICES:
        hints = get_type_hints(kind).items()
        _CHOICES[kind] = {name: get_args(hint) for name, hint in hints if get_origin(hint) is Literal}
    return _CHOICES[kind]


def check_pattern(name: str, pattern: str) -> None:
    """Raise ConfigurationError for what is no pattern of addresses; `name` is the key that has it."""
    words = pattern.split(".")
    if not pattern or not all(words) or any(len(word) > 1 and set(word) & set("*#") for word in words):
        raise ConfigurationError(f"{name}: expected words between dots, where a word may be * or #, found {pattern!r}")


__all__ = ["TIME_MS_MAX", "UINT_MAX", "check_choice", "check_pattern", "check_range", "meant"]

"""Options from a TOML file. Every error names the key, what was found there, and what was expected.

The tables of the file are the fields of `BrokerOptions`, their keys the fields of its classes::

    [limits]
    memory_bytes_max = 1_073_741_824

    [users.alice]                       # short for security.users.alice; so is [roles.NAME]
    password = "..."

    [[address]]
    match = "orders.#"
    max_delivery_attempts = 3

cattrs structures the tables; it is told to take no value for another's type (a text is no number, a number no truth
value) and to refuse keys that are not there to be set.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

from cattrs import BaseValidationError, Converter, ForbiddenExtraKeysError, transform_error
from cattrs.errors import CattrsError

from acquit.broker.options import POLICY_FIELDS, AddressPolicy, AddressRule, BrokerOptions
from acquit.broker.options.checks import TYPE_NAMES, meant
from acquit.errors import ConfigurationError

T = TypeVar("T")

_BEGINS_WITH_A_FIELD: Final = re.compile(r"[a-z_]+: ")
FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of a file of options or users: some hundred thousand users."""
_MARK: Final = "\ufeff"
_CHOICES: Final = re.compile(r"(.*) not in literal .*?Literal\[(.*)\]", re.DOTALL)


def load_options(path: Path) -> BrokerOptions:
    """The options in a file. Raises ConfigurationError where it cannot be read, is no TOML, or says what cannot be."""
    try:
        text = read_text(path)
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_options(text, str(path))


def read_text(path: Path) -> str:
    """The text of a file, which may be a pipe; one without end is read to a limit. Raises ConfigurationError where it
    cannot be read, is longer, or is no text; FileNotFoundError where it is not there."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ConfigurationError(f"{path}: expected at most {FILE_BYTES_MAX:,} bytes, found more")
        return content.decode()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: expected UTF-8, found byte 0x{error.object[error.start]:02x}") from None


def parse_options(text: str, source: str = "configuration") -> BrokerOptions:
    """The options in a text; `source` names it in errors. Raises ConfigurationError."""
    document = read_toml(text, source)
    for table in ("address", "listen"):
        if isinstance(document.get(table), dict):
            raise ConfigurationError(f"{source}: {table}: expected [[{table}]], found [{table}]")
    for table in ("users", "roles"):
        if table in document:
            security = document.setdefault("security", {})
            if isinstance(security, dict):
                if table in security:  # one would hide the other
                    raise ConfigurationError(f"{source}: expected [{table}] or [security.{table}], found both")
                security[table] = document.pop(table)
    options = structure(document, BrokerOptions, source)
    if "tls" in document and not options.tls.certificate_file:  # a template's variable that is not set, for one
        raise ConfigurationError(
            f"{source}: tls.certificate_file: expected a file where there is [tls], found none; "
            "leave out [tls] for no TLS"
        )
    return options


def read_toml(text: str, source: str) -> dict[str, Any]:
    """The tables of a text; `source` names it in errors. Raises ConfigurationError."""
    if text.startswith(_MARK):  # which editors do not show, and tomllib calls an invalid statement
        raise ConfigurationError(
            f"{source}: expected TOML: found a byte order mark before it; save it as UTF-8 without one"
        )
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigurationError(f"{source}: expected TOML: it is nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits is one that is no TOMLDecodeError
        raise ConfigurationError(f"{source}: expected TOML: {error}") from None


def structure(document: Mapping[str, object], kind: type[T], source: str) -> T:
    """A dataclass from tables; `source` names them in errors. Raises ConfigurationError."""
    try:
        return _CONVERTER.structure(document, kind)
    except BaseValidationError as error:
        found = "; ".join(_fault(line) for line in transform_error(error, "", _explain))
    except ConfigurationError as error:
        found = str(error)
    raise ConfigurationError(f"{source}: {found}")  # not from the error, which shows values: passwords, too


def _explain(error: BaseException, kind: type | None) -> str:
    """Return what is wrong with a value, without saying where it stands."""
    if isinstance(error, ForbiddenExtraKeysError):
        known = POLICY_FIELDS if error.cl is AddressPolicy else get_type_hints(error.cl)
        name = min(error.extra_fields)
        return f"{name}: no such key; {meant(name, known)}"
    if isinstance(error, KeyError):
        return f"{error.args[0]}: expected, but not there"
    if isinstance(error, CattrsError) and (found := _CHOICES.fullmatch(str(error))):
        return f"expected one of {found[2]}, found {found[1]!r}"
    if isinstance(error, TypeError | AttributeError) and not isinstance(error, _WrongType):
        return "expected a table, or with [[...]] a list of tables"
    return str(error)


def _fault(line: str) -> str:
    """``key.key: what is wrong`` from cattrs' ``what is wrong @ .key.key``."""
    text, _, path = line.rpartition(" @ ")
    key = path.lstrip(".")
    if key.endswith(".password"):
        text = text.partition(", found ")[0]  # it may be what somebody took for a password
    if _BEGINS_WITH_A_FIELD.match(text):
        return f"{key}.{text}" if key else text
    return f"{key}: {text}" if key else text


class _WrongType(TypeError):
    """A value of another type than the key has."""

    def __init__(self, expected: str, found: object) -> None:
        super().__init__(f"expected {expected}, found {found!r}")


def _exactly(value: object, kind: type) -> object:
    if type(value) is not kind:
        raise _WrongType(TYPE_NAMES[kind], value)
    return value


def _number(value: object, kind: type) -> float:
    if type(value) not in (int, float):
        raise _WrongType(TYPE_NAMES[float], value)
    return float(value)  # type: ignore[arg-type]  # it is one of the two


def _texts(value: object, kind: type) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _WrongType("a list of texts", value)
    return tuple(str(_exactly(text, str)) for text in value)


def _rule(value: object, kind: type) -> AddressRule:
    """A rule is one flat table: the pattern, and the settings beside it."""
    if not isinstance(value, Mapping):
        raise _WrongType("a table", value)
    if "match" not in value:
        raise ConfigurationError("match: expected, but not there")
    settings = {name: setting for name, setting in value.items() if name != "match"}
    policy = _CONVERTER.structure(settings, AddressPolicy)
    match = value["match"]
    if not isinstance(match, str):
        raise ConfigurationError(f"match: expected {TYPE_NAMES[str]}, found {match!r}")
    return AddressRule(match, {name: getattr(policy, name) for name in settings})


def _make_converter() -> Converter:
    converter = Converter(forbid_extra_keys=True)
    for kind in (int, str, bool):
        converter.register_structure_hook(kind, _exactly)
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook_func(lambda kind: kind == tuple[str, ...], _texts)
    converter.register_structure_hook(AddressRule, _rule)
    return converter


_CONVERTER: Final = _make_converter()

__all__ = ["FILE_BYTES_MAX", "load_options", "parse_options", "read_text", "read_toml", "structure"]

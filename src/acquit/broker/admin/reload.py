"""The reload of the configuration of a running broker: what differs, and what of it applies at once.

The whole configuration is read and checked first (`load`): the file, the users file, the TLS files, and whether the
rules fit together. Nothing is changed where any of it is wrong. What has changed is told key by key, with the old value
and the new one; a password is never told. Of a TLS file it is told that it has changed.

Most keys apply at once; `APPLIES` lists the others by the beginning of their name. A key that needs a restart keeps its
old value until then, and is told again at every reload.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acquit.broker.access.listeners import TLS_FILES, Keys, make_keys
from acquit.broker.access.permissions import build_permissions, naming
from acquit.broker.configuration import load_options
from acquit.broker.nodes.addresses import Policies
from acquit.broker.options import BrokerOptions
from acquit.errors import ConfigurationError

if TYPE_CHECKING:
    from acquit.protocol.types import Value

HIDDEN: Final = "(not shown)"
DEFAULT: Final = "(default)"


class Applies(Enum):
    """The time from which a change counts."""

    NOW = "now"
    CONNECTIONS = "to new connections"
    RESTART = "after a restart"


APPLIES: Final[Mapping[str, Applies]] = {
    "journal.": Applies.RESTART,
    "listen": Applies.RESTART,
    "http": Applies.RESTART,
    "tls.mode": Applies.RESTART,
    "tls.": Applies.CONNECTIONS,
    "connection.credit_max": Applies.NOW,
    "connection.links_max": Applies.NOW,
    "connection.message_entries_max": Applies.NOW,
    "connection.message_sections_max": Applies.NOW,
    "connection.": Applies.CONNECTIONS,
}
"""Times of effect by the beginning of a key; the first that fits counts. Keys that are not here apply at once."""


@dataclass(frozen=True, slots=True)
class Change:
    """A key whose value differs between two configurations."""

    key: str
    old: str
    new: str

    @property
    def applies(self) -> Applies:
        """The time from which the change counts."""
        return next((when for prefix, when in APPLIES.items() if self.key.startswith(prefix)), Applies.NOW)

    def __str__(self) -> str:
        when = "" if self.applies is Applies.NOW else f" ({self.applies.value})"
        return f"{self.key}: {self.old} -> {self.new}{when}"

    def encode(self) -> dict[Value, Value]:
        """Return the change for the answer of the management node."""
        return {"key": self.key, "old": self.old, "new": self.new, "applies": self.applies.value}


def load(
    path: Path | None,
    options: BrokerOptions,
    data: Path,
    adjust: Callable[[BrokerOptions], BrokerOptions] = lambda options: options,
    before: Keys | None = None,
) -> tuple[BrokerOptions, Keys]:
    """The configuration as it stands in its files now, checked as a whole; `options` where no file was given. `adjust`
    puts in what stands elsewhere, as on the command line; `before`: what a running broker goes by, which reads all of
    it again. Slow.

    Raises ConfigurationError, naming the file and the key.
    """
    again = before is not None
    if path is not None:
        if again:
            _refuse_pipe("configuration", path)
        options = adjust(load_options(path))
        with naming(path):
            build_permissions(options.security)
    if again:
        _refuse_pipe("users_file", options.security.users_file)
        for key in TLS_FILES:
            _refuse_pipe(f"tls.{key}", getattr(options.tls, key))
    Policies(options.address)
    return options, make_keys(options, data, before)


def _refuse_pipe(key: str, path: Path | str | None) -> None:
    """Raise ConfigurationError for what cannot be read again: a pipe is empty the second time, or waits for ever."""
    if path and Path(path).exists() and not Path(path).is_file():
        raise ConfigurationError(f"{key}: {path}: expected a file, which can be read again, found something else")


def read_again(
    path: Path | None,
    options: BrokerOptions,
    data: Path,
    adjust: Callable[[BrokerOptions], BrokerOptions],
    before: Keys,
) -> tuple[BrokerOptions, Keys, list[Change]]:
    """Return what `load` does, and how it differs from `options` and from the keys `before`. Slow."""
    new, keys = load(path, options, data, adjust, before)
    return new, keys, differences(options, new, before, keys)


def differences(old: BrokerOptions, new: BrokerOptions, before: Keys, after: Keys) -> list[Change]:
    """Return the differences between two configurations, sorted by key. A TLS file that has changed is one as well."""
    was = _flat(replace(old, security=before.security))
    is_ = _flat(replace(new, security=after.security))
    for key, content in after.tls_files.items():
        name = f"tls.{key}"
        if was[name] == is_[name] and before.tls_files.get(key) != content:
            is_[name] = f"{is_[name]} (other content)"
    return [
        Change(key, _shown(key, was), _shown(key, is_))
        for key in sorted(was.keys() | is_.keys())
        if was.get(key, _ABSENT) != is_.get(key, _ABSENT)
    ]


def effective(old: BrokerOptions, new: BrokerOptions) -> BrokerOptions:
    """The new options without what needs a restart."""
    return replace(new, journal=old.journal, listen=old.listen, http=old.http, tls=replace(new.tls, mode=old.tls.mode))


_ABSENT: Final = object()


def _flat(options: BrokerOptions) -> dict[str, object]:
    """Every value by its key, as a file would name it."""
    flat: dict[str, object] = {}
    for section in fields(options):
        value = getattr(options, section.name)
        if section.name == "address":
            for rule in value:
                flat |= {f"address {rule.match!r}.{name}": setting for name, setting in rule.settings.items()}
        elif is_dataclass(value):
            _flatten(f"{section.name}.", value, flat)
        else:
            flat[section.name] = value
    return flat


def _flatten(prefix: str, value: object, flat: dict[str, object]) -> None:
    for part in fields(value):  # type: ignore[arg-type]  # a dataclass
        inner = getattr(value, part.name)
        if isinstance(inner, Mapping):
            for name, item in inner.items():
                _flatten(f"{part.name}.{name}.", item, flat)
        else:
            flat[prefix + part.name] = inner


def _shown(key: str, flat: Mapping[str, object]) -> str:
    if key not in flat:
        return DEFAULT
    if key.endswith((".password", "decoy_key")):
        return HIDDEN
    value = flat[key]
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


__all__ = ["APPLIES", "Applies", "Change", "differences", "effective", "load", "read_again"]

"""Who may do what, where. Pure.

A role names patterns of addresses for each permission; a user has what its roles have together. Without roles there is
nothing to decide, and everybody may do everything. With them nothing is allowed that no role of the user names: least
privilege. Permissions are asked when a link is attached, a node made or a request answered, not for each message; only
on the anonymous terminus each message names an address of its own, and answers are kept, so that this costs a look into
a dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acquit.broker.options import PERMISSIONS, Security
from acquit.broker.refusal import Refused
from acquit.errors import ConfigurationError
from acquit.protocol._definitions import AmqpCondition

ANONYMOUS_ROLE: Final = "anonymous"
KNOWN_MAX: Final = 1_000
"""Answers that are kept for one user."""


class Rights:
    """What one user may do."""

    __slots__ = ("_known", "_patterns", "_who")

    def __init__(self, who: str, patterns: Mapping[str, tuple[str, ...]] | None) -> None:
        """`who` is for people; `patterns` of addresses by permission, None: everything everywhere."""
        self._who = who
        self._patterns = patterns
        self._known: dict[tuple[str, str], bool] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rights) and self._patterns == other._patterns

    __hash__ = None  # type: ignore[assignment]

    @property
    def unlimited(self) -> bool:
        """There is nothing that it may not."""
        return self._patterns is None

    def may(self, permission: str, address: str) -> bool:
        """Whether it may. Of ``address::queue`` the address counts."""
        if self._patterns is None:
            return True
        key = permission, address
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            node = address.partition("::")[0]
            known = any(covers(pattern, node) for pattern in self._patterns.get(permission, ()))
            self._known[key] = known
        return known

    def everywhere(self, permission: str) -> bool:
        """Whether it may at any address there is or will be."""
        return self._patterns is None or "#" in self._patterns.get(permission, ())

    def refusal(self, permission: str, address: str) -> str | None:
        """Why it may not, for the peer; None if it may."""
        if self.may(permission, address):
            return None
        return f"{self._who} may not {permission} at {address:.200}: no role gives the permission"

    def check(self, permission: str, address: str) -> None:
        """Raise Refused, with amqp:unauthorized-access and the reason, unless it may."""
        if (reason := self.refusal(permission, address)) is not None:
            raise Refused(reason, condition=AmqpCondition.UNAUTHORIZED_ACCESS)


def covers(pattern: str, address: str) -> bool:
    """Does the pattern match the address? Where that is a pattern itself, as a subscription's may be: does it match all
    that the address matches? So ``*`` covers no ``#``, and no word covers a ``*``."""
    wanted, words = pattern.split("."), address.split(".")
    # Two pointers and one point of return, the last ``#``, as in `addresses.matches`.
    at = word = 0
    back, resume = -1, 0
    while word < len(words):
        if at < len(wanted) and wanted[at] == "#":
            back, resume = at, word
            at += 1
        elif at < len(wanted) and words[word] != "#" and wanted[at] in ("*", words[word]):
            at += 1
            word += 1
        elif back >= 0:
            resume += 1
            at, word = back + 1, resume
        else:
            return False
    return all(rest == "#" for rest in wanted[at:])


EVERYTHING: Final = Rights("anybody", None)


class Permissions:
    """The rights of everybody, by one configuration. Immutable: another configuration makes another."""

    __slots__ = ("_rights",)

    def __init__(self, security: Security) -> None:
        """Raises ConfigurationError for a user's role that there is not."""
        roles = security.roles
        self._rights: dict[str | None, Rights] | None = None
        for name, user in security.users.items():
            for role in user.roles:
                if role not in roles:
                    known = ", ".join(sorted(roles)) or "no roles at all"
                    raise ConfigurationError(f"users.{name}.roles: no role {role!r}; there are {known}")
        if roles:
            self._rights = {name: _rights(repr(name), user.roles, security) for name, user in security.users.items()}
            self._rights[None] = _rights("who comes in anonymously", (ANONYMOUS_ROLE,), security)

    def of(self, user: str | None) -> Rights:
        """What a user may do; None: who came in anonymously."""
        if self._rights is None:
            return EVERYTHING
        return self._rights.get(user) or Rights(repr(user), dict.fromkeys(PERMISSIONS, ()))


def build_permissions(security: Security) -> Permissions:
    """What `security` says of users and roles. Raises ConfigurationError for a role that there is not."""
    return Permissions(security)


def _rights(who: str, names: tuple[str, ...], security: Security) -> Rights:
    roles = [security.roles[name] for name in names if name in security.roles]
    patterns = {
        permission: tuple(dict.fromkeys(pattern for role in roles for pattern in getattr(role, permission)))
        for permission in PERMISSIONS
    }
    return Rights(who, patterns)


__all__ = ["ANONYMOUS_ROLE", "EVERYTHING", "Permissions", "Rights", "build_permissions", "covers"]

"""Permissions: who may do what at which addresses. Pure.

A role names patterns of addresses for each permission; a user has what its roles have together. Without roles there is
nothing to decide, and everybody may do everything. With them nothing is allowed that no role of the user names: least
privilege. Permissions are asked when a link is attached, a node made or a request answered, not for each message; only
on the anonymous terminus each message names an address of its own, and answers are kept, so that this costs a look into
a dictionary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from acquit.broker.nodes.addresses import matches
from acquit.broker.options import PERMISSIONS, Security
from acquit.broker.refusal import Refused
from acquit.errors import ConfigurationError
from acquit.protocol.definitions import AmqpCondition

ANONYMOUS_ROLE: Final = "anonymous"
_NOBODY: Final = "who comes in anonymously"
KNOWN_MAX: Final = 1_000
"""Answers that are kept for one user."""


class Rights:
    """The rights of one user."""

    __slots__ = ("_known", "_patterns", "_user_id", "who")

    def __init__(
        self, who: str, patterns: Mapping[str, tuple[str, ...]] | None, *, user_id: bytes | None = None
    ) -> None:
        """`who` is for people; `patterns` of addresses by permission, None: everything everywhere. `user_id`: what
        messages from it may say of their sender (3.2.4), b"": nothing; None: anything."""
        self.who = who
        self._patterns = patterns
        self._user_id = user_id
        self._known: dict[tuple[str, str], bool] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rights) and self._patterns == other._patterns and self._user_id == other._user_id

    __hash__ = None  # type: ignore[assignment]

    @property
    def unlimited(self) -> bool:
        """True if the user may do everything everywhere."""
        return self._patterns is None

    def may(self, permission: str, address: str) -> bool:
        """True if the user has the permission at the address. Of ``address::queue`` the address counts."""
        if self._patterns is None:
            return True
        key = permission, address
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            node = address.partition("::")[0]
            known = any(matches(pattern, node) for pattern in self._patterns.get(permission, ()))
            self._known[key] = known
        return known

    def everywhere(self, permission: str) -> bool:
        """True if the user has the permission at every address there is or will be."""
        return self._patterns is None or "#" in self._patterns.get(permission, ())

    def anywhere(self, permission: str) -> bool:
        """True if there are addresses at which the user has the permission."""
        return self._patterns is None or bool(self._patterns.get(permission))

    @property
    def sees_broker(self) -> bool:
        """True if the user may see the figures of the broker as a whole: who may browse or manage all addresses."""
        return self.everywhere("browse") or self.everywhere("manage")

    def refusal(self, permission: str, address: str) -> str | None:
        """Return the reason why the user may not, for the peer; None if it may."""
        if self.may(permission, address):
            return None
        return f"{self.who} may not {permission} at {address:.200}: no role gives the permission"

    def refusal_of_others(self, owner: str | None, user: str | None, address: str) -> str | None:
        """Return the reason why `user`, whose rights these are, may not use what `owner` subscribed to at the address;
        None if it may. What belongs to nobody in particular (None) is for everybody who may consume or browse there."""
        return None if owner in (None, user) else self.refusal("manage", address)

    def check_user_id(self, user_id: object) -> None:
        """Raise Refused, with amqp:unauthorized-access, for a message that says it is from somebody else (3.2.4)."""
        if self._user_id is not None and user_id != self._user_id:
            raise Refused(
                f"the message's user-id is not that of {self.who}", condition=AmqpCondition.UNAUTHORIZED_ACCESS
            )

    def check(self, permission: str, address: str) -> None:
        """Raise Refused, with amqp:unauthorized-access and the reason, unless it may."""
        if (reason := self.refusal(permission, address)) is not None:
            raise Refused(reason, condition=AmqpCondition.UNAUTHORIZED_ACCESS)


EVERYTHING: Final = Rights("anybody", None)


class Permissions:
    """The rights of everybody, by one configuration. Immutable: another configuration makes another."""

    __slots__ = ("_rights", "_roles", "distinguish")

    def __init__(self, security: Security) -> None:
        """Raises ConfigurationError for a user's role that there is not."""
        roles = security.roles
        self._roles = bool(roles)
        checked = security.verify_user_id and bool(security.users)
        self.distinguish = bool(security.users)
        """True if users are configured. Without any, all peers are treated as one user."""
        self._rights: dict[str | None, Rights] | None = None
        for name, user in security.users.items():
            for role in user.roles:
                if role not in roles:
                    known = ", ".join(sorted(roles)) or "no roles at all"
                    raise ConfigurationError(f"users.{name}.roles: no role {role!r}; there are {known}")
        if roles:
            self._rights = {
                name: _rights(
                    repr(name),
                    user.roles,
                    security,
                    user_id=name.encode() if checked and not user.any_user_id else None,
                )
                for name, user in security.users.items()
            }
            self._rights[None] = _rights(_NOBODY, (ANONYMOUS_ROLE,), security, user_id=b"" if checked else None)
        elif checked:
            self._rights = {
                name: Rights(repr(name), None, user_id=None if user.any_user_id else name.encode())
                for name, user in security.users.items()
            }
            self._rights[None] = Rights(_NOBODY, None, user_id=b"")

    def _of_others(self, user: str | None) -> Rights:
        """Return the rights of a name that is no user: none."""
        return Rights(repr(user), dict.fromkeys(PERMISSIONS, ()) if self._roles else None)

    def of(self, user: str | None) -> Rights:
        """Return the rights of a user; None stands for anonymous peers."""
        if self._rights is None:
            return EVERYTHING
        return self._rights.get(user) or self._of_others(user)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in a ConfigurationError about what it says of users."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def build_permissions(security: Security) -> Permissions:
    """Return the permissions that `security` describes. Raises ConfigurationError for a role that there is not."""
    return Permissions(security)


def _rights(who: str, names: tuple[str, ...], security: Security, *, user_id: bytes | None) -> Rights:
    roles = [security.roles[name] for name in names if name in security.roles]
    patterns = {
        permission: tuple(dict.fromkeys(pattern for role in roles for pattern in getattr(role, permission)))
        for permission in PERMISSIONS
    }
    return Rights(who, patterns, user_id=user_id)


__all__ = ["ANONYMOUS_ROLE", "EVERYTHING", "Permissions", "Rights", "build_permissions", "naming"]

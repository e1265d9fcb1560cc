"""Who may come in: users, and whether a password is theirs.

A user's password is kept as a SCRAM-SHA-256 verifier (RFC 5802, RFC 7677), in the text form that PostgreSQL made
common::

    SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>          salt and keys in base64

It cannot be used to log in, and it serves the mechanism PLAIN as well: the verifier of the password that came is
computed again and compared. That is slow on purpose (thousands of hash rounds), so `Users.verify_plain` belongs on a
worker thread, never on the event loop. An unknown user costs the same time as a wrong password, and gets the same
answer, so that nobody can ask which users there are.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from scramp import ScramException, ScramMechanism  # type: ignore[import-untyped,unused-ignore]

from acquit.errors import ConfigurationError, DecodeError
from acquit.protocol.sasl import parse_plain

_SCHEME: Final = "SCRAM-SHA-256"
_MECHANISM: Final = ScramMechanism(_SCHEME)

ITERATIONS: Final = 4096
"""Hash rounds of a new verifier: the least that RFC 7677 allows, about 2 ms. More costs every login."""

ITERATIONS_MAX: Final = 1_000_000
"""A verifier above this is refused: one login would keep a worker busy for seconds."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """What is kept of a password."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str, *, iterations: int = ITERATIONS, salt: bytes | None = None) -> Self:
        """The verifier of a password, with a random salt unless one is given. Slow on purpose.

        Raises ConfigurationError for a password that SASLprep (RFC 4013) does not allow.
        """
        try:
            salt, stored_key, server_key, iterations = _MECHANISM.make_auth_info(password, iterations, salt)
        except ScramException as exc:
            raise ConfigurationError(f"this password cannot be used: {exc}") from exc
        return cls(iterations, salt, stored_key, server_key)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form. Raises ConfigurationError, without repeating the text, where it is not one."""
        expected = f"expected {_SCHEME}$<iterations>:<salt>$<stored key>:<server key>, salt and keys in base64"
        try:
            scheme, head, keys = text.split("$")
            iterations_text, salt_text = head.split(":")
            stored_text, server_text = keys.split(":")
            iterations = int(iterations_text)
            salt, stored_key, server_key = (
                base64.b64decode(part, validate=True) for part in (salt_text, stored_text, server_text)
            )
        except (ValueError, binascii.Error) as exc:
            raise ConfigurationError(f"not a password verifier: {expected}") from exc
        if scheme != _SCHEME or not salt or len(stored_key) != 32 or len(server_key) != 32:
            raise ConfigurationError(f"not a password verifier: {expected}")
        if not ITERATIONS <= iterations <= ITERATIONS_MAX:
            raise ConfigurationError(
                f"a password verifier takes {ITERATIONS} to {ITERATIONS_MAX} iterations, got {iterations}"
            )
        return cls(iterations, salt, stored_key, server_key)

    def __str__(self) -> str:
        salt, stored, server = (
            base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"{_SCHEME}${self.iterations}:{salt}${stored}:{server}"

    def matches(self, password: str) -> bool:
        """Whether this is the password. Slow on purpose."""
        try:
            candidate = Verifier.of(password, iterations=self.iterations, salt=self.salt)
        except ConfigurationError:
            return False
        return hmac.compare_digest(candidate.stored_key, self.stored_key)


class Users:
    """The users a broker knows, by name. Immutable: a changed configuration makes a new one."""

    __slots__ = ("_decoy", "_verifiers")

    def __init__(self, passwords: Mapping[str, str]) -> None:
        """`passwords`: for each user a verifier in text form, or the password itself.

        Raises ConfigurationError naming the user whose password cannot be used.
        """
        self._verifiers: dict[str, Verifier] = {}
        for name, password in passwords.items():
            if not name or "\0" in name:
                raise ConfigurationError(f"users.{name!r}: a user name has at least one character, and no NUL")
            try:
                known = password.startswith(f"{_SCHEME}$")
                self._verifiers[name] = Verifier.parse(password) if known else Verifier.of(password)
            except ConfigurationError as exc:
                raise ConfigurationError(f"users.{name}.password: {exc}") from exc
        self._decoy = Verifier.of("nobody has this password, for it is never compared equal")

    def __len__(self) -> int:
        return len(self._verifiers)

    def __contains__(self, name: str) -> bool:
        return name in self._verifiers

    def verify_plain(self, response: bytes) -> str | None:
        """The user whose PLAIN response (RFC 4616) this is, or None. Slow: call it on a worker thread.

        A response that is no PLAIN response, an unknown user, a wrong password, and an authorization id other than the
        user's own all get None.
        """
        try:
            credentials = parse_plain(response)
        except DecodeError:
            return None
        verifier = self._verifiers.get(credentials.username)
        matches = (verifier if verifier is not None else self._decoy).matches(credentials.password)
        acts_as_itself = credentials.authorization_id in ("", credentials.username)
        return credentials.username if matches and verifier is not None and acts_as_itself else None


__all__ = ["ITERATIONS", "ITERATIONS_MAX", "Users", "Verifier"]

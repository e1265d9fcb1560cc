"""Users and their passwords.

A user's password is kept as a SCRAM-SHA-256 verifier (RFC 5802, RFC 7677), in the text form that PostgreSQL made
common::

    SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>          salt and keys in base64

It cannot be used to log in, and it serves the mechanism PLAIN as well: the verifier of the password that came is
computed again and compared. That is slow on purpose (thousands of hash rounds), so `Users.verify_plain` belongs on a
worker thread, never on the event loop; for SCRAM-SHA-256 itself the client does that work, and the broker's part is
quick. An unknown user costs the same time as a wrong password and gets the same answer, with SCRAM after the same
rounds and with a salt that stays the same however often it is asked for, so that nobody can find out which users there
are.

What is compared is prepared by SASLprep (RFC 4013) before, which costs some microseconds for each character that comes
of it, and of one there may come eighteen. So it is counted first how many there will be.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Self

from acquit.errors import ConfigurationError, DecodeError
from acquit.protocol.sasl import parse_plain

_SCHEME: Final = "SCRAM-SHA-256"
_SALT_BYTES_MIN: Final = 12
"""Shorter ones scramp does not take."""
_SALT_BYTES: Final = 32
"""Length of the salts that scramp makes: the salt of a user that does not exist must look like any other."""

ITERATIONS: Final = 600_000
"""Hash rounds of a new verifier, as OWASP advises for PBKDF2 with SHA-256: about 150 ms, by the client for each login
by SCRAM, and by the thread of the broker for one by PLAIN."""

ITERATIONS_MIN: Final = 4_096
"""The least that RFC 7677 allows, and what acquit once gave. As many for a password that the configuration says in the
clear: nobody has to guess that from its verifier."""

ITERATIONS_MAX: Final = 1_000_000
"""A verifier above this is refused: one login would keep a worker busy for seconds."""

NAME_CHARS_MAX: Final = 512
"""Characters of a user's name that is prepared: names are, on the event loop, before it is known who there is."""
PASSWORD_CHARS_MAX: Final = 4_096
"""Characters of a prepared password, as many as bytes of a SASL frame."""


@cache
def _mechanism() -> Any:
    # A sixth of the memory of a broker, which without users does not need it.
    from scramp import ScramMechanism  # type: ignore[import-untyped,unused-ignore]

    return ScramMechanism(_SCHEME)


@dataclass(frozen=True, slots=True)
class Verifier:
    """A password as it is stored: salt, iterations and keys, from which it cannot be computed."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of(cls, password: str, *, iterations: int = ITERATIONS, salt: bytes | None = None) -> Self:
        """The verifier of a password, with a random salt unless one is given. Slow on purpose.

        Raises ConfigurationError for a password that SASLprep (RFC 4013) does not allow, or that is too long.
        """
        from scramp import ScramException

        if _grows_beyond(PASSWORD_CHARS_MAX, password):
            raise ConfigurationError(f"this password cannot be used: it has more than {PASSWORD_CHARS_MAX} characters")
        try:
            salt, stored_key, server_key, iterations = _mechanism().make_auth_info(password, iterations, salt)
        except ScramException as exc:
            raise ConfigurationError(f"this password cannot be used: {exc}") from exc
        return cls(iterations, salt, stored_key, server_key)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form. Raises ConfigurationError, without repeating the text, where it is not one."""
        expected = f"expected {_SCHEME}$<iterations>:<salt>$<stored key>:<server key>, salt and keys in base64"
        scheme, iterations, salt, stored_key, server_key = "", 0, b"", b"", b""
        with suppress(ValueError, binascii.Error):  # which show a part of it
            scheme, head, keys = text.split("$")
            iterations_text, salt_text = head.split(":")
            stored_text, server_text = keys.split(":")
            iterations = int(iterations_text)
            salt, stored_key, server_key = (
                base64.b64decode(part, validate=True) for part in (salt_text, stored_text, server_text)
            )
        if scheme != _SCHEME or len(salt) < _SALT_BYTES_MIN or len(stored_key) != 32 or len(server_key) != 32:
            raise ConfigurationError(f"not a password verifier: {expected}")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ConfigurationError(
                f"a password verifier takes {ITERATIONS_MIN} to {ITERATIONS_MAX} iterations, got {iterations}"
            )
        return cls(iterations, salt, stored_key, server_key)

    def __str__(self) -> str:
        salt, stored, server = (
            base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"{_SCHEME}${self.iterations}:{salt}${stored}:{server}"

    def matches(self, password: str) -> bool:
        """True if this is the password. Slow on purpose."""
        try:
            candidate = Verifier.of(password, iterations=self.iterations, salt=self.salt)
        except ConfigurationError:
            return False
        return hmac.compare_digest(candidate.stored_key, self.stored_key)


class ScramLogin:
    """A login by SCRAM-SHA-256, the server's side. Quick: the client does the hashing."""

    __slots__ = ("_looked_up", "_server")

    def __init__(self, users: Users) -> None:
        self._looked_up = looked_up = [("", False)]
        """The name that was asked for last, and whether there is such a user."""

        def look_up(name: str) -> tuple[bytes, bytes, bytes, int]:
            verifier, known = users.verifier(name)
            looked_up.append((name, known))
            return verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations

        self._server = _mechanism().make_server(look_up)

    @property
    def name(self) -> str:
        """The user that the client names."""
        return self._looked_up[-1][0]

    def first(self, message: bytes) -> bytes | None:
        """The answer to the client's first message; None where that is none."""
        from scramp import ScramException

        try:
            text = message.decode()
            if any(_grows_beyond(NAME_CHARS_MAX, part.removeprefix("n=")) for part in text.split(",")):
                return None
            self._server.set_client_first(text)
            return str(self._server.get_server_first()).encode()
        except (ScramException, UnicodeDecodeError):
            return None

    def final(self, message: bytes) -> tuple[str, bytes] | None:
        """The user whose password the client has, and our proof that we know it too; None if it has not."""
        from scramp import ScramException

        try:
            self._server.set_client_final(message.decode())
            proof = str(self._server.get_server_final()).encode()
        except (ScramException, UnicodeDecodeError):
            return None
        user, known = self._looked_up[-1]
        return (user, proof) if known else None


class Users:
    """The users a broker knows, by name. Immutable: a changed configuration makes a new one."""

    __slots__ = ("_decoy_key", "_looks", "_names", "_verifiers")

    def __init__(self, passwords: Mapping[str, str], *, decoy_key: bytes = b"") -> None:
        """`passwords`: for each user a verifier in text form, or the password itself; empty for one who has none, and
        comes in by certificate. `decoy_key`: the secret that salts for unknown users are made from; without it, it
        follows from the verifiers.

        Raises ConfigurationError naming the user whose name or password cannot be used.
        """
        self._verifiers: dict[str, Verifier] = {}
        self._names = frozenset(passwords)
        for name, password in passwords.items():
            if not name or "\0" in name:
                raise ConfigurationError(f"users.{name!r}: a user name has at least one character, and no NUL")
            if _grows_beyond(NAME_CHARS_MAX, name):
                raise ConfigurationError(f"users.{name[:40]!r}...: a user name has at most {NAME_CHARS_MAX} characters")
            if (usual := prepared(name)) != name:
                expected = f"expected {usual!r}" if usual else "it has characters that are not allowed"
                raise ConfigurationError(f"users.{name!r}: no user name by SASLprep (RFC 4013): {expected}")
            if not password:
                continue
            try:
                known = password.startswith(f"{_SCHEME}$")
                self._verifiers[name] = (
                    Verifier.parse(password) if known else Verifier.of(password, iterations=ITERATIONS_MIN)
                )
            except ConfigurationError as exc:
                raise ConfigurationError(f"users.{name}.password: {exc}") from exc
        self._looks = sorted((one.iterations, len(one.salt)) for one in self._verifiers.values())
        """Rounds and length of salt of everybody: nobody looks like one of them."""
        self._decoy_key = decoy_key or b"".join(self._verifiers[name].server_key for name in sorted(self._verifiers))

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    @property
    def have_passwords(self) -> bool:
        """True if there are users with a password."""
        return bool(self._verifiers)

    def verifier(self, name: str) -> tuple[Verifier, bool]:
        """The verifier of a user, and True; for an unknown one something that looks like one to whoever asks, the same
        each time, and False."""
        verifier = self._verifiers.get(name)
        if verifier is not None:
            return verifier, True
        digest = hmac.digest(self._decoy_key, name.encode(), hashlib.sha256)
        iterations, salt_bytes = ITERATIONS, _SALT_BYTES
        if self._looks:
            iterations, salt_bytes = self._looks[int.from_bytes(digest[:4], "big") % len(self._looks)]
        salt = hashlib.shake_256(digest).digest(salt_bytes)
        return Verifier(iterations, salt, bytes(32), bytes(32)), False

    def verify_plain(self, response: bytes) -> str | None:
        """The user whose PLAIN response (RFC 4616) this is, or None. Slow: call it on a worker thread.

        A response that is no PLAIN response, an unknown user, a wrong password, and an authorization id other than the
        user's own all get None.
        """
        try:
            credentials = parse_plain(response)
        except DecodeError:
            return None
        name = prepared(credentials.username)
        verifier, known = self.verifier(name)
        matches = verifier.matches(credentials.password)
        acts_as_itself = credentials.authorization_id in ("", credentials.username)
        return name if matches and known and acts_as_itself else None


def plain_name(response: bytes) -> str:
    """Return the user that a PLAIN response names; "" for a response that cannot be read."""
    try:
        return prepared(parse_plain(response).username)
    except DecodeError:
        return ""


def prepared(name: str) -> str:
    """A user name as SASLprep (RFC 4013) compares it; empty for one that it does not allow, or that is too long."""
    from scramp import ScramException
    from scramp.utils import saslprep  # type: ignore[import-untyped,unused-ignore]

    if _grows_beyond(NAME_CHARS_MAX, name):
        return ""
    try:
        return str(saslprep(name))
    except ScramException:
        return ""


def _grows_beyond(limit: int, text: str) -> bool:
    """True if a text has more than so many characters, or would have, prepared."""
    return len(text) > limit or len(unicodedata.normalize("NFKC", text)) > limit


__all__ = [
    "ITERATIONS",
    "ITERATIONS_MAX",
    "ITERATIONS_MIN",
    "NAME_CHARS_MAX",
    "PASSWORD_CHARS_MAX",
    "ScramLogin",
    "Users",
    "Verifier",
    "plain_name",
    "prepared",
]

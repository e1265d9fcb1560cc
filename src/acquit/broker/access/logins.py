"""The SASL mechanisms, the broker's side: each a small machine, one for each login.

A login takes what the peer says and gives what to do next: `Challenge` it again, let it in (`Proven`), or None: it is
refused, and is not told why. PLAIN hashes the password, which is slow on purpose, so its steps belong on a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from acquit.broker.access.users import ScramLogin, Users, plain_name

ANONYMOUS: Final = "ANONYMOUS"
EXTERNAL: Final = "EXTERNAL"
PLAIN: Final = "PLAIN"
SCRAM: Final = "SCRAM-SHA-256"

FIRST_BYTES_MAX: Final = 512
"""Bytes of SCRAM's first message at most, as a SASL frame of the specification's size holds (5.3.1). Preparing a name
costs microseconds for each character, on the loop."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """A challenge for the peer, which answers with another response."""

    challenge: bytes


@dataclass(frozen=True, slots=True)
class Proven:
    """Success: the peer is this user, or anonymous (None). `additional_data` goes out with the outcome (5.3.3.5)."""

    user: str | None
    additional_data: bytes | None = None


class Login(Protocol):
    """An attempt of a peer to log in."""

    name: str
    """The user that the peer claims to be, once it has said so; for the log, and for what is kept for known users
    alone."""

    slow: ClassVar[bool]
    """True if `step` belongs on a thread."""

    def decides(self, response: bytes) -> str | None:
        """Return whose password the next step tries, with this response; None where it tries none."""
        ...

    def step(self, response: bytes) -> Challenge | Proven | None:
        """The peer said this; what now?"""
        ...


class AnonymousLogin:
    """An anonymous login (RFC 4505). The peer's text about itself is ignored."""

    name = ""

    slow: ClassVar[bool] = False

    def decides(self, response: bytes) -> str | None:
        """Nobody's: there is nothing to guess."""
        return None

    def step(self, response: bytes) -> Challenge | Proven | None:
        """Let it in."""
        return Proven(None)


class ExternalLogin:
    """A login as the user whom the TLS certificate names (RFC 4422, appendix A)."""

    slow: ClassVar[bool] = False

    def __init__(self, user: str | None) -> None:
        self._user = user
        self.name = user or ""

    def decides(self, response: bytes) -> str | None:
        """Nobody's: there is nothing to guess."""
        return None

    def step(self, response: bytes) -> Challenge | Proven | None:
        """Let it in, as itself."""
        acts_as_itself = self._user is not None and response in (b"", self._user.encode())
        return Proven(self._user) if acts_as_itself else None


class PlainLogin:
    """Name and password (RFC 4616)."""

    slow: ClassVar[bool] = True

    def __init__(self, users: Users) -> None:
        self._users = users
        self.name = ""

    def decides(self, response: bytes) -> str | None:
        """The name's, as soon as there is one."""
        return plain_name(response) if response else None

    def step(self, response: bytes) -> Challenge | Proven | None:
        """Verify the password."""
        if not response:
            return Challenge(b"")  # RFC 4422: some send it only when asked
        self.name = plain_name(response)
        user = self._users.verify_plain(response)
        return None if user is None else Proven(user)


class ScramSteps:
    """SCRAM-SHA-256 (RFC 5802, RFC 7677): the password never crosses the wire."""

    slow: ClassVar[bool] = False

    def __init__(self, users: Users) -> None:
        self._login = ScramLogin(users)
        self._began = False
        self.name = ""

    def decides(self, response: bytes) -> str | None:
        """The name's of the first message; the second one is the proof."""
        return self.name if self._began else None

    def step(self, response: bytes) -> Challenge | Proven | None:
        """The client's first message, then its final one."""
        if not response and not self._began:
            return Challenge(b"")
        if not self._began:
            self._began = True
            if len(response) > FIRST_BYTES_MAX:
                return None
            first = self._login.first(response)
            self.name = self._login.name
            return None if first is None else Challenge(first)
        found = self._login.final(response)
        return None if found is None else Proven(*found)


LOGINS: Final[Mapping[str, Callable[[Users, str | None], Login]]] = {
    EXTERNAL: lambda users, certified: ExternalLogin(certified),
    SCRAM: lambda users, certified: ScramSteps(users),
    PLAIN: lambda users, certified: PlainLogin(users),
    ANONYMOUS: lambda users, certified: AnonymousLogin(),
}
"""Makers of logins by mechanism, the strongest first. They are given the users, and the user that the peer's
certificate names."""

__all__ = ["ANONYMOUS", "EXTERNAL", "LOGINS", "PLAIN", "SCRAM", "Challenge", "Login", "Proven"]

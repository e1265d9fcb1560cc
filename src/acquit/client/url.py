"""Where to connect, and as whom, from a URL: ``amqp://user:password@host:port`` or ``amqps://...`` for TLS."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote, urlsplit

from acquit.errors import ConfigurationError
from acquit.protocol._definitions import PORT, SECURE_PORT

PORTS: Final = {"amqp": PORT, "amqps": SECURE_PORT}

EXPECTED = "expected amqp://[user[:password]@]host[:port], or amqps:// for TLS"


@dataclass(frozen=True, slots=True)
class Target:
    """One place to connect to. The password is kept out of its repr."""

    host: str
    port: int
    tls: bool
    username: str | None
    password: str | None = field(repr=False)

    @property
    def where(self) -> str:
        """For messages to people: no user, no password."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def authenticated(self, username: str | None, password: str | None) -> Target:
        """With user and password given beside the URL, which win. Raises ConfigurationError for half of them."""
        if username is None and password is None:
            return self
        if username is None and self.username is None:
            raise ConfigurationError("a password is given without a user")
        return replace(
            self,
            username=username if username is not None else self.username,
            password=password if password is not None else self.password,
        )


def parse_url(url: str) -> Target:
    """Read a URL; user and password are percent-decoded. Raises ConfigurationError, never repeating the password."""
    if not isinstance(url, str):
        raise ConfigurationError(f"a URL is a string, got {type(url).__name__}; {EXPECTED}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise ConfigurationError(f"the URL cannot be read: {exc}; {EXPECTED}") from None
    if parts.scheme not in PORTS or not url[len(parts.scheme) :].startswith("://"):
        raise ConfigurationError(f"the URL does not begin with amqp:// or amqps://; {EXPECTED}")
    if not host:
        raise ConfigurationError(f"the URL names no host; {EXPECTED}")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigurationError(
            f"the URL goes on behind the port; {EXPECTED}. Addresses are given to sender() and receiver()"
        )
    if port == 0:
        raise ConfigurationError(f"port 0 is nobody's; {EXPECTED}")
    if parts.password is not None and not parts.username:
        raise ConfigurationError(f"the URL has a password without a user; {EXPECTED}")
    return Target(
        host=host,
        port=port if port is not None else PORTS[parts.scheme],
        tls=parts.scheme == "amqps",
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password is not None else None,
    )

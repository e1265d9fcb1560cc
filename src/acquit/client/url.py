"""Places to connect to, and as whom, from a URL: ``amqp://user:password@host:port`` or ``amqps://...`` for TLS.

Several hosts are a list of URLs, or one text as JMS users write it (`Qpid JMS, "Failover Configuration options"`)::

    failover:(amqp://one:5672,amqps://two:5671)?failover.maxReconnectAttempts=20

whose options are turned into those of `Reconnect`. There too a failover URL means that the first connection is tried
for as long as a later one would be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from acquit.client.reconnecting import Reconnect
from acquit.errors import ConfigurationError
from acquit.protocol.definitions import PORT, SECURE_PORT

PORTS: Final = {"amqp": PORT, "amqps": SECURE_PORT}

EXPECTED = "expected amqp://[user[:password]@]host[:port], or amqps:// for TLS"
ENCODED = "In a user or password, / ? # [ ] and @ are written %2F %3F %23 %5B %5D and %40"


@dataclass(frozen=True, slots=True)
class ConnectTarget:
    """A place to connect to. The password is kept out of its repr."""

    host: str
    port: int
    tls: bool
    username: str | None
    password: str | None = field(repr=False)

    @property
    def where(self) -> str:
        """Host and port, for messages to people: no user, no password."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def authenticated(self, username: str | None, password: str | None) -> ConnectTarget:
        """Return it with this user and password, which win over its own. Raises ConfigurationError for a password
        without a user, here and in the URL."""
        if username is None and password is None:
            return self
        if username is None and self.username is None:
            raise ConfigurationError("a password is given without a user")
        return replace(
            self,
            username=username if username is not None else self.username,
            password=password if password is not None else self.password,
        )


Urls: TypeAlias = str | Sequence[str]
"""URLs to connect to: a single URL, several, or a failover list in one text."""

FAILOVER: Final = "failover:"


class Places(NamedTuple):
    """The places to connect to: the targets in their order, and how to go from one to the next."""

    targets: tuple[ConnectTarget, ...]
    reconnect: Reconnect | None

    def authenticated(self, username: str | None, password: str | None) -> Places:
        """Return them with this user and password, which win over the URLs' at every host. Raises as
        `Target.authenticated`."""
        return self._replace(targets=tuple(target.authenticated(username, password) for target in self.targets))


def parse_urls(urls: Urls, reconnect: Reconnect | None) -> Places:
    """Read one URL, a list of them, or a ``failover:(...)`` text, whose options replace those of `reconnect`.

    Raises ConfigurationError, saying which part cannot be read, and never repeating a password.
    """
    if not isinstance(urls, str):
        given: object = urls
        if not isinstance(given, Sequence) or isinstance(given, bytes | bytearray):
            raise ConfigurationError(f"url must be a text or a list of them, got {type(given).__name__}; {EXPECTED}")
        if not urls:
            raise ConfigurationError("the list of URLs is empty")
        return Places(tuple(parse_url(url) for url in urls), reconnect)
    if not urls.startswith(FAILOVER):
        return Places((parse_url(urls),), reconnect)
    hosts, query = split_failover(urls)
    targets = tuple(parse_url(host) for host in hosts)
    return Places(targets, _failover_options(query, reconnect if reconnect is not None else Reconnect()))


def split_failover(urls: str) -> tuple[list[str], str]:
    """The URLs of a ``failover:`` text, and the options behind them. The parentheses may be left out where there are no
    options. Raises ConfigurationError."""
    listed = urls.removeprefix(FAILOVER).removeprefix("//")
    body, closed, rest = listed.rpartition(")") if ")" in listed else (listed, "", "")
    if body.startswith("(") != bool(closed):
        raise ConfigurationError("failover: one parenthesis is missing; expected failover:(amqp://one,amqp://two)")
    body = body.removeprefix("(")
    if rest and not rest.startswith("?"):
        raise ConfigurationError("failover: what follows the list of hosts must begin with ?")
    hosts = [part.strip() for part in body.split(",")]
    if not all(hosts):
        raise ConfigurationError("failover: names no host, or an empty one; expected failover:(amqp://one,amqp://two)")
    return hosts, rest.removeprefix("?")


def _whole(text: str) -> int:
    return max(0, int(text))


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


FAILOVER_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "failover.initialReconnectDelay": ("initial", _whole),
    "failover.reconnectDelay": ("delay_ms", _whole),
    "failover.maxReconnectDelay": ("delay_max_ms", _whole),
    "failover.useReconnectBackOff": ("grows", _flag),
    "failover.reconnectBackOffMultiplier": ("multiplier", float),
    "failover.maxReconnectAttempts": ("rounds_max", int),
    "failover.startupMaxReconnectAttempts": ("first_rounds", int),
    "failover.warnAfterReconnectAttempts": ("warn", _whole),
    "failover.randomize": ("shuffle", _flag),
}
"""The options of Qpid JMS, and what they are here. `initial` and `warn` are read and mean nothing: the delay before
the first round is `delay_ms`, and an outage is one line of the log however long it is."""


def _failover_options(query: str, reconnect: Reconnect) -> Reconnect | None:
    found: dict[str, object] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in FAILOVER_OPTIONS:
            raise ConfigurationError(
                f"failover: no option {name!r}; expected one of {', '.join(sorted(FAILOVER_OPTIONS))}"
            )
        field_name, read = FAILOVER_OPTIONS[name]
        try:
            found[field_name] = read(text)
        except (KeyError, ValueError):
            raise ConfigurationError(f"failover: {name} cannot be {text!r}") from None
    rounds_max = found.get("rounds_max", -1)
    first = found.get("first_rounds", -1)
    assert isinstance(rounds_max, int)
    assert isinstance(first, int)
    if rounds_max == 0:
        return None
    fields = {name: found[name] for name in ("delay_ms", "delay_max_ms", "multiplier", "shuffle") if name in found}
    if found.get("grows") is False:
        fields["multiplier"] = 1
    return replace(
        reconnect,
        **fields,  # type: ignore[arg-type]  # each read by its own reader
        rounds_max=max(0, rounds_max),
        first_rounds=max(0, first if first >= 0 else rounds_max),
    )


def parse_url(url: str) -> ConnectTarget:
    """Read a URL; user and password are percent-decoded. Raises ConfigurationError, never repeating the password."""
    if not isinstance(url, str):
        raise ConfigurationError(f"a URL is a string, got {type(url).__name__}; {EXPECTED}")
    parts = host = port = None
    with suppress(ValueError):  # it repeats what should be a port, and may be a password up to its first /
        split = urlsplit(url)
        host, port, parts = split.hostname, split.port, split
    if parts is None:
        raise ConfigurationError(
            f"the URL cannot be read, or its port is no number from 1 to 65535; {EXPECTED}. {ENCODED}"
        )
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
    return ConnectTarget(
        host=host,
        port=port if port is not None else PORTS[parts.scheme],
        tls=parts.scheme == "amqps",
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password is not None else None,
    )

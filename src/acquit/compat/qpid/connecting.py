"""The options of a connection, and what they are to our client.

Names and defaults are the API's. What is new: `container_id`, which makes durable subscriptions this container's own,
and the time-outs and limits of `ConnectOptions`, which are as our client has them. Two defaults differ, because the old
ones are unsafe or useless: a broker's certificate is checked also without an `ssl_trustfile` (by the system's
authorities), and there is a heartbeat without the option.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from acquit.client.blocking import Connection, connect
from acquit.client.options import MECHANISMS, ConnectOptions
from acquit.client.reconnecting import LEAST_S, ConnectionEvent, Reconnect
from acquit.compat.qpid.messaging.constants import AMQP_PORT, AMQPS_PORT
from acquit.compat.qpid.messaging.exceptions import ConnectError, ConnectionError, VersionError
from acquit.compat.qpid.util import URL
from acquit.errors import AuthenticationFailed, ConfigurationError, ConnectionFailed

OPTIONS: Final = (
    "host port transport heartbeat username password sasl_mechanisms sasl_service sasl_min_ssf sasl_max_ssf reconnect"
    " reconnect_timeout reconnect_interval reconnect_interval_min reconnect_interval_max reconnect_limit reconnect_urls"
    " reconnect_log address_ttl tcp_nodelay ssl_keyfile ssl_certfile ssl_trustfile ssl_skip_hostname_check"
    " client_properties protocol container_id"
).split()

TRANSPORTS: Final = {"tcp": False, "ssl": True, "tcp+tls": True}
PROTOCOLS: Final = (None, "amqp1.0")
_NEVER_MS: Final = 0x7FFF_FFFF
"""Waits of this API have a limit only where the caller gives one."""
_CONNECT_S: Final = 10.0
"""Seconds that one attempt to connect may take, where others may follow or nobody says."""
_HEARTBEAT_S: Final = 30.0
_DEFAULTS: Final[dict[str, object]] = {
    "reconnect": False,
    "reconnect_urls": (),
    "reconnect_log": True,
    "address_ttl": 60,
    "tcp_nodelay": False,
    "ssl_skip_hostname_check": False,
    "sasl_service": "qpidd",
}


@dataclass(slots=True)
class Settings:
    """All it takes to connect."""

    where: list[str]
    """URLs without user and password."""
    username: str | None
    password: str | None = field(repr=False)
    container_id: str | None
    tls: ssl.SSLContext | None
    options: ConnectOptions

    def connect(
        self, on_event: Callable[[ConnectionEvent], object], timeout: float | None, pause: Callable[[float], bool]
    ) -> Connection:
        """Connect; with reconnection, again and again until `timeout` (seconds), or its limit. `pause` waits for so
        many seconds in between, and returns True to give up. Raises what our client raises."""
        again = self.options.reconnect
        ends_at = None if timeout is None else time.monotonic() + timeout
        delay_s, rounds = 0.0, 0
        while True:
            try:
                return connect(
                    self.where,
                    container_id=self.container_id,
                    username=self.username,
                    password=self.password,
                    ssl_context=self.tls,
                    options=self.options,
                    on_event=on_event,
                )
            except ConnectionFailed as exc:
                rounds += 1
                if again is None or isinstance(exc, AuthenticationFailed) or rounds == again.rounds_max:
                    raise
                delay_s = min(max(2 * delay_s, again.delay_ms / 1000, LEAST_S), again.delay_max_ms / 1000)
                if ends_at is not None and time.monotonic() + delay_s >= ends_at:
                    raise
                if pause(delay_s):
                    raise


def read_options(url: object, given: Mapping[str, object]) -> dict[str, object]:
    """The options of a connection by name, all of them, completed by what `url` says. Raises ConnectionError for one
    that is not known, VersionError for another protocol than AMQP 1.0, ValueError for a URL that is none."""
    unknown = [name for name in given if name not in OPTIONS]
    if unknown:
        raise ConnectionError(text=f"no connection option {unknown[0]!r}; expected one of {', '.join(OPTIONS)}")
    found: dict[str, object] = {name: given.get(name, _DEFAULTS.get(name)) for name in OPTIONS}
    found["reconnect_urls"] = _urls(found["reconnect_urls"])
    place = URL(url if isinstance(url, str | URL) else str(found["host"] or "localhost"))
    found["host"] = place.host
    if found["transport"] is None:
        found["transport"] = "ssl" if place.scheme == URL.AMQPS else "tcp"
    if found["transport"] not in tuple(TRANSPORTS):
        raise ConnectionError(text=f"transport must be one of {', '.join(TRANSPORTS)}, got {found['transport']!r}")
    found["port"] = place.port or found["port"] or (AMQPS_PORT if TRANSPORTS[str(found["transport"])] else AMQP_PORT)
    found["username"] = place.user or found["username"]
    found["password"] = place.password or found["password"]
    for bound, default in (("reconnect_interval_min", 1), ("reconnect_interval_max", 120)):
        if found[bound] is None:
            found[bound] = default if found["reconnect_interval"] is None else found["reconnect_interval"]
    if found["protocol"] not in PROTOCOLS:
        raise VersionError(text=f"protocol {found['protocol']!r}: only AMQP 1.0 is spoken here")
    return found


def _urls(given: object) -> list[str]:
    return [given] if isinstance(given, str) else [str(url) for url in given] if isinstance(given, Sequence) else []


def settings(found: Mapping[str, object], timeout: float | None) -> Settings:
    """Return the settings of our client for `found` (as `read_options` gives it). `timeout` is that of `open`, in
    seconds: each attempt to connect is limited to it, also later ones, and to ten seconds where others may follow.
    Raises ConnectError, ConnectionError."""
    tls = TRANSPORTS[str(found["transport"])]
    if found["sasl_min_ssf"] and not tls:
        raise ConnectError(text=f"sasl_min_ssf={found['sasl_min_ssf']}: only TLS (transport='ssl') encrypts here")
    places = [f"{found['host']}" if ":" not in str(found["host"]) else f"[{found['host']}]"]
    places[0] += f":{found['port']}"
    default_port = AMQPS_PORT if tls else AMQP_PORT
    for other in _urls(found["reconnect_urls"]) if found["reconnect"] else ():
        url = URL(other)
        places.append(f"{f'[{url.host}]' if ':' in url.host else url.host}:{url.port or default_port}")
    if timeout is None or (found["reconnect"] and timeout > _CONNECT_S):
        timeout = _CONNECT_S  # a host that does not answer must not keep us from the next one
    try:
        options = ConnectOptions(
            connect_timeout_ms=_ms("timeout", timeout),
            send_timeout_ms=_NEVER_MS,
            sasl_mechanisms=_mechanisms(found["sasl_mechanisms"]),
            properties=_properties(found["client_properties"]),
            reconnect=_reconnect(found),
            idle_timeout_ms=_ms("heartbeat", found["heartbeat"] or _HEARTBEAT_S),
        )
    except ConfigurationError as exc:
        raise ConnectionError(text=str(exc)) from exc
    return Settings(
        where=[f"{'amqps' if tls else 'amqp'}://{place}" for place in places],
        username=_text(found["username"]),
        password=_text(found["password"]),
        container_id=_text(found["container_id"]),
        tls=_ssl_context(found) if tls else None,
        options=options,
    )


def _reconnect(found: Mapping[str, object]) -> Reconnect | None:
    """`first_rounds` is one: how long the first connection is tried is limited by the time-out of `open`."""
    if not found["reconnect"]:
        return None
    return Reconnect(
        delay_ms=_ms("reconnect_interval_min", found["reconnect_interval_min"]),
        delay_max_ms=max(1, _ms("reconnect_interval_max", found["reconnect_interval_max"])),
        outage_max_ms=_ms("reconnect_timeout", found["reconnect_timeout"] or 0),
        rounds_max=_count(found["reconnect_limit"]),
    )


def _mechanisms(given: object) -> tuple[str, ...]:
    """Return the mechanisms of a list that are known here, the strongest first. Raises ConnectError where none is."""
    if not given:
        return ()
    wanted = str(given).upper().replace(",", " ").split()
    known = tuple(name for name in MECHANISMS if name in wanted)
    if not known:
        raise ConnectError(text=f"sasl_mechanisms={given!r}: known here are {', '.join(MECHANISMS)}")
    return known


def _ssl_context(found: Mapping[str, object]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=_text(found["ssl_trustfile"]))
        if found["ssl_certfile"]:
            context.load_cert_chain(str(found["ssl_certfile"]), _text(found["ssl_keyfile"]))
    except OSError as exc:
        files = ", ".join(f"{name}={found[name]!r}" for name in ("ssl_trustfile", "ssl_certfile", "ssl_keyfile"))
        raise ConnectError(text=f"{files}: {exc}") from exc
    if found["ssl_skip_hostname_check"]:
        context.check_hostname = False
    return context


def _properties(given: object) -> dict[str, object] | None:
    return {str(name): value for name, value in given.items()} if isinstance(given, Mapping) and given else None


def _ms(name: str, seconds: object) -> int:
    if not isinstance(seconds, int | float) or (isinstance(seconds, float) and math.isnan(seconds)):
        raise ConfigurationError(f"{name} must be a number of seconds, got {seconds!r}")
    return round(min(max(seconds, 0), _NEVER_MS / 1000) * 1000)


def _count(given: object) -> int:
    return given if isinstance(given, int) and given > 0 else 0


def _text(given: object) -> str | None:
    return None if given is None else str(given)


__all__ = ["OPTIONS", "Settings", "read_options", "settings"]

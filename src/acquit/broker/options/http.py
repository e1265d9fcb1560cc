"""Options of the HTTP interface."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from acquit.broker.options.checks import check_fields, check_host

_LOCAL_NAMES: Final = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Http:
    """The HTTP interface of a broker. It is there where there is this table, even an empty one, and off otherwise."""

    host: str = "127.0.0.1"
    """A name or an address of this machine. One that others can reach needs a certificate in ``[tls]``, unless
    security.plain is "always": passwords come with each request."""

    port: int = 8161
    """0: a free one."""

    tls: bool = True
    """True for TLS, https://, where ``[tls]`` has a certificate. A certificate of the client names nobody here."""

    host_names: tuple[str, ...] = ()
    """Names by which programs on this machine may call it, besides localhost, addresses of loopback and `host`: what
    a proxy in front of it sends on as Host. A page of somebody else that got its name to stand for 127.0.0.1 is
    refused."""

    connections_max: int = 128
    """Connections at once, those without a request yet included. For one more the one that has been idle longest is
    closed, or where all are at work, the new one."""

    requests_max: int = 16
    """Requests that are looked at by the broker at once; one more is answered with 503."""

    body_bytes_max: int = 1024 * 1024
    """Bytes of the body of a request; a longer one is answered with 413."""

    request_timeout_ms: int = 10_000
    """Milliseconds that a request may take to arrive, and that the broker may take to begin with it, and, but for what
    changes something, to answer; 503 then."""

    metrics_queues_max: int = 200
    """Queues with series of their own in ``/metrics``: those with the most messages, and then the most that entered.
    The others are one more, ``queue="_other"``, so that thousands of queues do not become as many series."""

    def __post_init__(self) -> None:
        check_fields(
            self,
            {
                "port": (0, 65_535),
                "connections_max": (2, 65_536),
                "requests_max": (1, 65_536),
                "body_bytes_max": (1024, 1 << 30),
                "request_timeout_ms": (100, 3_600_000),
                "metrics_queues_max": (0, 100_000),
            },
        )
        check_host("host", self.host)

    @property
    def local(self) -> bool:
        """True if nobody but programs on this machine can reach it."""
        if self.host in _LOCAL_NAMES:
            return True
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return False


__all__ = ["Http"]

"""Who comes in: each new socket, before and while its peer says who it is.

Which SASL mechanisms a peer is offered depends on where it comes from and whether TLS protects it, and both are known
only when it is connected. So a `Door` takes the socket first, looks, and then puts the pump with the right engine in
its place. What a peer can do before it is known is bounded: by number, by time (the engine's handshake timeout) and by
bytes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import Callable

from acquit.broker.logins import ANONYMOUS, EXTERNAL, PLAIN, SCRAM
from acquit.broker.options import Security, Tls, Where
from acquit.errors import ConfigurationError


class Door(asyncio.Protocol):
    """The first protocol of a socket. `enter` gives the one that follows, or None to turn the peer away."""

    def __init__(self, enter: Callable[[asyncio.Transport], asyncio.Protocol | None]) -> None:
        self._enter = enter

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Decide who goes on."""
        assert isinstance(transport, asyncio.Transport)
        inside = self._enter(transport)
        if inside is None:
            transport.abort()
        else:
            transport.set_protocol(inside)
            inside.connection_made(transport)


def make_tls_context(tls: Tls) -> ssl.SSLContext | None:
    """What TLS options ask for; None where they ask for none. Raises ConfigurationError for files that do not fit."""
    if not tls.certificate_file:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.certificate_file, tls.key_file)
    except ssl.SSLError as exc:
        raise ConfigurationError(f"tls: expected a certificate and its key in PEM, found {exc.reason or exc}") from exc
    except OSError as exc:
        raise ConfigurationError(
            f"tls: {exc.filename or tls.certificate_file}: cannot be read: {exc.strerror}"
        ) from exc
    return context


def is_loopback(address: object) -> bool:
    """Is this socket address on this machine? A path is."""
    match address:
        case (str(host), *_):
            try:
                return ipaddress.ip_address(host.partition("%")[0]).is_loopback
            except ValueError:
                return False
        case _:
            return True


def mechanisms(
    security: Security, *, loopback: bool, encrypted: bool, passwords: bool, certified: bool = False
) -> tuple[str, ...]:
    """What a peer is offered, the strongest first; () for one that cannot come in.

    `passwords`: there are users who have one; `certified`: its TLS certificate names a user.
    """

    def allowed(where: Where) -> bool:
        return where == "always" or (where == "loopback" and loopback)

    offered = []
    if certified:
        offered.append(EXTERNAL)
    if passwords and allowed(security.scram):
        offered.append(SCRAM)
    if passwords and (encrypted or allowed(security.plain)):
        offered.append(PLAIN)
    if allowed(security.anonymous):
        offered.append(ANONYMOUS)
    return tuple(offered)


__all__ = ["Door", "is_loopback", "make_tls_context", "mechanisms"]

"""Connecting and listening: where sockets come from. What happens on them is in `pump`."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable

from acquit.errors import ConfigurationError, ConnectionFailed, ConnectTimeout
from acquit.transport.pump import Pump


async def connect(
    pump: Pump,
    host: str,
    port: int,
    *,
    ssl_context: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    timeout_s: float = 10.0,
) -> None:
    """Connect `pump` to a peer, over TLS when there is an `ssl_context` (`server_hostname`: the name its certificate
    must bear, by default `host`). Returns when the socket is connected; AMQP begins then.

    Raises ConnectTimeout after `timeout_s`, ConnectionFailed (with the reason, the cause chained) where nobody answers
    or TLS cannot be agreed.
    """
    loop = asyncio.get_running_loop()
    where = f"{host}:{port}"
    if ssl_context is not None and server_hostname is None:
        server_hostname = host
    try:
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(
                lambda: pump,
                host,
                port,
                ssl=ssl_context,
                server_hostname=server_hostname,
            )
    except TimeoutError as exc:
        raise ConnectTimeout(f"no connection to {where} within {timeout_s:g} s") from exc
    except ssl.SSLCertVerificationError as exc:
        raise ConnectionFailed(f"the certificate of {where} is not trusted: {exc.verify_message}") from exc
    except ssl.SSLError as exc:
        raise ConnectionFailed(f"no TLS with {where}: {exc.reason or exc}") from exc
    except socket.gaierror as exc:
        raise ConnectionFailed(f"{host!r} is not a known host: {exc.strerror}") from exc
    except OSError as exc:
        raise ConnectionFailed(f"cannot connect to {where}: {_reason(exc)}") from exc


async def listen(
    accept: Callable[[], asyncio.Protocol],
    host: str,
    port: int,
    *,
    ssl_context: ssl.SSLContext | None = None,
    tls_handshake_timeout_s: float = 10.0,
    backlog: int = 1_024,
) -> asyncio.Server:
    """Listen; `accept` makes a pump, or what becomes one, for each connection. Port 0 takes a free one:
    see `Server.sockets`.

    Close the server to stop accepting; the connections that exist are their owner's to close. Raises
    ConfigurationError where the address cannot be listened on.
    """
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(
            accept,
            host,
            port,
            ssl=ssl_context,
            ssl_handshake_timeout=tls_handshake_timeout_s if ssl_context is not None else None,
            backlog=backlog,
        )
    except OSError as exc:
        raise ConfigurationError(f"cannot listen on {host}:{port}: {_reason(exc)}") from exc


def _reason(exc: OSError) -> str:
    # asyncio puts the address where the reason should be, and gives several addresses' reasons without a number.
    return os.strerror(exc.errno) if exc.errno else str(exc)

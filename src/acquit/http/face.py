"""The thread of the HTTP interface: uvicorn with a loop of its own, beside the broker's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import uvicorn

from acquit.errors import ConfigurationError
from acquit.http.app import make_app
from acquit.http.conversations import Conversation, Crowd
from acquit.transport.pump import endpoint_name
from acquit.transport.sockets import Acceptor, bind

if TYPE_CHECKING:
    import socket
    import ssl

    from acquit.broker.options.http import Http
    from acquit.broker.server import Server

KEEP_ALIVE_S: Final = 65
"""Seconds that a connection may be idle between two requests: longer than what proxies and Prometheus wait."""
HEAD_BYTES_MAX: Final = 16 * 1024
STOP_TIMEOUT_S: Final = 2
_TLS_TIMEOUT_S: Final = 10.0


class Face:
    """The HTTP interface of one broker. `start` and `stop` belong to the broker's loop."""

    def __init__(self, server: Server, options: Http) -> None:
        self._server = server
        self._options = options
        self._encrypted = options.tls and server.keys.tls is not None
        self._context: ssl.SSLContext | None = server.keys.tls if self._encrypted else None
        self._port = 0
        self._uvicorn: _Uvicorn | None = None
        self._thread = threading.Thread(target=self._run, name="acquit-http", daemon=True)
        self._broker_loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[int] = self._broker_loop.create_future()
        self._ended: asyncio.Future[None] = self._broker_loop.create_future()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._port

    @property
    def url(self) -> str:
        """The URL of it: ``http://host:port``, or ``https://``."""
        scheme = "https" if self._encrypted else "http"
        return f"{scheme}://{endpoint_name((self._options.host, self._port))}"

    async def start(self) -> None:
        """Listen. Raises ConfigurationError where it cannot."""
        self._thread.start()
        self._port = await self._ready

    async def stop(self) -> None:
        """Listen no more, answer what is being answered, for two seconds, and end the thread. Twice is once."""
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True
        await self._ended
        self._thread.join()

    def _run(self) -> None:
        """Run uvicorn, on the thread."""
        error: Exception | None = None
        try:
            asyncio.run(self._serve())
        except Exception as exc:  # noqa: BLE001 - the loop of the broker raises it
            error = exc
        self._broker_loop.call_soon_threadsafe(self._end, error)

    def _end(self, error: Exception | None) -> None:
        if not self._ready.done():
            self._ready.set_exception(error or ConfigurationError("http: it did not start"))
        if not self._ended.done():
            self._ended.set_result(None)

    async def _serve(self) -> None:
        options = self._options
        sockets = await bind(options.host, options.port)
        config = uvicorn.Config(
            make_app(self._server, options),
            http=Conversation,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_TIMEOUT_S,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        crowd = Crowd(self._server.http_connections_max)
        timeout_s = options.request_timeout_ms / 1000
        self._uvicorn = server = _Uvicorn(config, sockets, self._tls, self._tls_failed, crowd, timeout_s)
        self._broker_loop.call_soon_threadsafe(self._ready.set_result, sockets[0].getsockname()[1])
        await server.serve()

    def _tls(self) -> ssl.SSLContext | None:
        """Return the TLS context for another connection: what a reload has brought counts from then on. Where it has
        taken the certificate away, the last one stays, for nothing is ever said in the clear that was not before."""
        if self._encrypted:
            self._context = self._server.keys.tls or self._context
        return self._context

    def _tls_failed(self, peer: str, why: str) -> None:
        """Say why there is no TLS with a peer: in the broker's log, which is its loop's."""
        warn = partial(self._server.notices.warn, "no TLS with a peer of the HTTP interface", peer=peer, reason=why)
        self._broker_loop.call_soon_threadsafe(warn)


_Tls = Callable[[], "ssl.SSLContext | None"]


def _nothing() -> None:
    """Say nothing: the broker's own listener does, where descriptors run out."""


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that takes connections as the broker does: a few a turn, and no more than there may be."""

    def __init__(
        self,
        config: uvicorn.Config,
        sockets: list[socket.socket],
        tls: _Tls,
        tls_failed: Callable[[str, str], None],
        crowd: Crowd,
        timeout_s: float,
    ) -> None:
        super().__init__(config)
        self._crowd = crowd
        self._timeout_s = timeout_s
        self._sockets = sockets
        self._tls = tls
        self._tls_failed = tls_failed
        self.servers = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take connections from now on."""
        accept = partial(
            Conversation,
            self._crowd,
            self._timeout_s,
            config=self.config,
            server_state=self.server_state,
            app_state={},
            _loop=asyncio.get_running_loop(),
        )
        self._acceptor = Acceptor(
            self._sockets,
            accept,
            _nothing,
            tls=self._tls,
            tls_handshake_timeout_s=_TLS_TIMEOUT_S,
            tls_failed=self._tls_failed,
            room=self._crowd.room,
        )
        self._acceptor.start()
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more, and end those that there are."""
        self._acceptor.close()
        await super().shutdown()
        self._crowd.end()


__all__ = ["Face"]

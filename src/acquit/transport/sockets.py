"""Connecting and listening: where sockets come from. What happens on them is in `pump`.

TLS comes from the first byte, or by AMQP's TLS header (specification 5.2.1): both sides say it in the clear, and then
begin with TLS (`tls`). `HeaderReader` reads such a header and not one byte more, because what follows may be TLS's.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

from acquit.errors import ConfigurationError, ConnectionFailed, ConnectTimeout
from acquit.forks import keep_here
from acquit.protocol.constants import AMQP_HEADER, TLS_HEADER
from acquit.transport.pump import Pump, as_stream, endpoint_name
from acquit.transport.reasons import reason
from acquit.transport.tls import TlsStream
from acquit.transport.turnstile import Turnstile

ACCEPTS_PER_TURN: Final = 2
"""Connections that one turn of the loop takes from one listening socket."""
ACCEPT_RETRY_S: Final = 1.0
"""Seconds for which nobody is taken after there was no descriptor left."""

_HEADER_BYTES: Final = len(AMQP_HEADER)
_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_AMQP: Final = AMQP_HEADER[:4]


class HeaderReader(asyncio.BufferedProtocol):
    """Reads one protocol header, or as much of it as shows that it is none. What comes behind stays in the socket.

    `on_header` gets the bytes, once, and reading is paused then: who goes on resumes it. `on_lost` is called instead if
    the socket ends before.
    """

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_HEADER_BYTES))
        self._filled = 0
        self._done = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        self.transport = as_stream(transport)

    def finish(self) -> None:
        """Read no header, or no more of it."""
        self._done = True
        self.transport.pause_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for the rest of the header."""
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """More of it is here."""
        self._filled += nbytes
        head = bytes(self._buffer[: self._filled])
        if not self._done and (len(head) == _HEADER_BYTES or head[:4] != _AMQP[: len(head)]):
            self.finish()
            self.on_header(head)

    def eof_received(self) -> bool:
        """No header will come: the socket is closed."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        if not self._done:
            self._done = True
            self.on_lost()

    def on_header(self, header: bytes) -> None:
        """The header, or what shows that it is none."""
        raise NotImplementedError

    def on_lost(self) -> None:
        """The socket has ended before."""
        raise NotImplementedError


class _Answer(HeaderReader):
    """The header that a server answers with; b"" where it went away instead."""

    def __init__(self, answer: asyncio.Future[bytes]) -> None:
        super().__init__()
        self._answer = answer

    def on_header(self, header: bytes) -> None:
        if not self._answer.done():
            self._answer.set_result(header)

    def on_lost(self) -> None:
        self.on_header(b"")


async def connect(
    pump: Pump,
    host: str,
    port: int,
    *,
    ssl_context: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    in_band: bool = False,
    timeout_s: float = 10.0,
) -> None:
    """Connect `pump` to a peer, over TLS when there is an `ssl_context` (`server_hostname`: the name its certificate
    must bear, by default `host`; `in_band`: it is asked for by AMQP's TLS header). Returns when the socket is
    connected; AMQP begins then.

    Raises ConnectTimeout after `timeout_s`, ConnectionFailed (with the reason, the cause chained) where nobody answers
    or TLS cannot be agreed.
    """
    loop = asyncio.get_running_loop()
    where = f"{host}:{port}"
    name = server_hostname or host
    try:
        tls = None if ssl_context is None else TlsStream(ssl_context, server_side=False, server_hostname=name)
    except (ValueError, TypeError) as exc:  # one that no certificate can bear
        raise ConnectionFailed(f"{name!r} is not a known host: {exc}") from exc
    try:
        async with asyncio.timeout(timeout_s):
            if tls is None:
                await loop.create_connection(lambda: pump, host, port)
            else:
                if in_band:
                    raw = await _ask_for_tls(loop, host, port)
                    tls.take(raw)
                    raw.resume_reading()
                else:
                    await loop.create_connection(lambda: tls, host, port)
                await tls.agree()
                tls.give_to(pump)
    except TimeoutError as exc:
        raise ConnectTimeout(f"no connection to {where} within {timeout_s:g} s") from exc
    except ssl.SSLCertVerificationError as exc:
        raise ConnectionFailed(f"the certificate of {where} is not trusted: {exc.verify_message}") from exc
    except ssl.SSLError as exc:
        raise ConnectionFailed(f"no TLS with {where}: {reason(exc)}") from exc
    except socket.gaierror as exc:
        raise ConnectionFailed(f"{host!r} is not a known host: {exc.strerror}") from exc
    except UnicodeError as exc:  # the codec's, for what cannot be a name
        raise ConnectionFailed(f"{host!r} is not a known host: {exc}") from exc
    except OSError as exc:
        raise ConnectionFailed(f"cannot connect to {where}: {reason(exc)}") from exc


async def _ask_for_tls(loop: asyncio.AbstractEventLoop, host: str, port: int) -> asyncio.Transport:
    """Connect, and agree by AMQP's TLS header that TLS comes next."""
    answer: asyncio.Future[bytes] = loop.create_future()
    transport, _ = await loop.create_connection(lambda: _Answer(answer), host, port)
    try:
        transport.write(TLS_HEADER)
        header = await answer
        if header != TLS_HEADER:
            raise ConnectionRefusedError(f"it answered AMQP's TLS header with {header!r}")
    except BaseException:
        transport.abort()
        raise
    return transport


def _no_tls() -> None:
    """Return no TLS context."""


def _say_nothing(peer: str, why: str) -> None:
    """Leave a failure at that."""


def _always(arriving: int) -> bool:
    """Return that there is room."""
    return True


class Acceptor:
    """Takes connections from the sockets of one address: a few in each turn of the loop, so that a crowd that connects
    holds up nobody who is connected; none for a while where the process has no descriptors left.

    asyncio's own server takes a whole backlog in one turn, and without descriptors tries as often, logs a traceback for
    each, and adds a timer for each that does all of it again.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        accept: Callable[[], asyncio.Protocol | asyncio.BufferedProtocol],
        exhausted: Callable[[], None],
        *,
        tls: Callable[[], ssl.SSLContext | None] = _no_tls,
        tls_handshake_timeout_s: float = 10.0,
        tls_failed: Callable[[str, str], None] = _say_nothing,
        room: Callable[[int], bool] = _always,
    ) -> None:
        """`accept` makes the protocol of a connection; `exhausted` is called each time that there is no descriptor for
        one. With `tls`, it is one that takes bytes, and sees what TLS protects, from the first byte; `tls_failed` is
        told of each peer with which TLS cannot be agreed, and why. `room` is asked whether one more may come, with how
        many are on their way to their protocols; where it says no, the first of these gives way, and without one the
        newcomer is closed. Belongs to the running loop; `start` begins."""
        self._tls = tls
        self._tls_handshake_timeout_s = tls_handshake_timeout_s
        self._tls_failed = tls_failed
        self._room = room
        self.sockets = list(sockets)
        self._accept = accept
        self._exhausted = exhausted
        self._loop = asyncio.get_running_loop()
        self._handshakes = Turnstile(self._loop, 1)
        self._arriving: dict[asyncio.Task[object], None] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    def start(self) -> None:
        """Take connections from now on."""
        self._retry = None
        for listening in self.sockets:
            self._loop.add_reader(listening.fileno(), self._take, listening)

    def close(self) -> None:
        """Take no more, and listen no more. Twice is once."""
        if self._closed:
            return
        self._closed = True
        self._stop()
        if self._retry is not None:
            self._retry.cancel()
        for listening in self.sockets:
            listening.close()

    async def wait_closed(self) -> None:
        """Wait until all that was taken has its protocol."""
        while self._arriving:
            await asyncio.wait(self._arriving)

    def _stop(self) -> None:
        for listening in self.sockets:
            self._loop.remove_reader(listening.fileno())

    def _take(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                taken, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as exc:
                if exc.errno not in _EXHAUSTED:
                    raise
                self._stop()
                self._retry = self._loop.call_later(ACCEPT_RETRY_S, self.start)
                self._exhausted()
                return
            _keep_here(taken)
            if not self._room(len(self._arriving)) and not self._turn_away():
                taken.close()
                continue
            taken.setblocking(False)
            task = self._loop.create_task(self._arrive(taken))
            self._arriving[task] = None
            task.add_done_callback(partial(self._arrived, taken))

    def _turn_away(self) -> bool:
        """End the connection that is on its way to its protocol for longest. False where there is none."""
        task = next(iter(self._arriving), None)
        if task is None:
            return False
        del self._arriving[task]
        task.cancel()
        return True

    def _arrived(self, taken: socket.socket, task: asyncio.Task[object]) -> None:
        self._arriving.pop(task, None)
        if task.cancelled():
            taken.close()  # the task may have been turned away before it began

    async def _arrive(self, taken: socket.socket) -> None:
        context = self._tls()
        with contextlib.suppress(OSError):  # it has gone already
            if context is None:
                await self._loop.connect_accepted_socket(self._accept, taken)
            else:
                await self._secure(taken, context)

    async def _secure(self, taken: socket.socket, context: ssl.SSLContext) -> None:
        stream = partial(TlsStream, context, server_side=True, handshakes=self._handshakes)
        raw, tls = await self._loop.connect_accepted_socket(stream, taken)
        peer = endpoint_name(raw.get_extra_info("peername"))
        try:
            async with asyncio.timeout(self._tls_handshake_timeout_s):
                await tls.agree()
        except OSError as exc:
            within = isinstance(exc, TimeoutError)
            self._tls_failed(peer, f"not within {self._tls_handshake_timeout_s:g} s" if within else reason(exc))
            exc.__traceback__ = None  # it holds this frame, and so what is TLS's
        else:
            tls.give_to(cast("asyncio.Protocol", self._accept()))


async def bind(host: str, port: int, *, backlog: int = 1_024) -> list[socket.socket]:
    """Sockets that listen on all addresses of `host`, for an `Acceptor`. Port 0 takes a free one.

    Raises ConfigurationError where one cannot be listened on.
    """
    try:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)
    except (OSError, ValueError) as exc:  # the codec's and the resolver's, for what cannot be a name
        raise ConfigurationError(f"cannot listen on {host}:{port}: {reason(exc)}") from exc
    found: list[socket.socket] = []
    try:
        for bound in server.sockets:
            found.append(bound.dup())
            found[-1].setblocking(False)
            found[-1].listen(backlog)
            _keep_here(found[-1])
    except OSError as exc:
        for one in found:
            one.close()
        raise ConfigurationError(f"cannot listen on {host}:{port}: {reason(exc)}") from exc
    finally:
        server.close()
    return found


def _keep_here(one: socket.socket) -> None:
    """Keep a socket from forked children. One of a simulated network has no descriptor."""
    if isinstance(one, socket.socket):
        keep_here(one)


__all__ = ["Acceptor", "HeaderReader", "bind", "connect"]

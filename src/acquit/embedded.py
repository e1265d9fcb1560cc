"""A broker inside this process: for a test, or for a small service that wants its queues in a folder.

Theory of operation. The broker runs as `acquit serve` runs it, on a thread and an event loop of its own, and listens
on a socket: whoever connects, from this process or another, is a client like any other. Two threads meet only here:
`Broker` hands the server small jobs through its loop and waits for the answer.

A program that forks takes no broker along: the thread stays with the parent, and so do folder, lock and sockets
(`forks`). In the child the parent's broker has an address, and nothing else: to close it there, or to leave its block,
does nothing.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from acquit.broker.configuration import load_options
from acquit.broker.inspect import BrokerSnapshot
from acquit.broker.options import BrokerOptions, Http
from acquit.broker.server import Server
from acquit.client.locks import UserLock
from acquit.client.threads import flush_first
from acquit.errors import AcquitError, ConfigurationError

if TYPE_CHECKING:
    from acquit.http.face import Face

T = TypeVar("T")

_PORT_MAX: Final = 0xFFFF
START_TIMEOUT_S = 60.0
"""A journal of millions of live messages takes seconds to recover; one that takes a minute is worth an error."""


class Broker:
    """A broker that runs until `close`, or to the end of a ``with`` block.

    ::

        with acquit.Broker() as broker:
            connection = acquit.connect(broker.url)

    `data`: the folder of its journal, made if it is not there; None takes a temporary folder that is removed at close.
    `port` 0 takes a free one. `http_port`: the port of the HTTP interface (docs/http.md), on 127.0.0.1 unless `config`
    says otherwise; 0: a free one, None: none, but for what `config` says. It needs ``pip install 'acquit[http]'``.
    `config`: options, see `BrokerOptions`, or the path of a TOML file as `acquit serve --config` reads it; None takes
    the defaults. Where the folder is temporary and nothing is said of the journal, that is a small one, of some 10 MB.

    Raises ConfigurationError, StoreLocked (another broker has the folder), StoreCorrupt, StoreVersionUnsupported, or
    OSError for an address it cannot listen on. Methods may be called from any thread.

    It is of the process that started it. A forked child may connect to `url`; there `close` and the end of a ``with``
    block, or of the program, leave the broker and its folder alone, and other methods raise AcquitError.
    """

    def __init__(
        self,
        data: str | PathLike[str] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        http_port: int | None = None,
        config: BrokerOptions | str | PathLike[str] | None = None,
    ) -> None:
        options = _options(config)
        if data is None:
            options = options.with_small_journal()
        _check_place(data, host, port, http_port)
        if http_port is not None:
            options = replace(options, http=replace(options.http or Http(), port=http_port))
        self._face: Face | None = None
        self._temporary: str | None = None
        self._process = os.getpid()
        self._host = host
        self._loop = asyncio.new_event_loop()
        self._closing = UserLock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="acquit-broker", daemon=True)
        self._thread.start()
        try:
            if data is None:
                # No TemporaryDirectory: its finalizer would remove the folder in a forked child, too.
                data = self._temporary = tempfile.mkdtemp(prefix="acquit-")
            self._server = self._submit(self._start(Path(data), port, options), START_TIMEOUT_S)
        except BaseException:
            self._end_thread()
            raise
        # A program that ends without closing its broker still gets a clean stop, not a recovery.
        atexit.register(self.close)
        flush_first()  # also what a connection sends that is older than this broker, and has come back to its port

    async def _start(self, folder: Path, port: int, config: BrokerOptions) -> Server:
        server = Server(folder, config, host=self._host, port=port)
        await server.start()
        if config.http is not None:
            from acquit.http import start_face

            try:
                self._face = await start_face(server, config.http)
            except BaseException:
                await server.stop()
                raise
        return server

    async def _stop(self) -> None:
        if self._face is not None:
            await self._face.stop()
        await self._server.stop()

    @property
    def http_url(self) -> str | None:
        """URL of the HTTP interface, ``http://host:port``; None if there is none. Raises AcquitError when the broker is
        closed."""
        self._check_open()
        return None if self._face is None else self._face.url

    @property
    def port(self) -> int:
        """The port it listens on. Raises AcquitError when it is closed."""
        self._check_open()
        return self._server.port

    @property
    def url(self) -> str:
        """URL for clients: ``amqp://host:port``, ``amqps://`` with TLS. Raises AcquitError when the broker is
        closed."""
        self._check_open()
        return self._server.url

    def inspect(self) -> BrokerSnapshot:
        """Return an immutable snapshot of queues, consumers and totals."""

        async def take() -> BrokerSnapshot:
            return self._server.inspect()

        return self._submit(take(), START_TIMEOUT_S)

    def advance(self, by_ms: int) -> None:
        """Move the broker's clock `by_ms` milliseconds on at once, for tests. What was to expire, to come due or to be
        given back by then is, when this returns. Connections notice nothing: their time-outs are real time.

        The broker's clock stays ahead; times in its journal and in messages are by that clock. Started again on the
        same folder it has the machine's clock, and finds itself behind its journal. Raises ConfigurationError for a
        number that is none or negative.
        """
        _check_ms("by_ms", by_ms)

        async def advance() -> None:
            self._server.advance(by_ms * 1000)

        self._submit(advance(), START_TIMEOUT_S)

    def close(self) -> None:
        """Stop in order: connections are closed, the last batch is synced, the folder is given up. Twice is once. In a
        forked child: nothing, for the broker is the parent's."""
        if os.getpid() != self._process:
            return  # before the lock, which a thread of the parent may have had
        if threading.current_thread() is self._thread:
            # In a finalizer, which the garbage collector runs on any thread: this one cannot wait for its own end.
            threading.Thread(target=self.close, name="acquit-broker closing").start()
            return
        with self._closing:
            if self._closed:
                return
            self._closed = True
            try:
                atexit.unregister(self.close)
                self._submit(self._stop(), None)
            finally:
                self._end_thread()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- the other thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._finish_loop()

    def _finish_loop(self) -> None:
        finishers: tuple[Callable[[], Coroutine[object, object, None]], ...] = (
            self._loop.shutdown_asyncgens,
            self._loop.shutdown_default_executor,
        )
        for finish in finishers:
            self._loop.run_until_complete(finish())
        self._loop.close()

    def _check_open(self) -> None:
        if self._closed:
            raise AcquitError("this broker is closed")

    def _submit(self, work: Coroutine[object, object, T], timeout_s: float | None) -> T:
        if os.getpid() != self._process:
            work.close()
            raise AcquitError(f"this broker runs in the process that started it, {self._process}: connect to its url")
        if not self._thread.is_alive():
            work.close()
            raise AcquitError("this broker is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        if self._temporary is not None:
            with suppress(FileNotFoundError):
                shutil.rmtree(self._temporary)


def _options(config: object) -> BrokerOptions:
    if config is None:
        return BrokerOptions()
    if isinstance(config, BrokerOptions):
        return config
    if isinstance(config, str | PathLike):
        return load_options(Path(config))
    raise ConfigurationError(f"config must be BrokerOptions or the path of a TOML file, got {config!r}")


def _check_place(data: object, host: object, port: object, http_port: object) -> None:
    if data is not None and not (isinstance(data, str | PathLike) and os.fspath(data)):
        raise ConfigurationError(f"data must be the path of a folder or None, got {data!r}")
    if not (isinstance(host, str) and host):
        raise ConfigurationError(f"host must be a name or an address, got {host!r}")
    for name, number in (("port", port), ("http_port", 0 if http_port is None else http_port)):
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _PORT_MAX:
            raise ConfigurationError(f"{name} must be a whole number from 0 to {_PORT_MAX}, got {number!r}")


def _check_ms(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(f"{name} must be a whole number of milliseconds from 0, got {value!r}")


__all__ = ["Broker"]

"""The connection of the asyncio API, and how it is opened."""

# ruff: noqa: ASYNC109 -- the time-outs are part of the API: they have an answer (None, False, UNKNOWN) of their own

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence

from acquit.client.aio.messages import KINDS
from acquit.client.aio.session import Session
from acquit.client.closing import finish
from acquit.client.driver import Driver, open_driver
from acquit.client.fates import TransactionFate, check_txn_id
from acquit.client.modes import AckMode, find_mode
from acquit.client.options import (
    ConnectOptions,
    check_timeout,
)
from acquit.client.reconnecting import ConnectionEvent
from acquit.client.waiting import Opening, ready, wait
from acquit.client.with_closing import AsyncClosing
from acquit.errors import SessionEnded


class Connection(AsyncClosing):
    """A connection to one broker. Made by `connect`."""

    __slots__ = ("__weakref__", "_core", "_driver")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._core = driver.core

    @property
    def closed(self) -> bool:
        """True if the connection is closed, or lost for good."""
        return self._core.failure is not None or self._core.closed.done

    @property
    def connected(self) -> bool:
        """True if there is a connection now; False while it is interrupted, and when it is closed."""
        return not (self.closed or self._core.interrupted)

    @property
    def container_id(self) -> str:
        """Our container id, by which the peer knows us (2.7.1)."""
        return self._core.engine.options.container_id

    @property
    def remote_container_id(self) -> str:
        """The container id of the peer."""
        return self._core.remote_open.container_id

    @property
    def remote_properties(self) -> Mapping[str, object]:
        """Properties that the peer shows in *open*: product, version, and so on."""
        return self._core.remote_open.properties or {}

    @property
    def remote_capabilities(self) -> tuple[str, ...]:
        """Capabilities that the peer offers in *open*."""
        return self._core.remote_open.offered_capabilities

    def session(self, mode: AckMode | str | int = AckMode.AUTO) -> Opening[Session]:
        """Begin a session in an acknowledgement mode, given as AckMode, by name, or by its JMS value.

        A TRANSACTED one attaches its control link, and raises LinkDetached or its kin where the peer has no
        transactions. Raises ConfigurationError for a mode that is not there.
        """
        row = find_mode(mode)

        async def begin() -> Session:
            await ready(self._core, self._core.options.send_timeout_ms / 1000)
            core = self._core.begin(row)
            self._driver.act()
            timeout_s = self._core.options.answer_timeout_ms / 1000
            try:
                if not await wait(core.begun, timeout_s):
                    raise SessionEnded(f"the peer did not answer the begin of the session within {timeout_s:g} s")
            except BaseException:
                core.end()
                self._driver.act()
                raise
            core.begun.check()
            session = Session(core, self._driver)
            if core.transactions is not None:
                await session._attach_control(core.transactions)
            return session

        return Opening(begin, "connection.session(...)")

    async def transaction_fate(self, txn_id: bytes, timeout: float | None = None) -> TransactionFate:
        """Ask the broker what became of a transaction (`TransactionInDoubt.txn_id`), of any connection of this user.

        A transaction that is live is rolled back by the question, and its connection closed, so that the answer is
        final; one whose commit is on the way to the disk is waited for. UNKNOWN where the peer cannot tell, or does
        not within the time-out (by default the connection's answer_timeout_ms). Only acquit brokers can, for an hour
        unless configured otherwise. Raises ConnectionLost or its kin where the connection ends first.
        """
        check_txn_id(txn_id)
        check_timeout(timeout)
        async with self.session() as session:
            query = session._core.ask_fate(txn_id)
            self._driver.act()
            await wait(query.done, timeout if timeout is not None else self._core.options.answer_timeout_ms / 1000)
            query.done.check()
            return query.answer

    async def close(self, timeout: float | None = None) -> None:
        """Close sessions, senders and receivers as they do by themselves, then the connection. When the time is over
        (by default after close_timeout_ms for each of the two), the connection is cut off."""
        core = self._core
        if not core.closed.done:
            timeout_s = self._driver.close_timeout_s(timeout)
            await finish(self._driver, timeout_s, sessions=core.sessions)
            core.close()
            self._driver.act()
            if not await wait(core.closed, timeout_s):
                self._driver.pump.abort()
                await wait(core.closed, None)

    def __repr__(self) -> str:
        return f"<Connection to {self._core.where}>"


def connect(
    url: str | Sequence[str],
    *,
    container_id: str | None = None,
    username: str | None = None,
    password: str | None = None,
    ssl_context: ssl.SSLContext | None = None,
    options: ConnectOptions | None = None,
    on_event: Callable[[ConnectionEvent], object] | None = None,
) -> Opening[Connection]:
    """Connect to a broker: ``amqp://user:password@host:port``, or ``amqps://`` for TLS. Of several hosts, given as a
    list of URLs or as ``failover:(amqp://one,amqp://two)``, the first that opens is taken.

    A connection that is lost is restored as `ConnectOptions.reconnect` says; `on_event` is called with a
    `ConnectionEvent` when it opens, is interrupted, restored, or lost for good, on the event loop.

    `username` and `password` replace those of the URLs; without any, SASL ANONYMOUS is used. `container_id` names us to
    the broker; by default it is another one for each connection. Raises ConnectTimeout, AuthenticationFailed or
    another ConnectionFailed; ConfigurationError for a URL or option that makes no sense.
    """

    async def start() -> Connection:
        driver = await open_driver(
            url, container_id, username, password, ssl_context, options, KINDS, threads=False, on_event=on_event
        )
        return Connection(driver)

    return Opening(start, "connect(...)")

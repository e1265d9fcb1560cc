"""The connection of the blocking API, and how it is opened."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from acquit.client import aio
from acquit.client.blocking.messages import KINDS
from acquit.client.blocking.session import Session
from acquit.client.driver import Driver, open_driver
from acquit.client.fates import TransactionFate
from acquit.client.listening import check_no_coroutine
from acquit.client.modes import AckMode
from acquit.client.options import ConnectOptions
from acquit.client.reconnecting import ConnectionEvent
from acquit.client.threads import LoopThread, callback_thread, in_order, loop_thread, watch
from acquit.client.with_closing import Closing

_TELLING_S: Final = 1.0


class Connection(Closing):
    """A connection to one broker. Made by `connect`."""

    __slots__ = ("__weakref__", "_aio", "_loop")

    def __init__(self, driver: Driver, loop: LoopThread) -> None:
        self._aio = aio.Connection(driver)
        self._loop = loop

    @property
    def closed(self) -> bool:
        """True if the connection is closed, or lost for good."""
        return self._aio.closed

    @property
    def connected(self) -> bool:
        """True if there is a connection now; False while it is interrupted, and when it is closed."""
        return self._aio.connected

    @property
    def container_id(self) -> str:
        """Our container id, by which the peer knows us (2.7.1)."""
        return self._aio.container_id

    @property
    def remote_container_id(self) -> str:
        """The container id of the peer."""
        return self._aio.remote_container_id

    @property
    def remote_properties(self) -> Mapping[str, object]:
        """Properties that the peer shows in *open*: product, version, and so on."""
        return self._aio.remote_properties

    @property
    def remote_capabilities(self) -> tuple[str, ...]:
        """Capabilities that the peer offers in *open*."""
        return self._aio.remote_capabilities

    def session(self, mode: AckMode | str | int = AckMode.AUTO) -> Session:
        """Begin a session in an acknowledgement mode, given as AckMode, by name, or by its JMS value.

        A TRANSACTED one attaches its control link, and raises LinkDetached or its kin where the peer has no
        transactions. Raises ConfigurationError for a mode that is not there.
        """

        async def begin() -> Session:
            return Session(await self._aio.session(mode), self._loop)

        return self._loop.open(begin())

    def transaction_fate(self, txn_id: bytes, timeout: float | None = None) -> TransactionFate:
        """Ask the broker what became of a transaction (`TransactionInDoubt.txn_id`), of any connection of this user.

        A transaction that is live is rolled back by the question, and its connection closed, so that the answer is
        final; one whose commit is on the way to the disk is waited for. UNKNOWN where the peer cannot tell, or does
        not within the time-out (by default the connection's answer_timeout_ms). Only acquit brokers can, for an hour
        unless configured otherwise. Raises ConnectionLost or its kin where the connection ends first.
        """
        return self._loop.run(self._aio.transaction_fate(txn_id, timeout))

    def close(self, timeout: float | None = None) -> None:
        """Close sessions, senders and receivers as they do by themselves, then the connection. When the time is over
        (by default after close_timeout_ms for each of the two), the connection is cut off. Whatever `on_event` is to be
        told has been told then, unless it takes longer than a second over it."""
        driver = self._aio._driver
        if not driver.core.closed.done:
            self._loop.close(self._aio.close(timeout))
        if driver.settings.on_event is not None and self._loop.gone is None and not self._loop.is_here:
            callback_thread().catch_up(_TELLING_S)

    def __repr__(self) -> str:
        return repr(self._aio)


def connect(
    url: str | Sequence[str],
    *,
    container_id: str | None = None,
    username: str | None = None,
    password: str | None = None,
    ssl_context: ssl.SSLContext | None = None,
    options: ConnectOptions | None = None,
    on_event: Callable[[ConnectionEvent], object] | None = None,
) -> Connection:
    """Connect to a broker: ``amqp://user:password@host:port``, or ``amqps://`` for TLS. Of several hosts, given as a
    list of URLs or as ``failover:(amqp://one,amqp://two)``, the first that opens is taken.

    A connection that is lost is restored as `ConnectOptions.reconnect` says; `on_event` is called with a
    `ConnectionEvent` when it opens, is interrupted, restored, or lost for good, on
    the thread that calls back receipts, too, one event after the other.

    `username` and `password` replace those of the URLs; without any, SASL ANONYMOUS is used. `container_id` names us to
    the broker; by default it is another one for each connection. Raises ConnectTimeout, AuthenticationFailed or
    another ConnectionFailed; ConfigurationError for a URL or option that makes no sense.
    """
    if on_event is not None:
        check_no_coroutine("on_event", on_event, "event")
    loop = loop_thread()

    async def opened() -> Connection:
        driver = await open_driver(
            url,
            container_id,
            username,
            password,
            ssl_context,
            options,
            KINDS,
            threads=True,
            on_event=None if on_event is None else in_order(on_event),
        )
        watch(driver)
        return Connection(driver, loop)

    return loop.open(opened())

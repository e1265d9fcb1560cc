"""Drives one client core on an event loop: the pump's events in, wake-ups and deadlines as calls of the loop.

All of it runs on one loop, in one thread, but for `wake`, which user code calls from wherever it is. For a program on
that same loop `wake` is a `call_soon`; for threads it is a `call_soon_threadsafe`, which costs a system call, and
therefore happens once for all that gathers until the loop gets to it.
"""

from __future__ import annotations

import asyncio
import platform
import ssl
import uuid
from functools import cache

from acquit import transport
from acquit.client.core import ClientCore, Kinds
from acquit.client.credentials import make_sasl
from acquit.client.options import DURABLE_SETTLEMENT, ConnectOptions
from acquit.client.url import Target, parse_url
from acquit.client.waiting import wait
from acquit.errors import AuthenticationFailed, ConfigurationError, ConnectTimeout
from acquit.protocol.connection import Connection
from acquit.protocol.events import Event, SaslChallenged
from acquit.protocol.options import ConnectionOptions


class Driver:
    """One connection on one loop (a `transport.Handler`)."""

    def __init__(
        self,
        target: Target,
        container_id: str,
        options: ConnectOptions,
        kinds: Kinds,
        *,
        threads: bool,
        certified: bool = False,
        named: bool = False,
    ) -> None:
        """`certified`: TLS may show a certificate of ours; `named`: the user chose the container id."""
        self._loop = asyncio.get_running_loop()
        self._sasl = make_sasl(target, options.sasl_mechanisms, certified=certified)
        self._timer: asyncio.TimerHandle | None = None
        self._schedule = self._loop.call_soon_threadsafe if threads else self._loop.call_soon
        engine = Connection(
            ConnectionOptions(
                container_id=container_id,
                hostname=options.hostname if options.hostname is not None else target.host,
                max_frame_size=options.max_frame_size,
                channel_max=options.channel_max,
                idle_timeout_ms=options.idle_timeout_ms,
                handshake_timeout_ms=options.connect_timeout_ms,
                close_timeout_ms=options.close_timeout_ms,
                max_message_size=options.max_message_size,
                desired_capabilities=(DURABLE_SETTLEMENT,),
                properties=open_properties() | dict(options.properties or {}),
            ),
            server=False,
            sasl=self._sasl,
            now=self._loop.time(),
        )
        self.core = ClientCore(engine, options, where=target.where, wake=self._wake, kinds=kinds, named=named)
        self.pump = transport.Pump(engine, self, loop=self._loop)

    async def connect(self, target: Target, ssl_context: ssl.SSLContext | None) -> None:
        """Connect and open. Raises ConnectTimeout, AuthenticationFailed, ConnectionFailed."""
        timeout_s = self.core.options.connect_timeout_ms / 1000
        deadline = self._loop.time() + timeout_s
        self.core.engine.open()
        try:
            await transport.connect(
                self.pump,
                target.host,
                target.port,
                ssl_context=ssl_context_for(target, ssl_context, in_band=self.core.options.in_band_tls),
                in_band=self.core.options.in_band_tls,
                timeout_s=timeout_s,
            )
            if not await wait(self.core.opened, deadline - self._loop.time()):
                raise ConnectTimeout(f"{target.where} did not open the connection within {timeout_s:g} s")
            self.core.opened.check()
        except BaseException:
            self.pump.abort()
            raise

    def act(self) -> None:
        """Do at once what was asked for, rather than in the next turn of the loop."""
        writable = self.pump.writable
        try:
            self.core.process(self._loop.time())
        except BaseException:
            # Half of what was asked for is done: better lost, which every wait hears of, than waiting for the rest.
            self.pump.abort()
            raise
        self.pump.flush()
        if writable:
            self.core.flushed()
        self._arm()

    def close_timeout_s(self, timeout_s: float | None) -> float:
        """How long a close takes: as said, or as the options say."""
        return timeout_s if timeout_s is not None else self.core.options.close_timeout_ms / 1000

    # -- the pump's handler --------------------------------------------------------------------------------------------

    def handle(self, events: list[Event]) -> None:
        """Act on what the peer did. The pump flushes afterwards."""
        if events[-1].__class__ is SaslChallenged:
            self._answer_challenge(events.pop())
        self.core.handle(events, self._loop.time())
        self._arm()

    def on_writable(self, writable: bool) -> None:
        """The socket takes no more, or does again."""
        self.core.on_writable(writable)
        if writable and self.core.sent:
            self._loop.call_soon(self.act)

    def on_closed(self) -> None:
        """The socket is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self.core.on_closed()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _answer_challenge(self, event: Event) -> None:
        """SASL, with a mechanism whose answers are slow to make: not on the loop."""
        assert isinstance(event, SaslChallenged)
        answer = self._loop.run_in_executor(None, self._sasl.respond, event.challenge)
        answer.add_done_callback(self._challenge_answered)

    def _challenge_answered(self, answer: asyncio.Future[bytes]) -> None:
        if answer.cancelled():
            return
        engine = self.core.engine
        failure = answer.exception()
        if failure is None:
            events = engine.sasl_respond(answer.result(), self._loop.time())
            if events:
                self.handle(events)
        elif isinstance(failure, AuthenticationFailed):
            engine.sasl_give_up(str(failure))
        else:
            self.pump.abort()
            raise failure
        self.pump.touch()

    def _wake(self) -> None:
        self._schedule(self.act)

    def _arm(self) -> None:
        deadline = self.core.next_deadline()
        if deadline is not None and (self._timer is None or deadline < self._timer.when()):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        self.core.handle_deadline(self._loop.time())
        self.pump.touch()
        self._arm()


def ssl_context_for(target: Target, given: ssl.SSLContext | None, *, in_band: bool = False) -> ssl.SSLContext | None:
    """The TLS settings for a URL; `in_band`: TLS is asked for inside of the connection. Raises ConfigurationError for
    settings without TLS in the URL: nobody who gives a context wants to go on in the clear."""
    if in_band and target.tls:
        raise ConfigurationError("in_band_tls is for amqp:// URLs; amqps:// is TLS from the first byte")
    if not target.tls and not in_band:
        if given is not None:
            raise ConfigurationError("ssl_context is given, but the URL says amqp://; for TLS it begins with amqps://")
        return None
    return given if given is not None else ssl.create_default_context()


@cache
def open_properties() -> dict[str, object]:
    """What we tell every peer about us (2.7.1)."""
    from importlib import metadata  # as slow to import as all the rest of the client, and not needed before

    return {
        "product": "acquit",
        "version": metadata.version("acquit"),
        "platform": f"Python {platform.python_version()}",
    }


async def open_driver(
    url: str,
    container_id: str | None,
    username: str | None,
    password: str | None,
    ssl_context: ssl.SSLContext | None,
    options: ConnectOptions | None,
    kinds: Kinds,
    *,
    threads: bool,
) -> Driver:
    """Connect, for either API: `threads` says where user code will call from."""
    target = parse_url(url).authenticated(username, password)
    driver = Driver(
        target,
        container_id if container_id is not None else f"acquit-{uuid.uuid4()}",
        options if options is not None else ConnectOptions(),
        kinds,
        threads=threads,
        certified=ssl_context is not None,
        named=container_id is not None,
    )
    await driver.connect(target, ssl_context)
    return driver

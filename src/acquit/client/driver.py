"""Drives one client core on an event loop: the pump's events in, wake-ups and deadlines as calls of the loop.

All of it runs on one loop, in one thread, but for `wake`, which user code calls from wherever it is. For a program on
that same loop `wake` is a `call_soon`; for threads, that of a store of deliveries among them, it is a
`call_soon_threadsafe`, which costs a system call, and therefore happens once for all that gathers until the loop gets
to it.

A `Wire` is one attempt to reach one host: an engine, a pump, and what became of it. The driver has the wire that the
core talks over, and gets the core another one when that is lost, as `reconnecting` says: the first that opens is
adopted, in the same turn of the loop, and nobody hears of those that do not but the debug log.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
import platform
import random
import ssl
import time
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from acquit import transport
from acquit._version import version
from acquit.client.core import ClientCore
from acquit.client.credentials import make_sasl
from acquit.client.failures import Failure, connection_failure
from acquit.client.listening import check_callable
from acquit.client.options import ConnectOptions, check_text, check_timeout
from acquit.client.receipts import Milestone
from acquit.client.received import Kinds
from acquit.client.reconnecting import (
    Backoff,
    ConnectionEvent,
    ConnectionEventKind,
    Reconnect,
    better_elsewhere,
    is_final,
    most_telling,
)
from acquit.client.url import ConnectTarget, Places, Urls, parse_urls
from acquit.client.waiting import check_loop, running_loop, wait
from acquit.errors import AuthenticationFailed, ConfigurationError, ConnectionFailed, ConnectionLost, ConnectTimeout
from acquit.protocol.connection import Connection
from acquit.protocol.events import ConnectionEnded, ConnectionOpened, Event, SaslChallenged
from acquit.protocol.extensions import DURABLE_SETTLEMENT
from acquit.protocol.options import ConnectionOptions

logger = logging.getLogger("acquit.client")

Listener = Callable[[ConnectionEvent], object]
"""Callback that is told of the connection's events."""


class WireSettings(NamedTuple):
    """All it takes to make a wire to a host, again and again."""

    container_id: str
    options: ConnectOptions
    kinds: Kinds
    ssl_context: ssl.SSLContext | None
    named: bool = False
    """The user chose the container id."""
    threads: bool = False
    """User code calls from other threads than the loop's."""
    on_event: Listener | None = None


class Wire:
    """A connection to one host, or an attempt at one (a `transport.Handler`)."""

    def __init__(self, driver: Driver, target: ConnectTarget) -> None:
        self.target = target
        self.opened = Milestone()
        self.foreign = False
        """True if the host speaks another protocol."""
        self._driver = driver
        self._loop = driver.loop
        settings, options = driver.settings, driver.settings.options
        now = self._loop.time()
        self._gives_up_at = now + options.connect_timeout_ms / 1000
        self._sasl = make_sasl(target, options.sasl_mechanisms, certified=settings.ssl_context is not None)
        self.engine = Connection(
            ConnectionOptions(
                container_id=settings.container_id,
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
            now=now,
        )
        self.pump = transport.Pump(self.engine, self, loop=self._loop)

    async def open(self) -> None:
        """Connect and open. Raises ConnectTimeout, AuthenticationFailed, ConnectionFailed."""
        settings, target = self._driver.settings, self.target
        self.engine.open()
        in_band = settings.options.in_band_tls
        try:
            await transport.connect(
                self.pump,
                target.host,
                target.port,
                ssl_context=ssl_context_for(
                    target, settings.ssl_context if target.tls or in_band else None, in_band=in_band
                ),
                in_band=in_band,
                timeout_s=settings.options.connect_timeout_ms / 1000,
            )
            await wait(self.opened, None)  # the engine, too, looks at the time
            self.opened.check()
        except BaseException:
            if self.pump.connected:
                self.pump.abort()
            else:
                self.pump.release()
            raise

    # -- the pump's handler --------------------------------------------------------------------------------------------

    def handle(self, events: list[Event]) -> None:
        """Act on what the peer did. The pump flushes afterwards."""
        if events[-1].__class__ is SaslChallenged:
            self._answer_challenge(events.pop())
        if self._driver.wire is self:
            self._driver.handle(events)
            return
        for event in events:
            if isinstance(event, ConnectionEnded):  # perhaps right behind its open: that is how a peer refuses us
                self.foreign = event.foreign
                self.opened.fail(self._failure(event))
                return
        for number, event in enumerate(events):
            if isinstance(event, ConnectionOpened) and not self.opened.done:
                if self._driver.wants_wire:
                    self._driver.adopt(self, events[number:])
                    self.opened.succeed()
                else:  # closed meanwhile
                    self.pump.abort()
                return

    def _failure(self, event: ConnectionEnded) -> Failure:
        if event.lost and not event.remote and self._loop.time() >= self._gives_up_at:
            within_s = self._driver.settings.options.connect_timeout_ms / 1000
            return Failure(ConnectTimeout, f"{self.target.where} did not open the connection within {within_s:g} s")
        why = ""
        if self.pump.tls_failure:
            why = f": {self.pump.tls_failure}"
        elif self.engine.heard:
            why = " before it was open"
        elif self.pump.encrypted:  # a client has agreed upon TLS before the server looks at its certificate
            why = " before it was open: perhaps the peer wants a client certificate, or another one"
        else:
            why = " before the peer said anything: perhaps it expects TLS (amqps://), or lets in nobody from here"
        return connection_failure(event, self.target.where, why)

    def on_writable(self, writable: bool) -> None:
        """The socket takes no more, or does again."""
        if self._driver.wire is self:
            self._driver.on_writable(writable)

    def on_closed(self) -> None:
        """The socket is gone."""
        self.opened.fail(Failure(ConnectionLost, f"the connection to {self.target.where} was lost", remote=True))
        if self._driver.wire is self:
            self._driver.on_closed()

    def _answer_challenge(self, event: Event) -> None:
        """SASL, with a mechanism whose answers are slow to make: not on the loop."""
        assert isinstance(event, SaslChallenged)
        answer = self._loop.run_in_executor(None, self._sasl.respond, event.challenge)
        answer.add_done_callback(self._challenge_answered)

    def _challenge_answered(self, answer: asyncio.Future[bytes]) -> None:
        if answer.cancelled():
            return
        failure = answer.exception()
        if failure is None:
            events = self.engine.sasl_respond(answer.result(), self._loop.time())
            if events:
                self.handle(events)
        elif isinstance(failure, AuthenticationFailed):
            self.engine.sasl_give_up(str(failure))
        else:
            self.pump.abort()
            raise failure
        self.pump.touch()


class Driver:
    """The driver of one connection on one loop, over one wire after another."""

    core: ClientCore
    """The core of the connection; there once the first wire has opened."""
    wire: Wire | None = None
    """The wire that the core talks over, or did last."""
    _attempt: Wire | None = None

    def __init__(self, places: Places, settings: WireSettings) -> None:
        self.loop = asyncio.get_running_loop()
        self.settings = settings
        self._targets = list(places.targets)
        self._reconnect = places.reconnect
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._restoring: asyncio.Task[None] | None = None
        self._refused = False
        """True if each host of the last round said what it would say again: another round is of no use."""
        self._lost_at: float | None = None
        """Time at which the outage began, on the loop's clock; None while there is none."""
        self._schedule = self.loop.call_soon_threadsafe if settings.threads else self.loop.call_soon
        policy = places.reconnect if places.reconnect is not None else Reconnect()
        self._chance = chance = random.Random()  # our own: a program that seeds the common one wants its numbers
        if policy.shuffle:
            chance.shuffle(self._targets)
        self._backoff = Backoff(policy, policy.first_rounds, self.loop.time(), chance.random)

    @property
    def pump(self) -> transport.Pump:
        """The pump of the present wire."""
        assert self.wire is not None
        return self.wire.pump

    @property
    def filenos(self) -> list[int]:
        """The descriptors of its sockets: the present wire's, and that of an attempt at another."""
        found = [wire.pump.fileno() for wire in (self.wire, self._attempt) if wire is not None]
        return [descriptor for descriptor in found if descriptor is not None]

    async def connect(self) -> None:
        """Connect and open, for the first time. Raises what the attempt of the last round did that says most:
        ConfigurationError, AuthenticationFailed, ConnectTimeout, another ConnectionFailed."""
        self._check_tls()
        backoff = self._backoff
        while True:
            backoff.begin_round()
            try:
                error = await self._round()
            except BaseException:
                if self.wire is not None:  # cancelled as it opened: nobody has it, so nobody must restore it
                    self.core.closing = True
                raise
            if error is None:
                return
            if self._reconnect is None or self._refused or backoff.exhausted(self.loop.time()) is not None:
                try:
                    raise error
                finally:
                    del error  # its traceback holds this frame
            await asyncio.sleep(backoff.next_delay(self.loop.time()))

    def act(self) -> None:
        """Do at once what was asked for, rather than in the next turn of the loop. Raises LocalProtocolError on another
        loop than the connection's, where it would be a race, and its end a hang."""
        check_loop(self.loop)
        pump = self.pump
        writable = pump.writable
        try:
            self.core.process(self.loop.time())
        except BaseException:
            self._break()
            raise
        pump.flush()
        if writable:
            self.core.flushed()
        self._arm()

    def close_timeout_s(self, timeout_s: float | None) -> float:
        """Return the seconds that a close may take: `timeout_s`, or as the options say where that is None."""
        check_timeout(timeout_s)
        return timeout_s if timeout_s is not None else self.core.options.close_timeout_ms / 1000

    # -- the wire ------------------------------------------------------------------------------------------------------

    def handle(self, events: list[Event]) -> None:
        """Act on what the peer did. The pump flushes afterwards."""
        try:
            self.core.handle(events, self.loop.time())
        except BaseException:
            self._break(events)
            raise
        self._arm()

    def on_writable(self, writable: bool) -> None:
        """The socket takes no more, or does again."""
        if self.core.interrupted:
            return
        self.core.on_writable(writable)
        if writable and self.core.sent:
            self.loop.call_soon(self.act)

    def on_closed(self) -> None:
        """The socket is gone."""
        if not self.core.interrupted:
            self.core.on_closed()

    @property
    def wants_wire(self) -> bool:
        """True if a wire that opens now is of use: there is none yet, or the connection is interrupted."""
        return self.wire is None or self.core.interrupted

    def adopt(self, wire: Wire, events: list[Event]) -> None:
        """A wire has opened: the core talks over it from now on. `events`: its ConnectionOpened, and what followed."""
        now, where = self.loop.time(), wire.target.where
        self._backoff.opened(now)
        if self.wire is None:
            settings = self.settings
            self.core = ClientCore(
                wire.engine,
                settings.options,
                where=where,
                wake=self._wake,
                wall_clock=time.time,
                kinds=settings.kinds,
                named=settings.named,
                reconnect=self._reconnect,
                draw=self._chance.random,
                elsewhere=len(self._targets) > 1,
            )
            self.core.on_lost = self._on_lost
            self.wire = wire
            self._tell(ConnectionEventKind.CONNECTED)
        else:
            assert self._lost_at is not None
            lost_for_s, self._lost_at = now - self._lost_at, None
            logger.info("the connection is restored, to %s, after %.1f s", where, lost_for_s)
            self.wire = wire
            self.core.where = where
            events = events[1:]
            try:
                self.core.restore(wire.engine, now)
            except BaseException:
                self._break()
                raise
            self._tell(ConnectionEventKind.RESTORED, outage_s=lost_for_s)
        if events:
            self.handle(events)

    def _break(self, unheard: Sequence[Event] = ()) -> None:
        """A bug of ours: half of something is done. Better lost for good, which every wait hears of, than to go on."""
        core = self.core
        message = f"the connection to {core.where} was cut off by an error in this client"
        core.give_up(Failure(ConnectionLost, message), unheard)
        self.pump.abort()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        running = self.loop if self.settings.threads else running_loop()
        if running is self.loop:
            self._schedule(self.act)
            return
        # Another loop's, or the thread of a store of deliveries, which has none, and may be done after the loop is.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.act)  # what was asked for cannot be taken back
        if running is not None:
            check_loop(self.loop)

    def _arm(self) -> None:
        deadline = self.core.next_deadline()
        if deadline is not None and deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_at = self.loop.call_at(deadline, self._on_deadline), deadline

    def _on_deadline(self) -> None:
        self._timer, self._timer_at = None, math.inf
        self.core.handle_deadline(self.loop.time())
        self.pump.touch()
        self._arm()

    def _check_tls(self) -> None:
        """A context that no host has a use for is a mistake, and a quiet one."""
        in_band = self.settings.options.in_band_tls
        if self.settings.ssl_context is not None and not in_band and not any(target.tls for target in self._targets):
            ssl_context_for(self._targets[0], self.settings.ssl_context)

    async def _round(self) -> Exception | None:
        """Try every host once, whatever the others said. None when one has opened, else the error that says most, with
        the reasons of all. A ConfigurationError at the first connect is the end of the round: it is no host's."""
        failures: list[Exception] = []
        self._refused = True
        for target in self._targets:
            foreign = False
            try:
                self._attempt = Wire(self, target)
                await self._attempt.open()
            except (ConnectionFailed, ConfigurationError) as exc:
                logger.debug("no connection to %s: %s", target.where, exc)
                if self._attempt is not None:
                    # Where there was a broker, something else answers in its place, as a proxy does while it restarts.
                    foreign = self._attempt.foreign and self.wire is not None
                    self._attempt = None
                failures.append(exc.with_traceback(None))  # whose frames would hold the attempt, and the error itself
                if self.wire is None and isinstance(exc, ConfigurationError):
                    self._refused = True
                    break
                self._refused = self._refused and is_final(exc) and not foreign
            else:
                return None
        error = most_telling(failures)
        error.args = ("; ".join(map(str, failures)),)
        return error

    def _on_lost(self, failure: Failure) -> None:
        core = self.core
        if core.interrupted:
            now = self._lost_at = self.loop.time()
            again = self._backoff.lost(now)
            if self.wire is not None and (again or better_elsewhere(failure.condition, remote=failure.remote)):
                gone = self.wire.target
                self._targets.sort(key=lambda target: target == gone)  # the others first: it may do the same again
            logger.warning("%s: it will be restored if that can be done", failure.message)
            self._tell(ConnectionEventKind.INTERRUPTED, failure.message)
            self._restoring = self.loop.create_task(self._restore())
            self._arm()
            return
        if self._restoring is not None and self._restoring is not asyncio.current_task():
            self._restoring.cancel()
        if not core.closing:
            outage_s = self.loop.time() - self._lost_at if self._lost_at is not None else 0.0
            self._tell(ConnectionEventKind.FAILED, failure.message, outage_s)

    async def _restore(self) -> None:
        core, backoff = self.core, self._backoff
        lost = core.interruption
        assert lost is not None
        try:
            while core.interrupted:
                await asyncio.sleep(backoff.next_delay(self.loop.time()))
                backoff.begin_round()
                error = await self._round()
                if error is None:
                    return
                if self._refused:
                    kind = AuthenticationFailed if isinstance(error, AuthenticationFailed) else ConnectionFailed
                    why = f"{lost.message}, and could not be restored: {error}"
                    told = error if isinstance(error, ConnectionFailed) else lost
                    core.give_up(Failure(kind, why, told.condition, told.description, remote=True))
                elif (within := backoff.exhausted(self.loop.time())) is not None:
                    why = f"{lost.message}, and could not be restored within {within}: {error}"
                    core.give_up(Failure(ConnectionLost, why, lost.condition, lost.description, remote=True))
        except BaseException:
            if core.interrupted:  # cancelled, with the loop, or failed in a way that nobody thought of
                core.give_up(lost)
            raise

    def _tell(self, kind: ConnectionEventKind, reason: str | None = None, outage_s: float = 0.0) -> None:
        on_event = self.settings.on_event
        if on_event is None:
            return
        rounds = self._backoff.rounds if kind is ConnectionEventKind.RESTORED or self._lost_at is not None else 0
        try:
            on_event(ConnectionEvent(kind, self._where, reason, rounds, outage_s))
        except Exception:
            logger.exception("on_event failed at %s", kind.name)

    @property
    def _where(self) -> str:
        assert self.wire is not None
        return self.wire.target.where


def ssl_context_for(
    target: ConnectTarget, given: ssl.SSLContext | None, *, in_band: bool = False
) -> ssl.SSLContext | None:
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
    """Return the properties that we show to every peer (2.7.1)."""
    return {
        "product": "acquit",
        "version": version(),
        "platform": f"Python {platform.python_version()}",
    }


async def open_driver(
    urls: Urls,
    container_id: str | None,
    username: str | None,
    password: str | None,
    ssl_context: ssl.SSLContext | None,
    options: ConnectOptions | None,
    kinds: Kinds,
    *,
    threads: bool,
    on_event: Listener | None = None,
) -> Driver:
    """Connect, for either API: `threads` says where user code will call from."""
    for name, value in (("container_id", container_id), ("username", username), ("password", password)):
        check_text(name, value)
    if on_event is not None:
        check_callable("on_event", on_event, "event")
        if inspect.iscoroutinefunction(on_event):
            raise ConfigurationError(f"on_event is called and not awaited, got the coroutine function {on_event!r}")
    options = options if options is not None else ConnectOptions()
    if not isinstance(options, ConnectOptions):
        raise ConfigurationError(f"options must be a ConnectOptions, got {options!r}")
    places = parse_urls(urls, options.reconnect).authenticated(username, password)
    driver = Driver(
        places,
        WireSettings(
            container_id=container_id if container_id is not None else f"acquit-{uuid.uuid4()}",
            options=options,
            kinds=kinds,
            ssl_context=ssl_context,
            named=container_id is not None,
            threads=threads,
            on_event=on_event,
        ),
    )
    await driver.connect()
    return driver

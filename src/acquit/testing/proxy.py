"""A proxy between a client and a broker that understands frames and does harm on command.

Theory of operation. The proxy runs on an event loop and a thread of its own. Its methods may be called from any thread
and return when what they ask for is so: a rule that was set hears the next frame, a connection that was cut is cut.
Frames are recorded on the loop and read by the tests' threads, under one lock.

A port that refuses is held: its listening socket is replaced by one that is bound to the same port and does not listen,
so that nobody else gets the port and a connect fails as it does where no program listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

from acquit.client.url import parse_url
from acquit.errors import AcquitError
from acquit.testing.frames import SIDES, PassedFrame, Selection, Side
from acquit.testing.recording import Recording
from acquit.testing.rules import Place, Rule
from acquit.testing.wire import AT_ONCE, Pace, ProxiedConnection, ProxyState

T = TypeVar("T")

FRAMES_MAX: Final = 100_000
BYTES_MAX: Final = 1 << 26
CONNECT_TIMEOUT_S: Final = 10.0
ORDER_TIMEOUT_S: Final = 60.0
"""An order to the loop waits for nothing but the loop: it is stuck when it takes so long."""


class Proxy:
    """A TCP proxy on 127.0.0.1 and a free port, for tests that need a bad network.

    ::

        with acquit.Broker() as broker, Proxy(broker.url) as proxy, acquit.connect(proxy.url) as connection:
            proxy.after("transfer", 3, by="client").cut()
            ...

    `url`: where the broker is. `before`, `within` and `after` select a frame that is to come, and what is to happen
    there; `cut`, `stall`, `delay`, `throttle`, `refuse` act at once. `frames` are those that have passed; the latest
    `frames_max` (100,000) or `bytes_max` (64 MiB) of them are kept. TLS passes as octets without frames: then only what
    acts at once works.

    Methods may be called from any thread. Raises ConfigurationError for a URL that cannot be read.
    """

    def __init__(self, url: str, *, frames_max: int = FRAMES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._target = url
        self._broker = _host_and_port(url)
        self._recording = Recording(frames_max, bytes_max)
        self._count = 0
        self._wires: set[ProxiedConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._door = _bind(0)
        self._port: int = self._door.getsockname()[1]
        self._accepting = False
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="acquit-proxy", daemon=True)
        self._thread.start()
        self._control = self._order(lambda: ProxyState(self._recording))
        self._order(self._accept)

    # -- where it is, and where the broker is --------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """Port on which the proxy listens."""
        return self._port

    @property
    def url(self) -> str:
        """URL for clients: the broker's URL, user and password included, with the proxy's host and port."""
        parts = urlsplit(self._target)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit((parts.scheme, f"{user}{at}127.0.0.1:{self._port}", *parts[2:]))

    def retarget(self, url: str) -> None:
        """The broker is elsewhere now: connections to come go there. Those that are open stay."""
        broker = _host_and_port(url)
        self._target, self._broker = url, broker

    # -- what has passed -----------------------------------------------------------------------------------------------

    @property
    def frames(self) -> list[PassedFrame]:
        """All that have passed, in the order of passing. A frame that was cut is not among them."""
        return self._recording.all()

    def passed(
        self,
        name: str | None = None,
        /,
        *,
        by: Side | None = None,
        where: Callable[[PassedFrame], bool] | None = None,
        **fields: object,
    ) -> list[PassedFrame]:
        """The frames among `frames` that are meant; see `before` for how they are selected."""
        return list(filter(Selection(name, by, where, fields), self.frames))

    def wait_for(
        self,
        name: str | None = None,
        n: int = 1,
        /,
        *,
        by: Side | None = None,
        where: Callable[[PassedFrame], bool] | None = None,
        timeout_s: float = 10.0,
        **fields: object,
    ) -> PassedFrame:
        """Wait until the `n`-th frame that is meant has passed, those counted that have passed already; gives it.

        Frames are selected as in `before`. Raises TimeoutError when it has not passed within `timeout_s`.
        """
        return self._recording.wait_for(Selection(name, by, where, fields), n, timeout_s)

    def forget(self) -> None:
        """Empty `frames`."""
        self._recording.forget()

    @property
    def connections(self) -> int:
        """Number of connections that are open through the proxy. A connection on its way to the broker does not count
        yet."""
        return self._order(lambda: sum(not wire.over for wire in self._wires))

    # -- what is to happen at a frame ----------------------------------------------------------------------------------

    def before(
        self,
        name: str | None = None,
        n: int = 1,
        /,
        *,
        by: Side | None = None,
        where: Callable[[PassedFrame], bool] | None = None,
        **fields: object,
    ) -> Point:
        """The moment before the `n`-th frame from now that is meant passes; say what is to happen there.

        `name`: of the performative, as the specification writes it (``transfer``, ``sasl-init``), ``header`` for a
        protocol header, ``empty`` for a heartbeat, ``declare`` or ``discharge`` for the transfer that brings it; None
        is any. `by`: ``"client"`` or ``"broker"``, who sends it. `fields`: what its fields must be, under their names
        in Python (``settled=True``, ``role=Role.RECEIVER``); a class means any of its instances
        (``state=TransactionalState``). `where`: a function that says yes to the frame. Frames are counted over all
        connections. Raises ValueError for names and fields that do not exist.
        """
        return Point(self, Place.BEFORE, Selection(name, by, where, fields), n)

    def within(
        self,
        name: str | None = None,
        n: int = 1,
        /,
        *,
        by: Side | None = None,
        where: Callable[[PassedFrame], bool] | None = None,
        **fields: object,
    ) -> HalfPoint:
        """Return the point where a part of the frame has passed; otherwise as `before`."""
        return HalfPoint(self, Selection(name, by, where, fields), n)

    def after(
        self,
        name: str | None = None,
        n: int = 1,
        /,
        *,
        by: Side | None = None,
        where: Callable[[PassedFrame], bool] | None = None,
        **fields: object,
    ) -> Point:
        """Return the point where the last octet of the frame has passed and nothing that follows it; otherwise as
        `before`."""
        return Point(self, Place.AFTER, Selection(name, by, where, fields), n)

    # -- what happens now ----------------------------------------------------------------------------------------------

    def cut(self, *, reset: bool = False) -> None:
        """End all connections on both sides. What has passed is read by its peer before the end; with `reset`, the
        sockets are reset and what had passed last may be lost with them, as when a machine fails."""

        def cut() -> None:
            for wire in self._wires:
                wire.cut(reset=reset)

        self._order(cut)

    def stall(self, by: Side | None = None) -> None:
        """Let nothing pass any more, and no socket end, until `resume`: the network is gone and nobody was told. `by`:
        only what this side sends. A frame of which a part has passed already passes."""

        def stall(pace: Pace) -> None:
            pace.moving.clear()

        self._pace(by, stall)

    def resume(self) -> None:
        """Let pass what `stall` held, and what follows; no delay, no throttle."""

        def resume(pace: Pace) -> None:
            pace.delay_s, pace.bytes_per_s = 0.0, None
            pace.moving.set()

        self._pace(None, resume)

    def delay(self, ms: float, by: Side | None = None) -> None:
        """Hold each chunk that is read for `ms` milliseconds before it passes. 0: no delay."""

        def delay(pace: Pace) -> None:
            pace.delay_s = ms / 1000

        self._pace(by, delay)

    def throttle(self, bytes_per_s: float | None, by: Side | None = None) -> None:
        """Pass at most so much in each direction of each connection. None: no limit."""
        if bytes_per_s is not None and bytes_per_s <= 0:
            raise ValueError(f"bytes_per_s must be more than 0, got {bytes_per_s}; stall() stops everything")

        def throttle(pace: Pace) -> None:
            pace.bytes_per_s = bytes_per_s

        self._pace(by, throttle)

    def refuse(self) -> None:
        """Refuse new connections, as a machine does where no program listens. Those that are open stay."""
        self._order(self._refuse)

    def accept(self) -> None:
        """Take new connections again after `refuse`."""
        self._order(self._accept)

    def close(self) -> None:
        """Cut everything off and stop listening. Twice is once.

        Raises what a function given to `call` raised, where nobody has waited for its rule.
        """
        if self._closed:
            return
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(ORDER_TIMEOUT_S)
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for rule in self._control.fired:
            rule.raise_failure()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # What the test itself has raised tells more.
        with contextlib.suppress(Exception) if kind is not None else contextlib.nullcontext():
            self.close()

    # -- the loop's side -----------------------------------------------------------------------------------------------

    def _set(
        self,
        place: Place,
        selection: Selection,
        n: int,
        act: Callable[[ProxiedConnection, PassedFrame], Awaitable[None]],
    ) -> Rule:
        rule = Rule(place, selection, n, act, self._cancel)
        self._order(lambda: self._control.rules.append(rule))
        return rule

    def _cancel(self, rule: Rule) -> bool:
        def cancel() -> bool:
            in_time = rule in self._control.rules
            if in_time:
                self._control.rules.remove(rule)
            return in_time

        return self._order(cancel)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def _order(self, work: Callable[[], T]) -> T:
        """Call `work` on the loop, and wait for its result."""
        if self._closed:
            raise AcquitError("this proxy is closed")

        async def do() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(do(), self._loop).result(ORDER_TIMEOUT_S)

    def _pace(self, by: Side | None, change: Callable[[Pace], None]) -> None:
        if by is not None and by not in SIDES:
            raise ValueError(f"what passes is sent by 'client' or 'broker', not by {by!r}")

        def apply() -> None:
            for side in SIDES if by is None else (by,):
                change(self._control.paces[side])

        self._order(apply)

    def _refuse(self) -> None:
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._door.fileno())
            self._door.close()
            self._door = _bind(self._port)

    def _accept(self) -> None:
        if not self._accepting:
            self._accepting = True
            self._door.listen(128)
            self._loop.add_reader(self._door.fileno(), self._take_in)

    def _take_in(self) -> None:
        # Without an await: a coroutine that is cancelled here could have a socket in its hands.
        try:
            client, _ = self._door.accept()
        except OSError:  # it has gone again
            return
        task = self._loop.create_task(self._serve(self._count, client))
        self._count += 1
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            # Not in the coroutine: one that is cancelled before its first step never runs.
            client.close()
            self._tasks.discard(task)

        task.add_done_callback(ended)

    async def _serve(self, number: int, client: socket.socket) -> None:
        client.setblocking(False)
        try:
            broker = await self._connect()
        except OSError:
            return
        except asyncio.CancelledError:  # the end of the proxy: this one is cut off as all the others are
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            raise
        wire = ProxiedConnection(number, client, broker, self._control)
        self._wires.add(wire)
        try:
            await wire.run()
        finally:
            self._wires.discard(wire)

    async def _connect(self) -> socket.socket:
        # On a thread, because a name may have several addresses and finding them blocks.
        connecting = self._loop.run_in_executor(None, socket.create_connection, self._broker, CONNECT_TIMEOUT_S)
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                (await connecting).close()
            raise

    async def _end(self) -> None:
        self._refuse()
        self._door.close()
        for pace in self._control.paces.values():
            pace.moving.set()
        for wire in list(self._wires):
            wire.cut(reset=True)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


class Point:
    """A moment that is to come, before or after a frame. Each verb sets a rule and returns it."""

    def __init__(self, proxy: Proxy, place: Place, selection: Selection, n: int) -> None:
        self._proxy = proxy
        self._place = place
        self._selection = selection
        self._n = n

    def cut(self, *, reset: bool = False) -> Rule:
        """End that frame's connection there, on both sides; see `Proxy.cut`."""

        async def act(wire: ProxiedConnection, frame: PassedFrame) -> None:
            wire.cut(reset=reset)

        return self._set(act)

    def stall(self) -> Rule:
        """Let nothing pass any more from there on, in neither direction and on no connection, until `Proxy.resume`."""

        async def act(wire: ProxiedConnection, frame: PassedFrame) -> None:
            for pace in self._proxy._control.paces.values():
                pace.moving.clear()

        return self._set(act)

    def call(self, function: Callable[[PassedFrame], object]) -> Rule:
        """Call `function` with the frame there, on a thread of its own; that direction waits for its return.

        It may do anything: kill a process, look into a broker, cut or stall the proxy. What it raises is raised by
        `Rule.wait`, or when the proxy is closed.
        """

        async def act(wire: ProxiedConnection, frame: PassedFrame) -> None:
            await asyncio.get_running_loop().run_in_executor(None, function, frame)

        return self._set(act)

    def _set(self, act: Callable[[ProxiedConnection, PassedFrame], Awaitable[None]]) -> Rule:
        return self._proxy._set(self._place, self._selection, self._n, act)


class HalfPoint:
    """A moment that is to come, in the middle of a frame."""

    def __init__(self, proxy: Proxy, selection: Selection, n: int) -> None:
        self._proxy = proxy
        self._selection = selection
        self._n = n

    def cut(self, octets: int | None = None, *, reset: bool = False) -> Rule:
        """Pass so many octets of the frame (half of it), then end its connection on both sides; see `Proxy.cut`."""

        async def act(wire: ProxiedConnection, frame: PassedFrame) -> None:
            await wire.cut_within(frame, frame.size // 2 if octets is None else octets, reset=reset)

        return self._proxy._set(Place.WITHIN, self._selection, self._n, act)


def _bind(port: int) -> socket.socket:
    door = socket.socket()
    door.setblocking(False)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind(("127.0.0.1", port))
    return door


def _host_and_port(url: str) -> tuple[str, int]:
    target = parse_url(url)
    return target.host, target.port

"""Moves bytes between one socket and one `protocol.Connection`, for client and broker alike.

Theory of operation. asyncio calls the pump when bytes, writability, the end of the stream or a deadline arrive. The
pump hands bytes to the engine, the engine's events to its handler, and whatever the engine then has to say back to
the socket::

    socket ─ data_received ─▶ engine.receive_data ─ events ─▶ handler.handle
    socket ◀─ one write ──── flush ◀─ engine.data_to_send ◀─ touch() by anyone who used a verb of the engine

`touch` schedules at most one `flush` for the next turn of the loop, so that all that one wake-up produced, for this
connection and for others, leaves in one write each: a system call costs as much as several messages. What input
produced for its own connection is all there when it has been handled, and leaves at once, which spares whoever waits
for it a turn of the loop. What it produced for others is there by then too: where that is little (`touch_promptly`),
it leaves before it, for who receives a message waits longer than who sent it.

Fairness. Where the engine takes its input in turns (`ConnectionOptions.turn_cost_max`), the rest of it has its turn
after all other connections that have something: in the next round of the loop. Nothing is read from the peer meanwhile,
so that the kernel's buffers fill and it has to wait: it, and nobody else.

Backpressure, both ways. When the socket takes no more, asyncio says `pause_writing`: the pump stops asking the engine
for output and tells the handler, who stops producing. What the *peer* can make the engine produce (answers) is bounded
by not reading from a peer that does not read: past `output_bytes_max` the pump pauses reading until the output is
written. Bytes that came in need no bound here: the engine and its windows have theirs.

The end. Whatever happens, the engine gives exactly one `ConnectionEnded`, and then `handler.on_closed` is called once,
last of all. What came before a socket failed is heard before, in the same turns, also what nobody had read (`unread`).
Where thousands of sockets may end in the same moment, a few of them do so in each round of the loop (`turnstile`). When
the engine is `closed` the rest of the output is written and the socket closed; a peer that does not take the rest
within `linger_ms` is cut off.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import threading
from asyncio.trsock import TransportSocket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, cast

from acquit.errors import ConfigurationError
from acquit.protocol.connection import Connection
from acquit.protocol.events import Event
from acquit.transport.reasons import reason
from acquit.transport.turnstile import Turnstile
from acquit.transport.unread import unread

logger = logging.getLogger("acquit.transport")

READ_BYTES: Final = 256 * 1024
"""The most that is read at once."""

LITTLE_BYTES: Final = 4 * 1024
"""The most that leaves at once of what was produced for another connection: more than that comes in lots, and waits for
the rest of its lot."""

WRITES_PER_FLUSH: Final = 8
"""Chunks of large deliveries that one flush writes before other connections get their turn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PumpOptions:
    """Bounds of one socket. Raises ConfigurationError for a value below its least."""

    write_buffer_bytes: int = 512 * 1024
    """Bytes that may wait in the socket's buffer before writing pauses."""

    output_bytes_max: int = 1024 * 1024
    """Bytes that may wait in the engine while writing is paused before we stop reading from the peer."""

    linger_ms: int = 5_000
    """Milliseconds that a closed connection waits for the peer to take the last bytes."""

    late_ms: int = 2_000
    """A deadline that is served this late is worth a warning: the loop was blocked, and heartbeats with it."""

    def __post_init__(self) -> None:
        for name in ("write_buffer_bytes", "output_bytes_max", "linger_ms", "late_ms"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, got {getattr(self, name)!r}")


class Handler(Protocol):
    """An object that acts on what the peer did. All calls come from the loop; while it handles events, `on_writable` of
    another pump may come, where it has that write at once."""

    def handle(self, events: list[Event]) -> None:
        """Act on events, in order. Verbs used meanwhile need no `touch`: the pump flushes after this."""
        ...

    def on_writable(self, writable: bool) -> None:
        """The socket takes no more (False), or does again (True). Stop producing meanwhile."""
        ...

    def on_closed(self) -> None:
        """The socket is gone. The last call, after the event ConnectionEnded."""
        ...


def as_stream(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """Return the transport that a stream protocol is given. Other event loops' (uvloop's) are like asyncio's, and of
    no class of it."""
    return cast("asyncio.Transport", transport)


class _Nobody:
    """The handler of a pump whose socket is gone."""

    def handle(self, events: list[Event]) -> None:
        """Do nothing: events are not acted upon any more."""

    def on_writable(self, writable: bool) -> None:
        """Do nothing: nothing is produced any more."""

    def on_closed(self) -> None:
        """Do nothing: the end was said before."""


_NOBODY: Final = _Nobody()


class _ReadBuffer(threading.local):
    """Each thread has its own."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BYTES))


_read_buffer: Final = _ReadBuffer()


class Pump(asyncio.BufferedProtocol):
    """The life of one socket. Give it to `connect`, or make one for each connection of an `Acceptor`.

    `peer` and `local` are the two ends as ``host:port``, "?" before the socket is connected; `encrypted` says whether
    TLS protects it, and `tls_failure` why that has ended it: the peer's alert, for example; "" where it has not.
    """

    __slots__ = (
        "_cut_off",
        "_ended",
        "_exit",
        "_flush_due",
        "_go_on_due",
        "_handler",
        "_linger",
        "_loop",
        "_options",
        "_reading_paused",
        "_socket",
        "_timer",
        "_timer_at",
        "_transport",
        "_writing_paused",
        "encrypted",
        "engine",
        "local",
        "peer",
        "tls_failure",
    )

    def __init__(
        self,
        engine: Connection,
        handler: Handler,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        options: PumpOptions | None = None,
        exit_: Turnstile | None = None,
    ) -> None:
        """`exit_`: where it waits to act upon the end of its socket, among others whose sockets have ended."""
        self.engine = engine
        self._handler: Handler = handler
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._options = options if options is not None else PumpOptions()
        self.peer = "?"
        self.local = "?"
        self.encrypted = False
        self.tls_failure = ""
        self._transport: asyncio.Transport | None = None
        self._socket: TransportSocket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        """The loop's time when it is due: not each loop's handles know."""
        self._linger: asyncio.TimerHandle | None = None
        self._flush_due = False
        self._go_on_due = False
        self._writing_paused = False
        self._reading_paused = False
        self._ended = False
        self._cut_off = False
        self._exit = exit_

    # -- for the owner -------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """The socket is gone; `Handler.on_closed` was called, or is about to be."""
        return self._ended

    @property
    def writable(self) -> bool:
        """The socket takes more: what is produced now leaves with the next flush."""
        return not self._writing_paused

    @property
    def connected(self) -> bool:
        """True if there is, or was, a socket. A TLS handshake that fails never comes so far."""
        return self._transport is not None or self._ended

    def fileno(self) -> int | None:
        """The socket's descriptor, or None while there is none."""
        return None if self._socket is None or self._socket.fileno() < 0 else int(self._socket.fileno())

    def touch(self) -> None:
        """The engine has something new to say, or a new deadline: flush in the next turn of the loop."""
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self.flush)

    def touch_promptly(self) -> None:
        """Do as `touch` does, and let what little there is leave now. What comes after it in this turn of the loop
        leaves at the end of that, in one write."""
        if self._flush_due:
            return
        engine = self.engine
        if engine.closed or engine.dirty or engine.output_bytes > LITTLE_BYTES:
            self.touch()  # what is closed: `resume_writing`; what is dirty may have large deliveries to write
            return
        try:
            self.flush()
        except Exception as error:  # noqa: BLE001 - whoever produced this is another connection
            self.abort()
            self._loop.call_exception_handler({"message": "a connection could not be written", "exception": error})
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush_rest)

    def flush(self) -> None:
        """Write what the engine has to say, now, as far as the socket takes it."""
        self._flush_due = False
        transport = self._transport
        if transport is None or self._ended:
            return
        engine = self.engine
        if not self._writing_paused:
            self._write(transport, engine)
        if engine.closed:
            self._finish(transport, engine)
        elif engine.input_waits and not self._go_on_due:
            self._go_on_due = True
            self._loop.call_soon(self._go_on)
        self._look_at_reading()
        deadline = engine.next_deadline()
        if deadline is not None and deadline < self._timer_at:
            self._arm(deadline)

    def release(self) -> None:
        """Let go of the handler, who knows the pump, and of what the engine holds (see `Connection.release`). Done by
        itself when the socket is gone; for the owner of a pump that was never connected."""
        self._handler = _NOBODY
        self.engine.release()

    def buffered_bytes(self) -> int:
        """Return how many bytes of output wait in the socket's buffer."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """Cut the connection off without a word. The handler hears ConnectionEnded with `lost`, and nothing before."""
        self._cut_off = True
        if self._transport is not None:
            self._transport.abort()

    # -- called by asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected (and TLS, if any, agreed)."""
        self._transport = as_stream(transport)
        self._socket = transport.get_extra_info("socket")
        self.peer = endpoint_name(transport.get_extra_info("peername"))
        self.local = endpoint_name(transport.get_extra_info("sockname"))
        self.encrypted = transport.get_extra_info("ssl_object") is not None
        self._transport.set_write_buffer_limits(high=self._options.write_buffer_bytes)
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the place for what is read: one for all connections of a thread, for it is taken at once. A buffer for
        each read, as large as the largest read, would cost as much as a small message."""
        return _read_buffer.view

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes from the peer that are in the buffer."""
        self.data_received(bytes(_read_buffer.view[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Bytes from the peer."""
        due, self._flush_due = self._flush_due, True  # no turn for what leaves at the end of this
        events = self.engine.receive_data(data, self._loop.time())
        if events:
            self._handle(events)
        if due:
            self._look_at_reading()
            return
        self._flush_rest()

    def eof_received(self) -> bool:
        """The peer will send no more. Nothing in AMQP can follow, so the socket is closed after the output."""
        self.flush()
        self._leave(self._hear_eof)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone. Its transport, TLS's above all, may know the pump: to keep it would keep both until
        Python's collector runs."""
        self._ended = True
        over: Callable[[], None] = self._over
        try:
            if not self._writing_paused:
                self.pause_writing()  # nothing must be produced while the end waits for its turn
            if self._transport is not None and isinstance(exc, OSError):  # else it was closed here, or cut off
                rest = unread(self._transport)
                if rest or self.engine.input_waits:
                    over = partial(self._hear_rest, rest)
        finally:
            self._transport = None
            if isinstance(exc, ssl.SSLError):
                self.tls_failure = reason(exc)
            for timer in (self._timer, self._linger):
                if timer is not None:
                    timer.cancel()
            self._timer = self._linger = None
            self._leave(over)

    def pause_writing(self) -> None:
        """The socket's buffer is full."""
        self._writing_paused = True
        self._handler.on_writable(False)

    def resume_writing(self) -> None:
        """The socket's buffer has room again."""
        self._writing_paused = False
        self._handler.on_writable(True)
        if self.engine.closed:
            self.touch()  # asyncio calls us in the middle of a write; what is closed there, it closes twice
        else:
            self.flush()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _leave(self, call: Callable[[], None]) -> None:
        if self._exit is None:
            call()
        else:
            self._exit.enter(call)

    def _hear_eof(self) -> None:
        if not self._ended:  # else `_over` is next
            self._handle(self.engine.receive_eof(self._loop.time()))
            self.flush()

    def _hear_rest(self, rest: bytes) -> None:
        """Hear what came before the loss, in as many turns as the engine takes for it, and then the loss."""
        if self._cut_off:
            self._over()
            return
        try:
            self._handle(self.engine.receive_data(rest, self._loop.time()))
        except BaseException:
            self._over()
            raise
        if self.engine.input_waits:
            self._loop.call_soon(self._leave, partial(self._hear_rest, b""))
        else:
            self._over()

    def _over(self) -> None:
        try:
            self._handle(self.engine.receive_eof(self._loop.time()))
        finally:
            self._handler.on_closed()
            self.release()

    def _handle(self, events: list[Event]) -> None:
        if not events:
            return
        try:
            self._handler.handle(events)
        except BaseException:
            # Events half acted upon: nothing that follows on this connection could be trusted.
            self.abort()
            raise

    def _flush_rest(self) -> None:
        self._flush_due = False
        if self._wants_flush():
            self.flush()

    def _wants_flush(self) -> bool:
        """Return True if `flush` has something to do. Often not: the peer has answered, and that needs no answer."""
        engine = self.engine
        if engine.has_output or engine.closed or engine.input_waits or self._reading_paused:
            return True
        deadline = engine.next_deadline()
        return deadline is not None and deadline < self._timer_at

    def _write(self, transport: asyncio.Transport, engine: Connection) -> None:
        for _ in range(WRITES_PER_FLUSH):
            if data := engine.data_to_send():
                transport.write(data)
            if self._writing_paused or not engine.has_output:
                return
        self.touch()

    def _go_on(self) -> None:
        """Let the engine take more of its input: it is this connection's turn again."""
        self._go_on_due = False
        if not self._ended:
            self.data_received(b"")

    def _look_at_reading(self) -> None:
        """Read no more while the engine has input left, nor while the peer takes none of what it makes us say."""
        engine, transport = self.engine, self._transport
        hold_back = engine.input_waits or (
            self._writing_paused and (self._reading_paused or engine.output_bytes > self._options.output_bytes_max)
        )
        if hold_back is self._reading_paused or transport is None or self._ended:
            return
        self._reading_paused = hold_back
        if hold_back:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _finish(self, transport: asyncio.Transport, engine: Connection) -> None:
        if not engine.has_output:
            transport.close()
        if self._linger is None:
            self._linger = self._loop.call_later(self._options.linger_ms / 1000, transport.abort)

    def _arm(self, deadline: float) -> None:
        # One timer, left in place while deadlines move later (each received frame moves them): it fires early then,
        # which costs one call, where moving it would cost one for each frame.
        if self._timer is not None:
            self._timer.cancel()
        due = max(deadline, self._loop.time())  # or what is asked for now would count as late
        self._timer, self._timer_at = self._loop.call_at(due, self._on_deadline), due

    def _on_deadline(self) -> None:
        now = self._loop.time()
        late_s = now - self._timer_at
        self._timer, self._timer_at = None, math.inf
        if late_s * 1000 > self._options.late_ms:
            logger.warning(
                "the event loop was blocked for %.1f s: heartbeats to %s were not sent meanwhile, and the peer may "
                "take us for dead; run long computations in a thread",
                late_s,
                self.peer,
            )
        self._handle(self.engine.handle_deadline(now))
        self.flush()


def endpoint_name(address: object) -> str:
    """A socket address as people write it: ``127.0.0.1:5672``, ``[::1]:5672``, a path; "?" for none."""
    match address:
        case (str(host), int(port), *_):
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        case str(path) if path:
            return path
        case _:
            return "?"

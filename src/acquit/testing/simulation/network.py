"""A network in memory between processes: it delays, splits, stalls, cuts at any byte, and half-closes.

A `TcpConnection` has two `Pipe`s, each with the `TcpEnd` that writes and the one that reads. Bytes that an end writes
arrive later, in pieces of drawn sizes, in order. An end whose process is killed closes, as the kernel would do it:
what it had written still arrives. A link that is *cut* loses what is under way, and its ends notice when they notice,
each for itself, or never. What had arrived by then is read before, or is still in the socket of an end that notices.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import IO, Any

from acquit.testing.simulation.loops import Process, Scheduler

HIGH_BYTES = 64 * 1024
PIECES_MAX = 8
"""Small pieces in which a write arrives, followed by the rest of it: more would cost time and show nothing new."""


@dataclass
class Weather:
    """The faults of the network, drawn for each run. All of them are off in the end, when everything must come to
    rest."""

    latency_s: float = 0.000_2
    jitter_s: float = 0.001
    piece_bytes_max: int = 1 << 20
    """Writes arrive in pieces of at most this size."""


class TcpEnd(asyncio.Transport):
    """An end of a link, as its process sees it."""

    def __init__(
        self, link: TcpConnection, process: Process, protocol: Any, local: tuple[str, int], peer: tuple[str, int]
    ) -> None:
        super().__init__({"peername": peer, "sockname": local})
        self.link = link
        self.process = process
        self._protocol = protocol
        self._closing = False
        self._lost = False
        self._paused = False
        self._writing_paused = False
        self._high = HIGH_BYTES
        self.unread = b""
        """Bytes that have arrived, and are still in the socket when the end is lost."""
        self._socket: IO[bytes] | None = None
        self.out: Pipe = None  # type: ignore[assignment]
        self.into: Pipe = None  # type: ignore[assignment]

    # -- asyncio's transport -------------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket if name == "socket" else super().get_extra_info(name, default)

    def write(self, data: Any) -> None:
        if self._closing or self._lost or not data:
            return
        self.out.put(bytes(data))
        if self.out.size > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else HIGH_BYTES

    def get_write_buffer_size(self) -> int:
        return self.out.size

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self.into.pump_soon()

    def is_reading(self) -> bool:
        return not self._paused

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def close(self) -> None:
        if not self._closing and not self._lost:
            self._closing = True
            self.out.end()
            self.process.call_soon(self._maybe_lost)

    def abort(self) -> None:
        if not self._lost:
            self._closing = True
            self.out.reset()
            self.process.call_soon(self.lose, None)

    # -- for the link --------------------------------------------------------------------------------------------------

    def _maybe_lost(self) -> None:
        """Report the loss of the connection if it was closed, and all that was written has gone."""
        if self._closing and not self.out.size:
            self.lose(None)

    def written(self) -> None:
        """The other side has taken something."""
        if self._closing:
            self._maybe_lost()
        elif self._writing_paused and self.out.size <= self._high // 4 and not self._lost:
            self._writing_paused = False
            self._protocol.resume_writing()

    def take(self, data: bytes) -> int:
        """Hand bytes to the protocol; how many it took."""
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            with memoryview(self._protocol.get_buffer(-1)) as buffer:
                count = min(len(buffer), len(data))
                buffer[:count] = data[:count]
            self._protocol.buffer_updated(count)
            return count
        self._protocol.data_received(data)
        return len(data)

    def ended(self) -> None:
        """The other side will write no more."""
        if not self._lost and not self._closing and not self._protocol.eof_received():
            self.close()

    def lose(self, why: Exception | None) -> None:
        """The socket is gone."""
        if self._lost:
            return
        self._lost = True
        if self._protocol is None:  # nobody has accepted it yet
            return
        with tempfile.TemporaryFile(buffering=0) if self.unread else nullcontext() as self._socket:
            if self._socket is not None:
                self._socket.write(self.unread)
                self._socket.seek(0)
            self._protocol.connection_lost(why)

    @property
    def takes(self) -> bool:
        return self._protocol is not None and not self._paused and not self._lost and not self.process.dead

    @property
    def gone(self) -> bool:
        return self._lost or self.process.dead


class Pipe:
    """A direction of a link."""

    def __init__(self, scheduler: Scheduler, weather: Weather, source: TcpEnd, sink: TcpEnd) -> None:
        self._scheduler = scheduler
        self._weather = weather
        self._source = source
        self._sink = sink
        self._chunks: deque[bytes] = deque()
        self.size = 0
        self._due = False
        self._ended = False
        self._end_told = False
        self._held_until = 0.0
        self._pieces = 0
        self.broken = False

    def put(self, data: bytes) -> None:
        """Bytes under way."""
        self._chunks.append(data)
        self.size += len(data)
        self.pump_soon()

    def put_behind(self, data: bytes) -> None:
        """Let these bytes arrive in one piece with all that is under way, as if they had been written with it."""
        self._chunks = deque([b"".join(self._chunks) + data])
        self.size += len(data)
        self.pump_soon()

    def carries(self, words: bytes) -> bool:
        """True if these bytes are under way, in one piece."""
        return any(words in chunk for chunk in self._chunks)

    def end(self) -> None:
        """No more will come."""
        self._ended = True
        self.pump_soon()

    def hold(self, seconds: float) -> None:
        """Let bytes under way, and those that follow, arrive no earlier than in `seconds`."""
        self._held_until = self._scheduler.now + seconds

    def reset(self) -> None:
        """The sender cut it off: what is under way is lost, and the other side is told."""
        self._chunks.clear()
        self.size = 0
        self.end()

    def pump_soon(self) -> None:
        if not self._due and not self.broken and not self._sink.process.dead:
            self._due = True
            weather = self._weather
            delay_s = weather.latency_s + self._scheduler.rng.random() * weather.jitter_s
            self._sink.process.call_later(delay_s, self._arrive)

    def _arrive(self) -> None:
        self._due = False
        sink = self._sink
        if self.broken or not sink.takes:
            return
        if self._scheduler.now < self._held_until:
            self._due = True
            self._sink.process.call_later(self._held_until - self._scheduler.now, self._arrive)
            return
        if self._chunks:
            data = self._chunks.popleft()
            most = self._weather.piece_bytes_max
            if len(data) > most and self._pieces < PIECES_MAX:
                self._pieces += 1
                size = 1 + int(self._scheduler.rng.random() * most)
                self._chunks.appendleft(data[size:])
                data = data[:size]
            else:
                self._pieces = 0
            taken = sink.take(data)
            if taken < len(data):
                self._chunks.appendleft(data[taken:])
            self.size -= taken
            if not self._source.process.dead:
                self._source.process.call_soon(self._source.written)
        if self._chunks:
            self.pump_soon()
        elif self._ended and not self._end_told:
            self._end_told = True
            sink.ended()

    def cut(self, after: int, *, unread: bool = False) -> None:
        """Cut the direction: `after` bytes of those under way still arrive, and nothing after them. `unread`: they stay
        in the socket."""
        data = b"" if self.broken else b"".join(self._chunks)[:after]
        self.broken = True
        self._chunks.clear()
        self.size = 0
        if unread:
            self._sink.unread = data
        elif data and self._sink.takes:
            self._sink.process.call_soon(self._last_words, data)

    def _last_words(self, data: bytes) -> None:
        while data and self._sink.takes:
            data = data[self._sink.take(data) :]


class TcpConnection:
    """A connection between two processes."""

    def __init__(self, network: Network, client: Process, server: Process, port: int, protocol: Any) -> None:
        here, there = ("127.0.0.1", port), ("127.0.0.1", 5672)
        self._network = network
        self.client = TcpEnd(self, client, protocol, here, there)
        self.server = TcpEnd(self, server, None, there, here)
        scheduler, weather = network.scheduler, network.weather
        up = Pipe(scheduler, weather, self.client, self.server)
        down = Pipe(scheduler, weather, self.server, self.client)
        self.client.out = self.server.into = up
        self.client.into = self.server.out = down

    def setblocking(self, flag: bool) -> None:
        """Do nothing. Servers call it on a socket that they have accepted."""

    def die(self, end: TcpEnd) -> None:
        """The process of this end is gone: its kernel closes the socket."""
        end.out.end()
        other = self.server if end is self.client else self.client
        # Nobody reads what was sent to it: a reset.
        if end.into.size and not other.process.dead:
            other.process.call_later(self._network.weather.latency_s, other.lose, ConnectionResetError())

    def cut(self, *, notices: tuple[bool, bool], unread: bool = False) -> None:
        """Lose what is under way. `notices`: whether the client, and the server, hear of it at all. `unread`: they read
        nothing more before, as where a write fails."""
        rng = self._network.scheduler.rng
        for end, heard in zip((self.client, self.server), notices, strict=True):
            end.into.cut(int(rng.random() * (end.into.size + 1)), unread=unread)
            if heard and not end.process.dead:
                end.process.call_later(rng.random() * 0.05, end.lose, ConnectionResetError())

    @property
    def is_cut(self) -> bool:
        """True if nothing arrives any more at one end, or nobody is there, or only to write what is left."""
        server = self.server
        return self.client.into.broken or server.into.broken or server.gone or server.is_closing()

    @property
    def over(self) -> bool:
        return self.client.gone and self.server.gone


@dataclass(eq=False)
class ListeningSocket:
    """A socket that listens, once `listen` is called (as socket.socket)."""

    network: Network
    process: Process
    address: tuple[str, int]
    waiting: deque[TcpConnection] = field(default_factory=deque)
    """Connections that nobody has accepted."""

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def fileno(self) -> int:
        return id(self)

    def setblocking(self, flag: bool) -> None: ...

    def dup(self) -> ListeningSocket:
        return ListeningSocket(self.network, self.process, self.address)

    def listen(self, backlog: int) -> None:
        assert self.address not in self.network.listening
        self.network.listening[self.address] = self
        self.process.on_death.append(self.close)

    def accept(self) -> tuple[TcpConnection, tuple[str, int]]:
        if not self.waiting:
            raise BlockingIOError
        link = self.waiting.popleft()
        return link, link.client.get_extra_info("sockname")

    def close(self) -> None:
        if self.network.listening.get(self.address) is self:
            del self.network.listening[self.address]
        for link in self.waiting:
            link.die(link.server)


@dataclass
class Bound:
    """The result of `create_server` (as asyncio.Server)."""

    sockets: list[ListeningSocket]

    def close(self) -> None:
        for one in self.sockets:
            one.close()


@dataclass
class Network:
    """All listeners and links."""

    scheduler: Scheduler
    weather: Weather = field(default_factory=Weather)
    listening: dict[tuple[str, int], ListeningSocket] = field(default_factory=dict)
    links: list[TcpConnection] = field(default_factory=list)
    ports: int = 40_000

    def bind(self, process: Process, host: str, port: int) -> Bound:
        """Take an address, without listening there."""
        return Bound([ListeningSocket(self, process, (host, port))])

    async def connect(self, process: Process, factory: Callable[[], Any], host: str, port: int) -> tuple[TcpEnd, Any]:
        """A TCP handshake."""
        await asyncio.sleep(2 * self.weather.latency_s)
        listening = self.listening.get((host, port))
        if listening is None:
            raise ConnectionRefusedError(111, "Connection refused")
        self.ports += 1
        protocol = factory()
        link = TcpConnection(self, process, listening.process, self.ports, protocol)
        self.links = [one for one in self.links if not one.over]
        self.links.append(link)
        process.on_death.append(lambda: link.die(link.client))
        listening.process.on_death.append(lambda: link.die(link.server))
        listening.waiting.append(link)
        listening.process.readable(listening.fileno())
        protocol.connection_made(link.client)
        return link.client, protocol

    @staticmethod
    def accept(link: TcpConnection, factory: Callable[[], Any]) -> tuple[TcpEnd, Any]:
        """The server's end of a connection gets its protocol."""
        end = link.server
        protocol = end._protocol = factory()
        protocol.connection_made(end)
        if end._lost:  # while it waited
            end.process.call_soon(lambda: end._protocol.connection_lost(ConnectionResetError()))
        end.into.pump_soon()
        return end, protocol


__all__ = ["Network", "TcpConnection", "TcpEnd", "Weather"]

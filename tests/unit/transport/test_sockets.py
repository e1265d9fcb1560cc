"""Two engines over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self

import pytest

from acquit import transport
from acquit.errors import ConfigurationError, ConnectionFailed, ConnectTimeout
from acquit.protocol import events as ev
from acquit.protocol.composite import encode_composite
from acquit.protocol.connection import Connection
from acquit.protocol.constants import ACCEPTED, AMQP_HEADER, TLS_HEADER
from acquit.protocol.definitions import Close, Error, Open, Source, Target
from acquit.protocol.frames import encode_frame
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.options import ConnectionOptions
from acquit.transport.sockets import ACCEPTS_PER_TURN, Acceptor, HeaderReader, bind
from acquit.transport.tls import TlsStream

CERTIFICATE = Path(__file__).resolve().parents[2] / "support" / "localhost.pem"
LONG = 30.0


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LONG):
            await main()

    asyncio.run(limited())


class End:
    """One engine behind a pump. Acts as it is told, and lets a test wait for an event."""

    def __init__(self, *, server: bool, sasl: None = None) -> None:
        name = "server" if server else "client"
        now = asyncio.get_running_loop().time()
        self.engine = Connection(ConnectionOptions(container_id=name), server=server, sasl=sasl, now=now)
        self.pump = transport.Pump(self.engine, self)
        self.heard: asyncio.Queue[ev.Event] = asyncio.Queue()
        self.closed = asyncio.Event()
        self.act: Callable[[ev.Event], None] = lambda event: None

    def handle(self, events: list[ev.Event]) -> None:
        for event in events:
            self.act(event)
            self.heard.put_nowait(event)

    def on_writable(self, writable: bool) -> None:
        pass

    def on_closed(self) -> None:
        self.closed.set()

    async def hear(self, kind: type[ev.Event]) -> Any:
        while True:
            event = await self.heard.get()
            if isinstance(event, kind):
                return event


class Listener:
    """A listening socket, and the ends that came."""

    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        self.ends: list[End] = []
        self._ssl_context = ssl_context

    def _accept(self) -> transport.Pump:
        self.ends.append(End(server=True))
        return self.ends[-1].pump

    async def __aenter__(self) -> Self:
        self._acceptor = Acceptor(await bind("127.0.0.1", 0), self._accept, lambda: None, tls=lambda: self._ssl_context)
        self._acceptor.start()
        self.port = self._acceptor.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._acceptor.close()
        await self._acceptor.wait_closed()
        for end in self.ends:
            end.pump.abort()
        # Nothing may be left open, also where a handshake failed: then the loop watches only what wakes it itself.
        while len(asyncio.get_running_loop()._selector.get_map()) > 1:  # type: ignore[attr-defined]
            await asyncio.sleep(0)


async def connected(listener: Listener, **how: Any) -> tuple[End, End]:
    client = End(server=False)
    client.engine.open()
    await transport.connect(client.pump, "127.0.0.1", listener.port, **how)
    await client.hear(ev.ConnectionOpened)
    return client, listener.ends[-1]


@pytest.mark.parametrize("encrypted", [False, True])
def test_the_word_of_a_peer_that_cuts_us_off_is_heard_although_our_write_fails_first(encrypted: bool) -> None:
    async def main() -> None:
        server_context = client_context = None
        if encrypted:
            server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server_context.load_cert_chain(CERTIFICATE)
            client_context = ssl.create_default_context(cafile=str(CERTIFICATE))
        async with Listener(server_context) as listener:
            client, server = await connected(listener, ssl_context=client_context)
            await server.hear(ev.ConnectionOpened)
            await asyncio.sleep(0.01)  # all that belongs to the beginning is written and read
            client.engine.begin()
            client.pump.flush()  # and nobody reads that
            server.engine.close(Error(condition="amqp:connection:forced", description="go"))
            server.pump.flush()
            server.pump.abort()  # its socket is closed at the beginning of the next turn
            asyncio.get_running_loop().call_soon(client.engine.begin)
            asyncio.get_running_loop().call_soon(client.pump.flush)
            ended = await client.hear(ev.ConnectionEnded)
            assert (ended.remote, ended.error and ended.error.description) == (True, "go")
            await client.closed.wait()

    run(main)


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_message_goes_over(encrypted: bool) -> None:
    async def main() -> None:
        server_context = client_context = None
        if encrypted:
            server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server_context.load_cert_chain(CERTIFICATE)
            client_context = ssl.create_default_context(cafile=str(CERTIFICATE))
        async with Listener(server_context) as listener:
            client, server = await connected(listener, ssl_context=client_context)
            assert client.pump.encrypted is server.pump.encrypted is encrypted
            assert client.pump.local == server.pump.peer
            assert client.pump.fileno() != server.pump.fileno()

            def serve(event: ev.Event) -> None:
                if isinstance(event, ev.LinkRequested):
                    event.link.accept_attach()
                    assert isinstance(event.link, ReceivingLink)
                    event.link.grant(10)
                elif isinstance(event, ev.DeliveriesReceived):
                    event.link.session.settle_all(event.deliveries, ACCEPTED)

            server.act = serve
            session = client.engine.begin()
            link = session.attach_sender("l", source=Source("s"), target=Target("t"))
            client.pump.touch()
            await client.hear(ev.CreditChanged)
            assert isinstance(link, SendingLink)
            payload = b"\x00\x53\x75\xb0\x00\x10\x00\x00" + bytes(1 << 20)  # many frames, and more than a socket holds
            link.send(b"tag", payload)
            client.pump.touch()
            received = await server.hear(ev.DeliveriesReceived)
            assert received.deliveries[0].payload == payload
            answered = await client.hear(ev.StatesReceived)
            assert (answered.state, answered.settled) == (ACCEPTED, True)
            client.engine.close()
            client.pump.touch()
            for end in (client, server):
                ended = await end.hear(ev.ConnectionEnded)
                assert not ended.lost
                await end.closed.wait()
                assert end.pump.closed
                assert end.pump.fileno() is None

    run(main)


@pytest.mark.parametrize("size", [10_000, 60_000, 200_000])
@pytest.mark.parametrize("polite", [True, False])
def test_all_that_came_over_tls_before_the_end_is_heard(polite: bool, size: int) -> None:
    """A peer says everything at once, and goes: with TLS's farewell, or without it. Nothing of that may be left
    behind."""
    said = [AMQP_HEADER, encode_frame(0, encode_composite(Open(container_id="k"))), bytes.fromhex("0000000802000000")]
    heartbeats = said[2] * (size // 8)

    def speak(port: int) -> None:
        raw = socket.create_connection(("127.0.0.1", port))
        trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
        with trusting.wrap_socket(raw, server_hostname="localhost") as encrypted:
            encrypted.sendall(said[0] + said[1] + heartbeats + encode_frame(0, encode_composite(Close())))
            if polite:
                encrypted.setblocking(False)
                with contextlib.suppress(ssl.SSLError):
                    encrypted.unwrap()
            raw_end = encrypted.detach()
        with socket.socket(fileno=raw_end) as ended:
            ended.shutdown(socket.SHUT_WR)
            ended.settimeout(LONG)
            while ended.recv(65_536):
                pass

    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        async with Listener(context) as listener:
            speaking = asyncio.get_running_loop().run_in_executor(None, speak, listener.port)
            while not listener.ends:
                await asyncio.sleep(0.001)
            (server,) = listener.ends
            ended = await server.hear(ev.ConnectionEnded)
            assert not ended.lost, "its close was heard"
            await server.closed.wait()
            await speaking

    run(main)


def test_a_cut_connection_is_lost_at_the_other_end() -> None:
    async def main() -> None:
        async with Listener() as listener:
            client, server = await connected(listener)
            client.pump.abort()
            for end in (client, server):
                assert (await end.hear(ev.ConnectionEnded)).lost
                await end.closed.wait()

    run(main)


def test_nobody_listens() -> None:
    async def main() -> None:
        async with Listener() as listener:
            port = listener.port
        with pytest.raises(ConnectionFailed, match=f"cannot connect to 127.0.0.1:{port}: Connection refused"):
            await transport.connect(End(server=False).pump, "127.0.0.1", port)

    run(main)


def test_a_handshake_that_takes_too_long() -> None:
    async def main() -> None:
        gone = asyncio.Event()

        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
            gone.set()

        silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        context = ssl.create_default_context(cafile=str(CERTIFICATE))
        with pytest.raises(ConnectTimeout, match=f"no connection to 127.0.0.1:{port} within 0.05 s"):
            await transport.connect(End(server=False).pump, "127.0.0.1", port, ssl_context=context, timeout_s=0.05)
        await gone.wait()
        silent.close()
        await silent.wait_closed()

    run(main)


def test_a_server_that_hangs_up_in_the_handshake() -> None:
    async def main() -> None:
        gone = asyncio.Event()

        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
            gone.set()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        context = ssl.create_default_context(cafile=str(CERTIFICATE))
        with pytest.raises(ConnectionFailed, match=f"cannot connect to 127.0.0.1:{port}: it closed the connection$"):
            await transport.connect(End(server=False).pump, "127.0.0.1", port, ssl_context=context)
        await gone.wait()
        server.close()
        await server.wait_closed()

    run(main)


def test_the_name_in_the_certificate_counts() -> None:
    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)  # the server's side of it
        async with Listener(context) as listener:
            for name, fits in (("localhost", True), ("elsewhere.example", False)):
                trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
                end = End(server=False)
                connecting = transport.connect(
                    end.pump, "127.0.0.1", listener.port, ssl_context=trusting, server_hostname=name
                )
                if fits:
                    end.engine.open()
                    await connecting
                    await end.hear(ev.ConnectionOpened)
                    end.pump.abort()
                else:
                    with pytest.raises(ConnectionFailed, match="is not trusted: .*elsewhere.example"):
                        await connecting

    run(main)


def test_an_address_that_is_taken() -> None:
    async def main() -> None:
        async with Listener() as listener:
            with pytest.raises(
                ConfigurationError, match=f"cannot listen on 127.0.0.1:{listener.port}: Address already"
            ):
                await bind("127.0.0.1", listener.port)

    run(main)


@pytest.mark.parametrize(
    ("says", "complaint"),
    [
        (AMQP_HEADER, r"cannot connect to \S+: it answered AMQP's TLS header with b'AMQP\\x00"),
        (b"HTTP/1.1 400", r"with b'HTTP"),
        (b"AM", r"with b''"),
        (b"", r"with b''"),
        (TLS_HEADER, r"cannot connect to|no TLS with"),
        (TLS_HEADER + b"nonsense" * 10, r"no TLS with"),
        (None, r"no connection to \S+ within 0.1 s"),
    ],
)
def test_in_band_tls_that_does_not_come_about(says: bytes | None, complaint: str) -> None:
    """What the server says to AMQP's TLS header before it closes; None: it says nothing, and stays."""

    async def main() -> None:
        heard: list[bytes] = []
        gone = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await reader.readexactly(8))
            if says is None:
                await reader.read()
            else:
                writer.write(says)
            with contextlib.suppress(ConnectionError):
                writer.close()
                await writer.wait_closed()
            gone.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        end = End(server=False)
        with pytest.raises(ConnectionFailed, match=complaint):
            await transport.connect(
                end.pump,
                "127.0.0.1",
                server.sockets[0].getsockname()[1],
                ssl_context=ssl.create_default_context(cafile=str(CERTIFICATE)),
                in_band=True,
                timeout_s=0.1 if says is None else LONG,
            )
        assert heard == [TLS_HEADER]
        assert not end.pump.connected
        await gone.wait()
        server.close()
        await server.wait_closed()

    run(main)


class Reading(HeaderReader):
    """A reader of a header, and the socket that it is read from."""

    def __init__(self, waiting: bytes) -> None:
        super().__init__()
        self.waiting = waiting
        self.paused = False
        self.read: list[bytes] = []
        self.lost = 0
        self.reader = self
        self.reader.transport = self  # type: ignore[assignment]

    def on_header(self, header: bytes) -> None:
        self.read.append(header)

    def on_lost(self) -> None:
        self.lost += 1

    def pause_reading(self) -> None:
        self.paused = True

    def run(self, size: int) -> None:
        """As asyncio does, with no more than `size` bytes at once."""
        while self.waiting and not self.paused:
            buffer = self.reader.get_buffer(-1)
            assert buffer
            count = min(size, len(buffer), len(self.waiting))
            buffer[:count], self.waiting = self.waiting[:count], self.waiting[count:]
            self.reader.buffer_updated(count)


class Exhausted:
    """A listening socket of a process that has no descriptor left, for so many tries."""

    def __init__(self, real: socket.socket, tries: int) -> None:
        self.real, self.left = real, tries
        self.fileno, self.close = real.fileno, real.close

    def accept(self) -> tuple[socket.socket, object]:
        if self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self.real.accept()


def test_without_descriptors_nobody_is_taken_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said once for each try, the loop is not kept busy, and who waits comes in at last."""
    monkeypatch.setattr("acquit.transport.sockets.ACCEPT_RETRY_S", 0.01)

    async def main() -> None:
        complaints: list[int] = []
        made: list[asyncio.Protocol] = []
        arrived = asyncio.Event()

        class Arrival(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.append(self)
                transport.close()
                if len(made) == 20:
                    arrived.set()

        (bound,) = await bind("127.0.0.1", 0)
        exhausted = Exhausted(bound, 3)
        acceptor = Acceptor([exhausted], Arrival, lambda: complaints.append(exhausted.left))  # type: ignore[list-item]
        acceptor.start()
        with contextlib.ExitStack() as clients:
            for _ in range(20):
                clients.enter_context(socket.create_connection(bound.getsockname()))
            await arrived.wait()
        assert complaints == [2, 1, 0]
        acceptor.close()
        acceptor.close()
        await acceptor.wait_closed()

    run(main)


def test_a_turn_takes_a_few_of_a_crowd() -> None:
    async def main() -> None:
        (bound,) = await bind("127.0.0.1", 0)
        taken: list[asyncio.Protocol] = []

        def make() -> asyncio.Protocol:
            taken.append(asyncio.Protocol())
            return taken[-1]

        acceptor = Acceptor([bound], make, lambda: None)
        with contextlib.ExitStack() as clients:
            for _ in range(3 * ACCEPTS_PER_TURN):
                clients.enter_context(socket.create_connection(bound.getsockname()))
            acceptor.start()
            seen = []
            while len(taken) < 3 * ACCEPTS_PER_TURN:
                before = len(taken)
                await asyncio.sleep(0)
                seen.append(len(taken) - before)
            assert max(seen) <= ACCEPTS_PER_TURN
            acceptor.close()
            await acceptor.wait_closed()

    run(main)


def test_who_is_on_its_way_for_longest_gives_way_to_a_newcomer() -> None:
    """Whether it is in the midst of TLS, or not even begun; the last one is never closed for another."""

    async def main() -> None:
        (bound,) = await bind("127.0.0.1", 0)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        acceptor = Acceptor(
            [bound], asyncio.Protocol, lambda: None, tls=lambda: context, room=lambda arriving: not arriving
        )
        with contextlib.ExitStack() as clients:
            *silent, last = [
                clients.enter_context(socket.create_connection(bound.getsockname()))
                for _ in range(3 * ACCEPTS_PER_TURN + 1)
            ]
            for one in (*silent, last):
                one.setblocking(False)
            acceptor.start()
            loop = asyncio.get_running_loop()
            for one in silent:
                assert await loop.sock_recv(one, 1) == b""
            await asyncio.sleep(0.01)
            with pytest.raises(BlockingIOError):
                last.recv(1)
            acceptor.close()
        await acceptor.wait_closed()

    run(main)


def test_who_says_nothing_is_told_of_when_its_time_for_tls_is_over() -> None:
    async def main() -> None:
        (bound,) = await bind("127.0.0.1", 0)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        told: list[tuple[str, str]] = []
        acceptor = Acceptor(
            [bound],
            asyncio.Protocol,
            lambda: None,
            tls=lambda: context,
            tls_handshake_timeout_s=0.01,
            tls_failed=lambda peer, why: told.append((peer, why)),
        )
        acceptor.start()
        with socket.create_connection(bound.getsockname()) as client:
            client.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
            host, port = client.getsockname()
        acceptor.close()
        await acceptor.wait_closed()
        assert told == [(f"{host}:{port}", "not within 0.01 s")]

    run(main)


def test_a_socket_that_closes_before_tls_begins() -> None:
    async def main() -> None:
        class Closing(asyncio.Transport):
            def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
                pass

            def is_closing(self) -> bool:
                return True

        tls = TlsStream(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), server_side=True)
        tls.take(Closing())
        with pytest.raises(ConnectionResetError):
            await tls.agree()

    run(main)


@pytest.mark.parametrize("in_band", [False, True])
@pytest.mark.parametrize("name", [".foo", "a..b", "x" * 70, "a\0b"])
def test_a_name_that_no_certificate_can_bear(name: str, in_band: bool) -> None:
    """It is told of before anybody connects."""

    async def main() -> None:
        async with Listener() as listener:
            with pytest.raises(ConnectionFailed, match=f"{re.escape(repr(name))} is not a known host"):
                await transport.connect(
                    End(server=False).pump,
                    "127.0.0.1",
                    listener.port,
                    ssl_context=ssl.create_default_context(),
                    server_hostname=name,
                    in_band=in_band,
                )
            assert not listener.ends

    run(main)


def test_without_room_and_with_nobody_on_its_way_a_newcomer_is_closed() -> None:
    async def main() -> None:
        (bound,) = await bind("127.0.0.1", 0)
        acceptor = Acceptor([bound], asyncio.Protocol, lambda: None, room=lambda arriving: False)
        acceptor.start()
        with socket.create_connection(bound.getsockname()) as client:
            client.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        acceptor.close()

    run(main)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_header_is_read_and_nothing_behind_it(size: int) -> None:
    reading = Reading(TLS_HEADER + b"TLS's own")
    reading.run(size)
    assert (reading.read, reading.waiting) == ([TLS_HEADER], b"TLS's own")
    reading.reader.connection_lost(None)
    assert reading.lost == 0


@pytest.mark.parametrize(("sent", "read"), [(b"G", b"G"), (b"AMX", b"AMX"), (b"\x16\x03\x01", b"\x16")])
def test_what_can_be_no_header_is_given_at_once(sent: bytes, read: bytes) -> None:
    reading = Reading(sent)
    reading.run(1)
    assert reading.read == [read]


def test_a_socket_that_ends_within_its_header() -> None:
    reading = Reading(TLS_HEADER[:7])
    reading.run(100)
    assert reading.reader.eof_received() is False
    reading.reader.connection_lost(None)
    reading.reader.connection_lost(None)
    assert (reading.read, reading.lost) == ([], 1)

"""Two engines over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self

import pytest

from acquit import transport
from acquit.errors import ConfigurationError, ConnectionFailed, ConnectTimeout
from acquit.protocol import events as ev
from acquit.protocol._definitions import Source, Target
from acquit.protocol.connection import Connection
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.options import ConnectionOptions

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
        self._server = await transport.listen(self._accept, "127.0.0.1", 0, ssl_context=self._ssl_context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        await self._server.wait_closed()
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
                await transport.listen(lambda: End(server=True).pump, "127.0.0.1", listener.port)

    run(main)

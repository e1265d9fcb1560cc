"""What a socket still has when its loop gives it up."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

from acquit.transport.unread import unread

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop]
if sys.platform != "win32":
    import uvloop

    LOOPS.append(uvloop.new_event_loop)


class Reading(asyncio.Protocol):
    """Reads, and looks for what is left at the end."""

    transport: asyncio.BaseTransport

    def __init__(self) -> None:
        self.read: list[bytes] = []
        self.ends: list[tuple[Exception | None, bytes]] = []
        self.over = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.read.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ends.append((exc, unread(self.transport)))
        self.over.set()


@pytest.mark.parametrize("loop", LOOPS)
def test_what_a_peer_said_before_our_write_failed(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """It closes with something of ours unread. Nobody reads between that and our next write."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            ours = socket.create_connection(listening.getsockname())
            theirs, _ = listening.accept()
        ours.setblocking(False)
        transport, protocol = await asyncio.get_running_loop().create_connection(Reading, sock=ours)
        ours.send(b"unread")
        theirs.send(b"why it ends" * 10_000)
        theirs.close()
        transport.write(b"more")
        async with asyncio.timeout(30):
            await protocol.over.wait()
        ((failure, rest),) = protocol.ends
        assert isinstance(failure, OSError)
        assert b"".join(protocol.read) + rest == b"why it ends" * 10_000
        assert rest

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


class Described(asyncio.BaseTransport):
    def __init__(self, **known: Any) -> None:
        super().__init__(known)


def test_where_there_is_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        assert unread(Described(socket=ours)) == b""
        theirs.send(b"encrypted")
        assert unread(Described(socket=ours, ssl_object=object())) == b""
        assert unread(Described(socket=ours)) == b"encrypted"
    assert unread(Described(socket=ours)) == b""  # it is closed
    assert unread(Described()) == b""

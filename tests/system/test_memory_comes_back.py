"""What a connection, session or link held is gone with it, and Python's collector is not needed for that: in
`acquit serve` it hardly ever runs.

The broker is on this loop, with the collector off; clients that use much are in processes of their own, those that get
nowhere are here. After each scenario no object of the engine, the transport or the broker may be there that was not
there before: neither garbage in cycles nor what somebody still holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

import acquit
from acquit import aio
from acquit.broker.options import BrokerOptions, Security, Tls, User
from acquit.broker.server import Server
from acquit.errors import ConnectionFailed
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import AMQP_HEADER, SASL_HEADER, TLS_HEADER
from acquit.protocol.definitions import Attach, Begin, Detach, End, Flow, Role, SaslInit, Source, Target
from acquit.protocol.frames import SASL_FRAME, encode_frame
from acquit.store.options import JournalOptions
from tests.support.raw_socket import WINDOW, RawSocket
from tests.support.served import Served

PACKAGES = ("acquit.protocol.", "acquit.transport.", "acquit.broker.", "acquit.client.", "asyncio.sslproto")
STAYS = {"Message", "MessageExtra", "Symbol", "ULong", "TrendPoint", "_Trend"}
"""A message stays in its queue, what is imported or first used meanwhile may keep symbols of its own, and each minute
that ends meanwhile leaves points for the console to draw."""
SAID = ("peer", "container", "user", "action", "target", "result")
"""Particulars of what a broker says."""
STRANGERS_MAX = 3
"""Times to try again, as somebody else was here: the port may have been that of a broker of another test, whose client
looks for it still. What leaks does so each time."""
TLS_FILES = Path(__file__).parent.parent / "support" / "tls"


def peer_tls() -> ssl.SSLContext:
    """The TLS settings of one who trusts the broker's certificate."""
    return ssl.create_default_context(cafile=TLS_FILES / "certificate.pem")


Scenario = Callable[[Server], Awaitable[None]]


def census(packages: str | tuple[str, ...] = PACKAGES) -> Counter[str]:
    """Objects that there are, by class."""
    kinds = (type(thing) for thing in gc.get_objects())
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for kind in kinds
        # A class of C code may have something else there.
        if str(kind.__module__).startswith(packages) and kind.__qualname__ not in STAYS
    )


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def settled(server: Server) -> None:
    """All sockets are gone, and what was to be done in the next turns of the loop is."""
    while server._clients or server._listeners.arriving:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)


PROGRAM = """
import os, sys, acquit
how, url = sys.argv[1:]
connection = acquit.connect(url, options=acquit.ConnectOptions(reconnect=None))
session, transacted = connection.session("individual"), connection.session("transacted")
sender, receiver = session.sender("q"), session.receiver("q", prefetch=4)
for number in range(10):
    sender.send(acquit.Message(b"%d" % number, durable=bool(number % 2)))
held = receiver.receive(timeout=20)
browser = session.receiver("q", browse=True)
seen = browser.receive(timeout=20)
posting, taking = transacted.sender("q"), transacted.receiver("q", prefetch=1)
posting.send(b"never committed")
taken = taking.receive(timeout=20)
assert held and seen and taken
match how:
    case "closed":
        connection.close()
    case "links detached":
        for link in (sender, receiver, browser, posting, taking):
            link.close()
    case "sessions ended":
        session.close()
        transacted.close()
print("there", flush=True)
sys.stdin.readline()
os._exit(0)
"""
"""Uses most of what there is, leaves deliveries and a transaction open, and waits for the end in the state that it is
told."""


async def run_program(server: Server, how: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, how, server.url, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"there\n"
    return process


async def closed(server: Server) -> None:
    await (await run_program(server, "closed")).communicate(b"\n")


async def lost(server: Server) -> None:
    await (await run_program(server, "lost")).communicate(b"\n")


async def put_out(server: Server) -> None:
    process = await run_program(server, "lost")
    for client in list(server._clients):
        client.pump.abort()
    await process.communicate(b"\n")


async def sessions_ended(server: Server) -> None:
    """And begun again: the connection lives. What is left of one is counted when it is gone."""
    await (await run_program(server, "sessions ended")).communicate(b"\n")


async def wrong_password(server: Server) -> None:
    init = SaslInit("PLAIN", b"\0ada\0no")
    await raw(server, SASL_HEADER + encode_frame(0, encode_composite(init), SASL_FRAME))


async def half_a_login(server: Server) -> None:
    init = SaslInit("SCRAM-SHA-256", b"n,,n=ada,r=abc")
    await raw(server, SASL_HEADER + encode_frame(0, encode_composite(init), SASL_FRAME))


async def raw(server: Server, data: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(data)
    if not data.startswith(SASL_HEADER):
        writer.write_eof()
    with contextlib.suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(0.5):
            await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def managed(server: Server) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "acquit", "queues", "--url", server.url, stdout=subprocess.DEVNULL
    )
    assert await process.wait() == 0


async def nonsense(server: Server) -> None:
    for data in (b"", b"A", b"GET / HTTP/1.1\r\n\r\n", AMQP_HEADER, AMQP_HEADER + b"\0\0\0\1", TLS_HEADER):
        await raw(server, data)


async def refused_tls(server: Server) -> None:
    await raw(server, TLS_HEADER + b"no TLS at all")
    await raw(server, TLS_HEADER + b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00")


async def ended_over_tls(server: Server) -> None:
    """By the peer, which resets the connection or says no more, without TLS's own farewell; and by us."""

    def end(said: bytes, answer: bytes, *, reset: bool) -> None:
        with contextlib.ExitStack() as stack:
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            plain.sendall(TLS_HEADER)
            assert plain.recv(8) == TLS_HEADER
            secured = stack.enter_context(peer_tls().wrap_socket(plain, server_hostname="localhost"))
            secured.sendall(said)
            while answer:
                got = secured.recv(len(answer))
                assert got == answer[: len(got)]
                answer = answer[len(got) :]
            if reset:
                secured.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    for said, answer in ((b"", b""), (SASL_HEADER, SASL_HEADER), (AMQP_HEADER, AMQP_HEADER)):
        for reset in (True, False):
            await asyncio.to_thread(end, said, answer, reset=reset)


async def attempts_of_a_client(server: Server) -> None:
    """Each is to a host that takes the connection and says nothing it understands."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    reconnect = acquit.Reconnect(delay_ms=1, first_rounds=5)
    with pytest.raises(ConnectionFailed):
        await aio.connect(f"amqp://127.0.0.1:{port}", options=acquit.ConnectOptions(reconnect=reconnect))
    other.close()
    await other.wait_closed()


SCENARIOS: list[Scenario] = [
    closed,
    lost,
    put_out,
    sessions_ended,
    managed,
    wrong_password,
    half_a_login,
    nonsense,
    refused_tls,
    ended_over_tls,
    attempts_of_a_client,
]


def serve(folder: Path) -> Server:
    tls = Tls(certificate_file=str(TLS_FILES / "certificate.pem"), key_file=str(TLS_FILES / "key.pem"), mode="offered")
    security = Security(users={"ada": User(password="x")}, refusal_delay_ms=0, anonymous="loopback")
    return Server(folder, BrokerOptions(journal=JournalOptions.small(), tls=tls, security=security), port=0)


def visits(log: pytest.LogCaptureFixture) -> int:
    """How often brokers of this process have said something of a peer."""
    return sum(getattr(record, "peer", None) is not None for record in log.records)


def said(log: pytest.LogCaptureFixture) -> Iterator[str]:
    """What brokers of this process have said meanwhile."""
    for record in log.records:
        told = {name: value for name in SAID if (value := getattr(record, name, None)) is not None}
        yield f"{record.getMessage()} {told}"


async def assert_nothing_left_by(
    work: Callable[[], Awaitable[None]], log: pytest.LogCaptureFixture, usual: int, looks: int = 1
) -> None:
    """Do the work, by which brokers of this process say `usual` times something of a peer, and find nothing more than
    before, in one of so many looks. What strangers left meanwhile is nobody's leak: the work is then done again."""
    for _ in range(STRANGERS_MAX + 1):
        log.clear()
        with collector_off():
            before = census()
            await work()
            for look in range(looks):
                if look:
                    await asyncio.sleep(0.01)
                left = census() - before
                if not left:
                    return
        if visits(log) == usual:
            break
    counts = [f"{name}: {count}" for name, count in sorted(left.items())]
    pytest.fail("\n".join([*counts, *said(log)]))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_nothing_of_a_connection_survives_it(
    tmp_path: Path, scenario: Scenario, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "acquit.broker")

    async def run() -> None:
        server = serve(tmp_path)
        await server.start()
        try:
            await scenario(server)  # what is imported, cached or declared once
            await settled(server)
            usual = visits(caplog)

            async def again() -> None:
                await scenario(server)
                await settled(server)

            await assert_nothing_left_by(again, caplog, usual)
        finally:
            await server.stop()

    asyncio.run(run())


@pytest.mark.parametrize("ends", ["links", "sessions", "refused links"])
def test_nothing_of_what_ends_on_a_connection_survives_it(
    tmp_path: Path, ends: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "acquit.broker")

    def work(peer: RawSocket) -> None:
        for handle in range(1, 20):
            if ends == "sessions":
                peer.say(Begin(None, 0, WINDOW, WINDOW), channel=1)
                peer.say(
                    Attach("r", 0, Role.RECEIVER, source=Source("q"), target=Target("me")),
                    Flow(0, WINDOW, 0, WINDOW, 0, 0, 3),
                    End(),
                    channel=1,
                )
            else:
                source = Source("q" if ends == "links" else "$none")
                peer.receiver(handle, source, credit=3)
                peer.say(Detach(handle, True))
        peer.barrier()

    async def run() -> None:
        server = serve(tmp_path)
        await server.start()
        try:
            peer = await asyncio.to_thread(RawSocket, server.port)
            with peer.socket:
                await asyncio.to_thread(peer.sender, 0, Target("q"))
                await asyncio.to_thread(peer.post, 0, 20 * [b"\x00\x53\x77\xa1\x01x"])

                async def again() -> None:
                    await asyncio.to_thread(work, peer)
                    peer.heard.clear()

                caplog.clear()
                await again()
                # The last of it may be let go of in a turn that is still to come.
                await assert_nothing_left_by(again, caplog, visits(caplog), looks=500)
        finally:
            await server.stop()

    asyncio.run(run())


def test_nothing_of_an_embedded_broker_survives_it() -> None:
    def use() -> None:
        with acquit.Broker() as broker, acquit.connect(broker.url) as connection:
            connection.session().sender("q").send(b"x")

    use()
    gc.collect()
    before = census("acquit.broker.")
    use()
    gc.collect()
    left = census("acquit.broker.") - before
    assert not left, left


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_thousand_lost_connections_leave_memory_as_it_was(tmp_path: Path) -> None:
    """Of 100 links each with long names: with what they held staying behind, it were hundreds of MiB more."""
    with Served(tmp_path) as served:
        sizes = []
        for number in range(1_000):
            name = f"-{number}-" + 1_000 * "n"
            with RawSocket(served.port, container=f"c{number % 7}") as peer:
                for handle in range(100):
                    source = Source(f"q{handle % 10}")
                    peer.say(Attach(f"{handle}{name}", handle, Role.RECEIVER, source=source, target=Target(name)))
                peer.barrier()
            if number % 100 == 99:
                sizes.append(served.rss_mib())
        assert sizes[-1] <= sizes[1] + 24, sizes

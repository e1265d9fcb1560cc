"""The driver on a real loop: connecting, TLS, time-outs, deadlines, a socket that is full."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from acquit import aio, errors
from acquit.client.driver import Wire, ssl_context_for
from acquit.client.options import ConnectOptions
from acquit.client.receipts import ReceiptStatus
from acquit.client.reconnecting import ConnectionEvent, ConnectionEventKind
from acquit.client.url import parse_url
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import AMQP_HEADER, SASL_HEADER, TLS_HEADER
from acquit.protocol.definitions import (
    Accepted,
    AmqpCondition,
    ConnectionCondition,
    Error,
    Open,
    SaslCode,
    SaslMechanisms,
    SaslOutcome,
)
from acquit.protocol.events import ConnectionOpened, Event
from acquit.protocol.frames import SASL_FRAME, encode_frame
from tests.support.outages import fast
from tests.support.server import Server, ServerConnection, serve

CERTIFICATE = Path(__file__).resolve().parents[2] / "support" / "localhost.pem"
LONG = 30.0


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LONG):
            await main()

    asyncio.run(limited())


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


def client_context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(CERTIFICATE))


def test_tls() -> None:
    async def main() -> None:
        server = Server()
        async with serve(server, ssl_context=server_context()) as where:
            async with aio.connect(f"amqps://{where}", ssl_context=client_context()) as connection:
                assert server.connection.pump is not None and server.connection.pump.encrypted
                sender = await (await connection.session()).sender("q")
                body = bytes(1_000_000 - 100)
                assert await sender.send(body) == Accepted()
            assert server.bodies() == [body]

    run(main)


def test_a_certificate_that_nobody_vouches_for() -> None:
    async def main() -> None:
        async with serve(Server(), ssl_context=server_context()) as where:
            with pytest.raises(errors.ConnectionFailed, match=f"the certificate of {where} is not trusted: self"):
                await aio.connect(f"amqps://{where}")

    logging.getLogger("asyncio").disabled = True  # the server's side of it
    try:
        run(main)
    finally:
        logging.getLogger("asyncio").disabled = False


@pytest.mark.parametrize(
    ("alerts", "complaint"),
    [(True, "was lost: TLSV13_ALERT_CERTIFICATE_REQUIRED$"), (False, "was lost before it was open: perhaps the peer")],
)
def test_a_peer_that_wants_a_certificate(alerts: bool, complaint: str) -> None:
    """It says so by an alert of TLS, or just goes away, as a server of asyncio does."""

    def refuse(listening: socket.socket) -> None:
        context = server_context()
        context.verify_mode = ssl.CERT_REQUIRED if alerts else ssl.CERT_NONE
        taken, _ = listening.accept()
        with taken, contextlib.suppress(ssl.SSLError), context.wrap_socket(taken, server_side=True) as secured:
            secured.recv(100)

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            refusing = asyncio.create_task(asyncio.to_thread(refuse, listening))
            where = f"127.0.0.1:{listening.getsockname()[1]}"
            with pytest.raises(errors.ConnectionLost, match=complaint):
                await aio.connect(
                    f"amqps://{where}", ssl_context=client_context(), options=ConnectOptions(reconnect=None)
                )
            await refusing

    run(main)


@pytest.mark.parametrize(
    ("says", "complaint"),
    [
        (b"", "was lost before the peer said anything: perhaps it expects TLS"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "the server requires TLS \\(amqps://\\)"),
        (TLS_HEADER, "the server requires TLS \\(in_band_tls\\)"),
        (SASL_HEADER, "was lost before it was open$"),
    ],
)
def test_a_peer_that_takes_nothing_in_the_clear(says: bytes, complaint: str) -> None:
    """It closes without a word, as OpenSSL does, says so by an alert, as Java and Erlang do, or by AMQP's header."""

    def refuse(listening: socket.socket) -> None:
        taken, _ = listening.accept()
        with taken:
            taken.recv(100)
            taken.sendall(says)

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            refusing = asyncio.create_task(asyncio.to_thread(refuse, listening))
            with pytest.raises(errors.ConnectionFailed, match=complaint):
                await aio.connect(
                    f"amqp://127.0.0.1:{listening.getsockname()[1]}", options=ConnectOptions(reconnect=None)
                )
            await refusing

    run(main)


def test_tls_where_there_is_none() -> None:
    async def main() -> None:
        async with serve(Server()) as where:
            with pytest.raises(errors.ConnectionFailed, match=f"no TLS with {where}|cannot connect to {where}"):
                await aio.connect(f"amqps://{where}", ssl_context=client_context())

    run(main)


def test_who_gives_tls_settings_does_not_go_on_in_the_clear() -> None:
    context = client_context()
    with pytest.raises(errors.ConfigurationError, match="ssl_context is given, but the URL says amqp://"):
        ssl_context_for(parse_url("amqp://host"), context)
    assert ssl_context_for(parse_url("amqps://host"), context) is context
    default = ssl_context_for(parse_url("amqps://host"), None)
    assert default is not None and default.check_hostname and default.verify_mode is ssl.CERT_REQUIRED
    assert ssl_context_for(parse_url("amqp://host"), None) is None


@pytest.mark.parametrize("says", [b"", b"AMQP\x03\x01\x00\x00"])
def test_a_server_that_does_not_go_on(says: bytes) -> None:
    async def main() -> None:
        over, gone = asyncio.Event(), asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(says)
            await over.wait()
            writer.close()
            gone.set()

        listener = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(errors.ConnectionFailed, match="within|lost|ended"):
            await aio.connect(f"amqp://127.0.0.1:{port}", options=ConnectOptions(connect_timeout_ms=50))
        over.set()
        await gone.wait()
        listener.close()
        await listener.wait_closed()

    run(main)


def test_a_server_that_speaks_something_else() -> None:
    async def main() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(8)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        listener = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(errors.ConnectionFailed, match="HTTP/1.1"):
            await aio.connect(f"amqp://127.0.0.1:{port}")
        listener.close()
        await listener.wait_closed()

    run(main)


def test_an_unknown_host() -> None:
    async def main() -> None:
        with pytest.raises(errors.ConnectionFailed, match="'no-such-host.invalid' is not a known host"):
            await aio.connect("amqp://no-such-host.invalid")

    run(main)


def test_a_host_that_cannot_be_a_name() -> None:
    async def main() -> None:
        with pytest.raises(errors.ConnectionFailed, match="is not a known host: .*label (empty or )?too long"):
            await aio.connect(f"amqp://{'a' * 64}.invalid")

    run(main)


def test_plain_and_anonymous() -> None:
    async def main() -> None:
        async with serve(Server(users={"ann": "secret"})) as where:
            async with aio.connect(f"amqp://ann:secret@{where}") as connection:
                assert not connection.closed
            async with aio.connect(f"amqp://{where}", username="ann", password="secret") as connection:
                assert not connection.closed
            for url in (f"amqp://{where}", f"amqp://ann@{where}", f"amqp://bob:secret@{where}"):
                with pytest.raises(errors.AuthenticationFailed):
                    await aio.connect(url)

    run(main)


def test_a_cancelled_connect_leaves_no_socket() -> None:
    async def main() -> None:
        server = Server()
        async with serve(server) as where:
            connecting = asyncio.ensure_future(_connect(where))
            while not server.connections:
                await asyncio.sleep(0)
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting
            await server.connection.closed.wait()

    run(main)


def test_a_connect_cancelled_while_the_server_thinks_leaves_no_socket() -> None:
    async def main() -> None:
        come, gone = asyncio.Event(), asyncio.Event()

        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(8)
            come.set()
            with contextlib.suppress(ConnectionError):
                await reader.read()
            gone.set()
            writer.close()

        listener = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        connecting = asyncio.create_task(_connect(f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"))
        await come.wait()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await gone.wait()
        listener.close()
        await listener.wait_closed()

    run(main)


async def _connect(where: str) -> aio.Connection:
    return await aio.connect(f"amqp://{where}", options=ConnectOptions(connect_timeout_ms=300_000))


def test_the_ack_timeout_runs_on_the_loop() -> None:
    async def main() -> None:
        server = Server()
        server.answers = False
        options = ConnectOptions(ack_timeout_ms=10, close_timeout_ms=10)
        async with serve(server) as where, aio.connect(f"amqp://{where}", options=options) as connection:
            receiver = await (await connection.session("individual")).receiver("q")
            server.offer("q", b"a", b"b")
            for message in await receiver.receive_many(2, LONG):
                receipt = await message.accept()
                assert (receipt.status, receipt.reason) == (ReceiptStatus.UNKNOWN, "no answer within 10 ms")

    run(main)


def test_an_acknowledgement_is_sent_when_the_socket_has_taken_it() -> None:
    async def main() -> None:
        server = Server()
        async with serve(server) as where, aio.connect(f"amqp://{where}") as connection:
            receiver = await (await connection.session()).receiver("q")
            heard: list[aio.Receipt] = []

            async def handle(message: aio.ReceivedMessage) -> None:
                pump = connection._driver.pump
                pump.pause_writing()  # as asyncio does when the socket is full
                heard.append(await message.release(sync=False))
                for _ in range(3):
                    await asyncio.sleep(0)
                assert not heard[0].done
                pump.resume_writing()
                assert await heard[0] is ReceiptStatus.SENT
                await receiver.close()

            server.offer("q", b"a")
            await receiver.listen(handle)
            assert heard[0].status is ReceiptStatus.SENT

    run(main)


def test_idle_connections_stay_alive_by_heartbeats() -> None:
    async def main() -> None:
        server = Server()
        async with (
            serve(server) as where,
            aio.connect(f"amqp://{where}", options=ConnectOptions(idle_timeout_ms=500)) as connection,
        ):
            opened = server.connection.engine.remote_open
            assert opened is not None and opened.idle_time_out == 500
            receiver = await (await connection.session()).receiver("q")
            assert await receiver.receive(1.2) is None  # longer than either end would wait for a silent one
            assert not connection.closed

    run(main)


@pytest.mark.pure
def test_a_silent_server_is_given_up() -> None:
    async def main() -> None:
        server = Server()
        async with serve(server) as where:
            options = ConnectOptions(idle_timeout_ms=100, reconnect=None)
            connection = await aio.connect(f"amqp://{where}", options=options)
            receiver = await (await connection.session()).receiver("q")
            engine = server.connection.engine
            engine.data_to_send = bytes  # type: ignore[method-assign]  # it says nothing any more, heartbeats included
            with pytest.raises(errors.ConnectionLost, match="nothing heard for 200 ms"):
                await receiver.receive()
            await connection.close()

    run(main)


def test_many_large_messages_wait_for_the_socket() -> None:
    """More than the sockets hold: sends pause with the socket, and nothing is lost or out of order."""

    async def main() -> None:
        server = Server(credit=1_000)
        async with serve(server) as where, aio.connect(f"amqp://{where}") as connection:
            sender = await (await connection.session()).sender("q", buffer_bytes=1_000_000)
            pauses = []
            on_writable = sender._core.session.core.on_writable

            def watch(writable: bool) -> None:
                pauses.append(writable)
                on_writable(writable)

            sender._core.session.core.on_writable = watch  # type: ignore[method-assign]
            receipts = [await sender.send(bytes([n]) * 900_000, wait=False) for n in range(40)]
            for receipt in receipts:
                await receipt
            assert server.bodies() == [bytes([n]) * 900_000 for n in range(40)]
            assert pauses[:2] == [False, True]

    run(main)


def test_a_bug_of_ours_ends_the_connection_and_every_wait_with_it() -> None:
    async def main() -> None:
        server = Server()
        async with serve(server) as where:
            connection = await aio.connect(f"amqp://{where}")
            session = await connection.session()
            receiver = await session.receiver("q")

            def fail() -> None:
                raise ZeroDivisionError

            waiting = asyncio.create_task(receiver.receive())
            receiver._core.session.core.post((fail,))
            with pytest.raises(errors.ConnectionLost):
                await waiting

    problems: list[object] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context["exception"]))
        await main()

    run(watched)
    assert [type(problem) for problem in problems] == [ZeroDivisionError]


def test_a_peer_that_says_nothing_is_a_connect_timeout() -> None:
    async def main() -> None:
        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            gone.set()

        gone = asyncio.Event()
        listener = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        expected = rf"127\.0\.0\.1:{port} did not open the connection within 0\.05 s"
        with pytest.raises(errors.ConnectTimeout, match=expected):
            await aio.connect(f"amqp://127.0.0.1:{port}", options=ConnectOptions(connect_timeout_ms=50))
        await gone.wait()
        listener.close()

    run(main)


def test_a_peer_that_falls_silent_behind_a_bad_open_is_told_of_that() -> None:
    bad = encode_frame(0, encode_composite(Open("server", max_frame_size=256)))
    answered = SASL_HEADER + encode_frame(0, encode_composite(SaslMechanisms(("ANONYMOUS",))), SASL_FRAME)
    answered += encode_frame(0, encode_composite(SaslOutcome(SaslCode.OK)), SASL_FRAME) + AMQP_HEADER + bad

    async def main() -> None:
        async with saying(answered, hangs_up=False) as where:
            with pytest.raises(errors.ConnectionClosed, match="a max-frame-size of 256, must be 512 at least"):
                await aio.connect(f"amqp://{where}", options=ConnectOptions(connect_timeout_ms=100))

    run(main)


def test_a_connect_cancelled_as_the_connection_opens_leaves_nothing_that_is_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handle = Wire.handle

    async def main() -> None:
        def cancelling(wire: Wire, events: list[Event]) -> None:
            handle(wire, events)
            if wire.opened.done:
                connecting.cancel()

        async def connect() -> aio.Connection:
            return await aio.connect(f"amqp://{where}", options=fast())

        server = Server()
        async with serve(server) as where:
            monkeypatch.setattr(Wire, "handle", cancelling)
            connecting = asyncio.create_task(connect())
            with pytest.raises(asyncio.CancelledError):
                await connecting
            await server.connection.closed.wait()
            await asyncio.sleep(0)
            assert [task.get_name() for task in asyncio.all_tasks()] == [asyncio.current_task().get_name()]  # type: ignore[union-attr]
            assert len(server.connections) == 1

    run(main)


def test_a_connection_that_is_closed_as_another_opens_for_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Wire.handle
    story: list[ConnectionEvent] = []

    async def main() -> None:
        def closing(wire: Wire, events: list[Event]) -> None:
            if any(isinstance(event, ConnectionOpened) for event in events):
                connection._core.close()
            handle(wire, events)

        server = Server()
        async with serve(server) as where:
            connection = await aio.connect(f"amqp://{where}", options=fast(), on_event=story.append)
            monkeypatch.setattr(Wire, "handle", closing)
            connection._driver.pump.abort()
            while len(server.connections) < 2:
                await asyncio.sleep(0)
            await server.connection.closed.wait()
            assert connection.closed

    run(main)
    assert [event.kind for event in story] == [ConnectionEventKind.CONNECTED, ConnectionEventKind.INTERRUPTED]


def test_a_connection_that_is_over_at_once_had_no_outage() -> None:
    story: list[ConnectionEvent] = []

    async def main() -> None:
        over = asyncio.Event()

        def note(event: ConnectionEvent) -> None:
            story.append(event)
            if event.kind is ConnectionEventKind.FAILED:
                over.set()

        server = Server()
        async with serve(server) as where:
            await aio.connect(f"amqp://{where}", on_event=note)
            server.connection.engine.close(Error(AmqpCondition.NOT_ALLOWED, "not you"))
            server.connection.touch()
            await over.wait()

    run(main)
    assert [event.kind for event in story] == [ConnectionEventKind.CONNECTED, ConnectionEventKind.FAILED]
    assert (story[1].rounds, story[1].outage_s) == (0, 0.0)


# -- hosts that are of no use ------------------------------------------------------------------------------------------


class Refusing(Server):
    """A server that closes each connection right behind its open, while it is told to."""

    condition: str | None = None

    def accept(self, now: float) -> ServerConnection:
        connection = super().accept(now)
        if self.condition is not None:
            refusal = Error(self.condition, "not here")
            connection.engine.admit = lambda _: refusal
        return connection


@contextlib.asynccontextmanager
async def saying(says: bytes, *, hangs_up: bool = True) -> AsyncIterator[str]:
    """A host that says the same to all who come, and hangs up or lets them. Gives host:port."""
    done: list[asyncio.Event] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        done.append(asyncio.Event())
        gone = done[-1]
        await reader.read(8)
        writer.write(says)
        with contextlib.suppress(ConnectionError):
            if not hangs_up:
                await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        gone.set()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        for gone in done:
            await gone.wait()
    finally:
        listener.close()
        await listener.wait_closed()


HTTP = b"HTTP/1.1 503 Service Unavailable\r\n\r\n"
UNKNOWN_SASL = SASL_HEADER + encode_frame(0, encode_composite(SaslMechanisms(("GSSAPI",))), SASL_FRAME)
FINAL = [
    AmqpCondition.NOT_FOUND,
    AmqpCondition.NOT_ALLOWED,
    AmqpCondition.UNAUTHORIZED_ACCESS,
    ConnectionCondition.REDIRECT,
]


@contextlib.asynccontextmanager
async def useless(how: str | bytes) -> AsyncIterator[str]:
    """A host that refuses whoever comes, in its own way."""
    if isinstance(how, bytes):
        async with saying(how) as where:
            yield where
        return
    server = Refusing()
    server.condition = how
    if how == "a user of its own":
        server.users, server.condition = {"ann": "secret"}, None
    async with serve(server) as where:
        yield where


@pytest.mark.parametrize(
    "how", [HTTP, AMQP_HEADER, TLS_HEADER, b"AMQP\0\0\x09\x01", UNKNOWN_SASL, *FINAL, "a user of its own"]
)
def test_a_host_that_is_of_no_use_is_not_the_end_of_a_list(how: str | bytes) -> None:
    async def main() -> None:
        async with useless(how) as one, serve(Server()) as two:
            async with aio.connect([f"amqp://{one}", f"amqp://{two}"], options=ConnectOptions()) as connection:
                assert connection._core.where == two
            with pytest.raises(errors.ConnectionFailed) as alone:
                await aio.connect(f"amqp://{one}", options=fast(reconnect={"first_rounds": 0}))
            with pytest.raises(errors.ConnectionFailed) as twice:  # each of them said what it would say again
                await aio.connect([f"amqp://{one}"] * 2, options=fast(reconnect={"first_rounds": 0}))
            assert type(twice.value) is type(alone.value)
            assert str(twice.value) == f"{alone.value}; {alone.value}"

    run(main)


def test_hosts_that_are_of_no_use_for_different_reasons_are_all_named() -> None:
    async def main() -> None:
        async with useless(HTTP) as one, useless(AmqpCondition.NOT_FOUND) as two:
            with pytest.raises(errors.ConnectionFailed) as failed:
                await aio.connect([f"amqp://{one}", f"amqp://{two}"], options=fast(reconnect={"first_rounds": 0}))
            assert all(part in str(failed.value) for part in (one, "HTTP/1.1", two, "not here (amqp:not-found)"))

    run(main)


@pytest.mark.parametrize("last", [False, True])
def test_a_user_who_is_refused_is_told_so_whichever_host_was_the_last(last: bool) -> None:
    async def main() -> None:
        async with useless("a user of its own") as one:
            urls = ["amqp://127.0.0.1:1", f"amqp://{one}"] if last else [f"amqp://{one}", "amqp://127.0.0.1:1"]
            with pytest.raises(errors.AuthenticationFailed) as failed:
                await aio.connect(urls, options=ConnectOptions())
            assert all(part in str(failed.value) for part in ("127.0.0.1:1: ", f"{one} refused to authenticate us"))

    run(main)


@pytest.mark.parametrize("last", [False, True])
def test_an_outage_is_over_for_a_user_who_is_refused_whichever_host_was_the_last(last: bool) -> None:
    async def main() -> None:
        away, standby = Refusing(), Refusing()
        standby.condition = AmqpCondition.NOT_FOUND
        async with serve(away) as one, serve(standby) as two:
            urls = [f"amqp://ann:secret@{one}", f"amqp://{two}"]
            connection = await aio.connect(urls[::-1] if last else urls, options=fast())
            receiver = await (await connection.session()).receiver("q")
            away.users = {"ann": "another"}
            assert away.connection.pump is not None
            away.connection.pump.abort()
            with pytest.raises(errors.AuthenticationFailed) as failed:
                await receiver.receive()
            assert all(part in str(failed.value) for part in (f"{one} refused to authenticate us", "(amqp:not-found)"))

    run(main)


def test_a_mistake_in_the_options_is_told_whatever_other_hosts_would_say() -> None:
    async def main() -> None:
        async with serve(Server()) as where:
            options = ConnectOptions(sasl_mechanisms=("PLAIN",))
            with pytest.raises(errors.ConfigurationError, match="PLAIN needs a user and a password"):
                await aio.connect(["amqp://127.0.0.1:1", f"amqp://ann:secret@{where}"], options=options)

    run(main)


@pytest.mark.parametrize("condition", FINAL)
def test_a_standby_that_takes_nobody_does_not_end_an_outage(condition: str) -> None:
    story: list[ConnectionEventKind] = []

    async def main() -> None:
        away, standby = Refusing(), Refusing()
        standby.condition = condition
        async with serve(away) as one, serve(standby) as two:
            options = fast()
            urls = [f"amqp://{one}", f"amqp://{two}"]
            async with aio.connect(
                urls, options=options, on_event=lambda event: story.append(event.kind)
            ) as connection:
                sender = await (await connection.session()).sender("q")
                away.condition = AmqpCondition.RESOURCE_LIMIT_EXCEEDED  # what passes
                assert away.connection.pump is not None
                away.connection.pump.abort()
                while len(standby.connections) < 3:
                    await asyncio.sleep(0)
                away.condition = None
                assert await sender.send("x") == Accepted()

    run(main)
    assert story == [ConnectionEventKind.CONNECTED, ConnectionEventKind.INTERRUPTED, ConnectionEventKind.RESTORED]


def test_an_outage_is_over_when_no_host_will_ever_take_us() -> None:
    async def main() -> None:
        away, standby = Refusing(), Refusing()
        standby.condition = AmqpCondition.NOT_FOUND
        async with serve(away) as one, serve(standby) as two:
            connection = await aio.connect([f"amqp://{one}", f"amqp://{two}"], options=fast())
            receiver = await (await connection.session()).receiver("q")
            away.condition = AmqpCondition.UNAUTHORIZED_ACCESS
            assert away.connection.pump is not None
            away.connection.pump.abort()
            with pytest.raises(errors.ConnectionFailed) as failed:
                await receiver.receive()
            parts = (f"{one} was closed", "(amqp:unauthorized-access)", f"{two} was closed", "(amqp:not-found)")
            assert all(part in str(failed.value) for part in parts)
            assert (len(away.connections), len(standby.connections)) == (2, 1)

    run(main)


def test_a_proxy_that_answers_for_a_broker_which_restarts_does_not_end_an_outage() -> None:
    async def main() -> None:
        answered = 0
        servers: list[Server] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal answered
            answered += 1
            if 1 < answered < 4:
                await reader.read(8)
                writer.write(HTTP)
            else:
                servers.append(Server())
                async with serve(servers[-1]) as behind:
                    host, port = behind.split(":")
                    there, here = await asyncio.open_connection(host, int(port))
                    await asyncio.gather(_copy(reader, here), _copy(there, writer))
            writer.close()

        listener = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with aio.connect(f"amqp://127.0.0.1:{port}", options=fast()) as connection:
            sender = await (await connection.session()).sender("q")
            assert servers[0].connection.pump is not None
            servers[0].connection.pump.abort()
            assert await sender.send("x") == Accepted()
        assert answered == 4
        listener.close()
        await listener.wait_closed()

    run(main)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
    writer.close()


def test_a_host_that_redirects_us_is_left_for_the_others_of_the_list() -> None:
    async def main() -> None:
        server, other = Server(), Server()
        redirect = Error(ConnectionCondition.REDIRECT, "go")
        async with serve(server) as one, serve(other) as two:
            for urls, comes_back in (([f"amqp://{one}", f"amqp://{two}"], True), ([f"amqp://{one}"], False)):
                connection = await aio.connect(urls, options=fast())
                session = await connection.session()
                sender, receiver = await session.sender("q"), await session.receiver("q")
                server.connection.engine.close(redirect)
                server.connection.touch()
                if comes_back:
                    while not other.connections:
                        await asyncio.sleep(0)
                    assert await sender.send("x") == Accepted()
                    assert connection._core.where == two
                else:
                    with pytest.raises(errors.ConnectionClosed, match=r"go \(amqp:connection:redirect\)"):
                        await receiver.receive()
                await connection.close()
            assert len(server.connections) == 2

    run(main)

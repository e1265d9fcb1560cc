"""TLS of one socket, whose other end is an SSL object in memory: each byte and each turn of the loop is in sight."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.transport import tls as module
from acquit.transport.tls import READ_BYTES, RECORDS_PER_TURN, WRITE_BYTES, TlsStream, whole_records
from acquit.transport.turnstile import Turnstile

CERTIFICATE = Path(__file__).resolve().parents[2] / "support" / "localhost.pem"
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)

SERVING = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
SERVING.load_cert_chain(CERTIFICATE)


def trusting(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(CERTIFICATE))
    context.minimum_version = context.maximum_version = version
    return context


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await main()

    asyncio.run(limited())


class Socket(asyncio.Transport):
    """The transport of a socket: what was written to it, and what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.paused = self.closed = self.aborted = False
        self.unsent = 0
        self.left: IO[bytes] | None = None
        self.limits: tuple[int | None, int | None] = (None, None)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False

    def close(self) -> None:
        assert not self.is_closing()
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5671), "socket": self.left}.get(name, default)


class Plain(asyncio.Protocol):
    """The protocol above: what it heard, a list of what came in one go each."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.calls: list[object] = []
        self.act: Callable[[bytes], None] = lambda data: None
        self.failure: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.calls.append("made")

    def data_received(self, data: bytes) -> None:
        self.heard.append(data)
        self.act(data)

    def eof_received(self) -> bool | None:
        self.calls.append("end")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append(("lost", exc))
        self.failure = exc

    def pause_writing(self) -> None:
        self.calls.append("full")

    def resume_writing(self) -> None:
        self.calls.append("room")


class Rig:
    """Our side as a server, and a client in memory."""

    def __init__(
        self,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        server: ssl.SSLContext = SERVING,
        handshakes: Turnstile | None = None,
    ) -> None:
        self.socket = Socket()
        self.stream = TlsStream(server, server_side=True, handshakes=handshakes)
        self.plain = Plain()
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = trusting(version).wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.stream.connection_made(self.socket)

    def read(self, data: bytes) -> None:
        """Let the stream read it, as a loop would."""
        for at in range(0, len(data), READ_BYTES):
            portion = data[at : at + READ_BYTES]
            self.stream.get_buffer(-1)[: len(portion)] = portion
            self.stream.buffer_updated(len(portion))

    def carry(self) -> None:
        """Carry what both have said to the other."""
        self.incoming.write(self.socket.sent)
        self.socket.sent.clear()
        self.read(self.outgoing.read())

    async def agree(self) -> None:
        for _ in range(5):
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                pass
            self.carry()
        await self.stream.agree()

    async def open(self) -> None:
        await self.agree()
        self.stream.give_to(self.plain)
        await settled()

    def said(self, *parts: bytes) -> bytes:
        """What the client sends, a record for each part."""
        for part in parts:
            assert self.client.write(part) == len(part)
        return self.outgoing.read()

    def heard(self) -> bytes:
        """What the client hears."""
        self.incoming.write(self.socket.sent)
        self.socket.sent.clear()
        heard = bytearray()
        try:
            while part := self.client.read(65_536):
                heard += part
        except ssl.SSLWantReadError:
            pass
        return bytes(heard)

    def farewell(self) -> bytes:
        try:
            self.client.unwrap()
        except ssl.SSLWantReadError:
            pass
        return self.outgoing.read()

    def hello(self) -> None:
        """Let the stream read what a client begins with."""
        with pytest.raises(ssl.SSLWantReadError):
            self.client.do_handshake()
        self.carry()


async def settled() -> None:
    """Let all that is due happen."""
    for _ in range(3):
        await asyncio.sleep(0)


RECORD = b"\x17\x03\x03\x00\x02ab"


@pytest.mark.parametrize(
    ("data", "limit", "end"),
    [
        (b"", 1, 0),
        (RECORD, 1, 7),
        (RECORD, 2, 7),
        (RECORD * 3, 2, 14),
        (RECORD[:4], 1, 0),
        (RECORD[:6], 1, 0),
        (RECORD + RECORD[:6], 5, 7),
        (b"GET / HTTP/1.1\r\n", 1, 16),
        (RECORD + b"AMQP\x00\x01\x00\x00", 5, 15),
        (RECORD + b"AMQP\x00\x01\x00\x00", 1, 7),
        (b"\x16\x02\x03\x00\x02ab", 1, 7),
        (b"\x80\x2e\x01\x00\x02..", 1, 7),
        (b"\x80\x2e", 1, 0),
        (b"\x17\x03\x03\x48\x00" + bytes(10), 1, 0),
        (b"\x17\x03\x03\x48\x01" + bytes(10), 1, 15),
    ],
)
def test_records_are_told_apart(data: bytes, limit: int, end: int) -> None:
    assert whole_records(data, limit) == end
    assert whole_records(bytearray(data), limit) == end


@pytest.mark.parametrize("version", VERSIONS)
def test_both_sides_speak(version: ssl.TLSVersion) -> None:
    async def main() -> None:
        rig = Rig(version)
        await rig.open()
        assert rig.plain.calls == ["made"]
        assert rig.stream.is_reading()
        rig.read(rig.said(b"hello"))
        assert rig.plain.heard == [b"hello"]
        large = bytes(range(256)) * 2_000
        rig.stream.write(b"welcome")
        rig.stream.write(memoryview(large))
        assert rig.heard() == b"welcome" + large
        assert rig.stream.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
        assert rig.stream.get_extra_info("sslcontext") is SERVING
        assert rig.stream.get_extra_info("peername") == ("127.0.0.1", 5671)
        assert rig.stream.get_extra_info("nothing", 7) == 7
        assert not rig.stream.can_write_eof()
        rig.stream.set_write_buffer_limits(high=10)
        assert rig.socket.limits == (10, None)
        rig.socket.unsent = 3
        assert rig.stream.get_write_buffer_size() == 3
        rig.stream.pause_writing()
        rig.stream.resume_writing()
        assert rig.plain.calls == ["made", "full", "room"]

    run(main)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("given_late", [False, True])
def test_small_records_wait_for_their_turns(version: ssl.TLSVersion, given_late: bool) -> None:
    """Also those that come before there is a protocol. Nothing is read meanwhile."""

    async def main() -> None:
        rig = Rig(version)
        if given_late:
            await rig.agree()
            rig.read(rig.said(*[b"x"] * 1_000))
            await settled()
            assert rig.socket.paused
            rig.stream.give_to(rig.plain)
            assert rig.plain.heard == []
        else:
            await rig.open()
            rig.read(rig.said(*[b"x"] * 1_000))
            assert len(rig.plain.heard) == 1
        while sum(map(len, rig.plain.heard)) < 1_000:
            before = len(rig.plain.heard)
            assert rig.socket.paused
            await asyncio.sleep(0)
            assert len(rig.plain.heard) - before <= 1
        assert not rig.socket.paused
        assert max(map(len, rig.plain.heard)) == RECORDS_PER_TURN

    run(main)


def test_a_paused_protocol_hears_nothing() -> None:
    async def main() -> None:
        rig = Rig()
        await rig.open()

        def enough(data: bytes) -> None:
            rig.stream.pause_reading()

        rig.plain.act = enough
        rig.read(rig.said(*[b"x"] * (3 * RECORDS_PER_TURN + 8)))
        await settled()
        assert len(rig.plain.heard) == 1
        assert rig.socket.paused
        assert not rig.stream.is_reading()
        rig.stream.eof_received()
        await settled()
        assert rig.plain.calls == ["made"], "the end comes behind what waits"
        for heard in (2, 3, 4):
            rig.stream.resume_reading()
            await settled()
            assert len(rig.plain.heard) == heard
        assert rig.plain.calls == ["made"]
        rig.stream.resume_reading()
        await settled()
        assert rig.plain.calls == ["made", "end"]
        assert rig.socket.closed

    run(main)


class Stories:
    """How a client may speak and end."""

    parts = st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=40).map(lambda part: [part]),
            st.integers(1, 300).map(lambda count: [b"x"] * count),
            st.integers(1, 16_384).map(lambda size: [b"y" * size]),
        ),
        max_size=6,
    )
    reads = st.lists(st.sampled_from((1, 4, 5, 7, 60, 1_000, 20_000, READ_BYTES)), min_size=1, max_size=5)
    pauses = st.lists(st.booleans(), max_size=5)
    ends = st.sampled_from(("farewell", "end", "reset", "farewell and end", "farewell and reset"))


@given(parts=Stories.parts, reads=Stories.reads, pauses=Stories.pauses, end=Stories.ends, data=st.data())
def test_all_that_came_is_heard_before_the_end(
    parts: list[list[bytes]], reads: list[int], pauses: list[bool], end: str, data: st.DataObject
) -> None:
    """However it is cut into reads, whatever the protocol pauses, and however the connection ends."""
    version = data.draw(st.sampled_from(VERSIONS))

    async def main() -> None:
        rig = Rig(version)
        await rig.agree()
        early = data.draw(st.booleans())
        if not early:
            rig.stream.give_to(rig.plain)
        resume = pauses[:]

        def heard(part: bytes) -> None:
            if resume and resume.pop():
                rig.stream.pause_reading()
                asyncio.get_running_loop().call_later(0, rig.stream.resume_reading)

        rig.plain.act = heard
        said = b"".join(b"".join(part) for part in parts)
        wire = b"".join(rig.said(*part) for part in parts)
        if end.startswith("farewell"):
            wire += rig.farewell()
        sizes = reads[:]
        while wire:
            size = sizes.pop() if sizes else READ_BYTES
            while rig.socket.paused and not early:
                await asyncio.sleep(0)
            rig.read(wire[:size])
            wire = wire[size:]
        if end.endswith("end"):
            rig.stream.eof_received()
        elif end.endswith("reset"):
            rig.stream.connection_lost(ConnectionResetError())
        if early:
            rig.stream.give_to(rig.plain)
        while rig.plain.calls[-1] in ("made", "full"):
            await asyncio.sleep(0)
        assert b"".join(rig.plain.heard) == said
        if end == "reset":
            made, *full, lost = rig.plain.calls  # it is to produce nothing for what it hears behind the loss
            assert made == "made" and lost == ("lost", rig.plain.failure) and full in ([], ["full"])
            assert full or not early or not said
            assert isinstance(rig.plain.failure, ConnectionResetError)
            return
        await settled()
        if not end.endswith("reset"):
            assert rig.plain.calls == ["made", "end"]
            assert rig.socket.closed
            rig.stream.connection_lost(None)
        assert len([call for call in rig.plain.calls if isinstance(call, tuple)]) == 1

    run(main)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_close_says_farewell_and_waits_for_the_peers(version: ssl.TLSVersion) -> None:
    async def main() -> None:
        rig = Rig(version)
        await rig.open()
        rig.stream.write(b"last")
        rig.stream.close()
        rig.stream.close()
        rig.stream.write(b"never")
        assert rig.stream.is_closing()
        assert not rig.stream.is_reading()
        rig.read(rig.said(b"too late"))
        await settled()
        assert not rig.socket.closed
        assert not rig.socket.paused
        assert rig.plain.heard == []
        assert rig.heard() == b"last"
        rig.client.unwrap()
        rig.read(rig.outgoing.read())
        await settled()
        assert rig.socket.closed
        assert not rig.socket.aborted
        rig.stream.connection_lost(None)
        assert rig.plain.calls == ["made", ("lost", None)]
        assert rig.stream.is_closing()

    run(main)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_close_with_something_unread(version: ssl.TLSVersion) -> None:
    async def main() -> None:
        rig = Rig(version)
        await rig.open()
        rig.stream.pause_reading()
        rig.read(rig.said(*[b"unread"] * (3 * RECORDS_PER_TURN)))
        rig.stream.write(b"last")
        rig.stream.close()
        for _ in range(10):
            await asyncio.sleep(0)
        assert rig.heard() == b"last"
        assert not rig.socket.paused
        assert rig.plain.heard == []
        rig.client.unwrap()
        rig.read(rig.outgoing.read())
        await settled()
        assert rig.socket.closed

    run(main)


def test_a_connection_that_ended_is_not_aborted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FAREWELL_S", 0.001)

    async def main() -> None:
        rig = Rig()
        await rig.open()
        rig.stream.close()
        rig.stream.connection_lost(None)
        await asyncio.sleep(0.01)
        assert not rig.socket.aborted

    run(main)


def test_all_that_a_socket_had_unread_is_heard_a_buffer_in_each_turn() -> None:
    """It may be as much as a kernel keeps."""

    async def main() -> None:
        rig = Rig()
        await rig.open()
        said = rig.said(*[bytes(16_000)] * 100)
        assert len(said) > 4 * READ_BYTES
        with tempfile.TemporaryFile(buffering=0) as left:
            left.write(said)
            left.seek(0)
            rig.socket.left = left
            rig.stream.connection_lost(ConnectionResetError())
        assert rig.plain.calls[-1] == "full"  # it is to produce nothing for what it hears now
        while rig.plain.failure is None:
            await asyncio.sleep(0)
        assert sum(map(len, rig.plain.heard)) == 100 * 16_000
        assert max(map(len, rig.plain.heard)) <= READ_BYTES
        assert isinstance(rig.plain.failure, ConnectionResetError)

    run(main)


def test_what_came_before_a_reset_is_heard_by_who_has_paused() -> None:
    """Nobody may resume: it paused for what it could not write."""

    async def main() -> None:
        rig = Rig()
        await rig.open()
        rig.stream.pause_reading()
        rig.read(rig.said(*[b"x"] * (RECORDS_PER_TURN + 8)))
        await settled()
        assert rig.plain.heard == []
        rig.stream.connection_lost(ConnectionResetError())
        await settled()
        assert sum(map(len, rig.plain.heard)) == RECORDS_PER_TURN + 8
        assert isinstance(rig.plain.failure, ConnectionResetError)

    run(main)


def test_what_tls_itself_has_to_answer_is_answered() -> None:
    """A server that asks for the client's certificate afterwards (RFC 8446, 4.6.2)."""

    async def main() -> None:
        asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        asking.load_cert_chain(CERTIFICATE)
        asking.load_verify_locations(CERTIFICATE)
        asking.verify_mode = ssl.CERT_OPTIONAL
        asking.post_handshake_auth = True
        showing = trusting(ssl.TLSVersion.TLSv1_3)
        showing.load_cert_chain(CERTIFICATE)
        showing.post_handshake_auth = True
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = asking.wrap_bio(incoming, outgoing, server_side=True)
        wire, stream = Socket(), TlsStream(showing, server_side=False, server_hostname="localhost")
        stream.connection_made(wire)

        def carry() -> None:
            incoming.write(wire.sent)
            wire.sent.clear()
            with contextlib.suppress(ssl.SSLWantReadError):
                if not agreed:
                    server.do_handshake()
                    agreed.append(True)
                else:
                    server.read(1)
            said = outgoing.read()
            stream.get_buffer(-1)[: len(said)] = said
            stream.buffer_updated(len(said))

        agreed: list[bool] = []
        for _ in range(3):
            carry()
        await stream.agree()
        stream.give_to(Plain())
        await settled()
        assert not server.getpeercert()
        server.verify_client_post_handshake()
        for _ in range(3):
            carry()
        assert server.getpeercert()

    run(main)


def test_a_farewell_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FAREWELL_S", 0.001)

    async def main() -> None:
        rig = Rig()
        await rig.open()
        rig.stream.close()
        while not rig.socket.aborted:
            await asyncio.sleep(0.001)

    run(main)


def test_a_peer_that_has_gone_already_is_not_waited_for() -> None:
    async def main() -> None:
        rig = Rig()
        await rig.open()
        rig.stream.eof_received()
        assert rig.plain.calls == ["made", "end"]
        await settled()
        assert rig.socket.closed

    run(main)


def test_who_keeps_the_connection_open_hears_of_the_end_once() -> None:
    async def main() -> None:
        rig = Rig()
        await rig.open()
        rig.plain.eof_received = lambda: rig.plain.calls.append("end") or True  # type: ignore[method-assign,func-returns-value]
        rig.read(rig.farewell())
        await settled()
        rig.stream.eof_received()
        rig.stream.write(b"answer")
        assert rig.heard() == b"answer"
        assert not rig.socket.closed
        rig.stream.close()
        await settled()
        assert rig.socket.closed
        assert rig.plain.calls == ["made", "end"]

    run(main)


@pytest.mark.parametrize("forged", [b"\x17\x03\x03\x00\x20" + bytes(32), b"GET / HTTP/1.1\r\n\r\n"])
def test_what_cannot_be_decrypted_ends_it_behind_what_could(forged: bytes) -> None:
    async def main() -> None:
        rig = Rig()
        await rig.open()
        rig.read(rig.said(b"true") + forged + rig.said(b"never"))
        await settled()
        assert rig.plain.heard == [b"true"]
        assert rig.socket.closed
        with pytest.raises(ssl.SSLError):
            rig.heard()  # the alert
        rig.stream.connection_lost(None)
        await settled()
        assert rig.plain.calls[:-1] == ["made"]
        assert isinstance(rig.plain.failure, ssl.SSLError)
        assert rig.plain.failure.__traceback__ is None

    run(main)


@pytest.mark.parametrize(
    "nonsense", [b"AMQP\x00\x01\x00\x00", b"\x16\x03\x01\x00\x04abcd", b"\x80\x2e\x01\x00\x02" + bytes(50)]
)
def test_a_handshake_that_is_none(nonsense: bytes) -> None:
    async def main() -> None:
        rig = Rig()
        rig.read(nonsense)
        with pytest.raises(ssl.SSLError):
            await rig.stream.agree()
        await settled()
        assert rig.socket.closed or rig.socket.aborted
        rig.stream.connection_lost(None)
        await settled()
        assert rig.stream.get_extra_info("peername") is None

    run(main)


@pytest.mark.parametrize("lost", [False, True])
def test_a_peer_that_leaves_in_the_handshake(lost: bool) -> None:
    async def main() -> None:
        rig = Rig()
        if lost:
            rig.stream.connection_lost(None)
        else:
            rig.stream.eof_received()
        with pytest.raises(ConnectionResetError) as caught:
            await rig.stream.agree()
        assert str(caught.value) == ""
        assert lost or rig.socket.aborted

    run(main)


def test_who_waits_for_tls_no_longer() -> None:
    async def main() -> None:
        rig = Rig()
        waiting = asyncio.create_task(rig.stream.agree())
        await settled()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert rig.socket.aborted
        rig.carry()
        rig.stream.connection_lost(None)
        await settled()
        assert rig.plain.calls == []

    run(main)


@pytest.mark.parametrize("stage", ["agreed", "open", "waiting"])
def test_an_abort(stage: str) -> None:
    async def main() -> None:
        rig = Rig()
        if stage == "agreed":
            await rig.agree()
            rig.stream.close()
        else:
            await rig.open()
            if stage == "waiting":
                rig.read(rig.said(*[b"x"] * (3 * RECORDS_PER_TURN + 8)))
            rig.stream.abort()
        assert rig.socket.aborted
        heard = len(rig.plain.heard)
        await settled()
        rig.stream.connection_lost(None)
        await settled()
        assert len(rig.plain.heard) == heard, "nothing is heard after it"
        assert rig.plain.calls == ([] if stage == "agreed" else ["made", ("lost", None)])

    run(main)


def test_an_error_of_the_protocol_closes_the_socket() -> None:
    async def main() -> None:
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context["exception"]))
        rig = Rig()
        await rig.open()
        rig.read(rig.said(*[b"x"] * (RECORDS_PER_TURN + 8)))

        def fail(data: bytes) -> None:
            raise ZeroDivisionError

        rig.plain.act = fail
        await settled()
        assert [type(error) for error in errors] == [ZeroDivisionError]
        assert rig.socket.aborted

    run(main)


class Failing:
    """An SSL object that encrypts nothing."""

    def __init__(self, real: ssl.SSLObject, error: ssl.SSLError) -> None:
        self._real, self._error = real, error

    def write(self, data: memoryview) -> int:
        raise self._error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest.mark.parametrize("error", [ssl.SSLError(1, "broken"), ssl.SSLWantReadError()])
def test_an_encryption_that_fails(error: ssl.SSLError) -> None:
    """Also as the peer has begun another handshake: that is for it to have done beforehand."""

    async def main() -> None:
        rig = Rig()
        await rig.open()
        rig.stream._tls = Failing(rig.stream._tls, error)  # type: ignore[assignment]
        rig.stream.write(b"lost")
        rig.stream.write(b"never")
        await settled()
        assert rig.socket.closed
        rig.stream.connection_lost(None)
        assert isinstance(rig.plain.failure, ssl.SSLError)
        assert "broken" in str(rig.plain.failure) or "another handshake" in str(rig.plain.failure)

    run(main)


def test_who_writes_or_closes_when_the_buffer_is_full_does_so_behind_what_it_wrote() -> None:
    async def main() -> None:
        rig = Rig()
        await rig.open()
        write = rig.socket.write

        def fill(data: bytes | bytearray | memoryview) -> None:
            write(data)
            if "full" not in rig.plain.calls:
                rig.stream.pause_writing()
                rig.stream.write(b"inner")
                rig.stream.close()

        rig.socket.write = fill  # type: ignore[method-assign]
        large = bytes(3 * WRITE_BYTES)
        rig.stream.write(large)
        assert rig.heard() == large + b"inner"

    run(main)


def test_nothing_is_written_to_a_socket_that_is_gone() -> None:
    """uvloop's refuse it, and asyncio's log it."""

    async def main() -> None:
        rig = Rig()
        await rig.agree()
        rig.socket.aborted = True
        rig.socket.sent.clear()
        rig.stream.connection_lost(None)
        rig.stream.give_to(rig.plain)
        rig.stream.set_write_buffer_limits(high=1)
        rig.stream.write(b"nobody")
        assert rig.stream.get_write_buffer_size() == 0
        await settled()
        assert not rig.socket.sent
        assert rig.socket.limits == (None, None)
        assert rig.plain.calls == ["made", ("lost", None)]

    run(main)


def test_a_protocol_that_cannot_take_it_ends_the_connection() -> None:
    async def main() -> None:
        rig = Rig()
        await rig.agree()

        def fail(transport: asyncio.BaseTransport) -> None:
            raise ZeroDivisionError

        rig.plain.connection_made = fail  # type: ignore[method-assign]
        with pytest.raises(ZeroDivisionError):
            rig.stream.give_to(rig.plain)
        assert rig.socket.aborted

    run(main)


def test_a_peer_that_makes_tls_answer_and_reads_nothing_is_not_read_from() -> None:
    async def main() -> None:
        rig = Rig()
        await rig.open()
        rig.stream.pause_writing()
        rig.stream._outgoing.write(b"TLS's answer to something")
        rig.read(rig.said(b"first"))
        assert rig.socket.paused
        assert rig.plain.heard == [b"first"]
        rig.stream.resume_writing()
        await settled()
        assert not rig.socket.paused
        rig.read(rig.said(b"second"))
        assert rig.plain.heard == [b"first", b"second"]

    run(main)


def test_a_slow_reader_of_the_last_bytes_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FAREWELL_S", 0.01)

    async def main() -> None:
        rig = Rig()
        await rig.open()
        rig.socket.unsent = 1_000
        rig.stream.close()
        for _ in range(20):
            rig.socket.unsent -= 10
            await asyncio.sleep(0.005)
        assert not rig.socket.aborted
        while not rig.socket.aborted:
            await asyncio.sleep(0.001)

    run(main)


def test_of_a_crowd_that_shakes_hands_one_does_in_each_round() -> None:
    async def main() -> None:
        handshakes = Turnstile(asyncio.get_running_loop(), 1)
        crowd = [Rig(handshakes=handshakes) for _ in range(4)]
        for rig in crowd:
            rig.hello()
        for answered in (1, 2, 3, 4):
            assert [bool(rig.socket.sent) for rig in crowd] == [number < answered for number in range(4)]
            assert [rig.socket.paused for rig in crowd] == [number >= answered for number in range(4)]
            await asyncio.sleep(0)
        for rig in crowd:
            await rig.agree()

    run(main)


@pytest.mark.parametrize("ends", [TlsStream.abort, TlsStream.eof_received])
def test_who_leaves_the_crowd_keeps_nobody_waiting(ends: Callable[[TlsStream], object]) -> None:
    async def main() -> None:
        handshakes = Turnstile(asyncio.get_running_loop(), 1)
        first, second, third = (Rig(handshakes=handshakes) for _ in range(3))
        for rig in (first, second, third):
            rig.hello()
        ends(second.stream)
        if ends is TlsStream.abort:
            assert second.socket.aborted
            second.stream.connection_lost(None)
            await asyncio.sleep(0)
            assert third.socket.sent
        await settled()
        await settled()
        with pytest.raises(ConnectionResetError):
            await second.stream.agree()
        for rig in (first, third):
            await rig.agree()

    run(main)

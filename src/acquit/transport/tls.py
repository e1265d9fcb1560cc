"""TLS on a socket: a transport for the protocol that uses it, and itself the protocol of the socket's transport.

Theory of operation. `ssl.SSLObject` moves bytes between two pieces of memory, and knows no socket. What the socket
brings is kept as it is, encrypted, and given to it a few records at a time; what it makes of them goes on to the
protocol. What the protocol writes is encrypted at once, and waits, if it has to, in the socket's buffer::

    socket ─ buffer_updated ─▶ _waiting ─ whole records ─▶ SSLObject ─ data_received ─▶ protocol (`pump`)
    socket ◀──────────── raw.write ◀───────────────────── SSLObject ◀──── write ◀────── protocol

Its stages: "agreeing", the handshake; "agreed", until there is a protocol; "open"; "closing", in which our farewell is
said and what the peer says is dropped until it has said its own (a socket that is closed with something unread resets
the connection, and what was said last may be lost with it); "over".

Fairness. A record costs some microseconds, whether it has one byte or 16 KiB, and a socket's buffer holds thousands of
small ones. So only `RECORDS_PER_TURN` of them are taken in one turn of the loop, of whichever kind they are: they can
be told apart without a key (RFC 8446, 5.1). The rest has its turn after all other connections that have something, and
nothing is read from the socket meanwhile.

A server's signature costs more than all else, with a large key some milliseconds, and a crowd that has connected may
ask for it in the same moment. So its handshakes go on one after the other (`turnstile`), with all that others have to
say between them.

The end. All that came before the peer ended its side, or before the connection was reset, is decrypted and heard first.

Why not asyncio's own TLS: it decrypts all that it has read in one go; at the end of the peer's data it fills the
protocol's buffer once more and drops the rest; it keeps 256 KiB for each connection; and each event loop has its own,
with other habits. The cryptography and the protocol of TLS are OpenSSL's, here as there.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from math import inf
from typing import Any, Final, Literal, cast

from acquit.transport.pump import Pump
from acquit.transport.turnstile import Turnstile
from acquit.transport.unread import unread

RECORDS_PER_TURN: Final = 128
"""The most records that one turn of the loop takes: a quarter of a millisecond, or some ten of updates of keys."""
READ_BYTES: Final = 256 * 1024
"""The most that is read from the socket at once, and that one turn decrypts. No more than that waits, and the record
that it ends in, before the socket is lost; all that it still has, then."""
WRITE_BYTES: Final = 128 * 1024
"""The most that is encrypted at once: a connection keeps as much memory as that once needed."""
FAREWELL_S: Final = 5.0
"""Seconds for which a peer may let us wait at the end: read none of our last bytes, or not say its farewell."""

_HEADER_BYTES: Final = 5
_MAJOR_VERSION: Final = 3
"""Second byte of a record, in each version of TLS and in SSL 3."""
_RECORD_BYTES_MAX: Final = 16 * 1024 + 2_048
"""The most that a record has behind its header (RFC 5246, 6.2.3; TLS 1.3 allows less)."""


def whole_records(data: bytes | bytearray, limit: int) -> int:
    """Return where the last of at most `limit` records ends that are whole in the first `READ_BYTES` of `data`; 0
    without one. What is no record counts, with what follows: OpenSSL is to see it and to say what it is."""
    at, end = 0, min(len(data), READ_BYTES)
    for _ in range(limit):
        if end - at < _HEADER_BYTES:
            break
        length = data[at + 3] << 8 | data[at + 4]
        if data[at + 1] != _MAJOR_VERSION or length > _RECORD_BYTES_MAX:
            return end
        if end - at - _HEADER_BYTES < length:
            break
        at += _HEADER_BYTES + length
    return at


class _Buffers(threading.local):
    """Room for what is read and for what is decrypted, for all connections of a thread: it is taken at once. What was
    encrypted is never smaller than what comes of it."""

    def __init__(self) -> None:
        self.read = memoryview(bytearray(READ_BYTES))
        self.decrypted = memoryview(bytearray(2 * READ_BYTES))


_buffers: Final = _Buffers()


class TlsStream(asyncio.Transport, asyncio.BufferedProtocol):
    """TLS of one socket. Make it the protocol of the socket's transport, or have it `take` one, wait for `agree`, and
    `give_to` a protocol.

    `get_extra_info` knows ``ssl_object`` and ``sslcontext``, and otherwise what the socket's transport knows.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        handshakes: Turnstile | None = None,
    ) -> None:
        """`server_hostname`: the name that the peer's certificate must bear; `handshakes`: where its handshake waits,
        among others. Belongs to the running loop. Raises ValueError or TypeError for what cannot be such a name."""
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._context = context
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side, server_hostname)
        self._stage: Literal["agreeing", "agreed", "open", "closing", "over"] = "agreeing"
        self._agreed: asyncio.Future[None] = self._loop.create_future()
        self._raw: asyncio.Transport | None = None
        self._protocol: asyncio.Protocol | Pump | None = None
        self._waiting = bytearray()
        """Bytes that came and are not decrypted: records that wait for their turn, and the first part of one."""
        self._turn_due = False
        self._handshakes = handshakes
        self._held_back = False
        """True if the protocol wants to hear nothing for now."""
        self._raw_paused = False
        self._full = False
        """True if the socket's buffer is full."""
        self._choked = False
        """True if TLS itself had something to answer then: a peer may ask for that and read none of it."""
        self._ended = False
        """True if the socket brings nothing more."""
        self._deaf = False
        """True if nothing more can be decrypted: the peer has said farewell, or TLS has failed."""
        self._end_heard = False
        self._lost = False
        self._failure: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None

    # -- for the owner -------------------------------------------------------------------------------------------------

    def take(self, transport: asyncio.Transport) -> None:
        """Take over a socket from another protocol."""
        transport.set_protocol(self)
        self.connection_made(transport)
        if transport.is_closing():  # and that may have been said to the other protocol
            self.connection_lost(None)

    async def agree(self) -> None:
        """Wait until TLS is agreed. Raises OSError (ssl.SSLError is one) where that fails, without a word in it where
        the peer hung up. Then, or where this is cancelled, the socket is closed."""
        try:
            await self._agreed
        except BaseException:
            self.abort()
            raise

    def give_to(self, protocol: asyncio.Protocol | Pump) -> None:
        """Connect the protocol that this is for, once TLS is agreed. It hears all that has come meanwhile."""
        self._protocol = protocol
        if self._stage == "agreed":
            self._stage = "open"
        try:
            protocol.connection_made(self)
            if self._full:
                protocol.pause_writing()
        except BaseException:
            self.abort()
            raise
        self._turn_later()

    # -- called by the protocol ----------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection by that name."""
        match name:
            case "ssl_object":
                return self._tls
            case "sslcontext":
                return self._context
            case _:
                return default if self._raw is None else self._raw.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send it. What is written after `close` goes nowhere."""
        if self._stage != "open":
            return
        # All of it before any is sent: the protocol may write, or close, when it hears that the buffer is full.
        said, encrypted, at = memoryview(data), [], 0
        try:
            while at < len(data):
                at += self._tls.write(said[at : at + WRITE_BYTES])
                encrypted.append(self._outgoing.read())
        except ssl.SSLWantReadError:
            self._fail(ssl.SSLError(ssl.SSL_ERROR_SSL, "the peer has begun another handshake"))
        except ssl.SSLError as exc:
            self._fail(exc)
        else:
            self._send(b"".join(encrypted))

    def close(self) -> None:
        """Say farewell behind all that was written, and close the socket when the peer has said so, too."""
        if self._stage in ("agreeing", "agreed"):
            self.abort()
        elif self._stage == "open":
            self._stage = "closing"
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # the peer has not said it yet; or it has said more, which nobody is going to hear
            self._send(self._outgoing.read())
            self._wait_for_the_end()
            self._turn_later()

    def abort(self) -> None:
        """Close the socket without a word. Nothing more is heard but the end."""
        if self._handshakes is not None and self._handshakes.leave(self._turn):
            self._turn_due = False
        if self._stage != "over":
            self._stage = "closing"
            self._turn_later()
        if self._raw is not None and not self._lost:
            self._raw.abort()

    def is_closing(self) -> bool:
        """Return True after `close` and `abort`."""
        return self._stage in ("closing", "over")

    def pause_reading(self) -> None:
        """Hear nothing for now: nothing is decrypted then, nor read."""
        self._held_back = True
        self._look_at_reading()

    def resume_reading(self) -> None:
        """Hear more."""
        self._held_back = False
        self._turn_later()

    def is_reading(self) -> bool:
        """Return True unless reading is paused or over."""
        return self._stage == "open" and not self._held_back

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the bytes in the socket's buffer with which writing pauses, and goes on."""
        if self._raw is not None and not self._lost:
            self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return 0 if self._raw is None or self._lost else self._raw.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        """Return False: a farewell is for both directions here."""
        return False

    # -- called by the socket's transport ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake: the socket is connected."""
        self._raw = cast("asyncio.Transport", transport)  # other loops' are of no class of asyncio
        self._turn()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the place for what is read."""
        return _buffers.read

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        self._waiting += _buffers.read[:nbytes]
        self._turn_in_time()

    def eof_received(self) -> bool:
        """Hear that no more comes: behind all that came. True: we close the socket."""
        self._ended = True
        self._turn_in_time()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Hear that the socket is gone: behind all that came. Twice is once."""
        if self._lost:
            return
        self._ended = self._lost = True
        if self._raw is not None and isinstance(exc, OSError):
            self._waiting += unread(self._raw)
        if self._waiting and not self._full:
            self.pause_writing()  # what is written now goes nowhere, and there is something to hear before the end
        self._failure = self._failure or exc
        if self._timer is not None:
            self._timer.cancel()
        self._turn_in_time()

    def pause_writing(self) -> None:
        """The socket's buffer is full."""
        self._full = True
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """The socket's buffer has room again."""
        self._full = False
        if self._choked:
            self._choked = False
            self._turn_later()
        if self._protocol is not None:
            self._protocol.resume_writing()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _turn_in_time(self) -> None:
        """Take a turn, if none is due: now, or for a step of the handshake behind those of others."""
        if self._turn_due:
            return
        if self._handshakes is not None and self._stage == "agreeing" and whole_records(self._waiting, 1):
            self._turn_due = True
            self._handshakes.enter(self._turn)
            self._look_at_reading()
        else:
            self._turn()

    def _turn_later(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Take the records of one turn, and what follows from them."""
        self._turn_due = False
        try:
            if self._stage != "over" and self._takes():
                self._take()
        except BaseException:
            self.abort()
            raise
        self._look_at_reading()

    def _takes(self) -> bool:
        """Return True if what came may be taken. A protocol that holds back hears what is there when all is lost."""
        match self._stage:
            case "agreed":
                return False
            case "open":
                return self._lost or not (self._held_back or self._choked)
            case _:
                return True

    def _take(self) -> None:
        if self._deaf:
            self._waiting.clear()
        else:
            count = whole_records(self._waiting, RECORDS_PER_TURN)
            self._incoming.write(self._waiting[:count])
            del self._waiting[:count]
            if self._stage == "agreeing":
                self._shake_hands()
            else:
                self._hear()
        if not self._takes():
            return
        if whole_records(self._waiting, 1):
            self._turn_later()
        elif self._ended or self._deaf:
            self._end()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send(self._outgoing.read())
        except ssl.SSLError as exc:
            self._fail(exc)
        else:
            self._send(self._outgoing.read())
            self._stage = "agreed"
            if not self._agreed.done():
                self._agreed.set_result(None)

    def _hear(self) -> None:
        """Decrypt what the TLS object has, and let the protocol hear it."""
        room, size = _buffers.decrypted, 0
        failure: ssl.SSLError | None = None
        try:
            while self._incoming.pending or self._tls.pending():
                count = cast("int", self._tls.read(len(room) - size, room[size:]))
                if not count:
                    raise ssl.SSLZeroReturnError
                size += count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._deaf = True
        except ssl.SSLError as exc:
            failure = exc
        if self._outgoing.pending and failure is None:
            self._choked = self._full
            self._send(self._outgoing.read())
        if size and self._stage == "open":
            assert self._protocol is not None
            self._protocol.data_received(bytes(room[:size]))
        if failure is not None and self._stage == "open":
            self._fail(failure)
        elif failure is not None:
            self._deaf = True  # we have said farewell

    def _send(self, encrypted: bytes) -> None:
        if encrypted and self._raw is not None and not self._raw.is_closing():
            self._raw.write(encrypted)

    def _end(self) -> None:
        """Act upon the end of what comes."""
        if self._lost:
            self._stage = "over"
            protocol, failure = self._protocol, self._failure
            self._protocol = self._raw = self._failure = None  # the failure's traceback may hold frames, and so this
            self._disagree(failure or ConnectionResetError())
            if protocol is not None:
                protocol.connection_lost(failure)
        elif self._stage == "agreeing":
            self._fail(ConnectionResetError())
        elif self._stage == "closing":
            if self._raw is not None and not self._raw.is_closing():
                self._raw.close()
        elif not self._end_heard:
            self._end_heard = True
            assert self._protocol is not None
            if not self._protocol.eof_received():
                self.close()

    def _fail(self, failure: OSError) -> None:
        """Close the socket behind the alert that says why."""
        self._failure = failure.with_traceback(None)
        self._stage = "closing"
        self._deaf = True
        self._disagree(failure)
        self._send(self._outgoing.read())
        self._wait_for_the_end()
        self._turn_later()

    def _disagree(self, failure: Exception) -> None:
        if not self._agreed.done():
            self._agreed.set_exception(failure)
            self._agreed.exception()  # heard, as the loop sees it, also where nobody waits any more

    def _wait_for_the_end(self, unsent: float = inf) -> None:
        """Cut the peer off when it has read nothing for a while, of so many bytes, or has nothing to read and says no
        farewell."""
        if self._raw is None or self._lost:
            return
        left = self._raw.get_write_buffer_size()
        if left < unsent:
            self._timer = self._loop.call_later(FAREWELL_S, self._wait_for_the_end, left)
        else:
            self._raw.abort()

    def _look_at_reading(self) -> None:
        """Read no more while something waits for its turn, or nobody wants to hear it."""
        if self._raw is None or self._ended or self._raw.is_closing():
            return
        pause = self._turn_due or self._deaf or not self._takes()
        if pause is not self._raw_paused:
            self._raw_paused = pause
            if pause:
                self._raw.pause_reading()
            else:
                self._raw.resume_reading()


__all__ = ["TlsStream", "whole_records"]

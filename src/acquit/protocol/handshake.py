"""Handshake before the first AMQP frame: protocol headers and the SASL layer (specification 2.2, 5.3).

Theory of operation. The client says a header first; a server answers with the same one, or with one that it does take,
and closes. Behind the SASL header come SASL frames until an outcome; if that is ok, both begin again with the AMQP
header. A client writes its AMQP header without waiting for the server's, and the connection writes the open behind it.

A server that has given a response to its application reads nothing further until the application has answered: what
the peer sends ahead is kept, within a bound. A handshake that fails raises `HandshakeEnded`: there is no frame to say
an error in, so the connection just ends.
"""

from __future__ import annotations

from typing import Final

from acquit.errors import AuthenticationFailed, FramingError, LocalProtocolError, ResourceLimitExceeded
from acquit.protocol.composite import encode_composite
from acquit.protocol.connection_base import Event
from acquit.protocol.constants import AMQP_HEADER, SASL_HEADER, TLS_HEADER
from acquit.protocol.definitions import AmqpCondition, Error, SaslCode, SaslOutcome, SaslPerformative
from acquit.protocol.frames import SASL_FRAME, FrameDecoder, encode_frame
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.sasl import ClientExchange, SaslChallenged, SaslClient, SaslServerOptions, ServerExchange

_HEADER_BYTES: Final = 8
_WANTED: Final = {SASL_HEADER: "requires SASL", TLS_HEADER: "requires TLS (in_band_tls)"}
"""Requirements of servers that answer with another header (2.2)."""
_TLS_ALERT: Final = b"\x15\x03"
"""Begin of what a TLS server may say to who does not speak TLS (RFC 8446, 5.1)."""
_REFUSALS: Final = {
    SaslCode.AUTH: "the server knows no such user, password or certificate",
    SaslCode.SYS: "the server has an error of its own",
    SaslCode.SYS_PERM: "the server has an error that somebody must mend",
    SaslCode.SYS_TEMP: "the server has an error that may pass",
}
"""Meanings of the codes that refuse (5.3.3.6), for people."""
_REFUSED: Final = Error(AmqpCondition.UNAUTHORIZED_ACCESS, "SASL refused the peer")


class HandshakeEnded(Exception):
    """The connection is over before it was open. What is to be written has been; the fields are ConnectionEnded's."""

    def __init__(self, error: Error, *, remote: bool, authentication: bool, foreign: bool = False) -> None:
        super().__init__(error.description)
        self.error = error
        self.remote = remote
        self.authentication = authentication
        self.foreign = foreign


class Handshake:
    """The handshake of one connection. Writes to `out`, which it shares with the connection.

    `amqp_header_sent`: ours is written, and the open may follow; `heard`: the peer has said something.
    """

    __slots__ = (
        "_authenticated",
        "_client_sasl",
        "_decoder",
        "_header",
        "_header_sent",
        "_options",
        "_out",
        "_sasl_required",
        "_server",
        "_server_sasl",
        "_started",
        "amqp_header_sent",
        "heard",
    )

    def __init__(
        self, options: ConnectionOptions, *, server: bool, sasl: SaslClient | SaslServerOptions | None, out: list[bytes]
    ) -> None:
        self._options = options
        self._server = server
        self._out = out
        self._started = server
        self._server_sasl: ServerExchange | None = None
        self._client_sasl: ClientExchange | None = None
        self._sasl_required = False
        if isinstance(sasl, SaslServerOptions):
            if not server:
                raise LocalProtocolError("SaslServerOptions are for servers")
            self._server_sasl = ServerExchange(sasl)
            self._sasl_required = sasl.required
        elif sasl is not None:
            if server:
                raise LocalProtocolError("a server offers SASL by SaslServerOptions")
            self._client_sasl = ClientExchange(sasl, options.hostname)
        self._authenticated = False
        self._header_sent = b""
        self._header = b""  # what has come of the header that is next
        self._decoder: FrameDecoder | None = None  # while SASL frames are next
        self.amqp_header_sent = False
        self.heard = False

    def start(self) -> None:
        """Client: say our header. Raises LocalProtocolError on a server, or when called twice."""
        if self._started:
            raise LocalProtocolError("the connection is a server's, or was opened before")
        self._started = True
        self._send_header(AMQP_HEADER if self._client_sasl is None else SASL_HEADER)

    def receive(self, data: bytes, events: list[Event]) -> bytes | None:
        """Take bytes from the peer. Returns those behind the handshake once it is done, or None.

        Raises HandshakeEnded when it has failed, RemoteProtocolError for what is no SASL frame or may not come now.
        """
        if not self._started:
            raise FramingError("bytes before we have opened the connection")
        self.heard = self.heard or bool(data)
        if self._decoder is not None:
            self._decoder.feed(data)
            return self._read_frames(self._decoder, events)
        self._header += data
        header, rest = self._header[:_HEADER_BYTES], self._header[_HEADER_BYTES:]
        if len(header) < _HEADER_BYTES and header[:4] == AMQP_HEADER[: min(4, len(header))]:
            return None  # so far, so good
        self._header = b""
        return self.receive(rest, events) if self._take_header(header) else rest

    # -- the server's application answers

    def challenge(self, challenge: bytes, events: list[Event]) -> bytes | None:
        """Send another challenge. Returns and raises as `receive` does for what the peer had sent ahead; raises
        HandshakeEnded after too many, LocalProtocolError if it is not our turn."""
        frame = self._answered().challenge(challenge)
        if frame is None:
            self._write(SaslOutcome(SaslCode.AUTH))
            raise HandshakeEnded(_REFUSED, remote=False, authentication=True)
        self._write(frame)
        assert self._decoder is not None
        return self._read_frames(self._decoder, events)

    def succeed(self, additional_data: bytes | None, events: list[Event]) -> bytes | None:
        """The peer is who it says it is. Returns and raises as `receive` does for what it had sent ahead."""
        self._write(self._answered().outcome(SaslCode.OK, additional_data))
        return self._leave_sasl(events)

    def refuse(self, code: SaslCode) -> HandshakeEnded:
        """The peer is not. What to end the connection with."""
        self._write(self._answered().outcome(code))
        return HandshakeEnded(_REFUSED, remote=False, authentication=True)

    # -- the client's driver answers

    def respond(self, response: bytes, events: list[Event]) -> bytes | None:
        """Send a slow mechanism's answer to the last challenge. Returns and raises as `receive` does for what the
        server had sent ahead; LocalProtocolError if no challenge waits."""
        if self._client_sasl is None or self._decoder is None:
            raise LocalProtocolError("no SASL challenge waits for an answer")
        self._write(self._client_sasl.respond(response))
        return self._read_frames(self._decoder, events)

    @staticmethod
    def give_up(reason: str) -> HandshakeEnded:
        """Client: our mechanism does not go on. What to end the connection with."""
        error = Error(AmqpCondition.UNAUTHORIZED_ACCESS, reason)
        return HandshakeEnded(error, remote=False, authentication=True)

    # -- its own

    def _answered(self) -> ServerExchange:
        if self._server_sasl is None:
            raise LocalProtocolError("no SASL is offered")
        return self._server_sasl

    def _send_header(self, header: bytes) -> None:
        self._header_sent = header
        self._out.append(header)
        self.amqp_header_sent = header == AMQP_HEADER

    def _write(self, frame: SaslPerformative) -> None:
        self._out.append(encode_frame(0, encode_composite(frame), SASL_FRAME))

    def _take_header(self, header: bytes) -> bool:
        """Answer the peer's header. True if SASL frames are next."""
        if not self._server:
            if header != self._header_sent:
                what = _WANTED.get(header, f"answered {header!r}")
                if header.startswith(_TLS_ALERT):
                    what = "requires TLS (amqps://)"
                error = Error(AmqpCondition.NOT_IMPLEMENTED, f"we said {self._header_sent!r}, the server {what}")
                known = header == SASL_HEADER
                raise HandshakeEnded(error, remote=True, authentication=known, foreign=not known)
        elif header == SASL_HEADER and self._server_sasl is not None and not self._authenticated:
            self._send_header(SASL_HEADER)
            self._write(self._server_sasl.mechanisms())
        elif header == AMQP_HEADER and (self._authenticated or not self._sasl_required):
            self._send_header(AMQP_HEADER)
        else:
            # 2.2: answer with a header that we do take, and close.
            self._send_header(SASL_HEADER if self._sasl_required and not self._authenticated else AMQP_HEADER)
            error = Error(AmqpCondition.NOT_IMPLEMENTED, f"a protocol header of {header!r}")
            raise HandshakeEnded(error, remote=False, authentication=False)
        if header == SASL_HEADER:
            self._decoder = FrameDecoder(self._options.sasl_frame_size_max, SASL_FRAME)
        return header == SASL_HEADER

    def _leave_sasl(self, events: list[Event]) -> bytes | None:
        """SASL succeeded: protocol headers are next, and may be here already (5.3.2)."""
        assert self._decoder is not None
        rest = self._decoder.take_rest()
        self._decoder = None
        self._authenticated = True
        if not self._server:
            self._send_header(AMQP_HEADER)
        return self.receive(rest, events)

    def _read_frames(self, decoder: FrameDecoder, events: list[Event]) -> bytes | None:
        if self._client_sasl is not None:
            return self._read_server_frames(self._client_sasl, decoder, events)
        exchange = self._answered()
        if not exchange.answering:
            for frame in decoder:
                try:
                    events.append(exchange.receive(frame.performative))
                except AuthenticationFailed as exc:
                    self._write(exchange.outcome(SaslCode.AUTH))
                    error = Error(AmqpCondition.UNAUTHORIZED_ACCESS, str(exc))
                    raise HandshakeEnded(error, remote=False, authentication=True) from exc
                break  # what follows waits until the application has spoken
        if exchange.answering and decoder.buffered > self._options.pipelined_bytes_max:
            raise ResourceLimitExceeded("too much was sent ahead of the SASL outcome")
        return None

    def _read_server_frames(self, exchange: ClientExchange, decoder: FrameDecoder, events: list[Event]) -> bytes | None:
        frames = iter(decoder)
        while not exchange.answering:  # what follows waits until our driver has the answer
            frame = next(frames, None)
            if frame is None:
                return None
            if self._hear_server(exchange, frame.performative, events):
                return self._leave_sasl(events)
        if decoder.buffered > self._options.pipelined_bytes_max:
            raise ResourceLimitExceeded("too much was sent ahead of our SASL response")
        return None

    def _hear_server(self, exchange: ClientExchange, said: object, events: list[Event]) -> bool:
        """Client: answer a frame of the server's. True when it was the outcome, and that is ok."""
        try:
            answer = exchange.receive(said)
        except AuthenticationFailed as exc:
            raise self.give_up(str(exc)) from exc
        if isinstance(answer, SaslChallenged):
            events.append(answer)
            return False
        if not isinstance(answer, SaslCode):
            self._write(answer)
            return False
        if answer is not SaslCode.OK:
            transient = answer is SaslCode.SYS_TEMP  # says nothing about the credentials: worth another try (5.3.3.6)
            condition = AmqpCondition.INTERNAL_ERROR if transient else AmqpCondition.UNAUTHORIZED_ACCESS
            error = Error(condition, f"{_REFUSALS[answer]} (SASL {answer.name})")
            raise HandshakeEnded(error, remote=True, authentication=not transient)
        return True


__all__ = ["Handshake", "HandshakeEnded"]

"""AMQP 1.0 connection, client or server alike, without sockets or clocks (specification 2.2 to 2.4).

Theory of operation. A connection goes through `ConnectionState`: first the `Handshake` (protocol headers and SASL),
then opens, then frames of sessions, then closes. Frames are cut by `FrameDecoder`; a frame is for the connection, or
for the session on its channel. Frames of the steady state are taken by `fastpath` before anybody looks at them.

Blame decides how far an error reaches. What only one link or session did wrong ends only that (`Link.fail`,
`Session.fail`). What concerns the connection is raised as RemoteProtocolError by whoever sees it, arrives at
`receive_data`, and becomes a close with that condition; after bytes that cannot be read any further (framing,
decoding) the connection is over at once, otherwise it waits a while for the peer's close. Nothing a peer sends raises
to the caller.

Input is taken in turns, where `ConnectionOptions.turn_cost_max` asks for that: a call of `receive_data` stops when its
frames have cost so much (`costs`), even in the middle of a disposition of many deliveries, and the next one goes on.

Output is a list of byte strings, joined when it is taken. Sessions add what they have gathered just before.

Time comes only as `now`. Output is taken without one, so heartbeats follow the rule in `liveness.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from acquit.errors import (
    DecodeError,
    FramingError,
    LocalProtocolError,
    RemoteProtocolError,
    ResourceLimitExceeded,
)
from acquit.protocol.allocation import LowestFree
from acquit.protocol.composite import encode_composite
from acquit.protocol.connection_base import (
    DESCRIPTION_BYTES_MAX,
    ConnectionBase,
    ConnectionEnded,
    ConnectionOpened,
    Event,
)
from acquit.protocol.costs import FRAME_COSTS, HEAD_BYTES_PER_COST
from acquit.protocol.definitions import (
    AmqpCondition,
    Begin,
    Close,
    Disposition,
    Error,
    Open,
    SaslCode,
    Transfer,
)
from acquit.protocol.fastpath import Predictions
from acquit.protocol.frames import HEARTBEAT, FrameBody, FrameDecoder, encode_frame
from acquit.protocol.handshake import Handshake, HandshakeEnded
from acquit.protocol.liveness import Liveness
from acquit.protocol.options import MAX_FRAME_SIZE_MIN, ConnectionOptions
from acquit.protocol.receiver import UNFINISHED, ReceivingLink
from acquit.protocol.sasl import SaslClient, SaslServerOptions
from acquit.protocol.session import Session, SessionBegun, SessionState

ESTABLISHMENT_FAILED: Final = "amqp:connection-establishment-failed"
"""Property of an open that is there only because a close must follow one (2.4.1): the connection was refused."""


class ConnectionState(IntEnum):
    """States of a connection: 2.4.6, condensed."""

    HANDSHAKE = 0
    """Protocol headers, and perhaps SASL between them: see `handshake`."""
    OPENING = 1
    """The peer's open is next."""
    OPENED = 2
    """Both opens are exchanged."""
    CLOSE_SENT = 3
    """We closed; what still comes is ignored but for the peer's close."""
    ENDED = 4
    """Final state: nothing more is read or written."""


class Connection(ConnectionBase):
    """AMQP connection: bytes in, events out; verbs in, bytes out; time only as `now` (seconds, monotonic).

    The driver's loop: feed what arrives to `receive_data` (`receive_eof` at its end), act on the events, call it again
    without data while `input_waits`, after others had their turn; write `data_to_send` while `has_output`, call
    `handle_deadline` at `next_deadline` (look again after each of these), and close the socket when `closed` and the
    output is written. Then `release`. Nothing a peer sends makes these raise; misuse of the verbs raises
    LocalProtocolError, and nothing is sent then.

    `sasl`: a client's mechanism; what a server offers; None for no SASL layer. `user` is what `sasl_succeed` was told;
    `remote_open` the peer's open; `context` the application's.
    """

    def __init__(
        self,
        options: ConnectionOptions,
        *,
        server: bool,
        sasl: SaslClient | SaslServerOptions | None,
        now: float,
    ) -> None:
        super().__init__(options, server=server)
        self.state = ConnectionState.HANDSHAKE
        self.user: str | None = None
        self.admit: Callable[[Open], Error | None] | None = None
        """Server: asked before the peer's open is answered. An error refuses the connection: our open says
        ``amqp:connection-establishment-failed``, and the close behind it why."""

        self.open_properties: Mapping[str, object] = {}
        """Properties of this connection in our open, beside those of the options. `admit` may set them."""

        self.predictions = Predictions()
        """Engine's own: what frames of the steady state look like."""
        self._handshake = Handshake(options, server=server, sasl=sasl, out=self.out)
        self._decoder = FrameDecoder(options.max_frame_size)
        self._open_sent = False
        self._bad_open: RemoteProtocolError | None = None
        self._end_told = False
        self._channels = LowestFree()
        self._outgoing_channels: dict[int, Session] = {}
        self._incoming_channels: dict[int, Session] = {}
        self._now = now
        self._liveness = Liveness(options.idle_timeout_ms, now)
        self._handshake_deadline: float | None = now + options.handshake_timeout_ms / 1000
        self._close_deadline: float | None = None

    # -- for the driver

    @property
    def heard(self) -> bool:
        """True if the peer has said something."""
        return self._handshake.heard

    @property
    def closed(self) -> bool:
        """True if nothing more will come or go: close the socket once the output is written."""
        return self.state is ConnectionState.ENDED

    @property
    def has_output(self) -> bool:
        """True if `data_to_send` has something now."""
        return bool(self.out or self.dirty)

    @property
    def input_waits(self) -> bool:
        """True if `receive_data` has stopped at the end of its turn: call it again without waiting for more bytes. Read
        no more from the peer meanwhile: it would gather here."""
        if self.state in (ConnectionState.HANDSHAKE, ConnectionState.ENDED):
            return False
        return self.unfinished is not None or (self.turn.left <= 0 and self._decoder.buffered > 0)

    @property
    def output_bytes(self) -> int:
        """Bytes of output that wait, not counting the rest of deliveries larger than a frame."""
        return sum(map(len, self.out))

    @property
    def sessions(self) -> list[Session]:
        """The sessions begun, or ending; once the connection has ended, those that it took with it."""
        return list(self._outgoing_channels.values())

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        """Take bytes from the peer and say what they mean. Never raises for what a peer sent: it answers with detach,
        end or close, and the event says so. Call `data_to_send` afterwards, and look at `input_waits`."""
        self._now = now
        self.turn.begin()
        if self.state is not ConnectionState.ENDED:
            try:
                self._receive(data)
            except RemoteProtocolError as exc:
                self._fail(exc)
        return self._hand_over()

    def receive_eof(self, now: float) -> list[Event]:
        """The peer's stream has ended, or the transport failed. Gives ConnectionEnded if it was not given before."""
        self._now = now
        self.state = ConnectionState.ENDED
        self._end(None, lost=True, remote=True)
        return self._hand_over()

    def data_to_send(self) -> bytes:
        """All output that waits, or b"". Large deliveries come in chunks: call again while `has_output`, when the
        transport has room."""
        if self.dirty:
            sessions, self.dirty = self.dirty, []
            for session in sessions:
                session.flush(self.options.output_chunk_bytes)
        if not self.out:
            return b""
        data = b"".join(self.out)
        self.out.clear()
        self._liveness.sent()
        return data

    def next_deadline(self) -> float | None:
        """Return the time by which to call `handle_deadline`, or None. Calling it early does no harm.

        It moves later as frames arrive; a time that has passed means now: writing output can free a link, and its
        CreditChanged waits to be handed over; a close was asked for, and has yet to hear the time.
        """
        if self.events:
            return self._now
        if self.state is ConnectionState.ENDED:
            return None
        if self.state is ConnectionState.CLOSE_SENT:
            return self._now if self._close_deadline is None else self._close_deadline
        if self._handshake_deadline is not None:
            return self._handshake_deadline
        return self._liveness.deadline

    def handle_deadline(self, now: float) -> list[Event]:
        """Heartbeats, the peer's silence, and the limits on handshake and close."""
        self._now = now
        if self.state is ConnectionState.CLOSE_SENT:
            if self._close_deadline is None:
                self._close_deadline = now + self.options.close_timeout_ms / 1000
            elif now >= self._close_deadline:
                self.state = ConnectionState.ENDED
                self._end(None, lost=True, remote=False)
        elif self.state is not ConnectionState.ENDED:
            if self._handshake_deadline is not None:
                if now >= self._handshake_deadline:
                    self._give_up_handshake()
            elif self._liveness.silent_too_long(now):
                self._drop(f"nothing heard for {2 * self.options.idle_timeout_ms} ms")
            elif self._liveness.heartbeat_due(now):
                self.out.append(HEARTBEAT)
        return self._hand_over()

    def release(self) -> None:
        """Let go of all sessions, links and deliveries, once the connection has ended and its last events were acted
        upon. They know the connection and it knows them: without this, what a lost connection held would stay until
        Python's collector comes by, which in a broker is seldom. Who still has one of them may look at it."""
        self.state = ConnectionState.ENDED
        for session in self.sessions:
            session.release()
        self._outgoing_channels.clear()
        self._incoming_channels.clear()
        self.dirty.clear()
        self.events.clear()
        self.predictions = Predictions()
        self.context = self.admit = self.count_assembled = self.unfinished = None

    # -- for the application

    def open(self) -> None:
        """Client: send our header and go on to SASL and open by ourselves; ConnectionOpened or ConnectionEnded follows.

        A server answers the peer's open by itself. Raises LocalProtocolError on a server, or when called twice.
        """
        self._handshake.start()
        self._send_open_behind_header()

    def begin(
        self,
        *,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Mapping[str, object] | None = None,
    ) -> Session:
        """Begin a session. SessionBegun follows; links may be attached at once. Raises LocalProtocolError before
        ConnectionOpened, when closing, or with no channel left."""
        if not self.writable:
            raise LocalProtocolError(f"no session can begin: the connection is {self.state.name}")
        if not self._channel_left():
            raise LocalProtocolError("no channel is left for another session")
        return self._begin(None, tuple(offered_capabilities), tuple(desired_capabilities), properties)

    def close(self, error: Error | None = None) -> None:
        """Close in order, after what waits to be written but for deliveries larger than a frame, which are given up.

        ConnectionEnded follows when the peer has answered, or did not within `close_timeout_ms`; what the peer says
        before its close is ignored. Before the opens are exchanged the connection just ends. Does nothing twice.
        The time is counted from the next `handle_deadline`, which is due at once: only that knows what time it is.
        """
        if self.state in (ConnectionState.OPENING, ConnectionState.OPENED):
            self._send_close(error)
            self._close_deadline = None
        elif self.state is ConnectionState.HANDSHAKE:
            self.state = ConnectionState.ENDED
            self._end(error, lost=False, remote=False)

    def sasl_challenge(self, challenge: bytes) -> list[Event]:
        """Server: one more round; SaslResponded follows. The peer is refused after `SaslServerOptions.rounds_max`.
        Returns the events of what it had sent ahead (often none).

        Raises LocalProtocolError, as the other two answers do, if no response waits for an answer. If the connection
        has ended meanwhile nothing happens.
        """
        if self.state is ConnectionState.ENDED:
            return []
        try:
            self._handshake.challenge(challenge, self.events)
        except HandshakeEnded as end:
            self._end_handshake(end)
        except RemoteProtocolError as exc:
            self._fail(exc)
        return self._hand_over()

    def sasl_succeed(self, user: str | None, now: float, additional_data: bytes | None = None) -> list[Event]:
        """Server: the peer is `user`. Returns the events of what it had sent ahead (often none)."""
        if self.state is ConnectionState.ENDED:
            return []
        self._now = now
        try:
            rest = self._handshake.succeed(additional_data, self.events)
            self.user = user
            self._leave_handshake(rest)
        except HandshakeEnded as end:
            self._end_handshake(end)
        except RemoteProtocolError as exc:
            self._fail(exc)
        return self._hand_over()

    def sasl_fail(self, code: SaslCode = SaslCode.AUTH) -> None:
        """Server: the peer is refused. The connection is `closed`; ConnectionEnded is handed over next."""
        if self.state is not ConnectionState.ENDED:
            self._end_handshake(self._handshake.refuse(code))

    def sasl_respond(self, response: bytes, now: float) -> list[Event]:
        """Client: the answer to SaslChallenged. Returns the events of what the server had sent ahead (often none).

        Raises LocalProtocolError if no challenge waits. If the connection has ended meanwhile nothing happens.
        """
        if self.state is ConnectionState.ENDED:
            return []
        self._now = now
        try:
            self._leave_handshake(self._handshake.respond(response, self.events))
        except HandshakeEnded as end:
            self._end_handshake(end)
        except RemoteProtocolError as exc:
            self._fail(exc)
        return self._hand_over()

    def sasl_give_up(self, reason: str) -> None:
        """Client: there is no answer to SaslChallenged. The connection is `closed`; ConnectionEnded is handed over
        next."""
        if self.state is not ConnectionState.ENDED:
            self._end_handshake(self._handshake.give_up(reason))

    def shed_assembled(self) -> None:
        """End all links with deliveries that have begun to arrive and not ended, amqp:resource-limit-exceeded, for want
        of memory. LinkDetached is handed over next."""
        for session in self.sessions:
            for link in session.links:
                if isinstance(link, ReceivingLink) and link.in_delivery:
                    link.fail(AmqpCondition.RESOURCE_LIMIT_EXCEEDED, UNFINISHED)

    # -- for sessions and links

    @property
    def writable(self) -> bool:
        """True if frames of sessions may be written."""
        return self.state is ConnectionState.OPENED

    # -- its own: reading

    def _receive(self, data: bytes) -> None:
        if self.state is ConnectionState.HANDSHAKE:
            try:
                self._leave_handshake(self._handshake.receive(data, self.events))
            except HandshakeEnded as end:
                self._end_handshake(end)
        else:
            if data:
                self._decoder.feed(data)
            self._read_frames()

    def _leave_handshake(self, rest: bytes | None) -> None:
        """Go on with what the handshake has left over, if it is done."""
        self._send_open_behind_header()
        if rest is not None:
            self.state = ConnectionState.OPENING
            self._decoder.feed(rest)
            self._read_frames()

    def _read_frames(self) -> None:
        turn = self.turn
        self._take_predicted()
        start = self._decoder.offset
        for _, channel, performative, payload in self._decoder if self._may_go_on else ():
            head_bytes = self._decoder.offset - start - len(payload)
            turn.left -= FRAME_COSTS[type(performative)] + head_bytes // HEAD_BYTES_PER_COST
            self._liveness.heard(self._now)
            if self.state is ConnectionState.OPENED:
                self._on_frame(channel, performative, payload)
            elif isinstance(performative, Close):
                self._on_close(performative)
            elif self.state is ConnectionState.OPENING:
                self._on_first_frame(channel, performative)
            if self.state is ConnectionState.ENDED:
                break
            if isinstance(performative, Transfer | Disposition) and self.state is ConnectionState.OPENED:
                session = self._incoming_channels.get(channel)
                if session is not None:
                    head = self._decoder.data[start : self._decoder.offset - len(payload)]
                    self.predictions.learn(session, performative, head)
                self._take_predicted()
            if not self._may_go_on:
                break
            start = self._decoder.offset

    def forget_link(self, link: object) -> None:
        """The link's transfers will look different from what was learned of them, or no more come."""
        self.predictions.forget(link)

    def forget_session(self, session: object) -> None:
        """Forget the session's dispositions: its channel may be another session's now."""
        self.predictions.forget_session(session)

    def _take_predicted(self) -> None:
        unfinished = self.unfinished
        if unfinished is not None and self.turn.left > 0:
            self.unfinished = None
            unfinished()  # which is set anew where there is more
        if self.state is ConnectionState.OPENED and self._may_go_on and self.predictions.take(self._decoder, self):
            self._liveness.heard(self._now)

    @property
    def _may_go_on(self) -> bool:
        """True if another frame may be taken in this turn."""
        return self.turn.left > 0 and self.unfinished is None

    def _on_first_frame(self, channel: int, performative: object) -> None:
        if self._bad_open is not None:
            raise self._bad_open
        if not isinstance(performative, Open):
            raise RemoteProtocolError(f"the first frame must be an open, not {_name(performative)} (2.4.1)")
        if channel != 0:
            raise RemoteProtocolError(f"an open on channel {channel}, must be 0 (2.4.1)")
        if performative.max_frame_size < MAX_FRAME_SIZE_MIN:
            self._bad_open = RemoteProtocolError(
                f"a max-frame-size of {performative.max_frame_size}, must be {MAX_FRAME_SIZE_MIN} at least (2.7.1)",
                condition=AmqpCondition.INVALID_FIELD,
            )
            if self.server:
                raise self._bad_open
            # Qpid Broker-J refuses a client with an open of zeros, and says why in the close behind it.
            return
        idle_timeout_ms = performative.idle_time_out or 0
        if 0 < idle_timeout_ms < self.options.idle_timeout_ms_min:
            raise RemoteProtocolError(
                f"an idle-time-out of {idle_timeout_ms} ms; {self.options.idle_timeout_ms_min} is the least (2.4.5)",
                condition=AmqpCondition.INVALID_FIELD,
            )
        self.remote_open = performative
        self.peer_frame_size_max = performative.max_frame_size
        self.frame_size_max = min(performative.max_frame_size, max(MAX_FRAME_SIZE_MIN, self.options.output_chunk_bytes))
        refusal = None if self.admit is None else self.admit(performative)
        self._send_open(failed=refusal is not None)
        self.state = ConnectionState.OPENED
        self._handshake_deadline = None
        self._liveness.keep_alive(idle_timeout_ms, self._now)
        if refusal is None:
            self.events.append(ConnectionOpened(performative))
        else:
            self._send_close(refusal)
            self._end(refusal, lost=False, remote=False)

    def _on_frame(self, channel: int, performative: FrameBody | None, payload: bytes) -> None:
        if performative is None:
            return
        if channel > self.options.channel_max:
            raise FramingError(f"channel {channel} is above {self.options.channel_max} (2.7.1)")
        if isinstance(performative, Begin):
            self._on_begin(channel, performative)
        elif isinstance(performative, Close):
            self._on_close(performative)
        elif isinstance(performative, Open):
            raise RemoteProtocolError("a second open (2.4.1)")
        else:
            session = self._incoming_channels.get(channel)
            if session is None:
                raise RemoteProtocolError(f"{_name(performative)} on channel {channel}, which has no session (2.5.1)")
            session.on_frame(performative, payload)
            if session.state is SessionState.ENDED:
                self._unmap(session)

    def _on_begin(self, channel: int, begin: Begin) -> None:
        if channel in self._incoming_channels:
            raise RemoteProtocolError(f"a second begin on channel {channel} (2.5.1)")
        if begin.remote_channel is None:
            if not self._channel_left():
                raise ResourceLimitExceeded("no channel is left to answer this begin on")
            session = self._begin(channel)
        else:
            answered = self._outgoing_channels.get(begin.remote_channel)
            if answered is None or answered.remote_channel is not None:
                raise RemoteProtocolError(f"a begin in answer to channel {begin.remote_channel}, which asked for none")
            session = answered
        self._incoming_channels[channel] = session
        if session.on_begun(begin, channel):
            self.events.append(SessionBegun(session))
            session.attach_held()

    def _on_close(self, close: Close) -> None:
        remote = self.state is not ConnectionState.CLOSE_SENT
        if remote:
            self._send_close(None)
        self.state = ConnectionState.ENDED
        self._end(close.error, lost=False, remote=remote)

    # -- its own: writing

    def _send_open_behind_header(self) -> None:
        """A client need not wait for the server's header (2.4.2); a server's open answers the client's."""
        if not self.server and self._handshake.amqp_header_sent:
            self._send_open()

    def _send_open(self, *, failed: bool = False) -> None:
        if self._open_sent:
            return
        self._open_sent = True
        options = self.options
        properties = {**(options.properties or {}), **self.open_properties}
        if failed:
            properties[ESTABLISHMENT_FAILED] = True
        self.out.append(
            encode_frame(
                0,
                encode_composite(
                    Open(
                        options.container_id,
                        None if self.server else options.hostname,
                        options.max_frame_size,
                        options.channel_max,
                        options.idle_timeout_ms or None,
                        offered_capabilities=options.offered_capabilities,
                        desired_capabilities=options.desired_capabilities,
                        properties=properties or None,
                    )
                ),
            )
        )

    def _send_close(self, error: Error | None) -> None:
        self._send_open()
        self.unfinished = None
        for session in self.sessions:
            session.stop_sending()
        self.write(0, encode_composite(Close(self.fit_error(error))))
        self.state = ConnectionState.CLOSE_SENT
        self._close_deadline = self._now + self.options.close_timeout_ms / 1000

    def _channel_left(self) -> bool:
        assert self.remote_open is not None
        last = min(self.options.channel_max, self.remote_open.channel_max)
        if self._channels.peek() > last:
            self._channels.wake()
        return self._channels.peek() <= last

    def _begin(
        self,
        remote_channel: int | None,
        offered_capabilities: tuple[str, ...] = (),
        desired_capabilities: tuple[str, ...] = (),
        properties: Mapping[str, object] | None = None,
    ) -> Session:
        session = Session(self, self._channels.peek())
        options = self.options
        session.write(
            Begin(
                remote_channel,
                session.next_outgoing_id,
                options.incoming_window_frames,
                options.outgoing_window_frames,
                options.handle_max,
                offered_capabilities,
                desired_capabilities,
                properties,
            )
        )
        self._outgoing_channels[self._channels.take()] = session
        return session

    def _unmap(self, session: Session) -> None:
        """The session is ended at both ends: its channels are free. A client takes another one next: RabbitMQ before
        4.3 may take a *begin* for a frame of the session that had the channel and has just ended, and not answer."""
        del self._outgoing_channels[session.channel]
        if self.server:
            self._channels.free(session.channel)
        else:
            self._channels.rest(session.channel)
        if session.remote_channel is not None:
            del self._incoming_channels[session.remote_channel]

    # -- its own: ends

    def _fail(self, exc: RemoteProtocolError) -> None:
        """The peer broke the rules of the connection."""
        error = Error(exc.condition, exc.description[:DESCRIPTION_BYTES_MAX])
        if self.state in (ConnectionState.OPENING, ConnectionState.OPENED):
            self._send_close(error)
        if self.state is not ConnectionState.CLOSE_SENT or isinstance(exc, FramingError | DecodeError):
            self.state = ConnectionState.ENDED  # before the opens nothing can be said; after such bytes nothing be read
        self._end(error, lost=False, remote=False)
        if self.state is ConnectionState.CLOSE_SENT:
            try:
                self._read_frames()  # its close may be here already
            except RemoteProtocolError:
                self.state = ConnectionState.ENDED

    def _end_handshake(self, end: HandshakeEnded) -> None:
        self.state = ConnectionState.ENDED
        self._end(end.error, lost=False, remote=end.remote, authentication=end.authentication, foreign=end.foreign)

    def _give_up_handshake(self) -> None:
        """No open came in time, or one that only a close could have explained."""
        if self._bad_open is not None:
            self._fail(self._bad_open)
        else:
            self._drop(f"no open within {self.options.handshake_timeout_ms} ms")

    def _drop(self, description: str) -> None:
        """The peer was too slow: say so, if that can be said, and wait for nothing."""
        error = Error(AmqpCondition.RESOURCE_LIMIT_EXCEEDED, description)
        if self.state in (ConnectionState.OPENING, ConnectionState.OPENED):
            self._send_close(error)
        self.state = ConnectionState.ENDED
        self._end(error, lost=True, remote=False)

    def _end(
        self, error: Error | None, *, lost: bool, remote: bool, authentication: bool = False, foreign: bool = False
    ) -> None:
        if self._end_told:
            return
        self._end_told = True
        self.unfinished = None
        for session in self._outgoing_channels.values():
            session.lose()
        self.events.append(ConnectionEnded(error, lost, remote, authentication, foreign))

    def _hand_over(self) -> list[Event]:
        events, self.events = self.events, []
        self.event_batch += 1
        return events


def _name(performative: object) -> str:
    return "a heartbeat" if performative is None else f"a {type(performative).__name__}"


__all__ = ["Connection", "ConnectionState"]

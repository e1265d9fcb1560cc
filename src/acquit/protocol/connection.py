"""One AMQP 1.0 connection, client or server, without sockets or clocks (specification 2.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from acquit.protocol._definitions import Error, Open, SaslCode
from acquit.protocol.events import Event
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.sasl import SaslClient, SaslServerOptions

if TYPE_CHECKING:
    from acquit.protocol.session import Session


class ConnectionState(IntEnum):
    """Where a connection is in its life (a condensed 2.4.6)."""

    START = 0
    HEADER = 1
    SASL = 2
    OPENING = 3
    OPENED = 4
    CLOSE_SENT = 5
    ENDED = 6


class Connection:
    """One connection: bytes in, events out; verbs in, bytes out; time only as `now` (seconds, monotonic).

    The driver's loop: feed what arrives to `receive_data` (`receive_eof` at its end), act on the events, write
    `data_to_send` when `has_output`, call `handle_deadline` at `next_deadline`, and close the socket when `closed` and
    the output is written. Nothing a peer sends makes these raise; misuse of the verbs raises LocalProtocolError.
    """

    def __init__(
        self,
        options: ConnectionOptions,
        *,
        server: bool,
        sasl: SaslClient | SaslServerOptions | None,
        now: float,
    ) -> None:
        self.options = options
        self.server = server
        self.state = ConnectionState.START
        self.sessions: list[Session] = []
        self.remote_open: Open | None = None
        self.user: str | None = None
        self.context: object = None

    @property
    def closed(self) -> bool:
        """Nothing more will come or go: close the socket once the output is written."""
        raise NotImplementedError

    @property
    def has_output(self) -> bool:
        """Whether `data_to_send` has something now."""
        raise NotImplementedError

    @property
    def output_bytes(self) -> int:
        """About how much output waits, in bytes, for backpressure."""
        raise NotImplementedError

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        """Take bytes from the peer and say what they mean. Never raises for what a peer sent: it answers with detach,
        end or close, and the event says so. Call `data_to_send` afterwards."""
        raise NotImplementedError

    def receive_eof(self, now: float) -> list[Event]:
        """The peer's stream has ended. Gives ConnectionEnded if it was not given before."""
        raise NotImplementedError

    def data_to_send(self) -> bytes:
        """All output that waits, or b"". Large deliveries come in chunks: call again while `has_output`, when the
        transport has room."""
        raise NotImplementedError

    def next_deadline(self) -> float | None:
        """When `handle_deadline` wants to be called at the latest. It may move later with each receive; being called
        early does nothing."""
        raise NotImplementedError

    def handle_deadline(self, now: float) -> list[Event]:
        """Heartbeats, the peer's silence, and the limits on handshake and close."""
        raise NotImplementedError

    def open(
        self,
        *,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Client: send our header and go on to SASL and open by ourselves; ConnectionOpened follows.

        Server: not needed; it answers the peer's open by itself.
        """
        raise NotImplementedError

    def begin(
        self,
        *,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
        properties: Mapping[str, object] | None = None,
    ) -> Session:
        """Begin a session. SessionBegun follows; links may be attached at once. Raises LocalProtocolError before
        ConnectionOpened, when closing, or with no channel left."""
        raise NotImplementedError

    def close(self, error: Error | None = None) -> None:
        """Close in order. ConnectionEnded follows when the peer has answered, or did not in time."""
        raise NotImplementedError

    def sasl_challenge(self, challenge: bytes) -> None:
        """Server: one more round; SaslResponded follows."""
        raise NotImplementedError

    def sasl_succeed(self, user: str | None, now: float, additional_data: bytes | None = None) -> list[Event]:
        """Server: the peer is `user`. Returns the events of what it had sent ahead (often none)."""
        raise NotImplementedError

    def sasl_fail(self, code: SaslCode = SaslCode.AUTH) -> None:
        """Server: the peer is refused. The connection is `closed` once the output is written."""
        raise NotImplementedError

"""A peer that says exactly what a test tells it to, right or wrong, to one engine."""

from __future__ import annotations

from typing import TypeVar

from acquit.protocol.composite import encode_composite
from acquit.protocol.connection import Connection
from acquit.protocol.constants import AMQP_HEADER
from acquit.protocol.definitions import (
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Error,
    Flow,
    Open,
    Performative,
    RcvSettleMode,
    Role,
    SaslPerformative,
    SndSettleMode,
    Source,
    Target,
    Transfer,
)
from acquit.protocol.events import Event, LinkRequested
from acquit.protocol.frames import AMQP_FRAME, encode_frame
from acquit.protocol.link import Link, ReceivingLink, SendingLink
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.sasl import SaslClient, SaslServerOptions
from tests.support.wire import CLIENT, frames_in, only

P = TypeVar("P")

SERVER = ConnectionOptions(container_id="engine")
START = 1_000.0


class Peer:
    """The other side of an engine. `say` and `send_bytes` return the events; `hear` the frames it wrote since."""

    def __init__(self, engine: Connection) -> None:
        self.engine = engine
        self.now = START

    def send_bytes(self, data: bytes) -> list[Event]:
        return self.engine.receive_data(data, self.now)

    def say(
        self,
        performative: Performative | SaslPerformative | None,
        payload: bytes = b"",
        *,
        channel: int = 0,
        frame_type: int = AMQP_FRAME,
    ) -> list[Event]:
        body = b"" if performative is None else encode_composite(performative)
        return self.send_bytes(encode_frame(channel, body + payload, frame_type))

    def hear_bytes(self) -> bytes:
        data = b""
        while self.engine.has_output:
            data += self.engine.data_to_send()
        return data

    def hear(self) -> list[object]:
        """The performatives, without the protocol header that may come first."""
        data = self.hear_bytes()
        if data.startswith(b"AMQP"):
            data = data[8:]
        return [performative for _, performative, _ in frames_in(data)]

    def hear_only(self, kind: type[P]) -> P:
        return only(self.hear(), kind)

    def error_heard(self, kind: type[Detach | End | Close]) -> Error:
        """The error of the one detach, end or close that was written."""
        error = self.hear_only(kind).error
        assert error is not None
        return error


def server_peer(sasl: SaslServerOptions | None = None, **options: int) -> Peer:
    """A peer of a server that has heard nothing yet."""
    settings = ConnectionOptions(container_id="engine", **options)  # type: ignore[arg-type]
    return Peer(Connection(settings, server=True, sasl=sasl, now=START))


def client_peer(sasl: SaslClient | None = None) -> Peer:
    """A peer of a client that has said its header."""
    peer = Peer(Connection(CLIENT, server=False, sasl=sasl, now=START))
    peer.engine.open()
    return peer


def framed(*performatives: Performative | SaslPerformative, frame_type: int = AMQP_FRAME) -> bytes:
    """The frames of these performatives, on channel 0."""
    return b"".join(encode_frame(0, encode_composite(item), frame_type) for item in performatives)


def open_server(
    options: ConnectionOptions = SERVER, *, max_frame_size: int = 0xFFFF_FFFF, channel_max: int = 0xFFFF
) -> Peer:
    """A peer of a server whose connection is open."""
    peer = Peer(Connection(options, server=True, sasl=None, now=START))
    peer.send_bytes(AMQP_HEADER)
    peer.say(Open("peer", max_frame_size=max_frame_size, channel_max=channel_max))
    peer.hear()
    return peer


def begun_server(
    options: ConnectionOptions = SERVER,
    *,
    max_frame_size: int = 0xFFFF_FFFF,
    incoming_window: int = 1_000,
    next_outgoing_id: int = 0,
    handle_max: int = 0xFFFF_FFFF,
) -> Peer:
    """A peer of a server with a session on channel 0, both ways."""
    peer = open_server(options, max_frame_size=max_frame_size)
    peer.say(Begin(None, next_outgoing_id, incoming_window, 1_000, handle_max))
    peer.hear_only(Begin)
    return peer


def sending_attach(name: str = "link", handle: int = 0, **fields: object) -> Attach:
    """An attach of a peer that wants to send."""
    defaults: dict[str, object] = {"source": Source("s"), "target": Target("t"), "initial_delivery_count": 0}
    return Attach(name, handle, Role.SENDER, **{**defaults, **fields})  # type: ignore[arg-type]


def receiving_attach(name: str = "link", handle: int = 0, **fields: object) -> Attach:
    """An attach of a peer that wants to receive."""
    defaults: dict[str, object] = {"source": Source("s"), "target": Target("t")}
    return Attach(name, handle, Role.RECEIVER, **{**defaults, **fields})  # type: ignore[arg-type]


def attach_to(peer: Peer, attach: Attach, *, max_message_size: int | None = None) -> Link:
    """Attach, and have the engine accept."""
    link = only(peer.say(attach), LinkRequested).link
    link.accept_attach(max_message_size=max_message_size)
    peer.hear()
    return link


def receiving_engine(
    credit: int = 100,
    *,
    options: ConnectionOptions = SERVER,
    max_message_size: int | None = None,
    next_outgoing_id: int = 0,
    rcv_settle_mode: RcvSettleMode = RcvSettleMode.FIRST,
    snd_settle_mode: SndSettleMode = SndSettleMode.MIXED,
) -> tuple[Peer, ReceivingLink]:
    """A peer attached as a sender on handle 0 of channel 0, with credit."""
    peer = begun_server(options, next_outgoing_id=next_outgoing_id)
    attach = sending_attach(rcv_settle_mode=rcv_settle_mode, snd_settle_mode=snd_settle_mode)
    link = attach_to(peer, attach, max_message_size=max_message_size)
    assert isinstance(link, ReceivingLink)
    if credit:
        link.grant(credit)
        peer.hear()
    return peer, link


def sending_engine(
    credit: int = 100,
    *,
    options: ConnectionOptions = SERVER,
    max_frame_size: int = 0xFFFF_FFFF,
    incoming_window: int = 1_000,
    rcv_settle_mode: RcvSettleMode = RcvSettleMode.FIRST,
    snd_settle_mode: SndSettleMode = SndSettleMode.MIXED,
    max_message_size: int | None = None,
) -> tuple[Peer, SendingLink]:
    """A peer attached as a receiver on handle 0 of channel 0, which grants credit."""
    peer = begun_server(options, max_frame_size=max_frame_size, incoming_window=incoming_window)
    attach = receiving_attach(
        rcv_settle_mode=rcv_settle_mode, snd_settle_mode=snd_settle_mode, max_message_size=max_message_size
    )
    link = attach_to(peer, attach)
    assert isinstance(link, SendingLink)
    if credit:
        peer.say(credit_flow(credit, incoming_window=incoming_window))
    return peer, link


def credit_flow(
    credit: int,
    *,
    delivery_count: int | None = 0,
    next_incoming_id: int | None = 0,
    incoming_window: int = 1_000,
    handle: int = 0,
    **fields: object,
) -> Flow:
    """A flow of a receiver."""
    return Flow(
        next_incoming_id,
        incoming_window,
        0,
        1_000,
        handle,
        delivery_count,
        credit,
        **fields,  # type: ignore[arg-type]
    )


def transfer(
    delivery_id: int | None, tag: bytes | None = None, *, handle: int = 0, settled: bool | None = None, **fields: object
) -> Transfer:
    """A transfer of a sender; the tag follows the delivery-id."""
    if tag is None and delivery_id is not None:
        tag = b"t%d" % delivery_id
    message_format = None if delivery_id is None else 0
    return Transfer(handle, delivery_id, tag, message_format, settled, **fields)  # type: ignore[arg-type]

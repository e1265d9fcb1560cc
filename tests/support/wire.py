"""Two engines joined by a wire in memory, with a clock that we turn, and any split of the bytes.

`Wire.run()` carries bytes both ways until nobody has anything to say, and returns what each side heard. Between the
verbs of a test nothing moves by itself: frames that cross are made by calling verbs on both sides before `run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from acquit.protocol.connection import Connection
from acquit.protocol.definitions import Performative, RcvSettleMode, SaslPerformative, SndSettleMode, Source, Target
from acquit.protocol.events import (
    ConnectionOpened,
    Event,
    LinkAttached,
    LinkRequested,
    SaslInitiated,
    SessionBegun,
)
from acquit.protocol.frames import AMQP_FRAME, FrameDecoder
from acquit.protocol.link import Link, ReceivingLink, SendingLink
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.sasl import SaslClient, SaslServerOptions
from acquit.protocol.session import Session

Split = Callable[[bytes], Iterable[bytes]]
E = TypeVar("E")

CLIENT = ConnectionOptions(container_id="client", hostname="broker.example")
SERVER = ConnectionOptions(container_id="server")


def whole(data: bytes) -> Iterable[bytes]:
    """All at once."""
    return (data,)


def single_bytes(data: bytes) -> Iterable[bytes]:
    """One byte at a time."""
    return (data[index : index + 1] for index in range(len(data)))


def only(events: Iterable[object], kind: type[E]) -> E:
    """The one event of this kind."""
    found = [event for event in events if isinstance(event, kind)]
    assert len(found) == 1, f"{len(found)} of {kind.__name__} in {events}"
    return found[0]


def kinds(events: Iterable[Event]) -> list[str]:
    """The names of events, in order."""
    return [type(event).__name__ for event in events]


class Wire:
    """A client and a server, and the bytes between them."""

    def __init__(
        self,
        client: ConnectionOptions = CLIENT,
        server: ConnectionOptions = SERVER,
        *,
        sasl: SaslClient | None = None,
        server_sasl: SaslServerOptions | None = None,
        split: Split = whole,
    ) -> None:
        self.now = 1_000.0
        self.split = split
        self.client = Connection(client, server=False, sasl=sasl, now=self.now)
        self.server = Connection(server, server=True, sasl=server_sasl, now=self.now)

    def step(self) -> tuple[list[Event], list[Event]]:
        """Carry what both sides have to say now, at the same time. What they answer waits for the next step."""
        to_server, to_client = self.client.data_to_send(), self.server.data_to_send()
        heard_by_client: list[Event] = []
        heard_by_server: list[Event] = []
        for chunk in self.split(to_server):
            heard_by_server += self.server.receive_data(chunk, self.now)
        for chunk in self.split(to_client):
            heard_by_client += self.client.receive_data(chunk, self.now)
        return heard_by_client, heard_by_server

    def run(self) -> tuple[list[Event], list[Event]]:
        """Steps until both are silent. Returns what the client and the server heard."""
        heard_by_client: list[Event] = []
        heard_by_server: list[Event] = []
        for _ in range(10_000):
            if not (self.client.has_output or self.server.has_output):
                return heard_by_client + self.client.handle_deadline(self.now), heard_by_server + (
                    self.server.handle_deadline(self.now)
                )
            client, server = self.step()
            heard_by_client += client
            heard_by_server += server
        raise AssertionError("the two sides never fall silent")

    def open(self) -> Wire:
        """Exchange opens; whatever a client says for itself is believed."""
        self.client.open()
        _, heard = self.run()
        for event in heard:
            if isinstance(event, SaslInitiated):
                self.server.sasl_succeed("user", self.now)
        self.run()
        assert self.client.remote_open is not None
        assert self.server.remote_open is not None
        return self

    def begin(self) -> tuple[Session, Session]:
        """A session of the client, at both ends."""
        session = self.client.begin()
        _, heard = self.run()
        return session, only(heard, SessionBegun).session

    def attach_sender(
        self,
        session: Session,
        name: str = "link",
        *,
        snd_settle_mode: SndSettleMode = SndSettleMode.MIXED,
        rcv_settle_mode: RcvSettleMode = RcvSettleMode.FIRST,
        credit: int = 0,
        initial_delivery_count: int = 0,
        max_message_size: int | None = None,
    ) -> tuple[SendingLink, ReceivingLink]:
        """A link from `session` to the other side, which grants `credit`."""
        sender = session.attach_sender(
            name,
            source=Source("here"),
            target=Target("there"),
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
            initial_delivery_count=initial_delivery_count,
        )
        receiver = self._accept(max_message_size)
        assert isinstance(receiver, ReceivingLink)
        if credit:
            receiver.grant(credit)
            self.run()
        return sender, receiver

    def attach_receiver(
        self,
        session: Session,
        name: str = "link",
        *,
        snd_settle_mode: SndSettleMode = SndSettleMode.MIXED,
        rcv_settle_mode: RcvSettleMode = RcvSettleMode.FIRST,
        credit: int = 0,
    ) -> tuple[ReceivingLink, SendingLink]:
        """A link from the other side to `session`, which grants `credit`."""
        receiver = session.attach_receiver(
            name,
            source=Source("there"),
            target=Target("here"),
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
        )
        if credit:
            receiver.grant(credit)
        sender = self._accept(None)
        assert isinstance(sender, SendingLink)
        return receiver, sender

    def _accept(self, max_message_size: int | None) -> Link:
        heard_by_client, heard_by_server = self.run()
        link = only([*heard_by_client, *heard_by_server], LinkRequested).link
        link.accept_attach(max_message_size=max_message_size)
        heard_by_client, heard_by_server = self.run()
        only([*heard_by_client, *heard_by_server], LinkAttached)
        return link


def opened(client: ConnectionOptions = CLIENT, server: ConnectionOptions = SERVER, *, split: Split = whole) -> Wire:
    """Two engines whose connection is open."""
    wire = Wire(client, server, split=split)
    wire.client.open()
    heard_by_client, heard_by_server = wire.run()
    only(heard_by_client, ConnectionOpened)
    only(heard_by_server, ConnectionOpened)
    return wire


def frames_in(
    data: bytes, frame_type: int = AMQP_FRAME
) -> list[tuple[int, Performative | SaslPerformative | None, bytes]]:
    """Channel, performative and payload of each frame in `data`, which must be whole frames."""
    decoder = FrameDecoder(0xFFFF_FFFF, frame_type)
    decoder.feed(data)
    frames = [(frame.channel, frame.performative, frame.payload) for frame in decoder]
    assert decoder.buffered == 0
    return frames

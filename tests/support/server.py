"""A small server that does what a test tells it: the protocol engine, a few queues, and no opinions of its own.

It runs in memory beside a client core (`Rig`), with virtual time, or behind real sockets (`serve`, `serving`). What it
heard is in `heard`, as the engine's events; what it does is changed by setting its attributes, or done by hand through
its links.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, Self, TypeVar

from acquit import transport
from acquit.client.core import ClientCore, Kinds
from acquit.client.modes import AckMode, find_mode
from acquit.client.options import ConnectOptions, DeliveryMode, ReceiverSpec, SenderSpec
from acquit.client.receipts import SendPromise, SettlementReceipt
from acquit.client.received import MessageCore
from acquit.client.receiving import ReceiverCore
from acquit.client.reconnecting import Reconnect
from acquit.client.sending import SenderCore
from acquit.client.session import SessionCore
from acquit.protocol import events as ev
from acquit.protocol import sasl
from acquit.protocol.composite import decode_composite
from acquit.protocol.connection import Connection
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import (
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Error,
    SndSettleMode,
    Source,
    TransactionalState,
)
from acquit.protocol.delivery import Delivery, DeliveryState, is_outcome
from acquit.protocol.link import Link, ReceivingLink, SendingLink
from acquit.protocol.message import Message
from acquit.protocol.options import ConnectionOptions
from acquit.transport.sockets import Acceptor, bind

E = TypeVar("E")


class Server:
    """One server for any number of connections.

    `verdict` gives the state that a posting is settled with (None: it is left unsettled, for the test to settle);
    `answers`: outcomes that come unsettled (rcv-settle-mode second) are settled; `refusals` refuses an attach by its
    address; `silent`: no attach is answered; `credit` is granted to senders, and again when it is used up; `drains`:
    credit is given back when asked; `browsable`: distribution-mode copy is granted; `filters`: so are they.
    `snd_settle_mode`: how its links send, where not as they were asked to; `link_capabilities`: what its links offer.
    Transactions are declared as `declaration` says and discharged as `commits` says, in `controlled` is what the
    coordinator was asked for.
    """

    def __init__(
        self,
        *,
        capabilities: tuple[str, ...] = (),
        properties: dict[str, object] | None = None,
        users: dict[str, str] | None = None,
        credit: int = 100,
        max_message_size: int = 1_000_000,
    ) -> None:
        self.options = ConnectionOptions(
            container_id="server",
            offered_capabilities=capabilities,
            properties=properties,
            max_message_size=max_message_size,
        )
        self.users = users
        self.credit = credit
        self.verdict: Callable[[Delivery], DeliveryState | None] = lambda delivery: ACCEPTED
        self.answers = True
        self.drains = True
        self.silent = False
        self.refusals: dict[str, Error] = {}
        self.browsable = True
        self.filters = False
        self.snd_settle_mode: SndSettleMode | None = None
        self.link_capabilities: tuple[str, ...] = ()
        self.declaration: Callable[[bytes], DeliveryState | None] = Declared
        self.commits: Callable[[Discharge], DeliveryState | None] = lambda discharge: ACCEPTED
        self.controlled: list[Declare | Discharge] = []
        self.heard: list[ev.Event] = []
        self.taken: list[Delivery] = []
        self.connections: list[ServerConnection] = []
        self.queues: dict[str, deque[bytes]] = defaultdict(deque)

    def accept(self, now: float) -> ServerConnection:
        """A client has come."""
        connection = ServerConnection(self, now)
        self.connections.append(connection)
        return connection

    @property
    def connection(self) -> ServerConnection:
        """The latest."""
        return self.connections[-1]

    def offer(self, address: str, *bodies: bytes | str | Message) -> None:
        """Put messages into a queue; they go to links with credit at once."""
        for body in bodies:
            message = body if isinstance(body, Message) else Message(body)
            self.queues[address].append(message.encode())
        for connection in self.connections:
            connection.dispatch()

    def all(self, kind: type[E]) -> list[E]:
        """The events of one kind that were heard, in order."""
        return [event for event in self.heard if isinstance(event, kind)]

    def bodies(self) -> list[object]:
        """The bodies of what was posted."""
        return [Message.decode(delivery.payload).body for delivery in self.taken]

    def outcomes(self) -> list[tuple[object, DeliveryState | None, bool]]:
        """What was said about our deliveries: (body or tag, state, settled)."""
        return [
            (delivery.context, event.state, event.settled)
            for event in self.all(ev.StatesReceived)
            if isinstance(event.link, SendingLink)
            for delivery in event.deliveries
        ]


class ServerConnection:
    """One connection of a server (a `transport.Handler`)."""

    def __init__(self, server: Server, now: float) -> None:
        self.server = server
        mechanisms = ("PLAIN",) if server.users is not None else ("ANONYMOUS", "PLAIN")
        offered = sasl.SaslServerOptions(mechanisms=mechanisms, required=server.users is not None)
        self.engine = Connection(server.options, server=True, sasl=offered, now=now)
        self.pump: transport.Pump | None = None
        self.closed = asyncio.Event()
        self.now = now
        self._tag = 0

    def links(self, kind: type[E]) -> list[E]:
        """The links of one role, in order of attaching."""
        return [link for session in self.engine.sessions for link in session.links if isinstance(link, kind)]

    @property
    def sending(self) -> SendingLink:
        """The one link that feeds a receiver of the client."""
        (link,) = self.links(SendingLink)
        return link

    @property
    def receiving(self) -> ReceivingLink:
        """The one link that a sender of the client feeds."""
        (link,) = self.links(ReceivingLink)
        return link

    def send(self, link: SendingLink, body: bytes | str | Message, *, settled: bool | None = None) -> Delivery:
        """One message, by hand."""
        message = body if isinstance(body, Message) else Message(body)
        return self._transfer(link, message.encode(), settled)

    def touch(self) -> None:
        """Something was said by hand: let it go out."""
        if self.pump is not None:
            self.pump.touch()

    def dispatch(self) -> None:
        """Give queued messages to links with credit, in turns of their order."""
        for link in self.links(SendingLink):
            source = link.source
            if not isinstance(source, Source) or source.address is None:
                continue
            queue = self.server.queues[source.address]
            while queue and link.sendable:
                self._transfer(link, queue.popleft(), None)
            if link.drain and link.credit and self.server.drains:
                link.drained()
        self.touch()

    def _transfer(self, link: SendingLink, payload: bytes, settled: bool | None) -> Delivery:
        self._tag += 1
        delivery = link.send(self._tag.to_bytes(4, "big"), payload, settled=settled)
        delivery.context = Message.decode(payload).body
        return delivery

    def handle(self, events: list[ev.Event]) -> None:
        """Hear, and do as the server was told."""
        for event in events:
            self.server.heard.append(event)
            match event:
                case ev.SaslInitiated():
                    self._authenticate(event)
                case ev.LinkRequested():
                    self._attach(event.link)
                case ev.CreditChanged():
                    self.dispatch()
                case ev.DeliveriesReceived():
                    self._take(event)
                case ev.StatesReceived() if is_outcome(event.state) and not event.settled and self.server.answers:
                    event.link.session.settle_all(event.deliveries, event.state)

    def on_writable(self, writable: bool) -> None:
        """Tests send little."""

    def on_closed(self) -> None:
        """The client has gone."""
        self.closed.set()

    def _authenticate(self, event: ev.SaslInitiated) -> None:
        if event.mechanism == "PLAIN" and self.server.users is not None:
            given = sasl.parse_plain(event.response)
            if self.server.users.get(given.username) != given.password:
                self.engine.sasl_fail()
                return
        self.handle(self.engine.sasl_succeed("somebody", self.now))

    def _attach(self, link: Link) -> None:
        terminus = link.remote_attach.source if isinstance(link, SendingLink) else link.remote_attach.target
        if self.server.silent:
            return
        refusal = self.server.refusals.get(getattr(terminus, "address", None) or "")
        if refusal is not None:
            link.refuse(refusal)
            return
        if isinstance(link, SendingLink):
            assert isinstance(terminus, Source)
            answered = Source(address=terminus.address, distribution_mode=terminus.distribution_mode)
            if self.server.filters:
                answered.filter = terminus.filter
            if not self.server.browsable:
                answered.distribution_mode = None
            link.accept_attach(
                source=answered,
                snd_settle_mode=self.server.snd_settle_mode,
                offered_capabilities=self.server.link_capabilities,
            )
        else:
            target = link.remote_attach.target
            link.accept_attach(
                target=target if isinstance(target, Coordinator) else None,
                offered_capabilities=self.server.link_capabilities,
            )
            assert isinstance(link, ReceivingLink)
            link.grant(self.server.credit)

    def _take(self, event: ev.DeliveriesReceived) -> None:
        for delivery in event.deliveries:
            if isinstance(event.link.target, Coordinator):
                self._control(delivery)
                continue
            self.server.taken.append(delivery)
            if not delivery.settled and (state := self.server.verdict(delivery)) is not None:
                within = delivery.remote_state
                if isinstance(within, TransactionalState):
                    state = TransactionalState(within.txn_id, state)
                delivery.settle(state)
        if event.link.credit == 0 and self.server.credit:
            event.link.grant(self.server.credit)

    def _control(self, delivery: Delivery) -> None:
        server = self.server
        request, _ = decode_composite(delivery.payload, 3)  # behind the descriptor of the amqp-value section
        assert isinstance(request, Declare | Discharge)
        server.controlled.append(request)
        if isinstance(request, Declare):
            state = server.declaration(b"txn-%d" % sum(isinstance(r, Declare) for r in server.controlled))
        else:
            state = server.commits(request) if not request.fail else ACCEPTED
        if state is not None:
            delivery.settle(state)


class Rig:
    """A client core and a server in one thread, with virtual time: nothing moves before `run`."""

    def __init__(
        self,
        server: Server | None = None,
        options: ConnectOptions | None = None,
        *,
        reconnect: Reconnect | None = None,
    ) -> None:
        """With `reconnect` the core waits for `restore` after a `cut`."""
        self.now = 1_000.0
        self.wall_s = 1_700_000_000.0
        self.server = server if server is not None else Server()
        self.engine = self._new_engine()
        self.wakes = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where the core is run when it asks for it; None: only by the test."""
        self.core = ClientCore(
            self.engine,
            options if options is not None else ConnectOptions(),
            where="server:5672",
            wake=self._wake,
            wall_clock=lambda: self.wall_s,
            kinds=Kinds(message=MessageCore, receipt=SettlementReceipt),
            reconnect=reconnect,
        )
        self.peer = self.server.accept(self.now)
        self.engine.open()
        self.run()

    def _new_engine(self) -> Connection:
        return Connection(ConnectionOptions(container_id="client"), server=False, sasl=sasl.Anonymous(), now=self.now)

    def _wake(self) -> None:
        self.wakes += 1
        if self.loop is not None:
            self.loop.call_soon(self.run)

    def run(self) -> None:
        """Let user commands, bytes and events go both ways until nobody has anything to say."""
        moved = True
        while moved:
            self.core.process(self.now)
            moved = self.carry()

    def carry(self) -> bool:
        """Bytes once in each direction, and what follows from them."""
        to_server, to_client = self.engine.data_to_send(), self.peer.engine.data_to_send()
        self.core.flushed()
        if to_server:
            self.tap(to_server)
            self.peer.handle(self.peer.engine.receive_data(to_server, self.now))
        if to_client:
            self.core.handle(self.engine.receive_data(to_client, self.now), self.now)
        return bool(to_server or to_client)

    def tap(self, data: bytes) -> None:
        """What the client writes, for who wants to see the bytes."""

    def cut(self) -> None:
        """The network fails."""
        self.core.handle(self.engine.receive_eof(self.now), self.now)
        if not self.core.interrupted:
            self.core.on_closed()

    def restore(self, *, run: bool = True, **limits: int) -> None:
        """Give the core another connection to the server, which has other `limits` (of its options) by now. Without
        `run` nothing is answered but the open."""
        self.peer.engine.receive_eof(self.now)
        self.server.options = replace(self.server.options, **limits)  # type: ignore[arg-type]  # all of them are numbers
        self.engine, self.peer = self._new_engine(), self.server.accept(self.now)
        self.engine.open()
        events: list[ev.Event] = []
        while not any(isinstance(event, ev.ConnectionOpened) for event in events):
            self.peer.handle(self.peer.engine.receive_data(self.engine.data_to_send(), self.now))
            events += self.engine.receive_data(self.peer.engine.data_to_send(), self.now)
        self.core.restore(self.engine, self.now)
        self.core.handle(events[1:], self.now)
        if run:
            self.run()

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds
        self.core.handle_deadline(self.now)

    def session(self, mode: AckMode | str = AckMode.AUTO) -> SessionCore:
        """A session that has begun."""
        session = self.core.begin(find_mode(mode))
        self.run()
        return session

    def receiver(
        self, session: SessionCore, address: str = "q", *, run: bool = True, **changes: object
    ) -> ReceiverCore:
        """A receiver that is attached."""
        receiver = session.add_receiver(receiver_spec(address, **changes))
        if run:
            self.run()
        return receiver

    def sender(self, session: SessionCore, address: str = "q", *, run: bool = True, **changes: object) -> SenderCore:
        """A sender that is attached."""
        sender = session.add_sender(sender_spec(address, **changes))
        if run:
            self.run()
        return sender

    def send(self, sender: SenderCore, body: bytes | str = b"x") -> SendPromise:
        """A send that has been left for the loop side."""
        promise = SendPromise(sender.encode(body, None))
        sender.enqueue(promise)
        return promise

    def take(self, receiver: ReceiverCore, count: int) -> list[MessageCore]:
        """Hand out messages, which must be there."""
        taken = [receiver.take() for _ in range(count)]
        assert None not in taken, f"{taken.index(None)} of {count} were there"
        return taken  # type: ignore[return-value]  # no None in it


def receiver_spec(address: str = "q", **changes: object) -> ReceiverSpec:
    """A receiver with ordinary options."""
    defaults: dict[str, object] = {
        "name": f"{address}-receiver",
        "prefetch": 10,
        "prefetch_bytes": 1_000_000,
        "browse": False,
        "default_outcome": None,
        "filters": None,
        "selector": None,
        "no_local": False,
        "topic": False,
        "subscription": None,
        "unreliable": False,
        "target": None,
        "capabilities": (),
        "properties": None,
    }
    return ReceiverSpec(address=address, **(defaults | changes))  # type: ignore[arg-type]  # of the right types


def sender_spec(address: str = "q", **changes: object) -> SenderSpec:
    """A sender with ordinary options."""
    defaults: dict[str, object] = {
        "name": f"{address}-sender",
        "delivery_mode": DeliveryMode.PERSISTENT,
        "topic": False,
        "unreliable": False,
        "capabilities": (),
        "properties": None,
        "buffer_messages": 10,
        "buffer_bytes": 1_000_000,
    }
    return SenderSpec(address=address, **(defaults | changes))  # type: ignore[arg-type]  # of the right types


@contextlib.asynccontextmanager
async def serve(server: Server, *, ssl_context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve on the running loop; gives host:port."""
    loop = asyncio.get_running_loop()
    pumps: dict[ServerConnection, transport.Pump] = {}

    def accept() -> transport.Pump:
        connection = server.accept(loop.time())
        connection.pump = pumps[connection] = transport.Pump(connection.engine, connection)
        return connection.pump

    listener = Acceptor(await bind("127.0.0.1", 0), accept, lambda: None, tls=lambda: ssl_context)
    listener.start()
    try:
        yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        await listener.wait_closed()
        for connection, pump in pumps.items():
            pump.abort()
            if pump.connected:  # one whose TLS handshake failed was never connected
                await connection.closed.wait()


class ThreadedServer:
    """A server on a thread of its own, for tests of the blocking API. `call` runs a function over there."""

    def __init__(self, server: Server, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self.server = server
        self._ssl_context = ssl_context
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)
        self.where = ""

    @property
    def url(self) -> str:
        """Where clients go."""
        return f"amqp://{self.where}"

    def call(self, function: Callable[[], E]) -> E:
        """Run a function on the server's thread, and wait for what it returns."""

        async def run() -> E:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    def call_and_wait(self, function: Callable[[], Coroutine[Any, Any, E]]) -> E:
        """Run a coroutine function on the server's thread, and wait for what it returns."""
        return asyncio.run_coroutine_threadsafe(function(), self._loop).result(30)

    def offer(self, address: str, *bodies: bytes | str | Message) -> None:
        """`Server.offer`, over there."""
        self.call(lambda: self.server.offer(address, *bodies))

    def cut(self) -> None:
        """Cut all connections off."""
        self.call(lambda: [c.pump.abort() for c in self.server.connections if c.pump is not None])

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._main())

    async def _main(self) -> None:
        async with serve(self.server, ssl_context=self._ssl_context) as self.where:
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@contextlib.contextmanager
def serving(server: Server) -> Iterator[ThreadedServer]:
    """A server on a thread, for the time of a test."""
    with ThreadedServer(server) as running:
        yield running


class RigDriver:
    """What the asyncio API needs of a driver, over a rig: the server answers in no time."""

    def __init__(self, rig: Rig) -> None:
        rig.loop = asyncio.get_running_loop()
        self.rig = rig
        self.core = rig.core

    def act(self) -> None:
        """As Driver.act, and whatever the server has to say to it."""
        self.rig.run()

    def close_timeout_s(self, timeout_s: float | None) -> float:
        """As Driver.close_timeout_s."""
        return timeout_s if timeout_s is not None else 1.0

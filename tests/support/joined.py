"""A client's core joined to a broker's core by wires in memory that can be cut at any byte, by either end alone.

Nothing moves by itself: `move` carries so many bytes each way, `run` all there is. After a cut the client is
interrupted until `restore` gives it another wire. The broker is a `World`, with a disk that survives its `crash`.
"""

from __future__ import annotations

import uuid

from acquit.broker.links.peers import Peer
from acquit.client.core import ClientCore, Kinds
from acquit.client.modes import AckMode, find_mode
from acquit.client.options import ConnectOptions
from acquit.client.receipts import SendPromise, SettlementReceipt
from acquit.client.received import MessageCore
from acquit.client.reconnecting import Reconnect
from acquit.client.sending import SenderCore
from acquit.client.session import SessionCore
from acquit.protocol.connection import Connection
from acquit.protocol.events import ConnectionOpened
from acquit.protocol.extensions import BROKER_ID, DURABLE_SETTLEMENT
from acquit.protocol.options import ConnectionOptions
from tests.support.broker_world import World


class Joined:
    """One client of one broker."""

    def __init__(self, world: World | None = None, options: ConnectOptions | None = None) -> None:
        self.world = world if world is not None else World()
        self.options = options if options is not None else ConnectOptions()
        self.identity = uuid.UUID(int=7)
        self.core: ClientCore | None = None
        self.to_server = bytearray()
        self.to_client = bytearray()
        self.half_open: list[tuple[Connection, Peer]] = []
        """Connections that the broker still believes in."""
        self.cuts = 0
        self.connect()

    # -- the wire ------------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Another wire, opened, and the core on it."""
        now = self.now
        self.engine = Connection(
            ConnectionOptions(container_id="client", desired_capabilities=(DURABLE_SETTLEMENT,)),
            server=False,
            sasl=None,
            now=now,
        )
        self.server = Connection(
            ConnectionOptions(
                container_id="broker",
                offered_capabilities=(DURABLE_SETTLEMENT,),
                properties={"product": "acquit", "version": "1", BROKER_ID: self.identity},
            ),
            server=True,
            sasl=None,
            now=now,
        )
        self.peer = self.world.core.connected(self.server, "client")
        self.to_server.clear()
        self.to_client.clear()
        self.engine.open()
        opened: list[object] = []
        while not opened:
            self.world.core.handle(
                self.peer, self.server.receive_data(self.engine.data_to_send(), now), self.world.now_us
            )
            events = self.engine.receive_data(self.server.data_to_send(), now)
            opened = [event for event in events if isinstance(event, ConnectionOpened)]
        if self.core is None:
            self.core = ClientCore(
                self.engine,
                self.options,
                where="broker",
                wake=lambda: None,
                wall_clock=lambda: self.now,
                kinds=Kinds(message=MessageCore, receipt=SettlementReceipt),
                reconnect=Reconnect(),
            )
            self.core.handle(events, now)
        else:
            self.core.restore(self.engine, now)
            self.core.handle(events[1:], now)

    @property
    def now(self) -> float:
        return self.world.now_s

    @property
    def client(self) -> ClientCore:
        assert self.core is not None
        return self.core

    def move(self, up: int, down: int) -> bool:
        """What the user asked for is done, both sides write, and so many bytes arrive each way."""
        if self.client.interrupted:
            return self._half_open_turn()
        self.client.process(self.now)
        self.to_server += self.engine.data_to_send()
        self.client.flushed()
        moved = self._half_open_turn()
        self.to_client += self.server.data_to_send()
        to_server, self.to_server = bytes(self.to_server[:up]), self.to_server[up:]
        to_client, self.to_client = bytes(self.to_client[:down]), self.to_client[down:]
        if to_server:
            self.world.core.handle(self.peer, self.server.receive_data(to_server, self.now), self.world.now_us)
        if to_client:
            self.client.handle(self.engine.receive_data(to_client, self.now), self.now)
        return moved or bool(to_server or to_client)

    def _half_open_turn(self) -> bool:
        busy = self.world.core.turn(self.world.now_us)
        busy = self.world._read_back() or busy
        for server, _ in self.half_open:
            server.data_to_send()  # into the void
        return busy

    def sync(self) -> bool:
        """The broker's disk has what was recorded."""
        return self.world.sync()

    def run(self) -> None:
        """All that can move does."""
        for _ in range(10_000):
            moved = self.move(1 << 30, 1 << 30)
            if not moved and not self.sync():
                return
        raise AssertionError("the two never fall silent")

    def cut(self, *, broker_notices: bool = True) -> None:
        """The wire fails. What was on it is gone."""
        if self.client.interrupted:
            return
        self.cuts += 1
        self.client.process(self.now)  # what is asked for before is asked of this connection
        if broker_notices:
            self.world.core.handle(self.peer, self.server.receive_eof(self.now), self.world.now_us)
        else:
            self.half_open.append((self.server, self.peer))
        self.client.handle(self.engine.receive_eof(self.now), self.now)
        assert self.client.interrupted

    def notice(self) -> None:
        """The broker notices what it had not."""
        gone, self.half_open = self.half_open, []
        for server, peer in gone:
            self.world.core.handle(peer, server.receive_eof(self.now), self.world.now_us)

    def crash(self) -> None:
        """The broker is killed, and another started on its disk."""
        self.cut(broker_notices=False)
        self.half_open.clear()
        self.world = self.world.crash()

    def restore(self) -> None:
        """The client has a connection again."""
        if self.client.interrupted:
            self.connect()

    # -- the client ----------------------------------------------------------------------------------------------------

    def session(self, mode: AckMode | str) -> SessionCore:
        session = self.client.begin(find_mode(mode))
        self.run()
        return session

    def send(self, sender: SenderCore, body: str) -> SendPromise:
        promise = SendPromise(sender.encode(body, None))
        sender.enqueue(promise)
        return promise

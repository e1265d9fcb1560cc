"""Messages that have begun to arrive: who may have how many bytes of them, and who pays."""

from __future__ import annotations

from acquit.broker.intake.assembly import Assembly
from acquit.broker.links.peers import Peer
from acquit.broker.memory import Memory
from acquit.broker.options import BrokerLimits, BrokerOptions, Security, User
from acquit.protocol.composite import encode_composite
from acquit.protocol.connection import Connection
from acquit.protocol.definitions import AmqpCondition, Target, Transfer
from acquit.protocol.frames import encode_frame
from acquit.protocol.options import ConnectionOptions
from acquit.store.options import MIB
from tests.support.broker_world import Client, World


class Gathering:
    """Peers who have begun to send."""

    def __init__(self, bytes_max: int, per_user_max: int) -> None:
        self.memory = Memory(BrokerLimits())
        self.shed: list[str] = []
        self.assembly = Assembly(self.memory, self.give_up)
        self.assembly.bytes_max, self.assembly.per_user_max = bytes_max, per_user_max
        self.has: dict[Peer, int] = {}

    def peer(self, name: str, user: str | None = None) -> Peer:
        peer = Peer(Connection(ConnectionOptions(container_id="b"), server=True, sasl=None, now=0.0), name, 1)
        peer.engine.user = user
        return peer

    def send(self, peer: Peer, byte_count: int) -> bool:
        self.has[peer] = self.has.get(peer, 0) + byte_count
        return self.assembly.count(peer, byte_count)

    def give_up(self, peer: Peer) -> None:
        self.shed.append(peer.name)
        self.assembly.count(peer, -self.has.pop(peer))


def test_they_count_as_memory_until_they_are_whole() -> None:
    gathering = Gathering(100, 100)
    ada = gathering.peer("ada")
    assert gathering.send(ada, 60)
    assert gathering.memory.bytes == 60
    assert gathering.send(ada, -60)
    assert gathering.memory.bytes == 0
    assert not gathering.assembly._by_peer
    assert not gathering.assembly._by_user


def test_a_user_has_a_limit_over_all_connections() -> None:
    gathering = Gathering(1_000, 100)
    one, two, other = gathering.peer("one", "ada"), gathering.peer("two", "ada"), gathering.peer("other", "bob")
    assert gathering.send(one, 60)
    assert not gathering.send(two, 60)
    assert gathering.send(other, 90)
    assert gathering.shed == []


def test_who_has_most_pays_and_not_who_comes_last() -> None:
    gathering = Gathering(100, 90)
    light, heavy, honest = gathering.peer("light", "ada"), gathering.peer("heavy", "ada"), gathering.peer("h", "bob")
    assert gathering.send(light, 30)
    assert gathering.send(heavy, 50)
    assert gathering.send(honest, 40)
    assert gathering.shed == ["heavy"]
    assert gathering.memory.bytes == 70


def test_who_has_most_and_sends_more_is_refused_itself() -> None:
    gathering = Gathering(100, 100)
    heavy, honest = gathering.peer("heavy", "ada"), gathering.peer("honest", "bob")
    assert gathering.send(honest, 20)
    assert gathering.send(heavy, 70)
    assert not gathering.send(heavy, 20)
    assert gathering.shed == []


def test_who_is_closing_and_gives_nothing_up_holds_up_nothing() -> None:
    gathering = Gathering(100, 100)
    gathering.assembly._shed = lambda peer: gathering.shed.append(peer.name)
    closing, honest = gathering.peer("closing", "ada"), gathering.peer("honest", "bob")
    assert gathering.send(closing, 90)
    assert not gathering.send(honest, 20)
    assert gathering.shed == ["closing"]


def begin_message(client: Client, handle: int, byte_count: int, number: int) -> None:
    """The first frame of a message that does not end, past the client's engine."""
    transfer = Transfer(handle, number, b"%d" % number, 0, False, True)
    client.engine.write_raw([encode_frame(0, encode_composite(transfer) + bytes(byte_count))])
    client.world.carry()


def test_the_heaviest_loses_its_links_and_the_other_goes_on() -> None:
    limits = BrokerLimits(memory_bytes_max=MIB, assembly_bytes_max=50_000)
    world = World(BrokerOptions(limits=limits, security=Security(users={"ada": User(password="x")})))
    heavy, honest = world.client("heavy"), world.client("honest")
    heavy.server.user = "ada"
    heavy_link, honest_link = heavy.sender("q"), honest.sender("q")
    begin_message(heavy, 0, 35_000, 0)
    begin_message(honest, 0, 20_000, 0)
    world.carry()
    assert heavy.server.events or heavy_link in heavy.detached
    heavy_events = heavy.server.handle_deadline(world.now_s)
    world.core.handle(heavy.peer, heavy_events, world.now_us)
    world.carry()
    ended = heavy.detached[heavy_link].error
    assert ended is not None
    assert ended.condition == AmqpCondition.RESOURCE_LIMIT_EXCEEDED
    assert honest_link not in honest.detached
    assert honest.server.assembled_bytes == 20_000
    assert world.core.memory.bytes == 20_000
    heavy.lose()
    honest.lose()
    assert world.core.memory.bytes == 0
    assert world.client("again").sender("q", target=Target("q")) is not None

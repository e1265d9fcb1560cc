"""Whatever peers ask of links, in whatever order: each is answered, the broker goes on, and the books balance.

Sources and targets are drawn from everything that an attach can say about queues, topics, subscriptions and dynamic
nodes, sense or nonsense; messages, outcomes, detaches and lost connections come in between. Nothing may raise, every
attach has its answer after a sync, and the journal says the same as the broker, also after a crash.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.ledger.balance import balance
from acquit.protocol.definitions import (
    Accepted,
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Modified,
    Rejected,
    Released,
    SndSettleMode,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from acquit.protocol.endpoint import LinkState
from acquit.protocol.link import Link, ReceivingLink, SendingLink
from acquit.protocol.message import Message
from acquit.protocol.session import Session
from acquit.protocol.types import Byte, Described, ULong
from tests.support.broker_world import Client, World
from tests.support.examples import share

CONTAINERS = ("a", "b", "a/b", "%2F")
NAMES = ("x", "y", "x|2", "x|global", "|", "x|volatile1", "", "z" * 600, "q\n")
ADDRESSES = (
    *("a", "a.b", "DLQ", "", "$x", None, "temporary.queue.x"),
    *("a.*", "#"),
    *("a::b", "a::a", "::", "a::", "a::b|x", "a::b/c", "*::x", "a.*::q", "#::a", "a::%2F"),
)
WORDS = ("topic", "queue", "shared", "global", "temporary-queue", "temporary-topic")
LIFETIMES = (
    *(None, 3, Described(0x2B, []), Described("acme:for-ever:list", [])),
    *(DeleteOnClose(), DeleteOnNoLinks(), DeleteOnNoMessages(), DeleteOnNoLinksOrMessages()),
)
FILTERS = (
    None,
    None,
    {"s": Described(ULong(0x468C00000004), "n = 1")},
    {"s": Described(ULong(0x468C00000004), "n >")},
    {"s": Described(ULong(0x468C00000004), 5)},
    {"n": Described(ULong(0x468C00000003), [])},
)
OUTCOMES = (Accepted(), Released(), Rejected(), Modified(delivery_failed=True, undeliverable_here=True))


class Story:
    """Clients that ask for anything."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.world = World()
        self.clients = [self.world.client(rng.choice(CONTAINERS)) for _ in range(3)]
        self.links: list[tuple[Client, Link]] = []

    def words(self) -> tuple[str, ...]:
        return tuple(self.rng.sample(WORDS, self.rng.randrange(3)))

    def properties(self) -> dict[str, object]:
        return {"lifetime-policy": self.rng.choice(LIFETIMES)}

    def source(self) -> Source | None:
        rng = self.rng
        if rng.random() < 0.15:
            return None
        return Source(
            rng.choice(ADDRESSES),
            rng.choice(list(TerminusDurability)),
            rng.choice(list(TerminusExpiryPolicy)),
            dynamic=rng.random() < 0.2,
            dynamic_node_properties=self.properties(),
            distribution_mode=rng.choice((None, "copy", "move", "teleport")),
            filter=rng.choice(FILTERS),
            capabilities=self.words(),
        )

    def session(self) -> tuple[Client, Session]:
        client = self.rng.choice(self.clients)
        session = client.begun
        assert isinstance(session, Session)
        return client, session

    def free_name(self, client: Client, kind: type[Link]) -> str | None:
        """Our own engine refuses a second link of a name on one session."""
        taken = {link.name for one, link in self.links if one is client and isinstance(link, kind)}
        free = [name for name in NAMES if name not in taken]
        return self.rng.choice(free) if free else None

    # -- steps --------------------------------------------------------------------------------------------------------

    def receive(self) -> None:
        client, session = self.session()
        name = self.free_name(client, ReceivingLink)
        if name is not None:
            link = session.attach_receiver(
                name,
                source=self.source(),
                target=Target(),
                desired_capabilities=self.words(),
                snd_settle_mode=self.rng.choice(list(SndSettleMode)),
            )
            link.grant(self.rng.randrange(5))
            self.links.append((client, link))

    def send(self) -> None:
        client, session = self.session()
        name = self.free_name(client, SendingLink)
        if name is not None:
            target = Target(
                self.rng.choice(ADDRESSES),
                dynamic=self.rng.random() < 0.2,
                dynamic_node_properties=self.properties(),
                capabilities=self.words(),
            )
            self.links.append((client, session.attach_sender(name, source=Source("here"), target=target)))

    def post(self) -> None:
        rng = self.rng
        for client, link in self.links:
            if isinstance(link, SendingLink) and link.sendable and rng.random() < 0.5:
                message = Message(
                    "x",
                    durable=rng.random() < 0.5,
                    to=rng.choice(ADDRESSES),
                    annotations=rng.choice(
                        ({}, {"x-opt-jms-dest": Byte(rng.randrange(-1, 5))}, {"x-opt-jms-dest": "1"})
                    ),
                    application_properties={"n": rng.randrange(2)},
                )
                client.post(link, message, settled=rng.choice((None, True)))

    def settle(self) -> None:
        for client, link in self.links:
            if isinstance(link, ReceivingLink):
                for delivery in client.held(link)[: self.rng.randrange(3)]:
                    delivery.settle(self.rng.choice(OUTCOMES))

    def detach(self) -> None:
        for _, link in self.links:
            if link.state in (LinkState.ATTACHED, LinkState.ATTACH_SENT) and self.rng.random() < 0.3:
                link.detach(closed=self.rng.random() < 0.5)
        self.world.settle()
        self.forget_detached()

    def lose(self) -> None:
        client = self.rng.choice(self.clients)
        client.lose()
        self.clients[self.clients.index(client)] = self.world.client(self.rng.choice(CONTAINERS))
        self.links = [(one, link) for one, link in self.links if one is not client]

    def sync(self) -> None:
        self.world.settle()
        for client, link in self.links:
            assert link.state is not LinkState.ATTACH_SENT or client.ended is not None, link
        self.forget_detached()

    def forget_detached(self) -> None:
        self.links = [(client, link) for client, link in self.links if link.state is not LinkState.DETACHED]

    def end(self) -> None:
        self.sync()
        self.world.check_journal()
        again = self.world.crash()
        again.settle()
        again.check_journal()
        assert balance(again.fold()).balanced


STEPS = {
    Story.receive: 6,
    Story.send: 4,
    Story.post: 4,
    Story.settle: 3,
    Story.detach: 1,
    Story.lose: 0.5,
    Story.sync: 2,
}


@settings(max_examples=share(80), deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_is_asked_is_answered(seed: int) -> None:
    rng = Random(seed)
    story = Story(rng)
    for step in rng.choices(list(STEPS), list(STEPS.values()), k=rng.randrange(5, 60)):
        step(story)
        if rng.random() < 0.7:
            story.world.carry()
    story.end()

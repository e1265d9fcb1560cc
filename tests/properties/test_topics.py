"""Topics against a small model: whoever subscribes and leaves in whatever order, each subscription gets what was posted
while it was there, once, and the books of the journal balance at every sync and after every crash.

The model knows of each subscription the messages that it must have (durable ones that it keeps durably, whose posting
was answered), those that it may have (volatile ones, and what was not answered before a crash), and what it is done
with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.broker.nodes.addresses import matches
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger.balance import balance
from acquit.protocol.definitions import Accepted, Modified, Rejected, Released
from acquit.protocol.delivery import Delivery
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from acquit.protocol.types import Described, ULong
from tests.support.broker_world import Client, World
from tests.support.examples import examples

pytestmark = pytest.mark.promise("topics")

ADDRESSES = ("a", "b", "a.b", "*", "a.#", "#")
TOPICS = ("a", "b", "a.b")
OUTCOMES = (Accepted(), Accepted(), Released(), Modified(delivery_failed=True), Rejected())
OPTIONS = BrokerOptions(address=(AddressRule("#", {"max_delivery_attempts": 0, "connection_loss": "count"}),))


@dataclass
class Subscription:
    """What is known of one."""

    address: str
    durable: bool
    only_even: bool
    must: set[int] = field(default_factory=set)
    """Posted, answered, and not accepted yet."""
    may: set[int] = field(default_factory=set)
    """It may have these or not."""
    gone: set[int] = field(default_factory=set)
    """Accepted or rejected, whatever a crash made of that."""
    client: Client | None = None
    link: ReceivingLink | None = None
    seen: int = 0

    def takes(self, topic: str, number: int) -> bool:
        return matches(self.address, topic) and not (self.only_even and number % 2)


class Model:
    """The clients, and what they know."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.world = World(OPTIONS)
        self.subscriptions: dict[str, Subscription] = {}
        self.number = 0
        self.ended: set[str] = set()
        """Since the last sync: a crash may bring these back, and then they are ended again."""
        self.unanswered: list[tuple[Delivery, int, list[Subscription]]] = []
        self.publish_again()

    def publish_again(self) -> None:
        self.publisher = self.world.client("publisher")
        self.links: dict[str, SendingLink] = {topic: self.publisher.publisher(topic, topic) for topic in TOPICS}

    # -- steps --------------------------------------------------------------------------------------------------------

    def subscribe(self) -> None:
        name = self.rng.choice("pqrs")
        known = self.subscriptions.get(name)
        address, durable = self.rng.choice(ADDRESSES), self.rng.random() < 0.6
        only_even = self.rng.random() < 0.3
        if known is not None:
            if known.link is not None:
                return
            if self.rng.random() < 0.7:
                address, only_even = known.address, known.only_even
            durable = True
        self.sync()  # what is posted from here on is for it, what was posted before is not
        client = self.world.client(name)
        filters = {"s": Described(ULong(0x468C00000004), "even")} if only_even else None
        link = client.subscriber(address, name, durable=durable, filters=filters, credit=0)
        assert link not in client.detached
        if known is None or (known.address, known.only_even) != (address, only_even):
            known = self.subscriptions[name] = Subscription(address, durable, only_even)
        known.client, known.link, known.seen = client, link, 0

    def leave(self) -> None:
        name = self.rng.choice("pqrs")
        known = self.subscriptions.get(name)
        if known is None or known.link is None or known.client is None:
            return
        self.look(known)
        how = self.rng.choice(("close", "detach", "lose"))
        if how == "lose":
            known.client.lose()
        else:
            known.client.detach(known.link, closed=how == "close")
            known.client.close()
            self.world.clients.remove(known.client)
        known.client = known.link = None
        if how == "close" or not known.durable:
            self.ended.add(name)
            del self.subscriptions[name]

    def unsubscribe(self) -> None:
        name = self.rng.choice("pqrs")
        known = self.subscriptions.get(name)
        client = self.world.client(name)
        link = client.subscriber(None, name, credit=0)
        ended = known is not None and known.durable and known.link is None
        assert (link in client.detached) is not ended
        if ended:
            client.detach(link)
            self.ended.add(name)
            del self.subscriptions[name]
        client.close()
        self.world.clients.remove(client)

    def publish(self) -> None:
        topic = self.rng.choice(TOPICS)
        link = self.links[topic]
        for _ in range(self.rng.randrange(1, 6)):
            if not link.credit:
                return
            self.number += 1
            durable = self.rng.random() < 0.7
            message = Message(self.number, durable=durable, application_properties={"even": self.number % 2 == 0})
            (delivery,) = self.publisher.post(link, message)
            takers = [one for one in self.subscriptions.values() if one.takes(topic, self.number)]
            for taker in takers:
                taker.may.add(self.number)
            if durable:
                self.unanswered.append((delivery, self.number, [one for one in takers if one.durable]))

    def take(self) -> None:
        known = self.subscriptions.get(self.rng.choice("pqrs"))
        if known is not None and known.link is not None:
            known.link.grant(self.rng.randrange(1, 8))
            self.world.carry()
            self.look(known)

    def settle(self) -> None:
        known = self.subscriptions.get(self.rng.choice("pqrs"))
        if known is None or known.link is None or known.client is None:
            return
        for delivery in known.client.held(known.link)[: self.rng.randrange(1, 5)]:
            outcome = self.rng.choice(OUTCOMES)
            delivery.settle(outcome)
            if isinstance(outcome, Accepted | Rejected):
                self.done(known, delivery)
        self.world.carry()

    def done(self, known: Subscription, delivery: Delivery) -> None:
        number = int(str(Message.decode(delivery.payload).body))
        known.must.discard(number)
        known.gone.add(number)

    def sync(self) -> None:
        self.world.settle()
        self.ended.clear()
        self.check()

    def crash(self) -> None:
        self.hear()
        clean = self.rng.random() < 0.4
        world = self.world.stop() if clean else self.world.crash()
        self.world = world
        self.unanswered.clear()
        for name, known in list(self.subscriptions.items()):
            known.client = known.link = None
            if not known.durable:
                del self.subscriptions[name]
        world.settle()
        for name in self.names() & self.ended:
            client = world.client(name)
            client.detach(client.subscriber(None, name, credit=0))
            world.clients.remove(client)
        self.publish_again()
        self.sync()

    def names(self) -> set[str]:
        queues = self.world.core.queues.by_name.values()
        return {queue.subscription.name for queue in queues if queue.subscription}

    # -- what holds ---------------------------------------------------------------------------------------------------

    def hear(self) -> None:
        """Which postings were answered?"""
        for delivery, number, takers in list(self.unanswered):
            if isinstance(self.publisher.outcome(delivery), Accepted):
                self.unanswered.remove((delivery, number, takers))
                for taker in takers:
                    if number not in taker.gone:
                        taker.must.add(number)

    def look(self, known: Subscription) -> None:
        """All it was given is its own."""
        assert known.client is not None
        assert known.link is not None
        deliveries = known.client.received.get(known.link, [])
        for delivery in deliveries[known.seen :]:
            assert int(str(Message.decode(delivery.payload).body)) in known.may
        known.seen = len(deliveries)

    def check(self) -> None:
        self.world.check_journal()
        told = balance(self.world.fold())
        assert told.balanced, [row.mismatch for row in told.queues]
        assert not list(self.world.core.removal.queues)
        assert self.names() == set(self.subscriptions)

    def drain(self) -> None:
        """At the end each durable subscription has all that it must have, and nothing twice."""
        self.sync()
        self.hear()
        for name, known in list(self.subscriptions.items()):
            if known.client is not None:
                known.client.lose()
            if not known.durable:
                del self.subscriptions[name]
                continue
            client = self.world.client(name)
            filters = {"s": Described(ULong(0x468C00000004), "even")} if known.only_even else None
            link = client.subscriber(known.address, name, durable=True, filters=filters, credit=10_000)
            self.world.settle()
            bodies = [int(str(body)) for body in client.bodies(link)]
            assert len(bodies) == len(set(bodies))
            assert known.must <= set(bodies) <= known.may
        self.sync()


STEPS = {
    Model.subscribe: 4,
    Model.leave: 2,
    Model.unsubscribe: 0.5,
    Model.publish: 6,
    Model.take: 5,
    Model.settle: 5,
    Model.sync: 4,
    Model.crash: 0.6,
}


@examples(30)
@given(st.integers(0, 2**32))
def test_every_subscription_gets_what_was_posted_while_it_was_there(seed: int) -> None:
    rng = Random(seed)
    model = Model(rng)
    for step in rng.choices(list(STEPS), list(STEPS.values()), k=rng.randrange(10, 80)):
        step(model)
    model.drain()

"""Transactions and plain traffic in any order, with connections lost and crashes anywhere, against plain sets.

What a transaction has posted is seen by nobody before its commit is synced; after a commit all of it has happened,
after anything else nothing; and each message is in its queue exactly once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.broker.options import AddressRule, BrokerOptions, TransactionLimits
from acquit.ledger.balance import balance
from acquit.protocol.definitions import (
    Accepted,
    Declare,
    Declared,
    Discharge,
    Modified,
    Rejected,
    Released,
    Target,
    TransactionalState,
)
from acquit.protocol.delivery import Delivery, Outcome
from acquit.protocol.endpoint import LinkState
from acquit.protocol.link import Link, ReceivingLink, SendingLink
from acquit.protocol.message import Message
from acquit.protocol.settlement import Phase
from acquit.store.interface import Position
from tests.support.broker_world import Client, World
from tests.support.examples import examples
from tests.support.transacting import Controller

pytestmark = pytest.mark.promise("transactions")

QUEUES = ("a", "b")
DEAD = "DLQ"
OUTCOMES = (Accepted(), Accepted(), Accepted(), Rejected(), Released(), Modified(delivery_failed=True))

Contents = dict[str, frozenset[str]]


@dataclass
class Work:
    """What a transaction will have done."""

    posted: list[tuple[str, str]] = field(default_factory=list)
    """Queue and body."""
    gone: list[tuple[str, str, bool]] = field(default_factory=list)
    """Queue and body of what leaves, and whether it dies."""
    lasting: bool = False
    """True if the disk must have its commit before it is answered."""


class Model:
    """What must be where. Bodies are all different; those that begin with v are volatile."""

    def __init__(self) -> None:
        self.contents: dict[str, set[str]] = {name: set() for name in (*QUEUES, DEAD)}

    def apply(self, work: Work) -> None:
        for queue, body in work.posted:
            self.contents[queue].add(body)
        for queue, body, dies in work.gone:
            self.contents[queue].remove(body)
            if dies:
                self.contents[DEAD].add(body)

    def frozen(self, *, durable: bool = False) -> Contents:
        return {
            name: frozenset(body for body in bodies if not durable or body[0] == "d")
            for name, bodies in self.contents.items()
        }

    def copy(self) -> Model:
        other = Model()
        other.contents = {name: set(bodies) for name, bodies in self.contents.items()}
        return other


class Player:
    """One client: a control link, and links to and from each queue."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.client: Client = world.client(name)
        self.client.begun.next_delivery_id = 1_000  # wide, so that they are predicted
        self.controller = Controller(self.client)
        self.senders = {queue: self.client.sender(queue, f"to-{queue}") for queue in QUEUES}
        self.receivers = {
            queue: self.client.receiver(queue, f"from-{queue}", credit=6, second=number == 1)
            for number, queue in enumerate(QUEUES)
        }
        self.open: dict[bytes, Work] = {}
        self.busy: set[Delivery] = set()
        """Deliveries whose outcome is said, or is a transaction's."""
        self.taken: dict[bytes, list[tuple[Delivery, bool]]] = {}
        """By transaction, with whether it was settled."""
        self.seen = 0

    def free(self) -> list[tuple[str, Delivery]]:
        return [
            (queue, delivery)
            for queue, link in self.receivers.items()
            for delivery in self.client.received.get(link, [])
            if delivery not in self.busy
        ]


class Story:
    """One run of operations."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.durable = self.rng.choice((1.0, 1.0, 0.8, 0.1))
        """Share of messages that are durable."""
        self.world = World()
        self.model = Model()
        self.visible: set[str] = set()
        """Bodies that may have been handed out."""
        self.bodies = 0
        self.names = 0
        self.asked: list[tuple[Player, Delivery, Work]] = []
        """Commits that are not synced, in order."""
        self.players = [self.player(), self.player()]
        self.world.settle()

    def play(self, steps: int) -> None:
        actions = (
            (self.declare, 3),
            (self.post, 6),
            (self.post_plain, 3),
            (self.retire, 8),
            (self.retire_plain, 2),
            (self.commit, 4),
            (self.roll_back, 2),
            (self.settle, 3),
            (self.lose, 1),
            (self.leave, 1),
            (self.crash, 1),
        )
        for _ in range(steps):
            (action,) = self.rng.choices([one for one, _ in actions], [weight for _, weight in actions])
            action(self.rng.choice(self.players))
            self.world.carry()
            self.look()
        self.settle(self.players[0])
        self.crash(self.players[0])

    # -- what is done -------------------------------------------------------------------------------------------------

    def player(self) -> Player:
        self.names += 1
        return Player(self.world, f"player-{self.names}")

    def message(self, durable: bool) -> tuple[str, Message]:
        self.bodies += 1
        body = f"{'d' if durable else 'v'}{self.bodies:04}"
        return body, Message(body, durable=durable)

    def is_durable(self) -> bool:
        return self.rng.random() < self.durable

    def declare(self, player: Player) -> None:
        if len(player.open) < 3:
            txn = player.controller.declare()
            player.open[txn] = Work()
            player.taken[txn] = []

    def some(self, player: Player) -> bytes | None:
        return self.rng.choice(sorted(player.open)) if player.open else None

    def post(self, player: Player) -> None:
        txn, queue = self.some(player), self.rng.choice(QUEUES)
        if txn is not None and player.senders[queue].sendable:
            count, durable = min(self.rng.choice((1, 4, 6)), player.senders[queue].credit), self.is_durable()
            messages = [self.message(durable) for _ in range(count)]
            settled = self.rng.random() < 0.3
            player.controller.post(player.senders[queue], txn, *[one for _, one in messages], settled=settled)
            for body, _ in messages:
                player.open[txn].posted.append((queue, body))
                player.open[txn].lasting |= body[0] == "d"

    def post_plain(self, player: Player) -> None:
        queue = self.rng.choice(QUEUES)
        if player.senders[queue].sendable:
            body, message = self.message(self.is_durable())
            self.visible.add(body)
            player.client.post(player.senders[queue], message)
            self.model.contents[queue].add(body)
            self.settle(player)  # so that a crash leaves no doubt about it

    def retire(self, player: Player) -> None:
        txn, free = self.some(player), player.free()
        if txn is None or not free:
            return
        if self.rng.random() < 0.6:  # all that one link has, in one disposition
            queue = self.rng.choice((*QUEUES, QUEUES[0]))
            if deliveries := [delivery for where, delivery in free if where == queue]:
                self.retire_group(player, txn, queue, deliveries, Accepted(), settled=True)
            return
        for queue, delivery in self.rng.sample(free, self.rng.randint(1, min(3, len(free)))):
            settled = self.rng.random() < 0.6
            self.retire_group(player, txn, queue, [delivery], self.rng.choice(OUTCOMES), settled=settled)

    @staticmethod
    def retire_group(
        player: Player, txn: bytes, queue: str, deliveries: list[Delivery], outcome: Outcome, *, settled: bool
    ) -> None:
        # Of a link whose receiver settles second, only an unsettled disposition can be said in a transaction.
        settled = settled and queue == QUEUES[0]
        player.controller.retire(txn, *deliveries, outcome=outcome, settled=settled)
        player.busy.update(deliveries)
        player.taken[txn] += [(delivery, settled) for delivery in deliveries]
        for delivery in deliveries:
            body = str(Message.decode(delivery.payload).body)
            player.open[txn].lasting |= body[0] == "d" or not isinstance(outcome, Accepted)
            if isinstance(outcome, Accepted | Rejected):
                player.open[txn].gone.append((queue, body, isinstance(outcome, Rejected)))

    def retire_plain(self, player: Player) -> None:
        if player.free():
            self.settle(player)  # so that what a volatile commit brought is known
        free = player.free()
        if free:
            queue, delivery = self.rng.choice(free)
            player.busy.add(delivery)
            body = str(Message.decode(delivery.payload).body)
            delivery.settle(Accepted())
            self.model.contents[queue].remove(body)
            self.settle(player)

    def commit(self, player: Player) -> None:
        txn = self.some(player)
        if txn is not None:
            work = player.open.pop(txn)
            del player.taken[txn]
            sent = player.controller.discharge(txn)
            self.asked.append((player, sent, work))
            answered = player.client.outcome(sent)
            assert (answered is None) is work.lasting
            if answered is not None:  # nothing of it waits for the disk
                self.visible.update(body for _, body in work.posted)

    def roll_back(self, player: Player) -> None:
        txn = self.some(player)
        if txn is not None:
            del player.open[txn]
            for delivery, settled in player.taken.pop(txn):
                if not settled:
                    player.busy.discard(delivery)  # it is its receiver's again
            sent = player.controller.discharge(txn, fail=True)
            assert player.client.outcome(sent) == Accepted()

    def settle(self, player: Player) -> None:
        asked, self.asked = self.asked, []
        for _, _, work in asked:
            self.visible.update(body for _, body in work.posted)
        self.world.settle()
        for who, sent, work in asked:
            if who in self.players:
                assert who.client.outcome(sent) == Accepted()
            self.model.apply(work)
        self.check()
        for one in self.players:
            for link in one.receivers.values():
                link.grant(6)

    def lose(self, player: Player) -> None:
        """The connection is gone, and with it what was not asked to be committed."""
        self.players.remove(player)
        player.client.lose()
        self.settle(player)
        self.players.append(self.player())

    def leave(self, player: Player) -> None:
        """The client ends a link, its session or its connection, in one read with what it did last: that happens all
        the same, and nobody hears of it."""
        queue, txn = self.rng.choice(QUEUES), self.some(player)
        with self.world.in_one_read():
            if player.senders[queue].sendable:
                body, message = self.message(self.is_durable())
                self.visible.add(body)
                player.client.post(player.senders[queue], message)
                self.model.contents[queue].add(body)
            if txn is not None:
                self.asked.append((player, player.controller.discharge(txn), player.open.pop(txn)))
            match self.rng.choice(("detach", "end", "close")):
                case "detach":
                    player.controller.link.detach(closed=True)
                case "end":
                    player.client.begun.end()
                case _:
                    player.client.engine.close()
        self.players.remove(player)
        self.settle(player)
        player.client.close()
        self.world.clients.remove(player.client)
        self.settle(player)
        self.players.append(self.player())

    def crash(self, player: Player) -> None:
        """What was asked to be committed, and is not synced, has happened as a whole or not at all, and in order."""
        if self.rng.random() < 0.5:
            self.world.sync()
        self.world = self.world.crash()
        self.world.settle()
        found = self.contents()
        # Volatile messages are gone, wherever they were; so is what they would have become.
        asked, self.asked = [work for _, _, work in self.asked], []
        for body_set in self.model.contents.values():
            body_set.intersection_update({body for body in body_set if body[0] == "d"})
        possible = [self.model]
        for work in asked:
            following = possible[-1].copy()
            following.apply(
                Work(
                    [one for one in work.posted if one[1][0] == "d"],
                    [one for one in work.gone if one[1][0] == "d"],
                )
            )
            possible.append(following)
        happened = [model for model in possible if model.frozen() == found]
        assert happened, (found, [model.frozen() for model in possible])
        self.model = happened[0]
        self.visible = set().union(*self.model.contents.values())
        self.check()
        self.players = [self.player(), self.player()]

    # -- what must hold -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Nobody has been given what is not there yet."""
        for player in self.players:
            for link in player.receivers.values():
                assert isinstance(link, ReceivingLink)
                for delivery in player.client.received.get(link, []):
                    assert str(Message.decode(delivery.payload).body) in self.visible
            assert not player.client.detached

    def contents(self) -> Contents:
        return contents(self.world, volatile=self.durable < 1)

    def check(self) -> None:
        assert self.contents() == self.model.frozen()
        self.world.check()
        self.world.check_journal()
        fold = self.world.fold()
        assert balance(fold).balanced
        assert balance(fold).held == 0  # a fold of its own is a restart, which rolls back


def contents(world: World, *, volatile: bool) -> Contents:
    """All bodies by queue; each once. `volatile`: some may be, so that deliveries are looked at, which parts those that
    were sent together."""
    found: dict[str, list[str]] = {name: [] for name in (*QUEUES, DEAD)}
    life = world.core.life
    for run in [run for run in life._runs.values() if not run.in_memory]:
        run.each()
    for queue in world.core.queues.by_name.values():
        messages = {message.sequence: message for message in queue.backlog.next_messages()}
        messages |= {message.sequence: message for message in life.objects.values() if message.queue is queue}
        for client in world.clients if volatile else ():
            for session in client.server.sessions:
                for delivery in session.outgoing.values():
                    held = getattr(delivery.context, "message", delivery.context)
                    if getattr(held, "queue", None) is queue and held.holder is not None:
                        messages[held.sequence] = held
        for transaction in world.core.transactions._live.values():
            for retirement in transaction.retirements:
                if retirement.message.queue is queue:
                    messages[retirement.message.sequence] = retirement.message
        runs = {run.messages for transaction in world.core.transactions for run in transaction.runs}
        runs |= set(life._runs.values())
        together = [rest for run in runs if run.queue is queue for rest in run.rests]
        assert len(messages) + len(together) == queue.live
        found[queue.name] += [str(Message.decode(rest).body) for rest in together]
        for message in messages.values():
            payload = message.body
            if payload is None:
                payload = world.opened.journal.read(Position(message.position)).payload
            found[queue.name].append(str(Message.decode(payload).body))
    assert all(len(bodies) == len(set(bodies)) for bodies in found.values()), found
    return {name: frozenset(bodies) for name, bodies in found.items()}


@examples(60)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(5, 120))
def test_a_transaction_happens_as_a_whole_or_not_at_all(seed: int, steps: int) -> None:
    Story(seed).play(steps)


class Mischief:
    """Controllers that do anything: wrong ids, two outcomes for one delivery, links that go in between, queues that are
    purged or deleted, locks and transactions that run out."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(
            BrokerOptions(
                address=(
                    AddressRule("#", {"auto_delete": self.rng.random() < 0.5, "full_policy": "reject"}),
                    AddressRule("a", {"lock_duration_ms": 3_000, "messages_max": 30}),
                    AddressRule("c", {"last_value": True, "last_value_key": "k"}),
                ),
                transactions=TransactionLimits(
                    per_connection_max=4, postings_max=6, retirements_max=6, idle_timeout_ms=5_000, fates_max=10
                ),
            )
        )
        self.names = 0
        self.txns = [bytes(16)]
        self.clients: list[tuple[Client, Controller]] = []
        self.connect()
        self.connect()

    def connect(self) -> None:
        self.names += 1
        client = self.world.client(f"client-{self.names}")
        self.clients.append((client, Controller(client)))

    def play(self, steps: int) -> None:
        actions = (
            (self.declare, 4),
            (self.post, 8),
            (self.plain, 4),
            (self.receive, 4),
            (self.outcome, 12),
            (self.discharge, 5),
            (self.detach, 1),
            (self.lose, 1),
            (self.administer, 1),
            (self.wait, 2),
            (self.crash, 1),
            (self.settle, 3),
        )
        for _ in range(steps):
            (action,) = self.rng.choices([one for one, _ in actions], [weight for _, weight in actions])
            action(*self.rng.choice(self.clients))
            for client, controller in list(self.clients):
                if client.ended is not None or controller.link in client.detached:
                    self.clients.remove((client, controller))
                    self.connect()
            self.world.carry()
            self.world.check()
        self.settle(*self.clients[0])
        self.crash(*self.clients[0])

    def link(self, client: Client, queue: str, kind: str) -> Link | None:
        """A link that is there, or a new one."""
        name = f"{kind}-{queue}"
        for session in client.engine.sessions:
            for link in session.links:
                if link.name == name and link not in client.detached:
                    return link if link.state is LinkState.ATTACHED else None
        if kind == "to":
            target = Target(queue, capabilities=("topic",) if queue == "t" else ())
            return client.sender(queue, name, target=target)
        if queue == "t":
            return client.subscriber("t", name, credit=2)
        default = self.rng.choice((None, Released(), Modified(delivery_failed=True)))
        return client.receiver(queue, name, credit=2, second=queue == "b", default_outcome=default)

    def queue(self) -> str:
        return self.rng.choice(("a", "b", "c", "t"))

    def message(self) -> Message:
        properties = {"k": self.rng.choice("xyz")} if self.rng.random() < 0.5 else {}
        if self.rng.random() < 0.3:
            properties["_AMQ_DUPL_ID"] = self.rng.choice("uvw")
        annotations = {"x-opt-delivery-delay": 2_000} if self.rng.random() < 0.1 else None
        ttl_ms = 4_000 if self.rng.random() < 0.2 else None
        durable = self.rng.random() < 0.8
        return Message(
            "body", durable=durable, ttl_ms=ttl_ms, application_properties=properties, annotations=annotations
        )

    def state(self) -> TransactionalState:
        outcome = self.rng.choice((*OUTCOMES, None, Modified(undeliverable_here=True)))
        return TransactionalState(self.rng.choice(self.txns[-5:]), outcome)

    def declare(self, client: Client, controller: Controller) -> None:
        if controller.link.sendable:
            answer = client.outcome(controller.ask(Declare()))
            if isinstance(answer, Declared):
                self.txns.append(answer.txn_id)

    def post(self, client: Client, controller: Controller) -> None:
        sender = self.link(client, self.queue(), "to")
        if isinstance(sender, SendingLink) and sender.sendable:
            client.tags += 1
            settled = self.rng.random() < 0.3
            payload = self.message().encode() if self.rng.random() < 0.97 else b"nonsense"
            sender.send(client.tags.to_bytes(4, "big"), payload, settled=settled, state=self.state())

    def plain(self, client: Client, controller: Controller) -> None:
        sender = self.link(client, self.queue(), "to")
        if isinstance(sender, SendingLink) and sender.sendable:
            client.post(sender, self.message())

    def receive(self, client: Client, controller: Controller) -> None:
        link = self.link(client, self.queue(), "from")
        if isinstance(link, ReceivingLink):
            link.grant(self.rng.randrange(4))

    def outcome(self, client: Client, controller: Controller) -> None:
        """Of any delivery that was not settled, in any state."""
        deliveries = [one for group in client.received.values() for one in group if not one.settled]
        for delivery in self.rng.sample(deliveries, min(len(deliveries), self.rng.randint(1, 3))):
            if delivery.phase not in (Phase.UNSETTLED, Phase.UNSETTLED_SECOND):
                continue
            plain = self.rng.random() < 0.15
            state = self.rng.choice(OUTCOMES) if plain else self.state()
            if plain or (self.rng.random() < 0.5 and delivery.phase is Phase.UNSETTLED):
                delivery.settle(state)
            else:
                delivery.update(state)
            if self.rng.random() < 0.3:
                self.world.carry()

    def discharge(self, client: Client, controller: Controller) -> None:
        if controller.link.sendable:
            controller.ask(Discharge(self.rng.choice(self.txns[-5:]), self.rng.random() < 0.3))

    def detach(self, client: Client, controller: Controller) -> None:
        links = [link for session in client.engine.sessions for link in session.links if link not in client.detached]
        if links:
            self.rng.choice(links).detach()

    def lose(self, client: Client, controller: Controller) -> None:
        client.lose()

    def administer(self, client: Client, controller: Controller) -> None:
        queue = self.queue()
        if self.rng.random() < 0.5 and (queue in self.world.core.queues.by_name or queue == "t"):
            self.world.core.administration.delete(queue, None)
        elif queue in self.world.core.queues.by_name:
            self.world.core.administration.purge(queue, None)

    def wait(self, client: Client, controller: Controller) -> None:
        self.world.advance(self.rng.choice((100, 1_500, 4_000)))

    def settle(self, client: Client, controller: Controller) -> None:
        self.world.settle()
        self.world.check_journal()
        assert balance(self.world.fold()).balanced

    def crash(self, client: Client, controller: Controller) -> None:
        if self.rng.random() < 0.5:
            self.world.sync()
        self.world = self.world.crash()
        self.world.settle()
        self.world.check_journal()
        assert not self.world.core.transactions.postings.durable
        self.clients = []
        self.connect()
        self.connect()


@examples(30)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(5, 100))
def test_nothing_that_controllers_do_upsets_the_accounts(seed: int, steps: int) -> None:
    Mischief(seed).play(steps)

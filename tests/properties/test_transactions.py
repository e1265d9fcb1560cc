"""Transactions and plain traffic in any order, with connections lost and crashes anywhere, against plain sets.

What a transaction has posted is seen by nobody before its commit is synced; after a commit all of it has happened,
after anything else nothing; and each message is in its queue exactly once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.ledger.balance import balance
from acquit.protocol._definitions import Accepted, Modified, Rejected, Released
from acquit.protocol.delivery import Delivery
from acquit.protocol.link import ReceivingLink
from acquit.protocol.message import Message
from acquit.store.interface import Position
from tests.support.broker_world import Client, World
from tests.support.transacting import Controller

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
        self.controller = Controller(self.client)
        self.senders = {queue: self.client.sender(queue, f"to-{queue}") for queue in QUEUES}
        self.receivers = {
            queue: self.client.receiver(queue, f"from-{queue}", credit=4, second=number == 1)
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

    def message(self) -> tuple[str, Message]:
        self.bodies += 1
        durable = self.rng.random() < 0.8
        body = f"{'d' if durable else 'v'}{self.bodies}"
        return body, Message(body, durable=durable)

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
            body, message = self.message()
            player.controller.post(player.senders[queue], txn, message, settled=self.rng.random() < 0.3)
            player.open[txn].posted.append((queue, body))

    def post_plain(self, player: Player) -> None:
        queue = self.rng.choice(QUEUES)
        if player.senders[queue].sendable:
            body, message = self.message()
            self.visible.add(body)
            player.client.post(player.senders[queue], message)
            self.model.contents[queue].add(body)
            self.settle(player)  # so that a crash leaves no doubt about it

    def retire(self, player: Player) -> None:
        txn, free = self.some(player), player.free()
        if txn is None or not free:
            return
        for queue, delivery in self.rng.sample(free, self.rng.randint(1, min(3, len(free)))):
            outcome, settled = self.rng.choice(OUTCOMES), self.rng.random() < 0.6
            # Of a link whose receiver settles second, only an unsettled disposition can be said in a transaction.
            settled = settled and queue == QUEUES[0]
            player.controller.retire(txn, delivery, outcome=outcome, settled=settled)
            player.busy.add(delivery)
            player.taken[txn].append((delivery, settled))
            if isinstance(outcome, Accepted | Rejected):
                body = str(Message.decode(delivery.payload).body)
                player.open[txn].gone.append((queue, body, isinstance(outcome, Rejected)))

    def retire_plain(self, player: Player) -> None:
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
            self.asked.append((player, player.controller.discharge(txn), work))

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
                link.grant(4)

    def lose(self, player: Player) -> None:
        """The connection is gone, and with it what was not asked to be committed."""
        self.players.remove(player)
        player.client.lose()
        self.settle(player)
        self.players.append(self.player())

    def crash(self, player: Player) -> None:
        """What was asked to be committed, and is not synced, has happened as a whole or not at all, and in order."""
        if self.rng.random() < 0.5:
            self.world.sync()
        self.world = self.world.crash()
        self.world.settle()
        found = contents(self.world)
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

    def check(self) -> None:
        assert contents(self.world) == self.model.frozen()
        self.world.check()
        self.world.check_journal()
        fold = self.world.fold()
        assert balance(fold).balanced
        assert balance(fold).held == 0  # a fold of its own is a restart, which rolls back


def contents(world: World) -> Contents:
    """All bodies by queue; each once."""
    found: dict[str, list[str]] = {name: [] for name in (*QUEUES, DEAD)}
    for queue in world.core.queues.by_name.values():
        messages = {message.sequence: message for message in queue.backlog.next_messages()}
        messages |= {message.sequence: message for message in world.core.life.live.values() if message.queue is queue}
        for client in world.clients:
            for session in client.server.sessions:
                for delivery in session.outgoing.values():
                    held = getattr(delivery.context, "message", delivery.context)
                    if getattr(held, "queue", None) is queue and held.holder is not None:
                        messages[held.sequence] = held
        for transaction in world.core.transactions._live.values():
            for retirement in transaction.retirements:
                if retirement.message.queue is queue:
                    messages[retirement.message.sequence] = retirement.message
        assert len(messages) == queue.live
        for message in messages.values():
            payload = message.body
            if payload is None:
                payload = world.opened.journal.read(Position(message.position)).payload
            found[queue.name].append(str(Message.decode(payload).body))
    assert all(len(bodies) == len(set(bodies)) for bodies in found.values()), found
    return {name: frozenset(bodies) for name, bodies in found.items()}


@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(5, 60))
def test_a_transaction_happens_as_a_whole_or_not_at_all(seed: int, steps: int) -> None:
    Story(seed).play(steps)

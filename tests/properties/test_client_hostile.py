"""The client's core beside a server that keeps to the protocol and to nothing else: it settles what it likes, twice,
not at all or in a transaction that nobody declared; it detaches, ends, closes, and falls silent; the wire is cut.

Users meanwhile do what users may, in all modes: begin and end, send and think better of it, acknowledge, drain, commit,
stop waiting. Whatever happens, nothing escapes into the loop that runs the core, and all that somebody could wait for
comes to an end: sends, receipts, transactions, milestones. When all is closed, no session is left, and no queue.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import pytest

from acquit.client.core import ClientCore
from acquit.client.modes import MODES, AckMode
from acquit.client.options import ConnectOptions
from acquit.client.receipts import Milestone, Promise, ReceiptStatus, SendPromise, SettlementReceipt
from acquit.client.received import MessageCore
from acquit.client.receiving import ReceiverCore
from acquit.client.reconnecting import Reconnect
from acquit.client.sending import SenderCore
from acquit.client.session import SessionCore
from acquit.client.transacting import Transaction
from acquit.errors import AcquitError, LocalProtocolError
from acquit.protocol import sasl
from acquit.protocol.connection import Connection
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import (
    Declared,
    Discharge,
    Error,
    Modified,
    Received,
    Rejected,
    SndSettleMode,
    TransactionalState,
)
from acquit.protocol.delivery import Delivery, DeliveryState
from acquit.protocol.events import ConnectionOpened
from acquit.protocol.extensions import DURABLE_SETTLEMENT
from acquit.protocol.link import Link, LinkState, ReceivingLink
from acquit.protocol.options import ConnectionOptions
from tests.support.server import Rig, Server, receiver_spec, sender_spec

pytestmark = pytest.mark.promise("no-lies")

E = TypeVar("E")
L = TypeVar("L", bound=Link)
C = TypeVar("C", SenderCore, ReceiverCore, SenderCore | ReceiverCore)

ON_PURPOSE = Error("test:on-purpose", "by the script")
OUTCOMES = (ACCEPTED, RELEASED, Rejected(), Modified(delivery_failed=True))
FOREIGN = TransactionalState(b"foreign", ACCEPTED)
"""Of a transaction that was never declared."""

OFTEN = ("move", "run", "send", "take", "offer", "restore")
ALWAYS = ("begin", "attach_sender", "attach_receiver", "settle", "acknowledge")
USERS = ("withdraw", "recover", "renew", "wait", "drain", "detach", "end", "end_transaction", "give_up")
WORLDS = ("cut", "pass_time")
STATES = ("server_settles", "server_updates", "server_repeats", "server_grants", "server_changes")
ENDS = ("server_detaches", "server_ends", "server_closes")
AT_TIMES = USERS + WORLDS + STATES + ENDS

refusable = contextlib.suppress(AcquitError)
"""Around what user code calls: it may be told that this cannot be."""

lawful = contextlib.suppress(LocalProtocolError)
"""Around what the server says of deliveries: its engine keeps it from what the protocol does not allow."""


class Stage:
    """What the steps of a life do, to things chosen by the seed."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.server = Server(
            capabilities=(DURABLE_SETTLEMENT,) if chance.random() < 0.5 else (), credit=chance.choice((1, 5, 100))
        )
        self.server.verdict = self.verdict
        self.server.declaration = self.declaration
        self.server.commits = self.commits
        options = ConnectOptions(
            send_timeout_ms=5_000,
            ack_timeout_ms=2_000,
            unsettled_max=chance.choice((2, 10, 5_000)),
            ack_capacity=chance.choice((1, 10)),
        )
        self.rig = Rig(self.server, options)
        self.core._reconnect = Reconnect()  # as the driver of a connection with failover has it
        self.modes = chance.choice((list(MODES.values()), [MODES[AckMode.TRANSACTED]]))
        self.verdicts = chance.choice(((ACCEPTED,), (None,), (*OUTCOMES, None)))
        self.number = 0
        self.sessions: list[SessionCore] = []
        self.senders: list[SenderCore] = []
        self.receivers: list[ReceiverCore] = []
        self.messages: list[MessageCore] = []
        self.sends: list[tuple[SenderCore, SendPromise]] = []
        self.receipts: list[SettlementReceipt] = []
        self.transactions: list[tuple[SessionCore, Transaction]] = []
        self.milestones: dict[str, Milestone] = {}
        self.begin()
        self.run()
        self.attach_sender()
        self.attach_receiver()
        self.run()

    @property
    def core(self) -> ClientCore:
        return self.rig.core

    def pick(self, things: Sequence[E]) -> E | None:
        return self.chance.choice(things) if things else None

    def link(self, links: Sequence[C]) -> C | None:
        """More often than not one that is alive."""
        alive = [link for link in links if link.failure is None]
        return self.pick(alive if self.chance.random() < 0.9 else links)

    def message(self) -> MessageCore | None:
        """More often than not one of which nothing was said yet."""
        fresh = [message for message in self.messages if not message.settled]
        return self.pick(fresh if self.chance.random() < 0.8 else self.messages)

    def name(self, what: str) -> str:
        self.number += 1
        return f"{what} {self.number}"

    def expect(self, what: str, milestone: Milestone) -> None:
        self.milestones[self.name(what)] = milestone

    # -- what the server does when it is asked -------------------------------------------------------------------------

    def verdict(self, delivery: Delivery) -> DeliveryState | None:
        return self.chance.choice(self.verdicts)

    def declaration(self, txn_id: bytes) -> DeliveryState | None:
        declared = Declared(txn_id)
        return self.chance.choice((declared, declared, declared, Rejected(), None))

    def commits(self, discharge: Discharge) -> DeliveryState | None:
        return self.chance.choice((ACCEPTED, ACCEPTED, Rejected(Error("amqp:transaction:rollback")), None))

    # -- the world -----------------------------------------------------------------------------------------------------

    def move(self) -> bool:
        """Commands are done, and bytes go once in each direction."""
        self.core.process(self.rig.now)
        return not self.core.interrupted and self.rig.carry()

    def run(self) -> None:
        """The same until nobody has anything to say, or for long enough: a server may give back what it just got."""
        for _ in range(200):
            if not self.move():
                break

    def cut(self) -> None:
        if not self.core.interrupted:
            self.core.process(self.rig.now)
            self.core.handle(self.rig.engine.receive_eof(self.rig.now), self.rig.now)

    def restore(self) -> None:
        if not self.core.interrupted:
            return
        rig, now = self.rig, self.rig.now
        options = ConnectionOptions(container_id="client")
        rig.engine = Connection(options, server=False, sasl=sasl.Anonymous(), now=now)
        rig.peer = self.server.accept(now)
        rig.engine.open()
        opened = False
        while not opened:
            rig.peer.handle(rig.peer.engine.receive_data(rig.engine.data_to_send(), now))
            events = rig.engine.receive_data(rig.peer.engine.data_to_send(), now)
            opened = any(isinstance(event, ConnectionOpened) for event in events)
        self.core.restore(rig.engine, now)
        self.core.handle(events[1:], now)

    def pass_time(self) -> None:
        self.rig.advance(self.chance.choice((0.05, 1, 3)))

    # -- users ---------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        if len(self.sessions) < 6:
            with refusable:
                session = self.core.begin(self.chance.choice(self.modes))
                self.sessions.append(session)
                self.expect("begun", session.begun)

    def address(self) -> str:
        return self.chance.choice(("q", "q", "r", "r", "refused"))

    def attach_sender(self) -> None:
        if session := self.pick(self.sessions):
            unreliable = session.transactions is None and self.chance.random() < 0.2
            spec = sender_spec(self.address(), name=self.name("sender"), unreliable=unreliable)
            with refusable:
                sender = session.add_sender(spec)
                self.senders.append(sender)
                self.expect("attached", sender.attached)

    def attach_receiver(self) -> None:
        if session := self.pick(self.sessions):
            spec = receiver_spec(self.address(), name=self.name("receiver"), prefetch=self.chance.choice((0, 1, 3, 10)))
            with refusable:
                receiver = session.add_receiver(spec)
                self.receivers.append(receiver)
                self.expect("attached", receiver.attached)

    def send(self) -> None:
        sender = self.link(self.senders)
        if sender is not None and sender.has_room:
            with refusable:
                sender.check()
                self.sends.append((sender, self.rig.send(sender, self.name("message"))))

    def withdraw(self) -> None:
        """A send whose time is over."""
        if chosen := self.pick(self.sends):
            sender, promise = chosen
            if not promise.done:
                sender.withdraw(promise)

    def take(self) -> None:
        if receiver := self.link(self.receivers):
            message = (
                receiver.take() if self.chance.random() < 0.7 and not receiver.refusal else receiver.take_for_listener()
            )
            if message is not None:
                self.messages.append(message)

    def wait(self) -> None:
        if receiver := self.link(self.receivers):
            receiver.before_waiting()
            receiver.begin_wait()
            self.move()
            receiver.end_wait()

    def settle(self) -> None:
        if message := self.message():
            with refusable:
                self.receipts.append(message.decide(self.chance.choice(OUTCOMES)))

    def acknowledge(self) -> None:
        if session := self.pick(self.sessions):
            message = self.pick([message for message in self.messages if message.receiver.session is session])
            with refusable:
                self.receipts.append(session.acknowledge(message, self.chance.random() < 0.5))

    def recover(self) -> None:
        if session := self.pick(self.sessions):
            with refusable:
                session.recover()

    def renew(self) -> None:
        if message := self.message():
            with refusable:
                self.receipts.append(message.renew())

    def drain(self) -> None:
        if receiver := self.link(self.receivers):
            self.expect("drained", receiver.drain())

    def detach(self) -> None:
        links: list[SenderCore | ReceiverCore] = [*self.senders, *self.receivers]
        if link := self.link(links):
            self.close(link)
            self.expect("detached", link.detached)

    def close(self, link: SenderCore | ReceiverCore) -> None:
        if isinstance(link, ReceiverCore):
            link.session.settle_leftovers(link)
        else:
            link.closing = True
        link.detach()

    def end(self) -> None:
        session = self.pick(self.sessions)
        if session is not None and self.chance.random() < 0.3:
            self.sessions.remove(session)
            session.end()
            self.expect("ended", session.ended)

    def end_transaction(self) -> None:
        session = self.pick([session for session in self.sessions if session.transactions is not None])
        if session is not None and session.transactions is not None and session.transactions.unheard is None:
            with refusable:
                session.check()
                ending = session.transactions.end(commit=self.chance.random() < 0.6)
                self.transactions.append((session, ending))

    def give_up(self) -> None:
        """Who waits for a commit or a rollback has heard of it, or waits no longer."""
        for session, ending in self.transactions:
            ending.heard = True
            if not ending.done:
                assert session.transactions is not None
                session.transactions.give_up(ending, " in time")

    # -- what the server does unasked ----------------------------------------------------------------------------------

    def offer(self) -> None:
        if not self.core.interrupted:
            self.server.offer(
                self.chance.choice("qr"), *(self.name("message") for _ in range(self.chance.randrange(5)))
            )

    def links(self, kind: type[L]) -> list[L]:
        """Those that it has answered."""
        links = [] if self.core.interrupted else self.rig.peer.links(kind)
        return [link for link in links if link.state is not LinkState.ATTACH_RECEIVED]

    def unsettled(self) -> list[Delivery]:
        sessions = [] if self.core.interrupted else self.rig.peer.engine.sessions
        return [delivery for session in sessions for delivery in session.unsettled()]

    def server_detaches(self) -> None:
        link = self.pick(self.links(Link))
        if link is not None and self.chance.random() < 0.4:
            link.detach(self.chance.choice((None, Error("amqp:link:stolen"), ON_PURPOSE)))

    def server_ends(self) -> None:
        if not self.core.interrupted and self.chance.random() < 0.2:
            session = self.pick(list(self.rig.peer.engine.sessions))
            if session is not None:
                session.end(ON_PURPOSE)

    def server_closes(self) -> None:
        if not self.core.interrupted and self.chance.random() < 0.2:
            self.rig.peer.engine.close(Error("amqp:connection:forced"))

    def server_settles(self) -> None:
        if delivery := self.pick(self.unsettled()):
            states = (*OUTCOMES, Modified(), None, FOREIGN, Received(0, 0), Declared(b"foreign"))
            with lawful:
                delivery.settle(self.chance.choice(states))

    def server_updates(self) -> None:
        if delivery := self.pick(self.unsettled()):
            states = (ACCEPTED, RELEASED, Modified(delivery_failed=True), Received(0, 0), FOREIGN)
            with lawful:
                delivery.update(self.chance.choice(states))

    def server_repeats(self) -> None:
        """Outcomes are told again as deliveries are settled, before there is an answer to the first."""
        told: list[tuple[Delivery, DeliveryState]] = []
        for delivery in self.unsettled():
            state: DeliveryState = self.chance.choice(OUTCOMES)
            if isinstance(within := delivery.remote_state, TransactionalState):
                state = TransactionalState(within.txn_id, state)
            with lawful:
                delivery.update(state)
                told.append((delivery, state))
        self.move()
        for delivery, state in told:
            with lawful:
                delivery.settle(state)

    def server_grants(self) -> None:
        if link := self.pick(self.links(ReceivingLink)):
            if self.chance.random() < 0.3:
                link.drain_credit()
            else:
                link.grant(self.chance.choice((0, 1, 50)))

    def server_changes(self) -> None:
        """It is another from now on."""
        chance, server = self.chance, self.server
        server.drains = chance.random() < 0.7
        server.answers = chance.random() < 0.7
        server.silent = chance.random() < 0.1
        server.refusals = {"refused": ON_PURPOSE} if chance.random() < 0.8 else {"q": Error("amqp:resource-locked")}
        server.snd_settle_mode = chance.choice((None, None, None, SndSettleMode.SETTLED, SndSettleMode.UNSETTLED))

    # -- the end -------------------------------------------------------------------------------------------------------

    def calm(self) -> None:
        """The server is a decent one again, and users wait for as long as they would."""
        self.server.silent, self.server.drains, self.server.answers = False, True, True
        self.restore()
        self.run()
        self.rig.advance(3)
        self.run()
        self.give_up()
        self.run()
        self.rig.advance(6)
        self.run()

    def close_all(self) -> None:
        for session in list(self.core.sessions):
            links: list[SenderCore | ReceiverCore] = [*session.senders, *session.receivers]
            for link in links:
                self.close(link)
            session.end()
        self.run()
        assert not self.core.sessions, "a session is left"
        assert self.core.interrupted or not self.rig.engine.sessions, "a session of the engine is left"
        self.core.close()
        self.run()
        if self.core.failure is None:
            self.core.handle(self.rig.engine.receive_eof(self.rig.now), self.rig.now)
        assert self.core.failure is not None, "closed, and not over"

    def check_ends(self) -> None:
        ends: list[Promise] = [*(promise for _, promise in self.sends), *self.receipts]
        ends += [ending for _, ending in self.transactions]
        assert [promise for promise in ends if not promise.done] == [], "an end that never comes"
        assert [name for name, milestone in self.milestones.items() if not milestone.done] == []
        assert [sender.spec.name for sender in self.senders if sender.queue] == [], "a send is left in its queue"


def check(seed: int, steps: list[str]) -> Stage:
    done: list[str] = []
    try:
        stage = Stage(seed)
        for name in steps:
            if stage.core.failure is not None:
                break
            done.append(name)
            getattr(stage, name)()
        stage.calm()
        assert [receipt for receipt in stage.receipts if not receipt.done] == [], "a receipt outlives its time"
        stage.close_all()
        stage.check_ends()
    except BaseException as error:
        error.add_note(f"seed {seed}, after {' '.join(done)}")
        raise
    return stage


def outcome(promise: SendPromise) -> str:
    error = promise.error()
    return "accepted" if error is None else type(error).__name__


def script(rng: random.Random) -> list[str]:
    """Each life has things that never happen in it: what disturbs everything would otherwise disturb every life."""
    weights = [6] * len(OFTEN) + [2] * len(ALWAYS) + rng.choices((0, 0, 1, 3), k=len(AT_TIMES))
    return rng.choices(OFTEN + ALWAYS + AT_TIMES, weights, k=rng.randrange(20, 400))


def lives(rng: random.Random, count: int) -> Counter[str]:
    """That many, and what became of what was asked for in them."""
    seen: Counter[str] = Counter()
    for _ in range(count):
        stage = check(rng.randrange(1 << 32), script(rng))
        seen.update(outcome(promise) for _, promise in stage.sends)
        seen.update(receipt.status.name for receipt in stage.receipts if receipt.status is not None)
        seen.update(ending.fate.name for _, ending in stage.transactions if ending.fate is not None)
    return seen


def test_whatever_the_server_does_everything_ends(rng: random.Random) -> None:
    seen = lives(rng, 300)
    receipts = {status.name for status in ReceiptStatus}
    expected = {"accepted", "NotSent", "DeliveryInDoubt", "COMMITTED", "ROLLED_BACK"} | receipts
    assert expected - seen.keys() == set(), "lives too poor to prove much"


@pytest.mark.slow
def test_very_many_lives(rng: random.Random, soak_rounds: int) -> None:
    lives(rng, 100 * soak_rounds)

"""Producers and consumers that keep several transactions at once, and lose their broker again and again.

On the bare engine, a thread and a connection for each. A producer posts into two queues and a topic, in transactions of
which some are rolled back, some left open when it drops its connection, and the others committed, several at a time. A
consumer has one queue (or subscription) to itself, and takes messages there in transactions, of which it rolls some
back, or in rcv-settle-mode second. Who loses the answer to a commit asks for the transaction's fate when the broker is
back. `Books` is what the answers add up to, which the journal and the deliveries are held against.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from acquit.protocol.definitions import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    RcvSettleMode,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
    TransactionalState,
)
from acquit.protocol.delivery import Delivery
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.message import Message
from tests.crash.wire import Lost, Wire, ask_fate
from tests.support.transacting import control_message

TOPIC = "news"
SUBSCRIPTIONS = ("audit", "billing")
QUEUES = ("left", "right")
TIMEOUT_S = 60.0
TOGETHER = 20
"""Messages that a consumer asks for at a time."""
PAUSE_S = 0.02
"""How long a consumer that found nothing waits for the word to finish."""

Posting = tuple[str, str]
"""Where a message was posted (a queue, or the topic), and its body."""


@dataclass
class Books:
    """What the clients know. Guarded by `changed`, which is notified at every change."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    url: str | None = None
    committed: set[Posting] = field(default_factory=set)
    void: set[Posting] = field(default_factory=set)
    """Rolled back, left open, or said not to be committed."""
    sequences: dict[Posting, set[object]] = field(default_factory=lambda: defaultdict(set))
    """Under which sequences each message was delivered, by the queue it was delivered from."""
    retired: set[Posting] = field(default_factory=set)
    """By a committed transaction, or an outcome that was answered."""
    again: list[Posting] = field(default_factory=list)
    """Delivered though it was retired."""
    transactions: int = 0
    fates: list[str] = field(default_factory=list)
    """What the broker said of commits whose answer was lost."""
    losses: int = 0
    failures: list[BaseException] = field(default_factory=list)

    def broker_is(self, url: str | None) -> None:
        """Where it is now; None: nowhere."""
        with self.changed:
            self.url = url
            self.changed.notify_all()

    def broker(self) -> str:
        """Where it is, as soon as it is anywhere."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.url is not None, TIMEOUT_S), "the broker does not come back"
            assert self.url is not None
            return self.url

    def wait_for(self, what: Callable[[], bool]) -> None:
        """Until `what` holds. Raises what a client failed with."""
        with self.changed:
            held = self.changed.wait_for(lambda: bool(self.failures) or what(), TIMEOUT_S)
        if self.failures:
            raise self.failures[0]
        assert held, "the clients make no progress"


class Worker(threading.Thread):
    """A client that works until it is told to finish, over as many connections as that takes."""

    def __init__(self, name: str, books: Books, rng: random.Random) -> None:
        super().__init__(name=name, daemon=True)
        self.books = books
        self.rng = rng
        self.finish = threading.Event()
        self._doubtful: dict[bytes, list[Posting]] = {}
        """Commits that were asked for and not answered yet, and what is in them."""

    def run(self) -> None:
        try:
            while not self._worked():
                with self.books.changed:
                    self.books.losses += 1
        except BaseException as why:
            with self.books.changed:
                self.books.failures.append(why)
                self.books.changed.notify_all()

    def _worked(self) -> bool:
        """To the end, over one connection? False: it was lost."""
        try:
            wire = Wire(self.books.broker(), self.name)
        except (Lost, OSError):
            return False
        with wire.socket:
            try:
                for txn_id in list(self._doubtful):
                    fate = ask_fate(wire, txn_id)
                    self.books.fates.append(fate)
                    self._ended(txn_id, committed=fate == "committed")
                self.work(wire)
            except (Lost, OSError):
                self.lost()
                return False
            return True

    def work(self, wire: Wire) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """What was neither answered nor asked for is not going to be."""

    def _ended(self, txn_id: bytes, *, committed: bool) -> None:
        what = self._doubtful.pop(txn_id)
        with self.books.changed:
            self.books.transactions += 1
            self.tell(what, committed=committed)
            self.books.changed.notify_all()

    def tell(self, what: Iterable[Posting], *, committed: bool) -> None:
        """Write into the books what has become of a transaction with this in it."""
        raise NotImplementedError

    def declare(self, wire: Wire, control: SendingLink) -> bytes:
        """A new transaction."""
        declared = wire.answer(wire.send(control, control_message(Declare())))
        assert isinstance(declared, Declared), declared
        return declared.txn_id

    def discharge(self, wire: Wire, control: SendingLink, txn_id: bytes, what: list[Posting], fail: bool) -> Delivery:
        """Ask for its end; `heard` waits for that."""
        self._doubtful[txn_id] = what
        return wire.send(control, control_message(Discharge(txn_id, fail)))

    def heard(self, wire: Wire, txn_id: bytes, asked: Delivery, fail: bool) -> None:
        """Wait for the answer."""
        assert wire.answer(asked) == Accepted(), wire.answers[asked]
        self._ended(txn_id, committed=not fail)


def attach_control(wire: Wire) -> SendingLink:
    """To the coordinator."""
    return wire.session.attach_sender("control", source=Source(), target=Coordinator())


class Producer(Worker):
    """See above."""

    def __init__(self, name: str, books: Books, rng: random.Random) -> None:
        super().__init__(name, books, rng)
        self._number = 0
        self._open: dict[bytes, list[Posting]] = {}
        self.rolled_back = 0

    def tell(self, what: Iterable[Posting], *, committed: bool) -> None:
        (self.books.committed if committed else self.books.void).update(what)

    def lost(self) -> None:
        with self.books.changed:
            for what in self._open.values():
                self.books.void.update(what)
        self._open.clear()

    def work(self, wire: Wire) -> None:
        control = attach_control(wire)
        senders = {
            where: wire.session.attach_sender(
                where, source=Source(), target=Target(where, capabilities=("topic" if where == TOPIC else "queue",))
            )
            for where in (*QUEUES, TOPIC)
        }
        while not self.finish.is_set():
            for _ in range(self.rng.randint(1, 3)):
                self._open[self.declare(wire, control)] = []
            for _ in range(self.rng.randint(1, 20)):
                self._post(wire, senders)
            self._end_some(wire, control)
        if self._open:
            self.lost()
            wire.socket.close()

    def _post(self, wire: Wire, senders: dict[str, SendingLink]) -> None:
        rng = self.rng
        txn_id = rng.choice(list(self._open))
        where = rng.choice(list(senders))
        self._number += 1
        body = f"{self.name}.{self._number}." + "x" * rng.randrange(3_000)
        self._open[txn_id].append((where, body))
        message = Message(body, durable=True, message_id=f"{self.name}.{self._number}")
        wire.send(senders[where], message.encode(), TransactionalState(txn_id))

    def _end_some(self, wire: Wire, control: SendingLink) -> None:
        rng = self.rng
        asked = []
        for txn_id in rng.sample(list(self._open), len(self._open)):
            chance = rng.random()
            if chance < 0.1 and len(self._open) < 6:
                continue
            fail = chance < 0.3
            what = self._open.pop(txn_id)
            asked.append((txn_id, self.discharge(wire, control, txn_id, what, fail), fail))
        for txn_id, discharge, fail in asked:
            self.heard(wire, txn_id, discharge, fail)
        if rng.random() < 0.02:
            raise Lost  # of its own accord, with what is open


class Consumer(Worker):
    """Takes what is in one place until it is told to finish and nothing is left. `transactional`: see above."""

    def __init__(self, place: str, books: Books, rng: random.Random, *, transactional: bool) -> None:
        super().__init__(f"consumer-{place}", books, rng)
        self.place = place
        self.transactional = transactional

    def tell(self, what: Iterable[Posting], *, committed: bool) -> None:
        if committed:
            self.books.retired.update(what)

    def attach(self, wire: Wire) -> ReceivingLink:
        """To its queue or subscription."""
        mode = RcvSettleMode.FIRST if self.transactional else RcvSettleMode.SECOND
        if self.place in QUEUES:
            source = Source(self.place, capabilities=("queue",))
        else:
            source = Source(
                TOPIC,
                TerminusDurability.UNSETTLED_STATE,
                TerminusExpiryPolicy.NEVER,
                capabilities=("topic",),
            )
        link = wire.session.attach_receiver(self.place, source=source, target=Target(), rcv_settle_mode=mode)
        wire.until(lambda: link.remote_attach is not None)
        return link

    def work(self, wire: Wire) -> None:
        link = self.attach(wire)
        control = attach_control(wire) if self.transactional else None
        while True:
            finishing = self.finish.is_set()
            taken = self._take(wire, link)
            if taken and control is not None:
                self._retire(wire, control, taken)
            elif taken:
                self._settle(wire, taken)
            elif finishing:
                return
            else:
                self.finish.wait(PAUSE_S)

    def _take(self, wire: Wire, link: ReceivingLink) -> list[tuple[Delivery, Posting]]:
        received = wire.received[link] = []
        wire.drained.discard(link)
        link.grant(self.rng.randint(1, TOGETHER))
        link.drain_credit()
        wire.until(lambda: link in wire.drained or not link.credit)
        taken = []
        with self.books.changed:
            for delivery in received:
                message = Message.decode(delivery.payload)
                one = self.place, str(message.body)
                assert message.annotations is not None
                self.books.sequences[one].add(message.annotations["x-opt-acquit-sequence"])
                if one in self.books.retired:
                    self.books.again.append(one)
                taken.append((delivery, one))
        return taken

    def _retire(self, wire: Wire, control: SendingLink, taken: list[tuple[Delivery, Posting]]) -> None:
        """All of it in two transactions, of which one may fail."""
        halves = [taken[::2], taken[1::2]] if len(taken) > 1 else [taken]
        asked = []
        for half in halves:
            txn_id = self.declare(wire, control)
            fail = self.rng.random() < 0.15
            for delivery, _ in half:
                state = TransactionalState(txn_id, Accepted())
                if fail or self.rng.random() < 0.5:
                    delivery.settle(state)
                else:
                    delivery.update(state)
            asked.append((txn_id, self.discharge(wire, control, txn_id, [one for _, one in half], fail), fail))
        for txn_id, discharge, fail in asked:
            self.heard(wire, txn_id, discharge, fail)

    def _settle(self, wire: Wire, taken: list[tuple[Delivery, Posting]]) -> None:
        for delivery, _ in taken:
            delivery.settle(Accepted())
        wire.until(lambda: all(delivery in wire.answers for delivery, _ in taken))
        with self.books.changed:
            self.books.retired.update(one for _, one in taken)


__all__ = ["QUEUES", "SUBSCRIPTIONS", "TOPIC", "Books", "Consumer", "Posting", "Producer", "Worker"]

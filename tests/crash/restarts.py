"""A broker that is killed at any moment of its life, again and again, and a client that remembers what it was told.

`kill -9` strikes in one of several ways (`KILLS`): somewhere between exec and the first answer, as a new segment
appears in the folder, as the broker says that it listens, or in the middle of traffic. One round is one life of the
broker. Most rounds are short, as those of a container that crashes in a loop are, so segments that hold nothing, or
next to nothing, follow one another.

The traffic leaves behind what must live long: dead letters that nobody takes, a subscription that nobody reads, and
messages that are held unacknowledged. `Account` is what the answers add up to, written from the promises alone:

- *accepted* is in its queue, or retired by an outcome that the client gave;
- an outcome that was answered never comes back; a rejected message is a dead letter until that is accepted;
- a transaction happens as a whole or not at all, as its answer or its fate says;
- what was neither answered nor refused may be there, once.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from acquit.demo.children import Children
from acquit.protocol.definitions import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Modified,
    RcvSettleMode,
    Rejected,
    Released,
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
from tests.support.endpoint import BrokerProcess
from tests.support.transacting import control_message

QUEUE, TOPIC, DEAD_LETTERS = "work", "news", "DLQ"
READ, UNREAD = "read", "unread"
"""Subscriptions of the topic. Nobody reads the second before the end, so what is in it is copied forward for ever."""
KILLS = ("exec", "segment", "listening", "traffic", "traffic", "stop")
HELD_MAX = 40
CONTAINER = "restarts"

ADDRESSES = """
[[address]]
match = "#"
max_delivery_attempts = 0
dead_letter_address = "DLQ"

[[address]]
match = "news"
routing = "multicast"
"""

JOURNALS = {
    "least": {
        "alignment_bytes": 512,
        "segment_bytes": 8_192,
        "recovery_bytes_max": 16_384,
        "archive_bytes_max": 65_536,
    },
    "tiny": {"segment_bytes": 65_536, "recovery_bytes_max": 131_072, "archive_bytes_max": 0},
    "small": {
        "segment_bytes": 262_144,
        "recovery_bytes_max": 1_048_576,
        "archive_bytes_max": 1_048_576,
        "reserve_segments": 0,
    },
    "medium": {"segment_bytes": 1_048_576, "recovery_bytes_max": 4_194_304, "archive_bytes_max": 16_777_216},
    "default": {"segment_bytes": 4_194_304},
}
"""Journals of every size, by name: the smaller, the sooner a segment leaves."""


def configuration(journal: str) -> str:
    """The TOML of a broker with this journal."""
    options = "".join(f"{name} = {value}\n" for name, value in JOURNALS[journal].items())
    return f"[journal]\n{options}{ADDRESSES}"


Place = str
Copy = tuple[Place, str]
"""A message in one place: a queue, a subscription, or the dead letters."""


@dataclass
class Account:
    """What the client was told, and what follows from it."""

    must: set[Copy] = field(default_factory=set)
    """There: posted and answered, or a dead letter whose rejection was answered."""
    may: set[Copy] = field(default_factory=set)
    """There or not: an answer was lost."""
    gone: set[Copy] = field(default_factory=set)
    """Retired, and that was answered: never to be seen again."""
    leaving: set[Copy] = field(default_factory=set)
    """An outcome was sent, perhaps before the answer to the posting was read."""
    doubtful: dict[bytes, list[Copy]] = field(default_factory=dict)
    """Commits without an answer, and what they post."""
    problems: list[str] = field(default_factory=list)
    answered: int = 0
    wire: Wire | None = None
    """The connection over which the client speaks now."""

    def posted(self, copies: Sequence[Copy]) -> None:
        """The posting was answered *accepted*."""
        self.answered += 1
        stays = set(copies) - self.leaving
        self.may.difference_update(stays)
        self.must.update(stays)

    def attempted(self, copies: Sequence[Copy]) -> None:
        """The posting, or outcome, is on its way: from now on both is possible."""
        self.leaving.update(copy for copy in copies if copy in self.must or copy in self.may)
        self.must.difference_update(copies)
        self.may.update(copies)

    def retired(self, copy: Copy) -> None:
        """The outcome was answered."""
        self.answered += 1
        self.may.discard(copy)
        self.must.discard(copy)
        self.gone.add(copy)

    def seen(self, copy: Copy) -> None:
        """It was delivered."""
        if copy in self.gone:
            self.problems.append(f"came back after its outcome was answered: {copy}")
        elif copy not in self.must and copy not in self.may:
            self.problems.append(f"delivered and never posted there: {copy}")

    def emptied(self, found: Sequence[Copy]) -> None:
        """All that is there, at the end."""
        counts: dict[Copy, int] = defaultdict(int)
        for copy in found:
            counts[copy] += 1
            self.seen(copy)
        self.problems += [f"twice: {copy}" for copy, count in counts.items() if count > 1]
        self.problems += [f"LOST: {copy}" for copy in sorted(self.must - counts.keys())]


class Traffic:
    """One connection's worth of it: begins where the last one was cut."""

    def __init__(self, url: str, account: Account, rng: random.Random, numbers: Iterator[int]) -> None:
        self._account = account
        self._rng = rng
        self._numbers = numbers
        self._control: SendingLink | None = None
        self._waiting: list[tuple[Delivery, Callable[[], None]]] = []
        """Sent, without an answer so far, and what to do about the answer."""
        self._held: list[tuple[Place, str, Delivery]] = []
        self._receivers: dict[Place, ReceivingLink] = {}
        self._wire = account.wire = Wire(url, CONTAINER)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Ask what became of commits, and attach."""
        wire, account = self._wire, self._account
        for txn_id in list(account.doubtful):
            copies = account.doubtful.pop(txn_id)
            if ask_fate(wire, txn_id) == "committed":
                account.posted(copies)
            else:
                account.may.difference_update(copies)
        session = wire.session
        self._senders = {
            place: session.attach_sender(
                place, source=Source(), target=Target(place, capabilities=("topic" if place == TOPIC else "queue",))
            )
            for place in (QUEUE, TOPIC)
        }
        for place in (QUEUE, READ, DEAD_LETTERS):
            self._receive(place)

    def _receive(self, place: Place) -> None:
        source = (
            Source(TOPIC, TerminusDurability.UNSETTLED_STATE, TerminusExpiryPolicy.NEVER, capabilities=("topic",))
            if place in (READ, UNREAD)
            else Source(place, capabilities=("queue",))
        )
        link = self._wire.session.attach_receiver(
            place, source=source, target=Target(), rcv_settle_mode=RcvSettleMode.SECOND
        )
        self._wire.until(lambda: link.remote_attach is not None)
        self._receivers[place] = link
        self._wire.received[link] = []

    def subscribe(self) -> None:
        """Make the subscription that nobody reads."""
        self._receive(UNREAD)

    def close(self) -> None:
        """Drop the connection."""
        self._wire.socket.close()

    def work(self, steps: int) -> None:
        """So many steps. Raises Lost or OSError when the broker is killed meanwhile."""
        chances = ((self._post, 8), (self._take, 4), (self._transact, 1), (self._let_go, 1))
        actions, weights = zip(*chances, strict=True)
        for _ in range(steps):
            self._rng.choices(actions, weights)[0]()
            self._hear(20)
        self._hear(0)

    def _hear(self, waiting_max: int) -> None:
        """Wait until no more than so many answers are missing, and do what each asks for."""
        wire = self._wire
        wire.until(lambda: sum(one not in wire.answers for one, _ in self._waiting) <= waiting_max)
        for sent, then in self._waiting:
            if sent in wire.answers:
                then()
        self._waiting = [(sent, then) for sent, then in self._waiting if sent not in wire.answers]

    def _body(self) -> tuple[str, str]:
        key = str(next(self._numbers))
        return key, key + " " + "x" * self._rng.choice((0, 10, 100, 1_000, 3_000))

    def _post(self) -> None:
        place = self._rng.choice((QUEUE, QUEUE, TOPIC))
        key, body = self._body()
        copies = copies_of(place, key)
        self._account.attempted(copies)
        sent = self._wire.send(self._senders[place], Message(body, durable=True, message_id=key).encode())
        self._waiting.append((sent, lambda: self._check_accepted(sent, copies)))

    def _check_accepted(self, sent: Delivery, copies: Sequence[Copy]) -> None:
        state = self._wire.answers[sent]
        if state == Accepted():
            self._account.posted(copies)
        else:
            self._account.problems.append(f"refused with {state}: {copies}")

    def _take(self) -> None:
        place = self._rng.choices((QUEUE, READ, DEAD_LETTERS), (6, 3, 1))[0]
        link, wire = self._receivers[place], self._wire
        wire.drained.discard(link)
        link.grant(self._rng.randint(1, 5))
        link.drain_credit()
        wire.until(lambda: link in wire.drained or not link.credit)
        received, wire.received[link] = wire.received[link], []
        for delivery in received:
            key = str(Message.decode(delivery.payload).body).partition(" ")[0]
            self._account.seen((place, key))
            self._decide(place, key, delivery)

    def _decide(self, place: Place, key: str, delivery: Delivery) -> None:
        account = self._account
        copy = place, key
        choice = self._rng.random()
        if choice < 0.2 and len(self._held) < HELD_MAX:
            self._held.append((place, key, delivery))
        elif choice < 0.35:
            delivery.settle(Released())
        elif choice < 0.45:
            delivery.settle(Modified(delivery_failed=True))
        elif choice < 0.6 and place == QUEUE:
            letter = DEAD_LETTERS, key
            account.attempted([copy, letter])

            def rejected() -> None:
                account.retired(copy)
                account.posted([letter])

            delivery.settle(Rejected())
            self._waiting.append((delivery, rejected))
        else:
            account.attempted([copy])
            delivery.settle(Accepted())
            self._waiting.append((delivery, lambda: account.retired(copy)))

    def _let_go(self) -> None:
        while self._held and self._rng.random() < 0.7:
            place, key, delivery = self._held.pop(self._rng.randrange(len(self._held)))
            self._decide(place, key, delivery)

    def _transact(self) -> None:
        wire, account = self._wire, self._account
        if self._control is None:
            self._control = wire.session.attach_sender("control", source=Source(), target=Coordinator())
        declared = wire.answer(wire.send(self._control, control_message(Declare())))
        assert isinstance(declared, Declared), declared
        copies: list[Copy] = []
        for _ in range(self._rng.randint(1, 6)):
            place = self._rng.choice((QUEUE, TOPIC))
            key, body = self._body()
            copies += copies_of(place, key)
            message = Message(body, durable=True, message_id=key).encode()
            wire.send(self._senders[place], message, TransactionalState(declared.txn_id))
        choice = self._rng.random()
        if choice < 0.15:
            return  # left open: rolled back when the connection goes
        fail = choice < 0.35
        if not fail:
            account.attempted(copies)
            account.doubtful[declared.txn_id] = copies
        discharge = wire.send(self._control, control_message(Discharge(declared.txn_id, fail)))
        assert wire.answer(discharge) == Accepted(), wire.answers[discharge]
        if not fail:
            account.posted(account.doubtful.pop(declared.txn_id))

    def empty(self) -> list[Copy]:
        """Take all there is, without any doubt about it."""
        wire, found = self._wire, []
        self._receive(UNREAD)
        for place, link in self._receivers.items():
            while True:
                wire.drained.discard(link)
                link.grant(500)
                link.drain_credit()
                wire.until(lambda link=link: link in wire.drained or not link.credit)
                received, wire.received[link] = wire.received[link], []
                if not received:
                    break
                for delivery in received:
                    found.append((place, str(Message.decode(delivery.payload).body).partition(" ")[0]))
                    delivery.settle(Accepted())
                wire.until(lambda received=received: all(delivery in wire.answers for delivery in received))
        return found


def copies_of(place: Place, key: str) -> list[Copy]:
    """Where a posting is, once it is accepted."""
    return [(READ, key), (UNREAD, key)] if place == TOPIC else [(place, key)]


class Lives:
    """A data folder, and one life of a broker after the other on it."""

    def __init__(self, folder: Path, journal: str, rng: random.Random, children: Children) -> None:
        self.data = folder / "broker"
        config = folder / "acquit.toml"
        config.write_text(configuration(journal))
        self._broker = BrokerProcess(children, self.data, folder / "endpoint", config=config)
        self._rng = rng
        self._numbers = iter(range(1, 1 << 60))
        self._children = children
        self._start_s = 1.0
        self.struck = 0
        """Kills as a new segment appeared."""
        self.account = Account()
        self.kills: dict[str, int] = defaultdict(int)

    def begin(self) -> None:
        """The first life: make what must be there before anything is posted."""
        self._start_s = self._broker.start()
        with closing(self._connect()) as traffic:
            traffic.subscribe()
            traffic.work(20)
        self._broker.kill()

    def _connect(self) -> Traffic:
        return Traffic(self._broker.url, self.account, self._rng, self._numbers)

    def live(self, kill: str) -> None:
        """One more life, and its end."""
        self.kills[kill] += 1
        if kill in ("exec", "segment"):
            self._kill_at_start(kill)
            return
        self._start_s = self._broker.start()
        if kill == "traffic":
            self._kill_in_traffic()
        elif kill == "stop":
            self._work_a_little()
            status = self._broker.stop()
            if status:
                self.account.problems.append(f"ended with {status} when it was asked to stop")
        else:
            self._broker.kill()

    def _kill_at_start(self, kill: str) -> None:
        """Before the first answer: after a part of the time that it takes, or as soon as a new segment is there."""
        before = self._newest_segment()
        late_s = self._start_s * 1.5
        delay_s = self._rng.random() * self._start_s * 1.1 if kill == "exec" else late_s
        child = self._children.start("early", self._broker.arguments(), foreign=True)
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < delay_s and child.poll() is None:
            if kill == "segment" and self._newest_segment() > before:
                self.struck += 1
                break
            time.sleep(0.0005)
        if child.poll() is not None:
            self.account.problems.append(f"did not start: {child.log_tail()}")
        child.kill()

    def _newest_segment(self) -> int:
        with suppress(FileNotFoundError):
            return max((int(path.stem) for path in (self.data / "journal").glob("*.seg")), default=0)
        return 0

    def _kill_in_traffic(self) -> None:
        timer = threading.Timer(self._rng.choice((0.01, 0.05, 0.2, 0.5)) * self._rng.random(), self._broker.kill)
        timer.start()
        try:
            with suppress(Lost, OSError), closing(self._connect()) as traffic:
                traffic.work(100_000)
        finally:
            timer.join()

    def _work_a_little(self) -> None:
        with closing(self._connect()) as traffic:
            traffic.work(self._rng.randint(1, 60))

    def end(self) -> None:
        """The last life: everything is taken, and held against the account."""
        self._broker.start()
        with closing(self._connect()) as traffic:
            self.account.emptied(traffic.empty())
        if self._broker.stop():
            self.account.problems.append("ended uncleanly")

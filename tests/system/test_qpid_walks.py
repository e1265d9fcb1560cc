"""Random walks through sessions of the qpid.messaging API, beside a model that says where each message may be.

A message is available, held by the session that fetched it, or done with. Whatever sessions do in any order, what is
fetched was available, and in the end the broker has what was not done with, and nothing else. Threads do the same
without the model: each message is done with once.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field

import pytest

import acquit
from acquit.compat.qpid.messaging import REJECTED, RELEASED, Connection, Disposition, Empty, Message, Receiver, Session
from tests.support.qpid import LONG, drained, eventually

WALKS, STEPS = 12, 120


@dataclass
class Walker:
    """A session, and what the model knows of it."""

    session: Session
    receivers: list[Receiver] = field(default_factory=list)
    held: list[Message] = field(default_factory=list)
    """Fetched, and nothing said of them."""
    said: list[tuple[str, bool]] = field(default_factory=list)
    """In the open transaction: contents, and whether they are done with."""
    sent: list[str] = field(default_factory=list)
    """In the open transaction."""


class Walk:
    """All sessions, and the queue as it must be."""

    def __init__(self, connection: Connection, address: str, rng: random.Random, capacity_max: int) -> None:
        self.connection, self.address, self.rng = connection, address, rng
        self.capacity_max = capacity_max
        self.available: set[str] = set()
        self.walkers = [Walker(connection.session(transactional=number % 2 == 1)) for number in range(4)]
        self.count = 0
        self.done: list[str] = []

    def send(self, walker: Walker) -> None:
        content = str(self.count)
        self.count += 1
        with closing(walker.session.sender(self.address, durable=self.rng.random() < 0.5)) as sender:
            sender.send(content, sync=self.rng.random() < 0.5)
        if walker.session.transactional:
            walker.sent.append(content)
        else:
            self.available.add(content)

    def fetch(self, walker: Walker) -> None:
        if not walker.receivers or self.rng.random() < 0.2:
            capacity = self.rng.randint(0, self.capacity_max)
            walker.receivers.append(walker.session.receiver(self.address, capacity=capacity))
        try:
            message = self.rng.choice(walker.receivers).fetch(0)
        except Empty:
            # With a capacity, messages may wait at another receiver.
            assert self.available == set() or self.capacity_max
            return
        assert message.content in self.available
        self.available.remove(str(message.content))
        walker.held.append(message)

    def acknowledge(self, walker: Walker) -> None:
        kind = self.rng.choice([None, None, RELEASED, REJECTED])
        one = walker.held and self.rng.random() < 0.7
        message = self.rng.choice(walker.held) if one else None
        walker.session.acknowledge(
            message,
            None if kind is None else Disposition(kind),
            sync=walker.session.transactional or self.rng.random() < 0.5,
        )
        settled = walker.held if message is None else [message]
        walker.held = [] if message is None else [other for other in walker.held if other is not message]
        walker.said += [(str(gone.content), kind is not RELEASED) for gone in settled]
        walker.session.sync(LONG)
        if not walker.session.transactional:
            self.ends(walker, committed=True)

    def close_receiver(self, walker: Walker) -> None:
        if walker.receivers:
            walker.receivers.pop(self.rng.randrange(len(walker.receivers))).close()

    def end(self, walker: Walker) -> None:
        if walker.session.transactional:
            commits = self.rng.random() < 0.6
            (walker.session.commit if commits else walker.session.rollback)(LONG)
            self.ends(walker, committed=commits)

    def close(self, walker: Walker) -> None:
        if self.rng.random() < 0.3:
            walker.session.close(LONG)
            self.ends(walker, committed=False)
            walker.receivers.clear()
            walker.session = self.connection.session(transactional=walker.session.transactional)

    def ends(self, walker: Walker, *, committed: bool) -> None:
        if not committed:
            walker.said = [(content, False) for content, _ in walker.said]
            walker.said += [(str(message.content), False) for message in walker.held]
            walker.held, walker.sent = [], []
        self.available |= {*walker.sent, *(content for content, is_done in walker.said if not is_done)}
        self.done += [content for content, is_done in walker.said if is_done]
        walker.said, walker.sent = [], []

    def step(self) -> None:
        steps = (
            [self.send] * 3 + [self.fetch] * 5 + [self.acknowledge] * 3 + [self.close_receiver, self.end, self.close]
        )
        self.rng.choice(steps)(self.rng.choice(self.walkers))


@pytest.mark.parametrize("capacity_max", [0, 5])
@pytest.mark.parametrize("number", range(WALKS))
def test_what_is_fetched_was_available_and_what_is_left_is_there(
    broker: acquit.Broker, address: str, rng: random.Random, number: int, capacity_max: int
) -> None:
    with closing(Connection.establish(f"127.0.0.1:{broker.port}")) as connection:
        walk = Walk(connection, address, rng, capacity_max)
        for _ in range(STEPS):
            walk.step()
        for walker in walk.walkers:
            walker.session.close(LONG)
            walk.ends(walker, committed=False)
        left = drained(connection.session().receiver(address))
        assert Counter(map(str, left)) == Counter(walk.available)
        assert set(walk.done).isdisjoint(walk.available) and len(set(walk.done)) == len(walk.done)
        assert walk.done or capacity_max  # it went somewhere


@pytest.mark.parametrize("capacity", [0, 7])
def test_threads_share_a_session(broker: acquit.Broker, address: str, capacity: int) -> None:
    count, workers = 200, 4
    with closing(Connection.establish(f"127.0.0.1:{broker.port}")) as connection:
        session = connection.session()
        done: list[str] = []
        failures: list[BaseException] = []

        def work() -> None:
            try:
                receiver = session.receiver(address, capacity=capacity)
                while len(done) < count:
                    try:
                        message = receiver.fetch(0.05)
                    except Empty:
                        continue
                    done.append(str(message.content))
                    session.acknowledge(message, sync=len(done) % 3 == 0)
                    if len(done) % 10 == 0:
                        receiver.close()
                        receiver = session.receiver(address, capacity=capacity)
            except BaseException as exc:
                failures.append(exc)

        threads = [threading.Thread(target=work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        sender = session.sender(address, capacity=10)
        for number in range(count):
            sender.send(str(number), sync=False)
        for thread in threads:
            thread.join(LONG)
        assert failures == [] and sorted(done) == sorted(map(str, range(count)))
        session.sync(LONG)
        eventually(lambda: (queue := broker.inspect().queue(address)) is not None and queue.depth == 0)

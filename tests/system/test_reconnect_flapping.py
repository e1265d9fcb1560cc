"""A network that fails all the time, at frames drawn by chance, under everything that a client does at once.

Two producers, one of them with transactions; a mover that takes from one queue and sends to the next in transactions;
consumers that acknowledge one by one, and all so far. A saboteur cuts, resets, stalls and refuses until the producers
have finished. In the end each message that was accepted has been consumed, none that was committed twice.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import acquit
from acquit import AckMode, ReceiptStatus, TransactionFailed, TransactionInDoubt
from acquit.testing import Proxy
from tests.support.outages import Asyncio, Blocking, Story, assert_in_order, drain, fast, live, running, until

pytestmark = pytest.mark.promise("no-lies")

FRAMES = "header sasl-init sasl-outcome open begin attach flow transfer disposition declare discharge".split()
WEIGHTS = (1, 1, 1, 1, 2, 3, 3, 12, 12, 4, 6)
BOUND = 60.0


class Saboteur(threading.Thread):
    """Does harm until it is stopped; leaves the proxy in order."""

    def __init__(self, proxy: Proxy, rng: random.Random) -> None:
        super().__init__(name="saboteur")
        self.proxy = proxy
        self.rng = rng
        self.cuts = 0
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()
        self.join(BOUND)
        assert not self.is_alive()

    def run(self) -> None:
        rng, proxy = self.rng, self.proxy
        while not self._stopped.is_set():
            (name,) = rng.choices(FRAMES, WEIGHTS)
            reset = rng.random() < 0.3
            by = "client" if name in ("declare", "discharge") else rng.choice(["client", "broker", None])
            place = rng.choice(["before", "within", "after"])
            point = getattr(proxy, place)(name, rng.randint(1, 12), by=by)
            kind = rng.random()
            if kind < 0.1 and place != "within":
                rule = point.stall()
            elif kind < 0.2 and place != "within":
                rule = point.call(lambda frame: (proxy.refuse(), proxy.cut()))
            else:
                rule = point.cut(reset=reset)
            try:
                rule.wait(0.1)
            except TimeoutError:
                if rule.cancel():
                    continue
                rule.wait(BOUND)  # its frame has just come
            self.cuts += 1
            self._stopped.wait(rng.random() * 0.03)
            proxy.accept()
            if kind < 0.1:
                proxy.cut(reset=reset)
                proxy.resume()
        proxy.resume()
        proxy.accept()


class Work:
    """What the workers share: who has done what."""

    def __init__(self, api: Blocking | Asyncio, url: str, count: int) -> None:
        self.api = api
        self.url = url
        self.count = count
        self.stories: list[Story] = []
        self.accepted: Counter[object] = Counter()
        """Bodies that were sent and accepted."""
        self.committed: Counter[object] = Counter()
        """Bodies that were sent in a transaction that is committed."""
        self.doubtful: set[object] = set()
        """Bodies of transactions in doubt."""
        self.moved: Counter[object] = Counter()
        self.applied: Counter[int] = Counter()
        """Acknowledgements that the broker said are applied, by sequence."""
        self.seen: set[object] = set()
        self.over = threading.Event()
        self._lock = threading.Lock()

    def connect(self) -> Any:
        story = Story()
        self.stories.append(story)
        return self.api.connect(self.url, options=fast(reconnect={"first_rounds": 0}), on_event=story)

    def note(self, change: Callable[[], object]) -> None:
        with self._lock:
            change()

    def produce(self) -> None:
        with self.connect() as connection:
            sender = connection.session().sender("one")
            for start in range(0, self.count, 10):
                bodies = [f"p{number}" for number in range(start, start + 10)]
                receipts = [sender.send(body, wait=False) for body in bodies]
                for body, receipt in zip(bodies, receipts, strict=True):
                    assert receipt.result(BOUND) == acquit.Accepted()
                    self.accepted[body] += 1

    def produce_in_transactions(self) -> None:
        with self.connect() as connection:
            session = connection.session(AckMode.TRANSACTED)
            sender = session.sender("one")
            for start in range(0, self.count, 5):
                bodies = [f"t{number}" for number in range(start, start + 5)]

                def work(bodies: list[str] = bodies) -> list[object]:
                    for body in bodies:
                        sender.send(body, timeout=BOUND)
                    return list(bodies)

                self.committed.update(self.in_transaction(session, work, again=True))

    def move(self) -> None:
        with self.connect() as connection:
            session = connection.session(AckMode.TRANSACTED)
            receiver, sender = session.receiver("one", prefetch=7), session.sender("two")

            def work() -> list[object]:
                taken: list[object] = []
                while len(taken) < 4 and (message := receiver.receive(0.05)) is not None:
                    taken.append(message.sequence)
                    sender.send(message.body, timeout=BOUND)
                return taken

            while not self.over.is_set():
                self.moved.update(self.in_transaction(session, work, again=False))

    def in_transaction(self, session: Any, work: Callable[[], list[object]], *, again: bool) -> list[object]:
        """What `work` did, committed; [] where it was rolled back and is not done again."""
        while True:
            try:
                done = work()
                session.commit(BOUND)
                return done
            except TransactionInDoubt:
                raise
            except TransactionFailed:
                session.rollback(BOUND)
                if not again:
                    return []

    def consume(self, mode: AckMode) -> None:
        with self.connect() as connection:
            session = connection.session(mode)
            receiver = session.receiver("two", prefetch=5)
            held: list[Any] = []
            while not self.over.is_set():
                try:
                    message = receiver.receive(0.05)
                except acquit.CreditExhausted:
                    message = None
                if message is not None:
                    held.append(message)
                if not held or (message is not None and mode is AckMode.CLIENT and len(held) < 3):
                    continue
                status = held[-1].acknowledge().status
                assert status in (ReceiptStatus.APPLIED, ReceiptStatus.STALE, ReceiptStatus.UNKNOWN)
                self.note(lambda: self.seen.update(each.body for each in held))  # called at once
                if status is ReceiptStatus.APPLIED:
                    self.note(lambda: self.applied.update(each.sequence for each in held))  # at once
                held.clear()


def run(api: Blocking | Asyncio, rng: random.Random, count: int) -> int:
    """One round. Returns how often a connection was cut."""
    with acquit.Broker() as broker, Proxy(broker.url) as proxy, ThreadPoolExecutor() as pool:
        work = Work(api, proxy.url, count)
        producers = [pool.submit(work.produce), pool.submit(work.produce_in_transactions)]
        others = [pool.submit(work.move)]
        others += [pool.submit(work.consume, mode) for mode in (AckMode.INDIVIDUAL, AckMode.CLIENT)]
        saboteur = Saboteur(proxy, rng)
        saboteur.start()
        try:
            for each in producers:
                each.result(2 * BOUND)
            saboteur.stop()
            until(
                lambda: live(broker, "one") + live(broker, "two") == 0 or any(each.done() for each in others),
                "the queues",
                BOUND,
            )
        finally:
            saboteur.stop()
            work.over.set()
            for each in others:
                each.result(BOUND)
        assert drain(broker, "one") == drain(broker, "two") == []
        assert set(work.accepted) == {f"p{number}" for number in range(count)}
        assert work.committed == Counter(f"t{number}" for number in range(count))
        # A sequence is one copy in one queue: it is moved once, and acknowledged once.
        assert max(work.moved.values()) == 1
        assert set(work.applied.values()) <= {1}
        assert work.seen == {*work.accepted, *work.committed}
        queue_one, queue_two = broker.inspect().queue("one"), broker.inspect().queue("two")
        assert queue_one is not None
        assert queue_two is not None
        assert queue_one.accepted == queue_one.entered == sum(work.moved.values()) == queue_two.entered
        # Only what was sent without a transaction can be there twice.
        assert queue_one.entered - 2 * count <= saboteur.cuts * 10
        for story in work.stories:
            assert_in_order(story)
        return saboteur.cuts


@pytest.mark.parametrize("name", ["blocking", "asyncio"])
def test_everything_at_once(name: str, rng: random.Random) -> None:
    with running(name) as api:
        assert run(api, rng, 60) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["blocking", "asyncio"])
def test_soak(name: str, rng: random.Random, soak_rounds: int) -> None:
    cuts = 0
    began = time.monotonic()
    with running(name) as api:
        for number in range(soak_rounds):
            cuts += run(api, random.Random(rng.random()), 200)
            print(f"round {number}: {cuts} cuts, {time.monotonic() - began:.0f} s")  # noqa: T201  # shown when it fails

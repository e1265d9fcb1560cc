"""Producers and consumers that keep a broker busy while it is killed, and remember what they were told.

Each runs on a thread with a connection of its own, and comes back as often as the broker does. What they remember is
what a program could know: which postings were *answered* accepted, which acknowledgements were *applied*, what was
delivered. `Memory` is where they write it, and where the test reads it.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import acquit
from acquit import AckMode, Message
from acquit.errors import AcquitError, DeliveryInDoubt, EndpointError
from tests.support.endpoint import keep_working

WORK = "work"
"""Consumed with acknowledgement."""
ONCE = "once"
"""Consumed pre-settled: at most once."""
WINDOW = 32
PREFETCH = 32
BATCH = 8
IDLE_S = 0.2
SILENT_S = 3.0
"""Nothing more comes to a consumer that has heard nothing for so long: a busy disk can take longer than `IDLE_S`."""
ANSWER_TIMEOUT_S = 30.0


@dataclass
class Memory:
    """What the clients know. Guarded by `changed`, which is notified at every change."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    sent: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)
    delivered: Counter[str] = field(default_factory=Counter)
    applied: set[str] = field(default_factory=set)
    rejected: set[str] = field(default_factory=set)
    delivered_after_applied: list[str] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    losses: int = 0

    def wait_for(self, what: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Until `what` holds, a client failed, or the test is given up."""
        with self.changed:
            held = self.changed.wait_for(lambda: bool(self.failures) or what(), timeout_s)
        if self.failures:
            raise self.failures[0]
        assert held, "the clients made no progress"


class Client(threading.Thread):
    """A client that works until it is told to finish, over as many connections as that takes."""

    def __init__(self, name: str, endpoint: Path, memory: Memory, rng: random.Random) -> None:
        super().__init__(name=name, daemon=True)
        self.finish = threading.Event()
        self._endpoint = endpoint
        self.memory = memory
        self.rng = rng

    def run(self) -> None:
        try:
            keep_working(self._endpoint, container_id=self.name, work=self.work, lost=self._lost)
        except BaseException as why:
            with self.memory.changed:
                self.memory.failures.append(why)
                self.memory.changed.notify_all()

    def work(self, connection: acquit.Connection) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """What was in flight is not known any more."""

    def _lost(self, why: AcquitError) -> None:
        self.lost()
        with self.memory.changed:
            self.memory.losses += 1
            self.memory.changed.notify_all()


class Producer(Client):
    """Posts durable messages under ids that are never used twice, in `address`."""

    def __init__(self, name: str, endpoint: Path, memory: Memory, rng: random.Random, address: str) -> None:
        super().__init__(name, endpoint, memory, rng)
        self._address = address
        self._number = 0
        self._in_flight: deque[tuple[str, acquit.SendReceipt]] = deque()

    def work(self, connection: acquit.Connection) -> None:
        sender = connection.session().sender(self._address)
        while not self.finish.is_set():
            while len(self._in_flight) < WINDOW:
                self._number += 1
                identity = f"{self._address}.{self.name}.{self._number}"
                with self.memory.changed:
                    self.memory.sent.add(identity)
                body = bytes(self.rng.randrange(2000))
                message = Message(durable=True, message_id=identity, body=body)
                self._in_flight.append((identity, sender.send(message, wait=False)))
            self._take(WINDOW // 2)
        self._take(len(self._in_flight))

    def lost(self) -> None:
        for identity, receipt in self._in_flight:
            try:
                receipt.result(0)
            except (DeliveryInDoubt, EndpointError):
                continue
            self._answered(identity)
        self._in_flight.clear()

    def _take(self, count: int) -> None:
        for _ in range(count):
            identity, receipt = self._in_flight[0]
            receipt.result(ANSWER_TIMEOUT_S)
            self._in_flight.popleft()
            self._answered(identity)

    def _answered(self, identity: str) -> None:
        with self.memory.changed:
            self.memory.answered.add(identity)
            self.memory.changed.notify_all()


class Consumer(Client):
    """Takes messages in mode INDIVIDUAL: accepts most, releases some, rejects a few. Ends when nothing comes."""

    def work(self, connection: acquit.Connection) -> None:
        receiver = connection.session(AckMode.INDIVIDUAL).receiver(WORK, prefetch=PREFETCH)
        while True:
            batch = []
            finishing = self.finish.is_set()
            patience_s = SILENT_S if finishing else IDLE_S
            while len(batch) < BATCH and (message := receiver.receive(timeout=0 if batch else patience_s)) is not None:
                self._delivered(str(message.message_id))
                batch.append(message)
            if not batch and finishing:
                return
            self._settle(batch)

    def _settle(self, batch: list[acquit.ReceivedMessage]) -> None:
        receipts = []
        for message in batch:
            chance = self.rng.random()
            if chance < 0.05:
                message.release(sync=False)
            elif chance < 0.07:
                receipts.append((message, message.reject("test:unfit", "by chance", sync=False), self.memory.rejected))
            else:
                receipts.append((message, message.accept(sync=False), self.memory.applied))
        for message, receipt, where in receipts:
            if receipt.result(ANSWER_TIMEOUT_S) is acquit.ReceiptStatus.APPLIED:
                with self.memory.changed:
                    where.add(str(message.message_id))
                    self.memory.changed.notify_all()

    def _delivered(self, identity: str) -> None:
        memory = self.memory
        with memory.changed:
            memory.delivered[identity] += 1
            if identity in memory.applied or identity in memory.rejected:
                memory.delivered_after_applied.append(identity)


class OnceConsumer(Client):
    """Takes messages in mode NO_ACK. Ends when nothing comes."""

    def work(self, connection: acquit.Connection) -> None:
        receiver = connection.session(AckMode.NO_ACK).receiver(ONCE, prefetch=PREFETCH)
        while True:
            finishing = self.finish.is_set()
            message = receiver.receive(timeout=SILENT_S if finishing else IDLE_S)
            if message is not None:
                with self.memory.changed:
                    self.memory.delivered[str(message.message_id)] += 1
                    self.memory.changed.notify_all()
            elif finishing:
                return

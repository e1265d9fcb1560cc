"""A producer that sends again whatever it has no answer to, while its broker is killed: every message enters once.

Segments are small, so that the records of most ids have left the recovery set by the end. A message that is delivered
twice is the same message (its sequence tells); two postings of one id would be two.
"""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path

import pytest

import acquit
from acquit import AckMode, Message
from acquit.demo.children import Children
from acquit.ledger.events import EventKind
from acquit.ledger.fold import Fold
from acquit.store.reading import FolderReader
from tests.crash.load import ANSWER_TIMEOUT_S, IDLE_S, PREFETCH, WINDOW, WORK, Client, Memory
from tests.crash.test_kills import assert_ledger_holds
from tests.support.endpoint import BrokerProcess
from tests.support.outages import until

pytestmark = pytest.mark.promise("duplicates")

CONFIG = """
[journal]
segment_bytes = 1_048_576
recovery_bytes_max = 2_097_152
reserve_segments = 1

[[address]]
match = "#"
max_delivery_attempts = 0
"""
KILLS = 4
PROGRESS = 400
"""Messages answered between one kill and the next, at least."""


class Persistent(Client):
    """Posts messages with ids, and again until each is answered."""

    def __init__(self, name: str, endpoint: Path, memory: Memory, rng: random.Random) -> None:
        super().__init__(name, endpoint, memory, rng)
        self._number = 0
        self._unanswered: dict[str, Message] = {}
        self.repeated = 0

    def work(self, connection: acquit.Connection) -> None:
        sender = connection.session().sender(WORK)
        in_flight = deque(
            (identity, sender.send(self._unanswered[identity], wait=False)) for identity in self._unanswered
        )
        self.repeated += len(in_flight)
        while in_flight or not self.finish.is_set():
            while len(in_flight) < WINDOW and not self.finish.is_set():
                self._number += 1
                identity = f"{self.name}.{self._number}"
                message = Message(
                    bytes(self.rng.randrange(4_000)),
                    durable=True,
                    message_id=identity,
                    application_properties={"_AMQ_DUPL_ID": identity},
                )
                self._unanswered[identity] = message
                in_flight.append((identity, sender.send(message, wait=False)))
            while len(in_flight) > (0 if self.finish.is_set() else WINDOW // 2):
                identity, receipt = in_flight[0]
                receipt.result(ANSWER_TIMEOUT_S)
                in_flight.popleft()
                del self._unanswered[identity]
                with self.memory.changed:
                    self.memory.answered.add(identity)
                    self.memory.changed.notify_all()


class Counting(Client):
    """Takes everything, and notes under which sequences each id came."""

    def __init__(self, name: str, endpoint: Path, memory: Memory, rng: random.Random) -> None:
        super().__init__(name, endpoint, memory, rng)
        self.sequences: dict[str, set[object]] = {}

    def work(self, connection: acquit.Connection) -> None:
        receiver = connection.session(AckMode.AUTO).receiver(WORK, prefetch=PREFETCH)
        while True:
            message = receiver.receive(timeout=IDLE_S)
            if message is not None:
                sequence = message.annotations["x-opt-acquit-sequence"]
                self.sequences.setdefault(str(message.message_id), set()).add(sequence)
            elif self.finish.is_set():
                return


@pytest.mark.slow
def test_what_is_sent_again_after_a_kill_enters_once(tmp_path: Path, rng: random.Random) -> None:
    memory = Memory()
    config = tmp_path / "acquit.toml"
    config.write_text(CONFIG)
    with Children(tmp_path / "logs") as children:
        broker = BrokerProcess(children, tmp_path / "broker", tmp_path / "endpoint", config=config)
        broker.start()
        producers = [Persistent(f"p{n}", broker.endpoint, memory, random.Random(rng.random())) for n in range(2)]
        consumer = Counting("consumer", broker.endpoint, memory, random.Random(rng.random()))
        for client in (*producers, consumer):
            client.start()
        for _ in range(KILLS):
            goal = len(memory.answered) + PROGRESS + rng.randrange(PROGRESS)
            memory.wait_for(lambda goal=goal: len(memory.answered) >= goal)
            broker.kill()
            assert_ledger_holds(tmp_path / "broker")
            broker.start()
        for client in (*producers, consumer):
            client.finish.set()
            client.join(60)
            assert not client.is_alive()
        assert not memory.failures
        until(lambda: any((tmp_path / "broker" / "archive").glob("*.seg")), "a segment leaves")
        assert broker.stop() == 0
    assert_ledger_holds(tmp_path / "broker")
    assert memory.answered <= consumer.sequences.keys()
    assert {identity: seen for identity, seen in consumer.sequences.items() if len(seen) != 1} == {}
    fold = Fold()
    FolderReader(tmp_path / "broker").replay(fold)
    assert fold.left_through > 0
    (totals,) = (totals for number, totals in fold.totals().items() if fold.table.queues[number].name == WORK)
    assert totals.counts[EventKind.POSTED] == len(consumer.sequences)
    assert sum(producer.repeated for producer in producers) >= totals.counts.get(EventKind.DUPLICATE, 0)
    assert fold.table.windows.ids == len(consumer.sequences)

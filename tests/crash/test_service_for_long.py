"""A broker in service for long: what it has of memory, descriptors, threads and files stays what it was.

Round after round of all that clients do, in a shortened form: connections that close or vanish, each mode, transactions
that commit, roll back or are cut off, subscriptions, requests, browsers, refused links. Every round ends with empty
queues, so whatever is larger in the last third of the rounds than in the middle one was left behind by somebody. The
clients' side, this process, is measured as well.
"""

from __future__ import annotations

import gc
import logging
import random
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import pytest

import acquit
from acquit.protocol.definitions import Source, Target
from tests.crash.test_kills import assert_ledger_holds
from tests.support.draining import take_all
from tests.support.raw_socket import RawSocket
from tests.support.served import Served

_log = logging.getLogger(__name__)

NEEDS_PROC: Final = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="what is used is read from /proc")
# What a broker remembers by design (stubs, fates of transactions) is bounded so closely that the warm-up fills it.
CONFIG: Final = """
[journal]
segment_bytes = 262_144
recovery_bytes_max = 1_048_576
archive_bytes_max = 1_048_576
stubs_max = 10
[transactions]
fates_max = 100
[[address]]
match = "news"
routing = "multicast"
"""
QUEUES: Final = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class Use:
    """What a process uses."""

    memory_kib: int
    descriptors: int
    threads: int

    @classmethod
    def of(cls, pid: int | str) -> Use:
        """What this one uses now."""
        process = Path("/proc", str(pid))
        found = re.search(r"VmRSS:\s+(\d+)", (process / "status").read_text())
        assert found
        return cls(int(found.group(1)), len(list((process / "fd").iterdir())), len(list((process / "task").iterdir())))


ALLOWED: Final = {"memory_kib": 12 * 1024, "descriptors": 2, "threads": 1, "files": 4}
"""How much more of each may be there at the end: what moves to and fro by itself. The broker's collector runs rarely
(`acquit.broker.server.tune_process`), and 4,096 names of links are remembered: some 250 KiB a round, to begin with."""
ROUND_KIB, MOVES_KIB = 350, 2 * 1024
"""Of memory over few rounds less is allowed: so much for each round that lies between, and so much at all."""


def growth(samples: list[dict[str, int]]) -> list[str]:
    """What grew after the warm-up: the median of the last third exceeds that of the middle one by more than is
    allowed."""
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[-third:]
    allowances = ALLOWED | {"memory_kib": min(ALLOWED["memory_kib"], MOVES_KIB + ROUND_KIB * third)}
    return [
        f"{name}: from {[one[name] for one in middle]} to {[one[name] for one in last]}"
        for name, allowed in allowances.items()
        if median(one[name] for one in last) > median(one[name] for one in middle) + allowed
    ]


def samples_of(values: list[int]) -> list[dict[str, int]]:
    return [{**dict.fromkeys(ALLOWED, 1), "descriptors": value} for value in values]


@pytest.mark.parametrize(
    ("values", "grown"),
    [
        ([1, 5, 9, 20, 20, 20, 20, 20, 20], False),
        ([20, 21, 22, 20, 22, 21, 22, 20, 24], False),
        ([1, 1, 2, 2, 3, 3, 4, 4, 5], False),  # no more than is allowed
        ([1, 2, 3, 4, 5, 6, 7, 8, 9], True),
        ([5, 5, 5, 5, 5, 5, 9, 9, 9], True),
    ],
)
def test_what_grows_after_the_warm_up_is_named(values: list[int], grown: bool) -> None:
    assert bool(growth(samples_of(values))) is grown


class Day:
    """All that clients do in one round, each in its own way; every queue is empty at the end."""

    def __init__(self, served: Served, rng: random.Random) -> None:
        self._served = served
        self._rng = rng

    def run(self) -> None:
        """In an order of its own."""
        parts: list[Callable[[], None]] = [
            *(self.modes, self.transactions, self.topics, self.requests, self.browsers, self.vanishing, self.refused),
            *(self.volatile, self.nonsense),
        ]
        self._rng.shuffle(parts)
        for part in parts:
            part()
        self._sweep()

    def _connect(self) -> acquit.Connection:
        return acquit.connect(self._served.url, container_id=self._rng.choice(("one", "another")))

    def _message(self) -> acquit.Message:
        return acquit.Message(self._rng.randbytes(self._rng.choice((10, 1_000, 20_000))), durable=True)

    def _post(self, session: acquit.Session, address: str, count: int) -> None:
        sender = session.sender(address)
        for receipt in [sender.send(self._message(), wait=False) for _ in range(count)]:
            receipt.result(timeout=30)

    def modes(self) -> None:
        """Each mode takes some, settled in each way."""
        for mode in (acquit.AckMode.AUTO, acquit.AckMode.CLIENT, acquit.AckMode.INDIVIDUAL, acquit.AckMode.DUPS_OK):
            with self._connect() as connection, connection.session(mode) as session:
                address = self._rng.choice(QUEUES)
                self._post(session, address, 20)
                receiver = session.receiver(address, prefetch=self._rng.choice((10, 100)))
                for _ in range(10):
                    message = receiver.receive(timeout=20)
                    assert message is not None
                    if mode is acquit.AckMode.INDIVIDUAL:
                        self._rng.choice((message.accept, message.release, message.reject, message.modify))()
                if mode is acquit.AckMode.CLIENT:
                    session.acknowledge()

    def volatile(self) -> None:
        """Posted without waiting for the disk, taken without an answer."""
        with self._connect() as connection, connection.session(acquit.AckMode.NO_ACK) as session:
            sender = session.sender("a", unreliable=True)
            for _ in range(50):
                sender.send(b"volatile")
            receiver = session.receiver("a", prefetch=5)
            assert receiver.receive(timeout=20) is not None

    def transactions(self) -> None:
        """Committed, rolled back, and left open."""
        with self._connect() as connection:
            for ending in ("commit", "rollback", "nothing"):
                session = connection.session(acquit.AckMode.TRANSACTED)
                for _ in range(5):
                    self._post(session, "b", 3)
                    if ending == "commit":
                        session.commit(timeout=20)
                    elif ending == "rollback":
                        session.rollback(timeout=20)

    def topics(self) -> None:
        """Subscribed for now and for ever, and not any more."""
        with self._connect() as connection, connection.session() as session:
            lasting = acquit.Subscription(name="lasting")
            kept = session.receiver("news", subscription=lasting)
            now = session.receiver("news", topic=True)
            sender = session.sender("news", topic=True)
            for _ in range(20):
                sender.send(self._message(), timeout=20)
            for receiver in (kept, now):
                for _ in range(10):
                    assert receiver.receive(timeout=20) is not None
            kept.close()
            now.close()
            session.unsubscribe(lasting)

    def requests(self) -> None:
        """Replies come to a temporary queue."""
        with self._connect() as connection, connection.session() as session:
            for _ in range(5):
                with session.requester("$management") as requester:
                    request = acquit.Message(
                        None, application_properties={"operation": "QUERY", "type": "org.amqp.management"}
                    )
                    requester.request(request, timeout=20)

    def browsers(self) -> None:
        """Look at what is there, all of it and by a selector."""
        with self._connect() as connection, connection.session() as session:
            self._post(session, "c", 10)
            for selector in (None, "colour = 'red'"):
                browser = session.receiver("c", browse=True, selector=selector)
                browser.receive(timeout=0.05)
                browser.close()

    def vanishing(self) -> None:
        """Gone without a word, over links with messages."""
        with self._connect() as connection, connection.session() as session:
            self._post(session, "a", 10)
        for number in range(20):
            with RawSocket(self._served.port, container=f"vanishing-{number % 3}") as peer:
                for handle in range(5):
                    peer.receiver(handle, Source("a"), credit=3)
                peer.sender(7, Target("b"))
                peer.barrier()

    def refused(self) -> None:
        """Links to what is not there, or may not be had."""
        with self._connect() as connection, connection.session() as session:
            for _ in range(10):
                with suppress(acquit.LinkDetached):
                    session.receiver("$nothing")

    def nonsense(self) -> None:
        """Bytes that are no AMQP."""
        for said in (b"", b"GET / HTTP/1.1\r\n\r\n", b"AMQP\0\1\0\0\0\0\0\2\2\0\0\0", bytes(100)):
            with RawSocket(self._served.port) as peer:
                peer.write(said)

    def _sweep(self) -> None:
        with self._connect() as connection, connection.session() as session:
            for address in (*QUEUES, "DLQ"):
                with session.receiver(address) as receiver:
                    take_all(receiver)


@NEEDS_PROC
@pytest.mark.slow
def test_nothing_grows_in_service(tmp_path: Path, rng: random.Random, soak_rounds: int) -> None:
    broker: list[dict[str, int]] = []
    clients: list[dict[str, int]] = []
    with Served(tmp_path, CONFIG) as served:
        day = Day(served, rng)
        for number in range(max(12, 6 * soak_rounds)):
            day.run()
            gc.collect()
            files = sum(path.is_file() for path in served.data.rglob("*"))
            for samples, pid in ((broker, served.process.pid), (clients, "self")):
                use = Use.of(pid)
                samples.append(
                    {
                        "memory_kib": use.memory_kib,
                        "descriptors": use.descriptors,
                        "threads": use.threads,
                        "files": files,
                    }
                )
            _log.info("round %d: broker %s, clients %s", number, broker[-1], clients[-1])
        assert growth(broker) == []
        assert growth(clients) == []
        assert not served.lines("Traceback")
    assert_ledger_holds(served.data)

"""Exactly-once links beside mode INDIVIDUAL and beside ids, on one broker: messages a second, and a large resumption.

    python benchmarks/bench_exactly_once.py [--short] [--messages N] [--rounds N] [--size BYTES] [--suspended N]

The broker is `acquit serve` in a process of its own, with its journal on the disk of `--folder`. Contestants send
durable messages, pipelined, each ending in *accepted*, and then receive and accept each by hand, prefetch 500; answers
are awaited at the end. They take turns, round by round. Given are the medians and the range of rates, and of the ratios
within a round to INDIVIDUAL; only ratios of one run mean anything:

    individual       mode INDIVIDUAL: at least once
    ids              the same, each message with an id that the broker checks for duplicates, and an inbox in SQLite
    memory           exactly_once=MemoryStore(): over lost connections
    file             exactly_once=FileStore(path): over the end of the process
    sqlite           exactly_once=SqliteStore(path), written by the store's own thread

Then receivers hold `--suspended` messages, their connection is cut, and they take them up again: the time from that
to the last *accepted* that is confirmed. What is claimed is in CLAIMS and
RESUMED_WITHIN_S, and the exit code says whether it holds.
"""

from __future__ import annotations

import argparse
import socket
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import acquit
from bench_client import serving

CREDIT = 500
"""Prefetch of every receiver."""
CLAIMS = {
    ("send", "memory"): 0.5,
    ("send", "file"): 0.5,
    ("receive and accept", "memory"): 0.5,
    ("receive and accept", "file"): 0.5,
}
"""The least ratio to INDIVIDUAL."""
LINKS = 4
"""Receivers that hold them, each in a session of its own: a session has at most 65,536 unsettled deliveries."""
RESUMED_WITHIN_S = 5.0
"""What it takes at most to resume 100,000 deliveries."""

Rates = tuple[float, float]
Contest = Callable[[str, Path, int, bytes], Rates]
"""Takes URL, folder, number of messages and body; gives messages a second, sent and received."""


def run(url: str, name: str, count: int, body: bytes, store: Any = None, *, ids: Path | None = None) -> Rates:
    """Send, receive and accept: with a store exactly once, with `ids` by an inbox in a database there."""
    with acquit.connect(url, container_id=f"bench-{name}") as connection:
        session = connection.session("individual")
        address = f"bench-{name}"
        sender = session.sender(address, name="out", exactly_once=store)
        begun = time.perf_counter()
        for number in range(count):
            message_id = f"{begun}-{number}" if ids is not None else None
            sender.send(acquit.Message(body, message_id=message_id, durable=True), wait=False)
        sender.flush()
        sent_s = time.perf_counter() - begun
        receiver = session.receiver(address, name="in", prefetch=CREDIT, exactly_once=store)
        receipts = []
        begun = time.perf_counter()
        if ids is None:
            receipts = [received(receiver, 10).accept(sync=False) for _ in range(count)]
        else:
            with closing(sqlite3.connect(ids)) as database:
                inbox = acquit.SqlInbox(database)
                for _ in range(count):
                    message = received(receiver, 10)
                    with database:
                        assert inbox.remember(message, database.cursor())
                    receipts.append(message.accept(sync=False))
        for receipt in receipts:
            receipt.result()
        return count / sent_s, count / (time.perf_counter() - begun)


def individual(url: str, folder: Path, count: int, body: bytes) -> Rates:
    """At least once."""
    return run(url, "individual", count, body)


def ids(url: str, folder: Path, count: int, body: bytes) -> Rates:
    """Effectively once: ids at the broker, and an inbox that commits with each message."""
    return run(url, "ids", count, body, ids=folder / "inbox.db")


def memory(url: str, folder: Path, count: int, body: bytes) -> Rates:
    """Exactly once over lost connections."""
    return run(url, "memory", count, body, acquit.MemoryStore())


def file(url: str, folder: Path, count: int, body: bytes) -> Rates:
    """Exactly once, in a file."""
    with acquit.FileStore(folder / "deliveries") as store:
        return run(url, "file", count, body, store)


def sqlite(url: str, folder: Path, count: int, body: bytes) -> Rates:
    """Exactly once, in SQLite."""
    with acquit.SqliteStore(folder / "deliveries.db") as store:
        return run(url, "sqlite", count, body, store)


CONTESTS: dict[str, Contest] = {one.__name__: one for one in (individual, ids, memory, file, sqlite)}


class Relay:
    """A port that passes octets on to the broker, and can lose all connections. (`acquit.testing.Proxy` looks at every
    frame, and would be what is measured.)"""

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url).port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"amqp://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            broker_ = socket.create_connection(("127.0.0.1", self._to))
            self._open += [client, broker_]
            for pair in ((client, broker_), (broker_, client)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while octets := source.recv(1 << 18):
                sink.sendall(octets)

    def cut(self) -> None:
        """Lose all connections."""
        lost, self._open = self._open, []
        for one in lost:
            one.shutdown(socket.SHUT_RDWR)


def resume(url: str, count: int) -> float:
    """Hold so many messages, lose the connection, and accept them: seconds from that to the last confirmation."""
    relay = Relay(url)
    options = acquit.ConnectOptions(reconnect=acquit.Reconnect(delay_ms=10, delay_max_ms=50))
    with acquit.connect(relay.url, container_id="bench-resume", options=options) as connection:
        sender = connection.session().sender("bench-resume")
        for _ in range(count):
            sender.send(acquit.Message(b"x", durable=True), wait=False)
        sender.flush()
        sessions = [connection.session("client") for _ in range(LINKS)]
        for number, session in enumerate(sessions):
            receiver = session.receiver(
                "bench-resume", name=f"in-{number}", prefetch=count // LINKS, exactly_once=acquit.MemoryStore()
            )
            for _ in range(count // LINKS):
                received(receiver, 30)
        begun = time.perf_counter()
        relay.cut()
        with ThreadPoolExecutor(LINKS) as pool:
            receipts = list(pool.map(lambda session: session.acknowledge(), sessions))
        assert {receipt.status for receipt in receipts} == {acquit.ReceiptStatus.APPLIED}
        return time.perf_counter() - begun


def received(receiver: acquit.Receiver, within_s: float) -> acquit.ReceivedMessage:
    """The next message; an error if there is none."""
    message = receiver.receive(within_s)
    if message is None:
        raise TimeoutError(f"no message within {within_s} s")
    return message


def line(name: str, rates: list[float], beside: list[float]) -> str:
    """One line of the table."""
    ratios = [mine / theirs for mine, theirs in zip(rates, beside, strict=True)]
    return (
        f"{name:12} {statistics.median(rates):9,.0f}   {min(rates):9,.0f} .. {max(rates):9,.0f}   "
        f"{statistics.median(ratios):5.2f} x   {min(ratios):5.2f} .. {max(ratios):5.2f}"
    )


def main() -> int:
    """Run, print the table, and say by the exit code whether what is claimed holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="few messages, one round: to see that it runs")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1_024)
    parser.add_argument("--suspended", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="on whose disk the journal and the stores lie; a temporary one")
    arguments = parser.parse_args()
    count, rounds = (1_000, 1) if arguments.short else (arguments.messages, arguments.rounds)
    suspended = 2_000 if arguments.short else arguments.suspended
    rates: dict[str, list[Rates]] = {name: [] for name in CONTESTS}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        with serving(folder / "broker") as url:
            for contest in CONTESTS.values():  # not counted: imports, and what is made once
                contest(url, folder, 200, bytes(arguments.size))
            for _ in range(rounds):
                for contestant, contest in CONTESTS.items():
                    rates[contestant].append(contest(url, folder, count, bytes(arguments.size)))
            resumed_s = resume(url, suspended)
    missed = 0
    for at, what in enumerate(("send", "receive and accept")):
        print(f"{what}, {arguments.size} bytes, messages/s: median, range; ratio in a round to individual")
        beside = [pair[at] for pair in rates["individual"]]
        for contestant, pairs in rates.items():
            mine = [pair[at] for pair in pairs]
            print("  " + line(contestant, mine, beside))
            ratio = statistics.median(one / other for one, other in zip(mine, beside, strict=True))
            least = CLAIMS.get((what, contestant), 0)
            if ratio < least:
                print(f"    less than the {least} x that are claimed")
                missed += 1
    print(f"{suspended:,} suspended deliveries resumed and confirmed in {resumed_s:.2f} s")
    if resumed_s > RESUMED_WITHIN_S:
        print(f"    more than the {RESUMED_WITHIN_S} s that are claimed")
        missed += 1
    return 1 if missed and not arguments.short else 0


if __name__ == "__main__":
    sys.exit(main())

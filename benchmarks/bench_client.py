"""The client against python-qpid-proton's, on one broker: messages sent, and received and accepted, a second.

    python benchmarks/bench_client.py [--short] [--messages N] [--rounds N] [--size BYTES] [--cpus N]

The broker is `acquit serve` in a process of its own. Contestants send their messages, each ending in *accepted*, then
receive and accept them: pipelined, or one at a time, where each send waits for its outcome. They take turns, round by
round, so that a machine that slows down slows all of them down. Given are the medians and the range of rates, and of
the ratios within a round to the contestant of proton that does the same; only ratios of one run mean anything.
Messages are not durable: it is the client that is measured. proton's part is left out where it is not installed (extra
`interop`). What is claimed of the ratios is in CLAIMS, and the exit code says whether it holds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import acquit
from acquit import AckMode, DeliveryMode

try:
    import proton
    from proton.handlers import MessagingHandler
    from proton.reactor import Container
    from proton.utils import BlockingConnection
except ImportError:
    proton = None

CREDIT = 500
"""Prefetch of every receiver."""
TIMED_S = 0.5
"""Of sending, and of receiving, in each round."""

Contest = Callable[[str, str, int, bytes], tuple[float, float]]
"""Takes URL, address, number of messages and body; gives the seconds for sending and for receiving."""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A broker process on a folder; gives its URL."""
    command = [sys.executable, "-m", "acquit", "serve", "--host", "127.0.0.1", "--port", "0", "--data", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        try:
            yield next(word.rstrip(",.") for word in ready.split() if word.startswith("amqp://"))
        finally:
            process.terminate()


@contextmanager
def broker() -> Iterator[str]:
    """A broker process on a folder that goes with it; gives its URL."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as url:
        yield url


# -- ours --------------------------------------------------------------------------------------------------------------


def blocking(url: str, address: str, count: int, body: bytes) -> tuple[float, float]:
    """Our blocking client."""
    with acquit.connect(url) as connection, connection.session() as session:
        sender = session.sender(address, delivery_mode=DeliveryMode.NON_PERSISTENT)
        begun = time.perf_counter()
        for _ in range(count):
            sender.send(body, wait=False)
        sender.flush()
        sent = time.perf_counter() - begun
        receiver = session.receiver(address, prefetch=CREDIT)
        begun = time.perf_counter()
        for _ in range(count):
            assert receiver.receive(10) is not None
        return sent, time.perf_counter() - begun


def blocking_individual(url: str, address: str, count: int, body: bytes) -> tuple[float, float]:
    """Our blocking client, each message accepted by hand, the broker's answers awaited at the end."""
    with acquit.connect(url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        sender = session.sender(address, delivery_mode=DeliveryMode.NON_PERSISTENT)
        begun = time.perf_counter()
        for _ in range(count):
            sender.send(acquit.Message(body), wait=False)
        sender.flush()
        sent = time.perf_counter() - begun
        receiver = session.receiver(address, prefetch=CREDIT)
        begun = time.perf_counter()
        receipts = []
        for _ in range(count):
            message = receiver.receive(10)
            assert message is not None
            receipts.append(message.accept(sync=False))
        for receipt in receipts:
            receipt.result()
        return sent, time.perf_counter() - begun


def asyncio_(url: str, address: str, count: int, body: bytes) -> tuple[float, float]:
    """Our asyncio client."""

    async def main() -> tuple[float, float]:
        async with acquit.aio.connect(url) as connection, connection.session() as session:
            sender = await session.sender(address, delivery_mode=DeliveryMode.NON_PERSISTENT)
            begun = time.perf_counter()
            for _ in range(count):
                _ = await sender.send(body, wait=False)
            await sender.flush()
            sent = time.perf_counter() - begun
            receiver = await session.receiver(address, prefetch=CREDIT)
            begun = time.perf_counter()
            for _ in range(count):
                assert await receiver.receive(10) is not None
            return sent, time.perf_counter() - begun

    return asyncio.run(main())


def blocking_one_by_one(url: str, address: str, count: int, body: bytes) -> tuple[float, float]:
    """Our blocking client, each send waiting for its outcome, each message accepted by hand."""
    with acquit.connect(url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        sender = session.sender(address, delivery_mode=DeliveryMode.NON_PERSISTENT)
        begun = time.perf_counter()
        for _ in range(count):
            sender.send(body)
        sent = time.perf_counter() - begun
        receiver = session.receiver(address, prefetch=CREDIT)
        begun = time.perf_counter()
        for _ in range(count):
            message = receiver.receive(10)
            assert message is not None
            message.accept(sync=False)
        return sent, time.perf_counter() - begun


def asyncio_one_by_one(url: str, address: str, count: int, body: bytes) -> tuple[float, float]:
    """Our asyncio client, each send waiting for its outcome, each message accepted by hand."""

    async def main() -> tuple[float, float]:
        async with acquit.aio.connect(url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
            sender = await session.sender(address, delivery_mode=DeliveryMode.NON_PERSISTENT)
            begun = time.perf_counter()
            for _ in range(count):
                await sender.send(body)
            sent = time.perf_counter() - begun
            receiver = await session.receiver(address, prefetch=CREDIT)
            begun = time.perf_counter()
            for _ in range(count):
                message = await receiver.receive(10)
                assert message is not None
                _ = await message.accept(sync=False)
            return sent, time.perf_counter() - begun

    return asyncio.run(main())


# -- proton's ----------------------------------------------------------------------------------------------------------


def proton_container(url: str, address: str, count: int, body: bytes) -> tuple[float, float]:
    """proton's event-driven client, as its examples are written."""

    class Send(MessagingHandler):  # type: ignore[misc]  # published without types
        def __init__(self) -> None:
            super().__init__()
            self.sent = self.confirmed = 0
            self.begun = self.seconds = 0.0

        def on_start(self, event: object) -> None:
            event.container.create_sender(f"{url}/{address}")  # type: ignore[attr-defined]

        def on_sendable(self, event: object) -> None:
            self.begun = self.begun or time.perf_counter()
            while event.sender.credit and self.sent < count:  # type: ignore[attr-defined]
                event.sender.send(proton.Message(body=body))  # type: ignore[attr-defined]
                self.sent += 1

        def on_accepted(self, event: object) -> None:
            self.confirmed += 1
            if self.confirmed == count:
                self.seconds = time.perf_counter() - self.begun
                event.connection.close()  # type: ignore[attr-defined]

    class Receive(MessagingHandler):  # type: ignore[misc]  # published without types
        def __init__(self) -> None:
            super().__init__(prefetch=CREDIT)
            self.received = 0
            self.begun = self.seconds = 0.0

        def on_start(self, event: object) -> None:
            event.container.create_receiver(f"{url}/{address}")  # type: ignore[attr-defined]
            self.begun = time.perf_counter()

        def on_message(self, event: object) -> None:
            self.received += 1
            if self.received == count:
                self.seconds = time.perf_counter() - self.begun
                event.connection.close()  # type: ignore[attr-defined]

    send, receive = Send(), Receive()
    Container(send).run()
    Container(receive).run()
    return send.seconds, receive.seconds


def proton_blocking(url: str, address: str, count: int, body: bytes) -> tuple[float, float]:
    """proton's blocking client, which sends one message at a time."""
    connection = BlockingConnection(url)
    sender = connection.create_sender(address)
    begun = time.perf_counter()
    for _ in range(count):
        sender.send(proton.Message(body=body))
    sent = time.perf_counter() - begun
    receiver = connection.create_receiver(address, credit=CREDIT)
    begun = time.perf_counter()
    for _ in range(count):
        receiver.receive(10)
        receiver.accept()
    received = time.perf_counter() - begun
    connection.close()
    return sent, received


OURS: dict[str, tuple[Contest, int, str]] = {
    "acquit asyncio": (asyncio_, 1, "proton Container"),
    "acquit blocking": (blocking, 1, "proton Container"),
    "acquit blocking, INDIVIDUAL, Message": (blocking_individual, 1, "proton Container"),
    "acquit asyncio, one by one": (asyncio_one_by_one, 5, "proton BlockingConnection"),
    "acquit blocking, one by one": (blocking_one_by_one, 5, "proton BlockingConnection"),
}
"""Name, contestant, by how much fewer messages it gets, so that a round is not all one contestant's, and its rival."""
CLAIMS = {
    ("send", "acquit asyncio"): 10,
    ("send", "acquit blocking"): 5,
    ("send", "acquit blocking, one by one"): 2,
    ("receive and accept", "acquit asyncio"): 10,
    ("receive and accept", "acquit blocking"): 5,
}
"""The least ratio to the rival. A median below it makes the exit code 1, but not in the short form, of one round."""
THEIRS: dict[str, tuple[Contest, int, str]] = {
    "proton Container": (proton_container, 5, ""),
    "proton BlockingConnection": (proton_blocking, 10, ""),
}


def measure(contest: Contest, url: str, count: int, body: bytes) -> tuple[float, float]:
    """Messages a second of a contestant: sent, and received. One that is fast goes again, until it has been timed for
    long enough: the queue does not take as many at once."""
    sent_s = received_s = 0.0
    times = 0
    while min(sent_s, received_s) < TIMED_S:
        sent, received = contest(url, "bench", count, body)
        sent_s += sent
        received_s += received
        times += 1
    return times * count / sent_s, times * count / received_s


def ratios_to(rival: list[float], rates: list[float]) -> list[float]:
    """To the rival's, round by round."""
    return [ours / theirs for ours, theirs in zip(rates, rival, strict=True)]


def line(name: str, rates: list[float], rival: list[float]) -> str:
    """One line of the table."""
    text = f"{name:38} {statistics.median(rates):9,.0f}   {min(rates):9,.0f} .. {max(rates):9,.0f}"
    if not rival:
        return text
    ratios = ratios_to(rival, rates)
    return f"{text}   {statistics.median(ratios):5.1f} x   {min(ratios):5.1f} .. {max(ratios):5.1f}"


def main() -> int:
    """Run, print the table, and say by the exit code whether what is claimed holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="few messages, one round: to see that it runs")
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1_024)
    parser.add_argument("--cpus", type=int, help="run on the first so many CPUs, the broker as well")
    parser.add_argument("--only", metavar="TEXT", default="", help="only contestants with this in their names")
    arguments = parser.parse_args()
    count, rounds = (5_000, 1) if arguments.short else (arguments.messages, arguments.rounds)
    if arguments.cpus:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cpus])
    contests = OURS | THEIRS if proton is not None else OURS
    contests = {name: contest for name, contest in contests.items() if arguments.only in name}
    sends: dict[str, list[float]] = {name: [] for name in contests}
    receives: dict[str, list[float]] = {name: [] for name in contests}
    with broker() as url:
        for contest, part, _rival in contests.values():  # not counted: imports, and what the broker does once
            contest(url, "bench", count // part // 10, bytes(arguments.size))
        for _ in range(rounds):
            for name, (contest, part, _rival) in contests.items():
                sent, received = measure(contest, url, count // part, bytes(arguments.size))
                sends[name].append(sent)
                receives[name].append(received)
    missed = 0
    for what, rates in (("send", sends), ("receive and accept", receives)):
        print(
            f"{what}, {arguments.size} bytes, messages/s: median, range; ratio in a round to its rival: median, range"
        )
        for name, (_, _, rival) in contests.items():
            print("  " + line(name, rates[name], rates.get(rival, [])))
            least = CLAIMS.get((what, name))
            if least and rival in rates and statistics.median(ratios_to(rates[rival], rates[name])) < least:
                print(f"    less than the {least} x that are claimed")
                missed += 1
    return 1 if missed and not arguments.short else 0


if __name__ == "__main__":
    sys.exit(main())

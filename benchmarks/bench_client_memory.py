"""Memory of the client over a million messages: resident set, sampled each 100,000 that were sent and received.

    python benchmarks/bench_client_memory.py [--short] [--messages N] [--size BYTES]

The broker is `acquit serve` in a process of its own. One client sends and receives all of the messages, a few thousand
at a time, through one connection: first the asyncio client in mode AUTO, then the blocking one in INDIVIDUAL, with a
receipt for each message either way, each in a process of its own. Memory is *flat* if the last sample is not more than
2 MiB above the second; the exit code says so.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path

import acquit
from acquit import AckMode, DeliveryMode
from bench_client import broker

BURST = 5_000
"""Messages that are sent, and then received."""
SAMPLE = 100_000
GROWTH_MAX_KIB = 2_048

Sampler = Callable[[int], None]
"""Is told how many messages have come and gone."""


def asyncio_(url: str, count: int, body: bytes, sample: Sampler) -> None:
    """Our asyncio client."""

    async def main() -> None:
        async with acquit.aio.connect(url) as connection, connection.session() as session:
            sender = await session.sender("memory", delivery_mode=DeliveryMode.NON_PERSISTENT)
            receiver = await session.receiver("memory", prefetch=500)
            for done in range(0, count, BURST):
                for _ in range(BURST):
                    _ = await sender.send(body, wait=False)
                for _ in range(BURST):
                    assert await receiver.receive(30) is not None
                sample(done + BURST)

    asyncio.run(main())


def blocking(url: str, count: int, body: bytes, sample: Sampler) -> None:
    """Our blocking client."""
    with acquit.connect(url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        sender = session.sender("memory", delivery_mode=DeliveryMode.NON_PERSISTENT)
        receiver = session.receiver("memory", prefetch=500)
        for done in range(0, count, BURST):
            for _ in range(BURST):
                sender.send(acquit.Message(body, application_properties={"n": done}), wait=False)
            for _ in range(BURST):
                message = receiver.receive(30)
                assert message is not None
                message.accept(sync=False)
            sample(done + BURST)


CONTESTANTS = {"asyncio": asyncio_, "blocking": blocking}


def resident_kib() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def run(name: str, url: str, count: int, size: int, samples: multiprocessing.Queue[int | None]) -> None:
    """One contestant, in this process."""

    def sample(done: int) -> None:
        if done % SAMPLE == 0 or done == count:
            samples.put(resident_kib())

    try:
        CONTESTANTS[name](url, count, bytes(size), sample)
    finally:
        samples.put(None)


def measure(name: str, url: str, count: int, size: int) -> list[int]:
    """The samples of one contestant, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    samples: multiprocessing.Queue[int | None] = context.Queue()
    process = context.Process(target=run, args=(name, url, count, size, samples))
    process.start()
    found = list(iter(samples.get, None))
    process.join()
    if process.exitcode:
        raise SystemExit(f"{name}: failed")
    return found


def main() -> None:
    """Run, and print the samples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="200,000 messages only: to see that it runs")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1_024)
    arguments = parser.parse_args()
    count = 200_000 if arguments.short else arguments.messages
    flat = True
    with broker() as url:
        for name in CONTESTANTS:
            found = measure(name, url, count, arguments.size)
            growth = found[-1] - found[min(1, len(found) - 1)]
            flat = flat and growth <= GROWTH_MAX_KIB
            shown = " ".join(f"{kib / 1024:.1f}" for kib in found)
            print(f"{name:9} MiB each {SAMPLE:,}: {shown}; {growth:+,} KiB since the second")
    sys.exit(0 if flat else 1)


if __name__ == "__main__":
    main()

"""A queue that is ten million messages deep: posted, kept, there after `kill -9`, read back in order, each verified.

    python benchmarks/bench_deep.py [--short] [--messages N] [--size BYTES]

Durable messages of 1 KB are posted to one queue while nobody receives; then the broker is killed and started again, and
one consumer takes all: each must have the number that is next, and the bytes that were sent. The broker has its usual
limits (`limits.memory_bytes_max` is 1 GiB). It takes about 1.2 KB of disk a message, below the folder for temporary
files. The clients are processes of this machine, on the bare protocol engine.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Source, Target
from acquit.protocol.events import DeliveriesReceived, Event
from acquit.protocol.message import Message
from bench_broker import peak_mib
from bench_million import CREDIT, NODE, Pace, Wire, elsewhere, post_all, serving, shown

NUMBER_BYTES = 8
SHORT = 200_000


def payloads(size: int) -> Iterator[bytes]:
    """Messages without end: each has its number, and the same bytes behind it."""
    body = b"n" * NUMBER_BYTES + bytes(at * 37 & 0xFF for at in range(size - NUMBER_BYTES))
    before, after = Message(body, durable=True).encode().split(b"n" * NUMBER_BYTES)
    number = 0
    while True:
        yield before + number.to_bytes(NUMBER_BYTES, "big") + after
        number += 1


def post(port: int, count: int, size: int) -> tuple[float, float, float]:
    """Post all of it; done when the last one is answered."""
    wire = Wire(port, "poster")
    link = wire.session.attach_sender("p", source=Source(), target=Target(NODE, capabilities=("queue",)))
    return post_all(wire, link, payloads(size), count)


def consume(port: int, count: int, size: int) -> tuple[float, float, float]:
    """Take all of it, and see that it is what was sent, in order. Raises SystemExit where it is not."""
    wire = Wire(port, "consumer")
    link = wire.session.attach_receiver("c", source=Source(NODE, capabilities=("queue",)), target=Target())
    wire.wait(lambda: link.remote_attach is not None)
    link.grant(CREDIT)
    pace = Pace(count)
    expected = payloads(size)
    tail_bytes = size + 2
    taken = 0

    def told(event: Event) -> None:
        nonlocal taken
        if isinstance(event, DeliveriesReceived):
            for delivery in event.deliveries:
                # The body is the last section; before it stand the header and our own annotations.
                if delivery.payload[-tail_bytes:] != next(expected)[-tail_bytes:]:
                    raise SystemExit(f"message {taken:,} is not what was sent")
                taken += 1
            wire.session.settle_all(event.deliveries, ACCEPTED)
            if event.link.credit < CREDIT // 2:
                event.link.grant(CREDIT)

    wire.told = told
    while taken < count:
        wire.hear()
        pace.done(taken)
    return pace.rates()


def run(count: int, size: int, folder: Path) -> None:
    """All of it; a line for each step."""
    data, config = folder / "data", folder / "acquit.toml"
    config.write_text("")
    with serving(data, config) as (broker, port, _):
        posted = elsewhere(post, port, count, size)
        print(f"posted   {shown(posted)}/s, peak {peak_mib(broker.pid):.0f} MiB", flush=True)
        broker.send_signal(signal.SIGKILL)
        broker.wait()
    with serving(data, config) as (broker, port, seconds):
        print(f"restart  {seconds:.1f} s, peak {peak_mib(broker.pid):.0f} MiB", flush=True)
        consumed = elsewhere(consume, port, count, size)
        print(f"consumed {shown(consumed)}/s, peak {peak_mib(broker.pid):.0f} MiB", flush=True)


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description="measure a queue that is very deep")
    parser.add_argument("--short", action="store_true", help=f"{SHORT:,} messages")
    parser.add_argument("--messages", type=int, default=10_000_000, help="how many (default: 10,000,000)")
    parser.add_argument("--size", type=int, default=1_000, help="bytes of each body (default: 1,000)")
    options = parser.parse_args()
    count = SHORT if options.short else options.messages
    print(f"{count:,} messages of {options.size:,} bytes; rates in all (first tenth, last tenth)", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="acquit-deep-") as folder:
        run(count, options.size, Path(folder))
    print(f"every message was there once, in order; {time.monotonic() - begun:,.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

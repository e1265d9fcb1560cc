"""Consumers that want few of the messages of a long queue: how long until they have seen that nothing is for them.

    python benchmarks/bench_selective.py [--short] [--messages N] [--consumers N] [--durable]

A queue is filled with small messages, and consumers with different selectors are attached that match none of them.
A drain is answered when all that there is has been judged, so the time from the attach to the last answer is that of
judging every message once for each of them. Then one more consumer comes, for which everything is set aside already,
and at last one that takes everything. With --durable the queue outgrows its memory, and what is judged is read back
from the journal. All times must grow in proportion to the messages.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import acquit
from acquit.broker.configuration import parse_options

CONFIG = """
[limits]
memory_bytes_max = {memory}

[[address]]
match = "#"
memory_bytes_max = {queue_memory}
"""
MIB = 1 << 20


@contextmanager
def timed(what: str, messages: int, judgements: int) -> Iterator[None]:
    """Print how long the block took, and for each judgement."""
    begun = time.perf_counter()
    yield
    took = time.perf_counter() - begun
    print(f"{what:44} {took:8.2f} s  {messages / took:12,.0f} messages/s  {took / judgements * 1e6:6.2f} us each")


def nothing_for(receiver: acquit.Receiver) -> None:
    """Wait until the broker says that there is nothing for it."""
    receiver.drain(timeout=600)
    if receiver.receive(timeout=0) is not None:
        raise SystemExit("a selector matched what it should not")


def main() -> int:
    """Fill the queue, attach, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="few messages: shows that it runs, not how fast")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--consumers", type=int, default=10)
    parser.add_argument("--durable", action="store_true")
    arguments = parser.parse_args()
    count = 5_000 if arguments.short else arguments.messages
    queue_memory = 8 * MIB if arguments.durable else 1 << 40
    options = parse_options(CONFIG.format(memory=1 << 40, queue_memory=queue_memory))
    with acquit.Broker(config=options) as broker, acquit.connect(broker.url) as connection:
        session = connection.session("individual")
        kind = "durable, paged" if arguments.durable else "not durable"
        print(f"{count} messages, {arguments.consumers} consumers, {kind}")
        sender = session.sender("q")
        mode = acquit.DeliveryMode.PERSISTENT if arguments.durable else acquit.DeliveryMode.NON_PERSISTENT
        with timed("posting", count, count):
            receipt = None
            for number in range(count):
                message = acquit.Message(b"x" * 20, application_properties={"n": number, "colour": "red"})
                receipt = sender.send(message, wait=False, delivery_mode=mode)
            if receipt is not None:
                receipt.result(600)
        with timed("consumers that want nothing of it", count, count * arguments.consumers):
            receivers = [
                session.receiver("q", selector=f"n = {number} AND colour = 'blue'", prefetch=10)
                for number in range(arguments.consumers)
            ]
            for receiver in receivers:
                nothing_for(receiver)
        with timed("one more, of which all is set aside", count, count):
            nothing_for(session.receiver("q", selector="n = -1", prefetch=10))
        everything = session.receiver("q", prefetch=1_000)
        with timed("one that takes everything", count, count):
            for _ in range(count):
                taken = everything.receive(timeout=60)
                if taken is None:
                    raise SystemExit("messages are missing")
                taken.accept(sync=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What tests of the qpid.messaging API share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import acquit
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.compat.qpid.messaging import Empty, Receiver, Session
from acquit.store.options import JournalOptions

LONG = 30.0


def depth(broker: acquit.Broker, address: str) -> tuple[int, int]:
    """Messages in the queue, and how many of them somebody has."""
    queue = broker.inspect().queue(address)
    return (0, 0) if queue is None else (queue.depth, queue.acquired)


def fill(session: Session, address: str, count: int) -> list[str]:
    contents = [str(number) for number in range(count)]
    with closing(session.sender(address)) as sender:
        for content in contents:
            sender.send(content)
    return contents


def drained(receiver: Receiver) -> list[object]:
    """The contents of all that can be fetched now."""
    contents = []
    try:
        while True:
            contents.append(receiver.fetch(0).content)
    except Empty:
        return contents


def eventually(condition: Callable[[], object]) -> None:
    waiting = threading.Event()
    for _ in range(int(LONG * 100)):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not happen")


def small(**policy: Any) -> BrokerOptions:
    return BrokerOptions(journal=JournalOptions.small(), address=(AddressRule("small", policy),))

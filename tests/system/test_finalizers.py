"""Finalizers that the garbage collector runs on the loop thread of the blocking API, as it may on any.

That thread serves all connections of the process, and cannot wait for itself: where it did, all of them stood still.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator

import pytest

import acquit
from acquit import LocalProtocolError
from acquit.client.threads import loop_thread

LONG = 30.0


class Late:
    """An object that only the garbage collector finds, and that does something as it goes."""

    def __init__(self, last: Callable[[], object]) -> None:
        self._last = last
        self._myself = self

    def __del__(self) -> None:
        self._last()


def on_the_loop_thread(last: Callable[[], object]) -> list[object]:
    """Have `last` called by a finalizer there. Returns what it returned or raised."""
    return collected(last, "acquit", loop_thread().call)


def collected(
    last: Callable[[], object], where: str, call_there: Callable[[Callable[[], object]], object]
) -> list[object]:
    told: list[object] = []
    over = threading.Event()

    def call() -> None:
        try:
            told.append(last())
        except Exception as exc:
            told.append(exc)
        told.append(threading.current_thread().name)
        over.set()

    gc.collect()
    gc.disable()
    try:
        Late(call)
        call_there(gc.collect)
        assert over.wait(LONG), "the thread waits for itself"
    finally:
        gc.enable()
    assert told.pop() == where
    return told


@pytest.fixture
def connection(broker: acquit.Broker) -> Iterator[acquit.Connection]:
    with acquit.connect(broker.url) as connection:
        yield connection


def test_what_a_finalizer_closes_is_closed_by_and_by(
    broker: acquit.Broker, connection: acquit.Connection, address: str
) -> None:
    other = acquit.connect(broker.url, on_event=print)
    session = other.session("individual")
    sender, receiver, requester = session.sender(address), session.receiver(address), session.requester(address)
    listener = session.receiver(f"{address}.other").start_listener(print)
    sender.send("x", wait=False)
    for thing in (requester, receiver, sender, session, other):
        assert on_the_loop_thread(thing.close) == [None]
    for _ in range(int(LONG * 100)):
        if other.closed:
            break
        threading.Event().wait(0.01)
    assert other.closed and listener.wait(LONG)
    message = connection.session().receiver(address).receive(LONG)
    assert message is not None and message.body == "x"


def test_a_block_that_the_collector_leaves_rolls_back(connection: acquit.Connection, address: str) -> None:
    def work() -> Iterator[None]:
        with connection.session("transacted") as session, session.transaction():
            session.sender(address).send("never")
            yield

    working = work()
    next(working)
    assert on_the_loop_thread(working.close) == [None]
    connection.session().sender(address).send("x")
    receiver = connection.session().receiver(address)
    first = receiver.receive(LONG)
    assert first is not None and first.body == "x"
    assert receiver.receive(0.1) is None


def test_whatever_would_wait_there_is_refused(
    broker: acquit.Broker, connection: acquit.Connection, address: str
) -> None:
    session, transacted = connection.session("individual"), connection.session("transacted")
    sender, receiver, empty = session.sender(address), session.receiver(address), session.receiver(f"{address}.other")
    pulling = session.receiver(f"{address}.pulled", prefetch=0)
    for use in (
        connection.session,
        lambda: session.sender("r"),
        lambda: sender.send("never"),
        sender.flush,
        lambda: empty.receive(LONG),
        lambda: next(empty),
        lambda: pulling.receive(LONG),
        lambda: empty.listen(print),
        lambda: empty.start_listener(print),
        receiver.drain,
        transacted.commit,
        lambda: acquit.connect(broker.url),
    ):
        (told,) = on_the_loop_thread(use)
        assert isinstance(told, LocalProtocolError) and "cannot wait for itself" in str(told)
    sender.send("x")
    message = receiver.receive(LONG)
    assert message is not None and message.body == "x"
    (receipt,) = on_the_loop_thread(message.accept)
    assert isinstance(receipt, acquit.Receipt) and receipt.result(LONG) is acquit.ReceiptStatus.APPLIED


def test_a_broker_that_a_finalizer_closes_on_its_own_thread_is_closed() -> None:
    broker = acquit.Broker()
    thread = broker._thread
    assert collected(broker.close, "acquit-broker", broker._loop.call_soon_threadsafe) == [None]
    thread.join(LONG)
    assert not thread.is_alive()
    broker.close()

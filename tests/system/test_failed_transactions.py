"""What a session does in a transaction that cannot be committed any more, before somebody ends it: nothing is handed
out, nothing counts as a failed attempt. Against the broker in this process, which dead-letters after one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import acquit
from acquit import aio, errors
from acquit.broker.configuration import parse_options
from acquit.protocol.definitions import Released
from acquit.testing import Proxy

LONG = 10.0
OPTIONS = acquit.ConnectOptions(reconnect=acquit.Reconnect(delay_ms=10, delay_max_ms=100))


class Stage:
    """A broker with three messages, and a transaction in which one of them was received and a send was heard of."""

    def __init__(self, broker: acquit.Broker, proxy: Proxy, connection: acquit.Connection) -> None:
        self.broker, self.proxy, self.connection = broker, proxy, connection
        self.other = connection.session()
        self.session = connection.session("transacted")
        self.receiver = self.session.receiver("in")
        self.copies = self.session.sender("copies")
        self.handled: list[object] = []

    def fill(self) -> None:
        sender = self.other.sender("in")
        for n in range(3):
            sender.send(f"m{n}")

    def lose(self) -> None:
        """The connection is lost with work in the transaction, and restored."""
        self.copies.send("begun")
        self.proxy.cut()
        self.other.sender("elsewhere").send("it is restored")

    def depth(self, name: str) -> int:
        return next((queue.depth for queue in self.broker.inspect().queues if queue.name == name), 0)

    def all_come(self) -> None:
        """Nothing is done or lost, nothing has failed."""
        with self.session.transaction():
            found = [self.receiver.receive(LONG) for _ in range(3)]
            assert [message and message.body for message in found] == ["m0", "m1", "m2"]
        assert self.receiver.receive(0) is None
        assert self.depth("copies") == self.depth("DLQ") == 0


@pytest.fixture
def stage() -> Iterator[Stage]:
    options = parse_options('[[address]]\nmatch = "in"\nmax_delivery_attempts = 1\n')
    with (
        acquit.Broker(config=options) as broker,
        Proxy(broker.url) as proxy,
        acquit.connect(proxy.url, options=OPTIONS) as connection,
    ):
        yield Stage(broker, proxy, connection)


def listener_of(stage: Stage) -> None:
    stage.receiver.start_listener(stage.handled.append).wait(LONG)


WAYS: dict[str, Callable[[Stage], object]] = {
    "receive": lambda stage: stage.receiver.receive(LONG),
    "receive without waiting": lambda stage: stage.receiver.receive(0),
    "receive_many": lambda stage: stage.receiver.receive_many(2, LONG),
    "iteration": lambda stage: next(stage.receiver),
    "listen": lambda stage: stage.receiver.listen(stage.handled.append),
    "start_listener": listener_of,
}


@pytest.mark.parametrize("ends", ["rollback", "commit"])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_handed_out_in_a_transaction_that_was_lost_with_its_connection(
    stage: Stage, way: str, ends: str
) -> None:
    stage.fill()
    assert stage.receiver.receive(LONG) is not None
    stage.lose()
    for _ in range(2):
        with pytest.raises(errors.TransactionRolledBack, match="was lost"):
            WAYS[way](stage)
    with pytest.raises(errors.TransactionRolledBack, match="was lost"):
        stage.copies.send("a copy")
    assert stage.handled == []
    if ends == "rollback":
        stage.session.rollback()
    else:
        with pytest.raises(errors.TransactionRolledBack, match="was lost"):
            stage.session.commit()
    stage.all_come()


@pytest.mark.parametrize("prefetch", [0, 10])
@pytest.mark.parametrize("timeout", [None, LONG])
def test_who_waits_for_a_message_is_told_at_once(stage: Stage, prefetch: int, timeout: float | None) -> None:
    receiver = stage.session.receiver("empty", prefetch=prefetch)
    with ThreadPoolExecutor() as threads:
        waits = threads.submit(receiver.receive, timeout)
        stage.lose()
        with pytest.raises(errors.TransactionRolledBack, match="was lost"):
            waits.result(LONG / 2)
    stage.session.rollback()
    stage.other.sender("empty").send("x")
    assert receiver.receive(LONG) is not None


def test_a_rollback_that_the_program_asks_for_counts(stage: Stage) -> None:
    stage.fill()
    with contextlib.suppress(ZeroDivisionError), stage.session.transaction():
        assert stage.receiver.receive(LONG) is not None
        raise ZeroDivisionError
    assert stage.depth("DLQ") == 1


def test_a_transaction_that_is_done_again_is_a_healthy_one(stage: Stage) -> None:
    """Nothing was heard of it: it goes on, and what is received in it counts when it is rolled back."""
    stage.fill()
    lost = stage.proxy.before("disposition", by="broker").cut()
    stage.copies.send("a copy")
    assert lost.fired
    assert stage.receiver.receive(LONG) is not None
    stage.session.rollback()
    assert stage.depth("DLQ") == 1


def test_a_listener_that_waits_goes_on_waiting_and_its_on_error_is_told(stage: Stage) -> None:
    """It is no end of the listener that a connection is lost. Its handler is spared what would be for nothing."""
    told: list[Exception] = []
    handled = threading.Event()

    def handle(message: acquit.ReceivedMessage) -> None:
        stage.handled.append(message.body)
        if len(stage.handled) == 3:
            handled.set()

    def on_error(message: acquit.ReceivedMessage, error: Exception) -> None:
        told.append(error)
        stage.session.rollback()
        assert message.outcome == Released()

    with stage.receiver.start_listener(handle, on_error=on_error) as listener:
        stage.lose()
        assert not listener.wait(0.05)
        stage.fill()
        assert handled.wait(LONG)
    assert [type(error) for error in told] == [errors.TransactionRolledBack]
    assert stage.handled == ["m0", "m1", "m2"]
    stage.session.rollback()
    assert stage.depth("copies") == 0


def test_a_receiver_that_is_closed_says_so(stage: Stage) -> None:
    stage.fill()
    stage.lose()
    stage.receiver.close()
    with pytest.raises(errors.LinkDetached):
        stage.receiver.receive(0)
    assert list(stage.receiver) == []


def test_a_receiver_outside_of_the_transaction_is_not_concerned(stage: Stage) -> None:
    stage.fill()
    stage.receiver.close()
    stage.lose()
    unreliable = stage.session.receiver("in", unreliable=True)
    assert unreliable.receive(LONG) is not None
    listener = unreliable.start_listener(stage.handled.append)
    while len(stage.handled) < 2 and not listener.done:
        time.sleep(0.01)
    assert len(stage.handled) == 2


@pytest.mark.parametrize("way", ["receive", "waiting", "iteration", "listen", "start_listener"])
def test_with_asyncio(stage: Stage, way: str) -> None:
    async def main() -> None:
        async with aio.connect(stage.proxy.url, options=OPTIONS) as connection:
            session = await connection.session("transacted")
            receiver, copies = await session.receiver("in"), await session.sender("copies")
            await copies.send("begun")
            if way == "waiting":
                waits = asyncio.ensure_future(receiver.receive())
                await asyncio.sleep(0)
            if way == "start_listener":
                listener = receiver.start_listener(stage.handled.append)
                await asyncio.sleep(0)
            stage.proxy.cut()
            await (await (await connection.session()).sender("elsewhere")).send("it is restored")
            assert way != "start_listener" or not listener.done
            if way in ("listen", "start_listener"):
                await asyncio.to_thread(stage.fill)
            ways: dict[str, Callable[[], Awaitable[object]]] = {
                "receive": lambda: receiver.receive(LONG),
                "waiting": lambda: asyncio.wait_for(waits, LONG / 2),
                "iteration": lambda: anext(receiver),
                "listen": lambda: receiver.listen(stage.handled.append),
                "start_listener": lambda: listener.wait(LONG),
            }
            with pytest.raises(errors.TransactionRolledBack, match="was lost"):
                await ways[way]()
            assert stage.handled == []
            await session.rollback()

    stage.receiver.close()
    asyncio.run(main())
    stage.receiver = stage.session.receiver("in")
    if way in ("listen", "start_listener"):
        stage.all_come()

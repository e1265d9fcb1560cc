"""Turns of other threads than the loop's: one at a time, and nothing that is scheduled in one is missed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

import acquit
from acquit import errors
from acquit.client.threads import LoopThread, loop_thread
from acquit.protocol.link import SendingLink
from tests.support.server import Server, ThreadedServer, serving

LONG = 30.0
SOON = 0.05

pytestmark = pytest.mark.skipif("PYTHONASYNCIODEBUG" in os.environ, reason="asyncio's debug mode insists on its thread")


@pytest.fixture(autouse=True)
def no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit of a test is a handler of a signal."""
    monkeypatch.setattr(signal, "valid_signals", lambda: ())
    monkeypatch.setattr(loop_thread(), "_looks_again_at", 0.0)


@pytest.fixture
def server() -> Iterator[ThreadedServer]:
    with serving(Server()) as running:
        yield running


def take_turn(loop: LoopThread, function: object) -> None:
    """An attempt that succeeds: the loop thread comes to rest some time."""
    end = time.monotonic() + LONG
    while not loop.attempt(function):  # type: ignore[arg-type]
        assert time.monotonic() < end


def test_a_turn_is_in_the_thread_that_asks() -> None:
    threads: list[int] = []
    take_turn(loop_thread(), lambda: threads.append(threading.get_ident()))
    assert threads == [threading.get_ident()]


def test_there_is_none_while_the_loop_thread_is_at_work() -> None:
    begun, end = threading.Event(), threading.Event()
    loop_thread().call(lambda: (begun.set(), end.wait(LONG)))
    assert begun.wait(LONG)
    called: list[int] = []
    assert not loop_thread().attempt(lambda: called.append(1))
    end.set()
    assert called == []


def test_the_loop_thread_waits_for_the_end_of_a_turn() -> None:
    ran = threading.Event()

    def turn() -> None:
        loop_thread().call(ran.set)
        assert not ran.wait(SOON)

    take_turn(loop_thread(), turn)
    assert ran.wait(LONG)


def test_what_is_scheduled_in_a_turn_happens() -> None:
    soon, later = threading.Event(), threading.Event()
    loop = loop_thread()._loop
    take_turn(loop_thread(), lambda: loop.call_soon(soon.set))
    assert soon.wait(LONG)
    take_turn(loop_thread(), lambda: loop.call_later(0.001, later.set))
    assert later.wait(LONG)


def test_a_turn_that_raises_is_over() -> None:
    def fail() -> NoReturn:
        raise RuntimeError("in a turn")

    with pytest.raises(RuntimeError, match="in a turn"):
        take_turn(loop_thread(), fail)
    take_turn(loop_thread(), lambda: None)
    assert loop_thread().run(_answer()) == 1


async def _answer() -> int:
    return 1


def test_sends_that_wait_go_in_turns_and_arrive_once(server: ThreadedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    senders: set[str] = set()
    send_all = SendingLink.send_all

    def watched(link: SendingLink, *arguments: object, **options: object) -> int:
        senders.add(threading.current_thread().name)
        return send_all(link, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(SendingLink, "send_all", watched)
    with acquit.connect(server.url) as connection, connection.session() as session:
        sender = session.sender("q")

        def many(name: str) -> None:
            for number in range(100):
                sender.send(f"{name}{number}", timeout=LONG)

        with ThreadPoolExecutor(4, "user") as pool:
            list(pool.map(many, "abcd"))
        for number in range(100):
            sender.send(f"e{number}", timeout=LONG)
    bodies = [str(body) for body in server.server.bodies()]
    for name in "abcde":
        assert [body for body in bodies if body[0] == name] == [f"{name}{number}" for number in range(100)]
    assert threading.current_thread().name in senders


def test_a_send_does_not_overtake_what_was_asked_for_before(server: ThreadedServer) -> None:
    with acquit.connect(server.url) as connection, connection.session("individual") as session:
        sender, receiver = session.sender("q"), session.receiver("r")
        for number in range(50):
            server.offer("r", f"{number}")
            message = receiver.receive(LONG)
            assert message is not None
            message.accept(sync=False)
            sender.send(f"{number}", timeout=LONG)
            # The acknowledgement was heard before the message.
            assert len(server.call(server.server.outcomes)) == len(server.server.bodies()) == number + 1


def test_an_interrupt_in_a_turn_costs_the_connection_and_nothing_else(
    server: ThreadedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_all = SendingLink.send_all

    def interrupted(link: SendingLink, *arguments: object, **options: object) -> int:
        if threading.current_thread() is threading.main_thread():
            monkeypatch.setattr(SendingLink, "send_all", send_all)
            send_all(link, *arguments, **options)  # type: ignore[arg-type]
            raise KeyboardInterrupt
        return send_all(link, *arguments, **options)  # type: ignore[arg-type]

    with acquit.connect(server.url) as connection, connection.session() as session:
        sender = session.sender("q")
        sender.send("before", timeout=LONG)
        monkeypatch.setattr(SendingLink, "send_all", interrupted)

        def send_until_interrupted() -> None:
            for _ in range(1_000):  # a turn is not to be had each time
                sender.send("interrupted", timeout=LONG)

        with pytest.raises(KeyboardInterrupt):
            send_until_interrupted()
        sender.send("after", timeout=LONG)
        assert connection.connected
    assert len(server.server.connections) == 2
    assert server.server.bodies()[-1] == "after"


def test_what_comes_into_a_turn_cannot_wait_for_the_loop_thread(server: ThreadedServer) -> None:
    with acquit.connect(server.url) as connection, connection.session() as session:
        sender, receiver = session.sender("q"), session.receiver("r")
        for wait in (
            connection.close,
            connection.session,
            lambda: sender.send("in the midst of another", timeout=LONG),
            lambda: receiver.receive(LONG),
        ):
            with pytest.raises(errors.LocalProtocolError, match="in the midst of a send"):
                take_turn(loop_thread(), wait)
        assert not connection.closed
        sender.send("the same", timeout=LONG)


def test_the_main_thread_of_a_program_that_handles_signals_has_no_turns(
    server: ThreadedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a handler may close the connection, wherever it comes."""
    monkeypatch.undo()
    before = signal.signal(signal.SIGUSR1, lambda *_: connection.close(LONG))
    try:
        monkeypatch.setattr(loop_thread(), "_looks_again_at", 0.0)
        assert not loop_thread().attempt(lambda: None)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(take_turn, loop_thread(), lambda: None).result(LONG)
        with acquit.connect(server.url) as connection, connection.session() as session:
            sender = session.sender("q")
            payload = sender._core.encode("x", None)

            def handled(*_: object) -> bytes:
                signal.raise_signal(signal.SIGUSR1)
                return payload

            sender.send("before", timeout=LONG)
            monkeypatch.setattr(type(sender._core), "encode", handled)
            with pytest.raises(errors.EndpointError):
                sender.send("after", timeout=LONG)
            assert connection.closed
    finally:
        signal.signal(signal.SIGUSR1, before)

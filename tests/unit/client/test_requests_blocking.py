"""Requests and replies from threads: the same as on asyncio, over sockets."""

# ruff: noqa: SIM117 -- who is inside of whom is what these tests are about

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import acquit
from acquit import Message, errors
from acquit.testing import Proxy

LONG = 30.0


@pytest.fixture(scope="module")
def broker() -> Iterator[acquit.Broker]:
    with acquit.Broker() as broker:
        yield broker


@pytest.fixture
def connection(broker: acquit.Broker) -> Iterator[acquit.Connection]:
    with acquit.connect(broker.url) as connection:
        yield connection


def until(what: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + LONG
    while not what():
        assert time.monotonic() < ends_at
        time.sleep(0.002)


def depth(broker: acquit.Broker, name: str) -> int:
    queue = broker.inspect().queue(name)
    return queue.depth if queue is not None else 0


@pytest.mark.parametrize("reply_to", [None, "threads.replies"])
@pytest.mark.parametrize("mode", ["auto", "individual", "transacted"])
def test_many_threads_ask_over_one_link(connection: acquit.Connection, mode: str, reply_to: str | None) -> None:
    with connection.session(mode) as serving, connection.session("individual") as session:
        with (
            serving.responder("threads", lambda request: request.text.upper()) as responder,
            session.requester("threads", reply_to=reply_to) as requester,
            ThreadPoolExecutor(16) as threads,
        ):
            replies = list(threads.map(lambda n: requester.request(f"request {n}", timeout=LONG).text, range(200)))
            assert replies == [f"REQUEST {n}" for n in range(200)]
            assert (requester.pending, requester.late_replies, requester.unknown_replies) == (0, 0, 0)
            assert (requester.address, responder.address) == ("threads", "threads")
            assert (requester.reply_to == reply_to) is (reply_to is not None)
        assert (responder.answered, responder.dropped, responder.done) == (200, 0, True)
        assert responder.wait(LONG)


def test_a_timeout_and_its_late_reply(connection: acquit.Connection) -> None:
    with connection.session() as session, session.requester("late") as requester:
        # Credit is there, and answers come at once: both take their time only on a machine that stands still.
        for timeout in (0.05, 1.0, LONG):
            with pytest.raises(errors.RequestTimeout, match=f"no reply from 'late' within {timeout:g} s") as raised:
                requester.request("x", timeout=timeout)
            if raised.value.accepted:
                break
        assert raised.value.accepted is True
        with session.responder("late", lambda request: "y"):
            until(lambda: requester.late_replies > 0)


def test_a_handler_that_raises_is_asked_again(connection: acquit.Connection, broker: acquit.Broker) -> None:
    attempts = []

    def handler(request: acquit.ReceivedMessage) -> str:
        attempts.append(request.delivery_count)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return "y"

    for mode in ("auto", "transacted"):
        attempts.clear()
        with connection.session(mode) as serving, connection.session() as session:
            with serving.responder("again", handler), session.requester("again") as requester:
                assert requester.request("x", timeout=LONG).text == "y"
        assert attempts == [0, 1, 2]
    until(lambda: depth(broker, "again") == 0)


def test_replies_that_have_nowhere_to_go_are_counted(connection: acquit.Connection, broker: acquit.Broker) -> None:
    with connection.session() as session:
        with session.receiver(None) as replies:
            gone = replies.address
        sender = session.sender("homeless")
        sender.send("no reply-to")
        sender.send(Message("gone", reply_to=gone))
        with session.responder("homeless", lambda request: request.text) as responder:
            until(lambda: responder.dropped == 2)
    assert responder.answered == 0
    until(lambda: depth(broker, "homeless") == 0)


def test_a_close_waits_for_the_handlers_and_ends_the_waits(connection: acquit.Connection) -> None:
    began, go_on = threading.Event(), threading.Event()

    def handler(request: acquit.ReceivedMessage) -> str:
        began.set()
        go_on.wait(LONG)
        return "y"

    with connection.session() as session, ThreadPoolExecutor(4) as threads:
        requester, unheard = session.requester("slow"), session.requester("nobody-answers")
        responder = session.responder("slow", handler)
        waiting = threads.submit(requester.request, "x", timeout=LONG)
        lost = threads.submit(unheard.request, "x", timeout=LONG)
        assert began.wait(LONG)
        closing = threads.submit(responder.close, LONG)
        assert not closing.done()
        go_on.set()
        closing.result(LONG)
        assert waiting.result(LONG).text == "y"
        until(lambda: unheard.pending == 1)
        unheard.close()
        with pytest.raises(errors.LinkDetached, match="closed by us"):
            lost.result(LONG)


def test_what_is_refused_at_once(connection: acquit.Connection) -> None:
    with connection.session("transacted") as session:
        with pytest.raises(errors.ConfigurationError, match="TRANSACTED"):
            session.requester("service")
        with pytest.raises(errors.ConfigurationError, match="concurrency must be 1"):
            session.responder("service", lambda request: None, concurrency=2)
    with connection.session() as session:
        with pytest.raises(errors.ConfigurationError, match="concurrency"):
            session.responder("service", lambda request: None, concurrency=0)
        until(lambda: not session._core.receivers)


def test_a_lost_connection_ends_the_waits_and_the_next_request_goes_over_another(broker: acquit.Broker) -> None:
    with Proxy(broker.url) as proxy, acquit.connect(proxy.url) as connection, ThreadPoolExecutor(1) as threads:
        with connection.session() as session, session.requester("lost") as requester:
            before = requester.reply_to
            waiting = threads.submit(requester.request, "x", timeout=LONG)
            proxy.wait_for("disposition", by="broker")
            proxy.cut()
            with pytest.raises(errors.ReplyAddressLost) as raised:
                waiting.result(LONG)
            assert raised.value.accepted is True
            with session.responder("lost", lambda request: request.text * 2):
                assert requester.request("y", timeout=LONG).text == "yy"
            assert requester.reply_to not in ("", before)

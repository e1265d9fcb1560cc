"""Which hosts are tried when a connection is lost, for how long, and what ends it for good."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import acquit
from acquit import (
    AuthenticationFailed,
    ConnectionClosed,
    ConnectionFailed,
    ConnectionLost,
    DeliveryInDoubt,
    NotFound,
    ReceiptStatus,
    Subscription,
    TransactionFailed,
)
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.protocol import events as ev
from acquit.protocol.definitions import Error
from acquit.testing import Proxy
from tests.support.outages import (
    CONNECTED,
    FAILED,
    INTERRUPTED,
    LONG,
    RESTORED,
    Asyncio,
    Blocking,
    Story,
    assert_one_warning_an_outage,
    drain,
    fast,
    live,
    post,
    until,
)
from tests.support.server import Server, serving


@pytest.fixture
def dead() -> Iterator[str]:
    """The URL of a port where nobody listens, and nobody will."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"amqp://127.0.0.1:{bound.getsockname()[1]}"


def where(proxy: Proxy) -> str:
    return f"127.0.0.1:{proxy.port}"


# -- several hosts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        lambda dead, alive: [dead, alive],
        lambda dead, alive: f"failover:({dead},{alive})",
        lambda dead, alive: f"failover:({dead},{alive})?failover.maxReconnectAttempts=5&failover.reconnectDelay=1",
    ],
    ids=["list", "failover", "failover with options"],
)
def test_a_dead_host_first(
    api: Blocking | Asyncio,
    broker: acquit.Broker,
    address: str,
    dead: str,
    given: Callable[[str, str], Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    story = Story()
    with (
        Proxy(broker.url) as proxy,
        api.connect(given(dead, proxy.url), options=fast(), on_event=story) as connection,
    ):
        sender = connection.session().sender(address)
        sender.send("a", timeout=LONG)
        proxy.cut()
        story.wait_for(INTERRUPTED)
        sender.send("b", timeout=LONG)
        story.wait_for(RESTORED)
        assert [event.where for event in story.events] == [where(proxy)] * 3
        assert story.events[1].reason is not None
        assert "lost" in story.events[1].reason
        assert story.events[2].rounds == 1
        assert story.events[2].outage_s > 0
    assert [message.body for message in drain(broker, address)] == ["a", "b"]
    assert_one_warning_an_outage(caplog, story)


def test_the_next_host_takes_over_and_the_first_one_again(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    story = Story()
    with Proxy(broker.url) as one, Proxy(broker.url) as two:
        with api.connect([one.url, two.url], options=fast(), on_event=story) as connection:
            sender = connection.session().sender(address)
            sender.send("a", timeout=LONG)
            for turn, (gone, back) in enumerate([(one, two), (two, one)], 1):
                gone.refuse()
                back.accept()
                gone.cut()
                story.wait_for(RESTORED, turn)
                sender.send(f"t{turn}", timeout=LONG)
        kinds = [CONNECTED, INTERRUPTED, RESTORED, INTERRUPTED, RESTORED]
        places = [where(one), where(one), where(two), where(two), where(one)]
        assert [(event.kind, event.where) for event in story.events] == list(zip(kinds, places, strict=True))
    assert [message.body for message in drain(broker, address)] == ["a", "t1", "t2"]


@pytest.mark.parametrize("how", ["silent", "cut off"])
def test_a_host_that_opens_and_then_fails_does_not_keep_the_others_from_their_turn(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, how: str
) -> None:
    """One that hangs, or a balancer before brokers that are down: it takes each connection, and each is lost."""
    story = Story()
    options = fast(idle_timeout_ms=300, connect_timeout_ms=5_000, reconnect={"delay_ms": 200, "delay_max_ms": 200})
    with Proxy(broker.url) as bad, Proxy(broker.url) as good:

        def spoil(event: acquit.ConnectionEvent) -> None:
            if event.kind is INTERRUPTED:
                bad.resume()
            elif event.where == where(bad):
                bad.stall() if how == "silent" else bad.cut()
            story(event)

        with api.connect([bad.url, good.url], options=options, on_event=spoil) as connection:
            until(lambda: (RESTORED, where(good)) in [(one.kind, one.where) for one in story.events], "the other host")
            connection.session().sender(address).send("a", timeout=LONG)
    assert {message.body for message in drain(broker, address)} == {"a"}


def test_it_is_the_same_container_that_comes_back(api: Blocking | Asyncio, broker: acquit.Broker, address: str) -> None:
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast()) as connection:
        session = connection.session()
        session.sender(address)
        session.receiver(address)
        proxy.cut()
        proxy.wait_for("attach", 4, by="broker")
        containers = {frame.performative.container_id for frame in proxy.passed("open", by="client")}  # type: ignore[union-attr]
        assert containers == {connection.container_id}
        attached = [(frame.connection, frame.performative.name) for frame in proxy.passed("attach", by="client")]  # type: ignore[union-attr]
        names = {number: {name for connection, name in attached if connection == number} for number in (0, 1)}
        assert names[0] == names[1]


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.promise("bounded")
@pytest.mark.parametrize("limit", [{"rounds_max": 3}, {"outage_max_ms": 100}], ids=["rounds", "time"])
def test_beyond_the_limit_every_wait_ends(
    api: Blocking | Asyncio,
    broker: acquit.Broker,
    address: str,
    limit: dict[str, int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    story = Story()
    post(broker, f"{address}.in", "x", "y")
    with Proxy(broker.url) as proxy, ThreadPoolExecutor() as pool:
        connection = api.connect(proxy.url, options=fast(reconnect=limit), on_event=story)
        session, transacted = connection.session("individual"), connection.session("transacted")
        receiver, empty = session.receiver(f"{address}.in"), session.receiver(f"{address}.empty")
        sender, in_transaction = session.sender(address), transacted.sender(address)
        message = receiver.receive(LONG)
        in_transaction.send("t", timeout=LONG)
        proxy.before("disposition", by="broker").call(lambda frame: (proxy.refuse(), proxy.cut()))
        left = sender.send("left", wait=False)
        waiting = pool.submit(empty.receive, None)
        story.wait_for(INTERRUPTED)
        stayed = pool.submit(sender.send, "stayed", timeout=LONG)
        committed = pool.submit(transacted.commit, LONG)
        failed = story.wait_for(FAILED)
        assert failed.reason is not None
        assert "could not be restored" in failed.reason
        if "rounds_max" in limit:
            assert failed.rounds == 3
        assert connection.closed
        assert not connection.connected
        with pytest.raises(DeliveryInDoubt):
            left.result(LONG)
        with pytest.raises((ConnectionLost, DeliveryInDoubt)):
            stayed.result(LONG)
        with pytest.raises(ConnectionLost, match="could not be restored"):
            waiting.result(LONG)
        with pytest.raises(TransactionFailed):
            committed.result(LONG)
        assert message.accept().status in (ReceiptStatus.STALE, ReceiptStatus.UNKNOWN)
        for call in (
            lambda: receiver.receive(LONG),
            lambda: sender.send("z"),
            lambda: session.sender(address),
            connection.session,
        ):
            with pytest.raises(ConnectionLost):
                call()
        connection.close()
        assert story.kinds == [CONNECTED, INTERRUPTED, FAILED]
    assert_one_warning_an_outage(caplog, story)


def test_without_reconnection_a_lost_connection_is_an_error_at_once(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    story = Story()
    with Proxy(broker.url) as proxy:
        connection = api.connect(proxy.url, options=acquit.ConnectOptions(reconnect=None), on_event=story)
        session = connection.session("client")
        receiver = session.receiver(address)
        sender = session.sender(address)
        proxy.before("disposition", by="broker").cut()
        with pytest.raises(DeliveryInDoubt):
            sender.send("x", timeout=LONG)
        with pytest.raises(ConnectionLost):
            receiver.receive(LONG)
        assert connection.closed
        assert story.wait_for(FAILED).where == where(proxy)
        assert story.kinds == [CONNECTED, FAILED]
        assert len(proxy.passed("open", by="client")) == 1
        connection.close()


def test_the_first_connect_tries_every_host_once_unless_it_is_told_more(
    api: Blocking | Asyncio, broker: acquit.Broker, dead: str
) -> None:
    with Proxy(broker.url) as proxy:
        proxy.refuse()
        for options in (acquit.ConnectOptions(), fast(reconnect={"first_rounds": 3})):
            with pytest.raises(ConnectionFailed) as failed:
                api.connect([dead, proxy.url], options=options)
            for url in (dead, proxy.url):  # what went wrong is said of each
                assert f"{url.removeprefix('amqp://')}: " in str(failed.value)
        story = Story()
        threading.Timer(0.05, proxy.accept).start()
        with api.connect([dead, proxy.url], options=fast(reconnect={"first_rounds": 0}), on_event=story):
            assert story.wait_for(CONNECTED).where == where(proxy)


def test_closing_in_an_outage_ends_it(api: Blocking | Asyncio, broker: acquit.Broker, address: str) -> None:
    story = Story()
    options = fast(reconnect={"delay_ms": 60_000, "delay_max_ms": 60_000})
    with Proxy(broker.url) as proxy, ThreadPoolExecutor() as pool:
        connection = api.connect(proxy.url, options=options, on_event=story)
        session = connection.session("client")
        receiver, sender = session.receiver(address), session.sender(address)
        proxy.cut()
        story.wait_for(INTERRUPTED)
        waiting = pool.submit(receiver.receive, None)
        receipt = sender.send("x", wait=False)
        connection.close(0.1)
        assert connection.closed
        with pytest.raises(acquit.AcquitError):
            waiting.result(LONG)
        with pytest.raises(acquit.AcquitError):
            receipt.result(LONG)
        assert RESTORED not in story.kinds
        assert len(proxy.passed("open", by="client")) == 1


def test_closing_parts_of_it_in_an_outage(api: Blocking | Asyncio, broker: acquit.Broker, address: str) -> None:
    """What was closed meanwhile does not come back; the rest does."""
    story = Story()
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        session, other = connection.session("client"), connection.session("client")
        gone, kept = session.receiver(f"{address}.gone"), session.receiver(f"{address}.kept")
        sender = other.sender(f"{address}.kept")
        proxy.refuse()
        proxy.cut()
        story.wait_for(INTERRUPTED)
        gone.close(0.1)
        other.close(0.1)
        proxy.forget()
        proxy.accept()
        story.wait_for(RESTORED)
        post(broker, f"{address}.kept", "x")
        assert kept.receive(LONG).body == "x"
        assert session.acknowledge().status is ReceiptStatus.APPLIED
        with pytest.raises(acquit.AcquitError):
            sender.send("y")
        with pytest.raises(acquit.AcquitError):
            gone.receive(0.1)
        assert [frame.performative.source.address for frame in proxy.passed("attach", by="client")] == [  # type: ignore[union-attr]
            f"{address}.kept"
        ]


# -- what would be the same again --------------------------------------------------------------------------------------


def test_a_user_who_is_not_known_any_more_is_the_end(api: Blocking | Asyncio, caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    server = Server(users={"ada": "secret"})
    with serving(server) as running, ThreadPoolExecutor() as pool:
        connection = api.connect(running.url, username="ada", password="secret", options=fast(), on_event=story)
        receiver = connection.session().receiver("q")
        waiting = pool.submit(receiver.receive, None)
        running.call(lambda: server.users.update(ada="another"))  # type: ignore[union-attr]
        running.cut()
        assert story.wait_for(FAILED).reason is not None
        with pytest.raises(AuthenticationFailed):
            waiting.result(LONG)
        assert story.kinds == [CONNECTED, INTERRUPTED, FAILED]
        assert len(server.connections) == 2
        connection.close()
    assert_one_warning_an_outage(caplog, story)


@pytest.mark.parametrize(
    ("condition", "comes_back"),
    [
        (None, True),
        ("amqp:connection:forced", True),
        ("amqp:internal-error", True),
        ("amqp:resource-limit-exceeded", True),
        ("amqp:unauthorized-access", False),
        ("amqp:not-allowed", False),
        ("amqp:not-found", False),
        ("amqp:connection:framing-error", False),
    ],
)
def test_what_a_close_says_decides_whether_to_come_back(
    api: Blocking | Asyncio, condition: str | None, comes_back: bool
) -> None:
    story = Story()
    server = Server()
    with serving(server) as running, ThreadPoolExecutor() as pool:
        connection = api.connect(running.url, options=fast(), on_event=story)
        receiver = connection.session().receiver("q")
        waiting = pool.submit(receiver.receive, None)
        error = Error(condition, "so it is") if condition is not None else None

        def close() -> None:
            server.connection.engine.close(error)
            server.connection.touch()

        running.call(close)
        if comes_back:
            story.wait_for(RESTORED)
            running.offer("q", "x")
            assert waiting.result(LONG).body == "x"
            assert story.kinds == [CONNECTED, INTERRUPTED, RESTORED]
        else:
            with pytest.raises(acquit.AcquitError, match="so it is"):
                waiting.result(LONG)
            story.wait_for(FAILED)
            assert story.kinds == [CONNECTED, FAILED]
        connection.close()


def test_a_link_that_is_refused_when_it_comes_back_ends_alone(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    closed = BrokerOptions(address=(AddressRule(f"{address}.closed", {"create": False}),))
    story = Story()
    with acquit.Broker(config=closed) as other, Proxy(broker.url) as proxy, ThreadPoolExecutor() as pool:
        with api.connect(proxy.url, options=fast(), on_event=story) as connection:
            session = connection.session("client")
            gone, kept = session.receiver(f"{address}.closed"), session.receiver(f"{address}.open")
            sender = session.sender(f"{address}.closed")
            waiting = pool.submit(gone.receive, None)
            proxy.retarget(other.url)
            proxy.cut()
            with pytest.raises(NotFound):
                waiting.result(LONG)
            with pytest.raises(NotFound):
                sender.send("x", timeout=LONG)
            story.wait_for(RESTORED)
            post(other, f"{address}.open", "x")
            assert kept.receive(LONG).body == "x"
            assert connection.connected
        assert story.kinds == [CONNECTED, INTERRUPTED, RESTORED]


# -- half-open ---------------------------------------------------------------------------------------------------------


def test_a_peer_that_has_fallen_silent_is_lost(api: Blocking | Asyncio, broker: acquit.Broker, address: str) -> None:
    story = Story()
    options = fast(idle_timeout_ms=100, connect_timeout_ms=200)
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=options, on_event=story) as connection:
        sender = connection.session().sender(address)
        sender.send("a", timeout=LONG)
        proxy.stall()
        receipt = sender.send("b", wait=False)
        story.wait_for(INTERRUPTED)
        proxy.resume()
        story.wait_for(RESTORED)
        assert receipt.result(LONG) == acquit.Accepted()
    in_queue = [message.body for message in drain(broker, address)]
    assert list(dict.fromkeys(in_queue)) == ["a", "b"]
    assert len(in_queue) <= 2 + story.kinds.count(INTERRUPTED)


# -- termini that are more than a name ---------------------------------------------------------------------------------


def test_a_durable_subscription_misses_nothing(api: Blocking | Asyncio, broker: acquit.Broker, address: str) -> None:
    story = Story()
    topic = f"{address}.topic"
    with (
        Proxy(broker.url) as proxy,
        api.connect(proxy.url, container_id=address, options=fast(), on_event=story) as connection,
    ):
        session = connection.session("client")
        receiver = session.receiver(topic, subscription=Subscription(name="sub"))
        proxy.refuse()
        proxy.cut()
        story.wait_for(INTERRUPTED)
        with acquit.connect(broker.url) as direct:
            direct.session().sender(topic, topic=True).send("while it was away", timeout=LONG)
        proxy.accept()
        assert receiver.receive(LONG).body == "while it was away"
        assert session.acknowledge().status is ReceiptStatus.APPLIED


def test_shared_subscribers_come_back_under_their_names(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    story = Story()
    topic = f"{address}.topic"
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        session = connection.session("individual")
        receivers = [session.receiver(topic, subscription=Subscription(name="sub", shared=True)) for _ in range(3)]
        for turn in range(1, 3):
            proxy.cut()
            story.wait_for(RESTORED, turn)
            proxy.wait_for("attach", 3 * (turn + 1), by="broker")
            with acquit.connect(broker.url) as direct:
                sender = direct.session().sender(topic, topic=True)
                for number in range(3):
                    sender.send(str(number), timeout=LONG)
            found = [receiver.receive(LONG) for receiver in receivers]
            assert sorted(message.body for message in found) == ["0", "1", "2"]
            assert {message.accept().status for message in found} == {ReceiptStatus.APPLIED}


def test_a_temporary_queue_is_another_one(api: Blocking | Asyncio, broker: acquit.Broker, address: str) -> None:
    """The peer deletes it with the connection, and names a new one: `address` tells."""
    story = Story()
    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=story) as connection:
        session = connection.session()
        receiver = session.receiver(None)
        before = receiver.address
        proxy.cut()
        story.wait_for(RESTORED)
        proxy.wait_for("attach", 2, by="broker")
        until(lambda: receiver.address not in ("", before), "another name")
        session.sender(receiver.address).send("x", timeout=LONG)
        assert receiver.receive(LONG).body == "x"


# -- threads and tasks in an outage ------------------------------------------------------------------------------------


def test_a_receive_that_is_cancelled_in_an_outage_takes_nothing_along(broker: acquit.Broker, address: str) -> None:
    async def run(proxy: Proxy) -> None:
        interrupted = asyncio.Event()

        def on_event(event: acquit.ConnectionEvent) -> None:
            if event.kind is INTERRUPTED:
                interrupted.set()

        async with (
            await acquit.aio.connect(proxy.url, options=fast(), on_event=on_event) as connection,
            await connection.session("client") as session,
        ):
            receiver = await session.receiver(address)
            await asyncio.to_thread(proxy.refuse)
            await asyncio.to_thread(proxy.cut)
            async with asyncio.timeout(LONG):
                await interrupted.wait()
            waiting = asyncio.create_task(receiver.receive())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await asyncio.to_thread(proxy.accept)
            await asyncio.to_thread(post, broker, address, "x")
            message = await receiver.receive(LONG)
            assert message is not None
            assert message.body == "x"
            assert not message.redelivered
            await session.acknowledge()

    with Proxy(broker.url) as proxy:
        asyncio.run(run(proxy))
    assert live(broker, address) == 0


def test_links_that_are_asked_for_in_an_outage_wait_for_its_end(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str
) -> None:
    story = Story()
    with (
        Proxy(broker.url) as proxy,
        ThreadPoolExecutor() as pool,
        api.connect(proxy.url, options=fast(), on_event=story) as connection,
    ):
        session = connection.session()
        proxy.refuse()
        proxy.cut()
        story.wait_for(INTERRUPTED)
        asked = [
            pool.submit(session.sender, address),
            pool.submit(session.receiver, address),
            pool.submit(connection.session, "transacted"),
        ]
        proxy.accept()
        sender, receiver, transacted = (each.result(LONG) for each in asked)
        sender.send("x", timeout=LONG)
        assert receiver.receive(LONG).body == "x"
        transacted.sender(address).send("y", timeout=LONG)
        transacted.commit(LONG)
        assert receiver.receive(LONG).body == "y"


def test_a_callback_of_events_may_use_the_client_and_fail(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What it raises is logged, and nothing else comes of it."""
    story = Story()

    def on_event(event: acquit.ConnectionEvent) -> None:
        story(event)
        raise ZeroDivisionError

    with Proxy(broker.url) as proxy, api.connect(proxy.url, options=fast(), on_event=on_event) as connection:
        sender = connection.session().sender(address)
        proxy.cut()
        sender.send("x", timeout=LONG)
        story.wait_for(RESTORED)
    until(lambda: sum("on_event" in record.getMessage() for record in caplog.records) == 3, "three lines of the log")
    assert [message.body for message in drain(broker, address)] == ["x"]


def test_a_wait_for_a_connection_that_is_closed_by_another_thread_says_so(broker: acquit.Broker, address: str) -> None:
    story = Story()
    with Proxy(broker.url) as proxy, ThreadPoolExecutor() as pool:
        connection = acquit.connect(proxy.url, options=fast(), on_event=story)
        receiver = connection.session("client").receiver(address)
        proxy.refuse()
        proxy.cut()
        story.wait_for(INTERRUPTED)
        waiting = pool.submit(receiver.receive, None)
        connection.close(0.1)
        with pytest.raises((ConnectionClosed, ConnectionLost, acquit.SessionEnded, acquit.LinkDetached)):
            waiting.result(LONG)


@pytest.mark.parametrize("condition", ["amqp:not-found", "amqp:unauthorized-access", "amqp:not-allowed"])
def test_a_refusal_at_the_return_is_the_end(
    api: Blocking | Asyncio, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that answers open with such a close would do so again."""
    story = Story()
    server = Server()
    with serving(server) as running, ThreadPoolExecutor() as pool:
        connection = api.connect(running.url, options=fast(), on_event=story)
        waiting = pool.submit(connection.session().receiver("q").receive, None)
        accept = server.accept

        def refuse(now: float) -> Any:
            refused = accept(now)
            handle = refused.handle

            def handle_and_close(events: list[ev.Event]) -> None:
                handle(events)
                if any(isinstance(event, ev.ConnectionOpened) for event in events):
                    refused.engine.close(Error(condition, "so it is"))

            monkeypatch.setattr(refused, "handle", handle_and_close)
            return refused

        running.call(lambda: monkeypatch.setattr(server, "accept", refuse))
        running.cut()
        story.wait_for(FAILED)
        with pytest.raises(acquit.AcquitError, match="so it is"):
            waiting.result(LONG)
        assert len(server.connections) == 2
        assert story.kinds == [CONNECTED, INTERRUPTED, FAILED]
        connection.close()

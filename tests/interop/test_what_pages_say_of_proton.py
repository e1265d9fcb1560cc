"""What docs/from-proton.md says that proton for Python does, seen of proton itself."""

from __future__ import annotations

import importlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import acquit
from acquit.protocol.definitions import Disposition, Modified, Released, Role
from acquit.testing import Proxy

pytestmark = pytest.mark.interop

WAIT_S = 20.0


def proton(module: str) -> Any:
    # Only there after `make interop`: not even collecting these tests may need it.
    return importlib.import_module(f"proton{module}")


@pytest.fixture
def network() -> Iterator[Proxy]:
    with acquit.Broker() as broker:
        with acquit.connect(broker.url) as connection:
            sender = connection.session().sender("examples")
            for body in ("first", "second"):
                sender.send(body)
        with Proxy(broker.url) as proxy:
            yield proxy


def said(proxy: Proxy, number: int = 1) -> Disposition:
    """The n-th outcome that the receiver said."""
    frame = proxy.wait_for("disposition", number, by="client", role=Role.RECEIVER, timeout_s=WAIT_S)
    assert isinstance(frame.performative, Disposition)
    return frame.performative


def run(url: str, on_message: Callable[[Any, Any], None], **options: object) -> None:
    """A container whose handler receives from the queue, until `on_message(handler, event)` closes the connection."""
    handlers, reactor = proton(".handlers"), proton(".reactor")

    class Handler(handlers.MessagingHandler):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            connection = event.container.connect(url, reconnect=False)
            event.container.create_receiver(connection, "examples")

        def on_message(self, event: Any) -> None:
            on_message(self, event)

    reactor.Container(Handler(**options)).run()


@pytest.mark.parametrize(("delivered", "outcome"), [(True, Modified), (False, Released)])
def test_release_of_a_handler(network: Proxy, delivered: bool, outcome: type) -> None:
    def on_message(handler: Any, event: Any) -> None:
        handler.release(event.delivery, delivered)
        event.receiver.flow(0)
        event.connection.close()

    run(network.url, on_message, auto_accept=False, prefetch=1)
    state = said(network).state
    assert isinstance(state, outcome)
    assert state == (Modified() if delivered else Released()) or state == Modified(False, False)


def test_release_raised_in_on_message(network: Proxy) -> None:
    def on_message(handler: Any, event: Any) -> None:
        event.connection.close()
        raise proton(".handlers").Release

    run(network.url, on_message, prefetch=1)
    state = said(network).state
    assert isinstance(state, Modified) and not state.delivery_failed


def test_an_exception_in_on_message_ends_the_container_and_settles_nothing(network: Proxy) -> None:
    def on_message(handler: Any, event: Any) -> None:
        raise ValueError("as intended")

    with pytest.raises(ValueError, match="as intended"):
        run(network.url, on_message, prefetch=1)
    assert network.passed("disposition", by="client") == []


def test_auto_accept_is_said_after_on_message(network: Proxy) -> None:
    before: list[int] = []

    def on_message(handler: Any, event: Any) -> None:
        before.append(len(network.passed("disposition", by="client")))
        if len(before) == 2:
            event.connection.close()

    run(network.url, on_message)
    assert before[0] == 0
    assert said(network).settled


def test_a_blocking_receiver_settles_the_oldest(network: Proxy) -> None:
    connection = proton(".utils").BlockingConnection(network.url, timeout=WAIT_S)
    try:
        receiver = connection.create_receiver("examples", credit=2)
        assert receiver.receive().body == "first"
        assert receiver.receive().body == "second"  # and this is what the program has in its hands
        receiver.reject()
    finally:
        connection.close()
    with acquit.connect(network.url) as ours, ours.session() as session:
        dead = session.receiver("DLQ").receive(timeout=WAIT_S)
        assert dead is not None and dead.body == "first"


def test_release_of_a_blocking_receiver_is_no_failed_attempt(network: Proxy) -> None:
    connection = proton(".utils").BlockingConnection(network.url, timeout=WAIT_S)
    try:
        receiver = connection.create_receiver("examples", credit=1)
        receiver.receive()
        receiver.release()
    finally:
        connection.close()
    state = said(network).state
    assert isinstance(state, Modified) and not state.delivery_failed


def test_its_defaults() -> None:
    message = proton("").Message(body="x")
    assert not message.durable
    assert proton(".handlers").MessagingHandler().handlers[0]._window == 10


# -- what a sender makes of the outcome modified -----------------------------------------------------------------------


def free_port() -> int:
    """proton takes port 0 for 5672."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.fixture
def modifier() -> Iterator[str]:
    """A peer that says *modified* of all that it is sent; its URL."""
    handlers, reactor = proton(".handlers"), proton(".reactor")
    listening = threading.Event()
    where: list[str] = []

    class Peer(handlers.MessagingHandler):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            self.acceptor = event.container.listen(f"127.0.0.1:{free_port()}")
            where.append(f"amqp://127.0.0.1:{self.acceptor._selectable._delegate.getsockname()[1]}")
            self.events = reactor.EventInjector()
            event.container.selectable(self.events)
            listening.set()

        def on_link_opening(self, event: Any) -> None:
            event.link.source.copy(event.link.remote_source)
            event.link.target.copy(event.link.remote_target)

        def on_message(self, event: Any) -> None:
            self.release(event.delivery)

        def on_stop_now(self, event: Any) -> None:
            self.acceptor.close()
            container.stop()

    peer = Peer(auto_accept=False)
    container = reactor.Container(peer)
    thread = threading.Thread(target=container.run, daemon=True)
    thread.start()
    assert listening.wait(WAIT_S)
    yield where[0]
    peer.events.trigger(reactor.ApplicationEvent("stop_now"))
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_a_blocking_sender_takes_modified_for_success(modifier: str) -> None:
    connection = proton(".utils").BlockingConnection(modifier, timeout=WAIT_S)
    try:
        delivery = connection.create_sender("examples").send(proton("").Message(body="x"))
        assert delivery.remote_state == proton("").Delivery.MODIFIED
    finally:
        connection.close()


def test_ours_says_that_it_was_not_taken(modifier: str) -> None:
    with acquit.connect(modifier) as connection:
        sender = connection.session().sender("examples")
        with pytest.raises(acquit.MessageModified):
            sender.send("x", timeout=WAIT_S)


def test_on_released_is_called_for_modified(modifier: str) -> None:
    handlers, reactor = proton(".handlers"), proton(".reactor")
    called: list[str] = []

    class Sender(handlers.MessagingHandler):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            event.container.create_sender(event.container.connect(modifier, reconnect=False), "examples")

        def on_sendable(self, event: Any) -> None:
            if not called:
                called.append("sent")
                event.sender.send(proton("").Message(body="x"))

        def on_released(self, event: Any) -> None:
            called.append("released")
            event.connection.close()

    reactor.Container(Sender()).run()
    assert called == ["sent", "released"]

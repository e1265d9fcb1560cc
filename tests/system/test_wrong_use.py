"""The client used wrongly: what is said, at once, where it would otherwise hang or quietly do nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import acquit
from acquit import Data, aio, errors
from acquit.testing import Proxy
from tests.support.outages import LONG, Asyncio, Blocking, live, post, until


async def nobody_awaits_me(message: object, error: object = None) -> None:
    raise AssertionError


class AwaitableHandler:
    """Called, it gives a coroutine."""

    async def __call__(self, message: object, error: object = None) -> None:
        raise AssertionError


@pytest.mark.parametrize("handler", [nobody_awaits_me, AwaitableHandler(), None, "handle"])
def test_a_handler_that_a_thread_cannot_call_is_refused_before_a_message_is_taken(
    broker: acquit.Broker, address: str, handler: Callable[..., object]
) -> None:
    post(broker, address, "one")
    with acquit.connect(broker.url) as connection, connection.session() as session:
        receiver = session.receiver(address)
        for use in (
            receiver.listen,
            receiver.start_listener,
            lambda handler: receiver.start_listener(print, on_error=handler or 5),
            lambda handler: session.responder(address, handler),
        ):
            with pytest.raises(errors.ConfigurationError, match="must be (callable|a function), got"):
                use(handler)
    assert live(broker, address) == 1


def test_a_handler_that_no_task_can_call_is_refused(broker: acquit.Broker, address: str) -> None:
    async def main() -> None:
        async with aio.connect(broker.url) as connection, connection.session() as session:
            receiver = await session.receiver(address)
            wrong: Callable[..., object] = "handle"  # type: ignore[assignment]
            with pytest.raises(errors.ConfigurationError, match="handler must be callable, got 'handle'"):
                receiver.start_listener(wrong)
            with pytest.raises(errors.ConfigurationError, match="handler must be callable, got 'handle'"):
                await receiver.listen(wrong)
            with pytest.raises(errors.ConfigurationError, match="handler must be callable, got 'handle'"):
                await session.responder(address, wrong)

    asyncio.run(main())


def test_another_event_loop_than_the_connection_s_is_an_error_and_no_hang(broker: acquit.Broker, address: str) -> None:
    async def main() -> None:
        connection = await aio.connect(broker.url)
        session = await connection.session("individual")
        sender, receiver = await session.sender(address), await session.receiver(address)
        await sender.send("one")
        message = await receiver.receive(LONG)
        assert message is not None
        heard: list[BaseException] = []

        async def elsewhere() -> None:
            for use in (
                sender.send("two"),
                receiver.receive(LONG),
                message.accept(),
                session.receiver(address),
                connection.session(),
                connection.close(),
            ):
                try:
                    await asyncio.wait_for(_awaited(use), LONG)
                except errors.LocalProtocolError as exc:
                    heard.append(exc)

        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        await asyncio.to_thread(thread.join)
        said = (
            "used on another event loop than that of its connection: acquit.aio connects once for each loop; "
            "threads share a connection of acquit.connect"
        )
        assert [str(exc) for exc in heard] == [said] * 6
        await sender.send("three")
        third = await receiver.receive(LONG)
        assert third is not None
        assert third.body == "three"
        await connection.close()

    asyncio.run(main())


async def _awaited(what: object) -> object:
    return await what  # type: ignore[misc]


def test_what_is_no_message_cannot_be_acknowledged_or_remembered(broker: acquit.Broker, address: str) -> None:
    post(broker, address, "one")
    nothing: acquit.ReceivedMessage = None  # type: ignore[assignment]  # as `receive` gives at its time-out
    with acquit.connect(broker.url) as connection, connection.session("individual") as session:
        assert session.receiver(address).receive(LONG) is not None
        with pytest.raises(errors.ConfigurationError, match="acknowledge takes a received message, got 5"):
            session.acknowledge(5)  # type: ignore[arg-type]
        with pytest.raises(errors.ConfigurationError, match="a received message is expected, got None"):
            acquit.Inbox().remember(nothing)
        assert session.acknowledge().count == 1


def test_a_name_alone_is_no_subscription(broker: acquit.Broker, address: str) -> None:
    name: acquit.Subscription = "audit"  # type: ignore[assignment]
    with acquit.connect(broker.url) as connection, connection.session() as session:
        for use in (lambda: session.receiver(address, subscription=name), lambda: session.unsubscribe(name)):
            with pytest.raises(errors.ConfigurationError, match=r"must be a Subscription\(name=...\), got 'audit'"):
                use()


def test_options_that_are_none_are_refused(broker: acquit.Broker) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"options must be a ConnectOptions, got \{'delay_ms': 5\}"):
        acquit.connect(broker.url, options={"delay_ms": 5})  # type: ignore[arg-type]


def test_things_say_what_they_are(broker: acquit.Broker, address: str) -> None:
    where = broker.url.removeprefix("amqp://")
    with acquit.connect(broker.url) as connection, connection.session("dups-ok") as session:
        assert repr(connection) == f"<Connection to {where}>"
        assert repr(session) == f"<Session in mode DUPS_OK on {where}>"
        assert repr(session.sender(address)) == f"<Sender to {address!r}>"
        receiver = session.receiver(address)
        assert repr(receiver) == f"<Receiver from {address!r}>"
        with receiver.start_listener(print) as listener:
            assert repr(listener) == f"<Listener from {address!r}>"
        assert repr(listener) == f"<Listener from {address!r}, done>"


def test_members_are_printed_by_their_names() -> None:
    assert f"{acquit.ReceiptStatus.APPLIED} {acquit.AckMode.PRE_ACK}" == "APPLIED PRE_ACK"
    assert str(acquit.InboxVerdict.NEW) == "NEW"
    assert str(acquit.TransactionFate.ROLLED_BACK) == "ROLLED_BACK"
    assert str(acquit.DeliveryMode.PERSISTENT) == "PERSISTENT"
    assert str(acquit.JmsKind.MAP) == "MAP"


def two_of_them(message: object, another: object) -> None:
    raise AssertionError


def by_name(*, message: object) -> None:
    raise AssertionError


def none_at_all() -> None:
    raise AssertionError


@pytest.mark.parametrize("handler", [two_of_them, by_name, none_at_all])
def test_a_handler_of_another_signature_is_refused_before_a_message_is_taken(
    broker: acquit.Broker, address: str, handler: Callable[..., object], api: Blocking | Asyncio
) -> None:
    post(broker, address, "one")
    said = r"is called with 1 argument \((message|request|event)\), and <function \w+ at \w+> takes \(.*\).*: "
    with api.connect(broker.url) as connection, connection.session() as session:
        receiver = session.receiver(address)
        for use in (
            receiver.listen,
            receiver.start_listener,
            lambda handler: session.responder(address, handler),
            lambda handler: api.connect(broker.url, on_event=handler),
        ):
            with pytest.raises(errors.ConfigurationError, match=said):
                use(handler)
        with pytest.raises(errors.ConfigurationError, match=r"on_error is called with 2 arguments \(message, error\)"):
            receiver.start_listener(print, on_error=none_at_all)
    assert live(broker, address) == 1


def test_handlers_that_can_be_called_are(broker: acquit.Broker, address: str) -> None:
    heard: list[object] = []
    post(broker, address, "one", "two")
    with acquit.connect(broker.url) as connection, connection.session() as session:
        receiver = session.receiver(address)
        with receiver.start_listener(heard.append):  # of C
            until(lambda: len(heard) == 2, "both are heard")
        with receiver.start_listener(lambda message, times=2: None, on_error=lambda *both: None):
            pass


@pytest.mark.parametrize(
    ("arguments", "condition", "description"),
    [
        ((), None, None),
        (("orders:no-customer",), "orders:no-customer", None),
        (("orders:no-customer", "there is no customer 9"), "orders:no-customer", "there is no customer 9"),
        (("unfit", "there is no customer 9"), "unfit", "there is no customer 9"),
        (("there is no customer 9",), "acquit:rejected", "there is no customer 9"),
        (("orders: none",), "acquit:rejected", "orders: none"),
        (("späte:bestellung",), "acquit:rejected", "späte:bestellung"),
        ((None, "there is no customer 9"), "acquit:rejected", "there is no customer 9"),
        ((ValueError("no number"),), "amqp:internal-error", "ValueError: no number"),
        ((ValueError(),), "amqp:internal-error", "ValueError"),
        ((ValueError("x" * 5_000),), "amqp:internal-error", f"ValueError: {'x' * 988}"),
        ((ValueError("no number"), "field 3"), "amqp:internal-error", "field 3"),
        ((errors.DecodeError("bad octet"),), "amqp:decode-error", "DecodeError: bad octet"),
        ((acquit.Error("amqp:not-found", "who?"),), "amqp:not-found", "who?"),
    ],
)
def test_the_reason_of_a_rejection(
    api: Blocking | Asyncio,
    broker: acquit.Broker,
    address: str,
    arguments: tuple[Any, ...],
    condition: str | None,
    description: str | None,
) -> None:
    post(broker, address, "one")
    with Proxy(broker.url) as proxy, api.connect(proxy.url) as connection, connection.session("individual") as session:
        session.receiver(address).receive(LONG).reject(*arguments)
        state = proxy.passed("disposition", by="client")[-1].performative.state  # type: ignore[union-attr]
    assert isinstance(state, acquit.Rejected)
    error = state.error
    assert (error and error.condition, error and error.description) == (condition, description)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((5,), "error must be a condition, a text, an exception or an Error, got 5"),
        ((ValueError,), "error must be a condition, a text, an exception or an Error, got <class 'ValueError'>"),
        ((None, 5), "description must be a text or None, got 5"),
        (("two words", "x"), "error must be a condition such as 'amqp:decode-error' beside a text, got 'two words'"),
        ((acquit.Error("amqp:not-found"), "x"), "an Error has its own description: say it there"),
    ],
)
def test_what_is_no_reason_settles_nothing(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, arguments: tuple[Any, ...], said: str
) -> None:
    post(broker, address, "one")
    with api.connect(broker.url) as connection, connection.session("individual") as session:
        message = session.receiver(address).receive(LONG)
        with pytest.raises(errors.ConfigurationError) as caught:
            message.reject(*arguments)
        assert str(caught.value) == said
        assert message.accept() is not None


@pytest.mark.parametrize("closed", ["receiver", "session", "connection"])
@pytest.mark.parametrize("mode", ["individual", "client"])
def test_an_outcome_after_the_close_says_what_became_of_the_message(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, closed: str, mode: str
) -> None:
    post(broker, address, "one")
    with api.connect(broker.url) as connection:
        session = connection.session(mode)
        receiver = session.receiver(address)
        message = receiver.receive(LONG)
        {"receiver": receiver, "session": session, "connection": connection}[closed].close()
        said = (
            f"^the {closed} was closed while this message had no outcome: it ended as modified, and the broker "
            "delivers it again; give messages their outcome before the close$"
        )
        for use in (message.accept, message.reject, message.acknowledge, lambda: session.acknowledge(message)):
            with pytest.raises(errors.AlreadySettled, match=said):
                use()
        if closed != "receiver":
            with pytest.raises(errors.EndpointError, match="ended by us|closed"):
                session.acknowledge()
    assert live(broker, address) == 1


@pytest.mark.parametrize("body", [{"a": 1}, [1, "two"], 5, 0.5, True, Data((b"a", b"b"))])
def test_what_a_responder_may_return_can_be_sent(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, body: Any
) -> None:
    with api.connect(broker.url) as connection, connection.session() as session:
        sender, receiver = session.sender(address), session.receiver(address)
        sender.send(body)
        assert receiver.receive(LONG).body == body
        session.responder(f"{address}.asked", lambda request: request.body)
        assert session.requester(f"{address}.asked").request(body, timeout=LONG).body == body
        for send in (sender.send, session.requester(f"{address}.asked").request):
            with pytest.raises(errors.ConfigurationError, match="there is no message to send, got None"):
                send(None)
            with pytest.raises(errors.EncodeError, match="a Python object has no AMQP type"):
                send(object())
            for text in ("a\ud800", acquit.Message("a\ud800"), {"a": "\ud800"}):
                with pytest.raises(errors.EncodeError, match="a (str|dict) that AMQP cannot hold"):
                    send(text)
            for keyed in ({(1, 2): "x"}, acquit.Message(annotations={"a": {(1, 2): "x"}})):
                with pytest.raises(errors.EncodeError, match="a map cannot have a tuple as a key"):
                    send(keyed)  # which no receiver could read


@pytest.mark.parametrize("timeout", ["5", -1, -0.001, float("nan"), True, b"5", [5], 10**400, -(10**5000)], ids=type)
def test_a_timeout_is_a_number_of_seconds(
    api: Blocking | Asyncio, broker: acquit.Broker, address: str, timeout: Any
) -> None:
    post(broker, address, "one")
    with api.connect(broker.url) as connection:
        transacted = connection.session("transacted")
        with connection.session("individual") as session:
            sender, receiver, requester = session.sender(address), session.receiver(address), session.requester("no")
            listener = session.receiver(f"{address}.listener").start_listener(print)
            responder = session.responder(f"{address}.responder", print)
            receipt, message = sender.send("two", wait=False), receiver.receive()
            for use in (
                receiver.receive,
                lambda timeout: receiver.receive_many(1, timeout),
                receiver.drain,
                receiver.refresh,
                receiver.close,
                lambda timeout: sender.send("x", timeout=timeout),
                lambda timeout: sender.send("x", wait=False, timeout=timeout),
                sender.flush,
                sender.close,
                receipt.result,
                lambda timeout: requester.request("x", timeout=timeout),
                requester.close,
                listener.stop,
                listener.wait,
                responder.wait,
                responder.close,
                session.close,
                connection.close,
                transacted.commit,
                transacted.rollback,
                lambda timeout: connection.transaction_fate(bytes(16), timeout),
            ):
                with pytest.raises(errors.ConfigurationError, match="timeout must be a number of seconds from 0, or "):
                    use(timeout)
            assert sender.send("three") == acquit.Accepted()
            message.accept()
            assert receiver.receive(LONG).body == "two"


def test_what_is_set_where_it_means_nothing_is_an_error(
    broker: acquit.Broker, address: str, api: Blocking | Asyncio
) -> None:
    with api.connect(broker.url) as connection, connection.session() as session:
        receiver = session.receiver(address)
        listener = receiver.start_listener(print)
        responder = session.responder(f"{address}.asked", print)
        for made in (
            connection,
            session,
            receiver,
            session.sender(address),
            listener,
            session.requester(address),
            responder,
        ):
            with pytest.raises(AttributeError):
                setattr(getattr(made, "_bare", made), "prefetch", 5)  # noqa: B010 -- what a user writes


WRONG: dict[str, dict[str, list[Any]]] = {
    "connect": {
        "url": [5, None, b"amqp://127.0.0.1"],
        "container_id": [5],
        "username": [5, b"ada"],
        "password": [5],
        "options": [5],
        "on_event": [5],
    },
    "sender": {
        "address": [5, ""],
        "delivery_mode": [5],
        "topic": ["yes"],
        "unreliable": ["yes"],
        "capabilities": [5, "topic", [5]],
        "properties": [5, {5: 1}],
        "buffer_messages": [0, 0.5],
        "buffer_bytes": ["1"],
    },
    "receiver": {
        "address": [5],
        "prefetch": [-1, 0.5],
        "prefetch_bytes": [0],
        "browse": ["yes"],
        "default_outcome": [5],
        "filters": [5],
        "selector": [5, ""],
        "no_local": ["yes"],
        "topic": ["yes"],
        "subscription": ["yes"],
        "unreliable": ["yes"],
        "target": [5],
        "capabilities": [5, [5]],
        "properties": [5],
    },
    "modify": {"delivery_failed": ["yes"], "undeliverable_here": [1]},
    "settle": {"messages": [5, [5]], "outcome": [5]},
    "receive_many": {"max_messages": ["1", 0, 0.5]},
    "start_listener": {"concurrency": ["1", 0, 0.5]},
}


def test_an_argument_that_makes_no_sense_is_named(broker: acquit.Broker, address: str, api: Blocking | Asyncio) -> None:
    post(broker, address, "one")
    with api.connect(broker.url) as connection, connection.session("individual") as session:
        receiver = session.receiver(address)
        message = receiver.receive(LONG)
        uses: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
            "connect": (api.connect, {"url": broker.url, "username": "ada"}),
            "sender": (session.sender, {"address": address}),
            "receiver": (session.receiver, {"address": address}),
            "modify": (message.modify, {}),
            "settle": (session.settle, {"messages": [], "outcome": acquit.Accepted()}),
            "receive_many": (receiver.receive_many, {}),
            "start_listener": (lambda **more: receiver.start_listener(print, **more), {}),
        }
        for verb, wrong in WRONG.items():
            use, right = uses[verb]
            for name, values in wrong.items():
                for value in values:
                    with pytest.raises(errors.ConfigurationError, match=name.removesuffix("s")):
                        use(**right | {name: value})
        assert message.accept() is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hostname", 5),
        ("properties", 5),
        ("properties", {5: 1}),
        ("in_band_tls", "yes"),
        ("in_doubt_is_rolled_back", 1),
    ],
)
def test_an_option_that_makes_no_sense_is_named(name: str, value: Any) -> None:
    with pytest.raises(errors.ConfigurationError, match=f"^{name} must be "):
        acquit.ConnectOptions(**{name: value})

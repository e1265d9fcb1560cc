"""Our client on RabbitMQ 4: what is RabbitMQ's alone. What all brokers have in common is in `test_foreign_*`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import acquit
from acquit import AckMode, ReceiptStatus
from acquit.errors import SessionEnded
from tests.interop.conftest import running
from tests.interop.rabbitmq import RabbitMQ

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    for broker in running("rabbitmq", tmp_path_factory.mktemp("rabbitmq")):
        assert isinstance(broker, RabbitMQ)
        yield broker


@pytest.fixture
def name() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def connection(rabbitmq: RabbitMQ) -> Iterator[acquit.Connection]:
    with rabbitmq.connect() as connected:
        yield connected


def bodies(receiver: acquit.Receiver, count: int) -> list[object]:
    got = [receiver.receive(timeout=10) for _ in range(count)]
    return [message.body for message in got if message is not None]


def queue_of(name: str) -> str:
    return f"/queues/{name}"


@pytest.mark.parametrize(
    "address",
    [
        pytest.param(queue_of, id="v2-queue"),
        pytest.param(lambda name: f"/exchanges/amq.direct/{name}", id="v2-exchange-and-key"),
        pytest.param(lambda name: f"/queue/{name}", id="v1-queue"),
        pytest.param(lambda name: f"/amq/queue/{name}", id="v1-amq-queue"),
        pytest.param(lambda name: f"/exchange/amq.direct/{name}", id="v1-exchange-and-key"),
        pytest.param(lambda name: name, id="v1-plain"),
    ],
)
def test_a_message_sent_to_each_form_of_address_arrives(
    rabbitmq: RabbitMQ, connection: acquit.Connection, name: str, address: Callable[[str], str]
) -> None:
    # v1 declares queues of the classic type where it finds none: here it finds one.
    rabbitmq.queue(name)
    rabbitmq.manage(
        "POST", "/bindings", {"source": "amq.direct", "destination_queue": name, "binding_key": name, "arguments": {}}
    )
    with connection.session() as session:
        session.sender(address(name)).send("a")
        assert bodies(session.receiver(queue_of(name)), 1) == ["a"]
        assert session.receiver(queue_of(name), prefetch=0).receive(timeout=0.2) is None


@pytest.mark.parametrize("address", ["/queue/{}", "/amq/queue/{}", "{}"])
def test_a_receiver_takes_from_each_form_of_address(
    rabbitmq: RabbitMQ, connection: acquit.Connection, name: str, address: str
) -> None:
    with connection.session() as session:
        session.sender(rabbitmq.queue(name)).send("a")
        assert bodies(session.receiver(address.format(name)), 1) == ["a"]


def test_a_queue_that_nobody_declared_is_not_found(connection: acquit.Connection, name: str) -> None:
    """RabbitMQ ends the whole session, with all of its links, where others refuse the link."""
    session = connection.session()
    with pytest.raises(SessionEnded, match=name) as caught:
        session.receiver(queue_of(name))
    assert caught.value.condition == "amqp:not-found"


def test_who_acknowledges_individually_hears_that_it_was_sent(
    rabbitmq: RabbitMQ, connection: acquit.Connection, name: str
) -> None:
    """RabbitMQ ends the whole session where a receiver asks for mode second, so our client does not ask it."""
    with connection.session(AckMode.INDIVIDUAL) as session:
        sender = session.sender(rabbitmq.queue(name))
        for body in "abc":
            sender.send(body)
        receiver = session.receiver(queue_of(name))
        got = [receiver.receive(timeout=10) for _ in range(3)]
        assert [message.accept().status for message in got if message is not None] == [ReceiptStatus.SENT] * 3
    with connection.session() as session:
        assert session.receiver(queue_of(name), prefetch=0).receive(timeout=0.2) is None


def test_what_was_accepted_survives_a_kill(tmp_path: Path, name: str) -> None:
    for broker in running("rabbitmq", tmp_path):
        address = broker.queue(name)
        with broker.connect() as connection, connection.session() as session:
            sender = session.sender(address)
            for number in range(20):
                sender.send(f"{number}", wait=False)
            sender.flush()
        broker.kill()
        broker.restart()
        with broker.connect() as connection, connection.session() as session:
            assert bodies(session.receiver(address), 20) == [f"{number}" for number in range(20)]

"""Our client on RabbitMQ 4: what is RabbitMQ's alone. What all brokers have in common is in `test_foreign_*`."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import acquit
from acquit import AckMode, ReceiptStatus
from acquit.errors import MessageRejected, MessageReleased, SessionEnded
from acquit.protocol.message import Message
from acquit.protocol.types import Described, Symbol, ULong
from acquit.testing import PassedFrame, Proxy
from tests.interop.conftest import running
from tests.interop.rabbitmq import RabbitMQ
from tests.support.outages import fast
from tests.support.pages import ROOT, URL, all_blocks

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


def test_names_are_percent_encoded_in_addresses(rabbitmq: RabbitMQ, connection: acquit.Connection, name: str) -> None:
    address = rabbitmq.queue(f"{name} a/b%")
    assert address == f"/queues/{name}%20a%2Fb%25"
    with connection.session() as session:
        session.sender(address).send("a")
        assert bodies(session.receiver(address), 1) == ["a"]


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


def test_after_a_refusal_the_next_session_begins_at_once(
    rabbitmq: RabbitMQ, connection: acquit.Connection, name: str
) -> None:
    """RabbitMQ takes a begin on the channel of a session that it has just ended for a frame of that session."""
    with connection.session() as other:
        sender = other.sender(rabbitmq.queue(name))
        for number in range(20):
            with pytest.raises(SessionEnded, match="nowhere"):
                connection.session().receiver(queue_of("nowhere"))
            sender.send(f"{number}")
        assert bodies(connection.session().receiver(queue_of(name)), 20) == [f"{number}" for number in range(20)]


@pytest.fixture
def declared(rabbitmq: RabbitMQ, name: str) -> str:
    """The name of a queue that the page's example has declared, whose dead letter queue is NAME.dead."""
    (example,) = (block for block in all_blocks(ROOT / "docs/brokers.md") if "x-dead-letter-exchange" in block.text)
    text = example.text.replace(URL, rabbitmq.url).replace('"orders', f'"{name}')
    for _ in range(2):  # what is there already is answered as well as what is new
        exec(compile(text, f"docs/brokers.md:{example.line}", "exec"), {})
    return name


def test_queues_are_declared_by_our_client_as_well(connection: acquit.Connection, declared: str) -> None:
    """The links of a pair have one name and the property *paired*, and what crosses them is settled."""
    with connection.session(AckMode.INDIVIDUAL) as session:
        session.sender(queue_of(declared)).send("a")
        message = session.receiver(queue_of(declared)).receive(timeout=10)
        assert message is not None
        message.reject("amqp:decode-error", "not an order")
        assert bodies(session.receiver(queue_of(f"{declared}.dead")), 1) == ["a"]


def later_than(connection: int) -> Callable[[PassedFrame], bool]:
    return lambda frame: frame.connection > connection


def lose(rabbitmq: RabbitMQ, name: str, times: int) -> None:
    """Lose connections to which a message of the queue was sent that nobody has looked at, until so many count and it
    does not come again: one that is lost at once may not count, and with the message comes how many did before."""
    with Proxy(rabbitmq.url) as proxy, acquit.connect(proxy.url, options=fast()) as connection:
        receiver = connection.session(AckMode.INDIVIDUAL).receiver(queue_of(name))
        last, counted = -1, 0
        with contextlib.suppress(TimeoutError):
            for _ in range(2 * times):
                again = proxy.wait_for(
                    "transfer", by="broker", where=later_than(last), timeout_s=3.0 if counted == times else 10.0
                )
                last = again.connection
                counted = 1 + Message.decode(again.payload).annotations.get("x-delivery-count", 0)
                proxy.cut()
        assert counted == times
        assert receiver.receive(timeout=1) is None


def test_connections_that_are_lost_again_and_again_make_a_dead_letter(
    rabbitmq: RabbitMQ, connection: acquit.Connection, declared: str
) -> None:
    """They count as attempts at what was only prefetched."""
    with connection.session() as session:
        session.sender(queue_of(declared)).send("precious")
        lose(rabbitmq, declared, 21)
        letter = session.receiver(queue_of(f"{declared}.dead")).receive(timeout=10)
        assert letter is not None
        assert (letter.body, letter.annotations["x-last-death-reason"]) == ("precious", "delivery_limit")


def test_a_queue_without_a_dead_letter_queue_deletes_what_connections_were_lost_with(
    rabbitmq: RabbitMQ, connection: acquit.Connection, name: str
) -> None:
    """What docs/brokers.md warns of: with the arguments that a quorum queue has by default."""
    with connection.session() as session:
        session.sender(rabbitmq.queue(name)).send("precious")
        lose(rabbitmq, name, 21)
        assert session.receiver(queue_of(name), prefetch=0).receive(timeout=1) is None


# -- what becomes of a send --------------------------------------------------------------------------------------------


def test_what_no_queue_wants_is_released(connection: acquit.Connection, name: str) -> None:
    with connection.session() as session, pytest.raises(MessageReleased):
        session.sender(f"/exchanges/amq.direct/{name}").send("a")


def test_a_full_queue_rejects(rabbitmq: RabbitMQ, connection: acquit.Connection, name: str) -> None:
    """A sender hears a little later that it is full, so a few more than the limit are taken."""
    arguments = {"x-queue-type": "quorum", "x-max-length": 2, "x-overflow": "reject-publish"}
    rabbitmq.manage("PUT", queue_of(name), {"durable": True, "arguments": arguments})

    def fill() -> None:
        for number in range(50):
            sender.send(f"{number}")

    with connection.session() as session, session.sender(queue_of(name)) as sender, pytest.raises(MessageRejected):
        fill()


# -- what becomes of what was received ---------------------------------------------------------------------------------


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


def test_classic_queues_count_no_attempts(rabbitmq: RabbitMQ, connection: acquit.Connection, name: str) -> None:
    """So they never give up; that the message was delivered before is all they tell."""
    rabbitmq.manage("PUT", queue_of(name), {"durable": True, "arguments": {"x-queue-type": "classic"}})
    with connection.session(AckMode.INDIVIDUAL) as session:
        session.sender(queue_of(name)).send("a")
        receiver = session.receiver(queue_of(name))
        told = []
        for _ in range(5):
            message = receiver.receive(timeout=10)
            assert message is not None
            told.append((message.delivery_count, message.redelivered))
            message.modify(delivery_failed=True)
        assert told == [(0, False), *[(0, True)] * 4]


def test_a_stream_is_read_from_where_one_says_and_nothing_is_taken(
    rabbitmq: RabbitMQ, connection: acquit.Connection, name: str
) -> None:
    rabbitmq.manage("PUT", queue_of(name), {"durable": True, "arguments": {"x-queue-type": "stream"}})
    offset = Symbol("rabbitmq:stream-offset-spec")
    with connection.session() as session:
        sender = session.sender(queue_of(name))
        for body in "abc":
            sender.send(body)
        for first, expected in ((0, ["a", "b", "c"]), (1, ["b", "c"]), (0, ["a", "b", "c"])):
            filters = {offset: Described(offset, ULong(first))}
            with session.receiver(queue_of(name), filters=filters) as receiver:
                assert bodies(receiver, len(expected)) == expected


@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_what_was_accepted_survives_a_kill(tmp_path: Path, name: str, kind: str) -> None:
    for broker in running("rabbitmq", tmp_path):
        assert isinstance(broker, RabbitMQ)
        broker.kind = kind
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

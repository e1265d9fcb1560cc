"""What brokers grant to who asks: modes of links, filters, kinds of nodes, and what they say of earlier attempts.

All of it is asked by our client as a user would, so a refusal is seen as the user sees it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

import acquit
from acquit import AckMode, Message, ReceiptStatus, Subscription
from acquit.client import core
from acquit.client.products import UNKNOWN
from acquit.errors import EndpointError, LinkDetached, MessageRejected, MessageReleased, SessionEnded
from acquit.protocol.constants import ACCEPTED, Outcome
from acquit.protocol.types import Described, Symbol
from acquit.testing import Proxy
from tests.interop.foreign import ForeignBroker
from tests.interop.observations import Observer

pytestmark = pytest.mark.interop

PATIENCE_S = 15.0
"""For what must come."""
NOTHING_S = 0.3
"""What has not come by then does not come: the queue was filled, and the answer seen, before."""
LOOKS = 20
"""For what a broker does now and then."""


@pytest.fixture
def name() -> str:
    return f"grants-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def queue(foreign: ForeignBroker, name: str) -> str:
    return foreign.queue(name)


@pytest.fixture
def connection(foreign: ForeignBroker) -> Iterator[acquit.Connection]:
    with foreign.connect() as connected:
        yield connected


@contextmanager
def one_lost(foreign: ForeignBroker, queue: str, default_outcome: Outcome | None = None) -> Iterator[None]:
    """A message is received by somebody whose connection is lost before anything is said of it."""
    with Proxy(foreign.url) as proxy:
        holder = foreign.connect(url=proxy.url)
        receiver = holder.session(AckMode.INDIVIDUAL).receiver(queue, default_outcome=default_outcome)
        assert receiver.receive(timeout=PATIENCE_S) is not None
        proxy.refuse()
        proxy.cut()
        yield
        holder.close()


def fill(connection: acquit.Connection, address: str, *messages: Message | str) -> None:
    with connection.session() as session, session.sender(address) as sender:
        for message in messages:
            sender.send(message)


def granted(attach: Callable[[], object]) -> bool:
    """Whether a link comes to be; a session of its own is given up with it."""
    try:
        attach()
    except EndpointError:
        return False
    return True


# -- modes of a link ---------------------------------------------------------------------------------------------------


def test_mode_second(
    foreign: ForeignBroker,
    connection: acquit.Connection,
    queue: str,
    observe: Observer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Ask all of them, also those that our client knows not to ask.
    monkeypatch.setattr(core, "product_of", lambda properties: UNKNOWN)
    fill(connection, queue, "a")
    with foreign.connect() as asking:
        session = asking.session(AckMode.INDIVIDUAL)
        try:
            receiver = session.receiver(queue)
        except SessionEnded:
            observe("mode_second", "ends the session")
            return
        message = receiver.receive(timeout=PATIENCE_S)
        assert message is not None
        answered = message.accept().status is not ReceiptStatus.SENT
        observe("mode_second", "granted" if answered else "not granted")


def test_pre_settled_receiver(
    foreign: ForeignBroker, connection: acquit.Connection, queue: str, observe: Observer
) -> None:
    """At most once: what was sent is gone, although the connection is lost before anything could be said of it."""
    fill(connection, queue, "a")
    with Proxy(foreign.url) as proxy:
        holder = foreign.connect(url=proxy.url)
        receiver = holder.session(AckMode.NO_ACK).receiver(queue)
        assert receiver.receive(timeout=PATIENCE_S) is not None
        proxy.refuse()
        proxy.cut()
        with connection.session() as session:
            back = session.receiver(queue, prefetch=0).receive(timeout=NOTHING_S)
        observe("pre_settled", back is None)
        holder.close()


# -- attempts ----------------------------------------------------------------------------------------------------------


def counted(
    connection: acquit.Connection, queue: str, give_back: Callable[[acquit.ReceivedMessage], object]
) -> tuple[int, bool]:
    """How much the delivery count has grown when a message that was given back comes again, and whether first-acquirer
    told the first time from the second."""
    fill(connection, queue, "a")
    with connection.session(AckMode.INDIVIDUAL) as session:
        receiver = session.receiver(queue)
        message = receiver.receive(timeout=PATIENCE_S)
        assert message is not None
        before, first = message.delivery_count, message.first_acquirer
        give_back(message)
        again = receiver.receive(timeout=PATIENCE_S)
        assert again is not None
        again.accept()
        return again.delivery_count - before, first and not again.first_acquirer


def test_a_release_as_an_attempt(connection: acquit.Connection, queue: str, observe: Observer) -> None:
    count, told = counted(connection, queue, lambda message: message.release())
    observe("counts_released", count == 1)
    observe("first_acquirer_kept", told)


def test_a_failure_as_an_attempt(connection: acquit.Connection, queue: str, observe: Observer) -> None:
    count, _ = counted(connection, queue, lambda message: message.modify(delivery_failed=True))
    observe("counts_failed", count == 1)


def test_a_lost_connection_as_an_attempt(
    foreign: ForeignBroker, connection: acquit.Connection, queue: str, observe: Observer
) -> None:
    """Artemis does now this and now that; how often one has to look for both is chance."""
    counted = set()
    with connection.session() as session:
        for _ in range(LOOKS):
            fill(connection, queue, "a")
            with one_lost(foreign, queue), session.receiver(queue) as receiver:
                message = receiver.receive(timeout=PATIENCE_S)
                assert message is not None
                counted.add(message.delivery_count == 1)
            if len(counted) == 2:
                break
    observe("counts_lost_connection", "sometimes" if len(counted) == 2 else "yes" if counted == {True} else "no")


def test_the_default_outcome(
    foreign: ForeignBroker, connection: acquit.Connection, queue: str, observe: Observer
) -> None:
    """Accepted, by default, for who asked for that: then it is gone with its reader."""
    fill(connection, queue, "a")
    with one_lost(foreign, queue, ACCEPTED), connection.session() as session:
        back = session.receiver(queue, prefetch=0).receive(timeout=2)
        observe("default_outcome", back is None)


# -- looking and choosing ----------------------------------------------------------------------------------------------


def test_browsing(connection: acquit.Connection, queue: str, observe: Observer) -> None:
    fill(connection, queue, "a")
    looked, why = False, ""
    with connection.session() as session:
        try:
            seen = session.receiver(queue, browse=True).receive(timeout=PATIENCE_S)
            looked = seen is not None
        except LinkDetached as refused:
            why = str(refused)
    observe("browse", looked, why)
    with connection.session() as session:
        assert session.receiver(queue).receive(timeout=PATIENCE_S) is not None, "it is still there"


def test_selectors(connection: acquit.Connection, queue: str, observe: Observer) -> None:
    red, blue = (Message(colour, application_properties={"colour": colour}) for colour in ("red", "blue"))
    fill(connection, queue, red, blue)
    chosen, why = False, ""
    with connection.session() as session:
        try:
            found = session.receiver(queue, selector="colour = 'blue'").receive(timeout=PATIENCE_S)
            chosen = found is not None and found.body == "blue"
            assert chosen
        except EndpointError as refused:
            why = str(refused)
    observe("selector", chosen, why)


@pytest.mark.promise("no-lies")
@pytest.mark.parametrize("mode", [AckMode.NO_ACK, AckMode.INDIVIDUAL])
@pytest.mark.parametrize(
    "asked",
    [
        {"browse": True},
        {"selector": "colour = 'blue'"},
        {"filters": {"mine": Described(Symbol("mine:filter"), "blue")}},
        {"filters": {"subject": Described(Symbol("apache.org:legacy-amqp-direct-binding:string"), "blue")}},
    ],
    ids=["browse", "selector", "filter", "subject"],
)
def test_what_is_not_granted_takes_nothing(
    foreign: ForeignBroker, connection: acquit.Connection, queue: str, mode: AckMode, asked: dict[str, Any]
) -> None:
    """Neither what was not asked for, nor anything at all before the link is refused."""
    colour = {"colour": "red"}
    red = [Message(str(number), subject="red", application_properties=colour) for number in range(30)]
    fill(connection, queue, *red)
    with foreign.connect() as asking:
        try:
            receiver = asking.session(mode).receiver(queue, **asked)
        except EndpointError:
            pass
        else:
            seen = receiver.receive(timeout=PATIENCE_S if "browse" in asked else NOTHING_S)
            assert (seen is not None) is ("browse" in asked)
    with connection.session(AckMode.AUTO) as session, session.receiver(queue) as receiver:
        bodies = [message.body for _ in range(30) if (message := receiver.receive(timeout=PATIENCE_S)) is not None]
    assert sorted(bodies, key=str) == sorted(map(str, range(30)))


def test_a_queue_that_is_asked_for_as_a_topic(
    foreign: ForeignBroker, connection: acquit.Connection, queue: str, name: str
) -> None:
    """Nothing is taken from it for who wants copies, unless the broker repeats what it was asked for. Ours has both."""
    fill(connection, queue, "work")
    subscribed: dict[str, Any] = {"subscription": Subscription(name=f"{name}-s", shared=True)}
    for asked in [subscribed] if foreign.name == "rabbitmq" else [subscribed, {"topic": True}]:
        with pytest.raises(EndpointError) if foreign.name != "acquit" else nullcontext():
            connection.session().receiver(queue, **asked)
    with connection.session() as session:
        message = session.receiver(queue).receive(timeout=PATIENCE_S)
        assert message is not None and message.body == "work"


def test_no_local(foreign: ForeignBroker, connection: acquit.Connection, name: str, observe: Observer) -> None:
    topic = foreign.topic(name)
    session = connection.session()
    try:
        receiver = session.receiver(topic, topic=True, no_local=True)
    except EndpointError as refused:
        observe("no_local", False, str(refused))
        return
    fill(connection, topic, "mine")
    with foreign.connect() as other:
        fill(other, topic, "theirs")
    message = receiver.receive(timeout=PATIENCE_S)
    observe("no_local", message is not None and message.body == "theirs")


# -- kinds of nodes ----------------------------------------------------------------------------------------------------


def test_a_temporary_node(connection: acquit.Connection, observe: Observer) -> None:
    session = connection.session()
    try:
        receiver = session.receiver(None)
    except EndpointError as refused:
        observe("temporary_node", False, str(refused))
        return
    fill(connection, receiver.address or "", "an answer")
    message = receiver.receive(timeout=PATIENCE_S)
    observe("temporary_node", message is not None)


def test_the_anonymous_terminus(
    foreign: ForeignBroker, connection: acquit.Connection, queue: str, name: str, observe: Observer
) -> None:
    session = connection.session()
    try:
        sender = session.sender(None)
    except EndpointError as refused:
        observe("anonymous_terminus", False, str(refused))
        return
    sender.send(Message("a", to=queue))
    message = connection.session().receiver(queue).receive(timeout=PATIENCE_S)
    observe("anonymous_terminus", message is not None)


def test_an_address_that_nobody_made(connection: acquit.Connection, queue: str, name: str, observe: Observer) -> None:
    nowhere = queue.replace(name, f"{name}-nowhere")
    session = connection.session()
    try:
        session.sender(nowhere).send("a")
    except SessionEnded as ended:
        observe("unknown_address", "ends the session", str(ended))
    except LinkDetached as refused:
        observe("unknown_address", "refused", str(refused))
    except (MessageRejected, MessageReleased) as refused:
        observe("unknown_address", "refuses the message", str(refused))
    else:
        observe("unknown_address", "makes a queue")


# -- topics ------------------------------------------------------------------------------------------------------------


def test_a_topic(foreign: ForeignBroker, connection: acquit.Connection, name: str, observe: Observer) -> None:
    topic = foreign.topic(name)
    readers = [connection.session().receiver(topic, topic=True) for _ in range(2)]
    with connection.session() as session:
        session.sender(topic, topic=True).send("news")
    got = [reader.receive(timeout=PATIENCE_S) for reader in readers]
    observe("topic", [message.body for message in got if message is not None] == ["news", "news"])


def test_a_durable_subscription(foreign: ForeignBroker, name: str, observe: Observer) -> None:
    topic = foreign.topic(name)
    subscription = Subscription(name=f"{name}-kept")
    with foreign.connect(container_id=name) as reader:
        try:
            reader.session().receiver(topic, subscription=subscription).close()
        except EndpointError as refused:
            observe("durable_subscription", False, str(refused))
            return
    with foreign.connect() as writer:
        fill(writer, topic, "while nobody received")
    with foreign.connect(container_id=name) as reader, reader.session() as session:
        receiver = session.receiver(topic, subscription=subscription)
        kept = receiver.receive(timeout=3)
        receiver.close()
        observe("durable_subscription", kept is not None)


def test_a_shared_subscription(
    foreign: ForeignBroker, connection: acquit.Connection, name: str, observe: Observer
) -> None:
    """Each message goes to one of those who share it."""
    topic = foreign.topic(name)
    subscription = Subscription(name=f"{name}-shared", shared=True, durable=False)
    try:
        readers = [connection.session().receiver(topic, subscription=subscription, prefetch=1) for _ in range(2)]
    except EndpointError as refused:
        observe("shared_subscription", False, str(refused))
        return
    fill(connection, topic, *"abcd")
    got: list[str] = []
    while found := [message for reader in readers if (message := reader.receive(timeout=NOTHING_S)) is not None]:
        got += [str(message.body) for message in found]
    observe("shared_subscription", sorted(got) == list("abcd"), "".join(got))


# -- duplicates --------------------------------------------------------------------------------------------------------


def test_a_message_that_is_sent_again(connection: acquit.Connection, queue: str, observe: Observer) -> None:
    """As a client does whose first attempt was not answered; with the id that Artemis knows duplicates by."""
    identity = f"{uuid.uuid4()}"
    message = Message("a", message_id=identity, application_properties={"_AMQ_DUPL_ID": identity})
    fill(connection, queue, message, message)
    with connection.session() as session:
        receiver = session.receiver(queue)
        assert receiver.receive(timeout=PATIENCE_S) is not None
        observe("drops_duplicates", receiver.receive(timeout=NOTHING_S) is None)

"""Programs of the qpid.messaging API against the broker: sending, receiving, acknowledging, transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

import acquit
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.compat.qpid.messaging import (
    REJECTED,
    RELEASED,
    UNLIMITED,
    Connection,
    Constant,
    DecodeError,
    Disposition,
    Empty,
    EncodeError,
    InsufficientCapacity,
    LinkClosed,
    LinkError,
    Message,
    MessagingError,
    NontransactionalSession,
    ReceiverError,
    SendError,
    Session,
    SessionClosed,
    TargetCapacityExceeded,
    Timeout,
    TransactionAborted,
)
from acquit.store.options import JournalOptions
from acquit.testing import Proxy
from tests.support.qpid import LONG, depth, drained, eventually, fill, small
from tests.support.signalled import interrupted_at_each_call


@pytest.fixture
def url(broker: acquit.Broker) -> str:
    return f"127.0.0.1:{broker.port}"


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with closing(Connection.establish(url, timeout=LONG)) as connection:
        yield connection


@pytest.fixture
def session(connection: Connection) -> Session:
    return connection.session()


# -- acknowledgement ---------------------------------------------------------------------------------------------------


def test_hello(session: Session, address: str) -> None:
    sender, receiver = session.sender(address), session.receiver(address)
    sender.send(Message("Hello world!"))
    message = receiver.fetch(LONG)
    assert message.content == "Hello world!"
    session.acknowledge()
    assert drained(receiver) == []


@pytest.mark.parametrize("sync", [True, False])
def test_acknowledge_means_one_message_or_all(
    broker: acquit.Broker, session: Session, address: str, sync: bool
) -> None:
    fill(session, address, 4)
    receiver = session.receiver(address)
    messages = [receiver.fetch(0) for _ in range(4)]
    assert depth(broker, address) == (4, 4)
    session.acknowledge(messages[2], sync=sync)
    session.sync(LONG)
    assert depth(broker, address) == (3, 3)
    assert session.unacked == [messages[0], messages[1], messages[3]]
    session.acknowledge(sync=sync)
    session.sync(LONG)
    assert depth(broker, address) == (0, 0) and session.unacked == [] and receiver.unsettled() == 0
    with pytest.raises(ValueError, match="not a message of this session that is to be acknowledged"):
        session.acknowledge(messages[0])
    assert drained(receiver) == []


def test_messages_are_invisible_until_they_are_acknowledged(connection: Connection, url: str, address: str) -> None:
    session = connection.session()
    fill(session, address, 1)
    session.receiver(address).fetch(LONG)
    with closing(Connection.establish(url)) as other:
        rival = other.session().receiver(address)
        assert drained(rival) == []
        session.close()  # without an acknowledgement
        message = rival.fetch(LONG)
        assert message.content == "0" and message.redelivered


def test_a_disconnect_without_acknowledgement_redelivers(url: str, session: Session, address: str) -> None:
    fill(session, address, 2)
    other = Connection.establish(url)
    fetching = other.session()
    receiver = fetching.receiver(address)
    first, _ = receiver.fetch(LONG), receiver.fetch(LONG)
    fetching.acknowledge(first)
    other.detach()
    message = session.receiver(address).fetch(LONG)
    assert (message.content, message.redelivered) == ("1", True)


def test_released_messages_come_again(session: Session, address: str) -> None:
    fill(session, address, 2)
    receiver = session.receiver(address)
    first, second = receiver.fetch(LONG), receiver.fetch(LONG)
    assert not first.redelivered
    session.acknowledge(first, Disposition(RELEASED))
    session.acknowledge(second, Disposition(RELEASED, set_redelivered=True))
    again = [receiver.fetch(LONG), receiver.fetch(LONG)]
    assert [(message.content, message.redelivered) for message in again] == [("0", True), ("1", True)]


def test_rejected_messages_are_dead_letters_with_their_reason(url: str, address: str) -> None:
    options = BrokerOptions(
        journal=JournalOptions.small(), address=(AddressRule("#", {"dead_letter_address": "dead"}),)
    )
    with acquit.Broker(config=options) as broker, closing(Connection.establish(f"127.0.0.1:{broker.port}")) as own:
        session = own.session()
        fill(session, "q", 3)
        receiver = session.receiver("q")
        for disposition in (
            Disposition(REJECTED),
            Disposition(REJECTED, code=7, text="no such customer"),
            Disposition(REJECTED, code="orders:bad"),
        ):
            session.acknowledge(receiver.fetch(LONG), disposition)
        assert drained(receiver) == []
        with acquit.connect(broker.url) as reading, reading.session() as dead:
            letters = dead.receiver("dead")
            said = []
            for _ in range(3):
                letter = letters.receive(LONG)
                assert letter is not None
                said.append(str(letter.annotations.get("x-opt-acquit-attempts")))
        assert "no such customer" in said[1] and "qpid:7" in said[1] and "orders:bad" in said[2]


def test_a_closed_receiver_s_messages_can_still_be_acknowledged(
    broker: acquit.Broker, session: Session, address: str
) -> None:
    fill(session, address, 5)
    receiver = session.receiver(address, capacity=3)
    first, second = receiver.fetch(LONG), receiver.fetch(LONG)
    receiver.close()
    receiver.close()
    with pytest.raises(LinkClosed):
        receiver.fetch(0)
    eventually(lambda: depth(broker, address) == (5, 2))  # what was not fetched is back
    other = session.receiver(address)
    assert drained(other) == ["2", "3", "4"]
    session.acknowledge(first)
    session.acknowledge(second)
    assert depth(broker, address) == (3, 3)
    queue = broker.inspect().queue(address)
    assert queue is not None and queue.consumers == 1  # and the closed one is gone


@pytest.mark.parametrize("capacity", [0, 3])
def test_who_waits_hears_that_a_receiver_is_closed_whose_messages_are_not_all_acknowledged(
    session: Session, address: str, capacity: int
) -> None:
    fill(session, address, 1)
    receiver = session.receiver(address, capacity=capacity)
    message = receiver.fetch(LONG)
    told: list[type[BaseException]] = []

    def fetch() -> None:
        try:
            receiver.fetch(LONG)
        except MessagingError as exc:
            told.append(type(exc))

    waiting = threading.Thread(target=fetch)
    waiting.start()
    eventually(receiver._inner._core.has_waiters)  # type: ignore[union-attr]
    receiver.close()
    waiting.join(LONG / 2)
    assert told == [LinkClosed]
    session.acknowledge(message)


@pytest.mark.parametrize("capacity", [UNLIMITED, 1])
@pytest.mark.parametrize(
    "wrong", [{"code": "ä"}, {"code": "a:b", "text": "\ud800"}, {"code": "a:b", "text": "x" * 99_999}]
)
def test_a_disposition_that_cannot_be_told_leaves_the_message_as_it_was(
    broker: acquit.Broker, session: Session, address: str, wrong: dict[str, str], capacity: Constant | int
) -> None:
    session.ack_capacity = capacity
    fill(session, address, 2)
    receiver = session.receiver(address)
    messages = [receiver.fetch(LONG), receiver.fetch(LONG)]
    for message in (messages[0], None):
        with pytest.raises(MessagingError):
            session.acknowledge(message, Disposition(REJECTED, **wrong))
    assert session.unacked == messages
    session.acknowledge(messages[0])
    session.acknowledge()
    assert depth(broker, address) == (0, 0)


def test_ack_capacity(session: Session, address: str) -> None:
    fill(session, address, 5)
    receiver = session.receiver(address)
    messages = [receiver.fetch(LONG) for _ in range(5)]
    session.ack_capacity = 0
    with pytest.raises(InsufficientCapacity):
        session.acknowledge(sync=False)
    assert session.unacked == messages
    session.ack_capacity = 2
    session.acknowledge(disposition=Disposition(RELEASED), sync=False)
    assert receiver.unsettled() <= 2
    session.sync(LONG)
    assert drained(receiver) == ["0", "1", "2", "3", "4"]
    session.acknowledge(sync=False)
    session.sync(LONG)
    assert receiver.unsettled() == 0 and drained(receiver) == []


def test_two_consumers_compete(broker: acquit.Broker, url: str, address: str) -> None:
    """Each message is worked on by one of them, while both hold several unacknowledged."""
    fetched: dict[int, list[object]] = {0: [], 1: []}
    count = 60

    def work(number: int) -> None:
        with closing(Connection.establish(url)) as connection:
            session = connection.session()
            receiver = session.receiver(address, capacity=5)
            try:
                while True:
                    message = receiver.fetch(0.5)
                    fetched[number].append(message.content)
                    if len(fetched[number]) % 3 == 0:
                        session.acknowledge(sync=False)
            except Empty:
                session.acknowledge()

    with closing(Connection.establish(url)) as connection:
        fill(connection.session(), address, count)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert sorted(map(str, fetched[0] + fetched[1])) == sorted(str(number) for number in range(count))
    assert depth(broker, address) == (0, 0)


# -- receiving ---------------------------------------------------------------------------------------------------------


def test_capacity_0_fetches_one_at_a_time(broker: acquit.Broker, session: Session, address: str) -> None:
    fill(session, address, 3)
    receiver = session.receiver(address)
    assert receiver.capacity == 0 and receiver.available() == 0
    receiver.fetch(LONG)
    assert depth(broker, address) == (3, 1) and receiver.available() == 0


def test_capacity_bounds_what_waits_and_not_what_is_held(session: Session, address: str) -> None:
    fill(session, address, 30)
    receiver = session.receiver(address)
    receiver.capacity = 4
    assert receiver.capacity == 4
    eventually(lambda: receiver.available() == 4)
    messages = [receiver.fetch(LONG) for _ in range(30)]  # none is acknowledged meanwhile
    assert [message.content for message in messages] == [str(number) for number in range(30)]
    assert drained(receiver) == []
    session.acknowledge()
    receiver.capacity = UNLIMITED
    assert receiver.capacity is UNLIMITED
    fill(session, address, 3)
    eventually(lambda: receiver.available() == 3)
    receiver.capacity = 0
    fill(session, address, 1)
    assert receiver.available() == 3 and drained(receiver) == ["0", "1", "2", "0"]
    with pytest.raises(InsufficientCapacity):
        receiver.capacity = -1


def test_fetch_with_a_capacity_knows_that_there_is_nothing(session: Session, address: str) -> None:
    """What the broker has when `fetch` is called is fetched, also without waiting."""
    sender, receiver = session.sender(address), session.receiver(address, capacity=10)
    for number in range(20):
        sender.send(str(number))
        assert receiver.fetch(0).content == str(number)
        with pytest.raises(Empty):
            receiver.fetch(0)


def test_next_receiver(session: Session, address: str) -> None:
    receivers = [session.receiver(f"{address}.{number}", capacity=5) for number in range(3)]
    with pytest.raises(Empty):
        session.next_receiver(0)
    for number in (1, 0, 2, 1):
        fill(session, f"{address}.{number}", 1)
        eventually(lambda: sum(receiver.available() for receiver in receivers))
        found = session.next_receiver(LONG)
        assert found is receivers[number]
        found.fetch(0)
    threading.Timer(0.1, lambda: fill(session, f"{address}.2", 1)).start()
    assert session.next_receiver(LONG) is receivers[2]


def test_next_receiver_ends_with_the_session(session: Session, address: str) -> None:
    session.receiver(address, capacity=1)
    threading.Timer(0.1, session.close).start()
    with pytest.raises(SessionClosed):
        session.next_receiver(LONG)


def test_a_handler_hears_of_each_message(session: Session, address: str) -> None:
    told: list[Session] = []
    session.set_message_received_notify_handler(told.append)
    receiver = session.receiver(address, capacity=10)
    fill(session, address, 7)
    eventually(lambda: len(told) == 7)
    assert set(told) == {session} and len(drained(receiver)) == 7
    assert len(told) == 7


def test_browsing_takes_nothing(broker: acquit.Broker, session: Session, address: str) -> None:
    contents = fill(session, address, 3)
    for _ in range(2):
        browser = session.receiver(f"{address}; {{mode: browse}}")
        assert drained(browser) == contents
        session.acknowledge()
        browser.close()
    reliable = session.receiver(f"{address}; {{mode: browse, link: {{reliability: at-least-once}}}}")
    assert drained(reliable) == contents
    session.acknowledge()
    assert depth(broker, address) == (3, 0)


def test_unreliable_links(broker: acquit.Broker, session: Session, address: str) -> None:
    sender = session.sender(f"{address}; {{link: {{reliability: unreliable}}}}")
    receiver = session.receiver(f"{address}; {{link: {{reliability: at-most-once}}}}")
    sender.send("x")
    sender.send("y")
    message = receiver.fetch(LONG)
    assert depth(broker, address) == (1, 0)  # the one that was fetched is gone already
    for disposition in (Disposition(RELEASED), Disposition(REJECTED)):
        with pytest.raises(ReceiverError, match="is unreliable: what it sends is settled"):
            session.acknowledge(message, disposition)
    session.acknowledge(message)
    session.acknowledge()
    assert receiver.fetch(LONG).content == "y" and session.unacked == []


def test_selectors_and_subjects(session: Session, address: str) -> None:
    red = session.receiver(f"{address}; {{link: {{selector: \"colour = 'red'\"}}}}")
    sport = session.receiver(f"{address}/sport.*")
    rest = session.receiver(address)
    sender = session.sender(f"{address}/default")
    sender.send(Message("1", properties={"colour": "red"}))
    sender.send(Message("2", subject="sport.chess"))
    sender.send(Message("3", properties={"colour": "blue"}))
    assert drained(red) == ["1"] and drained(sport) == ["2"]
    message = rest.fetch(LONG)
    assert (message.content, message.subject) == ("3", "default")
    with pytest.raises(LinkError, match="selector"):
        session.receiver(f"{address}; {{link: {{selector: 'colour ='}}}}")


def test_a_message_that_cannot_be_read_is_rejected(
    broker: acquit.Broker, session: Session, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(session, address, 2)
    receiver = session.receiver(address)

    def fails(received: object) -> Message:
        raise acquit.errors.DecodeError("no application properties")

    with monkeypatch.context() as patched:
        patched.setattr("acquit.compat.qpid.links.from_wire", fails)
        with pytest.raises(DecodeError, match="no application properties"):
            receiver.fetch(LONG)
    assert receiver.fetch(LONG).content == "1"
    eventually(lambda: depth(broker, address) == (1, 1))


# -- sending -----------------------------------------------------------------------------------------------------------


def test_all_of_a_message_arrives(session: Session, address: str) -> None:
    sent = Message(
        {"text": "x", "list": [1, 2.5, None, True], "map": {"a": b"b"}},
        id="id",
        subject="s",
        reply_to="replies",
        correlation_id="c",
        durable=True,
        priority=7,
        ttl=1000,
        properties={"n": 1, "s": "x", "f": 0.5, "b": True, "none": None, "bytes": b"\x00"},
    )
    session.sender(address).send(sent)
    got = session.receiver(address).fetch(LONG)
    for name in "id subject reply_to correlation_id durable priority properties content content_type".split():
        assert getattr(got, name) == getattr(sent, name), name
    assert got.ttl is not None and 900 < got.ttl <= 1000 and not got.redelivered


def test_messages_are_durable_only_if_somebody_says_so(session: Session, address: str) -> None:
    plain, durable = session.sender(address), session.sender(address, durable=True)
    plain.send("x")
    plain.send(Message("x", durable=True))
    durable.send("x")
    durable.send(Message("x", durable=False))
    receiver = session.receiver(address)
    assert [receiver.fetch(LONG).durable for _ in range(4)] == [False, True, True, False]


def test_a_message_can_be_sent_on(session: Session, address: str) -> None:
    fill(session, address, 1)
    message = session.receiver(address).fetch(LONG)
    message.properties["seen"] = True
    session.sender(f"{address}.next").send(message)
    session.acknowledge(message)
    got = session.receiver(f"{address}.next").fetch(LONG)
    assert (got.content, got.properties, got.id) == ("0", {"seen": True}, message.id)


def test_sends_without_waiting(session: Session, address: str) -> None:
    sender = session.sender(address, capacity=5)
    for number in range(50):
        sender.send(str(number), sync=False)
        assert 0 <= sender.unsettled() <= 5
        room = sender.available()
        assert isinstance(room, int) and 0 <= room <= 5
    sender.sync(LONG)
    assert sender.unsettled() == 0 and sender.available() == 5
    assert session.sender(address).available() is UNLIMITED
    assert len(drained(session.receiver(address))) == 50
    with pytest.raises(InsufficientCapacity):
        session.sender(address, capacity=0).send("x")


def test_what_is_not_taken_is_raised_once() -> None:
    with (
        acquit.Broker(config=small(messages_max=2, full_policy="reject")) as broker,
        closing(Connection.establish(f"127.0.0.1:{broker.port}")) as connection,
    ):
        session = connection.session()
        sender = session.sender("small")
        for number in range(2):
            sender.send(str(number))
        with pytest.raises(TargetCapacityExceeded) as caught:
            sender.send("2")
        assert caught.value.code == "amqp:resource-limit-exceeded" and isinstance(caught.value, SendError)
        sender.send("3", sync=False)
        with pytest.raises(TargetCapacityExceeded):
            sender.sync(LONG)
        sender.sync(LONG)
        sender.send("4", sync=False)
        eventually(lambda: sender.unsettled() == 0)
        with pytest.raises(TargetCapacityExceeded):
            sender.send("5")
        receiver = session.receiver("small")
        assert drained(receiver) == ["0", "1"]
        session.acknowledge()
        sender.send("6")
        assert drained(receiver) == ["6"]


def test_a_full_queue_makes_senders_wait() -> None:
    with (
        acquit.Broker(config=small(messages_max=2)) as broker,
        closing(Connection.establish(f"127.0.0.1:{broker.port}")) as connection,
    ):
        session = connection.session()
        sender = session.sender("small", capacity=1)
        for number in range(2):
            sender.send(str(number))
        with pytest.raises(Timeout):
            sender.send("2", timeout=0.1)
        with pytest.raises(InsufficientCapacity):
            sender.send("3", timeout=0.1)
        receiver = session.receiver("small")
        assert drained(receiver) == ["0", "1"]
        session.acknowledge()
        sender.sync(LONG)
        assert drained(receiver) == ["2"]
        session.acknowledge()


@pytest.mark.parametrize(
    "message",
    [Message(object()), Message("x", properties={"nested": [1]}), Message({"x": object()}), Message(1, "text/plain")],
    ids=["content", "property", "map", "type"],
)
def test_what_amqp_cannot_hold_is_not_sent(session: Session, address: str, message: Message) -> None:
    sender = session.sender(address)
    with pytest.raises(EncodeError):
        sender.send(message)
    sender.send("y")
    assert drained(session.receiver(address)) == ["y"]


# -- transactions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_happens_or_does_not(connection: Connection, address: str, commits: bool) -> None:
    plain = connection.session()
    contents = fill(plain, address, 3)
    session = connection.session(transactional=True)
    receiver, sender = session.receiver(address, capacity=10), session.sender(f"{address}.copy")
    copies = plain.receiver(f"{address}.copy")
    for _ in contents:
        sender.send(receiver.fetch(LONG))
    session.acknowledge()
    assert drained(copies) == []
    if commits:
        session.commit(LONG)
        assert drained(copies) == contents and drained(receiver) == []
    else:
        session.rollback(LONG)
        assert drained(copies) == []
        again = [receiver.fetch(LONG) for _ in contents]
        assert [message.content for message in again] == contents and all(message.redelivered for message in again)


def test_a_commit_takes_along_what_was_acknowledged(
    broker: acquit.Broker, connection: Connection, address: str
) -> None:
    fill(connection.session(), address, 4)
    session = connection.session(transactional=True)
    receiver = session.receiver(address)
    messages = [receiver.fetch(LONG) for _ in range(3)]
    session.acknowledge(messages[0])
    session.acknowledge(messages[1], Disposition(RELEASED))
    session.commit(LONG)
    assert depth(broker, address) == (3, 1) and session.unacked == [messages[2]]
    assert receiver.fetch(LONG).content == "1"
    session.acknowledge(messages[2])  # in the next one
    session.commit(LONG)
    assert depth(broker, address) == (2, 1)
    session.rollback(LONG)
    assert drained(receiver) == ["1", "3"]


def test_what_is_acknowledged_during_a_commit_is_part_of_the_next_transaction(
    broker: acquit.Broker, address: str
) -> None:
    with Proxy(broker.url) as proxy, closing(Connection.establish(proxy.url)) as connection:
        fill(connection.session(), address, 2)
        session = connection.session(transactional=True)
        receiver = session.receiver(address)
        first, second = receiver.fetch(LONG), receiver.fetch(LONG)
        session.acknowledge(first)
        proxy.forget()
        proxy.stall(by="broker")
        committing = threading.Thread(target=session.commit)
        committing.start()
        proxy.wait_for("transfer", by="client", timeout_s=LONG)
        session.acknowledge(second, Disposition(RELEASED), sync=False)
        proxy.resume()
        committing.join(LONG)
        assert depth(broker, address) == (1, 1)
        session.commit(LONG)
        assert depth(broker, address) == (1, 0)  # it was not accepted


def test_a_commit_takes_along_nothing_that_is_being_fetched(
    broker: acquit.Broker, connection: Connection, address: str
) -> None:
    """Another thread has taken it, and has not seen it yet."""
    fill(connection.session(), address, 1)
    session = connection.session(transactional=True)
    receiver = session.receiver(address)
    assert receiver._inner is not None
    assert receiver._inner.receive(LONG) is not None
    session.commit(LONG)
    assert depth(broker, address) == (1, 1)
    session.rollback(LONG)
    assert drained(receiver) == ["0"]


def test_a_closed_receiver_s_messages_are_part_of_the_transaction(
    broker: acquit.Broker, connection: Connection, address: str
) -> None:
    fill(connection.session(), address, 5)
    session = connection.session(transactional=True)
    for ends, left in ((session.rollback, 5), (session.commit, 4)):
        receiver = session.receiver(address, capacity=2)
        message = receiver.fetch(LONG)
        receiver.close()
        if left == 4:
            session.acknowledge(message)
        ends(LONG)
        eventually(lambda left=left: depth(broker, address) == (left, 0))


def test_what_is_no_transaction(session: Session) -> None:
    for call in (session.commit, session.rollback):
        with pytest.raises(NontransactionalSession):
            call()


def test_a_send_that_was_refused_aborts_the_transaction() -> None:
    with (
        acquit.Broker(config=small(messages_max=1, full_policy="reject")) as broker,
        closing(Connection.establish(f"127.0.0.1:{broker.port}")) as connection,
    ):
        session = connection.session(transactional=True)
        sender = session.sender("small")
        with suppress(TargetCapacityExceeded):  # on a slow machine the next send hears of it
            for number in range(3):
                sender.send(str(number), sync=False)
        with pytest.raises(TransactionAborted):
            session.commit(LONG)
        sender.send("one")
        session.commit(LONG)
        assert drained(connection.session().receiver("small")) == ["one"]


# -- interrupts --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # interrupted on its way to `run`
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupted while it collects garbage
@pytest.mark.parametrize("what", ["send", "fetch", "acknowledge", "unsettled", "session", "detach"])
def test_an_interrupt_anywhere_leaves_the_connection_to_other_threads(what: str, connection: Connection) -> None:
    session = connection.session()
    sender, receiver = session.sender("q"), session.receiver("q", capacity=10)

    works: dict[str, Callable[[], object]] = {
        "send": lambda: sender.send("a"),
        "fetch": lambda: receiver.fetch(timeout=LONG),
        "acknowledge": session.acknowledge,
        "unsettled": receiver.unsettled,
        "session": lambda: connection.session("another"),
        "detach": lambda: connection.detach(LONG),
    }
    with ThreadPoolExecutor(1) as other:

        def use() -> None:
            connection.attach(LONG)
            sender.send("a", timeout=LONG)
            receiver.fetch(timeout=LONG)
            session.acknowledge()

        def look() -> None:
            other.submit(use).result(2 * LONG)
            sender.send("a", timeout=LONG)
            sender.send("a", timeout=LONG)

        look()
        interrupted_at_each_call(works[what], look)

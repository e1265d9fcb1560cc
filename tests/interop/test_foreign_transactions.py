"""TRANSACTED sessions on brokers that have transactions: all of it happens at the commit, or nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import acquit
from acquit import Accepted, AckMode, Message
from acquit.errors import TransactionRolledBack
from tests.interop.all_brokers import BROKERS
from tests.interop.foreign import ATTEMPTS_MAX, GRAVES, THRICE, ForeignBroker
from tests.interop.foreign_looks import PATIENCE_S, Bench, rest, take
from tests.interop.observations import Observer

WITH_TRANSACTIONS = [name for name, kind in BROKERS.items() if kind.can.transactions]

pytestmark = [
    pytest.mark.interop,
    pytest.mark.parametrize("foreign", WITH_TRANSACTIONS, indirect=True, scope="session"),
]


@pytest.fixture
def bench(foreign: ForeignBroker, address: str) -> Iterator[Bench]:
    graves = foreign.queue(GRAVES)
    queue = foreign.queue(f"{address}{THRICE}", max_delivery_attempts=ATTEMPTS_MAX, dead_letter=GRAVES)
    with foreign.connect() as connection:
        yield Bench(foreign, connection, queue, graves, foreign.queue(f"{address}.marker"))


@pytest.fixture
def other(foreign: ForeignBroker, address: str) -> str:
    """A second queue."""
    return foreign.queue(f"{address}.other")


@pytest.fixture
def session(bench: Bench) -> Iterator[acquit.Session]:
    with bench.connection.session(AckMode.TRANSACTED) as session:
        yield session


def names(left: list[tuple[object, int]]) -> list[str]:
    return sorted(str(body) for body, _ in left)


def test_what_several_senders_and_receivers_did_happens_at_the_commit(
    bench: Bench, session: acquit.Session, other: str, address: str
) -> None:
    out = [bench.broker.queue(f"{address}.out.{number}") for number in range(2)]
    bench.fill("a", "b")
    with bench.connection.session() as plain, plain.sender(other) as sender:
        sender.send("c")
    with session.transaction():
        receivers = session.receiver(bench.queue), session.receiver(other)
        got = [str(take(receivers[index]).body) for index in (0, 1, 0)]
        for queue in out:
            sender = session.sender(queue)
            assert sender.send(f"to {queue}") == Accepted()
            receipt = sender.send(f"again to {queue}", wait=False)
            assert isinstance(receipt.result(PATIENCE_S), Accepted)
            assert receipt.provisional
        assert [bench.left(0, queue) for queue in out] == [[], []], "nobody sees it before the commit"
    assert sorted(got) == ["a", "b", "c"]
    session.close()
    for queue in out:
        assert names(bench.left(2, queue)) == [f"again to {queue}", f"to {queue}"]
    assert bench.left(0) == bench.left(0, other) == []


def test_a_rollback_undoes_it_and_counts_the_attempt(
    bench: Bench, session: acquit.Session, other: str, observe: Observer
) -> None:
    bench.fill("a", "b", "c")
    receiver, sender = session.receiver(bench.queue), session.sender(other)
    assert (take(receiver).body, take(receiver).body) == ("a", "b")
    sender.send("never")
    session.rollback()
    again = [take(receiver) for _ in range(3)]
    assert sorted(str(message.body) for message in again) == ["a", "b", "c"]
    counts = {str(message.body): message.delivery_count for message in again}
    assert counts["c"] == 0, "it was only prefetched"
    order = "in order" if [message.body for message in again] == ["a", "b", "c"] else "in another order"
    observe("rolled_back", f"{order}, count {counts['a']}")
    session.commit()
    session.close()
    assert bench.left(0) == bench.left(0, other) == []


@pytest.mark.parametrize("end", ["session closed", "connection closed", "block raised"])
def test_what_is_not_committed_is_rolled_back(bench: Bench, other: str, end: str) -> None:
    bench.fill("a")
    connection = bench.broker.connect()
    session = connection.session(AckMode.TRANSACTED)
    try:
        with session.transaction():
            assert take(session.receiver(bench.queue)).body == "a"
            session.sender(other).send("never")
            if end == "block raised":
                raise ValueError(end)
            (session if end == "session closed" else connection).close()
            raise ValueError(end)
    except ValueError:
        pass
    session.close()
    connection.close()
    assert names(bench.left(1)) == ["a"]
    assert bench.left(0, other) == []


def test_one_transaction_after_the_other(bench: Bench, session: acquit.Session, other: str) -> None:
    bench.fill(*map(str, range(30)))
    receiver, sender = session.receiver(bench.queue, prefetch=8), session.sender(other)
    for number in range(15):
        for _ in range(2):
            sender.send(Message(body=take(receiver).body), wait=False)
        if number % 3 == 2:
            session.rollback()
        else:
            session.commit()
    while (message := receiver.receive(timeout=0.2)) is not None:
        sender.send(Message(body=message.body), wait=False)
    session.commit()
    session.close()
    assert names(bench.left(30, other)) == sorted(map(str, range(30)))
    assert bench.left(0) == []


def test_many_messages_in_one(bench: Bench, session: acquit.Session, other: str) -> None:
    bench.fill(*map(str, range(200)))
    receiver, sender = session.receiver(bench.queue, prefetch=50), session.sender(other)
    with session.transaction():
        for _ in range(200):
            sender.send(Message(body=take(receiver).body), wait=False)
    session.close()
    assert [str(body) for body, _ in bench.left(200, other)] == list(map(str, range(200)))


@pytest.mark.parametrize("verb", ["reject", "release", "modify"])
def test_other_outcomes_belong_to_it_as_well(
    bench: Bench, session: acquit.Session, verb: str, observe: Observer
) -> None:
    bench.fill("a")
    receiver = session.receiver(bench.queue, prefetch=0)
    message = take(receiver)
    receipt = {
        "reject": lambda: message.reject("amqp:decode-error", "unfit"),
        "release": message.release,
        "modify": lambda: message.modify(delivery_failed=True),
    }[verb]()
    assert receipt.count == 1
    assert bench.left(0) == [], "nothing is said of it before the commit"
    session.commit()
    session.close()
    place, found = bench.becomes("a")
    observe(
        f"transacted_{verb}", place if found is None or place != "again" else f"again, count {found.delivery_count}"
    )


def test_a_refused_send_that_nobody_has_heard_of_voids_the_transaction(bench: Bench, session: acquit.Session) -> None:
    bench.fill("a")
    take(session.receiver(bench.queue))
    # To nowhere: by the anonymous terminus it is the message that is refused, not the link.
    session.sender(None).send(Message(body="lost"), wait=False)
    with pytest.raises(TransactionRolledBack):
        session.commit()
    session.close()
    assert names(bench.left(1)) == ["a"]


def test_sessions_have_transactions_of_their_own(bench: Bench, other: str) -> None:
    with bench.connection.session("TRANSACTED") as one, bench.connection.session("TRANSACTED") as two:
        one.sender(other).send("one")
        two.sender(other).send("two")
        one.rollback()
        two.commit()
    assert names(bench.left(1, other)) == ["two"]


def test_what_is_rolled_back_too_often_is_dead(bench: Bench, session: acquit.Session, observe: Observer) -> None:
    bench.fill("poison")
    receiver = session.receiver(bench.queue)
    for _ in range(ATTEMPTS_MAX):
        take(receiver)
        session.rollback()
    assert list(rest(receiver)) == []
    session.close()
    observe("rolled_back_too_often", bench.becomes("poison")[0])

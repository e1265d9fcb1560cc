"""Every acknowledgement mode of our client on brokers that we did not write: what is gone, and what comes again."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

import acquit
from acquit import AckMode, ConnectOptions, DeliveryMode, Message, ReceiptStatus
from acquit.errors import AuthenticationFailed, ConfigurationError, ConnectionFailed, CreditExhausted, EndpointError
from tests.interop.foreign import ForeignBroker
from tests.interop.foreign_looks import PATIENCE_S, Bench, rest, take
from tests.interop.observations import Observer

pytestmark = pytest.mark.interop

ABCDE = ("a", "b", "c", "d", "e")
EXPLICIT = (AckMode.CLIENT, AckMode.INDIVIDUAL)
TRANSACTED_OUTCOMES = ("transacted_reject", "transacted_release", "transacted_modify")
BY_ITSELF = (AckMode.AUTO, AckMode.DUPS_OK, AckMode.PRE_ACK)


@pytest.fixture
def bench(foreign: ForeignBroker, address: str) -> Iterator[Bench]:
    queue, marker = foreign.queue(address), foreign.queue(f"{address}.marker")
    with foreign.connect() as connection:
        yield Bench(foreign, connection, queue, None, marker)


def bodies(left: list[tuple[object, int]]) -> list[str]:
    return sorted(str(body) for body, _ in left)


# -- what closing leaves -----------------------------------------------------------------------------------------------


@pytest.mark.promise("at-least-once")
@pytest.mark.parametrize("closed", ["receiver", "session", "connection"])
@pytest.mark.parametrize("mode", EXPLICIT)
def test_what_was_handed_out_and_not_acknowledged_has_failed(bench: Bench, mode: AckMode, closed: str) -> None:
    bench.fill(*ABCDE)
    connection = bench.broker.connect()
    session = connection.session(mode)
    receiver = session.receiver(bench.queue)
    assert receiver.drain(PATIENCE_S)  # all five are in the buffer
    assert (take(receiver).body, take(receiver).body) == ("a", "b")
    {"receiver": receiver, "session": session, "connection": connection}[closed].close()
    assert sorted(bench.left(5)) == [("a", 1), ("b", 1), ("c", 0), ("d", 0), ("e", 0)]
    connection.close()


@pytest.mark.parametrize("closed", ["receiver", "session", "connection"])
@pytest.mark.parametrize("mode", BY_ITSELF)
def test_what_was_handed_out_is_gone_and_what_was_prefetched_comes_again(
    bench: Bench, mode: AckMode, closed: str
) -> None:
    bench.fill(*ABCDE)
    connection = bench.broker.connect()
    session = connection.session(mode)
    receiver = session.receiver(bench.queue)
    assert receiver.drain(PATIENCE_S)
    assert (take(receiver).body, take(receiver).body) == ("a", "b")
    {"receiver": receiver, "session": session, "connection": connection}[closed].close()
    assert sorted(bench.left(3)) == [("c", 0), ("d", 0), ("e", 0)]
    connection.close()


def test_what_was_sent_to_who_never_acknowledges_is_gone(bench: Bench) -> None:
    bench.fill(*ABCDE)
    with bench.connection.session(AckMode.NO_ACK) as session, session.receiver(bench.queue) as receiver:
        assert receiver.drain(PATIENCE_S)
        message = take(receiver)
        assert message.settled
        assert message.acknowledge().count == 0
    assert bench.left(0) == []


@pytest.mark.parametrize("mode", BY_ITSELF)
def test_acknowledging_by_itself(bench: Bench, mode: AckMode) -> None:
    bench.fill(*map(str, range(120)))
    with bench.connection.session(mode) as session, session.receiver(bench.queue, prefetch=50) as receiver:
        assert [take(receiver).body for _ in range(120)] == [str(number) for number in range(120)]
        receipt = session.acknowledge()
        assert (receipt.count, receipt.status) == (0, ReceiptStatus.SENT)
    assert bench.left(0) == []


# -- acknowledging -----------------------------------------------------------------------------------------------------


def test_client_acknowledges_all_that_the_session_has_handed_out(bench: Bench, address: str) -> None:
    second = bench.broker.queue(f"{address}.second")
    bench.fill(*ABCDE)
    with bench.connection.session(AckMode.CLIENT) as session:
        session.sender(second).send("other")
        one, two = session.receiver(bench.queue), session.receiver(second)
        a, _, other, c = take(one), take(one), take(two), take(one)
        assert session.acknowledge(a).count == 1
        receipt = c.acknowledge()
        assert (receipt.count, receipt.status) == (3, ReceiptStatus[bench.broker.can.acknowledgement.upper()])
        assert other.settled
        assert other.acknowledge().count == 0
    assert bodies(bench.left(2)) == ["d", "e"]
    assert bench.left(0, second) == []


def test_individual_acknowledges_one(bench: Bench) -> None:
    bench.fill(*ABCDE)
    with bench.connection.session(AckMode.INDIVIDUAL) as session, session.receiver(bench.queue) as receiver:
        messages = {str(message.body): message for message in (take(receiver) for _ in range(5))}
        for body in "dbe":
            receipt = messages[body].acknowledge()
            assert (receipt.count, receipt.status) == (1, ReceiptStatus[bench.broker.can.acknowledgement.upper()])
        assert messages["b"].acknowledge().count == 0
    assert sorted(bench.left(2)) == [("a", 1), ("c", 1)]


@pytest.mark.parametrize("mode", EXPLICIT)
def test_many_acknowledgements_under_way(bench: Bench, mode: AckMode) -> None:
    bench.fill(*map(str, range(300)))
    with bench.connection.session(mode) as session, session.receiver(bench.queue, prefetch=40) as receiver:
        receipts = [take(receiver).acknowledge(sync=False) for _ in range(300)]
        assert {receipt.result(PATIENCE_S) for receipt in receipts} == {
            ReceiptStatus[bench.broker.can.acknowledgement.upper()]
        }
        assert sum(receipt.count for receipt in receipts) == 300
    assert bench.left(0) == []


def test_recovered_messages_come_first_and_the_broker_is_not_asked(bench: Bench) -> None:
    bench.fill(*ABCDE)
    with bench.connection.session(AckMode.CLIENT) as session, session.receiver(bench.queue) as receiver:
        assert [take(receiver).body for _ in range(3)] == ["a", "b", "c"]
        assert session.recover() == 3
        again = [take(receiver) for _ in range(5)]
        assert [(message.body, message.delivery_count) for message in again] == [
            ("a", 1),
            ("b", 1),
            ("c", 1),
            ("d", 0),
            ("e", 0),
        ]
        assert again[-1].acknowledge().count == 5
    assert bench.left(0) == []


def test_a_listener_that_fails_gets_it_again_and_the_broker_has_counted(bench: Bench) -> None:
    bench.fill("a", "b")
    seen = []
    with bench.connection.session(AckMode.AUTO) as session, session.receiver(bench.queue) as receiver:

        def handle(message: acquit.ReceivedMessage) -> None:
            seen.append((str(message.body), message.delivery_count))
            if seen[-1] == ("a", 0):
                raise ValueError("the first attempt fails")
            if len(seen) == 3:
                message.accept()
                receiver.close()

        receiver.listen(handle)
    assert sorted(seen) == [("a", 0), ("a", 1), ("b", 0)]
    assert bench.left(0) == []


# -- credit ------------------------------------------------------------------------------------------------------------


def test_without_prefetch_nobody_holds_what_nobody_asked_for(bench: Bench) -> None:
    bench.fill(*ABCDE)
    with bench.connection.session(AckMode.INDIVIDUAL) as session:
        one, two = session.receiver(bench.queue, prefetch=0), session.receiver(bench.queue, prefetch=0)
        got = [take(one), take(two), take(one)]
        for message in got:
            message.accept()
        bench.said(session)
        with session.receiver(bench.queue) as three:
            rest_ = list(rest(three))
            assert sorted([str(m.body) for m in [*got, *rest_]]) == list(ABCDE)
            session.acknowledge()
        assert one.receive(timeout=0.05) is None
        bench.fill("late")
        late = take(two)
        assert late.body == "late", "the first receiver gave its credit back"
        late.accept()


def test_drain_says_that_there_is_no_more(bench: Bench, observe: Observer) -> None:
    with bench.connection.session(AckMode.AUTO) as session, session.receiver(bench.queue) as receiver:
        answered = receiver.drain(PATIENCE_S)
        assert receiver.receive(timeout=0) is None
        bench.fill(*ABCDE)
        assert sorted(str(message.body) for message in (take(receiver) for _ in ABCDE)) == list(ABCDE)
        assert receiver.drain(PATIENCE_S) is answered
        observe("drain", answered)


def test_whether_a_flow_that_asks_is_answered(bench: Bench, observe: Observer) -> None:
    bench.fill(*ABCDE)
    with bench.connection.session(AckMode.CLIENT) as session, session.receiver(bench.queue, prefetch=2) as receiver:
        take(receiver)
        answered = receiver.refresh(timeout=1)
        observe("echo", answered)
        observe("available", answered and receiver.available == 3)


@pytest.mark.parametrize("mode", EXPLICIT)
def test_who_acknowledges_nothing_gets_no_more_and_is_told(bench: Bench, mode: AckMode) -> None:
    bench.fill(*ABCDE)
    with bench.connection.session(mode) as session, session.receiver(bench.queue, prefetch=2) as receiver:
        assert [take(receiver).body for _ in range(2)] == ["a", "b"]
        with pytest.raises(CreditExhausted):
            receiver.receive(timeout=0.1)
        session.acknowledge()
        assert [take(receiver).body for _ in range(2)] == ["c", "d"]


# -- sending -----------------------------------------------------------------------------------------------------------


def test_large_messages_cross_in_many_frames(bench: Bench) -> None:
    body = os.urandom(1024) * 2000
    small = ConnectOptions(max_frame_size=4096, reconnect=None)
    with bench.broker.connect(options=small) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        sender, receiver = session.sender(bench.queue), session.receiver(bench.queue, prefetch=2)
        for number in range(3):
            sender.send(Message(body=body, subject=str(number)), wait=False)
        sender.flush(PATIENCE_S)
        for number in range(3):
            message = take(receiver)
            assert (message.subject, message.body == body) == (str(number), True)
            message.accept()


@pytest.mark.parametrize("delivery_mode", list(DeliveryMode))
def test_many_sends_under_way(bench: Bench, delivery_mode: DeliveryMode, observe: Observer) -> None:
    with bench.connection.session(AckMode.AUTO) as session:
        with session.sender(bench.queue, delivery_mode=delivery_mode) as sender:
            receipts = [sender.send(str(number), wait=False) for number in range(500)]
            sender.flush(PATIENCE_S)
            assert all(receipt.done for receipt in receipts)
        with session.receiver(bench.queue) as receiver:
            messages = [take(receiver) for _ in range(500)]
    assert [message.body for message in messages] == [str(number) for number in range(500)]
    (durable,) = {message.durable for message in messages}
    if delivery_mode is DeliveryMode.PERSISTENT:
        assert durable
    else:
        observe("non_persistent_kept", not durable)


def test_threads_share_a_session(bench: Bench) -> None:
    with bench.connection.session(AckMode.INDIVIDUAL) as session:
        sender, receiver = session.sender(bench.queue), session.receiver(bench.queue)
        got: list[str] = []

        def send(start: int) -> None:
            for number in range(start, start + 50):
                sender.send(str(number))

        def process() -> None:
            for _ in range(50):
                message = take(receiver)
                got.append(str(message.body))
                message.accept(sync=False)

        threads = [threading.Thread(target=send, args=(start,)) for start in (0, 50)]
        threads += [threading.Thread(target=process) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got, key=int) == [str(number) for number in range(100)]
    assert bench.left(0) == []


# -- logging in --------------------------------------------------------------------------------------------------------


def test_ways_to_log_in(foreign: ForeignBroker, observe: Observer) -> None:
    ways = []
    for mechanism in ("SCRAM-SHA-256", "PLAIN"):
        try:
            with foreign.connect(options=ConnectOptions(sasl_mechanisms=(mechanism,), reconnect=None)) as connection:
                connection.session()
        except (AuthenticationFailed, ConfigurationError):
            continue
        ways.append(mechanism)
        with pytest.raises(AuthenticationFailed):
            foreign.connect(options=ConnectOptions(sasl_mechanisms=(mechanism,), reconnect=None), password="wrong")
    try:
        with foreign.connect(username=None, password=None) as connection:
            connection.session()
    except ConnectionFailed:
        pass
    else:
        ways.append("ANONYMOUS")
    observe("login", ", ".join(ways))


# -- transactions ------------------------------------------------------------------------------------------------------


def test_whether_there_are_transactions(bench: Bench, observe: Observer) -> None:
    """What they do, see `test_foreign_transactions`."""
    bench.fill("a")
    try:
        session = bench.connection.session(AckMode.TRANSACTED)
    except EndpointError as exc:
        observe("transactions", False, str(exc))
        for capability in ("rolled_back", "rolled_back_too_often", "commit_without_answer", *TRANSACTED_OUTCOMES):
            observe(capability, "no transactions")
        return
    with session, session.transaction():
        take(session.receiver(bench.queue))
    assert bench.left(0) == []
    observe("transactions", True)

"""Every outcome, and what brokers make of it: the table in docs/brokers.md says what this saw.

Receivers that are closed with an outcome on its way have no prefetch: a message that crosses the detach is a failed
attempt to some brokers, and none to others.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import acquit
from acquit import Accepted, AckMode, Modified, ReceiptStatus, Rejected, Released
from acquit.errors import AlreadySettled, EndpointError, Unreliable
from tests.interop.foreign import ATTEMPTS_MAX, GRAVES, THRICE, ForeignBroker
from tests.interop.foreign_looks import Bench, rest, take
from tests.interop.observations import Observer

pytestmark = pytest.mark.interop


@pytest.fixture
def bench(foreign: ForeignBroker, address: str) -> Iterator[Bench]:
    graves = foreign.queue(GRAVES)
    queue = foreign.queue(f"{address}{THRICE}", max_delivery_attempts=ATTEMPTS_MAX, dead_letter=GRAVES)
    with foreign.connect() as connection:
        yield Bench(foreign, connection, queue, graves, foreign.queue(f"{address}.marker"))


@pytest.fixture
def session(bench: Bench) -> Iterator[acquit.Session]:
    with bench.connection.session(AckMode.INDIVIDUAL) as session:
        yield session


def test_accepted_is_gone_and_the_receipt_says_what_is_known(
    bench: Bench, session: acquit.Session, observe: Observer
) -> None:
    bench.fill("a", "b")
    with session.receiver(bench.queue) as receiver:
        one = take(receiver).accept()
        two = take(receiver).accept(sync=False)
        assert one.status is not None
        assert two.result(timeout=20) is one.status
    bench.said(session)
    assert bench.left(0) == []
    observe("acknowledgement", one.status.name.lower())


def test_rejected(bench: Bench, session: acquit.Session, observe: Observer) -> None:
    bench.fill("bad")
    with session.receiver(bench.queue, prefetch=0) as receiver:
        take(receiver).reject("amqp:decode-error", "for a reason")
    bench.said(session)
    place, message = bench.becomes("bad")
    observe("rejected", place)
    said = repr([message.annotations, message.delivery_annotations, message.application_properties]) if message else ""
    observe("rejected_reason_kept", "for a reason" in said)


def test_rejected_with_a_condition_of_ones_own(bench: Bench, session: acquit.Session, observe: Observer) -> None:
    bench.fill("bad")
    receiver = session.receiver(bench.queue)
    receipt = take(receiver).reject("test:unfit")
    try:
        bench.said(session)
    except EndpointError as exc:
        assert receipt.status is ReceiptStatus.UNKNOWN
        observe("own_condition", "ends the connection", str(exc).partition(":")[0])
    else:
        observe("own_condition", "as any")
        bench.becomes("bad")


def test_released_comes_again(bench: Bench, session: acquit.Session) -> None:
    bench.fill("first", "second")
    with session.receiver(bench.queue) as receiver:
        take(receiver).release()
        assert {str(take(receiver).body) for _ in range(2)} == {"first", "second"}


def test_where_released_goes(bench: Bench, session: acquit.Session, observe: Observer) -> None:
    bench.fill("first", "second", "third")
    with session.receiver(bench.queue, prefetch=0) as receiver:
        take(receiver).release()
        bench.said(session)
    left = [body for body, _ in bench.left(3)]
    assert sorted(map(str, left)) == ["first", "second", "third"]
    observe("released_place", "its old place" if left[0] == "first" else "another")


def test_failed_attempts_are_counted_up_to_a_limit(bench: Bench, session: acquit.Session, observe: Observer) -> None:
    bench.fill("failing")
    counts = []
    with session.receiver(bench.queue) as receiver:
        for _ in range(ATTEMPTS_MAX):
            message = take(receiver)
            counts.append(message.delivery_count)
            message.modify(delivery_failed=True)
    bench.said(session)
    assert counts == list(range(ATTEMPTS_MAX))
    place, _ = bench.becomes("failing")
    observe("attempts", place)


def test_modified_without_a_failure(bench: Bench, session: acquit.Session, observe: Observer) -> None:
    bench.fill("fine")
    with session.receiver(bench.queue, prefetch=0) as receiver:
        take(receiver).modify()
    bench.said(session)
    place, message = bench.becomes("fine")
    observe("modified", place if message is None else f"{place}, count {message.delivery_count}")


def test_undeliverable_here(bench: Bench, session: acquit.Session, observe: Observer) -> None:
    bench.fill("not for me")
    with session.receiver(bench.queue) as receiver:
        take(receiver).modify(undeliverable_here=True)
        bench.said(session)
        here = list(rest(receiver))
        for message in here:
            message.release()
        bench.said(session)
        place, message = bench.becomes("not for me")
    value = "the same receiver" if here else "another receiver" if place == "again" else place
    observe("undeliverable_here", value)


def test_annotations_of_modified(bench: Bench, session: acquit.Session, observe: Observer) -> None:
    bench.fill("noted")
    with session.receiver(bench.queue, prefetch=0) as receiver:
        take(receiver).modify(delivery_failed=True, annotations={"x-opt-note": "seen", "x-opt-number": 5})
    bench.said(session)
    place, message = bench.becomes("noted")
    assert place == "again"
    assert message is not None
    kept = (message.annotations.get("x-opt-note"), message.annotations.get("x-opt-number")) == ("seen", 5)
    observe("modified_annotations", kept)


def test_many_at_once_and_out_of_order(bench: Bench, session: acquit.Session) -> None:
    bench.fill(*map(str, range(40)))
    with session.receiver(bench.queue, prefetch=100) as receiver:
        messages = [take(receiver) for _ in range(40)]
        odd = session.settle(messages[1::2][::-1], Accepted())
        even = session.settle(messages[::2], Released())
        assert (odd.count, even.count) == (20, 20)
        assert ReceiptStatus.UNKNOWN not in (odd.result(20), even.result(20))
        bench.said(session)
    assert sorted(str(body) for body, _ in bench.left(20)) == sorted(map(str, range(0, 40, 2)))


@pytest.mark.parametrize("outcome", [Accepted(), Rejected(), Released(), Modified(delivery_failed=True)], ids=str)
def test_an_outcome_is_said_once(bench: Bench, session: acquit.Session, outcome: acquit.Accepted) -> None:
    bench.fill("once")
    with session.receiver(bench.queue) as receiver:
        message = take(receiver)
        session.settle([message], outcome)
        with pytest.raises(AlreadySettled):
            message.accept()


def test_who_takes_messages_settled_has_no_say(bench: Bench) -> None:
    bench.fill("a")
    with bench.connection.session(AckMode.NO_ACK) as session, session.receiver(bench.queue) as receiver:
        message = take(receiver)
        with pytest.raises(Unreliable):
            message.reject()
    assert bench.left(0) == []

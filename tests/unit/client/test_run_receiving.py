from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from sys import getrefcount
from typing import Any

import pytest

from acquit import errors
from acquit.client.options import ConnectOptions
from acquit.client.receipts import ReceiptStatus
from acquit.client.run_receiving import RunReceiverCore
from acquit.client.session import SessionCore
from acquit.protocol import events as ev
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Modified, Rejected
from acquit.protocol.message import Message
from tests.support.joined import Joined
from tests.support.server import Rig, Server, receiver_spec, sender_spec


def runs_of(rig: Rig, **changes: Any) -> tuple[SessionCore, RunReceiverCore]:
    """A session, and a receiver of payloads from `q`."""
    session = rig.session("individual")
    receiver = rig.receiver(session, in_runs=True, **({"prefetch": 100} | changes))
    assert isinstance(receiver, RunReceiverCore)
    return session, receiver


def rig_of(
    *bodies: str, options: ConnectOptions | None = None, **changes: Any
) -> tuple[Rig, SessionCore, RunReceiverCore]:
    """The same with these messages at the client, all but the first two of which came together."""
    server = Server()
    server.options = replace(server.options, initial_serial=1_000)
    rig = Rig(server, options)
    session, receiver = runs_of(rig, **changes)
    rig.server.offer("q", bodies[0])
    rig.run()
    rig.server.offer("q", *bodies[1:])
    rig.run()
    return rig, session, receiver


def bodies(payloads: Sequence[bytes] | None) -> list[object]:
    return [Message.decode(payload).body for payload in payloads or ()]


def take_all(receiver: RunReceiverCore, count: int = 100) -> list[object]:
    taken: list[object] = []
    while len(taken) < count and (payloads := receiver.take_payloads(count - len(taken))):
        taken += bodies(payloads)
    return taken


def outcomes(rig: Rig) -> dict[object, object]:
    return {body: state for body, state, _ in rig.server.outcomes()}


def test_what_came_together_is_handed_out_and_settled_together() -> None:
    rig, _, receiver = rig_of(*"abcdefgh")
    assert [len(lot.payloads) for lot in receiver.buffer] == [1, 7], "the first is looked at by itself"
    assert take_all(receiver) == [*"abcdefgh"] and receiver.take_payloads(1) is None
    receipt = receiver.settle_numbers([(0, 8)], ACCEPTED)
    assert receipt.count == 8 and not receipt.done and receiver.held == 8
    rig.run()
    assert receipt.status is ReceiptStatus.ANSWERED
    assert outcomes(rig) == dict.fromkeys("abcdefgh", ACCEPTED)
    assert len(rig.server.all(ev.StatesReceived)) == 1, "one disposition"
    assert (receiver.held, receiver.held_bytes, receiver.link.unsettled_count) == (0, 0, 0)


def test_who_takes_payloads_is_the_only_one_that_has_them() -> None:
    rig, _, receiver = rig_of(*"abcdefgh")
    taken = [payload for _ in range(2) for payload in receiver.take_payloads(5) or ()]
    assert bodies(taken) == [*"abcdef"]
    # Known to the list, to the loop and to the function that counts, as far as this Python counts the latter two.
    assert {getrefcount(payload) for payload in taken} == {getrefcount(other) for other in [bytes(range(9))]}
    assert receiver.held_bytes == sum(map(len, taken)) + 2 * len(taken[-1])
    assert bodies(receiver.take_payloads(5)) == [*"gh"]
    receiver.settle_numbers([(2, 4)], RELEASED)
    rig.run()
    assert receiver.held_bytes == 6 * len(taken[-1])


def test_some_are_settled_by_their_numbers() -> None:
    rig, _, receiver = rig_of(*"abcdefgh")
    assert take_all(receiver, 3) == [*"abc"] and take_all(receiver) == [*"defgh"]
    rejected, accepted = Rejected(), receiver.settle_numbers([(1, 3), (4, 6)], ACCEPTED)
    rest = receiver.settle_numbers([(0, 1), (3, 4), (6, 8)], rejected)
    rig.run()
    assert (accepted.status, rest.status) == (ReceiptStatus.ANSWERED, ReceiptStatus.ANSWERED)
    assert outcomes(rig) == dict.fromkeys("bcef", ACCEPTED) | dict.fromkeys("adgh", rejected)
    assert (receiver.held, receiver.link.unsettled_count) == (0, 0)


def test_the_first_outcome_stands() -> None:
    rig, _, receiver = rig_of(*"abcd")
    take_all(receiver, 3)
    first = receiver.settle_numbers([(1, 2)], ACCEPTED)
    second = receiver.settle_numbers([(0, 4)], RELEASED)
    rig.run()
    assert first.status is ReceiptStatus.ANSWERED
    assert (second.status, second.reason) == (ReceiptStatus.STALE, "it has its outcome already")
    assert outcomes(rig) == {"a": RELEASED, "b": ACCEPTED, "c": RELEASED}, "d was not handed out"
    assert receiver.settle_numbers([], ACCEPTED).done


def test_what_the_peer_takes_back_is_not_handed_out_and_its_outcome_is_stale() -> None:
    rig, _, receiver = rig_of(*"abcdefgh")
    assert take_all(receiver, 3) == [*"abc"]
    sent = rig.peer.sending.unsettled()
    for at in (1, 4, 5):
        sent[at].update(Modified(delivery_failed=True))
    sent[7].settle(RELEASED)
    rig.run()
    assert take_all(receiver) == [*"deg"[:1], "g"]
    rig.run()
    assert receiver.held == 3 + 2
    receipt = receiver.settle_numbers([(0, 5)], ACCEPTED)
    rig.run()
    assert (receipt.status, receipt.reason) == (ReceiptStatus.STALE, "the peer had settled it before")
    assert {body for body, state in outcomes(rig).items() if state == ACCEPTED} == set("acdg")
    assert (receiver.held, receiver.held_bytes, receiver._withdrawn) == (0, 0, set())
    rig.server.offer("q", "i")
    rig.run()
    assert take_all(receiver) == ["i"]


def test_what_the_peer_takes_back_is_forgotten_once_it_has_settled_it() -> None:
    rig, _, receiver = rig_of(*"abcdefgh")
    sent = rig.peer.sending.unsettled()
    for at in (2, 3):
        sent[at].update(Modified(delivery_failed=True))
    rig.server.answers = False
    rig.run()
    assert take_all(receiver) == [*"abefgh"]
    rig.run()
    for at in (2, 3):
        sent[at].settle()
    rig.run()
    receiver.settle_numbers([(0, 6)], ACCEPTED)
    rig.run()
    assert receiver._withdrawn == set()


def test_outcomes_of_a_lost_connection_say_nothing_of_the_next() -> None:
    """The delivery-ids of a new session begin where those of the old one did."""
    joined = Joined(options=ConnectOptions())
    session = joined.session("individual")
    receiver = session.add_receiver(receiver_spec("q", in_runs=True, prefetch=100))
    assert isinstance(receiver, RunReceiverCore)
    sender = joined.session("auto").add_sender(sender_spec(buffer_messages=1_000))
    joined.run()
    for number in range(6):
        joined.send(sender, str(number))
    joined.run()
    assert len(take_all(receiver)) == 6
    joined.cut()
    joined.restore()
    joined.run()
    session.on_answers([receiver.link.unsettled()[3]], RELEASED, True)
    late = receiver.settle_numbers([(0, 6)], ACCEPTED)
    joined.run()
    assert late.status is ReceiptStatus.STALE
    assert take_all(receiver) == [*"012", "4", "5"], "the peer has taken back 3"


def test_an_answer_that_names_another_outcome_is_stale() -> None:
    rig, _, receiver = rig_of(*"abcd")
    rig.server.answers = False
    take_all(receiver)
    receipt = receiver.settle_numbers([(0, 4)], ACCEPTED)
    rig.run()
    link = rig.peer.sending
    link.session.settle_all(link.unsettled(), RELEASED)
    rig.run()
    assert (receipt.status, receipt.reason) == (ReceiptStatus.STALE, "the peer had settled it before, as released")


def test_the_close_gives_back_what_has_no_outcome_and_waits_for_the_answers() -> None:
    rig, session, receiver = rig_of(*"abcdefgh")
    take_all(receiver, 5)
    receiver.settle_numbers([(1, 3)], ACCEPTED)
    rig.core.process(rig.now)
    session.settle_leftovers(receiver)
    assert len(receiver.open_receipts()) == 3
    rig.server.offer("q", "i")  # on its way
    rig.run()
    assert receiver.open_receipts() == []
    failed = Modified(delivery_failed=True)
    assert outcomes(rig) == dict.fromkeys("bc", ACCEPTED) | dict.fromkeys("ade", failed) | dict.fromkeys(
        "fghi", RELEASED
    )
    late = receiver.settle_numbers([(0, 1)], ACCEPTED)
    receiver.detach()
    rig.run()
    assert late.status is ReceiptStatus.STALE and receiver.detached.done and receiver.open_receipts() == []
    assert (receiver.held, receiver.held_bytes) == (0, 0), "credit comes back once"
    with pytest.raises(errors.LinkDetached):
        receiver.check()


def test_a_default_outcome_is_what_the_close_says() -> None:
    rig, session, receiver = rig_of(*"abcd", default_outcome=RELEASED)
    take_all(receiver, 2)
    session.settle_leftovers(receiver)
    rig.server.offer("q", *"efgh")  # together, and too late
    rig.run()
    assert outcomes(rig) == dict.fromkeys("abcdefgh", RELEASED)


def test_credit_comes_back_with_outcomes(caplog: pytest.LogCaptureFixture) -> None:
    rig, _, receiver = rig_of(*"abcdefgh", prefetch=4)
    assert take_all(receiver) == [*"abcd"]
    assert receiver.exhausted
    with caplog.at_level(logging.WARNING):
        receiver.before_waiting()
    assert "handed out all of its prefetch (4 messages" in caplog.text
    receiver.settle_numbers([(0, 2)], ACCEPTED)
    assert not receiver.exhausted, "outcomes are on their way"
    rig.run()
    assert take_all(receiver) == ["e", "f"] and receiver.exhausted
    receiver.pause()
    receiver.settle_numbers([(2, 6)], ACCEPTED)
    rig.run()
    assert take_all(receiver) == [] and rig.peer.sending.credit == 0
    receiver.begin_wait()
    rig.run()
    assert take_all(receiver) == ["g", "h"]


def test_a_limit_in_bytes_counts_what_is_handed_out() -> None:
    rig, _, receiver = rig_of(*["x" * 100] * 8, prefetch_bytes=210)
    assert len(take_all(receiver)) == 2 and receiver.held_bytes == 210 and receiver.exhausted
    receiver.settle_numbers([(0, receiver.held)], ACCEPTED)
    rig.run()
    assert receiver.held_bytes == sum(len(payload) for lot in receiver.buffer for payload in lot.payloads)


def test_a_connection_that_is_lost_takes_the_outcomes_with_it() -> None:
    rig, _, receiver = rig_of(*"abcdefgh")
    rig.server.answers = False
    take_all(receiver, 4)
    open_one = receiver.settle_numbers([(0, 2)], ACCEPTED)
    rig.run()
    rig.cut()
    late = receiver.settle_numbers([(2, 4)], ACCEPTED)
    rig.core.process(rig.now)
    assert open_one.status is ReceiptStatus.UNKNOWN
    assert late.status is ReceiptStatus.STALE and "server:5672" in str(late.reason)
    assert receiver.take_payloads(10) is None


def test_no_answer_in_time_is_unknown() -> None:
    rig, _, receiver = rig_of(*"abcd", options=ConnectOptions(ack_timeout_ms=2_000))
    rig.server.answers = False
    take_all(receiver)
    receipt = receiver.settle_numbers([(0, 4)], ACCEPTED)
    rig.run()
    rig.advance(1.9)
    assert not receipt.done
    rig.advance(0.2)
    assert (receipt.status, receipt.reason) == (ReceiptStatus.UNKNOWN, "no answer within 2000 ms")


def test_a_peer_that_owes_answers_gets_credit_when_it_gives_them() -> None:
    rig, _, receiver = rig_of(
        *(str(number) for number in range(30)), options=ConnectOptions(ack_capacity=8), prefetch=4
    )
    rig.server.answers = False
    taken = 0
    while some := take_all(receiver):
        receiver.settle_numbers([(taken, taken + len(some))], ACCEPTED)
        taken += len(some)
        rig.run()
    assert receiver.starved and taken < 30
    link = rig.peer.sending
    link.session.settle_all(link.unsettled()[1:], ACCEPTED)  # what came together
    rig.run()
    assert not receiver.starved and take_all(receiver)


def test_answers_bring_all_the_credit_there_is_room_for_though_nobody_waits() -> None:
    count = 20
    rig, _, receiver = rig_of(
        *(str(number) for number in range(2 * count)), options=ConnectOptions(ack_capacity=8), prefetch=count
    )
    rig.server.answers = False
    assert len(take_all(receiver)) == count
    receiver.settle_numbers([(0, count)], ACCEPTED)
    rig.run()
    assert receiver.held == 8, "before there are answers, only so many more"
    link = rig.peer.sending
    link.session.settle_all(link.unsettled()[:count], ACCEPTED)
    rig.run()
    assert receiver.held == count


@pytest.mark.parametrize("count", [3, 300])
def test_after_an_interruption_everything_comes_again_under_other_numbers(count: int) -> None:
    j = Joined(options=ConnectOptions())
    session = j.session("individual")
    receiver = session.add_receiver(receiver_spec("q", in_runs=True, prefetch=2 * count))
    sender = j.session("auto").add_sender(sender_spec(buffer_messages=1_000))
    j.run()
    for number in range(count):
        j.send(sender, str(number))
    j.run()
    assert isinstance(receiver, RunReceiverCore)
    assert len(take_all(receiver, count - 1)) == count - 1
    done = receiver.settle_numbers([(0, 1)], ACCEPTED)
    j.run()
    assert done.status is ReceiptStatus.APPLIED
    for delivery in receiver.link.unsettled():
        receiver.withdraw(delivery)  # as the next session counts, these are others
    (rest,) = receiver.buffer
    j.cut()
    assert (receiver.held, list(receiver.buffer)) == (0, [])
    receiver.buffer.append(rest)  # by a thread that was cutting it
    assert receiver.take_payloads(1) is None
    j.restore()
    j.run()
    assert take_all(receiver, 2 * count) == [str(number) for number in range(1, count)]
    stale = receiver.settle_numbers([(1, count - 1)], ACCEPTED)
    j.run()
    assert stale.status is ReceiptStatus.STALE and receiver.held == count - 1
    again = receiver.settle_numbers([(count - 1, 2 * count - 2)], ACCEPTED)
    j.run()
    assert again.status is ReceiptStatus.APPLIED
    assert (receiver.held, receiver.link.unsettled_count) == (0, 0)


@pytest.mark.parametrize(
    ("mode", "changes"),
    [("auto", {}), ("individual", {"browse": True}), ("client", {}), ("individual", {"prefetch": 0})],
)
def test_payloads_are_for_mode_individual(mode: str, changes: dict[str, Any]) -> None:
    rig = Rig()
    with pytest.raises(errors.ConfigurationError, match="handed out in mode INDIVIDUAL"):
        rig.receiver(rig.session(mode), in_runs=True, **changes)


def test_it_gives_no_messages() -> None:
    _, _, receiver = rig_of(*"ab")
    for take in (receiver.take, receiver.take_for_listener):
        with pytest.raises(errors.ConfigurationError, match="the receiver from 'q' hands out payloads"):
            take()


def test_a_peer_in_mode_first_gives_no_answers() -> None:
    server = Server(properties={"product": "RabbitMQ"})
    server.options = replace(server.options, initial_serial=1_000)
    rig = Rig(server)
    _, receiver = runs_of(rig)
    rig.server.offer("q", *"abcdefgh")
    rig.run()
    take_all(receiver)
    receipt = receiver.settle_numbers([(0, 8)], ACCEPTED)
    rig.run()
    assert receipt.status is ReceiptStatus.SENT and (receiver.held, receiver.link.unsettled_count) == (0, 0)

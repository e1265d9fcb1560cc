"""python-qpid-proton and rhea as clients of our broker: every test runs with both."""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import time

import pytest

import acquit
from acquit import AckMode
from tests.interop.conftest import Server, wait_for
from tests.interop.peer import PEERS, Peer
from tests.support.draining import take_all

pytestmark = pytest.mark.interop

ORIGINAL_ADDRESS = "x-opt-ORIG-ADDRESS"
SENDER_SETTLES = 1
"""snd-settle-mode settled (2.8.2)."""
RECEIVER_SECOND = 1
"""rcv-settle-mode second (2.8.3)."""


def texts(*names: str) -> list[dict[str, object]]:
    return [{"id": name, "body": {"value": f"body of {name}"}, "durable": True} for name in names]


def post(peer: Peer, address: str, *names: str) -> None:
    """Send durable messages with these ids over a link of their own, and wait until each was accepted."""
    link = f"post.{address}.{names[0]}"
    peer.sender(link, address)
    peer.send(link, *texts(*names))
    for number in range(len(names)):
        peer.expect("outcome", link=link, delivery=number, outcome="accepted", settled=True)


def left(ours: acquit.Connection, address: str) -> list[acquit.ReceivedMessage]:
    """What is available in a queue, seen by a browser of ours."""
    with ours.session() as session, session.receiver(address, browse=True) as receiver:
        return take_all(receiver)


def ids(messages: list[acquit.ReceivedMessage]) -> list[object]:
    return [message.message_id for message in messages]


def barrier(peer: Peer, address: str) -> None:
    """Everything the broker had to say before this has arrived: it answers in order."""
    link = f"barrier.{time.monotonic_ns()}"
    peer.receiver(link, address)
    peer.do("detach", link=link)
    peer.expect("link_close", link=link)


@pytest.mark.promise("order")
def test_what_is_sent_arrives_in_order(peer: Peer, server: Server, ours: acquit.Connection, address: str) -> None:
    peer.connect(server.port)
    names = [f"m{number:03}" for number in range(100)]
    post(peer, address, *names)
    peer.receiver("in", address, credit=100)
    arrived = peer.expect_many(100, "message", link="in")
    assert [message["id"] for message in arrived] == names
    assert arrived[7]["body"] == {"value": "body of m007"}
    assert all(message["durable"] and not message["settled"] for message in arrived)
    assert {message["delivery_count"] for message in arrived} == {0}
    peer.settle("in", *range(100))
    barrier(peer, address)
    assert left(ours, address) == []


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        ({"value": "text ü €"}, {"value": "text ü €"}),
        ({"value": None}, {"value": None}),
        ({"value": 0}, {"value": 0}),
        ({"value": -(2**31)}, {"value": -(2**31)}),
        ({"value": True}, {"value": True}),
        ({"value": ""}, {"value": ""}),
        ({"value": {"a": {"b": [1, "two", None]}}}, {"value": {"a": {"b": [1, "two", None]}}}),
        ({"value": ["x", ["y", []]]}, {"value": ["x", ["y", []]]}),
        ({"data": base64.b64encode(bytes(range(256))).decode()},) * 2,
        ({"data": ""}, {"data": ""}),
    ],
    ids=lambda body: str(body)[:24],
)
@pytest.mark.parametrize("reader", PEERS)
def test_bodies_pass_between_different_clients(
    peer: Peer, reader: str, server: Server, address: str, sent: dict[str, object], arrives: dict[str, object]
) -> None:
    peer.connect(server.port)
    peer.sender("out", address)
    properties = {"number": 7, "text": "ü", "flag": True}
    peer.send("out", {"id": "one", "body": sent, "subject": "s", "application_properties": properties})
    peer.expect("outcome", outcome="accepted")
    with Peer(reader) as other:
        other.connect(server.port)
        other.receiver("in", address, credit=1)
        message = other.expect("message")
        other.settle("in", 0)
        other.do("close")
        other.expect("connection_close")
    assert message["body"] == arrives
    assert (message["id"], message["subject"], message["application_properties"]) == ("one", "s", properties)


def test_rejected_goes_to_the_dead_letter_queue_with_the_error(
    peer: Peer, server: Server, ours: acquit.Connection, address: str
) -> None:
    peer.connect(server.port)
    post(peer, address, f"bad.{address}", "good")
    peer.receiver("in", address, credit=2)
    peer.expect_many(2, "message")
    peer.settle("in", 0, outcome="rejected", condition="test:unfit", description="for a reason")
    peer.settle("in", 1)
    barrier(peer, address)
    assert left(ours, address) == []
    (letter,) = [message for message in left(ours, "DLQ") if message.message_id == f"bad.{address}"]
    assert letter.annotations is not None
    assert letter.annotations[ORIGINAL_ADDRESS] == address
    assert "for a reason" in str(letter.annotations), "the error is kept with the message (3.4.3)"
    assert letter.delivery_count == 0


def test_released_comes_back_uncounted_and_at_its_place(peer: Peer, server: Server, address: str) -> None:
    peer.connect(server.port)
    post(peer, address, "a", "b", "c")
    peer.receiver("in", address, credit=2)
    peer.expect_many(2, "message")
    peer.settle("in", 0, outcome="released")
    peer.do("credit", link="in", credit=1)
    again = peer.expect("message")
    assert (again["id"], again["delivery_count"], again["first_acquirer"]) == ("a", 0, False)


def test_modified_failed_counts(peer: Peer, server: Server, address: str) -> None:
    peer.connect(server.port)
    post(peer, address, "a")
    peer.receiver("in", address, credit=1)
    for count in range(3):
        assert peer.expect("message")["delivery_count"] == count
        peer.settle("in", count, outcome="modified", failed=True)
        peer.do("credit", link="in", credit=1)
    assert peer.expect("message")["delivery_count"] == 3


def test_modified_not_failed_does_not_count_and_merges_annotations(peer: Peer, server: Server, address: str) -> None:
    peer.connect(server.port)
    post(peer, address, "a")
    peer.receiver("in", address, credit=1)
    peer.expect("message")
    peer.settle("in", 0, outcome="modified", failed=False, annotations={"x-opt-note": "seen"})
    peer.do("credit", link="in", credit=1)
    again = peer.expect("message")
    assert (again["delivery_count"], again["annotations"]["x-opt-note"]) == (0, "seen")


def test_undeliverable_here_goes_to_another_link_only(peer: Peer, server: Server, address: str) -> None:
    peer.connect(server.port)
    post(peer, address, "a", "b")
    peer.receiver("one", address, credit=1)
    assert peer.expect("message", link="one")["id"] == "a"
    peer.settle("one", 0, outcome="modified", failed=True, undeliverable=True)
    peer.do("credit", link="one", credit=1)
    assert peer.expect("message", link="one")["id"] == "b", "skipped without blocking others"
    peer.receiver("two", address, credit=1)
    passed_on = peer.expect("message", link="two")
    assert (passed_on["id"], passed_on["delivery_count"]) == ("a", 1)


def test_too_many_attempts_end_in_the_dead_letter_queue(
    peer: Peer, server: Server, ours: acquit.Connection, address: str
) -> None:
    address = f"tries.{address}"
    peer.connect(server.port)
    post(peer, address, address, "next")
    peer.receiver("in", address, credit=1)
    for attempt in range(3):
        assert peer.expect("message")["id"] == address
        peer.settle("in", attempt, outcome="modified", failed=True)
        peer.do("credit", link="in", credit=1)
    assert peer.expect("message")["id"] == "next"
    wait_for(lambda: ({}, address in ids(left(ours, "DLQ"))), "its dead letter")


def test_a_range_settles_all_of_it_and_nothing_else(
    peer: Peer, server: Server, ours: acquit.Connection, address: str
) -> None:
    peer.connect(server.port)
    names = [f"m{number:02}" for number in range(60)]
    post(peer, address, *names)
    peer.receiver("in", address, credit=50)
    peer.expect_many(50, "message")
    peer.settle("in", *range(10, 40))
    peer.settle("in", *range(10), *range(40, 50), outcome="released")
    barrier(peer, address)
    assert ids(left(ours, address)) == names[:10] + names[40:]


def test_outcomes_may_come_out_of_order(peer: Peer, server: Server, ours: acquit.Connection, address: str) -> None:
    peer.connect(server.port)
    names = [f"m{number:02}" for number in range(20)]
    post(peer, address, *names)
    peer.receiver("in", address, credit=20)
    peer.expect_many(20, "message")
    for number in reversed(range(1, 20, 2)):
        peer.settle("in", number)
    for number in range(0, 20, 2):
        peer.settle("in", number, outcome="released")
    barrier(peer, address)
    assert ids(left(ours, address)) == names[::2]


def test_browsing_takes_nothing(peer: Peer, server: Server, address: str) -> None:
    peer.connect(server.port)
    post(peer, address, "a", "b", "c")
    for link in ("first", "second"):
        peer.receiver(link, address, credit=10, distribution_mode="copy")
        assert [message["id"] for message in peer.expect_many(3, "message", link=link)] == ["a", "b", "c"]
        peer.settle(link, 0, 1, 2)
    peer.receiver("consumer", address, credit=10)
    consumed = peer.expect_many(3, "message", link="consumer")
    assert [(message["id"], message["delivery_count"]) for message in consumed] == [("a", 0), ("b", 0), ("c", 0)]


@pytest.mark.parametrize("max_frame_size", [1024, None], ids=["small frames", "their frames"])
def test_large_messages_cross_in_many_frames(
    peer: Peer, server: Server, address: str, max_frame_size: int | None
) -> None:
    # rhea opens its window (2048 frames) again only between messages, whoever sends: a longer one never arrives there.
    body = os.urandom(1024) * 1500
    peer.connect(server.port, max_frame_size=max_frame_size)
    peer.sender("out", address)
    peer.send("out", {"id": "large", "body": {"data": base64.b64encode(body).decode()}, "durable": True})
    peer.send("out", {"id": "small", "body": {"value": "after it"}})
    peer.expect("outcome", delivery=0, outcome="accepted")
    peer.expect("outcome", delivery=1, outcome="accepted")
    peer.receiver("in", address, credit=2)
    large = peer.expect("message", id="large")
    assert large["body"] == {"data_bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    assert peer.expect("message", id="small")["body"] == {"value": "after it"}


def test_pre_settled_sending_needs_no_answer(peer: Peer, server: Server, ours: acquit.Connection, address: str) -> None:
    peer.connect(server.port)
    peer.sender("out", address, snd_settle_mode=SENDER_SETTLES)
    peer.send("out", *texts("a", "b"))
    post(peer, address, "after them")
    assert ids(left(ours, address)) == ["a", "b", "after them"]
    assert peer.seen("outcome", link="out") == []


def test_pre_settled_receiving_consumes_at_once(
    peer: Peer, server: Server, ours: acquit.Connection, address: str
) -> None:
    peer.connect(server.port)
    post(peer, address, "a", "b", "c")
    opened = peer.receiver("in", address, credit=2, snd_settle_mode=SENDER_SETTLES)
    assert opened["snd_settle_mode"] == SENDER_SETTLES
    assert [(message["id"], message["settled"]) for message in peer.expect_many(2, "message")] == [
        ("a", True),
        ("b", True),
    ]
    assert ids(left(ours, address)) == ["c"]


def test_no_more_than_the_credit(peer: Peer, server: Server, address: str) -> None:
    peer.connect(server.port)
    post(peer, address, "a", "b", "c", "d")
    peer.receiver("in", address, credit=2)
    peer.expect_many(2, "message")
    peer.settle("in", 0, 1)
    barrier(peer, address)
    assert peer.seen("message") == []
    peer.do("credit", link="in", credit=1)
    assert peer.expect("message")["id"] == "c"
    barrier(peer, address)
    assert peer.seen("message") == []


def test_draining_gives_back_what_credit_is_left(peer: Peer, server: Server, address: str) -> None:
    peer.connect(server.port)
    post(peer, address, "a", "b")
    peer.receiver("in", address, credit=10)
    peer.expect_many(2, "message")
    peer.do("drain", link="in")
    peer.expect("drained")
    post(peer, address, "c")
    barrier(peer, address)
    assert peer.seen("message") == [], "the credit of before the drain is gone (2.6.7)"
    peer.do("credit", link="in", credit=1)
    assert peer.expect("message")["id"] == "c"


def test_several_sessions_and_links_on_one_connection(peer: Peer, server: Server, address: str) -> None:
    peer.connect(server.port)
    for session in ("s1", "s2"):
        peer.do("session", session=session)
    for session in ("default", "s1", "s2"):
        for part in ("x", "y"):
            peer.sender(f"out.{session}.{part}", f"{address}.{part}", session=session)
            peer.send(f"out.{session}.{part}", *texts(f"{session}.{part}.1", f"{session}.{part}.2"))
    for session in ("default", "s1", "s2"):
        for part in ("x", "y"):
            for number in (0, 1):
                peer.expect("outcome", link=f"out.{session}.{part}", delivery=number, outcome="accepted")
    for part, session in (("x", "s2"), ("y", "default")):
        peer.receiver(f"in.{part}", f"{address}.{part}", session=session, credit=10)
        arrived = {message["id"] for message in peer.expect_many(6, "message", link=f"in.{part}")}
        assert arrived == {f"{name}.{part}.{number}" for name in ("default", "s1", "s2") for number in (1, 2)}
    peer.do("end", session="s1")
    peer.expect("session_close", session="s1")
    post(peer, f"{address}.z", "still there")


def test_consumers_share_a_queue_fairly(peer: Peer, server: Server, address: str) -> None:
    peer.connect(server.port)
    peer.receiver("one", address, credit=50)
    peer.receiver("two", address, credit=50)
    post(peer, address, *[f"m{number}" for number in range(40)])
    arrived = peer.expect_many(40, "message")
    counts = {link: sum(message["link"] == link for message in arrived) for link in ("one", "two")}
    assert min(counts.values()) >= 10


def test_settle_mode_second_is_granted_and_answered(
    peer: Peer, server: Server, ours: acquit.Connection, address: str
) -> None:
    peer.connect(server.port)
    post(peer, address, "a", "b", "c")
    opened = peer.receiver("in", address, credit=3, rcv_settle_mode=RECEIVER_SECOND)
    assert opened["rcv_settle_mode"] == RECEIVER_SECOND
    peer.expect_many(3, "message")
    peer.settle("in", 0, 1, 2, settled=False)
    for number in range(3):
        peer.expect("settled", link="in", delivery=number)
    assert left(ours, address) == []


def test_detaching_gives_back_what_was_not_settled(peer: Peer, server: Server, address: str) -> None:
    peer.connect(server.port)
    post(peer, address, "a", "b")
    peer.receiver("one", address, credit=2)
    peer.expect_many(2, "message")
    peer.do("detach", link="one")
    peer.expect("link_close", link="one")
    peer.receiver("two", address, credit=2)
    again = peer.expect_many(2, "message", link="two")
    assert [(message["id"], message["delivery_count"]) for message in again] == [("a", 0), ("b", 0)]


def test_a_killed_client_gives_back_what_it_held(
    peer: Peer, server: Server, ours: acquit.Connection, address: str
) -> None:
    peer.connect(server.port)
    post(peer, address, "a")
    peer.receiver("in", address, credit=1)
    peer.expect("message")
    peer.kill()
    with ours.session(AckMode.INDIVIDUAL) as session, session.receiver(address) as receiver:
        message = receiver.receive(timeout=10)
        assert message is not None
        assert (message.message_id, message.delivery_count, message.redelivered) == ("a", 1, True)
        message.accept()


def test_a_client_that_falls_silent_gives_back_what_it_held(
    peer: Peer, server: Server, ours: acquit.Connection, address: str
) -> None:
    peer.connect(server.port)
    post(peer, address, "a")
    peer.receiver("in", address, credit=1)
    peer.expect("message")
    os.kill(peer.pid, signal.SIGSTOP)
    try:
        with ours.session(AckMode.INDIVIDUAL) as session, session.receiver(address) as receiver:
            message = receiver.receive(timeout=20)
            assert message is not None
            assert (message.message_id, message.delivery_count) == ("a", 1)
            message.accept()
    finally:
        os.kill(peer.pid, signal.SIGCONT)
    peer.expect("connection_close", condition="amqp:resource-limit-exceeded")


def test_heartbeats_keep_an_idle_connection(peer: Peer, server: Server, address: str) -> None:
    opened = peer.connect(server.port, idle_time_out=400)
    assert opened["idle_time_out"] > 0, "the broker has a time-out of its own, and the peer heeds it"
    # Longer than both time-outs: whoever misses a heartbeat now closes. Nothing else would show that none is missed.
    time.sleep(3)
    assert peer.seen("disconnected") == []
    post(peer, address, "still there")


def test_an_unknown_address_is_refused_where_creation_is_forbidden(peer: Peer, server: Server, address: str) -> None:
    peer.connect(server.port)
    peer.do("receiver", link="in", address=f"closed.{address}")
    assert peer.expect("link_close", link="in")["condition"] == "amqp:not-found"
    peer.do("sender", link="out", address=f"closed.{address}")
    assert peer.expect("link_close", link="out")["condition"] == "amqp:not-found"
    post(peer, address, "the connection goes on")


def test_a_message_above_the_limit_costs_its_link_and_no_more(peer: Peer, server: Server, address: str) -> None:
    peer.connect(server.port)
    opened = peer.sender("out", address)
    assert opened["max_message_size"] == 4 << 20
    peer.send("out", {"id": "huge", "body": {"data": base64.b64encode(bytes(5 << 20)).decode()}})
    assert peer.expect("link_close", link="out")["condition"] == "amqp:link:message-size-exceeded"
    post(peer, address, "the connection goes on")


def test_the_same_link_name_from_the_same_container_steals_the_link(peer: Peer, server: Server, address: str) -> None:
    peer.connect(server.port, container_id=f"thief.{address}")
    peer.receiver("in", address)
    with Peer(peer.kind) as second:
        second.connect(server.port, container_id=f"thief.{address}")
        second.receiver("in", address, credit=1)
        assert peer.expect("link_close", link="in")["condition"] == "amqp:link:stolen"
        post(peer, address, "a")
        assert second.expect("message")["id"] == "a"


def test_the_right_password_opens(peer: Peer, server_with_users: Server, address: str) -> None:
    peer.connect(server_with_users.port, user="ann", password="correct horse")
    post(peer, address, "a")


@pytest.mark.parametrize(
    ("user", "password"), [("ann", "wrong"), ("bob", "correct horse"), ("ann", "")], ids=["password", "user", "empty"]
)
def test_the_wrong_one_does_not(peer: Peer, server_with_users: Server, user: str, password: str) -> None:
    peer.do("connect", port=server_with_users.port, user=user, password=password)
    peer.expect("disconnected")
    assert peer.seen("connection_open") == []


def test_nobody_comes_in_without_a_name_where_that_is_not_allowed(peer: Peer, server_with_users: Server) -> None:
    # proton offers ANONYMOUS; rhea begins without SASL, and is answered with the header it should have sent (2.2).
    peer.do("connect", port=server_with_users.port)
    peer.expect("disconnected")
    assert peer.seen("connection_open") == []

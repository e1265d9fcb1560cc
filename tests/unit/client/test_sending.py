from __future__ import annotations

import pytest

from acquit import errors
from acquit.client.options import ConnectOptions, DeliveryMode
from acquit.client.sending import encode
from acquit.protocol import events as ev
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Accepted, Error, Modified, Received, Rejected, Released, Source, Target
from acquit.protocol.message import AmqpValue, Data, Message
from tests.support.joined import Joined
from tests.support.server import Rig, Server, sender_spec

PERSISTENT, NON_PERSISTENT = DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT


# -- what is sent ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_bytes_become_a_data_section(size: int) -> None:
    message = Message.decode(encode(bytes(size), PERSISTENT))
    assert message == Message(bytes(size), durable=True)


@pytest.mark.parametrize("text", ["", "a", "é" * 127, "é" * 128, "x" * 70_000])
def test_a_string_becomes_a_value_section(text: str) -> None:
    assert Message.decode(encode(text, NON_PERSISTENT)) == Message(text)


@pytest.mark.parametrize("body", [b"x", "x", Message("x"), Message(b"x", priority=9, ttl_ms=5)])
@pytest.mark.parametrize(
    ("default", "wanted", "durable"),
    [
        (PERSISTENT, None, True),
        (NON_PERSISTENT, None, False),
        (PERSISTENT, NON_PERSISTENT, False),
        (NON_PERSISTENT, PERSISTENT, True),
    ],
)
def test_the_delivery_mode_is_the_sender_s_unless_the_send_says_otherwise(
    body: Message | bytes | str, default: DeliveryMode, wanted: DeliveryMode | None, durable: bool
) -> None:
    assert Message.decode(encode(body, default, wanted)).durable is durable


@pytest.mark.parametrize(("wanted", "durable"), [(None, True), (PERSISTENT, True), (NON_PERSISTENT, False)])
def test_a_message_that_says_durable_is_unless_the_send_says_otherwise(
    wanted: DeliveryMode | None, durable: bool
) -> None:
    assert Message.decode(encode(Message("x", durable=True), NON_PERSISTENT, wanted)).durable is durable


def test_the_user_s_message_is_left_as_it_was() -> None:
    message = Message("x", priority=7, delivery_count=3)
    sent = Message.decode(encode(message, PERSISTENT))
    assert (sent.durable, sent.priority, sent.delivery_count) == (True, 7, 0)
    assert (message.durable, message.delivery_count) == (False, 3)


def test_a_message_that_was_received_begins_a_new_life() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session())
    original = Message(
        b"body",
        first_acquirer=True,
        delivery_count=4,
        ttl_ms=9,
        message_id="m",
        delivery_annotations={"x-opt-hop": 1},
        annotations={"x-opt-kept": 2},
        application_properties={"a": 1},
        footer={"x-opt-hash": 5},
    )
    rig.server.offer("q", original)
    rig.run()
    (received,) = rig.take(receiver, 1)
    sent = Message.decode(encode(received, PERSISTENT))
    assert (sent.durable, sent.ttl_ms, sent.delivery_count, sent.first_acquirer) == (True, 9, 0, False)
    assert sent.delivery_annotations == {}
    assert (sent.annotations, sent.footer) == ({"x-opt-kept": 2}, {"x-opt-hash": 5})
    assert (sent.message_id, sent.application_properties, sent.body) == ("m", {"a": 1}, b"body")
    assert received.delivery_count == 4


def test_a_body_alone_is_a_message() -> None:
    for body in ({"a": 1}, [1, 2], 5, 0.5, True, AmqpValue(b"x"), Data((b"a", b"b"))):
        assert Message.decode(encode(body, PERSISTENT)) == Message(body, durable=True)


def test_what_is_no_message_is_not_sent() -> None:
    with pytest.raises(errors.ConfigurationError, match=r"no message to send, got None; Message\(None\) is one"):
        encode(None, PERSISTENT)
    with pytest.raises(errors.EncodeError, match="a Python object has no AMQP type"):
        encode(object(), PERSISTENT)  # type: ignore[arg-type]


def test_a_delivery_mode_that_is_none_is_refused() -> None:
    rig = Rig()
    sender = rig.sender(rig.session())
    with pytest.raises(errors.ConfigurationError, match="delivery_mode must be DeliveryMode.PERSISTENT or NON_PERS"):
        sender.encode(b"x", "persistent")  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [None, {"a": [1, 2]}, Data((b"a", b"b")), AmqpValue(b"x")])
def test_other_bodies_travel_in_a_message(body: object) -> None:
    assert Message.decode(encode(Message(body), PERSISTENT)).body == body  # type: ignore[arg-type]


def test_a_value_that_amqp_has_not_is_refused_before_anything_is_sent() -> None:
    rig = Rig()
    sender = rig.sender(rig.session())
    with pytest.raises(errors.EncodeError):
        sender.encode(Message(object()), None)  # type: ignore[arg-type]
    assert not sender.queue


def test_a_message_larger_than_the_peer_takes_is_refused_here() -> None:
    rig = Rig(Server(max_message_size=1_000))
    sender = rig.sender(rig.session())
    with pytest.raises(errors.MessageTooLarge, match=r"the message has 10\d\d bytes, .* takes at most 1000") as refused:
        sender.encode(bytes(1_000), None)
    assert not refused.value.remote
    sender.encode(bytes(900), None)


# -- attaching ---------------------------------------------------------------------------------------------------------


def test_the_target_says_where() -> None:
    rig = Rig()
    sender = rig.sender(rig.session(), "orders", capabilities=("queue",), properties={"a": 1})
    attach = rig.peer.receiving.remote_attach
    assert attach is not None
    assert attach.target == Target(address="orders", capabilities=("queue",))
    assert isinstance(attach.source, Source) and len(attach.source.outcomes) == 4
    assert attach.properties == {"a": 1}
    assert sender.address == "orders"


def test_the_anonymous_terminus() -> None:
    rig = Rig()
    sender = rig.sender(rig.session(), None)  # type: ignore[arg-type]
    assert sender.attached.done and sender.failure is None
    assert sender.address is None


# -- flow --------------------------------------------------------------------------------------------------------------


def test_sends_are_pipelined_within_the_credit() -> None:
    rig = Rig(Server(credit=3))
    rig.server.verdict = lambda delivery: None
    sender = rig.sender(rig.session())
    rig.server.credit = 0  # no more after these
    sends = [rig.send(sender, str(number)) for number in range(5)]
    rig.run()
    assert rig.server.bodies() == ["0", "1", "2"]
    assert (sender.in_flight, len(sender.queue)) == (3, 2)
    assert not any(send.done for send in sends)
    rig.server.taken[1].settle(ACCEPTED)  # in any order
    rig.run()
    assert [send.done for send in sends] == [False, True, False, False, False]
    rig.peer.receiving.grant(2)
    rig.run()
    assert rig.server.bodies() == ["0", "1", "2", "3", "4"]
    assert (sender.in_flight, len(sender.queue)) == (4, 0)


def test_many_sends_are_one_wake_up() -> None:
    rig = Rig()
    sender = rig.sender(rig.session())
    wakes = rig.wakes
    for _ in range(5):
        rig.send(sender)
    assert rig.wakes == wakes + 1


def test_the_buffer_is_bounded_in_messages_and_bytes() -> None:
    rig = Rig(Server(credit=0))
    session = rig.session()
    by_count = rig.sender(session, "p", buffer_messages=2)
    by_size = rig.sender(session, "q", buffer_bytes=1_000)
    rig.send(by_count)
    assert by_count.has_room
    rig.send(by_count)
    assert not by_count.has_room
    rig.send(by_size, bytes(900))
    assert by_size.has_room
    rig.send(by_size, bytes(5_000))  # the last may be as large as it likes
    assert not by_size.has_room


def test_room_is_told_of_when_the_buffer_is_half_empty() -> None:
    rig = Rig(Server(credit=0))
    sender = rig.sender(rig.session(), buffer_messages=4)
    calls: list[int] = []
    sender.notify = lambda: calls.append(len(sender.queue))
    for _ in range(4):
        rig.send(sender)
    for expected in ([], [2]):
        rig.peer.receiving.grant(1)
        rig.run()
        assert calls == expected


def test_a_socket_that_takes_no_more_holds_sends_back() -> None:
    rig = Rig()
    sender = rig.sender(rig.session())
    rig.core.on_writable(False)
    rig.send(sender)
    rig.run()
    assert rig.server.taken == []
    rig.core.on_writable(True)
    rig.run()
    assert len(rig.server.taken) == 1


def test_a_drain_is_answered_when_there_is_nothing_to_send() -> None:
    rig = Rig(Server(credit=5))
    rig.sender(rig.session())
    assert rig.peer.receiving.drain_credit()
    rig.run()
    (drained,) = rig.server.all(ev.LinkDrained)
    assert drained.link.credit == 0


def test_a_drain_sends_what_there_is_first() -> None:
    rig = Rig(Server(credit=5))
    sender = rig.sender(rig.session())
    rig.server.credit = 0
    for _ in range(2):
        rig.send(sender)
    rig.peer.receiving.drain_credit()
    rig.run()
    assert len(rig.server.taken) == 2
    assert len(rig.server.all(ev.LinkDrained)) == 1


# -- outcomes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "kind", "text"),
    [
        (Rejected(Error("amqp:precondition-failed", "too old")), errors.MessageRejected, "too old (amqp:precondition"),
        (Rejected(), errors.MessageRejected, "the peer rejected the message without a reason"),
        (Released(), errors.MessageReleased, "was not and will not be processed there"),
        (Modified(delivery_failed=True), errors.MessageModified, "outcome modified"),
        (Modified(undeliverable_here=True), errors.MessageModified, "modified and not there"),
    ],
)
@pytest.mark.parametrize("second", [False, True])
def test_an_outcome_that_is_not_accepted_is_an_error(
    state: Rejected | Released | Modified, kind: type[errors.SendFailed], text: str, second: bool
) -> None:
    rig = Rig()
    rig.server.verdict = (lambda delivery: None) if second else (lambda delivery: state)
    sender = rig.sender(rig.session())
    send = rig.send(sender)
    rig.run()
    if second:  # the receiver announces its outcome, and we settle (2.6.12)
        rig.server.taken[0].update(state)
        rig.run()
        assert rig.peer.receiving.unsettled() == []
    assert send.outcome == state
    for _ in range(2):
        with pytest.raises(kind) as caught:
            send.value()
        assert text in str(caught.value)
    assert sender.in_flight == 0


def test_the_reason_of_a_rejection_is_kept() -> None:
    rig = Rig()
    rig.server.verdict = lambda delivery: Rejected(Error("amqp:precondition-failed", "too old"))
    send = rig.send(rig.sender(rig.session()))
    rig.run()
    with pytest.raises(errors.MessageRejected) as caught:
        send.value()
    assert (caught.value.condition, caught.value.description) == ("amqp:precondition-failed", "too old")


def test_accepted_is_a_value() -> None:
    rig = Rig()
    send = rig.send(rig.sender(rig.session()))
    rig.run()
    assert send.value() == send.outcome == Accepted()


def test_progress_is_no_outcome() -> None:
    rig = Rig()
    rig.server.verdict = lambda delivery: None
    send = rig.send(rig.sender(rig.session()))
    rig.run()
    rig.server.taken[0].update(Received(0, 0))
    rig.run()
    assert not send.done


def test_settled_without_an_outcome_is_in_doubt() -> None:
    rig = Rig()
    rig.server.verdict = lambda delivery: None
    send = rig.send(rig.sender(rig.session()))
    rig.run()
    rig.server.taken[0].settle(None)
    rig.run()
    assert send.outcome is None
    with pytest.raises(errors.DeliveryInDoubt, match="settled the message without an outcome"):
        send.value()


# -- the end -----------------------------------------------------------------------------------------------------------


def test_at_the_loss_what_was_sent_is_in_doubt_and_what_was_not_is_known_not_to_be() -> None:
    rig = Rig(Server(credit=1))
    rig.server.verdict = lambda delivery: None
    sender = rig.sender(rig.session())
    rig.server.credit = 0
    sent, unsent = rig.send(sender), rig.send(sender)
    rig.run()
    rig.cut()
    with pytest.raises(
        errors.DeliveryInDoubt, match="no outcome was heard: the connection to server:5672 was lost"
    ) as e:
        sent.value()
    assert isinstance(e.value.__cause__, errors.ConnectionLost)
    with pytest.raises(errors.ConnectionLost):
        unsent.value()
    assert (sender.in_flight, len(sender.queue)) == (0, 0)


def test_a_detach_with_an_error_puts_sends_in_doubt() -> None:
    rig = Rig()
    rig.server.verdict = lambda delivery: None
    sender = rig.sender(rig.session())
    send = rig.send(sender)
    rig.run()
    rig.peer.receiving.detach(Error("amqp:resource-limit-exceeded", "full"))
    rig.run()
    with pytest.raises(errors.DeliveryInDoubt, match="full") as caught:
        send.value()
    assert isinstance(caught.value.__cause__, errors.LimitReached)
    with pytest.raises(errors.LimitReached, match="the sender to 'q' was detached by the peer: full"):
        sender.check()


def test_what_is_enqueued_after_the_end_ends_at_once() -> None:
    rig = Rig()
    sender = rig.sender(rig.session())
    rig.cut()
    send = rig.send(sender)
    rig.run()
    with pytest.raises(errors.ConnectionLost):
        send.value()


def test_a_send_that_has_not_left_can_be_taken_back() -> None:
    rig = Rig(Server(credit=0))
    sender = rig.sender(rig.session(), buffer_messages=1)
    calls: list[bool] = []
    sender.notify = lambda: calls.append(sender.has_room)
    send = rig.send(sender)
    rig.run()
    sender.withdraw(send)
    assert calls == [True]
    with pytest.raises(errors.NotSent, match="the peer gave no credit in time: the message never left"):
        send.value()
    rig.peer.receiving.grant(5)
    rig.run()
    assert rig.server.taken == []


def test_what_was_taken_back_takes_no_room_any_more() -> None:
    rig = Rig(Server(credit=0))
    sender = rig.sender(rig.session(), buffer_bytes=1_000)
    send = rig.send(sender, bytes(2_000))
    rig.run()
    assert not sender.has_room
    sender.withdraw(send)
    assert sender.has_room


def test_a_send_that_has_left_cannot() -> None:
    rig = Rig()
    rig.server.verdict = lambda delivery: None
    sender = rig.sender(rig.session())
    send = rig.send(sender)
    rig.run()
    sender.withdraw(send)
    assert not send.done


def test_unfinished_and_failed_sends_are_known() -> None:
    rig = Rig(Server(credit=2))
    rig.server.verdict = lambda delivery: None
    sender = rig.sender(rig.session())
    rig.server.credit = 0
    sends = [rig.send(sender) for _ in range(3)]
    rig.run()
    assert sender.unfinished() == sends
    rig.server.taken[0].settle(Released())
    rig.server.taken[1].settle(Rejected())
    rig.run()
    assert sender.unfinished() == sends[2:]
    with pytest.raises(errors.MessageReleased):
        sends[0].value()
    assert sender.first_failed() is sends[1]  # the first is known to somebody
    assert sender.first_failed() is sends[1]  # who was to be told has not asked: he was interrupted
    with pytest.raises(errors.MessageRejected):
        sends[1].value()
    assert sender.first_failed() is None


def test_failures_that_nobody_asked_about_are_logged_at_the_close(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.server.verdict = lambda delivery: Rejected(Error("amqp:not-allowed", "no"))
    sender = rig.sender(rig.session())
    sends = [rig.send(sender) for _ in range(3)]
    rig.run()
    with pytest.raises(errors.MessageRejected):
        sends[0].value()
    sender.warn_of_failed()
    assert "2 sends of the sender to 'q' failed and nobody asked their receipts; the first: the peer rej" in caplog.text


def test_a_closed_sender_takes_nothing_more() -> None:
    rig = Rig()
    sender = rig.sender(rig.session())
    sender.detach()
    with pytest.raises(errors.LinkDetached, match="the sender to 'q' is closed"):
        sender.check()
    rig.run()
    assert sender.detached.done
    sender.detach()


def test_a_message_larger_than_a_frame_arrives_whole() -> None:
    rig = Rig()
    sender = rig.sender(rig.session())
    body = bytes(range(256)) * 1_000
    send = rig.send(sender, body)
    rig.send(sender, b"after it")
    rig.run()
    assert rig.server.bodies() == [body, b"after it"]
    assert send.value() == Accepted()


def test_a_message_that_ends_each_connection_is_not_sent_for_ever() -> None:
    """Each outage is short; what counts is how long the send has been without an outcome since it was lost."""
    joined = Joined(options=ConnectOptions(send_timeout_ms=5_000))
    sender = joined.session("auto").add_sender(sender_spec("q"))
    joined.run()
    promise = joined.send(sender, "poison")
    sent = 0
    while not promise.done:
        for _ in range(5):
            joined.move(1 << 30, 1 << 30)  # it arrives, and is not answered before the disk has it
        sent += sender.in_flight
        assert sent < 10
        joined.cut()
        joined.world.advance(1_000)
        joined.restore()
    assert sent == 6
    assert isinstance(promise.error(), errors.DeliveryInDoubt)
    assert not sender.queue

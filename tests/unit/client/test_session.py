"""Sessions, and how they and their links come back to a peer that grants less than the one before."""

from __future__ import annotations

import pytest

from acquit import Reconnect, errors
from acquit.client.subscriptions import Subscription
from acquit.protocol import events as ev
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import AmqpCondition
from tests.support.server import Rig, Server


def restoring() -> Rig:
    return Rig(reconnect=Reconnect())


def test_who_keeps_no_subscription_is_not_asked_to_end_one() -> None:
    """RabbitMQ ends the session for that question, with all of its links."""
    rig = Rig(Server(properties={"product": "RabbitMQ", "version": "4.0.5"}))
    session = rig.session()
    with pytest.raises(errors.LinkDetached, match="the subscription 's' is not there: the peer keeps none") as caught:
        session.remove_subscription(Subscription(name="s", shared=True))
    assert caught.value.condition == AmqpCondition.NOT_IMPLEMENTED
    rig.run()
    assert rig.server.all(ev.LinkRequested) == []


def test_sessions_that_the_next_peer_has_no_channel_for_end_and_the_others_go_on() -> None:
    rig = restoring()
    first, second = rig.session(), rig.session("individual")
    sender, receiver = rig.sender(first), rig.receiver(second)
    rig.cut()
    rig.restore(channel_max=0)
    sent = rig.send(sender)
    rig.run()
    assert sent.outcome == ACCEPTED
    assert rig.core.failure is None and rig.core.sessions == [first]
    for failure in (second.failure, receiver.failure):
        assert failure is not None and failure.kind is errors.SessionEnded
        assert failure.message == "the session was ended by us: no channel is left for another session"
    assert second.ended.done


def test_links_that_the_next_peer_has_no_handle_for_end_and_the_others_go_on() -> None:
    rig = restoring()
    session = rig.session()
    sender, receiver = rig.sender(session), rig.receiver(session)
    rig.cut()
    rig.restore(handle_max=0)  # a higher one would end the connection
    sent = rig.send(sender)
    rig.run()
    assert sent.outcome == ACCEPTED
    assert session.failure is None and session.receivers == []
    assert receiver.failure is not None and receiver.failure.kind is errors.LimitReached
    assert receiver.failure.condition == AmqpCondition.RESOURCE_LIMIT_EXCEEDED
    assert "no handle is left on this session: the highest is 0" in receiver.failure.message


def test_links_whose_attach_does_not_fit_the_frames_of_the_next_peer_end_and_the_others_go_on() -> None:
    rig = restoring()
    session = rig.session()
    long, receiver, sender = rig.sender(session, "q" * 600), rig.receiver(session, "r" * 600), rig.sender(session)
    waiting = rig.send(long)
    rig.server.credit = 0
    rig.cut()
    rig.server.credit = 100
    rig.restore(max_frame_size=512)
    sent = rig.send(sender)
    rig.run()
    assert sent.outcome == ACCEPTED
    for link in (long, receiver):
        assert link.failure is not None and link.failure.kind is errors.LinkDetached
        assert link.failure.message.endswith("; the peer takes 512")
    assert waiting.error() is not None
    assert session.senders == [sender] and session.receivers == []


def test_transactions_that_the_next_peer_has_no_handle_for_are_rolled_back_and_the_connection_goes_on() -> None:
    rig = restoring()
    session, other = rig.session("transacted"), rig.session()
    assert session.transactions is not None
    session.transactions.open()
    sender = rig.sender(session)
    beside = rig.sender(other, "beside")
    rig.cut()
    rig.restore(handle_max=0)  # there is none for the control link
    for _ in range(2):  # in each transaction anew
        sent = rig.send(sender)
        rig.run()
        error = sent.error()
        assert isinstance(error, errors.TransactionRolledBack)
        assert "no handle is left on this session: the highest is 0" in str(error)
        rolled_back = session.transactions.end(commit=False)
        rig.run()
        assert rolled_back.done
    sent = rig.send(beside)
    rig.run()
    assert sent.outcome == ACCEPTED
    assert session.failure is sender.failure is None


def test_a_message_that_the_next_peer_finds_too_large_fails_alone() -> None:
    rig = restoring()
    sender = rig.sender(rig.session())
    rig.cut()
    large, small = rig.send(sender, b"x" * 2_000), rig.send(sender, b"y")
    rig.restore(max_message_size=1_000)
    assert isinstance(large.error(), errors.MessageTooLarge)
    assert small.outcome == ACCEPTED
    assert sender.failure is None


def test_links_of_a_session_that_a_peer_takes_all_come_back_with_their_credit() -> None:
    rig = restoring()
    session = rig.session()
    receivers = [rig.receiver(session, f"q{number}") for number in range(3)]
    rig.cut()
    rig.restore()
    for number, receiver in enumerate(receivers):
        rig.server.offer(f"q{number}", b"m")
        rig.run()
        assert receiver.link.credit + receiver.held == 10
        rig.take(receiver, 1)

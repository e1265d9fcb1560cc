"""What becomes of everything when something ends, and of acknowledgements that cross something else. What each mode
promises is in tests/scenarios/test_modes_on_the_wire.py.

What went over the wire is read from the events of the server's engine: a disposition is a StatesReceived, a flow a
CreditChanged, with the link as it is then.
"""

from __future__ import annotations

import pytest

from acquit import errors
from acquit.client.modes import AckMode
from acquit.client.options import ConnectOptions
from acquit.client.receipts import ReceiptStatus, SettlementReceipt
from acquit.client.received import MessageCore
from acquit.protocol import events as ev
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Error, Modified, Rejected, Released, SndSettleMode
from acquit.protocol.extensions import DURABLE_SETTLEMENT
from acquit.protocol.link import SendingLink
from tests.support.joined import Joined
from tests.support.server import Rig, Server, receiver_spec, sender_spec

ACKNOWLEDGING = ["client", "individual"]
FAILED = Modified(delivery_failed=True)


def bodies(messages: list[MessageCore]) -> list[object]:
    return [message.body for message in messages]


def letters(count: int) -> list[bytes]:
    return [bytes([97 + index]) for index in range(count)]


# -- when credit comes back --------------------------------------------------------------------------------------------


def test_credit_and_what_is_held_never_exceed_the_prefetch() -> None:
    rig = Rig()
    session = rig.session("individual")
    receiver = rig.receiver(session, prefetch=3)
    rig.server.offer("q", *letters(12))
    settled = 0
    while settled < 12:
        rig.run()
        assert receiver.link.credit + receiver.held <= 3
        message = receiver.take()
        if message is not None and settled % 3 != 2:
            message.decide(ACCEPTED)
            settled += 1
        elif message is not None:
            rig.run()
            message.decide(RELEASED)
            settled += 1


# -- AUTO --------------------------------------------------------------------------------------------------------------


def test_many_hand_overs_are_one_disposition_and_one_wake_up() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("auto"))
    rig.server.offer("q", *letters(10))
    rig.run()
    wakes = rig.wakes
    rig.take(receiver, 10)
    assert rig.wakes == wakes + 1
    rig.run()
    (told,) = rig.server.all(ev.StatesReceived)
    assert len(told.deliveries) == 10


def test_an_interrupt_of_a_listener_gives_the_message_back_and_goes_on() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("auto"))
    rig.server.offer("q", b"a")
    rig.run()
    message = receiver.take_for_listener()
    assert message is not None
    with pytest.raises(KeyboardInterrupt), receiver.listening(message):
        raise KeyboardInterrupt
    rig.run()
    assert rig.server.outcomes() == [(b"a", FAILED, True)]


# -- NO_ACK ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("granted", [SndSettleMode.UNSETTLED, SndSettleMode.MIXED])
@pytest.mark.parametrize("how", ["mode", "receiver"])
def test_a_peer_that_sends_unsettled_all_the_same_is_told_at_once(granted: SndSettleMode, how: str) -> None:
    rig = Rig()
    rig.server.snd_settle_mode = granted
    session = rig.session("no_ack" if how == "mode" else "individual")
    receiver = rig.receiver(session, unreliable=how == "receiver", prefetch=2)
    rig.server.offer("q", b"a", b"b", b"c")
    rig.run()
    assert rig.server.outcomes() == [(b"a", ACCEPTED, True), (b"b", ACCEPTED, True)]
    messages = rig.take(receiver, 2)
    assert all(message.settled for message in messages)
    rig.run()
    assert rig.server.outcomes()[2:] == [(b"c", ACCEPTED, True)]
    with pytest.raises(errors.Unreliable):
        messages[0].decide(ACCEPTED)
    assert session.handed_out == {}


# -- once --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "kind", "complaint"),
    [
        (Released, errors.ConfigurationError, "must be an outcome, such as Released"),
        ("accepted", errors.ConfigurationError, "must be an outcome"),
        (Modified(message_annotations={"x-opt-a": object()}), errors.EncodeError, "object"),
        (
            Rejected(Error("a:b", "x" * 100_000)),
            errors.LocalProtocolError,
            r"the outcome has 1\d+ bytes, the peer takes",
        ),
    ],
)
def test_what_cannot_be_said_is_refused_at_once_and_leaves_the_message_as_it_was(
    outcome: Modified, kind: type[errors.AcquitError], complaint: str
) -> None:
    rig = Rig()
    session = rig.session("individual")
    receiver = rig.receiver(session)
    rig.server.offer("q", b"a")
    rig.run()
    (message,) = rig.take(receiver, 1)
    for say in (lambda: message.decide(outcome), lambda: session.settle_all([message], outcome)):
        with pytest.raises(kind, match=complaint):
            say()
    assert not message.settled
    assert message.decide(ACCEPTED).status is None


def test_messages_of_another_session_are_refused() -> None:
    rig = Rig()
    one, other = rig.session("client"), rig.session("client")
    receiver = rig.receiver(one)
    rig.server.offer("q", b"a")
    rig.run()
    (message,) = rig.take(receiver, 1)
    with pytest.raises(errors.ConfigurationError, match="acknowledge takes a message of this session"):
        other.acknowledge(message, whole_session=False)
    with pytest.raises(errors.ConfigurationError, match="settle takes messages of this session"):
        other.settle_all([message], ACCEPTED)
    assert one.acknowledge(message, whole_session=False).count == 1


# -- receipts ----------------------------------------------------------------------------------------------------------


def acknowledged(rig: Rig, mode: str = "individual") -> SettlementReceipt:
    receiver = rig.receiver(rig.session(mode))
    rig.server.offer("q", b"a")
    rig.run()
    (message,) = rig.take(receiver, 1)
    receipt = message.decide(ACCEPTED)
    assert receipt.status is None
    return receipt


def test_a_peer_that_promises_durable_settlement_has_applied_what_it_answers() -> None:
    rig = Rig(Server(capabilities=(DURABLE_SETTLEMENT,)))
    receipt = acknowledged(rig)
    rig.run()
    assert receipt.status is ReceiptStatus.APPLIED


def test_another_peer_has_answered() -> None:
    rig = Rig()
    receipt = acknowledged(rig)
    rig.run()
    assert receipt.status is ReceiptStatus.ANSWERED


def test_what_was_not_written_before_the_loss_is_stale() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("auto"))
    rig.server.offer("q", b"a")
    rig.run()
    message = receiver.take_for_listener()
    assert message is not None
    receipt = message.decide(RELEASED)
    rig.core.process(rig.now)
    rig.cut()
    assert receipt.status is ReceiptStatus.STALE


def test_what_was_not_written_before_an_interruption_is_stale_whatever_is_written_after() -> None:
    j = Joined()
    receiver, sender = (
        (session := j.session("auto")).add_receiver(receiver_spec("q")),
        session.add_sender(sender_spec()),
    )
    j.run()
    j.send(sender, "a")
    j.run()
    message = receiver.take_for_listener()
    assert message is not None
    receipt = message.decide(RELEASED)
    j.cut()
    assert receipt.status is ReceiptStatus.STALE
    j.restore()
    j.run()
    assert receipt.status is ReceiptStatus.STALE


def test_no_answer_in_time_is_unknown() -> None:
    rig = Rig(options=ConnectOptions(ack_timeout_ms=2_000))
    rig.server.answers = False
    receipt = acknowledged(rig)
    rig.run()
    assert rig.core.next_deadline() == rig.now + 2
    rig.advance(1.9)
    assert not receipt.done
    rig.advance(0.2)
    assert receipt.status is ReceiptStatus.UNKNOWN
    assert receipt.reason == "no answer within 2000 ms"
    assert rig.core.next_deadline() is None


def test_the_next_deadline_is_the_earliest_of_all_that_wait() -> None:
    rig = Rig(Server(credit=0), ConnectOptions(ack_timeout_ms=2_000))
    assert rig.core.next_deadline() is None
    sender = rig.sender(rig.session(), "r")
    rig.core.limit(sender, rig.send(sender), 3.0, 3.0)
    rig.run()
    of_the_send = rig.now + 3
    assert rig.core.next_deadline() == of_the_send
    rig.server.answers = False
    receiver = rig.receiver(rig.session("individual"))
    rig.server.offer("q", "x", "y")
    rig.run()
    one, other = rig.take(receiver, 2)
    rig.now += 0.5
    one.decide(ACCEPTED)
    rig.run()
    assert rig.core.next_deadline() == rig.now + 2
    rig.advance(2)
    assert rig.core.next_deadline() == of_the_send
    other.decide(ACCEPTED)
    rig.run()
    assert rig.core.next_deadline() == of_the_send


def test_one_unanswered_receipt_does_not_keep_the_answered_ones_in_memory() -> None:
    rig = Rig()
    session = rig.session("individual")
    receiver = rig.receiver(session)
    rig.server.answers = False
    rig.server.offer("q", b"never answered")
    rig.run()
    (message,) = rig.take(receiver, 1)
    message.decide(ACCEPTED)
    rig.run()
    rig.server.answers = True
    for _ in range(3_000):
        rig.server.offer("q", b"x")
        rig.run()
        rig.take(receiver, 1)[0].decide(ACCEPTED)
        rig.run()
    assert len(rig.core._unanswered) <= 1_001


def test_an_answer_that_comes_after_all_changes_nothing() -> None:
    rig = Rig(options=ConnectOptions(ack_timeout_ms=2_000))
    rig.server.answers = False
    receipt = acknowledged(rig)
    rig.run()
    rig.advance(3)
    (told,) = rig.server.all(ev.StatesReceived)
    told.link.session.settle_all(told.deliveries, ACCEPTED)
    rig.run()
    assert receipt.status is ReceiptStatus.UNKNOWN


def test_a_peer_lost_before_its_answer_leaves_it_unknown() -> None:
    rig = Rig()
    rig.server.answers = False
    receipt = acknowledged(rig)
    rig.run()
    rig.cut()
    assert receipt.status is ReceiptStatus.UNKNOWN
    assert receipt.reason == "the connection to server:5672 was lost"


@pytest.mark.parametrize("mode", ACKNOWLEDGING)
def test_an_acknowledgement_after_the_loss_is_stale(mode: str) -> None:
    rig = Rig()
    session = rig.session(mode)
    receiver = rig.receiver(session)
    rig.server.offer("q", *letters(2))
    rig.run()
    a, _ = rig.take(receiver, 2)
    rig.cut()
    receipts = [a.decide(ACCEPTED), session.acknowledge(None, whole_session=False)]
    rig.run()
    assert [receipt.status for receipt in receipts] == [ReceiptStatus.STALE] * 2
    assert receipts[0].reason == "the connection to server:5672 was lost"


def test_an_acknowledgement_after_the_peer_detached_is_stale_and_says_why() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("individual"))
    rig.server.offer("q", b"a")
    rig.run()
    (message,) = rig.take(receiver, 1)
    rig.peer.sending.detach(Error("amqp:link:stolen", "elsewhere"))
    rig.run()
    receipt = message.decide(ACCEPTED)
    rig.run()
    assert receipt.status is ReceiptStatus.STALE
    assert receipt.reason == "the receiver from 'q' was detached by the peer: elsewhere (amqp:link:stolen)"


def test_a_delivery_that_the_peer_settled_first_is_stale() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("individual"))
    rig.server.offer("q", b"a")
    rig.run()
    (message,) = rig.take(receiver, 1)
    (delivery,) = rig.peer.sending.unsettled()
    delivery.settle(Released())
    rig.run()
    assert message.settled
    receipt = message.decide(ACCEPTED)
    rig.run()
    assert receipt.status is ReceiptStatus.STALE
    assert receipt.reason == "the peer had settled it before, as released"


def test_a_lock_that_ran_out_makes_a_later_outcome_stale() -> None:
    """The sender announces an outcome of its own accord, and forgets when the receiver confirms (2.6.12)."""
    rig = Rig()
    rig.server.answers = False
    receiver = rig.receiver(rig.session("individual"))
    rig.server.offer("q", b"a")
    rig.run()
    (message,) = rig.take(receiver, 1)
    (delivery,) = rig.peer.sending.unsettled()
    delivery.update(FAILED)
    rig.run()
    assert [told.state for told in rig.server.all(ev.StatesReceived)] == [FAILED]
    receipt = message.decide(ACCEPTED)
    rig.run()
    assert receipt.status is ReceiptStatus.STALE
    assert receipt.reason == "the peer had settled it before, as modified"


def test_outcomes_that_cross_the_sender_s_answer_decides() -> None:
    rig = Rig()
    rig.server.answers = False
    receiver = rig.receiver(rig.session("individual"))
    rig.server.offer("q", b"a")
    rig.run()
    (message,) = rig.take(receiver, 1)
    receipt = message.decide(ACCEPTED)
    rig.core.process(rig.now)
    (delivery,) = rig.peer.sending.unsettled()
    delivery.update(FAILED)
    rig.run()
    assert not receipt.done
    delivery.settle(FAILED)
    rig.run()
    assert receipt.status is ReceiptStatus.STALE
    assert receipt.reason == "the peer had settled it before, as modified"


@pytest.mark.parametrize("said", [Modified(), Modified(undeliverable_here=True), Modified(True, True)])
def test_a_modified_that_is_not_the_one_that_was_said_is_stale(said: Modified) -> None:
    """A lock that runs out while the outcome is under way is answered with modified(delivery-failed)."""
    rig = Rig()
    rig.server.answers = False
    receiver = rig.receiver(rig.session("individual"))
    rig.server.offer("q", b"a", b"b")
    rig.run()
    late, heard = [message.decide(said) for message in rig.take(receiver, 2)]
    rig.run()
    for delivery, told in zip(rig.peer.sending.unsettled(), (FAILED, said), strict=True):
        delivery.settle(told)
    rig.run()
    assert (late.status, late.reason) == (ReceiptStatus.STALE, "the peer had settled it before, as modified")
    assert heard.status is ReceiptStatus.ANSWERED


def test_a_prefetched_message_that_the_peer_took_back_is_not_handed_out() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("individual"), prefetch=2)
    rig.server.offer("q", *letters(3))
    rig.run()
    first, second = rig.peer.sending.unsettled()
    first.settle(Released())
    second.update(FAILED)
    rig.run()
    assert bodies(rig.take(receiver, 1)) == [b"c"]  # and their credit has come back


def test_one_receipt_tells_the_worst_of_many() -> None:
    rig = Rig()
    session = rig.session("client")
    receiver = rig.receiver(session)
    rig.server.offer("q", *letters(3))
    rig.run()
    rig.take(receiver, 3)
    rig.peer.sending.unsettled()[1].settle(Released())
    rig.run()
    receipt = session.acknowledge(None, whole_session=False)
    rig.run()
    assert (receipt.status, receipt.count) == (ReceiptStatus.STALE, 3)
    assert receipt.reason == "the peer had settled it before, as released"


# -- recover -----------------------------------------------------------------------------------------------------------


def test_recover_leaves_behind_what_the_peer_took_back() -> None:
    rig = Rig()
    session = rig.session("individual")
    receiver = rig.receiver(session, prefetch=2)
    rig.server.offer("q", *letters(3))
    rig.run()
    rig.take(receiver, 2)
    rig.peer.sending.unsettled()[0].settle(Released())
    rig.run()
    session.recover()
    rig.run()
    assert bodies(list(receiver.buffer)) == [b"b", b"c"]


def test_what_recover_has_put_back_was_handed_out_all_the_same() -> None:
    """It goes back as that, so that a message of which each consumer dies comes to its end."""
    rig = Rig()
    session = rig.session("individual")
    receiver = rig.receiver(session)
    rig.server.offer("q", *letters(3))
    rig.run()
    first, second = rig.take(receiver, 2)
    session.recover()
    rig.run()
    with pytest.raises(errors.AlreadySettled, match="`recover` has put this message back: receive it again"):
        first.decide(ACCEPTED)
    assert rig.take(receiver, 1) == [first]
    session.settle_leftovers(receiver)
    rig.run()
    assert [state for _, state, _ in rig.server.outcomes()] == [Released(), *[Modified(delivery_failed=True)] * 2]
    with pytest.raises(errors.AlreadySettled, match="while this message had no outcome: it ended as modified"):
        second.decide(ACCEPTED)


# -- closing -----------------------------------------------------------------------------------------------------------


def test_a_default_outcome_is_what_closing_says() -> None:
    rig = Rig()
    session = rig.session("individual")
    receiver = rig.receiver(session, default_outcome=RELEASED)
    (requested,) = rig.server.all(ev.LinkRequested)
    assert requested.link.remote_attach is not None
    assert requested.link.remote_attach.source.default_outcome == Released()  # type: ignore[union-attr]
    rig.server.offer("q", *letters(2))
    rig.run()
    rig.take(receiver, 1)
    session.settle_leftovers(receiver)
    rig.run()
    assert {state for _, state, _ in rig.server.outcomes()} == {Released()}


def test_no_default_outcome_is_sent_unless_it_was_asked_for() -> None:
    """The broker gives back what was only prefetched without counting it; a default-outcome would apply to it too."""
    rig = Rig()
    rig.receiver(rig.session("client"))
    (requested,) = rig.server.all(ev.LinkRequested)
    assert requested.link.remote_attach is not None
    assert requested.link.remote_attach.source.default_outcome is None  # type: ignore[union-attr]


def test_what_arrives_while_closing_goes_back() -> None:
    rig = Rig()
    session = rig.session("individual")
    receiver = rig.receiver(session)
    rig.server.offer("q", b"a")  # on its way
    session.settle_leftovers(receiver)
    rig.run()
    assert rig.server.outcomes() == [(b"a", Released(), False)]
    assert rig.peer.sending.credit == 0


# -- the end of things -------------------------------------------------------------------------------------------------


def test_the_loss_of_the_connection_ends_everything() -> None:
    rig = Rig()
    session = rig.session("individual")
    receiver, sender = rig.receiver(session), rig.sender(session, "p")
    rig.server.verdict = lambda delivery: None
    sent = rig.send(sender)
    rig.run()
    rig.cut()
    for check in (receiver.check, sender.check, session.check, rig.core.check):
        with pytest.raises(errors.ConnectionLost, match="the connection to server:5672 was lost"):
            check()
    with pytest.raises(errors.DeliveryInDoubt, match="no outcome was heard: the connection to server:5672 was lost"):
        sent.value()
    assert rig.core.closed.done
    assert rig.core.sessions == []


def test_prefetched_messages_are_dropped_with_the_connection_as_the_broker_delivers_them_again() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("auto"))
    rig.server.offer("q", b"a")
    rig.run()
    rig.cut()
    assert receiver.take() is None
    with pytest.raises(errors.ConnectionLost):
        receiver.check()


def test_in_no_ack_mode_prefetched_messages_are_handed_out_first_as_nobody_else_has_them() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("no_ack"))
    rig.server.offer("q", b"a")
    rig.run()
    rig.cut()
    receiver.check()
    assert bodies(rig.take(receiver, 1)) == [b"a"]
    with pytest.raises(errors.ConnectionLost):
        receiver.check()


def test_the_end_of_a_session_ends_its_links_alone() -> None:
    rig = Rig()
    doomed, other = rig.session("client"), rig.session("client")
    receiver, spared = rig.receiver(doomed, "p"), rig.receiver(other, "q")
    rig.server.answers = False
    rig.server.offer("p", b"a")
    rig.run()
    (message,) = rig.take(receiver, 1)
    receipt = message.decide(ACCEPTED)
    rig.run()
    rig.peer.engine.sessions[0].end(Error("amqp:internal-error", "oh"))
    rig.run()
    assert receipt.status is ReceiptStatus.UNKNOWN
    with pytest.raises(errors.SessionEnded, match=r"the session was ended by the peer: oh \(amqp:internal-error\)"):
        receiver.check()
    spared.check()
    assert rig.core.sessions == [other]


def test_the_peer_closes_the_connection() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session())
    rig.peer.engine.close(Error("amqp:connection:forced", "maintenance"))
    rig.run()
    with pytest.raises(errors.ConnectionClosed, match="maintenance") as caught:
        receiver.check()
    assert (caught.value.condition, caught.value.remote) == ("amqp:connection:forced", True)
    assert not receiver.closed_by_us


def test_our_own_close_ends_receivers_in_order() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session())
    rig.core.close()
    rig.run()
    assert receiver.closed_by_us
    with pytest.raises(errors.ConnectionClosed, match="closed by us"):
        receiver.check()
    with pytest.raises(errors.ConnectionClosed):
        rig.core.begin(receiver.mode)


@pytest.mark.parametrize(
    ("condition", "kind"),
    [("amqp:not-found", errors.NotFound), ("amqp:unauthorized-access", errors.Unauthorized)],
)
@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_a_refused_link_says_why(condition: str, kind: type[errors.LinkDetached], role: str) -> None:
    rig = Rig()
    rig.server.refusals["q"] = Error(condition, "not here")
    session = rig.session()
    link = rig.sender(session) if role == "sender" else rig.receiver(session)
    assert link.attached.done
    with pytest.raises(kind, match="not here"):
        link.attached.check()
    with pytest.raises(kind):
        link.check()
    assert not session.senders and not session.receivers


def test_a_forked_child_is_told_at_once_and_says_nothing_to_the_peer() -> None:
    rig = Rig()
    session = rig.session("individual")
    receiver, sender = rig.receiver(session), rig.sender(session, "p")
    rig.server.offer("q", *letters(2))
    rig.run()
    (message,) = rig.take(receiver, 1)
    sent = rig.send(sender)
    rig.core.abandon("not yours")
    assert not rig.engine.has_output
    for check in (receiver.check, sender.check, session.check, rig.core.check, sent.value):
        with pytest.raises(errors.ConnectionLost, match="not yours"):
            check()
    assert not receiver.closed_by_us  # or a loop over it would end as if all had been seen
    receipt = message.decide(ACCEPTED)  # ends at once: no loop will come for it
    assert (receipt.status, receipt.reason) == (ReceiptStatus.STALE, "not yours")


# -- a peer that takes liberties ---------------------------------------------------------------------------------------


def test_sessions_and_links_of_the_peer_are_declined() -> None:
    rig = Rig()
    session = rig.session()
    rig.receiver(session)
    theirs = rig.peer.engine.begin()
    link = rig.peer.sending.session.attach_receiver("theirs")
    rig.run()
    (ended,) = rig.server.all(ev.SessionEnded)
    assert ended.session is theirs
    assert ended.error is not None and ended.error.condition == "amqp:not-allowed"
    (detached,) = rig.server.all(ev.LinkDetached)
    assert detached.link is link
    session.check()


# -- modes by their value ----------------------------------------------------------------------------------------------


def test_a_link_belongs_to_the_mode_of_its_session() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session(AckMode.CLIENT))
    assert receiver.mode.name is AckMode.CLIENT
    assert isinstance(rig.peer.sending, SendingLink)


# -- DUPS_OK and PRE_ACK -----------------------------------------------------------------------------------------------


def test_dups_ok_says_an_explicit_outcome_at_once_and_in_order() -> None:
    rig = Rig()
    session = rig.session("dups_ok")
    receiver = rig.receiver(session)
    rig.server.offer("q", "1", "2")
    rig.run()
    rig.take(receiver, 1)
    message = receiver.take_for_listener()
    assert message is not None
    with receiver.listening(message):
        receipt = message.decide(RELEASED)
        rig.run()
    assert receipt.status is ReceiptStatus.SENT
    assert rig.server.outcomes() == [("1", ACCEPTED, True), ("2", RELEASED, True)]


def test_dups_ok_acknowledges_lazily_after_a_listener() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("dups_ok"))
    rig.server.offer("q", "1", "2")
    rig.run()
    for fails in (False, True):
        message = receiver.take_for_listener()
        assert message is not None
        with receiver.listening(message):
            rig.run()
            if fails:
                raise ValueError
    rig.run()
    assert rig.server.outcomes() == [("1", ACCEPTED, True)]  # another outcome ends the run of the first
    rig.advance(0.2)
    rig.run()
    assert rig.server.outcomes()[1:] == [("2", FAILED, True)]


def test_what_dups_ok_has_gathered_is_gone_with_the_connection() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("dups_ok"))
    rig.server.offer("q", "1")
    rig.run()
    rig.take(receiver, 1)
    rig.run()
    rig.cut()
    assert rig.core.next_deadline() is None


def test_a_receipt_ends_though_the_socket_takes_nothing_any_more() -> None:
    rig = Rig(options=ConnectOptions(ack_timeout_ms=1_000))
    session = rig.session("auto")
    receiver = rig.receiver(session)
    rig.server.offer("q", "x")
    rig.run()
    message = receiver.take_for_listener()
    assert message is not None
    rig.core.on_writable(False)
    receipt = message.decide(RELEASED)
    rig.core.process(rig.now)
    rig.advance(0.5)
    assert not receipt.done
    rig.advance(0.6)
    assert receipt.status is ReceiptStatus.UNKNOWN
    rig.core.on_writable(True)
    rig.run()
    assert receipt.status is ReceiptStatus.UNKNOWN


def test_a_receipt_ends_though_the_transaction_is_never_declared() -> None:
    server = Server()
    server.declaration = lambda txn_id: None
    rig = Rig(server, ConnectOptions(ack_timeout_ms=1_000))
    session = rig.session("transacted")
    receiver = rig.receiver(session)
    rig.server.offer("q", "x")
    rig.run()
    (message,) = rig.take(receiver, 1)
    receipt = message.decide(ACCEPTED)
    rig.run()
    assert not receipt.done
    rig.advance(1.1)
    assert receipt.status is ReceiptStatus.UNKNOWN

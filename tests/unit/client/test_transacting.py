"""Sessions in mode TRANSACTED: what goes over the wire, and what the user is told of the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from acquit import errors
from acquit.client.failures import Failure
from acquit.client.fates import FateQuery, TransactionFate
from acquit.client.options import ConnectOptions
from acquit.client.receipts import ReceiptStatus
from acquit.client.transacting import SessionTransactions, Transaction
from acquit.client.transaction_stages import Fate
from acquit.client.transaction_stages import Stage as LifeStage
from acquit.protocol import events as ev
from acquit.protocol.constants import ACCEPTED, Outcome
from acquit.protocol.definitions import (
    Declare,
    Declared,
    Discharge,
    Error,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from acquit.protocol.link import ReceivingLink, SendingLink
from acquit.protocol.session import Session
from tests.support.broker_world import live_of
from tests.support.joined import Joined
from tests.support.server import Rig, Server, ServerConnection, receiver_spec, sender_spec

FAILED = Modified(delivery_failed=True)
ACCEPTED_IN_1 = TransactionalState(b"txn-1", ACCEPTED)


class Stage:
    """A transacted session over a rig."""

    def __init__(self, server: Server | None = None, options: ConnectOptions | None = None) -> None:
        self.rig = Rig(server, options)
        self.server = self.rig.server
        self.session = self.rig.session("transacted")
        transactions = self.session.transactions
        assert transactions is not None
        self.transactions: SessionTransactions = transactions
        transactions.open()
        self.rig.run()

    def end(self, *, commit: bool = True) -> Transaction:
        self.rig.run()
        ending = self.transactions.end(commit=commit)
        ending.heard = True
        self.rig.run()
        return ending

    @property
    def controlled(self) -> list[Declare | Discharge]:
        return self.server.controlled

    @property
    def peer(self) -> ServerConnection:
        return self.rig.peer

    @property
    def control(self) -> ReceivingLink:
        return next(link for link in self.peer.links(ReceivingLink) if link.name.startswith("transactions"))


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_nothing_is_declared_before_there_is_work(stage: Stage) -> None:
    stage.rig.receiver(stage.session)
    stage.rig.sender(stage.session, "r")
    assert stage.controlled == []
    assert stage.end().fate is Fate.COMMITTED
    assert stage.end(commit=False).fate is Fate.ROLLED_BACK
    assert stage.controlled == []


def test_sends_and_what_was_received_are_one_transaction(stage: Stage) -> None:
    first, second = stage.rig.receiver(stage.session, "a"), stage.rig.receiver(stage.session, "b")
    sender = stage.rig.sender(stage.session, "c")
    stage.server.offer("a", "1", "2")
    stage.server.offer("b", "3")
    stage.rig.run()
    taken = [*stage.rig.take(first, 2), *stage.rig.take(second, 1)]
    promise = stage.rig.send(sender, "4")
    stage.rig.run()
    (posted,) = stage.server.taken
    assert posted.remote_state == TransactionalState(b"txn-1")
    assert promise.provisional
    assert promise.outcome == ACCEPTED
    assert stage.server.outcomes() == []
    ending = stage.end()
    assert ending.error() is None
    assert not promise.provisional
    assert promise.value() == ACCEPTED
    assert stage.server.outcomes() == [(body, ACCEPTED_IN_1, True) for body in ("1", "2", "3")]
    assert stage.controlled == [Declare(), Discharge(b"txn-1", False)]
    assert all(message.settled for message in taken)
    # The outcomes are there before the discharge that is to commit them.
    heard = [type(event) for event in stage.server.heard]
    states = max(i for i, kind in enumerate(heard) if kind is ev.StatesReceived)
    assert states < max(i for i, kind in enumerate(heard) if kind is ev.DeliveriesReceived)


def test_each_transaction_has_an_id_of_its_own(stage: Stage) -> None:
    sender = stage.rig.sender(stage.session)
    for number in (1, 2):
        stage.rig.send(sender)
        stage.end()
        assert stage.server.taken[-1].remote_state == TransactionalState(b"txn-%d" % number)
    assert stage.controlled[2:] == [Declare(), Discharge(b"txn-2", False)]


def test_the_source_says_what_becomes_of_what_is_rolled_back(stage: Stage) -> None:
    stage.rig.receiver(stage.session)
    stage.rig.receiver(stage.session, "other", default_outcome=Released())
    sources = [e.link.remote_attach.source for e in stage.server.all(ev.LinkRequested) if e.link.remote_attach]
    assert [source.default_outcome for source in sources if source is not None] == [None, FAILED, Released()]


def test_an_explicit_outcome_is_part_of_the_transaction(stage: Stage) -> None:
    receiver = stage.rig.receiver(stage.session)
    stage.server.offer("q", "x", "y")
    stage.rig.run()
    message, _ = stage.rig.take(receiver, 2)
    receipt = message.decide(Rejected())
    assert not receipt.done
    assert stage.transactions.open_receipts() == []  # left for the loop side
    stage.rig.run()
    assert receipt.status is ReceiptStatus.SENT
    with pytest.raises(errors.AlreadySettled):
        message.decide(ACCEPTED)
    stage.end()
    assert stage.server.outcomes() == [
        ("x", TransactionalState(b"txn-1", Rejected()), True),
        ("y", ACCEPTED_IN_1, True),
    ]


def test_pull_stops_at_unsettled_max_too() -> None:
    stage = Stage(options=ConnectOptions(unsettled_max=1))
    receiver = stage.rig.receiver(stage.session, prefetch=0)
    stage.server.offer("q", "x", "y")
    receiver.begin_wait()
    stage.rig.run()
    stage.rig.take(receiver, 1)
    stage.rig.run()
    assert receiver.link.credit == 0
    assert receiver.exhausted


def test_rollback_drains_gives_back_and_discharges_with_fail(stage: Stage) -> None:
    receiver = stage.rig.receiver(stage.session, prefetch=4)
    sender = stage.rig.sender(stage.session, "r")
    stage.server.offer("q", "1", "2", "3")
    stage.rig.run()
    (taken,) = stage.rig.take(receiver, 1)
    promise = stage.rig.send(sender)
    stage.rig.run()
    ending = stage.end(commit=False)
    assert ending.done
    assert taken.settled
    assert stage.server.outcomes() == [("1", FAILED, True), ("2", Released(), True), ("3", Released(), True)]
    assert stage.controlled == [Declare(), Discharge(b"txn-1", True)]
    assert (receiver.link.credit, receiver.held, receiver.buffer) == (4, 0, type(receiver.buffer)())
    with pytest.raises(errors.TransactionRolledBack):
        promise.value()
    stage.server.offer("q", "4")
    stage.rig.run()
    assert [message.body for message in stage.rig.take(receiver, 1)] == ["4"]


def test_rollback_waits_for_the_drain_and_returns_what_comes_meanwhile(stage: Stage) -> None:
    stage.server.drains = False
    receiver = stage.rig.receiver(stage.session, prefetch=4)
    stage.server.offer("q", "1")
    stage.rig.run()
    stage.rig.take(receiver, 1)
    ending = stage.end(commit=False)
    assert not ending.done
    link = next(iter(stage.peer.links(SendingLink)))
    stage.peer.send(link, "2")
    stage.rig.run()
    assert not receiver.buffer
    assert stage.server.outcomes()[-1] == ("2", Released(), True)
    assert (link.drain, link.credit) == (True, 2)
    assert Discharge(b"txn-1", True) not in stage.controlled
    link.drained()
    stage.rig.run()
    assert ending.done
    assert stage.controlled[-1] == Discharge(b"txn-1", True)
    assert receiver.link.credit == 4


def test_a_peer_that_does_not_drain_is_not_waited_for_for_ever(stage: Stage) -> None:
    stage.server.drains = False
    receiver = stage.rig.receiver(stage.session, prefetch=4)
    stage.server.offer("q", "1")
    stage.rig.run()
    stage.rig.take(receiver, 1)
    ending = stage.end(commit=False)
    stage.transactions.give_up(ending, " in time")
    stage.rig.run()
    assert ending.done
    assert stage.controlled[-1] == Discharge(b"txn-1", True)
    assert (receiver.link.credit, receiver.link.drain) == (4, False)


def test_a_refused_discharge_is_a_rollback(stage: Stage) -> None:
    stage.server.commits = lambda discharge: Rejected(Error("amqp:transaction:rollback", "disk full"))
    promise = stage.rig.send(stage.rig.sender(stage.session))
    error = stage.end().error()
    assert isinstance(error, errors.TransactionRolledBack)
    assert (error.txn_id, error.condition, error.description) == (b"txn-1", "amqp:transaction:rollback", "disk full")
    with pytest.raises(errors.TransactionRolledBack, match="disk full"):
        promise.value()
    stage.server.commits = lambda discharge: ACCEPTED
    again = stage.rig.send(stage.session.senders[0])
    assert stage.end().error() is None
    assert again.value() == ACCEPTED


def test_a_refused_declare_refuses_what_was_sent_and_the_commit(stage: Stage) -> None:
    stage.server.declaration = lambda txn_id: Rejected(Error("amqp:resource-limit-exceeded", "too many"))
    sender, receiver = stage.rig.sender(stage.session), stage.rig.receiver(stage.session)
    notified: list[object] = []
    receiver.notify = lambda: notified.append(receiver.refusal)
    promise = stage.rig.send(sender)
    stage.rig.run()
    with pytest.raises(errors.TransactionRolledBack, match="too many"):
        promise.value()
    assert "too many" in str(notified[-1])
    with pytest.raises(errors.TransactionRolledBack, match="too many"):
        receiver.take()
    later = stage.rig.send(sender)
    stage.rig.run()
    assert later.done
    assert len(stage.controlled) == 1
    error = stage.end().error()
    assert isinstance(error, errors.TransactionRolledBack)
    assert error.condition == "amqp:resource-limit-exceeded"
    stage.server.declaration = Declared
    stage.rig.send(sender)
    assert stage.end().error() is None


def test_a_refused_send_of_which_nobody_heard_rolls_all_of_it_back(stage: Stage) -> None:
    sender = stage.rig.sender(stage.session)
    receiver = stage.rig.receiver(stage.session, "r")
    stage.server.offer("r", "x")
    stage.rig.run()
    stage.rig.take(receiver, 1)
    stage.server.verdict = lambda delivery: Rejected(Error("amqp:not-allowed", "too big"))
    stage.rig.send(sender)
    error = stage.end().error()
    assert isinstance(error, errors.TransactionRolledBack)
    assert "too big" in str(error)
    assert stage.controlled[-1] == Discharge(b"txn-1", True)
    assert stage.server.outcomes() == [("x", FAILED, True)]


def test_a_refused_send_that_was_heard_of_is_not_part_of_the_commit(stage: Stage) -> None:
    sender = stage.rig.sender(stage.session)
    stage.server.verdict = lambda delivery: Rejected()
    promise = stage.rig.send(sender)
    stage.rig.run()
    with pytest.raises(errors.MessageRejected):
        promise.value()
    assert stage.end().error() is None
    assert stage.controlled[-1] == Discharge(b"txn-1", False)


def test_a_commit_waits_for_every_send_and_takes_no_later_one(stage: Stage) -> None:
    stage.server.verdict = lambda delivery: None
    sender = stage.rig.sender(stage.session)
    stage.rig.send(sender, "first")
    ending = stage.end()
    late = stage.rig.send(sender, "second")
    stage.rig.run()
    assert stage.controlled == [Declare()]
    assert stage.server.bodies() == ["first"]
    stage.server.verdict = lambda delivery: ACCEPTED
    stage.server.taken[0].settle(ACCEPTED_IN_1)
    stage.rig.run()
    assert ending.error() is None
    assert stage.controlled == [Declare(), Discharge(b"txn-1", False), Declare()]
    assert late.provisional
    assert stage.server.taken[1].remote_state == TransactionalState(b"txn-2")


def test_a_send_that_was_taken_back_is_not_waited_for() -> None:
    stage = Stage(Server(credit=1))
    sender = stage.rig.sender(stage.session)
    stage.server.credit = 0
    stage.rig.send(sender, "first")
    waits = stage.rig.send(sender, "second")
    ending = stage.end()
    assert not ending.done
    sender.withdraw(waits)
    stage.control.grant(5)
    stage.rig.run()
    assert ending.error() is None


def test_a_message_that_was_taken_back_rolls_all_of_it_back(stage: Stage) -> None:
    receiver = stage.rig.receiver(stage.session)
    stage.server.offer("q", "x")
    stage.rig.run()
    stage.rig.take(receiver, 1)
    stage.rig.run()
    stage.peer.sending.session.settle_all(stage.peer.sending.unsettled(), Released())
    stage.rig.run()
    error = stage.end().error()
    assert isinstance(error, errors.TransactionRolledBack)
    assert "not ours any more: the peer had settled it before, as released" in str(error)
    assert stage.controlled[-1] == Discharge(b"txn-1", True)


def test_a_lost_connection_before_the_discharge_is_a_rollback(stage: Stage) -> None:
    promise = stage.rig.send(stage.rig.sender(stage.session))
    stage.rig.run()
    stage.rig.cut()
    error = stage.end().error()
    assert isinstance(error, errors.TransactionRolledBack)
    assert error.txn_id == b"txn-1"
    with pytest.raises(errors.TransactionRolledBack):
        promise.value()


def test_a_session_that_is_over_is_not_said_to_be_in_a_failed_transaction(stage: Stage) -> None:
    """Who waits for a message hears of the connection, at whatever moment he looks."""
    sender, receiver = stage.rig.sender(stage.session), stage.rig.receiver(stage.session)
    stage.rig.send(sender)
    stage.rig.run()
    found: list[object] = []
    receiver.notify = lambda: found.append(receiver.refusal)
    stage.rig.cut()
    assert set(found) == {None}
    with pytest.raises(errors.ConnectionLost):
        receiver.check()


@pytest.mark.parametrize("answer", [ACCEPTED, Rejected(), Released()])
def test_whatever_the_peer_says_of_a_rollback_it_is_one(stage: Stage, answer: Outcome) -> None:
    stage.rig.send(stage.rig.sender(stage.session))
    stage.rig.run()
    ending = stage.transactions.end(commit=False)
    assert ending.stage is LifeStage.ROLLING_BACK
    stage.transactions.on_discharged(ending, answer)
    assert ending.done
    assert ending.stage is LifeStage.ROLLED_BACK


@pytest.mark.parametrize("what", ["cut", "end"])
def test_a_peer_that_is_lost_after_the_discharge_leaves_it_in_doubt(stage: Stage, what: str) -> None:
    stage.server.commits = lambda discharge: None
    promise = stage.rig.send(stage.rig.sender(stage.session))
    ending = stage.end()
    assert not ending.done
    if what == "cut":
        stage.rig.cut()
    else:
        stage.peer.engine.sessions[0].end()
        stage.rig.run()
    error = ending.error()
    assert ending.done
    assert isinstance(error, errors.TransactionInDoubt)
    assert error.txn_id == b"txn-1"
    with pytest.raises(errors.TransactionInDoubt):
        promise.value()


def test_an_answer_that_comes_after_all_ends_the_doubt(stage: Stage) -> None:
    stage.server.commits = lambda discharge: None
    promise = stage.rig.send(stage.rig.sender(stage.session))
    ending = stage.end()
    stage.transactions.give_up(ending, " within 1 s")
    assert isinstance(ending.error(), errors.TransactionInDoubt)
    stage.control.unsettled()[0].settle(ACCEPTED)
    stage.rig.run()
    assert ending.error() is None
    assert promise.value() == ACCEPTED


def test_giving_up_before_the_discharge_is_a_rollback(stage: Stage) -> None:
    stage.server.declaration = lambda txn_id: None
    stage.rig.send(stage.rig.sender(stage.session))
    ending = stage.end()
    stage.transactions.give_up(ending, " within 1 s")
    assert isinstance(ending.error(), errors.TransactionRolledBack)
    stage.control.unsettled()[0].settle(Declared(b"late"))
    stage.rig.run()
    assert stage.controlled == [Declare(), Discharge(b"late", True)]


@pytest.mark.parametrize("discharged", [False, True])
def test_the_end_of_the_control_link_with_an_error_is_a_rollback(stage: Stage, discharged: bool) -> None:
    stage.server.commits = lambda discharge: None
    sender = stage.rig.sender(stage.session)
    stage.rig.send(sender)
    stage.rig.run()
    ending = stage.end() if discharged else None
    stage.control.detach(Error("amqp:transaction:rollback", "two outcomes"))
    stage.rig.run()
    if ending is None:
        refused = stage.rig.send(sender)
        stage.rig.run()
        with pytest.raises(errors.TransactionRolledBack, match="two outcomes"):
            refused.value()
        ending = stage.end()
    error = ending.error()
    assert isinstance(error, errors.TransactionRolledBack)
    assert error.condition == "amqp:transaction:rollback"
    # The next transaction gets a control link of its own.
    stage.server.commits = lambda discharge: ACCEPTED
    stage.rig.send(sender)
    assert stage.end().error() is None


def test_whoever_waits_for_the_control_link_is_told_why_the_peer_refused_it() -> None:
    server = Server()
    server.refusals[""] = Error("amqp:unauthorized-access", "no transactions for you")
    stage = Stage(server)
    control = stage.transactions.control
    assert control is not None
    assert control.attached.done
    with pytest.raises(errors.Unauthorized, match="no transactions for you"):
        control.attached.check()


def test_a_sender_that_is_lost_takes_its_transaction_along(stage: Stage) -> None:
    stage.server.verdict = lambda delivery: None
    sender = stage.rig.sender(stage.session)
    stage.rig.send(sender)
    stage.rig.run()
    next(link for link in stage.peer.links(ReceivingLink) if link is not stage.control).detach(
        Error("amqp:resource-deleted", "queue gone")
    )
    stage.rig.run()
    error = stage.end().error()
    assert isinstance(error, errors.TransactionRolledBack)
    assert "queue gone" in str(error)


def test_what_a_closed_receiver_handed_out_stays_part_of_the_transaction(stage: Stage) -> None:
    receiver = stage.rig.receiver(stage.session)
    stage.server.offer("q", "1", "2")
    stage.rig.run()
    stage.rig.take(receiver, 1)
    stage.session.settle_leftovers(receiver)
    stage.rig.run()
    receiver.detach()
    stage.rig.run()
    assert sorted(stage.server.outcomes(), key=str) == sorted(
        [("2", Released(), True), ("1", ACCEPTED_IN_1, True)], key=str
    )
    assert stage.end().error() is None
    assert stage.controlled[-1] == Discharge(b"txn-1", False)


def test_sends_that_were_rolled_back_are_no_news_at_the_close(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(Server(credit=2))
    stage.server.verdict = lambda delivery: Rejected()
    sender = stage.rig.sender(stage.session)
    stage.server.credit = 0
    for _ in range(2):
        stage.rig.send(sender)
    assert isinstance(stage.end().error(), errors.TransactionRolledBack)
    waits = stage.rig.send(sender)
    stage.end(commit=False)
    with pytest.raises(errors.TransactionRolledBack):
        waits.value()
    sender.warn_of_failed()
    assert not caplog.records


def test_a_receiver_that_is_lost_rolls_all_of_it_back(stage: Stage) -> None:
    receiver = stage.rig.receiver(stage.session)
    sender = stage.rig.sender(stage.session, "r")
    stage.server.offer("q", "x")
    stage.rig.run()
    stage.rig.take(receiver, 1)
    stage.rig.send(sender)
    stage.rig.run()
    stage.peer.sending.detach(Error("amqp:resource-deleted", "queue gone"))
    stage.rig.run()
    error = stage.end().error()
    assert isinstance(error, errors.TransactionRolledBack)
    assert "queue gone" in str(error)
    assert stage.controlled[-1] == Discharge(b"txn-1", True)


def test_a_provisional_outcome_may_come_unsettled(stage: Stage) -> None:
    """A peer that settles only with the discharge tells the state before; the sender is who settles then."""
    stage.server.verdict = lambda delivery: None
    promise = stage.rig.send(stage.rig.sender(stage.session))
    stage.rig.run()
    (posted,) = stage.server.taken
    posted.update(ACCEPTED_IN_1)
    stage.rig.run()
    assert (promise.outcome, promise.provisional) == (ACCEPTED, True)
    assert posted.settled
    assert stage.end().error() is None


def test_an_outcome_in_a_transaction_that_failed_is_said_nowhere_and_the_message_goes_back(stage: Stage) -> None:
    """Also where it is given before the loop side has heard of the hand-over."""
    receiver = stage.rig.receiver(stage.session)
    stage.server.offer("q", "x", "y")
    stage.rig.run()
    (first,) = stage.rig.take(receiver, 1)
    stage.transactions.current.roll_back("something failed")
    receipt = first.decide(ACCEPTED)
    stage.rig.run()
    assert receipt.status is ReceiptStatus.STALE
    assert isinstance(stage.end().error(), errors.TransactionRolledBack)
    assert ("x", FAILED, True) in stage.server.outcomes()
    stage.server.offer("q", "z")
    stage.rig.run()
    (second,) = stage.rig.take(receiver, 1)
    second.decide(ACCEPTED)
    assert stage.end().error() is None
    assert [state for body, state, _ in stage.server.outcomes() if body == "x"] == [FAILED]


def test_an_outcome_that_waits_for_the_transaction_goes_back_with_its_rollback(stage: Stage) -> None:
    stage.server.declaration = lambda _: None
    receiver = stage.rig.receiver(stage.session)
    stage.server.offer("q", "x")
    stage.rig.run()
    (message,) = stage.rig.take(receiver, 1)
    receipt = message.decide(Rejected())
    stage.rig.run()
    assert stage.server.outcomes() == []
    ending = stage.transactions.end(commit=False)
    stage.rig.run()
    assert receipt.status is ReceiptStatus.STALE
    assert stage.server.outcomes() == [("x", FAILED, True)]
    assert ending.fate is Fate.ROLLED_BACK


def test_outcomes_that_were_lost_with_the_connection_are_not_left_out_of_the_commit() -> None:
    """They were not said yet, and nothing was learnt of the sends: still the transaction is no fresh one."""
    joined = Joined()
    filling = joined.session("auto")
    joined.send(filling.add_sender(sender_spec("q")), "x")
    joined.run()
    session = joined.session("transacted")
    assert session.transactions is not None
    session.transactions.open()
    receiver, sender = session.add_receiver(receiver_spec("q")), session.add_sender(sender_spec("copies"))
    joined.run()
    message = receiver.take()
    assert message is not None
    joined.send(sender, "a copy")
    session.settle_all([message], ACCEPTED)
    joined.cut()
    joined.restore()
    joined.run()
    ending = session.transactions.end(commit=True)
    joined.run()
    assert isinstance(ending.error(), errors.TransactionRolledBack)


def unanswered_commit() -> tuple[Joined, Transaction]:
    """The broker has committed; the connection was lost before its answer came."""
    joined = Joined()
    session = joined.session("transacted")
    assert session.transactions is not None
    session.transactions.open()
    sender = session.add_sender(sender_spec("q"))
    joined.run()
    joined.send(sender, "x")
    joined.run()
    ending = session.transactions.end(commit=True)
    joined.move(1 << 30, 0)
    joined.sync()
    joined.cut()
    assert not ending.done
    return joined, ending


@pytest.mark.timeout(10)
@pytest.mark.parametrize("cuts", range(3))
def test_the_broker_is_asked_about_a_commit_whose_answer_was_lost(cuts: int) -> None:
    """`cuts`: how often the question is lost as well."""
    joined, ending = unanswered_commit()
    for _ in range(cuts):
        joined.restore()
        joined.cut()
        assert not ending.done
    joined.restore()
    joined.run()
    assert ending.done
    assert ending.fate is Fate.COMMITTED
    assert live_of(joined.world, "q") == 1


def test_what_the_broker_says_after_all_ends_the_doubt() -> None:
    joined, ending = unanswered_commit()
    joined.restore()
    transactions = joined.client.sessions[0].transactions
    assert transactions is not None
    transactions.give_up(ending, " within 1 s")
    assert isinstance(ending.error(), errors.TransactionInDoubt)
    joined.run()
    assert ending.error() is None


def unheard_commit() -> tuple[Joined, Transaction]:
    """The connection was lost with the commit on its way to the broker, which has rolled it back."""
    joined = Joined()
    session = joined.session("transacted")
    assert session.transactions is not None
    session.transactions.open()
    sender = session.add_sender(sender_spec("q"))
    joined.run()
    joined.send(sender, "x")
    joined.run()
    ending = session.transactions.end(commit=True)
    joined.cut()
    assert not ending.done
    return joined, ending


def transactions_of(joined: Joined) -> SessionTransactions:
    transactions = joined.client.sessions[0].transactions
    assert transactions is not None
    return transactions


def test_a_rollback_that_the_broker_tells_after_all_ends_the_doubt() -> None:
    joined, ending = unheard_commit()
    joined.restore()
    transactions_of(joined).give_up(ending, " within 1 s")
    assert isinstance(ending.error(), errors.TransactionInDoubt)
    joined.run()
    error = ending.error()
    assert isinstance(error, errors.TransactionRolledBack)
    assert "the broker says that it was rolled back" in str(error)


def test_a_broker_that_does_not_know_leaves_the_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FateQuery, "_read", lambda query, answer: TransactionFate.UNKNOWN)
    joined, ending = unanswered_commit()
    joined.restore()
    transactions_of(joined).give_up(ending, " within 1 s")
    joined.run()
    assert isinstance(ending.error(), errors.TransactionInDoubt)
    transactions_of(joined).turn(ending)  # too late
    assert isinstance(ending.error(), errors.TransactionInDoubt)


def test_a_broker_that_cannot_be_asked_leaves_the_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    joined, ending = unanswered_commit()
    attach = Session.attach_sender

    def one_less(session: Session, name: str, **asked: Any) -> SendingLink:
        if name.startswith("fate"):
            raise errors.LocalProtocolError("no handle is left")
        return attach(session, name, **asked)

    with monkeypatch.context() as patched:
        patched.setattr(Session, "attach_sender", one_less)
        joined.restore()
    joined.run()
    assert isinstance(ending.error(), errors.TransactionInDoubt)
    transactions = transactions_of(joined)
    transactions.turn(ending)
    joined.send(joined.client.sessions[0].senders[0], "another")
    joined.run()
    again = transactions.end(commit=True)
    joined.run()
    joined.sync()
    joined.run()
    assert again.fate is Fate.COMMITTED


@pytest.mark.parametrize(
    ("condition", "before", "commit", "after"),
    [
        (None, Fate.IN_DOUBT, unanswered_commit, Fate.COMMITTED),
        (None, Fate.IN_DOUBT, unheard_commit, Fate.ROLLED_BACK),
        ("amqp:transaction:rollback", Fate.ROLLED_BACK, unanswered_commit, Fate.COMMITTED),
        ("amqp:transaction:rollback", Fate.ROLLED_BACK, unheard_commit, Fate.ROLLED_BACK),
    ],
)
def test_a_control_link_that_ends_while_the_broker_is_asked(
    condition: str | None, before: Fate, commit: Callable[[], tuple[Joined, Transaction]], after: Fate
) -> None:
    joined, ending = commit()
    joined.restore()
    control = transactions_of(joined).control
    assert control is not None
    control.on_ended(Failure(errors.LinkDetached, "no coordinator here", condition))
    assert ending.done
    assert ending.fate is before
    joined.run()
    assert ending.fate is after


def test_a_rollback_that_was_promised_stays_one_of_which_the_broker_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FateQuery, "_read", lambda query, answer: TransactionFate.UNKNOWN)
    joined, ending = unanswered_commit()
    joined.restore()
    control = transactions_of(joined).control
    assert control is not None
    control.on_ended(Failure(errors.LinkDetached, "no coordinator here", "amqp:transaction:rollback"))
    joined.run()
    assert ending.fate is Fate.ROLLED_BACK


def _interrupted(j: Joined, seconds: int) -> None:
    """The connection is lost, and comes back so much later."""
    j.cut()
    j.world.now_us += seconds * 1_000_000
    j.client.handle_deadline(j.now)
    j.restore()
    j.run()


def test_a_send_that_waited_too_long_for_the_connection_is_not_left_out_of_the_commit() -> None:
    j = Joined(options=ConnectOptions(send_timeout_ms=1_000))
    session = j.session("transacted")
    sender = session.add_sender(sender_spec("q"))
    j.run()
    lost = j.send(sender, "lost")
    _interrupted(j, 2)
    assert isinstance(lost.error(), errors.ConnectionLost)
    kept = j.send(sender, "kept")
    j.run()
    assert session.transactions is not None
    ending = session.transactions.end(commit=True)
    j.run()
    assert isinstance(ending.error(), errors.TransactionRolledBack)
    assert isinstance(kept.error(), errors.TransactionRolledBack)


def test_a_commit_does_not_wait_for_a_send_that_waited_too_long_for_the_connection() -> None:
    j = Joined(options=ConnectOptions(send_timeout_ms=1_000))
    session = j.session("transacted")
    sender = session.add_sender(sender_spec("q"))
    j.run()
    j.send(sender, "lost")
    assert session.transactions is not None
    ending = session.transactions.end(commit=True)
    _interrupted(j, 2)
    assert isinstance(ending.error(), errors.TransactionRolledBack)


def test_a_send_in_doubt_that_was_lost_with_the_connection_is_not_left_out_of_the_commit() -> None:
    j = Joined()
    session = j.session("transacted")
    sender = session.add_sender(sender_spec("q"))
    j.run()
    lost = j.send(sender, "lost")
    while not lost.transferred:
        j.move(1 << 30, 1 << 30)
        j.sync()
    assert not lost.done
    sender.withdraw(lost)  # its time is over: whoever waited has heard that it is in doubt
    _interrupted(j, 0)
    kept = j.send(sender, "kept")
    j.run()
    assert session.transactions is not None
    ending = session.transactions.end(commit=True)
    j.run()
    assert isinstance(ending.error(), errors.TransactionRolledBack)
    assert isinstance(kept.error(), errors.TransactionRolledBack)


def test_an_outcome_that_is_told_again_when_the_send_is_settled_is_an_echo(stage: Stage) -> None:
    stage.server.verdict = lambda delivery: None
    sender = stage.rig.sender(stage.session)
    promise = stage.rig.send(sender)
    stage.rig.run()
    (delivery,) = stage.server.taken
    delivery.update(ACCEPTED_IN_1)
    delivery.settle(ACCEPTED_IN_1)  # behind the first, and before our answer to that
    stage.rig.run()
    assert promise.done and stage.rig.core.failure is None
    assert stage.end().fate is Fate.COMMITTED


def test_a_drain_that_a_rollback_gives_up_ends(stage: Stage) -> None:
    stage.server.drains = False
    receiver = stage.rig.receiver(stage.session)
    stage.server.offer("q", "x")
    stage.rig.run()
    stage.rig.take(receiver, 1)
    stage.rig.run()
    drained = receiver.drain()
    ending = stage.end(commit=False)
    assert not ending.done
    stage.transactions.give_up(ending, "")
    stage.rig.run()
    assert drained.done
    with pytest.raises(errors.EndpointError, match="was not drained before the transaction ended"):
        drained.check()


@pytest.mark.parametrize("commit", [False, True])
def test_no_transaction_is_declared_in_a_session_that_is_ending(stage: Stage, commit: bool) -> None:
    receiver = stage.rig.receiver(stage.session)
    stage.server.offer("q", "x")
    stage.rig.run()
    stage.control.detach()
    stage.rig.run()
    stage.rig.take(receiver, 1)
    if commit:
        stage.session.engine.end()
        ending = stage.transactions.end(commit=True)
        stage.rig.run()
        assert isinstance(ending.error(), errors.TransactionRolledBack)
    else:
        stage.session.end()
        stage.rig.run()
    assert stage.session.ended.done
    assert stage.rig.core.failure is None


@pytest.mark.timeout(10)
def test_a_sender_that_ends_while_a_commit_waits_for_another_s_sends(stage: Stage) -> None:
    stage.server.verdict = lambda delivery: None
    idle, sender = stage.rig.sender(stage.session, "r"), stage.rig.sender(stage.session)
    stage.rig.send(sender)
    ending = stage.end()
    assert not ending.done
    next(link for link in stage.peer.links(ReceivingLink) if link.name == idle.spec.name).detach()
    stage.rig.run()
    assert idle.failure is not None and not ending.done
    stage.server.taken[0].settle(ACCEPTED_IN_1)
    stage.rig.run()
    assert ending.fate is Fate.COMMITTED


def test_an_unreliable_sender_is_reliable_in_a_transaction(stage: Stage) -> None:
    sender = stage.rig.sender(stage.session, unreliable=True)
    promise = stage.rig.send(sender)
    assert stage.end().fate is Fate.COMMITTED
    assert promise.value() == ACCEPTED
    assert not sender.link.unsettled()

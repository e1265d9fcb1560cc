"""Sends of a transaction whose time is over, and those whose connection was lost: they were rolled back with it, and
never are in doubt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from acquit import errors
from acquit.client.options import ConnectOptions
from acquit.client.receipts import SendPromise
from acquit.client.sending import SenderCore
from acquit.client.session import SessionCore
from acquit.client.transacting import Transaction
from tests.support.joined import Joined
from tests.support.server import Rig, Server, sender_spec


class Stage:
    """A transacted session with our broker, and a send in flight of which nothing has been heard."""

    def __init__(self) -> None:
        self.joined = Joined(options=ConnectOptions(send_timeout_ms=1_000))
        self.session: SessionCore = self.joined.session("transacted")
        self.sender: SenderCore = self.session.add_sender(sender_spec("q"))
        self.joined.run()
        self.send = self.joined.send(self.sender, "lost")
        while not self.send.transferred:
            self.joined.move(1 << 30, 1 << 30)
            self.joined.sync()
        assert not self.send.done

    def commit(self) -> Transaction:
        assert self.session.transactions is not None
        ending = self.session.transactions.end(commit=True)
        self.joined.run()
        ending.heard = True
        return ending

    def restore(self) -> None:
        self.joined.restore()
        self.joined.run()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def withdraw(sender: SenderCore, promise: SendPromise) -> None:
    sender.withdraw(promise, 0.5)


def expire(sender: SenderCore, promise: SendPromise) -> None:
    sender.expire(promise, 0.5)


@pytest.mark.parametrize("end", [withdraw, expire])
@pytest.mark.parametrize("restored", [False, True])
def test_a_send_whose_time_is_over_before_it_is_sent_again_is_not_left_out_of_the_commit(
    stage: Stage, end: Callable[[SenderCore, SendPromise], None], restored: bool
) -> None:
    stage.joined.cut()
    if restored:
        stage.joined.restore()  # it waits for its transaction
    end(stage.sender, stage.send)
    said = "within 0.5 s: what was sent before was rolled back as its connection was lost$"
    with pytest.raises(errors.NotSent, match=said):
        stage.send.value()  # whoever waited has heard of it
    stage.restore()
    kept = stage.joined.send(stage.sender, "kept")
    stage.joined.run()
    ending = stage.commit()
    error = ending.error()
    assert isinstance(error, errors.TransactionRolledBack)
    assert "for a send in it failed" in str(error)
    assert isinstance(kept.error(), errors.TransactionRolledBack)

    again = stage.joined.send(stage.sender, "again")  # in the next one all is well
    stage.joined.run()
    assert stage.commit().error() is None
    assert again.error() is None


def test_a_send_that_was_lost_with_its_transaction_is_not_in_doubt(stage: Stage) -> None:
    stage.sender.withdraw(stage.send)  # whoever waited for it has heard that it is in doubt, as it was under way
    stage.joined.cut()
    error = stage.send.error()
    assert isinstance(error, errors.ConnectionLost)
    assert not isinstance(error, errors.DeliveryInDoubt)
    stage.restore()
    assert isinstance(stage.commit().error(), errors.TransactionRolledBack)


def test_a_send_that_is_sent_again_in_time_is_committed(stage: Stage) -> None:
    stage.joined.cut()
    stage.restore()
    assert stage.send.transferred
    assert stage.commit().error() is None
    assert stage.send.error() is None


def test_a_send_that_waits_for_its_transaction_says_so() -> None:
    server = Server(credit=1)
    rig = Rig(server)
    session = rig.session("transacted")
    assert session.transactions is not None
    session.transactions.open()
    sender = rig.sender(session)
    server.declaration = lambda txn_id: None
    waits = rig.send(sender)
    rig.run()
    sender.withdraw(waits, 0.5)
    with pytest.raises(
        errors.NotSent, match=r"^the peer declared no transaction within 0\.5 s: the message never left$"
    ):
        waits.value()


def test_a_send_that_waits_for_the_end_of_the_transaction_before_says_so() -> None:
    rig = Rig()
    session = rig.session("transacted")
    assert session.transactions is not None
    session.transactions.open()
    sender = rig.sender(session)
    rig.server.commits = lambda discharge: None
    rig.send(sender)
    rig.run()
    session.transactions.end(commit=True)
    waits = rig.send(sender)
    rig.run()
    sender.withdraw(waits, 0.5)
    with pytest.raises(errors.NotSent, match=r"^the transaction before it was not ended within 0\.5 s"):
        waits.value()


def test_a_send_without_credit_says_so_in_a_transaction_too() -> None:
    rig = Rig(Server(credit=1))
    session = rig.session("transacted")
    assert session.transactions is not None
    session.transactions.open()
    sender = rig.sender(session)
    rig.server.credit = 0
    rig.send(sender)
    waits = rig.send(sender)
    rig.run()
    sender.withdraw(waits, 0.5)
    with pytest.raises(errors.NotSent, match=r"^the peer gave no credit within 0\.5 s: the message never left$"):
        waits.value()

"""An inbox on the messages of a real broker, on the ways that they go there."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator

import pytest

import acquit
from acquit import InboxVerdict, Message, Subscription

pytestmark = pytest.mark.promise("done-once")

LONG = 30.0
NEW, DUPLICATE = InboxVerdict.NEW, InboxVerdict.DUPLICATE


@pytest.fixture
def broker() -> Iterator[acquit.Broker]:
    with acquit.Broker() as broker:
        yield broker


@pytest.fixture
def session(broker: acquit.Broker) -> Iterator[acquit.Session]:
    with acquit.connect(broker.url) as connection, connection.session("individual") as session:
        yield session


def taken(receiver: acquit.Receiver) -> acquit.ReceivedMessage:
    message = receiver.receive(LONG)
    assert message is not None
    return message


def test_a_message_that_comes_again_is_known_by_its_id_or_its_sequence(session: acquit.Session) -> None:
    inbox = acquit.Inbox()
    sender = session.sender("orders")
    sender.send("without an id of its own")
    sender.send(Message("order", message_id="order-17"))
    with session.receiver("orders") as receiver:
        first, second = taken(receiver), taken(receiver)
        assert first.message_id is not None
        assert [inbox.remember(first), inbox.remember(second)] == [NEW, NEW]
        first.release()
        second.modify(delivery_failed=True)
        assert [inbox.remember(taken(receiver)) for _ in range(2)] == [DUPLICATE, DUPLICATE]


def test_a_dead_letter_that_is_given_another_try_is_known(broker: acquit.Broker, session: acquit.Session) -> None:
    inbox = acquit.SqlInbox(database := sqlite3.connect(":memory:"))
    session.sender("orders").send(Message("order", message_id="order-17"))
    receiver = session.receiver("orders")
    message = taken(receiver)
    assert inbox.remember(message, database.cursor()) is NEW
    database.commit()
    message.reject()
    moved = subprocess.run(
        [sys.executable, "-m", "acquit", "move", "DLQ", "orders"],
        env={**os.environ, "ACQUIT_URL": broker.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert moved.returncode == 0, moved.stderr
    again = taken(receiver)
    assert again.sequence != message.sequence
    assert inbox.remember(again, database.cursor()) is DUPLICATE
    database.close()


def test_each_subscription_has_its_copy_and_one_inbox_serves_them_all(session: acquit.Session) -> None:
    inbox = acquit.Inbox()
    names = [Subscription(name=name, shared=True) for name in ("billing", "audit")]
    receivers = [session.receiver("news", subscription=name) for name in names]
    receivers += [session.receiver("news", topic=True) for _ in range(2)]
    sender = session.sender("news", topic=True)
    for _ in range(2):
        sender.send(Message("one", message_id="n-1"))
    for receiver in receivers:
        assert [inbox.remember(taken(receiver)) for _ in range(2)] == [NEW, DUPLICATE]

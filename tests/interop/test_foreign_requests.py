"""Our requester and responder through brokers that we did not write, with replies to a temporary node and to a queue;
and an inbox on a consumer that is given one message twice."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

import acquit
from acquit import Message, errors
from acquit.client.inbox import InboxVerdict
from tests.interop.foreign import ForeignBroker

pytestmark = pytest.mark.interop

LONG = 20.0


@pytest.mark.parametrize("fixed", [False, True])
def test_requests_and_replies(foreign: ForeignBroker, address: str, fixed: bool) -> None:
    service, replies = foreign.queue(address), foreign.queue(f"{address}.replies")
    with foreign.connect() as connection, connection.session() as session:
        if not fixed and not foreign.can.temporary_node:
            with pytest.raises(errors.EndpointError):
                session.requester(service)
            return
        with (
            session.responder(service, lambda request: request.text.upper(), concurrency=2) as responder,
            session.requester(service, reply_to=replies if fixed else None) as requester,
            ThreadPoolExecutor(4) as threads,
        ):
            found = list(threads.map(lambda n: requester.request(f"request {n}", timeout=LONG).text, range(40)))
            assert found == [f"REQUEST {n}" for n in range(40)]
            assert (requester.late_replies, requester.unknown_replies, responder.dropped) == (0, 0, 0)


def test_what_was_sent_twice_and_delivered_twice_is_told(foreign: ForeignBroker, address: str) -> None:
    queue = foreign.queue(address)
    database = sqlite3.connect(":memory:")
    inbox = acquit.SqlInbox(database)
    with foreign.connect() as connection, connection.session("individual") as session:
        sender = session.sender(queue)
        for _ in range(2):
            sender.send(Message("order", message_id="order-17"))
        sender.send(Message("another", message_id="order-17"))
        with session.receiver(queue) as receiver:
            taken = [receiver.receive(timeout=LONG) for _ in range(3)]
            verdicts = [inbox.remember(message, database.cursor()) for message in taken if message is not None]
            assert verdicts == [InboxVerdict.NEW, InboxVerdict.DUPLICATE, InboxVerdict.CHANGED]
            database.commit()
        # All go back, and come again.
        with session.receiver(queue) as receiver:
            for _ in range(3):
                message = receiver.receive(timeout=LONG)
                assert message is not None
                assert inbox.remember(message, database.cursor()) is InboxVerdict.DUPLICATE
                message.accept()
    database.close()

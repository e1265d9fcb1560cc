"""A question and its answer: `reply_to` says where the answer goes, `correlation_id` which question it is for."""

from __future__ import annotations

import threading

import acquit


def answer(url: str) -> None:
    """The server: takes one question, answers where it says."""
    with acquit.connect(url) as connection, connection.session() as session:
        question = session.receiver("questions").receive(timeout=10)
        assert question is not None
        reply = acquit.Message(str(question.body).upper(), correlation_id=question.message_id)
        session.sender(question.reply_to).send(reply)


with acquit.Broker() as broker, acquit.connect(broker.url) as connection:
    server = threading.Thread(target=answer, args=(broker.url,))
    server.start()
    with connection.session() as session:
        replies = session.receiver("replies.to-me")
        session.sender("questions").send(acquit.Message("what is this?", message_id="q-1", reply_to="replies.to-me"))
        reply = replies.receive(timeout=10)
        assert reply is not None
        print(reply.correlation_id, "->", reply.body)
    server.join()

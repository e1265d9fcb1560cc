"""Questions and their answers: a service answers, many threads ask at once over one link."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import acquit


def answer(question: acquit.ReceivedMessage) -> str:
    """What is returned goes back to whoever asked."""
    return question.text.upper()


with acquit.Broker() as broker, acquit.connect(broker.url) as connection, connection.session() as session:
    with (
        session.responder("questions", answer, concurrency=2),
        session.requester("questions") as requester,
        ThreadPoolExecutor(4) as threads,
    ):
        questions = ["what is this?", "and that?"]
        replies = threads.map(lambda text: requester.request(text, timeout=10), questions)
        for question, reply in zip(questions, replies, strict=True):
            print(f"{question} -> {reply.text}")
    with session.requester("nobody.is.there") as requester:
        try:
            requester.request("hello?", timeout=0.2)
        except acquit.RequestTimeout as error:
            print(error)

from __future__ import annotations

from pathlib import Path

import acquit
from acquit import AckMode
from acquit.demo.accounts import read
from acquit.demo.messages import DEAD_LETTERS, FILES, INGEST


def test_the_journal_tells_who_entered_where_and_what_came_again(tmp_path: Path) -> None:
    with acquit.Broker(tmp_path) as broker, acquit.connect(broker.url) as connection:
        sender = connection.session().sender(FILES)
        for identity in ("a", "b", "b", "c"):
            sender.send(acquit.Message(identity, durable=True, message_id=identity))
        session = connection.session(AckMode.INDIVIDUAL)
        receiver = session.receiver(FILES)
        first = receiver.receive(timeout=10)
        assert first is not None
        first.modify(delivery_failed=True)
        for _ in range(4):
            message = receiver.receive(timeout=10)
            assert message is not None
            if message.body == "c":
                message.reject("amqp:decode-error", "no good")
                continue
            session.sender(INGEST).send(acquit.Message(message.body, durable=True, message_id=message.message_id))
            message.accept()
    accounts = read(tmp_path)
    assert accounts.posted == {"a": 1, "b": 2, "c": 1}
    assert accounts.forwarded == {"a": 1, "b": 2}
    assert accounts.dead_lettered == {"c": 1}
    assert (accounts.redelivered, accounts.story) == (1, first.sequence)
    assert accounts.balanced
    assert accounts.verified
    assert accounts.queues[FILES]["entered"] == 4
    assert (accounts.queues[FILES]["live"], accounts.queues[DEAD_LETTERS]["live"]) == (0, 1)

"""Look at a queue without taking anything, and read from the journal what became of each message."""

from __future__ import annotations

import tempfile
from pathlib import Path

import acquit
from acquit import AckMode
from acquit.ledger.history import history

with tempfile.TemporaryDirectory() as folder:
    data = Path(folder)
    with acquit.Broker(data) as broker, acquit.connect(broker.url) as connection:
        sender = connection.session().sender("orders")
        for body in ("tea", "coffee", "gravel"):
            sender.send(acquit.Message(body, durable=True, message_id=f"order of {body}"))

        session = connection.session(AckMode.INDIVIDUAL)
        with session.receiver("orders", browse=True) as browser:
            while (seen := browser.receive(timeout=0.5)) is not None:
                print(f"#{seen.sequence}", seen.body)

        receiver = session.receiver("orders")
        for _ in range(2):
            drink = receiver.receive(timeout=5)
            assert drink is not None
            drink.accept()
        stones = receiver.receive(timeout=5)
        assert stones is not None
        stones.reject("amqp:precondition-failed", "not a drink")

    # The broker is gone. Its folder tells all of it, and `acquit ledger show` the same at the shell.
    for life in history(data, message_id="order of gravel").lives:
        print(f"#{life.sequence} in {life.steps[0].queue_name}")
        for step in life.steps:
            print("   ", step.kind.name, step.description)

"""A message that comes twice has its effect once: what was done is remembered in the transaction that does it."""

from __future__ import annotations

import sqlite3

import acquit

with acquit.Broker() as broker, acquit.connect(broker.url) as connection:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE payments (text TEXT)")
    inbox = acquit.SqlInbox(database)

    with connection.session("individual") as session:
        sender = session.sender("payments")
        for _ in range(2):  # as a program does that has lost the answer to the first
            sender.send(acquit.Message("100 to Ada", message_id="payment-17"))

        receiver = session.receiver("payments")
        for _ in range(2):
            message = receiver.receive(timeout=5)
            assert message is not None
            with database:  # commits at its end
                cursor = database.cursor()
                verdict = inbox.remember(message, cursor)
                if verdict:
                    cursor.execute("INSERT INTO payments VALUES (?)", (message.text,))
            message.accept()  # only now: had we died before, it would come again
            print(f"{message.text}: {verdict.name}")

    print(database.execute("SELECT count(*) FROM payments").fetchone()[0], "payment")
    database.close()

"""A broker in this process, one message there and back."""

from __future__ import annotations

import acquit

with acquit.Broker() as broker, acquit.connect(broker.url) as connection:
    session = connection.session()
    # Returns when the broker has the message on disk; raises when it has not.
    session.sender("greetings").send("hello")

    message = session.receiver("greetings").receive(timeout=5)
    assert message is not None
    print(message.body)

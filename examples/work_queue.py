"""A work queue. Each message gets the outcome it deserves; what nobody can do ends in the dead letter queue."""

from __future__ import annotations

import acquit
from acquit import AckMode

with acquit.Broker() as broker, acquit.connect(broker.url) as connection:
    sender = connection.session().sender("work")
    for body in ("good", "not a number", "too busy now"):
        sender.send(acquit.Message(body, durable=True, message_id=body))

    session = connection.session(AckMode.INDIVIDUAL)
    receiver = session.receiver("work")

    good = receiver.receive(timeout=5)
    assert good is not None
    print("accepted:", good.accept().result().name)  # APPLIED: the broker has it on disk

    bad = receiver.receive(timeout=5)
    assert bad is not None
    try:
        float(str(bad.body))
    except ValueError as why:
        bad.reject("amqp:decode-error", str(why))

    # Give one back, as if we were too busy: released does not count as an attempt, modified does.
    busy = receiver.receive(timeout=5)
    assert busy is not None
    busy.release()
    again = receiver.receive(timeout=5)
    assert again is not None
    print("released, and here again:", again.body, "after", again.delivery_count, "failed attempts")
    again.modify(delivery_failed=True)
    again = receiver.receive(timeout=5)
    assert again is not None
    print("modified, and here again:", again.body, "after", again.delivery_count, "failed attempt")
    again.accept()

    letter = session.receiver("DLQ").receive(timeout=5)
    assert letter is not None
    print("dead letter:", letter.body, "from", letter.annotations["x-opt-ORIG-ADDRESS"])
    letter.accept()

"""What a send and an acknowledgement tell you, and what they do not."""

from __future__ import annotations

import acquit
from acquit import AckMode

with acquit.Broker() as broker, acquit.connect(broker.url) as connection:
    sender = connection.session().sender("orders")

    # One by one: each call returns when its message is on the broker's disk.
    sender.send("first")

    # Many at a time: receipts at once, outcomes when they come. The broker syncs once for many.
    receipts = [sender.send(f"order {number}", wait=False) for number in range(1000)]
    sender.flush()
    print("accepted:", sum(receipt.outcome == acquit.Accepted() for receipt in receipts))

    session = connection.session(AckMode.INDIVIDUAL)
    receiver = session.receiver("orders")
    message = receiver.receive(timeout=5)
    assert message is not None
    receipt = message.accept(sync=False)
    # APPLIED: this broker promises that its answer is durable. Others say ANSWERED at most; a link that is not in
    # rcv-settle-mode second says SENT. UNKNOWN means what it says: the answer never came.
    print("acknowledgement:", receipt.result(timeout=5).name)

    try:
        message.release()
    except acquit.AlreadySettled as error:
        print("a second outcome:", error)

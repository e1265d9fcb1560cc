"""What each acknowledgement mode means when a consumer dies.

The same story four times: there are twelve numbers in a queue; a consumer with a prefetch of 4 takes four, acknowledges
what one would acknowledge in its mode, and is gone without a word. What the next consumer gets is the difference.
"""

from __future__ import annotations

import os
import subprocess
import sys

import acquit
from acquit import AckMode

MODES = {
    AckMode.AUTO: "each is accepted as receive() returns it",
    AckMode.CLIENT: "acknowledge() on the second: all handed out",
    AckMode.INDIVIDUAL: "acknowledge() on the second: that alone",
    AckMode.NO_ACK: "the broker forgets each as it sends it, prefetched ones as well",
}


def die_holding(url: str, mode: AckMode) -> None:
    """The consumer: it runs in a process of its own, which ends without saying so."""
    connection = acquit.connect(url)
    receiver = connection.session(mode).receiver(f"numbers.{mode.name}", prefetch=4)
    for count in range(1, 5):
        message = receiver.receive(timeout=5)
        assert message is not None
        if count == 2:
            message.acknowledge()  # in AUTO and NO_ACK without effect, as in JMS
    # AUTO sends its acceptances without waiting; the answer to anything sent later says that they have arrived.
    connection.session()
    os._exit(9)


def story(url: str, mode: AckMode) -> list[object]:
    """Post, let the consumer die, and return what the next one gets."""
    with acquit.connect(url) as connection, connection.session() as session:
        sender = session.sender(f"numbers.{mode.name}")
        for number in range(1, 13):
            sender.send(acquit.Message(number))
        subprocess.run([sys.executable, __file__, url, mode.name], check=False)
        receiver = session.receiver(f"numbers.{mode.name}")
        left: list[object] = []
        while (message := receiver.receive(timeout=0.5)) is not None:
            left.append(message.body)
        return left


if len(sys.argv) == 3:
    die_holding(sys.argv[1], AckMode[sys.argv[2]])
else:
    with acquit.Broker() as broker:
        for mode, how in MODES.items():
            print(f"{mode.name}: {how}. Left for the next: {story(broker.url, mode)}")

"""A durable subscription with python-qpid-proton: proton_subscriber.py URL CONTAINER NAME COUNT [unsubscribe]"""

from __future__ import annotations

import sys
from typing import Any

from proton import symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, DurableSubscription, ReceiverOption


class Topic(ReceiverOption):
    def apply(self, receiver: Any) -> None:
        receiver.source.capabilities.put_object(symbol("topic"))


class Subscriber(MessagingHandler):
    def __init__(self, url: str, name: str, count: int, *, unsubscribe: bool) -> None:
        super().__init__()
        self._url, self._name, self._left, self._unsubscribe = url, name, count, unsubscribe

    def on_start(self, event: Any) -> None:
        event.container.create_receiver(self._url, name=self._name, options=[DurableSubscription(), Topic()])

    def on_link_opened(self, event: Any) -> None:
        if not self._left:
            self._leave(event)

    def on_message(self, event: Any) -> None:
        sys.stdout.write(f"{event.message.id}\n")
        self._left -= 1
        if not self._left:
            self._leave(event)

    def _leave(self, event: Any) -> None:
        # A link that is closed ends the subscription, one that is detached does not.
        if self._unsubscribe:
            event.receiver.close()
        else:
            event.receiver.detach()
        event.connection.close()


url, container, name, count = sys.argv[1:5]
subscriber = Subscriber(url, name, int(count), unsubscribe="unsubscribe" in sys.argv[5:])
running = Container(subscriber)
running.container_id = container
running.run()

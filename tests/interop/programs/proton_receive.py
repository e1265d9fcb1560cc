"""Receives messages with python-qpid-proton's defaults (prefetch, accepted by itself): proton_receive.py URL COUNT."""

from __future__ import annotations

import json
import sys
from typing import Any

from proton.handlers import MessagingHandler
from proton.reactor import Container


class Receive(MessagingHandler):
    def __init__(self, url: str, count: int) -> None:
        super().__init__()
        self._url, self._count, self._received = url, count, 0

    def on_start(self, event: Any) -> None:
        event.container.create_receiver(self._url)

    def on_message(self, event: Any) -> None:
        self._received += 1
        if self._received <= self._count:
            sys.stdout.write(f"{event.message.id} {json.dumps(event.message.body)}\n")
        if self._received == self._count:
            event.receiver.close()
            event.connection.close()


Container(Receive(sys.argv[1], int(sys.argv[2]))).run()

"""Sends numbered messages with python-qpid-proton, the way its users begin: proton_send.py URL COUNT."""

from __future__ import annotations

import sys
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Send(MessagingHandler):
    def __init__(self, url: str, count: int) -> None:
        super().__init__()
        self._url, self._count = url, count
        self._sent = self._confirmed = 0

    def on_start(self, event: Any) -> None:
        event.container.create_sender(self._url)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._sent < self._count:
            self._sent += 1
            event.sender.send(Message(id=self._sent, body={"sequence": self._sent}))

    def on_accepted(self, event: Any) -> None:
        self._confirmed += 1
        if self._confirmed == self._count:
            sys.stdout.write(f"{self._confirmed} accepted\n")
            event.connection.close()


Container(Send(sys.argv[1], int(sys.argv[2]))).run()

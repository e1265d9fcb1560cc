"""Asks, one request after the other, with python-qpid-proton: proton_client.py HOST:PORT ADDRESS TEXT..."""

from __future__ import annotations

import sys
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Client(MessagingHandler):
    def __init__(self, url: str, address: str, requests: list[str]) -> None:
        super().__init__()
        self._url, self._address, self._requests = url, address, requests
        self._sender: Any = None
        self._receiver: Any = None

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._url)
        self._sender = event.container.create_sender(connection, self._address)
        self._receiver = event.container.create_receiver(connection, None, dynamic=True)

    def on_link_opened(self, event: Any) -> None:
        if event.receiver == self._receiver:
            self._ask()

    def on_message(self, event: Any) -> None:
        sys.stdout.write(f"{self._requests.pop(0)} => {event.message.body}\n")
        if self._requests:
            self._ask()
        else:
            event.connection.close()

    def _ask(self) -> None:
        reply_to = self._receiver.remote_source.address
        self._sender.send(Message(reply_to=reply_to, body=self._requests[0]))


Container(Client(sys.argv[1], sys.argv[2], sys.argv[3:])).run()

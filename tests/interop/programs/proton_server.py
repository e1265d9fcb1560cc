"""Answers requests in capitals with python-qpid-proton: proton_server.py HOST:PORT ADDRESS COUNT."""

from __future__ import annotations

import sys
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Server(MessagingHandler):
    def __init__(self, url: str, address: str, count: int) -> None:
        super().__init__()
        self._url, self._address, self._left = url, address, count
        self._replies: Any = None

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._url)
        event.container.create_receiver(connection, self._address)

    def on_connection_opened(self, event: Any) -> None:
        # One sender for all replies, if the other side knows such.
        assert "ANONYMOUS-RELAY" in event.connection.remote_offered_capabilities
        self._replies = event.container.create_sender(event.connection, None)

    def on_message(self, event: Any) -> None:
        request = event.message
        reply = Message(address=request.reply_to, correlation_id=request.correlation_id, body=request.body.upper())
        self._replies.send(reply)

    def on_accepted(self, event: Any) -> None:
        self._left -= 1
        if not self._left:
            event.connection.close()


Container(Server(sys.argv[1], sys.argv[2], int(sys.argv[3]))).run()

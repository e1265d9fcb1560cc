"""Asks with python-qpid-proton's blocking classes: proton_blocking_client.py HOST:PORT ADDRESS TEXT..."""

from __future__ import annotations

import sys

from proton import Message
from proton.utils import BlockingConnection, SyncRequestResponse

connection = BlockingConnection(sys.argv[1], timeout=20)
client = SyncRequestResponse(connection, sys.argv[2])
for text in sys.argv[3:]:
    sys.stdout.write(f"{text} => {client.call(Message(body=text)).body}\n")
connection.close()

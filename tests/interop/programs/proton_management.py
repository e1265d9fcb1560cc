"""Manages a queue with python-qpid-proton's blocking classes: proton_management.py HOST:PORT QUEUE"""

from __future__ import annotations

import sys

from proton import Message
from proton.utils import BlockingConnection, SyncRequestResponse

connection = BlockingConnection(sys.argv[1], timeout=20)
management = SyncRequestResponse(connection, "$management")
for operation in ("CREATE", "READ", "PURGE", "DELETE", "READ"):
    asked = {"operation": operation, "type": "acquit:queue", "name": sys.argv[2]}
    answer = management.call(Message(properties=asked))
    depth = answer.body.get("depth", "") if answer.body else ""
    sys.stdout.write(f"{operation} {answer.properties['statusCode']} {depth}".rstrip() + "\n")
connection.close()

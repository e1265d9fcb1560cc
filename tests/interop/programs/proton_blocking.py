"""One message there and back with python-qpid-proton's blocking classes: proton_blocking.py HOST:PORT ADDRESS."""

from __future__ import annotations

import sys

from proton import Message
from proton.utils import BlockingConnection

connection = BlockingConnection(sys.argv[1], timeout=20)
receiver = connection.create_receiver(sys.argv[2])
sender = connection.create_sender(sys.argv[2])
sender.send(Message(body="there and back"))
sys.stdout.write(f"{receiver.receive(timeout=20).body}\n")
receiver.accept()
connection.close()

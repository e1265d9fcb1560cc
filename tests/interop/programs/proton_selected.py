"""Receives what a selector takes, or looks at it: proton_selected.py HOST:PORT ADDRESS SELECTOR COUNT [browse]"""

from __future__ import annotations

import sys

from proton.reactor import Copy, Selector
from proton.utils import BlockingConnection

connection = BlockingConnection(sys.argv[1], timeout=20)
options = [Selector(sys.argv[3])]
if "browse" in sys.argv[5:]:
    options.append(Copy())
receiver = connection.create_receiver(sys.argv[2], credit=int(sys.argv[4]), options=options)
for _ in range(int(sys.argv[4])):
    sys.stdout.write(f"{receiver.receive(timeout=20).id}\n")
    receiver.accept()
connection.close()

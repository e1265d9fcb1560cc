"""Moves all messages from one queue into another, each batch in a transaction."""

import sys

from qpid.messaging import Connection, Empty, TransactionAborted

url, source, target = sys.argv[1:]
connection = Connection.establish(url)
session = connection.session(transactional=True)
receiver = session.receiver(source, capacity=10)
sender = session.sender(target)
moved = 0
while True:
    batch = 0
    try:
        while batch < 4:
            sender.send(receiver.fetch(timeout=0), sync=False)
            batch += 1
    except Empty:
        pass
    if not batch:
        break
    session.acknowledge()
    try:
        session.commit()
    except TransactionAborted:
        continue
    moved += batch
print(f"{moved} moved")
connection.close()

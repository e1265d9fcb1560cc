"""Answers requests where they want their answers, until one says that it is enough."""

import sys

from qpid.messaging import Connection, Message

connection = Connection(sys.argv[1], reconnect=True)
connection.open()
session = connection.session()
requests = session.receiver(sys.argv[2])
while True:
    request = requests.fetch(timeout=60)
    answer = Message(request.content.upper())
    answer.correlation_id = request.correlation_id
    sender = session.sender(request.reply_to)
    sender.send(answer)
    sender.close()
    session.acknowledge()
    if request.properties.get("last"):
        break
connection.close()

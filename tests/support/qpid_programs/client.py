"""Asks, at a node of its own that is made for the answers."""

import sys

from qpid.messaging import Connection, Message

connection = Connection.establish(sys.argv[1])
session = connection.session()
replies = session.receiver("#; {create: always, delete: always}")
sender = session.sender(sys.argv[2])
for word in sys.argv[3:]:
    request = Message(word, reply_to=replies.source, correlation_id=word)
    request.properties["last"] = word == sys.argv[-1]
    sender.send(request)
    answer = replies.fetch(timeout=60)
    assert answer.correlation_id == word
    print(answer.content)
    session.acknowledge()
connection.close()

"""The first program of every tutorial: one message to an address and back."""

import sys

from qpid.messaging import *

connection = Connection(sys.argv[1])
try:
    connection.open()
    session = connection.session()
    sender = session.sender(sys.argv[2])
    receiver = session.receiver(sys.argv[2])
    sender.send(Message("Hello world!"))
    print(receiver.fetch(timeout=20).content)
    session.acknowledge()
except MessagingError as error:
    print(error)
    sys.exit(1)
finally:
    connection.close()

"""Sends messages as its options say, and shows them."""

import optparse

from qpid.log import WARN, enable
from qpid.messaging import Connection, Message, SendError, uuid4
from qpid.util import URL

parser = optparse.OptionParser(usage="%prog [options] ADDRESS [TEXT...]")
parser.add_option("-b", "--broker", default="localhost")
parser.add_option("-r", "--reconnect", action="store_true")
parser.add_option("-c", "--count", type="int", default=1)
parser.add_option("-d", "--durable", action="store_true")
parser.add_option("-S", "--subject")
parser.add_option("-R", "--reply-to")
parser.add_option("-P", "--property", action="append", default=[])
parser.add_option("-M", "--map", action="append", default=[])
options, arguments = parser.parse_args()
enable("qpid", WARN)

content = dict(entry.split("=", 1) for entry in options.map) or " ".join(arguments[1:])
connection = Connection.establish(URL(options.broker), reconnect=options.reconnect, reconnect_interval=3)
session = connection.session()
sender = session.sender(arguments[0])
identity = str(uuid4())
try:
    for number in range(options.count):
        message = Message(content, subject=options.subject, reply_to=options.reply_to)
        if options.durable:
            message.durable = True
        message.properties["spout-id"] = f"{identity}:{number}"
        message.properties.update(entry.split("=", 1) for entry in options.property)
        sender.send(message)
        print(message)
except SendError as error:
    print(error)
connection.close()

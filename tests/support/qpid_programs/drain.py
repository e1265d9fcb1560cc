"""Fetches what there is, shows it in a format, and acknowledges it."""

import optparse

from qpid.messaging import Connection, Empty, ReceiverError

parser = optparse.OptionParser(usage="%prog [options] ADDRESS")
parser.add_option("-b", "--broker", default="localhost")
parser.add_option("-c", "--count", type="int")
parser.add_option("-t", "--timeout", type="float", default=0)
parser.add_option("-p", "--print", dest="format", default="%s")
options, (address,) = parser.parse_args()

connection = Connection(options.broker)
try:
    connection.open()
    session = connection.session()
    receiver = session.receiver(address)
    count = 0
    while not options.count or count < options.count:
        try:
            message = receiver.fetch(timeout=options.timeout)
        except Empty:
            break
        print(options.format % (vars(message) if "(" in options.format else message))
        count += 1
        session.acknowledge()
except ReceiverError as error:
    print(error)
connection.close()

"""Apache Qpid Broker-J: `brokers/broker-j/src/BrokerJ.java` embeds it, `initial.json` beside it configures it."""

from __future__ import annotations

from tests.interop.foreign import Capabilities, JavaBroker
from tests.interop.java import BROKER_J, HERE


class BrokerJ(JavaBroker):
    name = "broker-j"
    program = BROKER_J
    main = "BrokerJ"
    arguments = (str(HERE / "brokers/broker-j/initial.json"),)
    can = Capabilities(acknowledgement="answered", altered="")

"""Apache Artemis: `brokers/artemis/src/ArtemisBroker.java` embeds and configures it."""

from __future__ import annotations

from tests.interop.foreign import Capabilities, JavaBroker
from tests.interop.java import ARTEMIS


class Artemis(JavaBroker):
    name = "artemis"
    program = ARTEMIS
    main = "ArtemisBroker"
    can = Capabilities(acknowledgement="sent", altered="")

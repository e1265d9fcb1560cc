"""Events that the engine gives the code that drives it: `Connection.receive_data` and its kin return them.

Events are about things the peer did, and about the end of the connection, whoever ended it (`ConnectionEnded.remote`).
Their objects (sessions, links, deliveries) are live: an event in the middle of the list may be followed by another that
says its link has gone since, and verbs on what the peer has already ended do nothing on the wire. Each connection ends
in exactly one `ConnectionEnded`, each session that began in at most one `SessionEnded`, each link in at most one
`LinkDetached`; when a larger scope ends, the smaller ones are not repeated: walk `connection.sessions` and
`session.links`, which still hold what was there.

Each is defined beside what makes it; here they are under one name.

Deliveries come in groups, one event for all consecutive ones of a link: at 100,000 a second an event each would be a
tenth of the time there is.
"""

from __future__ import annotations

from acquit.protocol.connection_base import ConnectionEnded, ConnectionOpened, Event
from acquit.protocol.delivery import RunAccepted, StatesReceived, TransactionalStateMissed
from acquit.protocol.endpoint import FlowReceived, LinkAttached, LinkDetached, LinkRequested
from acquit.protocol.received_runs import RunSettled
from acquit.protocol.receiver import DeliveriesReceived, DeliveryAborted, LinkDrained, RunReceived
from acquit.protocol.sasl import SaslChallenged, SaslInitiated, SaslResponded
from acquit.protocol.sender import CreditChanged
from acquit.protocol.session import SessionBegun, SessionEnded

__all__ = [
    "ConnectionEnded",
    "ConnectionOpened",
    "CreditChanged",
    "DeliveriesReceived",
    "DeliveryAborted",
    "Event",
    "FlowReceived",
    "LinkAttached",
    "LinkDetached",
    "LinkDrained",
    "LinkRequested",
    "RunAccepted",
    "RunReceived",
    "RunSettled",
    "SaslChallenged",
    "SaslInitiated",
    "SaslResponded",
    "SessionBegun",
    "SessionEnded",
    "StatesReceived",
    "TransactionalStateMissed",
]

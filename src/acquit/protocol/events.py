"""What the engine tells the code that drives it: the events that `Connection.receive_data` and its kin return.

Events are about things the peer did. Their objects (sessions, links, deliveries) are live: an event in the middle of
the list may be followed by another that says its link has gone since, and verbs on what the peer has already ended do
nothing on the wire. Each connection ends in exactly one `ConnectionEnded`, each session that began in at most one
`SessionEnded`, each link in at most one `LinkDetached`; when a larger scope ends, the smaller ones are not repeated:
walk `connection.sessions` and `session.links`, which still hold what was there.

Deliveries come in groups, one event for all consecutive ones of a link: at 100,000 a second an event each would be a
tenth of the time there is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from acquit.protocol._definitions import Error, Flow, Open, TransactionalState

if TYPE_CHECKING:
    from acquit.protocol.delivery import Delivery, DeliveryState
    from acquit.protocol.link import Link, ReceivingLink, SendingLink
    from acquit.protocol.session import Session


@dataclass(slots=True)
class SaslInitiated:
    """Server: the peer chose a mechanism. Answer with `sasl_challenge`, `sasl_succeed` or `sasl_fail`, now or later."""

    mechanism: str
    response: bytes = field(repr=False)
    hostname: str | None


@dataclass(slots=True)
class SaslResponded:
    """Server: the peer answered a challenge. Answer as for SaslInitiated."""

    response: bytes = field(repr=False)


@dataclass(slots=True)
class SaslChallenged:
    """Client: the server challenged a mechanism whose answer takes long to make (`SaslClient.slow`). Give it to
    `sasl_respond`, or call `sasl_give_up`; nothing further is read before that."""

    challenge: bytes


@dataclass(slots=True)
class ConnectionOpened:
    """Both opens are exchanged: sessions may begin. `open` is the peer's."""

    open: Open


@dataclass(slots=True)
class ConnectionEnded:
    """The connection is over, and everything on it. Exactly one, and the last event.

    `lost`: without a close from the peer, so that what was in flight is in doubt. `remote`: the peer ended it; False
    where we did, by `close` or because of what it sent. `authentication`: SASL refused us, or we the peer.
    """

    error: Error | None
    lost: bool
    remote: bool
    authentication: bool = False


@dataclass(slots=True)
class SessionBegun:
    """A session is usable both ways: the peer began it, or answered our begin. Links may be attached."""

    session: Session


@dataclass(slots=True)
class SessionEnded:
    """The session is over, and every link on it. Its unsettled deliveries have phase LOST.

    `remote`: the peer ended it; otherwise we did, by `Session.end` or, with `error`, because of what the peer sent.
    """

    session: Session
    error: Error | None
    remote: bool


@dataclass(slots=True)
class LinkRequested:
    """The peer attached a link: answer with `link.accept_attach` or `link.refuse`. `link.remote_attach` is its wish."""

    link: Link


@dataclass(slots=True)
class LinkAttached:
    """The peer answered our attach and has a terminus for it. (A refusal comes as LinkDetached alone.)"""

    link: Link


@dataclass(slots=True)
class LinkDetached:
    """The link is detached at both ends; its handle is free.

    `closed`: destroyed; otherwise only suspended, and its termini may live on. `remote`: the peer began it; otherwise
    we did, by `Link.detach` or, with `error`, because of what the peer sent. `unsettled`: the link's deliveries that
    neither end had settled. When the link was closed or failed they have phase LOST: nobody can dispose of them any
    more. When it was only suspended they still can be, by either end, as long as the session lasts (2.7.6).
    """

    link: Link
    closed: bool
    error: Error | None
    remote: bool
    unsettled: list[Delivery]


@dataclass(slots=True)
class CreditChanged:
    """A sending link's credit or drain changed, or what held it back (the session's window, `unsettled_max`, its own
    half-written delivery) no longer does. At most one for each link and call: read `link.credit`, `link.drain`,
    `link.sendable`."""

    link: SendingLink


@dataclass(slots=True)
class LinkDrained:
    """A receiving link that was draining has no credit left: all that was available has arrived."""

    link: ReceivingLink


@dataclass(slots=True)
class FlowReceived:
    """A flow that carried properties, or that answers an echo we asked for."""

    link: Link
    flow: Flow


@dataclass(slots=True)
class DeliveriesReceived:
    """Complete deliveries of one link, in order. Settle them with `delivery.settle` or `session.settle_all`."""

    link: ReceivingLink
    deliveries: list[Delivery]


@dataclass(slots=True)
class DeliveryAborted:
    """The sender gave up a delivery that had begun to arrive. Nothing of it is left; its credit is used."""

    link: ReceivingLink
    tag: bytes


@dataclass(slots=True)
class StatesReceived:
    """The peer told a state of deliveries of one link, by one disposition.

    `settled`: the peer has forgotten them, and so have we: their phase is SETTLED. Otherwise `state` is news, and a
    sender that hears an outcome this way (rcv-settle-mode second) settles them when it has acted on it.
    """

    link: Link
    deliveries: list[Delivery]
    state: DeliveryState | None
    settled: bool


@dataclass(slots=True)
class TransactionalStateMissed:
    """The peer told a transactional state of deliveries that it received, of which some are settled here, or never
    were: what it believes to be part of the transaction is not. Of those that there are, StatesReceived follows."""

    state: TransactionalState


Event: TypeAlias = (
    SaslInitiated
    | SaslResponded
    | SaslChallenged
    | ConnectionOpened
    | ConnectionEnded
    | SessionBegun
    | SessionEnded
    | LinkRequested
    | LinkAttached
    | LinkDetached
    | CreditChanged
    | LinkDrained
    | FlowReceived
    | DeliveriesReceived
    | DeliveryAborted
    | StatesReceived
    | TransactionalStateMissed
)

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
    "SaslChallenged",
    "SaslInitiated",
    "SaslResponded",
    "SessionBegun",
    "SessionEnded",
    "StatesReceived",
    "TransactionalStateMissed",
]

"""Answers attaches: what a peer asks of a link, what it gets, and why it gets none.

What a link is to be is decided in `receivers` and `senders`; here it is known by its name. Who attaches a link of a
name that its container has already takes it over (2.6.1): the other one is stolen. What we cannot do is refused with a
condition that names it, not ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.denials import Denials
from acquit.broker.links.endpoints import WaitingLink
from acquit.broker.links.parting import outlives
from acquit.broker.refusal import Refused
from acquit.protocol.definitions import AmqpCondition, Error, LinkCondition
from acquit.protocol.delivery import AnyLink
from acquit.protocol.link import Link, ReceivingLink, SendingLink

if TYPE_CHECKING:
    from acquit.broker.access.quotas import Quotas
    from acquit.broker.links.peers import Peer
    from acquit.broker.links.receivers import Receivers
    from acquit.broker.links.senders import Senders

LinkKey = tuple[str | None, str, str, bool]
"""User, container, link name, our role: who a link is (2.6.1). Another user is another link."""


class Attaching:
    """Answers LinkRequested, and knows which links there are."""

    def __init__(
        self, receivers: Receivers, senders: Senders, links_max: int, quotas: Quotas, denials: Denials
    ) -> None:
        """`links_max`: links that one connection may have; `quotas` knows of all."""
        self.links_max = links_max
        self._quotas = quotas
        self._receivers = receivers
        self._senders = senders
        self._denials = denials
        self._links: dict[LinkKey, Link] = {}

    def answer(self, peer: Peer, link: Link) -> Link | None:
        """Accept or refuse. Returns the link whose name this one takes over: it is stolen, and must be detached."""
        key = _key(peer, link)
        stolen = self._links.get(key)
        try:
            context = self._accept(peer, link, None if stolen is None else stolen.context)
        except Refused as exc:
            self._denials.link(peer, link.name, exc)
            link.refuse(Error(exc.condition, exc.description))
            return None
        link.context = context
        link.ends_later = isinstance(context, WaitingLink) or outlives(link)
        peer.add_link(context)
        self._quotas.enter_link(peer)
        self._links[key] = link
        return stolen

    def ended(self, peer: Peer, link: AnyLink) -> None:
        """The link is no more. Once for each that was accepted."""
        self._quotas.leave_link(peer)
        key = _key(peer, link)
        if self._links.get(key) is link:
            del self._links[key]

    def _accept(self, peer: Peer, link: Link, stolen: object) -> object:
        if len(peer.links) >= self.links_max:
            why = f"this connection has {self.links_max} links, no more are taken"
        else:
            why = "" if stolen is not None else self._quotas.link_refusal(peer)
        if why:
            raise Refused(why, condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED)
        if isinstance(link, SendingLink):
            return self._receivers.accept(peer, link, stolen)
        assert isinstance(link, ReceivingLink)
        return self._senders.accept(peer, link)


def _key(peer: Peer, link: AnyLink) -> LinkKey:
    return peer.user, peer.container, link.name, bool(link.role)


STOLEN: Final = Error(LinkCondition.STOLEN, "the same container attached a link of this name again")

__all__ = ["STOLEN", "Attaching"]

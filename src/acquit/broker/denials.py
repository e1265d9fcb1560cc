"""Reports of what peers were refused or did not get, for whoever watches the broker: connections, logins, links and
messages.

The core decides and answers; it does not log. It tells `Denials`, and the server makes lines of the log of it,
sparingly (`notices`), for a peer can be refused as often as it likes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from acquit.protocol.definitions import AmqpCondition

if TYPE_CHECKING:
    from acquit.broker.dispatching.consumers import Consumer
    from acquit.broker.links.endpoints import Producer
    from acquit.broker.links.peers import Peer
    from acquit.broker.message import Message
    from acquit.errors import RemoteProtocolError
    from acquit.protocol.definitions import Error

Report = Callable[[str, str, Mapping[str, object]], None]
"""Called with what happened, always in the same words; with whom to count it for; and with its particulars."""


def _nobody(text: str, by: str, particulars: Mapping[str, object]) -> None:
    """Report to nobody."""


class Denials:
    """Tells of refusals. Set `report` to hear of them."""

    def __init__(self, record: Callable[[str, str | None, str, str, str], None]) -> None:
        """`record` writes a line of the audit (`auditing.Auditor.refused`)."""
        self._record = record
        self.report: Report = _nobody
        self.counts: Counter[tuple[str, str]] = Counter()
        """Links, messages, connections and logins that were refused, by what it was ("link", ...) and the condition."""

    def connection(self, peer: Peer, why: Error | None) -> Error | None:
        """Tell that a connection is refused which has logged in, if there is a reason, and return the reason."""
        if why is not None:
            self.counts["connection", str(why.condition)] += 1
            self._tell("a connection is refused", peer, {}, why)
        return why

    def login(self, *, busy: bool) -> None:
        """Count a login that is refused, as its peer and the log have heard; `busy`: it was not looked at."""
        condition = AmqpCondition.RESOURCE_LIMIT_EXCEEDED if busy else AmqpCondition.UNAUTHORIZED_ACCESS
        self.counts["login", str(condition)] += 1

    def link(self, peer: Peer, name: str, why: RemoteProtocolError) -> None:
        """A link of this name is refused."""
        self.counts["link", str(why.condition)] += 1
        self._tell("a link is refused", peer, {"link": name}, why)
        self._record("attach", peer.user, peer.name, name, f"refused: {why.condition} {why.description}")

    def postings(self, producer: Producer, count: int, why: RemoteProtocolError) -> None:
        """Count and report messages of one link that are refused for one reason, `count` of them."""
        self.counts["message", str(why.condition)] += count
        particulars = {"link": producer.link_name, "address": producer.address, "messages": count}
        self._tell("a message is refused", producer.peer, particulars, why)

    def too_large(self, consumer: Consumer, message: Message) -> None:
        """A receiver takes no message as large as this one."""
        particulars = {
            "link": consumer.link_name,
            "queue": consumer.queue.name,
            "sequence": message.sequence,
            "bytes": len(message.body or b""),
            "max_message_size": consumer.link.remote_max_message_size,
        }
        self._tell("a message is larger than a receiver takes: it stays for others", consumer.peer, particulars)

    def _tell(
        self, text: str, peer: Peer, particulars: dict[str, object], why: RemoteProtocolError | Error | None = None
    ) -> None:
        user = peer.user or peer.engine.user  # of one that has not been let in the engine alone knows
        particulars |= {"peer": peer.name, "user": user, "container": peer.container}
        by = user or peer.network
        if why is not None:
            particulars |= {"condition": str(why.condition), "description": why.description}
            by = f"{by} {why.condition}"
        self.report(text, by, particulars)


__all__ = ["Denials"]

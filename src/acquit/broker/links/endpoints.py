"""The broker's side of links: who is there, and what each may have now.

A `Producer` is a link we receive on. One we send on is a `Consumer` where it acquires (`dispatching.consumers`), and
otherwise a `Browser` (`dispatching.browsing`). Each is the `context` of its protocol link; their connections are in
`peers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.intake.templates import Templates
from acquit.broker.links.peers import Actor, Peer
from acquit.broker.queue import Verdict
from acquit.protocol.costs import FAN_COST, FAN_FREE, RUN_FAN_COST, SINGLE_COST
from acquit.protocol.definitions import Accepted, Modified, Rejected, Released, Source

if TYPE_CHECKING:
    from acquit.broker.intake.marks import Claim
    from acquit.broker.links.terminus import SourceTerminus, TargetTerminus
    from acquit.broker.nodes.node import Queue
    from acquit.broker.nodes.topics import Topic
    from acquit.protocol.delivery import DeliveryState
    from acquit.protocol.link import Link, ReceivingLink


class WaitingLink(Actor):
    """A link that is answered later; what it asked for is being recorded."""

    __slots__ = ("link", "mark", "node", "queue", "resumable", "subscriber")

    def __init__(
        self,
        peer: Peer,
        link: Link,
        node: Queue | Topic,
        resumable: SourceTerminus | TargetTerminus | None = None,
        queue: Queue | None = None,
        *,
        subscriber: bool = False,
    ) -> None:
        super().__init__(peer, link.name, node.address)
        self.link = link
        self.node = node
        """Queue or topic that it is of."""
        self.resumable = resumable
        """The terminus that it is to stand on, where that outlives it."""
        self.queue = queue
        """Queue that it is to receive from; None for a link of a peer that sends."""
        self.subscriber = subscriber
        """True if it stands for the subscription that its peer asked a topic for, as `Consumer.subscriber`."""
        self.mark: Claim | None = None
        """Claim on a sender mark, which it lets go of if it ends."""


class Producer(Actor):
    """A link that messages arrive on."""

    __slots__ = (
        "average_bytes",
        "link",
        "mark",
        "queue",
        "resumable",
        "starved",
        "templates",
        "topic",
        "volatile",
    )

    def __init__(
        self, peer: Peer, link: ReceivingLink, queue: Queue | None, address: str, topic: Topic | None = None
    ) -> None:
        super().__init__(peer, link.name, address)
        self.link = link
        link.takes_crc = queue is None or queue.durable
        self.queue = queue
        self.topic = topic
        """Queue or topic that the messages go to. None: the anonymous terminus, where each message names its
        address."""
        self.templates = Templates()
        """Templates of its latest messages, which predict the next."""
        self.average_bytes = 1_024
        self.mark: Claim | None = None
        """Claim on a sender mark, where the postings are numbered."""
        self.resumable: TargetTerminus | None = None
        """The terminus of a resumable link, which outlives it."""
        self.volatile: bool | None = None
        """True if the latest messages could be held by memory only. None: no message came yet."""
        self.starved = False
        """True if the link has less credit than it would have with room for everything."""
        self.predict(SINGLE_COST, 1 if topic is None else topic.fan)  # until some have been taken together

    def predict(self, cost: int, queues: int) -> None:
        """Let its next messages cost so much of a turn, and more where each goes to many queues."""
        link = self.link
        link.predicted_cost = cost + (RUN_FAN_COST if link.takes_runs else FAN_COST) * max(0, queues - FAN_FREE)

    @property
    def remembers(self) -> bool:
        """True if the broker remembers what was posted on it, by delivery-tags or a mark, over its own end as well."""
        return self.resumable is not None or self.mark is not None


def takes_rejected(link: ReceivingLink) -> bool:
    """True if the sender of `link` takes *rejected*: its source lists that outcome, or none at all (3.5.3)."""
    source = link.source
    outcomes = source.outcomes if isinstance(source, Source) else ()
    return not outcomes or any(name in outcomes for name in _REJECTED)


_REJECTED: Final = (Rejected.SYMBOL, "rejected")
"""Names of the outcome *rejected*: the specification's, and that of some clients."""


def verdict_of(outcome: DeliveryState | None) -> Verdict | None:
    """The verdict that an outcome is; None for what is no outcome (3.4)."""
    match outcome:
        case Accepted():
            return Verdict.ACCEPTED
        case Rejected():
            return Verdict.REJECTED
        case Released():
            return Verdict.RELEASED
        case Modified(delivery_failed=failed):
            return Verdict.FAILED if failed else Verdict.MODIFIED
        case _:
            return None


__all__ = ["Producer", "WaitingLink", "takes_rejected", "verdict_of"]

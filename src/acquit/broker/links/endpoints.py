"""The broker's side of connections and links: who is there, and what each may have now.

A `Peer` is one connection. A `Producer` is a link we receive on, a `Consumer` one we send on that acquires; browsers,
which do not, are in `browsing`. Each is the `context` of its protocol link.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from acquit.broker.access.permissions import EVERYTHING
from acquit.broker.queue import Verdict
from acquit.protocol._definitions import Accepted, Modified, Rejected, Released, Source

if TYPE_CHECKING:
    from acquit.broker.access.admission import Enforcement
    from acquit.broker.dispatching.interest import Interest
    from acquit.broker.intake.marks import Claim
    from acquit.broker.intake.shaping import Template
    from acquit.broker.message import Message
    from acquit.broker.nodes.node import Queue
    from acquit.broker.nodes.topics import Topic
    from acquit.broker.selector import Selector
    from acquit.protocol.connection import Connection
    from acquit.protocol.delivery import DeliveryState
    from acquit.protocol.link import ReceivingLink, SendingLink

TERMINUS_MAX: Final = 1_024
"""Characters of a terminus's name that are kept as they are."""


class Peer:
    """One connection, as the core knows it."""

    __slots__ = (
        "container",
        "enforcement",
        "engine",
        "links",
        "measured",
        "name",
        "network",
        "output_bytes_max",
        "rights",
        "unwritten_bytes",
        "user",
        "writable",
    )

    def __init__(self, engine: Connection, name: str, output_bytes_max: int, network: str = "") -> None:
        self.engine = engine
        self.name = name
        """``host:port``"""
        self.network = network
        """By what it counts where addresses are limited (`access.crowd.peer_network`)."""
        self.container = ""
        """Its container-id; empty before its open."""
        self.user: str | None = None
        self.rights = EVERYTHING
        """What it may do; the core says so when the connection is opened."""
        self.enforcement: Enforcement | None = None
        """What it asks for a second connection of its container; None: nothing."""
        self.writable = True
        """False while its socket takes no more."""
        self.output_bytes_max = output_bytes_max
        self.measured = 0
        """The pass of dispatch that last asked what is not written."""
        self.unwritten_bytes = 0
        """What is produced for it and not written, as far as this turn knows; see `measure`."""
        self.links: dict[object, None] = {}
        """Contexts of its links."""

    @property
    def open_to_more(self) -> bool:
        """Whether something may be produced for it: what it does not read must not pile up here."""
        return self.writable and self.unwritten_bytes < self.output_bytes_max

    def measure(self) -> None:
        """Ask the engine what is not written: once a turn, as it has to look at all of it."""
        self.unwritten_bytes = self.engine.output_bytes


class Actor:
    """Who does things to messages, as the journal names them: a link of a container."""

    __slots__ = ("address", "link_name", "number", "peer")

    def __init__(self, peer: Peer, link_name: str, address: str) -> None:
        self.peer = peer
        self.link_name = link_name
        self.address = address
        self.number = 0
        """Given when the first record needs it; 0 until then."""

    @property
    def terminus(self) -> str:
        """What *undeliverable-here* is bound to: the user, the container and the link's name. It is kept with each
        message that is, so of one that is very long a hash stands for the end."""
        user = "" if self.peer.user is None else f"{self.peer.user.replace('%', '%25').replace(':', '%3A')}:"
        text = f"{user}{self.peer.container}/{self.link_name}"
        if len(text) > TERMINUS_MAX:
            text = text[:TERMINUS_MAX] + blake2b(text.encode(), digest_size=16).hexdigest()
        return text


class Producer(Actor):
    """A link that messages arrive on."""

    __slots__ = ("average_bytes", "link", "mark", "metas", "queue", "starved", "template", "topic", "volatile")

    def __init__(
        self, peer: Peer, link: ReceivingLink, queue: Queue | None, address: str, topic: Topic | None = None
    ) -> None:
        super().__init__(peer, link.name, address)
        self.link = link
        self.queue = queue
        self.topic = topic
        """Where its messages go, a queue or a topic. Neither: the anonymous terminus, where each message says it."""
        self.template: Template | None = None
        """What its last message looked like."""
        self.metas: dict[int, bytes] = {}
        """The journal's plain fields of messages that have nothing but a priority, by priority."""
        self.average_bytes = 1_024
        self.mark: Claim | None = None
        """Its hold on a mark, where its postings are numbered."""
        self.volatile: bool | None = None
        """Whether its latest messages were such that only memory can hold them. None: nothing came yet."""
        self.starved = False
        """It has less credit than it would have with room for everything."""


class Consumer(Actor):
    """A link that acquires messages."""

    __slots__ = (
        "body_bytes_max",
        "default_outcome",
        "held",
        "in_line",
        "interest",
        "left",
        "link",
        "no_local",
        "outbox",
        "own",
        "presettled",
        "priority",
        "queue",
        "reserved",
        "reserved_bytes",
        "selector",
        "stamp",
        "subscriber",
        "tag",
    )

    def __init__(
        self,
        peer: Peer,
        link: SendingLink,
        queue: Queue,
        *,
        presettled: bool,
        default_outcome: DeliveryState | None,
        selector: Selector | None = None,
        no_local: bool = False,
        priority: int = 0,
    ) -> None:
        super().__init__(peer, link.name, queue.address)
        self.link = link
        self.queue = queue
        self.subscriber = False
        """Its source is the topic: the subscription that the queue is of may end with it."""
        self.presettled = presettled
        self.default_outcome = default_outcome
        """The source's (3.5.3): for deliveries that it does not settle itself."""
        size_max = link.remote_max_message_size
        self.body_bytes_max = max(1, size_max - _HEADER_MAX) if size_max else _UNLIMITED
        """The largest body that it takes: its max-message-size, less the header we write."""
        self.tag = 0
        """Of the last delivery: they are counted."""
        self.held = 0
        """Messages it has acquired."""
        self.outbox: deque[bytes] = deque()
        """Pre-settled: consumed and synced, to be sent as credit allows."""
        self.reserved = 0
        """Pre-settled: consumed and not yet sent; they use up credit already."""
        self.reserved_bytes = 0
        self.selector = selector
        """What it asked for; None: everything."""
        self.no_local = no_local
        """It is not given what its own container posted."""
        self.priority = priority
        """Higher ones are served first, while they have credit."""
        self.interest: Interest | None = None
        """Those who would take the same; None while another consumer is served in its place."""
        self.in_line = False
        """It waits in its interest's line."""
        self.own: list[tuple[int, Message]] = []
        """What is set aside for it alone, by rank: a heap. Some may be gone."""
        self.left = 0
        """How many more it can be given in this pass."""
        self.stamp = 0
        """When it was given something last, among those of its queue."""

    @property
    def room(self) -> int:
        """How many messages it can be given, by its credit, its session and the policy."""
        session = self.link.session
        room = min(
            self.link.credit - self.reserved,
            session.remote_incoming_window,
            session.unsettled_max - len(session.outgoing),
        )
        prefetch_max = self.queue.policy.prefetch_max
        return min(room, prefetch_max - self.held) if prefetch_max and not self.presettled else room

    @property
    def full(self) -> bool:
        """Whether it must settle something before it is given more: by the policy, or as its session is full."""
        session = self.link.session
        return 0 < self.queue.policy.prefetch_max <= self.held or len(session.outgoing) >= session.unsettled_max

    @property
    def open_to_more(self) -> bool:
        """Whether it can be given a message now."""
        peer = self.peer
        if not self.link.sendable or self.room <= 0:
            return False
        return self.reserved_bytes < peer.output_bytes_max and peer.open_to_more

    @property
    def held_back(self) -> bool:
        """Whether it could be given more once what was produced for its peer is written: nobody else will tell us."""
        if self.outbox:
            return held_back(self.peer, self.link)
        return self.room > 0 and held_back(self.peer, self.link)

    def stand_in_line(self) -> None:
        """Its credit, or what else kept it from being given more, has changed. The queue is to be woken then."""
        link = self.link
        if self.interest is not None and link.credit > 0:
            self.interest.line.add(self)
        if link.drain:
            self.queue.draining[self] = None


def takes_rejected(link: ReceivingLink) -> bool:
    """Whether the sender of `link` takes *rejected*: its source lists that outcome, or none at all (3.5.3)."""
    source = link.source
    outcomes = source.outcomes if isinstance(source, Source) else ()
    return not outcomes or any(name in outcomes for name in _REJECTED)


_REJECTED: Final = (Rejected.SYMBOL, "rejected")
"""As the specification names it, and as some clients write it."""


def held_back(peer: Peer, link: SendingLink) -> bool:
    """Does this link only wait for what was produced to be written? Credit, window and socket would take more."""
    if not peer.writable or link.credit <= 0 or link.session.remote_incoming_window <= 0:
        return False
    return link.half_written is not None or not peer.open_to_more


_HEADER_MAX = 32
"""No header section of ours is longer."""
_UNLIMITED = 1 << 62


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


__all__ = ["Actor", "Consumer", "Peer", "Producer", "held_back", "takes_rejected", "verdict_of"]

"""A queue: its messages, who uses it, and its accounts.

The queue itself decides nothing; it is what posting, dispatch and settlement work on. Its accounts hold at every moment
(ledger promise P3)::

    entered - retired  ==  live  ==  pending + available + acquired + scheduled
"""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING, Final

from acquit.broker.dispatching.aside import Aside
from acquit.broker.dispatching.backlog import Backlog
from acquit.broker.intake.limits import Values, displaces, resident_bytes_max, resident_messages_max
from acquit.broker.queue import NodeState
from acquit.ledger.events import ENTERING, RETIRING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acquit.broker.dispatching.browsing import Browser
    from acquit.broker.dispatching.groups import Groups
    from acquit.broker.dispatching.interest import Interest
    from acquit.broker.links.endpoints import Consumer, Producer
    from acquit.broker.message import Message
    from acquit.broker.nodes.locks import Locks
    from acquit.broker.nodes.subscription import Subscription
    from acquit.broker.nodes.temporary import Temporary
    from acquit.broker.options import AddressPolicy

KINDS: Final = 64
"""Room for every EventKind."""
_ENTERING: Final = tuple(map(int, ENTERING))
_RETIRING: Final = tuple(map(int, RETIRING))


class Queue:
    """One queue. Made by `queues.Queues`."""

    __slots__ = (
        "acquired",
        "active",
        "address",
        "aside",
        "asks_poster",
        "auto_created",
        "backlog",
        "blocked_groups",
        "browsers",
        "bytes",
        "consumers",
        "counts",
        "delayed",
        "displaces",
        "draining",
        "durable",
        "emptying",
        "groups",
        "held",
        "held_bytes",
        "interests",
        "learning",
        "leaving",
        "locks",
        "memory_bytes",
        "memory_bytes_max",
        "memory_messages_max",
        "name",
        "number",
        "owing",
        "pending",
        "plain",
        "policy",
        "producers",
        "purging",
        "reading",
        "removing",
        "scheduled",
        "scheduled_ids",
        "subscription",
        "temporary",
        "values",
        "volatile",
    )

    def __init__(
        self,
        number: int,
        name: str,
        address: str,
        policy: AddressPolicy,
        *,
        auto_created: bool,
        durable: bool = True,
        subscription: Subscription | None = None,
        temporary: Temporary | None = None,
    ) -> None:
        self.number = number
        """Its name in the journal; never reused."""
        self.name = name
        self.address = address
        self.policy = policy
        self.auto_created = auto_created
        self.durable = durable
        """Does it outlive a restart? All that is in one that does not is kept as volatile messages are."""
        self.subscription = subscription
        """What it is the queue of, where it is fed by topics."""
        self.temporary = temporary
        """How long it lives, where a client had it made for itself."""
        self.plain = False
        """Is every posting that says nothing special treated alike here, so that groups of them can be? See `posting`
        and `look_at_policy`."""
        self.asks_poster = False
        """Somebody asked for no messages of its own: who posts is remembered with each."""
        self.displaces = False
        """Do older messages give way to newer ones? See `limits`."""
        self.values: Values | None = None
        """Of a last-value queue."""
        self.memory_bytes_max = 0
        """Bodies in memory, by the policy; beyond it they are read back from the journal."""
        self.memory_messages_max = 0
        """The same in messages, of all that are live."""
        self.removing = False
        """It is being deleted: nothing is posted to it any more, and what is in it goes."""
        self.backlog = Backlog()
        self.pending = 0
        """Posted; the record waits for the disk."""
        self.held = 0
        """Postings of transactions that are to enter it, which are not in it."""
        self.held_bytes = 0
        """Their payloads."""
        self.acquired = 0
        self.scheduled: dict[int, Message] = {}
        """By sequence."""
        self.scheduled_ids: dict[bytes, dict[Message, None]] = {}
        """Those that wait for their delivery time, by message-id as the ledger encodes it."""
        self.delayed: list[tuple[int, int, Message]] = []
        """A heap of those that wait for another attempt and hold up what is behind them; see `barrier`."""
        self.leaving = 0
        """Consumers that have left, and have not given back all that they held (`outcomes.leaving`)."""
        self.learning = 0
        """Messages that wait for another attempt, and are being read back to see which group they hold up."""
        self.blocked_groups: dict[str, int] = {}
        """Groups that messages which wait for another attempt hold up, and how many of them there are."""
        self.locks: Locks | None = None
        """Of those that are acquired, where the policy sets a lock duration."""
        self.aside = Aside()
        """Available, but nobody who waited could have them, so they are out of the line; see `choosing`."""
        self.interests: list[Interest] = []
        """What the consumers that are served would take."""
        self.active: Consumer | None = None
        """The only one that is served, where the policy serves one at a time."""
        self.groups: Groups | None = None
        """Made when the first message with a group is handed out."""
        self.owing: dict[Consumer, None] = {}
        """Consumers that something is set aside for alone."""
        self.draining: dict[Consumer, None] = {}
        """Consumers that wait to hear that there is nothing more."""
        self.emptying: dict[Consumer, None] = {}
        """Consumers with something in their outbox."""
        self.consumers: list[Consumer] = []
        """Links that acquire."""
        self.browsers: list[Browser] = []
        self.producers: dict[Producer, None] = {}
        self.bytes = 0
        """Payloads of all live messages, as they were posted."""
        self.memory_bytes = 0
        """What those whose bodies are in memory cost."""
        self.reading = False
        """Bodies are being read back for it, and dispatch waits for them."""
        self.purging = 0
        """Purges that have not ended, and dispatch waits for them."""
        self.counts = [0] * KINDS
        """By EventKind, since the beginning of the journal."""
        self.volatile = [0] * KINDS
        """Of volatile messages, what the journal has not been told yet."""
        self.look_at_policy()

    def look_at_policy(self) -> None:
        """The policy has changed, or is seen for the first time."""
        policy = self.policy
        special = policy.default_ttl_ms or policy.ttl_ms_max or policy.last_value
        special = special or policy.duplicate_detection == "message-id"
        self.asks_poster = any(consumer.no_local for consumer in self.consumers) or any(
            browser.no_local for browser in self.browsers
        )
        special = special or self.asks_poster
        self.plain = self.durable and not special and policy.full_policy != "drop-oldest"
        self.displaces = displaces(policy)
        self.memory_bytes_max = resident_bytes_max(policy)
        self.memory_messages_max = resident_messages_max(policy)
        if not policy.last_value:
            self.values = None
        elif self.values is None:
            self.values = Values()

    @property
    def available(self) -> int:
        """Messages that could be acquired now."""
        return self.backlog.count + len(self.aside)

    @property
    def live(self) -> int:
        """Messages in the queue, whatever their state."""
        return self.pending + self.available + self.acquired + len(self.scheduled)

    @property
    def entered(self) -> int:
        """Messages that ever entered."""
        counts = self.counts
        return sum(counts[kind] for kind in _ENTERING)

    @property
    def retired(self) -> int:
        """Messages that left for good."""
        counts = self.counts
        return sum(counts[kind] for kind in _RETIRING)

    @property
    def held_up(self) -> bool:
        """Nothing is handed out for now: bodies are being read back, or a purge has not ended, or what consumers that
        have left held is being given back, which goes first."""
        return self.reading or self.purging > 0 or self.learning > 0 or self.leaving > 0

    @property
    def barrier(self) -> tuple[int, int] | None:
        """Place (-priority, sequence) of the first message that waits for another attempt and holds up what is behind
        it: only what stands before may be handed out. None: nothing is held up."""
        delayed = self.delayed
        while delayed and delayed[0][2].state is not NodeState.SCHEDULED:
            heappop(delayed)
        return delayed[0][:2] if delayed else None

    @property
    def undeliverable(self) -> int:
        """Available messages that none of the consumers that are here may have: each called it undeliverable, or takes
        only smaller ones."""
        if any(interest.members and not interest.wants.particular for interest in self.interests):
            return 0  # somebody who is here passed over nothing for that: there may be a million to look at
        consumers = {(consumer.terminus, consumer.body_bytes_max) for consumer in self.consumers}
        return sum(_is_undeliverable(message, consumers) for message in self.aside)

    @property
    def links(self) -> bool:
        """Has it any?"""
        return bool(self.consumers or self.browsers or self.producers)

    @property
    def in_use(self) -> bool:
        """Has it messages or links?"""
        return bool(self.links or self.live or self.held)

    def __repr__(self) -> str:
        return f"<Queue {self.number} {self.name!r} live={self.live}>"


def _is_undeliverable(message: Message, consumers: Iterable[tuple[str, int]]) -> bool:
    """Is it nothing for any of these, by terminus and largest body? With none of them here: for those that were."""
    excluded = frozenset[str]() if message.extra is None else message.extra.excluded
    if not consumers:
        return bool(excluded)
    size = message.size_bytes if message.body is None else len(message.body)
    return all(terminus in excluded or size > bytes_max for terminus, bytes_max in consumers)


__all__ = ["KINDS", "Queue"]

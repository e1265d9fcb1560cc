"""Consumers of a queue, and what they would take: those who would take the same are one *interest*.

Most queues have one, which is everything. Consumers with another selector, with no-local, with a limit on size that
some message has exceeded, or that called some message undeliverable here, have an interest of their own (or share it
with their like). A message is judged once for each interest, not for each consumer.

Of the messages that are set aside, an interest knows which are for it, up to the place `looked`: those it has *ahead*,
a heap of bounded size. Beyond that place it has not looked; where it has looked at all, it is told of each that is set
aside from then on. So neither its memory nor what it costs to judge grows with how often somebody looks.

Within an interest, consumers that wait for messages stand in a `Line`: higher priorities first, in turns among equals.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from acquit.broker.dispatching.aside import BEYOND, FIRST, Aside, rank
from acquit.broker.dispatching.backlog import Backlog
from acquit.broker.dispatching.groups import Groups, Retained
from acquit.broker.links.peers import Actor, Peer
from acquit.broker.message import ASIDE, Message, QueueBase
from acquit.broker.message_run import MessageRun
from acquit.broker.tally import RUNS_SKIPPED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acquit.broker.links.terminus import SourceTerminus
    from acquit.broker.nodes.lifetime import Temporary
    from acquit.broker.nodes.subscription import Subscription
    from acquit.broker.options import AddressPolicy
    from acquit.broker.parking import Parking
    from acquit.broker.selector import Fields, Selector
    from acquit.protocol.delivery import DeliveryState
    from acquit.protocol.link import SendingLink
    from acquit.protocol.rope import Rope

AHEAD_MAX: Final = 1_024
"""Messages that are set aside for one interest and known to be: more are looked for when these have gone."""


class Wants(NamedTuple):
    """Conditions on messages that are the same for all consumers of an interest, and tell it from others."""

    selector: str | None = None
    """The selector's text: two of the same text select the same."""
    no_local: str | None = None
    """The container whose own postings are passed over."""
    bytes_max: int = 0
    """The largest body; 0 for no limit."""
    terminus: str | None = None
    """Terminus at which some message was called undeliverable; None where none was."""

    @property
    def particular(self) -> bool:
        """True if a consumer of this interest has passed over some message, whatever it asked for."""
        return self.bytes_max > 0 or self.terminus is not None


EVERYTHING: Final = Wants()


class Line:
    """Consumers that wait, in turns; one is in it once."""

    __slots__ = ("_lanes", "count")

    def __init__(self) -> None:
        self._lanes: list[tuple[int, deque[Consumer]]] = []  # the highest priority first
        self.count = 0

    def add(self, consumer: Consumer) -> None:
        """Put a consumer at the end of those of its priority; nothing happens where it is in line already."""
        if consumer.in_line:
            return
        consumer.in_line = True
        self.count += 1
        priority = consumer.priority
        for at, (other, lane) in enumerate(self._lanes):
            if other == priority:
                lane.append(consumer)
                return
            if other < priority:
                self._lanes.insert(at, (priority, deque((consumer,))))
                return
        self._lanes.append((priority, deque((consumer,))))

    def pop(self) -> Consumer | None:
        """The next one, no longer in line; None for nobody."""
        for at, (_, lane) in enumerate(self._lanes):
            if lane:
                consumer = lane.popleft()
                if not lane and len(self._lanes) > 1:
                    del self._lanes[at]
                consumer.in_line = False
                self.count -= 1
                return consumer
        return None

    def add_first(self, consumer: Consumer) -> None:
        """Put a consumer before all others of its priority: it was taken out, and its turn has not come."""
        self.add(consumer)
        for priority, lane in self._lanes:
            if priority == consumer.priority and len(lane) > 1:
                lane.rotate(1)

    def discard(self, consumer: Consumer) -> None:
        """Take a consumer out, if it is in line: it does not wait any more."""
        if consumer.in_line:
            consumer.in_line = False
            self.count -= 1
            for _, lane in self._lanes:
                if consumer in lane:
                    lane.remove(consumer)
                    return


class Interest:
    """Consumers of one queue that would take the same."""

    __slots__ = (
        "_ahead",
        "by_properties",
        "line",
        "looked",
        "members",
        "needs_body",
        "selector",
        "takes_all",
        "verdicts",
        "wants",
    )

    def __init__(self, wants: Wants, selector: Selector | None) -> None:
        self.wants = wants
        self.selector = selector
        self.members = 0
        """Consumers, waiting or not."""
        self.line = Line()
        self.looked = FIRST
        """Rank below which it knows of all that is set aside; BEYOND: it knows of all there is."""
        self.needs_body = wants.bytes_max > 0 or (selector is not None and selector.needs_body)
        """True if a message's body must be in memory to judge it."""
        self.takes_all = wants == EVERYTHING
        """True if it accepts whatever there is."""
        self.by_properties = wants == Wants(wants.selector) and (selector is None or selector.by_properties)
        """True if it accepts messages by their application properties alone."""
        self.verdicts: dict[bytes, bool] = {}
        """The latest that were judged by these sections, and whether they are for it."""
        self._ahead: list[tuple[int, Message]] = []

    def accepts(self, message: Message, fields: Fields | None) -> bool:
        """Return True if a message with these `fields` is for it. Its body is in memory if `needs_body`."""
        wants, extra = self.wants, message.extra
        if extra is not None:
            if wants.terminus is not None and wants.terminus in extra.excluded:
                return False
            if wants.no_local is not None and extra.poster == wants.no_local:
                return False
        if wants.bytes_max and message.body is not None and len(message.body) > wants.bytes_max:
            return False
        return self.selector is None or (fields is not None and self.selector.matches(fields))

    def judge(self, properties: bytes, fields: Fields) -> bool:
        """Return True if a message with these application properties, and no other, is for it: only these are asked
        for. Remember it."""
        verdict = self.selector is None or self.selector.matches(fields)
        if len(properties) <= _REMEMBERED_BYTES_MAX:
            if len(self.verdicts) >= _REMEMBERED_MAX:
                self.verdicts.clear()
            self.verdicts[properties] = verdict
        return verdict

    def expect(self, message: Message) -> None:
        """A message that it accepts is aside, at a place where it has looked."""
        ahead = self._ahead
        heappush(ahead, (rank(message), message))
        if len(ahead) > AHEAD_MAX:
            ahead = sorted(pair for pair in ahead if pair[1].flags & ASIDE)  # which is a heap as well
            if len(ahead) > AHEAD_MAX // 2:
                self.looked = min(self.looked, ahead[AHEAD_MAX // 2][0])  # the later half is looked for again
            self._ahead = ahead[: AHEAD_MAX // 2]

    @property
    def looks(self) -> bool:
        """True if there is more to look at, and room to remember it: what others got meanwhile takes none."""
        if len(self._ahead) > AHEAD_MAX // 2:
            self.first()
        return self.looked < BEYOND and len(self._ahead) <= AHEAD_MAX // 2

    def first(self) -> Message | None:
        """The first of those it knows to be set aside for it."""
        ahead = self._ahead
        while ahead:
            message = ahead[0][1]
            if message.flags & ASIDE:
                return message
            heappop(ahead)
        return None

    def next_ones(self, limit: int) -> list[Message]:
        """Some of those it has ahead, the first among them, to be read together."""
        return [message for _, message in sorted(self._ahead[: 2 * limit])[:limit] if message.flags & ASIDE]

    def skip(self) -> None:
        """The first one is nothing for it after all."""
        heappop(self._ahead)


class ServedQueue(QueueBase):
    """A queue, as its consumers and browsers see it: the messages that can be had, and who else is there."""

    __slots__ = (
        "active",
        "aside",
        "backlog",
        "consumers",
        "delayed",
        "draining",
        "emptying",
        "groups",
        "interests",
        "owing",
        "scheduled",
        "subscription",
    )

    def __init__(
        self,
        number: int,
        name: str,
        address: str,
        policy: AddressPolicy,
        *,
        auto_created: bool,
        durable: bool,
        subscription: Subscription | None,
        temporary: Temporary | None,
        parking: Parking | None,
    ) -> None:
        """`parking`: where messages are parked that wait in its middle; None: nowhere."""
        super().__init__(number, name, address, policy, auto_created=auto_created, durable=durable, temporary=temporary)
        self.subscription = subscription
        """Subscription that it is the queue of, where it is fed by topics."""
        self.backlog = Backlog(parking)
        self.scheduled: dict[int, Message] = {}
        """Messages that become available at some later time, by sequence."""
        self.delayed: list[tuple[int, int, Message]] = []
        """A heap of those that wait for another attempt and hold up what is behind them; see `barrier`."""
        self.aside = Aside()
        """Available, but nobody who waited could have them, so they are out of the line; see `choosing`."""
        self.interests: list[Interest] = []
        """Interests of the consumers that are served."""
        self.active: Consumer | None = None
        """The only one that is served, where the policy serves one at a time."""
        self.groups: Groups[Consumer] | None = None
        """Made when the first message with a group is handed out."""
        self.owing: dict[Consumer, None] = {}
        """Consumers that something is set aside for alone."""
        self.draining: dict[Consumer, None] = {}
        """Consumers that wait to hear that there is nothing more."""
        self.emptying: dict[Consumer, None] = {}
        """Consumers with something in their outbox."""
        self.consumers: list[Consumer] = []
        """Links that acquire."""

    @property
    def available(self) -> int:
        """Messages that could be acquired now."""
        return self.backlog.count + len(self.aside)

    def look_at_policy(self) -> None:
        """The policy has changed, or who is there: see what that asks of postings."""
        raise NotImplementedError

    def release(self, group: str) -> None:
        """Let go what is parked of a group: no message of it waits for another attempt any more."""
        if self.groups is None:
            return
        self.free(list(self.groups.parked.pop(group, {}).values()))

    def free(self, messages: list[Message]) -> bool:
        """Put messages that were set aside back into the backlog, for anybody. True if any was still aside."""
        back = [message for message in messages if self.aside.remove(message)]
        for message in back:
            self.backlog.add(message)
        return bool(back)

    def hand_out(self, message: Message, group: str, consumer: Consumer) -> bool:
        """Bind the group of a message, which is not aside any more, to the consumer that gets it. If it is the group's
        last, free the group instead: what is retained of it is anybody's. True if there was any."""
        groups = self.groups
        if groups is None:
            groups = self.groups = Groups()
        extra = message.extra
        if extra is None or not extra.closes_group:
            if groups.owner(group) is None:
                groups.bind(group, consumer)
            return False
        owner = groups.alone(group)
        if owner is None or message.came_back:
            return False
        behind = owner.retained.take_behind(message, group)
        if behind is None:
            return False
        groups.close(group)
        return self.free(behind)

    def withdraw(self, message: Message) -> None:
        """Take a message out of its place: it is not AVAILABLE any more."""
        if not self.aside.remove(message):
            self.backlog.left()


class Outgoing(NamedTuple):
    """A message that leaves once its record is synced."""

    payload: bytes | Rope
    message: Message | None = None
    """The message that a resumable link acquired; None where a pre-settled link has consumed it."""
    tag: bytes = b""
    """The delivery-tag on a resumable link."""


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
        "over",
        "presettled",
        "priority",
        "queue",
        "reserved",
        "reserved_bytes",
        "resumable",
        "resuming",
        "resuming_only",
        "retained",
        "selector",
        "stamp",
        "subscriber",
        "tag",
        "timed",
        "timed_us",
        "unsent",
        "untimed",
    )

    def __init__(
        self,
        peer: Peer,
        link: SendingLink,
        queue: ServedQueue,
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
        self.over = False
        """True once its link has ended, and its terminus with it; one that outlives its link has an end of its own."""
        self.subscriber = False
        """True if its source is the topic: the subscription that the queue is of may end with it."""
        self.presettled = presettled
        self.default_outcome = default_outcome
        """The source's (3.5.3): for deliveries that it does not settle itself."""
        size_max = link.remote_max_message_size
        self.body_bytes_max = max(1, size_max - _HEADER_MAX) if size_max else _UNLIMITED
        """The largest body that it takes: its max-message-size, less the header we write."""
        self.tag = 0
        """The number of the last delivery, which is its tag."""
        self.held = 0
        """Messages it has acquired."""
        self.timed: Message | MessageRun | None = None
        """The one of these that is measured, or the end of a run: how long it is held."""
        self.timed_us = 0
        """Time at which that was acquired."""
        self.untimed = 0
        """Runs that pass before the next one is measured."""
        self.outbox: deque[Outgoing] = deque()
        """Messages whose record is synced, to be sent as credit allows: of links that are pre-settled or resumable."""
        self.reserved = 0
        """Messages that are consumed, or acquired, and not yet sent; they use up credit already."""
        self.reserved_bytes = 0
        self.resumable: SourceTerminus | None = None
        """The terminus of a resumable link, which outlives it."""
        self.unsent: dict[Message, None] = {}
        """Messages of a resumable link that are acquired and not yet sent."""
        self.resuming: deque[tuple[bytes, object]] = deque()
        """Deliveries to be resumed before anything new is sent: tags, with the state in the peer's unsettled map."""
        self.resuming_only = False
        """True while one of the unsettled maps is incomplete: nothing new is sent before the next attach."""
        self.selector = selector
        """Selector that it asked for; None: it takes everything."""
        self.no_local = no_local
        """True if it is not given what its own container posted."""
        self.priority = priority
        """Higher ones are served first, while they have credit."""
        self.interest: Interest | None = None
        """Interest of those who would take the same; None while another consumer is served in its place."""
        self.in_line = False
        """True while it waits in its interest's line."""
        self.retained = Retained(queue.aside)
        """Messages that are set aside for it alone."""
        self.left = 0
        """Messages that it can still be given in this pass."""
        self.stamp = 0
        """Value of `Sending.stamp` when `choosing` gave it something last: who has waited longest has the lowest."""

    @property
    def room(self) -> int:
        """Messages that it can be given, by its credit, its session and the policy."""
        link = self.link
        room = min(link.credit - self.reserved, link.session.room)
        prefetch_max = self.queue.policy.prefetch_max
        return min(room, prefetch_max - self.held) if prefetch_max and not self.presettled else room

    @property
    def full(self) -> bool:
        """True if it must settle something before it is given more: by the policy, or as its session is full."""
        session = self.link.session
        return 0 < self.queue.policy.prefetch_max <= self.held or session.outgoing_count >= session.unsettled_max

    @property
    def open_to_more(self) -> bool:
        """True if it can be given a message now."""
        peer = self.peer
        if not self.link.sendable or self.room <= 0 or self.resuming or self.resuming_only:
            return False
        return self.reserved_bytes < peer.output_bytes_max and peer.open_to_more

    @property
    def held_back(self) -> bool:
        """True if it could be given more once what was produced for its peer is written: nothing else tells of that."""
        if self.outbox:
            return held_back(self.peer, self.link)
        return self.room > 0 and held_back(self.peer, self.link)

    def let_go(self, message: Message, time_us: int) -> None:
        """Hold this message no more."""
        self.held -= 1
        if message is self.timed:
            self.end_timing(time_us)

    def acquired(self, run: Sequence[Message] | MessageRun, time_us: int) -> None:
        """Measure how long the one in the middle of these is held, or the whole run, where it is time for that."""
        if self.timed is not None:
            return
        if self.untimed:
            self.untimed -= 1
        else:
            self.timed = run if isinstance(run, MessageRun) else run[len(run) // 2]
            self.timed_us, self.untimed = time_us, RUNS_SKIPPED

    def hold_singly(self, run: MessageRun, messages: Sequence[Message]) -> None:
        """Hold these messages in place of the run that they were."""
        if self.timed is run:
            self.timed = messages[len(messages) // 2]

    def lay_out_sent(self) -> None:
        """Let what it was sent together be single deliveries, of single messages."""
        self.link.session.lay_out_sent()

    def end_timing(self, time_us: int) -> None:
        """Count how long the message that is measured was held."""
        self.timed = None
        self.queue.tally.held.add((time_us - self.timed_us) / 1e6)

    def stand_in_line(self) -> None:
        """Get in line, as its credit, or what else kept it from being given more, has changed. Then wake the queue."""
        link = self.link
        if self.interest is not None and link.credit > 0 and not (self.resuming or self.resuming_only):
            self.interest.line.add(self)
        if link.drain:
            self.queue.draining[self] = None


def held_back(peer: Peer, link: SendingLink) -> bool:
    """Return True if a link only waits for its output to be written: credit, window and socket would take more."""
    if not peer.writable or link.credit <= 0 or link.session.remote_incoming_window <= 0:
        return False
    return link.half_written is not None or not peer.open_to_more


_REMEMBERED_MAX: Final = 64
"""Sections of application properties of which an interest remembers what it said."""
_REMEMBERED_BYTES_MAX: Final = 128
"""Size of the largest of them."""
_HEADER_MAX = 32
"""No header section of ours is longer."""
_UNLIMITED = 1 << 62


__all__ = [
    "AHEAD_MAX",
    "EVERYTHING",
    "Consumer",
    "Interest",
    "Line",
    "ServedQueue",
    "Wants",
    "held_back",
]

"""Browsers: links with distribution-mode copy, which see each message once and acquire nothing (3.5.1).

A browser sees what is available when it first has credit, in order, and then what becomes available. A message that
somebody else holds when the browser gets to it is *missed*, and seen when it comes back. What the browser is still to
see is a line of messages, which it walks as credit allows; messages that left the queue are passed over, and swept out
of the line when they are the most of it.
"""

from __future__ import annotations

from collections import deque
from heapq import merge
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from acquit.broker.dispatching import tags
from acquit.broker.dispatching.aside import rank
from acquit.broker.links.peers import Actor, Peer
from acquit.broker.message import DISPATCHED, Message
from acquit.broker.queue import NodeState
from acquit.broker.selector import fields_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from acquit.broker.dispatching.consumers import ServedQueue
    from acquit.broker.links.filters import Portion
    from acquit.broker.selector import Selector
    from acquit.protocol.link import SendingLink
    from acquit.protocol.rope import Rope

_SWEEP_MIN: Final = 1_000


class Browser(Actor):
    """A link that looks."""

    __slots__ = (
        "_ahead",
        "_first",
        "_missed",
        "_there",
        "link",
        "no_local",
        "portion",
        "queue",
        "reads",
        "selector",
        "started",
        "tag",
    )

    def __init__(
        self,
        peer: Peer,
        link: SendingLink,
        queue: ServedQueue,
        *,
        selector: Selector | None = None,
        no_local: bool = False,
        portion: Portion | None = None,
        reads: bool = False,
    ) -> None:
        super().__init__(peer, link.name, queue.address)
        self.link = link
        self.queue = queue
        self.selector = selector
        """Selector that it asked for; None: it is shown everything."""
        self.no_local = no_local
        """True if it is not shown what its own container posted."""
        self.portion = portion
        """The share of the queue that it is shown, known by sequence alone; None: all of it."""
        self.reads = reads
        """True if the outcomes that it gives are recorded: the queue is non-destructive."""
        self.tag = 0
        """The number of the last delivery, which is its tag."""
        self.started = False
        self._there: Iterator[Message] | None = None
        """Messages that were there when it began, as far as it has not come to them; None for none."""
        self._first: deque[Message] = deque()
        """The next of them."""
        self._ahead: deque[Message] = deque()
        """Messages that have come since."""
        self._missed: dict[int, Message] = {}

    @property
    def open_to_more(self) -> bool:
        """True if it can be shown a message now."""
        return self.link.sendable and self.peer.open_to_more

    @property
    def size_max(self) -> int:
        """The largest message that it takes; 0 for no limit."""
        return self.link.remote_max_message_size

    def start(self, acquired: Iterable[Message]) -> None:
        """Begin, as it has credit for the first time: see what is there, and remember what others hold (`acquired`)."""
        self.started = True
        queue, chosen = self.queue, None if self.portion is None else self.portion.has
        aside = [message for message in queue.aside if chosen is None or chosen(message.sequence)]
        self._there = merge(queue.backlog.remembered(chosen), aside, key=rank)
        self._missed = {message.sequence: message for message in acquired}
        self._missed.update(queue.scheduled)

    def offered(self, message: Message) -> None:
        """A message became available: for the first time, or again."""
        if not self.started or (self.portion is not None and not self.portion.has(message.sequence)):
            return
        missed = self._missed.pop(message.sequence, None) is not None
        if missed or not message.flags & DISPATCHED:
            self._ahead.append(message)
            if len(self._ahead) > _SWEEP_MIN + 2 * self.queue.live:
                self._sweep()

    def _look_ahead(self, limit: int) -> None:
        """Take so many of what was there when it began, or all that are left, to where they can be seen: they come
        before what has come since."""
        if self._there is not None and len(self._first) < limit:
            found = list(islice(self._there, limit - len(self._first)))
            self._first.extend(found)
            if len(self._first) < limit:
                self._there = None

    def peek(self) -> Message | None:
        """Return the message that it is to see next; None when it has seen all."""
        while True:
            self._look_ahead(1)
            ahead = self._first or self._ahead
            if not ahead:
                return None
            message = ahead[0]
            if message.state is NodeState.AVAILABLE:
                return message
            ahead.popleft()
            if message.state is not NodeState.ARCHIVED:
                self._missed[message.sequence] = message

    def next_ones(self, limit: int) -> list[Message]:
        """Some of what it is to see next, beginning with what `peek` gave."""
        self._look_ahead(limit)
        ahead = islice(chain(self._first, self._ahead), limit)
        return [message for message in ahead if message.state is NodeState.AVAILABLE]

    def accepts(self, message: Message) -> bool:
        """Return True if it asked for such a message, whose body is in memory."""
        extra = message.extra
        if self.no_local and extra is not None and extra.poster == self.peer.container:
            return False
        return self.selector is None or self.selector.matches(fields_of(message))

    def show(self, message: Message, payload: bytes | Rope) -> None:
        """Send it; it stays where it is."""
        self.tag = self.tag + tags.STEP & tags.MASK
        self.link.send(tags.encode(self.tag), payload, context=message if self.reads else None)
        self.peer.unwritten_bytes += len(payload)

    def seen(self) -> None:
        """Move on behind the message that `peek` gave."""
        (self._first or self._ahead).popleft()

    def _sweep(self) -> None:
        self._first.extend(self._there or ())  # most of what was there has left, or there would not be so much ahead
        self._first, self._there = deque(one for one in self._first if one.state is not NodeState.ARCHIVED), None
        self._ahead = deque(message for message in self._ahead if message.state is not NodeState.ARCHIVED)
        self._missed = {
            sequence: message for sequence, message in self._missed.items() if message.state is not NodeState.ARCHIVED
        }


__all__ = ["Browser"]

"""Browsers: links with distribution-mode copy, which see each message once and acquire nothing (3.5.1).

A browser sees what is available when it first has credit, in order, and then what becomes available. A message that
somebody else holds when the browser gets to it is *missed*, and seen when it comes back. What the browser is still to
see is a line of messages, which it walks as credit allows; messages that left the queue are passed over, and swept out
of the line when they are the most of it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from acquit.broker.endpoints import Actor, Peer
from acquit.broker.message import DISPATCHED, Message
from acquit.broker.queue import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acquit.broker.node import Queue
    from acquit.protocol.link import SendingLink

_SWEEP_MIN: Final = 1_000


class Browser(Actor):
    """A link that looks."""

    __slots__ = ("_ahead", "_missed", "link", "queue", "started", "tag")

    def __init__(self, peer: Peer, link: SendingLink, queue: Queue) -> None:
        super().__init__(peer, link.name, queue.address)
        self.link = link
        self.queue = queue
        self.tag = 0
        """Of the last delivery: they are counted."""
        self.started = False
        self._ahead: deque[Message] = deque()
        self._missed: dict[int, Message] = {}

    @property
    def open_to_more(self) -> bool:
        """Whether it can be shown a message now."""
        return self.link.sendable and self.peer.open_to_more

    @property
    def size_max(self) -> int:
        """The largest message that it takes; 0 for no limit."""
        return self.link.remote_max_message_size

    def start(self, acquired: Iterable[Message]) -> None:
        """It has credit for the first time: see what is there, and remember what others hold (`acquired`)."""
        self.started = True
        queue = self.queue
        self._ahead.extend(queue.backlog.next_messages())
        self._ahead.extend(queue.aside.values())
        self._missed = {message.sequence: message for message in acquired}
        self._missed.update(queue.scheduled)

    def offered(self, message: Message) -> None:
        """A message became available: for the first time, or again."""
        if not self.started:
            return
        missed = self._missed.pop(message.sequence, None) is not None
        if missed or not message.flags & DISPATCHED:
            self._ahead.append(message)
            if len(self._ahead) > _SWEEP_MIN + 2 * self.queue.live:
                self._sweep()

    def peek(self) -> Message | None:
        """What it is to see next, or None when it has seen all."""
        ahead = self._ahead
        while ahead:
            message = ahead[0]
            if message.state is NodeState.AVAILABLE:
                return message
            ahead.popleft()
            if message.state is not NodeState.ARCHIVED:
                self._missed[message.sequence] = message
        return None

    def seen(self) -> None:
        """It has been shown what `peek` gave."""
        self._ahead.popleft()

    def _sweep(self) -> None:
        self._ahead = deque(message for message in self._ahead if message.state is not NodeState.ARCHIVED)
        self._missed = {
            sequence: message for sequence, message in self._missed.items() if message.state is not NodeState.ARCHIVED
        }


__all__ = ["Browser"]

"""Walks through the messages that wait in a queue, because somebody asked that something be done to them.

A walk goes in small steps (`turns`), while everything else goes on. It sees what waited when it began: what consumers
have acquired, and what is posted meanwhile, is left alone. Bodies that are not in memory are read back first, some at a
time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from acquit.broker.queue import NodeState
from acquit.broker.selector import compile_selector
from acquit.broker.selector.fields import fields_of
from acquit.errors import StoreFull

if TYPE_CHECKING:
    from acquit.broker.life import Life
    from acquit.broker.message import Message
    from acquit.broker.nodes.node import Queue
    from acquit.broker.selector import Selector

STEP: Final = 256
"""Messages that are looked at in one turn, and whose bodies are asked for at once."""
ACTED_ON: Final = 8
"""Messages that one turn moves, at some 0.14 ms each: everybody else waits for a turn, and gets one behind each."""
PASSED: Final = 5_000
"""Messages of which one turn sees that they are not among those which are named."""
STEP_BYTES: Final = 4 << 20
"""Bytes of one step, beyond which no further message is begun."""
WAITING: Final = (NodeState.AVAILABLE, NodeState.SCHEDULED)
"""The states of messages that nobody has acquired, and that are on the disk if they are to be."""


class MessageChoice(NamedTuple):
    """The messages that a request means, of those that wait in a queue."""

    selector: Selector | None = None
    """The condition that messages must match."""
    sequences: frozenset[int] | None = None
    """The only messages that are meant."""
    messages_max: int | None = None
    """The largest number of messages, in the order of the queue."""


EVERYTHING: Final = MessageChoice()


def choose(selector: str | None, sequences: frozenset[int] | None, messages_max: int | None) -> MessageChoice:
    """Return a choice, its selector compiled. Raises SelectorError."""
    return MessageChoice(None if selector is None else compile_selector(selector), sequences, messages_max)


class Walk:
    """A walk through one queue. Kinds of walks say what is done to a message, and who hears of the end."""

    acted_on: ClassVar = ACTED_ON
    """Messages that it acts on in one turn, at most."""

    def __init__(self, life: Life, source: Queue, choice: MessageChoice, *, reads_bodies: bool = True) -> None:
        """`reads_bodies`: what is done to a message needs its body; otherwise only a selector may."""
        self._life = life
        self._source = source
        self._selector = choice.selector
        self._reads_bodies = reads_bodies or (choice.selector is not None and choice.selector.needs_body)
        self._sequences = choice.sequences
        self._left = choice.messages_max
        if choice.sequences is not None:  # behind the last of them there is nothing to do
            self._left = min(len(choice.sequences), len(choice.sequences) if self._left is None else self._left)
        self._messages: Iterator[Message] | None = None
        self._ended = False
        self._step: deque[Message] = deque()
        self._unread: set[Message] = set()
        self._recorded = False

    @property
    def ready(self) -> bool:
        """True if the next step can be taken; otherwise bodies are being read."""
        return not self._unread

    def run(self) -> bool:
        """Go on. True when it has ended."""
        if self._is_cut_off():
            return self._end("a queue was deleted meanwhile")
        if self._messages is None:
            self._messages = remembered(self._source)
        if not self._step:
            self._step = self._take(self._messages)
        if self._is_done():
            return self._end("")
        if self._reads_bodies:
            self._unread = {message for message in self._step if message.body is None and message.state in WAITING}
            if self._unread:
                for message in tuple(self._unread):
                    self._life.memory.want(message, self._unread.discard)
                return False
        acts_left = self.acted_on
        try:
            while self._step and acts_left and self._left != 0:
                message = self._step.popleft()
                if message.state in WAITING:
                    acts_left -= self._look_at(message)
        except StoreFull:
            return self._end("the broker's disk is full")
        self._life.wake(self._source)
        # A queue that is not needed when it is empty goes before the next turn, and that cuts nothing off.
        return self._is_done() and self._end("")

    def _is_done(self) -> bool:
        """True if there is nothing left to do."""
        return self._left == 0 or (self._ended and not self._step) or not self._source.live

    def _take(self, messages: Iterator[Message]) -> deque[Message]:
        taken: deque[Message] = deque()
        size = 0
        for _ in range(PASSED):
            message = next(messages, None)
            if message is None:
                self._ended = True
                break
            if self._sequences is None or message.sequence in self._sequences:
                taken.append(message)
                size += message.size_bytes
                if len(taken) == STEP or size > STEP_BYTES:
                    break
        return taken

    def _look_at(self, message: Message) -> bool:
        """Act on a message that is chosen; True if it was."""
        chosen = self._selector is None or self._selector.matches(fields_of(message))
        counts = chosen and self._act_on(message)
        if counts and self._left is not None:
            self._left -= 1
        only_looked_at = self._reads_bodies and message.state in WAITING and message.durable
        if only_looked_at and self._life.memory.crowded(self._source):
            self._life.memory.drop(message)
        return chosen

    def _is_cut_off(self) -> bool:
        """True if it cannot go on, because a queue is no more."""
        return self._source.removing

    def _act_on(self, message: Message) -> bool:
        """Do what the walk is for to a message that is chosen; True if it counts as one of `messages_max`. Raises
        StoreFull."""
        raise NotImplementedError

    def _told(self, why: str) -> None:
        """Tell those who wait for the end. `why` it came early; "": it did not."""
        raise NotImplementedError

    def _end(self, why: str) -> bool:
        if self._recorded:  # who is told that it is done finds it done after a crash
            self._life.scribe.once_durable(self._told, why)
        else:
            self._told(why)
        return True


def remembered(queue: Queue) -> Iterator[Message]:
    """Go through what waits in a queue now, in order, whatever becomes of it meanwhile."""
    return chain(queue.backlog.remembered(), list(queue.aside), list(queue.scheduled.values()))


__all__ = ["ACTED_ON", "EVERYTHING", "PASSED", "STEP", "WAITING", "MessageChoice", "Walk", "choose", "remembered"]

"""A pass over the consumers of a queue that wait: who is in front, what each was given, and who is next.

`choosing` places messages in passes. In one of them each consumer gets its share at most, and the pass is over before
others would get what is due to one that has had it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.dispatching.sending import FRAME_HEAD_MAX

if TYPE_CHECKING:
    from acquit.broker.dispatching.consumers import Consumer, Interest
    from acquit.broker.dispatching.sending import Sending
    from acquit.broker.message import Message
    from acquit.broker.message_run import MessageRun
    from acquit.broker.nodes.node import Queue
    from acquit.protocol.session_base import SessionBase

SHARE_MAX: Final = 64
"""Messages that a consumer gets in one pass."""


class Pass:
    """A pass over the consumers of a queue that wait: from each interest one is in front, with room.

    Messages that a consumer is given are sent together, later; no more are given than link and session take. After one
    that may need several frames (the rest of which must be written before its link takes another), after the last that
    there was room for, and before another consumer is asked for its room, all are sent: what is known of it is true.
    """

    __slots__ = (
        "_handed",
        "_queue",
        "_rooms",
        "_sending",
        "_unsent",
        "batches",
        "forgot",
        "fronts",
        "held_back",
        "horizon",
        "order",
        "over",
        "parted",
        "rested",
    )

    def __init__(self, queue: Queue, sending: Sending) -> None:
        self._queue = queue
        self._sending = sending
        self.batches: dict[Consumer, list[Message]] = {}
        """Messages that each was given and sent: recorded together, at the end."""
        self._unsent: dict[Consumer, list[Message]] = {}
        """Messages that each was given since then."""
        self._rooms: dict[SessionBase, int] = {}
        """Deliveries that their sessions take after that."""
        self._handed = False
        """True if somebody was given a run, which is recorded already."""
        self.fronts: dict[Interest, Consumer] = {}
        self.order: list[Consumer] = []
        """Consumers in front, in the order in which they are asked."""
        self.rested: list[Consumer] = []
        """Consumers that may be given more in another pass."""
        self.held_back = False
        """True if a consumer only waits for what was produced to be written."""
        self.over = False
        """True once a consumer with room has had its share, or what is next is to be found anew: the pass ends before
        others get what is due to it."""
        self.parted = False
        """A message was too large for somebody, who may be one of others from now on, or messages went back into the
        backlog: another pass follows."""
        self.forgot = False
        """A message is not for somebody for whom it was aside, as far as was known: another pass follows."""
        self.horizon = 0
        """Rank before which nothing is aside for those in front, as far as is known; see `Choosing._before`."""
        for interest in queue.interests:
            if interest.line.count:
                self._bring_up(interest)
        self.order = sorted(self.fronts.values(), key=_turn)

    def next(self, interest: Interest) -> None:
        """Give the turn to the next consumer of an interest."""
        self._bring_up(interest)
        self.order = sorted(self.fronts.values(), key=_turn)

    def _bring_up(self, interest: Interest) -> None:
        """The next consumer of an interest comes to the front, if there is one with room."""
        line, batches = interest.line, self.batches
        while (consumer := line.pop()) is not None:
            if consumer in batches:
                if consumer.left > 0:
                    break
                self.rested.append(consumer)
                continue
            if self._open(consumer):
                break
            if consumer.held_back:
                self.held_back = True
                self.rested.append(consumer)
        if consumer is None:
            self.fronts.pop(interest, None)
        else:
            self.fronts[interest] = consumer
            self.horizon = 0

    def seat(self, consumer: Consumer) -> bool:
        """Return True if a consumer can be given something, wherever it stands in line; it is in the pass then."""
        interest = consumer.interest
        if interest is None:
            return False
        if consumer in self.batches or self.fronts.get(interest) is consumer:
            return consumer.left > 0
        if not consumer.in_line or not self._open(consumer):
            return False
        self.batches[consumer] = []
        return True

    def _open(self, consumer: Consumer) -> bool:
        """Ask one that was given nothing yet for its room: can it be given something?"""
        self.send()
        self._sending.measure(consumer.peer)
        if not consumer.open_to_more:
            return False
        consumer.left = min(consumer.room, SHARE_MAX)
        return True

    def send(self) -> None:
        """Send all that was given."""
        for consumer, messages in self._unsent.items():
            sent = self._sending.give(self._queue, consumer, messages)
            assert sent == len(messages)
            self.batches[consumer] += messages
        self._unsent.clear()
        self._rooms.clear()

    def give(self, consumer: Consumer, message: Message) -> None:
        """A message for one that has room."""
        body, session, sending = message.body, consumer.link.session, self._sending
        assert body is not None
        large = len(body) > session.connection.frame_size_max - FRAME_HEAD_MAX
        messages = self._unsent.get(consumer)
        if messages is None:
            messages = self._unsent[consumer] = []
            self.batches.setdefault(consumer, [])
        messages.append(message)
        sending.stamp += 1
        consumer.stamp = sending.stamp
        consumer.left -= 1
        room = self._rooms.get(session)
        if room is None:
            room = session.room
        self._rooms[session] = room - 1
        if large or room <= 1 or consumer.left == 0:
            self.send()
            self._see_room(consumer)
        self._end_turn(consumer)

    def give_run(self, consumer: Consumer, run: MessageRun) -> None:
        """Messages that came together, and can be sent together, for one that has room for all, now that what was given
        before is sent."""
        sending = self._sending
        assert not self._unsent
        sending.hand_run(self._queue, consumer, run)
        self.batches.setdefault(consumer, [])
        self._handed = True
        sending.stamp += run.count
        consumer.stamp = sending.stamp
        consumer.left -= run.count
        self._see_room(consumer)
        self._end_turn(consumer)

    def _see_room(self, consumer: Consumer) -> None:
        """See what room there is behind what one was sent."""
        link = consumer.link
        if not link.sendable:
            consumer.left = 0  # of a message that is larger than a frame the rest must be written first
            if not link.session.may_send:
                self._shut(link.session)
        elif consumer.left == 0 and consumer.room > 0:
            self.over = True

    def _end_turn(self, consumer: Consumer) -> None:
        """Let the next one come to the front in the place of one that was given something."""
        interest = consumer.interest
        assert interest is not None
        if self.fronts.get(interest) is not consumer:
            return
        if consumer.left == 0:
            self.rested.append(consumer)
            self.next(interest)
        elif interest.line.count:
            interest.line.add(consumer)
            self.next(interest)
        elif len(self.order) > 1:
            self._back(consumer)

    def _back(self, consumer: Consumer) -> None:
        """Put one that was given something last behind those of its priority: `order` stays sorted by `_turn`."""
        order, priority = self.order, consumer.priority
        order.remove(consumer)
        at = len(order)
        while at and order[at - 1].priority < priority:
            at -= 1
        order.insert(at, consumer)

    def _shut(self, session: SessionBase) -> None:
        """A session takes no more: nor do its other links. (The one that used it up is seen to by its caller.)"""
        shut = [
            one
            for one in dict.fromkeys((*self.batches, *self.fronts.values()))
            if one.link.session is session and one.left
        ]
        for consumer in shut:
            consumer.left = 0
        for interest, consumer in list(self.fronts.items()):
            if consumer in shut:
                self.rested.append(consumer)
                self._bring_up(interest)
        self.order = sorted(self.fronts.values(), key=_turn)

    def part(self) -> None:
        """End the pass, as a message was too large for somebody: in it, that message or one behind it would go to those
        who come after this consumer, or after others of the interest that it had. Or as what others may have is back in
        the backlog, before what would be given next."""
        self.parted = self.over = True

    def goes_on(self) -> bool:
        """Return True if a consumer is in front for the next message, and the pass is not `over`."""
        return bool(self.fronts) and not self.over

    def block(self, interest: Interest) -> None:
        """Let an interest wait for the next pass: what is next for it cannot go out yet."""
        consumer = self.fronts.pop(interest, None)
        if consumer is not None:
            self.rested.append(consumer)
            self.order = sorted(self.fronts.values(), key=_turn)

    def end(self, queue: Queue) -> bool:
        """Send and record, and back into line. True if anybody was given anything."""
        self.send()
        given = self._handed
        for consumer, messages in self.batches.items():
            if messages:
                self._sending.record(queue, consumer, messages)
                given = True
        for interest, consumer in self.fronts.items():
            interest.line.add_first(consumer)
        for consumer in self.rested:
            if consumer.interest is not None:
                consumer.interest.line.add(consumer)
        return given


def _turn(consumer: Consumer) -> tuple[int, int]:
    return -consumer.priority, consumer.stamp


__all__ = ["SHARE_MAX", "Pass"]

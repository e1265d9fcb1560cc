"""Messages go out: what is available is handed to the links that have credit.

One pass for each wake-up, over the queues where something changed. The consumers of a queue that can be given something
stand in line and take turns, each time for its share of what is there: a slow one holds nobody up, and one with a great
credit does not starve the others. Those of a higher priority come first. A consumer whose peer does not read is passed
over, so that what it is owed stays in the queue. Who has no credit is not in line, and costs nothing.

Here is the short way, for queues where everybody would take everything; where that is not so, `choosing` places message
by message. `sending` is how they leave, `succession` who is served at all.

A durable message is handed out only where a synced mark says that it may have been (`ledger.sequences.DispatchMarks`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from acquit.broker.dispatching.aside import rank
from acquit.broker.dispatching.choosing import Choosing, barrier_of
from acquit.broker.dispatching.consumers import held_back
from acquit.broker.dispatching.groups import Groups
from acquit.broker.dispatching.paging import Paging
from acquit.broker.dispatching.passes import SHARE_MAX
from acquit.broker.dispatching.sending import Sending
from acquit.broker.dispatching.succession import notice_size
from acquit.broker.memory import tell_returns
from acquit.broker.message import DURABLE, Message
from acquit.broker.nodes.node import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from acquit.broker.denials import Denials
    from acquit.broker.dispatching.browsing import Browser
    from acquit.broker.dispatching.consumers import Consumer, Line
    from acquit.broker.life import Life
    from acquit.broker.message import QueueBase
    from acquit.broker.nodes.node import Queue
    from acquit.broker.outcomes.expiry import Expiry
    from acquit.broker.outcomes.locks import LockKeeper

TOLD_MAX: Final = 64
"""Links of one queue that are told in every turn how many messages wait; of more, only those that ask."""
SHOWN_MAX: Final = 1_024
"""Messages that one browser looks at in one turn."""
HANDED_MAX: Final = 500
"""Messages handed out or shown in one turn, about, over all queues; a queue that is looked at in vain counts as one.
Each takes some microseconds, and whatever else there is to do waits."""
RUN_BYTES: Final = 262_144
"""Payloads of a run that a consumer is handed in its turn, or `SHARE_MAX` messages, if these are more."""
RETURNED_COST: Final = 8
"""Added cost, in messages, of one whose annotations are written anew, because it was returned."""


class Dispatch:
    """Hands messages out."""

    def __init__(
        self,
        life: Life,
        expiry: Expiry,
        locks: LockKeeper,
        denials: Denials,
        held_apart: Callable[[Queue], Iterable[Message]],
    ) -> None:
        """`held_apart` gives what is held of a queue by nobody who is attached: by transactions, and by termini."""
        self._held_apart = held_apart
        self._life = life
        self._scribe = life.scribe
        self._memory = life.memory
        self._sending = Sending(life, locks)
        self._paging = Paging(life)
        self._denials = denials
        self._choosing = Choosing(life, expiry, self._sending, denials)
        self.sending = self._sending
        self.empty_outbox = self._sending.empty_outbox
        self.look_again = self._choosing.look_again
        self._left = 0
        """Messages of `HANDED_MAX` that are left in this turn."""
        self._line: deque[QueueBase] = deque()
        """Queues that are to be served, in turns. Thousands may wait here for a later one, which costs nothing then."""
        self._in_line: set[QueueBase] = set()

    def run(self) -> bool:
        """Serve every queue where something changed. True where more can be handed out in another turn, once what was
        produced for some peer is written."""
        line, in_line = self._line, self._in_line
        held: dict[QueueBase, None] = {}
        self._sending.turn += 1
        self._left = HANDED_MAX
        self._line_up()
        while line and self._left > 0:
            woken = line.popleft()
            in_line.discard(woken)
            queue = whole(woken)
            self._left -= 1
            more = self._serve(queue) if queue.interests else False
            more = self._finish(queue) or more
            for browser in queue.browsers:
                more = self._show(browser) or more
            if more:
                held[queue] = None
            if not line:
                self._line_up()
        self._line_up()
        for woken in held:  # behind those that had no turn in this one
            self._stand(woken)
        return bool(line)

    def _line_up(self) -> None:
        """Let those stand in line where something has changed since the last time."""
        life = self._life
        if life.dirty:
            dirty, life.dirty = life.dirty, {}
            for queue in dirty:
                self._stand(queue)

    def _stand(self, queue: QueueBase) -> None:
        if queue not in self._in_line:
            self._in_line.add(queue)
            self._line.append(queue)

    # -- to consumers -------------------------------------------------------------------------------------------------

    def _serve(self, queue: Queue) -> bool:
        """Hand out what can be. True if there is more to do once something is written, or in another turn."""
        interest = queue.interests[0]
        passed: list[Consumer] = []
        line = interest.line
        alike = self._all_alike(queue)
        turns = share = 0
        while alike and queue.backlog.count and not queue.held_up and not self._scribe.exhausted:
            if self._left <= 0:
                break
            consumer = self._next(line, passed)
            if consumer is None:
                alike = self._all_alike(queue)
                break
            if not turns:  # all that are in line have had their turn
                turns = line.count + 1
                # A round ends within a turn, or those who come last in it would have a share of what is left alone.
                share = min(-(-queue.backlog.count // turns), max(SHARE_MAX, HANDED_MAX // turns))
            turns -= 1
            given = self._give(queue, consumer, min(share, consumer.room))
            self._left -= given
            alike = self._all_alike(queue)
            assert consumer.interest is not None
            its_line = consumer.interest.line  # it may have another interest than before: a message was too large
            if given:
                its_line.add(consumer)
            else:
                its_line.add_first(consumer)
                if alike:
                    break
        for consumer in passed:
            line.add(consumer)
        if not alike:
            self._left -= HANDED_MAX // 4  # what its judgements take
            return self._choosing.serve(queue)
        return (bool(passed) or (self._left <= 0 and line.count > 0)) and queue.backlog.count > 0 and not queue.held_up

    def _all_alike(self, queue: Queue) -> bool:
        """Return True if every consumer would take whatever is next."""
        interests = queue.interests
        return len(interests) == 1 and interests[0].takes_all and not queue.aside and queue.groups is None

    def _next(self, line: Line, passed: list[Consumer]) -> Consumer | None:
        """The next consumer that can be given something. Those that must wait for their output are passed over; others
        are not waiting at all, and come again when that changes."""
        while (consumer := line.pop()) is not None:
            self._sending.measure(consumer.peer)
            if consumer.open_to_more:
                if self._life.exclusions and self._choosing.specialise(consumer):
                    consumer.stand_in_line()
                    return None
                return consumer
            if consumer.held_back:
                passed.append(consumer)
        return None

    def _give(self, queue: Queue, consumer: Consumer, limit: int) -> int:
        """Hand the next messages to one consumer, at most `limit`; how many. Of those that came together it may have
        more at once: each of them takes less time."""
        backlog = queue.backlog
        if backlog.deep and self._sending.may_take_runs(consumer) and self._paging.waits(queue):
            return 0
        run = backlog.next_run()
        if run is not None and run.grouped:
            queue.groups = Groups()
            return 0
        if run is not None and not queue.delayed:
            count = min(run.count, limit, max(SHARE_MAX, RUN_BYTES // run.size_max))
            marked = run.recorded is None or self._scribe.mark_ahead(queue, run.sequences[count - 1])
            if marked and self._sending.takes_run(consumer, run, count):
                return self._sending.hand_run(queue, consumer, backlog.take_run(count))
        taken = backlog.take(min(limit, SHARE_MAX))
        if queue.delayed:
            taken = _before_barrier(queue, taken)
        messages = self._usable(queue, consumer, taken)
        if messages:
            self._sending.hand(queue, consumer, messages)
        return len(messages)

    def _usable(self, queue: Queue, consumer: Consumer, taken: list[Message]) -> list[Message]:
        """The first of `taken` that this consumer may have now. The rest goes back.

        Most have nothing about them that would be in the way: here they are only looked at for that.
        """
        last_durable = 0
        body_bytes_max = consumer.body_bytes_max
        for message in taken:
            body = message.body
            if body is None or message.extra is not None or message.expires_at_ms or len(body) > body_bytes_max:
                return self._usable_with_care(queue, consumer, taken)
            if message.flags & DURABLE and message.sequence > last_durable:
                last_durable = message.sequence
        if last_durable and not self._scribe.mark_ahead(queue, last_durable):
            return self._usable_with_care(queue, consumer, taken)
        return taken

    def _usable_with_care(self, queue: Queue, consumer: Consumer, taken: list[Message]) -> list[Message]:
        """The same, message by message."""
        choosing = self._choosing
        for index, message in enumerate(taken):
            extra = message.extra
            if choosing.must_wait(queue, message):
                queue.backlog.put_back(taken[index:])
                choosing.look_to(queue, message)
                return taken[:index]
            if extra is not None:
                if extra.group is not None and queue.policy.message_groups:
                    queue.groups = Groups()
                    queue.backlog.put_back(taken[index:])
                    return taken[:index]
                if extra.returns:
                    tell_returns(message)
                    self._left -= RETURNED_COST
            assert message.body is not None
            if len(message.body) > consumer.body_bytes_max:
                notice_size(consumer, message, self._denials)
                queue.backlog.put_back(taken[index:])
                return taken[:index]
        return taken

    def _finish(self, queue: Queue) -> bool:
        """Tell consumers what is left, give back credit that drains. True if somebody could be given more later."""
        available = queue.available
        held = False
        if len(queue.consumers) + len(queue.browsers) <= TOLD_MAX:
            for consumer in queue.consumers:
                consumer.link.available = available
            for browser in queue.browsers:
                browser.link.available = available
        for consumer in list(queue.draining):
            link = consumer.link
            if not link.drain or not link.credit:
                del queue.draining[consumer]
            elif not (consumer.reserved or consumer.resuming) and (
                consumer.full or self._scribe.exhausted or not self._choosing.owes(queue, consumer)
            ):
                link.available = available
                link.drained()
                self._life.touch(link.session.connection)
                del queue.draining[consumer]
        for consumer in list(queue.emptying):
            self._sending.measure(consumer.peer)
            self.empty_outbox(consumer)
            if consumer.outbox and consumer.held_back:
                held = True
        return held

    # -- to browsers --------------------------------------------------------------------------------------------------

    def _show(self, browser: Browser) -> bool:
        """BROWSE, as far as its credit reaches. True if it could be shown more once what there is was written."""
        link = browser.link
        if not link.credit:
            return False
        if browser.reads and browser.queue.consumers_paused:
            self._drain(browser)
            return False
        self._sending.measure(browser.peer)
        if not browser.started:
            if browser.queue.leaving:
                return False  # it begins when that is back which nobody holds any more
            browser.start(self._held(whole(browser.queue)))
        looks = min(SHOWN_MAX, max(1, self._left))
        while (message := browser.peek()) is not None and browser.open_to_more:
            if not looks:
                return True
            looks -= 1
            self._left -= 1
            if message.body is None:
                self._read_for(browser)
                return False
            if browser.accepts(message):
                payload = self._sending.payload(message)
                if not browser.size_max or len(payload) <= browser.size_max:
                    browser.show(message, payload)
                    self._life.touch(link.session.connection)
            browser.seen()
            if message.flags & DURABLE and self._memory.crowded(browser.queue):
                self._memory.drop(message)  # it was only looked at: whoever acquires it reads it again
        if message is not None:
            return held_back(browser.peer, link)
        self._drain(browser)
        return False

    def _held(self, queue: Queue) -> list[Message]:
        """Return what somebody holds of a queue."""
        held = [
            delivery.context
            for consumer in queue.consumers
            for delivery in consumer.link.unsettled()
            if isinstance(delivery.context, Message) and delivery.context.holder is consumer
        ]
        if len(held) < queue.acquired + queue.suspended:  # transactions have the outcomes of some, or links have gone
            for consumer in queue.consumers:
                held += consumer.unsent
            held += self._held_apart(queue)
        return held

    def _drain(self, browser: Browser) -> None:
        """Give back the credit of a browser that wants only what is there: there is nothing more for it."""
        link = browser.link
        if link.drain and link.credit:
            link.available = browser.queue.available
            link.drained()
            self._life.touch(link.session.connection)

    def _read_for(self, browser: Browser) -> None:
        """Read what it is to see next, as many as is good at once."""
        size = 0
        for message in browser.next_ones(SHARE_MAX):
            if message.body is None:
                self._memory.want(message, self._choosing.wake_for)
                size += message.size_bytes
                if size > self._memory.read_ahead_bytes:
                    return


def _before_barrier(queue: Queue, taken: list[Message]) -> list[Message]:
    """Return those that no message which waits for another attempt holds up; put the others back."""
    barrier = barrier_of(queue)
    for at, message in enumerate(taken):
        if rank(message) >= barrier:
            queue.backlog.put_back(taken[at:])
            return taken[:at]
    return taken


__all__ = ["Dispatch"]

"""Choice of a consumer for each message, where not all would take the same: selectors, no-local, groups, sizes.

Theory of operation. `dispatch` gives whatever comes next to whoever is next, as long as everybody would take all.
Otherwise messages are placed one by one, in order: each goes to the first consumer, by priority and turn, whose
`Interest` accepts it and which has room. A message that nobody who waits may have is set `Aside`, so that it holds up
nobody else, and the interests that accept it remember it for when one of theirs has room. So each message is judged
once for each interest, with its body in memory at that moment, and is not read back to be judged again::

                      accepted, room                        ┌──────────────┐  room comes
    backlog ──▶ place ──────────────▶ a consumer ◀──────────│ aside        │──────────────▶ a consumer
                  └── nobody now ─────────────────────────▶ └──────────────┘
                                                              ▲ an interest that is new, or remembers no more,
                                                              └ looks through it, a bounded step in each turn

An interest that has not looked at all that is aside is given nothing that stands behind what it has not looked at:
order within a priority holds for each consumer, whatever was set aside on the way.

A group goes to the consumer it is bound to; while that one has no room, its messages are set aside for it alone: they
are *retained* for it.

What came together (`broker.message_run`) is placed together as far as each message is for one consumer alone, whatever
the turn: the one that its group is bound to, or the only one whose selector takes its application properties. What the
former has no room for is retained for it as a run.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from acquit.broker.dispatching.aside import BEYOND, rank, rank_of
from acquit.broker.dispatching.consumers import AHEAD_MAX
from acquit.broker.dispatching.groups import Groups
from acquit.broker.dispatching.passes import SHARE_MAX, Pass
from acquit.broker.dispatching.sending import ADDED_BYTES_MAX
from acquit.broker.dispatching.succession import notice_size, specialise
from acquit.broker.memory import READ_AHEAD_MESSAGES, tell_returns
from acquit.broker.message import ASIDE, DISPATCHED, DURABLE, OBJECT_BYTES, OVERHEAD_BYTES, Message
from acquit.broker.queue import NodeState
from acquit.broker.selector import STEPS_MAX, Fields, fields_of, fields_of_properties
from acquit.protocol.serial import MASK as ID_MASK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acquit.broker.denials import Denials
    from acquit.broker.dispatching.consumers import Consumer, Interest
    from acquit.broker.dispatching.sending import Sending
    from acquit.broker.life import Life
    from acquit.broker.message_run import MessageRun
    from acquit.broker.nodes.node import Queue
    from acquit.broker.outcomes.expiry import Expiry
    from acquit.protocol.session_base import SessionBase

STEPS_TURN_MAX: Final = 4_096
"""Steps of LIKE after which a turn on one queue judges no further message (`selector.like`)."""
LOOKS_MAX: Final = 256
"""Judgements of one turn on one queue, about: a message for an interest. A message that nobody judges counts as one."""

_STEP_MIN: Final = 16
"""Messages that a turn places, however many interests judge them."""
_RUN_LOOK: Final = 4
"""Messages of a run that can be placed together at the price of a judgement."""

assert READ_AHEAD_MESSAGES <= AHEAD_MAX // 2, "an interest that cannot remember all it looks at together looks for ever"


class Choosing:
    """Places messages, and keeps what is set aside."""

    def __init__(self, life: Life, expiry: Expiry, sending: Sending, denials: Denials) -> None:
        self._life = life
        self._scribe = life.scribe
        self._memory = life.memory
        self._expiry = expiry
        self._sending = sending
        self._denials = denials
        self.looks = 0
        """Judgements that are left of this turn on a queue."""
        self.steps = 0
        """Steps of LIKE that are left of it."""
        self.run_messages = 0
        """Messages that may be placed in runs in what is left of it."""
        self._out_of_memory: dict[Queue, None] = {}
        """Queues of which nothing more is read until there is memory: see `look_to`."""

    def serve(self, queue: Queue) -> bool:
        """Hand out what can be. True if there is more to do, now or once something is written."""
        self._specialise(queue)
        if not any(interest.line.count for interest in queue.interests):
            return False
        self.looks = max(LOOKS_MAX, _STEP_MIN * len(queue.interests))
        self.steps = STEPS_TURN_MAX
        self.run_messages = _RUN_LOOK * LOOKS_MAX
        looked = False
        barrier = barrier_of(queue)
        held_back = False
        progress = True
        while progress and not queue.held_up and not self._scribe.exhausted:
            looked = self._look_aside(queue) or looked
            pass_ = Pass(queue, self._sending)
            held_back = pass_.held_back
            before = self.looks
            self._from_backlog(queue, pass_, barrier)
            progress = self.looks < before
            self._from_aside(queue, pass_, min(barrier, queue.backlog.next_rank()))
            progress = pass_.end(queue) or ((pass_.parted or pass_.forgot or progress) and self.looks > 0)
        waits = any(interest.line.count for interest in queue.interests)
        if not waits or queue.held_up or self._scribe.exhausted:
            return False
        if held_back:
            return self.has_work(queue, barrier)
        return (self.looks <= 0 and self.has_work(queue, barrier)) or looked

    def has_work(self, queue: Queue, barrier: int) -> bool:
        """Return True if a message could be for somebody: the backlog's next is before `barrier`, or some are aside."""
        return queue.backlog.next_rank() < barrier or bool(queue.aside)

    def owes(self, queue: Queue, consumer: Consumer) -> bool:
        """Return True if there is something that this consumer may be given, as far as is known."""
        interest = consumer.interest
        if interest is None or queue.consumers_paused:
            return False
        barrier = barrier_of(queue)
        if queue.backlog.next_rank() < barrier:
            return True
        if not queue.aside:
            return False
        first = self._first(consumer)
        if first is not None and rank(first) < barrier:
            return True
        return interest.looked < BEYOND and queue.aside.first_rank(interest.looked) < barrier

    def _specialise(self, queue: Queue) -> None:
        """Consumers that called something undeliverable have an interest of their own."""
        if self._life.exclusions:
            for consumer in queue.consumers:
                self.specialise(consumer)

    def specialise(self, consumer: Consumer) -> bool:
        """See to it for one; True if that changed something."""
        interest = consumer.interest
        if interest is None or interest.wants.terminus is not None or consumer.terminus not in self._life.exclusions:
            return False
        specialise(consumer, terminus=consumer.terminus)
        return True

    # -- from the line ------------------------------------------------------------------------------------------------

    def _from_backlog(self, queue: Queue, pass_: Pass, barrier: int) -> None:
        """Place what comes next, while somebody has room."""
        backlog = queue.backlog
        while self.looks > 0 and pass_.goes_on() and backlog.count and not queue.held_up:
            if self._place_run(queue, pass_):
                continue
            self.looks = max(self.looks, 1)  # what it took to find that out
            taken = backlog.take(min(SHARE_MAX, self.looks))
            for index, message in enumerate(taken):
                place = rank(message)
                stop = self.looks <= 0 or not pass_.goes_on() or place >= barrier
                if stop or self.must_wait(queue, message):
                    backlog.put_back(taken[index:])
                    if not stop:
                        self.look_to(queue, message)
                    return
                if place > pass_.horizon:
                    self._before(queue, pass_, place)
                if not (pass_.goes_on() and self._place(queue, pass_, message, place)):
                    backlog.put_back(taken[index:])
                    return
                self.looks -= 1

    def _place_run(self, queue: Queue, pass_: Pass) -> bool:
        """Give the next messages, which came together, each to the one that it is for, as `_place` would. False, and
        nothing happens, where the first of them must be looked at by itself."""
        run = queue.backlog.next_run()
        if run is None or run.recorded is not None or queue.delayed or queue.blocked_groups:
            return False
        grouped = run.grouped
        if not all(interest.takes_all if grouped else interest.by_properties for interest in queue.interests):
            return False
        pass_.send()  # so that rooms are what they are
        rests = run.rests[: self.run_messages]
        shares: dict[Consumer, list[int]] = {}
        rooms: dict[Consumer, int] = {}
        known: dict[bytes, tuple[list[int], int]] = {}  # shares and rooms by their keys
        count = len(rests)
        for place, key in enumerate(_keys(run, rests)):
            entry = known.get(key)
            if entry is None:
                self.looks -= len(queue.interests) // _STEP_MIN
                consumer: Consumer | None = None
                if self.looks > 0:
                    consumer = self._whose_group(queue, key) if grouped else self._whose(queue, pass_, key)
                room = None if consumer is None else self._room(queue, pass_, consumer, run)
                if consumer is None or room is None:
                    count = place
                    break
                rooms[consumer] = room
                entry = known[key] = shares.setdefault(consumer, []), room
            share, room = entry
            if len(share) >= room and not grouped:  # who has no more room is given no more
                count = place
                break
            share.append(place)
        if not count or not have_room(shares, rooms):
            return False
        count = self._hand_out(queue, pass_, queue.backlog.take_run(count), shares, rooms)
        self.looks -= -(-count // _RUN_LOOK)
        self.run_messages -= count
        if self.run_messages <= 0:
            self.looks = 0
        return True

    @staticmethod
    def _hand_out(
        queue: Queue, pass_: Pass, run: MessageRun, shares: dict[Consumer, list[int]], rooms: dict[Consumer, int]
    ) -> int:
        """Give each consumer its share of a run, as far as it has room, and retain the rest for it; how many that are,
        for the shares may go on behind its end."""
        count = run.count
        for share in shares.values():
            del share[bisect_left(share, count) :]
        # Who was given the last of them was given something last: so turns go on as if they had been placed one by one.
        for consumer, share in sorted(shares.items(), key=lambda one: one[1][: rooms[one[0]]][-1:]):
            if not share:
                continue
            part, room = run.part(share), rooms[consumer]
            if room:
                pass_.give_run(consumer, part if part.count <= room else part.split(room))
            if room < len(share):
                queue.aside.retain(consumer.retained, part)
                queue.owing[consumer] = None
        return count

    def _room(self, queue: Queue, pass_: Pass, consumer: Consumer, run: MessageRun) -> int | None:
        """Return how many of these messages, which are for this consumer, it can be given; what it has no room for of
        groups is retained for it. None where they must be looked at one by one."""
        interest, waits = consumer.interest, run.grouped and bool(consumer.retained.runs)
        if interest is None or (interest.first() if waits else self._first(consumer)) is not None:
            return None
        if _unseen(queue, interest, last_rank(run)) or consumer.body_bytes_max < run.size_max + ADDED_BYTES_MAX:
            return None
        if waits and rank_of(run.priority, run.sequences[0]) < last_rank(consumer.retained.runs[-1]):
            return None
        if waits or not pass_.seat(consumer):
            return 0 if run.grouped else None
        return consumer.left if self._sending.takes_run(consumer, run, consumer.left) else None

    def _whose(self, queue: Queue, pass_: Pass, properties: bytes) -> Consumer | None:
        """Return the consumer that what has these application properties is for; None where it is for nobody now, or
        perhaps for several."""
        accepting: list[Interest] = []
        fields: Fields | None = None
        for interest in queue.interests:
            verdict = interest.takes_all or interest.verdicts.get(properties)
            if verdict is None:
                self.looks -= 1
                if fields is None:
                    fields = fields_of_properties(properties)
                verdict = interest.judge(properties, fields)
                self.count_steps(fields)
            if verdict:
                accepting.append(interest)
        if len(accepting) != 1 or accepting[0].members != 1:
            return None
        return pass_.fronts.get(accepting[0])

    @staticmethod
    def _whose_group(queue: Queue, group: bytes) -> Consumer | None:
        """Return the consumer that a group is bound to; None for none."""
        return None if queue.groups is None else queue.groups.owner(group.decode())

    def count_steps(self, fields: Fields) -> None:
        """Count what LIKE took of a selector that was asked."""
        self.steps -= STEPS_MAX - getattr(fields, "steps_left", STEPS_MAX)
        if self.steps <= 0:
            self.looks = 0

    def _before(self, queue: Queue, pass_: Pass, place: int) -> None:
        """Give first what is aside for those in front, and stands before `place`."""
        horizon = BEYOND
        if queue.aside:
            self._aside_in_turn(queue, pass_, place)
            for consumer in pass_.order:
                first = self._first(consumer)
                if first is not None:
                    horizon = min(horizon, rank(first))
            self.looks -= len(pass_.order)
        pass_.horizon = horizon

    def _place(self, queue: Queue, pass_: Pass, message: Message, place: int) -> bool:
        """Give a message to somebody, or set it aside. False: it was too large for one that it might have been for,
        and is for the next pass, with all that is behind it."""
        extra = message.extra
        group = None if extra is None else extra.group
        if extra is not None and extra.returns:
            tell_returns(message)  # it is larger then, and judged as large as it is
        fields = _Judged(message, self)
        if group is not None and queue.policy.message_groups:
            if self._to_owner(queue, pass_, message, place, group, fields):
                return True
        else:
            group = None
        for consumer in pass_.order:
            interest = consumer.interest
            assert interest is not None
            if _unseen(queue, interest, place):
                continue
            if consumer.body_bytes_max < len(message.body or b"") and self._too_large(pass_, consumer, message):
                continue  # those behind it for whom it is too large as well need no pass for each of them
            if pass_.parted:
                return False
            if fields.accepted(interest):
                self._give(queue, pass_, consumer, message, group)
                return True
        if pass_.parted:
            return False
        self._set_aside(queue, message, place, fields)
        return True

    def _too_large(self, pass_: Pass, consumer: Consumer, message: Message) -> bool:
        """Return True if this is the first message that is too large for a consumer. From now on the consumer has an
        interest with that limit on size, and is back in line. The pass is over."""
        interest = consumer.interest
        if interest is None or interest.wants.bytes_max or consumer.body_bytes_max >= len(message.body or b""):
            return False
        if pass_.fronts.get(interest) is consumer:
            pass_.block(interest)
            pass_.rested.remove(consumer)
        notice_size(consumer, message, self._denials)
        pass_.part()
        self.looks -= len(pass_.order)  # who is in front is found anew
        consumer.stand_in_line()
        return True

    # -- groups -------------------------------------------------------------------------------------------------------

    def _to_owner(self, queue: Queue, pass_: Pass, message: Message, place: int, group: str, fields: _Judged) -> bool:
        """Give a message of a group to the consumer that has the group, or retain it for that one. False: it is for
        anybody."""
        groups = queue.groups
        if groups is None:
            groups = queue.groups = Groups()
        if group in queue.blocked_groups:
            groups.parked.setdefault(group, {})[message.sequence] = message
            queue.aside.add(message)
            self._let_go(queue, message)
            return True
        owner = groups.owner(group)
        if owner is None or owner.interest is None or not fields.accepted(owner.interest):
            return False
        if self._too_large(pass_, owner, message):
            return False
        # What is retained for it already goes first, in `_from_aside`, and what it has not looked at.
        ahead = (first := self._first(owner)) is not None and rank(first) < place
        if not ahead and not _unseen(queue, owner.interest, place) and pass_.seat(owner):
            self._give(queue, pass_, owner, message, group)
            return True
        queue.aside.add(message)
        self._retain(queue, owner, group, message)
        self._let_go(queue, message)
        return True

    def _give(self, queue: Queue, pass_: Pass, consumer: Consumer, message: Message, group: str | None) -> None:
        """Give a message to a consumer. If it is the last of its group, and others may have what was retained of that,
        the pass is over: this stands before what was taken from the backlog."""
        if group is not None and queue.hand_out(message, group, consumer):
            pass_.part()
            self.looks -= len(pass_.order)  # who is in front is found anew
        pass_.give(consumer, message)

    @staticmethod
    def _retain(queue: Queue, owner: Consumer, group: str, message: Message) -> None:
        owner.retained.add(group, message)
        queue.owing[owner] = None

    # -- aside --------------------------------------------------------------------------------------------------------

    def _set_aside(self, queue: Queue, message: Message, place: int, fields: _Judged) -> None:
        """Set a message aside that nobody who waits may have: interests that looked so far and accept it note it."""
        queue.aside.add(message)
        for interest in queue.interests:
            if place < interest.looked and fields.accepted(interest):
                interest.expect(message)
        self._let_go(queue, message)

    def _let_go(self, queue: Queue, message: Message) -> None:
        if message.flags & DURABLE and self._memory.crowded(queue):
            self._memory.drop(message)

    def _first(self, consumer: Consumer) -> Message | None:
        """The first of what is known to be aside for a consumer."""
        own = consumer.retained.first()
        first = None if consumer.interest is None else consumer.interest.first()
        if own is not None and (first is None or rank(own) < rank(first)):
            return own
        return first

    def _from_aside(self, queue: Queue, pass_: Pass, limit: int) -> None:
        """Give what is aside and stands before `limit` to those who have room for it."""
        if queue.aside:
            self._aside_in_turn(queue, pass_, limit)
        for consumer in list(queue.owing):  # of what is left, others can be given nothing now
            if not pass_.over and pass_.seat(consumer):
                self._aside_for(queue, pass_, consumer, limit)
            if consumer.retained.is_empty:
                queue.owing.pop(consumer, None)

    def _aside_in_turn(self, queue: Queue, pass_: Pass, limit: int) -> None:
        """Give those in front what is aside for them and stands before `limit`, in the order in which they are asked:
        after each of them, and whenever another one comes to the front, the first in `order` is next."""
        at = 0
        while not pass_.over and at < len(pass_.order):
            order, consumer = pass_.order, pass_.order[at]
            self._aside_for(queue, pass_, consumer, limit)
            if pass_.order is not order:
                at = 0
            elif order[at] is consumer:  # else it was given something, and stands behind others of its priority
                at += 1
        if pass_.parted:
            for consumer in list(pass_.order):  # those who part as well need no pass for each of them
                first = self._first(consumer)
                if first is not None and rank(first) < limit:
                    self._too_large(pass_, consumer, first)

    def _aside_for(self, queue: Queue, pass_: Pass, consumer: Consumer, limit: int) -> None:
        """Give a consumer what is aside for it and stands before `limit`: one message after the other, while it is its
        turn and it has room."""
        interest = consumer.interest
        assert interest is not None
        in_front = pass_.fronts.get(interest) is consumer
        if consumer.retained.runs:
            self._runs_for(queue, pass_, consumer, limit)
            if consumer.retained.runs or pass_.over or (in_front and pass_.fronts.get(interest) is not consumer):
                return
        while consumer.left > 0 and (message := self._first(consumer)) is not None and rank(message) < limit:
            if _unseen(queue, interest, rank(message)):
                return  # only of what is aside for it alone can this be true
            if self.must_wait(queue, message):
                self._look_to_aside(queue, interest, message)
                if message.flags & ASIDE:
                    pass_.block(interest)
                    return
                continue
            extra = message.extra
            if extra is not None and extra.returns:
                tell_returns(message)
            if consumer.body_bytes_max < len(message.body or b""):
                if consumer.interest is not interest or interest.wants.bytes_max:
                    self._forget(pass_, consumer, message)
                if self._too_large(pass_, consumer, message):
                    return
                continue
            group = None if extra is None or not queue.policy.message_groups else extra.group
            if (group is not None or message.flags & DISPATCHED) and not self._still_for(
                queue, pass_, consumer, message, group
            ):
                continue
            queue.aside.remove(message)
            self._give(queue, pass_, consumer, message, group)
            if pass_.over or (in_front and pass_.fronts.get(interest) is not consumer):
                return

    def _runs_for(self, queue: Queue, pass_: Pass, consumer: Consumer, limit: int) -> None:
        """Give a consumer what is retained for it in runs, while it has room. Where something else stands before the
        end of one of them, or they cannot be sent together, let them be single messages."""
        interest, aside, retained = consumer.interest, queue.aside, consumer.retained
        assert interest is not None
        pass_.send()
        while retained.runs and consumer.left > 0 and not pass_.over:
            run = retained.runs[0]
            last = last_rank(run)
            before = (first := interest.first()) is not None and rank(first) < last
            before = before or last >= limit or _unseen(queue, interest, last)
            if not retained.runs:
                return  # somebody looked at what is aside
            count = min(consumer.left, run.count)
            if before or queue.blocked_groups or not self._sending.takes_run(consumer, run, count):
                aside.lay_out(retained)
                return
            pass_.give_run(consumer, aside.take_run(retained, count))

    def _still_for(self, queue: Queue, pass_: Pass, consumer: Consumer, message: Message, group: str | None) -> bool:
        """Return True if a message is still for the consumer that it is aside for: it may even have been away, and be
        aside again. If it is not, the consumer has forgotten it."""
        judged = _Judged(message, self)
        if message.flags & DISPATCHED and not judged.accepted(consumer.interest):
            self._forget(pass_, consumer, message)
            return False
        if group is None:
            return True
        groups = queue.groups
        if groups is None:
            groups = queue.groups = Groups()
        if group in queue.blocked_groups:
            groups.parked.setdefault(group, {})[message.sequence] = message
            self._forget(pass_, consumer, message)
            return False
        owner = groups.owner(group)
        if owner is None or owner is consumer or not judged.accepted(owner.interest):
            return True
        if self._too_large(pass_, owner, message):
            return True
        self._forget(pass_, consumer, message)
        self._retain(queue, owner, group, message)
        return False

    @staticmethod
    def _forget(pass_: Pass, consumer: Consumer, message: Message) -> None:
        """Strike the first message off what is known to be aside for a consumer: it is not for that one. Another pass
        gives it to whom it is for; and if nothing else was known to be for this one, that has to look further."""
        pass_.forgot = True
        if consumer.retained.first() is message:
            consumer.retained.skip()
        elif consumer.interest is not None:
            consumer.interest.skip()

    def _look_aside(self, queue: Queue) -> bool:
        """Interests that wait and have not looked at all that is aside look at some of it. True if they did."""
        looked = False
        while self.looks > 0:
            looking = [interest for interest in queue.interests if interest.line.count and interest.looks]
            if not looking:
                break
            low = min(interest.looked for interest in looking)
            chunk = queue.aside.since(low, max(1, min(self.looks // len(looking), READ_AHEAD_MESSAGES)))
            if not chunk:
                for interest in looking:
                    interest.looked = BEYOND if interest.looked == low else interest.looked
                continue
            last = rank(chunk[-1])
            looking = [interest for interest in looking if interest.looked <= last]
            if any(interest.needs_body for interest in looking):
                chunk = self._in_memory(chunk)
            if not chunk:
                break
            looked = True
            for message in chunk:
                self.looks -= 1
                place = rank(message)
                fields = _Judged(message, self)
                wanted = False
                for interest in looking:
                    if interest.looked <= place:
                        interest.looked = place + 1
                        if fields.accepted(interest):
                            interest.expect(message)
                            wanted = True
                if not wanted:
                    self._let_go(queue, message)
                if self.looks <= 0:
                    break
        return looked

    def _in_memory(self, chunk: list[Message]) -> list[Message]:
        """Return the first ones that have their bodies in memory; read others, as many as is good at once."""
        here = next((at for at, message in enumerate(chunk) if message.body is None), len(chunk))
        size = 0
        for message in chunk[here:]:
            if size > self._memory.read_ahead_bytes:
                break
            if message.body is None:
                self._memory.want(message, self.wake_for)
                size += message.size_bytes
        return chunk[:here]

    # -- what stands in the way ---------------------------------------------------------------------------------------

    def must_wait(self, queue: Queue, message: Message) -> bool:
        """Return True if a message cannot go out now, to anybody: expired, not in memory, or durable and unmarked."""
        if message.expires_at_ms and message.expires_at_ms * 1000 <= self._scribe.time_us:
            return True
        if message.body is None:
            return True
        return bool(message.flags & DURABLE) and not self._scribe.mark_ahead(queue, message.sequence)

    def look_to(self, queue: Queue, message: Message) -> None:
        """The message in front cannot go out as it is: see that this changes."""
        if message.expires_at_ms and message.expires_at_ms * 1000 <= self._scribe.time_us:
            self._expiry.expire(message)
            if message.state is NodeState.AVAILABLE:
                queue.reading = message.body is None
            else:
                self._life.dirty[queue] = None
        elif message.body is not None:
            self._scribe.when_synced(self._life.wake, queue)
        elif self._passes_over_too_much(queue):
            self._out_of_memory[queue] = None
        else:
            self._memory.read_ahead(queue, queue.backlog.coming(READ_AHEAD_MESSAGES))

    def _passes_over_too_much(self, queue: Queue) -> bool:
        """Return True where what is aside takes half of the memory, and less than an eighth were left for others after
        another read."""
        least = self._memory.bytes_max // 8 + READ_AHEAD_MESSAGES * OVERHEAD_BYTES
        return len(queue.aside) * OBJECT_BYTES > self._memory.bytes_max // 2 and self._memory.left < least

    def look_again(self) -> None:
        """Wake the queues that wait for memory: what is aside there takes half of all. Each second or so."""
        waiting, self._out_of_memory = self._out_of_memory, {}
        for queue in waiting:
            self._life.wake(queue)

    def _look_to_aside(self, queue: Queue, interest: Interest, message: Message) -> None:
        """The first that is aside for somebody cannot go out as it is: see that this changes. Nobody else waits."""
        if message.expires_at_ms and message.expires_at_ms * 1000 <= self._scribe.time_us:
            self._expiry.expire(message)
        elif message.body is None:
            self._memory.want(message, self.wake_for)
            self._in_memory(interest.next_ones(SHARE_MAX))
        else:
            self._scribe.when_synced(self._life.wake, queue)

    def wake_for(self, message: Message) -> None:
        """Wake the queue of a message whose body is in memory now."""
        self._life.dirty[message.queue] = None


class _Judged:
    """A message while it is judged: its fields are read once, and each selector is asked once. The first judgement
    takes nothing from `Choosing.looks`: the message itself was counted there."""

    __slots__ = ("_choosing", "_fields", "_message", "_verdicts")

    def __init__(self, message: Message, choosing: Choosing) -> None:
        self._message = message
        self._choosing = choosing
        self._fields: Fields | None = None
        self._verdicts: dict[Interest, bool] = {}

    def accepted(self, interest: Interest | None) -> bool:
        """Return True if the message is for this interest."""
        if interest is None:
            return False
        if interest.takes_all:
            return True
        verdicts = self._verdicts
        verdict = verdicts.get(interest)
        if verdict is None:
            choosing, fields = self._choosing, self._fields
            if verdicts:
                choosing.looks -= 1
            if fields is None and interest.selector is not None:
                fields = self._fields = fields_of(self._message)
            verdict = verdicts[interest] = interest.accepts(self._message, fields)
            if fields is not None:
                choosing.count_steps(fields)
        return verdict


def _unseen(queue: Queue, interest: Interest, place: int) -> bool:
    """Return True if something stands before `place` that the interest has not looked at: that goes first."""
    return interest.looked <= place and queue.aside.first_rank(interest.looked) < place


def have_room(shares: dict[Consumer, list[int]], rooms: dict[Consumer, int]) -> bool:
    """Return True if sessions have room, and ids, for what all of these consumers are to be given."""
    given: dict[SessionBase, int] = {}
    for consumer, share in shares.items():
        session = consumer.link.session
        given[session] = given.get(session, 0) + min(len(share), rooms[consumer])
    return all(
        count <= session.room and session.next_delivery_id + count <= ID_MASK for session, count in given.items()
    )


def _keys(run: MessageRun, rests: Sequence[bytes]) -> Iterator[bytes]:
    """Return what tells for whom each of these messages of a run is, a few at a time: not all may be asked for."""
    keys_of = run.shape.groups if run.grouped else run.shape.properties
    for at in range(0, len(rests), SHARE_MAX):
        yield from keys_of(rests[at : at + SHARE_MAX])


def last_rank(run: MessageRun) -> int:
    """Return the rank of the last message of a run."""
    return rank_of(run.priority, run.sequences[-1])


def barrier_of(queue: Queue) -> int:
    """Return the rank of a message that waits for another attempt, and holds up all behind it; BEYOND for none."""
    barrier = queue.barrier if queue.delayed else None
    return BEYOND if barrier is None else rank_of(-barrier[0], barrier[1])


__all__ = ["LOOKS_MAX", "Choosing", "barrier_of"]

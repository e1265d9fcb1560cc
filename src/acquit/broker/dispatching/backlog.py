"""The messages of a queue that wait for a consumer, in order: higher priorities first, then by sequence.

Each priority has a *lane* of two parts. What is posted comes in order and goes to the end of a deque; what returns to
its old place (released, a failed attempt, a delivery time that has come, a durable message that volatile ones overtook
while it was synced) goes into a heap. The next message is the smaller one of the two heads. So posting and taking cost
a step each, and returning the logarithm of how many have returned.

A lane that is *deep* has more behind the deque: *blocks* of messages, which are parked where that can be done
(`broker.parking`), and the *tail*, where those that come wait until they are a block::

    line: objects ── front: runs ── blocks: sequences of parked messages, or objects ── tail: objects ◀── posted

As the line runs out, the next block comes to its end; as the blocks have run out, the tail. Or the next block is read
back as a run (`dispatching.paging`): then it stands in front of the other blocks.

What is posted in a run (`broker.message_run`) is behind all of that, in the lane's *parts*: each is a run or, where
others were posted behind runs, a list. So is what stands in front. They come to the line one by one, as far as somebody
wants single messages; who looks at all that waits lays out each run where it stands, as its turn comes.

Messages that expired or were purged stay where they are and are passed over when their turn comes (their state is no
longer AVAILABLE, or nothing is known of them any more); when there are more of them than of the others, the lane is
swept: of objects, and of what is parked as far as nobody else stands before it. Eight bytes of each other are left.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, merge, nsmallest
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from acquit.broker.dispatching.aside import BEYOND, rank_of
from acquit.broker.message import Message
from acquit.broker.message_run import MessageRun
from acquit.broker.queue import NodeState

if TYPE_CHECKING:
    from acquit.broker.parking import Parking

T = TypeVar("T")
_Parts: TypeAlias = "deque[MessageRun | list[Message]]"
_Blocks: TypeAlias = "deque[array[int] | list[Message]]"
_Places: TypeAlias = "tuple[deque[Message], _Parts, _Blocks, list[Message], _Parts, list[tuple[int, Message]]]"
_AVAILABLE = NodeState.AVAILABLE
_SWEEP_MIN = 1_000
_PORTION = 5_000
_MORE_BLOCKS = 16
RUNS_AHEAD: Final = 2
"""Runs that stand in front of what is parked: one is handed out while the other is read."""
_TIDIED = 2_000
_BLOCK_PART = 8
"""Share of a block, one in so many, that is worth being parked by itself."""
_LIST_MAX = 1_024
"""Messages of a list behind runs beyond which these runs, and then the list, come to the lane, to be parked there."""


class _Lane:
    """The messages of one priority: the line as it was posted, what is behind it, and a heap of those that returned."""

    __slots__ = ("blocks", "deep", "front", "line", "parked_up_to", "parts", "priority", "returned", "tail")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.line: deque[Message] = deque()
        self.deep = False
        """True if what is posted goes to the tail."""
        self.front: deque[MessageRun | list[Message]] = deque()
        """Blocks that are runs, or were, in order."""
        self.blocks: deque[array[int] | list[Message]] = deque()
        self.tail: list[Message] = []
        self.parked_up_to = 0
        """Index of the block that was last tried to be parked."""
        self.parts: deque[MessageRun | list[Message]] = deque()
        """Runs, and what was posted behind them, in order; all that is laid out comes before."""
        self.returned: list[tuple[int, Message]] = []

    @property
    def last(self) -> int:
        """The highest sequence behind which something was posted, of what is laid out; 0 for none."""
        if self.tail:
            return self.tail[-1].sequence
        if self.blocks:
            return _last(self.blocks[-1])
        if self.front:
            return _last_of(self.front[-1])
        return self.line[-1].sequence if self.line else 0

    @property
    def runs(self) -> deque[MessageRun | list[Message]]:
        """The runs that come when the line has run out: those of its blocks, or its parts."""
        if self.deep and not (self.front or self.blocks or self.tail):
            self.deep = False
        return self.front if self.deep else self.parts


def _sequence(message: Message) -> int:
    return message.sequence


def _last(block: array[int] | list[Message]) -> int:
    return block[-1].sequence if isinstance(block, list) else block[-1]


def _first_of(part: MessageRun | list[Message]) -> int:
    return part.sequences[0] if isinstance(part, MessageRun) else part[0].sequence


def _last_of(part: MessageRun | list[Message]) -> int:
    return part.sequences[-1] if isinstance(part, MessageRun) else part[-1].sequence


def _run_in(part: MessageRun | list[Message]) -> MessageRun | None:
    """Return a part that is still a run; None for others."""
    return part if isinstance(part, MessageRun) and part.laid_out is None else None


def _singles(part: MessageRun | list[Message]) -> list[Message]:
    """Return the messages of a part, as single ones from now on."""
    return part.each() if isinstance(part, MessageRun) else part


class Backlog:
    """The available messages of one queue. `count` is how many there are."""

    __slots__ = ("_absent", "_lanes", "_parking", "_swept", "count")

    def __init__(self, parking: Parking | None = None) -> None:
        """`parking`: where messages are parked; None: nowhere."""
        self.count = 0
        self._lanes: list[_Lane] = []  # the highest priority first
        self._absent = 0  # messages in lanes that are not AVAILABLE any more
        self._swept = 0  # those of them that the last sweep left: they are parked, behind others that wait
        self._parking = parking

    def add(self, message: Message) -> None:
        """A message is available: put it in its place."""
        self.extend([message])

    def extend(self, messages: list[Message]) -> None:
        """`add` for many that are in order."""
        first = messages[0]
        if len(messages) > 1 and any(message.priority != first.priority for message in messages):
            for message in messages:
                self.extend([message])
            return
        self.count += len(messages)
        lane = self._lane(first.priority)
        if not lane.parts or messages[-1].sequence < _first_of(lane.parts[0]):
            self._put(lane, messages)
        elif first.sequence > _last_of(lane.parts[-1]):
            self._put_behind(lane, messages)
        else:
            for message in messages:
                heappush(lane.returned, (message.sequence, message))

    # -- what comes in runs -------------------------------------------------------------------------------------------

    def extend_run(self, run: MessageRun) -> None:
        """`extend` with what came together. It stays so where it is newer than all that was posted."""
        lane, first = self._lane(run.priority), run.sequences[0]
        older = first < (_last_of(lane.parts[-1]) if lane.parts else lane.last)
        if older or (self.count and self._parking is not None and run.count < self._parking.sizes.run):
            self.extend(run.each())
        else:
            self.count += run.count
            lane.parts.append(run)

    def park_run(self, run: MessageRun) -> bool:
        """`extend` with durable messages that came together, which are parked at once, as blocks of their own or with
        the last one; False, and nothing is changed, where they are too few for that, where the lane is not deep, or not
        all of it can stand before them."""
        lane, parking = self._lane(run.priority), self._parking
        if parking is None or run.count * _BLOCK_PART < parking.sizes.block:
            return False
        if lane.parts or lane.last > run.sequences[0] or not self._is_deep(lane) or not parking.park_run(run):
            return False
        lane.deep = True
        self._shorten_tail(lane, 0)
        block, blocks, sequences = parking.sizes.block, lane.blocks, array("Q", run.sequences)
        last = blocks[-1] if len(blocks) > 1 else None  # the first one may be being read
        if isinstance(last, array) and len(last) < block:
            blocks.pop()
            sequences = last + sequences
        blocks.extend(sequences[at : at + block] for at in range(0, len(sequences), block))
        self.count += run.count
        return True

    def next_run(self) -> MessageRun | None:
        """The run whose messages are the next; it stays where it is. None where something may be before it. One to
        which somebody may come is laid out in its place, so that he finds what was taken of it, and comes back."""
        lane = self._lane_of_run()
        run = None if lane is None else _run_in(lane.runs[0])
        if run is None or not run.walked:
            return run
        run.each()
        return None

    def take_run(self, limit: int) -> MessageRun:
        """The first of `next_run`, at most `limit`, no longer counted; they are the caller's now."""
        lane = self._lane_of_run()
        assert lane is not None
        run = _run_in(lane.runs[0])
        assert run is not None
        if lane.returned:
            limit = min(limit, bisect_right(run.sequences, lane.returned[0][0]))
        if run.count > limit:
            run = run.split(limit)
        else:
            lane.runs.popleft()
        self.count -= run.count
        return run

    def next_block(self) -> array[int] | None:
        """The block of parked messages that is the next, but for a run in front of it; None where something else is, or
        as many runs stand in front as are good."""
        for lane in self._lanes:
            if lane.line:
                return None
            self._pass_returned(lane)
            if lane.returned:
                return None
            if lane.deep and (lane.front or lane.blocks):
                if lane.front and _run_in(lane.front[0]) is None:
                    return None
                block = lane.blocks[0] if lane.blocks and len(lane.front) < RUNS_AHEAD else None
                return block if isinstance(block, array) else None
            if lane.tail or lane.parts:
                return None
        return None

    def priority_of(self, block: array[int]) -> int | None:
        """Return the priority of the messages of a block; None where it is not the first of its lane any more."""
        for lane in self._lanes:
            if lane.blocks and lane.blocks[0] is block:
                return lane.priority
        return None

    def replace(self, block: array[int], count: int, messages: MessageRun | list[Message]) -> None:
        """Let these messages stand for the first `count` of a block, which is the first of its lane: they are those of
        them that are live, and not parked any more."""
        lane = next(lane for lane in self._lanes if lane.blocks and lane.blocks[0] is block)
        lane.blocks.popleft()
        if count < len(block):
            lane.blocks.appendleft(block[count:])
        if isinstance(messages, list):
            self._absent -= count - len(messages)
        if messages:
            lane.front.append(messages)

    @property
    def deep(self) -> bool:
        """True if some of it may be parked."""
        return any(lane.deep for lane in self._lanes)

    def lay_out(self) -> None:
        """Let all that came in runs be single messages."""
        for lane in self._lanes:
            for part in chain(lane.front, lane.parts):
                _singles(part)

    def _lane_of_run(self) -> _Lane | None:
        """Return the first lane that is not empty, if the next in it stands in a part."""
        for lane in self._lanes:
            if lane.line:
                return None
            runs = lane.runs
            if lane.deep and not runs:
                return None
            self._pass_returned(lane)
            if lane.returned and self._returned_first(lane):
                return None
            if runs:
                return lane
        return None

    @staticmethod
    def _returned_first(lane: _Lane) -> bool:
        """Return whether what has returned is before the runs that come next."""
        runs = lane.runs
        return not runs or lane.returned[0][0] < _first_of(runs[0])

    def _put_behind(self, lane: _Lane, messages: list[Message]) -> None:
        """Put messages behind all parts. As many of them gather there as are not worth a look, the parts before them
        come to an end little by little, so that they can be parked."""
        last = lane.parts[-1]
        if isinstance(last, list):
            last += messages
        else:
            lane.parts.append(messages.copy())
            return
        moved = 0
        while len(last) > _LIST_MAX and lane.parts and moved < _LIST_MAX:
            part = _singles(lane.parts.popleft())
            self._put(lane, part)
            moved += len(part)

    def _put(self, lane: _Lane, messages: list[Message]) -> None:
        """Put messages, in order, among what is laid out."""
        if lane.last < messages[0].sequence:
            self._end(lane).extend(messages)
            return
        for message in messages:
            if lane.last > message.sequence:
                heappush(lane.returned, (message.sequence, message))
            else:
                self._end(lane).append(message)

    # -- messages -----------------------------------------------------------------------------------------------------

    def restore(self, priority: int, sequences: array[int]) -> None:
        """Put messages in their places that are parked already, in order, before any other."""
        assert self._parking is not None
        lane = self._lane(priority)
        block = self._parking.sizes.block
        lane.blocks.extend(sequences[at : at + block] for at in range(0, len(sequences), block))
        lane.deep = True
        self.count += len(sequences)

    def take(self, limit: int) -> list[Message]:
        """The next messages, at most `limit`, no longer counted; they are the caller's now. They are fewer only where a
        run comes behind them, or a block, which may become one, or they are of one. None if there are none."""
        if self.next_run() is not None:
            return self.take_run(limit).each()
        taken: list[Message] = []
        for lane in self._lanes:
            line, returned = lane.line, lane.returned
            while len(taken) < limit and (line or not (taken and _parked_next(lane))):
                if not line:
                    self._refill(lane, runs=False)
                if returned and (returned[0][0] < line[0].sequence if line else self._returned_first(lane)):
                    message = heappop(returned)[1]
                elif line:
                    message = line.popleft()
                else:
                    break  # a run is the next, or nothing
                if message.state is _AVAILABLE:
                    taken.append(message)
                else:
                    self._absent -= 1
            if len(taken) == limit or lane.front or lane.blocks or lane.parts:
                break
        self.count -= len(taken)
        return taken or (self.take(limit) if self.count else taken)  # what stood before a run had left

    def put_back(self, messages: list[Message]) -> None:
        """Messages of the last `take`, which were not used after all: in front again."""
        for message in reversed(messages):
            lane = self._lane(message.priority)
            if lane.line and lane.line[0].sequence < message.sequence:
                heappush(lane.returned, (message.sequence, message))
            else:
                lane.line.appendleft(message)
        self.count += len(messages)

    def next_rank(self) -> int:
        """The rank of the next message; BEYOND for none. It stays where it is, as whatever it is: who asks may be one
        that waits for what is being read."""
        for lane in self._lanes:
            first = self._first(lane)
            if first is not None:
                return rank_of(lane.priority, first[0])
        return BEYOND

    def oldest(self) -> Message | None:
        """The message with the lowest sequence, whatever its priority; it stays where it is. None for none."""
        first: Message | None = None
        for lane in self._lanes:
            line, returned = lane.line, lane.returned
            while (line or self._refill(lane)) and line[0].state is not _AVAILABLE:
                line.popleft()
                self._absent -= 1
            self._pass_returned(lane)
            heads = [line[0]] if line else []
            if returned:
                heads.append(returned[0][1])
            for message in heads:
                if first is None or message.sequence < first.sequence:
                    first = message
        return first

    def oldest_us(self) -> int | None:
        """The time when the message was posted that `oldest` gives; nothing is made an object for it."""
        first = min(filter(None, map(self._first, self._lanes)), default=None)
        return None if first is None else first[1]

    def _first(self, lane: _Lane) -> tuple[int, int] | None:
        """Return sequence and time of the first message of a lane that waits. Nothing is made an object for it."""
        self._pass_posted(lane)
        self._pass_returned(lane)
        heads = [(sequence, message.posted_us) for sequence, message in lane.returned[:1]]
        if (head := self._head_of(lane)) is not None:
            heads.append(head)
        return min(heads, default=None)

    def _pass_returned(self, lane: _Lane) -> None:
        """Take out those that stand first of what has returned, and wait no more."""
        while lane.returned and lane.returned[0][1].state is not _AVAILABLE:
            heappop(lane.returned)
            self._absent -= 1

    def _pass_posted(self, lane: _Lane) -> None:
        """Take out those that stand first of what was posted, and wait no more."""
        line, blocks = lane.line, lane.blocks
        while True:
            while line and line[0].state is not _AVAILABLE:
                line.popleft()
                self._absent -= 1
            if line:
                return
            if _parked_next(lane):
                block, gone = blocks.popleft(), 0
                assert self._parking is not None and isinstance(block, array)
                while gone < len(block) and not self._parking.waits(block[gone]):
                    gone += 1
                self._absent -= gone
                if gone < len(block):
                    blocks.appendleft(block[gone:] if gone else block)
                    return
            elif not self._refill(lane, runs=False):
                return

    def _head_of(self, lane: _Lane) -> tuple[int, int] | None:
        """Return sequence and time of the first message of a lane that was posted and waits."""
        for messages in chain((lane.line,), lane.front, lane.blocks, (lane.tail,), lane.parts):
            if isinstance(messages, array):
                assert self._parking is not None
                for sequence in messages:
                    if self._parking.waits(sequence):
                        return sequence, self._parking.posted_us(sequence)
            elif isinstance(messages, MessageRun) and messages.laid_out is None:
                return messages.sequences[0], messages.posted_us
            else:
                for message in messages.each() if isinstance(messages, MessageRun) else messages:
                    if message.state is _AVAILABLE:
                        return message.sequence, message.posted_us
        return None

    def left(self) -> None:
        """A message in it is no longer available; it stays in its place until it is passed or swept."""
        self.count -= 1
        self._absent += 1
        if not self.count:
            self._lanes = []
            self._absent = self._swept = 0
        elif self._absent > self._swept + _SWEEP_MIN and self._absent > self._swept + self.count:
            self._sweep()

    def next_messages(self, limit: int | None = None) -> Iterator[Message]:
        """Return what `take` would give, in order, without taking it. Nothing may be added meanwhile."""
        waiting = chain.from_iterable(map(self._in_order, self._lanes, repeat(limit)))
        return islice(filter(_waits, waiting), limit)

    def coming(self, limit: int) -> Iterator[Message]:
        """Return those of `next_messages` whose turn is near: up to the next block, which may become a run. If nothing
        is before that, its messages come to the line, and are objects from now on."""
        for lane in self._lanes:
            if self._refill(lane) or lane.returned:
                before = lane.line[-1].sequence if lane.line and (lane.deep or lane.parts) else BEYOND
                waiting = [pair for pair in lane.returned if pair[0] < before and pair[1].state is _AVAILABLE]
                returned = [message for _, message in nsmallest(limit, waiting)]
                return islice(filter(_waits, _merged(returned, lane.line)), limit)
        return iter(())

    def objects(self) -> Iterator[Message | None]:
        """Return those that are not parked, nor volatile in runs, in order but for what returned, and None in the place
        of each that is parked. Nothing may be added meanwhile."""
        for lane in self._lanes:
            yield from lane.line
            for part in lane.front:
                run = _run_in(part)
                if run is None:
                    yield from _singles(part)
                else:
                    yield from repeat(None, run.count)
            for block in lane.blocks:
                if isinstance(block, list):
                    yield from block
                else:
                    assert self._parking is not None
                    yield from self._parking.known(block)
            yield from lane.tail
            for _, message in lane.returned:
                yield message
            for part in lane.parts:
                run = _run_in(part)
                if run is None or run.recorded is not None:
                    yield from _singles(part)

    def remembered(self, chosen: Callable[[int], bool] | None = None) -> Iterator[Message]:
        """Return what is in it now, in order, whatever becomes of it while the caller goes through it; of that, what is
        `chosen` by its sequence. What has left meanwhile is among it, unless it was parked. To begin costs no more than
        a copy of the places: runs are laid out as their turn comes."""
        for lane in self._lanes:
            for part in chain(lane.front, lane.parts):
                if isinstance(part, MessageRun):
                    part.walked = True
        copies = [
            (
                lane.line.copy(),
                _copied(lane.front),
                deque(map(_in_hand, lane.blocks)),
                lane.tail.copy(),
                _copied(lane.parts),
                lane.returned.copy(),
            )
            for lane in self._lanes
        ]
        return self._walked(copies, chosen)

    def _walked(self, copies: list[_Places], chosen: Callable[[int], bool] | None) -> Iterator[Message]:
        for line, front, blocks, tail, parts, returned in copies:
            posted = chain(
                _emptied(line),
                _waiting_in(_emptied(front), chosen),
                self._unparked(_emptied(blocks), chosen),
                tail,
                _waiting_in(_emptied(parts), chosen),
            )
            for message in _merged(_popped(returned), posted):
                if chosen is None or chosen(message.sequence):
                    yield message

    def lanes_above(self, sequence: int, limit: int) -> Iterator[list[Message]]:
        """Return, of each priority, the messages with higher sequences: the first ones, at most `limit`, of what was
        posted, and by portions all of what has returned to its place, in no order. They stay where they are."""
        for lane in list(self._lanes):
            behind = chain(
                islice(lane.line, bisect_right(lane.line, sequence, key=_sequence), None),
                chain.from_iterable(map(_singles, [part for part in lane.front if _last_of(part) > sequence])),
                self._unparked([block for block in lane.blocks if _last(block) > sequence]),
                lane.tail,
                chain.from_iterable(map(_singles, [part for part in lane.parts if _last_of(part) > sequence])),
            )
            above = filter(lambda message: message.state is _AVAILABLE and message.sequence > sequence, behind)
            yield list(islice(above, limit))
            returned = list(lane.returned)
            for at in range(0, len(returned), _PORTION):
                yield [message for _, message in returned[at : at + _PORTION]]

    # -- deep lanes ---------------------------------------------------------------------------------------------------

    def park_more(self) -> None:
        """Some bodies have left memory: park some of the messages that had them when they could have been parked."""
        for lane in self._lanes:
            for _ in range(min(_MORE_BLOCKS, len(lane.blocks))):
                at = lane.parked_up_to = (lane.parked_up_to + 1) % len(lane.blocks)
                block = lane.blocks[at]
                if isinstance(block, list):
                    assert self._parking is not None
                    lane.blocks[at] = self._parking.park(block)
        if self._parking is not None:
            self._parking.tidy(_TIDIED)

    def _end(self, lane: _Lane) -> deque[Message] | list[Message]:
        """Return where what is posted goes: the line, or the tail of a deep lane, of which the beginning is parked if
        it is long. Its end was just posted, and may be in hand until it has been answered."""
        if self._parking is None or not self._is_deep(lane):
            return lane.line
        lane.deep = True
        sizes = self._parking.sizes
        self._shorten_tail(lane, sizes.line_max + sizes.block - 1)
        return lane.tail

    def _is_deep(self, lane: _Lane) -> bool:
        """Return whether what is posted is to stand behind the line of a lane."""
        return lane.deep or (self._parking is not None and len(lane.line) >= self._parking.sizes.line_max)

    def _shorten_tail(self, lane: _Lane, limit: int) -> None:
        """Let the beginning of the tail be blocks, parked where that can be, until it has no more than so many."""
        assert self._parking is not None
        size = self._parking.sizes.block
        while len(lane.tail) > limit:
            block = lane.tail[:size]
            del lane.tail[:size]
            lane.blocks.append(self._parking.park(block))

    def _refill(self, lane: _Lane, least: int = 1, *, runs: bool = True) -> bool:
        """The line has run out: let the next ones come to it, so that there are so many; without `runs` none of a run.
        False where there are none."""
        while lane.deep and len(lane.line) < least:
            if lane.front:
                if not runs and _run_in(lane.front[0]) is not None:
                    break
                lane.line.extend(_singles(lane.front.popleft()))
            elif lane.blocks:
                block = lane.blocks.popleft()
                if isinstance(block, list):
                    lane.line.extend(block)
                else:
                    assert self._parking is not None
                    messages = self._parking.objects(block)
                    self._absent -= len(block) - len(messages)
                    lane.line.extend(messages)
            else:
                lane.line.extend(lane.tail)
                lane.tail.clear()
                lane.deep = False
        while not lane.deep and lane.parts and len(lane.line) < least and (runs or _run_in(lane.parts[0]) is None):
            lane.line.extend(_singles(lane.parts.popleft()))
        return bool(lane.line)

    def _unparked(
        self, blocks: Iterable[array[int] | list[Message]], chosen: Callable[[int], bool] | None = None
    ) -> Iterator[Message]:
        """Return the messages of blocks, those that are parked and chosen made objects one by one."""
        for block in blocks:
            if isinstance(block, list):
                yield from block
            else:
                assert self._parking is not None
                for sequence in block if chosen is None else filter(chosen, block):
                    message = self._parking.look(sequence)
                    if message is not None:
                        yield message

    def _in_order(self, lane: _Lane, limit: int | None) -> Iterator[Message]:
        posted: Iterable[Message] = lane.line
        if lane.deep:
            front = chain.from_iterable(map(_singles, list(lane.front)))
            posted = chain(lane.line, front, self._unparked(lane.blocks), lane.tail)
        posted = chain(posted, chain.from_iterable(map(_singles, list(lane.parts))))
        if not lane.returned:
            return iter(posted)
        waiting = [pair for pair in lane.returned if pair[1].state is _AVAILABLE]
        pairs = sorted(waiting) if limit is None else nsmallest(limit, waiting)
        return _merged([message for _, message in pairs], posted)

    def _sweep(self) -> None:
        before = after = 0
        for lane in self._lanes:
            before += _objects(lane)
            lane.line = deque(_waiting(lane.line))
            blocks = [_waiting(block) if isinstance(block, list) else block for block in lane.blocks]
            lane.blocks = deque(block for block in blocks if block)
            while lane.blocks and not self._has_waiting(lane.blocks[0]):
                self._absent -= len(lane.blocks.popleft())
            lane.tail = _waiting(lane.tail)
            lane.front, lane.parts = _swept(lane.front), _swept(lane.parts)
            lane.deep = bool(lane.front or lane.blocks or lane.tail)
            lane.returned = [pair for pair in lane.returned if pair[1].state is _AVAILABLE]
            heapify(lane.returned)
            after += _objects(lane)
        self._lanes = [lane for lane in self._lanes if lane.line or lane.deep or lane.parts or lane.returned]
        self._absent -= before - after
        self._swept = self._absent

    def _has_waiting(self, block: array[int] | list[Message]) -> bool:
        if isinstance(block, list):
            return True
        assert self._parking is not None
        return any(map(self._parking.waits, block))

    def _lane(self, priority: int) -> _Lane:
        lanes = self._lanes
        for index, lane in enumerate(lanes):
            if lane.priority == priority:
                return lane
            if lane.priority < priority:
                lanes.insert(index, _Lane(priority))
                return lanes[index]
        lanes.append(_Lane(priority))
        return lanes[-1]


def _parked_next(lane: _Lane) -> bool:
    """Return whether a block of parked messages stands behind the line."""
    return bool(not lane.front and lane.blocks) and isinstance(lane.blocks[0], array)


def _objects(lane: _Lane) -> int:
    """Count the messages of a lane that are not parked."""
    posted = len(lane.line) + len(lane.tail) + len(lane.returned)
    posted += sum(len(block) for block in lane.blocks if isinstance(block, list))
    return posted + sum(len(_singles(part)) for part in chain(lane.front, lane.parts) if _run_in(part) is None)


def _swept(parts: Iterable[MessageRun | list[Message]]) -> deque[MessageRun | list[Message]]:
    """Return parts without the messages that wait no more."""
    swept = [_run_in(part) or _waiting(_singles(part)) for part in parts]
    return deque(part for part in swept if part)


def _copied(parts: Iterable[MessageRun | list[Message]]) -> deque[MessageRun | list[Message]]:
    """Return parts as they are now, whatever becomes of the lists among them."""
    return deque(part.copy() if isinstance(part, list) else part for part in parts)


def _waiting_in(parts: Iterable[MessageRun | list[Message]], chosen: Callable[[int], bool] | None) -> Iterator[Message]:
    """Return the messages of parts, but of runs that have left since or of which none is chosen."""
    for part in parts:
        if isinstance(part, list) or part.laid_out is not None:
            yield from _singles(part)
        elif part.holder is None and (chosen is None or any(map(chosen, part.sequences))):
            yield from part.each()


def _in_hand(block: array[int] | list[Message]) -> array[int] | list[Message]:
    """Return a block that is in hand: its objects, if it has any, are known to another list, and so are not parked."""
    return block.copy() if isinstance(block, list) else block


def _waiting(messages: Iterable[Message]) -> list[Message]:
    return [message for message in messages if message.state is _AVAILABLE]


def _waits(message: Message) -> bool:
    return message.state is _AVAILABLE


def _merged(returned: Iterable[Message], posted: Iterable[Message]) -> Iterator[Message]:
    """Return in order what was posted and what has returned to its place."""
    return merge(returned, posted, key=_sequence)


def _popped(returned: list[tuple[int, Message]]) -> Iterator[Message]:
    """Take out what is in a heap that nobody else knows, in order."""
    while returned:
        yield heappop(returned)[1]


def _emptied(places: deque[T]) -> Iterator[T]:
    """Take out what is in a deque that nobody else knows, from the front: what was seen is not kept."""
    while places:
        yield places.popleft()


__all__ = ["RUNS_AHEAD", "Backlog"]

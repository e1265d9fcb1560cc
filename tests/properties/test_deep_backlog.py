"""The order of a deep queue, whose middle is parked, against a list: whatever comes, goes, returns and is looked at.

Nobody here keeps the object of a message that waits, unless the story says so: those could not be parked.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.broker import parking
from acquit.broker.dispatching import backlog
from acquit.broker.dispatching.aside import BEYOND, rank_of
from acquit.broker.dispatching.backlog import Backlog
from acquit.broker.memory import Memory
from acquit.broker.message import DURABLE, OBJECT_BYTES, PARKED_BYTES, Former, Message
from acquit.broker.message_run import MessageRun, Recorded
from acquit.broker.nodes.node import Queue
from acquit.broker.options import AddressPolicy, BrokerLimits
from acquit.broker.parking import Parking, Sizes
from acquit.broker.queue import NodeState
from acquit.ledger.rows import PlainRows
from tests.support.broker_world import places
from tests.support.examples import share

pytestmark = pytest.mark.promise("order")

QUEUE = Queue(1, "q", "q", AddressPolicy(), auto_created=True)
KINDS = (
    "post",
    "post many",
    "post run",
    "late",
    "take",
    "put back",
    "return",
    "leave",
    "leave many",
    "look",
    "let go",
    "walk",
    "next",
    "page",
    "more",
    "coming",
    "read back",
)
WEIGHTS = 6, 9, 3, 1, 7, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 3


class Bare:
    """Shape of messages that have no bodies here."""

    rest_at = 0
    marked = False

    def __init__(self, priority: int) -> None:
        self.priority = priority

    def bodies(self, rests: Sequence[bytes], sequences: Sequence[int], times_ms: Sequence[int]) -> list[None]:
        assert len(rests) == len(sequences) == len(times_ms)
        return [None] * len(rests)


class Walker(NamedTuple):
    """Somebody who goes through what was there when it began."""

    messages: Iterator[Message]
    expected: list[int]


class Deep:
    """A backlog with somewhere to park, and what should be in it: pairs of priority, negative, and sequence."""

    def __init__(self, rng: Random, sizes: Sizes) -> None:
        self.rng = rng
        self.live: dict[int, Message] = {}
        self.memory = Memory(BrokerLimits())
        parking.SIZES, before = sizes, parking.SIZES
        self.runs: list[MessageRun] = []
        self.parking = Parking(self.live, self.memory, self.in_run)
        parking.SIZES = before
        self.backlog = Backlog(self.parking)
        self.model: list[tuple[int, int]] = []
        self.taken: list[Message] = []
        self.skipped: list[int] = []
        self.in_hand: list[Message] = []
        self.walkers: list[Walker] = []
        self.last = self.parked = self.parked_runs = self.read_back = 0

    def message(self, sequence: int, priority: int) -> Message:
        durable = DURABLE if self.rng.random() < 0.95 else 0
        message = Message(sequence, QUEUE, NodeState.AVAILABLE, None, sequence, durable, priority, 1, 0, sequence)
        if self.rng.random() < 0.03:
            message.expires_at_ms = 1 << 50
        if durable:
            self.live[sequence] = message
        self.memory.enter(message)
        self.model.append((-priority, sequence))
        self.model.sort()
        return message

    # -- of messages in runs, as `Life` ------------------------------------------------------------------------------

    def in_run(self, sequence: int) -> Message | None:
        for run in self.runs:
            if sequence in run.sequences:
                return run.each()[run.sequences.index(sequence)]
        return None

    def keep_run(self, run: MessageRun) -> None:
        self.runs.append(run)

    def run_laid_out(self, run: MessageRun, messages: Sequence[Message]) -> None:
        self.runs.remove(run)
        self.live.update((message.sequence, message) for message in messages)

    def read(self) -> None:
        """Let the next block be a run, or single messages where it cannot be one."""
        block = self.backlog.next_block()
        priority = None if block is None else self.backlog.priority_of(block)
        if block is None or priority is None:
            return
        sequences = self.parking.rows.beginning(block)
        stretch = self.parking.stretch(sequences, priority)
        if stretch is None:
            self.backlog.replace(block, len(sequences), self.parking.objects(sequences))
            return
        self.parking.leave_out(QUEUE, sequences)
        recorded = Recorded(self, stretch.positions, stretch.fingerprints)
        rests, times = [b"x"] * len(sequences), stretch.times_us
        run = MessageRun(QUEUE, sequences, Bare(priority), rests, 0, 0, times[0], recorded, times)  # type: ignore[arg-type]
        run.pending = False
        self.keep_run(run)
        self.backlog.replace(block, len(sequences), run)
        self.read_back += len(sequences) > 1

    def post_run(self, sequences: range, priority: int, *, together: bool) -> None:
        """Put durable messages that came together at the end, parked where that can be; else, perhaps, `together`."""
        rests, recorded = [b"x"] * len(sequences), Recorded(self, sequences, sequences)  # type: ignore[arg-type]
        run = MessageRun(QUEUE, sequences, Bare(priority), rests, 0, 0, 1, recorded)  # type: ignore[arg-type]
        run.pending = False
        self.model += [(-priority, sequence) for sequence in sequences]
        self.model.sort()
        self.memory.enter_all(QUEUE, len(sequences), 0, bodies=False)
        self.keep_run(run)
        before = standing(self.backlog)
        if self.backlog.park_run(run):
            self.runs.remove(run)
            run.end()
            self.parked_runs += 1
        else:
            assert standing(self.backlog) == before
            if together:
                self.backlog.extend_run(run)
            else:
                self.backlog.extend(run.each())

    # -- steps -------------------------------------------------------------------------------------------------------

    def gone(self, message: Message) -> None:
        message.state = NodeState.ARCHIVED
        self.memory.leave(message)
        self.live.pop(message.sequence, None)

    def step(self) -> None:
        rng, waiting, model = self.rng, self.backlog, self.model
        kind = rng.choices(KINDS, WEIGHTS)[0]
        count = rng.randrange(1, 8)
        if kind == "post":
            self.last += 2
            self.skipped.append(self.last - 1)
            waiting.add(self.message(self.last, rng.choice((4, 4, 4, 4, 9, 0))))
        elif kind == "post many":
            first, self.last = self.last + 1, self.last + count
            mixed = rng.random() < 0.1
            waiting.extend([self.message(n, rng.choice((4, 9)) if mixed else 4) for n in range(first, self.last + 1)])
        elif kind == "post run":
            first, self.last = self.last + 1, self.last + count
            self.post_run(range(first, self.last + 1), rng.choice((4, 4, 9)), together=rng.random() < 0.5)
        elif kind == "late" and self.skipped:
            late = self.skipped.pop(rng.randrange(len(self.skipped)))
            if rng.random() < 0.5:
                waiting.extend([self.message(late, 4)])
            else:
                self.post_run(range(late, late + 1), rng.choice((4, 9)), together=rng.random() < 0.5)
        elif kind in ("take", "put back"):
            self.take(count, back=kind == "put back")
        elif kind == "return" and self.taken:
            one = self.taken.pop(rng.randrange(len(self.taken)))
            one.state, one.holder = NodeState.AVAILABLE, None
            model.append((-one.priority, one.sequence))
            model.sort()
            waiting.add(one)
        elif kind in ("leave", "leave many") and model:
            at = rng.randrange(len(model))
            for place in model[at : at + (1 if kind == "leave" else 3 * count)]:
                known = self.parking.message(place[1])
                if known is not None:  # else it is volatile, and found by nobody
                    model.remove(place)
                    self.gone(known)
                    waiting.left()
        elif kind == "look" and model:
            known = self.parking.message(rng.choice(model)[1])
            if known is not None:
                self.in_hand.append(known)
        elif kind == "let go":
            self.in_hand.clear()
            self.walkers.clear()
        elif kind == "walk":
            self.walkers.append(Walker(waiting.remembered(), [sequence for _, sequence in model]))
        elif kind in ("next", "coming"):
            waiting.next_rank()  # nobody asks what is coming but who has seen that something is
            come = [one.sequence for one in getattr(waiting, "next_messages" if kind == "next" else kind)(count)]
            near = len(come) if kind == "coming" and come else count
            assert come == [one for _, one in model[:near]]
        elif kind == "read back":
            for _ in range(3):
                if self.backlog.next_block() is None:
                    self.take(20, back=False)  # what stands before it
            self.read()
        elif kind == "more":
            waiting.park_more()
        elif kind == "page" and model:
            self.look_at_page(rng.choice(model)[1], count)
        self.check()

    def first_parked(self) -> list[int]:
        """The sequences of the blocks that are the next in their lanes, and parked, or were: they may become runs."""
        firsts = [lane.blocks[0] for lane in self.backlog._lanes if lane.blocks]
        return [sequence for block in firsts if isinstance(block, array) for sequence in block]

    def take(self, count: int, *, back: bool) -> None:
        """Take messages, and put them back, or keep the last ones."""
        waiting, model = self.backlog, self.model
        run = waiting.next_run()
        got = waiting.take(count)
        assert [(-one.priority, one.sequence) for one in got] == model[: len(got)]
        assert len(got) == min(count, len(model)) or (got and (run or self.first_parked() or self.runs))
        if back:
            waiting.put_back(got)
            return
        del model[: len(got)]
        for one in got:
            one.state = NodeState.ACQUIRED
            one.holder = HOLDER
        self.taken += got
        while len(self.taken) > 5:
            self.gone(self.taken.pop(0))

    def look_at_page(self, after: int, limit: int) -> None:
        """What an operator sees of a queue, page by page."""
        found = [one for part in self.backlog.lanes_above(after, limit) for one in part]
        above = sorted(one.sequence for one in found if one.state is NodeState.AVAILABLE and one.sequence > after)
        assert above[:limit] == sorted(sequence for _, sequence in self.model if sequence > after)[:limit]

    def check(self) -> None:
        model, rows = self.model, self.parking.rows
        waiting = {sequence for _, sequence in model}
        assert self.backlog.count == len(model)
        assert sorted(places(self.backlog)) == sorted(waiting)
        assert standing(self.backlog) - self.backlog.count == self.backlog._absent, "what left, and stands there still"
        assert self.parking.count(QUEUE) == len(rows)
        assert not any(sequence in self.live for sequence in rows.sequences())
        assert not any(sequence in self.live or sequence in rows for run in self.runs for sequence in run.sequences)
        assert set(rows.sequences()) <= waiting
        assert self.memory.bytes == len(rows) * PARKED_BYTES + self.objects() * OBJECT_BYTES
        self.parked = max(self.parked, len(rows))
        for one in self.in_hand:
            assert one.state is NodeState.ARCHIVED or self.parking.message(one.sequence) is one, "one object"
        if self.rng.random() < 0.3:  # it takes out what stands first, and waits no more
            kept, runs = list(rows.sequences()), list(self.runs)
            assert self.backlog.next_rank() == (rank_of(-model[0][0], model[0][1]) if model else BEYOND)
            assert (list(rows.sequences()), list(self.runs)) == (kept, runs), "who asks makes no objects"
        if self.rng.random() < 0.1:  # it brings what is next to the line
            oldest = self.backlog.oldest()
            assert (None if oldest is None else oldest.sequence) == min(waiting, default=None)
        for walker in self.walkers:
            self.walk_on(walker)

    def objects(self) -> int:
        """Messages in memory as objects: those that wait, those that are taken."""
        return len(self.model) + len(self.taken) - len(self.parking.rows)

    def walk_on(self, walker: Walker) -> None:
        """See the next one that is still there, in the order of the beginning."""
        for message in walker.messages:
            if message.state is NodeState.ARCHIVED and message.sequence not in walker.expected:
                continue  # it had left before, and was not swept out yet
            while walker.expected and walker.expected[0] != message.sequence:
                missed = walker.expected.pop(0)
                assert missed not in {sequence for _, sequence in self.model} and missed not in self.live
            assert walker.expected.pop(0) == message.sequence
            if message.state is not NodeState.ARCHIVED and message.durable:
                assert self.parking.message(message.sequence) is message, "one object"
            break


def standing(waiting: Backlog) -> int:
    """Count the places in lanes, of messages that wait and of others."""
    lanes = waiting._lanes
    singles = sum(len(lane.line) + len(lane.tail) + len(lane.returned) + sum(map(len, lane.blocks)) for lane in lanes)
    parts = [part for lane in lanes for part in (*lane.front, *lane.parts)]
    runs = [
        part.sequences if part.laid_out is None else part.laid_out for part in parts if isinstance(part, MessageRun)
    ]
    return singles + sum(map(len, runs)) + sum(len(part) for part in parts if isinstance(part, list))


HOLDER = Former(1)


@settings(max_examples=share(150), deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    sizes=st.sampled_from([Sizes(2, 1), Sizes(4, 3), Sizes(1, 8), Sizes(1, 5)]),
    swept=st.sampled_from([2, 10, 1_000]),
    steps=st.integers(1, 300),
)
def test_a_deep_backlog_is_a_sorted_list(seed: int, sizes: Sizes, swept: int, steps: int) -> None:
    deep = Deep(Random(seed), sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlog, "_SWEEP_MIN", swept)
        go(deep, steps)


def go(deep: Deep, steps: int) -> None:
    """Take so many steps, and then all that is there."""
    for _ in range(steps):
        deep.step()
    deep.walkers.clear()
    taken: list[int] = []
    while got := deep.backlog.take(1 << 20):
        taken += [one.sequence for one in got]
    assert taken == [sequence for _, sequence in deep.model]


def test_the_walk_parks() -> None:
    """Where nothing of it was ever parked, it would show nothing."""
    deep = Deep(Random(1), Sizes(4, 3))
    for _ in range(500):
        deep.step()
    assert deep.parked > 20
    assert deep.parked_runs > 5
    assert deep.read_back > 5


def test_a_run_is_not_parked_before_newer_ones_of_its_chunk() -> None:
    deep = Deep(Random(1), Sizes(1, 2))
    for sequences, priority in ((range(1, 3), 9), (range(3, 5), 9), (range(20, 22), 4), (range(30, 32), 4)):
        deep.post_run(sequences, priority, together=False)
    assert deep.parked_runs == 2
    deep.post_run(range(10, 12), 9, together=False)
    assert deep.parked_runs == 2
    deep.check()
    go(deep, 0)


def test_the_first_block_stays_as_it_is_while_runs_are_parked() -> None:
    """It may be being read: who extended it would let it be read again, and again."""
    deep = Deep(Random(1), Sizes(1, 8))
    deep.post_run(range(1, 3), 4, together=False)
    for first in range(3, 9, 2):
        deep.post_run(range(first, first + 2), 4, together=False)
    assert [list(block) for block in deep.backlog._lanes[0].blocks] == [[3, 4], [5, 6, 7, 8]]


def read_back() -> Deep:
    """A backlog that has nothing but a run that was read back, of four messages."""
    deep = Deep(Random(1), Sizes(1, 4))
    rows = PlainRows()
    for sequence in range(11, 15):
        rows.add(sequence, sequence, sequence, 1, QUEUE.number, 0, DURABLE, 4)
        deep.model.append((-4, sequence))
    deep.parking.take_over(rows, [(QUEUE, 4)])
    deep.backlog.restore(4, array("Q", range(11, 15)))
    deep.read()
    assert deep.read_back and deep.backlog.next_run() is not None
    return deep


def test_what_comes_late_stands_before_what_was_read_back() -> None:
    deep = read_back()
    deep.backlog.add(deep.message(5, 4))
    deep.backlog.add(deep.message(20, 4))
    go(deep, 0)


def test_what_was_read_back_is_there_after_a_sweep() -> None:
    deep = read_back()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlog, "_SWEEP_MIN", 0)
        others = [deep.message(sequence, 9) for sequence in range(20, 30)]
        deep.backlog.extend(others)
        for one in others:
            deep.model.remove((-9, one.sequence))
            deep.gone(one)
            deep.backlog.left()
    go(deep, 0)

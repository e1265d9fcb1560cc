"""The parts of a backlog's order that a random walk seldom reaches."""

from __future__ import annotations

from acquit.broker.dispatching.backlog import Backlog
from acquit.broker.message import Message
from acquit.broker.nodes.node import Queue
from acquit.broker.options import AddressPolicy
from acquit.broker.queue import NodeState

QUEUE = Queue(1, "q", "q", AddressPolicy(), auto_created=True)


def message(sequence: int, priority: int = 4) -> Message:
    return Message(sequence, QUEUE, NodeState.AVAILABLE, b"", 0, 0, priority, 0, 0, 0)


def test_what_left_is_swept_out_when_it_is_the_most() -> None:
    backlog = Backlog()
    messages = [message(number) for number in range(1, 5_001)]
    backlog.extend(messages)
    for one in messages[:4_000]:
        one.state = NodeState.ARCHIVED
        backlog.left()
    assert backlog.count == 1_000
    (lane,) = backlog._lanes
    assert len(lane.line) < 3_000
    assert backlog.take(10_000) == messages[4_000:]


def test_a_lane_that_is_empty_is_passed_over() -> None:
    backlog = Backlog()
    backlog.add(message(1, priority=9))
    backlog.add(message(2, priority=0))
    assert [one.sequence for one in backlog.take(1)] == [1]
    assert [one.sequence for one in backlog.take(1)] == [2]
    assert backlog.take(1) == []


def test_mixed_priorities_in_one_group() -> None:
    backlog = Backlog()
    backlog.extend([message(1, 4), message(2, 7), message(3, 4)])
    assert [one.sequence for one in backlog.take(9)] == [2, 1, 3]


def test_what_is_next_has_nothing_of_what_left() -> None:
    """Neither of what was posted, nor of what had come back to its place."""
    backlog = Backlog()
    messages = [message(sequence) for sequence in range(1, 7)]
    backlog.extend(messages)
    taken = backlog.take(4)
    backlog.extend([message(7)])
    for one in taken:
        backlog.add(one)
    for one in messages[:2]:
        one.state = NodeState.ARCHIVED
        backlog.left()
    for limit in (1, 2, 3, 10):
        assert [one.sequence for one in backlog.next_messages(limit)] == [3, 4, 5, 6, 7][:limit]
        assert [one.sequence for one in backlog.coming(limit)] == [3, 4, 5, 6, 7][:limit]

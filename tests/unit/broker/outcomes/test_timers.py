"""The heap of times."""

from __future__ import annotations

from acquit.broker.message import Message
from acquit.broker.nodes.node import Queue
from acquit.broker.options import AddressPolicy
from acquit.broker.outcomes.timers import Timers
from acquit.broker.queue import NodeState

QUEUE = Queue(1, "q", "q", AddressPolicy(), auto_created=True)


def message(sequence: int) -> Message:
    return Message(sequence, QUEUE, NodeState.AVAILABLE, b"", 0, 0, 4, 0, 0, 0)


def test_messages_come_up_in_the_order_of_their_times() -> None:
    timers = Timers()
    first, second, third = message(1), message(2), message(3)
    timers.add(300, third)
    timers.add(100, first)
    timers.add(200, second)
    assert timers.next_ms == 100
    assert timers.take_due(250, 10) == [first, second]
    assert timers.take_due(250, 10) == []
    assert timers.take_due(300, 10) == [third]
    assert timers.next_ms is None


def test_no_more_than_asked_for() -> None:
    timers = Timers()
    for number in range(5):
        timers.add(1, message(number))
    assert len(timers.take_due(1, 3)) == 3
    assert len(timers) == 2


def test_times_of_messages_that_are_gone_do_not_pile_up() -> None:
    timers = Timers()
    messages = [message(number) for number in range(10_000)]
    for one in messages:
        timers.add(1_000_000, one)
    for one in messages[:9_000]:
        one.state = NodeState.ARCHIVED
        timers.forget(one)
    assert len(timers) < 3_000
    assert timers.take_due(1_000_000, 20_000) == messages[9_000:]

"""The heap of times."""

from __future__ import annotations

from random import Random
from typing import cast

import pytest

from acquit.broker.message import Message
from acquit.broker.nodes.node import Queue
from acquit.broker.options import AddressPolicy
from acquit.broker.outcomes.timers import SWEEP_MIN, SWEPT_AT_ONCE, Timers
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


@pytest.mark.pure
@pytest.mark.parametrize("order", ["first", "last", "random"])
def test_a_message_that_leaves_never_has_many_entries_looked_at(order: str) -> None:
    looked = 0

    class Looked:
        """A message that counts how often somebody asks whether it is gone."""

        def __init__(self, sequence: int) -> None:
            self.sequence = sequence
            self.gone = False

        @property
        def state(self) -> NodeState:
            nonlocal looked
            looked += 1
            return NodeState.ARCHIVED if self.gone else NodeState.AVAILABLE

    timers = Timers()
    messages = [Looked(number) for number in range(20_000)]
    for one in messages:
        timers.add(one.sequence * 7_919 % 20_011, cast("Message", one))
    leaving = {"first": messages[:-1], "last": messages[:0:-1], "random": messages[:-1]}[order]
    if order == "random":
        Random(1).shuffle(leaving)
    left, total = len(messages), 0
    for one in leaving:
        one.gone = True
        left -= 1
        looked = 0
        timers.forget(cast("Message", one))
        assert looked <= SWEPT_AT_ONCE
        total += looked
        assert len(timers) <= 2.5 * left + 2 * SWEEP_MIN
    assert total < 3 * len(messages), "each entry is looked at a few times over all"


def test_times_come_in_order_while_a_sweep_is_under_way() -> None:
    timers, rng = Timers(), Random(2)
    messages = [message(number) for number in range(10_000)]
    at_ms = {one: rng.randrange(1_000) for one in messages}
    for one in messages:
        timers.add(at_ms[one], one)
    rng.shuffle(messages)
    for one in messages[:5_100]:
        one.state = NodeState.ARCHIVED
        timers.forget(one)
    left = set(messages[5_100:])
    assert timers._old and timers._heap and left <= set(timers.messages())
    late = message(10_000)
    timers.add(500, late)
    at_ms[late] = 500
    left.add(late)
    for now_ms in range(0, 1_001, 100):
        assert timers.next_ms is None or timers.next_ms <= now_ms
        due = timers.take_due(now_ms, 20_000)
        assert [at_ms[one] for one in due] == sorted(at_ms[one] for one in due)
        assert set(due) == {one for one in left if at_ms[one] <= now_ms}
        left -= set(due)
    assert not left and len(timers) == 0 and timers.next_ms is None

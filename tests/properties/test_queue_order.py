"""The order of a queue against a list: higher priorities first, then by sequence, whatever comes, goes and returns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.broker.dispatching.backlog import Backlog
from acquit.broker.message import Message
from acquit.broker.nodes.node import Queue
from acquit.broker.options import AddressPolicy
from acquit.broker.queue import NodeState
from tests.support.examples import share

QUEUE = Queue(1, "q", "q", AddressPolicy(), auto_created=True)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("post"), st.sampled_from([4, 4, 4, 9, 0])),
        st.tuples(st.just("post many"), st.integers(1, 5)),
        st.tuples(st.just("late"), st.integers(0, 30)),
        st.tuples(st.just("take"), st.integers(1, 5)),
        st.tuples(st.just("put back"), st.integers(1, 5)),
        st.tuples(st.just("return"), st.integers(0, 30)),
        st.tuples(st.just("leave"), st.integers(0, 30)),
    ),
    max_size=60,
)


def message(sequence: int, priority: int) -> Message:
    return Message(sequence, QUEUE, NodeState.AVAILABLE, b"", 0, 0, priority, 0, 0, 0)


@pytest.mark.promise("order")
@settings(max_examples=share(200))
@given(steps)
def test_the_backlog_is_a_sorted_list(story: list[tuple[str, int]]) -> None:
    backlog = Backlog()
    model: list[Message] = []
    taken: list[Message] = []
    skipped: list[int] = []
    number = 0

    def sort() -> None:
        model.sort(key=lambda one: (-one.priority, one.sequence))

    for name, argument in story:
        if name == "post":
            number += 2
            skipped.append(number - 1)
            model.append(message(number, argument))
            backlog.add(model[-1])
        elif name == "post many":
            many = [message(number + step, 4) for step in range(1, argument + 1)]
            number += argument
            model += many
            backlog.extend(many)
        elif name == "late" and skipped:  # durable, and overtaken by volatile ones while it was synced
            model.append(message(skipped.pop(argument % len(skipped)), 4))
            backlog.extend([model[-1]])
        elif name in ("take", "put back"):
            got = backlog.take(argument)
            assert got == model[:argument]
            if name == "put back":
                backlog.put_back(got)
            else:
                taken += got
                del model[:argument]
                for one in got:
                    one.state = NodeState.ACQUIRED
        elif name == "return" and taken:
            one = taken.pop(argument % len(taken))
            one.state = NodeState.AVAILABLE
            model.append(one)
            backlog.add(one)
        elif name == "leave" and model:
            one = model.pop(argument % len(model))
            one.state = NodeState.ARCHIVED
            backlog.left()
        sort()
        assert backlog.count == len(model)
        assert list(backlog.next_messages()) == model
        assert list(backlog.next_messages(3)) == model[:3]
    assert backlog.take(1_000) == model

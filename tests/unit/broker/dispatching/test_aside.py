"""What is set aside, in order: against a sorted list."""

from __future__ import annotations

import random

from acquit.broker.dispatching.aside import _BLOCK, BEYOND, FIRST, Aside, rank, rank_of
from acquit.broker.dispatching.groups import Retained
from acquit.broker.intake.shaping import read_posting
from acquit.broker.intake.templates import learn_template
from acquit.broker.message import ASIDE, Message
from acquit.broker.message_run import MessageRun
from acquit.broker.nodes.node import Queue
from acquit.broker.options import AddressPolicy
from acquit.broker.queue import NodeState
from acquit.protocol.message import Message as Wire

QUEUE = Queue(1, "q", "q", AddressPolicy(), auto_created=True)


def message(sequence: int, priority: int = 4) -> Message:
    return Message(sequence, QUEUE, NodeState.AVAILABLE, b"", 0, 0, priority, 0, 0, 0)


def test_higher_priorities_and_lower_sequences_come_first() -> None:
    order = [message(5, 9), message(7, 9), message(1), message(2), message(1 << 63), message(3, 0)]
    assert sorted(order, key=rank) == order
    assert rank(order[0]) >= FIRST and rank(order[-1]) < BEYOND
    assert rank_of(255, 0) == FIRST


def test_the_time_of_the_first_is_told_whether_it_is_in_a_run_or_not() -> None:
    aside = Aside()
    retained = Retained(aside)
    assert aside.oldest_us() is None
    template = learn_template(read_posting(Wire(b"x", durable=False, group_id="g").encode()))
    assert template is not None
    payload = Wire(b"x", durable=False, group_id="g").encode()
    aside.retain(retained, MessageRun(QUEUE, [5, 6], template, [payload] * 2, 2 * len(payload), len(payload), 50))
    assert aside.oldest_us() == 50
    for sequence, priority, expected in ((7, 4, 50), (4, 4, 40), (9, 9, 90)):
        one = message(sequence, priority)
        one.posted_us = 10 * sequence
        aside.add(one)
        assert aside.oldest_us() == expected
    assert len(retained.runs) == 1
    assert len(aside) == 5
    assert [one.sequence for one in aside] == [9, 4, 5, 6, 7]
    assert not retained.runs
    assert aside.oldest_us() == 90


def test_a_random_walk() -> None:
    chance = random.Random(1)
    aside, model = Aside(), dict[int, Message]()
    for step in range(20_000):
        if step < 8_000 or chance.random() < 0.4:
            # Mostly in order, as from a queue, and now and then what came back.
            sequence = step if chance.random() < 0.7 else -chance.randrange(1, 1 << 40)
            one = message(abs(sequence) * 2 + (sequence < 0), chance.choice((4, 4, 4, 9)))
            if rank(one) not in model:
                model[rank(one)] = one
                aside.add(one)
        elif model:
            gone = model.pop(chance.choice(list(model)) if step % 50 == 0 else next(iter(model)))
            assert aside.remove(gone)
            assert not aside.remove(gone) and not gone.flags & ASIDE
        if step % 997 == 0:
            places = sorted(model)
            assert list(map(rank, aside)) == places
            assert len(aside) == len(places)
            assert all(0 < len(block) <= 2 * _BLOCK for block in aside._blocks)
            place = chance.choice(places) + chance.choice((0, 1))
            later = [one for one in places if one >= place]
            assert list(map(rank, aside.since(place, 10))) == later[:10]
            assert aside.first_rank(place) == (later[0] if later else BEYOND)
    backwards = Aside()
    for sequence in range(5_000, 0, -1):
        backwards.add(message(sequence))
    assert [one.sequence for one in backwards] == list(range(1, 5_001))
    assert all(len(block) <= 2 * _BLOCK for block in backwards._blocks)
    assert not Aside() and Aside().first_rank(FIRST) == BEYOND and Aside().since(FIRST, 5) == []

"""Numbered postings under losses: whatever is cut, killed or repeated, each row is posted once and in its order.

A sender does what a task of Spark does: it makes the rows of its batch again and again, from the first, until all of
one attempt are accepted. Its attempts are cut off anywhere; late doubles of them go on beside the next one; the broker
is killed, with what is not synced lost, queues are full for a while. The rows of an attempt may begin at the mark that
the broker told, as the sink's do.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger.events import EventKind
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.delivery import Delivery
from acquit.protocol.extensions import PLACE, SENDER_MARK
from acquit.protocol.link import SendingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World
from tests.support.examples import examples

pytestmark = pytest.mark.promise("marks")

ROWS = 12
BATCHES = 2

step = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 1), st.integers(1, 5)),
    st.tuples(st.just("attach"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("lose"), st.integers(0, 2), st.none()),
    st.tuples(st.just("sync"), st.none(), st.none()),
    st.tuples(st.just("take"), st.integers(1, 5), st.none()),
    st.tuples(st.just("crash"), st.none(), st.none()),
)


class Attempt:
    """One attempt at writing a batch, on a connection of its own."""

    def __init__(self, world: World, name: str, batch: int, *, skips: bool) -> None:
        self.client: Client = world.client(name)
        self.batch = batch
        self.sent: list[Delivery] = []
        self.link: SendingLink = self.client.sender("q", name, properties={SENDER_MARK: "query:0"})
        attach = self.link.remote_attach
        assert attach is not None
        assert attach.properties is not None
        mark = attach.properties[SENDER_MARK]
        self.next = mark[1] if skips and mark and mark[0] == batch else 0  # type: ignore[index]
        self.from_row = self.next

    def send(self, count: int) -> None:
        while count and self.next < ROWS and self.link.sendable:
            place = struct.pack(">QQI", self.batch, self.next, 0)
            # One in three has properties that take the long way in.
            fields = {"annotations": {"x-opt-a": 1}} if self.next % 3 == 0 else {}
            body = f"{self.batch}.{self.next}"
            message = Message(body, durable=True, delivery_annotations={PLACE: place}, **fields)  # type: ignore[arg-type]
            self.sent += self.client.post(self.link, message)
            self.next += 1
            count -= 1

    @property
    def done(self) -> bool:
        return self.next == ROWS and all(self.client.outcome(delivery) == ACCEPTED for delivery in self.sent)


@pytest.mark.parametrize("bounded", [False, True])
@examples(50)
@given(steps=st.lists(step, max_size=60))
def test_each_row_is_posted_once_and_in_order(steps: list[tuple[str, int, int]], *, bounded: bool) -> None:
    policy = {"messages_max": 3, "full_policy": "reject"} if bounded else {}
    world = World(BrokerOptions(address=(AddressRule("q", policy),)))
    attempts: dict[int, Attempt] = {}
    batch = count = 0
    taken: list[str] = []

    def attempt(slot: int, *, skips: bool) -> Attempt:
        nonlocal count
        count += 1
        if slot in attempts:
            attempts.pop(slot).client.lose()
        attempts[slot] = Attempt(world, f"attempt{count}", batch, skips=skips)
        return attempts[slot]

    def take(number: int) -> None:
        client = world.client("consumer")
        receiver = client.receiver("q", credit=number)
        world.settle()
        held = client.held(receiver)
        taken.extend(str(Message.decode(delivery.payload).body) for delivery in held)
        receiver.session.settle_all(held, ACCEPTED)
        world.settle()
        client.lose()

    for kind, first, second in steps:
        if kind == "send":
            (attempts.get(first) or attempt(first, skips=False)).send(second)
            world.carry()
        elif kind == "attach":
            attempt(first, skips=bool(second))
        elif kind == "lose" and first in attempts:
            attempts.pop(first).client.lose()
        elif kind == "sync":
            world.sync()
            world.carry()
        elif kind == "take":
            take(first)
        elif kind == "crash":
            world = world.crash()
            attempts.clear()
        if batch < BATCHES - 1 and any(one.batch == batch and one.done for one in attempts.values()):
            batch += 1
    for last in range(batch, BATCHES):
        batch = last
        for _ in range(20):
            one = attempt(0, skips=last % 2 == 0)
            world.settle()
            while one.next < ROWS:
                one.send(ROWS)
                world.settle()
            if one.done:
                break
            take(5)
        assert one.done
    while world.core.queues.by_name["q"].live:
        take(5)
    assert taken == [f"{batch}.{index}" for batch in range(BATCHES) for index in range(ROWS)]
    counts = world.core.queues.by_name["q"].counts
    assert counts[EventKind.POSTED] == BATCHES * ROWS
    world.check_journal()

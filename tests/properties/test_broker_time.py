"""Time and chance: whatever is delayed, scheduled, locked, paced, kept from somebody or cancelled is accounted for, and
at last delivered.

Random histories over one address with delays, jitter, locks, limits and a policy of what is held up, on a clock that
passes, jumps forward and goes back, with lost connections, crashes and clean stops. After each step the accounts hold,
nothing waits that has expired, and the journal alone says the same as the broker. In the end, when time has passed, a
consumer that accepts whatever it gets has had every message that nothing else has become of: none is stuck.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.broker.queue import NodeState
from acquit.ledger.balance import balance
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Modified, Received, Rejected
from acquit.protocol.link import ReceivingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World
from tests.support.examples import examples

FAR_MS = 3_600_000
NAMES = ("one", "two", "three")
OUTCOMES = (
    ACCEPTED,
    RELEASED,
    Rejected(),
    Modified(),
    Modified(delivery_failed=True),
    Modified(delivery_failed=True, undeliverable_here=True),
    Modified(undeliverable_here=True),
    Received(0, 0),
    None,
)


def policy(random: Random) -> dict[str, object]:
    return {
        "redelivery_delay_ms": random.choice((0, 50, 3_000)),
        "redelivery_multiplier": random.choice((1.0, 2.0)),
        "redelivery_jitter": random.choice((0.0, 0.5)),
        "redelivery_blocks": random.choice(("none", "queue", "group")),
        "max_releases": random.choice((0, 4)),
        "max_delivery_attempts": random.choice((0, 3)),
        "lock_duration_ms": random.choice((0, 500, 5_000)),
        "connection_loss": random.choice(("count", "dead-letter")),
        "orderly_close": random.choice(("uncounted", "count")),
        "dead_letter_address": random.choice(("DLQ", "")),
        "expiry_address": random.choice(("ExpiryQueue", "")),
    }


class Run:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.world = World(BrokerOptions(address=(AddressRule("q", policy(random)),)))
        self.posted = 0
        self.volatile = 0
        self.accepted = 0
        self.connect()

    def connect(self) -> None:
        self.client: Client = self.world.client("client")
        self.links: dict[str, ReceivingLink] = {}
        self.sender = self.client.sender("q")
        self.world.settle()

    def step(self) -> None:
        kinds = {
            self.post: 6,
            self.receive: 5,
            self.settle: 8,
            self.wait: 5,
            self.set_clock: 1,
            self.detach: 1,
            self.cancel: 1,
            self.lose: 1,
            self.restart: 1,
        }
        self.random.choices(list(kinds), list(kinds.values()))[0]()
        self.world.settle()
        self.check_times()
        self.world.check_journal()

    def check_times(self) -> None:
        """Nothing waits whose time to live has passed."""
        queue = self.world.core.queues.by_name["q"]
        now_ms = self.world.now_us // 1000
        there = [message for message in queue.backlog.objects() if message and message.state is NodeState.AVAILABLE]
        waiting = (*there, *queue.aside, *queue.scheduled.values())
        assert not [message for message in waiting if 0 < message.expires_at_ms <= now_ms]

    def post(self) -> None:
        random = self.random
        for _ in range(random.randint(1, 4)):
            if not self.sender.sendable:
                return
            self.posted += 1
            annotations = {"x-opt-delivery-delay": random.choice((40, 4_000))} if random.random() < 0.3 else {}
            is_durable = random.random() < 0.8
            self.volatile += not is_durable
            message = Message(
                self.posted,
                durable=is_durable,
                message_id=f"id {self.posted % 7}",
                priority=random.choice((4, 4, 4, 9)),
                ttl_ms=random.choice((None, None, None, 300, 6_000)),
                group_id=random.choice((None, "a", "b")),
                annotations=annotations,
            )
            self.client.post(self.sender, message)

    def receive(self) -> None:
        name = self.random.choice(NAMES)
        if name not in self.links:
            default = self.random.choice((None, RELEASED, Modified(), Modified(delivery_failed=True)))
            self.links[name] = self.client.receiver("q", name, second=name == "two", default_outcome=default)
        self.links[name].grant(self.random.randint(1, 3))

    def settle(self) -> None:
        held = [one for link in self.links.values() for one in self.client.held(link)]
        for delivery in self.random.sample(held, min(len(held), self.random.randint(1, 3))):
            outcome = self.random.choice(OUTCOMES)
            if isinstance(outcome, Received):
                delivery.update(outcome)
                delivery.local_state = None  # it is still to be decided
            elif outcome is not None or delivery.link is not self.links.get("two"):
                delivery.settle(outcome)

    def wait(self) -> None:
        self.world.advance(self.random.choice((1, 30, 400, 3_000, 9_000)))

    def set_clock(self) -> None:
        by_us = self.random.choice((-1, 1)) * self.random.choice((2_000, 60_000)) * 1_000
        self.world.now_us += by_us
        self.world.core.clock_set(by_us)
        self.world.carry()

    def detach(self) -> None:
        if self.links:
            name = self.random.choice(sorted(self.links))
            self.links.pop(name).detach(closed=self.random.random() < 0.5)

    def cancel(self) -> None:
        self.world.core.administration.cancel("q", None, message_id=f"id {self.random.randint(0, 6)}")

    def lose(self) -> None:
        self.client.lose()
        self.world.settle()
        self.connect()

    def restart(self) -> None:
        self.world = self.world.crash() if self.random.random() < 0.5 else self.world.stop()
        self.connect()

    def drain(self) -> None:
        """Nobody does anything but take and accept; time passes."""
        for link in list(self.links.values()):
            link.detach()
        self.links.clear()
        self.world.settle()
        link = self.client.receiver("q", "the last", credit=0)
        for _ in range(60):
            link.grant(50)
            self.world.settle()
            for delivery in self.client.held(link):
                delivery.settle(ACCEPTED)
            self.world.settle()
            if not self.world.core.queues.by_name["q"].live:
                break
            self.world.advance(500)
        else:
            self.world.advance(FAR_MS)
            self.world.settle()
            for delivery in self.client.held(link):
                delivery.settle(ACCEPTED)
            self.world.settle()


@pytest.mark.promise("balance")
@given(st.randoms(use_true_random=False), st.integers(5, 60))
@examples(20)
def test_nothing_is_stuck_and_everything_is_accounted_for(random: Random, steps: int) -> None:
    run = Run(random)
    for _ in range(steps):
        run.step()
    run.drain()
    world = run.world
    world.check_journal()
    queue = world.core.snapshot().queue("q")
    assert queue is not None
    assert queue.depth == 0, "something never came"
    assert balance(world.fold()).balanced
    gone = queue.accepted + queue.dead_lettered + queue.dropped + queue.expired + queue.purged + queue.lost_volatile
    # Volatile messages of a run that crashed before they were counted never were, as far as the journal knows.
    assert run.posted - run.volatile <= gone == queue.entered <= run.posted
    node = world.core.queues.by_name["q"]
    assert (node.scheduled, node.scheduled_ids, node.blocked_groups, node.barrier) == ({}, {}, {}, None)

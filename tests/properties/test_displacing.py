"""What gives way, against a plain list: rings, last values and drop-oldest over postings, acquisitions, failures and
crashes.

The model keeps for each queue what waits, what waits for another attempt and what is held, by the order of posting, and
applies the policy by its words whenever something has become available. The broker must hold the same messages, in the
same order.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger.events import EventKind
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Modified
from acquit.protocol.delivery import Delivery
from acquit.protocol.message import Message
from tests.support.broker_world import World, durable
from tests.support.examples import share

DELAY_MS = 1_000
FAILED = Modified(delivery_failed=True)
POLICIES: dict[str, dict[str, object]] = {
    "ring": {"ring_size": 4},
    "last": {"last_value": True},
    "oldest": {"messages_max": 5, "full_policy": "drop-oldest"},
    "both": {"ring_size": 3, "last_value": True},
    "oldest, later": {"messages_max": 5, "full_policy": "drop-oldest", "redelivery_delay_ms": DELAY_MS},
    "last, later": {"last_value": True, "redelivery_delay_ms": DELAY_MS, "redelivery_multiplier": 3.0},
}
OPTIONS = BrokerOptions(
    address=(
        AddressRule("#", {"max_delivery_attempts": 0, "consumers": "shared"}),
        *(AddressRule(name, settings) for name, settings in POLICIES.items()),
    )
)


class Kept:
    """One queue of the model: (number, key), oldest first."""

    def __init__(self, policy: dict[str, object]) -> None:
        self.policy = policy
        self.waiting: list[tuple[int, str | None]] = []
        self.held: list[tuple[int, str | None]] = []
        self.delayed: dict[tuple[int, str | None], int] = {}
        """Milliseconds that each still waits for another attempt."""
        self.failures: Counter[int] = Counter()
        self.displaced = 0

    def fail(self, one: tuple[int, str | None], *, counted: bool) -> None:
        """An attempt has failed, or (not counted) was lost."""
        self.held.remove(one)
        self.failures[one[0]] += counted
        if "redelivery_delay_ms" in self.policy:
            growth = 3 if "redelivery_multiplier" in self.policy else 1
            self.delayed[one] = DELAY_MS * min(10, growth ** max(0, self.failures[one[0]] - 1))
        else:
            self.waiting.append(one)

    def wait(self, ms: int) -> None:
        """Time has passed."""
        self.delayed = {one: left_ms - ms for one, left_ms in self.delayed.items()}
        self.waiting += [one for one, left_ms in self.delayed.items() if left_ms <= 0]
        self.delayed = {one: left_ms for one, left_ms in self.delayed.items() if left_ms > 0}
        self.settle()

    def settle(self) -> None:
        """Something became available."""
        self.waiting.sort()
        if self.policy.get("last_value"):
            everything = [*self.waiting, *self.held, *self.delayed]
            newest = {
                key: max(n for n, other in everything if other == key) for _, key in everything if key is not None
            }
            self._keep([one for one in self.waiting if one[1] is None or one[0] == newest[one[1]]])
        ring = self.policy.get("ring_size")
        if ring:
            self._keep(self.waiting[-int(str(ring)) :])
        limit = self.policy.get("messages_max")
        if limit:
            over = len(self.waiting) + len(self.held) + len(self.delayed) - int(str(limit))
            self._keep(self.waiting[min(max(0, over), max(0, len(self.waiting) - 1)) :])
            over = len(self.waiting) + len(self.held) + len(self.delayed) - int(str(limit))
            oldest = sorted([*self.waiting, *self.delayed])[:-1][: max(0, over)]
            if self.delayed:
                self._keep([one for one in self.waiting if one not in oldest])
                self.displaced += len(self.delayed.keys() & set(oldest))
                self.delayed = {one: left_ms for one, left_ms in self.delayed.items() if one not in oldest}

    def _keep(self, left: list[tuple[int, str | None]]) -> None:
        self.displaced += len(self.waiting) - len(left)
        self.waiting = left


@pytest.mark.parametrize("seed", range(share(40)))
def test_the_same_messages_stay(seed: int) -> None:
    rng = Random(seed)
    world = World(OPTIONS)
    kept = {name: Kept(policy) for name, policy in POLICIES.items()}
    number = 0
    holding: dict[int, tuple[str, Delivery]] = {}
    client = world.client()
    for _ in range(rng.randrange(5, 120)):
        name = rng.choice((*POLICIES, "last, later", "last, later"))
        queue = kept[name]
        step = rng.random()
        if step < 0.4:
            link = client.sender(name, f"to {name} {number} {rng.random()}")
            posted = []
            for _ in range(rng.randrange(1, 4)):
                number += 1
                key = rng.choice((None, "a", "a", "b"))
                properties = {} if key is None else {"_AMQ_LVQ_NAME": key}
                posted.append(durable(number, application_properties=properties))
                queue.waiting.append((number, key))
            client.post_all(link, *posted)
            link.detach()
            queue.settle()
        elif step < 0.62:
            count = rng.randrange(1, 4)
            link2 = client.receiver(name, f"from {name} {number} {rng.random()}", credit=count)
            world.settle()
            link2.drain_credit()  # so that it takes no more later
            world.settle()
            for delivery in client.received.get(link2, []):
                body = Message.decode(delivery.payload).body
                assert isinstance(body, int)
                one = queue.waiting.pop(0)
                assert one[0] == body
                queue.held.append(one)
                holding[body] = (name, delivery)
        elif step < 0.66:
            world.advance(DELAY_MS)
            for queue in kept.values():
                queue.wait(DELAY_MS)
        elif step < 0.9 and holding:
            body = rng.choice(list(holding))
            name, delivery = holding.pop(body)
            queue = kept[name]
            one = next(one for one in queue.held if one[0] == body)
            outcome = rng.choice((ACCEPTED, RELEASED, FAILED, FAILED))
            delivery.settle(outcome)
            world.settle()
            if outcome is FAILED:
                queue.fail(one, counted=True)
            else:
                queue.held.remove(one)
            if outcome is RELEASED:
                queue.waiting.append(one)
            queue.settle()
        elif step > 0.96 and POLICIES[name].get("last_value"):
            for on in (False, True):  # messages keep their values meanwhile
                world.core.administration.put_rule(name, {"last_value": on})
                world.settle()
        elif step > 0.92:
            for queue in kept.values():
                for one in list(queue.held):
                    queue.fail(one, counted=False)
                queue.settle()
            holding.clear()
            world = world.crash()
            client = world.client()
            world.settle()
        check(world, kept)
    world.check_journal()


def check(world: World, kept: dict[str, Kept]) -> None:
    world.settle()
    for name, queue in kept.items():
        node = world.core.queues.by_name.get(name)
        if node is None:
            assert not (queue.waiting or queue.delayed)
            continue
        assert node.available == len(queue.waiting), (name, queue.waiting)
        assert node.acquired == len(queue.held)
        assert len(node.scheduled) == len(queue.delayed)
        assert node.counts[EventKind.DISPLACED] == queue.displaced

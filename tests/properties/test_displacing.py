"""What gives way, against a plain list: rings, last values and drop-oldest over postings, acquisitions and crashes.

The model keeps for each queue what waits and what is held, by the order of posting, and applies the policy by its words
whenever something has become available. The broker must hold the same messages, in the same order.
"""

from __future__ import annotations

from random import Random

import pytest

from acquit.broker.options import AddressRule, BrokerOptions
from acquit.ledger.events import EventKind
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.delivery import Delivery
from acquit.protocol.message import Message
from tests.support.broker_world import World, durable

POLICIES: dict[str, dict[str, object]] = {
    "ring": {"ring_size": 4},
    "last": {"last_value": True},
    "oldest": {"messages_max": 5, "full_policy": "drop-oldest"},
    "both": {"ring_size": 3, "last_value": True},
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
        self.displaced = 0

    def settle(self) -> None:
        """Something became available."""
        self.waiting.sort()
        if self.policy.get("last_value"):
            everything = [*self.waiting, *self.held]
            newest = {
                key: max(n for n, other in everything if other == key) for _, key in everything if key is not None
            }
            self._keep([one for one in self.waiting if one[1] is None or one[0] == newest[one[1]]])
        ring = self.policy.get("ring_size")
        if ring:
            self._keep(self.waiting[-int(str(ring)) :])
        limit = self.policy.get("messages_max")
        if limit:
            over = len(self.waiting) + len(self.held) - int(str(limit))
            self._keep(self.waiting[min(max(0, over), max(0, len(self.waiting) - 1)) :])

    def _keep(self, left: list[tuple[int, str | None]]) -> None:
        self.displaced += len(self.waiting) - len(left)
        self.waiting = left


@pytest.mark.parametrize("seed", range(40))
def test_the_same_messages_stay(seed: int) -> None:
    rng = Random(seed)
    world = World(OPTIONS)
    kept = {name: Kept(policy) for name, policy in POLICIES.items()}
    number = 0
    holding: dict[int, tuple[str, Delivery]] = {}
    client = world.client()
    for _ in range(rng.randrange(5, 60)):
        name = rng.choice(list(POLICIES))
        queue = kept[name]
        step = rng.random()
        if step < 0.55:
            link = client.sender(name, f"to {name} {number} {rng.random()}")
            posted = []
            for _ in range(rng.randrange(1, 5)):
                number += 1
                key = rng.choice((None, "a", "b", "c"))
                properties = {} if key is None else {"_AMQ_LVQ_NAME": key}
                posted.append(durable(number, application_properties=properties))
                queue.waiting.append((number, key))
            client.post_all(link, *posted)
            link.detach()
            queue.settle()
        elif step < 0.75:
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
        elif step < 0.93 and holding:
            body = rng.choice(list(holding))
            name, delivery = holding.pop(body)
            queue = kept[name]
            one = next(one for one in queue.held if one[0] == body)
            queue.held.remove(one)
            back = rng.random() < 0.6
            delivery.settle(RELEASED if back else ACCEPTED)
            if back:
                queue.waiting.append(one)
            world.settle()
            queue.settle()
        elif step > 0.96:
            for queue in kept.values():
                queue.waiting += queue.held
                queue.held = []
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
            assert not queue.waiting
            continue
        assert node.available == len(queue.waiting), (name, queue.waiting)
        assert node.acquired == len(queue.held)
        assert node.counts[EventKind.DISPLACED] == queue.displaced

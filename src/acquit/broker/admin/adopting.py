"""Going by other policies: those of the rules that hold now, once these have changed.

What is made from now on has them at once. Topics and queues that are there are looked at a few in each turn, so that
ten thousand of them hold up nobody; each changes whole, in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

from acquit.broker.dispatching.succession import reconsider
from acquit.broker.memory import learn_group
from acquit.broker.nodes.node import Queue

if TYPE_CHECKING:
    from acquit.broker.intake.duplicates import Duplicates
    from acquit.broker.intake.limits import Limits
    from acquit.broker.life import Life
    from acquit.broker.nodes.addresses import Policies
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.nodes.topics import Topic, Topics

LOOKED_AT: Final = 100
"""Topics, queues and addresses of remembered ids that one turn looks at: a millisecond's work, or two."""
RULES: Final = 16
"""Rules beyond which it looks at fewer, as each rule is compared with each address."""


class Adoption:
    """Brings topics and queues to the policies that there are."""

    def __init__(
        self, life: Life, queues: Queues, topics: Topics, policies: Policies, duplicates: Duplicates, limits: Limits
    ) -> None:
        self._life = life
        self._queues = queues
        self._topics = topics
        self._policies = policies
        self._duplicates = duplicates
        self._limits = limits
        self._steps: Iterator[None] | None = None
        """The walk that is under way."""
        self._again = False
        """True if the policies have changed since it began: what it had looked at is looked at again, in another."""
        self._waiting: list[Callable[[], None]] = []
        self._waiting_for_next: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Look at all topics and queues: the first of them now, the others in the turns that follow. Behind a walk that
        is under way, which is not broken off: changes without end would keep all from being done."""
        if self._steps is not None:
            self._again = True
        else:
            self._steps = self._go()
            self.run()

    def when_done(self, call: Callable[[], None]) -> None:
        """Call it once everything goes by the policies that there are, or by later ones; perhaps at once."""
        if self._steps is None:
            call()
        elif self._again:
            self._waiting_for_next.append(call)
        else:
            self._waiting.append(call)

    def run(self) -> bool:
        """Go on. True if there is more to do."""
        if self._steps is None:
            return False
        if next(self._steps, self) is not self:
            return True
        self._steps = self._go() if self._again else None
        self._again = False
        done, self._waiting, self._waiting_for_next = self._waiting, self._waiting_for_next, []
        for call in done:
            call()
        return self._steps is not None

    def _go(self) -> Iterator[None]:
        """Look at everything, some at a time."""
        policy_of = self._policies.policy_of
        topics, queues = list(self._topics.by_address.values()), list(self._queues.by_name.values())
        addresses = self._duplicates.addresses()
        changed: list[Queue] = []
        everything: Iterator[Topic | Queue | str] = chain(topics, queues, addresses)
        left = self._looked_at_most()
        for one in everything:
            if not left:
                yield
                left = self._looked_at_most()
            left -= 1
            if isinstance(one, str):
                self._duplicates.apply_policy(one, policy_of(one))
            elif isinstance(one, Queue):
                if self._look_at(one):
                    changed.append(one)
            else:
                one.policy = policy_of(one.address)
        self._limits.policies_changed(queue for queue in changed if not queue.removing)

    def _looked_at_most(self) -> int:
        return max(1, LOOKED_AT * RULES // max(RULES, self._policies.count))

    def _look_at(self, queue: Queue) -> bool:
        """Bring a queue to its policy. True if that is another one."""
        before, policy = queue.policy, self._policies.policy_of(queue.address)
        if queue.removing or policy is before or policy == before:
            return False
        queue.policy = policy
        if policy.message_groups and not before.message_groups:
            self._learn_groups(queue)
        queue.look_at_policy()
        reconsider(queue)
        self._life.wake(queue)
        return True

    def _learn_groups(self, queue: Queue) -> None:
        """Note the groups of what entered a queue while it had none."""
        queue.backlog.lay_out()
        waiting = (*queue.backlog.objects(), *queue.aside, *queue.scheduled.values())
        held = self._life.live.values() if queue.pending or queue.acquired or queue.suspended else ()
        for message in (*waiting, *[message for message in held if message.queue is queue]):
            if message is not None:
                learn_group(message)


__all__ = ["LOOKED_AT", "RULES", "Adoption"]

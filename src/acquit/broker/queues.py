"""Which queues there are: found, made on first use where the policy allows, deleted when nobody needs them.

An address is an anycast queue of the same name. ``address::queue`` names a queue at an address, and is the same as the
address where both are equal; anything else, and addresses of topics, will come with subscriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acquit.broker.addresses import Policies, address_fault
from acquit.broker.node import Queue
from acquit.broker.posting import Refused
from acquit.errors import StoreFull
from acquit.ledger import records
from acquit.ledger.records import QueueFlag
from acquit.protocol._definitions import AmqpCondition

if TYPE_CHECKING:
    from acquit.broker.endpoints import Peer
    from acquit.broker.life import Life


class Queues:
    """All queues of one broker."""

    def __init__(self, life: Life, policies: Policies, queues_max: int) -> None:
        self._life = life
        self._scribe = life.scribe
        self._policies = policies
        self._queues_max = queues_max
        self.by_name: dict[str, Queue] = {}

    def find(self, peer: Peer, address: str) -> Queue:
        """The queue of an address, for a link or a message of `peer`; made if the policy allows.

        Raises Refused with the condition to tell the peer.
        """
        name = _plain(address)
        queue = self.by_name.get(name)
        if queue is not None:
            return queue
        if not self._policies.policy_of(name).create:
            raise Refused(f"there is no {name!r}, and its policy makes none", condition=AmqpCondition.NOT_FOUND)
        if len(self.by_name) >= self._queues_max:
            raise Refused(
                f"there are {self._queues_max} queues, no more are made",
                condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
            )
        try:
            return self._make(name, self._scribe.declare(peer.container, "", peer.user, name))
        except StoreFull as exc:
            raise Refused(
                "the broker's disk is full: no queue is made", condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED
            ) from exc

    def of_address(self, address: str) -> Queue:
        """The queue of a dead letter or expiry address, made if it is not there. Raises StoreFull."""
        return self.by_name.get(address) or self._make(address, 0)

    def restore(self, entry: records.Queue) -> Queue:
        """A queue that the journal tells of."""
        queue = Queue(
            entry.number,
            entry.name,
            entry.address,
            self._policies.policy_of(entry.address),
            auto_created=bool(entry.flags & QueueFlag.AUTO_CREATED),
        )
        self.by_name[queue.name] = queue
        return queue

    def let_go(self, queue: Queue) -> None:
        """A link of the queue has ended, or its last message: delete it if the policy says so and nobody uses it."""
        if queue.auto_created and queue.policy.auto_delete and not queue.in_use and queue.name in self.by_name:
            self._scribe.write_counters()
            try:
                self._scribe.recorder.append(records.QueueDeleted(self._scribe.time_us, queue.number))
            except StoreFull:
                self._scribe.exhausted = True
                return
            self._scribe.marks.forget(queue.number)
            del self.by_name[queue.name]

    def _make(self, name: str, actor: int) -> Queue:
        number = self._scribe.recorder.table.queue_max + 1
        flags = QueueFlag.DURABLE | QueueFlag.AUTO_CREATED
        self._scribe.recorder.append(records.Queue(self._scribe.time_us, number, name, name, flags, actor=actor))
        queue = Queue(number, name, name, self._policies.policy_of(name), auto_created=True)
        self.by_name[name] = queue
        return queue


def _plain(address: str) -> str:
    """The name of the queue that an address means. Raises Refused."""
    node, separator, queue = address.partition("::")
    if separator and node != queue:
        raise Refused(
            "an address with several queues (address::queue) is not implemented",
            condition=AmqpCondition.NOT_IMPLEMENTED,
        )
    if fault := address_fault(node):
        missing = node.startswith("$")
        raise Refused(fault, condition=AmqpCondition.NOT_FOUND if missing else AmqpCondition.INVALID_FIELD)
    return node


__all__ = ["Queues"]

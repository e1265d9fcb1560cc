"""Queues of a broker: found, made on first use where the policy allows, deleted when nobody needs them.

An anycast queue has the name of its address. The queue of a subscription is called ``address::subscription``, so that
it can be asked for by the same words with which other brokers name one queue of an address. Here they are all alike:
what is special about subscriptions is in `subscriptions`, about temporary queues in `temporary`. What an address means
to a link is decided in `finding`.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

from acquit.broker.nodes.addresses import Policies, address_fault, topic_fault
from acquit.broker.nodes.node import Queue, pause_key
from acquit.broker.refusal import Refused
from acquit.errors import StoreFull
from acquit.ledger import records
from acquit.ledger.records import Namespace, QueueFlag
from acquit.protocol.definitions import AmqpCondition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from acquit.broker.life import Life
    from acquit.broker.links.peers import Peer
    from acquit.broker.nodes.lifetime import Temporary
    from acquit.broker.nodes.subscription import Subscription
    from acquit.protocol.link import Link


GENERATED: Final = re.compile(r"temporary\.(?:queue|topic)\.[0-9a-f]{32}")
"""Addresses that `temporary` makes up. A link does not make one again: an answer to somebody who has left is refused,
and fills no queue that nobody will ever ask for."""


class WaitingForNode(Protocol):
    """A link that is answered when its node is on the disk, as that sees it: `links.endpoints.WaitingLink`."""

    link: Link


class Queues:
    """All queues of one broker."""

    def __init__(self, life: Life, policies: Policies, queues_max: int, topics: Mapping[str, object]) -> None:
        """`topics` are counted with the queues where their number is limited."""
        self._life = life
        self._scribe = life.scribe
        self._policies = policies
        self.queues_max = self.per_user_max = queues_max
        self._makers: dict[int, str] = {}
        """User who had each node made in this run, by the node's number; "" if anonymous."""
        self._made: Counter[str] = Counter()
        """Number of these nodes, by user."""
        self.by_name: dict[str, Queue] = {}
        self.topics = topics
        """Topics by address. Kept by `topics.Topics`."""
        self.unsynced: dict[int, dict[WaitingForNode, Callable[[], None]]] = {}
        """Numbers of durable queues and topics that were made just now, and who waits for each. Who attaches to one can
        rely on it, so it is answered later."""

    # -- found, or made -----------------------------------------------------------------------------------------------

    def find(self, peer: Peer, address: str, *, on_demand: bool = False) -> Queue:
        """The anycast queue of an address, for a link or a message of `peer`; made if the policy allows, or on demand.

        Raises Refused with the condition to tell the peer.
        """
        queue = self.by_name.get(address)
        if queue is not None:
            return queue
        check_address(address)
        self.check_creation(peer, address, on_demand=on_demand)
        return self.make(address, address, self._scribe.declare(peer.container, "", peer.user, address))

    def of_address(self, address: str) -> Queue:
        """The queue of a dead letter or expiry address, made if it is not there. Raises StoreFull."""
        return self.by_name.get(address) or self._make(address, address, 0)

    def check_creation(self, peer: Peer, address: str, *, generated: bool = False, on_demand: bool = False) -> None:
        """Raise Refused unless `peer` may have a queue or topic made for this address. `generated`: it is new, made up
        by us. `on_demand`: the peer asks for it, so that the policy, which is about who does not, is not asked."""
        if not generated:
            check_generated(address)
        if not on_demand:
            self.check_policy(address)
        peer.rights.check("create", address)
        self.check_number(peer.user)

    def check_policy(self, address: str) -> None:
        """Raises Refused where the policy makes no nodes."""
        if not self._policies.policy_of(address).create:
            raise Refused(f"there is no {address!r}, and its policy makes none", condition=AmqpCondition.NOT_FOUND)

    def check_number(self, user: str | None) -> None:
        """Raises Refused where there are as many queues, subscriptions and topics as there may be, in all or of this
        user."""
        fault = None
        if len(self.by_name) + len(self.topics) >= self.queues_max:
            fault = f"there are {self.queues_max} queues, no more are made"
        elif self._made[user or ""] >= self.per_user_max:
            who = "those who are anonymous have" if user is None else f"{user!r:.200} has"
            fault = f"{who} had {self.per_user_max} queues made, as many as one user may have"
        if fault is not None:
            raise Refused(fault, condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED)

    def make(
        self,
        name: str,
        address: str,
        actor: int,
        *,
        auto_created: bool = True,
        durable: bool = True,
        subscription: Subscription | None = None,
        temporary: Temporary | None = None,
    ) -> Queue:
        """A new queue. Raises Refused where the disk has no room."""
        try:
            return self._make(
                name,
                address,
                actor,
                auto_created=auto_created,
                durable=durable,
                subscription=subscription,
                temporary=temporary,
            )
        except StoreFull as exc:
            raise _no_room() from exc

    def restore(self, entry: records.Queue, subscription: Subscription | None = None, *, durable: bool = True) -> Queue:
        """A queue that the journal tells of."""
        queue = Queue(
            entry.number,
            entry.name,
            entry.address,
            self._policies.policy_of(entry.address),
            auto_created=bool(entry.flags & QueueFlag.AUTO_CREATED),
            durable=durable,
            subscription=subscription,
            parking=self._life.parking,
        )
        self.by_name[queue.name] = queue
        return queue

    # -- deleted ------------------------------------------------------------------------------------------------------

    def unneeded(self, queue: Queue) -> bool:
        """A link of the queue has ended, or its last message: does its policy, or the client that had it made, say
        that it goes now?"""
        if self.by_name.get(queue.name) is not queue:
            return False
        if queue.temporary is not None:
            return queue.temporary.over(queue)
        if queue.subscription is not None:
            return False  # its links, and who ends it, decide; an earlier version's record may say that a link made it
        wanted = queue.in_use or queue.paused != "none" or self.waiting(queue.number)
        return queue.auto_created and queue.policy.auto_delete and not wanted

    def forget(self, queue: Queue) -> None:
        """Take a queue out of those that are found by name."""
        if self.by_name.get(queue.name) is queue:
            del self.by_name[queue.name]

    # -- on the disk --------------------------------------------------------------------------------------------------

    def await_sync(self, number: int, waiting: WaitingForNode, call: Callable[[], None]) -> None:
        """Call it for a link that waits as soon as a queue or topic, which is unsynced, is on the disk."""
        self.unsynced[number][waiting] = call

    def waiting(self, number: int) -> list[WaitingForNode]:
        """Return the links that wait until the queue or topic of this number is on the disk."""
        return list(self.unsynced.get(number, ()))

    def give_up(self, number: int, waiting: WaitingForNode) -> None:
        """A link has ended before it was answered."""
        self.unsynced.get(number, {}).pop(waiting, None)

    def _synced(self, number: int) -> None:
        for call in self.unsynced.pop(number, {}).values():
            call()

    # -- in the journal -----------------------------------------------------------------------------------------------

    def record(self, entry: records.Queue) -> None:
        """Record a new topic, or whose a subscription is. Raises Refused where the disk has no room."""
        try:
            self._record(entry)
        except StoreFull as exc:
            raise _no_room() from exc

    def record_deleted(self, number: int, actor: int) -> bool:
        """Record that a queue, or a topic, which is empty, is no more. False where the disk has no room.

        Nobody declares it again, so its name would go with the segment that has its declaration. It is declared in the
        segment of its end once more, for whoever reads that and no older one.
        """
        scribe = self._scribe
        scribe.write_counters_of(number)
        recorder = scribe.recorder
        declaration = recorder.table.renewed(("queue", number), recorder.journal.segments[-1].base, scribe.time_us)
        try:
            if declaration is not None:
                recorder.append(declaration)
            if (Namespace.PAUSE, pause_key(number)) in recorder.table.state:
                recorder.append(records.StateDeleted(scribe.time_us, Namespace.PAUSE, pause_key(number)))
            recorder.append(records.QueueDeleted(scribe.time_us, number, actor))
        except StoreFull:
            scribe.exhausted = True
            return False
        scribe.marks.forget(number)
        maker = self._makers.pop(number, None)
        if maker is not None:
            self._made[maker] -= 1
            if not self._made[maker]:
                del self._made[maker]
        return True

    def _record(self, entry: records.Queue) -> None:
        table = self._scribe.recorder.table
        self._scribe.recorder.append(entry)
        if entry.flags & QueueFlag.DURABLE:
            self.unsynced.setdefault(entry.number, {})
            self._scribe.when_synced(self._synced, entry.number)
        if entry.actor in table.actors:
            self._makers[entry.number] = maker = table.actors[entry.actor].user
            self._made[maker] += 1

    def _make(
        self,
        name: str,
        address: str,
        actor: int,
        *,
        auto_created: bool = True,
        durable: bool = True,
        subscription: Subscription | None = None,
        temporary: Temporary | None = None,
    ) -> Queue:
        number = self._scribe.recorder.table.queue_max + 1
        flags = (
            QueueFlag.DURABLE * durable
            | QueueFlag.AUTO_CREATED * auto_created
            | QueueFlag.MULTICAST * (subscription is not None)
            | QueueFlag.TEMPORARY * (temporary is not None)
        )
        properties = b"" if subscription is None else subscription.encoded
        self._record(
            records.Queue(self._scribe.time_us, number, name, address, flags, properties=properties, actor=actor)
        )
        queue = Queue(
            number,
            name,
            address,
            self._policies.policy_of(address),
            auto_created=auto_created,
            durable=durable,
            subscription=subscription,
            temporary=temporary,
            parking=self._life.parking,
        )
        self.by_name[name] = queue
        return queue


def check_address(address: str, *, topic: bool = False) -> None:
    """Raise Refused unless it can be the name of a queue, or of a topic or a pattern of topics."""
    if fault := topic_fault(address) if topic else address_fault(address):
        missing = address.startswith("$")
        raise Refused(fault, condition=AmqpCondition.NOT_FOUND if missing else AmqpCondition.INVALID_FIELD)


def check_generated(address: str) -> None:
    """Raise Refused for an address that was made up for a client which has left."""
    if GENERATED.fullmatch(address):
        raise Refused(f"the temporary {address!r} is gone", condition=AmqpCondition.NOT_FOUND)


def _no_room() -> Refused:
    return Refused("the broker's disk is full: no queue is made", condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED)


__all__ = ["Queues", "check_address", "check_generated"]

"""Queues and topics that an operator has paused: for those who send, for those who receive, or for both.

A queue that is paused for consumers hands nothing out. Links stay, with their credit, and what is acquired can be
settled; browsers go on, but for the readers of a non-destructive queue, which are its consumers. Credit that drains is
given back at once, as from an empty queue. One that is paused for producers gives them no credit, takes back what they
have, and refuses what comes all the same with amqp:resource-limit-exceeded, as a queue does that is full: clients that
try again later do the right thing. What the broker itself puts there enters: dead letters, what is moved, what a
transaction posted before. Time goes on: messages expire, delays end.

A topic holds nothing, so it is paused for producers alone; the queue of a subscription for consumers alone.

A pause outlives the run, and what is paused is not deleted for `auto_delete`: it would be made again without the pause.
It is keyed state of the journal, by the number of the node, with the name of the user. A resumption is recorded as well
before the state is deleted, so that the journal tells who resumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.intake.limits import full
from acquit.broker.links.endpoints import Producer
from acquit.broker.nodes.node import Queue, pause_key
from acquit.broker.refusal import Refused
from acquit.errors import StoreFull
from acquit.ledger.records import Namespace, State, StateDeleted
from acquit.protocol.definitions import AmqpCondition

if TYPE_CHECKING:
    from acquit.broker.life import Life
    from acquit.broker.links.crediting import Crediting
    from acquit.broker.nodes.queues import Queues
    from acquit.broker.nodes.topics import Topic, Topics

PAUSES: Final = {"none": (False, False), "producers": (True, False), "consumers": (False, True), "both": (True, True)}
"""The ways to pause a node, each with whether that is for producers, and for consumers."""
_VALUES: Final = tuple(PAUSES)


class Pauses:
    """Pauses nodes, and resumes them."""

    def __init__(self, life: Life, queues: Queues, topics: Topics, crediting: Crediting) -> None:
        self._life = life
        self._scribe = life.scribe
        self._queues = queues
        self._topics = topics
        self._crediting = crediting

    def pause(self, node: Queue | Topic, how: str, user: str | None) -> None:
        """Pause or resume a queue or topic; `how` is one of `PAUSES`. Raises Refused for what cannot be paused so, and
        where the disk has no room."""
        for_producers, for_consumers = PAUSES[how]
        if for_consumers and not isinstance(node, Queue):
            _refuse(f"{node.name:.200} is a topic, which hands nothing out: pause the queues of its subscriptions")
        if for_producers and isinstance(node, Queue) and node.subscription is not None:
            _refuse(f"{node.name:.200} is the queue of a subscription: pause its topic {node.address:.200}")
        if how == node.paused:
            return
        scribe, key = self._scribe, pause_key(node.number)
        value = bytes((_VALUES.index(how),)) + (user or "").encode()
        try:
            scribe.recorder.append(State(scribe.time_us, Namespace.PAUSE, key, value))
            if how == "none":
                scribe.recorder.append(StateDeleted(scribe.time_us, Namespace.PAUSE, key))
        except StoreFull as exc:
            raise full(None) from exc
        self._apply(node, how)
        if not isinstance(node, Queue):
            self._topics.let_go(node)  # it may have been kept for this alone; a queue is looked at in the next turn
        self._crediting.reconsider([one for one in node.producers if isinstance(one, Producer)])

    def restore(self) -> None:
        """Take over the pauses that the journal tells of, before there are links."""
        nodes: dict[int, Queue | Topic] = {queue.number: queue for queue in self._queues.by_name.values()}
        nodes |= {topic.number: topic for topic in self._topics.by_address.values()}
        state = self._scribe.recorder.table.state
        for number, node in nodes.items():
            entry = state.get((Namespace.PAUSE, pause_key(number)))
            if entry is not None:
                self._apply(node, _VALUES[entry.value[0]])

    def _apply(self, node: Queue | Topic, how: str) -> None:
        node.producers_paused, for_consumers = PAUSES[how]
        if isinstance(node, Queue):
            node.consumers_paused = for_consumers
            node.look_at_policy()
            self._life.wake(node)


def _refuse(why: str) -> None:
    raise Refused(why, condition=AmqpCondition.NOT_ALLOWED)


__all__ = ["PAUSES", "Pauses"]

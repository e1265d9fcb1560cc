"""Links that have ended: what a consumer held is given back, or, where its terminus lives on, suspended."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from acquit.broker.dispatching.consumers import Consumer
from acquit.broker.dispatching.succession import depart
from acquit.broker.links.endpoints import Producer, WaitingLink
from acquit.broker.message import Message
from acquit.broker.nodes.node import whole
from acquit.broker.transact.retirement import Retirement
from acquit.protocol.definitions import TerminusExpiryPolicy

if TYPE_CHECKING:
    from acquit.broker.life import Life
    from acquit.broker.links.termini import Termini
    from acquit.broker.nodes.node import Queue
    from acquit.broker.nodes.removal import Removal
    from acquit.broker.nodes.subscriptions import Subscriptions
    from acquit.broker.outcomes.leaving import Leaving
    from acquit.broker.outcomes.settling import Settling
    from acquit.broker.queue import Ending
    from acquit.protocol.delivery import AnyLink, Delivery
    from acquit.protocol.link import Link


class Parting:
    """Sees to what a link leaves behind. `lives_on`: its terminus may be attached to again."""

    def __init__(
        self,
        life: Life,
        settling: Settling,
        leaving: Leaving,
        termini: Termini,
        subscriptions: Subscriptions,
        removal: Removal,
    ) -> None:
        self._life = life
        self._settling = settling
        self._leaving = leaving
        self._termini = termini
        self._subscriptions = subscriptions
        self._removal = removal

    def consumer(
        self, consumer: Consumer, deliveries: list[Delivery], ending: Ending, *, lives_on: bool, destroyed: bool
    ) -> None:
        """Make a consumer give back what it holds. `destroyed`: its peer says that its terminus goes, too."""
        depart(consumer)
        if consumer.subscriber:  # at once: who attaches under its name from now on begins anew
            self._subscriptions.left(consumer, destroyed=destroyed)
        over = partial(self._over, consumer, lives_on=lives_on)
        queue, terminus = consumer.queue, consumer.resumable
        if terminus is None:
            self._leaving.leave(queue, deliveries, partial(self._settling.ended, consumer, ending=ending), over)
            return
        held: list[Message] = []
        for delivery in deliveries:
            if isinstance(delivery.context, Message):
                held.append(delivery.context)
                delivery.context = None
            elif isinstance(delivery.context, Retirement):
                delivery.context.settled = True  # its transaction has it, and gives it back if it is rolled back
        held += consumer.unsent
        consumer.outbox.clear()
        suspend = partial(self._termini.suspend, terminus, consumer)
        self._leaving.leave(queue, held, suspend, over)

    def resumable(self, link: Consumer | Producer | WaitingLink, *, lives_on: bool) -> None:
        """End the terminus of a link that is over, or let it wait for the next; do nothing for one that has none."""
        terminus = link.resumable
        if terminus is not None:
            if not lives_on:
                self._termini.end(terminus)
            self._termini.suspended(terminus, link)

    def answer(self, link: Link, queue: Queue | None) -> None:
        """Answer a peer that has closed a link, if it waits for that: once no crash brings back what ended with it, the
        subscription with its `queue`, or a terminus."""
        if link.end_owed:
            self._removal.when_recorded(queue, partial(self._answer, link))

    def _answer(self, link: Link) -> None:
        link.answer_end()
        self._life.touch(link.session.connection)

    def _over(self, consumer: Consumer, *, lives_on: bool) -> None:
        """Let go of a consumer that holds nothing any more."""
        if not lives_on:
            consumer.over = True
            self._life.terminus_over(consumer.terminus)
        self._life.wake(consumer.queue)
        self._removal.left(whole(consumer.queue), consumer)
        self.resumable(consumer, lives_on=lives_on)
        self.answer(consumer.link, whole(consumer.queue))


def held_by(deliveries: list[Delivery]) -> dict[Consumer, list[Delivery]]:
    """Return the deliveries of links that have ended which still hold a message, by the consumer it was given to."""
    held: dict[Consumer, list[Delivery]] = {}
    for delivery in deliveries:
        context = delivery.context
        consumer = context.consumer if isinstance(context, Retirement) else getattr(context, "holder", None)
        if consumer is not None and consumer.link is delivery.link:
            held.setdefault(consumer, []).append(delivery)
    return held


def outlives(link: AnyLink) -> bool:
    """True if the terminus lives on when its link is gone (3.5.3), as that of a subscription does until it is given up,
    and that of a resumable link until its time is over."""
    context = link.context
    if isinstance(context, Consumer | Producer | WaitingLink) and context.resumable is not None:
        return True
    return link.source is not None and link.source.expiry_policy == TerminusExpiryPolicy.NEVER


__all__ = ["Parting", "held_by", "outlives"]

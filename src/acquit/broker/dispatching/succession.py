"""Consumers come and go: who is served, who waits, and who takes over.

Where the policy's `consumers` is *shared*, everybody is served. Where it is *single-active* or *exclusive*, the first
consumer to come is, and nobody else. Under *single-active* others wait, and when the active one has gone, the one of
the highest priority takes over, among equals the one that has waited longest; a newcomer never displaces the active
one. Under *exclusive*, others are refused when they attach. What the one that went had acquired is back in its place
before its successor is given anything, so order holds across the change: but for what an open transaction has the
outcome of, which nobody waits for, as nobody knows when it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from acquit.broker.dispatching.aside import BEYOND
from acquit.broker.dispatching.consumers import Interest, ServedQueue, Wants
from acquit.broker.refusal import Refused
from acquit.protocol.definitions import AmqpCondition
from acquit.protocol.types import whole_number

if TYPE_CHECKING:
    from acquit.broker.denials import Denials
    from acquit.broker.dispatching.consumers import Consumer
    from acquit.broker.message import Message

SHARED: Final = "shared"
PRIORITIES: Final = ("priority", "rabbitmq:priority", "x-priority")
"""Link properties that say a consumer's priority: as Artemis and Qpid, RabbitMQ, and its older clients name it."""
PRIORITY_MAX: Final = 0x7FFF_FFFF


def priority_of(properties: Mapping[str, object] | None) -> int:
    """A consumer's priority, from the properties of its attach: 0 where they say none.

    Raises Refused for one that is no whole number.
    """
    for name in PRIORITIES if properties else ():
        value = properties.get(name)  # type: ignore[union-attr]
        if value is None:
            continue
        priority = whole_number(value)
        if priority is None:
            raise Refused(
                f"the link property {name} must be a whole number, not {value!r:.80}",
                condition=AmqpCondition.INVALID_FIELD,
            )
        return max(-PRIORITY_MAX, min(PRIORITY_MAX, priority))
    return 0


def arrive(consumer: Consumer) -> None:
    """A consumer has attached."""
    queue = consumer.queue
    queue.consumers.append(consumer)
    if consumer.no_local:
        queue.look_at_policy()  # from now on the queue must know who posts
    if queue.policy.consumers == SHARED or queue.active is None:
        _serve(consumer)


def depart(consumer: Consumer) -> None:
    """A consumer has gone. What it had acquired is to be returned before anything else is handed out."""
    queue = consumer.queue
    queue.consumers.remove(consumer)
    queue.draining.pop(consumer, None)
    queue.emptying.pop(consumer, None)
    if consumer.no_local:
        queue.look_at_policy()
    _withdraw(consumer)
    if queue.active is consumer:
        queue.active = None
        if queue.consumers:
            _serve(max(queue.consumers, key=_priority))  # of equals the first, which has waited longest


def reconsider(queue: ServedQueue) -> None:
    """The policy has changed: who is served now, and with what? The queue is to be woken then."""
    if queue.policy.consumers == SHARED:
        queue.active = None
        chosen = queue.consumers
    else:
        active = queue.active
        if active is None and queue.consumers:
            active = max(queue.consumers, key=_priority)
        chosen = [] if active is None else [active]
    for consumer in queue.consumers:
        if consumer not in chosen and consumer.interest is not None:
            _withdraw(consumer)
    for consumer in chosen:
        if consumer.interest is None or queue.policy.consumers != SHARED:
            _serve(consumer)
    for consumer in queue.consumers:
        if not queue.policy.message_groups:
            _free(consumer)
        consumer.stand_in_line()  # it may be allowed to hold more
    if not queue.policy.message_groups and queue.groups is not None:
        for group in list(queue.groups.parked):
            queue.release(group)
        queue.groups = None


def specialise(consumer: Consumer, *, bytes_max: int = 0, terminus: str | None = None) -> None:
    """The consumer turns out to be more particular than others who ask for the same: a message is larger than it
    takes, or was called undeliverable there."""
    interest = consumer.interest
    if interest is None:
        return
    waits = consumer.in_line
    wants = interest.wants._replace(
        bytes_max=bytes_max or interest.wants.bytes_max, terminus=terminus or interest.wants.terminus
    )
    _part(consumer, interest)
    _join(consumer, wants)
    if waits:
        consumer.stand_in_line()


def notice_size(consumer: Consumer, message: Message, denials: Denials) -> None:
    """The first message that is larger than a consumer takes: the size of each is looked at for it from now on."""
    specialise(consumer, bytes_max=consumer.body_bytes_max)
    denials.too_large(consumer, message)


def _priority(consumer: Consumer) -> int:
    return consumer.priority


def _serve(consumer: Consumer) -> None:
    queue = consumer.queue
    if queue.policy.consumers != SHARED:
        queue.active = consumer
    if consumer.interest is None:
        selector = None if consumer.selector is None else consumer.selector.text
        _join(consumer, Wants(selector, consumer.peer.container if consumer.no_local else None))
    consumer.stand_in_line()


def _join(consumer: Consumer, wants: Wants) -> None:
    queue = consumer.queue
    interest = next((one for one in queue.interests if one.wants == wants), None)
    if interest is None:
        interest = Interest(wants, consumer.selector)
        if not queue.aside:
            interest.looked = BEYOND
        queue.interests.append(interest)
    interest.members += 1
    consumer.interest = interest


def _part(consumer: Consumer, interest: Interest) -> None:
    interest.line.discard(consumer)
    interest.members -= 1
    if not interest.members:
        consumer.queue.interests.remove(interest)
    consumer.interest = None


def _withdraw(consumer: Consumer) -> None:
    """Serve a consumer no more: what waits for it alone, and its groups, are anybody's."""
    queue, interest = consumer.queue, consumer.interest
    if interest is not None:
        _part(consumer, interest)
    if queue.groups is not None:
        queue.groups.leave(consumer)
    _free(consumer)


def _free(consumer: Consumer) -> None:
    """Put what is set aside for a consumer alone back into the backlog, for anybody."""
    queue = consumer.queue
    queue.owing.pop(consumer, None)
    queue.free(consumer.retained.take_all())


__all__ = ["SHARED", "arrive", "depart", "notice_size", "priority_of", "reconsider", "specialise"]

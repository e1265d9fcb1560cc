"""Deliveries that came together: those of one link, in one go.

A connection with many links may send on each in turn, and each change of the link makes an event. A message that is
taken in by itself costs several times as much as among others of its link. So what came at once is put together by
link, as far as the order within each queue stays what it was. Between queues there is none, and what depends on what
came before it is left in its place: what is of a transaction, has a mark, or is resumed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from acquit.broker.links.endpoints import Producer
from acquit.protocol.events import DeliveriesReceived, Event, RunReceived

if TYPE_CHECKING:
    from acquit.broker.nodes.node import Queue


def gather(events: Iterable[Event]) -> list[Event]:
    """Return the events with the deliveries to each queue in one, as far as they are of one link, and nothing but plain
    deliveries to queues is between them."""
    gathered: list[Event] = []
    latest: dict[Queue, int] = {}
    for event in events:
        if isinstance(event, DeliveriesReceived | RunReceived):
            producer = event.link.context
            if (
                isinstance(producer, Producer)
                and producer.queue is not None
                and producer.resumable is None
                and producer.mark is None
                and not event.link.stateful
            ):
                at = latest.get(producer.queue)
                before = None if at is None else gathered[at]
                if (
                    at is not None
                    and isinstance(before, DeliveriesReceived | RunReceived)
                    and before.link is event.link
                ):
                    if isinstance(before, RunReceived):
                        gathered[at] = before = DeliveriesReceived(event.link, list(before.run.deliveries))
                    before.deliveries += event.run.deliveries if isinstance(event, RunReceived) else event.deliveries
                    continue
                latest[producer.queue] = len(gathered)
                gathered.append(event)
                continue
        if latest:
            latest = {}
        gathered.append(event)
    return gathered


__all__ = ["gather"]

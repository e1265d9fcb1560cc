"""Outcomes on a non-destructive queue: every link reads by its own cursor, and nothing is acquired or retired.

A receiver of such a queue is a `Browser`, whatever distribution-mode it asked for; unlike one that only looks, it
settles what it is sent. Its cursor went on as the message was sent, so no outcome brings a message back; what it says
is recorded (READ, with the outcome), so that the ledger knows who has read what. A receiver in mode second hears of it
once that is synced, as from any other queue. What it says in a transaction is recorded with its commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acquit.broker.links.endpoints import verdict_of
from acquit.broker.message import Message
from acquit.broker.queue import NodeState
from acquit.ledger.events import EventKind

if TYPE_CHECKING:
    from acquit.broker.dispatching.browsing import Browser
    from acquit.broker.life import Life
    from acquit.protocol.delivery import Delivery, DeliveryState


class Reading:
    """Records what readers say."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._scribe = life.scribe

    def heard(self, browser: Browser, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> None:
        """A disposition of a link that acquires nothing."""
        durable = self.record(browser, deliveries, state)
        if settled:
            return
        if durable:
            self._scribe.when_synced(self.settle, browser, deliveries, state)
        else:
            self.settle(browser, deliveries, state)

    def record(self, browser: Browser, deliveries: list[Delivery], state: DeliveryState | None) -> bool:
        """Record an outcome of each, if it is one and the first. True if any of their messages is durable."""
        verdict = verdict_of(state)
        durable = False
        for delivery in deliveries:
            message = delivery.context
            if verdict is None or not isinstance(message, Message) or message.state is NodeState.ARCHIVED:
                continue
            delivery.context = None
            durable = durable or message.durable
            # A verdict is never 0 in the record: that would be no outcome.
            self._scribe.event(
                EventKind.READ, message, actor=self._scribe.actor_number(browser), origin=int(verdict) + 1
            )
        return durable

    def settle(self, browser: Browser, deliveries: list[Delivery], state: DeliveryState | None) -> None:
        """Tell a receiver that waits for it."""
        session = browser.link.session
        session.settle_all(deliveries, state)
        self._life.touch(session.connection)


__all__ = ["Reading"]

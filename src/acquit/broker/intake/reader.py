"""Reading of deliveries: what each says and where it goes, before anything is done with it.

Most say what the messages of their sender said before, by a `Template`; the others are looked at. Nothing is changed
here but what is learnt of a sender.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acquit.broker.intake.arrival import Arrival
from acquit.broker.intake.shaping import check_cost, expiry, read_due_at, read_posting
from acquit.broker.refusal import Refused
from acquit.errors import DecodeError
from acquit.protocol.definitions import AmqpCondition
from acquit.protocol.sections import MESSAGE_ANNOTATIONS, PROPERTIES, map_value

if TYPE_CHECKING:
    from acquit.broker.access.permissions import Rights
    from acquit.broker.intake.duplicates import Duplicates
    from acquit.broker.intake.shaping import Posting
    from acquit.broker.intake.templates import Template
    from acquit.broker.links.endpoints import Producer
    from acquit.broker.nodes.finding import Nodes
    from acquit.broker.nodes.node import Queue
    from acquit.broker.nodes.topics import Topic
    from acquit.broker.options.limits import ConnectionLimits
    from acquit.broker.scribe import Scribe
    from acquit.broker.transact.transaction import Transaction
    from acquit.protocol.delivery import Delivery

JMS_DESTINATION: Final = "x-opt-jms-dest"
"""Message annotation of JMS clients: what their destination is. 0: a queue, 1: a topic, 2 and 3: the temporary ones."""
_JMS_KINDS: Final[dict[object, bool]] = {0: False, 1: True, 2: False, 3: True}
"""Kinds of JMS destinations: True for a topic, False for a queue."""


class PostingReader:
    """Reads deliveries."""

    def __init__(self, scribe: Scribe, nodes: Nodes, duplicates: Duplicates, limits: ConnectionLimits) -> None:
        """`nodes` are asked for addresses that a message (not a link) names, and for what a topic goes to."""
        self.limits = limits
        """Limits of what a message may cost; may be replaced at any time."""
        self._scribe = scribe
        self._nodes = nodes
        self._duplicates = duplicates

    def check_cost(self, payload: bytes) -> None:
        """Raises Refused, or DecodeError, for what is too laborious to deal with."""
        check_cost(payload, self.limits.message_entries_max, self.limits.message_sections_max)

    def known(
        self, producer: Producer, delivery: Delivery, target: Queue | Topic, transaction: Transaction | None = None
    ) -> tuple[Template | Posting | None, Posting | None]:
        """Return what is known of a message if it is plain, by its template or a look at it; and what the look said, if
        there was one. (`receive` does the same for its group, without a call.)"""
        template = producer.templates.of(delivery.payload)
        if template is not None and not delivery.message_format:
            return template, None
        posting = self.looked(producer, delivery)
        if posting is None or not self.is_plain(target, posting, transaction):
            return None, posting
        return posting, posting

    def looked(self, producer: Producer, delivery: Delivery) -> Posting | None:
        """Return what a message says of itself, and learn a template of the next; None where it is refused for that, by
        whoever looks again."""
        if delivery.message_format:
            return None
        known = producer.templates.read(delivery.payload)
        if known is not None:
            known.poster = producer.peer.container
            return known
        try:
            posting = self.look(delivery.payload, producer.peer.container, producer.peer.rights)
            producer.templates.learn(posting)
        except (DecodeError, Refused):
            return None
        return posting

    def is_plain(self, target: Queue | Topic, posting: Posting, transaction: Transaction | None = None) -> bool:
        """Return whether it has no times, and an id that was not posted before, if it has one that counts."""
        if not posting.plain:
            return False
        try:
            identity = self._duplicates.check(target, posting, transaction)
        except Refused:
            return False
        return identity is None or not (identity.first or identity.flags)

    def arrival(self, producer: Producer, delivery: Delivery, posting: Posting | None = None) -> Arrival:
        """Return what the message says, unless that is known, and where it goes. Raises DecodeError or Refused."""
        if delivery.message_format:
            raise Refused(
                f"message-format {delivery.message_format}: only 0 is known here (2.7.5)",
                condition=AmqpCondition.NOT_IMPLEMENTED,
            )
        if posting is None:
            posting = self.look(delivery.payload, producer.peer.container, producer.peer.rights)
        target = producer.queue or producer.topic or self._route(producer, posting)
        return self.arrive(
            delivery.payload, producer.peer.container, posting, target, self._scribe.actor_number(producer)
        )

    def look(self, payload: bytes, container: str, rights: Rights) -> Posting:
        """Return what the message says of itself. Raises DecodeError or Refused."""
        if not payload:
            # A message without a body is none either (3.2), but clients send such; one without anything is a mistake.
            raise DecodeError("a message of 0 bytes: it must have a section (3.2)")
        self.check_cost(payload)
        posting = read_posting(payload)
        posting.due_at_ms = read_due_at(posting.sections, self._scribe.time_us // 1000)
        posting.poster = container
        if posting.user_id is not None:
            rights.check_user_id(posting.user_id)
        return posting

    def arrive(self, payload: bytes, container: str, posting: Posting, target: Queue | Topic, actor: int) -> Arrival:
        """Return the message as it goes to its target."""
        expires_at_ms = expiry(posting, target.policy, self._scribe.time_us // 1000)
        arrival = Arrival(payload, container, posting, target, [], actor, expires_at_ms)
        arrival.queues = self._nodes.queues_of(arrival)
        return arrival

    def _route(self, producer: Producer, posting: Posting) -> Queue | Topic:
        """Return the node that a message on the anonymous terminus goes to."""
        return self._nodes.to_send_to(producer.peer, *self.destination(producer, posting))

    @staticmethod
    def destination(producer: Producer, posting: Posting) -> tuple[str, bool | None]:
        """Return a message's *to*, and what JMS says of it: True for a topic, False for a queue, None for nothing."""
        if posting.to is None:
            raise Refused("the message says no 'to', and neither does the link", condition=AmqpCondition.NOT_FOUND)
        start, end = posting.sections.bounds[MESSAGE_ANNOTATIONS], posting.sections.bounds[PROPERTIES]
        said = map_value(posting.sections.payload[start:end], JMS_DESTINATION) if start != end else None
        if said is not None and said not in _JMS_KINDS:
            raise Refused(
                f"the annotation {JMS_DESTINATION} must be a byte from 0 to 3, not {said!r:.80}",
                condition=AmqpCondition.INVALID_FIELD,
            )
        topic = None if said is None else _JMS_KINDS[said]
        producer.peer.rights.check("send", posting.to)
        return posting.to, topic


__all__ = ["JMS_DESTINATION", "PostingReader"]

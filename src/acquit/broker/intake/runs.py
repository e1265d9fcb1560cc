"""Runs of messages: what came together on one link, taken together where that can be.

It can be where nothing is to be said or done of one of the messages that is not of all: they fit what was learnt of
their sender (a `Template`), none closes its group, and there is room for all of them. Sequences are those that the
messages would have one by one. Ids to detect duplicates by are looked up before anything is done: duplicates are left
out, and answered with the others; where more is to be said of one, all are looked at one by one.

Volatile ones become runs, as `broker.message_run` keeps them: what goes to a topic is one in each of its queues, with
one list of the rests of the payloads; what has several priorities is a run of each. Durable ones for a queue are
recorded together, each by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from acquit.broker.intake.limits import Room
from acquit.broker.intake.templates import Template
from acquit.broker.message import OVERHEAD_BYTES
from acquit.broker.message_run import MessageRun, Recorded
from acquit.errors import StoreFull
from acquit.ledger.events import fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acquit.broker.intake.duplicates import Duplicates
    from acquit.broker.intake.templates import Templates
    from acquit.broker.life import Life
    from acquit.broker.links.endpoints import Producer
    from acquit.broker.nodes.finding import Nodes
    from acquit.broker.nodes.node import Queue
    from acquit.protocol.delivery import ReceivedRun


class _WithIds(NamedTuple):
    """Messages with an id to detect duplicates by."""

    template: Template
    ids: list[tuple[bytes, int]]
    """Id and body fingerprint of each; 0 in place of this where ids are not compared."""
    new: list[int]
    """Places of those that repeat no other."""


class Runs:
    """Takes messages together."""

    def __init__(self, life: Life, nodes: Nodes, duplicates: Duplicates) -> None:
        self._life = life
        self._memory = life.memory
        self._nodes = nodes
        self._duplicates = duplicates

    def of(self, producer: Producer, run: ReceivedRun) -> list[MessageRun]:
        """Return what came together, for each of its queues; nothing where one must be looked at by itself."""
        queues = self.queues(producer, durable=False)
        if not queues or run.message_format:
            return []
        payloads: Sequence[bytes] = run.payloads
        identified = self._identified(producer, payloads)
        if identified is None:
            alike = _alike(producer.templates, payloads)
        else:
            if len(identified.new) < len(payloads):
                payloads = [payloads[place] for place in identified.new]
            alike = {identified.template: range(len(payloads))}
        if not alike or not payloads:
            return []
        count, payload_bytes = len(payloads), sum(map(len, payloads))
        cost = payload_bytes + count * OVERHEAD_BYTES
        for queue in queues:
            if not Room(queue, self._memory).fits(count, payload_bytes, durable=False):
                return []
        if self._memory.left < cost * len(queues):
            return []
        time_us = self._life.scribe.time_us
        step = len(queues)
        try:
            first = self._life.scribe.sequences.take_all(count * step, time_us)
        except StoreFull:
            return []
        if identified is not None:
            self._duplicates.entered_together(queues[0], identified.ids, identified.new, range(first, first + count))
        runs = []
        for template, places in alike.items():
            part = payloads
            if len(places) < count:
                part = [payloads[place] for place in places]
            sizes = list(map(len, part))
            run_bytes, size_max, rests = sum(sizes), max(sizes), template.rests(part)
            for at, queue in enumerate(queues):
                sequences: Sequence[int] = range(first + at, first + count * step, step)
                if len(places) < count:
                    sequences = [sequences[place] for place in places]
                runs.append(MessageRun(queue, sequences, template, rests, run_bytes, size_max, time_us))
        return runs

    def recorded(self, producer: Producer, run: ReceivedRun) -> tuple[MessageRun, int] | None:
        """Record what came together, durable messages for one queue, up to the first for which there is no room on the
        disk. Return them, and how many deliveries were taken with them: duplicates are among these. None where one must
        be looked at by itself."""
        queues, template = self.queues(producer, durable=True), producer.templates.latest
        if not queues or template is None or run.message_format:
            return None
        payloads: Sequence[bytes] = run.payloads
        identified = self._identified(producer, payloads)
        if identified is not None:
            if len(identified.new) < len(payloads):
                payloads = [payloads[place] for place in identified.new]
        elif not template.fits_all(payloads):
            return None
        queue = queues[0]
        count, sizes = len(payloads), list(map(len, payloads))
        if not count or not Room(queue, self._memory).fits(count, sum(sizes), durable=True):
            return None
        scribe = self._life.scribe
        time_us, address = scribe.time_us, queue.address.encode()
        actor = scribe.actor_number(producer)
        try:
            first = scribe.sequences.take_all(count, time_us)
        except StoreFull:
            return None
        sequences = range(first, first + count)
        if identified is None:
            metas = template.metas(address, payloads)
        else:
            ids, new = identified.ids, identified.new
            meta = template.meta_of_identified
            metas = [meta(address, payload, *ids[place]) for payload, place in zip(payloads, new, strict=True)]
        positions, fingerprints = scribe.recorder.posted_together(
            sequences, queue.number, payloads, metas, time_us, actor
        )
        taken = entered = len(positions)
        if not entered:
            return None
        if identified is not None:
            taken = len(ids) if entered == count else new[entered]
            self._duplicates.entered_together(queue, ids[:taken], new[:entered], sequences, positions, actor)
        if entered < count:
            sequences, payloads, sizes = sequences[:entered], payloads[:entered], sizes[:entered]
        rests, recorded = template.rests(payloads), Recorded(self._life, positions, fingerprints)
        return MessageRun(queue, sequences, template, rests, sum(sizes), max(sizes), time_us, recorded), taken

    def _identified(self, producer: Producer, payloads: Sequence[bytes]) -> _WithIds | None:
        """Return the ids of messages that all have one to detect duplicates by, and are alike but for that; None for
        others, and where one of them must be looked at by itself."""
        template = producer.templates.latest
        if template is None or producer.queue is None:
            return None
        known = template.identified_all(payloads)
        if known is None:
            return None
        detects = self._duplicates.detects(producer.queue)
        ids = [
            (identity, fingerprint(payload[body_at:]) if detects else 0)
            for payload, (identity, body_at) in zip(payloads, known, strict=True)
        ]
        new = self._duplicates.new_of(producer.queue, ids, durable=template.durable)
        return None if new is None else _WithIds(template, ids, new)

    def queues(self, producer: Producer, *, durable: bool) -> list[Queue]:
        """The queues that a link's messages, durable or volatile, enter together, if they are like the latest; none
        where they do not."""
        template = producer.templates.latest
        if template is None or template.durable is not durable or producer.link.stateful:
            return []
        if template.marked and (durable or template.closes_group):
            return []
        if producer.remembers:
            return []
        if durable and (producer.queue is None or not producer.queue.durable):
            return []  # of a topic's copies one has the record
        if producer.topic is not None:
            queues = self._nodes.plain_routes(producer.topic)
            if any(queue.subscription is not None and queue.subscription.filtered for queue in queues):
                return []
        else:
            queues = [] if producer.queue is None else [producer.queue]
        return queues if all(queue.plain and not queue.browsers for queue in queues) else []


def _alike(templates: Templates, payloads: Sequence[bytes]) -> dict[Template, Sequence[int]]:
    """Return where the payloads are that fit each template, each of another priority; nothing where one fits none
    that a run may have."""
    alike = templates.alike(payloads)
    if any(template.durable or template.closes_group for template in alike):
        return {}
    apart = len({template.priority for template in alike}) == len(alike)  # so no order between them is lost
    return alike if apart else {}


__all__ = ["Runs"]

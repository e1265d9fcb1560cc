"""Runs of messages: what came together on one link, as `broker.message_run` keeps it, where that can be.

It can be where nothing is to be said or done of one of the messages that is not of all: they are volatile, fit what was
learnt of their sender (`shaping.Template`), carry no group and no id to compare, and there is room for all of them.
What goes to a topic is a run in each of its queues, with the same payloads; what has several priorities is a run of
each. Sequences are those that the messages would have one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acquit.broker.intake.limits import Room
from acquit.broker.message import OVERHEAD_BYTES
from acquit.broker.message_run import MessageRun
from acquit.errors import StoreFull

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acquit.broker.intake.shaping import Template, Templates
    from acquit.broker.life import Life
    from acquit.broker.links.endpoints import Producer
    from acquit.broker.nodes.finding import Nodes
    from acquit.broker.nodes.node import Queue
    from acquit.protocol.delivery import ReceivedRun


class Runs:
    """Makes runs of messages."""

    def __init__(self, life: Life, nodes: Nodes) -> None:
        self._life = life
        self._memory = life.memory
        self._nodes = nodes

    def of(self, producer: Producer, run: ReceivedRun) -> list[MessageRun]:
        """Return what came together, for each of its queues; nothing where one must be looked at by itself."""
        queues = self.queues(producer)
        alike = _alike(producer.templates, run.payloads) if queues and not run.message_format else {}
        if not alike:
            return []
        count, payload_bytes = len(run.payloads), sum(map(len, run.payloads))
        cost = payload_bytes + count * OVERHEAD_BYTES
        for queue in queues:
            room = Room(queue, self._memory)
            if room.messages < count or min(room.bytes, room.volatile) < cost:
                return []
        if self._memory.left < cost * len(queues):
            return []
        time_us = self._life.scribe.time_us
        step = len(queues)
        try:
            first = self._life.scribe.sequences.take_all(count * step, time_us)
        except StoreFull:
            return []
        runs = []
        for template, places in alike.items():
            payloads: Sequence[bytes] = run.payloads
            if len(places) < count:
                payloads = [payloads[place] for place in places]
            sizes = list(map(len, payloads))
            run_bytes, size_max = sum(sizes), max(sizes)
            for at, queue in enumerate(queues):
                sequences: Sequence[int] = range(first + at, first + count * step, step)
                if len(places) < count:
                    sequences = [sequences[place] for place in places]
                runs.append(MessageRun(queue, sequences, template, payloads, run_bytes, size_max, time_us))
        return runs

    def queues(self, producer: Producer) -> list[Queue]:
        """The queues that a link's messages enter as runs, if they are like the latest; none where they do not."""
        template = producer.templates.latest
        if template is None or template.durable or template.marked or producer.link.stateful:
            return []
        if producer.resumable is not None or producer.mark is not None:
            return []
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
    latest = templates.latest
    if latest is not None and all(map(latest.fits, payloads)):
        return {latest: range(len(payloads))}
    alike: dict[Template, list[int]] = {}
    for place, payload in enumerate(payloads):
        template = templates.of(payload)
        if template is None or template.durable or template.marked:
            return {}
        alike.setdefault(template, []).append(place)
    apart = len({template.priority for template in alike}) == len(alike)  # so no order between them is lost
    return {**alike} if apart else {}


__all__ = ["Runs"]

"""Figures for Prometheus, by its own client library, from one survey of the broker.

The registry is made for each answer, from plain data: nothing is counted here that the broker does not count anyway.
The number of series is bounded: beyond `queues_max` queues, the rest is summed up as ``queue="_other"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

from acquit._version import version
from acquit.broker.admin.later import RequestFailure
from acquit.broker.durations import BOUNDS_S, Durations

if TYPE_CHECKING:
    from acquit.broker.access.permissions import Rights
    from acquit.broker.inspect import QueueSnapshot
    from acquit.broker.survey import Survey
    from acquit.http.bridge import Bridge

OTHER: Final = "_other"

_COUNTERS: Final = {
    "entered": ("posted", "Messages that entered the queue, however they came."),
    "duplicates": ("duplicates", "Postings that only repeated a message, and were answered without entering."),
    "unrouted": ("unrouted", "Messages posted to a topic that no subscription took."),
    "rolled_back": ("rolled_back", "Postings of transactions that never entered."),
}
"""Counters of a queue: attribute, name, meaning."""
_OUTCOMES: Final = (
    "accepted",
    "consumed",
    "dead_lettered",
    "expired",
    "dropped",
    "displaced",
    "moved_out",
    "purged",
    "lost_volatile",
)
"""Ways in which messages leave a queue: each is an outcome of ``acquit_queue_retired_total``."""
_STATES: Final = ("pending", "available", "acquired", "scheduled", "suspended")
_GAUGES: Final = {
    "consumers": ("consumers", "Links that receive from the queue."),
    "producers": ("producers", "Links that send to the queue."),
    "body_bytes": ("body_bytes", "Bytes of all messages in the queue."),
    "memory_bytes": ("memory_bytes", "Bytes of those messages whose bodies are in memory."),
    "undeliverable": ("undeliverable_messages", "Available messages that no present consumer may have."),
}
_ATTRIBUTES: Final = (*_COUNTERS, *_OUTCOMES, *_STATES, *_GAUGES)


class Metrics:
    """The figures of one broker. Belongs to the loop of the HTTP interface."""

    def __init__(self, bridge: Bridge, queues_max: int) -> None:
        self._bridge = bridge
        self._queues_max = queues_max
        registry = CollectorRegistry(auto_describe=False)
        for kind in (ProcessCollector, PlatformCollector, GCCollector):
            kind(registry=registry)
        self._process = registry

    async def render(self, user: str | None) -> bytes:
        """Return the figures, in Prometheus' text form. Raises RequestFailure, also for a user who may see no queue."""
        rights = self._bridge.server.keys.permissions.of(user)
        if not (rights.anywhere("browse") or rights.anywhere("manage")):
            raise RequestFailure(403, f"{rights.who} may not see any queue: no role gives the permission to browse")
        found = await self._bridge.survey()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Found(families(found, rights, self._bridge, self._queues_max)))
        return generate_latest(registry) + generate_latest(self._process)


class _Found:
    """A collector of what is there already."""

    def __init__(self, found: Iterator[Metric]) -> None:
        self._found = list(found)

    def describe(self) -> Iterable[Metric]:
        """Return no description: names are ours alone."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the figures."""
        return self._found


def families(found: Survey, rights: Rights, bridge: Bridge, queues_max: int) -> Iterator[Metric]:
    """Yield the figures of a survey, of the queues that the user may see."""
    seen = [
        one for one in found.broker.queues if rights.may("browse", one.address) or rights.may("manage", one.address)
    ]
    rows = _rows(seen, queues_max)
    for attribute, (name, text) in _COUNTERS.items():
        yield _family(CounterMetricFamily, f"acquit_queue_{name}", text, rows, attribute)
    retired = CounterMetricFamily(
        "acquit_queue_retired", "Messages that left the queue, by what became of them.", labels=("queue", "outcome")
    )
    depth = GaugeMetricFamily("acquit_queue_messages", "Messages in the queue, by state.", labels=("queue", "state"))
    for queue, row in rows.items():
        for outcome in _OUTCOMES:
            retired.add_metric((queue, outcome), row[outcome])
        for state in _STATES:
            depth.add_metric((queue, state), row[state])
    yield retired
    yield depth
    for attribute, (name, text) in _GAUGES.items():
        yield _family(GaugeMetricFamily, f"acquit_queue_{name}", text, rows, attribute)
    yield _gauge("acquit_queues", "Queues, subscriptions and topics.", len(seen))
    yield from _whole(found, bridge)


def _rows(queues: list[QueueSnapshot], queues_max: int) -> dict[str, dict[str, int]]:
    """Return the figures of the queues with most in them by name, and the sums of the others."""
    queues = sorted(queues, key=lambda one: (-one.depth, -one.entered, one.name))
    rows: dict[str, dict[str, int]] = {}
    for place, queue in enumerate(queues):
        name = queue.name if place < queues_max and queue.name != OTHER else OTHER
        row = rows.setdefault(name, dict.fromkeys(_ATTRIBUTES, 0))
        for attribute in _ATTRIBUTES:
            row[attribute] += getattr(queue, attribute)
    return rows


def _whole(found: Survey, bridge: Bridge) -> Iterator[Metric]:
    """Yield the figures of the broker as a whole."""
    figures, connections = found.figures, found.broker.connections
    yield InfoMetricFamily("acquit", "The broker.", {"version": version(), "broker_id": found.broker.broker_id})
    refused = CounterMetricFamily(
        "acquit_refused", "Links and messages that were refused, by the condition.", labels=("what", "condition")
    )
    for (what, condition), count in sorted(figures.refused.items()):
        refused.add_metric((what, condition), count)
    yield refused
    for name, text, value in (
        ("connections", "Connections of AMQP.", len(connections)),
        ("connections_blocked", "Connections whose peers do not read.", sum(not one.writable for one in connections)),
        ("sessions", "Sessions.", sum(one.sessions for one in connections)),
        ("links", "Links.", sum(one.links for one in connections)),
        ("unsettled_deliveries", "Deliveries without an outcome.", sum(one.unsettled for one in connections)),
        ("transactions", "Transactions that are open.", figures.transactions),
        ("memory_bytes", "Messages in memory.", figures.memory_bytes),
        ("memory_limit_bytes", "limits.memory_bytes_max.", bridge.server.options.limits.memory_bytes_max),
        ("journal_segments", "Segments of the journal.", figures.segments),
        ("journal_segment_bytes", "Bytes of these files.", figures.segment_bytes),
        ("journal_pending_bytes", "Bytes that wait to be written.", figures.journal_pending_bytes),
        ("disk_free_bytes", "Bytes that the disk of the data folder has left.", bridge.server.disk_free_bytes()),
        ("accepting", "1 while postings are taken, 0 while the disk is full.", int(found.broker.accepting)),
        ("warnings", "Things that somebody should see to.", len(found.broker.warnings)),
    ):
        yield _gauge(f"acquit_{name}", text, value)
    yield CounterMetricFamily("acquit_journal_written_bytes", "Bytes written to the journal.", figures.journal_bytes)
    yield _histogram(
        "acquit_journal_sync_seconds", "Time from the begin of a batch until it is durable.", bridge.server.syncs
    )
    yield _histogram("acquit_loop_lag_seconds", "Time until the broker's loop comes to a request.", bridge.lag)


def _family(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    text: str,
    rows: Mapping[str, Mapping[str, int]],
    attribute: str,
) -> Metric:
    family = kind(name, text, labels=("queue",))
    for queue, row in rows.items():
        family.add_metric((queue,), row[attribute])
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value)


def _histogram(name: str, text: str, durations: Durations) -> Metric:
    sums = list(accumulate(durations.counts))
    buckets = [(f"{bound:g}", count) for bound, count in zip((*BOUNDS_S, float("inf")), sums, strict=True)]
    buckets[-1] = "+Inf", sums[-1]
    return HistogramMetricFamily(name, text, buckets, durations.sum_s)


__all__ = ["CONTENT_TYPE", "OTHER", "Metrics", "families"]

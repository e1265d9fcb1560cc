"""Figures for Prometheus, by its own client library, from one survey of the broker.

The registry is made for each answer, from plain data: nothing is counted here that the broker does not count anyway.
The number of series is bounded: beyond `queues_max` queues, the rest is summed up as ``queue="_other"``. A broker whose
loop does not answer, or that stops, cannot be surveyed: then there are the figures of its health and its process alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from operator import add
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
from acquit.broker.durations import STAY_BOUNDS_S, DurationsSnapshot
from acquit.broker.tally import HOLD_ENDS
from acquit.http.health import REASONS

if TYPE_CHECKING:
    from acquit.broker.access.permissions import Rights
    from acquit.broker.inspect import QueueSnapshot
    from acquit.broker.survey import Survey
    from acquit.broker.tally import TallySnapshot
    from acquit.http.bridge import Bridge
    from acquit.http.health import Health

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
_TALLIED: Final = {
    "acquired": ("acquired", "Messages that were handed out, each attempt counted, pre-settled links included."),
    "redelivered": ("redelivered", "Of these, messages that had been handed out before."),
    "read": ("read", "Outcomes of reading in a non-destructive queue, where messages stay."),
}
"""Counters of a queue's tally: attribute, name, meaning."""
_STAYS: Final = {
    "in_queue": (
        "acquit_queue_wait_seconds",
        "Time from posting until a message was handed out. Messages handed to one link at once count as the first.",
    ),
    "held": (
        "acquit_queue_held_seconds",
        "Time for which a consumer held a message. A sample: of each link one message at a time, of one run in eight.",
    ),
}
"""Histograms of a queue's tally: attribute, name, meaning."""
SILENT: Final = frozenset({"loop_late", "stopping"})
"""Reasons of not being ready in which a survey would not come to an end."""


class Metrics:
    """The figures of one broker. Belongs to the loop of the HTTP interface."""

    def __init__(self, bridge: Bridge, health: Health, queues_max: int) -> None:
        self._bridge = bridge
        self._health = health
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
        reason = await self._health.reason()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Found(_ready(reason)))
        if reason not in SILENT:
            found = await self._bridge.survey()
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
    ages = GaugeMetricFamily(
        "acquit_queue_oldest_age_seconds",
        "Age of the oldest available message, 0 without one; of queues that are summed up, of the oldest of all.",
        labels=("queue",),
    )
    oldest_ms = dict.fromkeys(rows, 0)
    for one in seen:
        row_of = _row_of(one, rows)
        oldest_ms[row_of] = max(oldest_ms[row_of], one.oldest_age_ms)
    for name, age_ms in oldest_ms.items():
        ages.add_metric((name,), age_ms / 1000)
    yield ages
    yield from _tallied(found, seen, rows)
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


def _row_of(queue: QueueSnapshot, rows: Mapping[str, object]) -> str:
    return queue.name if queue.name in rows and queue.name != OTHER else OTHER


def _tallied(found: Survey, queues: list[QueueSnapshot], rows: Mapping[str, object]) -> Iterator[Metric]:
    """Yield what queues count beside their accounts, in the same rows. Topics hold nothing, and count none of it."""
    tallies: dict[str, list[TallySnapshot]] = {}
    for queue in queues:
        if queue.name in found.tallies and "topic" not in queue.kind:
            tallies.setdefault(_row_of(queue, rows), []).append(found.tallies[queue.name])
    for attribute, (name, text) in _TALLIED.items():
        family = CounterMetricFamily(f"acquit_queue_{name}", text, labels=("queue",))
        for row, some in tallies.items():
            family.add_metric((row,), sum(getattr(one, attribute) for one in some))
        yield family
    ended = CounterMetricFamily(
        "acquit_queue_outcomes",
        "Messages that consumers had been handed and hold no more, by what they said, or how their link ended.",
        labels=("queue", "outcome"),
    )
    for row, some in tallies.items():
        for outcome, count in zip(HOLD_ENDS, _sums(one.ended for one in some), strict=True):
            ended.add_metric((row, outcome), count)
    yield ended
    for attribute, (name, text) in _STAYS.items():
        histogram = HistogramMetricFamily(name, text, labels=("queue",))
        for row, some in tallies.items():
            stays: list[DurationsSnapshot] = [getattr(one, attribute) for one in some]
            counts, sum_s = _sums(one.counts for one in stays), sum(one.sum_s for one in stays)
            histogram.add_metric((row,), _buckets(DurationsSnapshot(STAY_BOUNDS_S, counts, sum_s)), sum_s)
        yield histogram


def _sums(rows: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the sum of rows of one length, column by column."""
    first, *others = rows
    for row in others:
        first = tuple(map(add, first, row))
    return first


def _ready(reason: str | None) -> Iterator[Metric]:
    """Yield whether the broker is ready, and if not, why."""
    yield _gauge("acquit_ready", "1 where the broker takes and hands out messages, as /readyz says.", reason is None)
    why = GaugeMetricFamily("acquit_not_ready", "1 for the reason why it is not ready.", labels=("reason",))
    for key in REASONS:
        why.add_metric((key,), key == reason)
    yield why


def _whole(found: Survey, bridge: Bridge) -> Iterator[Metric]:
    """Yield the figures of the broker as a whole."""
    figures, connections = found.figures, found.broker.connections
    yield InfoMetricFamily("acquit", "The broker.", {"version": version(), "broker_id": found.broker.broker_id})
    refused = CounterMetricFamily(
        "acquit_refused",
        "Links, messages, connections and logins that were refused, by the condition.",
        labels=("what", "condition"),
    )
    for (what, condition), count in sorted(figures.refused.items()):
        refused.add_metric((what, condition), count)
    yield refused
    for name, text, value in (
        ("connections", "Connections of AMQP.", len(connections)),
        ("connections_limit", "Connections that are let in at once.", figures.connections_max),
        ("connections_blocked", "Connections whose peers do not read.", sum(not one.writable for one in connections)),
        ("sessions", "Sessions.", sum(one.sessions for one in connections)),
        ("links", "Links.", sum(one.links for one in connections)),
        ("unsettled_deliveries", "Deliveries without an outcome.", sum(one.unsettled for one in connections)),
        (
            "oldest_unsettled_seconds",
            "Age of the oldest delivery without an outcome, to about a second; 0 without one.",
            max((one.oldest_unsettled_ms for one in connections), default=0) / 1000,
        ),
        (
            "links_starved",
            "Links that receive and have no credit, while messages are available for them.",
            sum(one.credit_starved for one in connections),
        ),
        ("transactions", "Transactions that are open.", figures.transactions),
        ("memory_bytes", "Messages in memory.", figures.memory_bytes),
        ("memory_limit_bytes", "limits.memory_bytes_max.", bridge.server.options.limits.memory_bytes_max),
        ("journal_segments", "Segments of the journal.", figures.segments),
        ("journal_segment_bytes", "Bytes of these files.", figures.segment_bytes),
        ("journal_pending_bytes", "Bytes that wait to be written.", figures.journal_pending_bytes),
        ("disk_free_bytes", "Bytes that the disk of the data folder has left.", bridge.server.disk_free_bytes()),
        ("disk_bytes", "Size of that disk.", bridge.server.disk_bytes()),
        ("accepting", "1 while postings are taken, 0 while the disk is full.", int(found.broker.accepting)),
        ("warnings", "Things that somebody should see to.", len(found.broker.warnings)),
    ):
        yield _gauge(f"acquit_{name}", text, value)
    yield CounterMetricFamily("acquit_journal_written_bytes", "Bytes written to the journal.", figures.journal_bytes)
    for name, text, durations in (
        ("journal_sync", "Time from the begin of a batch until it is durable.", bridge.server.syncs),
        (
            "posting_durable",
            "Time from the arrival of a message until it is durable. Those written together count as the first.",
            bridge.server.postings,
        ),
        ("loop_lag", "How late the broker's loop comes to what is due: a tick each second, requests.", bridge.lag),
    ):
        found_s = durations.snapshot()
        yield HistogramMetricFamily(f"acquit_{name}_seconds", text, _buckets(found_s), found_s.sum_s)


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


def _buckets(durations: DurationsSnapshot) -> list[tuple[str, float]]:
    bounds = [*(f"{bound:g}" for bound in durations.bounds_s), "+Inf"]
    return list(zip(bounds, accumulate(durations.counts), strict=True))


__all__ = ["CONTENT_TYPE", "OTHER", "SILENT", "Metrics", "families"]

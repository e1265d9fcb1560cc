"""Figures for Prometheus, by its own client library, from what the broker's operation READ of its metrics gives.

The registry is made for each answer, from plain data: nothing is counted here that the broker does not count anyway.
The number of series is bounded: beyond `queues_max` queues, the rest is summed up as ``queue="_other"``, by the broker,
which makes no rows of it; its counters only grow. An answer is good for a second, so that who asks more often costs the
broker nothing more. A broker whose loop does not answer, or that stops, cannot be asked: then there are the figures of
its health and its process alone. Figures of the broker as a whole, and those of its process, are for who may browse or
manage all addresses; others are told a few.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

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
from acquit.broker.admin.operations import check_browse_any, operation
from acquit.broker.durations import STAY_BOUNDS_S, DurationsSnapshot
from acquit.broker.snapshots import RETIRED_FIGURES
from acquit.broker.tally import HOLD_ENDS
from acquit.http.health import REASONS
from acquit.protocol.extensions import METRICS

if TYPE_CHECKING:
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
_STATES: Final = ("pending", "available", "acquired", "scheduled", "suspended")
_GAUGES: Final = {
    "consumers": ("consumers", "Links that receive from the queue."),
    "producers": ("producers", "Links that send to the queue."),
    "body_bytes": ("body_bytes", "Bytes of all messages in the queue."),
    "memory_bytes": ("memory_bytes", "Bytes of those messages whose bodies are in memory."),
    "undeliverable": ("undeliverable_messages", "Available messages that no present consumer may have."),
}
_Row = Mapping[str, float]
"""The figures of one queue by the names of `admin.survey.MEASURED`, whether it is a topic, and an age."""
GOOD_S: Final = 1.0
"""Seconds for which an answer is good."""
_TALLIED: Final = {
    "acquisitions": ("acquired", "Messages that were handed out, each attempt counted, pre-settled links included."),
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
_REFUSALS: Final = (
    ("connection", "amqp:resource-limit-exceeded"),
    ("login", "amqp:unauthorized-access"),
    ("message", "amqp:resource-limit-exceeded"),
)
"""Refusals that are told from the beginning, so that the first one is an increase."""
SILENT: Final = frozenset({"loop_late", "stopping"})
"""Reasons of not being ready in which the broker would not answer."""


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
        self._found: dict[str | None, tuple[float, asyncio.Task[bytes]]] = {}

    async def render(self, user: str | None, peer: str) -> bytes:
        """Return the figures, in Prometheus' text form, as this user may see them, who asks from the address `peer`.
        Raises RequestFailure, also for a user who may see no queue."""
        now = time.monotonic()
        self._found = {one: known for one, known in self._found.items() if _is_good(*known, now)}
        if user not in self._found:
            self._found[user] = now, asyncio.create_task(self._render(user, peer))
        return await asyncio.shield(self._found[user][1])

    async def _render(self, user: str | None, peer: str) -> bytes:
        reason, rights = await self._health.reason(), self._bridge.server.keys.permissions.of(user)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Found(_ready(reason)))
        if reason in SILENT:
            check_browse_any(rights)
        else:
            wanted = operation("READ", METRICS)
            found = await self._bridge.manage(wanted, user, None, {"limit": self._queues_max, "increasing": True}, peer)
            assert isinstance(found, dict)
            registry.register(_Found(families(found, self._bridge)))
        return generate_latest(registry) + (generate_latest(self._process) if rights.sees_broker else b"")


def _is_good(at: float, task: asyncio.Task[bytes], now: float) -> bool:
    """Return whether an answer that was begun then is good for who asks now."""
    return now - at < GOOD_S and not (task.done() and (task.cancelled() or task.exception() is not None))


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


def families(found: Mapping[Any, Any], bridge: Bridge) -> Iterator[Metric]:
    """Yield the figures that the broker has given."""
    rows = _rows(found)
    for attribute, (name, text) in _COUNTERS.items():
        yield _family(CounterMetricFamily, f"acquit_queue_{name}", text, rows, attribute)
    retired = CounterMetricFamily(
        "acquit_queue_retired", "Messages that left the queue, by what became of them.", labels=("queue", "outcome")
    )
    depth = GaugeMetricFamily("acquit_queue_messages", "Messages in the queue, by state.", labels=("queue", "state"))
    for queue, row in rows.items():
        for outcome in RETIRED_FIGURES:
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
    for name, row in rows.items():
        ages.add_metric((name,), row["oldest_age_ms"] / 1000)
    yield ages
    yield from _tallied({name: row for name, row in rows.items() if not row["is_topic"]})
    yield _gauge("acquit_queues", "Queues, subscriptions and topics.", found["queues"])
    yield from _whole(found, bridge)


def _rows(found: Mapping[Any, Any]) -> dict[str, _Row]:
    """Return the figures of queues by name, and the sums of the others."""
    _, *names = found["attributeNames"]
    rows: dict[str, _Row] = {}
    for name, *values in (*found["results"], *([[OTHER, *found["other"][1:]]] if found["other"] else [])):
        row = dict(zip(names, values, strict=True))
        # A queue and a topic may have one name, and a queue that of the others.
        rows[name] = _added(rows[name], row) if name in rows else row
    return rows


def _added(one: _Row, other: _Row) -> _Row:
    both = {key: value + other[key] for key, value in one.items()}
    oldest_ms = max(one["oldest_age_ms"], other["oldest_age_ms"])
    return both | {"is_topic": one["is_topic"] and other["is_topic"], "oldest_age_ms": oldest_ms}


def _tallied(rows: Mapping[str, _Row]) -> Iterator[Metric]:
    """Yield what queues count beside their accounts. Topics hold nothing, and count none of it."""
    for attribute, (name, text) in _TALLIED.items():
        yield _family(CounterMetricFamily, f"acquit_queue_{name}", text, rows, attribute)
    ended = CounterMetricFamily(
        "acquit_queue_outcomes",
        "Messages that consumers had been handed and hold no more, by what they said, or how their link ended.",
        labels=("queue", "outcome"),
    )
    for queue, row in rows.items():
        for outcome in HOLD_ENDS:
            ended.add_metric((queue, outcome), row[f"ended_{outcome}"])
    yield ended
    for attribute, (name, text) in _STAYS.items():
        histogram = HistogramMetricFamily(name, text, labels=("queue",))
        for queue, row in rows.items():
            counts = tuple(int(row[f"{attribute}_{place}"]) for place in range(len(STAY_BOUNDS_S) + 1))
            if not any(counts):
                continue  # most queues of many are idle, and a histogram is fifteen series
            sum_s = row[f"{attribute}_s"]
            histogram.add_metric((queue,), _buckets(DurationsSnapshot(STAY_BOUNDS_S, counts, sum_s)), sum_s)
        yield histogram


def _ready(reason: str | None) -> Iterator[Metric]:
    """Yield whether the broker is ready, and if not, why."""
    yield _gauge("acquit_ready", "1 where the broker takes and hands out messages, as /readyz says.", reason is None)
    why = GaugeMetricFamily("acquit_not_ready", "1 for the reason why it is not ready.", labels=("reason",))
    for key in REASONS:
        why.add_metric((key,), key == reason)
    yield why


def _whole(found: Mapping[Any, Any], bridge: Bridge) -> Iterator[Metric]:
    """Yield the figures of the broker as a whole, as far as they were told."""
    connections = found.get("connections")
    told_version = {} if connections is None else {"version": version()}
    yield InfoMetricFamily("acquit", "The broker.", {**told_version, "broker_id": found["broker_id"]})
    yield _gauge("acquit_accepting", "1 while postings are taken, 0 while the disk is full.", int(found["accepting"]))
    yield _gauge("acquit_warnings", "Things that somebody should see to.", found["warnings"])
    if connections is None:
        return
    refused = CounterMetricFamily(
        "acquit_refused",
        "Links, messages, connections and logins that were refused, by the condition.",
        labels=("what", "condition"),
    )
    counts = {
        **dict.fromkeys(_REFUSALS, 0),
        **{(what, condition): count for what, condition, count in found["refused"]},
    }
    for (what, condition), count in sorted(counts.items()):
        refused.add_metric((what, condition), count)
    yield refused
    for name, text, value in (
        ("connections", "Connections of AMQP.", connections["connections"]),
        ("connections_limit", "Connections that are let in at once.", found["connections_max"]),
        ("connections_blocked", "Connections whose peers do not read.", connections["blocked"]),
        ("sessions", "Sessions.", connections["sessions"]),
        ("links", "Links.", connections["links"]),
        ("unsettled_deliveries", "Deliveries without an outcome.", connections["unsettled"]),
        (
            "oldest_unsettled_seconds",
            "Age of the oldest delivery without an outcome, to about a second; 0 without one.",
            connections["oldest_unsettled_ms"] / 1000,
        ),
        (
            "links_starved",
            "Links that receive and have no credit, while messages are available for them.",
            connections["starved"],
        ),
        ("transactions", "Transactions that are open.", found["transactions"]),
        ("memory_bytes", "Messages in memory.", found["memory_bytes"]),
        ("memory_limit_bytes", "limits.memory_bytes_max.", bridge.server.options.limits.memory_bytes_max),
        ("journal_segments", "Segments of the journal.", found["segments"]),
        ("journal_segment_bytes", "Bytes of these files.", found["segment_bytes"]),
        ("journal_pending_bytes", "Bytes that wait to be written.", found["journal_pending_bytes"]),
    ):
        yield _gauge(f"acquit_{name}", text, value)
    if (room := bridge.server.disk_room()) is not None:
        yield _gauge("acquit_disk_free_bytes", "Bytes that the disk of the data folder has left.", room[0])
        yield _gauge("acquit_disk_bytes", "Size of that disk.", room[1])
    yield CounterMetricFamily("acquit_journal_written_bytes", "Bytes written to the journal.", found["journal_bytes"])
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
    rows: Mapping[str, _Row],
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

"""Figures of a query: there and back through what Spark carries."""

from __future__ import annotations

import json

from acquit.spark.metrics import SourceMetrics, metrics_of, plain

METRICS = SourceMetrics(
    epoch=7,
    rows=100,
    set_aside=2,
    poison=3,
    rejected=1,
    conflicts=0,
    unidentified=4,
    stale=1,
    spool_bytes=1 << 20,
    oldest_epoch=None,
    queue_depth={"orders": 5, "elsewhere": None},
)


def test_names_are_written_as_spark_writes_its_own() -> None:
    assert list(plain(METRICS)) == [
        "epoch", "rows", "setAside", "poison", "rejected", "conflicts", "unidentified", "stale", "spoolBytes",
        "oldestEpoch", "queueDepth",
    ]  # fmt: skip


def test_what_was_said_is_read_back_from_text_and_from_an_object() -> None:
    said = plain(METRICS)
    assert metrics_of({"sources": [{"latestOffset": json.dumps(said)}, {"latestOffset": said}]}) == [METRICS, METRICS]


def test_other_sources_and_a_source_that_has_said_nothing_yet_are_passed_over() -> None:
    others: list[object] = [None, "null", {"orders": {"0": 7}}, "12", 5, "{}"]
    assert metrics_of({"sources": [{"latestOffset": other} for other in others]}) == []

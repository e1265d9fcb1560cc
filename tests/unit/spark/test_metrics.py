"""Figures of a query: there and back through what Spark carries."""

from __future__ import annotations

import ast
import inspect
import json
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

from acquit.spark.metrics import SourceMetrics, metrics_of, plain

METRICS = SourceMetrics(
    broker="amqp://broker:5672",
    queues=["orders", "elsewhere"],
    epoch=7,
    rows=100,
    set_aside=2,
    poison=3,
    rejected=1,
    conflicts=0,
    unidentified=4,
    stale=1,
    unacknowledged=2,
    spool_bytes=1 << 20,
    oldest_epoch=None,
    queue_depth={"orders": 5, "elsewhere": None},
)


def test_names_are_written_as_spark_writes_its_own() -> None:
    assert list(plain(METRICS)) == [
        "broker", "queues", "epoch", "rows", "setAside", "poison", "rejected", "conflicts", "unidentified",
        "stale", "unacknowledged", "spoolBytes", "oldestEpoch", "queueDepth",
    ]  # fmt: skip


def test_what_was_said_is_read_back_from_text_and_from_an_object() -> None:
    said = plain(METRICS)
    assert metrics_of({"sources": [{"latestOffset": json.dumps(said)}, {"latestOffset": said}]}) == [METRICS, METRICS]


def test_other_sources_and_a_source_that_has_said_nothing_yet_are_passed_over() -> None:
    others: list[object] = [None, "null", {"orders": {"0": 7}}, "12", 5, "{}"]
    assert metrics_of({"sources": [{"latestOffset": other} for other in others]}) == []


def meanings() -> dict[str, str]:
    """What stands under each field, which Python does not keep."""
    (body,) = (node for node in ast.parse(inspect.getsource(SourceMetrics)).body if isinstance(node, ast.ClassDef))
    return {
        field.target.id: " ".join(str(said.value.value).split())
        for field, said in pairwise(body.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(said, ast.Expr) and isinstance(said.value, ast.Constant)
    }


def test_the_page_repeats_the_reference() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "spark.md").read_text()
    assert list(meanings()) == [field.name for field in fields(SourceMetrics)]
    for name, meaning in meanings().items():
        assert f"| `{name}` | {meaning} |\n" in page

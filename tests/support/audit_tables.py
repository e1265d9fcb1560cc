"""Tables and reconciliations as an audit leaves them, made up: for tests that need no journal."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from acquit.spark.audit import anomalies, balance, dead_letters, histories, results
from acquit.spark.audit.counters import NO_COUNTERS
from acquit.spark.audit.reconciled import Against, Finding, Reconciliation
from acquit.spark.report.tables import ENTERED, RETIRED, AuditTables

Row = dict[str, Any]
START = datetime(2026, 3, 4, 6, 0, tzinfo=UTC)
BROKER = "7d3f0a52-52d1-4d0c-9b0a-0f6f2f3f9c11"
SCHEMAS = {
    "minutes": results._minutes(NO_COUNTERS, {}, {}).schema,
    "balance": balance.SCHEMA,
    "anomalies": anomalies.SCHEMA,
    "histories": histories.SCHEMA,
    "dead_letters": dead_letters.SCHEMA,
    "coverage": results.COVERAGE,
}


def table(name: str, rows: Sequence[Row]) -> pa.Table:
    """Rows that say only what matters; counts that they do not mention are 0, other columns null."""
    schema = SCHEMAS[name]
    columns: dict[str, list[object]] = {}
    for field in schema:
        blank: object = None
        if pa.types.is_integer(field.type) and name in ("minutes", "balance"):
            blank = 0
        if pa.types.is_list(field.type):
            blank = []
        columns[field.name] = [row.get(field.name, blank) for row in rows]
    return pa.table(columns, schema=schema)


def tables(**rows: Sequence[Row]) -> AuditTables:
    """Of each table its rows; the others are empty."""
    return {name: table(name, rows.get(name, [])) for name in SCHEMAS}


def minute(at: int, queue: str = "orders", broker: str = BROKER, **counts: object) -> Row:
    """The minute `at`, from the start."""
    return {"broker": broker, "queue": queue, "minute": START + timedelta(minutes=at), **counts}


def histogram(**counts: int) -> list[Row]:
    """``histogram(b80=3)``: three in bucket 80."""
    return [{"bucket": int(name[1:]), "count": count} for name, count in counts.items()]


def balanced(queue: str, broker: str = BROKER, **counts: int) -> Row:
    """A queue in which what entered left, but for what is live."""
    entered = sum(counts.get(name, 0) for name in ENTERED)
    retired = sum(counts.get(name, 0) for name in RETIRED)
    live = entered - retired
    said = {"entered": entered, "retired": retired, "live": live, "live_by_seal": live, "sums_agree": True}
    return {"broker": broker, "queue": queue, **counts, **said, "state": "balanced", "detail": ""}


def reconciliation(counts: Mapping[str, int] | None = None, **said: Any) -> Reconciliation:
    """Of the queue ``orders`` beside a table that has all of it; with `counts` of findings, or anything else said."""
    usual = {
        "against": Against.TABLE,
        "place": "/lake/orders",
        "broker": None,
        "queue": "orders",
        "identity": "sequence",
        "made_at_us": 0,
        "ledger_rows": 2,
        "other_rows": 2,
        "ranges": 1,
        "ranges_differing": 1 if counts else 0,
        "counts": {Finding(name): count for name, count in (counts or {}).items()},
    }
    return Reconciliation(**usual | said)


def day(queue: str, seed: int, broker: str = BROKER, minutes: int = 720, load: int = 900) -> list[Row]:
    """Some hours of a queue with a stall in the middle: minutes, as the table has them."""
    random_ = random.Random(seed)
    waiting, rows = 0, []
    for at in range(minutes):
        posted = max(0, int(random_.gauss(load * (1 + 0.5 * ((at // 60) % 3)), load * 0.12)))
        stalled = minutes * 0.45 < at < minutes * 0.52
        able = 0 if stalled else int(load * 2.4)
        waiting += posted
        done = min(waiting, able)
        dead = random_.randrange(3) if done and at % 7 == 0 else 0
        waiting -= done
        slow = 8 * 8 if stalled or waiting else 0
        rows.append(
            minute(
                at,
                queue,
                broker,
                posted=posted,
                accepted=done - dead,
                dead_lettered=dead,
                depth_change=posted - done,
                acquired=done + 2 * dead,
                modified=2 * dead,
                released=random_.randrange(4) if at % 11 == 0 else 0,
                redelivered=2 * dead,
                latency=[
                    {"bucket": int(random_.gauss(112 + slow, 6)), "count": max(1, done // 6)} for _ in range(6) if done
                ],
                wait=[
                    {"bucket": int(random_.gauss(90 + slow, 4)), "count": max(1, done // 4)} for _ in range(4) if done
                ],
            )
        )
    return rows


def account_of(rows: Sequence[Row], **more: object) -> Row:
    """The balance of a queue whose minutes these are."""
    counts = {name: sum(row.get(name, 0) for row in rows) for name in (*ENTERED, *RETIRED)}
    return {**balanced(rows[0]["queue"], rows[0]["broker"], **counts), **more}

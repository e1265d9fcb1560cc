from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import acquit
from acquit.cli.exits import Exit
from acquit.spark.audit import reconcile as pipeline
from acquit.spark.audit.reconciled import Example, Finding, Reconciliation
from tests.support.audit_tables import reconciliation
from tests.support.audited import audited
from tests.support.shell import Shell


def found(**counts: int) -> Reconciliation:
    named = {Finding(name.replace("_", "-")): count for name, count in counts.items()}
    return reconciliation(
        {finding.value: count for finding, count in named.items()},
        ledger_rows=1_000,
        other_rows=998,
        examples=tuple(
            Example(finding=finding, broker=None, identity="17", ledger="accepted", other="") for finding in named
        ),
        findings="reconciliations/findings-1" if counts else "",
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> tuple[list[pipeline.ReconcileOptions], Callable[[Reconciliation], None]]:
    """The options that the pipeline was called with, and a way to say what it finds."""
    given: list[pipeline.ReconcileOptions] = []
    answers: list[Reconciliation] = [found()]

    def reconcile(options: pipeline.ReconcileOptions, *, on_progress: Callable[[str], None]) -> Reconciliation:
        given.append(options)
        on_progress("comparing")
        return answers[-1]

    monkeypatch.setattr(pipeline, "reconcile", reconcile)
    return given, answers.append


def test_equal_is_success(shell: Shell, asked: tuple[list[pipeline.ReconcileOptions], object], tmp_path: Path) -> None:
    words = ("pipeline", "reconcile", tmp_path, "--queue", "orders", "--table", tmp_path / "table")
    done = shell(*words, "--since", "2026-03-04", "--by", "sequence", "--column", "seq", "--master", "local[2]")
    assert done.code == Exit.OK
    assert done.out == "orders, /lake/orders: equal; 1,000 in the ledger, 998 in the table, by sequence\n"
    (options,) = asked[0]
    assert (options.table, options.receipts, options.column) == (tmp_path / "table", None, "seq")
    assert (options.since, options.complete) == (datetime(2026, 3, 4, tzinfo=UTC), True)


def test_a_difference_is_unsound_and_shown(
    shell: Shell,
    asked: tuple[list[pipeline.ReconcileOptions], Callable[[Reconciliation], None]],
    tmp_path: Path,
) -> None:
    asked[1](found(missing=2))
    words = ("pipeline", "reconcile", tmp_path, "--queue", "orders", "--receipts", tmp_path / "r.csv", "--some")
    done = shell(*words)
    assert done.code == Exit.UNSOUND
    assert "NOT equal" in done.out
    assert "accepted in the ledger, and not in the table" in done.out
    assert f"all of them: {tmp_path}/reconciliations/findings-1" in done.out
    assert asked[0][0].complete is False
    said = json.loads(shell(*words, "--json").out)
    assert (said["equal"], said["counts"]) == (False, {"missing": 2})
    assert said["examples"][0]["sequence"] == "17"


def test_doubts_that_are_answered_are_success(
    shell: Shell,
    asked: tuple[list[pipeline.ReconcileOptions], Callable[[Reconciliation], None]],
    tmp_path: Path,
) -> None:
    asked[1](found(in_doubt_posted=2))
    done = shell("pipeline", "reconcile", tmp_path, "--queue", "orders", "--receipts", tmp_path / "r.csv")
    assert done.code == Exit.OK
    assert "in-doubt-posted" in done.out


def test_what_cannot_be_matched_is_no_difference_and_no_success(
    shell: Shell,
    asked: tuple[list[pipeline.ReconcileOptions], Callable[[Reconciliation], None]],
    tmp_path: Path,
) -> None:
    words = ("pipeline", "reconcile", tmp_path, "--queue", "orders", "--receipts", tmp_path / "r.csv")
    asked[1](found(unmatched=2))
    done = shell(*words)
    assert done.code == Exit.FAILED
    assert "orders, /lake/orders: not all can be matched; 1,000 in the ledger" in done.out
    asked[1](found(unmatched=2, never_posted=1))
    assert shell(*words).code == Exit.UNSOUND


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "expected either a table or receipts, got neither"),
        (("--table", "t", "--receipts", "r"), "either a table or receipts, got both"),
        (("--table", "t", "--column", "seq"), "say with `by`"),
        (("--table", "t", "--since", "2026-03-04", "--until", "2026-03-03"), "since is not before until"),
        (
            ("--table", "t", "--since", "yesterday"),
            "expected a time such as 2026-01-31 or 2026-01-31T12:00 (UTC), found",
        ),
    ],
)
def test_what_cannot_be_is_refused(shell: Shell, tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    done = shell("pipeline", "reconcile", tmp_path, "--queue", "orders", *words)
    assert done.code == Exit.USAGE
    assert text in done.err


def test_a_wrong_place_is_one_line_before_spark_starts(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("acquit.spark.session.start_session", lambda **_: pytest.fail("Spark was started"))
    with acquit.Broker(tmp_path / "data") as broker, acquit.connect(broker.url) as connection:
        connection.session().sender("orders").send("one")
    audited([tmp_path / "data"], tmp_path / "audit")
    words = ("pipeline", "reconcile", tmp_path / "audit", "--queue", "orders")
    (tmp_path / "receipts.csv").write_text("id,outcome\n")
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "0.parquet")
    for option, said in (
        (("--table", tmp_path / "none"), "expected a folder with a table"),
        (("--receipts", tmp_path / "none"), "there is no such file"),
        (("--receipts", tmp_path / "receipts.csv"), "has no column message_id or sequence; it has id, outcome. Say"),
        (
            ("--receipts", tmp_path / "receipts.csv", "--by", "sequence", "--column", "no"),
            "has no column no; it has id",
        ),
        (
            ("--receipts", tmp_path / "receipts.csv", "--column", "id", "--by", "message_id", "--outcome", "state"),
            "has no column state that would say how each send ended",
        ),
        (("--receipts", tmp_path / "0.parquet"), "has no column message_id or sequence; it has body. Say"),
    ):
        ran = shell(*words, *option)
        assert (ran.code, len(ran.err.splitlines())) == (Exit.USAGE, 1)
        assert said in ran.err

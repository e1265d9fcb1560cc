"""The tables about Spark that people wrote name what there is. Those of options and columns are held to the code by the
unit tests of what they list."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pyarrow.parquet as pq
import pytest

import acquit
from acquit.cli.app import acquit as root
from acquit.spark.audit.anomalies import Anomaly
from acquit.spark.audit.options import AuditOptions
from acquit.spark.audit.reconciled import Finding
from acquit.spark.audit.results import AuditResults
from tests.docs.test_client_pages import DOCS, table
from tests.support.audited import audited

PIPELINES = ("audit", "compact", "ingest", "reconcile", "redrive", "report")
PAGES = (
    *(f"{name}.md" for name in PIPELINES),
    *("guarantees.md", "ledger-source.md", "spark-batch.md", "spark-cluster.md", "spark-sink.md", "spark-tutorial.md"),
    *("spark.md", "spool.md"),
)
OTHERS = {"--archives", "--build-arg", "--conf", "--deploy-mode", "--no-cache-dir", "--py-files", "--rm", "--target"}
"""Options of pip, docker and spark-submit; --master and --version are theirs, too."""


def commands(command: click.Command, path: str = "") -> dict[str, click.Command]:
    """All commands by their names in full."""
    found = {path: command}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found |= commands(below, f"{path} {name}".strip())
    return found


COMMANDS = commands(root)


def options(command: click.Command) -> set[str]:
    """As one types them."""
    return {word for parameter in command.params if isinstance(parameter, click.Option) for word in parameter.opts}


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("page", PAGES)
def test_every_option_that_is_named_is_one_of_some_command(page: str) -> None:
    text = (DOCS / page).read_text()
    known = OTHERS.union({"--version"}, *map(options, COMMANDS.values()))
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) <= known


@pytest.mark.parametrize("name", PIPELINES)
def test_what_is_typed_for_a_pipeline_has_its_options(name: str) -> None:
    """In each line of a shell, on whichever page."""
    known = options(COMMANDS[f"pipeline {name}"])
    for page in PAGES:
        text = (DOCS / page).read_text().replace("\\\n", " ")
        for line in re.findall(rf"^\$ acquit pipeline {name} (.*)$", text, re.MULTILINE):
            assert set(re.findall(r"(?<= )--[a-z][a-z-]*", f" {line}")) <= known, (page, line)


def test_the_options_of_an_audit() -> None:
    text = (DOCS / "audit.md").read_text().split("| option of the command |", 1)[1].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines()[2:]]
    assert {field for row in rows for field in quoted(row[1])} == set(AuditOptions.__dataclass_fields__)


def test_every_anomaly() -> None:
    named = [name for row in table("audit.md", "Anomalies")[1:] for name in quoted(row[0])]
    assert sorted(named) == sorted(Anomaly)


def test_every_finding() -> None:
    text = (DOCS / "reconcile.md").read_text().split("## What can differ\n")[1].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)) == sorted(Finding)


def test_the_tables_of_an_audit(tmp_path: Path) -> None:
    """Each has the columns that the page names, and no others."""
    with acquit.Broker(tmp_path / "data") as broker, acquit.connect(broker.url) as connection:
        session = connection.session("individual")
        session.sender("orders").send("one")
        session.receiver("orders").receive(timeout=10).accept()
        session.sender("orders").send("another")
    audited([tmp_path / "data"], tmp_path / "audit")
    results = AuditResults(tmp_path / "audit")
    rows = {quoted(row[0])[0]: quoted(row[2]) for row in table("audit.md", "Tables")[1:]}
    differing = {}
    for name, named in rows.items():
        if name in ("closed", "open"):
            files = getattr(results, f"{name}_files")()
            there = {column for path in files for column in pq.read_schema(path).names}
        else:
            there = set(getattr(results, name)().column_names)
        more = there - set(named) - {"broker", "queue", "queue_number"}
        if name in ("balance", "minutes", "open"):  # counts of kinds of events, and what `closed` has as well
            more = set()
        differing[name] = sorted(more | (set(named) - there))
    assert not any(differing.values()), differing

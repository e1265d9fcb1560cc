from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import acquit
from acquit.cli.exits import Exit
from tests.support.shell import Shell


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--columns", "body,colour"], "columns: colour given; the source has"),
        (["--url", "amqp://me:secret@127.0.0.1"], "url"),
        (["--option", "parts=many"], "parts"),
        (["--option", "partz=1"], "partz"),
        (["--credential", "secret"], "credential"),
    ],
)
def test_wrong_options_are_named_before_spark_starts(
    shell: Shell, tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    ran = shell("pipeline", "ingest", "orders", tmp_path / "table", *arguments)
    assert ran.code == Exit.USAGE
    assert complaint in ran.err
    assert "secret" not in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize("option", ["novalue", "=x"])
def test_an_option_is_a_pair(shell: Shell, tmp_path: Path, option: str) -> None:
    ran = shell("pipeline", "ingest", "orders", tmp_path / "table", "--option", option)
    assert ran.code == Exit.USAGE
    assert f"expected KEY=VALUE, found '{option}'" in ran.err


def test_without_spark_it_says_what_to_install(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without_deltalake(name: str, *rest: Any) -> object:
        return None if name == "deltalake" else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without_deltalake)
    ran = shell("pipeline", "ingest", "orders", tmp_path / "table")
    assert ran.code == Exit.USAGE
    assert ran.err == "acquit: this needs deltalake: pip install 'acquit[spark]'\n"


@pytest.mark.spark
def test_a_queue_into_a_table(at_broker: Shell, broker: acquit.Broker, address: str, tmp_path: Path) -> None:
    """In a process of its own: a Spark session is for ever."""
    from deltalake import DeltaTable

    table = tmp_path / "table"
    at_broker("send", address, "one", "two", "three")
    command = [sys.executable, "-m", "acquit", "pipeline", "ingest", address, str(table)]
    command += ["--url", broker.url, "--columns", "body,address", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == Exit.OK, ran.stderr
    document = json.loads(ran.stdout)
    assert (document["address"], document["rows"], document["taken"]["rows"]) == (address, 3, 3)
    assert DeltaTable(table).to_pyarrow_table().num_rows == 3
    assert at_broker("browse", address).out == ""

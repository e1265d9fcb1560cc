"""The pipelines under spark-submit, as users run them on a Spark of theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import acquit
from acquit.cli.exits import Exit
from acquit.cli.jobs import job_file
from acquit.spark.java import java_home
from acquit.spark.tables import table_files
from tests.support.draining import take_all


def submit(job: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("spark-submit")
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    environment.pop("PYSPARK_GATEWAY_PORT", None)
    settings = ["--master", "local[2]", "--driver-memory", "512m", "--conf", "spark.ui.enabled=false"]
    settings += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.sql.shuffle.partitions=2"]
    command = [sys.executable, str(program)] if program.suffix == ".py" else [str(program)]
    return subprocess.run(
        [*command, *settings, str(job_file(job)), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=environment,
    )


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_ingest(broker: acquit.Broker, address: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    with acquit.connect(broker.url) as connection, connection.session() as session:
        sender = session.sender(address)
        for number in range(20):
            sender.send(f"order {number}", wait=False)
        sender.flush()
    ran = submit("ingest", address, table, "--url", broker.url, "--json")
    assert ran.returncode == Exit.OK, ran.stdout + ran.stderr
    document = json.loads(ran.stdout.splitlines()[-1])
    assert (document["rows"], document["taken"]["rows"]) == (20, 20)
    assert sum(pq.read_metadata(file.path).num_rows for file in table_files(table).files) == 20


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_redrive(broker: acquit.Broker, address: str) -> None:
    with acquit.connect(broker.url) as connection, connection.session("individual") as session:
        sender, receiver = session.sender(address), session.receiver(address)
        for number in range(3):
            sender.send(f"order {number}")
            message = receiver.receive(timeout=10)
            assert message is not None
            message.reject("orders:late" if number else "orders:lost", "on purpose")
        receiver.close()
        where = f"origin_queue = '{address}' AND condition = 'orders:late'"
        ran = submit("redrive", "--where", where, "--url", broker.url, "--json")
        assert ran.returncode == Exit.OK, ran.stdout + ran.stderr
        document = json.loads(ran.stdout.splitlines()[-1])
        assert (document["selected"], document["moved"], document["gone"]) == (2, 2, 0)
        assert [message.body for message in take_all(session.receiver(address))] == ["order 1", "order 2"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_an_audit_and_what_it_is_reconciled_with(tmp_path: Path) -> None:
    data, into, table = tmp_path / "data", tmp_path / "audit", tmp_path / "table"
    with acquit.Broker(data) as broker, acquit.connect(broker.url) as connection:
        session = connection.session("individual")
        sender = session.sender("orders")
        for number in range(20):
            sender.send(acquit.Message(f"order {number}", message_id=f"m-{number}"), wait=False)
        sender.flush()
        receiver = session.receiver("orders")
        sequences = []
        for _ in range(20):
            message = receiver.receive(timeout=10)
            assert message is not None
            sequences.append(message.sequence)
            message.accept()
    ran = submit("audit", data, "--into", into, "--json")
    assert ran.returncode == Exit.OK, ran.stdout + ran.stderr
    table.mkdir()
    # The first is not in it, and the last is there twice.
    pq.write_table(pa.table({"sequence": pa.array([*sequences[1:], sequences[-1]], pa.int64())}), table / "0.parquet")
    ran = submit("reconcile", into, "--queue", "orders", "--table", table, "--json")
    assert ran.returncode == Exit.UNSOUND, ran.stdout + ran.stderr
    document = json.loads(ran.stdout.splitlines()[-1])
    assert (document["equal"], document["by"], document["counts"]) == (False, "sequence", {"missing": 1, "doubled": 1})


def test_a_wrong_use_has_its_exit_code_and_line(tmp_path: Path) -> None:
    ran = submit("ingest", "orders", tmp_path / "table", "--option", "partz=1")
    assert ran.returncode == Exit.USAGE
    # spark-submit puts both outputs of a program into one.
    assert "acquit: option partz is not known; did you mean parts?" in ran.stdout.splitlines()

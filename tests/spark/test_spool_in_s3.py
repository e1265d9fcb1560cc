"""A query whose spool is in an object store, in a Spark of its own: its processes have credentials from the environment
they were started in, and from nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import acquit
from acquit.protocol.message import Message
from acquit.spark.spool import open_store
from acquit.spark.spool.owner import read_owner
from acquit.spark.spool.verify import verify
from tests.support.s3 import SECRET, make_bucket, point_to, serving

pytestmark = pytest.mark.promise("spool-store")

MESSAGES = 60


@pytest.mark.slow
@pytest.mark.timeout(240)  # a Spark of its own starts beside the session of the other tests
def test_into_a_table_by_way_of_an_object_store(
    broker: acquit.Broker, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acquit.connect(broker.url) as connection, connection.session() as session:
        sender = session.sender(address)
        for number in range(MESSAGES):
            sender.send(Message(f"m{number}"), wait=False)
        sender.flush()
    table = tmp_path / "table"
    with serving() as server:
        point_to(monkeypatch, server.endpoint)
        place = f"s3://{make_bucket()}/spools/orders"
        command = ["pipeline", "ingest", address, table, "--url", broker.url, "--json", "--memory", 512]
        options = [f"--spool={place}", "--option=maxMessagesPerBatch=40"]
        done = subprocess.run(
            [sys.executable, "-m", "acquit", *map(str, command), *options],
            env=dict(os.environ),
            capture_output=True,
            text=True,
            timeout=220,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        assert (told["rows"], told["batches"], told["taken"]["rows"]) == (MESSAGES, 2, MESSAGES)
        store = open_store(place)
        found = verify(store)
        owner = read_owner(store)
    assert found.damage == found.unpublished == () and found.identities == MESSAGES
    assert owner is not None and owner.query == told["query"]
    written = [path for path in table.rglob("*") if path.is_file()]
    assert written and not any(SECRET.encode() in path.read_bytes() for path in written)
    assert not (table / "_acquit" / "spool").exists()

"""A password, and the key of a certificate, leave no trace in plans, logs, checkpoint, spool, tables, event log or
command lines, nor in what a wrong password or a task that fails causes: of stream, batch, sink, ingest and redrive.

Each place is shown to be looked at rightly by something that must be there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import acquit
from acquit.broker.options import BrokerOptions, Security, Tls, User
from acquit.client.tls import make_ssl_context
from acquit.protocol.message import Message
from tests.support.guarded import ADA, CA, FILES
from tests.support.spilled import found, key_lines

ROOT = Path(__file__).resolve().parents[2]
USER, PASSWORD, WRONG = "spark-reader", "Xyzzy-4711-plugh", "Frobozz-0815-quux"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
NAME, WRONG_NAME = "ACQUIT_TEST_CREDENTIAL", "ACQUIT_TEST_WRONG_CREDENTIAL"


@contextmanager
def command_lines(told: set[bytes]) -> Iterator[None]:
    """Gather those of all processes, for as long as this lasts: every user of the machine can."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    told.add(path.read_bytes())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@pytest.mark.slow
def test_a_password_is_nowhere_to_be_found(tmp_path: Path, address: str) -> None:
    security = Security(anonymous="never", users={USER: User(password=PASSWORD)})
    tls = Tls(
        certificate_file=str(CA),
        key_file=str(FILES / "key.pem"),
        client_ca_file=str(FILES / "peers-ca.pem"),
        client_certificates="required",
    )
    folder = tmp_path / "work"
    folder.mkdir()
    told: set[bytes] = set()
    with acquit.Broker(tmp_path / "data", config=BrokerOptions(security=security, tls=tls)) as broker:
        shown = make_ssl_context(CA, ADA, None)
        with acquit.connect(broker.url, username=USER, password=PASSWORD, ssl_context=shown) as connection:
            connection.session().sender(address).send(Message("content-of-the-message", message_id="1"))
        command = [sys.executable, "-m", "tests.support.secret_program", broker.url, address, USER]
        with command_lines(told):
            done = subprocess.run(
                [*command, f"env:{NAME}", f"env:{WRONG_NAME}", str(folder), str(CA), str(ADA)],
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "JAVA_TOOL_OPTIONS": QUICK,
                    NAME: PASSWORD,
                    WRONG_NAME: WRONG,
                },
                capture_output=True,
                timeout=180,
                check=False,
            )
        assert done.returncode == 0, done.stderr[-3_000:]
        assert done.stdout.count(b"copied: 1") == 2
        assert broker.inspect().queue(f"{address}.again").depth == 1, "the redrive came to its end"
    files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    secrets = {"the password": PASSWORD, "the wrong one": WRONG, **key_lines(ADA)}
    places = {
        "command lines": b"\n".join(told),
        "plans and errors": done.stdout,
        "logs": done.stderr,
        **{
            name: b"".join(data for path, data in files.items() if path.parts[0].partition("-")[0] == name)
            for name in ("events", "spool", "checkpoint", "table")
        },
    }
    there = {
        "command lines": b"org.apache.spark.deploy.SparkSubmit",
        "plans and errors": f"user={USER}".encode(),
        "logs": b"TaskSetManager",
        "events": b"SparkListenerTaskEnd",
        "spool": b"content-of-the-message",
        "checkpoint": b'"epoch"',
        "table": b"PAR1",
    }
    assert set(places) == set(there)
    for place, data in places.items():
        assert there[place] in data, f"{place} are not what was meant"
        assert found(secrets, data) == [], place
    assert str(ADA).encode() in places["plans and errors"], "where the certificate is, was said"
    assert b"AppendData acquit" in places["events"], "the plan of the sink is there, too"
    assert b"AuthenticationFailed" in done.stdout, "the wrong one was tried"

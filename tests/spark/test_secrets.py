"""A password, and the key of a certificate, leave no trace in plans, logs, checkpoint, spool, table or event log, nor
in what a wrong password causes: of the stream, of a batch, and of the sink.

Each place is shown to be looked at rightly by something that must be there.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

import acquit
from acquit.broker.options import BrokerOptions, Security, Tls, User
from acquit.client.tls import make_ssl_context
from acquit.protocol.message import Message
from tests.support.guarded import ADA, CA, FILES

ROOT = Path(__file__).resolve().parents[2]
USER, PASSWORD, WRONG = "spark-reader", "Xyzzy-4711-plugh", "Frobozz-0815-quux"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
NAME, WRONG_NAME = "ACQUIT_TEST_CREDENTIAL", "ACQUIT_TEST_WRONG_CREDENTIAL"


def traces(password: str) -> list[bytes]:
    """As it is, and as binary is often written."""
    raw = password.encode()
    # Base 64 of what contains it, at each of the three offsets, without the characters that what is around it decides.
    shifted = [base64.b64encode(b"\0" * before + raw).rstrip(b"=")[3:-2] for before in range(3)]
    return [raw, raw.hex().encode(), raw.hex().upper().encode(), *shifted]


def key_lines() -> list[bytes]:
    """Of the key of the certificate: base 64, line by line."""
    _, _, rest = ADA.read_bytes().partition(b"-----BEGIN PRIVATE KEY-----")
    return rest.partition(b"-----END")[0].split()


@pytest.mark.parametrize("user", ["", "u", "us", "use"])
def test_a_trace_is_found_in_whatever_way_it_is_written(user: str) -> None:
    frame = b"\0" + user.encode() + b"\0" + PASSWORD.encode()
    for written in (frame, frame.hex().encode(), frame.hex().upper().encode(), base64.b64encode(frame + b"more")):
        assert any(trace in written for trace in traces(PASSWORD))
    assert not any(trace in base64.b64encode(b"\0user\0" + WRONG.encode()) for trace in traces(PASSWORD))


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
    with acquit.Broker(tmp_path / "data", config=BrokerOptions(security=security, tls=tls)) as broker:
        shown = make_ssl_context(CA, ADA, None)
        with acquit.connect(broker.url, username=USER, password=PASSWORD, ssl_context=shown) as connection:
            connection.session().sender(address).send(Message("content-of-the-message", message_id="1"))
        command = [sys.executable, "-m", "tests.support.secret_program", broker.url, address, USER]
        done = subprocess.run(
            [*command, f"env:{NAME}", f"env:{WRONG_NAME}", str(folder), str(CA), str(ADA)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "JAVA_TOOL_OPTIONS": QUICK, NAME: PASSWORD, WRONG_NAME: WRONG},
            capture_output=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        assert b"copied: 1" in done.stdout
        assert broker.inspect().queue(f"{address}.copy").depth == 1
    files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    places = {
        "plans and errors": done.stdout,
        "logs": done.stderr,
        **{
            name: b"".join(data for path, data in files.items() if path.parts[0].partition("-")[0] == name)
            for name in ("events", "spool", "checkpoint", "table")
        },
    }
    there = {
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
        for password in (PASSWORD, WRONG):
            found = [trace for trace in traces(password) if trace in data]
            assert not found, f"{place}: {found}"
        assert not [line for line in key_lines() if line in data], f"{place}: the key"
    assert str(ADA).encode() in places["plans and errors"], "where the certificate is, was said"
    assert b"AppendData acquit" in places["events"], "the plan of the sink is there, too"
    assert b"AuthenticationFailed" in done.stdout, "the wrong one was tried"

"""What happens to a command when the broker, or the person, does not wait for its end."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import acquit
from acquit.cli.app import run
from acquit.cli.exits import Exit


class KillingInput(io.StringIO):
    """Standard input that kills a process on the way."""

    def __init__(self, lines: int, kill_at: int, victim: subprocess.Popen[str]) -> None:
        super().__init__()
        self._lines, self._kill_at, self._victim = lines, kill_at, victim

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]
        for number in range(self._lines):
            if number == self._kill_at:
                self._victim.kill()
                self._victim.wait()
            yield f"{number}\n"


def test_a_broker_that_is_killed_while_sending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "acquit", "serve", "--port", "0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
        assert broker.stdout is not None
        url = broker.stdout.readline().split()[3].rstrip(",")
        monkeypatch.setattr(sys, "stdin", KillingInput(5000, 3000, broker))
        code = run(["send", "orders", "--lines", "--timeout", "1", "--url", url])
        out, err = capsys.readouterr()
    assert code == Exit.UNREACHABLE
    assert err.splitlines()[-1].startswith("acquit: ")
    accepted = int(out.split(": ")[1].split(" accepted")[0])
    assert accepted >= 2000  # all but those in flight
    with acquit.Broker(tmp_path / "data") as again, acquit.connect(again.url) as connection:
        depth = next(queue.depth for queue in again.inspect().queues if queue.name == "orders")
        assert connection.remote_properties["product"] == "acquit"
    assert depth >= accepted  # those in doubt may be there too


def test_a_person_who_has_followed_long_enough(broker: acquit.Broker, address: str) -> None:
    command = [sys.executable, "-m", "acquit", "receive", address, "--follow", "--url", broker.url, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        with acquit.connect(broker.url) as connection, connection.session() as session:
            session.sender(address).send("one", timeout=20)
        assert following.stdout is not None and following.stderr is not None
        assert '"one"' in following.stdout.readline()
        following.send_signal(signal.SIGINT)
        assert following.wait(timeout=30) == Exit.INTERRUPTED
        assert "Traceback" not in following.stderr.read()


@pytest.mark.parametrize("url", ["http://127.0.0.1", "amqp://", "amqp://127.0.0.1:port", "amqp://127.0.0.1/queue"])
def test_a_url_that_is_none(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["browse", "orders", "--url", url]) == Exit.USAGE
    assert len(capsys.readouterr().err.splitlines()) == 1

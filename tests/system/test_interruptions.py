"""What happens to a command when the broker, or the person, does not wait for its end."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def following(url: str, address: str) -> Iterator[subprocess.Popen[str]]:
    """`acquit receive --follow`, killed at the end if it still runs."""
    command = [sys.executable, "-m", "acquit", "receive", address, "--follow", "--url", url, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def follows(process: subprocess.Popen[str], session: acquit.Session, address: str, text: str) -> bool:
    """Whether a message that is sent now is received."""
    session.sender(address).send(text, timeout=20)
    assert process.stdout is not None
    return f'"{text}"' in process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_has_followed_long_enough(broker: acquit.Broker, address: str, number: signal.Signals) -> None:
    """A person, a service manager, or a terminal that is closed: it ends in order."""
    with following(broker.url, address) as process:
        with acquit.connect(broker.url) as connection, connection.session() as session:
            assert follows(process, session, address, "one")
        process.send_signal(number)
        assert process.wait(timeout=30) == Exit.INTERRUPTED
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


def test_what_is_to_ignore_the_end_of_its_terminal_does(broker: acquit.Broker, address: str) -> None:
    """As ``nohup`` has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a process that is started ignores what its parent ignores
    try:
        with following(broker.url, address) as process, acquit.connect(broker.url) as connection:
            session = connection.session()
            assert follows(process, session, address, "one")
            process.send_signal(signal.SIGHUP)
            assert follows(process, session, address, "two")
            process.terminate()
            assert process.wait(timeout=30) == Exit.INTERRUPTED
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("url", ["http://127.0.0.1", "amqp://", "amqp://127.0.0.1:port", "amqp://127.0.0.1/queue"])
def test_a_url_that_is_none(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["browse", "orders", "--url", url]) == Exit.USAGE
    assert len(capsys.readouterr().err.splitlines()) == 1

"""`acquit serve` in a process of its own, as a script would run it."""

from __future__ import annotations

import fcntl
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import acquit
from acquit.cli.exits import Exit
from acquit.protocol.definitions import Close
from tests.support.raw_socket import RawSocket
from tests.support.shell import Ran, Shell


@contextmanager
def serving(data: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its ready line; killed at the end if it still runs."""
    command = [sys.executable, "-m", "acquit", "serve", "--port", "0", "--data", str(data), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def url_of(ready: str) -> str:
    found = re.search(r"amqp://127\.0\.0\.1:\d+", ready)
    assert found, ready
    return found.group()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_is_ready_and_stops_in_order(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path / "data", "--log-format", "json") as (process, ready):
        assert re.fullmatch(rf"acquit \S+ ready: amqp://127\.0\.0\.1:\d+, data in {tmp_path}/data\n", ready)
        with acquit.connect(url_of(ready)) as connection, connection.session() as session:
            session.sender("orders").send("one", timeout=20)
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
    assert process.returncode == Exit.OK
    assert out == ""
    assert [json.loads(line)["event"] for line in err.splitlines()][-1] == "stopped"
    with serving(tmp_path / "data", "--log-format", "json") as (process, ready):
        with acquit.connect(url_of(ready)) as connection, connection.session() as session:
            message = session.receiver("orders").receive(timeout=20)
            assert message is not None and message.body == "one"
        process.terminate()
        _, err = process.communicate(timeout=30)
    assert json.loads(err.splitlines()[0])["clean"] is True


def told_to_users(ran: Ran) -> list[str]:
    """The lines for users. Beside them are those of the log, in which other brokers of this process may write."""
    return [line for line in ran.err.splitlines() if line.startswith("acquit: ")]


def test_a_port_that_is_taken(shell: Shell, tmp_path: Path, broker: acquit.Broker) -> None:
    ran = shell("serve", "--data", tmp_path / "data", "--port", broker.port)
    assert ran.code in (Exit.FAILED, Exit.USAGE)
    (told,) = told_to_users(ran)
    assert str(broker.port) in told


def test_no_host_is_not_all_of_them(shell: Shell, tmp_path: Path) -> None:
    ran = shell("serve", "--data", tmp_path / "data", "--port", 0, "--host", "")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert told_to_users(ran) == ["acquit: host: expected the name or the address of a host, found ''"]


def test_a_folder_that_is_in_use(shell: Shell, tmp_path: Path) -> None:
    with acquit.Broker(tmp_path / "data"):
        ran = shell("serve", "--data", tmp_path / "data", "--port", 0)
    assert (ran.code, ran.out) == (Exit.FAILED, "")
    (told,) = told_to_users(ran)
    assert str(tmp_path / "data") in told


def test_a_configuration_that_cannot_be(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "acquit.toml").write_text("[limits]\nmemory_bytes_max = 'much'\n")
    ran = shell("serve", "--data", tmp_path / "data", "--config", tmp_path / "acquit.toml")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert "limits.memory_bytes_max" in ran.err
    assert not (tmp_path / "data").exists()


@contextmanager
def prepared(text: str, data: Path) -> Iterator[subprocess.Popen[str]]:
    """`acquit serve` in a process that ran this text before; it knows `os`, `signal` and `server`, the module."""
    text = f"import os, signal; from acquit.broker import server\n{text}\nfrom acquit.cli import main; main()"
    command = [sys.executable, "-c", text, "serve", "--log-format", "json", "--port", "0", "--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("late", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_comes_late_is_not_how_it_ended(tmp_path: Path, late: signal.Signals) -> None:
    """Python ends in steps, and the loop's handlers are gone before the first; the signal is sent in one of them."""
    sent_late = f"import atexit; atexit.register(os.kill, os.getpid(), {late})"
    stopped = "server.tune_process = lambda: os.kill(os.getpid(), signal.SIGTERM)"
    with acquit.Broker(tmp_path / "data"), prepared(sent_late, tmp_path / "data") as process:
        _, err = process.communicate(timeout=60)
    assert (process.returncode, "is in use" in err) == (Exit.FAILED, True), err
    with prepared(f"{sent_late}; {stopped}", tmp_path / "data") as process:
        _, err = process.communicate(timeout=60)
    assert (process.returncode, "stopped" in err) == (Exit.OK, True), err


def test_a_signal_to_read_again_that_comes_early_is_kept(tmp_path: Path) -> None:
    """It comes before the folder is opened, and is obeyed when the broker is ready."""
    early = "make = server.Server; server.Server = lambda *a, **o: os.kill(os.getpid(), signal.SIGHUP) or make(*a, **o)"
    with prepared(early, tmp_path / "data") as process:
        assert process.stderr is not None
        events = (json.loads(line)["event"] for line in process.stderr)
        assert "the configuration was read again" in events
        process.terminate()
        assert process.wait(60) == Exit.OK


def at_once(action: str) -> str:
    """What does something as soon as signals are seen to, while the command is not even known."""
    return f"""
from acquit import cli
see_to_signals = cli.see_to_signals
class Finalized:
    def __del__(self): os.kill(os.getpid(), signal.SIGTERM)
def and_act(arguments):
    see_to_signals(arguments)
    {action}
cli.see_to_signals = and_act
"""


def test_a_signal_to_read_again_that_comes_at_once_is_kept(tmp_path: Path) -> None:
    with prepared(at_once("os.kill(os.getpid(), signal.SIGHUP)"), tmp_path / "data") as process:
        assert process.stderr is not None
        assert "the configuration was read again" in (json.loads(line)["event"] for line in process.stderr)
        process.terminate()
        assert process.wait(60) == Exit.OK


def test_a_signal_to_stop_that_nothing_heard_stops_it(tmp_path: Path) -> None:
    """It interrupts a finalizer, of which Python says that the exception is ignored."""
    with prepared(at_once("Finalized()"), tmp_path / "data") as process:
        _, err = process.communicate(timeout=60)
    assert (process.returncode, "stopped" in err) == (Exit.OK, True), err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_stop_that_comes_at_once_interrupts_it(tmp_path: Path, number: signal.Signals) -> None:
    with prepared(at_once(f"os.kill(os.getpid(), {number:d})"), tmp_path / "data") as process:
        _, err = process.communicate(timeout=60)
    assert (process.returncode, "listening" in err) in ((Exit.INTERRUPTED, False), (-signal.SIGINT, False)), err


def test_a_second_signal_that_comes_late_is_not_how_it_ended_either(tmp_path: Path) -> None:
    """A thread that is there yet, though it may be joined, hears signals for the process."""
    late = """
import threading, time
mask = signal.pthread_sigmask
def mask_and_kill(*arguments):
    if threading.current_thread() is threading.main_thread():
        threading.Thread(target=time.sleep, args=(0.1,)).start()
    mask(*arguments)
    if threading.current_thread() is threading.main_thread():
        os.kill(os.getpid(), signal.SIGTERM)
signal.pthread_sigmask = mask_and_kill
"""
    stopped = "server.tune_process = lambda: os.kill(os.getpid(), signal.SIGTERM)"
    with prepared(f"{late}{stopped}", tmp_path / "data") as process:
        _, err = process.communicate(timeout=60)
    assert (process.returncode, "stopped" in err) == (Exit.OK, True), err


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-"])
def test_a_standard_stream_that_is_closed(tmp_path: Path, closed: str) -> None:
    stopped = "server.tune_process = lambda: os.kill(os.getpid(), signal.SIGTERM)"
    text = f"import os, signal; from acquit.broker import server; {stopped}; from acquit.cli import main; main()"
    command = f'"{sys.executable}" -c "{text}" serve --port 0 --data "{tmp_path}/data" {closed}'
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, "Traceback" in ran.stderr) == (Exit.OK, False), ran.stderr
    assert (
        subprocess.run(
            ["sh", "-c", f'"{sys.executable}" -m acquit ledger balance --data "{tmp_path}/data"'],
            capture_output=True,
            timeout=60,
            check=False,
        ).returncode
        == Exit.OK
    )


@pytest.mark.parametrize("out", ["> /dev/full", "| true"])
def test_where_nobody_can_be_told_that_it_is_ready_it_stops_in_order(tmp_path: Path, out: str) -> None:
    command = f'"{sys.executable}" -m acquit serve --log-format json --port 0 --data "{tmp_path}/data"'
    if out == "| true":
        text = "import os; r, w = os.pipe(); os.close(r); os.dup2(w, 1); from acquit.cli import main; main()"
        command = f'"{sys.executable}" -c "{text}" serve --log-format json --port 0 --data "{tmp_path}/data"'
        out = ""
    ran = subprocess.run(["sh", "-c", f"{command} {out}"], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == Exit.FAILED
    *events, told = ran.stderr.splitlines()
    assert told.startswith("acquit: standard output, on which it is said where the broker listens: ")
    assert [json.loads(line)["event"] for line in events][-1] == "stopped"


@pytest.mark.parametrize("host", ["x..y", 70 * "x", "nosuch.invalid"])
def test_a_host_that_is_none(shell: Shell, tmp_path: Path, host: str) -> None:
    ran = shell("serve", "--data", tmp_path / "data", "--host", host, "--port", 0)
    assert ran.code == Exit.USAGE
    (told,) = told_to_users(ran)
    assert told.startswith(f"acquit: cannot listen on {host}:0: it ")


@pytest.mark.parametrize(
    ("second", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, Exit.INTERRUPTED)], ids=["term", "int"]
)
def test_a_second_signal_does_not_wait(tmp_path: Path, second: signal.Signals, code: int) -> None:
    """A client that does not close would be waited for."""
    (tmp_path / "acquit.toml").write_text("stop_timeout_ms = 600_000\n")
    with (
        serving(tmp_path / "data", "--config", str(tmp_path / "acquit.toml")) as (process, ready),
        RawSocket(int(url_of(ready).rpartition(":")[2])) as peer,
    ):
        peer.barrier()
        process.terminate()
        peer.wait(lambda: peer.count(Close))
        process.send_signal(second)
        assert process.wait(timeout=60) == code


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_who_does_not_read_its_log_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unbuffered: str
) -> None:
    """As a pipe whose reader hangs, or a terminal after Ctrl-S. Of a small pipe twenty connections are enough."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with serving(tmp_path / "data", "--log-format", "json") as (process, ready):
        assert process.stderr is not None
        fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4_096)
        for _ in range(20):
            acquit.connect(url_of(ready)).close()
        process.terminate()
        assert process.wait(timeout=60) == Exit.OK
        assert "stopped" not in process.stderr.read(), "the pipe was never full"

"""What `acquit serve` tells its service manager: over a real datagram socket, and in virtual time."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from acquit.cli.service_manager import PINGS_PER_WATCHDOG, ServiceManager
from acquit.testing.simulation.loops import Process, Scheduler
from tests.support.raw_socket import RawSocket

DATAGRAM_BYTES_MAX = 4096


class Listening:
    """The service manager's end."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(60)

    def read(self) -> list[str]:
        """The lines of the next datagram."""
        return self.socket.recv(DATAGRAM_BYTES_MAX).decode().split("\n")

    def read_state(self) -> list[str]:
        """The same, without pings."""
        while (lines := self.read()) == ["WATCHDOG=1"]:
            pass
        return lines

    def drain(self) -> list[str]:
        """The first line of each datagram that has come."""
        self.socket.setblocking(False)
        came = []
        try:
            while True:
                came.append(self.read()[0])
        except BlockingIOError:
            return came


@contextmanager
def listening(address: str) -> Iterator[Listening]:
    manager = Listening(address)
    with manager.socket:
        yield manager


@pytest.fixture
def manager() -> Iterator[Listening]:
    # The paths of such sockets may have 108 bytes, and pytest's folders may be longer.
    with tempfile.TemporaryDirectory() as folder, listening(f"{folder}/notify") as manager:
        yield manager


def test_a_broker_tells_of_its_life(manager: Listening, tmp_path: Path) -> None:
    config = tmp_path / "acquit.toml"
    config.write_text("[limits]\nqueues_max = 10\n")
    command = [sys.executable, "-m", "acquit", "serve", "--port", "0", "--data", str(tmp_path / "data")]
    environment = {**os.environ, "NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "60000"}
    with subprocess.Popen(
        [*command, "--config", str(config)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    ) as process:
        try:
            ready, status = manager.read()
            assert ready == "READY=1"
            assert re.fullmatch(rf"STATUS=amqp://127\.0\.0\.1:\d+, data in {tmp_path}/data", status)
            assert [manager.read() for _ in range(3)] == [["WATCHDOG=1"]] * 3
            config.write_text("[limits]\nqueues_max = 11\n")
            process.send_signal(signal.SIGHUP)
            reloading, since, _ = manager.read_state()
            assert reloading == "RELOADING=1"
            assert re.fullmatch(r"MONOTONIC_USEC=\d+", since)
            assert manager.read_state()[0] == "READY=1"
            config.write_text("[limits]\nqueues_max = 'many'\n")
            process.send_signal(signal.SIGHUP)
            assert [manager.read_state()[0] for _ in range(2)] == ["RELOADING=1", "READY=1"]  # as it was: it goes on
            process.terminate()
            assert manager.read_state()[0] == "STOPPING=1"
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "limits.queues_max" in err


def test_a_broker_that_stops_does_not_become_ready_again(manager: Listening, tmp_path: Path) -> None:
    """What is to be read again as it stops is not. A client that does not close keeps it from its end."""
    (tmp_path / "acquit.toml").write_text("stop_timeout_ms = 1000\n")
    command = [sys.executable, "-m", "acquit", "serve", "--port", "0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(
        [*command, "--config", str(tmp_path / "acquit.toml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "NOTIFY_SOCKET": manager.address},
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().split(",")[0].rpartition(":")[2])
            with RawSocket(port):
                for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
                    process.send_signal(number)
                assert process.wait(timeout=60) == 0
        finally:
            process.kill()
    assert manager.drain()[-1] == "STOPPING=1"


def run_for(scheduler: Scheduler, seconds: float) -> None:
    """Half a second more, so that the scheduler stops there and not at what is due next."""
    scheduler.later(seconds + 0.5, lambda: None)
    scheduler.run_for(seconds)


def test_it_pings_from_the_loop_and_not_beside_it(manager: Listening) -> None:
    """Each third of the watchdog's time, once for the whole life; never while the loop hangs."""
    watchdog_s = 30.0
    scheduler = Scheduler(Random(1))
    loop = Process(scheduler, "broker")
    serving = ServiceManager(manager.address, watchdog_s)
    loop.call_soon(serving.ready, "at work")
    run_for(scheduler, 1)
    assert manager.drain() == ["READY=1", "WATCHDOG=1"]
    loop.call_soon(serving.ready, "at work again, with other options")
    run_for(scheduler, watchdog_s - 1)
    assert manager.drain() == ["READY=1", *["WATCHDOG=1"] * PINGS_PER_WATCHDOG]
    loop.stands_still_until = scheduler.now + 10 * watchdog_s
    run_for(scheduler, 9 * watchdog_s)
    assert manager.drain() == []
    run_for(scheduler, 2 * watchdog_s)
    assert "WATCHDOG=1" in manager.drain()


def test_without_a_watchdog_there_are_no_pings(manager: Listening) -> None:
    scheduler = Scheduler(Random(1))
    loop = Process(scheduler, "broker")
    loop.call_soon(ServiceManager(manager.address).ready, "at work")
    run_for(scheduler, 100)
    assert manager.drain() == ["READY=1"]


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
def test_an_abstract_address() -> None:
    with listening(f"@acquit-{os.getpid()}-{os.urandom(4).hex()}") as manager:
        ServiceManager.of({"NOTIFY_SOCKET": manager.address}).stopping()
        assert manager.read()[0] == "STOPPING=1"


@pytest.mark.parametrize(
    ("environment", "pings"),
    [
        ({"WATCHDOG_USEC": "30000000"}, True),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, True),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, False),  # for another process, whose child this one is
        ({"WATCHDOG_USEC": "soon"}, False),
        ({"WATCHDOG_USEC": 400 * "9"}, False),
    ],
)
def test_whose_watchdog_it_is(manager: Listening, environment: dict[str, str], pings: bool) -> None:
    scheduler = Scheduler(Random(1))
    loop = Process(scheduler, "broker")
    serving = ServiceManager.of({"NOTIFY_SOCKET": manager.address, **environment})
    loop.call_soon(serving.ready, "at work")
    run_for(scheduler, 100)
    assert ("WATCHDOG=1" in manager.drain()) is pings


@pytest.mark.parametrize("address", ["/nowhere/notify", "vsock:2:1234"])
def test_a_manager_that_is_not_there_is_no_reason_to_stop(address: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ServiceManager.of({"NOTIFY_SOCKET": address}).stopping()
    (record,) = caplog.records
    assert "service manager" in record.getMessage()


def test_nobody_is_told_where_there_is_none(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        serving = ServiceManager.of({})
        serving.ready("at work")
        serving.reloading()
        serving.stopping()
    assert not caplog.records

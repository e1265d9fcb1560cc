"""Disks that fail a real broker: full, over quota, read-only, broken. What it says, and that nothing told is lost.

A disk that is full is waited for: postings are refused, consumers are served, and both go on when there is room. After
any other error nothing is tried again: the broker closes its connections with `amqp:internal-error`, says why, and ends
with exit code 1. A broker on the same folder, with a whole disk, then has all that was told.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from signal import SIGTERM
from typing import Final

import pytest

import acquit
from tests.crash.restarts import Account, Traffic, configuration
from tests.crash.test_kills import assert_ledger_holds
from tests.crash.wire import Lost
from tests.support.draining import take_all
from tests.support.machines import Ext4, SmallDisk
from tests.support.served import Served
from tests.support.syscalls import Traced, require, spoiled

pytestmark = pytest.mark.slow

_URL = re.compile(r"amqp://[\d.]+:\d+")
KIB: Final = 1024
SMALL: Final = """
[journal]
segment_bytes = 262_144
recovery_bytes_max = 1_048_576
archive_bytes_max = 0
"""


class Lives:
    """Brokers on one folder, one after the other, each on a disk that is spoiled in its own way; and one client."""

    def __init__(self, folder: Path, rng: random.Random, journal: str = "least", *, disk: Path | None = None) -> None:
        self.data = (disk or folder) / "broker"
        self.account = Account()
        self.log = folder / "log"
        self.fired = 0
        """Lives in which the disk did fail."""
        self._config = folder / "acquit.toml"
        self._config.write_text(configuration(journal))
        self._injected = folder / "injected"
        self._rng = rng
        self._numbers = iter(range(1, 1 << 60))
        self._subscribed = False

    def live(self, steps: int, *injections: str, halfway: Callable[[], None] | None = None) -> tuple[int, str | None]:
        """Work so many steps, and after `halfway` so many again. Returns the exit status, and the condition that a
        close of the broker named."""
        prefix = spoiled(self._injected, *injections) if injections else []
        self.log.write_text("")
        broker = Traced(prefix, self._serve(), self.log)
        condition = None
        try:
            found = _URL.search(broker.stdout.readline())
            if found is not None:
                condition = self._work(found.group(), steps, halfway)
                broker.signal(SIGTERM)
            status = broker.wait()
        finally:
            broker.end()
        self.fired += bool(injections) and "(INJECTED)" in self._injected.read_text()
        return status, condition

    def _serve(self) -> Sequence[str]:
        return [
            *("-m", "acquit", "serve", "--host", "127.0.0.1", "--port", "0", "--log-format", "json"),
            *("--data", str(self.data), "--config", str(self._config)),
        ]

    def _work(self, url: str, steps: int, halfway: Callable[[], None] | None) -> str | None:
        with suppress(Lost, OSError), closing(Traffic(url, self.account, self._rng, self._numbers)) as traffic:
            if not self._subscribed:
                traffic.subscribe()
                self._subscribed = True
            traffic.work(steps)
            if halfway is not None:
                halfway()
                traffic.work(steps)
            return None
        assert self.account.wire is not None
        return self.account.wire.condition

    def logged(self, text: str) -> list[str]:
        """Lines of the log of the last life that have this in them."""
        return [line for line in self.log.read_text().splitlines() if text in line]

    def end(self) -> None:
        """One more life on a whole disk: everything is taken and compared."""
        broker = Traced([], self._serve(), self.log)
        try:
            found = _URL.search(broker.stdout.readline())
            assert found, self.log.read_text()
            with closing(Traffic(found.group(), self.account, self._rng, self._numbers)) as traffic:
                self.account.emptied(traffic.empty())
            broker.signal(SIGTERM)
            assert broker.wait() == 0
        finally:
            broker.end()
        assert self.account.problems == []
        assert_ledger_holds(self.data)


def check_failed(lives: Lives, status: int, condition: str | None) -> None:
    """It has ended by itself: exit code, log and the answer to its peer say so."""
    log = lives.log.read_text()
    assert "Traceback" not in log
    if lives.logged("the journal failed: the broker stops"):
        assert status == 1, log
        assert condition in (None, "amqp:internal-error")
        (line,) = lives.logged("the journal failed: the broker stops")
        assert json.loads(line)["level"] == "critical"
    else:  # it did not come so far, or the error was of something that it can do without
        assert status == 0 or lives.logged("acquit: "), log


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system, which only root may")

FAULTS: Final = (
    "pwrite64:error=EIO:when={n}",
    "pwrite64:error=EROFS:when={n}+",
    "fdatasync:error=EIO:when={n}",
    "fsync:error=EIO:when={n}",
    "rename:error=EIO:when={n}",
    "rename:error=EROFS:when={n}+",
    "ftruncate:error=EIO:when={n}",
    "unlink:error=EIO:when={n}",
)
"""What fails: a write; everything from then on, as where a file system went read-only; a sync, of data or of names."""


@pytest.mark.promise("durable")
def test_a_disk_that_fails_loses_nothing(tmp_path: Path, rng: random.Random, soak_rounds: int) -> None:
    lives = Lives(tmp_path, rng)
    assert lives.live(30) == (0, None)
    ended = 0
    for number in range(2 * soak_rounds):
        fault = FAULTS[number % len(FAULTS)].format(n=rng.choice((1, 2, 3, 5, 10, 20, 40)))
        status, condition = lives.live(150, fault)
        check_failed(lives, status, condition)
        assert lives.account.problems == [], fault
        ended += condition == "amqp:internal-error"
    assert lives.fired > soak_rounds
    assert ended, "no client was told"
    lives.end()


@needs_root
@pytest.mark.promise("durable")
def test_a_file_system_that_goes_read_only_loses_nothing(tmp_path: Path, rng: random.Random, soak_rounds: int) -> None:
    """As on Linux where a disk answers nonsense: an ext4 that finds an error in itself is read-only until repaired."""
    with Ext4(tmp_path / "disk", 32 << 20) as disk:
        lives = Lives(tmp_path, rng, rng.choice(("least", "tiny")), disk=disk.folder)
        for _ in range(soak_rounds):
            status, condition = lives.live(rng.randint(1, 100), halfway=disk.fail)
            check_failed(lives, status, condition)
            assert (status, condition) == (1, "amqp:internal-error"), lives.log.read_text()
            status, _ = lives.live(1)
            assert status == 1, "it started on a folder that it cannot write"
            assert "Read-only file system" in lives.log.read_text()
            assert "Traceback" not in lives.log.read_text()
            disk.unmount()
            disk.mount()
            assert lives.account.problems == []
        lives.end()


@needs_root
@pytest.mark.promise("durable")
def test_a_file_system_that_loses_power_loses_nothing(tmp_path: Path, rng: random.Random, soak_rounds: int) -> None:
    """A real file system forgets what was not synced, in its own way, and comes back by its own journal."""
    with Ext4(tmp_path / "disk", 32 << 20) as disk:
        lives = Lives(tmp_path, rng, rng.choice(("least", "tiny")), disk=disk.folder)
        for _ in range(2 * soak_rounds):
            status, condition = lives.live(rng.randint(1, 100), halfway=disk.lose_power)
            check_failed(lives, status, condition)
            disk.unmount()
            disk.mount()
            assert lives.account.problems == []
        lives.end()


def test_a_disk_that_cannot_be_read_keeps_the_broker_from_starting(tmp_path: Path, rng: random.Random) -> None:
    """It says so, changes nothing, and starts when the disk is whole again."""
    lives = Lives(tmp_path, rng)
    lives.live(100)
    refused = 0
    for number in range(6, 30, 4):
        status, _ = lives.live(0, f"pread64:error=EIO:when={number}")
        assert status in (0, 1), lives.log.read_text()
        if status:
            refused += 1
            assert "Input/output error" in lives.log.read_text()
            assert "Traceback" not in lives.log.read_text()
    assert refused
    lives.end()


def test_a_limit_of_the_size_of_files_is_said_at_the_start(tmp_path: Path) -> None:
    lives = Lives(tmp_path, random.Random(0), "small")
    with lives.log.open("w") as log:
        command = [require("prlimit"), f"--fsize={100 * KIB}", sys.executable, *lives._serve()]
        status = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
    assert status == 1
    assert "File too large" in lives.log.read_text()
    assert "Traceback" not in lives.log.read_text()
    lives.live(10)
    lives.end()


class Work:
    """A client of a queue that knows what was accepted, and what was taken for good."""

    def __init__(self) -> None:
        self.accepted: set[str] = set()
        self.taken: set[str] = set()
        self._numbers = itertools.count()

    def post(self, sender: acquit.Sender, timeout_s: float) -> bool:
        """Post one more. False: it was refused for want of room, or nobody answered in time."""
        key = str(next(self._numbers))
        try:
            sender.send(acquit.Message(bytes(2_000), durable=True, message_id=key), timeout=timeout_s)
        except acquit.MessageRejected as refused:
            if "disk is full" in str(refused):
                return False
            raise
        except (acquit.DeliveryInDoubt, acquit.NotSent):
            return False
        self.accepted.add(key)
        return True

    def take(self, receiver: acquit.Receiver, count: int) -> None:
        """Take so many, and wait until that is durable."""
        for _ in range(count):
            message = receiver.receive(timeout=20)
            assert message is not None
            assert message.accept().status is acquit.ReceiptStatus.APPLIED
            self.taken.add(str(message.message_id))

    def check_left(self, url: str) -> None:
        """Take the rest from the broker there: all that was accepted and not taken, and nothing that was."""
        with acquit.connect(url) as connection, connection.session() as session:
            left = {str(message.message_id) for message in take_all(session.receiver("work"))}
        assert self.accepted - self.taken <= left
        assert not left & self.taken


@pytest.mark.promise("durable")
def test_a_full_disk_refuses_postings_and_serves_consumers(tmp_path: Path) -> None:
    """On a real file system of 8 MiB: full, room again, twice; then another broker finds what was not consumed."""
    data = tmp_path / "disk" / "data"
    data.parent.mkdir()
    work = Work()
    with SmallDisk(data.parent, 8 << 20) as disk:
        served = Served(tmp_path, SMALL, prefix=disk.prefix, data=data)
        with served, acquit.connect(served.url) as connection:
            session = connection.session("individual")
            sender, receiver = session.sender("work"), session.receiver("work", prefetch=10)
            for _ in range(2):
                for _ in range(100):
                    assert work.post(sender, 20)
                disk.fill()
                assert not all(work.post(sender, 1) for _ in range(2_000)), "the disk never became full"
                work.take(receiver, 20)
                assert served.lines("the disk is full")
                disk.make_room()
                deadline = time.monotonic() + 30
                while not work.post(sender, 5):
                    assert time.monotonic() < deadline, "it does not go on when there is room"
                work.take(receiver, 20)
        assert_ledger_holds(disk.seen / "data")
        served = Served(tmp_path, SMALL, prefix=disk.prefix, data=data)
        with served:
            work.check_left(served.url)
        assert_ledger_holds(disk.seen / "data")


@pytest.mark.promise("durable")
def test_a_moment_without_descriptors_ends_nothing(tmp_path: Path) -> None:
    """The process may open nothing more, across several segments; then it may again: it goes on, and has all."""
    work = Work()
    served = Served(tmp_path, SMALL)
    with served, acquit.connect(served.url) as connection:
        session = connection.session("individual")
        sender, receiver = session.sender("work"), session.receiver("work", prefetch=10)
        for _ in range(2):
            for _ in range(50):
                assert work.post(sender, 20)
            limits = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (0, limits[1]))
            assert not all(work.post(sender, 1) for _ in range(1_000)), "it never wanted a descriptor"
            assert served.lines("the process has no file descriptor left")
            resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, limits)
            deadline = time.monotonic() + 30
            while not work.post(sender, 5):
                assert time.monotonic() < deadline, "it does not go on when there are descriptors"
            work.take(receiver, 20)
        assert served.lines("files can be opened again")
    assert_ledger_holds(served.data)
    with acquit.Broker(served.data) as broker:
        work.check_left(broker.url)


@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT"])
def test_a_batch_that_finds_no_room_waits_for_it(error: str, tmp_path: Path) -> None:
    """Three tries of one batch, or of several, fail; then there is room."""
    injected = tmp_path / "injected"
    prefix = spoiled(injected, f"pwrite64:error={error}:when=20..22")
    prefix.insert(1, "--daemonize")  # so that the process that is started is the broker, and the tracer beside it
    work = Work()
    served = Served(tmp_path, SMALL, prefix=prefix)
    with served, acquit.connect(served.url) as connection:
        session = connection.session("individual")
        sender, receiver = session.sender("work"), session.receiver("work", prefetch=10)
        for _ in range(60):
            work.post(sender, 20)
        work.take(receiver, 20)
    assert served.lines("the disk is full")
    assert served.lines("there is room on the disk again")
    assert "(INJECTED)" in injected.read_text()
    with acquit.Broker(served.data) as broker:
        work.check_left(broker.url)
    assert_ledger_holds(served.data)

"""Data folders that are moved, removed or replaced under a broker, and lock files that are: nothing told is lost.

The broker notices, closes its connections with `amqp:internal-error`, says why in one line, and ends with exit code 1.
What it accepted is in its folder, wherever that is; a broker that began at the old path keeps what is its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

import acquit
from acquit.errors import AcquitError
from tests.crash.test_kills import assert_ledger_holds
from tests.support.draining import take_all
from tests.support.served import Served, standing_still

SEGMENT_BYTES: Final = 1_048_576
CONFIG: Final = f"[journal]\nsegment_bytes = {SEGMENT_BYTES}\nfirst_segment_bytes = {SEGMENT_BYTES}\n"
NOTICED_S: Final = 15.0
"""Seconds after which a broker must have noticed, on a busy machine: it looks every second."""
PAUSE_S: Final = 0.1
"""Seconds between two sends: small messages then need another segment after twenty seconds only."""
MOVED: Final = "is not the folder any more in which this broker began: it was moved or removed"
LOCK: Final = "is not the lock of this broker any more: it was removed or replaced"

bodies = pytest.mark.parametrize("body", [b"small", bytes(SEGMENT_BYTES // 2)], ids=["small", "large"])
"""Small ones stay in the open segment for more than a second, large ones need the next at once."""


Serve = Callable[[str], Served]
"""``serve("first")`` starts a broker on the folder `data`, with that name for its log."""


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    started: list[Served] = []

    def start(name: str) -> Served:
        (tmp_path / name).mkdir()
        started.append(Served(tmp_path / name, CONFIG, data=tmp_path / "data"))
        return started[-1]

    yield start
    for served in started:
        served.process.kill()
        served.process.wait()
        if served.process.stdout is not None:
            served.process.stdout.close()


class Poster:
    """A sender of durable messages that knows which ones were accepted."""

    def __init__(self, served: Served, name: str, body: bytes = b"x") -> None:
        self.told: list[str] = []
        self._name, self._body = name, body
        self._connection = acquit.connect(served.url, options=acquit.ConnectOptions(reconnect=None))
        self._sender = self._connection.session().sender("work")

    def post(self, count: int = 1) -> None:
        for _ in range(count):
            name = f"{self._name}{len(self.told)}"
            self._sender.send(acquit.Message(self._body, durable=True, message_id=name), timeout=20)
            self.told.append(name)

    def post_until_refused(self) -> AcquitError:
        give_up_at = time.monotonic() + NOTICED_S
        while time.monotonic() < give_up_at:
            try:
                self.post()
            except AcquitError as error:
                return error
            time.sleep(PAUSE_S)
        raise AssertionError("the broker does not notice")

    def close(self) -> None:
        self._connection.close()


def end_of(served: Served) -> tuple[int, str]:
    """Its exit code, and its last line."""
    status = served.process.wait(60)
    return status, served.log.read_text().splitlines()[-1]


def left_in(data: Path) -> list[str]:
    with acquit.Broker(data) as broker, acquit.connect(broker.url) as connection:
        found = [str(message.message_id) for message in take_all(connection.session().receiver("work"))]
    assert_ledger_holds(data)
    return found


def assert_fails(served: Served, poster: Poster, said: str) -> None:
    error = poster.post_until_refused()
    assert "amqp:internal-error" in str(error), error
    status, line = end_of(served)
    assert status == 1
    assert line.startswith("acquit: ") and line.endswith(said), line


@bodies
@pytest.mark.promise("durable")
def test_a_folder_that_is_moved_and_another_broker_in_its_place(tmp_path: Path, serve: Serve, body: bytes) -> None:
    data, moved = tmp_path / "data", tmp_path / "data.old"
    first = serve("first")
    ours = Poster(first, "a", body)
    ours.post(10)
    data.rename(moved)
    with serve("second") as second:
        theirs = Poster(second, "b", body)
        theirs.post(10)
        assert_fails(first, ours, f"{data} {MOVED}")
        theirs.post(10)
        theirs.close()
    assert left_in(moved) == ours.told
    assert left_in(data) == theirs.told


@bodies
@pytest.mark.promise("durable")
def test_a_lock_file_that_is_removed(tmp_path: Path, serve: Serve, body: bytes) -> None:
    data = tmp_path / "data"
    served = serve("first")
    poster = Poster(served, "a", body)
    poster.post(10)
    command = [sys.executable, "-m", "acquit", "serve", "--port", "0", "--data", str(data)]
    with standing_still(served.process):
        (data / "lock").unlink()
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1
    assert second.stderr.splitlines()[-1] == f"acquit: {data} is in use by another process"
    assert_fails(served, poster, f"{data / 'lock'} {LOCK}")
    assert left_in(data) == poster.told


@bodies
def test_a_folder_that_is_removed(tmp_path: Path, serve: Serve, body: bytes) -> None:
    data = tmp_path / "data"
    served = serve("first")
    poster = Poster(served, "a", body)
    poster.post(10)
    with standing_still(served.process):
        shutil.rmtree(data)
    assert_fails(served, poster, f"{data} {MOVED}")
    assert not data.exists()


def test_a_folder_that_is_removed_before_a_stop_in_order(tmp_path: Path, serve: Serve) -> None:
    data = tmp_path / "data"
    served = serve("first")
    poster = Poster(served, "a")
    poster.post(10)
    poster.close()
    with standing_still(served.process):
        shutil.rmtree(data)
        served.process.terminate()
    status, line = end_of(served)
    assert status == 1
    assert line == f"acquit: {data} {MOVED}"

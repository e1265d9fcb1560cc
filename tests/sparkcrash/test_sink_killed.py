"""Queue to queue through Spark, with everything killed while it posts: each message is in the other queue once, on
acquit by the sender's mark, on Artemis by ids."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import acquit
from acquit.protocol.message import Message
from tests.interop.artemis import Artemis
from tests.sparkcrash.pipelines import Queue
from tests.support.crashing import ROOT
from tests.support.sink_program import BATCH
from tests.support.spark_program import QUICK

COUNT = 12 * BATCH
RUN_S = 150.0
KILLS_MAX = 5
WINDOW = 20_000
"""Ids that Artemis remembers for each address, unless it is told otherwise."""


class Moving:
    """The program, run again and again, and what it has left."""

    def __init__(self, origin: Queue, target: Queue, folder: Path) -> None:
        self.origin, self.target, self.folder = origin, target, folder
        self._last = [origin.url, origin.address, target.address]
        if origin.user is not None:
            (folder / "password").write_text(str(origin.password))
            self._last += [origin.user, str(WINDOW)]

    def post(self) -> None:
        with self.origin.session() as session:
            sender = session.sender(self.origin.address)
            for number in range(COUNT):
                sender.send(Message(f"body {number}", message_id=f"id-{number}"), wait=False)
            sender.flush()

    def killed_at(self, goal: int, posted: Callable[[], int]) -> None:
        """A run, killed with all its processes when so many are posted."""
        process = self._start()
        try:
            end = time.monotonic() + RUN_S
            while posted() < goal:
                assert process.poll() is None, self._said
                assert time.monotonic() < end, "no progress"
                time.sleep(0.002)
        finally:
            self._kill(process)
        assert posted() < COUNT, "it was killed too late"

    def finish(self) -> None:
        process = self._start()
        try:
            assert process.wait(RUN_S) == 0, self._said
        finally:
            if process.poll() is None:
                self._kill(process)

    def check(self) -> None:
        found: Counter[tuple[object, object]] = Counter()
        with self.target.session() as session:
            receiver = session.receiver(self.target.address, prefetch=COUNT)
            while (message := receiver.receive(1.0)) is not None:
                found[message.message_id, message.body] += 1
                message.accept()
        assert found == Counter({(f"id-{number}", f"body {number}"): 1 for number in range(COUNT)})
        assert self.origin.left() == []

    @property
    def reports(self) -> list[dict[str, object]]:
        """What the sink said of each batch that it posted."""
        return [json.loads(path.read_text()) for path in (self.folder / "reports").glob("*.json")]

    @property
    def suppressed(self) -> int:
        """Rows that were posted by a run that was killed, and not again."""
        return sum(int(str(report["suppressed"])) for report in self.reports)

    @property
    def _said(self) -> str:
        return (self.folder / "output").read_text()[-3000:]

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "JDK_JAVA_OPTIONS": QUICK}
        command = [sys.executable, "-m", "tests.support.sink_program", str(self.folder), *self._last]
        with (self.folder / "output").open("w") as output:
            return subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_message_is_in_the_other_queue_once(tmp_path: Path) -> None:
    with acquit.Broker() as broker:

        def posted() -> int:
            return next((queue.depth for queue in broker.inspect().queues if queue.name == "to"), 0)

        moving = Moving(Queue(url=broker.url, address="from"), Queue(url=broker.url, address="to"), tmp_path)
        moving.post()
        for kills in range(1, KILLS_MAX + 1):
            # In the middle of a batch; and again, should that one have been over when the signal came.
            moving.killed_at(posted() + BATCH + BATCH // 3, posted)
            if kills > 1 and moving.suppressed:
                break
        moving.finish()
        assert moving.suppressed, "no batch was begun, killed and posted again"
        moving.check()


def test_on_artemis_it_is_there_once_by_its_id(artemis: Artemis, address: str, tmp_path: Path) -> None:
    def queue(name: str) -> Queue:
        artemis.queue(name)
        return Queue(url=artemis.url, address=name, user=artemis.username, password=artemis.password)

    moving = Moving(queue(f"{address}.from"), queue(f"{address}.to"), tmp_path)
    moving.post()
    with moving.target.session() as session:

        def posted() -> int:
            with session.receiver(moving.target.address, prefetch=COUNT, browse=True) as looking:
                looking.drain(10)
                return len(looking.receive_many(COUNT, 0))

        moving.killed_at(BATCH + BATCH // 3, posted)
    moving.finish()
    assert {str(report["told_by"]) for report in moving.reports if report["partitions"]} == {"['ids in _AMQ_DUPL_ID']"}
    moving.check()

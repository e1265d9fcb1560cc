"""Queue to queue through Spark, with everything killed while it posts: each message is in the other queue once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import acquit
from acquit.protocol.message import Message
from tests.support.crashing import ROOT
from tests.support.sink_program import BATCH
from tests.support.spark_program import QUICK

COUNT = 12 * BATCH
RUN_S = 150.0


def run(url: str, folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JDK_JAVA_OPTIONS": QUICK}
    command = [sys.executable, "-m", "tests.support.sink_program", url, "from", "to", str(folder)]
    with (folder / "output").open("w") as output:
        return subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_message_is_in_the_other_queue_once(tmp_path: Path) -> None:
    with acquit.Broker() as broker:
        with acquit.connect(broker.url) as connection, connection.session() as session:
            sender = session.sender("from")
            for number in range(COUNT):
                sender.send(Message(f"body {number}", message_id=f"id-{number}"), wait=False)
            sender.flush()

        def posted() -> int:
            return broker.inspect().queue("to").depth if "to" in {q.name for q in broker.inspect().queues} else 0

        for goal in (BATCH + BATCH // 3, 4 * BATCH + BATCH // 2):  # in the middle of a batch
            process = run(broker.url, tmp_path)
            try:
                end = time.monotonic() + RUN_S
                while posted() < goal:
                    assert process.poll() is None, (tmp_path / "output").read_text()[-3000:]
                    assert time.monotonic() < end, "no progress"
                    time.sleep(0.002)
            finally:
                kill(process)
            assert posted() < COUNT, "it was killed too late"
        process = run(broker.url, tmp_path)
        try:
            assert process.wait(RUN_S) == 0, (tmp_path / "output").read_text()[-3000:]
        finally:
            if process.poll() is None:
                kill(process)
        found: Counter[tuple[object, object]] = Counter()
        with acquit.connect(broker.url) as connection, connection.session("auto") as session:
            receiver = session.receiver("to", prefetch=COUNT)
            while (message := receiver.receive(1.0)) is not None:
                found[message.message_id, message.body] += 1
        assert found == Counter({(f"id-{number}", f"body {number}"): 1 for number in range(COUNT)})
        assert broker.inspect().queue("from").depth == 0

"""A queue, the pipeline that reads it in a process that is killed, and what must hold afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil

import acquit
from acquit.protocol.constants import RELEASED
from acquit.protocol.message import Message
from tests.sparkcrash.tables import Account, account, content, identity, judge
from tests.support.crashing import MUTANT, PYTHONPATH, ROOT, TABLE, arm, folder_of, passed
from tests.support.spark_program import QUICK, Job

RUN_S = 300.0
"""A run that takes longer hangs."""
BATCH = 20


class Way(NamedTuple):
    """How a pipeline is run."""

    broker: str
    kind: str
    """Of the table."""
    streaming: bool
    """With a trigger, or until the queue is empty (AvailableNow)."""


class Chain(NamedTuple):
    """One kill after the other on one checkpoint; every other run has a trigger. What each of four rounds has."""

    broker: str
    kind: str
    streaming_at: int
    """Whether the even or the odd ones have a trigger."""
    number: int


@dataclass(frozen=True, kw_only=True)
class Queue:
    """One address of a broker."""

    url: str
    address: str
    user: str | None = None
    password: str | None = None

    @contextlib.contextmanager
    def session(self) -> Iterator[acquit.Session]:
        with (
            acquit.connect(self.url, username=self.user, password=self.password) as connection,
            connection.session("individual") as session,
        ):
            yield session

    def post(self, *numbers: int) -> None:
        with self.session() as session:
            sender = session.sender(self.address)
            for number in numbers:
                sender.send(Message(content(number), message_id=identity(number)), wait=False)
            sender.flush()

    def left(self) -> list[str]:
        """What is available, by identity; it goes back."""
        with self.session() as session:
            receiver = session.receiver(self.address, prefetch=1_000, default_outcome=RELEASED)
            receiver.drain(10)
            return [str(message.message_id) for message in receiver.receive_many(1_000, 0)]


TRIGGER = "100 milliseconds"


class Pipeline:
    """*ingest* from `queue` into a table of this kind in `folder`."""

    def __init__(self, queue: Queue, folder: Path, *, kind: str, streaming: bool, **job: Any) -> None:
        self.queue = queue
        self.folder = folder
        self.posted = 0
        credential = None
        if queue.password is not None:
            (folder / "password").write_text(queue.password)
            credential = f"file:{folder / 'password'}"
        self.job = Job(
            url=queue.url,
            address=queue.address,
            user=queue.user,
            credential=credential,
            table=str(folder / "table"),
            format=kind,
            trigger=TRIGGER if streaming else None,
            **{"source": {"maxMessagesPerBatch": str(BATCH), "parts": "2"}, **job},
        )

    @property
    def work(self) -> Path:
        return self.job.work

    @property
    def batches(self) -> int:
        """How many Spark has committed."""
        commits = self.work / "checkpoint" / "commits"
        return sum(path.name.isdecimal() for path in (commits.iterdir() if commits.exists() else ()))

    @property
    def last(self) -> Job:
        """The job, for a run that `check` comes after: at its end Spark says what it reads in the table."""
        return replace(self.job, seen=str(self.folder / "seen.json"))

    @property
    def unhurried(self) -> Job:
        """That, run to the end of the queue, in few batches."""
        return replace(self.last, trigger=None, source={**self.job.source, "maxMessagesPerBatch": "1000"})

    @property
    def account(self) -> Account:
        return account(Path(self.job.table), range(self.posted))

    def post(self, count: int) -> None:
        self.queue.post(*range(self.posted, self.posted + count))
        self.posted += count

    def start(self, *, mutant: str = "", **changes: Any) -> Run:
        return self._program(replace(self.job, **changes), mutant)

    def start_last(self) -> Run:
        """As it is; `check` comes after."""
        return self._program(self.last)

    def run(self, *, mutant: str = "", **changes: Any) -> Run:
        """Until it ends or is killed."""
        run = self.start(mutant=mutant, **changes)
        run.wait()
        return run

    def killed_at(self, point: str, ending: str, *, streaming: bool) -> None:
        """A run that passes this point, and is killed there."""
        for _ in range(5):
            arm(self.work, point, ending)
            run = self.run(trigger=TRIGGER if streaming else None)
            assert passed(self.work, point), f"no process passed {point}; {run.said}"
            assert run.status != 0, f"{point}: nobody was killed"
            if ending == "executor" and point not in TABLE:
                # The program itself was not killed, and says in a line what has happened. Not at the beginning of one:
                # another thread, in which py4j tells its own story, writes between the pieces of the traceback.
                assert "PipelineFailed: " in run.output, run.said
                assert "the JVM of the Spark driver has ended: killed" in run.output, run.said
            found = self.account
            assert not (found.doubled or found.strangers or found.altered), (point, found)
            if self.job.format == "delta" or point not in TABLE or self._between_table_and_commit_log():
                return
            # It was seen from outside, and that came too late: Spark had already gone on.
            (folder_of(self.work) / f"{point}.passed").unlink()
            self.post(BATCH)
        raise AssertionError(f"five times, {point} was passed before anybody could act")

    def finish(self) -> None:
        """A last run, to the end: everything is in the table once, and nothing in the queue."""
        run = self._program(self.unhurried)
        run.wait()
        assert run.status == 0, run.said
        self.check()

    def _program(self, job: Job, mutant: str = "") -> Run:
        return Run(self.folder, "spark_program", str(job.write(self.folder / "job.json")), mutant=mutant)

    def check(self) -> None:
        """Once a run has ended that was `last`, or `unhurried`."""
        found = self.account
        assert found.holds, found
        rows = json.loads((self.folder / "seen.json").read_text())
        by_spark = judge([(name, bytes.fromhex(body)) for name, body in rows], range(self.posted))
        assert by_spark.holds, ("as Spark reads it", by_spark)
        assert self.queue.left() == []

    def _between_table_and_commit_log(self) -> bool:
        newest = _newest(Path(self.job.table) / "_spark_metadata")
        return newest >= 0 and newest > _newest(self.work / "checkpoint" / "commits")


def _newest(log: Path) -> int:
    names = [path.name.partition(".")[0] for path in log.iterdir()] if log.exists() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


class Run:
    """A program of tests/support in a process of its own; what it says goes to a file in `folder`."""

    def __init__(self, folder: Path, program: str, *arguments: str, mutant: str = "") -> None:
        self._output = folder / "output"
        environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "JDK_JAVA_OPTIONS": QUICK, MUTANT: mutant}
        command = [sys.executable, "-m", f"tests.support.{program}", *arguments]
        # To a file: a process that is left behind holds on to a pipe.
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def said(self) -> str:
        return f"it ended with {self._process.poll()} and said: {self.output[-3000:]}"

    @property
    def status(self) -> int:
        """Once it has ended."""
        assert self._process.returncode is not None
        return self._process.returncode

    def wait(self) -> int:
        try:
            return self._process.wait(RUN_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"after {RUN_S:g} s it was still running; {self.said}") from None
        finally:
            self.kill()

    def wait_until(self, so: Callable[[], bool]) -> None:
        """While it runs."""
        end = time.monotonic() + RUN_S
        while not so():
            if self._process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"it never came true; {self.said}")
            time.sleep(0.1)

    def kill(self) -> None:
        """Whatever is left of it and its JVM; not what was stopped, for that is in a group of its own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def wake(pid: int) -> psutil.Process:
    """Let a stopped process go on."""
    process = psutil.Process(pid)
    process.send_signal(signal.SIGCONT)
    return process

"""Kills at named points of the pipeline, in whatever process passes them, while the package runs as users have it.

Processes that have `PYTHONPATH` import `crash_site/sitecustomize.py` at their start, and that calls `install`: as soon
as a module of `acquit.spark` is imported, a few of its functions get a look at the points they pass. The package has no
hook, and the format that is read is `acquit` itself.

A point is **armed** by a file, `arm(work, "published", "worker")`, in the folder ``crashes`` beside the spool. The
first process that passes the point takes the file away, writes ``published.passed`` with its process id, and does what
the file says; so each point is passed once, and a test can ask whether it was (`passed`). Points of `TASK` and `SINK`
wait for their epoch, or batch of the sink, if one is named. In the order in which an epoch meets them:

drained            messages are held, nothing is written
data-written       the data file is there, nothing is published
publishing         this very process is about to append its publication to the log
published          the publication is in the log, nothing is settled
settled            the broker has its answers, the marker of that is not written
yielded            all rows of a part were given to the sink, which has committed nothing
table-committing   the files of the batch are written, the driver is about to commit them to the Delta table
table-committed    the table has the batch, Spark's commit log does not
floor-raised       the clean-up has raised the floor and removed nothing
removing           the clean-up has removed one data file
checkpointing      a checkpoint of the spool's log is appended, its marker is not written
trimming           one entry that the checkpoint replaced is removed

Those of the stream sink; its folder ``crashes`` is beside that of its reports:

posting            some rows of a part are posted, others are on their way and have no answer
posted             all rows of a part are posted, Spark does not know it
batch-posted       so are all parts, and Spark's commit log does not know it

Those of a redrive, for processes that are told the folder by the environment (`CRASHES`):

moving             the broker has moved a few letters of a request, nothing of that is in its journal
move-recorded      a request is done and in the journal, the broker has not answered
moved              the redrive has the answer to one of its requests

What happens there:

worker      this Python process is killed, as by the kernel that needs its memory
executor    the JVM above it is killed, and then it (with a ``local[...]`` master: the driver's JVM, too)
everything  that, and the program that started the JVM
zombie      the JVM is killed and this process stopped; somebody may let it go on much later
stop        this process is stopped, and nothing else; what goes on afterwards leaves ``POINT.continued``
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import psutil

TASK: Final = ("drained", "data-written", "publishing", "published", "settled", "yielded")
TABLE: Final = ("table-committing", "table-committed")
CLEANING: Final = ("floor-raised", "removing", "checkpointing", "trimming")
SINK: Final = ("posting", "posted", "batch-posted")
REDRIVE: Final = ("moving", "move-recorded", "moved")
POINTS: Final = (*TASK, *TABLE, *CLEANING, *SINK, *REDRIVE)
ENDINGS: Final = ("worker", "executor", "everything", "zombie", "stop")

MUTANT: Final = "ACQUIT_TEST_MUTANT"
"""The environment variable that names one of `MUTANTS`: protections that are taken out, to see that they are missed."""

WITH_JVM: Final = ("executor", "everything", "zombie")
"""Endings that take the JVM with them."""

CRASHES: Final = "ACQUIT_TEST_CRASHES"
"""The environment variable with `folder_of`, for processes that have no work folder."""

SITE: Final = Path(__file__).with_name("crash_site")
ROOT: Final = Path(__file__).resolve().parents[2]
PYTHONPATH: Final = os.pathsep.join(map(str, (SITE, ROOT / "src", ROOT)))
"""With `src`, as what is installed may be another working tree."""


def folder_of(work: Path) -> Path:
    """Where the points of the query with this work folder are armed."""
    return work / "crashes"


def arm(work: Path, point: str, ending: str, *, epoch: int = 0) -> None:
    """Once, from `epoch` on."""
    assert point in POINTS and ending in ENDINGS
    assert not epoch or point in (*TASK, *SINK), "who commits does not know what is an epoch"
    folder = folder_of(work)
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{point}.fresh"
    fresh.write_text(json.dumps({"ending": ending, "epoch": epoch}))
    fresh.rename(folder / point)


def disarm(work: Path, point: str) -> None:
    """It need not be armed."""
    (folder_of(work) / point).unlink(missing_ok=True)


def passed(work: Path, point: str) -> int | None:
    """The process that passed the point, None as long as nobody has."""
    mark = folder_of(work) / f"{point}.passed"
    return int(mark.read_text()) if mark.exists() else None


def continued(work: Path, point: str) -> bool:
    """Whether the process that was stopped there goes on."""
    return (folder_of(work) / f"{point}.continued").exists()


def pass_point(folder: Path, point: str) -> None:
    """What a process does that passes it."""
    armed = folder / point
    if not armed.exists():
        return
    try:
        order = json.loads(armed.read_text())
        if point in (*TASK, *SINK) and _Task.epoch < order["epoch"]:
            return
        if order["ending"] in WITH_JVM and _jvm() is None:
            # A worker that outlives its JVM for a moment: the point is armed for those of the next run.
            return
        armed.rename(folder / f"{point}.{os.getpid()}")
    except FileNotFoundError:
        return  # somebody else was faster
    mark = folder / f"{point}.{os.getpid()}"
    mark.write_text(str(os.getpid()))
    mark.rename(folder / f"{point}.passed")
    _end(order["ending"], folder, point)


def _end(ending: str, folder: Path, point: str) -> None:
    if ending in ("zombie", "stop"):
        # When the JVM is gone, Spark's daemon ends its process group, and the kernel wakes those in it that were
        # stopped. A machine that hangs hears nothing of that.
        os.setsid()
    if ending in WITH_JVM:
        _kill_jvm(program_too=ending == "everything")
    if ending not in ("zombie", "stop"):
        os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGSTOP)
    (folder / f"{point}.continued").write_text(str(os.getpid()))


def _jvm() -> psutil.Process | None:
    """The JVM that started this process, or, for the driver's own program, that it started; None if it has ended."""
    import psutil

    this = psutil.Process()
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in (*this.parents(), *this.children(recursive=True)):
            if process.name() == "java" and process.status() != psutil.STATUS_ZOMBIE:
                return process
    return None


def _kill_jvm(*, program_too: bool) -> None:
    jvm = _jvm()
    if jvm is None:
        return  # it ended by itself meanwhile
    program = jvm.parent()
    jvm.kill()
    if program_too and program is not None and "python" in program.name():
        program.kill()


class _Task:
    """What this process knows of the part it reads or writes."""

    epoch = 0
    folder = Path()


# How each module is changed once it has been imported.


def _change_spool(module: ModuleType) -> None:
    real = module.Spool.__init__

    def init(self: Any, store: Any, retention: Any = None, **more: Any) -> None:
        # A checkpoint every few batches: else a test would need dozens to see one.
        retention = replace(retention or module.RetentionOptions(), checkpoint_entries=6)
        real(self, _Store(store), retention, **more)

    module.Spool.__init__ = init


class _Store:
    """A store that knows which points its verbs are."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._folder = folder_of(Path(real.place).parent)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def put(self, name: str, *pieces: Any, **more: Any) -> None:
        if name.startswith("checkpoints/"):
            pass_point(self._folder, "checkpointing")
        self._real.put(name, *pieces, **more)
        if name.startswith("data/"):
            pass_point(self._folder, "data-written")

    def put_if_absent(self, name: str, data: bytes) -> bool:
        kind = json.loads(data.partition(b"\n")[0])["kind"] if name.startswith("log/") else None
        if kind == "publication":
            pass_point(self._folder, "publishing")
        created: bool = self._real.put_if_absent(name, data)
        if created and kind == "publication":
            pass_point(self._folder, "published")
        if created and kind == "floor":
            pass_point(self._folder, "floor-raised")
        return created

    def remove(self, name: str) -> None:
        self._real.remove(name)
        if name.startswith("data/"):
            pass_point(self._folder, "removing")
        if name.startswith("log/"):
            pass_point(self._folder, "trimming")


def _change_link(module: ModuleType) -> None:
    receive, settle = module.QueueDrain.receive, module.QueueDrain.settle

    def receive_and_pass(self: Any, rows_max: int) -> Any:
        received = receive(self, rows_max)
        if received:
            pass_point(_Task.folder, "drained")
        return received

    def settle_and_pass(self: Any, outcomes: Any) -> Any:
        answered = settle(self, outcomes)
        if outcomes:
            pass_point(_Task.folder, "settled")
        return answered

    module.QueueDrain.receive, module.QueueDrain.settle = receive_and_pass, settle_and_pass


def _change_stream(module: ModuleType) -> None:
    real = module.AcquitStreamReader.read

    def read(self: Any, partition: Any) -> Iterator[Any]:
        _Task.epoch = partition.planned.part.epoch
        _Task.folder = folder_of(Path(self._options.spool).parent)
        rows = 0
        for batch in real(self, partition):
            rows += batch.num_rows
            yield batch
        if rows:
            pass_point(_Task.folder, "yielded")

    module.AcquitStreamReader.read = read


def _change_delta(module: ModuleType) -> None:
    real = module.DeltaAppender.commit

    def commit(self: Any, batch_id: int, files: Sequence[Any]) -> Any:
        # The pipeline's own place for its work.
        folder = folder_of(self._table / "_acquit")
        pass_point(folder, "table-committing")
        committed = real(self, batch_id, files)
        pass_point(folder, "table-committed")
        return committed

    module.DeltaAppender.commit = commit


def _change_poster(module: ModuleType) -> None:
    real = module.SinkPoster._take_oldest

    def take_oldest(self: Any) -> None:
        real(self)
        if self._pending:
            pass_point(_Task.folder, "posting")

    module.SinkPoster._take_oldest = take_oldest


def _change_writers(module: ModuleType) -> None:
    write_rows, commit = module.write_rows, module.AcquitStreamWriter.commit

    def write_rows_and_pass(options: Any, origin: Any, batches: Any) -> Any:
        _begin_batch(options, origin.batch)
        result = write_rows(options, origin, batches)
        if result.written or result.suppressed:
            pass_point(_Task.folder, "posted")
        return result

    def pass_and_commit(self: Any, messages: Any, batch: int) -> None:
        _begin_batch(self._options, batch)
        pass_point(_Task.folder, "batch-posted")
        commit(self, messages, batch)

    module.write_rows, module.AcquitStreamWriter.commit = write_rows_and_pass, pass_and_commit


def _begin_batch(options: Any, batch: int) -> None:
    _Task.epoch = batch
    # A sink that does not report has no folder in which its points could be armed.
    _Task.folder = folder_of(Path(options.report).parent) if options.report is not None else Path()


def _change_moving(module: ModuleType) -> None:
    init, look_at = module.Move.__init__, module.Move._look_at
    folder = Path(os.environ[CRASHES])

    def init_and_see(self: Any, *given: Any, done: Callable[[int, str], None], **more: Any) -> None:
        def pass_and_tell(count: int, why: str) -> None:
            if count:
                pass_point(folder, "move-recorded")
            done(count, why)

        init(self, *given, done=pass_and_tell, **more)

    def look_at_and_pass(self: Any, message: Any) -> Any:
        chosen = look_at(self, message)
        if self._moved > 1:
            pass_point(folder, "moving")
        return chosen

    module.Move.__init__, module.Move._look_at = init_and_see, look_at_and_pass


def _change_redrive(module: ModuleType) -> None:
    real = module._moved
    folder = Path(os.environ[CRASHES])

    def moved(*given: Any) -> int:
        count: int = real(*given)
        pass_point(folder, "moved")
        return count

    module._moved = moved


# Protections that are taken out.


def _settle_first(module: ModuleType) -> None:
    from acquit.spark.spool import Outcome

    receive, settle = module.QueueDrain.receive, module.QueueDrain.settle

    def receive_and_settle(self: Any, rows_max: int) -> Any:
        received = receive(self, rows_max)
        settle(self, {Outcome.ACCEPTED: range(self._received - len(received), self._received)})
        return received

    module.QueueDrain.receive = receive_and_settle
    module.QueueDrain.settle = lambda self, outcomes: True


def _forget_identities(module: ModuleType) -> None:
    import numpy as np

    def outcomes(self: Any, wanted: Any) -> Any:
        return np.full(len(wanted), module.UNKNOWN, np.uint8), np.zeros(len(wanted), np.bool_)

    module.LogState.outcomes = outcomes


def _never_look_up_the_batch(module: ModuleType) -> None:
    module.DeltaAppender._done = lambda self, table, batch_id: False


def _ignore_others(module: ModuleType) -> None:
    """An attempt does not look whether its part was published while it slept, however long."""
    connecting = importlib.import_module("acquit.spark.connecting")
    connecting.ConnectOptions = partial(connecting.ConnectOptions, idle_timeout_ms=0)  # type: ignore[attr-defined]
    module._refuse_finished = lambda state, part, store: None
    real = module._PartAttempt.decide

    def decide(self: Any, state: Any, *more: Any) -> Any:
        mine = state.decided.get((self._part.epoch, self._part.part))
        if mine is not None and mine.nonce == self.nonce:
            return None
        return real(self, replace(state, decided={}), *more)

    module._PartAttempt.decide = decide


CHANGES: Final[dict[str, Callable[[ModuleType], None]]] = {
    "acquit.spark.spool": _change_spool,
    "acquit.spark.link": _change_link,
    "acquit.spark.stream": _change_stream,
    "acquit.spark.delta": _change_delta,
    "acquit.spark.sink.poster": _change_poster,
    "acquit.spark.sink.writers": _change_writers,
}
CHANGES_IF_TOLD: Final[dict[str, Callable[[ModuleType], None]]] = {
    "acquit.broker.admin.moving": _change_moving,
    "acquit.spark.redrive": _change_redrive,
}
"""In processes that have `CRASHES`."""
MUTANTS: Final[dict[str, tuple[str, Callable[[ModuleType], None]]]] = {
    "settles first": ("acquit.spark.link", _settle_first),
    "forgets": ("acquit.spark.spool.log", _forget_identities),
    "does not ask the table": ("acquit.spark.delta", _never_look_up_the_batch),
    "is not fenced": ("acquit.spark.spool.attempt", _ignore_others),
}


def install() -> None:
    """Change each module of `CHANGES` as soon as it is imported in this process."""
    told = CHANGES_IF_TOLD if CRASHES in os.environ else {}
    changes = {name: [change] for name, change in (CHANGES | told).items()}
    if os.environ.get(MUTANT):
        name, mutate = MUTANTS[os.environ[MUTANT]]
        # First, so that points are passed around what is left.
        changes[name] = [mutate, *changes.get(name, [])]
    sys.meta_path.insert(0, _Finder(changes))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, changes: dict[str, list[Callable[[ModuleType], None]]]) -> None:
        self._changes = changes

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._changes:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader)
        spec.loader = _Loader(name, spec.loader.path, self._changes[name])
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, changes: list[Callable[[ModuleType], None]]) -> None:
        super().__init__(name, path)
        self._changes = changes

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        for change in self._changes:
            change(module)

"""The committer against a journal whose disk the test holds in its hand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from acquit.broker import committer as module
from acquit.broker.committer import Committer
from acquit.broker.machine import ThreadWorker
from acquit.errors import StoreError, StoreFailed, StoreFull
from acquit.store.interface import Chore, Position

RECORD_BYTES = 100


class FakeBatch:
    """A batch whose write waits for the test's word: an error to raise, or None for success."""

    def __init__(self, end: int) -> None:
        self.end = Position(end)
        self.size_bytes = 1
        self.verdict: list[StoreError | None] = []
        self.go = threading.Semaphore(0)
        self.writes = 0

    def write_and_sync(self, announce: Callable[[], None] | None = None) -> None:
        assert self.go.acquire(timeout=20)
        self.writes += 1
        error = self.verdict.pop(0)
        if error is not None:
            raise error
        assert announce is not None
        announce()

    def let(self, error: StoreError | None = None) -> None:
        self.verdict.append(error)
        self.go.release()


class FakeChore:
    def __init__(self) -> None:
        self.thread = ""

    def run(self) -> None:
        self.thread = threading.current_thread().name


class FakeJournal:
    """Both the journal and its batches, as far as a committer looks."""

    def __init__(self) -> None:
        self.appended = 0
        self.has_waiters = True
        self.taken = 0
        self.batches: list[FakeBatch] = []
        self.chores: list[FakeChore] = []
        self.done: list[Chore] = []
        self.looks = 0
        self.all_done = asyncio.Event()

    @property
    def pending(self) -> bool:
        return self.appended > self.taken

    @property
    def pending_bytes(self) -> int:
        return (self.appended - self.taken) * RECORD_BYTES

    def take_batch(self) -> FakeBatch:
        self.taken = self.appended
        self.batches.append(FakeBatch(self.taken))
        return self.batches[-1]

    def complete(self, batch: FakeBatch) -> Position:
        return batch.end

    def take_chore(self) -> FakeChore | None:
        self.looks += 1
        return self.chores.pop(0) if self.chores else None

    def complete_chore(self, chore: Chore) -> None:
        self.done.append(chore)
        if not self.chores:
            self.all_done.set()


class CountingWorker:
    """A thread that counts the pauses in place of making them."""

    def __init__(self, name: str) -> None:
        worker = ThreadWorker(name)
        self.submit, self.stop, self.tell = worker.submit, worker.stop, worker.tell
        self.pauses = 0

    def give_way(self) -> None:
        self.pauses += 1


class Stage:
    def __init__(self) -> None:
        self.workers: list[CountingWorker] = []
        self.journal = FakeJournal()
        self.synced: list[int] = []
        self.failures: list[StoreError] = []
        self.heard = asyncio.Event()
        self.committer = Committer(
            self.journal,  # type: ignore[arg-type]
            self.journal,
            synced=self._hear_synced,
            failed=self._hear_failed,
            make_worker=self._make_worker,
        )

    def _make_worker(self, name: str) -> CountingWorker:
        self.workers.append(CountingWorker(name))
        return self.workers[-1]

    @property
    def pauses(self) -> list[int]:
        return [worker.pauses for worker in self.workers]

    def _hear_synced(self, position: Position) -> None:
        self.synced.append(position)
        self.heard.set()

    def _hear_failed(self, error: StoreError) -> None:
        self.failures.append(error)
        self.heard.set()

    def append(self, records: int = 1) -> None:
        self.journal.appended += records
        self.committer.kick()

    async def news(self) -> None:
        async with asyncio.timeout(20):
            await self.heard.wait()
        self.heard.clear()


def test_the_next_batch_fills_while_one_is_in_flight() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.append()
        stage.append(2)
        stage.append(3)
        first = stage.journal.batches[0]
        assert (len(stage.journal.batches), first.end) == (1, 1)
        first.let()
        await stage.news()
        assert [batch.end for batch in stage.journal.batches] == [1, 6]
        stage.journal.batches[1].let()
        await stage.committer.drain()
        assert stage.synced == [1, 6]
        await stage.committer.stop()

    asyncio.run(scenario())


def test_what_nobody_waits_for_goes_with_the_next_that_somebody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.journal.has_waiters = False
        stage.append()
        stage.append()
        assert not stage.journal.batches
        stage.journal.has_waiters = True
        stage.append()
        assert [batch.end for batch in stage.journal.batches] == [3]
        stage.journal.has_waiters = False
        stage.append()
        stage.journal.batches[0].let()
        await stage.news()
        assert len(stage.journal.batches) == 1
        stage.append(module.LINGER_BYTES_MAX // RECORD_BYTES)
        assert len(stage.journal.batches) == 2, "much is worth a batch"
        stage.append()
        draining = asyncio.ensure_future(stage.committer.drain())
        stage.journal.batches[1].let()
        await stage.news()
        assert len(stage.journal.batches) == 3, "who drains waits for all"
        stage.journal.batches[2].let()
        await draining
        await stage.committer.stop()

    monkeypatch.setattr(module, "LINGER_S", 3_600.0)
    asyncio.run(scenario())


def test_what_nobody_waits_for_is_written_a_moment_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is the test's: the timer of the first is for all that comes before it ends."""
    timers: list[tuple[float, Callable[[], None]]] = []
    handles: list[asyncio.TimerHandle] = []

    def call_later(delay: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        timers.append((delay, call))
        handles.append(asyncio.TimerHandle(0.0, call, (), loop))
        return handles[-1]

    async def scenario() -> None:
        stage = Stage()
        stage.journal.has_waiters = False
        monkeypatch.setattr(loop, "call_later", call_later)
        stage.append()
        stage.append()
        assert [delay for delay, _ in timers] == [module.LINGER_S]
        timers.pop()[1]()
        assert [batch.end for batch in stage.journal.batches] == [2]
        stage.append()
        assert not timers, "the batch in flight comes first"
        stage.journal.batches[0].let()
        await stage.news()
        assert len(timers) == 1
        stage.journal.has_waiters = True
        stage.append()
        assert [batch.end for batch in stage.journal.batches] == [2, 4]
        assert handles[-1].cancelled(), "nothing that it was for is left"
        timers.clear()
        stage.journal.batches[1].let()
        await stage.news()
        stage.journal.has_waiters = False
        stage.append()
        assert [delay for delay, _ in timers] == [module.LINGER_S]
        assert not handles[-1].cancelled()
        await stage.committer.stop()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(scenario())
    loop.close()


def test_no_batch_begins_once_it_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.journal.has_waiters = False
        stage.append()
        await stage.committer.stop()
        await asyncio.sleep(0.01)
        assert not stage.journal.batches

    monkeypatch.setattr(module, "LINGER_S", 0.001)
    asyncio.run(scenario())


def test_where_much_waits_the_loop_gives_way_to_the_thread_that_writes() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.append(1_000)
        assert stage.pauses == [0, 0]
        stage.append(module.MUCH_BYTES // RECORD_BYTES)
        assert stage.pauses == [0, 0]
        stage.append()
        assert stage.pauses == [1, 0]
        for _ in range(100):
            stage.committer.kick()
        assert stage.pauses == [module.PAUSES_MAX, 0]
        stage.journal.batches[0].let()
        await stage.news()
        stage.append(1_000)
        assert stage.pauses == [module.PAUSES_MAX + 1, 0]
        stage.journal.batches[1].let()
        await stage.news()
        stage.journal.batches[2].let()
        await stage.committer.drain()
        await stage.committer.stop()

    asyncio.run(scenario())


def test_drain_waits_for_what_is_recorded_meanwhile() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.append()
        draining = asyncio.ensure_future(stage.committer.drain())
        await asyncio.sleep(0)
        stage.append()
        stage.journal.batches[0].let()
        await stage.news()
        assert not draining.done()
        stage.journal.batches[1].let()
        await draining
        assert stage.synced == [1, 2]
        await stage.committer.stop()

    asyncio.run(scenario())


def test_a_full_disk_is_tried_again_with_the_same_batch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.append()
        batch = stage.journal.batches[0]
        batch.let(StoreFull("no room"))
        batch.let(StoreFull("no room"))
        batch.let()
        await stage.news()
        assert (batch.writes, stage.synced, stage.failures) == (3, [1], [])
        await stage.committer.stop()

    monkeypatch.setattr(module, "RETRY_S", 0.0)
    asyncio.run(scenario())
    full, again = (record.message for record in caplog.records)
    assert full.startswith("the disk is full")
    assert again.startswith("there is room on the disk again")


def test_it_says_what_else_there_is_not_enough_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.append()
        error = StoreFull("no descriptor")
        error.limit = "no descriptor is left"
        for outcome in (error, error, StoreFull("no room"), None):
            stage.journal.batches[0].let(outcome)
        await stage.news()
        await stage.committer.stop()

    monkeypatch.setattr(module, "RETRY_S", 0.0)
    asyncio.run(scenario())
    first, second, again = (record.message for record in caplog.records)
    assert first.startswith("no descriptor is left: ")
    assert second.startswith("the disk is full: ")
    assert again.startswith("there is room")


@pytest.mark.parametrize("batch", ["is written in vain", "cannot be made"])
def test_a_full_disk_keeps_nobody_from_stopping(monkeypatch: pytest.MonkeyPatch, batch: str) -> None:
    async def scenario() -> None:
        stage = Stage()
        if batch == "cannot be made":
            monkeypatch.setattr(stage.journal, "take_batch", lambda: None)
            stage.append()
        else:
            stage.append()
            for _ in range(100):
                stage.journal.batches[0].let(StoreFull("no room"))
        async with asyncio.timeout(20):
            with pytest.raises(StoreFull):
                await stage.committer.drain(patience_s=0.02)
        assert (stage.synced, stage.failures) == ([], [])
        await stage.committer.stop()

    monkeypatch.setattr(module, "RETRY_S", 0.01)
    asyncio.run(scenario())


def test_an_io_error_ends_it_for_good() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.append()
        stage.append()
        stage.journal.batches[0].let(StoreFailed("input/output error"))
        await stage.news()
        stage.append()
        assert len(stage.journal.batches) == 1
        assert stage.synced == []
        assert [str(error) for error in stage.failures] == ["input/output error"]
        with pytest.raises(StoreFailed, match="input/output error"):
            await stage.committer.drain()
        await stage.committer.stop()

    asyncio.run(scenario())


def test_housekeeping_has_a_thread_of_its_own() -> None:
    async def scenario() -> None:
        stage = Stage()
        chores = [FakeChore(), FakeChore()]
        stage.journal.chores = list(chores)
        stage.append()
        async with asyncio.timeout(20):
            await stage.journal.all_done.wait()
        assert stage.synced == []  # the disk is still busy with the batch
        assert all(chore.thread.startswith("acquit-chores") for chore in chores)
        stage.journal.batches[0].let()
        await stage.committer.drain()
        await stage.committer.stop()

    asyncio.run(scenario())


def test_a_chore_that_could_open_no_file_is_left_undone() -> None:
    class Starved(FakeChore):
        def run(self) -> None:
            raise StoreFull("Too many open files")

    async def scenario() -> None:
        stage = Stage()
        chore = Starved()
        stage.journal.chores = [chore]
        stage.committer.kick()
        async with asyncio.timeout(20):
            await stage.journal.all_done.wait()
        assert (stage.journal.done, stage.failures) == ([chore], [])
        await stage.committer.stop()

    asyncio.run(scenario())


def test_chores_are_looked_for_where_there_may_be_new_ones() -> None:
    """Each turn of a broker kicks: to ask for chores each time is felt where each turn is of one message."""

    async def main() -> None:
        stage = Stage()
        for _ in range(100):
            stage.committer.kick()
        assert stage.journal.looks == 1
        stage.append()
        stage.journal.batches[0].let()
        await stage.news()
        stage.committer.kick()
        assert stage.journal.looks == 2, "what was synced may have brought one"
        stage.journal.chores = [FakeChore()]
        stage.committer.kick()
        assert not stage.journal.done
        await asyncio.sleep(module.CHORES_S)
        stage.committer.kick()
        async with asyncio.timeout(20):
            await stage.journal.all_done.wait()
        await stage.committer.stop()

    asyncio.run(main())


def test_what_is_recorded_while_the_threads_end_stays_pending() -> None:
    """As a batch it would go to a thread that has ended, and keep the last record of a stop from being written."""

    class LastChore(FakeChore):
        def __init__(self) -> None:
            super().__init__()
            self.go = threading.Event()

        def run(self) -> None:
            assert self.go.wait(20)

    async def scenario() -> None:
        stage = Stage()
        chore = LastChore()
        stage.journal.chores = [chore]
        stage.append()
        stage.journal.batches[0].let()
        await stage.committer.drain()
        stopping = asyncio.ensure_future(stage.committer.stop())
        await asyncio.sleep(0)
        stage.append()
        stage.journal.chores.append(FakeChore())
        chore.go.set()
        async with asyncio.timeout(20):
            await stopping
        assert stage.journal.done == [chore]
        assert (stage.journal.pending, len(stage.journal.batches), stage.synced) == (True, 1, [1])

    asyncio.run(scenario())

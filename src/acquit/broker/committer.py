"""Drives the journal: the event loop's side of two threads.

Theory of operation. The core appends records and never waits. At the end of each turn the server calls `kick`: if no
batch is in flight, what is pending becomes one and goes to the batch thread, which writes and syncs it. While the disk
works the next batch fills by itself; that is all there is to group commit, and nobody waits for a timer: an idle
broker syncs at once, a busy one in large batches. Only what nobody waits for, outcomes on mode-first links above all,
lingers a moment, for a batch that somebody waits for: alone it would hold up the next posting by its sync. When a batch
is durable the thread says so through the loop, `synced` tells the core, and the next batch is taken in the same turn::

    loop           kick ─ take_batch ──────────────── complete ─ synced(position) ─ take_batch ─ ...
    batch thread                    └ write, sync ─▶ ┘└ digest ┘

A loop that is busy would hardly let that thread have the interpreter's lock, which it needs after each system call. So
where somebody waits for much that the next batch will have, a turn ends with a pause of the loop (`Worker.give_way`):
that could not be written sooner anyway, and more comes together meanwhile.

Slow housekeeping (prewriting segments, archiving) runs on a thread of its own, so that it never delays a sync.

A full disk stops the batch where it is: it is tried again every `RETRY_S`, and answered when there is room. So does a
system that has no file descriptor left. An I/O error ends the broker: `failed` is called once, and nothing later is
ever synced.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from acquit.broker.durations import Durations
from acquit.broker.machine import ThreadWorker, Worker
from acquit.errors import StoreError, StoreFailed, StoreFull
from acquit.store.interface import Batch, Chore, Journal, Position

logger = logging.getLogger("acquit.broker.journal")

LINGER_S: Final = 0.005
"""Seconds for which what nobody waits for may be kept from the disk: as long as a slow one takes for a sync."""
LINGER_BYTES_MAX: Final = 65_536
"""Bytes that are kept so. More are worth a batch of their own."""
RETRY_S: Final = 0.5
"""Seconds until a batch that found no room on the disk is tried again."""
MUCH_BYTES: Final = 4_096
"""Bytes for the next batch, from which on more of them, written together, is worth a pause."""
PAUSES_MAX: Final = 10
"""Pauses of the loop while one batch is written: a millisecond in all, however slow the disk is."""
CHORES_S: Final = 0.5
"""Seconds until a chore is looked for again where there was none: only time brings one while nothing is written."""


class Batches(Protocol):
    """Source of batches: the core's `scribe.Scribe`, whose recorder packs what it has gathered first."""

    @property
    def pending(self) -> bool:
        """True if something waits to be written."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Size of that."""
        ...

    @property
    def has_waiters(self) -> bool:
        """True if somebody waits for it to be synced."""
        ...

    def take_batch(self) -> Batch | None:
        """All of it, or None if a batch is in flight."""
        ...


class Committer:
    """Takes what was recorded to the disk. All methods belong to the loop."""

    def __init__(
        self,
        journal: Journal,
        batches: Batches,
        *,
        synced: Callable[[Position], None],
        failed: Callable[[StoreError], None],
        make_worker: Callable[[str], Worker] = ThreadWorker,
        steady_s: Callable[[], float] = time.monotonic,
        took: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`took` hears how many seconds each batch took to be durable, by `steady_s`."""
        self._journal = journal
        self._batches = batches
        self._synced = synced
        self._failed = failed
        self._steady_s = steady_s
        self._took = took
        self._loop = asyncio.get_running_loop()
        self._batch_thread = make_worker("acquit-journal")
        self._chore_thread = make_worker("acquit-chores")
        self._stopping = False
        self._in_flight: Batch | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._chore: Chore | None = None
        self._chores_at_s = 0.0
        """Time, by the loop, when to look for a chore again. What is synced may bring one at once."""
        self._idle: asyncio.Future[None] | None = None
        self._no_room = ""
        """The limit that the batch has met (`StoreFull.limit`), the last time that it was tried."""
        self._failure: StoreError | None = None
        self._pauses_left = 0
        self._written_at = 0.0
        self.syncs = Durations()
        """Times from the begin of a batch until it was on the disk, with all waiting for room there."""

    @property
    def failure(self) -> StoreError | None:
        """The error that ended the journal, if one did."""
        return self._failure

    @property
    def stopping(self) -> bool:
        """True once its threads end or have ended: what is recorded from then on is not written here."""
        return self._stopping

    def kick(self) -> None:
        """Start the next batch and chore, unless one is under way. Cheap: to be called at the end of every turn."""
        if self._stopping:
            return  # no thread would write it: what is pending stays that
        batches = self._batches
        if self._in_flight is None:
            if not self._lingers():
                self._start_batch()
        elif self._pauses_left and batches.has_waiters and batches.pending_bytes > MUCH_BYTES:
            self._pauses_left -= 1
            self._batch_thread.give_way()
        if self._chore is None and self._failure is None and self._loop.time() >= self._chores_at_s:
            self._chore = chore = self._journal.take_chore()
            if chore is None:
                self._chores_at_s = self._loop.time() + CHORES_S
            else:
                self._chore_thread.submit(lambda: self._run_chore(chore))

    async def drain(self, *, patience_s: float = 5.0) -> None:
        """Wait until all that was recorded so far is durable. A slow disk is waited for as long as it takes, a full one
        for `patience_s`.

        Raises the StoreError that ended the journal; StoreFull when there was no room.
        """
        give_up_at = self._loop.time() + patience_s
        while self._failure is None and (self._in_flight is not None or self._batches.pending):
            if self._idle is None or self._idle.done():
                self._idle = self._loop.create_future()
            self.kick()
            if self._idle.done():  # there is something, and not even a batch could be made of it
                self._no_room = StoreFull.limit
                await asyncio.sleep(RETRY_S)
            else:
                await asyncio.wait([self._idle], timeout=RETRY_S)
            if not self._no_room:
                give_up_at = self._loop.time() + patience_s
            elif self._loop.time() >= give_up_at:
                raise StoreFull(f"{self._no_room}: what was recorded last is not written")
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """End both threads. What is pending is not written: `drain` first. What is recorded while they end, as the last
        chore may have something recorded, stays pending."""
        self._stopping = True
        for timer in (self._retry, self._linger):
            if timer is not None:
                timer.cancel()
        for thread in (self._batch_thread, self._chore_thread):
            await thread.stop()

    # -- the batch -----------------------------------------------------------------------------------------------------

    def _lingers(self) -> bool:
        """Return True while what is pending waits for company: one timer is for all of it, and ends with its batch."""
        batches = self._batches
        if not batches.pending or batches.has_waiters or batches.pending_bytes > LINGER_BYTES_MAX:
            return False
        if self._idle is not None and not self._idle.done():
            return False
        if self._linger is None:
            self._linger = self._loop.call_later(LINGER_S, self._end_linger)
        return True

    def _end_linger(self) -> None:
        self._linger = None
        if self._in_flight is None:
            self._start_batch()

    def _start_batch(self) -> None:
        """Take what is pending to the disk, whoever waits for it. None is in flight."""
        if self._failure is not None:
            return
        batch = self._batches.take_batch() if self._batches.pending else None
        if batch is not None:
            if self._linger is not None:
                self._linger.cancel()
                self._linger = None
            self._in_flight = batch
            self._no_room = ""
            self._written_at = self._loop.time()
            self._pauses_left = PAUSES_MAX
            self._write(batch)
        elif self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _write(self, batch: Batch) -> None:
        self._retry = None
        self._batch_thread.submit(lambda: self._run_batch(batch))

    def _run_batch(self, batch: Batch) -> None:
        """Write and sync a batch on the batch thread, and tell the loop what came of it."""
        began_s = self._steady_s()
        try:
            batch.write_and_sync(
                lambda: self._batch_thread.tell(self._complete, batch, self._steady_s() - began_s),
            )
        except StoreFull as exc:
            self._batch_thread.tell(self._wait_for_room, batch, exc)
        except StoreError as exc:
            self._batch_thread.tell(self.fail, exc)
        except Exception as exc:
            logger.exception("the journal's thread failed")
            self._batch_thread.tell(self.fail, StoreFailed(f"the journal's thread failed: {exc!r}"))

    def _complete(self, batch: Batch, seconds: float) -> None:
        if self._failure is not None:
            return
        self._took(seconds)
        self._in_flight = None
        self.syncs.add(self._loop.time() - self._written_at)
        if self._no_room:
            over = "there is room on the disk" if self._no_room == StoreFull.limit else "files can be opened"
            logger.warning("%s again: the %d bytes that waited are written", over, batch.size_bytes)
        self._no_room = ""
        self._synced(self._journal.complete(batch))
        self._chores_at_s = 0.0
        self.kick()

    def _wait_for_room(self, batch: Batch, exc: StoreFull) -> None:
        if self._no_room != exc.limit:
            logger.warning("%s: %d bytes wait to be written", exc.limit, batch.size_bytes, extra={"reason": str(exc)})
        self._no_room = exc.limit
        self._retry = self._loop.call_later(RETRY_S, self._write, batch)

    def fail(self, error: StoreError) -> None:
        """The journal cannot be trusted any more, as somebody found who read it."""
        if self._failure is None:
            self._failure = error
            if self._idle is not None and not self._idle.done():
                self._idle.set_result(None)
            self._failed(error)

    # -- housekeeping --------------------------------------------------------------------------------------------------

    def _run_chore(self, chore: Chore) -> None:
        """Run a chore on the chore thread, and tell the loop what came of it."""
        try:
            with suppress(StoreFull):  # no file could be opened: left undone, as what a full disk is for
                chore.run()
        except StoreError as exc:
            self._chore_thread.tell(self.fail, exc)
        except Exception as exc:
            logger.exception("the journal's housekeeping failed")
            self._chore_thread.tell(self.fail, StoreFailed(f"the journal's housekeeping failed: {exc!r}"))
        else:
            self._chore_thread.tell(self._complete_chore, chore)

    def _complete_chore(self, chore: Chore) -> None:
        if self._failure is None:
            self._chore = None
            self._chores_at_s = 0.0
            self._journal.complete_chore(chore)
            self.kick()


__all__ = ["RETRY_S", "Batches", "Committer"]

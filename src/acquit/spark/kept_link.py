"""The link that a task leaves open in its process for the next task of its query.

A batch is drained, then written and committed, and then the next one is planned; all that while the broker could send
what the next one will have. So a part that was ended by its limits, and whose queue has more, keeps the link, and the
next task of the query in this process goes on with it, if that reads the same address under the same limits.

What is held is acquired and unsettled, and of no epoch: whoever else might ask for it finds an empty queue. So it is
held for `KEPT_FOR_S` at most, and then given back, which costs nobody anything but that it is drained again. Where that
happened, as with a first batch that takes long, a trigger that pauses, or a cluster that gives the next task to another
process, the next task keeps nothing; twice as many after each time in a row, up to `_WITHOUT_MAX`. The log says which
links were kept and gone on with (`Publication.kept`, `continues`), and the driver believes no end of an AvailableNow
run before what was kept is gone on with or given back.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from acquit.spark.driver import PlannedPart
from acquit.spark.link import QueueDrain
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import KEPT_FOR_S, Drain

logger = logging.getLogger("acquit.spark")

_WITHOUT_MAX: Final = 64


class KeptLink:
    """The link that is kept for the next task of a run of a query in this process, if one is. Safe for threads: time
    runs out on one of its own."""

    def __init__(self, kept_for_s: float = KEPT_FOR_S) -> None:
        self._kept_for_s = kept_for_s
        self._lock = threading.Lock()
        self._drain: QueueDrain | None = None
        self._kept_by: PlannedPart | None = None
        self._timer: threading.Timer | None = None
        self._vain = 0
        """Links in a row that were kept for nothing."""
        self._without = 0
        """Tasks that keep none now."""

    def attach(self, options: SourceOptions, planned: PlannedPart) -> Drain:
        """Return the link that was kept, if it serves, or a new one: see `QueueDrain`, also for what is raised."""
        part = planned.part
        drain, kept_by = self._take()
        if drain is not None and kept_by is not None:
            same = (planned.address, planned.only_until) == (kept_by.address, kept_by.only_until)
            if same and drain.resume(part.rows_max, part.bytes_max):
                self._vain = 0
                return drain
            self._note_vain()
            drain.detach()

        def keep(drain: QueueDrain) -> None:
            self._put(drain, planned)

        keeps = None if self._without else keep
        self._without = max(0, self._without - 1)
        return QueueDrain(
            options, planned.address, part.rows_max, part.bytes_max, only_until=planned.only_until, keep=keeps
        )

    def give_back(self) -> None:
        """Let the link go, if there is one, and what it holds with it."""
        drain, _ = self._take()
        if drain is not None:
            drain.detach()

    def _note_vain(self) -> None:
        self._without = min(2**self._vain, _WITHOUT_MAX)
        self._vain += 1

    def _put(self, drain: QueueDrain, planned: PlannedPart) -> None:
        timer = threading.Timer(self._kept_for_s, self._expire, (drain,))
        timer.daemon = True
        with self._lock:
            self._drain, self._kept_by, self._timer = drain, planned, timer
        try:
            timer.start()
        except RuntimeError:  # the system has no more threads
            self.give_back()

    def _take(self) -> tuple[QueueDrain | None, PlannedPart | None]:
        with self._lock:
            drain, kept_by, timer = self._drain, self._kept_by, self._timer
            self._drain = self._kept_by = self._timer = None
        if timer is not None:
            timer.cancel()
        return drain, kept_by

    def _expire(self, expired: QueueDrain) -> None:
        with self._lock:
            if self._drain is not expired:
                return
            self._drain = self._kept_by = self._timer = None
        self._note_vain()
        logger.info("a link that was kept for the next batch gives back what it holds: no task came for it")
        expired.detach()

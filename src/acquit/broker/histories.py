"""The histories of messages, read from the journal of this running broker beside everything else.

The journal is read as `acquit ledger` reads it: front to back, from the disk, by a thread of its own, which is made
when somebody asks first. So neither the loop nor the threads that write wait for it, and retention goes on: a segment
that is deleted meanwhile is passed over, and named in the answer. One history is read at a time; some may wait for it,
others are refused. Each is bounded in bytes, time and events, and says where it was stopped (`ledger.history.Bounds`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from acquit.broker.admin.later import Later, RequestFailure
from acquit.errors import StoreError
from acquit.ledger.history import Asked, Bounds, History, KnownNames, history

if TYPE_CHECKING:
    from pathlib import Path

    from acquit.broker.machine import Machine, Worker

BYTES_MAX: Final = 8 << 30
"""Bytes of the journal that are read for one history, at most."""
SECONDS_MAX: Final = 20.0
STEPS_MAX: Final = 10_000
"""The most events of one history."""
WAITING_MAX: Final = 16
"""Histories that may wait to be read, at most."""


class Histories:
    """The histories that are asked of a broker."""

    def __init__(self, data: Path, machine: Machine, names: KnownNames, answered: Callable[[], None]) -> None:
        """`data` is the broker's folder; `answered` is called after each answer."""
        self._data = data
        self._machine = machine
        self._names = names
        self._answered = answered
        self._worker: Worker | None = None
        self._waiting: deque[tuple[Asked, int, Later[History]]] = deque()
        self._reading: Later[History] | None = None
        self._stopping = False

    def ask(self, asked: Asked, bytes_max: int = BYTES_MAX) -> Later[History]:
        """Read what became of a message. `bytes_max`: no more of the journal than this, and than `BYTES_MAX`."""
        later = Later[History]()
        if self._stopping:
            later.finish(RequestFailure(503, "the broker is stopping"))
        elif len(self._waiting) >= WAITING_MAX:
            later.finish(RequestFailure(503, "too many histories wait to be read: ask again later"))
        else:
            self._waiting.append((asked, min(bytes_max, BYTES_MAX), later))
            self._go_on()
        return later

    async def stop(self) -> None:
        """End the reading, and the thread. Nobody is answered any more."""
        self._stopping = True
        self._waiting.clear()
        if self._worker is not None:
            await self._worker.stop()

    def _go_on(self) -> None:
        if self._reading is not None or not self._waiting:
            return
        if self._worker is None:
            self._worker = self._machine.make_worker("acquit-history")
        asked, bytes_max, self._reading = self._waiting.popleft()
        self._worker.submit(partial(self._read, asked, bytes_max))

    def _read(self, asked: Asked, bytes_max: int) -> None:
        """Read one, on the thread."""
        assert self._worker is not None
        bounds = Bounds(bytes_max, SECONDS_MAX, STEPS_MAX, self._machine.steady_s, lambda: self._stopping)
        result: History | RequestFailure = RequestFailure(500, "the history could not be read")
        try:
            result = history(
                self._data,
                sequence=asked.sequence,
                message_id=asked.message_id,
                duplicate_id=asked.duplicate_id,
                disk=self._machine.disk,
                bounds=bounds,
                names=self._names,
            )
        except StoreError as error:
            result = RequestFailure(500, str(error))
        finally:
            self._worker.tell(self._finish, result)

    def _finish(self, result: History | RequestFailure) -> None:
        reading, self._reading = self._reading, None
        if reading is not None and not self._stopping:
            self._go_on()
            reading.finish(result)
            self._answered()


__all__ = ["BYTES_MAX", "SECONDS_MAX", "STEPS_MAX", "WAITING_MAX", "Histories"]

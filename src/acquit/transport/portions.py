"""Bounds what is decrypted of what came over TLS before other connections have their turn.

A TLS record costs some microseconds, whether it has one byte or 16 KiB, and the event loop takes as many of them in one
go as fill the buffer that it is given. A peer that sends a byte in each record could so hold up everybody as long as
256 KiB of its records take. So the buffer is small to begin with, twice as large after each time that filling it was
quick, and smaller where that was slow. Where it was full, the rest waits for the next turn.

A peer that has been slow has to be content with what it has for `PATIENCE` times as long as it took: else it could be
quick for a few turns, only to be slow in the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Final

LITTLE_BYTES: Final = 17 * 1024
"""Bytes that wait to be decrypted of which all are: they are one large record, or too few to hold up anybody."""
FIRST_BYTES: Final = 1024
"""The first portion of a connection: were it a record for each byte, it took 4 ms."""
LEAST_BYTES: Final = 64
"""The smallest portion."""
SLOW_S: Final = 0.002
"""The seconds that a portion may take."""
PATIENCE: Final = 50


class Portions:
    """The portions of one connection. `begin` before something is decrypted, `end` after it."""

    __slots__ = ("_bytes", "_clock", "_grows_at", "_limit", "_since")

    def __init__(self, bytes_max: int, clock: Callable[[], float] = thread_time) -> None:
        """`clock`: the processor's seconds of this thread; those of others would make a busy machine look like a slow
        peer."""
        self._limit = bytes_max
        self._clock = clock
        self._bytes = FIRST_BYTES
        self._since: float | None = None
        self._grows_at = 0.0

    def begin(self, waiting: int) -> int:
        """Return how many bytes to decrypt at most, where so many wait to be."""
        if waiting <= LITTLE_BYTES:
            self._since = None
            return self._limit
        self._since = self._clock()
        return self._bytes

    def end(self, nbytes: int) -> bool:
        """Note how many bytes it was, and how long they took. True if there is more, which is to wait for a turn:
        not where the portion was the largest, whose bytes have been quick so far."""
        if self._since is None:
            return False
        now = self._clock()
        took, full = now - self._since, nbytes == self._bytes
        if took > SLOW_S:
            self._bytes = max(LEAST_BYTES, int(nbytes * SLOW_S / took))
            self._grows_at = now + PATIENCE * took
        elif full and took < SLOW_S / 2 and now >= self._grows_at:
            self._bytes = min(2 * self._bytes, self._limit)
        return full and nbytes < self._limit


__all__ = ["Portions"]

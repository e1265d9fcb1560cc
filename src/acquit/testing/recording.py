"""The frames that have passed a proxy: written on its loop, read and waited for by the threads of the tests.

Bounded: beyond its limits the older half is forgotten. Positions count on, so that a waiter knows where it was.
"""

from __future__ import annotations

import threading
import time

from acquit.testing.frames import PassedFrame, Selection


class Recording:
    """All methods may be called from any thread."""

    def __init__(self, frames_max: int, bytes_max: int) -> None:
        self._frames_max = frames_max
        self._bytes_max = bytes_max
        self._frames: list[PassedFrame] = []
        self._bytes = 0
        self._forgotten = 0
        self._heard = threading.Condition()

    def add(self, frame: PassedFrame) -> None:
        """Add a frame that has passed."""
        with self._heard:
            self._frames.append(frame)
            self._bytes += frame.size
            if len(self._frames) > self._frames_max or self._bytes > self._bytes_max:
                self._forget((len(self._frames) + 1) // 2)
            self._heard.notify_all()

    def all(self) -> list[PassedFrame]:
        """Return the frames in the order of passing."""
        with self._heard:
            return list(self._frames)

    def forget(self) -> None:
        """All of them."""
        with self._heard:
            self._forget(len(self._frames))

    def wait_for(self, selection: Selection, n: int, timeout_s: float) -> PassedFrame:
        """The `n`-th that is meant. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        looked_at = found = 0
        with self._heard:
            while True:
                for frame in self._frames[max(looked_at - self._forgotten, 0) :]:
                    found += selection(frame)
                    if found == n:
                        return frame
                looked_at = self._forgotten + len(self._frames)
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError(f"{n} of {selection} did not pass within {timeout_s} s: {found} did")
                self._heard.wait(left_s)

    def _forget(self, count: int) -> None:
        self._forgotten += count
        self._bytes -= sum(frame.size for frame in self._frames[:count])
        del self._frames[:count]

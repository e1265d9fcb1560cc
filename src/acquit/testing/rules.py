"""Rules of a proxy: what is to happen at a frame, told before that frame comes.

A rule counts the frames that its selection means, from the moment it is set and over all connections, and fires once,
at its frame: before any octet of it passes, within it, or after its last octet was handed over. What it does runs on
the proxy's loop, in that connection's own sequence, so no later frame of that direction overtakes it.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING

from acquit.testing.frames import PassedFrame, Selection

if TYPE_CHECKING:
    from acquit.testing.wire import ProxiedConnection


class Place(Enum):
    """The place at its frame where a rule fires."""

    BEFORE = "before"
    WITHIN = "within"
    AFTER = "after"


class Rule:
    """A rule that was set at a proxy. It fires once; `wait` waits until it has."""

    def __init__(
        self,
        place: Place,
        selection: Selection,
        n: int,
        act: Callable[[ProxiedConnection, PassedFrame], Awaitable[None]],
        forget: Callable[[Rule], bool],
    ) -> None:
        if n < 1:
            raise ValueError(f"frames are counted from 1, got {n}")
        self._selection = selection
        self._missing = n
        self._act = act
        self._forget = forget
        self._fired = threading.Event()
        self._frame: PassedFrame | None = None
        self._failure: Exception | None = None
        self._place = place
        self._what = f"{place.value} {selection}" + (f", number {n}" if n > 1 else "")

    @property
    def fired(self) -> bool:
        """True if the rule has fired, and its action is complete."""
        return self._fired.is_set()

    @property
    def place(self) -> Place:
        """Place at its frame where the rule fires."""
        return self._place

    def wait(self, timeout_s: float = 10.0) -> PassedFrame:
        """Wait until it has fired; gives its frame. Raises TimeoutError, and whatever a called function raised."""
        if not self._fired.wait(timeout_s):
            raise TimeoutError(f"the rule did not fire within {timeout_s} s: {self._what} ({self._missing} missing)")
        self.raise_failure()
        assert self._frame is not None
        return self._frame

    def cancel(self) -> bool:
        """Withdraw the rule, so that it does not fire any more. False where that comes too late: its frame was there,
        and `wait` will end."""
        return self._forget(self)

    def raise_failure(self) -> None:
        """Raise what a called function raised, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def hears(self, frame: PassedFrame) -> bool:
        """Count this frame if it is meant; whether it is the one to fire at. For the proxy, on its loop."""
        if not self._selection(frame):
            return False
        self._missing -= 1
        return self._missing == 0

    async def fire(self, wire: ProxiedConnection, frame: PassedFrame) -> None:
        """Do it. For the proxy, on its loop."""
        self._frame = frame
        try:
            await self._act(wire, frame)
        except Exception as exc:  # noqa: BLE001  # of a function that the test gave: it is raised where the test waits
            self._failure = exc
        finally:
            self._fired.set()

    def __repr__(self) -> str:
        return f"<Rule {self._what}{', fired' if self.fired else ''}>"

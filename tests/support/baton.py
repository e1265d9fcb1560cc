"""Threads that take turns: real, blocking code under a schedule that a seed decides.

Each actor is a thread of its own, but only one ever runs: the one that holds the baton. Code under test gives the
baton back wherever it touches the outside world (`Actor.pause`), and the test decides who gets it next. So a schedule
is a sequence of choices, the same seed makes the same schedule, and an actor that is not chosen is a process that
hangs. `kill` ends an actor where it stands: from then on every touch of the outside world raises `Killed`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Killed(BaseException):
    """The process was killed; nothing it still does reaches the world."""


class Actor(Generic[T]):
    """`run(actor)` on a thread of its own, in turns."""

    def __init__(self, name: str, run: Callable[[Actor[T]], T]) -> None:
        self.name = name
        self.killed = False
        self.finished = False
        self.result: T | None = None
        self.error: BaseException | None = None
        self._mine = threading.Semaphore(0)
        self._theirs = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._main, args=(run,), name=name, daemon=True)
        self._thread.start()

    def advance(self) -> None:
        """Let the actor run to its next pause or its end. For the scheduler."""
        assert not self.finished
        self._mine.release()
        self._theirs.acquire()

    def pause(self) -> None:
        """Give the baton back and wait for the next turn. For the actor; raises Killed."""
        if not self.killed:
            self._theirs.release()
            self._mine.acquire()
        if self.killed:
            raise Killed

    def kill(self) -> None:
        """End the actor where it stands, and its thread."""
        if not self.finished:
            self.killed = True
            self.advance()
        self._thread.join()

    def _main(self, run: Callable[[Actor[T]], T]) -> None:
        self._mine.acquire()
        try:
            if not self.killed:
                self.result = run(self)
        except BaseException as error:  # handed to the scheduler
            self.error = error
        self.finished = True
        self._theirs.release()

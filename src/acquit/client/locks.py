"""A lock that no interrupt leaves taken.

Theory of operation. Ctrl-C, or any handler of a signal that raises, interrupts the main thread where Python looks for
signals: as a function of Python begins, as a loop goes on, and behind a call of C. From Python 3.14 on that is so for
the call of ``__enter__`` as well. There ``with threading.Lock():`` has a gap: the lock is taken, the block that would
give it back has not begun, and the exception comes between the two. Nobody gives the lock back, and every other thread
that wants it waits for ever.

`UserLock` closes the gap on both sides:

- ``__enter__`` is a function of Python. What comes behind its call of C is raised within it, and gives the lock back;
  behind its own return Python does not look.
- ``__exit__`` is a call of C, before which Python does not look.

It costs some 25 ns more than a lock of `threading`. Whatever a user's thread takes is such a lock. What only the loop
thread takes, where no handler runs, need not be one.

What stays: the standard library has the gap wherever it takes a lock by itself, and where that is done by functions of
Python also before 3.14: in Event, Condition and `queue.Queue`, in a Thread that is being started, and in a handler of
`logging`. So a thread of ours waits for nothing, and says nothing, by an Event that an interrupted thread may sit in: a
plain lock that is taken once, and released by whoever brings the thing about, has no gap (`threads.wait`,
`threads.Gate`). Of `logging` the gap is Python's to close.
"""

from __future__ import annotations

from _thread import RLock
from typing import final


@final
class UserLock(RLock):  # type: ignore[misc]  # final for type checkers alone
    """A re-entrant lock for ``with``, which users' threads may take: no interrupt leaves it taken. It is re-entrant
    because a handler of a signal may want it while the thread that it interrupts has it."""

    __slots__ = ()

    def __enter__(self) -> bool:  # type: ignore[override]  # which is no place for time-outs
        try:
            return self.acquire()
        except BaseException:
            # First of all, and one call of C: a second interrupt comes behind it.
            try:
                self.release()
            except RuntimeError:  # it was interrupted while it waited for another thread, and is not ours
                pass
            raise


__all__ = ["UserLock"]

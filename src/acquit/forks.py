"""Things that a forked child must let go of: its copies of descriptors that are its parent's alone.

Theory of operation. A fork copies all descriptors, and what the system ties to one lasts until its last copy is closed:
a lock of flock, a port that is listened on, a connection, the room of a file that was removed. A child that lives on,
such as the worker of a pool, would keep all that beyond the end of its parent, and nobody could open the folder again.
So who opens such a thing says so, with `keep_here`. In a child each of them becomes the null device, and in the parent
nothing changes; a lock is not given back, for that would take it from the parent, whose it is as well.

That is for children that Python forks. A library that forks by itself tells nobody: what can be said at the end, as
that a lock is given back, is said, and not left to the last copy. A child that starts another program takes nothing
along, for all is opened so that it closes then. Where there is no fork, as on Windows, nothing is done.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from typing import Final, Protocol, TypeVar
from weakref import WeakSet


class HasDescriptor(Protocol):
    """Socket, file, or whatever else has a descriptor. It can be hashed, and referred to weakly."""

    def fileno(self) -> int:
        """Return the descriptor. Once that is closed: a negative number, or ValueError is raised."""
        ...


T = TypeVar("T", bound=HasDescriptor)

_kept: Final[WeakSet[HasDescriptor]] = WeakSet()


def keep_here(thing: T) -> T:
    """Keep a thing from the children of this process, until it is closed or forgotten; return it."""
    _kept.add(thing)
    return thing


def let_go(descriptors: Collection[int]) -> None:
    """Let each of these descriptors be the null device. For a child, of what its parent has open."""
    if not descriptors:
        return
    # Where the limit of open files is reached, the first of them makes room for the null device.
    with contextlib.suppress(OSError):
        os.close(next(iter(descriptors)))
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in descriptors:
        # dup2 and not close: the number stays taken, so that the old object, whenever it is collected, closes nothing
        # that belongs to somebody else.
        if descriptor != null:
            os.dup2(null, descriptor, inheritable=False)
    if null not in descriptors:
        os.close(null)


def in_children(function: Callable[[], None]) -> None:
    """Call a function at the begin of each child that Python forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def _let_go_of_all() -> None:
    descriptors = set()
    for thing in _kept:
        with contextlib.suppress(ValueError):
            descriptors.add(thing.fileno())
    _kept.clear()
    let_go([descriptor for descriptor in descriptors if descriptor >= 0])


in_children(_let_go_of_all)

__all__ = ["HasDescriptor", "in_children", "keep_here", "let_go"]

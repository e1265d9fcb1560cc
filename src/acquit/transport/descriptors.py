"""File descriptors: how many this process may have, and how many of them connections may take.

The journal opens segments while the broker runs, and must never find that peers took the last descriptor: without its
files it ends the broker. So some are kept for it, and for what a person needs who looks what is the matter.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from typing import Final

RESERVE: Final = 24
"""Kept for segments that are written, prewritten and archived, for configuration, certificates and modules that are
read late, and for connections of administrators."""
_OWN: Final = 16
"""Open in a broker that begins, without its listeners: standard streams, loops, the lock and files of the journal."""
_LIMIT_MAX: Final = 1 << 20
"""Limit of open files where there is no hard limit, or one that no broker needs."""
_LIMIT_MAC: Final = 10_240
"""Limit of open files up to which macOS lets a process go that has no hard limit."""


def raise_limit() -> None:
    """Raise the process's limit of open files as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, _LIMIT_MAX)
    for wanted in (most, min(most, _LIMIT_MAC)):
        if soft != resource.RLIM_INFINITY and wanted > soft:
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                return


def available(readers: int) -> int:
    """Return how many of the descriptors that are free now may be sockets of peers; `readers`: as many files of the
    journal may be open to be read."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _LIMIT_MAX
    return max(2, soft - len(os.listdir("/dev/fd")) - readers - RESERVE)


def needed(sockets: int, readers: int, listeners: int) -> int:
    """Return the limit of open files with which so many sockets of peers are `available` to a broker that begins, where
    each listener has no more than two sockets, of IPv4 and IPv6."""
    return sockets + readers + 2 * listeners + _OWN + RESERVE


__all__ = ["available", "needed", "raise_limit"]

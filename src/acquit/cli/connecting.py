"""Connecting as the command line does."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acquit import Connection


def connect(url: str) -> Connection:
    """A connection that says in logs and in the ledger which process it was: ``acquit-4711@host``."""
    import acquit

    return acquit.connect(url, container_id=f"acquit-{os.getpid()}@{socket.gethostname()}")

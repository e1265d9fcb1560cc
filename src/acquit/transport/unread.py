"""Reads what a socket still has when its loop gives it up.

An event loop that cannot write to a socket any more takes it for gone, with all that it had not read. Where the peer
has closed with something of ours unread, that is what happens if we write before the loop has read again, and what is
lost may be the word that says why, or what a program sent last before it ended. The kernel has it until the descriptor
is closed, behind `connection_lost`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import Final

_PIECE_BYTES: Final = 256 * 1024
_PIECES_MAX: Final = 32
"""8 MiB, a little more than a kernel keeps of a connection unless it is told to. Of all connections together it bounds
what it keeps (tcp_mem on Linux), and so what can be found here."""


def unread(transport: asyncio.BaseTransport) -> bytes:
    """Return what the socket has left of a transport that has failed; b"" where there is nothing, and for TLS, which
    has taken that (`tls`). To be called by `connection_lost`, with an OSError."""
    socket = transport.get_extra_info("socket")
    if sys.platform == "win32":  # there its number is none of a file's, and may be another file's
        return b""
    if socket is None or transport.get_extra_info("ssl_object") is not None:
        return b""
    found: list[bytes] = []
    with suppress(OSError):  # there is no more
        while len(found) < _PIECES_MAX and (piece := os.read(socket.fileno(), _PIECE_BYTES)):
            found.append(piece)
    return b"".join(found)


__all__ = ["unread"]

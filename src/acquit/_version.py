"""The version of acquit, for logs, peers, people, and the distribution that is built from here.

It stands in the sources: what Python has to read it from an installed distribution takes longer to load than the
client, and a copy that is only on the path has no distribution.
"""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

VERSION: Final = "0.1.0"


def version() -> str:
    """Return the version of these sources."""
    return VERSION


def native() -> bool:
    """Return True where the hot path is compiled (docs/native.md): Python takes such a module before its source."""
    folder = os.path.join(os.path.dirname(__file__), "protocol")
    return any(os.path.exists(os.path.join(folder, f"serial{suffix}")) for suffix in EXTENSION_SUFFIXES)


__all__ = ["VERSION", "native", "version"]

"""The version of acquit, for logs, peers and people.

It is read from the metadata of the installed distribution when it is first asked for: that is as slow to import as all
the rest of the client. A source tree that is only on the path has no metadata, and works all the same.
"""

from __future__ import annotations

from functools import cache
from typing import Final

UNKNOWN_VERSION: Final = "0+unknown"
"""What a copy says that is not installed: a version below all others, as PEP 440 writes it."""


@cache
def version() -> str:
    """The version of the installed distribution; "0+unknown" where none is installed."""
    from importlib import metadata

    try:
        return metadata.version("acquit")
    except metadata.PackageNotFoundError:
        return UNKNOWN_VERSION


__all__ = ["UNKNOWN_VERSION", "version"]

"""The version of acquit, for logs, peers, people, and the distribution that is built from here.

It stands in the sources: what Python has to read it from an installed distribution takes longer to load than the
client, and a copy that is only on the path has no distribution.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"


def version() -> str:
    """Return the version of these sources."""
    return VERSION


__all__ = ["VERSION", "version"]

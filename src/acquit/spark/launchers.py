"""Scripts of a few lines that start another program in a way that Spark cannot be told, kept in the user's cache."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from acquit.spark.files import write_whole


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The user's folder for what can be made again, which exists (XDG Base Directory Specification); None where there
    is none and none can be made."""
    base = environment.get("XDG_CACHE_HOME", "")
    try:
        folder = (Path(base) if base.startswith("/") else Path.home() / ".cache") / "acquit"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # the second of Path.home()
        return None
    return folder


def write_launcher(script: Path, text: str) -> None:
    """Let `script` be an executable file with this text. It is written whole and put in place at once: several
    processes may do this together."""
    content = os.fsencode(text)
    if not script.exists() or script.read_bytes() != content:
        script.parent.mkdir(parents=True, exist_ok=True)
        write_whole(script, content, mode=0o755)


__all__ = ["cache_folder", "write_launcher"]

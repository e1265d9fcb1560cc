"""Scripts of a few lines that start another program in a way that Spark cannot be told, kept in the user's cache."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from acquit.spark.files import write_whole


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder for what can be made again, which exists. Where it cannot be made it is a temporary one."""
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "acquit"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="acquit-"))
    return folder


def write_launcher(script: Path, text: str) -> None:
    """Let `script` be an executable file with this text. It is written whole and put in place at once: several
    processes may do this together."""
    if not script.exists() or script.read_text(encoding="utf-8") != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        write_whole(script, text.encode(), mode=0o777)


__all__ = ["cache_folder", "write_launcher"]

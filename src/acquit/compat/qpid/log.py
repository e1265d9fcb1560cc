"""Logging, as programs of the API switch it on."""

from __future__ import annotations

from logging import CRITICAL, DEBUG, ERROR, INFO, WARNING, Formatter, StreamHandler, getLogger
from typing import TextIO

WARN = WARNING


def enable(name: str | None = None, level: int = WARNING, file: TextIO | None = None) -> None:
    """Write what the logger `name` logs from `level` on to `file`, by default to standard error."""
    handler = StreamHandler(file)
    handler.setFormatter(Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = getLogger(name)
    logger.addHandler(handler)
    logger.setLevel(level)


__all__ = ["CRITICAL", "DEBUG", "ERROR", "INFO", "WARN", "enable"]

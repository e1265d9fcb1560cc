"""The `acquit` command, run in this process, and what it printed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def documents(self) -> list[dict[str, Any]]:
        """What was printed with --json."""
        return [json.loads(line) for line in self.out.splitlines()]


class Shell(Protocol):
    """``shell("send", "orders", "x", stdin="...")`` runs ``acquit send orders x``."""

    def __call__(self, *arguments: object, stdin: str | bytes = "") -> Ran: ...

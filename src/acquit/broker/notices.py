"""Lines of the log that peers can cause: of each kind a few at once, and then one in a while that says how often.

Who knocks ten thousand times must not fill the disk with it, and whoever reads the log must still see that it happens.
So whatever a peer can bring about as often as it likes is logged by this and nothing else, and what it says is cut.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

PAUSE_S: Final = 10.0
"""Seconds in which a kind has no more than its `WARNINGS` or `USUAL` lines."""
WARNINGS: Final = 1
"""Lines of a warning in that time."""
USUAL: Final = 30
"""Lines of what is usual in that time: peers come and go."""
KINDS_MAX: Final = 1_000
"""Kinds that are told apart at a time: what more peers cause is counted together."""
TEXT_MAX: Final = 256
"""Characters of what a peer says that are in a line: names may have thousands."""


@dataclass(slots=True)
class _Kind:
    until: float
    left: int
    """Lines it may still have until then."""
    unsaid: int = 0
    extra: dict[str, object] = field(default_factory=dict)
    """Particulars of the last one that was not logged."""


class Notices:
    """Logs sparingly. `warn` and `inform` from anywhere on the loop, `flush` now and then."""

    def __init__(self, logger: logging.Logger, now: Callable[[], float]) -> None:
        """`now`: seconds since some moment."""
        self._logger = logger
        self._now = now
        self._kinds: dict[tuple[int, str, str], _Kind] = {}

    def warn(self, text: str, by: str = "", **extra: object) -> None:
        """Log it, or count it. `text` is the kind, always the same words; `by` says for whom it is counted apart;
        `extra` is what differs."""
        self._note(logging.WARNING, text, by, extra)

    def inform(self, text: str, by: str = "", **extra: object) -> None:
        """The same for what is no cause for concern, unless there is a great deal of it."""
        self._note(logging.INFO, text, by, extra)

    def flush(self) -> None:
        """Say of what was counted how often it happened, once its pause is over."""
        now = self._now()
        for key in [key for key, kind in self._kinds.items() if now >= kind.until]:
            kind = self._kinds.pop(key)
            if kind.unsaid:
                self._say(key, {**kind.extra, "times": kind.unsaid})

    def _note(self, level: int, text: str, by: str, extra: dict[str, object]) -> None:
        key = level, text, by
        if key not in self._kinds and len(self._kinds) >= KINDS_MAX:
            key = level, text, ""
        kind = self._kinds.get(key)
        if kind is None or kind.left or (self._now() >= kind.until and not kind.unsaid):
            self._say(key, extra)
        else:
            kind.unsaid += 1
            kind.extra = extra

    def _say(self, key: tuple[int, str, str], extra: dict[str, object]) -> None:
        level, text, _ = key
        kind = self._kinds.get(key)
        if kind is None or self._now() >= kind.until:
            left = USUAL if level == logging.INFO else WARNINGS
            kind = self._kinds[key] = _Kind(self._now() + PAUSE_S, left)
        kind.left -= 1
        self._logger.log(level, text, extra={name: _cut(value) for name, value in extra.items()})


def _cut(value: object) -> object:
    return f"{value[:TEXT_MAX]}..." if isinstance(value, str) and len(value) > TEXT_MAX else value


__all__ = ["PAUSE_S", "Notices"]

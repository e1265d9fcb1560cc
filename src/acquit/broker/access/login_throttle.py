"""The login throttle: the more logins have failed, the longer the next one waits before it is decided.

Whoever guesses passwords needs many attempts; whoever mistypes one needs a few. So the first failures cost nothing but
the pause before each refusal, and from then on each attempt waits twice as long as the one before, up to a limit. It
waits *before* it is decided, and attempts that are being decided count as failures until they are: a thousand
connections guess no faster than one. An attempt that gives up waiting leaves nothing behind that others wait for.

Failures are counted for a user at an address, so that somebody who guesses elsewhere keeps nobody out of his own
account; more generously for an address as a whole, whatever names it tries, and for a user as a whole, wherever it is
tried from. Who has logged in from an address before waits for his own failures there alone, not for those of
neighbours and strangers. Programs on this machine all have one address, and are counted by user alone. A login that
succeeds clears the count of its user there; a quiet time any.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

FREE_OF_USER: Final = 3
"""Failures of one user at one address that make nobody wait."""
FREE_OF_ADDRESS: Final = 30
"""Failures of an address that make nobody wait, whatever the names: a whole office may come from one."""
FREE_OF_NAME: Final = 100
"""Failures of a user that make nobody wait, wherever they come from."""
FIRST_S: Final = 0.6
"""Seconds that the first attempt waits which is not free."""
STRANGERS_S_MAX: Final = 1.0
"""Seconds that a user at a new address waits at most for failures elsewhere."""
AGAIN_S: Final = 0.05
"""Seconds until an attempt asks again that waits only for others to be decided."""
FORGOTTEN_S: Final = 900.0
"""Seconds without a failure after which all failures before are forgotten."""
KEPT_MAX: Final = 10_000
"""Counts that are remembered; the one that failed least recently is forgotten first."""

_Key = tuple[str | None, str | None]
"""Address and user; None: any."""


@dataclass(slots=True)
class _Count:
    failures: int = 0
    failed_at: float = 0.0
    under_way: int = 0
    """Attempts that are being decided."""


class LoginThrottle:
    """Failed logins, and what they cost the next ones. Times are seconds of one steady clock."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        """Seconds that an attempt waits at most after the last one; 0: none ever waits."""
        self._counts: OrderedDict[_Key, _Count] = OrderedDict()
        self._homes: OrderedDict[_Key, None] = OrderedDict()
        """Addresses from which each user has logged in."""

    def ask(self, network: str, user: str, now: float) -> float:
        """Return 0.0 for an attempt that may be decided now: `ended` has to hear of it. Otherwise, in how many seconds
        to ask again."""
        if not self.longest_s:
            return 0.0
        wait_s = max(self._wait_s(*limit, now) for limit in self._limits(network, user))
        if not wait_s:
            for key in _keys(network, user):
                self._count(key).under_way += 1
        return wait_s

    def ended(self, network: str, user: str, now: float, *, right: bool | None) -> None:
        """Count what became of an attempt; `right` is None for one that was not decided after all."""
        if right:
            self._homes[network, user] = None
            self._homes.move_to_end((network, user))
            _shrink(self._homes)
        for key in _keys(network, user):
            count = self._count(key)
            count.under_way = max(0, count.under_way - 1)
            if right is False:
                count.failures = count.failures + 1 if now - count.failed_at <= FORGOTTEN_S else 1
                count.failed_at = now
                self._counts.move_to_end(key)
            elif right and key == (network, user):
                count.failures = 0
            if not count.failures and not count.under_way:
                del self._counts[key]

    def _limits(self, network: str, user: str) -> Iterator[tuple[_Key, int, float]]:
        """Yield what an attempt is limited by: the key, how many failures are free, the longest wait."""
        yield (network, user), FREE_OF_USER, self.longest_s
        if (network, user) not in self._homes:
            yield (None, user), FREE_OF_NAME, min(self.longest_s, STRANGERS_S_MAX)
            if network:
                yield (network, None), FREE_OF_ADDRESS, self.longest_s

    def _wait_s(self, key: _Key, free: int, longest_s: float, now: float) -> float:
        count = self._counts.get(key)
        if count is None:
            return 0.0
        if now - count.failed_at > FORGOTTEN_S:
            count.failures = 0
        over = count.failures - free
        if over + count.under_way <= 0:
            return 0.0
        if over <= 0:
            return AGAIN_S
        pause_s = min(longest_s, FIRST_S * 2.0 ** min(over - 1, 30))
        return pause_s if count.under_way else max(0.0, count.failed_at + pause_s - now)

    def _count(self, key: _Key) -> _Count:
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _Count()
            _shrink(self._counts)
        return count


def _keys(network: str, user: str) -> list[_Key]:
    """Return the keys that an attempt is counted for."""
    keys: list[_Key] = [(network, user), (None, user)]
    return [*keys, (network, None)] if network else keys


def _shrink(table: OrderedDict[_Key, _Count] | OrderedDict[_Key, None]) -> None:
    while len(table) > KEPT_MAX:
        table.popitem(last=False)


__all__ = ["LoginThrottle"]

"""Acknowledgements that nobody waits for: how many of a session may be without an answer.

Theory of operation. With ``sync=False`` an acknowledgement returns before the peer has answered, so a program may
acknowledge faster than the peer answers. What is under way is bounded by a window over the deliveries of such calls,
oldest first: who goes beyond `ack_capacity` waits for the oldest, and each is given `ack_timeout_ms` at most. Answers
may come in any order; what is answered leaves the window when it is full, so that an acknowledgement costs no look.

The call that goes beyond is made before it waits: there is nothing to take back when the wait is cancelled.
"""

from __future__ import annotations

from collections import deque

from acquit.client.core_base import CoreBase
from acquit.client.locks import UserLock
from acquit.client.receipts import SettlementReceipt


class Unanswered:
    """The window of one session (user side, any thread)."""

    __slots__ = ("_capacity", "_core", "_deliveries", "_lock", "_receipts")

    def __init__(self, core: CoreBase) -> None:
        self._core = core
        self._capacity = core.options.ack_capacity
        self._receipts: deque[SettlementReceipt] = deque()
        self._deliveries = 0
        self._lock = UserLock()

    def add(self, receipt: SettlementReceipt) -> bool:
        """Add the receipt of a call that nobody waits for. Return True if it may be one too many: see `in_the_way`."""
        with self._lock:
            self._receipts.append(receipt)
            self._deliveries += receipt.count
            return self._deliveries > self._capacity

    def in_the_way(self) -> SettlementReceipt | None:
        """The oldest that is awaited, where there is one too many."""
        with self._lock:
            while self._receipts and self._receipts[0].done:
                self._deliveries -= self._receipts.popleft().count
            if self._deliveries <= self._capacity:
                return None
            # Before anybody waits: those that were answered out of turn do not count.
            self._receipts = deque(receipt for receipt in self._receipts if not receipt.done)
            self._deliveries = sum(receipt.count for receipt in self._receipts)
            return self._receipts[0] if self._deliveries > self._capacity else None

    @property
    def timeout_s(self) -> float:
        """Seconds that a call beyond the window waits for the oldest receipt."""
        return self._core.options.ack_timeout_ms / 1000

    def give_up(self, receipt: SettlementReceipt) -> None:
        """End a receipt as UNKNOWN: it was waited for, and no answer came."""
        self._core.post((receipt.expire, f"no answer within {self._core.options.ack_timeout_ms} ms"))

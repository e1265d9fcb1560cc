"""The core of the client as its sessions and links see it: where they leave commands and receipts, and what is so now.

`core.ClientCore` is the rest of it, and says what its two sides are. It knows its sessions and links, and they know no
more of it than this.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappush
from typing import Final, Protocol, TypeAlias

from acquit.client.failures import Failure
from acquit.client.options import ConnectOptions, check_outcome
from acquit.client.products import UNKNOWN
from acquit.client.receipts import Milestone, ReceiptStatus, SendPromise, SettlementReceipt
from acquit.errors import ConnectionClosed, LocalProtocolError
from acquit.protocol.connection import Connection
from acquit.protocol.constants import ACCEPTED, RELEASED, Outcome
from acquit.protocol.dispositions import FRAME_OVERHEAD, encode_state


class HandedOver(Protocol):
    """A message that was handed over, whose credit comes back (`received.MessageCore`)."""

    def handed_over(self) -> None: ...


class Credited(Protocol):
    """A receiver, to whom credit may be owed."""

    def top_up(self) -> None:
        """Grant what can be granted."""


class Gathering(Protocol):
    """A session, whose acknowledgements wait for more of their kind."""

    def say_gathered(self) -> None:
        """Wait no longer."""


class Limited(Protocol):
    """A sender, one of whose sends has a time-out of its own."""

    def expire(self, promise: SendPromise, timeout_s: float | None = None) -> None:
        """End a send whose time is over."""


Command: TypeAlias = HandedOver | tuple[Callable[..., object], *tuple[object, ...]]
"""A message that was handed over, or a method of the loop side with its arguments."""

_UNANSWERED_MIN: Final = 1_000
"""Number of receipts, at least, that are kept before it is worth looking which are done."""

_TRANSACTION_OVERHEAD: Final = 64
"""Octets that an outcome grows by within a transaction: its id, in practice 4 to 36, and what is around it."""


class CoreBase:
    """The core as sessions and links see it. `where` names the peer for people; `wake` asks for `process` soon."""

    def __init__(
        self,
        engine: Connection,
        options: ConnectOptions,
        *,
        where: str,
        wake: Callable[[], None],
        wall_clock: Callable[[], float],
        named: bool,
    ) -> None:
        self.engine = engine
        self.options = options
        self.where = where
        self.named = named
        """True if the user chose our container id: whoever chooses it again is the same container."""
        self.wall_clock = wall_clock
        self.failure: Failure | None = None
        """The reason why the connection is over, for good; None while it is not."""
        self.interrupted = False
        """True while the connection is lost, and may be restored."""
        self.interruption: Failure | None = None
        """The reason of the latest loss of the connection; None before the first."""
        self.restored = Milestone()
        """The end of the interruption: it is there again, or over for good."""
        self.refused: dict[object, Failure] = {}
        """Links that the peer refused as the connection was restored, until they are attached once more, and why."""
        self.closing = False
        self.writable = True
        """True if the socket takes more: senders pause while it does not."""
        self.answer_means = ReceiptStatus.ANSWERED
        self.peer = UNKNOWN
        self.sent: list[tuple[SettlementReceipt, int]] = []
        """Acknowledgements that nobody will answer, until they are written."""
        self.short_of_credit: dict[Credited, None] = {}
        self.gathering: dict[Gathering, float] = {}
        """Sessions whose acknowledgements wait for more of their kind, and until when."""
        self._wake = wake
        self._turns = 0
        """Number of times that the loop side has begun to look at the commands."""
        self._asked_at: int | None = None
        """Number of `_turns` when it was last asked to: it will look once more where that is the number now."""
        self._commands: deque[Command] = deque()
        self._unanswered: deque[tuple[float, SettlementReceipt]] = deque()
        self._unanswered_max = _UNANSWERED_MIN
        self._limited: list[tuple[float, int, Limited, SendPromise, float]] = []
        """Sends with a time-out of their own that nobody waits for: a heap, by when they end."""
        self._limited_max = _UNANSWERED_MIN
        self._limits = itertools.count()
        self._now = 0.0

    def receiver_names(self) -> set[str]:
        """The names of the links that receive, in all sessions."""
        raise NotImplementedError

    def forget_session(self, session: object) -> None:
        """Drop a session that has ended without a word of the peer."""
        raise NotImplementedError

    def post(self, command: Command) -> None:
        """Leave a command for the loop side."""
        self._commands.append(command)
        turns = self._turns
        if self._asked_at != turns:
            # Noted afterwards: a handler of a signal may come between the two, and wait for what it posts.
            self._wake()
            self._asked_at = turns

    def check(self) -> None:
        """Raise why the connection cannot be used any more, if that is so."""
        if self.failure is not None:
            raise self.failure.error()
        if self.closing:
            raise ConnectionClosed("the connection is closed")

    def check_outcome(self, outcome: Outcome) -> None:
        """Raise ConfigurationError for what is no outcome, EncodeError or LocalProtocolError for one that cannot be
        told. On the loop side there would be nobody to raise it to."""
        if outcome is ACCEPTED or outcome is RELEASED:
            return
        check_outcome("an outcome", outcome)
        size = len(encode_state(outcome)) + FRAME_OVERHEAD + _TRANSACTION_OVERHEAD
        if size > self.engine.peer_frame_size_max:
            raise LocalProtocolError(
                f"the outcome has {size} bytes, the peer takes frames of {self.engine.peer_frame_size_max} at most"
            )

    @property
    def now(self) -> float:
        """Time of the latest call of the loop side, on the driver's clock."""
        return self._now

    def await_written(self, receipt: SettlementReceipt, count: int) -> None:
        """`receipt` waits until what was said of `count` deliveries is written, but not for ever where the socket takes
        no more."""
        self.sent.append((receipt, count))
        if not self.writable:
            self.await_answer(receipt)

    def await_answer(self, receipt: SettlementReceipt) -> None:
        """`receipt` waits for the peer, but not for ever."""
        self._unanswered.append((self._now + self.options.ack_timeout_ms / 1000, receipt))
        if len(self._unanswered) > self._unanswered_max:
            # One that is not answered must not keep all that came after it in memory.
            self._unanswered = deque(entry for entry in self._unanswered if not entry[1].done)
            self._unanswered_max = max(_UNANSWERED_MIN, 2 * len(self._unanswered))

    def limit(self, sender: Limited, promise: SendPromise, left_s: float, timeout_s: float) -> None:
        """Arrange that `sender` ends a send in `left_s` seconds, if it has not ended by then."""
        if promise.done:
            return
        heappush(self._limited, (self._now + left_s, next(self._limits), sender, promise, timeout_s))
        if len(self._limited) > self._limited_max:
            # One with hours to go must not keep all that came after it in memory.
            self._limited = [entry for entry in self._limited if not entry[3].done]
            heapify(self._limited)
            self._limited_max = max(_UNANSWERED_MIN, 2 * len(self._limited))


__all__ = ["Command", "CoreBase"]

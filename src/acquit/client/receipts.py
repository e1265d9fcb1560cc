"""Promises of the core: things that end once, and can be asked or waited for from any thread.

Theory of operation. The *loop side* (the thread that runs the core) ends a promise; *user code*, in the same thread or
another, looks at `done` or leaves a callback. No lock is needed between the two, because they do their two steps in
opposite order::

    user code:  1. leave the callback    2. look at `done`
    loop side:  1. set `done`            2. call the callbacks

Whoever is second sees the other, and a callback may be called twice: it must not mind. How to wait (an asyncio future,
a lock) is the business of the subclasses in `aio` and `blocking`, which make the receipts that users see.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol, TypeVar

from acquit.client.failures import Failure
from acquit.errors import (
    AcquitError,
    DeliveryInDoubt,
    MessageModified,
    MessageRejected,
    MessageReleased,
    NotSent,
    SendFailed,
)
from acquit.protocol.definitions import Accepted, Modified, Rejected, Released
from acquit.protocol.delivery import DeliveryState, Outcome

logger = logging.getLogger("acquit.client")

P = TypeVar("P", bound="Promise")


class Promise:
    """A promise, which ends once."""

    __slots__ = ("_callbacks", "done")

    done: bool
    """True if the promise has ended: asking does not wait any more."""

    def __init__(self) -> None:
        self.done = False
        self._callbacks: list[Callable[[], None]] | None = None

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call `callback`, once or twice, from any thread, when this has ended; at once if it has.

        Where several threads wait for one promise, they must leave their callbacks one at a time.
        """
        if self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)
        if self.done:
            callback()

    def forget(self, callback: Callable[[], None]) -> None:
        """Take a callback back."""
        callbacks = self._callbacks
        if callbacks is not None and callback in callbacks:
            callbacks.remove(callback)

    def end(self) -> None:
        """Mark it as ended, and call the callbacks (loop side)."""
        self.done = True
        callbacks = self._callbacks
        if callbacks is not None:
            for callback in tuple(callbacks):
                callback()


def call_when_done(
    promise: P, callback: Callable[[P], object], soon: Callable[[Callable[[], None]], object]
) -> Callable[[], None]:
    """The callback to leave with `promise` for a user's `callback`, which `soon` has called elsewhere, once, however
    often this one is called. What it raises is logged: nobody waits for it."""
    once = [callback]

    def call() -> None:
        try:
            callback(promise)
        except Exception:
            logger.exception("a callback of %r failed", promise)

    def end() -> None:
        try:
            once.pop()
        except IndexError:
            return
        soon(call)

    return end


class Milestone(Promise):
    """A step that an endpoint comes to: attached, drained, closed. `failure` says why it came to nothing."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        super().__init__()
        self.failure: Failure | None = None

    def succeed(self) -> None:
        """End the step well, unless it has ended (loop side)."""
        if not self.done:
            self.end()

    def fail(self, failure: Failure) -> None:
        """End the step with the reason why it came to nothing, unless it has ended (loop side)."""
        if not self.done:
            self.failure = failure
            self.end()

    def check(self) -> None:
        """Raise why it came to nothing, if it did."""
        if self.failure is not None:
            raise self.failure.error()


class ReceiptStatus(IntEnum):
    """The status of an acknowledgement: what is known of it, from the most to the least."""

    APPLIED = 0
    """The peer has applied it durably, and said so (it offers ``acquit:durable-settlement``)."""
    ANSWERED = 1
    """The peer settled it. Whether that would survive its crash is its own affair."""
    SENT = 2
    """The acknowledgement is written to the socket, and the peer grants no answer (rcv-settle-mode first)."""
    STALE = 3
    """No effect, as it came too late: see `reason`. The broker has delivered the message again, or will."""
    UNKNOWN = 4
    """No answer came in time, or the peer was lost first: it may or may not have been applied."""

    def __str__(self) -> str:
        return self.name


class SettlementReceipt(Promise):
    """The receipt of one call that acknowledges, over all the deliveries it was about."""

    __slots__ = ("_awaited", "_worst", "count", "lasting", "reason")

    count: int
    """Number of deliveries that the call was about."""
    reason: str | None
    """More about STALE and UNKNOWN: why."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.reason = None
        self._awaited = count
        self.lasting = False  # a lost connection does not end it: its link resumes
        self._worst = ReceiptStatus.APPLIED if count else ReceiptStatus.SENT
        if not count:
            self.reason = "there was nothing to acknowledge"
            self.done = True

    @property
    def status(self) -> ReceiptStatus | None:
        """The worst that became of any of the deliveries; None while answers are awaited."""
        return self._worst if self.done else None

    def note(self, status: ReceiptStatus, count: int, reason: str | None = None) -> None:
        """`count` of the deliveries ended like this (loop side)."""
        if self.done:
            return
        if status > self._worst:
            self._worst = status
            self.reason = reason
        self._awaited -= count
        if self._awaited <= 0:
            self.end()

    def expire(self, reason: str) -> None:
        """Whatever is still awaited will not be known (loop side)."""
        self.note(ReceiptStatus.UNKNOWN, self._awaited, reason)

    def __repr__(self) -> str:
        status = self._worst.name if self.done else "awaited"
        return f"<{type(self).__name__} {status} of {self.count}{f': {self.reason}' if self.reason else ''}>"


class Fated(Protocol):
    """A transaction, to the sends in it."""

    @property
    def fate(self) -> object:
        """The fate of the transaction; None while that is open."""

    def error(self) -> AcquitError | None:
        """Return the error to raise, freshly made; None if the transaction was committed, or its fate is open."""


@dataclass(slots=True)
class Provisional:
    """The state of a send in a transaction: the outcome that the peer says it will have, if all of it is committed."""

    transaction: Fated
    outcome: Outcome | None


class UnreliableSend(Enum):
    """The state of a send that nobody will tell the outcome of."""

    SENT = "sent"


UNRELIABLE = UnreliableSend.SENT


class TimeOver(NamedTuple):
    """The time for a send is over: `timeout_s` seconds, where that is known. `reason` is why a message has
    not left, and `known` what that means."""

    timeout_s: float | None = None
    reason: str = "the peer gave no credit"
    known: str = "the message never left"

    def error(self, *, left: bool) -> AcquitError:
        """Return the error to raise; `left`: a frame of the message may have left."""
        within = "in time" if self.timeout_s is None else f"within {self.timeout_s:g} s"
        if left:
            return DeliveryInDoubt(f"no outcome {within}: the message may or may not be taken")
        return NotSent(f"{self.reason} {within}: {self.known}")


def _refused(state: Rejected | Released | Modified) -> AcquitError:
    """The error of a send that was not accepted."""
    match state:
        case Rejected():
            return _send_failed(MessageRejected, "rejected", state)
        case Released():
            return MessageReleased("the peer released the message: it was not and will not be processed there")
        case Modified():
            where = " and not there" if state.undeliverable_here else ""
            return MessageModified(f"the peer did not take the message (outcome modified{where})")


WAITS_FOR_STORE: Final = (
    "for the store of deliveries (exactly_once), which a transaction of the program's own on the same database "
    "holds up until its end"
)


class SendPromise(Promise):
    """The promise of one send: its outcome, or its error."""

    __slots__ = ("_failure", "asked", "awaited", "payload", "resent", "state", "storing", "tag", "transferred")

    def __init__(self, payload: bytes, awaited: bool = False) -> None:
        # As Promise.__init__, written out: one is made for each message.
        self.done = False
        self._callbacks = None
        self.payload = payload
        self.transferred = False
        self.resent = False  # it was sent before, over a connection that was lost
        self.state: DeliveryState | Provisional | UnreliableSend | None = None
        self._failure: Failure | TimeOver | None = None
        self.asked = False
        self.tag: bytes | None = None  # of an exactly-once send
        self.storing = False  # it is on its way into the store of deliveries
        self.awaited = awaited  # it has a time-out of its own, at which it is taken back

    @property
    def outcome(self) -> Outcome | None:
        """The peer's outcome, whatever it is; None before it came and where none will come. See `provisional`."""
        state = self.state
        if isinstance(state, Provisional):
            return state.outcome
        return state if isinstance(state, Accepted | Rejected | Released | Modified) else None

    @property
    def provisional(self) -> bool:
        """True if the send is part of a transaction whose end is not known. Then `outcome` is what the message will
        have if that is committed. Once it is known to be rolled back, `result` raises TransactionRolledBack."""
        state = self.state
        return isinstance(state, Provisional) and state.transaction.fate is None

    def settle(self, state: DeliveryState | Provisional | UnreliableSend | None) -> None:
        """The peer decided (loop side)."""
        self.payload = b""
        self.state = state
        self.done = True
        if self._callbacks is not None:
            self.end()

    def fail(self, failure: Failure | TimeOver | None) -> None:
        """End the send without an outcome: nothing more will be heard (loop side)."""
        if not self.done:
            self.payload = b""
            self._failure = failure
            self.end()

    def error(self) -> AcquitError | None:
        """Return the error to raise, freshly made; None for an accepted message, and for one of an unreliable sender,
        of which nobody tells the outcome. Only when done."""
        state = self.state
        if isinstance(state, Provisional):
            if state.outcome is None or isinstance(state.outcome, Accepted):
                error = state.transaction.error()
                if error is not None:
                    return error
            state = state.outcome
        match state:
            case Accepted() | UnreliableSend.SENT:
                return None
            case Rejected() | Released() | Modified():
                refused = _refused(state)
                if not self.resent or isinstance(self.state, Provisional):
                    return refused
                doubt = DeliveryInDoubt(
                    "it was sent before, over a connection that was lost, and may have been taken then; "
                    f"sent again, it was not: {refused}"
                )
                doubt.__cause__ = refused
                return doubt
            case _:
                pass
        failure = self._failure
        if failure is None:
            return DeliveryInDoubt("the peer settled the message without an outcome")
        if isinstance(failure, TimeOver):
            return failure.error(left=self.transferred)
        if not self.transferred:
            return failure.error()
        doubt = DeliveryInDoubt(f"no outcome was heard: {failure.message}")
        doubt.__cause__ = failure.error()
        return doubt

    def open_error(self, timeout_s: float | None) -> AcquitError:
        """Return the error of a wait that ended before the send did. Only what never left is known to be with us."""
        if self.transferred:
            return TimeOver(timeout_s).error(left=True)
        within = "" if timeout_s is None else f" within {timeout_s:g} s"
        awaited = WAITS_FOR_STORE if self.storing else "for credit of the peer, or to be connected"
        return NotSent(f"the message did not leave{within}, and still waits {awaited}")

    def value(self) -> Accepted | None:
        """The outcome, None of an unreliable sender's, or its error raised. Only when done."""
        error = self.error()
        self.asked = True  # and raised: between these lines nothing is called, and Python looks for no signals
        if error is not None:
            raise error
        outcome = self.outcome
        assert outcome is None or isinstance(outcome, Accepted)
        return outcome

    def __repr__(self) -> str:
        if not self.done:
            said: object = (
                "in flight" if self.transferred else "waits for the store" if self.storing else "waits for credit"
            )
        else:
            said = self.error() or "accepted"
        return f"<{type(self).__name__} {said}>"


def _send_failed(kind: type[SendFailed], what: str, state: Rejected) -> SendFailed:
    if state.error is None:
        return kind(f"the peer {what} the message without a reason")
    reason = state.error.description or "no description"
    return kind(
        f"the peer {what} the message: {reason} ({state.error.condition})",
        condition=state.error.condition,
        description=state.error.description,
    )

"""The source's links to a queue, over acquit's blocking client.

`QueueDrain` is a task's: it acquires messages, holds them unsettled, and settles them when they are published. It is
attached with default-outcome *released*, so that a task that dies for reasons of its own never drives messages into a
dead letter queue. It knows the end of the queue by draining the link's credit (2.6.7): the broker sends what it has or
says that there is nothing, and nobody waits for a time-out. Where a broker does not answer that, the end is when
nothing came for the rest of the time, and for `ackTimeout` if nothing came at all.

`QueueProbe` is the driver's. On an acquit broker it browses with no credit, acquires nothing, and hears how many
messages are available, and which sequence was the last; whether there are older ones it sees by looking at one. Other
brokers are not asked: they do not tell, and some know no browsing.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

import numpy as np

from acquit.client.blocking import Connection, Receipt, Receiver, Session
from acquit.client.blocking.receiver import RunReceiver
from acquit.client.blocking.session import receive_in_runs
from acquit.client.options import ReceiverSpec, link_name
from acquit.client.receipts import ReceiptStatus
from acquit.errors import (
    AcquitError,
    ConfigurationError,
    DecodeError,
    EndpointError,
    LimitReached,
    LinkDetached,
)
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Accepted, AmqpCondition, Error, Rejected
from acquit.protocol.extensions import LAST_SEQUENCE, SEQUENCE
from acquit.protocol.message import Message
from acquit.spark.beforehand import check_beforehand
from acquit.spark.connecting import CLOSE_TIMEOUT_S, broker_id, connect_patiently, portion_filter
from acquit.spark.source_options import SourceOptions
from acquit.spark.spool import Numbers, Outcome, Poison
from acquit.spark.tracing import load_tracer

logger = logging.getLogger("acquit.spark")

_UP_TO: Final = f"m.{SEQUENCE} <= {{}}"
"""A selector: the number is an annotation of the message."""

_QUIET_S: Final = 0.02
"""Seconds without a message until the broker is asked whether there is more: one round trip."""
_LOT_ROWS: Final = 8_192
_LOT_BYTES: Final = 8 << 20
"""Bytes, or `_LOT_ROWS`, to collect before messages are handed on, unless none comes: many are understood at once."""
_PREFETCH_BYTES_MAX: Final = (1 << 31) - 1
_REJECTION: Final = Rejected(Error(AmqpCondition.DECODE_ERROR, "the message cannot be parsed"))
_NO_FILTER: Final = "does not apply the filter"
"""Words of our client's error where a broker has not granted a filter."""
_OUTCOMES: Final[dict[Outcome, Accepted | Rejected]] = {Outcome.ACCEPTED: ACCEPTED, Outcome.REJECTED: _REJECTION}


def check_poison(options: SourceOptions, broker: UUID | None) -> None:
    """Raise ConfigurationError where rejecting might lose messages: other brokers drop or requeue what is rejected."""
    if options.poison is Poison.REJECT and broker is None and not options.reject_is_dead_letter:
        raise ConfigurationError(
            f"option poison = reject: the broker at {options.url} is not an acquit broker, and what it does with a "
            "rejected message depends on its configuration (Artemis drops it where there is no dead letter address, "
            "Broker-J requeues it). Say rejectIsDeadLetter = true once you have made sure that it dead-letters"
        )


class QueueDrain:
    """A `Drain` on the queue `address`, for at most `rows_max` messages and about `bytes_max` bytes. `only_until` is
    for acquit brokers: of messages with a sequence up to that.

    Raises ConfigurationError where `selector` is given and the broker does not apply it.
    """

    def __init__(
        self, options: SourceOptions, address: str, rows_max: int, bytes_max: int, *, only_until: int | None = None
    ) -> None:
        self._options = options
        self._address = address
        self._selector = options.selector
        if only_until is not None:
            older = _UP_TO.format(only_until)
            self._selector = older if options.selector is None else f"({options.selector}) AND {older}"
        self._connection = connect_patiently(options)
        try:
            self.broker_id = broker_id(self._connection)
            check_poison(options, self.broker_id)
            # Twice the bytes: the drain must end by its own limit, not stall at the client's.
            self._receiver: RunReceiver = receive_in_runs(
                self._connection.session("individual"),
                ReceiverSpec(
                    name=link_name(address),
                    address=address,
                    prefetch=rows_max,
                    prefetch_bytes=min(2 * bytes_max, _PREFETCH_BYTES_MAX),
                    default_outcome=RELEASED,
                    selector=self._selector,
                    in_runs=True,
                ),
            )
        except BaseException as error:
            self.detach()
            if options.selector is not None and isinstance(error, LinkDetached) and _NO_FILTER in str(error):
                raise ConfigurationError(
                    f"option selector: the broker at {options.url} does not apply a selector to {address}, and without "
                    f"it other messages would be taken: {error}"
                ) from error
            raise
        self._ends_at = time.monotonic() + options.drain_timeout_ms / 1000
        self._answer_s = options.ack_timeout_ms / 1000
        self._lot_bytes = min(_LOT_BYTES, bytes_max)
        self._received = 0
        self._tracer = None if options.tracer is None else load_tracer(options.tracer)
        self._traced: list[Message] = []
        """Messages that were received, where there is a tracer."""
        self.exhausted = False

    def receive(self, rows_max: int) -> Sequence[bytes]:
        """See `Drain`. Raises EndpointError when the link ends before the first message: then there is a reason."""
        since_ns = 0 if self._tracer is None else time.time_ns()
        try:
            payloads = self._receive(rows_max)
        except EndpointError as error:
            if not self._received:
                raise
            # What came before is good, and is recognised when it comes again.
            logger.warning("the link to %s ended while it was drained: %s", self._address, error)
            self.exhausted = False
            return []
        self._received += len(payloads)
        if self._tracer is not None and payloads:
            messages = [_traced(payload) for payload in payloads]
            self._traced += messages
            self._tracer.received_together(messages, self._address, self._receiver.where, since_ns)
        return payloads

    def _receive(self, rows_max: int) -> list[bytes]:
        payloads: list[bytes] = []
        size = 0
        while len(payloads) < min(rows_max, _LOT_ROWS) and size < self._lot_bytes:
            left_s = self._ends_at - time.monotonic()
            if left_s <= 0:
                break
            try:
                more = self._receiver.receive_payloads(rows_max - len(payloads), min(_QUIET_S, left_s))
            except EndpointError:
                if not payloads:
                    raise
                return payloads  # the next call raises it
            if not more:
                break
            payloads += more
            size += sum(map(len, more))
        left_s = self._ends_at - time.monotonic()
        # The first message may be large, or its broker slow: who gave up before the answer would do so for ever.
        patient = not self._received
        if payloads or (left_s <= 0 and not patient):
            return payloads
        asked_s = max(left_s, self._answer_s if patient and self.broker_id is not None else _QUIET_S)
        answered = self._receiver.drain(asked_s)
        payloads = self._receiver.receive_payloads(rows_max, 0)
        if patient and not payloads and not answered and self.broker_id is None:
            # Some never answer that. They are not asked for longer than the part may take, for nothing is handed on
            # meanwhile, but what comes then still counts.
            payloads = self._receiver.receive_payloads(rows_max, max(0.0, self._answer_s - asked_s))
        self.exhausted = not payloads and not self._more(answered)
        return payloads

    def _more(self, answered: bool) -> bool:
        """True if an acquit broker has more for this task than it gives now: it was too slow, or holds that the task
        has enough unsettled. If the task got nothing, or has a selector, what is available may not be for it."""
        if self.broker_id is None:
            return False
        for_us = self._received > 0 and self._selector is None
        return not answered or (for_us and (self._receiver.available or 0) > 0)

    def settle(self, outcomes: Mapping[Outcome, Numbers]) -> bool:
        """See `Drain`: one call and one frame or few for each outcome."""
        # Settling gives credit back, and what came for it would go back to the queue with the link, as come before.
        self._receiver.pause()
        try:
            receipts = [self._settle(numbers, _OUTCOMES[outcome]) for outcome, numbers in outcomes.items()]
            status = max((receipt.result() for receipt in receipts), default=ReceiptStatus.APPLIED)
        except AcquitError as error:
            logger.warning("settlements at %s are unknown: %s", self._address, error)
            return False
        if status > ReceiptStatus.ANSWERED:
            logger.info("settlements at %s: %s; what comes again is recognised", self._address, status.name)
        return status <= ReceiptStatus.ANSWERED

    def _settle(self, numbers: Numbers, outcome: Accepted | Rejected) -> Receipt:
        receipt = self._receiver.settle_numbers(_ranges(numbers), outcome)
        if self._tracer is not None and len(numbers):
            messages = [self._traced[number] for number in numbers]
            self._tracer.settled(messages, self._address, outcome, receipt, self._receiver.where)
        return receipt

    def detach(self) -> None:
        """See `Drain`."""
        with contextlib.suppress(AcquitError):
            self._connection.close(CLOSE_TIMEOUT_S)


def _ranges(numbers: Numbers) -> list[tuple[int, int]]:
    """Return ascending numbers as ranges: the first of each, and what is behind its last."""
    if not len(numbers):
        return []
    each = np.asarray(numbers)
    cuts = np.flatnonzero(np.diff(each) != 1) + 1
    firsts, ends = each[[0, *cuts]], each[[*(cuts - 1), -1]] + 1
    return list(zip(firsts.tolist(), ends.tolist(), strict=True))


def _traced(payload: bytes) -> Message:
    """Return a message for a tracer to look at; an empty one in the place of what cannot be read."""
    try:
        return Message.decode(payload)
    except DecodeError:
        return Message()


class QueueProbe:
    """Asks about the queues of `options` and takes nothing. Connects when first asked, and again when that is lost."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._connection: Connection | None = None
        self._session: Session | None = None
        self._receivers: dict[str, Receiver] = {}
        self.broker_id: UUID | None = None
        self._asked = False
        """Once: a queue that goes later, as by auto_delete, ends no stream."""

    def check(self) -> None:
        """Raise what keeps a stream from being started: no broker, a credential that it does not take, a selector that
        is none, a queue that is not there and not to be made. An acquit broker's queues are not made by it."""
        self._connect()

    def available(self, address: str) -> int | None:
        """Return the number of messages available now, selected or not; None where the broker does not tell."""
        receiver = self._attached(address)
        if receiver is None:
            return None
        try:
            fresh = receiver.refresh(self._options.ack_timeout_ms / 1000)
        except EndpointError:
            self.close()
            receiver = self._attached(address)
            fresh = receiver is not None and receiver.refresh(self._options.ack_timeout_ms / 1000)
        return receiver.available if receiver is not None and fresh else None

    def last_sequence(self) -> int | None:
        """The highest sequence that the broker has given by now; None where it does not tell. Attaches anew."""
        self.close()
        receiver = self._attached(self._options.queues[0])
        value = None if receiver is None else receiver.remote_properties.get(LAST_SEQUENCE)
        return int(value) if isinstance(value, int) else None

    def older(self, address: str, until: int, *, again: bool = True) -> bool:
        """True if a message with a sequence up to `until` is available that the selector selects. For an acquit broker:
        it knows from the numbers alone, and sends one of them, if there is one. True where it does not answer; False
        where other browsers leave no room for this one: what is left is for another run. `again`: on a new connection,
        where this one is lost."""
        try:
            return self._older(address, until)
        except LimitReached as error:  # the browser of a connection that was just lost may still count
            logger.warning("cannot look whether %s has messages from before the run: %s", address, error)
            return False
        except EndpointError:
            if not again:
                raise
            self.close()
            return self.older(address, until, again=False)

    def _older(self, address: str, until: int) -> bool:
        receiver = self._attached(address)
        if receiver is None or self._session is None:
            return False
        del self._receivers[address]
        receiver.close(CLOSE_TIMEOUT_S)  # a queue may have one browser alone
        options = self._options
        receiver = self._session.receiver(
            address, prefetch=1, browse=True, selector=options.selector, filters=portion_filter(until)
        )
        answered = receiver.drain(options.ack_timeout_ms / 1000)
        found = bool(receiver.receive_many(1, 0)) or not answered
        receiver.close(CLOSE_TIMEOUT_S)
        return found

    def close(self) -> None:
        """Let the connection go; the next question makes another."""
        if self._connection is not None:
            with contextlib.suppress(AcquitError):
                self._connection.close(CLOSE_TIMEOUT_S)
        self._connection = self._session = None
        self._receivers.clear()

    def _attached(self, address: str) -> Receiver | None:
        """A browser of `address`; None on a broker that is not asked."""
        session = self._connect()
        if session is None:
            return None
        try:
            receiver = self._receivers.get(address)
            if receiver is None:
                receiver = session.receiver(address, prefetch=0, browse=True)
                self._receivers[address] = receiver
            return receiver
        except BaseException:
            self.close()
            raise

    def _connect(self) -> Session | None:
        """The session of a connection that there is, or is made; None on a broker that is not asked."""
        try:
            if self._connection is None or self._connection.closed:
                self._receivers.clear()
                self._connection = connect_patiently(self._options)
                self.broker_id = broker_id(self._connection)
                check_poison(self._options, self.broker_id)
                if self.broker_id is not None and not self._asked:
                    check_beforehand(self._connection, self._options)
                    self._asked = True
                self._session = None if self.broker_id is None else self._connection.session("no-ack")
            return self._session
        except BaseException:
            self.close()
            raise

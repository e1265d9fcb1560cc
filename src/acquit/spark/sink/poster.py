"""Posts the rows of one task, over acquit's blocking client.

A `SinkPoster` connects, finds out what the broker grants, and is then given row after row. Sends are pipelined: up to
`maxInFlight` of them, and their bytes, wait for their answers; beyond, the task waits for the oldest. The link's credit
is the broker's, so a slow broker slows the task down and fills nobody's memory. Where a refusal means that all
behind it has to be sent again, as with a mark, fewer are sent ahead: half as many after each, and one more for each row
that is taken.

**What is in flight is kept** until it is answered, in order. So whatever happens to the connection, a restart of the
broker included, the poster attaches again and sends what has no answer; while the broker takes nothing at all, no
longer than `sendTimeout`. A link that the broker ends is an error: it had a reason. A broker that knows the rows
(`Mechanism`) posts none of them twice by that; otherwise it is at least once.

**With a mark** (docs/duplicates.md) the attach tells how far an earlier attempt came. Rows below are left out; the row
at the mark is sent, because its answer says that all of that is on the disk. When it attaches again, the mark must not
have gone back: what a killed broker did not have on its disk yet would be a gap. The mark's digest is a checksum of the
address and of all rows of the batch up to it: are they others now, or in another order, that is an error and not a
loss. The broker compares it, too, for two attempts at once. So is a mark of a later batch, as there is when a query
goes on from an old checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple
from zlib import crc32

from acquit.client.blocking import Connection, Sender, Session
from acquit.client.blocking.messages import SendReceipt
from acquit.client.options import DeliveryMode
from acquit.client.sending import Encoded
from acquit.errors import (
    AcquitError,
    AuthenticationFailed,
    ConfigurationError,
    ConnectionFailed,
    DeliveryInDoubt,
    EndpointError,
    LinkDetached,
    MessageModified,
    MessageRejected,
    MessageReleased,
    MessageTooLarge,
    NotSent,
    RowRejected,
    RowsChanged,
    SendFailed,
    SessionEnded,
)
from acquit.protocol.definitions import Accepted, AmqpCondition
from acquit.protocol.extensions import SENDER_MARK
from acquit.protocol.numbered import place_section
from acquit.spark.connecting import CLOSE_TIMEOUT_S, broker_id, connect_patiently
from acquit.spark.sink.options import Guarantee, RejectedRows, SinkOptions

logger = logging.getLogger("acquit.spark")

REJECTIONS_TOLD_MAX: Final = 10
"""Rows that a task names in its result; all of them are logged."""
_ID_TOLD_MAX: Final = 300
"""Characters of a row's id in what is told: an id may be as long as a body. More than those of our own ids."""

_DURABLE: Final = b"\x41"
"""Encoding of true as a header's field `durable`, behind the list's constructor."""
_ARTEMIS: Final = "apache-activemq-artemis"
_PAUSE_FIRST_S: Final = 0.05
_PAUSE_MAX_S: Final = 2.0
_TRANSIENT: Final = frozenset((AmqpCondition.RESOURCE_LIMIT_EXCEEDED, AmqpCondition.RESOURCE_LOCKED))
"""Conditions of a refusal that say: try again later."""
_ENDED: Final = (LinkDetached, SessionEnded)
"""Errors that say: the broker ended what we sent on, and why."""
_OTHERS: Final = "they are others, come in another order, or go to another address"


class Mechanism(Enum):
    """Means by which the broker recognises rows that were posted before."""

    MARK = "the sender's mark"
    IDS = "ids in _AMQ_DUPL_ID"
    NONE = "not at all"


class TaskOrigin(NamedTuple):
    """Origin of a task's rows: the query or run, its batch and its partition."""

    name: str | None
    """The query's id, or of a batch write its run id; None: a batch write without."""
    batch: int
    partition: int

    def row_id(self, index: int) -> str:
        """The same whenever the row is made again."""
        return f"{self.name or 'unnamed'}:{self.batch}:{self.partition}:{index}"

    def row(self, index: int, identity: str) -> str:
        """Return what a row is called in messages to people."""
        return f"row {index} of partition {self.partition}, batch {self.batch} (id {identity:.{_ID_TOLD_MAX}})"


class OutgoingRow(NamedTuple):
    """Row that is to be posted."""

    number: int
    """Index of the row within its partition, as the rows come."""
    identity: str
    header: bytes
    rest: bytes


class PostingResult(NamedTuple):
    """Result of posting the rows of one task."""

    written: int
    suppressed: int | None
    """Rows that an earlier attempt had posted; None where the broker does not tell."""
    rejected: int
    rejections: tuple[str, ...]


class _RowInFlight:
    """A row in flight."""

    __slots__ = ("payload", "receipt", "row")

    def __init__(self, row: OutgoingRow, payload: bytes) -> None:
        self.row = row
        self.payload = payload
        self.receipt: SendReceipt | None = None


def choose_mechanism(
    options: SinkOptions, *, named: bool, product: str, marks: bool, acquit: bool, partition: int
) -> Mechanism:
    """Return how this broker recognises repeated rows. Raises ConfigurationError where exactly-once cannot be had.

    `named`: the rows have a place that is the same when they are made again (a streaming query, a run id). `product` is
    what the broker says it is, `marks` whether it offers marks.
    """
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        return Mechanism.NONE
    if named and marks and not (options.id_column is not None and options.duplicate_window):
        return Mechanism.MARK
    broker = f"the broker at {options.url} ({product or 'of unknown make'})"
    if not acquit and product != _ARTEMIS:
        raise ConfigurationError(
            f"option guarantee = exactly-once: {broker} is not known to tell messages that are posted twice. Say "
            "guarantee = at-least-once: after a crash some rows are there twice, with the same message-id"
        )
    if not options.duplicate_window:
        raise ConfigurationError(
            f"option guarantee = exactly-once: {broker} tells rows that are posted twice by their ids, of which it "
            "remembers so many for each address. Say how many, by the option duplicateWindow (Artemis: id-cache-size, "
            "20,000 unless it was changed; acquit: duplicate_window), or guarantee = at-least-once"
        )
    if partition >= options.writers:
        raise ConfigurationError(
            f"option writers = {options.writers}: partition {partition} is written, too. Say how many tasks write a "
            f"batch, so that each knows its share of duplicateWindow = {options.duplicate_window}"
        )
    return Mechanism.IDS


class SinkPoster:
    """Posts rows, in order. Close it, whatever happens."""

    def __init__(self, options: SinkOptions, origin: TaskOrigin) -> None:
        """Connect and attach. Raises ConnectionFailed and its kin, LinkDetached and its kin where the broker refuses
        the address, ConfigurationError where it does not grant what is asked for."""
        self._options = options
        self._origin = origin
        self._pending: deque[_RowInFlight] = deque()
        self._pending_bytes = 0
        self._under_way = 0
        """Pending rows that have been sent on the link that there is: the first so many."""
        self._window = options.in_flight_max
        """Rows that may be pending, at most."""
        self._written = self._suppressed = self._rejected = 0
        self._rejections: list[str] = []
        # Rows say their own addresses; that of the option is the same for all, and they are not posted to another.
        self._digest = 0 if options.address is None else crc32(options.address.encode(), int(options.topic))
        self._resume_at: int | None = None
        """The place of the mark, until the row there has come."""
        self._resume_digest = 0
        self._posted_to = -1
        """The last row of which the broker said that it is posted for good, by an answer or by the mark."""
        self._stalled_since: float | None = None
        self._pause_s = _PAUSE_FIRST_S
        self._session: Session | None = None
        """Session of this connection, for every link there: a connection has so many channels."""
        self._sender: Sender | None = None
        self._connection: Connection = connect_patiently(options)
        try:
            self.mechanism = self._mechanism()
            self._attach()
            self._look_at_mark()
        except BaseException:
            self.close()
            raise
        self._rows_max = (options.duplicate_window or 0) // options.writers

    def post(self, row: OutgoingRow) -> None:
        """Post a row, or wait until there is room for it. Raises RowRejected, RowsChanged, or why nothing can be posted
        any more."""
        if self.mechanism is Mechanism.MARK:
            self._digest = crc32(row.rest, crc32(row.header, self._digest))
            if self._posted_before(row.number):
                return
            place = place_section((self._origin.batch, row.number, self._digest))
            payload = b"".join((row.header, place, row.rest))
        else:
            if self.mechanism is Mechanism.IDS and row.number >= self._rows_max:
                raise ConfigurationError(
                    f"partition {self._origin.partition} of batch {self._origin.batch} has more than {self._rows_max} "
                    f"rows, its share of duplicateWindow = {self._options.duplicate_window} among writers = "
                    f"{self._options.writers}: posted again, the first would not be known any more. Make batches "
                    "smaller, or the broker's window larger"
                )
            payload = row.header + row.rest
        size = len(payload)
        while self._pending and (
            len(self._pending) >= self._window or self._pending_bytes + size > self._options.in_flight_bytes
        ):
            self._take_oldest()
        self._send(_RowInFlight(row, payload))

    def reject(self, index: int, identity: str, reason: str) -> None:
        """A row cannot be posted, for a reason of its own. Raises RowRejected, unless such rows are to be skipped."""
        if self.mechanism is Mechanism.MARK:
            self._digest = crc32(identity.encode(), self._digest)
            if index == self._resume_at:
                raise self._changed("the last of them cannot be posted", index)
        self._reject(index, identity, reason)

    def finish(self) -> PostingResult:
        """Wait for all answers. Raises as `post`."""
        if self._resume_at is not None:
            raise self._changed("there are fewer of them", self._resume_at)
        while self._pending:
            self._take_oldest()
        suppressed = self._suppressed if self.mechanism is Mechanism.MARK else None
        return PostingResult(self._written, suppressed, self._rejected, tuple(self._rejections))

    def close(self) -> None:
        """Let the connection go. What has no answer may be posted or not."""
        with contextlib.suppress(AcquitError):
            self._connection.close(CLOSE_TIMEOUT_S if not self._pending else 0.1)

    # -- the mark -----------------------------------------------------------------------------------------------------

    def _mechanism(self) -> Mechanism:
        connection = self._connection
        return choose_mechanism(
            self._options,
            named=self._origin.name is not None,
            product=str(connection.remote_properties.get("product", "")),
            marks=SENDER_MARK in connection.remote_capabilities,
            acquit=broker_id(connection) is not None,
            partition=self._origin.partition,
        )

    def _look_at_mark(self) -> None:
        if self.mechanism is not Mechanism.MARK:
            return
        told = self._told()
        if not told or told[0] < self._origin.batch:
            return
        if told[0] > self._origin.batch:
            raise RowsChanged(
                f"batch {self._origin.batch} of query {self._origin.name} is over: the broker at {self._options.url} "
                f"has rows of batch {told[0]} already. This task is a late double of one that is done, or the "
                "checkpoint is older than what was posted: restore the newer one, or begin a new query with a new one"
            )
        self._resume_at, self._resume_digest = told[1:]
        self._posted_to = self._resume_at

    def _told(self) -> list[int]:
        """Batch, index and digest of the mark, by the broker's attach; empty where there is none yet."""
        assert self._sender is not None
        told = self._sender.remote_properties.get(SENDER_MARK)
        if not isinstance(told, list) or len(told) not in (0, 3):
            raise ConfigurationError(f"the broker at {self._options.url} offers marks ({SENDER_MARK}) and grants none")
        return [int(one) for one in told]

    def _attach_again(self) -> None:
        """Attach, to send what has no answer. What is below is not sent again, so the broker must still have it: the
        mark that it told before it was killed may not have been on its disk."""
        self._attach()
        if self.mechanism is not Mechanism.MARK:
            return
        origin, told = self._origin, self._told()
        if (told or [-1]) < [origin.batch, self._posted_to] and self._posted_to >= 0:
            there = f"up to row {told[1]}" if told and told[0] == origin.batch else "none"
            raise DeliveryInDoubt(
                f"the broker at {self._options.url} has rows of partition {origin.partition}, batch {origin.batch}, "
                f"{there} since it is back, and had told of them up to row {self._posted_to}: it was killed before "
                "they were on its disk, or has an older disk now. Nothing was sent to it; write the batch again"
            )

    def _posted_before(self, index: int) -> bool:
        """True if the row is left out: an earlier attempt has posted it, and the broker says so."""
        if self._resume_at is None:
            return False
        self._suppressed += 1
        if index < self._resume_at:
            return True
        if self._digest != self._resume_digest:
            raise self._changed(_OTHERS, index)
        self._resume_at = None
        self._written -= 1  # it is sent, because its answer says that what is below is on the disk
        return False

    def _changed(self, how: str, posted: int) -> RowsChanged:
        origin = self._origin
        return RowsChanged(
            f"the rows of partition {origin.partition}, batch {origin.batch}, are not those that were posted before "
            f"({how}): the broker has them up to row {posted}. Rows must come in the same order when they are "
            "made again; after a shuffle, name a column that orders them by the option idColumn"
            f"{'' if self._options.run_id is None else '. Other rows want another runId'}"
        )

    # -- sends --------------------------------------------------------------------------------------------------------

    def _attach(self) -> None:
        options = self._options
        self._under_way = 0
        properties: Mapping[str, object] | None = None
        if self.mechanism is Mechanism.MARK:
            properties = {SENDER_MARK: f"{self._origin.name}:{self._origin.partition}"}
        if self._session is None:
            self._session = self._connection.session()
        self._sender = self._session.sender(
            options.address,
            delivery_mode=DeliveryMode.NON_PERSISTENT,  # each message says it itself
            topic=options.topic,
            properties=properties,
            buffer_messages=options.in_flight_max,
            buffer_bytes=2 * options.in_flight_bytes,
        )

    def _send(self, sending: _RowInFlight) -> None:
        self._pending.append(sending)
        self._pending_bytes += len(sending.payload)
        self._fill()

    def _fill(self) -> None:
        try:
            self._start_pending()
        except (EndpointError, NotSent) as error:
            self._go_on_after(error)

    def _start_pending(self) -> None:
        """Send as many pending rows as there is room for in the window."""
        while self._under_way < min(len(self._pending), self._window):
            sending = self._pending[self._under_way]
            try:
                self._start(sending)
                self._under_way += 1
            except MessageTooLarge as error:
                if error.remote:  # the end of the link, over some message before
                    raise
                self._leave_out(sending, error)

    def _leave_out(self, sending: _RowInFlight, error: MessageTooLarge) -> None:
        """Reject a row that is larger than the broker takes, or takes since it was restarted."""
        self._pending.remove(sending)
        self._pending_bytes -= len(sending.payload)
        self._reject(sending.row.number, sending.row.identity, str(error))

    def _start(self, sending: _RowInFlight) -> None:
        assert self._sender is not None
        receipt = self._sender.send(Encoded(sending.payload), wait=False, timeout=self._options.send_timeout_ms / 1000)
        assert isinstance(receipt, SendReceipt)
        sending.receipt = receipt

    def _take_oldest(self) -> None:
        """Wait for the answer to the oldest, and act on it."""
        sending = self._pending[0]
        assert sending.receipt is not None
        try:
            sending.receipt.result(self._options.send_timeout_ms / 1000)
        except (MessageRejected, MessageReleased, MessageModified) as error:
            self._refused(sending, error)
        except (EndpointError, DeliveryInDoubt, NotSent) as error:
            self._go_on_after(error)
        else:
            self._accepted(sending)
            self._fill()

    def _done_with_oldest(self) -> None:
        self._pending_bytes -= len(self._pending.popleft().payload)
        self._under_way -= 1

    def _accepted(self, sending: _RowInFlight) -> None:
        """The oldest is posted."""
        self._done_with_oldest()
        self._window = min(self._window + 1, self._options.in_flight_max)
        self._written += 1
        if sending.row.header[6:7] == _DURABLE:  # what is not is accepted before the mark is on the disk
            self._posted_to = sending.row.number
        self._stalled_since = None
        self._pause_s = _PAUSE_FIRST_S

    def _refused(self, sending: _RowInFlight, error: MessageRejected | MessageReleased | MessageModified) -> None:
        """Act on the refusal of a row. With a mark nothing behind it is posted, and all goes on with a new link."""
        if self.mechanism is Mechanism.MARK:
            if error.condition == AmqpCondition.ILLEGAL_STATE:
                # Another attempt posted up to here meanwhile, and is or was ahead of this one.
                raise self._changed(_OTHERS, sending.row.number) from error
            self._window = max(1, self._window // 2)
        if isinstance(error, MessageRejected) and error.condition not in _TRANSIENT:
            self._done_with_oldest()
            self._reject(sending.row.number, sending.row.identity, str(error))
            if self.mechanism is Mechanism.MARK:
                self._send_again()
            return
        self._pause(f"{self._origin.row(sending.row.number, sending.row.identity)}: {error}", error)
        self._send_again(None if self.mechanism is Mechanism.MARK else sending)

    def _reject(self, index: int, identity: str, reason: str) -> None:
        told = f"{self._origin.row(index, identity)}: {reason}"
        if self._options.rejected is RejectedRows.FAIL:
            raise RowRejected(f"{told}. With the option rejected = skip such rows are left out")
        logger.warning("left out: %s", told)
        self._rejected += 1
        if len(self._rejections) < REJECTIONS_TOLD_MAX:
            self._rejections.append(told)

    def _send_again(self, one: _RowInFlight | None = None) -> None:
        """All that has no answer, on a new link; or `one`, on the same."""
        assert self._sender is not None
        try:
            if one is not None:
                self._start(one)
                return
            for sending in self._pending:
                if sending.receipt is not None:
                    with contextlib.suppress(AcquitError):
                        sending.receipt.result(self._options.send_timeout_ms / 1000)
            with contextlib.suppress(AcquitError):
                self._sender.close(CLOSE_TIMEOUT_S)
            self._attach_again()
            self._start_pending()
        except (EndpointError, NotSent) as error:
            self._go_on_after(error)

    def _go_on_after(self, error: AcquitError) -> None:
        """The link is gone, or nothing was heard for too long: with a new connection, all that has no answer again.
        Raises the error where that is no use."""
        while True:
            lost = isinstance(error, ConnectionFailed) or isinstance(error.__cause__, ConnectionFailed)
            if not lost and not self._connection.closed:
                if isinstance(error, _ENDED) or isinstance(error.__cause__, _ENDED):
                    self._raise_in_doubt()
                    raise error
                raise self._stalled(str(error), error) from error
            self.close()
            while self._pending and _is_accepted(self._pending[0]):
                self._accepted(self._pending[0])
            self._pause(str(error), error)
            try:
                self._connection, self._session = connect_patiently(self._options), None
                if self._mechanism() is not self.mechanism:
                    raise ConfigurationError(f"the broker at {self._options.url} is another one since it was restarted")
                self._attach_again()
                self._start_pending()
            except AuthenticationFailed:
                raise
            except (EndpointError, NotSent) as again:
                error = again
            else:
                return

    def _raise_in_doubt(self) -> None:
        """Raise what is unknown of the rows that had left when the link ended, if anything is."""
        for sending in islice(self._pending, self._under_way):
            assert sending.receipt is not None
            with contextlib.suppress(SendFailed):
                sending.receipt.result(self._options.send_timeout_ms / 1000)

    def _pause(self, why: str, error: AcquitError) -> None:
        """Wait before another try. Raises what `_stalled` makes when nothing was taken for `sendTimeout`."""
        now = time.monotonic()
        if self._stalled_since is None:
            self._stalled_since = now
        elif now - self._stalled_since > self._options.send_timeout_ms / 1000:
            raise self._stalled(why, error) from error
        logger.info("posting again in %g s: %s", self._pause_s, why)
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)

    def _stalled(self, why: str, error: AcquitError) -> AcquitError:
        """Return the error for rows that the broker did not take in time: whether they are there, and why not."""
        time_s = f"{self._options.send_timeout_ms / 1000:g} s (option sendTimeout)"
        broker = f"the broker at {self._options.url}"
        if isinstance(error, NotSent):
            address = "the addresses of its rows" if self._options.address is None else self._options.address
            return NotSent(
                f"{broker} gives no credit for {address}, as for a queue that is full, and took no row for {time_s}. "
                f"{len(self._pending)} rows never left"
            )
        if isinstance(error, SendFailed):
            return RowRejected(f"{broker} refused the same row for {time_s}: {why}")
        return DeliveryInDoubt(f"{broker} took no row for {time_s}: {why}")


def _is_accepted(sending: _RowInFlight) -> bool:
    return sending.receipt is not None and isinstance(sending.receipt.outcome, Accepted)


__all__ = ["Mechanism", "OutgoingRow", "PostingResult", "SinkPoster", "TaskOrigin", "choose_mechanism"]

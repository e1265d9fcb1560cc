"""A queue looked at: what a batch of the source shows, and how several tasks share it.

Nothing is acquired, settled or counted: links have distribution-mode *copy* (3.5.1), and what they show stays where it
is, for whoever consumes.

**The snapshot.** An acquit broker numbers postings over all of its queues, and says the last number when a link
attaches. So the driver asks once, and every task of the batch is shown what was posted up to that number and nothing
after it, whenever it runs. Each task gets a *portion* of a queue, told by the broker from the numbers alone
(``acquit:portion-filter:list``): each message is in one of them. What the number cannot do is hold a message that a
consumer takes away before its task comes by, or show one that a consumer holds at that moment: a queue is not a table,
and a task that Spark runs twice may find less the second time.

Other brokers give no such numbers. There one task looks at each queue, and sees what is there while it looks.

**The end** is where the broker, asked to use up our credit (2.6.7), says that there is nothing. An acquit broker always
says so; if it does not, the task fails instead of giving half a queue. From others, silence is taken for the end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import pyarrow as pa

from acquit.client.blocking import Connection, ReceivedMessage, Receiver, Session
from acquit.errors import (
    AcquitError,
    ConfigurationError,
    ConnectionFailed,
    LinkDetached,
    MessageUnusable,
    NotFound,
    SessionEnded,
    Unauthorized,
)
from acquit.protocol.extensions import LAST_SEQUENCE
from acquit.spark.beforehand import refuse_missing, refuse_selector
from acquit.spark.browse_options import BrowseOptions
from acquit.spark.columns import MessageColumns
from acquit.spark.connecting import CLOSE_TIMEOUT_S, broker_id, connect_patiently, portion_filter
from acquit.spark.driver import spread
from acquit.spark.spool import Poison

ROWS_EACH: Final = 1_000
"""Fewer messages than this for each task are not worth another task."""

_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 16 << 20
_PREFETCH: Final = 5_000
_PREFETCH_BYTES: Final = 16 << 20
_QUIET_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowsePart:
    """The work of one task."""

    address: str
    broker: UUID | None
    """Identity of the acquit broker that planned the batch; None for another broker."""
    until: int = 0
    """The last sequence of the snapshot, where there is one."""
    parts: int = 1
    part: int = 0


def plan_browse(options: BrowseOptions) -> list[BrowsePart]:
    """Ask the broker once, and share what there is. For the driver.

    Raises ConfigurationError where an address is not there or cannot be browsed, and what `connect_patiently` raises.
    """
    connection = connect_patiently(options)
    try:
        broker = broker_id(connection)
        if broker is not None and not options.create:
            refuse_missing(connection, options)
        depths: dict[str, int | None] = {}
        until: int | None = None
        # One for all of them: a connection has fewer channels than there may be addresses.
        session = connection.session("no-ack")
        for address in options.queues:
            # Asked for a portion as the tasks will ask, so that what is refused is refused here.
            receiver = _attach(session, options, BrowsePart(address=address, broker=broker), prefetch=0)
            if until is None:
                value = receiver.remote_properties.get(LAST_SEQUENCE)
                until = int(value) if isinstance(value, int) else None
            depths[address] = receiver.available if broker is not None else None
            receiver.close(CLOSE_TIMEOUT_S)
    finally:
        _close(connection)
    if broker is None or until is None:
        return [BrowsePart(address=address, broker=None) for address in options.queues]
    counts = _shares(depths, options.parts)
    return [
        BrowsePart(address=address, broker=broker, until=until, parts=count, part=part)
        for address, count in counts.items()
        for part in range(count)
    ]


def browse(options: BrowseOptions, part: BrowsePart, reader: MessageColumns) -> Iterator[pa.RecordBatch]:
    """The rows of one part, in the form of a data file. Holds one batch in memory.

    Raises ConnectionFailed when the connection is lost or the end cannot be told, MessageUnusable with `poison = fail`.
    """
    connection = connect_patiently(options)
    try:
        found = broker_id(connection)
        if found != part.broker:
            raise ConfigurationError(
                f"the broker at {options.url} is not the one that was asked when the batch was planned "
                f"({part.broker or 'no acquit broker'}), it is {found or 'no acquit broker'}: the batch would be of "
                "two queues"
            )
        receiver = _attach(connection.session("no-ack"), options, part, prefetch=_PREFETCH)
        for messages in _chunks(_received(receiver, options, part)):
            identified = reader.identify([message.payload for message in messages], found)
            rows = reader.rows(identified.messages, found)
            if rows.corrupt and options.poison is Poison.FAIL:
                raise MessageUnusable(
                    f"{len(rows.corrupt)} of {len(messages)} messages of {part.address} cannot be parsed, the first: "
                    f"{rows.corrupt[min(rows.corrupt)]}. Look at them with `poison = column`"
                )
            yield from rows.batches
    finally:
        _close(connection)


def _received(receiver: Receiver, options: BrowseOptions, part: BrowsePart) -> Iterator[ReceivedMessage]:
    """Yield messages up to the end of the queue. Raises ConnectionFailed where an acquit broker does not tell it."""
    patience_s = options.idle_timeout_ms / 1000
    came_at = time.monotonic()
    while True:
        messages = receiver.receive_many(_BATCH_ROWS, _QUIET_S)
        if not messages:
            ended = receiver.drain(max(_QUIET_S, came_at + patience_s - time.monotonic()))
            messages = receiver.receive_many(_BATCH_ROWS, 0)
            if not messages and ended:
                return
        if messages:
            yield from messages
            came_at = time.monotonic()
        elif time.monotonic() >= came_at + patience_s:
            if part.broker is None:
                return
            raise ConnectionFailed(
                f"the broker at {options.url} has sent nothing from {part.address} for {patience_s:g} s, and has not "
                "said that there is nothing more (option idleTimeout)"
            )


def _chunks(messages: Iterator[ReceivedMessage]) -> Iterator[list[ReceivedMessage]]:
    chunk: list[ReceivedMessage] = []
    size = 0
    for message in messages:
        chunk.append(message)
        size += len(message.payload)
        if len(chunk) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _attach(session: Session, options: BrowseOptions, part: BrowsePart, *, prefetch: int) -> Receiver:
    filters = None
    if part.broker is not None:
        filters = portion_filter(part.until, part.parts, part.part)
    try:
        return session.receiver(
            part.address,
            prefetch=prefetch,
            prefetch_bytes=_PREFETCH_BYTES,
            browse=True,
            selector=options.selector,
            filters=filters,
        )
    except (NotFound, Unauthorized):
        raise
    except (LinkDetached, SessionEnded) as error:
        refuse_selector(error, options)
        raise ConfigurationError(
            f"the broker at {options.url} does not let {part.address} be looked at as it was asked: {error}. Without "
            "that it would hand messages out for good; take them with spark.readStream instead (docs/brokers.md says "
            "which brokers grant what)"
        ) from error


def _shares(depths: dict[str, int | None], parts: int) -> dict[str, int]:
    """Return the number of tasks for each queue: at least one, and no more than one for every `ROWS_EACH` messages."""
    spread_out = spread(depths, max(parts, len(depths)))
    return {
        address: max(1, min(spread_out.count(address), -(-(depth or 0) // ROWS_EACH)))
        for address, depth in depths.items()
    }


def _close(connection: Connection) -> None:
    with contextlib.suppress(AcquitError):
        connection.close(CLOSE_TIMEOUT_S)


__all__: Sequence[str] = ("BrowsePart", "browse", "plan_browse")

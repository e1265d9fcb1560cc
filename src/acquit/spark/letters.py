"""The dead letters in a queue as a table of Spark's, with what they say of their past.

One task browses the queue, which takes nothing; the rest is columns. What an acquit broker writes into a dead letter
(`docs/expiry-and-dead-letters.md`) is in its annotations, which the source has as text; here it is typed:

================  ==================================================================================================
sequence          the letter's own, in this queue
origin_queue      where it died; origin_address: that queue's address, another one for a topic's subscription
origin_sequence   the sequence that it had there
died_at           when it came here; expired_at: of expired messages, when that was
attempts          the last 20 failed ones, the oldest first: when, consumer, outcome, cause, condition, description
cause, condition, of the last attempt; cause is ``expired`` where there was none
description
text              the body, where it is text or bytes that are
================  ==================================================================================================

and, as in the source: message_id, correlation_id, subject, content_type, application_properties, annotations,
created_at, body, body_type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from acquit.client.blocking import Receiver
from acquit.errors import ConfigurationError
from acquit.spark.columns import BY_NAME, MessageColumns
from acquit.spark.link import LAST_SEQUENCE_PROPERTY, broker_id, connect_patiently
from acquit.spark.options import ConnectionOptions

_READ: Final = (
    "sequence",
    "message_id",
    "correlation_id",
    "subject",
    "content_type",
    "application_properties",
    "annotations",
    "posted_at",
    "created_at",
    "body",
    "body_type",
)
_ATTEMPTS: Final = (
    "ARRAY<STRUCT<`when`: TIMESTAMP, consumer: STRING, outcome: STRING, cause: STRING, condition: STRING, "
    "description: STRING>>"
)
_COLUMNS: Final = (
    *(name for name in _READ if name != "posted_at"),
    "posted_at AS died_at",
    "annotations['x-opt-ORIG-QUEUE'] AS origin_queue",
    "annotations['x-opt-ORIG-ADDRESS'] AS origin_address",
    "CAST(annotations['x-opt-acquit-origin'] AS BIGINT) AS origin_sequence",
    "CAST(annotations['x-opt-ACTUAL-EXPIRY'] AS TIMESTAMP) AS expired_at",
    f"COALESCE(FROM_JSON(annotations['x-opt-acquit-attempts'], '{_ATTEMPTS}'), ARRAY()) AS attempts",
    "CASE WHEN body_type IN ('string', 'data') THEN CAST(body AS STRING) END AS text",
)
_LAST: Final = (
    "*",
    "COALESCE(TRY_ELEMENT_AT(attempts, -1).cause, IF(expired_at IS NULL, NULL, 'expired')) AS cause",
    "TRY_ELEMENT_AT(attempts, -1).condition AS condition",
    "TRY_ELEMENT_AT(attempts, -1).description AS description",
)
_AT_ONCE: Final = 1_000
_QUIET_S: Final = 0.05
_DRAIN_S: Final = 10.0


def dead_letters(session: SparkSession, options: ConnectionOptions, queue: str) -> DataFrame:
    """The letters that wait in `queue` when the frame is evaluated, up to the sequence that was the last one then.

    What fails does so in an action: ConfigurationError on a broker that is not acquit, ConnectionFailed and its kin.
    """
    ddl = ", ".join(f"{name} {BY_NAME[name].spark_type}" for name in _READ)
    read = session.range(1, numPartitions=1).mapInArrow(partial(_browse, options, queue), ddl)
    return read.selectExpr(*_COLUMNS).selectExpr(*_LAST)


def _browse(options: ConnectionOptions, queue: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task."""
    for _ in batches:  # one row, which means nothing
        pass
    schema = pa.schema([(name, BY_NAME[name].arrow_type) for name in _READ])
    with connect_patiently(options) as connection:
        broker = broker_id(connection)
        if broker is None:
            raise ConfigurationError(
                f"the broker at {options.url} is no acquit broker: its dead letters do not say what was tried, and it "
                "cannot be asked to move chosen ones"
            )
        receiver = connection.session("no-ack").receiver(queue, browse=True, prefetch=_AT_ONCE)
        last = receiver.remote_properties.get(LAST_SEQUENCE_PROPERTY)
        reader = MessageColumns(queue)
        for payloads in _payloads(receiver):
            identified = [reader.identify(payload, broker) for payload in payloads]
            known = [one for one in identified if not isinstance(last, int) or (one.sequence or 0) <= last]
            yield from reader.select(reader.rows(known, broker).batches, schema)


def _payloads(receiver: Receiver) -> Iterator[list[bytes]]:
    """To the end of the queue."""
    while True:
        messages = receiver.receive_many(_AT_ONCE, _QUIET_S)
        if not messages:
            receiver.drain(_DRAIN_S)
            messages = receiver.receive_many(_AT_ONCE, 0)
        if not messages:
            return
        yield [message.payload for message in messages]

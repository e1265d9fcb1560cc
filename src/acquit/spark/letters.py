"""The dead letters in a queue as a table of Spark's, with what they say of their past.

The queue is looked at as a batch (`spark.browse`), which takes nothing; the rest is columns. What an acquit broker
writes into a dead letter (`docs/expiry-and-dead-letters.md`) is in its annotations, which the source has as text; here
it is typed. What is there otherwise, as in a message that somebody posted to this queue, is null:

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

from typing import Final

from pyspark.sql import DataFrame, SparkSession

from acquit.spark.options import FORMAT_NAME
from acquit.spark.source import AcquitDataSource

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
    "ARRAY<STRUCT<`when`: TIMESTAMP_LTZ, consumer: STRING, outcome: STRING, cause: STRING, condition: STRING, "
    "description: STRING>>"
)
_COLUMNS: Final = (
    *(name for name in _READ if name != "posted_at"),
    "posted_at AS died_at",
    "annotations['x-opt-ORIG-QUEUE'] AS origin_queue",
    "annotations['x-opt-ORIG-ADDRESS'] AS origin_address",
    "TRY_CAST(annotations['x-opt-acquit-origin'] AS BIGINT) AS origin_sequence",
    "TRY_CAST(annotations['x-opt-ACTUAL-EXPIRY'] AS TIMESTAMP_LTZ) AS expired_at",
    f"COALESCE(FROM_JSON(annotations['x-opt-acquit-attempts'], '{_ATTEMPTS}'), ARRAY()) AS attempts",
    "CASE WHEN body_type IN ('string', 'data') THEN CAST(body AS STRING) END AS text",
)
_LAST: Final = (
    "*",
    "COALESCE(TRY_ELEMENT_AT(attempts, -1).cause, IF(expired_at IS NULL, NULL, 'expired')) AS cause",
    "TRY_ELEMENT_AT(attempts, -1).condition AS condition",
    "TRY_ELEMENT_AT(attempts, -1).description AS description",
)


def dead_letters(session: SparkSession, options: dict[str, str]) -> DataFrame:
    """The letters in a queue when the frame is evaluated: `options` are those of the batch source."""
    session.dataSource.register(AcquitDataSource)
    read = session.read.format(FORMAT_NAME).options(**options).load().select(*_READ)
    return read.selectExpr(*_COLUMNS).selectExpr(*_LAST)

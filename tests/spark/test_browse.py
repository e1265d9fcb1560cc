"""A queue looked at by a real Spark: rows of several tasks, nothing taken, and errors that say what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import acquit
from acquit.protocol.message import Message
from acquit.spark.browse import ROWS_EACH
from acquit.spark.columns import FIELDS
from acquit.spark.session import reason_of
from acquit.spark.source import AcquitDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_queue_is_a_table_and_stays_as_it_is(spark: SparkSession, broker: acquit.Broker, address: str) -> None:
    spark.dataSource.register(AcquitDataSource)
    with acquit.connect(broker.url) as connection, connection.session() as session:
        sender = session.sender(address)
        for number in range(2 * ROWS_EACH):
            properties = {"even": number % 2 == 0}
            sender.send(Message(f'{{"n": {number}}}', application_properties=properties), wait=False)
        sender.flush()
    frame = spark.read.format("acquit").option("url", broker.url).option("address", address)
    rows = frame.load()
    assert rows.columns == [field.name for field in FIELDS]
    assert rows.rdd.getNumPartitions() == 2
    decoded = frame.option("bodyAs", "json").option("bodySchema", "n BIGINT").option("selector", "even").load()
    counted = decoded.selectExpr("count(*) AS rows", "count(DISTINCT sequence) AS sequences", "sum(json.n) AS total")
    found = counted.collect()[0].asDict()
    assert found == {"rows": ROWS_EACH, "sequences": ROWS_EACH, "total": ROWS_EACH * (ROWS_EACH - 1)}
    (queue,) = (one for one in broker.inspect().queues if one.name == address)
    assert (queue.available, queue.acquired) == (2 * ROWS_EACH, 0)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"addres": "orders"}, "option addres is not known; did you mean address?"),
        ({"address": "orders", "parts": "0"}, "option parts = '0': expected a number from 1 to 1000"),
        ({"address": "orders", "url": "amqp://127.0.0.1:9", "connectTimeout": "1ms"}, "cannot reach the broker at"),
    ],
)
def test_what_is_wrong_is_one_line(spark: SparkSession, given: dict[str, str], reason: str) -> None:
    spark.dataSource.register(AcquitDataSource)
    with pytest.raises(Exception, match=reason) as caught:
        spark.read.format("acquit").options(**{"url": "amqp://127.0.0.1:5672", **given}).load().collect()
    told = reason_of(caught.value)
    assert reason in told and "\n" not in told

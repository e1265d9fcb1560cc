"""Dead letters chosen by what they say, moved by the broker, each once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import acquit
from acquit.errors import ConfigurationError
from acquit.protocol.message import Message
from acquit.spark import redrive as module
from acquit.spark.redrive import Letter, LetterGroup, RedriveOptions, RedriveProgress, redrive
from tests.support.draining import take_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONDITIONS = ["shop:no-customer", "shop:no-customer", "shop:no-customer", "shop:no-customer", "shop:closed"]


def die(url: str, address: str) -> list[int]:
    """A letter for each condition; the sequences that they had."""
    sequences = []
    with acquit.connect(url) as connection, connection.session("individual") as session:
        sender, receiver = session.sender(address), session.receiver(address)
        for number, condition in enumerate(CONDITIONS):
            sender.send(Message(f"m{number}", message_id=f"{address}-{number}", subject=address))
            message = receiver.receive(timeout=10)
            assert message is not None
            assert message.sequence is not None
            sequences.append(message.sequence)
            message.reject(condition, "as the test wants it")
    return sequences


def drain(url: str, address: str) -> list[tuple[object, object]]:
    with acquit.connect(url) as connection, connection.session() as session:
        return [(message.body, message.message_id) for message in take_all(session.receiver(address))]


@pytest.mark.promise("redrive")
def test_each_letter_goes_once_and_those_in_the_table_stay(
    spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path
) -> None:
    sequences = die(broker.url, address)
    (tmp_path / "table").mkdir()
    pq.write_table(pa.table({"sequence": [sequences[1], 999_999_999]}), tmp_path / "table" / "part-0.parquet")
    where = (
        f"origin_queue = '{address}' AND condition = 'shop:no-customer' AND cause = 'rejected' AND text LIKE 'm%' "
        "AND attempts[0].when > current_timestamp() - INTERVAL 1 HOUR AND size(attempts) = 1"
    )

    def options(**more: object) -> RedriveOptions:
        return RedriveOptions(url=broker.url, where=where, table=tmp_path / "table", **more)  # type: ignore[arg-type]

    planned = redrive(options(dry_run=True), spark=spark)
    assert (planned.selected, planned.in_table, planned.homeless) == (4, 1, 0)
    assert (planned.moved, planned.would_move, planned.gone) == (0, 3, 0)
    going = LetterGroup(target=address, cause="rejected", condition="shop:no-customer", in_table=False, count=3)
    assert planned.groups[0] == going
    assert [(one.message_id, one.in_table) for one in planned.shown] == [
        (f"{address}-0", False),
        (f"{address}-1", True),
        (f"{address}-2", False),
        (f"{address}-3", False),
    ]
    assert isinstance(planned.shown[0], Letter)
    assert planned.shown[0].description == "as the test wants it"
    assert drain(broker.url, address) == [], "a dry run moves nothing"

    told: list[RedriveProgress] = []
    done = redrive(options(), spark=spark, on_progress=told.append)
    assert (done.selected, done.in_table, done.moved, done.gone) == (4, 1, 3, 0)
    assert [(step.moved, step.of) for step in told] == [(3, 3)]
    assert drain(broker.url, address) == [(f"m{number}", f"{address}-{number}") for number in (0, 2, 3)]
    with acquit.connect(broker.url) as connection, connection.session("no-ack") as session:
        left = session.receiver("DLQ", browse=True, selector=f"JMSType = '{address}'")
        assert [message.body for message in take_all(left)] == ["m1", "m4"]


def test_letters_are_known_by_message_id_in_a_table_without_sequences(
    spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path
) -> None:
    die(broker.url, address)
    pq.write_table(pa.table({"message_id": [f"{address}-4", "another", None]}), tmp_path / "part-0.parquet")
    where = f"origin_queue = '{address}'"
    options = RedriveOptions(url=broker.url, where=where, table=tmp_path, limit=2)
    done = redrive(options, spark=spark)
    assert (done.selected, done.in_table, done.moved, done.gone) == (5, 1, 2, 0)
    assert [body for body, _ in drain(broker.url, address)] == ["m0", "m1"], "the oldest first"
    again = redrive(RedriveOptions(url=broker.url, where=where, table=tmp_path), spark=spark)
    assert (again.selected, again.in_table, again.moved) == (3, 1, 2)
    assert [body for body, _ in drain(broker.url, address)] == ["m2", "m3"]


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)], ids=str)
def test_letters_are_known_in_a_table_that_has_grown(
    spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path, delta: bool, order: tuple[int, ...]
) -> None:
    sequences = die(broker.url, address)
    ids = [f"{address}-{number}" for number in range(len(sequences))]
    parts = [
        pa.table({"message_id": [ids[0], None], "other": pa.array([1, 2], pa.int32())}),
        pa.table({"sequence": [sequences[1], None], "message_id": ["of another letter", ids[2]]}),
        # By its sequence it is the row of another message, which has the same id.
        pa.table({"sequence": [1 << 40], "message_id": [ids[3]]}),
    ]
    if not delta:  # whose columns keep their types
        parts[1] = parts[1].append_column("other", pa.array([1, 2], pa.int64()))
    for number in order:
        if delta:
            write_deltalake(tmp_path, parts[number], mode="append", schema_mode="merge")
        else:
            pq.write_table(parts[number], tmp_path / f"part-{order.index(number)}.parquet")
    where = f"origin_queue = '{address}'"
    planned = redrive(RedriveOptions(url=broker.url, where=where, table=tmp_path, dry_run=True), spark=spark)
    assert [one.in_table for one in planned.shown] == [True, True, True, False, False]


def test_a_letter_that_does_not_say_where_it_died(spark: SparkSession, broker: acquit.Broker, address: str) -> None:
    letters, elsewhere = f"{address}.letters", f"{address}.elsewhere"
    with acquit.connect(broker.url) as connection, connection.session() as session:
        session.sender(letters).send(Message("stray", subject="s"))
    options = RedriveOptions(url=broker.url, queue=letters)
    done = redrive(options, spark=spark)
    assert (done.selected, done.homeless, done.moved) == (1, 1, 0)
    assert redrive(RedriveOptions(url=broker.url, queue=letters, to=elsewhere), spark=spark).moved == 1
    assert [body for body, _ in drain(broker.url, elsewhere)] == ["stray"]


def test_a_letter_that_says_what_no_broker_says_stops_no_other(
    spark: SparkSession, broker: acquit.Broker, address: str, tmp_path: Path
) -> None:
    letters = f"{address}.letters"
    says: list[dict[str, object]] = [
        {"x-opt-acquit-origin": "none"},
        {"x-opt-acquit-origin": (1 << 64) - 1},
        {"x-opt-ACTUAL-EXPIRY": "soon"},
        {"x-opt-ACTUAL-EXPIRY": 1_700_000_000_000},
        {"x-opt-acquit-attempts": "[{"},
    ]
    with acquit.connect(broker.url) as connection, connection.session() as session:
        sender = session.sender(letters)
        for number, annotations in enumerate(says):
            sender.send(Message(f"m{number}", annotations={**annotations, "x-opt-ORIG-QUEUE": address}))
    for name, table in (
        ("sequences", pa.table({"sequence": ["no number", None]})),
        ("ids", pa.table({"message_id": pa.array([7, None])})),
    ):
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "part-0.parquet")
        planned = redrive(
            RedriveOptions(url=broker.url, queue=letters, table=tmp_path / name, dry_run=True), spark=spark
        )
        assert (planned.selected, planned.in_table) == (5, 0)
    assert redrive(RedriveOptions(url=broker.url, queue=letters), spark=spark).moved == 5
    assert [body for body, _ in drain(broker.url, address)] == [f"m{number}" for number in range(5)]


@pytest.mark.parametrize(
    ("where", "complaint"),
    [("colour = 'red'", "where \"colour = 'red'\": .*colour"), ("cause =", "where 'cause =': .*[Ss]yntax error")],
)
def test_a_predicate_that_makes_no_sense(
    spark: SparkSession, broker: acquit.Broker, address: str, where: str, complaint: str
) -> None:
    die(broker.url, address)  # there is a queue of letters
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        redrive(RedriveOptions(url=broker.url, where=where), spark=spark)
    assert "\n" not in str(caught.value)


def test_another_broker_is_refused(spark: SparkSession, broker: acquit.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "broker_id", lambda connection: None)
    with pytest.raises(ConfigurationError, match="is no acquit broker: its dead letters do not say what was tried"):
        redrive(RedriveOptions(url=broker.url), spark=spark)


def test_what_cannot_be(spark: SparkSession, broker: acquit.Broker, tmp_path: Path) -> None:
    pq.write_table(pa.table({"number": [1]}), tmp_path / "part-0.parquet")
    with pytest.raises(ConfigurationError, match="expected a column sequence or message_id to know messages by, found"):
        redrive(RedriveOptions(url=broker.url, table=tmp_path), spark=spark)
    deleted = tmp_path / "deleted"
    write_deltalake(deleted, pa.table({"sequence": [1]}), configuration={"delta.enableDeletionVectors": "true"})
    with pytest.raises(ConfigurationError, match="uses deletionVectors: name a copy of it"):
        redrive(RedriveOptions(url=broker.url, table=deleted), spark=spark)
    for wrong, complaint in (
        ({"to": "DLQ"}, "to: DLQ is where the letters are"),
        ({"limit": 0}, "limit: expected a number above 0, got 0"),
        ({"rate": 0.0}, "rate: expected messages in a second, above 0, got 0"),
        ({"url": "amqp://me:secret@host"}, "option url: a user or password"),
        ({"credential": "env:X"}, "option credential is given without the option user"),
    ):
        with pytest.raises(ConfigurationError, match=complaint):
            RedriveOptions(**{"url": broker.url, **wrong})  # type: ignore[arg-type]

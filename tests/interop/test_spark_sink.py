"""Spark's sink on brokers that we did not write: posted once on Artemis, by ids; refused on others, or at least once.

What runs is what a task of Spark runs (`write_rows`), without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from acquit import AckMode
from acquit.errors import ConfigurationError
from tests.interop.foreign import ForeignBroker
from tests.interop.foreign_looks import rest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

pytestmark = [pytest.mark.interop, pytest.mark.promise("sink")]

ROWS = 300
TEXTS = [f"row {number}" for number in range(ROWS)]


@pytest.fixture
def given(foreign: ForeignBroker, monkeypatch: pytest.MonkeyPatch, address: str) -> dict[str, str]:
    """Options that reach a queue of this test on that broker."""
    options = {"url": foreign.url, "address": foreign.queue(address)}
    if foreign.username is not None:
        monkeypatch.setenv("SINK_PASSWORD", str(foreign.password))
        options |= {"user": foreign.username, "credential": "env:SINK_PASSWORD"}
    return options


def write(given: dict[str, str], *, ends: int = ROWS, **options: str) -> object:
    from acquit.spark.sink.options import SinkOptions
    from acquit.spark.sink.poster import TaskOrigin
    from acquit.spark.sink.writers import write_rows

    def rows() -> Iterator[object]:
        for begin in range(0, ROWS, 50):
            if begin >= ends:
                raise InterruptedError
            yield pa.RecordBatch.from_pydict({"body": TEXTS[begin : begin + 50]})

    return write_rows(SinkOptions.parse(given | options), TaskOrigin("query", 7, 0), rows())


def bodies(foreign: ForeignBroker, given: dict[str, str]) -> list[object]:
    with foreign.connect() as connection, connection.session(AckMode.AUTO) as session:
        return [message.body for message in rest(session.receiver(given["address"], prefetch=1_000))]


def only(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("foreign", names, indirect=True, scope="session")


@only("artemis")
def test_artemis_posts_a_row_once_within_the_window_that_is_said(foreign: ForeignBroker, given: dict[str, str]) -> None:
    for ends in (120, ROWS, ROWS):
        if ends < ROWS:
            with pytest.raises(InterruptedError):
                write(given, ends=ends, duplicateWindow="20000")
        else:
            write(given, duplicateWindow="20000")
    # What the first attempt had sent may be taken in beside the rows of the second: each once, not in their order.
    assert sorted(map(str, bodies(foreign, given))) == sorted(TEXTS)


@only("artemis")
def test_artemis_without_a_window_or_with_a_small_one_is_refused(foreign: ForeignBroker, given: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="apache-activemq-artemis.* by the option duplicateWindow"):
        write(given)
    assert bodies(foreign, given) == []
    with pytest.raises(ConfigurationError, match="more than 100 rows, its share of duplicateWindow = 100"):
        write(given, duplicateWindow="100")
    assert bodies(foreign, given) == TEXTS[:100]


@only("rabbitmq", "broker-j")
def test_others_are_refused_unless_at_least_once_will_do(foreign: ForeignBroker, given: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="is not known to tell messages that are posted twice"):
        write(given, duplicateWindow="20000")
    for _ in range(2):
        write(given, guarantee="at-least-once")
    assert sorted(map(str, bodies(foreign, given))) == sorted(TEXTS * 2)

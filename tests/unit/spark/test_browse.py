"""Queues looked at, against a real broker: shared among tasks, up to one moment, and nothing taken."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import acquit
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.client import core
from acquit.client.products import Product
from acquit.errors import ConfigurationError, ConnectionFailed, MessageUnusable
from acquit.protocol.message import Message
from acquit.protocol.types import Timestamp
from acquit.spark import browse as browse_module
from acquit.spark.browse import ROWS_EACH, BrowsePart, browse, plan_browse
from acquit.spark.browse_options import OPTIONS, BrowseOptions
from acquit.spark.columns import MessageColumns
from acquit.spark.options import default_text


def options(broker: acquit.Broker, address: str, **more: str) -> BrowseOptions:
    return BrowseOptions.parse({"url": broker.url, "address": address} | more)


def post(broker: acquit.Broker, address: str, bodies: Sequence[str], **properties: object) -> None:
    with acquit.connect(broker.url) as connection, connection.session() as session:
        sender = session.sender(address)
        for body in bodies:
            sender.send(Message(body, application_properties=properties or None), wait=False)
        sender.flush()


def numbers(count: int, start: int = 0) -> list[str]:
    return [f"m{number:06d}" for number in range(start, start + count)]


def seen(chosen: BrowseOptions, part: BrowsePart) -> list[str]:
    reader = MessageColumns(part.address)
    return [body.decode() for batch in browse(chosen, part, reader) for body in batch.column("body").to_pylist()]


def seen_together(chosen: BrowseOptions) -> list[str]:
    return sorted(body for part in plan_browse(chosen) for body in seen(chosen, part))


def test_a_queue_is_shared_among_tasks_and_nothing_is_taken(broker: acquit.Broker, address: str) -> None:
    bodies = numbers(4 * ROWS_EACH)
    post(broker, address, bodies)
    chosen = options(broker, address)
    parts = plan_browse(chosen)
    assert [(one.part, one.parts) for one in parts] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    shares = [seen(chosen, part) for part in parts]
    assert sorted(body for share in shares for body in share) == bodies
    assert all(share == sorted(share) and 0.8 * ROWS_EACH < len(share) < 1.2 * ROWS_EACH for share in shares)
    assert seen_together(chosen) == bodies, "and again"
    (queue,) = (one for one in broker.inspect().queues if one.name == address)
    assert (queue.available, queue.acquired) == (len(bodies), 0)


def test_tasks_see_what_was_there_when_the_batch_was_planned(broker: acquit.Broker, address: str) -> None:
    post(broker, address, numbers(3))
    chosen = options(broker, address)
    (part,) = plan_browse(chosen)
    post(broker, address, numbers(3, start=3))
    assert seen(chosen, part) == numbers(3)
    with acquit.connect(broker.url) as connection, connection.session("individual") as session:
        receiver = session.receiver(address, prefetch=0)
        first, second = receiver.receive(timeout=5), receiver.receive(timeout=5)
        assert first is not None and second is not None
        first.accept()
        assert seen(chosen, part) == numbers(1, start=2), "what was taken since, and what is held, is not shown"
    assert seen(chosen, part) == numbers(2, start=1)


def test_one_moment_for_several_queues(broker: acquit.Broker, address: str) -> None:
    other = f"{address}-other"
    post(broker, address, numbers(2))
    post(broker, other, numbers(2, start=10))
    chosen = BrowseOptions.parse({"url": broker.url, "addresses": f"{address}, {other}", "parts": "1"})
    parts = plan_browse(chosen)
    assert [part.address for part in parts] == [address, other] and len({part.until for part in parts}) == 1
    post(broker, other, numbers(2, start=20))
    assert [seen(chosen, part) for part in parts] == [numbers(2), numbers(2, start=10)]


def test_a_queue_that_is_not_there_is_refused_and_not_made(broker: acquit.Broker, address: str) -> None:
    post(broker, address, [])
    with pytest.raises(ConfigurationError, match=f"there is no queue '{address}x' .* did you mean .*'{address}'"):
        plan_browse(options(broker, f"{address}x"))
    assert all(queue.name != f"{address}x" for queue in broker.inspect().queues)
    assert seen_together(options(broker, f"{address}x", create="true")) == []
    assert broker.inspect().queue(f"{address}x").depth == 0


def test_a_batch_looks_at_more_queues_than_a_connection_has_channels(broker: acquit.Broker, address: str) -> None:
    addresses = [f"{address}-{number}" for number in range(300)]
    chosen = BrowseOptions.parse({"url": broker.url, "addresses": ",".join(addresses), "create": "true"})
    assert [part.address for part in plan_browse(chosen)] == addresses


def test_an_empty_queue_is_one_empty_task(broker: acquit.Broker, address: str) -> None:
    post(broker, address, [])
    assert seen_together(options(broker, address)) == []


def test_a_selector_chooses(broker: acquit.Broker, address: str) -> None:
    post(broker, address, numbers(2), region="EU")
    post(broker, address, numbers(2, start=10), region="US")
    assert seen_together(options(broker, address, selector="region = 'EU'")) == numbers(2)
    with pytest.raises(ConfigurationError, match="option selector = 'region ==': .*character 9"):
        plan_browse(options(broker, address, selector="region =="))


def test_large_queues_are_seen_a_batch_at_a_time(
    broker: acquit.Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(broker, address, numbers(25))
    monkeypatch.setattr(browse_module, "_BATCH_ROWS", 10)
    chosen = options(broker, address)
    (part,) = plan_browse(chosen)
    assert [batch.num_rows for batch in browse(chosen, part, MessageColumns(address))] == [10, 10, 5]


def test_bodies_that_are_not_in_the_brokers_memory_are_seen(tmp_path: Path) -> None:
    config = BrokerOptions(address=(AddressRule("#", {"memory_bytes_max": 64 * 1024}),))
    with acquit.Broker(tmp_path / "data", config=config) as broker:
        bodies = [body * 400 for body in numbers(2_000)]
        post(broker, "large", bodies)
        assert seen_together(options(broker, "large", parts="2")) == bodies


def test_poison_is_a_row_or_an_error(broker: acquit.Broker, address: str) -> None:
    with acquit.connect(broker.url) as connection, connection.session() as session:
        session.sender(address).send(Message("x", creation_time=Timestamp(1 << 61)))
    chosen = options(broker, address)
    (part,) = plan_browse(chosen)
    (batch,) = browse(chosen, part, MessageColumns(address))
    assert batch.column("corrupt").null_count == 0
    with pytest.raises(MessageUnusable, match=f"1 of 1 messages of {address} cannot be parsed"):
        list(browse(options(broker, address, poison="fail"), part, MessageColumns(address)))


def test_another_broker_gives_one_task_and_no_snapshot(
    broker: acquit.Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(broker, address, numbers(ROWS_EACH * 2))
    monkeypatch.setattr(browse_module, "broker_id", lambda _: None)
    chosen = options(broker, address)
    assert plan_browse(chosen) == [BrowsePart(address=address, broker=None)]
    assert seen_together(chosen) == numbers(ROWS_EACH * 2)


def test_a_batch_is_of_one_broker(broker: acquit.Broker, address: str) -> None:
    post(broker, address, numbers(1))
    (part,) = plan_browse(options(broker, address))
    with (
        acquit.Broker() as other,
        pytest.raises(ConfigurationError, match="is not the one that was asked when the batch was planned"),
    ):
        seen(options(other, address), part)


def test_a_broker_that_does_not_let_anybody_look_is_named(
    broker: acquit.Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(broker, address, [])
    # As RabbitMQ before 4.3: it answers what was asked, and does not do it.
    monkeypatch.setattr(core, "product_of", lambda _: Product(repeats_source=True))
    with pytest.raises(ConfigurationError, match=rf"{broker.url} does not let {address} be looked at.*does not let us"):
        plan_browse(options(broker, address))


def test_a_topic_is_not_looked_at(tmp_path: Path) -> None:
    config = BrokerOptions(address=(AddressRule("news", {"routing": "multicast"}),))
    with (
        acquit.Broker(tmp_path / "data", config=config) as broker,
        acquit.connect(broker.url) as connection,
        connection.session().sender("news"),
        pytest.raises(ConfigurationError, match="does not let news be looked at"),
    ):
        plan_browse(options(broker, "news"))


def test_silence_before_the_end_is_an_error_and_not_the_end(
    broker: acquit.Broker, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(broker, address, numbers(1))
    chosen = options(broker, address, idleTimeout="1ms")
    (part,) = plan_browse(chosen)
    monkeypatch.setattr("acquit.client.blocking.Receiver.drain", lambda *_: False)
    with pytest.raises(ConnectionFailed, match=r"has sent nothing from .* for 0\.001 s.*idleTimeout"):
        seen(chosen, part)


def test_the_page_repeats_the_reference() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "spark-batch.md").read_text()
    for option in OPTIONS:
        default = "required" if option.required else default_text(BrowseOptions, option) or "–"
        assert f"| `{option.name}` | {default} | {option.meaning} |\n" in page
    assert {option.field for option in OPTIONS} == set(BrowseOptions.__dataclass_fields__)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "option url is missing"),
        ({"url": "amqp://h"}, "option address is missing"),
        ({"url": "amqp://h", "address": "a", "addresses": "b"}, "addresses too"),
        ({"url": "amqp://h", "address": "a", "spool": "/s"}, "option spool is for a stream"),
        ({"url": "amqp://h", "address": "a", "poison": "reject"}, "one of column, fail"),
        ({"url": "amqp://h", "address": "a", "password": "x"}, "option password is refused"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        BrowseOptions.parse(given)

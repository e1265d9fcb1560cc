"""The rows of one task, posted on a real broker: once, whatever comes between."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import acquit
from acquit.broker.options import AddressRule, BrokerOptions, ConnectionLimits
from acquit.client.blocking import Connection
from acquit.errors import (
    AcquitError,
    AuthenticationFailed,
    ConfigurationError,
    ConnectionFailed,
    DeliveryInDoubt,
    LinkDetached,
    MessageTooLarge,
    NotSent,
    RowRejected,
    RowsChanged,
)
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Error
from acquit.protocol.delivery import Delivery, DeliveryState
from acquit.spark.connecting import connect_patiently
from acquit.spark.sink import poster as module
from acquit.spark.sink.options import SinkOptions
from acquit.spark.sink.poster import Mechanism, OutgoingRow, SinkPoster, TaskOrigin, choose_mechanism
from acquit.spark.sink.rows import RowEncoder, RowValues
from acquit.spark.sink.writers import TaskResult, in_order, write_rows
from acquit.testing import Proxy
from tests.support.draining import take_all
from tests.support.server import Server, serving

ORIGIN = TaskOrigin("query", 3, 1)


@pytest.fixture
def broker() -> Iterator[acquit.Broker]:
    with acquit.Broker() as broker:
        yield broker


def options(url: str, **given: str) -> SinkOptions:
    return SinkOptions.parse({"url": url, "address": "q", "sendTimeout": "10s"} | given)


def batches(bodies: Sequence[str], **columns: list[object]) -> Iterator[pa.RecordBatch]:
    table = pa.table({"body": list(bodies), **columns})
    return iter(table.to_batches(max_chunksize=7))


def write(url: str, bodies: Sequence[str], origin: TaskOrigin = ORIGIN, **given: str) -> TaskResult:
    return write_rows(options(url, **given), origin, batches(bodies))


def texts(count: int) -> list[str]:
    return [f"row {number}" for number in range(count)]


def row_of(body: str) -> RowValues:
    return RowValues._make([body] + [None] * (len(RowValues._fields) - 1))


def taken(url: str, address: str = "q") -> list[object]:
    with acquit.connect(url) as connection, connection.session("auto") as session:
        return [message.body for message in take_all(session.receiver(address))]


def test_rows_are_posted_and_named(broker: acquit.Broker) -> None:
    result = write(broker.url, texts(20))
    assert (result.written, result.suppressed, result.rejected) == (20, 0, 0)
    with acquit.connect(broker.url) as connection, connection.session("auto") as session:
        message = session.receiver("q").receive(5)
        assert message is not None
        assert (message.message_id, message.body, message.durable) == ("query:3:1:0", "row 0", True)


def test_a_task_that_is_run_again_posts_what_is_missing(broker: acquit.Broker) -> None:
    bodies = texts(50)

    def dies(count: int) -> Iterator[pa.RecordBatch]:
        yield from pa.table({"body": bodies[:count]}).to_batches(max_chunksize=7)
        raise RuntimeError("killed")

    for count in (20, 35):
        with pytest.raises(RuntimeError, match="killed"):
            write_rows(options(broker.url, maxInFlight="5"), ORIGIN, dies(count))
    result = write(broker.url, bodies)
    assert result.suppressed is not None
    assert result.written + result.suppressed == 50
    assert result.suppressed >= 30
    assert write(broker.url, bodies).suppressed == 50
    assert taken(broker.url) == bodies


def test_a_batch_that_is_over_is_an_error(broker: acquit.Broker) -> None:
    """A late double of a task, or a checkpoint older than what was posted: new rows would be taken for old ones."""
    write(broker.url, texts(5))
    write(broker.url, texts(5), ORIGIN._replace(batch=4))
    with pytest.raises(RowsChanged, match="batch 3 of query query is over: .* has rows of batch 4"):
        write(broker.url, texts(5))
    assert len(taken(broker.url)) == 10


@pytest.mark.parametrize(
    "again", [["row 1", "row 0", "row 2"], ["row 0", "row 1"], ["row 0", "row 1", "other"]], ids=str
)
def test_rows_that_come_otherwise_are_an_error_and_no_loss(broker: acquit.Broker, again: list[str]) -> None:
    write(broker.url, texts(3))
    with pytest.raises(RowsChanged, match="partition 1, batch 3"):
        write(broker.url, again)
    assert len(taken(broker.url)) == 3


def test_who_writes_other_rows_under_a_run_id_is_told_to_take_another(broker: acquit.Broker) -> None:
    write(broker.url, texts(3), runId="run")
    with pytest.raises(RowsChanged, match="Other rows want another runId"):
        write(broker.url, texts(2), runId="run")
    with pytest.raises(RowsChanged) as of_a_stream:
        write(broker.url, texts(2))
    assert "runId" not in str(of_a_stream.value)


def test_rows_are_not_taken_for_those_of_another_address(broker: acquit.Broker) -> None:
    """Else the second write of a run id would post nothing, and say that all is posted."""
    write(broker.url, texts(3))
    for other in ({"address": "other"}, {"topic": "true", "address": "q.t"}):
        with pytest.raises(RowsChanged, match="go to another address"):
            write(broker.url, texts(3), **other)
    assert write(broker.url, texts(3)).suppressed == 3


def test_two_attempts_at_once_whose_rows_differ_do_not_both_end_well(broker: acquit.Broker) -> None:
    encoder = RowEncoder(addressed=True, durable=True)

    def post(attempt: SinkPoster, index: int, body: str) -> None:
        attempt.post(
            OutgoingRow(index, ORIGIN.row_id(index), *encoder.encode(row_of(body), ORIGIN.row_id(index), None))
        )
        while attempt._pending:
            attempt._take_oldest()

    first, second = SinkPoster(options(broker.url, rejected="skip"), ORIGIN), SinkPoster(options(broker.url), ORIGIN)
    try:
        for index, body in enumerate("ab"):
            post(first, index, body)
        post(second, 0, "c")
        with pytest.raises(RowsChanged, match=r"partition 1, batch 3.*up to row 1"):
            post(second, 1, "a")
        post(first, 2, "c")
        assert first.finish().written == 3
    finally:
        first.close()
        second.close()
    assert taken(broker.url) == ["a", "b", "c"]


def test_an_id_column_brings_rows_into_their_order(broker: acquit.Broker) -> None:
    def rows(order: list[int]) -> Iterator[pa.RecordBatch]:
        return batches([f"row {number}" for number in order], number=list(order))

    first = write_rows(options(broker.url, idColumn="number"), ORIGIN, rows([4, 0, 2, 1, 3]))
    second = write_rows(options(broker.url, idColumn="number"), ORIGIN, rows([0, 3, 1, 2, 4]))
    assert (first.written, second.written, second.suppressed) == (5, 0, 5)
    assert taken(broker.url) == texts(5)
    with pytest.raises(ConfigurationError, match="have the id 1"):
        write_rows(options(broker.url, idColumn="number"), ORIGIN._replace(batch=9), rows([1, 2, 1]))
    with pytest.raises(ConfigurationError, match="sortMemory"):
        list(in_order(batches(texts(100)), "body", 10))


def test_ids_are_compared_where_rows_have_no_place(broker: acquit.Broker) -> None:
    nameless = TaskOrigin(None, 0, 0)
    with pytest.raises(ConfigurationError, match="duplicateWindow"):
        write_rows(options(broker.url, idColumn="n"), nameless, batches(texts(2), n=[1, 2]))
    given = {"idColumn": "n", "duplicateWindow": "100"}
    for _ in range(2):
        result = write_rows(options(broker.url, **given), nameless, batches(texts(30), n=list(range(30))))
        assert (result.written, result.suppressed) == (30, None)
    assert taken(broker.url) == texts(30)
    named = pa.array([[("_AMQ_DUPL_ID", "its producer's")]] * 2, pa.map_(pa.string(), pa.string()))
    rows = pa.table({"body": ["same"] * 2, "n": ["a", "b"], "application_properties": named})
    write_rows(options(broker.url, **given), nameless, iter(rows.to_batches()))
    assert taken(broker.url) == ["same"] * 2
    with pytest.raises(ConfigurationError, match="more than 50 rows, its share of duplicateWindow = 100"):
        write_rows(options(broker.url, **given, writers="2"), nameless, batches(texts(51), n=list(range(51))))
    with pytest.raises(ConfigurationError, match="option writers = 1: partition 1"):
        write_rows(options(broker.url, **given), nameless._replace(partition=1), batches(texts(1), n=[1]))


@pytest.mark.parametrize(
    ("product", "marks_", "named", "given", "expected"),
    [
        ("acquit", True, True, {}, Mechanism.MARK),
        ("acquit", True, False, {"duplicateWindow": "10"}, Mechanism.IDS),
        ("acquit", True, True, {"duplicateWindow": "10"}, Mechanism.MARK),
        ("acquit", True, True, {"idColumn": "n"}, Mechanism.MARK),
        ("acquit", True, True, {"idColumn": "n", "duplicateWindow": "10"}, Mechanism.IDS),
        ("apache-activemq-artemis", False, True, {"duplicateWindow": "10"}, Mechanism.IDS),
        ("apache-activemq-artemis", False, True, {}, "Say how many, by the option duplicateWindow"),
        ("RabbitMQ", False, True, {"duplicateWindow": "10"}, "RabbitMQ.* is not known to tell messages"),
        ("", False, True, {}, "of unknown make"),
        ("RabbitMQ", False, True, {"guarantee": "at-least-once"}, Mechanism.NONE),
    ],
)
def test_what_is_granted_on_which_broker(
    product: str, marks_: bool, named: bool, given: dict[str, str], expected: Mechanism | str
) -> None:
    def choose() -> Mechanism:
        return choose_mechanism(
            options("amqp://h", **given),
            named=named,
            product=product,
            marks=marks_,
            acquit=product == "acquit",
            partition=0,
        )

    if isinstance(expected, Mechanism):
        assert choose() is expected
    else:
        with pytest.raises(ConfigurationError, match=expected):
            choose()


def test_each_row_says_where_it_goes(broker: acquit.Broker) -> None:
    given = SinkOptions.parse({"url": broker.url})
    addresses: list[object] = ["a", "b", "a"]
    for _ in range(2):
        write_rows(given, ORIGIN, batches(texts(3), address=addresses))
    assert taken(broker.url, "a") == ["row 0", "row 2"]
    assert taken(broker.url, "b") == ["row 1"]


# -- rows that cannot be posted --------------------------------------------------------------------------------------


def test_a_row_that_fails_names_itself(broker: acquit.Broker) -> None:
    priorities: list[object] = [4, 4, 999, 4]
    with pytest.raises(
        RowRejected, match=r"row 2 of partition 1, batch 3 \(id query:3:1:2\): the column priority is 999"
    ):
        write_rows(options(broker.url), ORIGIN, batches(texts(4), priority=priorities))
    long = batches(["x"], n=["n" * 10_000], priority=[999])
    with pytest.raises(RowRejected, match=r"\(id n{300}\): the column"):
        write_rows(options(broker.url, idColumn="n"), TaskOrigin("another", 0, 0), long)
    result = write_rows(options(broker.url, rejected="skip"), ORIGIN, batches(texts(4), priority=priorities))
    assert (result.rejected, len(result.rejections)) == (1, 1)
    assert "priority is 999" in result.rejections[0]
    again = write_rows(options(broker.url, rejected="skip"), ORIGIN, batches(texts(4), priority=priorities))
    assert (again.written, again.suppressed, again.rejected) == (0, 3, 1)
    assert taken(broker.url) == ["row 0", "row 1", "row 3"]


def test_a_row_whose_text_is_none_is_left_out(broker: acquit.Broker) -> None:
    octets = pa.array([b"a", b"\xe9", b"c"])
    bodies = pa.Array.from_buffers(pa.string(), 3, octets.buffers())  # as Spark casts BINARY
    rows = pa.RecordBatch.from_pydict({"body": bodies, "n": [1, 2, 3]})
    with pytest.raises(RowRejected, match=r"row 1 of partition 1, batch 3 .* has octets that are no UTF-8"):
        write_rows(options(broker.url, idColumn="n"), ORIGIN, iter([rows]))
    result = write_rows(options(broker.url, idColumn="n", rejected="skip"), ORIGIN, iter([rows]))
    assert (result.suppressed, result.written, result.rejected) == (1, 1, 1)
    ids = pa.RecordBatch.from_pydict({"body": ["1", "2", "3"], "n": bodies})
    another = TaskOrigin("another", 0, 0)
    result = write_rows(options(broker.url, idColumn="n", rejected="skip"), another, iter([ids]))
    assert (result.written, result.rejected) == (2, 1)
    assert "the column n, its id, has octets that are no UTF-8" in result.rejections[0]
    assert result.rejections[0].isascii(), "it is logged and goes through the JVM"
    assert taken(broker.url) == ["a", "c", "1", "3"]


def test_a_row_that_the_broker_refuses_is_left_out_and_those_behind_it_are_posted() -> None:
    rule = AddressRule("values", {"last_value": True, "last_value_key": "key"})
    with acquit.Broker(config=BrokerOptions(address=(rule,))) as broker:
        long: list[object] = [[("key", f"{number}" if number % 3 else "x" * 2_000)] for number in range(10)]
        rows = pa.table(
            {"body": texts(10), "application_properties": pa.array(long, pa.map_(pa.string(), pa.string()))}
        )
        given = options(broker.url, address="values", rejected="skip")
        result = write_rows(given, ORIGIN, iter(rows.to_batches()))
        assert (result.written, result.rejected) == (6, 4)
        there = taken(broker.url, "values")
        assert [row for row in texts(10) if row not in there] == [
            "row 0",
            "row 3",
            "row 6",
            "row 9",
        ]
        with pytest.raises(RowRejected, match="row 0 of partition 1, batch 5"):
            write_rows(options(broker.url, address="values"), ORIGIN._replace(batch=5), iter(rows.to_batches()))


def test_many_rows_that_the_broker_refuses_are_left_out_on_one_session() -> None:
    """A link for each, but a connection has so many sessions: a partition was stuck behind so many refused rows."""
    config = BrokerOptions(connection=ConnectionLimits(sessions_max=2))
    with acquit.Broker(config=config) as broker:
        addresses: list[object] = ["$no" if number % 2 else "q" for number in range(20)]
        given = SinkOptions.parse({"url": broker.url, "rejected": "skip"})
        result = write_rows(given, ORIGIN, batches(texts(20), address=addresses))
        assert (result.written, result.rejected) == (10, 10)
        assert taken(broker.url) == texts(20)[::2]


def test_rows_that_are_refused_do_not_cost_all_that_is_sent_ahead_each(
    broker: acquit.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a mark what is behind a refused row is sent again: the fewer are ahead, the more of them are refused."""
    started = 0
    start = SinkPoster._start

    def count(self: SinkPoster, sending: module._RowInFlight) -> None:
        nonlocal started
        started += 1
        start(self, sending)

    monkeypatch.setattr(SinkPoster, "_start", count)
    addresses: list[object] = ["$no" if number % 2 and number < 300 else "q" for number in range(1_000)]
    given = SinkOptions.parse({"url": broker.url, "rejected": "skip", "sendTimeout": "30s"})
    result = write_rows(given, ORIGIN, batches(texts(1_000), address=addresses))
    assert (result.written, result.rejected) == (850, 150)
    assert taken(broker.url) == [text for text, address in zip(texts(1_000), addresses, strict=True) if address == "q"]
    assert started < 5_000  # and 120,000 with all of them each time


def test_a_row_that_is_too_large_for_the_broker() -> None:
    config = BrokerOptions(connection=ConnectionLimits(message_bytes_max=2_000))
    bodies = ["small", "x" * 5_000, "last"]
    with acquit.Broker(config=config) as broker:
        with pytest.raises(RowRejected, match=r"row 1 of partition 1.* takes at most 2000"):
            write(broker.url, bodies)
        result = write(broker.url, bodies, ORIGIN._replace(batch=4), rejected="skip")
        assert (result.written, result.rejected) == (2, 1)


def test_a_link_that_the_broker_ended_over_a_message_says_nothing_of_the_row_in_turn(
    broker: acquit.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(self: SinkPoster, sending: module._RowInFlight) -> None:
        raise MessageTooLarge("the link was detached by the peer", remote=True)

    monkeypatch.setattr(SinkPoster, "_start", ended)
    with pytest.raises(MessageTooLarge):
        write(broker.url, ["a", "b"], rejected="skip")


def test_a_row_to_an_address_that_the_broker_refuses_names_itself(broker: acquit.Broker) -> None:
    addresses: list[object] = ["a", "$no", "a"]
    given = SinkOptions.parse({"url": broker.url})
    with pytest.raises(RowRejected, match="row 1 of partition 1"):
        write_rows(given, ORIGIN, batches(texts(3), address=addresses))


@pytest.mark.parametrize("given", [{}, {"guarantee": "at-least-once"}], ids=str)
def test_a_full_queue_is_waited_for(given: dict[str, str]) -> None:
    rule = AddressRule("q", {"messages_max": 5, "full_policy": "reject"})
    with acquit.Broker(config=BrokerOptions(address=(rule,))) as broker:
        found: list[object] = []

        def consume() -> None:
            with acquit.connect(broker.url) as connection, connection.session("auto") as session:
                receiver = session.receiver("q", prefetch=2)
                while len(found) < 40 and (message := receiver.receive(10)) is not None:
                    found.append(message.body)

        consumer = threading.Thread(target=consume)
        consumer.start()
        result = write(broker.url, texts(40), **given)
        consumer.join(30)
        assert result.written == 40
        assert sorted(map(str, found)) == sorted(texts(40))
        if not given:
            assert found == texts(40)


@pytest.mark.parametrize(
    ("policy", "kind", "expected"),
    [
        (
            "reject",
            RowRejected,
            r"refused the same row for 1\.5 s \(option sendTimeout\): row 5 of .* q has reached its limit",
        ),
        ("block", NotSent, r"gives no credit for q, as for a queue that is full, .* 1\.5 s .* [1-4] rows never left"),
    ],
)
@pytest.mark.parametrize("given", [{}, {"guarantee": "at-least-once"}], ids=str)
def test_a_queue_that_stays_full_is_named_in_time(
    policy: str, kind: type[AcquitError], expected: str, given: dict[str, str]
) -> None:
    rule = AddressRule("q", {"messages_max": 5, "full_policy": policy})
    with acquit.Broker(config=BrokerOptions(address=(rule,))) as broker, pytest.raises(kind, match=expected):
        write(broker.url, texts(9), sendTimeout="1500ms", **given)


def test_an_address_that_may_not_be_written_to(broker: acquit.Broker) -> None:
    with pytest.raises(LinkDetached):
        write(broker.url, texts(1), address="$management.no")


def test_a_link_that_the_broker_does_not_answer_is_an_error_in_time() -> None:
    server = Server()
    server.silent = True
    with serving(server) as running, pytest.raises(LinkDetached, match=r"did not answer the attach .* within 1 s"):
        write(running.url, texts(1), guarantee="at-least-once", ackTimeout="1s")


@pytest.mark.parametrize("sizes", [[5], [3, 2]], ids=["heard as one waits", "heard before the next row"])
@pytest.mark.parametrize("ends", ["link", "session"])
def test_what_the_broker_ends_says_why(ends: str, sizes: list[int]) -> None:
    server = Server()
    why = Error(condition="amqp:internal-error", description="closed in the midst")

    def end(delivery: Delivery) -> DeliveryState | None:
        if len(server.taken) != 3:
            return ACCEPTED
        if ends == "link":
            delivery.link.detach(error=why)
        else:
            delivery.link.session.end(why)
        return None

    def rows() -> Iterator[pa.RecordBatch]:
        for size in sizes:
            yield from batches(texts(size))
            time.sleep(0.3)

    server.verdict = end
    with (
        serving(server) as running,
        pytest.raises(DeliveryInDoubt, match=r"^no outcome was heard: .* closed in the midst"),
    ):
        write_rows(options(running.url, guarantee="at-least-once"), ORIGIN, rows())


# -- losses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"duplicateWindow": "1000", "idColumn": "n"}], ids=["mark", "ids"])
def test_a_connection_that_is_cut_is_made_again(broker: acquit.Broker, given: dict[str, str]) -> None:
    origin = TaskOrigin(None, 0, 0) if given else ORIGIN
    with Proxy(broker.url) as proxy:

        def rows() -> Iterator[pa.RecordBatch]:
            for number in range(300):
                if number in (40, 41, 150):
                    proxy.cut()
                yield pa.RecordBatch.from_pydict({"body": [f"row {number}"], "n": [number]})

        given = given or {"idColumn": "n"}
        result = write_rows(options(proxy.url, maxInFlight="20", **given), origin, rows())
    assert result.written == 300
    assert taken(broker.url) == texts(300)


def test_a_broker_that_is_restarted(tmp_path: Path) -> None:
    broker = acquit.Broker(tmp_path)
    url = broker.url
    port = int(url.rpartition(":")[2])
    restarted: list[acquit.Broker] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(200):
            if number == 100:
                broker.close()
                restarted.append(acquit.Broker(tmp_path, port=port))
            yield pa.RecordBatch.from_pydict({"body": [f"row {number}"]})

    try:
        assert write_rows(options(url, maxInFlight="20"), ORIGIN, rows()).written == 200
        assert taken(url) == texts(200)
    finally:
        for one in (broker, *restarted):
            one.close()


@pytest.mark.parametrize("outage", ["shorter", "longer", "other users"])
def test_an_outage_that_is_longer_than_a_try_to_connect(
    broker: acquit.Broker, monkeypatch: pytest.MonkeyPatch, outage: str
) -> None:
    tries: list[str] = []

    def connects(given: SinkOptions) -> Connection:
        tries.append(given.url)
        if outage == "other users":
            raise AuthenticationFailed("SASL refused us")
        if outage == "longer" or len(tries) < 3:
            raise ConnectionFailed("cannot reach the broker within 30 s (option connectTimeout)")
        return connect_patiently(given)

    with Proxy(broker.url) as proxy:

        def rows() -> Iterator[pa.RecordBatch]:
            for number in range(20):
                if number == 10:
                    monkeypatch.setattr(module, "connect_patiently", connects)
                    proxy.cut()
                yield pa.RecordBatch.from_pydict({"body": [f"row {number}"]})

        given = options(proxy.url, maxInFlight="5", sendTimeout="10s" if outage == "shorter" else "100ms")
        match outage:
            case "shorter":
                assert write_rows(given, ORIGIN, rows()).written == 20
                assert taken(broker.url) == texts(20)
            case "longer":
                with pytest.raises(
                    DeliveryInDoubt, match=r"took no row for 0.1 s \(option sendTimeout\): cannot reach"
                ):
                    write_rows(given, ORIGIN, rows())
                assert len(tries) > 1
            case _:
                with pytest.raises(AuthenticationFailed):
                    write_rows(given, ORIGIN, rows())
                assert len(tries) == 1


def test_a_broker_that_is_restarted_and_takes_less_in_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = acquit.Broker(tmp_path)
    url = broker.url
    port = int(url.rpartition(":")[2])
    smaller = BrokerOptions(connection=ConnectionLimits(message_bytes_max=2_000))
    restarted: list[acquit.Broker] = []

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"body": ["first"]})
        broker.close()
        monkeypatch.setattr(module, "connect_patiently", restart)
        yield pa.RecordBatch.from_pydict({"body": ["x" * 5_000, "last"]})

    def restart(given: SinkOptions) -> Connection:
        restarted.append(acquit.Broker(tmp_path, port=port, config=smaller))
        return connect_patiently(given)

    try:
        result = write_rows(options(url, rejected="skip"), ORIGIN, rows())
        assert (result.written, result.rejected) == (2, 1)
        assert "row 1 of partition 1" in result.rejections[0]
        assert taken(url) == ["first", "last"]
    finally:
        for one in (broker, *restarted):
            one.close()


def test_rows_that_were_accepted_before_a_connection_was_lost_are_not_sent_again(broker: acquit.Broker) -> None:
    """On a broker that tells none again, each would be there twice."""
    encoder = RowEncoder(addressed=True, durable=True)
    with Proxy(broker.url) as proxy:
        poster = SinkPoster(options(proxy.url, guarantee="at-least-once"), ORIGIN)
        for index, body in enumerate(texts(20)):
            poster.post(OutgoingRow(index, "id", *encoder.encode(row_of(body), "id", None)))
            receipt = poster._pending[-1].receipt
            if index < 15:
                assert receipt is not None
                receipt.result(10)
            if index == 14:
                proxy.cut()
        assert poster.finish().written == 20
        poster.close()
    found = taken(broker.url)
    assert found[:15] == texts(15)
    assert set(found[15:]) == set(texts(20)[15:])


@pytest.mark.parametrize("accepted", [False, True], ids=["told", "accepted"])
def test_rows_that_a_killed_broker_does_not_have_any_more_are_no_silent_gap(tmp_path: Path, *, accepted: bool) -> None:
    """A mark may be told that is not on the disk yet. What was left out for it is not sent again after the kill."""
    now, before = tmp_path / "now", tmp_path / "before"
    bodies = texts(12)
    with acquit.Broker(now) as broker:
        write(broker.url, bodies[:5])
    shutil.copytree(now, before)
    broker = acquit.Broker(now)
    url, port = broker.url, int(broker.url.rpartition(":")[2])
    if not accepted:
        write(url, bodies[:9])
    restarted: list[acquit.Broker] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for number, body in enumerate(bodies):
            if number == (11 if accepted else 0):
                broker.close()
                shutil.rmtree(now)
                before.rename(now)
                restarted.append(acquit.Broker(now, port=port))
            yield pa.RecordBatch.from_pydict({"body": [body]})

    try:
        with pytest.raises(DeliveryInDoubt, match="has rows of partition 1, batch 3, up to row 4 .* up to row"):
            write_rows(options(url, maxInFlight="1"), ORIGIN, rows())
        assert write(url, bodies).written == 7
        assert taken(url) == bodies
    finally:
        for one in (broker, *restarted):
            one.close()


def test_volatile_rows_are_lost_with_a_killed_broker_as_ever_and_the_task_goes_on(tmp_path: Path) -> None:
    now, before = tmp_path / "now", tmp_path / "before"
    with acquit.Broker(now) as broker:
        write(broker.url, texts(1))
    shutil.copytree(now, before)
    broker = acquit.Broker(now)
    url, port = broker.url, int(broker.url.rpartition(":")[2])
    restarted: list[acquit.Broker] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for number, body in enumerate(texts(12)):
            if number == 11:
                broker.close()
                shutil.rmtree(now)
                before.rename(now)
                restarted.append(acquit.Broker(now, port=port))
            yield pa.RecordBatch.from_pydict({"body": [body], "durable": [number == 0]})

    try:
        assert write_rows(options(url, maxInFlight="1"), ORIGIN, rows()).written == 11
        assert len(taken(url)) < 12
    finally:
        for one in (broker, *restarted):
            one.close()


def test_what_waits_for_answers_is_bounded(broker: acquit.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    take: Callable[[SinkPoster], None] = SinkPoster._take_oldest

    def watch(self: SinkPoster) -> None:
        nonlocal most
        most = max(most, len(self._pending))
        assert self._pending_bytes <= 64 * 1024
        take(self)

    monkeypatch.setattr(SinkPoster, "_take_oldest", watch)
    one = SinkPoster(options(broker.url, maxInFlight="50", maxInFlightBytes="64k"), ORIGIN)
    header = b"\x00\x53\x70\xc0\x02\x01\x41"
    for index in range(300):
        body = bytes(20 if index < 200 else 4_000)
        size = len(body).to_bytes(4)
        one.post(OutgoingRow(index, str(index), header, b"\x00\x53\x75\xb0" + size + body))
    assert one.finish().written == 300
    one.close()
    assert most == 50

"""Exactly-once links against the broker in this process, through a proxy that cuts at a named frame."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from threading import Condition, Event, Thread

import pytest

import acquit
from acquit import (
    ConfigurationError,
    DeliveryInDoubt,
    EntryKind,
    FileStore,
    LinkDetached,
    MemoryStore,
    NotSent,
    ReceiptStatus,
    SendFailed,
    SqliteStore,
    StoreEntry,
    aio,
)
from acquit.broker.configuration import parse_options
from acquit.client.entries import Done
from acquit.client.receiving import ReceiverCore
from acquit.client.sending import StoredPayload
from acquit.client.threads import loop_thread
from acquit.protocol.delivery import Delivery
from acquit.testing import Proxy

pytestmark = pytest.mark.promise("exactly-once")


@pytest.fixture
def broker() -> Iterator[acquit.Broker]:
    with acquit.Broker() as broker:
        yield broker


@pytest.fixture
def proxy(broker: acquit.Broker) -> Iterator[Proxy]:
    with Proxy(broker.url) as proxy:
        yield proxy


def connect(url: str) -> acquit.Connection:
    options = acquit.ConnectOptions(reconnect=acquit.Reconnect(delay_ms=10, delay_max_ms=100))
    return acquit.connect(url, container_id="app", options=options)


def receiver_of(connection: acquit.Connection, store: acquit.DeliveryStore, **options: object) -> acquit.Receiver:
    return connection.session("individual").receiver("q", name="in", exactly_once=store, **options)  # type: ignore[arg-type]


def bodies(receiver: acquit.Receiver, count: int) -> list[acquit.ReceivedMessage]:
    found = [receiver.receive(timeout=5) for _ in range(count)]
    assert None not in found
    return found  # type: ignore[return-value]


def reached(condition: Callable[[], bool]) -> None:
    """Wait, in this thread, for a condition that the loop thread brings about."""
    while not condition():
        loop_thread().catch_up()


def depth(broker: acquit.Broker, name: str = "q") -> int:
    queue = broker.inspect().queue(name)
    return 0 if queue is None else queue.depth


def test_what_was_handed_out_stays_ours_over_a_lost_connection(broker: acquit.Broker, proxy: Proxy) -> None:
    with connect(proxy.url) as connection:
        connection.session().sender("q").send("one")
        receiver = receiver_of(connection, MemoryStore())
        (message,) = bodies(receiver, 1)
        proxy.cut()
        assert message.accept().status is ReceiptStatus.APPLIED
        assert not message.redelivered
        assert receiver.receive(timeout=0.2) is None
        assert depth(broker) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: MemoryStore(),
        lambda folder: FileStore(folder / "links"),
        lambda folder: SqliteStore(folder / "links.db"),
    ],
)
def test_stores_serve_links_of_asyncio(
    make: Callable[[Path], acquit.DeliveryStore], broker: acquit.Broker, tmp_path: Path
) -> None:
    """They say on a thread of their own, which has no event loop, that something is safe."""
    store = make(tmp_path)

    async def exchange() -> None:
        async with aio.connect(broker.url, container_id="app") as connection, connection.session("client") as session:
            sender = await session.sender("q", name="out", exactly_once=store)
            receiver = await session.receiver("q", name="in", exactly_once=store)
            for number in range(3):
                await sender.send(str(number), timeout=10)
                message = await receiver.receive(timeout=10)
                assert message is not None and message.body == str(number)
                assert (await message.acknowledge()).status is ReceiptStatus.APPLIED

    asyncio.run(exchange())
    assert depth(broker) == 0
    getattr(store, "close", lambda: None)()
    assert not store.load("out").sends


def test_a_store_outlives_the_loop_that_it_has_something_to_say_to(broker: acquit.Broker, tmp_path: Path) -> None:
    store, ended, over = FileStore(tmp_path / "links"), Event(), Event()

    async def send_and_leave() -> None:
        async with aio.connect(broker.url, container_id="app") as connection, connection.session() as session:
            sender = await session.sender("q", name="out", exactly_once=store)
            store.write([], lambda error: reached(ended.is_set))
            _ = await sender.send("late", wait=False)
            await connection.close(0.0)

    asyncio.run(send_and_leave())
    ended.set()
    store.write([], lambda error: over.set())
    assert over.wait(10)
    assert len(store.load("out").sends) == 1
    store.close()


def test_acknowledging_up_to_a_message_goes_by_the_order_of_handing_out_over_a_lost_connection(
    broker: acquit.Broker, proxy: Proxy
) -> None:
    """Of all receivers of the session: what was handed out behind it is nobody's to acknowledge yet."""
    with connect(proxy.url) as connection:
        for name in "ab":
            for number in range(3):
                connection.session().sender(name).send(f"{name}{number}")
        session = connection.session("client")
        receivers = [session.receiver(name, name=name, exactly_once=MemoryStore()) for name in "ab"]
        handed_out = [receiver.receive(timeout=5) for _ in range(2) for receiver in receivers]
        b0 = handed_out[1]
        assert b0 is not None and b0.body == "b0"
        proxy.cut()
        connection.session().sender("c").send("restored")
        assert session.acknowledge(b0).status is ReceiptStatus.APPLIED
        assert (depth(broker, "a"), depth(broker, "b")) == (2, 2)
        (last,) = (receiver.receive(timeout=5) for receiver in receivers[:1])
        assert last is not None and last.body == "a2"
        session.acknowledge()
        assert (depth(broker, "a"), depth(broker, "b")) == (0, 1)


def test_a_message_that_is_taken_as_it_arrives_is_resumed(
    broker: acquit.Broker, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's thread takes a message out of the buffer before the loop has come back from telling it so."""
    on_deliveries = ReceiverCore.on_deliveries

    def slowly(self: ReceiverCore, deliveries: list[Delivery]) -> None:
        on_deliveries(self, deliveries)
        time.sleep(0.05)

    with connect(proxy.url) as connection:
        receiver = receiver_of(connection, MemoryStore())
        monkeypatch.setattr(ReceiverCore, "on_deliveries", slowly)
        connection.session().sender("q").send("one")
        (message,) = bodies(receiver, 1)
        proxy.cut()
        assert message.accept().status is ReceiptStatus.APPLIED
        assert receiver.receive(timeout=0.2) is None
        assert depth(broker) == 0


def test_what_was_buffered_comes_once(broker: acquit.Broker, proxy: Proxy) -> None:
    with connect(proxy.url) as connection:
        sender = connection.session().sender("q")
        for number in range(5):
            sender.send(str(number))
        receiver = receiver_of(connection, MemoryStore(), prefetch=5)
        (first,) = bodies(receiver, 1)
        proxy.wait_for("transfer", 10)
        proxy.cut()
        rest = bodies(receiver, 4)
        assert [one.body for one in (first, *rest)] == ["0", "1", "2", "3", "4"]
        assert [one.accept().status for one in (*rest, first)] == [ReceiptStatus.APPLIED] * 5
        assert receiver.receive(timeout=0.2) is None
        assert depth(broker) == 0


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("by", ["client", "broker"])
def test_an_answer_that_is_lost_is_learnt_from_the_map(
    broker: acquit.Broker, proxy: Proxy, moment: str, by: str
) -> None:
    with connect(proxy.url) as connection:
        connection.session().sender("q").send("one")
        receiver = receiver_of(connection, MemoryStore())
        (message,) = bodies(receiver, 1)
        getattr(proxy, moment)("disposition", by=by).cut()
        assert message.accept().status is ReceiptStatus.APPLIED
        assert receiver.receive(timeout=0.2) is None
        assert depth(broker) == 0


def test_other_outcomes_are_resumed_too(broker: acquit.Broker, proxy: Proxy) -> None:
    with connect(proxy.url) as connection:
        sender = connection.session().sender("q")
        for body in ("rejected", "released", "failed"):
            sender.send(body)
        receiver = receiver_of(connection, MemoryStore(), prefetch=3)
        rejected, released, failed = bodies(receiver, 3)
        proxy.before("disposition", by="client").cut()
        receipts = [
            rejected.reject("app:no", "not this one", sync=False),
            released.release(sync=False),
            failed.modify(delivery_failed=True, sync=False),
        ]
        assert [receipt.result(timeout=10) for receipt in receipts] == [ReceiptStatus.APPLIED] * 3
        again = bodies(receiver, 2)
        assert [(one.body, one.delivery_count) for one in again] == [("released", 0), ("failed", 1)]
        assert depth(broker, "DLQ") == 1


@pytest.mark.parametrize("frame", range(1, 34))
@pytest.mark.parametrize("moment", ["before", "within", pytest.param("after", marks=pytest.mark.slow)])
def test_cut_at_any_frame_everything_happens_once(broker: acquit.Broker, proxy: Proxy, moment: str, frame: int) -> None:
    """All frames of a connection on which two messages are sent, received and accepted, exactly once."""
    point = getattr(proxy, moment)(None, frame)
    if moment == "within":
        point.half().cut() if hasattr(point, "half") else point.cut()
    else:
        point.cut()
    store = MemoryStore()
    while True:
        try:
            connection = connect(proxy.url)
            break
        except acquit.ConnectionFailed:
            continue
    with connection:
        while True:
            try:
                session = connection.session("individual")
                sender = session.sender("q", name="out", exactly_once=store)
                receiver = session.receiver("q", name="in", exactly_once=store)
                break
            except (acquit.ConnectionLost, acquit.SessionEnded):
                continue
        receipts = [sender.send(body, wait=False) for body in ("one", "two")]
        assert all(receipt.result(timeout=10) is not None for receipt in receipts)
        messages = bodies(receiver, 2)
        assert [message.body for message in messages] == ["one", "two"]
        assert [message.accept().status for message in messages] == [ReceiptStatus.APPLIED] * 2
        assert receiver.receive(timeout=0.05) is None
    assert depth(broker) == 0
    queue = broker.inspect().queue("q")
    assert queue is not None
    assert (queue.entered, queue.accepted) == (2, 2)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "work.db")) as connection:
        yield connection


def test_a_program_that_begins_again_goes_on_where_it_was(
    broker: acquit.Broker, tmp_path: Path, database: sqlite3.Connection
) -> None:
    database.execute("CREATE TABLE done (body TEXT)")
    with connect(broker.url) as connection:
        sender = connection.session().sender("q")
        for body in ("one", "two", "three"):
            sender.send(body)
    store = SqliteStore(tmp_path / "work.db")
    connection = connect(broker.url)
    receiver = receiver_of(connection, store, prefetch=3)
    one, two, _ = bodies(receiver, 3)
    for message in (one, two):
        with database:
            database.execute("INSERT INTO done VALUES (?)", (str(message.body),))
            store.remember(message, database.cursor())
    one.accept()
    connection._loop.run(_abandon(connection))  # killed, as far as the broker can tell
    with SqliteStore(tmp_path / "work.db") as later, connect(broker.url) as again:
        receiver = receiver_of(again, later)
        (three,) = bodies(receiver, 1)
        assert three.body == "three"
        assert three.accept().status is ReceiptStatus.APPLIED
        assert receiver.receive(timeout=0.2) is None
    assert depth(broker) == 0
    assert database.execute("SELECT body FROM done").fetchall() == [("one",), ("two",)]


async def _abandon(connection: acquit.Connection) -> None:
    connection._aio._driver.core.abandon("the test ends this life")  # type: ignore[attr-defined]


def test_a_message_is_prepared_in_the_users_transaction(
    broker: acquit.Broker, tmp_path: Path, database: sqlite3.Connection
) -> None:
    with SqliteStore(tmp_path / "work.db") as store, connect(broker.url) as connection:
        sender = connection.session().sender("q", name="out", exactly_once=store)
        with database:
            prepared = sender.prepare("one", database.cursor())
        assert sender.send(prepared) is not None
        with database:
            sender.prepare("two", database.cursor())  # the program ends before it is sent
        cursor = database.cursor()
        sender.prepare("never", cursor)
        database.rollback()
    assert depth(broker) == 1
    with SqliteStore(tmp_path / "work.db") as store, connect(broker.url) as connection:
        sender = connection.session().sender("q", name="out", exactly_once=store)
        sender.flush(5)
        assert depth(broker) == 2


@pytest.mark.parametrize("decided", [True, False])
def test_what_was_taken_away_meanwhile_is_stale_and_comes_again(decided: bool) -> None:
    """Its lock ran out while nothing arrived any more. Examples 13 and 14 of the specification."""
    options = parse_options('[[address]]\nmatch = "q"\nlock_duration_ms = 200\n')
    with acquit.Broker(config=options) as broker, Proxy(broker.url) as proxy, connect(proxy.url) as connection:
        connection.session().sender("q").send("one")
        receiver = receiver_of(connection, MemoryStore(), prefetch=2)
        (message,) = bodies(receiver, 1)
        proxy.stall()
        receipt = message.accept(sync=False) if decided else None
        while (queue := broker.inspect().queue("q")) is not None and queue.acquired:
            time.sleep(0.02)
        proxy.cut()
        proxy.resume()
        (again,) = bodies(receiver, 1)
        assert again.body == "one"
        assert again.delivery_count  # by then the broker may have given it to the silent link, and taken it, once more
        told = receipt or message.accept(sync=False)
        assert told.result(timeout=10) is ReceiptStatus.STALE
        assert told.reason
        assert again.accept().status is ReceiptStatus.APPLIED
        assert depth(broker) == 0


class SlowStore(MemoryStore):
    """Says that a change is safe when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Done] = []

    def write(self, entries: Sequence[StoreEntry], done: Done | None = None) -> None:
        super().write(entries)
        if done is not None:
            self.waiting.append(done)


def test_the_next_message_comes_while_an_outcome_is_being_stored(broker: acquit.Broker) -> None:
    store = SlowStore()
    with connect(broker.url) as connection:
        connection.session().sender("q").send("one")
        connection.session().sender("q").send("two")
        receiver = receiver_of(connection, store, prefetch=1)
        (one,) = bodies(receiver, 1)
        receipt = one.accept(sync=False)
        (two,) = bodies(receiver, 1)
        assert two.body == "two"
        assert not receipt.done
        (safe,) = store.waiting
        safe(None)
        assert receipt.result(timeout=10) is ReceiptStatus.APPLIED


class Behind(FileStore):
    """Has forgotten nothing yet: its disk is slow, or another writer comes before it."""

    def write(self, entries: Sequence[StoreEntry], done: Done | None = None) -> None:
        if all(entry.value is not None for entry in entries):
            super().write(entries, done)


def test_what_the_store_has_not_forgotten_yet_the_broker_does_not_forget_at_a_new_attach(
    broker: acquit.Broker, proxy: Proxy, tmp_path: Path
) -> None:
    """The program heard the outcome, attached anew after a loss, and was killed before its store was so far."""
    with Behind(tmp_path / "out") as store, connect(proxy.url) as connection:
        sender = connection.session().sender("q", name="out", exactly_once=store)
        sender.send("one", timeout=20)
        proxy.before("transfer", by="client").cut()
        sender.send("two", timeout=20)
    assert depth(broker) == 2
    with FileStore(tmp_path / "out") as store, connect(broker.url) as connection:
        sender = connection.session().sender("q", name="out", exactly_once=store)
        sender.flush(20)
        assert depth(broker) == 2
    with FileStore(tmp_path / "out") as store:
        assert not store.load("out").sends


class SlowToForget(MemoryStore):
    """Stores at once, and says that something is forgotten when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Done] = []
        self._more = Condition()

    def write(self, entries: Sequence[StoreEntry], done: Done | None = None) -> None:
        super().write(entries)
        if done is not None and all(entry.value is None for entry in entries):
            with self._more:
                self.waiting.append(done)
                self._more.notify()
        elif done is not None:
            done(None)

    def asked(self, count: int) -> Done:
        """Return what is to be told of the last of so many."""
        with self._more:
            assert self._more.wait_for(lambda: len(self.waiting) >= count, timeout=10)
            return self.waiting[count - 1]


def refused_in(store: SlowToForget, connection: acquit.Connection) -> tuple[acquit.Sender, acquit.SendReceipt]:
    """Return the receipt of a send that the broker has refused and the store has not forgotten."""
    sender = connection.session().sender("q", name="out", exactly_once=store)
    sender.send("one", timeout=10)
    receipt = sender.send("two", wait=False)
    store.asked(2)
    assert not receipt.done
    return sender, receipt


@pytest.fixture
def full() -> Iterator[acquit.Broker]:
    with acquit.Broker(
        config=parse_options('[[address]]\nmatch = "q"\nmessages_max = 1\nfull_policy = "reject"\n')
    ) as broker:
        yield broker


def test_a_refusal_is_told_when_the_store_has_forgotten_the_send(full: acquit.Broker) -> None:
    """Until then it would be sent again, if the program and the broker were killed."""
    store = SlowToForget()
    with connect(full.url) as connection:
        _, receipt = refused_in(store, connection)
        store.asked(2)(None)
        with pytest.raises(SendFailed, match="limit"):
            receipt.result(timeout=10)


def test_a_refusal_is_told_once_over_a_lost_connection(full: acquit.Broker) -> None:
    store = SlowToForget()
    with Proxy(full.url) as proxy, connect(proxy.url) as connection:
        _, receipt = refused_in(store, connection)
        proxy.cut()
        store.asked(3)  # the broker's map has both outcomes
        assert not receipt.done
        store.asked(2)(None)
        with pytest.raises(SendFailed, match="limit"):
            receipt.result(timeout=10)
        for told in store.waiting[2:]:
            told(None)
        assert depth(full) == 1


def test_a_refusal_is_told_before_the_link_ends(full: acquit.Broker) -> None:
    with connect(full.url) as connection:
        sender, receipt = refused_in(SlowToForget(), connection)
        sender.close()
        with pytest.raises(SendFailed, match="limit"):
            receipt.result(timeout=10)


def test_a_refused_send_that_the_store_cannot_forget_is_in_doubt(full: acquit.Broker) -> None:
    store = SlowToForget()
    with connect(full.url) as connection:
        sender, receipt = refused_in(store, connection)
        store.asked(2)(OSError("the disk is gone"))
        with pytest.raises(DeliveryInDoubt, match="the disk is gone"):
            sender.flush(10)
        with pytest.raises(DeliveryInDoubt, match="the disk is gone"):
            receipt.result(timeout=10)


def test_a_terminus_that_the_broker_has_ended_is_no_silent_end(broker: acquit.Broker, proxy: Proxy) -> None:
    with connect(proxy.url) as connection:
        session = connection.session("individual")
        session.sender("q").send("one")
        receiver = receiver_of(connection, MemoryStore())
        (message,) = bodies(receiver, 1)
        proxy.refuse()
        proxy.cut()
        with acquit.connect(broker.url) as other:
            _end_termini(other)
        receipt = message.accept(sync=False)
        proxy.accept()
        assert receipt.result(timeout=10) is ReceiptStatus.UNKNOWN
        assert "terminus" in (receipt.reason or "")
        (again,) = bodies(receiver, 1)
        assert again.accept().status is ReceiptStatus.APPLIED


def test_sends_that_are_in_doubt_are_an_error_of_the_attach(broker: acquit.Broker, tmp_path: Path) -> None:
    store = MemoryStore()
    store.write([acquit.StoreEntry(acquit.EntryKind.IDENTITY, "out", b"", b"x" * 16)])
    store.write([acquit.StoreEntry(acquit.EntryKind.SEND, "out", b"tag", acquit.Message("one").encode())])
    with connect(broker.url) as connection:
        session = connection.session()
        with pytest.raises(LinkDetached, match="1 messages"):
            session.sender("q", name="out", exactly_once=store)
        store.forget_terminus("out", resend=True)
        session.sender("q", name="out", exactly_once=store).flush(5)
    assert depth(broker) == 1


def test_a_send_within_the_programs_own_transaction_says_what_it_waits_for(
    broker: acquit.Broker, tmp_path: Path
) -> None:
    """SQLite has one writer at a time. A flush waits for such sends, too."""
    path = tmp_path / "shop.db"
    with SqliteStore(path) as store, connect(broker.url) as connection, closing(sqlite3.connect(path)) as database:
        sender = connection.session().sender("q", name="out", exactly_once=store)
        sender.send("first")
        database.execute("BEGIN IMMEDIATE")
        with pytest.raises(NotSent, match="still waits for the store of deliveries"):
            sender.send("a", timeout=0.05)
        with pytest.raises(NotSent, match="still waits for the store of deliveries"):
            sender.flush(0.05)
        receipt = sender.send("b", wait=False)
        assert "waits for the store" in repr(receipt)
        with pytest.raises(NotSent, match="2 did not leave, and still wait for the store of deliveries"):
            sender.flush(0.05)
        database.rollback()
        sender.flush(60)
        assert receipt.done and depth(broker) == 3


def test_a_connection_closes_after_the_store_of_what_it_still_holds(
    broker: acquit.Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What it holds is not lost: it stays with the link."""
    store = FileStore(tmp_path / "store")
    connection = connect(broker.url)
    for body in ("a", "b"):
        connection.session().sender("q").send(body)
    receiver = receiver_of(connection, store)
    message = receiver.receive(5)
    assert message is not None
    reached(lambda: len(receiver._core.buffer) == 1)
    store.close()
    with pytest.raises(ConfigurationError, match="closed: close its links, or their connection, before it"):
        message.accept()
    connection.close(5)
    assert connection.closed
    assert "what the receiver from 'q' holds stays with it at the broker until it is resumed" in caplog.text
    with FileStore(tmp_path / "store") as store, connect(broker.url) as connection:
        assert [message.body for message in bodies(receiver_of(connection, store), 2)] == ["a", "b"]


def test_a_send_that_a_closed_store_does_not_take_is_not_waited_for(broker: acquit.Broker, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    with connect(broker.url) as connection:
        sender = connection.session().sender("q", name="out", exactly_once=store)
        sender.send("a")
        store.close()
        with pytest.raises(ConfigurationError, match="closed"):
            sender.send("b", wait=False)
        sender.flush(5)


class FullStore(MemoryStore):
    """A store that has no room for sends."""

    def write(self, entries: Sequence[StoreEntry], done: Done | None = None) -> None:
        if done is not None and any(entry.kind is EntryKind.SEND for entry in entries):
            done(OSError("no room"))
        else:
            super().write(entries, done)


def test_a_flush_tells_that_sends_could_not_be_stored(broker: acquit.Broker) -> None:
    with connect(broker.url) as connection:
        sender = connection.session().sender("q", name="out", exactly_once=FullStore(), buffer_bytes=100)
        for _ in range(3):
            sender.send(bytes(200), wait=False)
            with pytest.raises(LinkDetached, match="could not be stored, and was not sent: no room"):
                sender.flush(5)
            sender.flush(5)
    assert depth(broker) == 0


def test_threads_acknowledge_at_once(broker: acquit.Broker) -> None:
    count = 6_000
    failed: list[BaseException] = []

    def work() -> None:
        try:
            while (message := receiver.receive(timeout=1)) is not None:
                message.accept(sync=False)
        except BaseException as exc:
            failed.append(exc)

    interval = sys.getswitchinterval()
    with connect(broker.url) as connection:
        sender = connection.session().sender("q")
        for _ in range(count):
            sender.send(b"x", wait=False)
        sender.flush(60)
        receiver = receiver_of(connection, MemoryStore(), prefetch=count)
        threads = [Thread(target=work) for _ in range(4)]
        sys.setswitchinterval(1e-5)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
    assert not failed
    assert depth(broker) == 0


class NoCursor:
    """A cursor that writes nothing."""

    rowcount = 0

    def execute(self, operation: str, parameters: object = (), /) -> None:
        """Do nothing."""

    def fetchall(self) -> list[object]:
        return []


def test_threads_send_and_prepare_at_once(broker: acquit.Broker, tmp_path: Path) -> None:
    tags: list[bytes] = []
    failed: list[BaseException] = []
    over = Event()

    def prepare() -> None:
        try:
            while not over.is_set():
                prepared = sender.prepare("x", NoCursor())
                assert isinstance(prepared.payload, StoredPayload)
                tags.append(prepared.payload.tag)
        except BaseException as exc:
            failed.append(exc)

    interval = sys.getswitchinterval()
    with connect(broker.url) as connection, SqliteStore(tmp_path / "store") as store:
        sender = connection.session().sender("q", name="out", exactly_once=store)
        threads = [Thread(target=prepare) for _ in range(3)]
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for _ in range(200):
                sender.send("x", wait=False)
        finally:
            over.set()
            sys.setswitchinterval(interval)
            for thread in threads:
                thread.join()
        sender.flush(60)
    assert not failed
    assert len(set(tags)) == len(tags)
    assert {len(tag) for tag in tags} == {24}


def _end_termini(connection: acquit.Connection) -> None:
    from acquit.client.management import converse
    from acquit.protocol.extensions import TERMINUS_ENTITY

    with converse(connection, 5) as node:
        rows = node.request("QUERY", TERMINUS_ENTITY)["results"]  # type: ignore[index, call-overload]
        for row in rows:
            node.request("DELETE", TERMINUS_ENTITY, name=row[0])


def test_a_durable_subscription_resumes(broker: acquit.Broker, proxy: Proxy) -> None:
    with connect(proxy.url) as connection:
        session = connection.session("individual")
        receiver = session.receiver(
            "news", topic=True, subscription=acquit.Subscription(name="mine", durable=True), exactly_once=MemoryStore()
        )
        session.sender("news", topic=True).send("one")
        (message,) = bodies(receiver, 1)
        proxy.cut()
        assert message.accept().status is ReceiptStatus.APPLIED
        assert receiver.receive(timeout=0.2) is None


def test_an_attach_that_is_not_answered_in_time_leaves_the_terminus_as_it_is(
    broker: acquit.Broker, proxy: Proxy, tmp_path: Path
) -> None:
    store = acquit.FileStore(tmp_path / "deliveries")
    with connect(broker.url) as connection:
        connection.session().sender("q").send("one")
        bodies(receiver_of(connection, store), 1)
    known = store.load("in").identity
    assert known
    options = acquit.ConnectOptions(answer_timeout_ms=200, close_timeout_ms=1_000)
    with acquit.connect(proxy.url, container_id="app", options=options) as connection:
        session = connection.session("individual")
        proxy.stall("broker")
        with pytest.raises(LinkDetached, match="did not answer"):
            session.receiver("q", name="in", exactly_once=store)
        assert proxy.wait_for("detach", by="client")
        proxy.resume()
    with connect(broker.url) as connection:
        (message,) = bodies(receiver_of(connection, store), 1)
        assert message.accept().status is ReceiptStatus.APPLIED
    assert store.load("in").identity == known

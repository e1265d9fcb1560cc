"""Preconditions of exactly-once links, and maps that are told in parts, against the broker in this process."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import acquit
from acquit import ConfigurationError, FileStore, LinkDetached, MemoryStore, ReceiptStatus, SqliteStore, StoreEntry
from acquit.broker.options import BrokerOptions, ConnectionLimits
from acquit.client.entries import EntryKind
from acquit.testing import Proxy
from tests.unit.client.test_resuming import bodies, connect, reached, receiver_of

pytestmark = pytest.mark.promise("exactly-once")

FRAME_BYTES = 4_096


@pytest.fixture
def broker() -> Iterator[acquit.Broker]:
    with acquit.Broker() as broker:
        yield broker


@pytest.fixture
def narrow() -> Iterator[Proxy]:
    """A broker that takes no longer frame than an unsettled map needs at least, behind a proxy."""
    limits = ConnectionLimits(max_frame_size=FRAME_BYTES)
    with acquit.Broker(config=BrokerOptions(connection=limits)) as broker, Proxy(broker.url) as proxy:
        yield proxy


@pytest.mark.parametrize("store", [True, "folder", acquit.FileStore], ids=str)
def test_what_is_no_store_is_refused_by_name(broker: acquit.Broker, store: object) -> None:
    with connect(broker.url) as connection:
        for attach in (connection.session().sender, connection.session("individual").receiver):
            with pytest.raises(ConfigurationError, match=r"takes a DeliveryStore, such as acquit.FileStore\(path\)"):
                attach("q", name="n", exactly_once=store)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "options", "complaint"),
    [
        ("auto", {}, "mode CLIENT or INDIVIDUAL"),
        ("transacted", {}, "TRANSACTED"),
        ("individual", {"unreliable": True}, "unreliable"),
        ("individual", {"browse": True}, "browses"),
        ("individual", {"topic": True}, "durable subscription"),
    ],
)
def test_what_could_not_be_kept_is_refused(
    broker: acquit.Broker, mode: str, options: dict[str, object], complaint: str
) -> None:
    with connect(broker.url) as connection, pytest.raises(ConfigurationError, match=complaint):
        connection.session(mode).receiver("q", name="in", exactly_once=MemoryStore(), **options)  # type: ignore[arg-type]


def test_a_store_that_outlives_the_process_needs_names_that_do(broker: acquit.Broker, tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "work.db") as store:
        with acquit.connect(broker.url) as connection, pytest.raises(ConfigurationError, match="container_id"):
            connection.session("individual").receiver("q", name="in", exactly_once=store)
        with connect(broker.url) as connection, pytest.raises(ConfigurationError, match="name="):
            connection.session("individual").receiver("q", exactly_once=store)
        with connect(broker.url) as connection, closing(sqlite3.connect(tmp_path / "work.db")) as database:
            sender = connection.session().sender("q", name="out", exactly_once=MemoryStore())
            with pytest.raises(ConfigurationError, match="SqlStore"):
                sender.prepare("one", database.cursor())


def connect_narrow(proxy: Proxy) -> acquit.Connection:
    reconnect = acquit.Reconnect(delay_ms=10)
    options = acquit.ConnectOptions(max_frame_size=FRAME_BYTES, close_timeout_ms=10_000, reconnect=reconnect)
    return acquit.connect(proxy.url, container_id="app", options=options)


def hold(connection: acquit.Connection, count: int) -> tuple[acquit.Receiver, list[acquit.ReceivedMessage]]:
    """A receiver with so many messages in hand, which were sent before."""
    sender = connection.session().sender("q", name="out", exactly_once=MemoryStore())
    for number in range(count):
        sender.send(str(number), wait=False)
    sender.flush(10)
    receiver = receiver_of(connection, MemoryStore(), prefetch=count)
    return receiver, bodies(receiver, count)


def test_maps_that_no_frame_holds_are_told_in_parts(narrow: Proxy) -> None:
    with connect_narrow(narrow) as connection:
        receiver, messages = hold(connection, 600)
        narrow.before("disposition", by="client").cut()
        accepted = [message.accept(sync=False) for message in messages]
        assert {receipt.result(timeout=20) for receipt in accepted} == {ReceiptStatus.APPLIED}
        connection.session().sender("q").send("one more")
        assert [one.body for one in bodies(receiver, 1)] == ["one more"]


def test_what_no_map_has_room_for_is_decided_in_any_order(narrow: Proxy) -> None:
    """The latest first, each waited for, with the earliest still in hand."""
    with connect_narrow(narrow) as connection:
        receiver, messages = hold(connection, 200)
        narrow.cut()
        for message in reversed(messages[1:]):
            assert message.accept().status is ReceiptStatus.APPLIED
        connection.session().sender("q").send("one more")
        assert [one.body for one in bodies(receiver, 1)] == ["one more"]
        assert messages[0].accept().status is ReceiptStatus.APPLIED


def test_a_close_tells_what_was_decided_in_all_parts(narrow: Proxy) -> None:
    with connect_narrow(narrow) as connection:
        receiver, messages = hold(connection, 600)
        narrow.cut()
        assert messages.pop().accept().status is ReceiptStatus.APPLIED
        accepted = [message.accept(sync=False) for message in messages]
        receiver.close()
    assert {receipt.result(timeout=0) for receipt in accepted} == {ReceiptStatus.APPLIED}


def stored(path: Path, count: int) -> FileStore:
    """A store with so many sends of an earlier life, which never arrived."""
    store = FileStore(path)
    for number in range(count):
        payload = acquit.Message(str(number)).encode()
        store.write([StoreEntry(EntryKind.SEND, "out", b"%024d" % number, payload)])
    return store


def test_stored_sends_that_no_map_has_room_for_are_sent_in_their_order(narrow: Proxy, tmp_path: Path) -> None:
    with stored(tmp_path / "out", 200) as store, connect_narrow(narrow) as connection:
        sender = connection.session().sender("q", name="out", exactly_once=store)
        sender.send("new", timeout=10)
        sender.flush(10)
        assert len(narrow.passed("attach", by="client")) == 2
        received = bodies(connection.session().receiver("q"), 201)
    assert [message.body for message in received] == [*map(str, range(200)), "new"]


def test_a_link_that_is_closed_while_it_is_attached_again_is_closed(narrow: Proxy, tmp_path: Path) -> None:
    with stored(tmp_path / "out", 200) as store, connect_narrow(narrow) as connection:
        session = connection.session()
        narrow.after("detach", by="client").stall()
        sender = session.sender("q", name="out", exactly_once=store)
        assert narrow.wait_for("detach", by="client")
        sender.close(0.05)
        narrow.resume()
        reached(lambda: not session._core.senders)
        sender = session.sender("q", name="out", exactly_once=store)
        sender.flush(10)
        assert len(bodies(connection.session().receiver("q"), 200)) == 200


def test_frames_that_are_too_short_for_a_map_are_an_error_of_the_attach() -> None:
    options = BrokerOptions(connection=ConnectionLimits(max_frame_size=512))
    with acquit.Broker(config=options) as broker, connect(broker.url) as connection:
        session = connection.session("individual")
        with pytest.raises(LinkDetached, match="frames of 512 bytes"):
            session.sender("q", name="out", exactly_once=MemoryStore())
        with pytest.raises(LinkDetached, match="frames of 512 bytes"):
            receiver_of(connection, MemoryStore())

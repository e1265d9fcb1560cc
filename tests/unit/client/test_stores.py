"""Stores of deliveries: what one process writes, the next one reads; what is torn was never told."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

import acquit
from acquit import (
    ConfigurationError,
    DeliveryStore,
    EntryKind,
    FileStore,
    MemoryStore,
    SqliteStore,
    SqlStore,
    StoreEntry,
)
from acquit.client import stores
from acquit.protocol.composite import encode_composite
from acquit.protocol.definitions import Accepted, Error, Rejected
from tests.support.forking import FORKING, child_that_lives, fork_unnoticed, in_child
from tests.support.signalled import interrupted_at_each_call

REJECTED = Rejected(Error("app:no", "not this one"))

Make = Callable[[Path], DeliveryStore]
DURABLE: list[Make] = [
    lambda folder: FileStore(folder / "links"),
    lambda folder: SqliteStore(folder / "links.db"),
    lambda folder: SqlStore(lambda: sqlite3.connect(folder / "links.db"), "deliveries"),
]


def write(store: DeliveryStore, *entries: StoreEntry) -> None:
    over = threading.Event()
    errors: list[BaseException | None] = []

    def done(error: BaseException | None) -> None:
        errors.append(error)
        over.set()

    store.write(entries, done)
    assert over.wait(10)
    assert errors == [None]


def outcome(tag: bytes, value: Accepted | Rejected, link: str = "in") -> StoreEntry:
    return StoreEntry(EntryKind.OUTCOME, link, tag, encode_composite(value))


def close(store: DeliveryStore) -> None:
    getattr(store, "close", lambda: None)()


@pytest.mark.parametrize("make", [lambda folder: MemoryStore(), *DURABLE])
def test_what_is_written_is_read(make: Make, tmp_path: Path) -> None:
    store = make(tmp_path)
    write(
        store, StoreEntry(EntryKind.IDENTITY, "in", b"", b"\0" * 16), outcome(b"1", Accepted()), outcome(b"2", REJECTED)
    )
    write(store, StoreEntry(EntryKind.SEND, "out", b"a", b"first"), StoreEntry(EntryKind.SEND, "out", b"b", b""))
    write(store, StoreEntry(EntryKind.OUTCOME, "in", b"1", None), StoreEntry(EntryKind.SEND, "out", b"x", None))
    if store.durable:
        close(store)
        store = make(tmp_path)
    assert store.load("in") == acquit.LinkEntries(b"\0" * 16, {b"2": REJECTED}, {})
    assert store.load("out") == acquit.LinkEntries(b"", {}, {b"a": b"first", b"b": b""})
    assert store.load("other") == acquit.LinkEntries()
    close(store)


@pytest.mark.parametrize("make", DURABLE)
def test_a_store_that_is_closed_takes_no_more(make: Make, tmp_path: Path) -> None:
    store = make(tmp_path)
    close(store)
    close(store)
    with pytest.raises(ConfigurationError, match="closed"):
        store.write([outcome(b"1", Accepted())])


def test_what_is_handed_in_as_a_store_is_closed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another thread: nobody waits for ever for what comes behind the end."""
    store = FileStore(tmp_path / "links")
    errors: list[BaseException | None] = []
    monkeypatch.setattr(store, "_start", store.close)
    store.write([outcome(b"1", Accepted())], errors.append)
    assert isinstance(errors[0], ConfigurationError)


@pytest.mark.parametrize("make", [lambda folder: MemoryStore(), *DURABLE])
@pytest.mark.parametrize("resend", [True, False])
def test_a_terminus_that_is_no_more_is_forgotten(make: Make, tmp_path: Path, resend: bool) -> None:
    store = make(tmp_path)
    write(
        store, StoreEntry(EntryKind.IDENTITY, "out", b"", b"i" * 16), StoreEntry(EntryKind.SEND, "out", b"a", b"first")
    )
    store.forget_terminus("out", resend=resend)  # type: ignore[attr-defined]
    assert store.load("out") == acquit.LinkEntries(b"", {}, {b"a": b"first"} if resend else {})
    close(store)


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_record_that_is_torn_is_cut_off(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "links"
    store = FileStore(path)
    write(store, outcome(b"1", Accepted()))
    whole = path.read_bytes()
    write(store, outcome(b"2", REJECTED))
    store.close()
    torn = path.read_bytes()
    assert torn.startswith(whole)
    path.write_bytes(torn[: max(len(whole), len(torn) - cut)])
    store = FileStore(path)
    assert store.load("in").outcomes == {b"1": Accepted()}
    write(store, outcome(b"3", Accepted()))
    store.close()
    with FileStore(path) as store:
        assert store.load("in").outcomes == {b"1": Accepted(), b"3": Accepted()}


def test_what_is_cut_off_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "links"
    with FileStore(path) as store:
        for number in range(3):
            write(store, outcome(b"%d" % number, Accepted()))
    FileStore(path).close()
    assert not caplog.messages
    whole = path.read_bytes()
    middle = whole.index(b"in1")
    path.write_bytes(whole[:middle] + b"x" + whole[middle + 1 :])
    with FileStore(path) as store:
        assert store.load("in").outcomes == {b"0": Accepted()}
    (said,) = caplog.messages
    assert f"its last {len(whole) - middle + stores._RECORD.size} bytes" in said


class FullDisk:
    """Takes the place of os.write: a disk that has room for so many bytes, and none for the rest."""

    def __init__(self, room: int, write: Callable[[int, bytes], int]) -> None:
        self.room = room
        self._write = write

    def __call__(self, descriptor: int, data: bytes) -> int:
        fits, self.room = min(self.room, len(data)), self.room - min(self.room, len(data))
        if not fits:
            raise OSError(errno.ENOSPC, "no room")
        return self._write(descriptor, data[:fits])


@pytest.mark.parametrize("room", [0, 10, 150])
def test_what_was_not_stored_is_not_found_by_the_next_life(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was told so does it once more. One record of two may have been whole, and room may have come back."""
    path = tmp_path / "links"
    store = FileStore(path)
    write(store, outcome(b"1", Accepted()))
    over = threading.Event()
    errors: list[BaseException | None] = []

    def done(error: BaseException | None) -> None:
        errors.append(error)
        over.set()

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", FullDisk(room, os.write))
        sends = [StoreEntry(EntryKind.SEND, "out", tag, bytes(100)) for tag in (b"1", b"2")]
        store.write(sends, done)
        assert over.wait(10)
    assert isinstance(errors[0], OSError)
    store.close()
    with FileStore(path) as store:
        assert store.load("in").outcomes == {b"1": Accepted()}
        assert not store.load("out").sends


@pytest.mark.parametrize("failing", ["replace", "fsync"])
def test_a_file_that_cannot_be_written_anew_goes_on(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was handed in is stored by then, and said to be."""
    path = tmp_path / "links"
    real = getattr(os, failing)

    def full(*of: int | str) -> None:
        if failing == "replace" or os.path.samestat(os.stat(of[0]), os.stat(tmp_path / "links.new")):
            raise OSError(errno.ENOSPC, "no room")
        real(*of)

    with FileStore(path) as store:
        (tmp_path / "links.new").touch()
        monkeypatch.setattr(os, failing, full)
        write(store, StoreEntry(EntryKind.SEND, "out", b"1", bytes(17_000_000)))
        (said,) = caplog.messages
        assert "grows on" in said
        write(store, StoreEntry(EntryKind.SEND, "out", b"1", None), outcome(b"2", Accepted()))
        monkeypatch.undo()
        assert not store.load("out").sends
        assert store.load("in").outcomes == {b"2": Accepted()}
    with FileStore(path) as store:
        assert store.load("in").outcomes == {b"2": Accepted()}


def test_a_store_that_cannot_be_opened_keeps_nothing_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fresh: str, path: str) -> None:
        raise OSError(errno.ENOSPC, "no room")

    FileStore(tmp_path / "links").close()
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(OSError, match="no room") as refused:
            FileStore(tmp_path / "links")
    FileStore(tmp_path / "links").close()
    assert refused.value.errno == errno.ENOSPC


@pytest.mark.parametrize("make", DURABLE)
def test_a_link_that_is_made_anew_knows_what_was_still_being_written(make: Make, tmp_path: Path) -> None:
    store = make(tmp_path)
    for number in range(20):
        tag = b"%d" % number
        store.write([outcome(tag, Accepted())])
        assert tag in store.load("in").outcomes
    close(store)


def test_what_is_forgotten_makes_room(tmp_path: Path) -> None:
    path = tmp_path / "links"
    with FileStore(path) as store:
        for number in range(40):
            tag = b"%d" % number
            write(store, StoreEntry(EntryKind.SEND, "out", tag, bytes(1_000_000)))
            write(store, StoreEntry(EntryKind.SEND, "out", tag, None))
        assert path.stat().st_size < 20_000_000
        assert store.load("out").sends == {}


def test_the_last_of_several_changes_together_holds(tmp_path: Path) -> None:
    """They are one commit, in which a key may come more than once."""
    ready = threading.Event()
    with acquit.SqliteStore(tmp_path / "db") as store:
        entries = [
            StoreEntry(EntryKind.SEND, "one", b"1", b"first"),
            StoreEntry(EntryKind.SEND, "one", b"1", b"last"),
            StoreEntry(EntryKind.SEND, "one", b"2", b"forgotten"),
            StoreEntry(EntryKind.SEND, "one", b"2", None),
        ]
        store.write(entries, lambda _: ready.set())
        assert ready.wait(10)
        assert store.load("one").sends == {b"1": b"last"}


@pytest.mark.parametrize("there", [False, True])
def test_a_database_that_is_there_keeps_its_journal_mode(tmp_path: Path, there: bool) -> None:
    path = tmp_path / "db"
    if there:
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE orders (number INTEGER)")
    with acquit.SqliteStore(path), contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete" if there else "wal",)


def test_a_file_has_one_user(tmp_path: Path) -> None:
    with FileStore(tmp_path / "links"), pytest.raises(ConfigurationError, match="in use"):
        FileStore(tmp_path / "links")


def test_a_file_has_one_user_though_it_is_written_anew_between_opening_and_locking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "links"
    FileStore(path).close()
    others: list[FileStore] = []

    def opened(file: BinaryIO) -> BinaryIO:
        monkeypatch.undo()
        others.append(FileStore(path))
        return file

    monkeypatch.setattr(stores, "keep_here", opened)
    with pytest.raises(ConfigurationError, match="in use"):
        FileStore(path)
    (other,) = others
    other.close()


@FORKING
@pytest.mark.parametrize("fork", [os.fork, fork_unnoticed])
def test_a_file_is_given_back_though_a_forked_child_lives_on(tmp_path: Path, fork: Callable[[], int]) -> None:
    with contextlib.ExitStack() as children:
        with FileStore(tmp_path / "links") as store:
            write(store, outcome(b"1", Accepted()))
            children.enter_context(child_that_lives(fork))
            with pytest.raises(ConfigurationError, match="in use"):
                FileStore(tmp_path / "links")
        with FileStore(tmp_path / "links") as again:
            assert again.load("in").outcomes == {b"1": Accepted()}


@FORKING
@pytest.mark.parametrize("make", DURABLE)
def test_a_store_is_not_its_forked_child_s(make: Make, tmp_path: Path) -> None:
    """Its thread is not there: nothing is waited for in vain, and nothing of the parent's is changed."""
    store = make(tmp_path)
    write(store, outcome(b"1", Accepted()))

    def check() -> None:
        for use in (lambda: store.load("in"), lambda: store.write([outcome(b"2", Accepted())])):
            with pytest.raises(ConfigurationError, match="before the process was forked: open one in the child"):
                use()
        close(store)

    in_child(check)
    with getattr(store, "_lock"):  # noqa: B009 -- as a thread of the parent has it in the moment of the fork
        in_child(lambda: close(store))
    write(store, outcome(b"3", Accepted()))
    close(store)
    again = make(tmp_path)
    assert set(again.load("in").outcomes) == {b"1", b"3"}
    close(again)


@FORKING
def test_a_database_that_nobody_has_used_yet_is_the_forked_child_s_as_well(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "links.db") as store:

        def check() -> None:
            write(store, outcome(b"1", Accepted()))
            store.close()

        in_child(check)
        assert set(store.load("in").outcomes) == {b"1"}


def test_another_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter"
    path.write_text("Dear all, this is no store of deliveries\n")
    with pytest.raises(ConfigurationError, match="no store of deliveries"):
        FileStore(path)
    assert path.read_text().startswith("Dear all")


def _error_of_a_write(store: SqlStore) -> BaseException | None:
    errors: list[BaseException | None] = []
    over = threading.Event()

    def done(error: BaseException | None) -> None:
        errors.append(error)
        over.set()

    store.write([outcome(b"1", Accepted())], done)
    assert over.wait(10)
    return errors[0]


def test_who_waits_hears_that_the_disk_failed(tmp_path: Path) -> None:
    store = SqlStore(lambda: sqlite3.connect(tmp_path / "links.db"))
    (tmp_path / "links.db").unlink()
    (tmp_path / "links.db").mkdir()
    assert isinstance(_error_of_a_write(store), sqlite3.Error)
    store.close()


@pytest.mark.parametrize("fails", ["commit", "insert"])
def test_a_store_that_failed_does_not_keep_the_user_s_database_locked(tmp_path: Path, fails: str) -> None:
    path = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(path, timeout=0.1)) as database:
        database.execute("CREATE TABLE orders (number INTEGER)")
        database.executemany("INSERT INTO orders VALUES (?)", [(number,) for number in range(2_000)])
        database.commit()
        store = SqlStore(lambda: sqlite3.connect(path, timeout=0.1))
        if fails == "insert":
            database.execute(
                "CREATE TRIGGER no BEFORE INSERT ON acquit_deliveries BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
            database.commit()
        reading = database.execute("SELECT number FROM orders")
        reading.fetchone()  # where the journal is no WAL, a commit waits for readers
        assert isinstance(_error_of_a_write(store), sqlite3.Error)
        reading.close()
        with contextlib.closing(sqlite3.connect(path, timeout=0.1)) as other:
            other.execute("INSERT INTO orders VALUES (0)")
            other.commit()
        store.close()


def test_a_database_without_transactions_can_fail(tmp_path: Path) -> None:
    class Broken:
        def __init__(self) -> None:
            self._database = sqlite3.connect(tmp_path / "links.db")
            self.commit, self.close = self._database.commit, self._database.close

        def cursor(self) -> sqlite3.Cursor:
            if threading.current_thread().name == "acquit-deliveries":
                raise ZeroDivisionError
            return self._database.cursor()

    store = SqlStore(Broken, paramstyle="qmark")
    errors: list[BaseException | None] = []
    store.write([outcome(b"1", Accepted())], errors.append)
    store.close()
    assert isinstance(errors[0], ZeroDivisionError)


@pytest.mark.parametrize(
    ("table", "paramstyle", "error"),
    [
        ("a b", None, ConfigurationError),
        ("taken", None, sqlite3.OperationalError),
        ("fine", "none", ConfigurationError),
    ],
    ids=["no identifier", "not to be made", "unknown parameters"],
)
def test_a_store_that_cannot_begin_leaves_no_connection(
    tmp_path: Path, table: str, paramstyle: str | None, error: type[Exception]
) -> None:
    opened: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        opened.append(sqlite3.connect(tmp_path / "links.db"))
        return opened[-1]

    with contextlib.closing(sqlite3.connect(tmp_path / "links.db")) as database:
        database.execute("CREATE TABLE other (of INTEGER)")
        database.execute("CREATE INDEX taken ON other (of)")
    with pytest.raises(error, match="identifier|index named taken|paramstyle"):
        SqlStore(connect, table, paramstyle=paramstyle)
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.cursor()
    assert len(opened) == 1


@pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="Thread.start leaves a lock of threading itself taken there: no thread starts"
)
def test_an_interrupt_anywhere_in_the_first_write_leaves_a_store_that_writes(tmp_path: Path) -> None:
    made = [FileStore(tmp_path / "0")]

    def look() -> None:
        store = made[-1]
        write(store, StoreEntry(EntryKind.SEND, "out", b"1", b"x"))
        assert store.load("out").sends[b"1"] == b"x"
        store.close()
        made.append(FileStore(tmp_path / str(len(made))))

    def write_first() -> None:
        with contextlib.suppress(RuntimeError):  # of an Event of `threading`, in the place of the interrupt
            made[-1].write([StoreEntry(EntryKind.SEND, "out", b"0", b"x")])

    interrupted_at_each_call(write_first, look)
    made[-1].close()


def test_an_interrupt_anywhere_in_a_load_leaves_a_store_that_writes(tmp_path: Path) -> None:
    with FileStore(tmp_path / "links") as store:
        write(store, StoreEntry(EntryKind.SEND, "out", b"1", b"x"))
        interrupted_at_each_call(
            lambda: store.load("out"), lambda: write(store, StoreEntry(EntryKind.SEND, "out", b"1", b"x"))
        )

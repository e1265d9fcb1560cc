"""Stores of exactly-once links: what must outlive a connection, or the process, so that deliveries can be resumed.

Theory of operation. A link that resumes its deliveries (2.6.13) has little to remember, but must not lose it: of a
receiver the outcomes that it has decided and the broker has not confirmed, of a sender the messages whose outcome it
has not heard, and of both the identity of the terminus that the broker keeps for them. All of it is *entries*: a kind,
the link's name, a delivery-tag and a value; an entry without a value is forgotten. A store has two verbs: `load`
returns the entries of a link, once, before it is attached, and `write` changes entries and says when the change is
safe::

    receiver:  outcome decided ─▶ write OUTCOME ─ safe ─▶ told to the broker ─ settled ─▶ forget
    sender:    message handed in ─▶ write SEND ─ safe ─▶ transferred ─ accepted ─▶ forget ─ safe ─▶ settled

The order is what makes it exactly once: nothing is told that a crash of ours could undo, and the broker forgets a tag
only when we need no answer about it any more.

`MemoryStore` is for lost connections alone. `FileStore` and `SqliteStore` outlive the process. `SqlStore` lies in the
user's own database: `remember` writes an outcome in the transaction that the work itself is done in, so that both are
one commit. Stores other than in memory write on a thread of their own, many changes with one sync. Such a thread does
not survive a fork, and neither does a store that has one: a child opens its own.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, Final, Self
from zlib import crc32

from acquit.client.entries import (
    Done,
    EntryKind,
    LinkEntries,
    StoreEntry,
    apply_entry,
    copied,
    entries_of,
    forget,
)
from acquit.client.inbox import Cursor, DatabaseConnection, bind_statements
from acquit.client.locks import UserLock
from acquit.client.received import MessageCore
from acquit.errors import ConfigurationError
from acquit.forks import keep_here
from acquit.protocol.composite import encode_composite
from acquit.protocol.constants import ACCEPTED, Outcome

logger = logging.getLogger("acquit.client")


class _Forgetting:
    """A store that can be told that a terminus is no more."""

    def write(self, entries: Sequence[StoreEntry], done: Done | None = None) -> None:
        """Change entries."""
        raise NotImplementedError

    def load(self, link: str) -> LinkEntries:
        """Return the entries of a link."""
        raise NotImplementedError

    def forget_terminus(self, link: str, *, resend: bool) -> None:
        """Forget the terminus of a link that the broker has ended, whose sends are in doubt: `resend` says whether
        they are sent again, possibly twice, or dropped, possibly lost. Waits until that is safe; attach the link
        afterwards."""
        entries = [StoreEntry(EntryKind.IDENTITY, link, b"", None)]
        if not resend:
            entries += forget(EntryKind.SEND, link, self.load(link).sends)
        over = threading.Lock()
        over.acquire()
        failed: list[BaseException] = []

        def done(error: BaseException | None) -> None:
            failed.extend([error] if error is not None else [])
            over.release()

        self.write(entries, done)
        over.acquire()
        if failed:
            raise failed[0]


class MemoryStore(_Forgetting):
    """Remembers deliveries in memory: exactly once over lost connections, not over the end of the process.

    Each change is one step of a dict, so threads need no lock, on which a handler of a signal might sit.
    """

    durable = False

    def __init__(self) -> None:
        self._links: dict[str, LinkEntries] = {}

    def load(self, link: str) -> LinkEntries:
        """Return the entries of a link."""
        return copied(self._links.get(link, LinkEntries()))

    def write(self, entries: Sequence[StoreEntry], done: Done | None = None) -> None:
        """Change entries."""
        for entry in entries:
            apply_entry(self._links, entry)
        if done is not None:
            done(None)


def _closed() -> ConfigurationError:
    return ConfigurationError("the store of deliveries is closed: close its links, or their connection, before it")


class _Writing(_Forgetting):
    """A store that writes on a thread of its own: whatever has gathered meanwhile is one commit."""

    durable = True

    def __init__(self) -> None:
        self._changes: queue.SimpleQueue[tuple[Sequence[StoreEntry], Done | None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = UserLock()
        self._closed = False
        self._over = False
        """True once nothing takes changes any more."""
        self._failure: BaseException | None = None
        self._process: int | None = None
        """The process that it belongs to: where its thread is, or its file. None where it has neither yet."""

    @property
    def _forked(self) -> bool:
        """True in a forked child of the process that it belongs to: nothing is written there."""
        return self._process not in (None, os.getpid())

    def _check_process(self) -> None:
        if self._forked:
            raise ConfigurationError(
                "this store of deliveries was opened before the process was forked: open one in the child"
            )

    def write(self, entries: Sequence[StoreEntry], done: Done | None = None) -> None:
        """Change entries, in order; `done` is called on the store's thread."""
        self._check_process()
        if self._closed:
            raise _closed()
        if self._thread is None:
            self._start()
        # No lock: the thread may be interrupted by a handler of a signal here, and the loop thread has to write, too.
        self._changes.put((entries, done))
        if self._over:
            self._refuse_late()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                self._process = os.getpid()
                thread = threading.Thread(target=self._run, name="acquit-deliveries", daemon=True)
                thread.start()
                self._thread = thread  # once it runs: an interrupt before that would leave a store that writes nothing

    def _refuse_late(self) -> None:
        """Say of what was handed in as the store was closed, behind its end, that it is not written."""
        with contextlib.suppress(queue.Empty):
            while True:
                change = self._changes.get_nowait()
                if change is not None and change[1] is not None:
                    change[1](_closed())

    def _catch_up(self) -> None:
        """Wait until what was handed in before is safe, so that a link that is made anew knows all of it. Raises what
        the store failed of."""
        self._check_process()
        over = threading.Lock()
        over.acquire()
        with self._lock:
            if self._closed or self._thread is None:
                return
            self._changes.put(([], lambda error: over.release()))
        over.acquire()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Write what was handed in, and end. Close the links first. In a forked child of the process that the store
        belongs to: nothing."""
        if self._forked:
            return  # before the lock, which a thread of the parent may have had
        with self._lock:
            if self._closed:
                return
            self._closed = True
            thread = self._thread
            self._changes.put(None)
        if thread is not None:
            thread.join()
        self._over = True
        self._refuse_late()
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run(self) -> None:
        with self._lock:
            if self._thread is not threading.current_thread():
                return  # who started it was interrupted, and the next one starts another
        over = False
        while not over:
            gathered = [self._changes.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    gathered.append(self._changes.get_nowait())
            over = None in gathered
            changes = [change for change in gathered if change is not None]
            if changes:
                self._perform(changes)
        self._thread_ends()

    def _perform(self, changes: list[tuple[Sequence[StoreEntry], Done | None]]) -> None:
        if self._failure is None:
            try:
                if entries := [entry for change, _ in changes for entry in change]:
                    self._commit(entries)
            except BaseException as exc:  # noqa: BLE001 -- whoever waits must hear of it, whatever it is
                self._failure = exc  # what is written behind a gap would be worth nothing
        for _, done in changes:
            if done is not None:
                done(self._failure)

    def _commit(self, entries: list[StoreEntry]) -> None:
        """Make changes safe."""
        raise NotImplementedError

    def _thread_ends(self) -> None:
        """Let go of what belongs to the thread."""

    def _end(self) -> None:
        """Let go of everything else."""


_HEADER: Final = b"acquit deliveries 1\n"
_RECORD: Final = Struct("<IBBHHI")
"""CRC-32 of the rest, kind, whether it is forgotten, and the lengths of link, tag and value."""
_COMPACT_BYTES_MIN: Final = 16 << 20


class FileStore(_Writing):
    """Remembers deliveries in one file, which is synced before anything is told to the broker.

    The file is made if it is missing. Two processes cannot have it open: the second raises ConfigurationError, as does
    a file that is something else. A record that a crash has torn is cut off; nothing was told that it says. A forked
    child has none of it, and keeps nothing locked: there `write` and `load` raise ConfigurationError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self._path = Path(path)
        self._process = os.getpid()
        self._links: dict[str, LinkEntries] = {}
        self._file = self._open()
        self._written = self._compact_at = 0
        try:
            self._go_on_with(self._write_anew())
        except BaseException:
            self._file.close()
            raise

    def load(self, link: str) -> LinkEntries:
        """Return the entries of a link."""
        self._catch_up()
        with self._lock:
            return copied(self._links.get(link, LinkEntries()))

    def _open(self) -> BinaryIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = keep_here(open(self._path, "a+b"))  # noqa: SIM115 -- it lives as long as the store
        try:
            _lock_file(file, self._path)
            file.seek(0)
            data = file.read()
            if data and not _HEADER.startswith(data[: len(_HEADER)]):
                raise ConfigurationError(f"{self._path} is no store of deliveries")
            whole = len(_HEADER)
            for entry in _read_records(data):
                apply_entry(self._links, entry)
                whole += len(_record(entry))
            if whole < len(data):
                what = "are no whole records, and are cut off: a crash has torn them, or the file is damaged there"
                logger.warning("%s: its last %d bytes, from %d on, %s", self._path, len(data) - whole, whole, what)
        except BaseException:
            file.close()
            raise
        return file

    def _commit(self, entries: list[StoreEntry]) -> None:
        data = b"".join(map(_record, entries))
        descriptor = self._file.fileno()  # not by its buffer, which would write at the close what has failed here
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, self._written)  # who is told that it is not stored may do it once more
            raise
        with self._lock:
            for entry in entries:
                apply_entry(self._links, entry)
        self._written += len(data)
        if self._written > self._compact_at:
            try:
                fresh = self._write_anew()
            except OSError as exc:  # what was handed in is safe all the same
                logger.warning("%s grows on, for it could not be written anew: %s", self._path, exc)
                self._compact_at = 2 * self._written
            else:
                self._go_on_with(fresh)

    def _write_anew(self) -> BinaryIO:
        """Put a file that has what is not forgotten in the place of the present one, and return it."""
        fresh = self._path.with_name(self._path.name + ".new")
        file = keep_here(open(fresh, "w+b"))  # noqa: SIM115 -- it takes the place of the one before
        try:
            _lock_file(file, fresh)
            file.write(_HEADER)
            for link, entries in self._links.items():
                file.writelines(map(_record, entries_of(link, entries)))
            file.flush()
            os.fsync(file.fileno())
            os.replace(fresh, self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                file.close()
            raise
        return file

    def _go_on_with(self, file: BinaryIO) -> None:
        before, self._file = self._file, file
        before.close()
        self._written = file.tell()
        self._compact_at = max(_COMPACT_BYTES_MIN, 4 * self._written)
        _sync_folder(self._path.parent)

    def _end(self) -> None:
        _unlock_file(self._file)
        self._file.close()


class SqlStore(_Writing):
    """Remembers deliveries in a table of the user's own database, outcomes also in the user's own transaction.

    ::

        store = acquit.SqlStore(lambda: sqlite3.connect("orders.db"))
        receiver = session.receiver("orders", name="orders", exactly_once=store)
        ...
        with database:
            database.execute("INSERT INTO orders ...")
            store.remember(message, database.cursor())
        message.accept()

    `connect` opens a connection (PEP 249) to that database, which the store's thread uses for itself. The `table` is
    made if it is missing; with ``create=False`` nothing is done (`schema` says what to do instead). `paramstyle` is
    the driver's, where it cannot be found out.
    """

    def __init__(
        self,
        connect: Callable[[], DatabaseConnection],
        table: str = "acquit_deliveries",
        *,
        paramstyle: str | None = None,
        create: bool = True,
    ) -> None:
        super().__init__()
        self._connect = connect
        self._table = table
        self._connection: DatabaseConnection | None = None
        self._remembered: dict[tuple[str, bytes], StoreEntry] = {}
        """Outcomes that were written in transactions of the user's, and not told since."""
        first = connect()
        try:
            bind = bind_statements(first, table, paramstyle)
            self._delete = bind(f"DELETE FROM {table} WHERE link = ? AND kind = ? AND tag = ?")
            self._insert = bind(f"INSERT INTO {table} (link, kind, tag, value) VALUES (?, ?, ?, ?)")
            self._select = bind(f"SELECT kind, tag, value FROM {table} WHERE link = ? ORDER BY tag")
            if create:
                first.cursor().execute(self.schema)
                first.commit()
        finally:
            _close(first)

    @property
    def schema(self) -> str:
        """The statement that makes the table."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self._table} (link VARCHAR(255) NOT NULL, kind INTEGER NOT NULL, "
            "tag VARCHAR(64) NOT NULL, value TEXT NOT NULL, PRIMARY KEY (link, kind, tag))"
        )

    def load(self, link: str) -> LinkEntries:
        """Return the entries of a link."""
        self._catch_up()
        connection = self._connect()
        try:
            cursor = connection.cursor()
            cursor.execute(*self._select(link))
            links: dict[str, LinkEntries] = {}
            for kind, tag, value in cursor.fetchall():  # type: ignore[misc]  # sequences (PEP 249)
                entry = StoreEntry(EntryKind(kind), link, bytes.fromhex(tag), base64.b64decode(value))  # type: ignore[has-type]
                apply_entry(links, entry)
            return links.get(link, LinkEntries())
        finally:
            _close(connection)

    def remember(self, message: MessageCore, cursor: Cursor, outcome: Outcome = ACCEPTED) -> None:
        """Write the outcome of a message in the transaction of `cursor`; say it after the commit: ``message.accept()``.

        A crash between the two is made good when the link is attached again: the outcome is told, and the message does
        not come again. Raises ConfigurationError for a message of a receiver without this store.
        """
        receiver = message.receiver
        if receiver.spec.exactly_once is not self:
            raise ConfigurationError("remember takes a message of a receiver that has this store (exactly_once)")
        entry = StoreEntry(EntryKind.OUTCOME, receiver.spec.name, message.delivery_tag, encode_composite(outcome))
        self.write_within(cursor, entry)
        self._remembered[entry.link, entry.tag] = entry

    def write(self, entries: Sequence[StoreEntry], done: Done | None = None) -> None:
        """Change entries, in order; what `remember` has written is not written again."""
        known = self._remembered
        super().write([one for one in entries if known.pop((one.link, one.tag), None) != one], done)

    def _commit(self, entries: list[StoreEntry]) -> None:
        if not entries:
            return
        if self._connection is None:
            self._connection = self._connect()
        latest = {(one.link, int(one.kind), one.tag.hex()): one.value for one in entries}
        try:
            cursor = self._connection.cursor()
            _execute_many(cursor, [self._delete(*key) for key in latest])
            inserted = [self._insert(*key, _text(value)) for key, value in latest.items() if value is not None]
            _execute_many(cursor, inserted)
            self._connection.commit()
        except BaseException:
            _roll_back(self._connection)  # half a transaction would keep the user's own database locked
            raise

    def write_within(self, cursor: Cursor, entry: StoreEntry) -> None:
        """Write an entry in the transaction of `cursor`: for `remember` and `Sender.prepare`."""
        key = entry.link, int(entry.kind), entry.tag.hex()
        cursor.execute(*self._delete(*key))
        if entry.value is not None:
            cursor.execute(*self._insert(*key, _text(entry.value)))

    def _thread_ends(self) -> None:
        if self._connection is not None:
            _close(self._connection)


class SqliteStore(SqlStore):
    """Remembers deliveries in a SQLite database, which may be the user's own: see `SqlStore`.

    A database that is not there yet is made in WAL mode, in which a commit is one sync, as safe as the others. One that
    is there stays as it is.
    """

    def __init__(self, path: str | os.PathLike[str], table: str = "acquit_deliveries") -> None:
        connect = partial(sqlite3.connect, path, timeout=30.0)
        if not os.path.exists(path):
            with contextlib.closing(connect()) as database:
                database.execute("PRAGMA journal_mode = WAL")
        super().__init__(connect, table)


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _execute_many(cursor: Any, statements: Sequence[tuple[str, Any]]) -> None:
    """Run the same statement with each of these parameters."""
    if statements:
        cursor.executemany(statements[0][0], [parameters for _, parameters in statements])


# -- records of the file -----------------------------------------------------------------------------------------------


def _record(entry: StoreEntry) -> bytes:
    link, value = entry.link.encode(), entry.value or b""
    head = _RECORD.pack(0, entry.kind, entry.value is None, len(link), len(entry.tag), len(value))[4:]
    rest = b"".join((head, link, entry.tag, value))
    return crc32(rest).to_bytes(4, "little") + rest


def _read_records(data: bytes) -> Iterator[StoreEntry]:
    """Yield the records of a file, up to the first that is torn."""
    at = len(_HEADER)
    while at + _RECORD.size <= len(data):
        crc, kind, forgotten, link_bytes, tag_bytes, value_bytes = _RECORD.unpack_from(data, at)
        link_at = at + _RECORD.size
        tag_at, value_at = link_at + link_bytes, link_at + link_bytes + tag_bytes
        end = value_at + value_bytes
        if end > len(data) or crc32(data[at + 4 : end]) != crc:
            return
        value = None if forgotten else data[value_at:end]
        yield StoreEntry(EntryKind(kind), data[link_at:tag_at].decode(), data[tag_at:value_at], value)
        at = end


def _lock_file(file: BinaryIO, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: the file is locked by being open
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another may have written the file anew between the opening and this: then it has the one that is there now.
        here = os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except OSError as exc:
        raise ConfigurationError(f"{path} is in use by another store of deliveries") from exc
    if not here:
        raise ConfigurationError(f"{path} is in use by another store of deliveries")


def _unlock_file(file: BinaryIO) -> None:
    """Give the lock back, which a copy of the descriptor would keep, if a child has one all the same."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _roll_back(connection: object) -> None:
    rollback: Callable[[], object] | None = getattr(connection, "rollback", None)  # not every database has it (PEP 249)
    if rollback is not None:
        with contextlib.suppress(Exception):  # why it is rolled back is what is told
            rollback()


def _close(connection: object) -> None:
    close: Callable[[], object] | None = getattr(connection, "close", None)
    if close is not None:
        close()


__all__ = ["FileStore", "MemoryStore", "SqlStore", "SqliteStore"]

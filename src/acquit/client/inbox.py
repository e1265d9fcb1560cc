"""Duplicates, filtered by who receives: what was processed is remembered, and is not processed again.

Theory of operation. *At least once* is the best that a broker and a consumer can agree on by acknowledgements alone:
a consumer that has done its work and dies before it says so gets the message again. What makes it *effectively once*
is a consumer that knows what it has done. `identity` says by what a message is known again; here is where that is kept:

`Inbox`, in memory. It forgets with the process, so it filters what a lost connection brings again, and what is sent
again; a bounded window, by count and age.

`SqlInbox`, in the database that the work itself is written to, in the same transaction. Then there is no moment in
which the work is done and not remembered, or remembered and not done: a crash leaves both or neither. The order is
always the same::

    receive ─▶ begin ─▶ remember ─▶ NEW: work ─▶ commit ─▶ acknowledge
                              └───▶ DUPLICATE ─▶ rollback ─▶ acknowledge

A crash before the commit leaves nothing, and the message comes again, as it was never acknowledged. A crash after it
leaves all, the message comes again, and is a duplicate. The acknowledgement waits for the commit because it is what
lets the broker forget.

The table has a row for each message, whose primary key is all of its identity, the digest of the body included. So a
look by scope and name tells NEW (no row), DUPLICATE (a row with this body) and CHANGED (rows with other bodies only),
a CHANGED message that comes again is a DUPLICATE as well, and two consumers that remember one message at the same time
are told apart by the database: the second waits for the first, and is refused by the key when that commits.

What is pruned is forgotten: an old duplicate is NEW again. So the window must span the longest time between two
deliveries of one message, in which consumers may have been off: days, not minutes.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Final, Protocol, TypeAlias

from acquit.client.identity import Identity, identify
from acquit.client.locks import UserLock
from acquit.client.options import check_range
from acquit.client.received import MessageCore
from acquit.errors import ConfigurationError, InboxConflict

logger = logging.getLogger("acquit.client")

Identify: TypeAlias = Callable[..., "Identity | None"]
"""Function from a received message of either API to its identity."""

_COUNT_MAX: Final = 0x7FFF_FFFF


class InboxVerdict(IntEnum):
    """The verdict of an inbox on a message, true where the message is to be processed: ``if verdict: work()``."""

    DUPLICATE = 0
    """The message was here before: acknowledge it, and do nothing more."""
    NEW = 1
    """The message was not here before."""
    CHANGED = 2
    """The id of the message was here before with another body. The message is not dropped, because it may be another; a
    warning is logged, as a sender seems to use ids twice."""
    UNIDENTIFIED = 3
    """The message has neither a message id nor a sequence: nobody can tell whether it was here before."""

    def __str__(self) -> str:
        return self.name


class Inbox:
    """Remembers messages in memory, and tells those that come again.

    ::

        inbox = acquit.Inbox()
        with inbox.once(message) as first:
            if first:
                work(message)
        message.accept()

    The `window` latest messages are known (100,000; about half a KiB each), for at most `age_max_s` seconds (None: as
    long as the window lasts). `identify` replaces `acquit.identify`, where messages are known by something else.

    Methods may be called from any thread and from coroutines, and never wait; of several that ask about one message at
    once, exactly one is told that it is NEW. One inbox may serve many receivers.
    """

    def __init__(
        self,
        window: int = 100_000,
        *,
        age_max_s: float | None = None,
        identify: Identify = identify,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_range("window", window, 1, _COUNT_MAX)
        _check_age(age_max_s)
        self._window = window
        self._age_max_s = age_max_s
        self._identify = identify
        self._clock = clock
        self._lock = UserLock()
        self._known: OrderedDict[Identity, float] = OrderedDict()
        self._bodies: dict[tuple[str, str], int] = {}
        self._under_way: dict[Identity, MessageCore] = {}
        """Deliveries that are worked on in a block of `once`."""
        self._duplicates = 0

    @property
    def duplicates(self) -> int:
        """Number of duplicates that there were so far."""
        return self._duplicates

    def __len__(self) -> int:
        """Return the number of messages that are known."""
        return len(self._known)

    def remember(self, message: MessageCore) -> InboxVerdict:
        """Tell whether the message was here before; it is known from now on.

        Raises InboxConflict where a block of `once` works on an earlier delivery of the same message: nobody can tell
        yet whether that will be done, so release this one, and it comes again. Raises DecodeError for a message that
        cannot be read: reject it.
        """
        return self._remember(message, self._identify(message), works=False)

    def _remember(self, message: MessageCore, identity: Identity | None, *, works: bool) -> InboxVerdict:
        if identity is None:
            return InboxVerdict.UNIDENTIFIED
        with self._lock:
            now = self._clock()
            self._prune(now)
            if identity in self._known:
                under_way = self._under_way.get(identity)
                if under_way is not None and _may_be_one(under_way, message):
                    raise InboxConflict(
                        f"{identity.name} of {identity.scope} is worked on, as an earlier delivery of one message: "
                        "release this one, and it comes again"
                    )
                self._duplicates += 1
                return InboxVerdict.DUPLICATE
            if works:
                self._under_way[identity] = message
            self._known[identity] = now
            name = (identity.scope, identity.name)
            self._bodies[name] = others = self._bodies.get(name, 0) + 1
            if len(self._known) > self._window:
                self._drop(next(iter(self._known)))
        return _new_or_changed(identity, changed=others > 1)

    def forget(self, message: MessageCore) -> None:
        """The message was not processed after all: when it comes again it is NEW."""
        identity = self._identify(message)
        with self._lock:
            if identity is not None and identity in self._known:
                self._drop(identity)

    @contextmanager
    def once(self, message: MessageCore) -> Iterator[InboxVerdict]:
        """A block for the work on a message, which gets the verdict of `remember`, and is to work unless that is
        DUPLICATE. When the block raises, a message that was not a duplicate is forgotten. Raises as `remember`."""
        identity = self._identify(message)
        verdict = self._remember(message, identity, works=True)
        try:
            yield verdict
        except BaseException:
            if verdict:
                self._end_work(message, identity, done=False)
            raise
        if verdict:
            self._end_work(message, identity, done=True)

    def _end_work(self, message: MessageCore, identity: Identity | None, *, done: bool) -> None:
        with self._lock:
            if identity is not None and self._under_way.get(identity) is message:  # else it had left the window
                if done:
                    del self._under_way[identity]
                else:
                    self._drop(identity)

    def _prune(self, now: float) -> None:
        if self._age_max_s is None:
            return
        while self._known:
            oldest, at = next(iter(self._known.items()))
            if now - at <= self._age_max_s:
                return
            self._drop(oldest)

    def _drop(self, identity: Identity) -> None:
        del self._known[identity]
        self._under_way.pop(identity, None)
        name = (identity.scope, identity.name)
        left = self._bodies[name] - 1
        if left:
            self._bodies[name] = left
        else:
            del self._bodies[name]


class Cursor(Protocol):
    """The part of a cursor that is needed here (PEP 249)."""

    @property
    def rowcount(self) -> int:
        """Number of rows that the last statement changed."""

    def execute(self, operation: str, parameters: Any = ..., /) -> object:
        """Run a statement."""

    def fetchall(self) -> Sequence[object]:
        """The rows of the last one."""


class DatabaseConnection(Protocol):
    """The part of a connection that is needed here (PEP 249)."""

    def cursor(self) -> Cursor:
        """A new cursor."""

    def commit(self) -> object:
        """Commit."""


class SqlInbox:
    """Remembers messages in a table of the user's own database, in the user's own transaction.

    ::

        inbox = acquit.SqlInbox(database)
        ...
        if inbox.remember(message, cursor):
            cursor.execute("INSERT INTO orders ...")
        database.commit()
        message.accept()

    For SQLite and every database with a DB-API 2.0 driver (PEP 249). The `table` is made if it is missing, on
    `connection`, with a commit; with ``create=False`` nothing is done there (`schema` says what to do instead), and the
    connection is only looked at for its `paramstyle`, where that is not given.

    Rows older than `age_max_s` (30 days) and beyond the `rows_max` latest (10 million) are deleted by one `remember` in
    `prune_every` (1,000; 0: never, see `prune`). `identify` replaces `acquit.identify`. `clock` gives the seconds since
    the epoch.

    `remember` and `prune` use nothing but the cursor that they are given, so one SqlInbox may be used from several
    threads, each with a connection of its own. Raises ConfigurationError for a table's name that is no identifier, and
    for a paramstyle that there is not, or that cannot be found out.
    """

    def __init__(
        self,
        connection: DatabaseConnection,
        table: str = "acquit_inbox",
        *,
        paramstyle: str | None = None,
        create: bool = True,
        age_max_s: float | None = 30 * 86_400.0,
        rows_max: int | None = 10_000_000,
        prune_every: int = 1_000,
        identify: Identify = identify,
        clock: Callable[[], float] = time.time,
    ) -> None:
        bind = bind_statements(connection, table, paramstyle)
        _check_age(age_max_s)
        if rows_max is not None:
            check_range("rows_max", rows_max, 1, _COUNT_MAX)
        check_range("prune_every", prune_every, 0, _COUNT_MAX)
        self._table = table
        self._age_max_s = age_max_s
        self._rows_max = rows_max
        self._prune_every = prune_every
        self._identify = identify
        self._clock = clock
        self._new = 0
        self._look = bind(f"SELECT digest FROM {table} WHERE scope = ? AND name = ?")
        self._insert = bind(f"INSERT INTO {table} (scope, name, digest, remembered_ms) VALUES (?, ?, ?, ?)")
        self._prune_age = bind(f"DELETE FROM {table} WHERE remembered_ms < ?")
        self._nth = bind(f"SELECT remembered_ms FROM {table} ORDER BY remembered_ms DESC LIMIT 1 OFFSET ?")
        if create:
            cursor = connection.cursor()
            for statement in self.schema:
                cursor.execute(statement)
            connection.commit()

    @property
    def schema(self) -> tuple[str, str]:
        """The statements that make the table and its index. They are for SQLite and PostgreSQL; for others
        make a table with these columns and this key by hand, and pass ``create=False``."""
        table = self._table
        columns = (
            "scope VARCHAR(255) NOT NULL, name VARCHAR(255) NOT NULL, digest VARCHAR(32) NOT NULL, "
            "remembered_ms BIGINT NOT NULL"
        )
        return (
            f"CREATE TABLE IF NOT EXISTS {table} ({columns}, PRIMARY KEY (scope, name, digest))",
            f"CREATE INDEX IF NOT EXISTS {table.replace('.', '_')}_by_age ON {table} (remembered_ms)",
        )

    def remember(self, message: MessageCore, cursor: Cursor) -> InboxVerdict:
        """Tell whether the message was here before, and write that it was, in the transaction of `cursor`.

        Nothing is committed: what was remembered holds when the transaction does. Raises InboxConflict where another
        transaction that had not ended when we looked has written the same message and committed: roll back and release
        the message, and it is a DUPLICATE when it comes again. (Drivers that have no IntegrityError for that, such as
        pg8000, raise their own; do the same.) Raises DecodeError for a message that cannot be read, ConfigurationError
        for what is no cursor, and for a sqlite3 connection that commits each statement by itself, and what the driver
        raises; the transaction is as the driver leaves it then.
        """
        if not hasattr(cursor, "fetchall"):
            raise ConfigurationError(
                f"remember takes the cursor that the work is done with, got {cursor!r}: connection.cursor() makes one"
            )
        identity = self._identify(message)
        if identity is None:
            return InboxVerdict.UNIDENTIFIED
        statement, parameters = self._look(identity.scope, identity.name)
        cursor.execute(statement, parameters)
        digests = [str(row[0]) for row in cursor.fetchall()]  # type: ignore[index]  # a sequence (PEP 249)
        if identity.digest in digests:
            return InboxVerdict.DUPLICATE
        _check_transaction(cursor)
        now_ms = int(self._clock() * 1000)
        statement, parameters = self._insert(identity.scope, identity.name, identity.digest, now_ms)
        try:
            cursor.execute(statement, parameters)
        except Exception as exc:
            if any(kind.__name__ == "IntegrityError" for kind in type(exc).__mro__):
                raise InboxConflict(
                    f"{identity.name} of {identity.scope} was remembered in {self._table} by another transaction at "
                    "the same time: roll back and release the message"
                ) from exc
            raise
        self._new += 1  # of several threads one may go missing, and the table is pruned a little later
        if self._prune_every and self._new % self._prune_every == 0:
            self.prune(cursor)
        return _new_or_changed(identity, changed=bool(digests))

    def prune(self, cursor: Cursor) -> int:
        """Delete the rows that are too old or too many, in the transaction of `cursor`; returns how many.

        The limit by count needs a database that knows ``LIMIT ... OFFSET`` (SQLite, PostgreSQL, MySQL and their kin);
        for others pass ``rows_max=None``. Rows of one millisecond go together.
        """
        deleted = 0
        if self._age_max_s is not None:
            deleted += self._delete_before(cursor, int((self._clock() - self._age_max_s) * 1000))
        if self._rows_max is not None:
            cursor.execute(*self._nth(self._rows_max))
            rows = cursor.fetchall()
            if rows:
                deleted += self._delete_before(cursor, int(rows[0][0]) + 1)  # type: ignore[index]
        return deleted

    def _delete_before(self, cursor: Cursor, remembered_ms: int) -> int:
        cursor.execute(*self._prune_age(remembered_ms))
        return max(cursor.rowcount, 0)  # -1: the driver cannot tell (PEP 249)


def _may_be_one(earlier: MessageCore, later: MessageCore) -> bool:
    """Return False if two deliveries are certainly of two postings, each of which comes again if it is not accepted.
    Of one posting the later is the only one that does: the earlier was lost with its connection or its lock."""
    sequences = earlier.sequence, later.sequence
    return None in sequences or sequences[0] == sequences[1]


def _new_or_changed(identity: Identity, *, changed: bool) -> InboxVerdict:
    if not changed:
        return InboxVerdict.NEW
    logger.warning("%s of %s came again with another body: its sender uses ids twice", identity.name, identity.scope)
    return InboxVerdict.CHANGED


def _check_age(age_max_s: float | None) -> None:
    if age_max_s is not None and not age_max_s > 0:
        raise ConfigurationError(f"age_max_s must be a number of seconds above 0, or None, got {age_max_s!r}")


def _check_transaction(cursor: Cursor) -> None:
    """Raise ConfigurationError where each statement commits by itself: a crash after it would look like work done. Only
    sqlite3 is asked: with other drivers autocommit is the user's to avoid, and some warn who looks at a connection."""
    sqlite3 = sys.modules.get("sqlite3")
    if sqlite3 is None or not isinstance(cursor, sqlite3.Cursor):
        return
    connection = cursor.connection
    if not connection.in_transaction and (
        connection.isolation_level is None or getattr(connection, "autocommit", False) is True
    ):
        raise ConfigurationError(
            "remember must be part of a transaction, but this sqlite3 connection is in autocommit mode and none was "
            "begun: execute BEGIN first, or connect without isolation_level=None"
        )


# -- the five ways to mark a parameter (PEP 249) ----------------------------------------------------------------------

_NAMES: Final = ("p1", "p2", "p3", "p4")
_MARKS: Final[dict[str, Callable[[int], str]]] = {
    "qmark": lambda n: "?",
    "numeric": lambda n: f":{n + 1}",
    "named": lambda n: f":{_NAMES[n]}",
    "format": lambda n: "%s",
    "pyformat": lambda n: f"%({_NAMES[n]})s",
}
_Bound: TypeAlias = Callable[..., "tuple[str, object]"]


def bind_statements(connection: DatabaseConnection, table: str, paramstyle: str | None) -> Callable[[str], _Bound]:
    """Return what makes of a statement with question marks a function of its parameters, for a driver and a table.

    Raises ConfigurationError for a table's name that is no identifier, and for a paramstyle that there is not, or that
    cannot be found out.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", table, re.ASCII):
        raise ConfigurationError(f"table must be an SQL identifier, such as acquit_inbox, got {table!r}")
    return _binder(paramstyle if paramstyle is not None else _paramstyle_of(connection))


def _binder(paramstyle: str) -> Callable[[str], _Bound]:
    """Makes of a statement with question marks a function of its parameters, which gives what `execute` takes."""
    mark = _MARKS.get(paramstyle)
    if mark is None:
        raise ConfigurationError(f"paramstyle must be one of {', '.join(_MARKS)} (PEP 249), got {paramstyle!r}")

    def bind(statement: str) -> _Bound:
        first, *rest = statement.split("?")
        written = first + "".join(mark(n) + part for n, part in enumerate(rest))
        if paramstyle in ("named", "pyformat"):
            return lambda *values: (written, dict(zip(_NAMES, values, strict=False)))
        return lambda *values: (written, values)

    return bind


def _paramstyle_of(connection: object) -> str:
    """Return the paramstyle that the module of the connection's class, or a package above it, says."""
    for kind in type(connection).__mro__:
        module = kind.__module__
        while module:
            style = getattr(sys.modules.get(module), "paramstyle", None)
            if isinstance(style, str):
                return style
            module = module.rpartition(".")[0]
    raise ConfigurationError(
        f"the driver of a {type(connection).__name__} does not say its paramstyle: pass one of {', '.join(_MARKS)}"
    )

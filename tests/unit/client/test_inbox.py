from __future__ import annotations

import logging
import sqlite3
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from acquit import Message
from acquit.client.identity import Identity
from acquit.client.inbox import Inbox, InboxVerdict, SqlInbox
from acquit.client.received import MessageCore
from acquit.errors import ConfigurationError, InboxConflict
from acquit.protocol.extensions import SEQUENCE
from acquit.protocol.types import ULong
from tests.support.server import Rig, Server

NEW, DUPLICATE, CHANGED, UNIDENTIFIED = (
    InboxVerdict.NEW,
    InboxVerdict.DUPLICATE,
    InboxVerdict.CHANGED,
    InboxVerdict.UNIDENTIFIED,
)


def received(*messages: Message) -> list[MessageCore]:
    rig = Rig(Server())
    receiver = rig.receiver(rig.session("individual"), prefetch=1_000)
    rig.server.offer("q", *messages)
    rig.run()
    return rig.take(receiver, len(messages))


def numbered(count: int) -> list[MessageCore]:
    return received(*(Message(f"body {n}", message_id=f"m-{n}") for n in range(count)))


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


# -- in memory ---------------------------------------------------------------------------------------------------------


def test_a_message_is_new_once() -> None:
    inbox = Inbox()
    one, again, other = received(*(Message("x", message_id=i) for i in ("a", "a", "b")))
    assert [inbox.remember(m) for m in (one, again, other, one)] == [NEW, DUPLICATE, NEW, DUPLICATE]
    assert (len(inbox), inbox.duplicates) == (2, 2)


def test_the_same_id_with_another_body_passes_flagged_and_comes_again_as_a_duplicate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inbox = Inbox()
    one, other, other_again = received(*(Message(body, message_id="a") for body in ("x", "y", "y")))
    with caplog.at_level(logging.WARNING, "acquit.client"):
        assert [inbox.remember(m) for m in (one, other, other_again, one)] == [NEW, CHANGED, DUPLICATE, DUPLICATE]
    assert [record.getMessage() for record in caplog.records] == [
        "string:a of q came again with another body: its sender uses ids twice"
    ]


def test_messages_without_an_id_pass() -> None:
    inbox = Inbox()
    one, other = received(Message("x"), Message("x"))
    assert [inbox.remember(one), inbox.remember(other)] == [UNIDENTIFIED, UNIDENTIFIED]
    assert len(inbox) == 0
    inbox.forget(one)


def test_the_verdict_is_true_where_there_is_work_to_do() -> None:
    assert [bool(verdict) for verdict in (NEW, CHANGED, UNIDENTIFIED, DUPLICATE)] == [True, True, True, False]


def test_the_window_is_bounded_by_count() -> None:
    inbox = Inbox(window=3)
    messages = numbered(5)
    assert [inbox.remember(m) for m in messages] == [NEW] * 5
    assert len(inbox) == 3
    assert [inbox.remember(m) for m in messages[2:]] == [DUPLICATE] * 3
    assert inbox.remember(messages[0]) is NEW


def test_the_window_is_bounded_by_age() -> None:
    clock = Clock()
    inbox = Inbox(age_max_s=10, clock=clock)
    first, second, third = numbered(3)
    inbox.remember(first)
    clock.now_s += 6
    inbox.remember(second)
    clock.now_s += 6
    assert inbox.remember(second) is DUPLICATE
    assert inbox.remember(third) is NEW
    assert len(inbox) == 2
    assert inbox.remember(first) is NEW


def test_forgetting_one_body_leaves_the_other_known() -> None:
    inbox = Inbox()
    one, other, third = received(*(Message(body, message_id="a") for body in ("x", "y", "z")))
    assert [inbox.remember(one), inbox.remember(other)] == [NEW, CHANGED]
    inbox.forget(one)
    inbox.forget(one)
    assert [inbox.remember(other), inbox.remember(third)] == [DUPLICATE, CHANGED]
    inbox.forget(other)
    inbox.forget(third)
    assert inbox.remember(one) is NEW


def test_work_that_failed_is_not_remembered() -> None:
    inbox = Inbox()
    (message,) = numbered(1)

    def fail() -> None:
        with inbox.once(message) as verdict:
            told.append(verdict)
            raise ZeroDivisionError

    told: list[InboxVerdict] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    with inbox.once(message) as first:
        assert first is NEW
    with inbox.once(message) as first:
        assert not first
    # A block that fails over a duplicate does not make it new: the work of the first was done.
    with pytest.raises(ZeroDivisionError):
        fail()
    assert told == [NEW, DUPLICATE]
    assert inbox.remember(message) is DUPLICATE


def stamped(*sequences: int | None) -> list[MessageCore]:
    """Deliveries of one message id and one body, with these sequences."""
    annotations = [{} if number is None else {SEQUENCE: ULong(number)} for number in sequences]
    return received(*(Message("x", message_id="a", annotations=one) for one in annotations))


@pytest.mark.parametrize("sequences", [(1, 1), (None, None), (None, 1)])
def test_a_message_that_is_worked_on_is_no_duplicate_of_what_may_fail(sequences: tuple[int | None, int | None]) -> None:
    """It was delivered again, as the connection of the first was lost: acknowledged, it would never come again."""
    inbox = Inbox()
    first, again = stamped(*sequences)

    def work_in_vain() -> None:
        with inbox.once(first) as verdict:
            assert verdict is NEW
            for ask in (inbox.remember, lambda message: inbox.once(message).__enter__()):
                with pytest.raises(InboxConflict, match="string:a of q is worked on, as an earlier delivery"):
                    ask(again)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work_in_vain()
    with inbox.once(again) as verdict:
        assert verdict is NEW
    assert inbox.remember(first) is DUPLICATE  # the work was done
    assert inbox.duplicates == 1


def test_a_message_that_was_sent_twice_is_a_duplicate_while_it_is_worked_on() -> None:
    """Each of the two comes again where its own delivery goes back."""
    inbox = Inbox()
    first, other = stamped(1, 2)
    with inbox.once(first) as verdict:
        assert (verdict, inbox.remember(other)) == (NEW, DUPLICATE)


def test_what_left_the_window_while_it_was_worked_on_is_another_s() -> None:
    inbox = Inbox(window=1)
    first, again = stamped(1, 1)
    (other,) = numbered(1)

    def work_in_vain() -> None:
        with inbox.once(first):
            assert [inbox.remember(other), inbox.remember(again)] == [NEW, NEW]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work_in_vain()
    assert inbox.remember(again) is DUPLICATE


def test_one_of_many_threads_is_told_that_a_message_is_new() -> None:
    inbox = Inbox()
    messages = numbered(200)
    told: list[InboxVerdict] = []
    barrier = threading.Barrier(4)

    def ask() -> None:
        barrier.wait(10)
        told.extend([inbox.remember(message) for message in messages])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (told.count(NEW), told.count(DUPLICATE)) == (200, 600)


def test_messages_can_be_known_by_something_else() -> None:
    one, other = received(Message("x", message_id="a", subject="s"), Message("y", message_id="b", subject="s"))
    inbox = Inbox(identify=lambda message: Identity("subjects", str(message.subject), ""))
    assert [inbox.remember(one), inbox.remember(other)] == [NEW, DUPLICATE]


@pytest.mark.parametrize("wrong", [{"window": 0}, {"window": True}, {"age_max_s": 0}, {"age_max_s": -1.0}])
def test_bounds_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Inbox(**wrong)  # type: ignore[arg-type]


# -- in a database -----------------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "work.db", timeout=0)
    yield connection
    connection.close()


def rows(connection: sqlite3.Connection, table: str = "acquit_inbox") -> list[str]:
    return [name for (name,) in connection.execute(f"SELECT name FROM {table} ORDER BY rowid")]


def test_a_message_is_new_once_in_the_database(database: sqlite3.Connection) -> None:
    inbox = SqlInbox(database)
    cursor = database.cursor()
    one, again, changed, changed_again, unnamed = received(
        *(Message(body, message_id=i) for body, i in [("x", "a"), ("x", "a"), ("y", "a"), ("y", "a"), ("x", None)])
    )
    verdicts = [inbox.remember(m, cursor) for m in (one, again, changed, changed_again, one, unnamed)]
    assert verdicts == [NEW, DUPLICATE, CHANGED, DUPLICATE, DUPLICATE, UNIDENTIFIED]
    database.commit()
    assert rows(database) == ["string:a", "string:a"]


def test_what_is_rolled_back_is_not_remembered(database: sqlite3.Connection, tmp_path: Path) -> None:
    inbox = SqlInbox(database)
    (message,) = numbered(1)
    assert inbox.remember(message, database.cursor()) is NEW
    database.rollback()
    assert inbox.remember(message, database.cursor()) is NEW
    database.commit()
    database.rollback()
    # And a process that starts anew finds it there.
    other = sqlite3.connect(tmp_path / "work.db")
    assert SqlInbox(other).remember(message, other.cursor()) is DUPLICATE
    other.close()


def test_two_transactions_that_remember_one_message_at_once_are_told_apart(tmp_path: Path) -> None:
    """The second looks before the first commits, and writes after: the key of the table refuses it."""
    first, second = (sqlite3.connect(tmp_path / "work.db") for _ in range(2))
    inbox = SqlInbox(first)
    (message,) = numbered(1)

    class Overtaken:
        """A cursor between whose look and whose insert another consumer commits."""

        def __init__(self) -> None:
            self._cursor = second.cursor()
            self.rowcount = -1

        def execute(self, operation: str, parameters: object = ()) -> object:
            if operation.startswith("INSERT"):
                assert inbox.remember(message, first.cursor()) is NEW
                first.commit()
            return self._cursor.execute(operation, parameters)  # type: ignore[arg-type]

        def fetchall(self) -> list[object]:
            return self._cursor.fetchall()

    with pytest.raises(InboxConflict, match=r"string:m-0 of q was remembered in acquit_inbox by another transaction"):
        inbox.remember(message, Overtaken())
    second.rollback()
    assert inbox.remember(message, second.cursor()) is DUPLICATE
    first.close()
    second.close()


def test_other_errors_of_the_driver_are_its_own(database: sqlite3.Connection) -> None:
    inbox = SqlInbox(database, create=False)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        inbox.remember(numbered(1)[0], database.cursor())


def test_a_connection_is_no_cursor(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "work.db")) as connection:
        inbox = SqlInbox(connection)
        with pytest.raises(ConfigurationError, match=r"takes the cursor .* connection.cursor\(\) makes one"):
            inbox.remember(numbered(1)[0], connection)  # type: ignore[arg-type]


def test_autocommit_is_refused_where_it_can_be_seen(tmp_path: Path) -> None:
    """Remembered, and committed at once: a crash before the work would lose the message."""
    connection = sqlite3.connect(tmp_path / "work.db", isolation_level=None)
    inbox = SqlInbox(connection)
    (message,) = numbered(1)
    cursor = connection.cursor()
    with pytest.raises(ConfigurationError, match="BEGIN"):
        inbox.remember(message, cursor)
    assert rows(connection) == []
    cursor.execute("BEGIN")
    assert inbox.remember(message, cursor) is NEW
    cursor.execute("ROLLBACK")
    assert rows(connection) == []
    connection.close()


def test_rows_are_pruned_by_age(database: sqlite3.Connection) -> None:
    clock = Clock()
    inbox = SqlInbox(database, age_max_s=60, prune_every=2, clock=clock)
    cursor = database.cursor()
    messages = numbered(4)
    inbox.remember(messages[0], cursor)
    clock.now_s += 61
    inbox.remember(messages[1], cursor)  # the second: prunes the first
    assert rows(database) == ["string:m-1"]
    clock.now_s += 30
    inbox.remember(messages[2], cursor)
    clock.now_s += 31
    assert inbox.remember(messages[1], cursor) is DUPLICATE  # too old, and still there
    inbox.remember(messages[3], cursor)
    assert rows(database) == ["string:m-2", "string:m-3"]
    database.rollback()  # pruned in the transaction, too
    assert rows(database) == []


def test_rows_are_pruned_by_count(database: sqlite3.Connection) -> None:
    clock = Clock()
    inbox = SqlInbox(database, rows_max=3, prune_every=0, clock=clock)
    cursor = database.cursor()
    for message in numbered(10):
        inbox.remember(message, cursor)
        clock.now_s += 1
    assert len(rows(database)) == 10
    assert inbox.prune(cursor) == 7
    assert rows(database) == ["string:m-7", "string:m-8", "string:m-9"]
    assert inbox.prune(cursor) == 0


def test_a_driver_that_cannot_count_prunes_all_the_same(database: sqlite3.Connection) -> None:
    clock = Clock()
    inbox = SqlInbox(database, age_max_s=1, rows_max=None, prune_every=0, clock=clock)

    class Uncounted:
        rowcount = -1

        def __init__(self) -> None:
            self._cursor = database.cursor()
            self.execute = self._cursor.execute
            self.fetchall = self._cursor.fetchall

    cursor = Uncounted()
    inbox.remember(numbered(1)[0], cursor)
    clock.now_s += 2
    assert inbox.prune(cursor) == 0
    assert rows(database) == []


def before_3_12(style: str) -> object:
    """A case for the Pythons whose sqlite3 takes a sequence for numbered parameters, as PEP 249 says: 3.12 warns."""
    return pytest.param(
        style, marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="sqlite3 warns, or refuses")
    )


@pytest.mark.parametrize("style", ["qmark", before_3_12("numeric"), "named"])
def test_the_parameter_styles_that_sqlite_knows_work(database: sqlite3.Connection, style: str) -> None:
    inbox = SqlInbox(database, "seen", paramstyle=style, prune_every=1)
    cursor = database.cursor()
    one, again = received(Message("x", message_id="a"), Message("x", message_id="a"))
    assert [inbox.remember(one, cursor), inbox.remember(again, cursor)] == [NEW, DUPLICATE]
    assert rows(database, "seen") == ["string:a"]


@pytest.mark.parametrize(
    ("style", "look", "parameters"),
    [
        ("format", "SELECT digest FROM acquit_inbox WHERE scope = %s AND name = %s", ("q", "string:m-0")),
        ("numeric", "SELECT digest FROM acquit_inbox WHERE scope = :1 AND name = :2", ("q", "string:m-0")),
        (
            "pyformat",
            "SELECT digest FROM acquit_inbox WHERE scope = %(p1)s AND name = %(p2)s",
            {"p1": "q", "p2": "string:m-0"},
        ),
    ],
)
def test_the_others_are_written_as_their_drivers_take_them(style: str, look: str, parameters: object) -> None:
    said: list[tuple[str, object]] = []

    class Recording:
        rowcount = 1

        def execute(self, operation: str, parameters: object = ()) -> None:
            said.append((operation, parameters))

        def fetchall(self) -> list[tuple[str]]:
            return []

    class Connection:
        def cursor(self) -> Recording:
            return Recording()

        def commit(self) -> None:
            said.append(("COMMIT", ()))

    inbox = SqlInbox(Connection(), paramstyle=style)
    assert [statement.split(" (")[0] for statement, _ in said] == [
        "CREATE TABLE IF NOT EXISTS acquit_inbox",
        "CREATE INDEX IF NOT EXISTS acquit_inbox_by_age ON acquit_inbox",
        "COMMIT",
    ]
    said.clear()
    inbox.remember(numbered(1)[0], Recording())
    assert said[0] == (look, parameters)
    assert len(said[1][1]) == 4  # type: ignore[arg-type]


def test_the_parameter_style_is_the_driver_s(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = types.ModuleType("somedriver")
    driver.paramstyle = "pyformat"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "somedriver", driver)

    class Connection:
        __module__ = "somedriver.implementation"

        def cursor(self) -> None: ...

        def commit(self) -> None: ...

    assert "%(p1)s" in SqlInbox(Connection(), create=False)._look("s", "n")[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"table": "inbox; DROP TABLE orders"}, "SQL identifier"),
        ({"table": ""}, "SQL identifier"),
        ({"paramstyle": "dollar"}, "paramstyle must be one of qmark, numeric, named, format, pyformat"),
        ({"age_max_s": 0}, "age_max_s"),
        ({"rows_max": 0}, "rows_max"),
        ({"prune_every": -1}, "prune_every"),
    ],
)
def test_what_makes_no_sense_is_refused(
    database: sqlite3.Connection, arguments: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        SqlInbox(database, **arguments)  # type: ignore[arg-type]


def test_a_connection_whose_driver_says_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="pass one of qmark"):
        SqlInbox(object())  # type: ignore[arg-type]

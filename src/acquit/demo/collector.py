"""The end of the line without Spark: fill a SQLite table from the forward queue, one row a file.

The key of the table is the identity of the message. A batch is inserted and committed first, and acknowledged after
(mode CLIENT): a crash between the two brings the batch again, and the key recognises it. A copy that is already there
is set aside and counted; one with the same identity and other content is not a copy, and is kept beside, flagged, for
the balance to complain about.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import acquit
from acquit import AckMode
from acquit.demo.messages import INGEST, FileFacts, read
from acquit.demo.roles import keep_working, obey_parent, report
from acquit.errors import AcquitError

BATCH = 200
PREFETCH = 400
IDLE_S = 0.5

SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    identity TEXT NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL, mtime_ms INTEGER NOT NULL,
    sha256 TEXT NOT NULL, head BLOB NOT NULL, PRIMARY KEY (identity, sha256, head)
) WITHOUT ROWID
"""
INSERT = "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"


def run(table: Path, endpoint: Path, *, name: str) -> None:
    """Drain the forward queue into `table` until nothing came for `IDLE_S`."""
    obey_parent()
    with closing(sqlite3.connect(table)) as database:
        database.execute(SCHEMA)

        def work(connection: acquit.Connection) -> None:
            session = connection.session(AckMode.CLIENT)
            receiver = session.receiver(INGEST, prefetch=PREFETCH)
            while batch := _take(receiver):
                new = store(database, [read(message) for message in batch])
                session.acknowledge()
                report(stored=new, set_aside=len(batch) - new)

        def lost(why: AcquitError) -> None:
            report(lost=str(why))

        keep_working(endpoint, container_id=name, work=work, lost=lost)
    report(finished=True)


def _take(receiver: acquit.Receiver) -> list[acquit.ReceivedMessage]:
    batch: list[acquit.ReceivedMessage] = []
    while len(batch) < BATCH:
        message = receiver.receive(timeout=0 if batch else IDLE_S)
        if message is None:
            break
        batch.append(message)
    return batch


def store(database: sqlite3.Connection, rows: Sequence[FileFacts]) -> int:
    """Insert the rows that are not there yet, in one transaction, and return how many were new."""
    before = database.total_changes
    with database:
        database.executemany(
            INSERT, [(row.identity, row.path, row.size, row.mtime_ms, row.sha256, row.head) for row in rows]
        )
    return database.total_changes - before


def rows(table: Path) -> list[tuple[str, str]]:
    """(path, sha256) of every row of the table, doubles included."""
    with closing(sqlite3.connect(table)) as database:
        return [(str(path), str(sha256)) for path, sha256 in database.execute("SELECT path, sha256 FROM files")]

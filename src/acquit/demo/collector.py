"""The end of the line without Spark: fill a SQLite table from the forward queue, one row a file.

The key of the table is the identity of the message. A batch is inserted and committed first, and acknowledged after
(mode CLIENT): a crash between the two brings the batch again, and the key recognises it. One with the same identity and
other content is not a copy, and is kept beside, for the balance to complain about.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import astuple
from pathlib import Path

from acquit import AckMode
from acquit.demo.messages import INGEST, read
from acquit.demo.roles import connect, report

BATCH = 200
PREFETCH = 400
IDLE_S = 0.5
SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    identity TEXT NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL, mtime_ms INTEGER NOT NULL,
    sha256 TEXT NOT NULL, head BLOB NOT NULL, PRIMARY KEY (identity, sha256, head)
) WITHOUT ROWID
"""


def collect(*, name: str, url: str, table: str) -> None:
    """Drain the forward queue into `table` until nothing came for `IDLE_S`."""
    with closing(sqlite3.connect(table)) as database, connect(name, url) as connection:
        database.execute(SCHEMA)
        session = connection.session(AckMode.CLIENT)
        receiver = session.receiver(INGEST, prefetch=PREFETCH)
        while batch := receiver.receive_many(BATCH, timeout=IDLE_S):
            new = store(database, [(entry.identity, *astuple(entry), body) for entry, body in map(read, batch)])
            session.acknowledge()
            report(stored=new)


def store(database: sqlite3.Connection, rows: Iterable[tuple[object, ...]]) -> int:
    """Insert the rows that are not there yet, in one transaction, and return how many were new."""
    before = database.total_changes
    with database:
        database.executemany("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", rows)
    return database.total_changes - before


def rows(table: Path) -> list[tuple[str, str]]:
    """Return (path, sha256) of every row of the table, doubles included."""
    with closing(sqlite3.connect(table)) as database:
        return database.execute("SELECT path, sha256 FROM files").fetchall()

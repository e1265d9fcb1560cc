"""A producer and a consumer that follow docs/exactly-once.md, to be killed at any moment.

    python exactly_once_program.py produce FOLDER COUNT
    python exactly_once_program.py consume FOLDER

FOLDER has the broker's address in ``endpoint``. The producer counts in ``out.db`` what it has handed in, in the
transaction that writes the message; the consumer writes what it was given into ``in.db``, in the transaction that
writes the outcome. Neither looks whether anything was there before: that is what is tried. The producer ends when all
COUNT messages are accepted, the consumer when ``finish`` is in the folder and nothing comes any more.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from pathlib import Path

import acquit

QUEUE = "orders"
IDLE_S = 1.0


def connection(folder: Path, name: str) -> acquit.Connection:
    """Connect to the broker of this moment; its port stays the same over its lives."""
    while not (folder / "endpoint").exists():
        time.sleep(0.02)
    url = (folder / "endpoint").read_text().strip()
    while True:
        try:
            return acquit.connect(url, container_id=name)
        except acquit.ConnectionFailed:
            time.sleep(0.05)


def produce(folder: Path, count: int) -> None:
    database = sqlite3.connect(folder / "out.db", timeout=30)
    database.execute("CREATE TABLE IF NOT EXISTS handed_in (number INTEGER)")
    database.commit()
    with acquit.SqliteStore(folder / "out.db") as store, connection(folder, "producer") as link:
        sender = link.session().sender(QUEUE, name="orders-out", exactly_once=store)
        while True:
            (next_,) = database.execute("SELECT count(*) FROM handed_in").fetchone()
            if next_ >= count:
                break
            with database:
                database.execute("INSERT INTO handed_in VALUES (?)", (next_,))
                prepared = sender.prepare(str(next_), database.cursor())
            sender.send(prepared, wait=False)
        sender.flush(60)


def consume(folder: Path) -> None:
    database = sqlite3.connect(folder / "in.db", timeout=30)
    database.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER)")
    database.commit()
    with acquit.SqliteStore(folder / "in.db") as store, connection(folder, "consumer") as link:
        receiver = link.session("individual").receiver(QUEUE, name="orders-in", prefetch=20, exactly_once=store)
        while True:
            message = receiver.receive(timeout=IDLE_S)
            if message is None:
                if (folder / "finish").exists():
                    break
                continue
            with database:
                database.execute("INSERT INTO orders VALUES (?)", (int(str(message.body)),))
                store.remember(message, database.cursor())
            message.accept(sync=False)


def main() -> None:
    role, folder, *rest = sys.argv[1:]
    if role == "produce":
        produce(Path(folder), int(rest[0]))
    else:
        consume(Path(folder))


if __name__ == "__main__":
    main()

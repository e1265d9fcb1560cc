"""A consumer that follows docs/effectively-once.md, and dies where it is told to.

    python -m tests.support.inbox_program FOLDER MODE BATCH INBOX POINT:NUMBER

FOLDER has the broker's address in ``endpoint`` and the database ``work.db``; when ``finish`` is there, the program ends
once nothing comes any more. MODE is an acknowledgement mode, BATCH how many messages are one transaction, INBOX ``sql``
or ``none``: then what comes is worked on, whether it was here before or not. At the NUMBER-th time that it passes POINT
(``POINTS``) it kills itself with SIGKILL; ``-`` is never.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from pathlib import Path

import acquit
from tests.support.endpoint import keep_working

POINTS = (
    "received",
    "looked",
    "remembered",
    "worked",
    "committing",
    "committed",
    "duplicate",
    "acknowledging",
    "acknowledged",
)
"""In this order; *worked* and what is before it only for messages that are new, *duplicate* for the others."""
QUEUE = "orders"
IDLE_S = 0.3


class Steps:
    def __init__(self, kill: str) -> None:
        self._point, _, number = kill.partition(":")
        self._left = int(number or 0)

    def at(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


class SteppingCursor:
    """A cursor that passes the points between the statements of `SqlInbox.remember`."""

    def __init__(self, cursor: sqlite3.Cursor, steps: Steps) -> None:
        self._cursor = cursor
        self._steps = steps
        self.connection = cursor.connection

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def execute(self, operation: str, parameters: object = ()) -> object:
        if operation.startswith("INSERT INTO acquit_inbox"):
            self._steps.at("looked")
        result = self._cursor.execute(operation, parameters)  # type: ignore[arg-type]
        if operation.startswith("INSERT INTO acquit_inbox"):
            self._steps.at("remembered")
        return result

    def fetchall(self) -> list[object]:
        return self._cursor.fetchall()


def main(folder: Path, mode: str, batch: int, kept: str, steps: Steps) -> None:
    database = sqlite3.connect(folder / "work.db")
    database.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER)")
    inbox = acquit.SqlInbox(database)

    def work(connection: acquit.Connection) -> None:
        session = connection.session(mode)
        receiver = session.receiver(QUEUE, prefetch=10)
        while True:
            messages = receiver.receive_many(batch, timeout=IDLE_S)
            if not messages:
                if (folder / "finish").exists():
                    return
                continue
            steps.at("received")
            cursor = SteppingCursor(database.cursor(), steps)
            try:
                for message in messages:
                    if kept == "none" or inbox.remember(message, cursor):
                        cursor.execute("INSERT INTO orders VALUES (?)", (message.body,))
                        steps.at("worked")
                    else:
                        steps.at("duplicate")
            except acquit.InboxConflict:  # another consumer has just committed one of these
                database.rollback()
                _ = session.settle(messages, acquit.Released())
                continue
            steps.at("committing")
            database.commit()
            steps.at("committed")
            receipts = (
                [session.acknowledge(sync=False)]
                if mode == "client"
                else [message.acknowledge(sync=False) for message in messages]
            )
            steps.at("acknowledging")
            for receipt in receipts:
                receipt.result()
            steps.at("acknowledged")

    keep_working(folder / "endpoint", container_id="worker", work=work, lost=lambda why: database.rollback())
    database.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], Steps(sys.argv[5]))

"""Exactly-once sends that an earlier life of the program has left in its store, more than an attach has room for."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import acquit

COUNT = 5_000
"""Stored sends; an attach of 64 KiB names about 2,400."""


@pytest.mark.promise("exactly-once")
def test_thousands_of_stored_sends_go_on_in_the_next_life(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "work.db")
    with acquit.Broker() as broker:
        for life in range(2):
            with (
                acquit.SqliteStore(tmp_path / "work.db") as store,
                acquit.connect(broker.url, container_id="app") as connection,
            ):
                sender = connection.session().sender("q", name="out", exactly_once=store)
                if life == 0:
                    with database:
                        cursor = database.cursor()
                        for number in range(COUNT):
                            sender.prepare(str(number), cursor)  # the program ends before it sends them
                    continue
                sender.send("new", timeout=60)
                sender.flush(60)
                receiver = connection.session("individual").receiver("q")
                bodies = []
                while (message := receiver.receive(timeout=0 if len(bodies) > COUNT else 60)) is not None:
                    bodies.append(message.body)
                    message.accept(sync=False)
                assert bodies == [*map(str, range(COUNT)), "new"]
        with acquit.SqliteStore(tmp_path / "work.db") as store:
            assert not store.load("out").sends

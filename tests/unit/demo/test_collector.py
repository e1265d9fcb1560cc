from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from acquit.demo.collector import SCHEMA, rows, store

ONE = ("a#0", "a", 1, 0, "0", b"x")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "table.sqlite")) as connection:
        connection.execute(SCHEMA)
        yield connection


def test_a_copy_is_set_aside(database: sqlite3.Connection, tmp_path: Path) -> None:
    assert store(database, [ONE, ("b#0", "b", *ONE[2:]), ONE]) == 2
    assert store(database, [ONE]) == 0
    assert rows(tmp_path / "table.sqlite") == [("a", "0"), ("b", "0")]


@pytest.mark.parametrize("other", [(*ONE[:4], "1", b"x"), (*ONE[:5], b"y")])
def test_the_same_identity_with_other_content_is_kept_beside(
    database: sqlite3.Connection, tmp_path: Path, other: tuple[object, ...]
) -> None:
    assert store(database, [ONE, other]) == 2
    assert len(rows(tmp_path / "table.sqlite")) == 2

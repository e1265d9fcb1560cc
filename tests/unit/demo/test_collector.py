from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from acquit.demo.collector import SCHEMA, rows, store
from acquit.demo.messages import FileFacts

ONE = FileFacts(identity="a#0", path="a", size=1, mtime_ms=0, sha256="0", head=b"x")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "table.sqlite")) as connection:
        connection.execute(SCHEMA)
        yield connection


def test_a_copy_is_set_aside(database: sqlite3.Connection, tmp_path: Path) -> None:
    two = replace(ONE, identity="b#0", path="b")
    assert store(database, [ONE, two, ONE]) == 2
    assert store(database, [ONE]) == 0
    assert rows(tmp_path / "table.sqlite") == [("a", "0"), ("b", "0")]


@pytest.mark.parametrize("other", [replace(ONE, sha256="1"), replace(ONE, head=b"y")])
def test_the_same_identity_with_other_content_is_kept_beside(
    database: sqlite3.Connection, tmp_path: Path, other: FileFacts
) -> None:
    assert store(database, [ONE, other]) == 2
    assert len(rows(tmp_path / "table.sqlite")) == 2

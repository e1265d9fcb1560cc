"""The tool that plants mistakes into whole systems: that it tells a passage which is gone, and a mistake that shows."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.unit.test_tree import load


@pytest.fixture(scope="module")
def planted() -> Any:
    return load("planted")


def test_each_mistake_can_be_planted_and_is_told_from_the_others(planted: Any) -> None:
    assert len(planted.MISTAKES) >= 30
    assert len({mistake.name for mistake in planted.MISTAKES}) == len(planted.MISTAKES)
    for mistake in planted.MISTAKES:
        for path, source in planted.changed(mistake).items():
            assert source != (planted.SOURCES / path).read_text(), mistake.name


@pytest.mark.parametrize(
    ("path", "old", "new", "why"),
    [
        ("broker/nowhere.py", "a", "b", "there is no"),
        ("broker/life.py", "nobody wrote this", "b", "0 times"),
        ("broker/life.py", "message", "b", "times in"),
        ("broker/life.py", "class Life:", "class Life", "no Python"),
    ],
)
def test_a_passage_that_is_not_there_once_is_told(planted: Any, path: str, old: str, new: str, why: str) -> None:
    edit = sys.modules["planted_mistakes"].Edit(path, old, new)
    with pytest.raises(planted.CannotPlant, match=why):
        planted.changed(planted.Planted("a", "b", (edit,)))


def test_two_passages_of_one_file_are_both_changed(planted: Any) -> None:
    edit = sys.modules["planted_mistakes"].Edit
    mistake = planted.Planted(
        "a", "b", (edit("broker/life.py", "class Life:", "class One:"), edit("broker/life.py", '["DISPATCHED"', '["A"'))
    )
    source = planted.changed(mistake)["broker/life.py"]
    assert "class One:" in source
    assert '["A"' in source


@pytest.mark.slow
def test_a_mistake_is_found_and_what_changes_nothing_is_not(planted: Any) -> None:
    by_name = {mistake.name: mistake for mistake in planted.MISTAKES}
    # Nearly every world shows this one, the first that runs: how fast the machine is does not matter.
    found = planted.hunt(by_name["memory not given back"], 1, planted.LIMIT_S)
    assert found.rule  # which one is broken first, and in which world, changes with whatever else worlds do
    assert found.seed > 0
    edit = sys.modules["planted_mistakes"].Edit("broker/life.py", "class Life:\n", "class Life:  # alike\n")
    assert planted.hunt(planted.Planted("a", "b", (edit,)), 1, 0.1).seed == 0


def test_a_row_for_each(planted: Any) -> None:
    one, two = planted.Planted("one", "a promise", ()), planted.Planted("two", "another", ())
    rows = [
        planted.row_of(one, planted.Found(2.0, 7, "again", "x")),
        planted.row_of(two, planted.Found(60.0)),
    ]
    text = planted.table(rows)
    assert text.startswith("1 of 2 were found, half of them within 2.0 s")
    assert text.endswith("| one | a promise | yes | 2.0 | again | 7 |\n| two | another | no | 60.0 | |  |")
    assert planted.rows_of(text) == dict(zip(("one", "two"), rows, strict=True))

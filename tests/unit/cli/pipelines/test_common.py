"""How far a pipeline is, and how it ends."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from acquit.cli.exits import Exit
from acquit.cli.pipelines import PIPELINES, common, pipeline
from acquit.cli.pipelines.common import Follower, ended, following
from tests.support.shell import Shell


def test_a_count_its_rate_and_what_is_left() -> None:
    shown: list[str] = []
    clock = itertools.count(0, 10)
    follower = Follower("ingesting orders", "rows", shown.append, lambda: float(next(clock)))
    follower.at(100)
    follower.at(5_100, left=42)
    for done in (5_200, 5_300, 5_400, 5_400):
        follower.at(done)
    follower.say("committing")
    assert shown == [
        "ingesting orders: 100 rows, 10/s",
        "ingesting orders: 5,100 rows, 255/s, 42 in the queue",
        "ingesting orders: 5,200 rows, 173/s",
        "ingesting orders: 5,300 rows, 132/s",
        "ingesting orders: 5,400 rows, 132/s",
        "ingesting orders: 5,400 rows, 8/s",
        "ingesting orders: committing",
    ], "the rate is that of the last half minute"


def test_the_rate_of_what_takes_long_is_not_nothing() -> None:
    shown: list[str] = []
    clock = itertools.count(0, 20)
    Follower("auditing", "segments", shown.append, lambda: float(next(clock))).at(3)
    assert shown == ["auditing: 3 segments, 0.15/s"]


def test_where_there_is_no_terminal_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of what came is shown, also where nothing more comes; at the end there is a summary."""
    monkeypatch.setattr(common, "TOLD_EVERY_S", 0.2)
    told = ""
    with following("ingesting", "rows") as follower:
        for number in range(1, 4):
            follower.at(number)
        while not told:
            time.sleep(0.01)
            told = capsys.readouterr().err
        monkeypatch.setattr(common, "TOLD_EVERY_S", 1_000.0)
        follower.at(4)
    assert told.startswith("ingesting: 3 rows") and told.count("\n") == 1
    assert capsys.readouterr().err == ""


def test_who_is_interrupted_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), following("ingesting orders", "rows"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == (
        "acquit: interrupted while ingesting orders; what was done stays done, run it again for the rest\n"
    )


@pytest.mark.parametrize(
    ("balanced", "complete", "code"),
    [(True, True, Exit.OK), (False, True, Exit.UNSOUND), (True, False, Exit.FAILED), (False, False, Exit.UNSOUND)],
)
def test_how_it_ends(balanced: bool, complete: bool, code: Exit) -> None:
    assert ended(balanced=balanced, complete=complete) is code


def test_each_pipeline_is_there_and_says_what_it_does(shell: Shell) -> None:
    listed = shell("pipeline", "--help").out
    for name, (_, summary) in PIPELINES.items():
        assert name in listed
        assert summary.split()[0] in listed
        assert shell("pipeline", name, "--help").code == Exit.OK
    assert list(pipeline.list_commands(None)) == list(PIPELINES)  # type: ignore[attr-defined]


def test_a_size_of_more_digits_than_are_read_is_refused_in_one_line(shell: Shell, tmp_path: Path) -> None:
    ran = shell("pipeline", "compact", tmp_path, "--target-file-size", "9" * 5_000)
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert "expected a size such as 65536, 512k, 64m or 1g" in ran.err

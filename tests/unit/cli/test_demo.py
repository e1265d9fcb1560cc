from __future__ import annotations

from pathlib import Path

import pytest

from acquit.cli.exits import Exit
from acquit.demo import play
from tests.support.shell import Shell


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (play.EXIT_HOLDS, Exit.OK),
        (play.EXIT_DOES_NOT_HOLD, Exit.UNSOUND),
    ],
)
def test_options_go_in_and_the_code_comes_out(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: int, code: Exit
) -> None:
    asked: list[play.DemoOptions] = []

    def run(options: play.DemoOptions) -> int:
        asked.append(options)
        return ended

    monkeypatch.setattr(play, "run", run)
    assert shell("demo", tmp_path, "--data", tmp_path / "d", "--files", 7, "--spark", "--naive", "--json").code == code
    assert asked == [
        play.DemoOptions(directory=tmp_path, data=tmp_path / "d", files_max=7, spark=True, naive=True, json=True)
    ]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_it_cannot_be_played_with_is_said_as_by_all_commands(
    shell: Shell, tmp_path: Path, form: tuple[str, ...]
) -> None:
    ran = shell("demo", tmp_path, "--data", tmp_path / "data", *form)
    assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.USAGE, "", 1)
    assert ran.err.startswith("acquit: ")


def test_a_folder_that_is_not_there(shell: Shell, tmp_path: Path) -> None:
    assert shell("demo", tmp_path / "nowhere").code == Exit.USAGE

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from acquit.cli.app import COMMANDS
from acquit.cli.completion import SHELLS
from acquit.cli.exits import Exit
from tests.support.shell import Shell

CHECKS = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}
THERE = [shell for shell in SHELLS if shutil.which(shell)]


@pytest.fixture
def path_with_acquit(tmp_path: Path) -> str:
    """A PATH on which `acquit` is this one."""
    command = tmp_path / "acquit"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m acquit "$@"\n')
    command.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


@pytest.mark.parametrize("name", list(SHELLS))
def test_each_script_asks_for_what_click_answers(shell: Shell, name: str) -> None:
    ran = shell("completion", name)
    assert ran.code == Exit.OK
    assert f"_ACQUIT_COMPLETE={name}_complete" in ran.out


@pytest.mark.parametrize("name", THERE)
def test_the_shell_takes_its_script(shell: Shell, name: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(shell("completion", name).out)
    done = subprocess.run([*CHECKS[name], str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def bash_completes(words: list[str], path: str) -> list[str]:
    """What bash would offer for the last of `words`."""
    listed = " ".join(f"'{word}'" for word in words)
    program = f"""
        eval "$(acquit completion bash)"
        complete -p acquit >&2
        COMP_WORDS=({listed}) COMP_CWORD={len(words) - 1}
        _acquit_completion acquit
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    command = ["bash", "--norc", "-c", program]
    done = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True)
    assert "-F _acquit_completion acquit" in done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["acquit", "comp"], ["completion"]),
        (["acquit", "queues", "cr"], ["create"]),
        (["acquit", "queues", "--times", "2", "delete", "--if-u"], ["--if-unused"]),
        (["acquit", "bench", "--dur"], ["--durable"]),
        (["acquit", "receive", "--outcome", "re"], ["release", "reject"]),
    ],
    ids=" ".join,
)
def test_bash_completes(words: list[str], offered: list[str], path_with_acquit: str) -> None:
    assert bash_completes(words, path_with_acquit) == offered


@pytest.mark.parametrize("name", list(SHELLS))
def test_commands_are_offered_without_loading_them(name: str) -> None:
    program = (
        "import sys\n"
        "from acquit.cli.app import run\n"
        "code = run([])\n"
        "print(code, sorted(name for name in sys.modules if name.startswith('acquit.cli.')))"
    )
    asked = {
        "_ACQUIT_COMPLETE": f"{name}_complete",
        "COMP_WORDS": "acquit ",
        "COMP_CWORD": "" if name == "fish" else "1",
    }
    command = [sys.executable, "-c", program]
    shown = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=True).stdout
    *_, last = shown.splitlines()
    assert all(command in shown for command in COMMANDS)
    assert last == "0 ['acquit.cli.app', 'acquit.cli.exits', 'acquit.cli.lazy', 'acquit.cli.streams']"

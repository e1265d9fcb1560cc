"""How many descriptors connections may take. The limits are a process's, so each test has one of its own."""

from __future__ import annotations

import subprocess
import sys


def run(soft: int, hard: int, program: str) -> str:
    limits = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
    imports = "from acquit.transport import descriptors\n"
    done = subprocess.run(
        [sys.executable, "-c", limits + imports + program], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    program = "descriptors.raise_limit(); print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    assert run(64, 200, program) == "200 200\n"
    assert run(200, 200, program) == "200 200\n"


def test_the_journal_keeps_its_share() -> None:
    program = "import os; print(descriptors.available(16) + len(os.listdir('/dev/fd')) + descriptors.RESERVE + 16)"
    assert run(200, 200, program) == "200\n"


def test_there_is_always_room_for_somebody() -> None:
    assert run(40, 40, "print(descriptors.available(16))") == "2\n"

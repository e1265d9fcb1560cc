"""Every file of examples/ runs as a newcomer would run it, and says what it is there to show."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# file: lines that its output must have
SHOWS: dict[str, list[str]] = {
    "hello.py": ["hello"],
    "hello_asyncio.py": ["hello"],
    "work_queue.py": [
        "accepted: APPLIED",
        "released, and here again: too busy now after 0 failed attempts",
        "modified, and here again: too busy now after 1 failed attempt",
        "dead letter: not a number from work",
    ],
    "acknowledgement_modes.py": [
        "AUTO: each is accepted as receive() returns it. Left for the next: [5, 6, 7, 8, 9, 10, 11, 12]",
        "CLIENT: acknowledge() on the second: all handed out. Left for the next: [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]",
        "INDIVIDUAL: acknowledge() on the second: that alone. Left for the next: [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]",
    ],
    "receipts.py": ["accepted: 1000", "acknowledgement: APPLIED"],
    "survive_a_crash.py": [
        "the connection: INTERRUPTED",
        "the connection: RESTORED",
        "10000 of 10000 sends are accepted",
    ],
    "request_reply.py": [
        "what is this? -> WHAT IS THIS?",
        "and that? -> AND THAT?",
        "no reply from 'nobody.is.there' within 0.2 s: the request was accepted",
    ],
    "effectively_once.py": ["100 to Ada: NEW", "100 to Ada: DUPLICATE", "1 payment"],
    "browse_and_account.py": ["#1 tea", "#2 coffee", "#3 gravel", "    DEAD_LETTERED not a drink"],
}
SHOWS_WITH_SPARK = {"queue_to_table.py": ["order-0 order 0"]}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """What an example prints. It runs once."""

    @cache
    def run(name: str) -> list[str]:
        return output(name, tmp_path_factory.mktemp("example"))

    return run


def output(name: str, folder: Path) -> list[str]:
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout.splitlines()


@pytest.mark.parametrize("name", SHOWS)
def test_it_runs_and_shows(name: str, said: Callable[[str], list[str]]) -> None:
    assert [line for line in SHOWS[name] if line not in said(name)] == [], said(name)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWS_WITH_SPARK)
def test_it_runs_with_spark_and_shows(name: str, tmp_path: Path) -> None:
    said = output(name, tmp_path)
    assert [line for line in SHOWS_WITH_SPARK[name] if line not in said] == [], said
    assert any(line.startswith("100 rows") for line in said)


def test_acknowledging_on_receipt_loses_what_was_prefetched(said: Callable[[str], list[str]]) -> None:
    (line,) = [line for line in said("acknowledgement_modes.py") if line.startswith("NO_ACK")]
    left = line.rpartition(": ")[2]
    # How many were on the way when the process ended is the broker's business; the four it saw are gone in any case.
    assert "4" not in left.strip("[]").split(", ")


def test_a_crash_loses_nothing_that_was_accepted(said: Callable[[str], list[str]]) -> None:
    lines = said("survive_a_crash.py")
    assert lines[-1].startswith("0 are missing, ")
    assert "killed, with 0 sends under way" not in lines, "the broker was killed too late to show anything"


def test_every_example_is_here_and_in_the_list() -> None:
    files = {path.name for path in EXAMPLES.glob("*.py")}
    assert files == SHOWS.keys() | SHOWS_WITH_SPARK.keys()
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [name for name in sorted(files) if f"[{name}]({name})" not in listed] == []

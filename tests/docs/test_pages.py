"""Every example in README.md and docs/ runs.

The python blocks of a page are one program, run in order in a process of their own and in an empty folder, against a
broker of their own: ``amqp://127.0.0.1:5672`` in the text stands for its URL. Of a console block the lines that begin
with ``$ acquit`` are run, and must exit with 0. A block that cannot run here says so in its fence (``python no-run``),
with the reason in the sentence before it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import acquit

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
URL = "amqp://127.0.0.1:5672"
SLOW = ("docs/audit.md", "docs/report.md")
"""Pages whose program starts a Spark of its own; the tutorial of Spark is not among them."""

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    line: int
    text: str


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that run."""
    content = page.read_text()
    found = []
    for match in _FENCE.finditer(content):
        words = match["info"].split()
        if words and words[0] in ("python", "console") and "no-run" not in words:
            found.append(Block(words[0], content.count("\n", 0, match.start()) + 2, match["text"]))
    return found


def pages_with(language: str) -> list[object]:
    return [
        pytest.param(page, id=(name := str(page.relative_to(ROOT))), marks=[pytest.mark.slow] if name in SLOW else [])
        for page in PAGES
        if any(block.language == language for block in blocks(page))
    ]


@pytest.mark.parametrize("page", pages_with("python"))
def test_python_blocks(page: Path, tmp_path: Path) -> None:
    # Blank lines in place of the prose, so that a traceback names the line of the page.
    program = ""
    for block in blocks(page):
        if block.language == "python":
            program += "\n" * (block.line - 1 - program.count("\n")) + block.text
    script = tmp_path / page.name
    with acquit.Broker() as broker:
        script.write_text(program.replace(URL, broker.url))
        done = subprocess.run(
            [sys.executable, "-W", "error", str(script)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", pages_with("console"))
def test_console_blocks(page: Path, tmp_path: Path) -> None:
    with acquit.Broker(tmp_path / "data") as broker:
        environment = {**os.environ, "ACQUIT_URL": broker.url, "NO_COLOR": "1"}
        for block in blocks(page):
            for line in block.text.splitlines() if block.language == "console" else ():
                if line.startswith("$ acquit "):
                    words = shlex.split(line.removeprefix("$ acquit ").replace(URL, broker.url))
                    done = subprocess.run(
                        [sys.executable, "-m", "acquit", *words],
                        cwd=tmp_path,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        capture_output=True,
                        text=True,
                        timeout=60,
                        check=False,
                    )
                    assert done.returncode == 0, (line, done.stdout, done.stderr)

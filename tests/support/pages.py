"""The examples of README.md and docs/: their blocks, and the commands of those that show a shell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
URL = "amqp://127.0.0.1:5672"
"""The broker, as the pages have it."""

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """`how` it is run: "" by itself, on a broker of its own; "staged" where what it speaks of was put there; or
    "no-run"."""

    language: str
    how: str
    line: int
    text: str


class Command(NamedTuple):
    """A line after a ``$``, and what the page shows that it prints."""

    text: str
    output: list[str]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def all_blocks(page: Path) -> Iterator[Block]:
    """The examples of a page: python and console. Other blocks show something else than what one would type."""
    content = page.read_text()
    for match in _FENCE.finditer(content):
        language, _, how = match["info"].strip().partition(" ")
        if language in ("python", "console"):
            yield Block(language, how, content.count("\n", 0, match.start()) + 2, match["text"])


def blocks(page: Path, how: str = "") -> list[Block]:
    """Those that are run in this way."""
    return [block for block in all_blocks(page) if block.how == how]


def commands(block: Block) -> Iterator[Command]:
    """What a console block types, one after the other."""
    for part in ("\n" + block.text).split("\n$ ")[1:]:
        typed, *output = part.replace("\\\n", " ").splitlines()
        yield Command(typed, output)

"""The corpus: for each target one file, and in it one input a line, in ASCII with Python's escapes.

A line that begins with ``#`` says something about the next one. Inputs are kept for what they reach or for what they
once broke; those that the search keeps are minimised first, so that the whole is replayed in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def path_of(target: str) -> Path:
    return CORPUS / f"{target}.txt"


def escape(data: bytes) -> str:
    """One line; `unescape` gives the bytes again."""
    text = data.decode("latin-1").encode("unicode_escape").decode("ascii")
    if text.startswith("#"):
        text = f"\\x23{text[1:]}"
    return f"{text[:-1]}\\x20" if text.endswith(" ") else text


def unescape(line: str) -> bytes:
    return line.encode("ascii").decode("unicode_escape").encode("latin-1")


def read(target: str) -> list[bytes]:
    """The inputs kept for a target."""
    path = path_of(target)
    if not path.exists():
        return []
    return [unescape(line) for line in path.read_text("ascii").splitlines() if line and not line.startswith("#")]


def add(target: str, inputs: Iterable[bytes]) -> int:
    """Append those that are not there yet; how many."""
    known = set(read(target))
    fresh = sorted({data for data in inputs if data} - known, key=lambda data: (len(data), data))
    if fresh:
        CORPUS.mkdir(exist_ok=True)
        with path_of(target).open("a", encoding="ascii") as file:
            file.writelines(f"{escape(data)}\n" for data in fresh)
    return len(fresh)

"""Fuzz targets: a parser of the product, what it may refuse with, and how much it may cost.

A target takes any bytes and returns whether they were taken. It checks what must hold of all inputs (what was decoded
encodes and decodes again; the short way says what the long way says) by asserting it. `check` adds two properties that
all targets share: nothing is raised but what the target refuses with, and the *cost* is bounded by the length of the
input. The cost is the number of lines of acquit's own code that were executed: the same on every machine, whatever else
it does. What it cannot see is work inside one line: a slice of a long text, a regular expression.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

import acquit

SOURCE: Final = str(Path(acquit.__file__).parent) + os.sep


class TooLaborious(BaseException):
    """More lines were executed than the input's length allows. Not an Exception: no parser may take it for its own."""


@dataclass(frozen=True, slots=True)
class Target:
    """One parser, or several that read the same bytes."""

    name: str
    run: Callable[[bytes], object]
    """Raises one of `refuses`, or AssertionError where something does not hold."""
    modules: tuple[str, ...]
    """What reads the bytes, for the table and for the test that nothing is missing."""
    refuses: tuple[type[Exception], ...]
    """What may be raised, and by being raised says that the input is refused."""
    seeds: tuple[bytes, ...]
    """What the search begins with, beside the corpus. Each must be taken."""
    steps_per_byte: int = 150
    steps: int = 20_000
    """Lines that may be executed: so many for each byte of the input, and so many besides."""
    words: tuple[bytes, ...] = ()
    """What is worth inserting."""
    long: tuple[bytes, ...] = ()
    """Inputs that are too long for the corpus: what is deep, and what repeats."""
    length_max: int = 2_048
    """Of the inputs that the search tries."""
    warms: bool = field(default=False)
    """Runs once before it is measured: it makes something when it is first used."""


def repeated(pieces: tuple[bytes, ...], size: int = 1_500) -> tuple[bytes, ...]:
    """Each piece as often as it takes to be so long."""
    return tuple(piece * (size // len(piece)) for piece in pieces)


def check(target: Target, data: bytes) -> bool:
    """Run a target and hold it to all that must be true. Returns whether the input was taken."""
    allowed = target.steps + target.steps_per_byte * len(data)
    taken, steps = measure(target, data, allowed)
    if steps > allowed:
        raise TooLaborious(f"{target.name}: more than {allowed:,} lines for {len(data)} bytes")
    return taken


def measure(target: Target, data: bytes, allowed: int = sys.maxsize) -> tuple[bool, int]:
    """Whether the input is taken, and how many lines of acquit that took. Ends by TooLaborious above `allowed`."""
    steps = 0

    def line(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal steps
        if event == "line":
            steps += 1
            if steps > allowed:
                raise TooLaborious(f"{target.name}: more than {allowed:,} lines for {len(data)} bytes")
        return line

    def call(frame: FrameType, _event: str, _arg: object) -> Any:
        return line if frame.f_code.co_filename.startswith(SOURCE) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        target.run(data)
    except target.refuses:
        return False, steps
    finally:
        sys.settrace(before)
    return True, steps


def reached(target: Target, data: bytes) -> set[tuple[object, int, int]]:
    """Which steps an input takes from one line of acquit to another: by these, inputs are kept that reach more."""
    steps: set[tuple[object, int, int]] = set()

    def call(frame: FrameType, _event: str, _arg: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(SOURCE):
            return None
        before = 0

        def line(frame: FrameType, _event: str, _arg: object) -> Any:
            nonlocal before
            steps.add((code, before, frame.f_lineno))
            before = frame.f_lineno
            return line

        return line

    outer = sys.gettrace()
    sys.settrace(call)
    try:
        target.run(data)
    except target.refuses:
        pass
    finally:
        sys.settrace(outer)
    return steps


class Reader:
    """Takes an input apart into choices, for targets whose input is a list of steps. Never raises: zeros follow."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def number(self, size: int = 1) -> int:
        return int.from_bytes(self.take(size), "big")

    def take(self, size: int) -> bytes:
        """So many bytes, or what is left."""
        found = self._data[self._at : self._at + size]
        self._at += len(found)
        return found

    def block(self) -> bytes:
        """Bytes behind their length, which is one byte."""
        return self.take(self.number())


def as_text(data: bytes) -> str:
    """Any bytes as a text: what is not UTF-8 becomes lone surrogates, which a Python program can also hold."""
    return data.decode("utf-8", "surrogateescape")

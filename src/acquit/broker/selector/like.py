"""LIKE (JMS 2.0, 3.8.1.1) without backtracking: time is linear in the text, whatever the pattern.

A pattern without ``_`` is pieces between ``%``: the first and the last stand at the ends, the others are found from
left to right, each as early as possible, which is never worse than later. Other patterns, and the words of topic
patterns, run as an automaton whose set of states is the bits of one integer (bit *i*: the first *i* elements have
matched).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

ONE: Final = None
"""Pattern item that stands for any single item (``_``, or a word ``*``)."""
ANY: Final = ".."
"""Pattern item that stands for any number of items (``%``, or words ``#``). Neither a character nor a word between
dots, which may be empty."""

PATTERN_MAX: Final = 1_024
"""Characters that a pattern may have."""

STEPS_MAX: Final = 16_384
"""Steps that all LIKE of a selector may take for one message; beyond it the result is unknown. A character is a step
where the pattern has ``_``. Without, whole pieces are looked for, and `PIECES_CHARACTERS` are one step."""

PIECES_CHARACTERS: Final = 32

TEXT_MAX: Final = 16_384
"""Characters that LIKE looks at. About a longer text it says unknown: a message may have megabytes of it, and a
selector hundreds of patterns."""


def pattern_matcher(pattern: Sequence[str | None]) -> Callable[[str], bool]:
    """The test of a pattern of characters, `ONE` and `ANY`."""
    if ONE in pattern:
        return automaton(pattern)
    pieces = [""]
    for item in pattern:
        if item == ANY:
            pieces.append("")
        else:
            assert item is not None
            pieces[-1] += item
    if len(pieces) == 1:
        return pieces[0].__eq__
    prefix, *between, suffix = pieces
    middle = [piece for piece in between if piece]
    ends = len(prefix) + len(suffix)

    def matches(text: str) -> bool:
        if len(text) < ends or not text.startswith(prefix) or not text.endswith(suffix):
            return False
        at, end = len(prefix), len(text) - len(suffix)
        for piece in middle:
            at = text.find(piece, at, end)
            if at < 0:
                return False
            at += len(piece)
        return True

    return matches


def automaton(pattern: Sequence[str | None]) -> Callable[[Iterable[str]], bool]:
    """The test of a pattern of items (characters or words), `ONE` and `ANY`."""
    elements = [item for at, item in enumerate(pattern) if item != ANY or not at or pattern[at - 1] != ANY]
    one = sum(1 << at for at, item in enumerate(elements) if item is ONE)
    loops = sum(1 << at for at, item in enumerate(elements) if item == ANY)
    takes: dict[str, int] = {}
    for at, item in enumerate(elements):
        if item is not ONE and item != ANY:
            takes[item] = takes.get(item, one) | 1 << at
    last = 1 << len(elements)
    done = last if elements and elements[-1] == ANY else 0
    begin = 1 | (loops & 1) << 1
    get = takes.get

    def matches(items: Iterable[str]) -> bool:
        states = begin
        for item in items:
            if states & done:
                return True  # all that follows is taken
            states = (states & get(item, one)) << 1 | states & loops
            states |= (states & loops) << 1
            if not states:
                return False
        return states & last != 0

    return matches

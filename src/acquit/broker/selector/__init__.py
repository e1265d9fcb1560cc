"""Message selectors: the conditional expressions of JMS 2.0 (3.8.1), compiled once, asked once a message.

::

    text ── lexer ──▶ tokens ── parser ──▶ syntax ── closures ──▶ Selector.matches(fields)
                                                                        ▲
                                        message ── fields_of ──▶ Fields ┘ decodes a section when a name asks for it
"""

from __future__ import annotations

from collections.abc import Sequence

from acquit.broker.selector.fields import Fields, fields_of, fields_of_posting


class Selector:
    """A condition on messages. Made by `compile_selector`."""

    __slots__ = ("identifiers", "needs_body", "text")

    def __init__(self, text: str, identifiers: frozenset[str], needs_body: bool) -> None:
        self.text = text
        """As it was written."""
        self.identifiers = identifiers
        """The names that it looks at."""
        self.needs_body = needs_body
        """Whether one of the names stands in the body, or all of them are facts of the message in the queue."""

    def matches(self, fields: Fields) -> bool:
        """Whether the condition is true: neither false nor unknown. Raises nothing."""
        raise NotImplementedError


def compile_selector(text: str) -> Selector:
    """Compile a selector.

    Raises SelectorError, in one line with the position, what was found and what was expected.
    """
    raise NotImplementedError


def subject_is(subject: str) -> Selector:
    """The condition that the subject is exactly this."""
    raise NotImplementedError


def subject_matches(pattern: str) -> Selector:
    """The condition that the subject matches a pattern of words between dots: ``*`` one word, ``#`` any number."""
    raise NotImplementedError


def all_of(selectors: Sequence[Selector]) -> Selector | None:
    """The condition that all of these are true; None for none."""
    raise NotImplementedError


__all__ = [
    "Fields",
    "Selector",
    "all_of",
    "compile_selector",
    "fields_of",
    "fields_of_posting",
    "subject_is",
    "subject_matches",
]

"""Message selectors: the conditional expressions of JMS 2.0 (3.8.1), compiled once, asked once a message.

::

    text ── lexer ──▶ tokens ── parser ──▶ syntax ── closures ──▶ Selector.matches(fields)
                                                                        ▲
                                        message ── fields_of ──▶ Fields ┘ decodes a section when a name asks for it

A selector comes from a stranger. Its length, its nesting and its number of terms are bounded, and so is what it can do:
numbers stay within 64 bits, LIKE does not backtrack and its steps are counted, and no message makes it raise.
"""

from __future__ import annotations

from collections.abc import Sequence

from acquit.broker.selector.closures import Test, compile_test
from acquit.broker.selector.fields import (
    Fields,
    fields_of,
    fields_of_posting,
    fields_of_properties,
    is_application_property,
    stands_in_body,
)
from acquit.broker.selector.like import ANY, ONE, PATTERN_MAX, STEPS_MAX, automaton
from acquit.broker.selector.parser import parse
from acquit.broker.selector.syntax import names_in
from acquit.errors import SelectorError


class Selector:
    """A condition on messages. Made by `compile_selector`."""

    __slots__ = ("_test", "by_properties", "identifiers", "needs_body", "text")

    def __init__(self, text: str, identifiers: frozenset[str], test: Test) -> None:
        self.text = text
        """Text of the selector, as it was written."""
        self.identifiers = identifiers
        """The names that it looks at."""
        self.needs_body = any(stands_in_body(name) for name in identifiers)
        """True if one of the names stands in the body; otherwise all of them are facts of the message in the queue."""
        self.by_properties = all(is_application_property(name) for name in identifiers)
        """True if it looks at application properties alone."""
        self._test = test

    def matches(self, fields: Fields) -> bool:
        """True if the condition is true, neither false nor unknown. Raises nothing."""
        fields.steps_left = STEPS_MAX
        return self._test(fields) is True

    def __repr__(self) -> str:
        return f"<Selector {self.text!r}>"


def compile_selector(text: str) -> Selector:
    """Compile a selector.

    Raises SelectorError, in one line with the position, what was found and what was expected.
    """
    node = parse(text)
    return Selector(text, frozenset(names_in(node)), compile_test(node))


def subject_is(subject: str) -> Selector:
    """The condition that the subject is exactly this."""
    quoted = subject.replace("'", "''")
    return Selector(f"JMSType = '{quoted}'", _SUBJECT, lambda fields: fields["JMSType"] == subject)


def subject_matches(pattern: str) -> Selector:
    """The condition that the subject matches a pattern of words between dots: ``*`` one word, ``#`` any number.

    Raises SelectorError for one that is too long.
    """
    if len(pattern) > PATTERN_MAX:
        raise SelectorError(f"topic filter: {len(pattern):,} characters, at most {PATTERN_MAX:,} are taken")
    fits = automaton([{"*": ONE, "#": ANY}.get(word, word) for word in pattern.split(".")])

    def test(fields: Fields) -> bool:
        subject = fields["JMSType"]
        return isinstance(subject, str) and fits(subject.split("."))

    return Selector(f"JMSType MATCHES {pattern!r}", _SUBJECT, test)


_SUBJECT = frozenset(("JMSType",))


def all_of(selectors: Sequence[Selector]) -> Selector | None:
    """The condition that all of these are true; None for none."""
    if len(selectors) < 2:
        return selectors[0] if selectors else None
    return Selector(
        " AND ".join(f"({selector.text})" for selector in selectors),
        frozenset().union(*(selector.identifiers for selector in selectors)),
        lambda fields: all(selector.matches(fields) for selector in selectors),
    )


__all__ = [
    "STEPS_MAX",
    "Fields",
    "Selector",
    "all_of",
    "compile_selector",
    "fields_of",
    "fields_of_posting",
    "fields_of_properties",
    "subject_is",
    "subject_matches",
]

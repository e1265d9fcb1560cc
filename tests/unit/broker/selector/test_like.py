"""LIKE and topic patterns: the quick matcher and the automaton against the definition, and time linear in the text."""

from __future__ import annotations

import itertools
import time
from functools import cache

import pytest

from acquit.broker.selector import compile_selector, subject_matches
from acquit.broker.selector.fields import Fields
from acquit.broker.selector.like import ANY, ONE, PATTERN_MAX, TEXT_MAX, automaton, pattern_matcher
from acquit.broker.selector.parser import AUTOMATON_TERMS, TERMS_MAX
from acquit.errors import SelectorError


def fits(pattern: tuple[str | None, ...], items: tuple[str, ...]) -> bool:
    """What the patterns mean, slowly."""

    @cache
    def rest(at: int, item: int) -> bool:
        if at == len(pattern):
            return item == len(items)
        if pattern[at] == ANY:
            return rest(at + 1, item) or (item < len(items) and rest(at, item + 1))
        return item < len(items) and pattern[at] in (ONE, items[item]) and rest(at + 1, item + 1)

    return rest(0, 0)


def test_every_short_pattern_with_every_short_text() -> None:
    texts = [text for length in range(5) for text in itertools.product("ab", repeat=length)]
    for length in range(5):
        for pattern in itertools.product(("a", "b", ONE, ANY), repeat=length):
            quick, slow = pattern_matcher(pattern), automaton(pattern)
            for text in texts:
                expected = fits(pattern, text)
                assert quick("".join(text)) is expected, (pattern, text)
                assert slow(text) is expected, (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.b.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*", "", True),  # one empty word
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("#.c", "c", True),
        ("#.c", "a.b.c", True),
        ("#.b.#", "a.b.c", True),
        ("#.b.#", "a.c", False),
        ("#", "anything.at.all", True),
        ("a*", "ab", False),  # a star is a word, not a part of one
        ("a*", "a*", True),
        ("*.#.*", "a", False),
        ("*.#.*", "a.b", True),
    ],
)
def test_topic_patterns(pattern: str, subject: str, expected: bool) -> None:
    selector = subject_matches(pattern)
    assert selector.matches(Fields({"JMSType": subject})) is expected
    assert selector.identifiers == {"JMSType"}


def test_a_message_without_a_subject_matches_no_pattern() -> None:
    assert not subject_matches("#").matches(Fields())


def test_a_pattern_that_is_too_long() -> None:
    with pytest.raises(SelectorError, match="at most 1,024 are taken"):
        subject_matches("a." * PATTERN_MAX)


@pytest.mark.parametrize(
    "pattern",
    [
        "%a" * 500 + "b",
        "%a_" * 300 + "b",
        "%" + "_" * 1_000 + "b",
        "%_a" * 340 + "%b",
        "_%" * 500 + "b",
        "%" + "a" * 1_000 + "b%",
    ],
)
def test_no_pattern_takes_more_than_time_linear_in_the_text(pattern: str) -> None:
    """A backtracking matcher would take longer than the universe for the first, and hours for most of the others."""
    selector = compile_selector(f"text LIKE '{pattern}'")
    fields = Fields({"text": "a" * TEXT_MAX})
    began = time.process_time()
    assert not selector.matches(fields)
    assert time.process_time() - began < 1


@pytest.mark.parametrize("text", ["text LIKE 'a%'", "text NOT LIKE 'a%'", "text NOT LIKE '_'"])
def test_like_says_nothing_of_very_long_texts(text: str) -> None:
    assert compile_selector(text).matches(Fields({"text": "a" * TEXT_MAX})) is (text != "text NOT LIKE 'a%'")
    assert not compile_selector(text).matches(Fields({"text": "a" * (TEXT_MAX + 1)}))
    assert not compile_selector(f"NOT ({text})").matches(Fields({"text": "a" * (TEXT_MAX + 1)}))


def test_the_worst_that_a_selector_can_ask_of_a_message() -> None:
    """Patterns that walk all of a text are few, so that no look at a message takes long."""
    pattern = "%" + "a" * 900 + "_b%"
    fields = Fields({"text": "a" * TEXT_MAX})
    terms = TERMS_MAX // (AUTOMATON_TERMS + 1)
    selector = compile_selector(" OR ".join([f"text LIKE '{pattern}'"] * terms))
    began = time.process_time()
    assert not selector.matches(fields)
    assert time.process_time() - began < 1
    with pytest.raises(SelectorError, match="at most 512"):
        compile_selector(" OR ".join([f"text LIKE '{pattern}'"] * (terms + 1)))


def test_all_patterns_of_a_selector_together_look_at_so_much_of_a_message() -> None:
    """What goes beyond is unknown, whatever the message: 20 patterns cost no more than the first few."""
    never = " OR ".join(f"a LIKE '%x_{at}'" for at in range(20))
    fields = Fields()
    fields["a"] = "y" * 4_096
    assert not compile_selector(never).matches(fields)
    assert fields.steps_left < 0
    few = " OR ".join(f"a LIKE '%x_{at}'" for at in range(3)) + " OR a LIKE '%_y'"
    many = never + " OR a LIKE '%_y'"
    assert compile_selector(few).matches(fields)  # the fourth is within what it may cost
    assert not compile_selector(many).matches(fields)
    assert compile_selector(never + " OR b = 1").matches(Fields(fields, b=1))


def test_an_empty_word_of_a_topic_filter_is_that_word_alone() -> None:
    compiled = subject_matches("a..b")
    assert compiled.matches(Fields(JMSType="a..b"))
    assert not compiled.matches(Fields(JMSType="a.x.b"))
    assert not compiled.matches(Fields(JMSType="a.b"))
    assert not subject_matches("").matches(Fields(JMSType="a"))

"""Whatever text comes as a selector, it is compiled or refused with one readable line; and no message makes it raise.

Random texts, texts of the language's own words in random order, and selectors with a few changes. What is compiled is
asked about messages of all kinds of values.
"""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.broker.selector import Fields, compile_selector
from acquit.errors import SelectorError

SEEDS = [
    "JMSPriority > 4 AND colour = 'red'",
    "NOT (a BETWEEN 1 AND 2.5e3 OR b NOT IN ('x', 'it''s', -7)) AND c IS NOT NULL",
    "text LIKE '10!%_%' ESCAPE '!' OR \"quoted \"\"name\"\"\" NOT LIKE '%a%b_'",
    "-(a + 0x1F * 2L) / b - .5f % 3 <= +c AND TRUE <> flag",
    "m.x-opt-a = 1 OR amqp.subject IS NULL AND (((d))) = 017",
    "9223372036854775807 + a > -9223372036854775808 OR 0b11 = 0x1.8p1",
]
WORDS = (
    "AND OR NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE FALSE a b.c m.x-y $ _ 'x' '' '%' '!' \"q\" 1 0 .5 1e3 0x1 9L ( ) ,"
    " = <> < <= > >= + - * / % ! ; ' \" 9223372036854775808 é \x00 \ud800"
).split()
MESSAGES = [
    Fields(),
    *(
        Fields(dict.fromkeys(("a", "b", "c", "d", "b.c", "m.x-y", "$", "_", "q", "text", "colour", "flag"), value))
        for value in (
            0,
            1,
            -(2**63),
            2**64 - 1,
            0.0,
            -1.5,
            float("inf"),
            float("nan"),
            "",
            "10%x",
            True,
            False,
            object(),
        )
    ),
]


def check(refused: SelectorError, length: int) -> None:
    line = str(refused)
    assert line.isprintable() and 0 < len(line) < 300, line
    assert refused.position is None or 0 <= refused.position <= length


def attempt(text: str) -> bool:
    """Whether it was taken."""
    try:
        selector = compile_selector(text)
    except SelectorError as refused:
        check(refused, len(text))
        return False
    for message in MESSAGES:
        assert type(selector.matches(message)) is bool
    return True


@settings(max_examples=2_000, deadline=None)
@given(st.text(st.characters(), max_size=60))
def test_any_text(text: str) -> None:
    attempt(text)


@settings(max_examples=3_000, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=25), st.sampled_from((" ", "")))
def test_words_in_any_order(words: list[str], between: str) -> None:
    attempt(between.join(words))


def mutate(rng: random.Random, text: str) -> str:
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        at, end = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        piece = rng.choice((rng.choice(WORDS), f" {rng.choice(WORDS)} ", "", text[at:end] * 2, rng.choice(SEEDS)))
        if rng.random() < 0.5:
            end = min(end, at + 2)
        text = text[:at] + piece + text[end:]
    return text


@pytest.mark.parametrize("seed", SEEDS)
def test_changed_selectors(seed: str) -> None:
    assert attempt(seed)
    rng = random.Random(seed)
    taken = sum(attempt(mutate(rng, seed)) for _ in range(1_500))
    assert 10 < taken < 1_490  # the changes are neither all harmless nor all fatal


@pytest.mark.parametrize(
    "piece", [*WORDS, "a = ", "(a) ", "a = 1 OR ", "((", "- ", "'a''", "1_", "0x_", "a.", "m.a-", "a IN ("]
)
def test_one_piece_many_times_takes_no_long(piece: str) -> None:
    began = time.process_time()
    for count in (30, 3_000, 30_000):
        attempt((piece * count)[:65_536])
        attempt((f"{piece} " * count)[:65_536])
    assert time.process_time() - began < 3

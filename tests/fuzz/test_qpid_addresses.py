"""Whatever text comes as an address of qpid.messaging, it is a plan for a link, or refused with one readable line."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.compat.qpid.messaging.address import LexError, ParseError, parse
from acquit.compat.qpid.messaging.exceptions import InvalidOption, MalformedAddress
from acquit.compat.qpid.resolving import Plan, plan

SEEDS = [
    "my-queue; {create: always, delete: receiver, node: {type: queue, durable: True}}",
    "news/sport.#; {node: {type: topic}, link: {name: 'a', durable: True, reliability: at-least-once}}",
    "q; {mode: browse, link: {selector: \"a = 'b'\", filter: [{name: f, descriptor: 'x:y', value: [1, {a: 2.5}]}]}}",
    "a\\/b\\x41\\u0042/'s;t'; {create: sender, node: {x-declare: {auto-delete: True, arguments: {'a.b': 1}}}}",
    "#; {create: always, node: {x-bindings: [{exchange: amq.topic, key: 'a.*'}]}}",
]
WORDS = (
    "create delete assert mode node link type durable name reliability selector filter descriptor value x-declare"
    " always never sender receiver browse consume queue topic unreliable True False None q a.b # * / ; : , { } [ ]"
    " 'x' ''"
    ' "y" \' " \\ \\x41 \\x \\u0041 \\u 1 -1 .5 1.5 9999999999999999999999 é \x00 \ud800 a|b x-bindings x-subscribe'
    " timeout arguments exclusive capabilities"
).split()


def attempt(text: str) -> bool:
    """Read an address in all ways; whether it is one."""
    fine = True
    try:
        parse(text)
    except (LexError, ParseError) as refused:
        fine = False
        line = str(refused)
        assert line.isprintable() and 0 < len(line) < 300, line
    for direction in ("sender", "receiver"):
        try:
            assert isinstance(plan(text, direction), Plan)  # type: ignore[arg-type]
            assert fine
        except (InvalidOption, MalformedAddress) as refused:
            line = str(refused)
            assert line.isprintable() and 0 < len(line) < 700, line
            assert fine is isinstance(refused, InvalidOption)  # noqa: PT017 -- either may be raised
    return fine


@given(st.text(st.characters(), max_size=60))
def test_any_text(text: str) -> None:
    attempt(text)


@settings(max_examples=500)
@given(st.lists(st.sampled_from(WORDS), max_size=25), st.sampled_from(["", " "]))
def test_words_of_the_language_in_any_order(words: list[str], between: str) -> None:
    attempt(between.join(words))


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_addresses_with_a_few_changes(seed: int, rng: random.Random) -> None:
    fine = 0
    for _ in range(400):
        text = list(SEEDS[seed])
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(text) + 1)
            match rng.randrange(3):
                case 0:
                    text[place:place] = rng.choice(WORDS)
                case 1:
                    del text[place : place + rng.randint(1, 5)]
                case _:
                    text[place : place + 1] = rng.choice("{}[];:,'\"\\/ax1 ")
        fine += attempt("".join(text))
    assert 0 < fine < 400


@pytest.mark.parametrize(
    "text",
    [
        "q; " + "{a: " * 20_000,
        "q; {a: " + "[" * 50_000,
        "'" + "\\" * 100_000,
        "a" * 200_000,
        "-" * 100_000,
        "1" * 100_000,
        "q; {a: '" + "x" * 100_000,
        "q; {" + "a: 1, " * 20_000 + "}",
        "/" * 100_000,
        "." * 50_000 + "\x00",
    ],
    ids=range(10),
)
def test_long_ones_take_no_longer_than_they_are(text: str) -> None:
    began = time.process_time()
    attempt(text)
    assert time.process_time() - began < 10
